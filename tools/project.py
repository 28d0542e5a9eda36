# SPDX-License-Identifier: Apache-2.0
"""What the project has: bases, topics, commits and new files.

patches/topics lists the topics, the commits of each one, and the new files of
each commit.  A commit is the patch patches/TOPIC/NAME.patch, which changes
files of Open vSwitch, and its new files, at their paths in this repository.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

TOP = Path(__file__).resolve().parent.parent

# Where new files may be.
FOLDERS = ("lib", "ofproto", "vswitchd", "utilities", "python", "tests",
           "Documentation", "include", "m4")

# The base that patches/ is written for.
REFERENCE = "4.0.0"


class Failure(Exception):
    """Something that the user is told, without a traceback."""


def fail(message: str) -> None:
    raise Failure(message)


def run_main(main: Callable[[], Optional[int]]) -> None:
    """Runs 'main' and exits with its status; what a user may understand
    becomes a message."""
    try:
        sys.exit(main())
    except (Failure, OSError, subprocess.SubprocessError) as e:
        print(f"{Path(sys.argv[0]).stem}: {e}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def read_base(name: str) -> Dict[str, str]:
    """Returns the variables of bases/NAME."""
    path = TOP / "bases" / name
    if not path.is_file():
        known = " ".join(sorted(p.name for p in (TOP / "bases").iterdir()
                                if p.is_file()))
        fail(f"there is no base '{name}' in bases/ (there is: {known})")
    return dict(re.findall(r'^(\w+)="(.*)"$', path.read_text(), re.M))


@dataclass
class Commit:
    topic: "Topic"
    name: str                   # Of its patch: NNNN-area-what.
    files: Dict[str, List[str]] = field(default_factory=dict)
    # New files, and for each one the conditions of automake (in capitals) and
    # the system test suites that it is listed with.

    @property
    def path(self) -> Path:
        return TOP / f"patches/{self.topic.name}/{self.name}.patch"

    @property
    def number(self) -> str:
        return self.name[:4]

    def difference(self, base: str) -> Path:
        """What the commit has on 'base' that git can't merge."""
        return TOP / f"bases/{base}.d/{self.number}.diff"


@dataclass
class Topic:
    line: str                   # Of patches/topics: NAME: WORD...
    name: str
    words: List[str]            # Topics that it needs; "alone": see there.
    commits: List[Commit] = field(default_factory=list)


def read_topics(names: str = "") -> List[Topic]:
    """Returns the topics in 'names', separated by commas or spaces, and those
    that they need, in the order of patches/topics; all if there are none."""
    topics: List[Topic] = []
    path = TOP / "patches/topics"
    for n, line in enumerate(path.read_text().splitlines(), 1):
        indent = len(line) - len(line.lstrip())
        words = line.split()
        if indent == 0 and ":" in line and not line.startswith("#"):
            name, _, needs = line.partition(":")
            topics.append(Topic(line, name, needs.split()))
        elif indent == 4 and topics:
            topics[-1].commits.append(Commit(topics[-1], words[0]))
        elif indent == 8 and topics and topics[-1].commits:
            topics[-1].commits[-1].files[words[0]] = words[1:]
        elif words and not line.startswith("#"):
            fail(f"patches/topics:{n}: this is no topic, commit or new file")
    known = [topic.name for topic in topics]
    wanted = {*names.replace(",", " ").split()} or {*known}
    if wanted - {*known}:
        fail(f"there is no topic {' '.join(sorted(wanted - {*known}))} "
             f"(there is: {' '.join(known)})")
    for topic in reversed(topics):
        if topic.name in wanted:
            wanted.update(topic.words)
    return [topic for topic in topics if topic.name in wanted]


def select(topics: List[Topic], base: str = REFERENCE,
           numbers: str = "") -> List[Commit]:
    """Returns the commits of 'topics' that 'base' takes; with 'numbers',
    these commits only."""
    without = read_base(base).get("WITHOUT", "").split()
    commits = [commit for topic in topics for commit in topic.commits
               if commit.number not in without]
    if numbers:
        wanted = set(numbers.replace(",", " ").split())
        unknown = wanted - {commit.number for commit in commits}
        if unknown:
            fail(f"there is no patch {' '.join(sorted(unknown))}")
        commits = [c for c in commits if c.number in wanted]
    return commits


def order(file: str) -> Tuple[str, bool, str]:
    """The key that new files are sorted by: macros of tests come before the
    tests."""
    return os.path.dirname(file), not file.endswith("-macros.at"), file
