# SPDX-License-Identifier: Apache-2.0
#
# The new files of this topic.  'make prepare' includes this file at the end of
# OVS's Makefile.am, so each list below extends one of OVS's.  A new file is one
# line here: at its place in the alphabet, with the path it has in OVS.
#
# A file of tests is listed in TESTSUITE_AT and included from
# tests/testsuite.at by the patch that adds the hook it needs.

EXTRA_DIST += patches/main/automake.mk

# lib/: linked into every program.
lib_libopenvswitch_la_SOURCES += \
	lib/netlink-cost.c \
	lib/netlink-cost.h

# ovs-vswitchd itself.
vswitchd_ovs_vswitchd_SOURCES += \
	vswitchd/bridge-cost.c \
	vswitchd/bridge-cost.h

# Unit tests: subcommands of tests/ovstest.
tests_ovstest_SOURCES += \
	tests/test-netlink-cost.c

# Autotest files of tests/testsuite.
TESTSUITE_AT += \
	tests/bridge-cost.at \
	tests/netlink-cost.at
SYSTEM_KMOD_TESTSUITE_AT += \
	tests/system-offload-cost.at

# Documentation: topics and man page fragments.
DOC_SOURCE += \
	Documentation/topics/bridge-cost.rst \
	Documentation/topics/netlink-cost.rst
MAN_FRAGMENTS += \
	lib/netlink-cost-unixctl.man \
	vswitchd/bridge-cost-unixctl.man
