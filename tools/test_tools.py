# SPDX-License-Identifier: Apache-2.0
"""Tests the tools of this directory, and ./bootstrap, on a made-up source of
Open vSwitch: what they do, and what they say and leave when something is
wrong.  Needs no network, and builds nothing.

    python3 -m unittest discover -s tools -t .
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from typing import Dict, List

from tools import lint, registry
from tools.project import TOP

LINES = "".join(f"line {n};\n" for n in range(1, 41))

CODE = "\n".join(f"f{n}(void)\n{{\n    a;\n    b;\n    c;\n}}\n"
                 for n in (1, 2, 3))

LISTS = ("lib_libopenvswitch_la_SOURCES = \\\n\tlib/a.c \\\n\tlib/c.c\n"
         "if X\nlib_libopenvswitch_la_SOURCES += \\\n\tlib/b.c\nendif\n")

BASE_FILES = {
    "Makefile.am": "FLAKE8_IGNORE = E129,W503,W504\n",
    "NEWS": "v4.0.0\n",
    "lib/automake.mk": LISTS,
    **dict.fromkeys(("lib/a.c", "lib/b.c", "lib/c.c"), LINES),
    "lib/f.c": CODE,
    "tests/automake.mk": "A = \\\n\ta\n",
    "tests/system-kmod-testsuite.at": "a\n",
    "tests/system-userspace-testsuite.at": "a\n",
}

BASE = """PACKAGE="source"
PACKAGE_VERSION="1-1"
PACKAGE_SUITES="one two"
PACKAGE_SHA256="00"
PACKAGE_SUBDIR="src"
VERSIONS="4.0.*"
"""

# A stand-in for an Autotest script: tests and verdicts come from a file, with
# "load" for a test that only passes when it runs again.
SUITE = r"""n=0
failed=$(cat tests/failed 2>/dev/null)
: >tests/failed
while read -r file title verdict; do
    n=$((n + 1))
    if test "$1" = --list; then
        printf '%4d: %s:%d      %s\n' $n $file $n $title
        continue
    fi
    case "$* " in
        *--recheck*) case " $failed " in *" $n "*) ;; *) continue ;; esac ;;
        *" $n "*) echo $n >>tests/ran ;;
        *) continue ;;
    esac
    case $verdict,$* in
        load,*--recheck*) verdict=ok ;;
        load,* | fail,*) verdict="FAILED ($file:$n)"
                         printf '%d ' $n >>tests/failed
                         mkdir -p tests/testsuite.dir/$n
                         printf './%s:1: check_logs\n+|WARN|why\n> a.log\n' \
                             $file >tests/testsuite.dir/$n/testsuite.log ;;
        skip,*) verdict="skipped ($file:$n)" ;;
    esac
    printf '%3d: %-20s %s\n' $n $title "$verdict"
done <tests/plan
test ! -s tests/failed
"""


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def append(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def set_line(path: Path, n: int, line: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[n - 1] = line + "\n"
    path.write_text("".join(lines))


class ToolTest(unittest.TestCase):
    """A project in a directory of its own, with the real tools."""

    def setUp(self) -> None:
        self.dir = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        self.top = self.dir / "project"
        self.base = self.dir / "base"
        self.cache = self.dir / "cache"
        self.work = self.dir / "work"   # The base with the patches so far.
        self.build = self.top / "build"
        self.ovs = self.build / "ovs"
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("GIT_", "MAKE", "MFLAGS"))
                    and k not in ("BUILD_DIR", "TESTSUITEFLAGS")}
        self.env["GIT_CEILING_DIRECTORIES"] = str(self.dir)
        self.env["PATH"] = f"{self.dir}/bin:{os.environ['PATH']}"
        shutil.copytree(TOP / "tools", self.top / "tools",
                        ignore=shutil.ignore_patterns("__pycache__"))
        for file, text in BASE_FILES.items():
            write(self.base / file, text)
            write(self.work / file, text)
        self.commit(self.work, "base")
        self.source = ["--ovs", str(self.base)]
        self.fake("apt-helper", "exit 100")
        write(self.top / "lib/new.c", "new\n")
        write(self.top / "bases/4.0.0", BASE)
        write(self.top / "bases/all.d/base.patch", "")
        write(self.top / "patches/NEWS", "# Comment\n[0030]\n   - Item.\n")
        write(self.top / "patches/topics",
              "# Comment\n\none: alone\n    0020-a-two\n\n"
              "two: one\n    0030-a-twenty\n        lib/new.c\n")
        set_line(self.work / "lib/a.c", 2, "two")
        self.add_patch("one/0020-a-two", "a: Change line two.")
        set_line(self.work / "lib/a.c", 20, "twenty")
        set_line(self.work / "lib/b.c", 3, "three")
        self.add_patch("two/0030-a-twenty", "a: Change line twenty.")

    def add_patch(self, name: str, subject: str) -> None:
        """Makes a patch of the edits in self.work."""
        self.commit(self.work, f"{subject}\n\nBecause.\n\n"
                    "Signed-off-by: A <a@example.org>")
        path = self.top / f"patches/{name}.patch"
        write(path, self.git(
            self.work, "-c", "core.abbrev=12", "format-patch", "-1",
            "--stdout", "--zero-commit", "-N", "--no-signature", "-p"))
        write(path.with_name("0000-cover.txt"), "Subject\n")

    def commit(self, tree: Path, message: str) -> None:
        self.git(tree, "init", "-q")
        self.git(tree, "add", "-A")
        self.git(tree, "commit", "-q", "-m", message)

    def git(self, tree: Path, *args: str) -> str:
        return subprocess.run(
            ["git", "-C", str(tree), "-c", "user.name=A",
             "-c", "user.email=a@example.org", "-c", "commit.gpgSign=false",
             *args], env=self.env, check=True, stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL, text=True).stdout

    def fake(self, program: str, script: str = "") -> None:
        """Puts a program before those of the system."""
        write(self.dir / "bin" / program, f"#!/bin/sh\n{script}\n", 0o755)

    def start(self, name: str, *args: object) -> subprocess.Popen[str]:
        """Starts a tool."""
        return subprocess.Popen(
            [str(self.top / name), *map(str, args)], env=self.env,
            cwd=self.dir, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)

    def tool(self, name: str, *args: object, status: int = 0) -> str:
        """Runs a tool, checks its exit status, and returns what it said."""
        with self.start(name, *args) as run:
            said = run.communicate()[0]
        self.assertEqual(run.returncode, status, said)
        self.assertNotIn("Traceback", said)
        return said

    def wait_for(self, beats: Path, n: int) -> None:
        """Waits until 'n' processes have written to a file."""
        for _ in range(400):
            if beats.exists() and len({*beats.read_text().split()}) >= n:
                return
            time.sleep(0.05)
        self.fail(f"there is no {beats}, or not all of it")

    def assert_still(self, beats: Path) -> None:
        """Checks that nobody writes to a file any more."""
        before = beats.stat().st_size
        time.sleep(1.5)
        self.assertEqual(beats.stat().st_size, before)

    def branch(self, *args: str, status: int = 0) -> str:
        """Imports the branch."""
        return self.tool("tools/branch.py", "import", self.ovs, self.cache,
                         *self.source, *args, status=status)

    def export(self, status: int = 0) -> str:
        return self.tool("tools/branch.py", "export", self.ovs, self.cache,
                         status=status)

    def read(self, file: str) -> str:
        return (self.ovs / file).read_text()

    def log(self) -> List[str]:
        return self.git(self.ovs, "log", "--format=%s",
                        "base..HEAD").splitlines()

    def files(self) -> Dict[str, bytes]:
        return {p.relative_to(self.top).as_posix(): p.read_bytes()
                for p in self.top.rglob("*")
                if p.is_file() and not {"build", "__pycache__"} & {*p.parts}}

    def changed(self, before: Dict[str, bytes]) -> List[str]:
        after = self.files()
        return sorted(n for n in {*before, *after}
                      if before.get(n) != after.get(n))

    def edit(self, tool: str, old: str, new: str) -> None:
        """Changes a tool."""
        path = self.top / "tools" / tool
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new))

    def check(self, *args: object, status: int = 0) -> str:
        return self.tool("tools/check.py", self.build, *args, status=status)


class Branch(ToolTest):
    """import and export."""

    def test_import(self) -> None:
        self.assertEqual(self.branch(), "branch: ovs: Open vSwitch of "
                         f"{self.base}, 2 commits\n")
        self.assertEqual(self.read("lib/a.c"),
                         (self.work / "lib/a.c").read_text())
        self.assertEqual(self.read("lib/new.c"), "new\n")
        self.assertEqual(self.read("lib/automake.mk"), LISTS.replace(
            "c.c\n", "c.c \\\n\tlib/new.c\n", 1))
        self.assertEqual(self.read("NEWS"), "Post-v4.0.0\n-----------\n"
                         "   - Item.\n\n\nv4.0.0\n")
        self.assertEqual(self.log(), ["a: Change line twenty.",
                                      "a: Change line two."])
        # Again: only files that differ are written.
        files = [self.ovs / f for f in self.git(self.ovs, "ls-files").split()]
        before = [file.stat().st_mtime_ns for file in files]
        self.assertEqual(self.branch(), "")
        write(self.top / "lib/new.c", "newer\n")
        self.branch()
        self.assertEqual([file.name for file, stamp in zip(files, before)
                          if file.stat().st_mtime_ns != stamp], ["new.c"])

    def test_selection(self) -> None:
        for option, value, n in (("--topics", "one", 1), ("--only", "0020", 1),
                                 ("--topics", "two", 2)):
            self.branch(option, value)
            self.assertEqual(len(self.log()), n)
            self.assertEqual((self.ovs / "lib/new.c").exists(), n == 2)
        self.assertIn("there is no topic three (there is: one two)",
                      self.branch("--topics", "three", status=1))
        self.assertIn("there is no patch 9999",
                      self.branch("--only", "9999", status=1))

    def test_bad_patches(self) -> None:
        self.branch()
        patch, new = "patches/one/0020-a-two.patch", "lib/new.c"
        good = (self.top / patch).read_text()
        for path, text, why in (
                (self.top / patch, good.replace("-line 2;", "-line 200;"),
                 "0020-a-two.patch does not fit base 4.0.0"),
                (self.top / patch, good[good.index("diff"):],
                 "lacks the header"),
                (self.base / new, "theirs\n", "already has lib/new.c")):
            with self.subTest(why=why):
                write(path, text)
                self.assertIn(why, self.branch(status=1))
                self.assertEqual(len(self.log()), 2)
                write(self.top / patch, good)

    def test_work_is_kept(self) -> None:
        """Neither edits nor commits are overwritten."""
        self.assertIn("has no branch", self.export(status=1))
        self.branch()
        self.git(self.ovs, "checkout", "-q", "HEAD~1")
        self.assertIn("'series' is not checked out", self.export(status=1))
        self.git(self.ovs, "checkout", "-q", "series")
        write(self.ovs / "lib/new.c", "edit\n")
        write(self.top / "lib/new.c", "newer\n")
        self.assertIn("has edits of files that change", self.branch(status=1))
        self.assertEqual(self.read("lib/new.c"), "edit\n")
        self.assertIn("the repository has changed since the import",
                      self.export(status=1))
        self.commit(self.ovs, "new: Edit.")
        self.assertIn("fix that and run 'git rebase --continue'",
                      self.branch(status=1))
        self.assertIn("git is in the middle of something",
                      self.export(status=1))
        self.git(self.ovs, "rebase", "--abort")
        self.assertIn("the repository has changed since the import",
                      self.export(status=1))
        self.branch(status=1)
        # It is mended, and there is more that is new.
        self.git(self.ovs, "commit", "-q", "-a", "-m", "new: Edit.")
        self.git(self.ovs, "rebase", "--continue")
        write(self.top / "patches/NEWS", "")
        self.branch()
        self.assertEqual(len(self.log()), 3)
        write(self.top / "lib/new.c", "newest\n")
        self.branch(status=1)
        self.branch("--force")
        self.assertEqual(self.read("lib/new.c"), "newest\n")
        self.assertIn("+edit", self.git(self.ovs, "stash", "show", "-p"))
        self.assertIn("was not made by this program", self.tool(
            "tools/branch.py", "import", self.top, self.dir, status=1))

    def test_work_goes_on(self) -> None:
        """Commits and edits are put on what is new."""
        self.branch()
        # A file that a killed import has written is no edit.
        for path in (self.ovs, self.top):
            write(path / "lib/new.c", "newer\n")
        self.branch()
        self.assertEqual(self.git(self.ovs, "status", "--porcelain"), "")
        set_line(self.ovs / "lib/c.c", 1, "one")
        self.commit(self.ovs, "c: Edit.")
        set_line(self.ovs / "lib/b.c", 9, "9")
        write(self.top / "lib/new.c", "newest\n")
        self.assertIn("were put on the new ones", self.branch())
        self.assertEqual(self.log()[0], "c: Edit.")
        self.assertEqual(self.read("lib/new.c"), "newest\n")
        self.assertIn("9\n", self.read("lib/b.c"))
        # Not where git can't begin, nor silently where edits conflict.
        for path in (self.ovs, self.top):
            write(path / "lib/new.c", f"{path}\n")
        write(self.ovs / ".git/index.lock", "")
        self.assertIn("Cannot autostash", self.branch(status=1))
        self.assertIn("the repository has changed", self.export(status=1))
        (self.ovs / ".git/index.lock").unlink()
        self.assertIn("'git stash' has them, too", self.branch(status=1))

    def test_sources(self) -> None:
        """Of a git checkout, what is source; of a release, the same; with the
        patch of the base."""
        write(self.top / "bases/all.d/base.patch",
              "--- a/lib/c.c\n+++ b/lib/c.c\n@@ -1,2 +1,2 @@\n"
              "-line 1;\n+one\n line 2;\n")
        for file, text in (("lib/a.o", "object\n"), ("lib/elf", "\x7fELF"),
                           ("configure", "x\n"), ("lib/Makefile", "x\n")):
            write(self.base / file, text)
        self.branch()
        self.assertEqual(self.read("lib/c.c")[:12], "one\nline 2;\n")
        for file in ("lib/a.o", "lib/elf", "configure"):
            self.assertFalse((self.ovs / file).exists(), file)
        self.assertTrue((self.ovs / "lib/Makefile").exists())
        write(self.base / ".gitignore", "*.x\n")
        write(self.base / "lib/d.x", "tracked\n")
        set_line(self.base / "lib/c.c", 1, "one")
        self.git(self.base, "init", "-q")
        self.git(self.base, "add", "-f", "lib/a.c", "lib/d.x")
        write(self.base / "lib/c.x", "ignored\n")
        self.branch()
        self.assertEqual(self.read("lib/c.c")[:12], "one\nline 2;\n")
        self.assertTrue((self.ovs / "lib/d.x").exists())
        self.assertFalse((self.ovs / "lib/c.x").exists())
        set_line(self.base / "lib/c.c", 1, "1")
        self.assertIn("base.patch does not fit /", self.branch(status=1))

    def test_export(self) -> None:
        """A hook and a new file, edited; the same tree comes back."""
        self.branch()
        before = self.files()
        self.assertEqual(self.export(), "branch: there is nothing to export\n")
        self.assertEqual(self.files(), before)
        set_line(self.ovs / "lib/a.c", 4, "4")
        write(self.ovs / "lib/new.c", "newer\n", 0o755)
        self.assertIn("edits that belong to no commit:\n  lib/a.c",
                      self.export(status=1))
        self.git(self.ovs, "commit", "-q", "--fixup=HEAD~1", "lib/a.c")
        self.export()
        self.assertEqual(self.changed(before),
                         ["lib/new.c", "patches/one/0020-a-two.patch"])
        self.assertTrue(os.access(self.top / "lib/new.c", os.X_OK))
        self.branch()
        self.assertEqual(self.git(self.ovs, "status", "--porcelain"), "")
        self.assertEqual(self.read("lib/a.c").splitlines()[1:4:2],
                         ["two", "4"])
        self.assertEqual(self.read("lib/new.c"), "newer\n")
        self.assertEqual(len(self.log()), 2)

    def test_refused_export(self) -> None:
        """Nothing is written, or it is taken back."""
        for file, args, why in (
                ("lib/a.c", ["--fixup=HEAD~1"], "conflicts in lib/a.c.  "),
                ("NEWS", ["--fixup=HEAD"], "comes from patches/NEWS"),
                ("x/a", ["-m", "x: Add."], "adds x/a: new files belong to"),
                ("lib/a b", ["-m", "b: Add."], "taking back what was")):
            with self.subTest(file=file):
                self.branch("--force")
                before = self.files()
                text = self.read(file) if file in BASE_FILES else LINES
                write(self.ovs / file, text.replace("twenty", "20") + "x\n")
                self.git(self.ovs, "add", file)
                self.git(self.ovs, "commit", "-q", *args)
                self.assertIn(why, self.export(status=1))
                self.assertEqual(self.files(), before)
                self.assertFalse(list(self.top.glob("build/tmp*")))

    def test_commits(self) -> None:
        """A new commit, with new files, whose entries are made, and an older
        file gone; commits that change places; one is dropped."""
        self.branch()
        topics = self.top / "patches/topics"
        set_line(self.ovs / "lib/c.c", 1, "one")
        write(self.ovs / "tests/system-x.at", "x\n")
        write(self.ovs / "lib/z.c", "z\n")
        # By hand, at another place; and another file is dropped.
        write(self.ovs / "lib/automake.mk", self.read("lib/automake.mk")
              .replace("\tlib/a.c", "\tlib/z.c \\\n\tlib/a.c").replace(
                  " \\\n\tlib/new.c", ""))
        (self.ovs / "lib/new.c").unlink()
        self.commit(self.ovs, "c: Change.\n\nWhy.")
        self.export()
        self.branch()
        self.assertFalse((self.top / "lib/new.c").exists())
        files = "        lib/z.c\n        tests/system-x.at kmod userspace\n"
        self.assertEqual(topics.read_text(),
                         "# Comment\n\none: alone\n    0020-a-two\n\n"
                         "two: one\n    0030-a-twenty\n    0031-c-change\n"
                         + files)
        self.assertEqual(self.read("lib/automake.mk"), LISTS.replace(
            "c.c\n", "c.c \\\n\tlib/z.c\n", 1))
        self.assertIn("m4_include([tests/system-x.at])",
                      self.read("tests/system-kmod-testsuite.at"))
        self.git(self.ovs, "-c", "sequence.editor=sed -i '1{h;d};2{G}'",
                 "rebase", "-q", "-i", "HEAD~2")
        # A pull would undo that.
        write(self.top / "lib/z.c", "new\n")
        self.assertIn("check out the repository as it was then",
                      self.branch(status=1))
        write(self.top / "lib/z.c", "z\n")
        self.export()
        self.branch()
        self.assertEqual(self.log()[0], "a: Change line twenty.")
        self.assertIn(f"    0031-c-change\n{files}    0030-a-twenty\n",
                      topics.read_text())
        self.git(self.ovs, "rebase", "-q", "--onto", "base", "HEAD~2")
        self.export()
        self.assertFalse((self.top / "patches/one/0020-a-two.patch").exists())
        self.assertIn("one: alone\n\ntwo: one\n", topics.read_text())


class Bases(ToolTest):
    """A base that differs from the one that patches/ is written for."""

    def setUp(self) -> None:
        super().setUp()
        for name, version in (("4.0.0", "1-1"), ("3.0.0", "0-1")):
            write(self.top / f"bases/{name}", BASE.replace("1-1", version))
            shutil.copytree(self.base, self.cache / f"source-{version}")
        self.source = ["--base", "3.0.0"]
        self.old = self.cache / "source-0-1/lib"
        set_line(self.work / "lib/f.c", 11, "    b;\n    hook();")
        self.add_patch("two/0040-f", "f: Hook.")
        append(self.top / "patches/topics", "    0040-f\n")

    def test_merge(self) -> None:
        """Context that differs needs nothing."""
        write(self.old / "f.c", CODE.replace("f3(", "f3x("))
        set_line(self.old / "a.c", 5, "five")
        self.branch()
        self.assertIn("b;\n    hook();\n    c;\n}\n\nf3x(",
                      self.read("lib/f.c"))
        self.assertEqual(self.read("lib/a.c").splitlines()[1:5:3],
                         ["two", "five"])

    def test_wrong_function(self) -> None:
        """A hook that would come into another function stops the import."""
        write(self.old / "f.c", CODE.replace("f2(", "g("))
        text = self.branch(status=1)
        self.assertIn("0040-f.patch does not fit base 3.0.0", text)
        self.assertIn("  lib/f.c: f2\n  lib/f.c: g\n", text)
        append(self.top / "bases/3.0.0", 'WITHOUT="0040"\n')
        self.assertIn("2 commits", self.branch())

    def test_difference(self) -> None:
        """Edits of what git can't merge become a difference."""
        set_line(self.old / "a.c", 2, "zwei")
        self.assertIn("0020-a-two.patch does not fit base 3.0.0: git can't "
                      "merge lib/a.c", self.branch(status=1))
        before = self.files()
        self.branch("--resolve")
        self.assertEqual(self.read("lib/a.c").splitlines()[1], "zwei")
        set_line(self.ovs / "lib/a.c", 2, "2")
        self.git(self.ovs, "commit", "-q", "--fixup=HEAD~2", "lib/a.c")
        # A difference that fits is not left out.
        for args in ([], ["--resolve", "--force"]):
            self.export()
            self.assertEqual(self.changed(before), ["bases/3.0.0.d/0020.diff"])
            self.branch(*args)
            self.assertEqual(self.read("lib/a.c").splitlines()[1], "2")
        set_line(self.old / "a.c", 2, "deux")
        self.git(self.ovs, "tag", "-d", *self.git(
            self.ovs, "tag", "-l", "base-3*").split())
        self.assertIn("bases/3.0.0.d/0020.diff does not fit any more",
                      self.branch(status=1))


class Series(ToolTest):
    """The branch as mails."""

    def series(self, *args: str, status: int = 0) -> str:
        return self.tool("tools/branch.py", "series", self.ovs,
                         self.dir / "out", *args, status=status)

    def test_git_am(self) -> None:
        """What a maintainer does gives the branch."""
        self.assertIn("run 'make import' first", self.series(status=1))
        self.branch()
        set_line(self.ovs / "lib/a.c", 1, "edit")
        self.assertIn("run 'make export' first", self.series(status=1))
        self.git(self.ovs, "checkout", "-q", "lib/a.c")
        # Only what it has made goes.
        write(self.dir / "out/1-one/x", "")
        self.assertIn("/x is not of a series", self.series(status=1))
        (self.dir / "out/1-one/x").unlink()
        write(self.dir / "out/1-one/0002-old.patch", "")
        self.series("--signoff", "B C <b@example.org>")
        mails = sorted((self.dir / "out").glob("*/*.patch"))
        self.assertEqual(
            [path.relative_to(self.dir).as_posix() for path in mails],
            ["out/1-one/0001-a-Change-line-two.patch",
             "out/2-two/0001-a-Change-line-twenty.patch"])
        self.assertIn("1 file changed, 1 insertion(+), 1 deletion(-)",
                      (mails[0].parent / "0000-cover.txt").read_text())
        self.commit(self.base, "release")
        self.git(self.base, "am", "-q", *map(str, mails))
        self.assertEqual(self.git(self.base, "rev-parse", "HEAD^{tree}"),
                         self.git(self.ovs, "rev-parse", "HEAD^{tree}"))
        self.assertEqual(
            self.git(self.base, "log", "-1", "--format=%an <%ae>%n%B"),
            "B C <b@example.org>\na: Change line twenty.\n\nBecause.\n\n"
            "Signed-off-by: B C <b@example.org>\n\n")
        self.assertIn("is not 'NAME <EMAIL>'",
                      self.series("--signoff", "B C", status=1))
        # Each commit is checked, and the one that is alone; after a failure,
        # all of them again.
        each = self.build / "each"
        self.git(self.ovs, "worktree", "add", "-q", "--detach", f"{each}/ovs")
        write(self.top / "tools/check.py", "#!/bin/sh\necho ok\n", 0o755)
        self.env["MAKE"] = "true"
        for status in 1, 0:
            write(self.top / "tools/configure-tree",
                  f"#!/bin/sh\nexit {status}\n", 0o755)
            self.git(each / "ovs", "checkout", "-q", "series^0")
            text = self.tool("tools/check-series.sh", each, self.dir / "out",
                             "base", status=status)
        self.assertEqual(text.count("ok\n"), 3)


class Registry(unittest.TestCase):
    """Entries of new files in Open vSwitch's lists."""

    def test_entries(self) -> None:
        for file, words, target, text, result in (
                ("lib/b-x.c", "", "lib/automake.mk", LISTS, LISTS.replace(
                    "\tlib/c.c", "\tlib/b-x.c \\\n\tlib/c.c")),
                ("lib/b-x.c", "X", "lib/automake.mk", LISTS, LISTS.replace(
                    "\tlib/b.c\n", "\tlib/b.c \\\n\tlib/b-x.c\n")),
                ("lib/b.c", "Y", "lib/automake.mk", "A =\n",
                 "A =\n\nif Y\nlib_libopenvswitch_la_SOURCES += \\\n"
                 "\tlib/b.c\nendif\n"),
                ("tests/x.at", "", "tests/testsuite.at",
                 "m4_include([tests/a.at])\nb\n",
                 "m4_include([tests/a.at])\nm4_include([tests/x.at])\nb\n"),
                ("lib/x-unixctl.man", "", "vswitchd/ovs-vswitchd.8.in",
                 ".so lib/a-unixctl.man\n.PP\n",
                 ".so lib/a-unixctl.man\n.so lib/x-unixctl.man\n.PP\n"),
                ("Documentation/topics/x.rst", "",
                 "Documentation/topics/index.rst",
                 ".. toctree::\n   :maxdepth: 2\n\n   a\n\nend\n",
                 ".. toctree::\n   :maxdepth: 2\n\n   a\n   x\n\nend\n")):
            with self.subTest(file=file, words=words):
                for name, _, edit in registry.entries(file, words.split(),
                                                      True):
                    text = edit(text) if name == target else text
                self.assertEqual(text, result)

    def test_news(self) -> None:
        text = "v1\n--\n"
        for news in ("   - A:\n     * 1.\n   - B:\n     * 2.\n",
                     "   - A:\n     * 3.\n   - C.\n"):
            text = registry.add_news(text, news)
        self.assertEqual(text, "Post-v1\n-------\n   - A:\n     * 1.\n"
                         "     * 3.\n   - B:\n     * 2.\n   - C.\n\n\n"
                         "v1\n--\n")


class Sources(ToolTest):
    """fetch, and errors of deb."""

    def test_fetch(self) -> None:
        """What is not right does not count; ways out are named."""
        package = self.cache / "source_1-1_all.deb"
        mirror = "http://mirror.example/debian/"
        self.fake("apt-helper", "echo \"$@\"; echo half >\"$6\"; exit 100")
        self.fake("apt-get")
        for given, there, words in (
                ("", False, ["apt knows no mirror of Debian's archive",
                             "--with-ovs=DIR"]),
                (mirror, False, [f"download-file {mirror}pool/main/o/"
                                 f"openvswitch/{package.name} ", " SHA256:00",
                                 "source 1-1 could not be downloaded",
                                 f"{package}\n", "DEBIAN_MIRROR=URL"]),
                (mirror, True, ["wrong checksum, not that of bases/4.0.0: "
                                f"{package}"])):
            with self.subTest(given=given, there=there):
                if there:
                    write(package, "not it")
                self.env["DEBIAN_MIRROR"] = given
                text = self.tool("tools/fetch", self.top / "bases/4.0.0",
                                 self.cache, status=1)
                for word in words:
                    self.assertIn(word, text)
                self.assertEqual(len([*self.cache.iterdir()]), there)

    def test_no_packages(self) -> None:
        self.assertIn("without --with-ovs", self.tool(
            "tools/deb", self.ovs, self.cache, "4.0.0", "0.1",
            self.dir / "out", "/ovs", status=1))
        self.assertFalse((self.dir / "out").exists())


class Lint(ToolTest):
    def test_rules(self) -> None:
        write(self.base / "utilities/checkpatch.py",
              "import sys\nif sys.argv[2] == '-f':\n"
              "    sys.exit('ERROR in ' + sys.argv[3])\n")
        self.branch()
        set_line(self.work / "lib/c.c", 1, "one")
        self.add_patch("two/0030-c", "c: Change.")
        append(self.top / "patches/topics",
               "    0030-c\n        lib/gone.c\n")
        patch = self.top / "patches/one/0020-a-two.patch"
        patch.write_text(patch.read_text().replace(
            "two.\n", "two\n").replace("--- a/lib", "--- /dev/null"))
        (self.top / "patches/one/0000-cover.txt").unlink()
        for file, text in (
                (".gitignore", "/build/\n"),
                ("bases/4.0.0.d/0099.diff", "x"),
                ("lib/new.c", "/home/somebody" + "/x\nx \nbad\n"),
                ("lib/newer.c", "x"),
                ("lib/x", "#!/bin/sh\necho $1\n"),
                ("lib/x.py", "import os\n"),
                ("patches/old.patch", "x"),
                ("tests/x.at", "m4_define([X_A], [x])\nm4_define([GRE])\n")):
            write(self.top / file, text)
        self.commit(self.top, "All of it.")
        text = self.check("lint", status=1)
        for problem in (
                "it has no patches/old.patch", "it has no lib/newer.c",
                "git has no patches/one/0000-cover.txt",
                "git has no lib/gone.c", "0030 is there twice",
                "0099.diff is for 0099, which is no patch",
                "0020-a-two has no subject '[PATCH] area: Summary.'",
                "0020-a-two adds or removes a file",
                "0030-c has no body that says why",
                "a macro has no prefix: tests/x.at:2:m4_define([GRE]",
                "no SPDX line: lib/new.c\n",
                "a path of somebody's machine: lib/new.c:1:/home",
                "space: lib/new.c:2: trailing whitespace",
                f"ERROR in {self.top}/lib/new.c",
                *(["lib/x.py:1:1: F401"] if shutil.which("flake8") else []),
                *(["SC2086"] if shutil.which("shellcheck") else [])):
            with self.subTest(problem):
                self.assertIn(problem, text)


class Commits(unittest.TestCase):
    def test_problems(self) -> None:
        body = "Because it was so before, and nobody could know what it did."
        for subject, text, found in (
                ("tools: Check messages of commits.", body, ""),
                ("bench/run, tools: Drop a list.", body, ""),
                ("tools: Check " + 60 * "x" + ".", body, "74 characters"),
                ("Check messages.", body, "not of the form"),
                ("tools: More checks of commits.", body, "'More' is no verb"),
                ("tools: Adding checks.", body, "'Adding' is no verb"),
                ("tools: Do it again.", body, "does not name a thing"),
                ("tools: Wrap a line.", "Signed-off-by: " + body,
                 "no body says why")):
            with self.subTest(subject):
                said = [*lint.message_problems(subject, text)]
                self.assertEqual(len(said), bool(found), said)
                self.assertIn(found, "".join(said))


class Suites(ToolTest):
    """Stages that run suites of Open vSwitch."""

    def setUp(self) -> None:
        super().setUp()
        self.edit("stages.py", "*QUICK", "'lib.at: a*'")
        self.edit("stages.py", "*FILES", "'lib.at: *'")
        self.edit("suites.py", "MAY_FAIL = {", "MAY_FAIL = {'lib.at: d': '',")
        self.edit("suites.py", "MAY_SKIP = {", "MAY_SKIP = {'ours.at: c': '',")

    def make_tree(self, name: str, plan: str) -> Path:
        tree = self.build / name
        write(tree / "Makefile", "AUTOTEST_PATH = tests:$(X)\n")
        write(tree / "vswitchd/ovs-vswitchd", "")
        write(tree / "tests/testsuite", SUITE)
        write(tree / "tests/plan", plan)
        write(tree / "tests/lib.at", "")
        self.commit(tree, "base")
        self.git(tree, "tag", "base")
        write(tree / "tests/ours.at", "AT_SETUP\n")
        write(tree / "tests/lib.at", "AT_SETUP([added])\n" + 7 * "AT_SKIP\n")
        self.git(tree, "add", ".")
        return tree

    def test_results(self) -> None:
        self.make_tree(
            "ovs", "lib.at added ok\nours.at mine ok\nours.at bad load\n"
            "lib.at a fail\nlib.at b load\nlib.at c none\nlib.at d fail\n"
            "lib.at e skip\n")
        text = self.check("suite", "--all", status=1)
        for lines in (
                "Notes:\n  suite: ours.at: bad  (only when run again)\n"
                "  suite: lib.at: b  (only when run again)\n",
                "Skipped:\n  suite: lib.at: d  (failed: )\n"
                "  suite: lib.at: e  (lib.at:8: AT_SKIP)\n",
                "Failed:\n  suite: lib.at: a  (lib.at:4)\n"
                "  suite: lib.at: c  (no verdict)\n",
                "    ./ours.at:1: check_logs\n    +|WARN|why\n"):
            self.assertIn(lines, text)
        self.assertTrue(text.endswith("\n4 passed, 2 failed, 2 skipped\n"))
        # This project's tests may not be skipped.
        write(self.build / "ovs/tests/plan", "lib.at a skip\n"
              "ours.at c skip\nours.at bad skip\n")
        text = self.check("suite", "--require", status=1)
        self.assertIn("ours.at: bad  (may not be skipped: ours.at:3", text)
        self.assertIn("\n0 passed, 1 failed, 2 skipped\n", text)

    def test_which(self) -> None:
        self.make_tree("ovs", "lib.at added ok\nours.at mine ok\n"
                       "lib.at ab ok\nlib.at ac ok\nlib.at b fail\n")
        self.assertIn("\n4 passed, 0 failed", self.check("suite"))
        self.assertIn("\n2 passed, 0 failed", self.check("suite", "--ours"))
        # Autotest's own words.
        self.assertRegex(self.check("--", "2"), "^  2: mine *ok\n$")
        self.assertIn("for one stage, a suite,",
                      self.check("long", "--", "2", status=2))
        write(self.build / "mutations/ovs/Makefile", "AUTOTEST_PATH = tests\n")
        self.assertIn("no fault is 'x y'",
                      self.check("mutations", "--", "x y", status=1))
        write(self.build / "ovs/tests/plan", "lib.at a ok\n")
        self.assertIn("(the tree has none)", self.check("suite", "--ours"))
        self.edit("stages.py", "lib.at: a*", "lib.at: x*")
        self.assertIn("stages.py: no test is 'lib.at: x*'",
                      self.check("suite", status=1))

    def test_upstream(self) -> None:
        stock = self.make_tree(
            "stock", "a.at one ok\na.at two ok\na.at two ok\na.at bad fail\n"
            "a.at skips skip\na.at gone ok\na.at mended fail\n")
        self.make_tree(
            "ovs", "n.at new ok\na.at two load\na.at one ok\na.at two fail\n"
            "a.at bad fail\na.at skips skip\na.at mended ok\n")
        for _ in range(2):
            text = self.check("upstream", status=1)
            for line in ("bad  (the same in both trees: fail)\n",
                         "gone  (in the stock tree only)\n",
                         "two #2  (stock: pass, patched: fail)\n",
                         "mended  (stock: fail, patched: pass)\n"):
                self.assertIn("  upstream: a.at: " + line, text)
            self.assertIn("\n2 passed, 3 failed, 2 skipped\n", text)
        # The results of stock are kept.
        self.assertEqual((stock / "tests/ran").read_text().split(),
                         list("1234567"))


class Stages(ToolTest):
    """check.py, with stages of a few lines."""

    def setUp(self) -> None:
        super().setUp()
        append(self.top / "tools/stages.py", "import os\n"
               "from tools.project import TOP\nfor stage in STAGES:\n"
               "    stage.run = lambda job: os.execv(TOP / 'tools/stage', "
               "['stage', job.stage, str(job.file)])\n")
        write(self.top / "tools/stage", f"""#!/bin/sh
name=$1 out=$2
row() {{ printf '%s\\tsuite\\ta.at: %s\\t%s\\n' "$1" "$2" "$3" >>$out; }}
test ! -f {self.dir}/$name || . {self.dir}/$name
test -s $out || row pass $name
""", 0o755)

    def test_which(self) -> None:
        for args, want in (
                ([], "tools suite system dpdk kernel"),
                (["--all"], "tools suite system dpdk kernel exporter "
                 "differential lint"),
                (["--all", "kernel", "--ours", "lint"], "kernel lint"),
                (["long"],
                 "demo doctor steps bench arm64 i386 plain older asan tsan")):
            with self.subTest(args=args):
                self.assertIn(f"\n{len(want.split())} passed, 0 failed",
                              self.check(*args))
                self.assertEqual(want.split(), re.findall(
                    r"a.at: (\w+)", (self.build / "check.result").read_text()))
        self.assertIn("there is no stage 'colonel'",
                      self.check("colonel", status=2))

    def test_fail(self) -> None:
        """Others run whatever fails; the summary says what it was."""
        write(self.dir / "tools", "row pass x; row fail y because\n"
              "echo it was so; exit 1\n")
        write(self.dir / "system", "row skip z 'no device'\n")
        write(self.dir / "suite", "row pass one; row todo two; row todo b\n")
        write(self.dir / "kernel", "exit 3\n")
        text = self.check("--all", status=1)
        self.assertIn("    it was so\n", text)
        self.assertIn("\nSkipped:\n  system: a.at: z  (no device)\n", text)
        self.assertIn("\nFailed:\n  tools: a.at: y  (because)\n"
                      "  suite: the stage itself  (exit status 0, 2 tests did "
                      "not end, first 'a.at: two')\n"
                      "  kernel: the stage itself  (exit status 3)\n", text)
        self.assertIn("\n6 passed, 3 failed, 1 skipped\n", text[-40:])
        self.assertIn("  system: a.at: z  (may not be skipped: no device)\n",
                      self.check("--require", "lint", "system", status=1))

    def test_hang(self) -> None:
        """What hangs is stopped, with all its processes, wherever they are;
        what moves is not."""
        self.edit("stages.py", "limit: float = 600", "limit: float = 6")
        self.edit("check.py", "GRACE = 20", "GRACE = 1")
        self.edit("check.py", "INTERVAL = 25", "INTERVAL = 0")
        beats = self.dir / "beats"
        beat = f"while :; do echo >>{beats}; sleep 0.1; done"
        write(self.dir / "suite", f"""row pass one; row todo two; trap '' TERM
setsid sh -c '{beat}' &
echo waiting; {beat}
""")
        write(self.dir / "system",
              "for i in 1 2 3 4 5 6 7 8; do row pass $i; sleep 1; done\n")
        text = self.check("suite", "system", status=1)
        self.assertIn("system: 8 passed, 0 failed", text)
        self.assertIn("\nFailed:\n  suite: the stage itself  (no test has "
                      "ended for 6 s, 1 tests did not end", text)
        self.assertRegex(text, r"\n +0:0[0-9]  suite 1 of 2: waiting; system ")
        self.assert_still(beats)

    def test_interrupt(self) -> None:
        self.edit("check.py", "GRACE = 20", "GRACE = 2")
        beats = self.dir / "beats"
        for name in "suite", "tools":
            write(self.dir / name, "trap '' TERM\n"
                  f"while :; do echo {name} >>{beats}; sleep 1; done\n")
        with self.start("tools/check.py", self.build, "suite",
                        "tools") as run:
            self.wait_for(beats, 2)
            run.send_signal(signal.SIGTERM)
            self.assertIn("stopping\ninterrupted\n", run.communicate()[0])
        self.assertEqual(run.returncode, 130)
        self.assert_still(beats)


@unittest.skipIf(os.geteuid(), "needs root")
class KernelVm(ToolTest):
    """kernel-vm, with a machine that is none."""

    def boot(self, script: str, status: int = 1) -> str:
        for program in "qemu-system-x86_64", "busybox", "depmod", "strings":
            self.fake(program)
        # What a machine would do is in 'script'; it has $out for /mnt.
        self.fake("vng", f"""
for word; do case $word in --rwdir=*) out=${{word#*=/mnt=}} ;; esac; done
test -n "${{out-}}" || exit 0
echo . >>{self.dir}/boots
n=$(wc -l <{self.dir}/boots)
{script}""")
        self.env.update(KERNEL_VM_KERNEL="/dev/null", KERNEL_VM_BOOT="3")
        return self.tool("tools/kernel-vm", self.cache, self.dir,
                         self.dir / "save", "--", "true", status=status)

    def test_run(self) -> None:
        text = self.boot("echo hello >$out/output; mkdir $out/saved\n"
                         "echo 5 >$out/status", 5)
        self.assertIn("hello\n", text)
        self.assertTrue((self.dir / "save").is_dir())
        text = self.boot("echo oops >$out/output; sleep 1")
        self.assertIn("oops\n", text)
        self.assertIn("went down before its command ended", text)
        self.env["KERNEL_VM_KERNEL"] = ""
        self.fake("apt-cache")
        self.assertIn("try 'apt-get update'", self.tool(
            "tools/kernel-vm", self.cache, status=77))

    def test_does_not_boot(self) -> None:
        text = self.boot("test $n != 1 || { sleep 60; sleep 60; }\n"
                         "echo no disk >&2; exit 1\n")
        self.assertRegex(text, r"(?m)^note: the virtual machine was not up "
                         r"after \d+ s, and was booted once more\n")
        self.assertIn("the machine did not come up", text)
        self.assertEqual((self.dir / "boots").read_text(), ".\n.\n")
        self.assertIn("no disk", text)


class Bootstrap(ToolTest):
    def setUp(self) -> None:
        super().setUp()
        shutil.copy(TOP / "bootstrap", self.top / "bootstrap")
        self.fake("dpkg-query", "echo installed")
        self.fake("apt-get", "echo 'E: no network'; exit 100")

    def test_stops(self) -> None:
        """What it says when it can't begin."""
        self.fake("df", "echo x; echo x 1 1 90000 x x")
        gcc = "case $* in *gcc*) exit 1;; esac; echo installed"
        for step, query, uid, status, text in (
                ("biuld", "", 0, 2, "there is no step 'biuld'"),
                ("A=1 dpdk", "", 0, 1, "'dpdk' is not an option for"),
                ("deb", gcc, 0, 1, "packages are made on Debian 13"),
                ("build", gcc, 1000, 1, " --no-install-recommends gcc\n"),
                ("build", gcc, 0, 1, "    E: no network"),
                ("source", "echo installed", 0, 1,
                 "has 87 MB of free space; a build needs 2,000 MB")):
            self.fake("dpkg-query", query)
            self.fake("id", f"echo {uid}")
            self.assertIn(text, self.tool(
                "bootstrap", *step.split(), status=status))

    def fake_configure(self, rules: str) -> None:
        """Makes a configure that makes a Makefile with 'rules'."""
        write(self.top / "configure", "#!/bin/sh\n"
              f"printf 'import:\\n{rules}' >Makefile\n"
              "printf '%s\\n' 'ovs-cost 1' '' '  topics  one'\n", 0o755)

    def test_ci(self) -> None:
        shutil.copytree(TOP / ".ci", self.top / ".ci")
        write(self.build / "check.result", "of another run\n")
        write(self.top / "boot.sh", "#!/bin/sh\necho oops; exit 1\n", 0o755)
        text = self.tool(".ci/run", status=1)
        self.assertIn("generate configure: failed", text)
        self.assertIn("    oops\n", text)
        self.assertTrue(text.endswith("\n0 passed, 1 failed, 0 skipped\n"))
        self.fake_configure("all check-programs stock:\\n\\t@true\\n")
        write(self.top / "tools/check.py", "#!/bin/sh\necho \"$@\"\n", 0o755)
        text = self.tool(".ci/run", "A=1")
        self.assertIn("ovs-cost 1\n\n  topics  one\n", text)
        self.assertIn(f"\n{self.build} --all --require\n", text)

    def test_interrupt(self) -> None:
        """All that make has started ends; meanwhile, no other run begins."""
        self.fake_configure("all:\\n\\t@sh ../work\\n")
        beats = self.top / "beats"
        write(self.top / "work", "beat() { while :; do echo $1 >>../beats; "
              "sleep 0.1; done; }\nbeat a & beat b\n")
        with self.start("bootstrap") as run:
            self.wait_for(beats, 2)
            self.assertIn(f"another ./bootstrap (process {run.pid}) is",
                          self.tool("bootstrap", "source", status=1))
            run.send_signal(signal.SIGTERM)
            self.assertIn("bootstrap: interrupted\n", run.communicate()[0])
        self.assertEqual(run.returncode, 1)
        self.assert_still(beats)
