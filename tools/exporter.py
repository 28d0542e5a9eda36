# SPDX-License-Identifier: Apache-2.0
"""The stage "exporter", for exporter/ and monitoring/: Go's own checks, unit
tests, tests against a real Prometheus and real switches of a built tree, and
the rules.

Prometheus is $PROMETHEUS, or the one in PATH, or Debian's package, which is
downloaded and unpacked below BUILD/cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Optional, Tuple

from tools import project as t
from tools.autotest import SKIP, Job
from tools.commands import run

GO = (1, 23)                    # Oldest Go that exporter/ has to build with.
MONITORING = t.TOP / "monitoring"
EXPORTER = t.TOP / "exporter"

# systemd understands the unit, alone and with root.conf, and finds it well
# protected: in its words, an exposure of less than 2 of 10.
UNIT = """
unit=$(mktemp -d)/ovs-cost-exporter.service
trap 'rm -r ${unit%/*}' EXIT
# The program need not be installed.
sed 's,^ExecStart=/usr/bin/ovs-cost-exporter,ExecStart=/bin/true,' \
    systemd/ovs-cost-exporter.service >$unit
check() {
    systemd-analyze verify --man=no $unit 2>&1 | (! grep .) &&
    systemd-analyze security --offline=yes --threshold=20 --no-pager $unit
}
check && mkdir $unit.d && cp systemd/root.conf $unit.d && check
"""


def go_version() -> Tuple[int, int]:
    match = re.match(r"go(\d+)\.(\d+)",
                     subprocess.getoutput("go env GOVERSION"))
    return (int(match[1]), int(match[2])) if match else (0, 0)


def find_prometheus(cache: Path) -> Tuple[Optional[Path], str]:
    """Returns a Prometheus, with its promtool beside it, or None and why there
    is none."""
    known = os.environ.get("PROMETHEUS") or shutil.which("prometheus")
    if known:
        return Path(known), ""
    tree = cache / "prometheus"
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetch.") as temp:
        if not tree.exists() and subprocess.run(
                ["/bin/sh", "-c", "apt-get -q -o APT::Sandbox::User= -o "
                 "Acquire::Retries=3 download prometheus && dpkg-deb -x "
                 "prometheus_*.deb tree && mv tree \"$0\"", str(tree)],
                cwd=temp, stdin=subprocess.DEVNULL, check=False).returncode:
            return None, "the package prometheus could not be downloaded"
    return tree / "usr/bin/prometheus", ""


def check(job: Job) -> None:
    run(job, "dashboard", "python3 make-dashboard --check", MONITORING)
    if shutil.which("systemd-analyze"):
        run(job, "systemd unit", UNIT, EXPORTER)
    else:
        job.add("systemd unit", SKIP, "there is no systemd-analyze")
    cache = job.build / "cache"
    program, why = find_prometheus(cache)
    if program:
        promtool = program.with_name("promtool")
        run(job, "promtool", f"{promtool} check rules rules/*.yml && "
            f"{promtool} test rules rules/tests/*.yml", MONITORING)
    else:
        job.add("prometheus", SKIP, why)
    if go_version() < GO:
        job.add("exporter", SKIP, "it needs Go {}.{}".format(*GO))
        return
    os.environ.update(
        GOTOOLCHAIN="local", GOWORK="off", GOFLAGS="",
        OVS_COST_TREE=str(job.ovs), PROMETHEUS=str(program or ""))
    go = partial(run, job, cwd=EXPORTER)
    go("gofmt", "! gofmt -l . | grep .")
    go("go vet", "go vet ./...")
    go("go mod tidy", "go mod tidy -diff")
    # No module that it needs may need more.
    go("go.mod", r"grep '^go {}\.{}\(\.\|$\)' go.mod".format(*GO))
    for package in (".", "./report", "./unixctl", "./cmd/ovs-cost-exporter",
                    "./integration"):
        go(f"go test {package}", f"go test -count=1 -v {package}")
