# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by scripts and Makefiles.

# debian_mirror
#
# Prints the mirror of Debian's archive that the system uses, or DEBIAN_MIRROR if
# that is set.
debian_mirror() {
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016  # These are apt's, not the shell's.
    echo "${DEBIAN_MIRROR:-$(
        apt-get indextargets --format '$(REPO_URI)|$(CODENAME)|$(RELEASE)' |
        awk -F'|' -v c="$codename" '$2 == c || $3 == c { print $1 }' |
        head -n 1)}"
}
