# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by scripts and Makefiles.

# find_base TOP NAME DIR CACHE
#
# Sets BASE_DIR to a pristine source tree and BASE_ID to what messages call it:
# the user's DIR, copied to CACHE, or if it is empty, the base NAME, fetched to
# CACHE unless it is there.
find_base() {
    # shellcheck source=/dev/null
    . "$1/bases/$2"
    if test -n "$3"; then
        "$1/tools/copy-ovs" "$3" "$4" "$1/bases/$2.d/base.patch" || return 1
        BASE_DIR=$4/with-ovs
        BASE_ID="$(cat "$4/with-ovs.id")"
    else
        "$1/tools/fetch" "$1/bases/$2" "$4" || return 1
        BASE_DIR=$4/$PACKAGE-$PACKAGE_VERSION
        BASE_ID="Open vSwitch $2 ($PACKAGE $PACKAGE_VERSION)"
    fi
    export BASE_DIR BASE_ID
}

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
