# SPDX-License-Identifier: Apache-2.0
#
# The new files of this topic: there are none.

EXTRA_DIST += patches/flush/automake.mk
