# SPDX-License-Identifier: Apache-2.0
#
# The new files of this topic.  'make prepare' includes this file at the end of
# OVS's Makefile.am, so each list below extends one of OVS's.  A new file is one
# line here: at its place in the alphabet, with the path it has in OVS.
#
# A file of tests is listed in TESTSUITE_AT and included from
# tests/testsuite.at by the patch that adds the hook it needs.

EXTRA_DIST += patches/probes/automake.mk

# Autotest files of tests/testsuite and of tests/system-*-testsuite.
SYSTEM_KMOD_TESTSUITE_AT += \
	tests/system-usdt-probes-kernel.at
SYSTEM_USERSPACE_TESTSUITE_AT += \
	tests/system-bridge-cost.at \
	tests/system-revalidator-cost.at \
	tests/system-usdt-probes.at
SYSTEM_DPDK_TESTSUITE_AT += \
	tests/system-usdt-probes-dpdk.at

# Scripts for USDT probes; Python that flake8 looks at.
usdt_SCRIPTS += \
	utilities/usdt-scripts/getifaddrs.bt \
	utilities/usdt-scripts/reval_dump.bt \
	utilities/usdt-scripts/stats_loop.bt \
	utilities/usdt-scripts/tx_burst.bt \
	utilities/usdt-scripts/upcall_stages.bt \
	utilities/usdt-scripts/vhost_retry.bt
# Anything else that a release has to carry.
EXTRA_DIST += \
	utilities/usdt-scripts/getifaddrs.bt \
	utilities/usdt-scripts/reval_dump.bt \
	utilities/usdt-scripts/stats_loop.bt \
	utilities/usdt-scripts/tx_burst.bt \
	utilities/usdt-scripts/upcall_stages.bt \
	utilities/usdt-scripts/vhost_retry.bt
