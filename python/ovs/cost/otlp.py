# SPDX-License-Identifier: Apache-2.0
"""Metrics in OTLP's JSON form (ExportMetricsServiceRequest).

Times are exponential histograms, as they are, in seconds; numbers are
histograms with explicit bounds.  All are cumulative.
"""

from __future__ import annotations

from typing import Any, Dict, List

from ovs.cost import distribution as dist
from ovs.cost.distribution import Distribution
from ovs.cost.model import Account, Body, Reply

CUMULATIVE = 2                  # AGGREGATION_TEMPORALITY_CUMULATIVE


def _attributes(**values: Any) -> List[Dict[str, Any]]:
    return [{"key": key.replace("_", "."), "value": {"stringValue": value}}
            for key, value in values.items() if value]


class _Metrics:
    """Data points by name of metric."""

    def __init__(self, start_us: int, now_us: int) -> None:
        self.start_us = start_us
        self.now_us = now_us
        self.metrics: Dict[str, Dict[str, Any]] = {}

    def _points(self, name: str, form: str, unit: str,
                description: str) -> List[Dict[str, Any]]:
        metric = self.metrics.setdefault(name, {
            "name": name, "unit": unit, "description": description,
            form: {"aggregationTemporality": CUMULATIVE, "dataPoints": []}})
        if form == "sum":
            metric["sum"]["isMonotonic"] = True
        points: List[Dict[str, Any]] = metric[form]["dataPoints"]
        return points

    def _point(self, account: Account,
               attributes: List[Dict[str, Any]]) -> Dict[str, Any]:
        since = account.since_us or self.start_us
        return {"attributes": attributes,
                "startTimeUnixNano": str(since * 1000),
                "timeUnixNano": str(self.now_us * 1000)}

    def add(self, report: str, account: Account, body: Body,
            **names: str) -> None:
        kind = account.key.kind
        base = f"ovs.cost.{kind}"
        common = dict(report=report, account=account.key.name,
                      datapath=account.key.datapath, **names)
        point = self._point(account, _attributes(**common))
        point["asInt"] = str(body.events)
        self._points(f"{base}.events", "sum", f"{{{kind}}}",
                     "Events, all of them.").append(point)
        for group, members in body.counters.items():
            for name, n in members.items():
                point = self._point(account, _attributes(
                    **common, group=group, result=name))
                point["asInt"] = str(n)
                self._points(f"{base}.counters", "sum", "1",
                             "Counters.").append(point)
        for name, stage in body.stages.items():
            if stage.buckets is None:
                raise ValueError("there are no histograms")
            point = self._point(account, _attributes(
                **common, stage=name,
                sampled="true" if stage.sampled else "false"))
            point["count"] = str(stage.count)
            if stage.is_time:
                self._time(point, stage)
                self._points(f"{base}.duration", "exponentialHistogram", "s",
                             "Times of stages. Where sampled, the count is "
                             "that of the sample.").append(point)
            else:
                self._number(point, stage)
                self._points(f"{base}.{name}", "histogram",
                             f"{{{stage.unit}}}",
                             "Numbers of each event.").append(point)

    @staticmethod
    def _time(point: Dict[str, Any], stage: Distribution) -> None:
        buckets = stage.buckets or {}
        # OTLP has no overflow: its buckets go on.
        top = {b: n for b, n in buckets.items() if b}
        first = min(top, default=1)
        point.update(
            sum=stage.sum / 1e9, scale=dist.SCALE,
            zeroCount=str(buckets.get(0, 0)),
            zeroThreshold=2.0 ** dist.MIN_EXP,
            positive={"offset": dist.OTLP_OFFSET + first - 1 if top else 0,
                      "bucketCounts": [
                          str(top.get(b, 0))
                          for b in range(first, max(top, default=0) + 1)]})
        if stage.count:
            point.update(min=stage.min / 1e9, max=stage.max / 1e9)

    @staticmethod
    def _number(point: Dict[str, Any], stage: Distribution) -> None:
        bounds, counts = stage.numbers()
        point.update(sum=float(stage.sum), explicitBounds=list(
            map(float, bounds)), bucketCounts=list(map(str, counts)))
        if stage.count:
            point.update(min=float(stage.min), max=float(stage.max))


def resource(reply: Reply, host: str) -> Dict[str, Any]:
    """Returns the metrics of 'reply', as one of a request."""
    metrics = _Metrics(reply.start_us, reply.now_us)
    for account in reply.accounts.values():
        for name, body in account.classes.items():
            metrics.add(reply.report, account, body, **{"class": name})
        if not account.classes:
            metrics.add(reply.report, account, account.total)
    return {
        "resource": {"attributes": _attributes(
            host_name=host, service_name="ovs-vswitchd",
            service_version=reply.ovs_version)},
        "scopeMetrics": [{
            "scope": {"name": "ovs-cost"},
            "metrics": list(metrics.metrics.values())}]}
