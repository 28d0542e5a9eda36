# SPDX-License-Identifier: Apache-2.0
#
# The new files of this topic.  'make prepare' includes this file at the end of
# OVS's Makefile.am, so each list below extends one of OVS's.  A new file is one
# line here: at its place in the alphabet, with the path it has in OVS.
#
# A file of tests is listed in TESTSUITE_AT and included from
# tests/testsuite.at by the patch that adds the hook it needs.

EXTRA_DIST += patches/revalidators/automake.mk

# lib/: linked into every program.
lib_libopenvswitch_la_SOURCES += \
	lib/dump-observer.c \
	lib/dump-observer.h

# ofproto/: linked into ovs-vswitchd.
ofproto_libofproto_la_SOURCES += \
	ofproto/revalidator-cost.c \
	ofproto/revalidator-cost.h

# Autotest files of tests/testsuite.
TESTSUITE_AT += \
	tests/revalidator-cost.at

# Documentation: topics and man page fragments.
DOC_SOURCE += \
	Documentation/topics/revalidator-cost.rst
MAN_FRAGMENTS += \
	ofproto/revalidator-cost-unixctl.man
