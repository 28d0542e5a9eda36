# SPDX-License-Identifier: Apache-2.0
"""Runs ovs-cost from this directory, without building or installing anything:
"python3 python/ovs/cost doctor" in a checkout, or as pip has installed it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import types


def main() -> int:
    if sys.argv[1:2] == ["doctor"]:
        # Where no CPU is left, it has to say so in time.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -20)
    here = os.path.dirname(os.path.abspath(__file__))
    # Its modules are named like some of Python's own.
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    try:
        import ovs
    except ImportError:                 # Nothing else of it is needed.
        ovs = types.ModuleType("ovs")
        ovs.__path__ = []
        sys.modules["ovs"] = ovs
    # Another "ovs" may be installed, with another "cost" or none.
    spec = importlib.util.spec_from_file_location(
        "ovs.cost", os.path.join(here, "__init__.py"),
        submodule_search_locations=[here])
    assert spec and spec.loader
    cost = importlib.util.module_from_spec(spec)
    sys.modules["ovs.cost"] = cost
    spec.loader.exec_module(cost)
    from ovs.cost.main import main as run
    return run()


if __name__ == "__main__":
    sys.exit(main())
