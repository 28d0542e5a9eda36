# SPDX-License-Identifier: Apache-2.0
#
# The files that this project adds to Open vSwitch.  OVS's Makefile.am includes
# this file after all of its own fragments, through
# patches/0010-build-include-overlay.patch, so each list below extends one of
# OVS's.  A new file is one line here: at its place in the alphabet, with the
# path it has in OVS.
#
# A file of tests is listed in TESTSUITE_AT and included from
# tests/testsuite.at by the patch that adds the hook it needs.

EXTRA_DIST += overlay.mk

# lib/: linked into every program.
lib_libopenvswitch_la_SOURCES += \
	lib/cost.c \
	lib/cost.h \
	lib/cost-clock.c \
	lib/cost-clock.h \
	lib/cost-histogram.c \
	lib/cost-histogram.h \
	lib/cost-report.c \
	lib/cost-report.h \
	lib/upcall-cost.c \
	lib/upcall-cost.h

# ofproto/: linked into ovs-vswitchd.
#ofproto_libofproto_la_SOURCES += \
#    ofproto/foo.c \
#    ofproto/foo.h

# Unit tests: subcommands of tests/ovstest.
tests_ovstest_SOURCES += \
	tests/test-cost.c \
	tests/test-cost-histogram.c

# Autotest files of tests/testsuite and of tests/system-userspace-testsuite.
TESTSUITE_AT += \
	tests/cost.at \
	tests/upcall-cost.at
SYSTEM_USERSPACE_TESTSUITE_AT += \
	tests/system-upcall-cost.at

# Documentation: topics and how-tos, and man page fragments.
DOC_SOURCE += \
	Documentation/topics/upcall-cost.rst
MAN_FRAGMENTS += \
	lib/upcall-cost-unixctl.man

# Scripts for USDT probes; Python that flake8 looks at.
#usdt_SCRIPTS += \
#    utilities/usdt-scripts/foo.bt
#FLAKE8_PYFILES += \
#    utilities/foo.py

# Anything else that a release has to carry.
#EXTRA_DIST += \
#    tests/foo.py
