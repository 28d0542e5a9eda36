# SPDX-License-Identifier: Apache-2.0
"""The stages of the project's tests, for check.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Optional

from tools import commands, exporter, lint, long, mutations
from tools.autotest import JOBS, Job
from tools.suites import (OURS, Tests, huge_pages, namespaces, upstream,
                          virtual_machine)


@dataclass
class Stage:
    name: str
    what: str
    run: Callable[[Job], Optional[int]]
    # "check" and "all" run the stage, "long" does so together with "all".
    runs: str = ""
    required: bool = True       # No test of it may be skipped with --require.
    together: bool = False      # With other such stages before and after it.
    # Seconds without the end of a test or output until it counts as hanging.
    limit: float = 600


# In the lists below are names of tests, with "*" for any text.

# Tests of Open vSwitch that tell most: upcalls, revalidators, and commands of
# ofproto-dpif.
QUICK = [f"ofproto-dpif.at: ofproto-dpif {title}" for title in (
    "- *revalidator*", "- *slow*", "- controller*", "- fragment handling - *",
    "- balance-tcp bonding, different recirc flow", "megaflow - *",
    "- packet-out recirculation*", "packet-out *", "- flow stats*",
    "- sFlow packet sampling - IPv4 collector", "- Flow IPFIX sanity check",
    "- NetFlow active expiration - IPv4 collector", "- ovs-appctl dpif/*",
    "- conntrack - controller", "- conntrack - recirc,commit",
    "- datapath port number change", "- Cleanup missing datapath flows",
)] + [f"{file}.at: *" for file in """
    pmd dpctl bridge drop-stats ovs-vswitchd netdev-type packet-type-aware
    check-structs unixctl-py""".split()]

# Tests of Open vSwitch that the series can affect: upcalls and their users,
# the userspace datapath, ports, ovs-appctl and libraries.
FILES = [f"{file}.at: *" for file in """
    ofproto ofproto-dpif dpif-netdev dpctl pmd alb odp bridge ovs-vswitchd
    netdev-type ovs-router bfd cfm lacp stp rstp drop-stats learn
    mcast-snooping mpls-xlate nsh packet-type-aware tunnel tunnel-push-pop
    tunnel-push-pop-ipv6 check-structs classifier completion daemon heap
    library stopwatch unixctl-py vlog""".split()]

# Tests with the kernel datapath that tell most: upcalls that are counted, that
# are lost, those of a socket for each port; and how another kernel sends
# addresses and statistics.
KERNEL = [
    "system-upcall-cost-kernel.at: *: as many upcalls as new flows",
    "system-upcall-cost-kernel.at: *: lost upcalls",
    "system-upcall-cost-kernel.at: *: a socket for each port",
    "system-interface.at: interface - statistics of *",
    "system-netdev-addrs.at: netdev addrs - addresses of all kinds"]
# Not all of this project's: 10,000 addresses take minutes there.
KERNEL_ALL = [*KERNEL, "system-upcall-cost-*.at: *", "system-offload-cost.at: "
              "*", "system-usdt-probes-kernel.at: *"]

# Tests of Open vSwitch with the kernel datapath.  All of them would take hours
# where the machine is emulated.
KERNEL_UPSTREAM = [f"system-traffic.at: {title}" for title in (
    "datapath - ping between two ports", "datapath - ping between * on vlan",
    "datapath - simulated flow action update", "conntrack - controller",
    "conntrack - force commit", "conntrack - IPv4 ping",
    "conntrack - multiple bridges", "conntrack - ct_mark")]

STAGES = [
    Stage("tools", "unit tests of Python, and tests of ./bootstrap",
          commands.unit_tests, "check", together=True),
    Stage("suite", "this project's tests in Open vSwitch's main suite, and "
          "those of OVS that the series can affect",
          Tests("testsuite", jobs=JOBS, quick=[OURS, *QUICK],
                all=[OURS, *FILES]), "check", together=True),
    Stage("system", "tests with real devices, as root, in namespaces",
          Tests("system-userspace-testsuite", namespaces, upstream=["*"]),
          "check", together=True),
    Stage("dpdk", "tests with DPDK, as root, on virtual devices and huge "
          "pages",
          Tests("system-dpdk-testsuite", huge_pages, upstream=["*"]),
          "check"),
    Stage("kernel", "tests with the kernel datapath, as root, in a virtual "
          "machine",
          Tests("system-kmod-testsuite", virtual_machine, quick=KERNEL,
                all=KERNEL_ALL, upstream=KERNEL_UPSTREAM), "check",
          together=True, limit=1800),
    Stage("exporter", "the exporter, with a real Prometheus, and its rules",
          exporter.check, "all", together=True),
    Stage("differential", "random changes of devices, ports and daemons, as "
          "root, after which the switch is as stock",
          lambda job: long.differential(job, 30, "1-5"), "all",
          together=True, limit=1200),
    Stage("lint", "style and form of everything in the repository",
          lint.check, "all", together=True),
    *(Stage(name, what, step, "long", required=False, limit=1800)
      for name, what, step in long.STEPS),
    Stage("upstream", "all of OVS's main suite, patched against stock",
          upstream, required=False),
    Stage("mutations", "faults that tests must notice", mutations.check,
          required=False),
]
