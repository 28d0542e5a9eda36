#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goes between this repository and a branch of Open vSwitch.

The branch is in a git repository in the directory TREE.  Its tag "base" is
the whole source of Open vSwitch; each commit after it is a patch of patches/,
the new files that belong to it, and their entries in Open vSwitch's lists.

  import TREE CACHE    makes the branch, or brings it up to date
  export TREE CACHE    writes what the branch has to this repository
  series TREE OUT      writes the branch as mails, with cover letters

import never overwrites an edit or a commit that is not exported, unless
--force is given.  git merges a patch that does not apply as it is.

export writes the new files as they are in TREE, committed or not; edits of
other files have to be committed, in new commits or with --fixup.  Patches that
have not changed keep their bytes.  On another base than that of patches/,
export writes the differences in bases/NAME.d/ only.
"""

from __future__ import annotations

import argparse
import contextlib
import email
import email.policy
import email.utils
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tools import autotest, project, registry
from tools.project import REFERENCE, TOP, Commit, fail

NAME, EMAIL = "ovs-cost developers", "dev@ovs-cost.example"
ENV = {
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_EDITOR": ":", "GIT_SEQUENCE_EDITOR": ":", "LC_ALL": "C",
    "GIT_COMMITTER_NAME": NAME, "GIT_COMMITTER_EMAIL": EMAIL,
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00+0000",
    "GIT_AUTHOR_NAME": NAME, "GIT_AUTHOR_EMAIL": EMAIL,
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00+0000",
}

BASE_PATCH = TOP / "bases/all.d/base.patch"

# Files of a source tree that are no source, in the words of .gitignore:
# releases have some of them, too.
GENERATED = """
    /Makefile /Makefile.in /aclocal.m4 /config.h /config.h.in /config.log
    /config.status /configure /configure~ /libtool /package.m4 /stamp-h*
    /autom4te.cache/ /.ovs-cost/ .deps/ .libs/ *testsuite.dir/
    /build-aux/ar-lib /build-aux/compile /build-aux/config.*
    /build-aux/depcomp /build-aux/install-sh /build-aux/ltmain.sh
    /build-aux/missing /build-aux/py-compile /build-aux/test-driver
    /debian/copyright /include/odp-netlink*.h /include/openvswitch/version.h
    /lib/dirs.c /lib/ovsdb-server-idl.[ch] /lib/std*.h /lib/string.h
    /lib/vswitch-idl.[ch] /m4/libtool.m4 /m4/lt*.m4 /python/setup.py
    /python/ovs/dirs.py /python/ovs/version.py /rhel/openvswitch-fedora.spec
    /tests/idltest.[ch] /tests/testsuite /tests/*-testsuite /vtep/vtep-idl.[ch]
    *.a *.gcda *.gcno *.la *.lo *.log *.o *.pyc
"""


def say(message: str) -> None:
    print(f"branch: {message}", flush=True)


# A mode, the name of a blob in git, and that of a file.
Blob = Tuple[str, str, str]
# What a file has, and its mode in git.
Content = Optional[Tuple[bytes, str]]
PLAIN = "100644"


class Conflict(project.Failure):
    """A change that git can't apply or merge."""


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

    def git(self, *args: str, data: bytes = b"", check: bool = True,
            env: Optional[Dict[str, str]] = None
            ) -> "subprocess.CompletedProcess[bytes]":
        """Runs git, deaf to what the user has configured."""
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith("GIT_")}
        done = subprocess.run(
            ["git", "-C", str(self.dir), "-c", "core.hooksPath=/dev/null",
             "-c", "safe.directory=*", *args], input=data, capture_output=True,
            # Never the repository around the build directory.
            env={**clean, **ENV, "GIT_CEILING_DIRECTORIES":
                 str(self.dir.resolve().parent), **(env or {})}, check=False)
        if check and done.returncode:
            fail(f"git {' '.join(args)} in {self.dir} failed:\n"
                 + (done.stdout + done.stderr).decode(errors="replace"))
        return done

    def out(self, *args: str, **more: Any) -> str:
        return self.git(*args, **more).stdout.decode(errors="replace").strip()

    def lines(self, *args: str, **more: Any) -> List[str]:
        return self.out(*args, **more).splitlines()

    def head(self) -> str:
        """Returns the commit that is checked out, "" if there is none."""
        return self.out("rev-parse", "-q", "--verify", "HEAD", check=False)

    def state(self) -> Dict[str, Any]:
        return (json.loads(self.state_file.read_text())
                if self.state_file.exists() else {})

    def save(self, **state: object) -> None:
        temp = self.state_file.with_suffix(".new")
        temp.write_text(json.dumps(state) + "\n")
        temp.replace(self.state_file)

    def changed(self, tree: str, *args: str, data: bytes) -> str:
        """Returns 'tree' as a git command that changes an index makes it."""
        env = {"GIT_INDEX_FILE": str(self.dir / ".git/ovs-cost-index")}
        self.git("read-tree", tree, env=env)
        done = self.git(*args, data=data, env=env, check=False)
        if done.returncode:
            raise Conflict(done.stderr.decode(errors="replace").rstrip())
        return self.out("write-tree", env=env)

    def read(self, tree: str, file: str) -> bytes:
        """Returns the contents of 'file', none if there is no such file."""
        return self.git("cat-file", "blob", f"{tree}:{file}",
                        check=False).stdout

    def write(self, tree: str, files: Dict[str, bytes],
              blobs: Iterable[Blob] = ()) -> str:
        """Returns 'tree' with the contents of 'files', and with 'blobs'."""
        modes = {line.partition("\t")[2]: line.split()[0] for line in
                 self.lines("ls-tree", "-r", tree, *files)}
        new = [(modes.get(file, PLAIN),
                self.out("hash-object", "-w", "--stdin", data=data), file)
               for file, data in files.items()]
        return self.changed(tree, "update-index", "--index-info", data="".join(
            f"{mode} {blob}\t{file}\n"
            for mode, blob, file in [*new, *blobs]).encode())

    def apply(self, tree: str, patch: bytes, *options: str) -> str:
        """Returns 'tree' with 'patch', exactly where it fits."""
        if not re.search(rb"^(diff --git|---) \S", patch, re.M):
            return tree
        return self.changed(tree, "apply", "--cached", "--whitespace=nowarn",
                            *options, data=patch)

    def diff(self, before: str, after: str, *args: str) -> bytes:
        return self.git("diff", "--no-renames", before, after, *args).stdout

    def commit(self, tree: str, message: str, *parents: str,
               author: Optional[Dict[str, str]] = None) -> str:
        return self.out("commit-tree", tree, *(f"-p{p}" for p in parents),
                        data=message.encode(), env=author)


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
        for option in ("status.showUntrackedFiles=no", "core.abbrev=12",
                       "core.fileMode=true", "rebase.autoSquash=true",
                       f"user.name={NAME}", f"user.email={EMAIL}"):
            repo.git("config", *option.split("=", 1))
        repo.save()
    (tree / ".git/info/exclude").write_text("\n".join(GENERATED.split()))
    return repo


# The base.


def import_base(repo: Repo, source: Path, title: str) -> str:
    """Returns a commit of the source of Open vSwitch in 'source', with the
    patch that it needs to build on all systems."""
    env = {"GIT_INDEX_FILE": str(repo.dir / ".git/ovs-cost-base"),
           "GIT_WORK_TREE": str(source)}
    repo.git("add", "-A", env=env)
    if (source / ".git").exists():
        # Open vSwitch has a file that its .gitignore ignores.
        repo.git("add", "-f", "--pathspec-from-file=-", "--pathspec-file-nul",
                 env=env, data=Repo(source).git(
                     "ls-files", "-z", "-ci", "--exclude-standard").stdout)
    programs = repo.lines("grep", "--cached", "-lF", "\x7fELF", env=env,
                          check=False)
    if programs:
        repo.git("rm", "-q", "--cached", *programs, env=env)
    tree = repo.out("write-tree", env=env)
    changelog = repo.read(tree, "debian/changelog")
    if changelog:
        # Older entries of Debian's break textual rules of Makefile.am.
        entry = re.split(rb"(?<=\n)\n(?=\S)", changelog, maxsplit=1)[0]
        tree = repo.write(tree, {"debian/changelog": entry})
    patch = BASE_PATCH.read_bytes()
    try:
        tree = repo.apply(tree, patch)
    except Conflict as e:
        try:
            # A source that has it already.
            repo.apply(tree, patch, "-R")
        except Conflict:
            fail(f"{BASE_PATCH.relative_to(TOP)} does not fit {source}: {e}")
    return repo.commit(tree, f"{title}\n")


def fetched_base(repo: Repo, name: str, cache: Path,
                 fetch: bool = True) -> str:
    """Returns the commit of base 'name', fetched if need be and 'fetch'."""
    about = project.read_base(name)
    digest = hashlib.sha256(repr((about, BASE_PATCH.read_bytes(),
                                  GENERATED)).encode()).hexdigest()
    tag = f"base-{name}-{digest[:12]}"
    found = repo.out("rev-parse", "-q", "--verify", tag, check=False)
    if not found and fetch:
        run = subprocess.run([str(TOP / "tools/fetch"),
                              str(TOP / "bases" / name), str(cache)],
                             stdin=subprocess.DEVNULL, check=False)
        if run.returncode:
            fail(f"the source of Open vSwitch {name} could not be fetched")
        package = f"{about['PACKAGE']} {about['PACKAGE_VERSION']}"
        found = import_base(repo, cache / package.replace(" ", "-"),
                            f"Open vSwitch {name} ({package})")
        repo.git("tag", "-f", tag, found)
    return found


# Making commits.


def read_patch(commit: Commit) -> Tuple[str, Dict[str, str], bytes]:
    """Returns the message of the patch of 'commit', its author, and it."""
    data = commit.path.read_bytes()
    mail = email.message_from_bytes(data, policy=email.policy.default)
    if not (mail["From"] and mail["Date"] and mail["Subject"]):
        fail(f"{commit.path} lacks the header of git format-patch")
    name, address = email.utils.parseaddr(mail["From"])
    author = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": address,
              "GIT_AUTHOR_DATE": mail["Date"]}
    subject = re.sub(r"^\[PATCH\] ", "", mail["Subject"])
    body = re.split(r"^diff --git ", mail.get_payload(decode=True).decode(
        errors="replace"), maxsplit=1, flags=re.M)[0]
    return f"{subject}\n\n{body.strip()}\n", author, data


def entries(commit: Commit, files: Iterable[str]) -> List[registry.Entry]:
    """Returns the entries of 'files', which are new files of 'commit'."""
    return [entry for file in files for entry in registry.entries(
        file, commit.files[file], "alone" in commit.topic.words)]


def edited(repo: Repo, tree: str, edits: List[Tuple[str, registry.Edit]],
           blobs: Iterable[Blob]) -> str:
    """Returns 'tree' with 'edits' of the texts of files, and with 'blobs'."""
    texts: Dict[str, str] = {}
    for file, edit in edits:
        texts[file] = edit(texts.get(file) or repo.read(tree, file).decode())
    return repo.write(tree, {f: t.encode() for f, t in texts.items()}, blobs)


def with_new_files(repo: Repo, tree: str, commit: Commit, news: str,
                   blobs: Dict[str, Blob]) -> str:
    """Returns 'tree' with the new files of 'commit' and their entries."""
    taken = repo.out("ls-tree", "-r", "--name-only", tree, *commit.files) \
        if commit.files else ""
    if taken:
        fail(f"Open vSwitch already has {taken}, a new file of {commit.name}")
    edits = [(file, edit) for file, _, edit in entries(commit, commit.files)]
    if news:
        edits.append(("NEWS", partial(registry.add_news, news=news)))
    return edited(repo, tree, edits, [blobs[file] for file in commit.files])


def hooks(diff: bytes) -> Dict[Tuple[str, str], List[str]]:
    """Returns the lines that 'diff' adds or removes in each function of C, by
    the name of its file and its own."""
    found: Dict[Tuple[str, str], List[str]] = {}
    file = function = ""
    for line in diff.decode(errors="replace").splitlines():
        if line.startswith("+++ "):
            file = line[6:]
        elif line.startswith("@@"):
            function = line.split("@@", 2)[2].partition("(")[0].strip()
        elif file.endswith(".c") and line[1:].strip() \
                and line[0] in "+-" and not line.startswith("--- "):
            found.setdefault((file, function), []).append(
                line[0] + line[1:].strip())
    return found


def merge_patch(repo: Repo, made: Made, start: str) -> Tuple[str, Set[str]]:
    """Returns the tree 'start' with the patch of 'made', a commit on another
    base, and the files that conflict, in which conflicts are left out."""
    sides = start, made.start, made.tree
    ancestor = repo.commit(made.start, "")
    done = repo.git("merge-tree", "--write-tree", "--name-only",
                    "--no-messages", repo.commit(start, "", ancestor),
                    repo.commit(made.tree, "", ancestor), check=False)
    if done.returncode > 1:
        fail("a merge needs git 2.38 or later: " + done.stderr.decode())
    tree, *conflicts = done.stdout.decode().split()
    texts: Dict[str, bytes] = {}
    left: Set[str] = set()
    for file in conflicts:
        with contextlib.suppress(Conflict):
            # Tests, which stand alone, are put after the same line.
            if file.endswith(".at"):
                texts[file] = repo.read(repo.apply(start, repo.diff(
                    made.start, made.tree, "--", file), "-C1"), file)
                continue
        left.add(file)
        with tempfile.TemporaryDirectory() as name:
            paths = [Path(name) / n for n in ("ours", "base", "theirs")]
            for path, side in zip(paths, sides):
                path.write_bytes(repo.read(side, file))
            texts[file] = repo.git("merge-file", "-p", "--ours",
                                   *map(str, paths)).stdout
    return (repo.write(tree, texts) if texts else tree), left


def merged(repo: Repo, base: str, commit: Commit, made: Made, start: str,
           resolve: bool) -> str:
    """Returns the tree 'start' of 'base' with the patch of 'commit', which was
    'made' on the base of patches/."""
    clean, conflicts = merge_patch(repo, made, start)
    path = commit.difference(base)
    diff = path.read_bytes() if path.is_file() else b""
    try:
        tree = repo.apply(clean, diff)
    except Conflict as e:
        if not resolve:
            raise Conflict(f"{path.relative_to(TOP)} does not fit any more: "
                           f"{e}") from None
        say(f"left out: {path.relative_to(TOP)}, which does not fit")
        return clean
    conflicts -= {*repo.lines("diff", "--name-only", clean, tree)}
    want, got, looked_at = (hooks(repo.diff(*trees, "-U0")) for trees in (
        (made.start, made.tree), (start, clean), (clean, tree)))
    # Somebody has looked at a difference; a base may not have a function.
    moved = [": ".join((file, function)) for file, function in sorted(
        {*want, *got} - {*looked_at})
        if want.get((file, function)) != got.get((file, function)) and not (
            diff and function.encode() not in repo.read(start, file))]
    if resolve:
        if conflicts:
            say(f"left out: what {commit.name} changes in conflicting places "
                f"of {' '.join(sorted(conflicts))}")
    elif conflicts:
        raise Conflict("git can't merge " + " ".join(sorted(conflicts)))
    elif moved:
        raise Conflict("these functions would get other lines than on base "
                       f"{REFERENCE}:\n  " + "\n  ".join(moved))
    return tree


def make(repo: Repo, start: str, commits: List[Commit], base: str = REFERENCE,
         resolve: bool = False, there: Optional[Dict[str, Made]] = None
         ) -> Dict[str, Made]:
    """Makes 'commits' on the commit 'start': applies them, or if they were
    made 'there', on the base of patches/, merges them."""
    made: Dict[str, Made] = {}
    news = registry.read_news(TOP / "patches/NEWS")
    files = [file for commit in commits for file in commit.files]
    hashes = repo.lines("hash-object", "-w", "--no-filters", "--stdin-paths",
                        data="".join(f"{TOP / f}\n" for f in files).encode())
    blobs = {file: (mode(TOP / file), blob, file)
             for file, blob in zip(files, hashes)}
    tree, parent = repo.out("rev-parse", f"{start}^{{tree}}"), start
    for commit in commits:
        message, author, patch = read_patch(commit)
        before = with_new_files(repo, tree, commit,
                                news.get(commit.number, ""), blobs)
        try:
            if there:
                tree = merged(repo, base, commit, there[commit.name], before,
                              resolve)
            else:
                tree = repo.apply(before, patch)
                if hooks(patch) != hooks(repo.diff(before, tree, "-U3")):
                    raise Conflict("hunks would come into other functions")
        except Conflict as e:
            raise Conflict(
                f"{commit.path.relative_to(TOP)} does not fit base {base}: {e}"
                "\nThe tree is as it was.  See \"Another version of Open "
                "vSwitch\" in CONTRIBUTING.md.") from None
        # Which patch a commit is, whatever becomes of its message.
        message += f"Patch: {commit.name}\n"
        parent = repo.commit(tree, message, parent, author=author)
        made[commit.name] = Made(before, tree, parent)
    return made


def make_branch(repo: Repo, cache: Path, about: Dict[str, str], start: str,
                resolve: bool = False) -> Dict[str, Made]:
    """Makes the commits that 'about' chooses on the commit 'start'."""
    base = about["base"]
    commits = project.select(project.read_topics(about["topics"]), base,
                             about["only"])
    if base == REFERENCE:
        try:
            return make(repo, start, commits)
        except Conflict as e:
            # Without commits that it comes after, or on another source.
            say("git merges what does not fit: " + str(e).split("\n")[0])
    there = make(repo, fetched_base(repo, REFERENCE, cache),
                 project.select(project.read_topics()))
    return make(repo, start, commits, base, resolve, there)


# Import.


def open_branch(tree: Path) -> Repo:
    """Returns the repository of a branch that has been imported, is checked
    out, and to which git does nothing."""
    repo = Repo(tree)
    if "tip" not in repo.state():
        fail(f"{tree} has no branch: run 'make import' first")
    if repo.out("symbolic-ref", "-q", "HEAD", check=False) \
            != "refs/heads/series":
        fail(f"branch 'series' is not checked out in {tree}, or git is in the "
             "middle of something: see 'git status' there")
    return repo


def fingerprint(base: str, about: Dict[str, str]) -> str:
    """Returns a digest of all that a branch on the commit 'base' is made of,
    as 'about' chooses it."""
    digest = hashlib.sha256(f"{base} {sorted(about.items())}".encode())
    paths = [*(TOP / "tools").glob("*.py"), *(
        path for name in ("patches", "bases", *project.FOLDERS)
        for path in (TOP / name).rglob("*")
        if path.is_file() and path.suffix != ".pyc")]
    for path in sorted(paths):
        digest.update(f"{path} {content(path)}\n".encode())
    return digest.hexdigest()


def import_branch(args: argparse.Namespace) -> None:
    repo = open_repo(args.tree)
    about = {"base": args.base, "topics": args.topics, "only": args.only,
             "resolve": "yes" * args.resolve}
    if args.ovs:
        source = args.ovs.resolve()
        base = import_base(repo, source, f"Open vSwitch of {source}")
    else:
        base = fetched_base(repo, args.base, args.dir)
    now = fingerprint(base, about)
    state, head = repo.state(), repo.head()
    if head and not args.force:
        if state.get("fingerprint") == now:
            return
        open_branch(args.tree)
    made = make_branch(repo, args.dir, about, base, args.resolve)
    tip = [base, *(one.id for one in made.values())][-1]
    new = {"about": about, "fingerprint": now, "tip": tip,
           "names": " ".join(made)}
    if head and args.force:
        for command in ("rebase", "am", "cherry-pick"):
            repo.git(command, "--quit", check=False)
        # A file that conflicts could not be stashed.
        repo.git("add", "-u")
        if b"No local changes" not in repo.git("stash").stdout:
            say(f"edits are in 'git stash' of {repo.dir}")
        repo.git("symbolic-ref", "HEAD", "refs/heads/series")
    elif head and head not in (tip, state["tip"], state.get("exported")):
        # Work that is not exported goes on, on the new commits.  It begins
        # after those of an import, if only of one that stopped in a conflict.
        starts = {state.get(name) for name in ("tip", "exported", "onto")}
        old = [c for c in repo.lines("rev-list", "HEAD") if c in starts][:1]
        if not old:
            fail(f"commits of the last import have changed in {repo.dir}: "
                 "check out the repository as it was then, run 'make export', "
                 "and merge what is new")
        repo.save(**{**state, "tip": old[0], "onto": tip})
        stashes = repo.lines("stash", "list")
        done = repo.git("rebase", "-q", "--autostash", "--onto", tip, *old,
                        check=False)
        if done.returncode:
            fail("commits that are not exported do not fit what is new:\n"
                 + (done.stdout + done.stderr).decode(errors="replace")
                 + f"If they conflict, in {repo.dir}, fix that and run 'git "
                 "rebase --continue', then 'make import'.")
        repo.git("tag", "-f", "base", base)
        repo.save(**new)
        if repo.lines("stash", "list") != stashes:
            fail(f"edits in {repo.dir} conflict with what is new: fix that; "
                 "'git stash' has them, too")
        say("commits that are not exported were put on the new ones")
        return
    elif head:
        # Files that an import which was cut off has written are no edits.
        written = {*repo.lines("diff", "--name-only", "HEAD")} \
            - {*repo.lines("diff", "--name-only", tip)}
        if written:
            repo.git("checkout", "-q", "HEAD", "--", *written)
    done = repo.git("reset", "-q", "--hard" if not head or args.force
                    else "--keep", tip, check=False)
    if done.returncode:
        fail(f"{repo.dir} has edits of files that change:\n"
             + done.stderr.decode() + "Commit them there, or run 'make import "
             "FORCE=1' to drop them.")
    repo.git("tag", "-f", "base", base)
    repo.save(**new)
    say(f"{repo.dir.name}: {repo.out('log', '-1', '--format=%s', base)}, "
        f"{len(made)} commits")


# Export.


def squash(repo: Repo) -> str:
    """Melds fixups into their commits, without a touch of the work tree.
    Returns a commit with edits of new files, which need no commit."""
    added = repo.lines("diff", "--name-only", "--diff-filter=A",
                       "--no-renames", "base", "HEAD")
    others = {*repo.lines("diff", "--name-only", "HEAD")} - {*added}
    if others:
        fail("these files have edits that belong to no commit:\n  "
             + "\n  ".join(sorted(others)) + f"\nIn {repo.dir}, commit them "
             "with 'git commit --fixup=COMMIT FILE', or let 'git absorb' find "
             "the commits.")
    repo.git("worktree", "prune")
    with tempfile.TemporaryDirectory(dir=repo.dir.parent) as name:
        work = Repo(Path(name) / "squash")
        if re.search(r"^(fixup|squash|amend)! ", repo.out(
                "log", "--format=%s", "base..HEAD"), re.M):
            repo.git("worktree", "add", "-q", "--detach", str(work.dir))
            if work.git("rebase", "-q", "-i", "--autosquash", "base",
                        check=False).returncode:
                at = work.out("log", "-1", "--format=%s", "REBASE_HEAD")
                files = work.lines("diff", "--name-only", "--diff-filter=U")
                fail(f"a fixup does not fit its commit: '{at}' conflicts in "
                     f"{' '.join(files)}.  Nothing was written.")
            repo.git("reset", "-q", "--soft", work.head())
    return repo.out("stash", "create") or "HEAD"


@dataclass
class Exported(Commit):
    """A commit of the branch, and the patch that it becomes."""
    id: str = ""
    message: str = ""
    author: Dict[str, str] = field(default_factory=dict)


def branch_commits(repo: Repo) -> List[Exported]:
    """Returns the commits of the branch.  A commit without a patch of its own
    gets a name, and the topic of the commit before it."""
    topics = project.read_topics()
    known = {commit.name: commit for commit in project.select(topics)}
    numbers = {int(commit.number) for commit in known.values()}
    found: List[Exported] = []
    topic, number = topics[0], 1
    for one in repo.lines("rev-list", "--reverse", "base..HEAD"):
        name, address, date, text = repo.out(
            "log", "-1", "--format=%an%n%ae%n%ad%n%B", "--date=raw",
            one).split("\n", 3)
        message = re.sub(r"^Patch: .*$", "", text, flags=re.M).strip() + "\n"
        subject = message.split("\n")[0]
        if re.match(r"(fixup|squash|amend)! ", subject):
            fail(f"no commit is what '{subject}' is for")
        patch = re.search(r"^Patch: (.*)$", text, re.M)
        commit = known.pop(patch.group(1), None) if patch else None
        if commit:
            topic, number = commit.topic, int(commit.number)
        while not commit and number in numbers:
            number += 1
        numbers.add(number)
        slug = re.sub(r"[^a-z0-9]+", "-", subject.lower())[:45].strip("-")
        found.append(Exported(
            topic, commit.name if commit else f"{number:04d}-{slug}", {}, one,
            message, {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": address,
                      "GIT_AUTHOR_DATE": date}))
    return found


def format_patch(repo: Repo, start: str, tree: str, one: Exported) -> bytes:
    """Returns the patch that makes 'tree' of 'start'; as it is, if it would
    differ in line numbers and the like only."""
    new = repo.git(
        "format-patch", "-1", "--stdout", "--always", "--zero-commit", "-N",
        "--no-signature", "-p", "-U3", "--no-renames",
        repo.commit(tree, one.message, repo.commit(start, ""),
                    author=one.author)).stdout
    old = one.path.read_bytes() if one.path.exists() else b""
    texts = [re.sub(rb"^(From \w{40} .*|index \w+\.\..*|@@ -\S+ \S+ @@)", b"",
                    patch.rstrip(), flags=re.M) for patch in (old, new)]
    return old if (texts[0] == texts[1]
                   and repo.apply(start, old) == tree) else new


def export_branch(args: argparse.Namespace) -> None:
    repo = open_branch(args.tree)
    state = repo.state()
    about, names = state["about"], state["names"].split()
    if state["fingerprint"] != fingerprint(repo.out("rev-parse", "base"),
                                           about):
        fail("the repository has changed since the import: run 'make import' "
             "first")
    tip = squash(repo)
    found = branch_commits(repo)
    commits = project.select(project.read_topics())
    imported = [commit for commit in commits if commit.name in names]
    known = {file: words for commit in commits
             for file, words in commit.files.items()}
    files = {line.partition("\t")[2]: line.split()
             for line in repo.lines("ls-tree", "-r", tip)}
    there = {} if about["base"] == REFERENCE else make(
        repo, fetched_base(repo, REFERENCE, args.dir), commits)
    news = registry.read_news(TOP / "patches/NEWS")
    # What import made of files that the branch does not have any more.
    gone = [entry for commit in imported for entry in entries(
        commit, [file for file in commit.files if file not in files])]
    blobs = {file: ("0", "0" * 40, file) for file in {*known} - {*files}}
    writes: Dict[Path, Content] = {TOP / file: None for commit in imported
                                   for file in commit.files}
    writes.update({commit.path: None for commit in imported if not there})
    fresh: List[registry.Entry] = []
    same = [one.name for one in found] == names and not gone
    tree = repo.out("rev-parse", "base^{tree}")
    trees: List[str] = []
    for one in found:
        added = repo.lines("diff-tree", "-r", "--no-commit-id", "--name-only",
                           "--no-renames", "--diff-filter=A", one.id)
        for file in sorted({*files} & {*added}, key=project.order):
            if file.partition("/")[0] not in project.FOLDERS:
                fail(f"{one.name} adds {file}: new files belong to "
                     + " ".join(project.FOLDERS))
            one.files[file] = known.get(
                file, ["kmod", "userspace"]
                if fnmatch(file, "tests/system-*.at") else [])
            bits, _, blob = files[file][:3]
            blobs[file] = bits, blob, file
            writes[TOP / file] = repo.read(tip, file), bits
        fresh += entries(one, [f for f in one.files if f not in known])
        start = with_new_files(repo, tree, one, news.get(one.number, ""),
                               blobs)
        # With new files as they are at the tip, with entries of those that
        # are new in the branch where they belong.
        edits = [(f, partial(registry.without_line, words=words))
                 for f, words, _ in fresh + gone]
        edits += [(f, edit) for f, _, edit in fresh]
        edits.append(("NEWS", lambda _: repo.read(start, "NEWS").decode()))
        tree = edited(repo, one.id, edits, blobs.values())
        trees.append(tree)
        if there:
            if not same or fresh or one.message != read_patch(one)[0]:
                fail("commits and new files are added, moved and dropped, and "
                     f"messages are changed, in a tree of base {REFERENCE}")
            clean, _ = merge_patch(repo, there[one.name], start)
            text = repo.diff(clean, tree, "-U3")
            writes[one.difference(about["base"])] = \
                (text, PLAIN) if text else None
        elif start == tree and not one.files:
            fail(f"{one.name} changes new files only, or nothing: meld it "
                 "into another commit")
        else:
            writes[one.path] = format_patch(repo, start, tree, one), PLAIN
    before, after = (sorted(repo.read(commit, "NEWS").split(b"\n"))
                     for commit in ("HEAD", tree))
    if before != after:
        fail("a commit changes NEWS, whose text comes from patches/NEWS: make "
             "the change there, and take it out of the commit")
    if not there:
        writes[TOP / "patches/topics"] = list_commits(found, names), PLAIN
    old = {path: content(path) for path in writes}
    try:
        write_all(writes)
        verify(repo, args.dir, about, trees)
    except BaseException:
        say("taking back what was written")
        write_all(old)
        raise
    repo.save(**{**state, "exported": repo.head()})


def list_commits(new: List[Exported], imported: List[str]) -> bytes:
    """Returns the text of patches/topics with the commits 'new', in their
    order, in place of those that were 'imported'."""
    text = (TOP / "patches/topics").read_text()
    parts = [re.match("(#.*\n)*", text).group()]
    for topic in project.read_topics():
        commits = [commit for commit in new if commit.topic.name == topic.name]
        old = [c.name for c in topic.commits if c.name in imported]
        if len(old) < len(topic.commits):
            of = {commit.name: commit for commit in commits}
            commits = [of.get(c.name, c) for c in topic.commits]
        parts.append(f"{topic.line}\n" + "".join(
            f"    {commit.name}\n" + "".join(
                " ".join([f"        {file}", *words]) + "\n"
                for file, words in commit.files.items())
            for commit in commits))
    return "\n".join(parts).encode()


def mode(path: Path) -> str:
    return "100755" if os.access(path, os.X_OK) else PLAIN


def content(path: Path) -> Content:
    return (path.read_bytes(), mode(path)) if path.is_file() else None


def write_all(writes: Dict[Path, Content]) -> None:
    """Writes these files, or removes them."""
    changed = {path: new for path, new in sorted(writes.items())
               if new != content(path)}
    for path, new in changed.items():
        if new:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(new[0])
            path.chmod(int(new[1][-3:], 8))
        else:
            path.unlink()
        say(f"{'wrote' if new else 'removed'} {path.relative_to(TOP)}")
    if not changed:
        say("there is nothing to export")


def verify(repo: Repo, cache: Path, about: Dict[str, str],
           trees: List[str]) -> None:
    """Fails unless an import would give commits with 'trees', and all commits
    still fit the base that patches/ is written for."""
    made = make_branch(repo, cache, about, repo.out("rev-parse", "base"))
    if [one.tree for one in made.values()] != trees:
        fail("the import would not give this branch")
    here = fetched_base(repo, REFERENCE, cache, fetch=False)
    if about["base"] == REFERENCE and here:
        make(repo, here, project.select(project.read_topics()))


# Series.


def write_series(args: argparse.Namespace) -> None:
    repo = open_branch(args.tree)
    if not re.fullmatch(r"|[^<>\n]+ <[^<>\s]+@[^<>\s]+>", args.signoff):
        fail(f"'{args.signoff}' is not 'NAME <EMAIL>'")
    if repo.lines("diff", "--name-only", "HEAD"):
        fail(f"{repo.dir} has edits: run 'make export' first")
    for path in args.dir.rglob("*"):
        if not re.fullmatch(r"\d\d?-[\w-]+(/\d{4}-.*\.(patch|txt))?",
                            path.relative_to(args.dir).as_posix()):
            fail(f"{path} is not of a series: name another directory")
    shutil.rmtree(args.dir, ignore_errors=True)
    topics: Dict[str, List[Exported]] = {}
    for one in branch_commits(repo):
        topics.setdefault(one.topic.name, []).append(one)
    for n, (topic, commits) in enumerate(topics.items(), 1):
        start, end = f"{commits[0].id}^", commits[-1].id
        folder = args.dir / f"{n}-{topic}"
        mails = repo.lines(
            "format-patch", "--numbered", "--zero-commit", "--no-signature",
            "--no-renames", "--no-base", "-o", str(folder), f"{start}..{end}")
        for mail in map(Path, mails):
            head, gap, diff = mail.read_bytes().partition(b"\n---\n")
            head = re.sub(rb"\nPatch: .*", b"", head)
            if args.signoff:
                head = re.sub(rb"^(From|Signed-off-by): .*",
                              rb"\1: " + args.signoff.encode(), head,
                              flags=re.M)
            mail.write_bytes(head + gap + diff)
        cover = (TOP / f"patches/{topic}/0000-cover.txt").read_text()
        total = str(len(mails))
        (folder / "0000-cover.txt").write_text(
            cover.replace(" 0/N]", f" {'0' * len(total)}/{total}]", 1)
            + "\n" + repo.out("diff", "--stat=72", "--summary",
                              "--no-renames", start, end) + "\n")
    print(f"series: patches in {args.dir}: 'git am {args.dir}/*/*.patch' on "
          f"{repo.out('log', '-1', '--format=%s', 'base')} gives this tree")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="branch", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {"import": import_branch, "export": export_branch,
                "series": write_series}
    add = parser.add_argument
    add("command", choices=commands, metavar="COMMAND")
    add("tree", type=Path, metavar="TREE")
    add("dir", type=Path, metavar="DIR",
        help="where import and export fetch sources to, or series writes to")
    add("--base", default=REFERENCE, metavar="NAME",
        help="which of bases/ to build on (default: %(default)s)")
    add("--ovs", type=Path, metavar="DIR",
        help="take the source of Open vSwitch in DIR, fetch nothing")
    add("--topics", default="", metavar="NAMES",
        help="these, and what they need (default: all)")
    add("--only", default="", metavar="NUMBERS", help="only these patches")
    add("--force", action="store_true",
        help="drop edits and commits that are not exported")
    add("--resolve", action="store_true",
        help="leave out changes that git can't merge")
    add("--signoff", default="", metavar="'NAME <EMAIL>'",
        help="who sends a series, and signs it off")
    args = parser.parse_args()
    args.tree, args.dir = args.tree.absolute(), args.dir.absolute()
    autotest.on_signals()
    args.tree.parent.mkdir(parents=True, exist_ok=True)
    with open(args.tree.parent / ".lock-trees", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        commands[args.command](args)
    return 0


if __name__ == "__main__":
    project.run_main(main)
