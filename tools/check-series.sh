#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Usage: check-series.sh BUILD SERIES FIRST [CONFIGURE-OPTION...]
#
# Builds each commit of the branch in the work tree BUILD/ovs that comes after
# FIRST, and runs the tests that it has so far; then the same for each mail of
# SERIES whose topic is "alone", alone.  Stops at the first commit that fails.

set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
build=$1 tree=$1/ovs series=$2 first=$3
shift 3
cd "$tree"

# Builds and tests what is checked out.
check() {
    git log -1 --format='check-series: %h %s'
    "$top/tools/configure-tree" "$tree" "$@"
    log=$build/commit.log
    if ! { ${MAKE:-make} -s -j"$(nproc)" V=0 all &&
           ${MAKE:-make} -s check TESTSUITEFLAGS=--version &&
           "$top/tools/check.py" "$build" --ours suite
         } >"$log" 2>&1; then
        tail -n 40 "$log"
        exit 1
    fi
    tail -n 1 "$log"
    git diff --quiet HEAD || { echo "the build changes the branch"; exit 1; }
}

git am --quit 2>/dev/null || :
for commit in $(git rev-list --reverse "$first..series"); do
    git checkout -q -f --detach "$commit"
    check "$@"
done

git checkout -q -f --detach base
git am -q "$series"/*/*.patch
git diff --quiet series || { echo "the mails do not give the branch"; exit 1; }

# shellcheck disable=SC2013  # They are words.
for topic in $(sed -n 's/^\([a-z-]*\):.*\<alone\>.*/\1/p' \
                   "$top/patches/topics"); do
    for mail in "$series"/*-"$topic"/*.patch; do
        git checkout -q -f --detach base
        git am -q "$mail"
        check "$@"
    done
done
