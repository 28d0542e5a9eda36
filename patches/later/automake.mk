# SPDX-License-Identifier: Apache-2.0
#
# The new files of this topic.  'make prepare' includes this file at the end of
# OVS's Makefile.am, so each list below extends one of OVS's.  A new file is one
# line here: at its place in the alphabet, with the path it has in OVS.
#
# A file of tests is listed in TESTSUITE_AT and included from
# tests/testsuite.at by the patch that adds the hook it needs.

EXTRA_DIST += patches/later/automake.mk

# Autotest files of tests/testsuite.
TESTSUITE_AT += \
	tests/revalidator-join.at

# Documentation.
DOC_SOURCE += \
	Documentation/topics/revalidator-join.rst
