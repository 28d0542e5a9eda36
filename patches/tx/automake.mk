# SPDX-License-Identifier: Apache-2.0
#
# The new files of this topic.  'make prepare' includes this file at the end of
# OVS's Makefile.am, so each list below extends one of OVS's.  A new file is one
# line here: at its place in the alphabet, with the path it has in OVS.
#
# A file of tests is listed in TESTSUITE_AT and included from
# tests/testsuite.at by the patch that adds the hook it needs.

EXTRA_DIST += patches/tx/automake.mk

# lib/: linked into every program.
lib_libopenvswitch_la_SOURCES += \
	lib/cost-pmu.c \
	lib/cost-pmu.h \
	lib/tx-cost.c \
	lib/tx-cost.h

# tests/ovstest.
tests_ovstest_SOURCES += \
	tests/test-tx-cost.c

# Autotest files of tests/testsuite and of tests/system-dpdk-testsuite.
TESTSUITE_AT += \
	tests/tx-cost.at \
	tests/tx-queue-macros.at
SYSTEM_DPDK_TESTSUITE_AT += \
	tests/system-tx-queue-dpdk.at

# Documentation: topics and man page fragments.
DOC_SOURCE += \
	Documentation/topics/tx-cost.rst
MAN_FRAGMENTS += \
	lib/tx-cost-unixctl.man

# Anything else that a release has to carry.
EXTRA_DIST += \
	tests/tx-queue-traffic.py
