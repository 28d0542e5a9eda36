# SPDX-License-Identifier: Apache-2.0
"""Runs switches of two trees in turns."""

from __future__ import annotations

import contextlib
import shutil
from typing import Any, Callable

from bench.report import Context


def take_turns(context: Context, what: str, create: Callable[..., Any],
               measure: Callable[[str, Any], None],
               finish: Callable[[Any], None] = lambda _switch: None) -> None:
    """Has 'create' make a switch of each tree in a directory, sets all up,
    and calls 'measure' with the tree's name and the switch, for each pair, in
    turns; then 'finish' with each switch."""
    with contextlib.ExitStack() as stack:
        switches = {}
        for name, tree in context.trees.items():
            context.progress(f"{what}, {name}")
            where = context.directory / f"{what.split()[-1]}-{name}"
            stack.callback(shutil.rmtree, where, ignore_errors=True)
            switches[name] = stack.enter_context(create(tree, where))
            switches[name].set_up()
        for k, name in context.turns(switches, 9, 2):
            context.progress(f"{what}, pair {k + 1}, {name}")
            measure(name, switches[name])
        for switch in switches.values():
            finish(switch)
