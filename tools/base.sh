# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by scripts.

# debian_mirror
#
# Prints the mirror of Debian's archive that apt uses, or DEBIAN_MIRROR if that
# is set.
debian_mirror() {
    # shellcheck disable=SC2016  # It is apt's, not the shell's.
    uri=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' \
        'Origin: Debian' 'Label: Debian' | head -n 1)}
    uri=${uri%/}
    # Debian's images for clouds have a file of mirrors.
    case $uri in
        mirror+file:*) awk '/^[^#]/ { print $1; exit }' \
                           "${uri#mirror+file:}" ;;
        *) echo "$uri" ;;
    esac
}
