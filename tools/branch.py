#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goes between this repository and a branch of Open vSwitch.

The branch is in a git repository in the directory TREE.  Its tag "base" is
the whole source of Open vSwitch; each commit after it is a patch of patches/,
the new files that belong to it, and their entries in Open vSwitch's lists.

  import     makes the branch, or brings it up to date
  export     writes what the branch has to this repository
  series     writes the branch as mails, with cover letters
  check      fails if the branch has work that is not exported
  worktree   checks out a commit of the branch in another directory

import never overwrites an edit or a commit that is not exported, unless
--force is given.  If a patch does not apply as it is, it is merged: git merges
the commit on the base that patches/ is written for.  What git can't merge, the
files of bases/NAME.d/ do.

export writes the new files as they are in TREE, committed or not; edits of
other files have to be committed, in new commits or with --fixup.  Patches that
have not changed keep their bytes.  On another base than that of patches/,
export writes the differences in bases/NAME.d/ only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Tuple

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import project                                                 # noqa: E402
import registry                                                # noqa: E402
from project import REFERENCE, TOP, Commit, fail               # noqa: E402

NAME, EMAIL = "ovs-cost developers", "dev@ovs-cost.example"
ENV = {
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_EDITOR": ":", "GIT_SEQUENCE_EDITOR": ":", "LC_ALL": "C",
    "GIT_COMMITTER_NAME": NAME, "GIT_COMMITTER_EMAIL": EMAIL,
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00+0000",
    "GIT_AUTHOR_NAME": NAME, "GIT_AUTHOR_EMAIL": EMAIL,
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00+0000",
}

# Files of a source tree that are no source: releases have some of them, too.
GENERATED = (
    "aclocal.m4", "autom4te.cache/*", "build-aux/ar-lib", "build-aux/compile",
    "build-aux/config.*", "build-aux/depcomp", "build-aux/install-sh",
    "build-aux/ltmain.sh", "build-aux/missing", "build-aux/py-compile",
    "build-aux/test-driver", "config.h", "config.h.in", "config.log",
    "config.status", "configure", "configure~", "debian/copyright",
    "include/openvswitch/version.h", "libtool", "m4/libtool.m4", "m4/lt*.m4",
    "Makefile", "Makefile.in", "package.m4", "python/setup.py",
    "python/ovs/dirs.py", "python/ovs/version.py",
    "rhel/openvswitch-fedora.spec", "stamp-h*", "tests/testsuite",
    "tests/*-testsuite", "*testsuite.dir/*", "*.a", "*.gcda", "*.gcno", "*.la",
    "*.lo", "*.log", "*.o", "*.pyc", ".git/*", "*/.libs/*", "*/.deps/*",
    ".ovs-cost/*")


def say(message: str) -> None:
    print(f"branch: {message}", flush=True)


class Conflict(Exception):
    """A commit that git can't apply or merge."""
    def __init__(self, commit: Commit, why: str):
        super().__init__(why)
        self.commit, self.why = commit, why


@dataclass
class Made:
    """A commit as it was made: the tree with its new files and their entries,
    the tree after its patch, and its identity."""
    start: str
    tree: str
    id: str


class Repo:
    """The git repository in a directory."""

    def __init__(self, tree: Path):
        self.dir = tree
        self.state_file = tree / ".git/ovs-cost.json"
        self.index = tree / ".git/ovs-cost-index"

    def git(self, *args: str, data: Optional[bytes] = None,
            check: bool = True, env: Optional[Dict[str, str]] = None
            ) -> "subprocess.CompletedProcess[bytes]":
        """Runs git, deaf to what the user has configured."""
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith("GIT_")}
        done = subprocess.run(
            ["git", "-C", str(self.dir), "-c", "core.autocrlf=false",
             "-c", "core.hooksPath=/dev/null", "-c", "core.safecrlf=false",
             "-c", "commit.gpgSign=false", "-c", "core.quotePath=false",
             "-c", "core.abbrev=12", "-c", "safe.directory=*",
             "-c", "advice.detachedHead=false", *args],
            input=b"" if data is None else data, capture_output=True,
            # Never the repository around the build directory.
            env={**clean, **ENV, "GIT_CEILING_DIRECTORIES":
                 str(self.dir.resolve().parent), **(env or {})}, check=False)
        if check and done.returncode:
            fail(f"git {' '.join(args)} in {self.dir} failed:\n"
                 + (done.stdout + done.stderr).decode(errors="replace"))
        return done

    def out(self, *args: str, **more: Any) -> str:
        return self.git(*args, **more).stdout.decode(errors="replace").strip()

    def head(self) -> str:
        """Returns the commit that is checked out, "" if there is none."""
        return self.out("rev-parse", "-q", "--verify", "HEAD", check=False)

    def state(self) -> Dict[str, str]:
        try:
            return json.loads(self.state_file.read_text())
        except (OSError, ValueError):
            return {}

    def save(self, **state: str) -> None:
        temp = self.state_file.with_suffix(".new")
        temp.write_text(json.dumps(state) + "\n")
        temp.replace(self.state_file)

    # The index in which trees are made, apart from the user's.

    def staged(self, *args: str, **more: Any
               ) -> "subprocess.CompletedProcess[bytes]":
        return self.git(*args, env={"GIT_INDEX_FILE": str(self.index)}, **more)

    def read_tree(self, tree: str) -> None:
        self.staged("read-tree", tree)

    def write_tree(self) -> str:
        return self.staged("write-tree").stdout.decode().strip()

    def put(self, blobs: Iterable[Tuple[str, str, str]]) -> None:
        """Puts (mode, blob, file) into the index."""
        lines = "".join(f"{mode} {blob}\t{file}\n"
                        for mode, blob, file in blobs)
        self.staged("update-index", "--index-info", data=lines.encode())

    def blob(self, data: bytes) -> str:
        return self.out("hash-object", "-w", "--stdin", data=data)

    def read(self, tree: str, file: str) -> Optional[bytes]:
        done = self.git("cat-file", "blob", f"{tree}:{file}", check=False)
        return None if done.returncode else done.stdout

    def write(self, tree: str, files: Dict[str, bytes]) -> str:
        """Returns 'tree' with the contents of 'files', which it has."""
        self.read_tree(tree)
        modes = {line.partition("\t")[2]: line.split()[0] for line in
                 self.out("ls-tree", "-r", tree, *files).splitlines()}
        self.put((modes[file], self.blob(data), file)
                 for file, data in files.items())
        return self.write_tree()

    def message(self, commit: str) -> str:
        """Returns the message of 'commit', without the name of its patch."""
        text = self.git("log", "-1", "--format=%B", commit).stdout.decode()
        return re.sub(r"^Patch: .*\n", "", text, flags=re.M).strip() + "\n"

    def commit(self, tree: str, parents: List[str], message: str,
               author: Optional[Dict[str, str]] = None) -> str:
        return self.out("commit-tree", tree,
                        *[a for p in parents for a in ("-p", p)],
                        data=message.encode(), env=author)


# The base.


def source_files(source: Path) -> List[str]:
    """Returns the files of the source of Open vSwitch in 'source'."""
    if (source / ".git").exists():
        done = subprocess.run(
            ["git", "-C", str(source), "-c", "safe.directory=*", "ls-files",
             "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True, check=False)
        found = [f for f in done.stdout.decode().split("\0")
                 if f and (source / f).is_file()]
    else:
        found = [path.relative_to(source).as_posix()
                 for path in source.rglob("*") if path.is_file()]
    found = [f for f in found if not any(fnmatch(f, p) for p in GENERATED)]
    return sorted(f for f in found if not is_program(source / f))


def is_program(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def import_base(repo: Repo, name: str, source: Path, title: str) -> str:
    """Makes a commit of the source of Open vSwitch in 'source', a version that
    bases/NAME is for, with the patch that it needs to build on all systems.
    Returns the commit."""
    index = {"GIT_INDEX_FILE": str(repo.dir / ".git/ovs-cost-base")}
    files = {*source_files(source),
             *repo.out("ls-files", env=index).splitlines()}
    repo.git("-c", "core.fileMode=true", f"--work-tree={source}",
             "update-index", "--add", "--remove", "-z", "--stdin", env=index,
             data="".join(f + "\0" for f in sorted(files)).encode())
    repo.read_tree(repo.out("write-tree", env=index))
    changelog = source / "debian/changelog"
    if changelog.is_file():
        # Older entries of Debian's break textual rules of Makefile.am.
        entry = re.split(rb"(?<=\n)\n(?=\S)", changelog.read_bytes(), 1)[0]
        repo.put([("100644", repo.blob(entry), "debian/changelog")])
    patch = TOP / f"bases/{name}.d/base.patch"
    if patch.is_file() and repo.staged("apply", "--cached", str(patch),
                                       check=False).returncode:
        # A source that has it already.
        repo.staged("apply", "--cached", "-R", "--check", str(patch))
    return repo.commit(repo.write_tree(), [], f"{title}\n")


def fetched_base(repo: Repo, name: str, cache: Path,
                 fetch: bool = True) -> str:
    """Returns the commit of base 'name', whose source is fetched unless the
    repository has it; "" without 'fetch'."""
    about = project.read_base(name)
    patch = TOP / f"bases/{name}.d/base.patch"
    digest = hashlib.sha256(about["PACKAGE_SHA256"].encode() + (
        patch.read_bytes() if patch.is_file() else b"")
        + repr(GENERATED).encode()).hexdigest()
    tag = f"base-{name}-{digest[:12]}"
    found = repo.out("rev-parse", "-q", "--verify", tag, check=False)
    if not found and fetch:
        run = subprocess.run([str(TOP / "tools/fetch"),
                              str(TOP / "bases" / name), str(cache)],
                             stdin=subprocess.DEVNULL, check=False)
        if run.returncode:
            fail(f"the source of Open vSwitch {name} could not be fetched")
        source = cache / f"{about['PACKAGE']}-{about['PACKAGE_VERSION']}"
        repo.git("tag", "-f", tag, import_base(
            repo, name, source, f"Open vSwitch {name} ({about['PACKAGE']} "
            f"{about['PACKAGE_VERSION']})"))
        found = repo.out("rev-parse", tag)
    return found


def version(configure: bytes) -> str:
    """Returns the version of Open vSwitch that 'configure', its configure.ac,
    is of."""
    match = re.search(rb"AC_INIT\(openvswitch, *([^,)\s]+)", configure)
    return match.group(1).decode() if match else ""


def copied_base(repo: Repo, name: str, source: Path) -> str:
    """Returns the commit of a user's source of Open vSwitch."""
    has = version((source / "configure.ac").read_bytes())
    return import_base(repo, name, source, f"Open vSwitch {has} of {source}")


# Making commits.


def read_patch(repo: Repo, commit: Commit) -> Tuple[str, Dict[str, str],
                                                    bytes]:
    """Returns the message of the patch of 'commit', its author, and the
    patch."""
    if not commit.path.is_file():
        fail(f"patches/topics names {commit.name}, and there is no "
             f"{commit.path.relative_to(TOP)}")
    with tempfile.TemporaryDirectory() as name:
        message, patch = Path(name) / "message", Path(name) / "patch"
        head = repo.out("mailinfo", str(message), str(patch),
                        data=commit.path.read_bytes())
        field = dict(re.findall(r"^(\w+): (.*)$", head, re.M))
        if not {"Subject", "Author", "Email", "Date"} <= field.keys():
            fail(f"{commit.path.relative_to(TOP)} lacks the header of git "
                 "format-patch")
        text = f"{field['Subject']}\n\n{message.read_text().strip()}\n"
        author = {"GIT_AUTHOR_NAME": field["Author"],
                  "GIT_AUTHOR_EMAIL": field["Email"],
                  "GIT_AUTHOR_DATE": field["Date"]}
        # Which patch a commit is, whatever becomes of its message.
        return f"{text}Patch: {commit.name}\n", author, patch.read_bytes()


def hashed(repo: Repo, files: List[str]) -> Dict[str, Tuple[str, str, str]]:
    """Returns the mode, the blob and the name of each of these new files."""
    gone = [file for file in files if not (TOP / file).is_file()]
    if gone:
        fail(f"patches/topics names {' '.join(gone)}, which is not there")
    out = repo.out("hash-object", "-w", "--no-filters", "--stdin-paths",
                   data="".join(f"{TOP / f}\n" for f in files).encode())
    return {file: ("100755" if os.access(TOP / file, os.X_OK) else "100644",
                   blob, file) for file, blob in zip(files, out.split())}


def with_new_files(repo: Repo, tree: str, commit: Commit, news: str,
                   blobs: Dict[str, Tuple[str, str, str]]) -> str:
    """Returns 'tree' with the new files of 'commit' and their entries."""
    repo.read_tree(tree)
    texts: Dict[str, str] = {}
    edits = [(entry[0], entry[2]) for file, words in commit.files.items()
             for entry in registry.entries(file, words, commit.topic.alone)]
    if news:
        has = version(repo.read(tree, "configure.ac") or b"")
        edits.append(("NEWS", lambda text: registry.add_news(text, has,
                                                             news)))
    for file, edit in edits:
        if file not in texts:
            old = repo.read(tree, file)
            if old is None:
                raise Conflict(commit, f"there is no {file}")
            texts[file] = old.decode()
        texts[file] = edit(texts[file])
    taken = repo.out("ls-tree", "-r", "--name-only", tree, *commit.files) \
        if commit.files else ""
    if taken:
        fail(f"Open vSwitch already has {taken}, a new file of {commit.name}")
    repo.put([*(blobs[file] for file in commit.files),
              *(("100644", repo.blob(text.encode()), file)
                for file, text in texts.items())])
    return repo.write_tree()


def apply(repo: Repo, start: str, commit: Commit, patch: bytes) -> str:
    """Returns the tree 'start' with 'patch', exactly where it fits."""
    repo.read_tree(start)
    if patch.strip():
        done = repo.staged("apply", "--cached", "--whitespace=nowarn", "-",
                           data=patch, check=False)
        if done.returncode:
            raise Conflict(commit, done.stderr.decode(errors="replace"))
    return repo.write_tree()


def merge(repo: Repo, base: str, theirs: str, ours: str
          ) -> Tuple[str, List[str]]:
    """Returns the tree 'ours' with what 'theirs' changes in 'base', and the
    files that conflict."""
    ancestor = repo.commit(base, [], "")
    done = repo.git("merge-tree", "--write-tree", "--name-only",
                    "--no-messages", repo.commit(ours, [ancestor], ""),
                    repo.commit(theirs, [ancestor], ""), check=False)
    if done.returncode > 1:
        fail("a merge needs git 2.38 or later: " + done.stderr.decode())
    tree, *files = done.stdout.decode().split("\n")
    return tree, sorted({f for f in files if f})


def hooks(repo: Repo, before: str, after: str
          ) -> Dict[Tuple[str, str], List[str]]:
    """Returns the lines that 'after' adds to 'before', or removes, in each
    function of C, by the name of its file and its own."""
    found: Dict[Tuple[str, str], List[str]] = {}
    file = function = ""
    for line in repo.out("diff", "-U0", "--no-renames", before, after, "--",
                         "*.c").splitlines():
        if line.startswith("+++ "):
            file = line[6:]
        elif line.startswith("@@"):
            function = re.sub(r"\(.*", "", line.split("@@", 2)[2].strip())
        elif line[:1] in "+-" and line[1:].strip() \
                and not line.startswith("--- "):
            found.setdefault((file, function), []).append(
                line[0] + line[1:].strip())
    return found


def merge_patch(repo: Repo, made: Made, start: str) -> Tuple[str, List[str]]:
    """Returns the tree 'start' with the patch of 'made', a commit on another
    base, and the files that conflict, in which conflicts are left out."""
    tree, conflicts = merge(repo, made.start, made.tree, start)
    texts: Dict[str, bytes] = {}
    left: List[str] = []
    for file in conflicts:
        patch = repo.git("diff", "-U3", "--no-renames", made.start, made.tree,
                         "--", file).stdout
        repo.read_tree(start)
        # Tests, which stand alone, are put after the same line.
        if file.endswith(".at") and not repo.staged(
                "apply", "--cached", "-C1", "-", data=patch,
                check=False).returncode:
            texts[file] = repo.read(repo.write_tree(), file) or b""
            continue
        left.append(file)
        with tempfile.TemporaryDirectory() as name:
            paths = [Path(name) / n for n in ("ours", "base", "theirs")]
            for path, side in zip(paths, (start, made.start, made.tree)):
                path.write_bytes(repo.read(side, file) or b"")
            texts[file] = subprocess.run(
                ["git", "merge-file", "-p", "--ours", *map(str, paths)],
                capture_output=True, check=True).stdout
    return (repo.write(tree, texts) if texts else tree), left


def merged(repo: Repo, name: str, commit: Commit, made: Made, start: str,
           resolve: bool) -> str:
    """Returns the tree 'start' of base 'name' with the patch of 'commit',
    which was 'made' on the base of patches/."""
    tree, conflicts = merge_patch(repo, made, start)
    want, got = hooks(repo, made.start, made.tree), hooks(repo, start, tree)
    path = TOP / f"bases/{name}.d/{commit.number}.diff"
    if path.is_file():
        try:
            after = apply(repo, tree, commit, path.read_bytes())
        except Conflict as e:
            if resolve:
                say(f"left out: {path.relative_to(TOP)}, which does not fit")
                return tree
            raise Conflict(commit, f"{path.relative_to(TOP)} does not fit any "
                           f"more: {e.why}") from None
        looked_at = hooks(repo, tree, after)
        for file, function in {*want, *got}:
            # This base may not have the function.
            if (file, function) in looked_at or function.encode() \
                    not in (repo.read(start, file) or b""):
                want.pop((file, function), None)
                got.pop((file, function), None)
        touched = re.findall(r"^\+\+\+ b/(.*)", path.read_text(), re.M)
        tree, conflicts = after, [f for f in conflicts if f not in touched]
    if conflicts and resolve:
        say(f"left out: what {commit.name} changes in conflicting places of "
            + " ".join(conflicts))
    if resolve:
        return tree
    if conflicts:
        raise Conflict(commit, "git can't merge " + " ".join(conflicts))
    moved = sorted(": ".join(place) for place in {*want, *got}
                   if want.get(place) != got.get(place))
    if moved:
        raise Conflict(commit, "these functions would get other lines than on "
                       f"base {REFERENCE}:\n  " + "\n  ".join(moved))
    return tree


def functions(diff: str) -> List[Tuple[str, str]]:
    """Returns the files and functions of the hunks in 'diff'."""
    found: List[Tuple[str, str]] = []
    file = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = line[6:]
        elif line.startswith("@@") and file.endswith(".c"):
            found.append((file, line.split("@@", 2)[2].partition("(")[0]))
    return found


def make(repo: Repo, base: str, commits: List[Commit], name: str = REFERENCE,
         resolve: bool = False, there: Optional[Dict[str, Made]] = None
         ) -> Dict[str, Made]:
    """Makes 'commits' on 'base': applies them, or if they were made 'there',
    on the base of patches/, merges them."""
    made: Dict[str, Made] = {}
    news = registry.read_news(TOP / "patches/NEWS")
    blobs = hashed(repo, [f for c in commits for f in c.files])
    tree, parent = repo.out("rev-parse", f"{base}^{{tree}}"), base
    for commit in commits:
        message, author, patch = read_patch(repo, commit)
        start = with_new_files(repo, tree, commit,
                               news.get(commit.number, ""), blobs)
        if there:
            tree = merged(repo, name, commit, there[commit.name], start,
                          resolve)
        else:
            tree = apply(repo, start, commit, patch)
            want = functions(patch.decode(errors="replace"))
            if want and want != functions(repo.out(
                    "diff", "-U3", "--no-renames", start, tree)):
                raise Conflict(commit, "hunks would come into other functions")
        parent = repo.commit(tree, [parent], message, author)
        made[commit.name] = Made(start, tree, parent)
    return made


def make_branch(repo: Repo, cache: Path, name: str, base: str,
                commits: List[Commit], resolve: bool) -> Dict[str, Made]:
    """Makes 'commits' on 'base', a source of the versions that bases/NAME is
    for."""
    where = "this source" if name == REFERENCE else f"base {name}"
    try:
        if name == REFERENCE:
            try:
                return make(repo, base, commits)
            except Conflict as e:
                # Without commits that it comes after, or on another source.
                try:
                    fetched_base(repo, REFERENCE, cache)
                except project.Failure:
                    raise e from None
        start, all_commits = (fetched_base(repo, REFERENCE, cache),
                              project.select(project.read_topics()))
        try:
            there = make(repo, start, all_commits)
        except Conflict:
            where = f"base {REFERENCE}"
            raise
        return make(repo, base, commits, name, resolve, there)
    except Conflict as e:
        fail(f"patches/{e.commit.topic.name}/{e.commit.name}.patch does not "
             f"fit {where}: {e.why.rstrip()}\nThe tree is as it was.  See "
             "\"Another version of Open vSwitch\" in CONTRIBUTING.md.")
    raise AssertionError


# Import.


def settle(repo: Repo) -> None:
    """Ends an import that was cut off: takes files that it had written back,
    so that they are not taken for edits.  The caller has the lock."""
    for name in ("ovs-cost-index", "ovs-cost-base"):
        (repo.dir / f".git/{name}.lock").unlink(missing_ok=True)
    state = repo.state()
    pending = state.pop("pending", "")
    if not pending:
        return
    (repo.dir / ".git/index.lock").unlink(missing_ok=True)
    head = repo.head()
    if head == pending:
        state["tip"] = pending
    for file in repo.out("diff", "--name-only", "HEAD").splitlines() \
            if head and head != pending else []:
        path = repo.dir / file
        if not path.exists() \
                or path.read_bytes() == repo.read(pending, file):
            repo.git("checkout", "-q", "HEAD", "--", file)
    repo.save(**{**state, "fingerprint": ""})


def check_idle(repo: Repo) -> None:
    """Fails unless the branch is checked out, and git does nothing to it."""
    busy = [name for name in ("rebase-merge", "rebase-apply", "MERGE_HEAD",
                              "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG")
            if (repo.dir / ".git" / name).exists()]
    if busy:
        fail(f"git is in the middle of something in {repo.dir} ({busy[0]}): "
             "finish it, or abort it")
    if repo.out("symbolic-ref", "-q", "HEAD", check=False) \
            != "refs/heads/series":
        fail(f"branch 'series' is not checked out in {repo.dir}: run 'git "
             "checkout series' there")


def unexported(repo: Repo) -> str:
    """Returns the subjects of commits that are not exported."""
    state = repo.state()
    if not state.get("tip"):
        fail(f"{repo.state_file} has lost what the branch was made of: 'make "
             "import FORCE=1' makes it again")
    if repo.head() in (state["tip"], state.get("exported")):
        return ""
    return repo.out("log", "--format=%s", f"{state['tip']}..HEAD") \
        or "(HEAD is not at the tip)"


def open_repo(tree: Path) -> Repo:
    """Returns the repository in 'tree', made if need be."""
    repo = Repo(tree)
    if not repo.state_file.exists():
        if tree.exists() and any(tree.iterdir()):
            fail(f"{tree} is there but was not made by this program; move it "
                 "away")
        tree.mkdir(parents=True, exist_ok=True)
        repo.git("init", "-q", "-b", "series")
        # Users of the tree build in it, commit, and have git of their own.
        (tree / ".git/info/exclude").write_text(
            "".join(pattern + "\n" for pattern in GENERATED))
        for option in ("status.showUntrackedFiles=no", "core.abbrev=12",
                       "core.fileMode=true", "rebase.autoSquash=true",
                       "commit.gpgSign=false",
                       f"user.name={NAME}", f"user.email={EMAIL}"):
            repo.git("config", *option.split("=", 1))
        repo.save()
    return repo


def fingerprint(base: str, about: Dict[str, str]) -> str:
    """Returns a digest of all that a branch on the commit 'base' is made of,
    as 'about' chooses it."""
    digest = hashlib.sha256(f"{base} {sorted(about.items())}".encode())
    for path in [*sorted((TOP / "patches").rglob("*")),
                 *sorted((TOP / "bases").rglob("*")),
                 *sorted((TOP / "tools").glob("*.py")),
                 *(TOP / file for file in project.new_files())]:
        if path.is_file():
            data = path.read_bytes()
            digest.update(f"{path.relative_to(TOP)} {len(data)} "
                          f"{os.access(path, os.X_OK)}\n".encode() + data)
    return digest.hexdigest()


def import_branch(args: argparse.Namespace) -> None:
    repo = open_repo(args.tree)
    settle(repo)
    about = {"base": args.base, "topics": args.topics or "",
             "only": args.only or "", "resolve": "yes" * args.resolve}
    commits = project.select(project.read_topics(args.topics), args.base,
                             args.only)
    base = (copied_base(repo, args.base, args.ovs.resolve()) if args.ovs
            else fetched_base(repo, args.base, args.cache))
    now = fingerprint(base, about)
    state, head = repo.state(), repo.head()
    if state.get("fingerprint") == now and head and not args.force:
        return
    if head and not args.force:
        check_idle(repo)
    made = make_branch(repo, args.cache, args.base, base, commits,
                       args.resolve)
    tip = made[commits[-1].name].id if commits else base
    new = {**about, "fingerprint": now, "tip": tip,
           "names": " ".join(c.name for c in commits)}

    if head and args.force:
        for command in ("rebase", "am", "cherry-pick"):
            repo.git(command, "--quit", check=False)
        if b"No local changes" not in repo.git("stash", check=False).stdout:
            say(f"edits are in 'git stash' of {repo.dir}")
        repo.git("symbolic-ref", "HEAD", "refs/heads/series")
    elif head and unexported(repo):
        # Work that is not exported goes on, on the new commits.
        repo.git("tag", "-f", "base", base)
        repo.save(**new)
        if repo.git("rebase", "-q", "--autostash", "--onto", tip,
                    state["tip"], check=False).returncode:
            fail(f"commits that are not exported conflict with what is new: "
                 f"in {repo.dir}, mend that and run 'git rebase --continue'")
        say("commits that are not exported were put on the new ones")
        return
    repo.save(**{**state, "pending": tip})
    done = repo.git("reset", "-q", "--hard" if not head or args.force
                    else "--keep", tip, check=False)
    if done.returncode:
        repo.save(**state)
        fail(f"{repo.dir} has edits of files that change:\n"
             + done.stderr.decode()
             + "Commit them there, or run 'make import FORCE=1' to drop "
             "them.")
    repo.git("tag", "-f", "base", base)
    repo.save(**new)
    title = repo.out("log", "-1", "--format=%s", base)
    changed = ", {} files changed".format(len(repo.out(
        "diff", "--name-only", head, tip).splitlines())) if head else ""
    say(f"{repo.dir.name}: {title}, {len(commits)} commits{changed}")


# Export.


def squash(repo: Repo) -> None:
    """Commits edits of new files as fixups, and melds fixups into their
    commits, without a touch of the work tree."""
    added = repo.out("diff", "--name-only", "--diff-filter=A", "--no-renames",
                     "base", "HEAD").splitlines()
    edits = repo.out("diff", "--name-only", "--no-renames",
                     "HEAD").splitlines()
    others = [file for file in edits if file not in added]
    if others:
        fail("these files have edits that belong to no commit:\n  "
             + "\n  ".join(others) + f"\nIn {repo.dir}, commit them with 'git "
             "commit --fixup=COMMIT FILE', or let 'git absorb' find the "
             "commits.")
    for file in edits:
        commit = repo.out("log", "-1", "--diff-filter=A", "--format=%H",
                          "base..HEAD", "--", file)
        repo.git("commit", "-q", f"--fixup={commit}", "--", file)
    if not re.search(r"^(fixup|squash|amend)! ", repo.out(
            "log", "--format=%s", "base..HEAD"), re.M):
        return
    with tempfile.TemporaryDirectory(dir=repo.dir.parent) as name:
        work = Repo(Path(name) / "squash")
        repo.git("worktree", "add", "-q", "--detach", str(work.dir))
        done = work.git("rebase", "-q", "-i", "--autosquash", "base",
                        check=False)
        if done.returncode:
            at = work.out("log", "-1", "--format=%s", "REBASE_HEAD")
            files = work.out("diff", "--name-only", "--diff-filter=U")
            repo.git("worktree", "remove", "-f", str(work.dir))
            fail(f"a fixup does not fit its commit: '{at}' conflicts in "
                 f"{' '.join(files.split())}.  Nothing was written.")
        head = work.out("rev-parse", "HEAD")
        repo.git("worktree", "remove", "-f", str(work.dir))
    repo.git("reset", "-q", "--soft", head)


@dataclass
class Exported:
    """A commit of the branch, and the patch that it becomes."""
    id: str
    message: str
    topic: str = ""
    name: str = ""


def branch_commits(repo: Repo) -> List[Exported]:
    """Returns the commits of the branch.  A commit without a patch gets a
    name, and the topic of the commit before it."""
    topics = project.read_topics()
    of = {c.name: c.topic.name for t in topics for c in t.commits}
    found: List[Exported] = []
    for commit in repo.out("rev-list", "--reverse", "base..HEAD").split():
        name = repo.out("log", "-1", "--format=%(trailers:key=Patch,"
                        "valueonly,separator=%x20)", commit)
        message = repo.message(commit)
        one = Exported(commit, message)
        if re.match(r"(fixup|squash|amend)! ", message):
            fail(f"no commit is what '{message.splitlines()[0]}' is for")
        if name in of:
            one.name, one.topic = name, of[name]
        else:
            one.topic = found[-1].topic if found else topics[0].name
            last = max([int(e.name[:4]) for e in found] or [0])
            while any(n.startswith(f"{last:04d}") for n in of):
                last += 1
            slug = re.sub(r"[^a-z0-9]+", "-", message.split("\n")[0].lower())
            one.name = f"{last:04d}-{slug.strip('-')[:45].strip('-')}"
        of[one.name] = one.topic
        found.append(one)
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        fail("two commits are the same patch: " + " ".join(
            sorted({n for n in names if names.count(n) > 1})))
    return found


def author_of(repo: Repo, commit: str) -> Dict[str, str]:
    name, email, date = repo.out("log", "-1", "--format=%an%n%ae%n%ad",
                                 "--date=raw", commit).split("\n")
    return {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email,
            "GIT_AUTHOR_DATE": date}


def format_patch(repo: Repo, start: str, tree: str, message: str,
                 author: Dict[str, str]) -> bytes:
    parent = repo.commit(start, [], "")
    return repo.git(
        "format-patch", "-1", "--stdout", "--always", "--zero-commit", "-N",
        "--no-signature", "-p", "-U3", "--no-renames", "--no-color",
        "--no-ext-diff", "--no-textconv", "--diff-algorithm=myers",
        "--indent-heuristic",
        repo.commit(tree, [parent], message, author)).stdout


def export_branch(args: argparse.Namespace) -> None:
    repo = Repo(args.tree)
    state = repo.state()
    if not state.get("tip"):
        fail(f"{repo.dir} is no branch: run 'make import' first")
    about = {name: state.get(name, "") for name in ("base", "topics", "only",
                                                    "resolve")}
    if state.get("pending") or state.get("fingerprint") != fingerprint(
            repo.out("rev-parse", "base"), about):
        fail("the repository has changed since the import: run 'make import' "
             "first")
    check_idle(repo)
    squash(repo)
    writes: Dict[Path, Optional[bytes]] = {}
    modes: Dict[Path, int] = {}
    found = branch_commits(repo)
    names = state["names"].split()
    topics = {topic.name: topic for topic in project.read_topics()}
    commits = project.select([*topics.values()])
    known = {file: words for commit in commits
             for file, words in commit.files.items()}
    tip = set(repo.out("ls-tree", "-r", "--name-only", "HEAD").splitlines())
    blobs: Dict[str, Tuple[str, str, str]] = {}
    fresh: List[registry.Entry] = []
    gone = [entry for commit in commits if commit.name in names
            for file, words in commit.files.items() if file not in tip
            for entry in registry.entries(file, words, commit.topic.alone)]
    news = registry.read_news(TOP / "patches/NEWS")
    tree = repo.out("rev-parse", "base^{tree}")
    there = {} if state["base"] == REFERENCE else make(
        repo, fetched_base(repo, REFERENCE, args.cache), commits)
    listing: Dict[str, Commit] = {}
    for one in found:
        topic = topics[one.topic]
        commit = listing[one.name] = Commit(topic, one.name)
        for file in sorted(repo.out(
                "diff-tree", "-r", "--no-commit-id", "--no-renames",
                "--name-only", "--diff-filter=A", one.id).splitlines(),
                key=project.order):
            if file not in tip:
                continue
            if not file.startswith(tuple(f + "/" for f in project.FOLDERS)):
                fail(f"'{one.message.splitlines()[0]}' adds {file}: new files "
                     f"belong to {' '.join(project.FOLDERS)}")
            default = ["kmod", "userspace"] \
                if fnmatch(file, "tests/system-*.at") else []
            commit.files[file] = known.get(file, default)
            mode, _, blob = repo.out("ls-tree", "HEAD", file).split()[:3]
            if not re.fullmatch(r"[\w./+-]+", file) or mode == "120000":
                fail(f"'{file}' has a name that make does not take, or is a "
                     "link")
            blobs[file] = mode, blob, file
            modes[TOP / file] = int(mode[-3:], 8)
            writes[TOP / file] = repo.read("HEAD", file)
            if file not in known:
                fresh += registry.entries(file, commit.files[file],
                                          topic.alone)
        start = with_new_files(repo, tree, commit,
                               news.get(commit.number, ""), blobs)
        tree = with_entries(repo, one.id, fresh, gone, list(blobs.values()))
        author = author_of(repo, one.id)
        if there:
            if one.name not in there:
                fail(f"'{one.message.splitlines()[0]}' is in no patch: make "
                     f"new commits in a tree of base {REFERENCE}")
            path = TOP / f"bases/{state['base']}.d/{commit.number}.diff"
            made = there[one.name]
            clean, _ = merge_patch(repo, made, start)
            text = repo.git("diff", "-U3", "--no-renames", clean, tree).stdout
            writes[path] = text or None
            if repo.message(made.id) != one.message:
                fail(f"change messages in a tree of base {REFERENCE}")
        elif not is_same(repo, commit, start, tree, one, author):
            if start == tree and not commit.files:
                fail(f"'{one.message.splitlines()[0]}' changes new files "
                     "only, or nothing: meld it into another commit")
            writes[commit.path] = format_patch(repo, start, tree, one.message,
                                               author)
    if there:
        if list(listing) != names or fresh or gone:
            fail("commits and new files are added and dropped in a tree of "
                 f"base {REFERENCE}")
    else:
        for commit in commits:
            if commit.name in names:
                writes.update({TOP / file: None for file in commit.files
                               if file not in tip})
                if commit.name not in listing:
                    writes[commit.path] = None
        path = TOP / "patches/topics"
        writes[path] = list_commits(path.read_text(), listing,
                                    names).encode()
    old = {path: path.read_bytes() if path.is_file() else None
           for path in writes}
    write_all(writes, modes)
    try:
        verify(repo, args.cache, about, tree, len(found))
    except project.Failure as e:
        write_all(old, {})
        fail(f"{e}\nWhat was written is taken back.")
    repo.save(**{**state, "exported": repo.head()})


def verify(repo: Repo, cache: Path, about: Dict[str, str], tree: str,
           n: int) -> None:
    """Fails unless an import would give 'tree', with 'n' commits, and all
    commits still fit the base that patches/ is written for."""
    base = repo.out("rev-parse", "base")
    commits = project.select(project.read_topics(about["topics"] or None),
                             about["base"], about["only"])
    made = make_branch(repo, cache, about["base"], base, commits, False)
    if len(made) != n or (n and [*made.values()][-1].tree != tree):
        fail("the import would not give this branch")
    here = fetched_base(repo, REFERENCE, cache, fetch=False)
    if about["base"] == REFERENCE and here:
        make_branch(repo, cache, REFERENCE, here,
                    project.select(project.read_topics()), False)


def with_entries(repo: Repo, commit: str,
                 entries: List[registry.Entry], gone: List[registry.Entry],
                 blobs: List[Tuple[str, str, str]]) -> str:
    """Returns the tree of 'commit' with new files as they are at the tip, and
    with 'entries', of files that are new in the branch, where they belong, and
    without the entries 'gone'."""
    texts = {file: (repo.read(commit, file) or b"").decode()
             for file, _, _ in entries + gone}
    for file, words, _ in entries + gone:
        texts[file] = registry.without_line(texts[file], words)
    for file, _, edit in entries:
        texts[file] = edit(texts[file])
    repo.read_tree(commit)
    repo.put([*blobs, *(("100644", repo.blob(text.encode()), file)
                        for file, text in texts.items())])
    return repo.write_tree()


def is_same(repo: Repo, commit: Commit, start: str, tree: str, one: Exported,
            author: Dict[str, str]) -> bool:
    """Returns whether the patch of 'commit' is what it would be written as,
    but for line numbers and the like."""
    if not commit.path.is_file():
        return False
    message, old_author, patch = read_patch(repo, commit)
    try:
        if apply(repo, start, commit, patch) != tree:
            return False
    except Conflict:
        return False
    message = message.rpartition("Patch: ")[0]
    return repo.commit(tree, [], message, old_author) \
        == repo.commit(tree, [], one.message, author)


def list_commits(text: str, listing: Dict[str, Commit],
                 imported: List[str]) -> str:
    """Returns the text of patches/topics with the commits in 'listing', in
    their order, in place of those that were 'imported'."""
    out: List[str] = []
    for part in re.split(r"^(?=[\w-]+:)", text, flags=re.M):
        name = part.partition(":")[0]
        old = re.findall(r"^    (\d{4}-\S+)\n((?: {8}.*\n)*)", part, re.M)
        new = [c for c in listing.values() if c.topic.name == name]
        others = [n for n, _ in old if n not in imported]
        if others and [c.name for c in new] != [n for n, _ in old
                                                if n in imported]:
            fail(f"import all of topic {name} to add, drop or move commits")
        if not others and (old or new):
            head = re.split(r"^    \d", part, 1, re.M)[0].rstrip("\n")
            part = head + "\n" + "".join(
                f"    {c.name}\n" + "".join(
                    " ".join([f"        {file}", *c.files[file]]) + "\n"
                    for file in c.files) for c in new) + "\n"
        out.append(part)
    return "".join(out).rstrip("\n") + "\n"


def write_all(writes: Dict[Path, Optional[bytes]],
              modes: Dict[Path, int]) -> None:
    """Writes these files, or removes them.  New contents are written first,
    so that little is left to be done when files change."""
    temps: List[Tuple[Path, Path]] = []
    for path, data in sorted(writes.items()):
        old = path.read_bytes() if path.is_file() else None
        mode = modes.get(path, path.stat().st_mode if old is not None
                         else 0o644) & 0o777
        name = path.relative_to(TOP).as_posix()
        if data is None and old is not None:
            temps.append((path, path))
            say(f"removed {name}")
        elif data is not None and (data != old or (
                path in modes and (path.stat().st_mode ^ mode) & 0o100)):
            path.parent.mkdir(parents=True, exist_ok=True)
            temp = path.with_name(f".{path.name}.new")
            temp.write_bytes(data)
            temp.chmod(mode)
            temps.append((temp, path))
            say(f"wrote {name}")
    for temp, path in temps:
        if temp == path:
            path.unlink()
        else:
            temp.replace(path)
    if not temps:
        say("there is nothing to export")


# Series.


def write_series(args: argparse.Namespace) -> None:
    repo = Repo(args.tree)
    if args.signoff and not re.fullmatch(r"[^<>\n]+ <[^<>\s]+@[^<>\s]+>",
                                         args.signoff):
        fail(f"'{args.signoff}' is not 'NAME <EMAIL>'")
    alone = {t.name for t in project.read_topics() if t.alone}
    base = parent = repo.out("rev-parse", "base")
    ends: Dict[str, Tuple[str, str]] = {}
    for one in branch_commits(repo):
        author, message = author_of(repo, one.id), one.message
        if args.signoff:
            name, email = args.signoff[:-1].split(" <")
            author.update(GIT_AUTHOR_NAME=name, GIT_AUTHOR_EMAIL=email)
            message = re.sub(r"^Signed-off-by: .*$",
                             f"Signed-off-by: {args.signoff}", message,
                             flags=re.M)
        start = parent
        parent = repo.commit(repo.out("rev-parse", f"{one.id}^{{tree}}"),
                             [parent], message, author)
        ends[one.topic] = ends.get(one.topic, (start, ""))[0], parent
    new = args.out.with_name(args.out.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    mails: List[Path] = []
    for n, (topic, (start, end)) in enumerate(ends.items(), 1):
        folder = new / f"{n}-{topic}"
        found = [Path(line) for line in repo.out(
            "format-patch", "--numbered", "--zero-commit", "--no-signature",
            "--no-renames", "--no-base", "-o", str(folder),
            f"{start}..{end}").splitlines()]
        cover = (TOP / f"patches/{topic}/0000-cover.txt").read_text()
        cover = re.sub(r"\[PATCH \d+/\d+\]",
                       f"[PATCH {0:0{len(str(len(found)))}}/{len(found)}]",
                       cover, count=1)
        (folder / "0000-cover.txt").write_text(
            cover + "\n" + repo.out("diff", "--stat=72", "--summary",
                                    "--no-renames", start, end) + "\n")
        for mail in found:
            if topic not in alone:
                continue
            repo.read_tree(base)
            done = repo.staged("apply", "--cached", "--check",
                               "--whitespace=nowarn", str(mail), check=False)
            if done.returncode:
                fail(f"{mail.name} does not apply alone:\n"
                     + done.stderr.decode(errors="replace"))
        mails += found
    if repo.state()["base"] == REFERENCE:
        # An older checkpatch.py does not know what the newest one does.
        check_style(repo, mails)
    shutil.rmtree(args.out, ignore_errors=True)
    new.rename(args.out)
    print(f"series: {len(mails)} patches in {args.out}: 'git am "
          f"{args.out}/*/*.patch' on "
          f"{repo.out('log', '-1', '--format=%s', base)} gives this tree")


def check_style(repo: Repo, mails: List[Path]) -> None:
    """Fails unless checkpatch.py has nothing to say of 'mails'."""
    tool = repo.dir / "utilities/checkpatch.py"
    if not tool.is_file():
        return
    found = []
    with tempfile.TemporaryDirectory() as name:
        for mail in mails:
            # As git am shortens the subject.
            text = re.sub(r"^Subject: \[PATCH[^]]*\]", "Subject: [PATCH]",
                          mail.read_text(), count=1, flags=re.M)
            # There is no other way to write a string in JSON than in one line.
            parts = re.split(r"^(?=diff --git )", text, flags=re.M)
            copy = Path(name) / mail.name
            copy.write_text("".join(
                part for part in parts
                if not re.match(r"diff --git \S+\.json ", part)))
            run = subprocess.run(
                [sys.executable, str(tool), str(copy)], cwd=repo.dir,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, check=False)
            if run.returncode:
                found.append(f"{mail.parent.name}/{mail.name}:\n"
                             + run.stdout.decode(errors="replace"))
    if found:
        fail("checkpatch.py finds:\n" + "\n".join(found))


def check(args: argparse.Namespace) -> None:
    """Fails if the branch has work that is not exported."""
    repo = Repo(args.tree)
    if repo.state().get("tip"):
        check_idle(repo)
        work = unexported(repo) + repo.out("diff", "--name-only", "HEAD")
        if work:
            fail(f"{repo.dir} has work that is not exported:\n{work}")


# Other work trees.


def check_out(args: argparse.Namespace) -> None:
    """Checks out a commit in a work tree, and drops edits there."""
    repo, dest = Repo(args.tree), args.dest.absolute()
    repo.git("worktree", "repair", str(dest), check=False)
    repo.git("worktree", "prune")
    if (dest / ".git").is_file():
        Repo(dest).git("checkout", "-q", "-f", "--detach", args.commit)
    elif dest.exists() and any(dest.iterdir()):
        fail(f"{dest} is there but is no work tree of {repo.dir}; move it "
             "away")
    else:
        repo.git("worktree", "add", "-q", "-f", "--detach", str(dest),
                 args.commit)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="branch", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function in (("import", import_branch),
                           ("export", export_branch),
                           ("series", write_series), ("check", check),
                           ("worktree", check_out)):
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        command.add_argument("tree", type=Path, metavar="TREE",
                             help="the directory of the branch")
        if name in ("import", "export"):
            command.add_argument("cache", type=Path, metavar="CACHE",
                                 help="where sources are fetched to")
    add = commands.choices["import"].add_argument
    add("--base", default=REFERENCE, metavar="NAME",
        help="which of bases/ to build on (default: %(default)s)")
    add("--ovs", type=Path, metavar="DIR",
        help="take the source of Open vSwitch in DIR, fetch nothing")
    add("--topics", metavar="NAMES",
        help="these, and what they need (default: all)")
    add("--only", metavar="NUMBERS", help="only these patches")
    add("--force", action="store_true",
        help="drop edits and commits that are not exported")
    add("--resolve", action="store_true",
        help="leave out changes that git can't merge")
    commands.choices["series"].add_argument("out", type=Path, metavar="OUT")
    commands.choices["series"].add_argument(
        "--signoff", metavar="'NAME <EMAIL>'",
        help="who sends them, and signs them off")
    commands.choices["worktree"].add_argument("dest", type=Path,
                                              metavar="DIR")
    commands.choices["worktree"].add_argument("commit", metavar="COMMIT")
    args = parser.parse_args()
    args.tree = args.tree.absolute()
    for name in ("cache", "out"):
        if hasattr(args, name):
            setattr(args, name, getattr(args, name).absolute())
    with project.lock(args.tree.parent):
        args.function(args)
    return 0


if __name__ == "__main__":
    project.run_main(main)
