# SPDX-License-Identifier: Apache-2.0
"""The alerts of Prometheus that belong to rules of ovs-cost doctor."""

from __future__ import annotations

from typing import Dict, NamedTuple


class Alert(NamedTuple):
    """An alert of Prometheus, after 'expr' was true for 'wait'."""

    name: str
    expr: str
    summary: str
    wait: str = ""


# By the name of the rule, which has severity, advice and commands.
ALERTS: Dict[str, Alert] = {
    "down": Alert(
        "OvsCostDown", "ovs_cost_up == 0",
        "{{ $labels.target }} on {{ $labels.instance }} does not answer",
        "5m"),
    "report-fails": Alert(
        "OvsCostReportFails", "ovs_cost_report_up == 0",
        "The report {{ $labels.report }} of {{ $labels.instance }} "
        "can't be read", "15m"),
    "upcall-overrun": Alert(
        "OvsUpcallOverrun",
        "increase(ovs_cost_upcalls_lost_total"
        "{reason=\"overrun\"}[10m]) > 0",
        "{{ $value | humanize }} upcalls of {{ $labels.instance }} "
        "were lost in 10 minutes: the kernel's queue was full"),
    "upcalls-lost": Alert(
        "OvsUpcallsLost",
        "sum without (reason) (increase("
        "ovs_cost_upcalls_lost_total{reason!=\"overrun\"}[10m])) > 10",
        "{{ $value | humanize }} upcalls of {{ $labels.instance }} "
        "were lost in 10 minutes", "10m"),
    "netlink-overrun": Alert(
        "OvsNetlinkOverrun",
        "increase(ovs_cost_netlink_lost_total"
        "{reason=\"overrun\"}[10m]) > 0",
        "{{ $labels.instance }} has lost notifications from the kernel"),
    "flow-limit-fell": Alert(
        "OvsFlowLimitReduced",
        "ovs_cost_flow_limit < 0.5 * "
        "max_over_time(ovs_cost_flow_limit[6h])",
        "The flow limit of {{ $labels.datapath }} on {{ "
        "$labels.instance }} has fallen to {{ $value | humanize }}",
        "5m"),
    "flows-refused": Alert(
        "OvsFlowsRefused",
        "rate(ovs_cost_upcall_flows_total"
        "{result=\"flow-limit\"}[5m]) > 0",
        "{{ $labels.instance }} has more flows than its limit: {{ "
        "$value | humanize }} upcalls per second install none", "10m"),
    "tx-drops": Alert(
        "OvsTxDrops",
        "rate(ovs_cost_tx_packets_dropped_total"
        "{reason!=\"down\"}[5m]) > 10",
        "{{ $labels.instance }} drops {{ $value | humanize }} packets "
        "per second on output: {{ $labels.reason }}", "5m"),
    "queue-slow": Alert(
        "OvsUpcallQueueSlow",
        "instance:ovs_cost_upcall_queue_seconds:p99_rate5m > 0.01",
        "1% of upcalls on {{ $labels.instance }} wait {{ $value | "
        "humanizeDuration }} and more in the kernel", "10m"),
    "starved": Alert(
        "OvsPmdStarved",
        "rate(ovs_cost_threads_run_delay_seconds_total"
        "{thread=~\"pmd-.*\"}[5m]) > 0.05",
        "{{ $labels.thread }} on {{ $labels.instance }} waits for its "
        "CPU {{ $value | humanizePercentage }} of the time", "5m"),
    "main-loop-stalled": Alert(
        "OvsMainLoopStall",
        "instance:ovs_cost_bridge_iterations_over_1s:increase5m > 0.5",
        "The main thread on {{ $labels.instance }} was busy for more "
        "than a second in one go"),
    "statistics-slow": Alert(
        "OvsStatsLoopSlow",
        "instance:ovs_cost_stats_loop_seconds:p99_rate15m > 0.5",
        "Reading statistics takes the main thread on {{ "
        "$labels.instance }} {{ $value | humanizeDuration }} each time",
        "15m"),
}
