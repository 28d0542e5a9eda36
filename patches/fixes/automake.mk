# SPDX-License-Identifier: Apache-2.0
#
# The new files of this topic.  'make prepare' includes this file at the end of
# OVS's Makefile.am, so each list below extends one of OVS's.  A new file is one
# line here: at its place in the alphabet, with the path it has in OVS.
#
# A file of tests is listed in TESTSUITE_AT and included from
# tests/testsuite.at by the patch that adds the hook it needs.

EXTRA_DIST += patches/fixes/automake.mk

# lib/: linked into every program.
lib_libopenvswitch_la_SOURCES += \
	lib/dp-packet-spares.c \
	lib/dp-packet-spares.h
if LINUX
lib_libopenvswitch_la_SOURCES += \
	lib/rtnetlink-addrs.c \
	lib/rtnetlink-addrs.h
endif

# Unit tests: subcommands of tests/ovstest.
tests_ovstest_SOURCES += \
	tests/test-dp-packet-spares.c \
	tests/test-netdev-addrs.c \
	tests/test-rwlock.c
if LINUX
tests_ovstest_SOURCES += \
	tests/test-netlink-dump.c
endif

# Autotest files of tests/testsuite and of tests/system-userspace-testsuite.
TESTSUITE_AT += \
	tests/stats-loop.at \
	tests/usdt-probes.at
SYSTEM_USERSPACE_TESTSUITE_AT += \
	tests/system-dp-packet-spares.at
SYSTEM_TESTSUITE_AT += \
	tests/system-netdev-addrs.at

EXTRA_DIST += tests/usdt-probes.py
FLAKE8_PYFILES += tests/usdt-probes.py
