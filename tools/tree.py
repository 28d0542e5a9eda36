# SPDX-License-Identifier: Apache-2.0
"""What prepare, refresh, lint and check-series share: the overlay, the series,
and the prepared tree with its small git repository."""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional

TOP = Path(__file__).resolve().parent.parent

# Where overlay files may be, next to overlay.mk itself.
OVERLAY_DIRS = ("lib", "ofproto", "vswitchd", "utilities", "python", "tests",
                "Documentation", "include", "m4")
NOT_OVERLAY = ("*~", "*.orig", "*.rej", "*.pyc", "*.o", ".*", "#*#")

# In the prepared tree, out of the way of everything that is OVS's.
STATE_DIR = ".ovs-cost"

# Files that autotools and the build write where a release has them too.
GENERATED = ("aclocal.m4", "config.h.in", "configure", "configure~",
             "Makefile.in", "package.m4", "python/setup.py",
             "python/ovs/dirs.py", "python/ovs/version.py",
             "include/openvswitch/version.h", "debian/copyright",
             "build-aux/ar-lib", "build-aux/compile", "build-aux/config.*",
             "build-aux/depcomp", "build-aux/install-sh",
             "build-aux/ltmain.sh", "build-aux/missing",
             "build-aux/py-compile",
             "build-aux/test-driver", "m4/libtool.m4", "m4/lt*.m4",
             "rhel/openvswitch-fedora.spec", "tests/testsuite",
             "tests/*-testsuite", "*.pyc", "*.o", "*.lo")


class Failure(Exception):
    """Something that the user is told, without a traceback."""


def fail(message: str) -> None:
    raise Failure(message)


def run_main(main) -> None:
    """Runs 'main' and exits with its status; a Failure becomes a message."""
    try:
        sys.exit(main())
    except Failure as e:
        name = Path(sys.argv[0]).name
        print(f"{name}: {e}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def same(a: Path, b: Path) -> bool:
    return (a.is_file() and b.is_file()
            and a.stat().st_size == b.stat().st_size
            and a.read_bytes() == b.read_bytes())


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Holds the lock of the build directory 'directory'."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / ".lock-trees", "w", encoding="utf-8") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another run is preparing a tree in {directory}; "
                  "waiting for it", file=sys.stderr)
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


# Bases.

# The one that the texts of patches/ are for.
REFERENCE = "4.0.0"


def read_base(name: str) -> Dict[str, str]:
    """Returns the variables of bases/NAME."""
    path = TOP / "bases" / name
    if not path.is_file():
        known = " ".join(sorted(p.name for p in (TOP / "bases").iterdir()
                                if p.is_file()))
        fail(f"there is no base '{name}' in bases/ (there is: {known})")
    return dict(re.findall(r'^(\w+)="(.*)"$', path.read_text(), re.M))


def ovs_version(tree: Path) -> Optional[str]:
    """Returns the version of the OVS source in 'tree', None if it is not
    OVS."""
    try:
        text = (tree / "configure.ac").read_text()
    except OSError:
        return None
    match = re.search(r"AC_INIT\(openvswitch, *([^,)\s]+)", text)
    return match.group(1) if match else None


def is_generated(path: str) -> bool:
    return any(fnmatch(path, p) or fnmatch(path, "*/" + p)
               for p in GENERATED)


# Topics.


@dataclass
class Topic:
    """A directory below patches/: a series of patches, and the new files that
    go with it, listed in a fragment for automake."""
    name: str
    needs: List[str]            # Other topics.
    alone: bool                 # Do its patches stand alone?

    @property
    def fragment(self) -> str:
        return f"patches/{self.name}/automake.mk"

    @property
    def files(self) -> List[str]:
        """The overlay files that the fragment lists, without what is made from
        one of them whose name ends with .in."""
        text = (TOP / self.fragment).read_text()
        words = set(re.findall(r"[\w./-]+", re.sub(r"#.*", "", text)))
        return sorted(w for w in words if w + ".in" not in words
                      and w.startswith(tuple(d + "/" for d in OVERLAY_DIRS)))


def read_topics(names: Optional[str] = None) -> List[Topic]:
    """Returns the topics in 'names', separated by commas or spaces, and those
    that they need, in the order of patches/topics; all if it is None."""
    topics: List[Topic] = []
    for line in (TOP / "patches/topics").read_text().splitlines():
        name, colon, words = line.partition("#")[0].partition(":")
        if colon:
            needs = words.split()
            topics.append(Topic(name.strip(),
                                [n for n in needs if n != "alone"],
                                "alone" in needs))
    known = [topic.name for topic in topics]
    wanted = set(known if names is None else names.replace(",", " ").split())
    if wanted - set(known):
        fail(f"there is no topic {' '.join(sorted(wanted - set(known)))} "
             f"(there is: {' '.join(known)})")
    for topic in reversed(topics):
        if topic.name in wanted:
            wanted.update(topic.needs)
    return [topic for topic in topics if topic.name in wanted]


def topic_files(topics: Iterable[Topic]) -> List[str]:
    """Returns the paths of the new files of 'topics'."""
    return sorted({f for topic in topics
                   for f in [topic.fragment, *topic.files]})


# The overlay.


def overlay_files() -> List[str]:
    """Returns the paths of all overlay files, relative to the top."""
    found = []
    for name in OVERLAY_DIRS:
        for root, dirs, files in os.walk(TOP / name):
            dirs[:] = [d for d in dirs if d != "__pycache__"]
            for file in files:
                if not any(fnmatch(file, p) for p in NOT_OVERLAY):
                    path = Path(root, file).relative_to(TOP)
                    found.append(path.as_posix())
    return sorted(found)


# The series.


@dataclass
class Patch:
    name: str                   # TOPIC/NNNN-area-what.patch
    text: bytes = b""
    files: List[str] = field(default_factory=list)
    new_files: List[str] = field(default_factory=list)  # Of the same commit.

    @property
    def path(self) -> Path:
        return TOP / "patches" / self.name

    @property
    def topic(self) -> str:
        return self.name.partition("/")[0]

    @property
    def number(self) -> str:
        return self.name.partition("/")[2][:4]


def read_series(topics: Iterable[Topic],
                base: Optional[str] = None) -> List[Patch]:
    """Returns the patches of 'topics', read and looked through, as they are
    for 'base', or if it is None, as they are in patches/."""
    without = read_base(base).get("WITHOUT", "").split() if base else []
    patches = []
    for topic in topics:
        series = f"patches/{topic.name}/series"
        for line in (TOP / series).read_text().splitlines():
            file = line.partition("#")[0].strip()
            if not file:
                continue
            patch = Patch(f"{topic.name}/{file}")
            if not patch.path.is_file():
                fail(f"{series} names {file}, which is not there")
            if patch.number in without:
                continue
            read_patch(patch, difference(base, patch.number))
            patches.append(patch)
    return patches


def difference(base: Optional[str], number: str) -> Optional[Path]:
    """Returns the file that has how a patch differs for 'base', if any."""
    path = TOP / f"bases/{base}.d/{number}.diff"
    return path if base and path.is_file() else None


def with_difference(text: bytes, path: Path,
                    reverse: bool = False) -> Optional[bytes]:
    """Returns the patch 'text' with the difference in 'path', or without it,
    or None if that does not fit."""
    with tempfile.TemporaryDirectory(prefix="ovs-cost-diff.") as name:
        file = Path(name) / "patch"
        file.write_bytes(text)
        done = subprocess.run(
            ["patch", "-s", "-F0", "--force", *(["-R"] if reverse else []),
             "-i", str(path), str(file)], stdin=subprocess.DEVNULL,
            capture_output=True, env=git_env(), check=False)
        return None if done.returncode else file.read_bytes()


def make_difference(text: bytes, other: bytes) -> bytes:
    """Returns how the patch 'other' differs from 'text'."""
    return b"".join(difflib.diff_bytes(
        difflib.unified_diff, text.splitlines(keepends=True),
        other.splitlines(keepends=True), b"a", b"b"))


def settle(text: bytes, old: bytes) -> bytes:
    """Returns the patch 'text' with the line numbers and the names of blobs of
    'old' where nothing else differs."""
    def key(line: bytes) -> bytes:
        line = re.sub(rb"^@@ -\d+(,\d+)? \+\d+(,\d+)? @@",
                      rb"@@ \1 \2 @@", line)
        return re.sub(rb"^index \w+\.\.\w+", b"index", line)

    lines = text.splitlines(keepends=True)
    olds = old.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(
        None, [key(li) for li in olds], [key(li) for li in lines],
        autojunk=False)
    for block in matcher.get_matching_blocks():
        lines[block.b:block.b + block.size] = \
            olds[block.a:block.a + block.size]
    return b"".join(lines)


def read_patch(patch: Patch, changed: Optional[Path] = None) -> None:
    patch.text = patch.path.read_bytes()
    if changed:
        adapted = with_difference(patch.text, changed)
        if adapted is None:
            fail(f"{changed.relative_to(TOP)} does not fit patches/"
                 f"{patch.name} any more: see 'Another version of OVS' in "
                 "CONTRIBUTING.md")
        patch.text = adapted
    text = patch.text.decode(errors="replace")
    for old, new in re.findall(r"^--- (\S+).*\n\+\+\+ (\S+)", text, re.M):
        if old == "/dev/null" or new == "/dev/null":
            file = (new if old == "/dev/null" else old)[2:]
            what = "adds" if old == "/dev/null" else "removes"
            fail(f"{patch.name} {what} {file}: patches only change files of "
                 "OVS; new files belong to the overlay")
        if new[2:] not in patch.files:
            patch.files.append(new[2:])
    if not patch.files:
        fail(f"{patch.name} changes no file")
    match = re.search(r"^New-files:(.*(?:\n[ \t].*)*)", text, re.M)
    patch.new_files = match.group(1).split() if match else []


def select(patches: List[Patch], numbers: Iterable[str]) -> List[Patch]:
    """Returns those of 'patches' that have 'numbers'."""
    numbers = set(numbers)
    unknown = numbers - {p.number for p in patches}
    if unknown:
        fail(f"there is no patch {' '.join(sorted(unknown))}")
    return [p for p in patches if p.number in numbers]


# git, deaf to what the user has configured.


GIT_ENV = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": ":",
    "GIT_SEQUENCE_EDITOR": ":",
    "LC_ALL": "C",
}
GIT_DATE = "2026-01-01T00:00:00+0000"
GIT_NAME = "ovs-cost developers"
GIT_EMAIL = "dev@ovs-cost.example"
GIT_AUTHOR = {"GIT_AUTHOR_NAME": GIT_NAME, "GIT_AUTHOR_EMAIL": GIT_EMAIL,
              "GIT_AUTHOR_DATE": GIT_DATE}


def git_env(extra: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env.update(GIT_ENV)
    env.update(GIT_COMMITTER_NAME=GIT_NAME, GIT_COMMITTER_EMAIL=GIT_EMAIL,
               GIT_COMMITTER_DATE=GIT_DATE)
    env.update(extra or {})
    return env


def git(tree: Path, *args: str, check: bool = True,
        data: Optional[bytes] = None,
        env: Optional[Dict[str, str]] = None
        ) -> "subprocess.CompletedProcess[bytes]":
    done = subprocess.run(
        ["git", "-C", str(tree), "-c", "core.autocrlf=false",
         "-c", "core.hooksPath=/dev/null", "-c", "core.safecrlf=false",
         "-c", "core.fileMode=false", "-c", "commit.gpgSign=false",
         "-c", "core.quotePath=false", "-c", "safe.directory=*",
         "-c", "core.abbrev=12", "-c", "advice.detachedHead=false",
         *args],
        input=b"" if data is None else data, capture_output=True,
        # Never the repository around the build directory.
        env=git_env({"GIT_CEILING_DIRECTORIES": str(tree.resolve().parent),
                     **(env or {})}), check=False)
    if check and done.returncode:
        fail(f"git {' '.join(args)} in {tree} failed:\n"
             + (done.stdout + done.stderr).decode(errors="replace"))
    return done


def git_out(tree: Path, *args: str) -> str:
    return git(tree, *args).stdout.decode(errors="replace").strip()


def git_init(tree: Path) -> None:
    git(tree, "init", "-q", "-b", "series")
    (tree / ".git/info").mkdir(exist_ok=True)
    # Everything else in the tree is not ours to look at.
    (tree / ".git/info/exclude").write_text("*\n")
    # For those who commit in the tree.
    git(tree, "config", "core.abbrev", "12")


# The state of a prepared tree.


@dataclass
class State:
    """What is known of a prepared tree, kept in it."""
    fingerprint: str = ""
    base: str = ""              # Where the pristine files are.
    base_id: str = ""
    base_name: str = REFERENCE  # In bases/.
    topics: List[str] = field(default_factory=list)
    only: List[str] = field(default_factory=list)  # Of their patches.
    head: str = ""              # The last commit that prepare made.
    links: List[str] = field(default_factory=list)
    patched: List[str] = field(default_factory=list)
    patches: Dict[str, str] = field(default_factory=dict)  # Name to digest.
    commits: Dict[str, str] = field(default_factory=dict)  # Commit to name.
    complete: bool = False

    @staticmethod
    def load(tree: Path) -> Optional["State"]:
        try:
            return State(**json.loads(
                (tree / STATE_DIR / "state").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def save(self, tree: Path) -> None:
        directory = tree / STATE_DIR
        directory.mkdir(exist_ok=True)
        temp = directory / "state.tmp"
        temp.write_text(json.dumps(self.__dict__, indent=1) + "\n")
        temp.replace(directory / "state")


def make_history(shadow: Path, base: Path, ovs: Path, base_id: str,
                 patches: List[Patch], topics: List[Topic]) -> Dict[str, str]:
    """Makes 'shadow' a git repository with the files that 'patches' change
    and links to the new files of 'topics', one commit for each patch, as it
    will be in the tree 'ovs'.  Returns the patch of each commit."""
    overlay = topic_files(topics)
    shutil.rmtree(shadow, ignore_errors=True)
    shadow.mkdir(parents=True)
    with open(shadow / "Makefile.am", "wb") as makefile:
        makefile.write((base / "Makefile.am").read_bytes())
        for topic in topics:
            makefile.write(f"include {topic.fragment}\n".encode())
    for patch in patches:
        for file in patch.files:
            if file in overlay:
                fail(f"{patch.name} changes {file}, which is an overlay "
                     "file: edit it in place")
            if not (base / file).is_file():
                fail(f"{patch.name} changes {file}, which is not in "
                     f"{base_id}")
            if file == "Makefile.am":
                continue                # It is there.
            (shadow / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(base / file, shadow / file)
            shutil.copymode(base / file, shadow / file)
    for file in overlay:
        (shadow / file).parent.mkdir(parents=True, exist_ok=True)
        (shadow / file).symlink_to(link_target(ovs, file))

    git_init(shadow)
    git(shadow, "add", "-f", "-A")
    git(shadow, "commit", "-q", "--allow-empty", "-m",
        f"{base_id}: What the series changes, and the overlay.",
        env=GIT_AUTHOR)
    git(shadow, "tag", "base")
    commits = {}
    for patch in patches:
        apply_patch(shadow, patch, base_id)
        commits[git_out(shadow, "rev-parse", "HEAD")] = patch.name
    return commits


def apply_patch(shadow: Path, patch: Patch, base_id: str) -> None:
    # The contract is patch(1) without fuzz, so that is what is tried first.
    done = subprocess.run(
        ["patch", "-p1", "-F0", "--dry-run", "--force"],
        cwd=shadow, input=patch.text, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env=git_env(), check=False)
    if done.returncode:
        fail(f"patches/{patch.name} does not apply to {base_id} without "
             f"fuzz:\n{done.stdout.decode(errors='replace')}"
             "The tree is as it was.")
    done = git(shadow, "am", "-q", "--committer-date-is-author-date",
               "--whitespace=nowarn", data=patch.text, check=False)
    if done.returncode:
        git(shadow, "am", "--abort", check=False)
        fail(f"patches/{patch.name} does not apply to {base_id}, or lacks "
             "the header of git format-patch:\n"
             + (done.stdout + done.stderr).decode(errors="replace")
             + "The tree is as it was.")


def format_patch(work: Path, commit: str) -> bytes:
    """Returns 'commit' in the one form that patches/ has."""
    return git(work, "format-patch", "-1", "--stdout", "--zero-commit", "-N",
               "--no-signature", "-p", "-U3", "--no-renames", "--no-color",
               "--no-ext-diff", "--no-textconv", "--diff-algorithm=myers",
               "--indent-heuristic", commit).stdout


def link_target(ovs: Path, file: str) -> str:
    """Returns where the link 'file' in the tree 'ovs' points: relative when
    the tree is inside the checkout, so that the checkout can be moved."""
    source = TOP / file
    if ovs.resolve().is_relative_to(TOP):
        return os.path.relpath(source, (ovs.resolve() / file).parent)
    return str(source)


def changed_files(base: Path, tree: Path, skip: Iterable[str]) -> List[str]:
    """Returns the files of 'base' that differ in 'tree', other than generated
    ones and those in 'skip'."""
    skip = set(skip)
    found = []
    for root, dirs, files in os.walk(base):
        dirs[:] = [d for d in dirs if d not in (".git", "__pycache__")]
        for name in files:
            path = Path(root, name)
            file = path.relative_to(base).as_posix()
            if file in skip or is_generated(file) or path.is_symlink():
                continue
            copy = tree / file
            if copy.exists() and not same(path, copy):
                found.append(file)
    return sorted(found)
