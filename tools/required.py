# SPDX-License-Identifier: Apache-2.0
"""Tests that may not be skipped, which tools/check-required lists."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Tuple

from autotest import FAIL, SKIP, Result

LIST = Path(__file__).resolve().parent / "check-required"


def read(text: str) -> Tuple[List[Tuple[str, str]], List[str]]:
    """Returns what 'text', that of LIST, demands of stages, and what may be
    skipped nevertheless."""
    demands: List[Tuple[str, str]] = []
    exceptions: List[str] = []
    for line in text.splitlines():
        words = line.partition("#")[0].strip().split(maxsplit=1)
        if not words:
            continue
        if len(words) != 2:
            raise ValueError(f"{LIST}: {line}")
        if words[0] == "but":
            exceptions.append(words[1])
        else:
            demands.append((words[0], words[1]))
    return demands, exceptions


def stages() -> List[str]:
    """Returns the stages that anything is demanded of."""
    demands, _ = read(LIST.read_text())
    return list(dict.fromkeys(stage for stage, _ in demands))


def demand(stage: str, results: Dict[Tuple[str, str], Result],
           text: str = "") -> None:
    """Makes those of the 'results' of 'stage' failures that may not be
    skipped, and were, or that may not be missing, and are."""
    demands, exceptions = read(text or LIST.read_text())
    for name, part in demands:
        if name != stage:
            continue
        keys = [key for key in results
                if part == "*" or key[1].startswith(part)]
        if not keys:
            results[stage, part] = Result(FAIL, "required, but there is none")
        for key in keys:
            detail = results[key].detail
            if results[key].status == SKIP and not any(
                    e in key[1] for e in exceptions):
                results[key] = Result(FAIL, "may not be skipped"
                                      + (f": {detail}" if detail else ""))
