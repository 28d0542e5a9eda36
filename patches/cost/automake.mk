# SPDX-License-Identifier: Apache-2.0
#
# The new files of this topic.  'make prepare' includes this file at the end of
# OVS's Makefile.am, so each list below extends one of OVS's.  A new file is one
# line here: at its place in the alphabet, with the path it has in OVS.
#
# A file of tests is listed in TESTSUITE_AT and included from
# tests/testsuite.at by the patch that adds the hook it needs.

EXTRA_DIST += patches/cost/automake.mk

# lib/: linked into every program.
lib_libopenvswitch_la_SOURCES += \
	lib/bridge-cost.c \
	lib/bridge-cost.h \
	lib/cost.c \
	lib/cost.h \
	lib/cost-clock.c \
	lib/cost-clock.h \
	lib/cost-histogram.c \
	lib/cost-histogram.h \
	lib/cost-pmu.c \
	lib/cost-pmu.h \
	lib/cost-report.c \
	lib/cost-report.h \
	lib/netlink-cost.c \
	lib/netlink-cost.h \
	lib/revalidator-cost.c \
	lib/revalidator-cost.h \
	lib/tx-cost.c \
	lib/tx-cost.h \
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
	tests/test-netlink-cost.c \
	tests/test-upcall-cost-kernel.c \
	tests/test-upcall-cost-queue.c

# Autotest files of tests/testsuite and of tests/system-userspace-testsuite.
TESTSUITE_AT += \
	tests/bridge-cost.at \
	tests/cost.at \
	tests/cost-report.at \
	tests/netlink-cost.at \
	tests/ovs-cost.at \
	tests/revalidator-cost.at \
	tests/tx-cost.at \
	tests/upcall-cost.at \
	tests/upcall-cost-queue.at \
	tests/usdt-probes.at
SYSTEM_KMOD_TESTSUITE_AT += \
	tests/system-upcall-cost-kernel.at \
	tests/system-usdt-macros.at \
	tests/system-usdt-probes-kernel.at
SYSTEM_USERSPACE_TESTSUITE_AT += \
	tests/system-bridge-cost.at \
	tests/system-revalidator-cost.at \
	tests/system-upcall-cost.at \
	tests/system-usdt-macros.at \
	tests/system-usdt-probes.at
SYSTEM_DPDK_TESTSUITE_AT += \
	tests/system-tx-queue-dpdk.at \
	tests/system-usdt-macros.at \
	tests/system-usdt-probes-dpdk.at

# Documentation: topics and how-tos, and man page fragments.
DOC_SOURCE += \
	Documentation/topics/bridge-cost.rst \
	Documentation/topics/cost-json.rst \
	Documentation/topics/netlink-cost.rst \
	Documentation/topics/ovs-cost.rst \
	Documentation/topics/revalidator-cost.rst \
	Documentation/topics/tx-cost.rst \
	Documentation/topics/upcall-cost.rst \
	Documentation/topics/upcall-cost-kernel.rst
MAN_FRAGMENTS += \
	lib/bridge-cost-unixctl.man \
	lib/netlink-cost-unixctl.man \
	lib/revalidator-cost-unixctl.man \
	lib/tx-cost-unixctl.man \
	lib/upcall-cost-unixctl.man

# Scripts for USDT probes; Python that flake8 looks at.
usdt_SCRIPTS += \
	utilities/usdt-scripts/getifaddrs.bt \
	utilities/usdt-scripts/reval_dump.bt \
	utilities/usdt-scripts/stats_loop.bt \
	utilities/usdt-scripts/tx_burst.bt \
	utilities/usdt-scripts/upcall_stages.bt \
	utilities/usdt-scripts/vhost_retry.bt
FLAKE8_PYFILES += \
	tests/cost-schema.py \
	tests/usdt-probes.py

# The command ovs-cost, and the Python package that it is made of.
bin_SCRIPTS += utilities/ovs-cost
completion_SCRIPTS += utilities/ovs-cost-bashcomp.bash
CLEANFILES += utilities/ovs-cost
RST_MANPAGES += ovs-cost.8.rst
ovs_cost_pyfiles = \
	python/ovs/cost/__init__.py \
	python/ovs/cost/compare.py \
	python/ovs/cost/distribution.py \
	python/ovs/cost/html.py \
	python/ovs/cost/main.py \
	python/ovs/cost/model.py \
	python/ovs/cost/otlp.py \
	python/ovs/cost/record.py \
	python/ovs/cost/recording.py \
	python/ovs/cost/svg.py \
	python/ovs/cost/target.py \
	python/ovs/cost/text.py \
	python/ovs/cost/top.py
nobase_pkgdata_DATA += $(ovs_cost_pyfiles)
FLAKE8_PYFILES += \
	$(ovs_cost_pyfiles) \
	tests/ovs-cost-fake.py \
	tests/test-ovs-cost.py \
	utilities/ovs-cost.in
EXTRA_DIST += \
	$(ovs_cost_pyfiles) \
	Documentation/ref/ovs-cost.8.rst \
	tests/ovs-cost-fake.py \
	tests/test-ovs-cost.py \
	utilities/ovs-cost.in \
	utilities/ovs-cost-bashcomp.bash

# Anything else that a release has to carry.
EXTRA_DIST += \
	python/ovs/cost/schema-1.json \
	tests/cost-schema.py \
	tests/tx-queue-traffic.py \
	tests/usdt-probes.py \
	utilities/usdt-scripts/getifaddrs.bt \
	utilities/usdt-scripts/reval_dump.bt \
	utilities/usdt-scripts/stats_loop.bt \
	utilities/usdt-scripts/tx_burst.bt \
	utilities/usdt-scripts/upcall_stages.bt \
	utilities/usdt-scripts/vhost_retry.bt
