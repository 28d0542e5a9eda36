# SPDX-License-Identifier: Apache-2.0
#
# The new files of this topic.  'make prepare' includes this file at the end of
# OVS's Makefile.am, so each list below extends one of OVS's.  A new file is one
# line here: at its place in the alphabet, with the path it has in OVS.
#
# A file of tests is listed in TESTSUITE_AT and included from
# tests/testsuite.at by the patch that adds the hook it needs.

EXTRA_DIST += patches/upcalls/automake.mk

# lib/: linked into every program.
lib_libopenvswitch_la_SOURCES += \
	lib/cost.c \
	lib/cost.h \
	lib/cost-clock.c \
	lib/cost-clock.h \
	lib/cost-histogram.c \
	lib/cost-histogram.h \
	lib/cost-memory.c \
	lib/cost-memory.h \
	lib/cost-report.c \
	lib/cost-report.h \
	lib/unixctl-worker.c \
	lib/unixctl-worker.h \
	lib/upcall-cost.c \
	lib/upcall-cost.h \
	lib/upcall-cost-kernel.c \
	lib/upcall-cost-kernel.h \
	lib/upcall-cost-queue.c \
	lib/upcall-cost-queue.h

# Unit tests: subcommands of tests/ovstest.
tests_ovstest_SOURCES += \
	tests/test-cost.c \
	tests/test-cost-clock.c \
	tests/test-cost-histogram.c \
	tests/test-cost-memory.c \
	tests/test-upcall-cost-batch.c \
	tests/test-upcall-cost-kernel.c \
	tests/test-upcall-cost-queue.c

# Autotest files of tests/testsuite and of tests/system-*-testsuite.
TESTSUITE_AT += \
	tests/cost.at \
	tests/upcall-cost.at \
	tests/upcall-cost-queue.at
SYSTEM_KMOD_TESTSUITE_AT += \
	tests/system-upcall-cost-kernel.at \
	tests/system-usdt-macros.at
SYSTEM_USERSPACE_TESTSUITE_AT += \
	tests/system-upcall-cost.at \
	tests/system-usdt-macros.at
SYSTEM_DPDK_TESTSUITE_AT += \
	tests/system-usdt-macros.at

# Examples in documents, against what is printed.
EXTRA_DIST += tests/cost-documents.py
FLAKE8_PYFILES += tests/cost-documents.py

# Documentation: topics and man page fragments.
DOC_SOURCE += \
	Documentation/topics/upcall-cost.rst \
	Documentation/topics/upcall-cost-kernel.rst
MAN_FRAGMENTS += \
	lib/upcall-cost-unixctl.man
