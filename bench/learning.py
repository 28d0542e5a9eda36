# SPDX-License-Identifier: Apache-2.0
"""What an upcall costs in the first storm of new flows of a process.

As "upcalls", but every storm is in a new process of ovs-vswitchd.  Memory for
the flows must thus come from the kernel, which makes an upcall dearer than in
later storms, and figures noisier.  It is what happens after a start, and what
one sees who measures a storm by hand.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Dict, List

from bench.machine import Cores
from bench.report import Context, Result
from bench.upcalls import (VARIANTS, Storm, StormSwitch, Upcalls, check_trees,
                           order)


class Learning(Upcalls):
    """The benchmark: collects first storms by variant and pair."""

    def pair(self, number: int, capture: Path, cores: Cores) -> None:
        storms: Dict[str, List[Storm]] = {v.name: [] for v in VARIANTS}
        for variant in order(number):
            tree = self.context.ovs if variant.patched else self.context.stock
            where = self.context.directory / "switch"
            with StormSwitch(tree, where, capture, self.n_flows,
                             cores) as switch:
                switch.set_up()
                storms[variant.name].append(switch.storm(variant))
                self.tsc_hz = switch.tsc_hz()
            shutil.rmtree(where)
        for name, collected in storms.items():
            self.add(name, collected)


def run(context: Context) -> List[Result]:
    check_trees(context)
    return Learning(context, n_storms=2).run()
