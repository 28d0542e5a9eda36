# SPDX-License-Identifier: Apache-2.0
"""The stage "lint": checks what this project wrote: form, style, and that it
hangs together.

They are rules of this project, and those of checkpatch, flake8, shellcheck and
clang.  Files that git does not know are not looked at.  Each build has Open
vSwitch's own textual rules."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Iterable, List, Set

from tools import branch
from tools import project as t
from tools.autotest import FAIL, PASS, SKIP, TODO, CanNotRun, Job
from tools.registry import read_news

# What the header of a patch has.
HEADER = {
    "From: and Signed-off-by: of the same author":
        r"^From: (.*)$(?s:.*)^Signed-off-by: \1$",
    "Date:": r"^Date: ",
    "subject '[PATCH] area: Summary.'": r"^Subject: \[PATCH\] [^:]+: .+\.$",
    "body that says why": r"\n\n\s*(?:\S+\s+){13}\S",
}

SUBJECT_RE = re.compile(r"[\w./ ,-]+: (?P<verb>[A-Z][a-z]+) (?P<rest>.*)\.")
# How a subject begins that has no verb in the imperative.
NO_VERB_RE = re.compile(
    r"(?:A|An|The|No|Not|More|Less|New|Small|Some|Only|Also|Now|This|That|For"
    r"|From|In|On|Of|With|Without|Various|Several|All|\w+(?:ing|ed|ion|ly|ness"
    r"|ment))$")
# What is no noun.
NO_NOUN_RE = re.compile(
    r"(?:it|its|them|that|this|what|which|who|those|these|and|or|the|an|of|to"
    r"|in|on|for|by|so|is|are|as|with|once|again|more|less|\W*|.)$", re.I)
TRAILER_RE = re.compile(r"^[\w-]+: .*$", re.M)


def run(*command: object, cwd: Path = t.TOP) -> str:
    """Returns the output of 'command'.  Its failure is one of the check."""
    return subprocess.run(
        [*map(str, command)], cwd=cwd, stdout=subprocess.PIPE, text=True,
        errors="replace", stderr=subprocess.STDOUT, check=True).stdout


def git(*args: str) -> List[str]:
    """Returns the lines that git prints about the checkout."""
    done = subprocess.run(["git", "-c", "safe.directory=*", *args], cwd=t.TOP,
                          stdout=subprocess.PIPE, text=True, errors="replace")
    # 'git grep' and 'git diff' find nothing, or something.
    if done.returncode > 2:
        t.fail("lint needs the git checkout")
    return done.stdout.splitlines()


def scripts(interpreter: str, suffix: str) -> Set[str]:
    """Returns the files that name 'interpreter', or have 'suffix'."""
    return {*git("grep", "-lE", f"^#! ?/.*{interpreter}"),
            *git("grep", "-l", "", "--", f"*{suffix}")}


def new_files(*suffixes: str) -> List[str]:
    """Returns the new files of all topics with one of 'suffixes'."""
    return [file for commit in t.select(t.read_topics())
            for file in commit.files if file.endswith(suffixes)]


def need(*programs: object) -> None:
    """Has the check skipped if one of 'programs', or files, is missing."""
    for name in map(str, programs):
        if not shutil.which(name) and not Path(name).exists():
            raise CanNotRun(f"there is no {name}")


def expand(ovs: Path, text: str, *variables: str) -> str:
    """Returns 'text' with make's variables of the configured tree 'ovs'."""
    # Before it prints that, make may bring its Makefile up to date.
    return run("make", "-s", "--no-print-directory", "--eval",
               f"show:; @: $(info {text})", "show", *variables,
               cwd=ovs).splitlines()[-1]


# The checks: each returns what is wrong, or has a command fail.


def check_series(_ovs: Path) -> Iterable[str]:
    """patches/topics has all patches, differences and new files, once."""
    topics = t.read_topics()
    commits = t.select(topics)
    numbers = [commit.number for commit in commits]
    files = [file for commit in commits for file in commit.files]
    expected = {"patches/topics", "patches/NEWS", *files,
                *(f"patches/{topic.name}/0000-cover.txt" for topic in topics),
                *(f"patches/{c.topic.name}/{c.name}.patch" for c in commits)}
    found = {*git("ls-files", "patches", *t.FOLDERS)}
    yield from (f"git has no {name}" for name in sorted(expected - found))
    yield from (f"it has no {name}" for name in sorted(found - expected))
    yield from (f"{name} is there twice" for name in sorted({*numbers, *files})
                if (numbers + files).count(name) > 1)
    for topic in topics:
        if topic.commits != sorted(topic.commits, key=lambda c: c.number):
            yield f"the numbers of {topic.name} do not rise"
    for where, number in [
            *(("patches/NEWS", n) for n in read_news(t.TOP / "patches/NEWS")),
            *((name, Path(name).stem)
              for name in git("ls-files", "bases/*.d/*.diff"))]:
        if number not in numbers:
            yield f"{where} is for {number}, which is no patch"


def check_headers(_ovs: Path) -> Iterable[str]:
    """Patches have a complete header, and change files of OVS only."""
    for commit in t.select(t.read_topics()):
        text = commit.path.read_text()
        head = text.split("\ndiff --git")[0]
        yield from (f"{commit.name} has no {what}"
                    for what, pattern in HEADER.items()
                    if not re.search(pattern, head, re.M))
        if re.search(r"^(---|\+\+\+) /dev/null", text, re.M):
            yield f"{commit.name} adds or removes a file"


def check_alone(ovs: Path) -> Iterable[str]:
    """Each patch of a topic that is "alone" applies to the base alone."""
    repo = branch.Repo(ovs)
    for commit in t.select(t.read_topics()):
        if "alone" in commit.topic.words:
            try:
                repo.apply("base", commit.path.read_bytes())
            except t.Failure as error:
                yield f"{commit.name}: {error}"


def check_text(_ovs: Path) -> Iterable[str]:
    """Rules that git can look for."""
    empty, = git("hash-object", "-t", "tree", "/dev/null")
    for what, command in {
            # All files of a suite are one m4 input: a macro GRE changes every
            # title with that word in it.
            "a macro has no prefix": [
                "grep", "-nE", r"m4_define\(\[+[[:alnum:]]+\]", "--", "*.at"],
            "no SPDX line": [
                "grep", "-L", "SPDX-License-Identifier: Apache-2.0", "--",
                ":!LICENSE", *(f":!*.{suffix}" for suffix in (
                    "patch", "diff", "json", "png", "txt", "sum"))],
            "a path of somebody's machine": [
                "grep", "-nIE", "-e", re.escape(f"{t.TOP}/"), "-e",
                r"(^|[^[:alnum:]_.$}~])/(root|home/[[:alnum:]_]+|work|tmp/w)/",
                "--", ":!tools/lint.py"],
            "a long line": ["grep", "-nE", "^.{80}", "--", "patches/NEWS"],
            "space": ["diff", "--check", empty]}.items():
        yield from (f"{what}: {line}" for line in git(*command))


def check_checkpatch(ovs: Path) -> None:
    """OVS's checkpatch on patches and new files."""
    checkpatch = sys.executable, "-B", "utilities/checkpatch.py", "-q"
    run(*checkpatch, *(c.path for c in t.select(t.read_topics())), cwd=ovs)
    run(*checkpatch, "-f", *(t.TOP / file for file in new_files(
        ".c", ".h", ".py", ".at", ".rst", ".sh", ".man")), cwd=ovs)


def check_packages(ovs: Path) -> Iterable[str]:
    """OVS's spec file for RPM has what is installed."""
    need(ovs / "vswitchd/ovs-vswitchd")
    # Of %files, and of "rm -f".
    lines = re.findall(
        r"^(?:%config.* |rm -f \$RPM_BUILD_ROOT)?(%{\S+)$",
        (ovs / "rhel/openvswitch-fedora.spec.in").read_text(), re.M)
    listed = expand(ovs, re.sub(r"%{_?(\w+)}", r"$(\1)", " ".join(lines)),
                    "python3_sitelib=$(pkgdatadir)/python").split()
    # It builds no static libraries; rpmbuild removes files of libtool.
    listed += ["*.a", "*.la"]
    # Sphinx makes these manual pages, and may not be there.
    installed = {f"{expand(ovs, '$(mandir)')}/man{page[-5]}/{page[:-4]}"
                 for page in expand(ovs, "$(RST_MANPAGES)").split()}
    with tempfile.TemporaryDirectory(prefix="ovs-cost-lint.") as root:
        run("make", "-s", "install", f"DESTDIR={root}", cwd=ovs)
        installed |= {f"/{path.relative_to(root)}" for path
                      in Path(root).rglob("*") if not path.is_dir()}
    return [f"no line for {file}" for file in sorted(installed) if not any(
        fnmatch(f"{file}/", f"{name.rstrip('/')}/*") for name in listed)]


def check_selinux(ovs: Path) -> Iterable[str]:
    """OVS's SELinux policy compiles, and allows what the topics need."""
    pp = "/usr/libexec/selinux/hll/pp"
    need(pp, "/usr/share/selinux/devel/Makefile", ovs / "Makefile")
    run("make", "-s", "selinux-policy", cwd=ovs)
    # The policy as text.
    rules = run(pp, ovs / "selinux/openvswitch-custom.pp")
    for file, rule in (
            ("upcall-cost-queue.c", "self (capability2 (bpf))"),
            ("cost-threads.c", "self (file (getattr read open))"),
            ("cost-threads.c", "cgroup_t (file (getattr read open))")):
        rule = f"openvswitch_t {rule}"
        if (ovs / "lib" / file).exists() and rule not in rules:
            yield f"{file} needs {rule}"


def check_clang(ovs: Path) -> None:
    """clang, which knows what the annotations of locks mean."""
    need("clang", ovs / "include/odp-netlink.h")
    # As the tree is built, be it with DPDK or not.
    flags = expand(ovs, "$(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS)"
                   " $(CPPFLAGS) $(OVS_CFLAGS)")
    command = ["clang", "-fsyntax-only", "-Wthread-safety", "-Werror",
               "-Itests", *shlex.split(flags)]
    files = new_files(".c")
    run(*command, *files, cwd=ovs)

    # With headers of a kernel before Linux 4.0, too.
    name = "linux/rtnetlink.h"
    with tempfile.TemporaryDirectory(prefix="ovs-cost-lint.") as root:
        (Path(root) / name).parent.mkdir()
        (Path(root) / name).write_text(re.sub(
            r"(?m)^.*\bRTM_...(NSID|STATS)\b.*\n", "",
            Path("/usr/include", name).read_text()))
        run(*command, f"-isystem{root}", *(
            file for file in files if "netlink" in file), cwd=ovs)


def check_flake8(ovs: Path) -> None:
    """flake8, with what OVS ignores."""
    need("flake8")
    ignore = re.findall(r"^FLAKE8_IGNORE = (.*)$",
                        (ovs / "Makefile.am").read_text(), re.M)
    run("flake8", "--isolated", f"--ignore={','.join(ignore)}",
        *scripts("python", ".py"))


def check_shellcheck(_ovs: Path) -> None:
    """shellcheck."""
    need("shellcheck")
    run("shellcheck", "-x", *scripts("sh", ".sh"))


def check_figures(_ovs: Path) -> None:
    """Documents have the figures of bench/results."""
    run(sys.executable, "-B", "bench/figures.py", "--check")


def message_problems(subject: str, body: str) -> Iterable[str]:
    """A subject says what a commit does, with a verb that comes first and
    something that it is done to; a body says why, in at least ten words."""
    if len(subject) > 70:
        yield f"the subject has {len(subject)} characters, not at most 70"
    match = SUBJECT_RE.fullmatch(subject)
    if not match:
        yield "the subject is not of the form 'area: Verb noun.'"
    elif NO_VERB_RE.match(match["verb"]):
        yield f"'{match['verb']}' is no verb that says what the commit does"
    elif all(map(NO_NOUN_RE.match, match["rest"].split())):
        yield "the subject does not name a thing"
    if len(TRAILER_RE.sub("", body).split()) < 10:
        yield "no body says why"


def check_commits(_ovs: Path) -> Iterable[str]:
    """Messages of commits that came after this check say what they do, and
    why."""
    first = git("log", "--diff-filter=A", "-1", "--format=%h", "--",
                "tools/check-commits")
    log = git("log", "--no-merges", "--format=%s%n%b%x00",
              f"{''.join(first) or 'HEAD'}..HEAD")
    for text in "\n".join(log).split("\0"):
        subject, _, body = text.lstrip("\n").partition("\n")
        if subject:
            yield from (f"{subject}: {problem}"
                        for problem in message_problems(subject, body))


def check_rules(_ovs: Path) -> None:
    """Alerts, runbook and symptoms are those of the rules."""
    run(sys.executable, "-B", "monitoring/make-rules", "--check")


CHECKS = {name[6:]: check for name, check in [*globals().items()]
          if name.startswith("check_")}


def check(job: Job) -> None:
    for name in CHECKS:
        job.add(name, TODO)
    for name, function in CHECKS.items():
        problems: List[str] = []
        status, detail = PASS, ""
        try:
            problems += function(job.ovs) or ()
        except subprocess.CalledProcessError as e:
            problems.append(e.stdout.strip() or str(e))
        except CanNotRun as e:
            status, detail = SKIP, str(e)
        if problems:
            status = FAIL
        job.add(name, status, detail)
        print(f"{status} {name}: {detail or function.__doc__}",
              *"\n".join(problems).splitlines(), sep="\n    ", flush=True)
