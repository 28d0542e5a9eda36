# SPDX-License-Identifier: Apache-2.0
"""Finds Go and Prometheus, or gets it, for exporter.py and
bench/fleet."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Optional, Tuple

GO = (1, 23)                    # Oldest Go that exporter/ has to build with.
# The version of its module, and its own, which a build does not know.
PROMETHEUS3 = "v0.309.1"
PROMETHEUS3_VERSION = "3.9.1"


def go_version() -> Optional[Tuple[int, int]]:
    if not shutil.which("go"):
        return None
    text = subprocess.run(["go", "env", "GOVERSION"], text=True, check=False,
                          stdout=subprocess.PIPE).stdout
    match = re.match(r"go(\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def find_prometheus(cache: Path) -> Tuple[Optional[Path], str]:
    """Returns a Prometheus, with its promtool beside it, or None and why there
    is none."""
    known = os.environ.get("PROMETHEUS") or shutil.which("prometheus")
    if known:
        return Path(known), ""
    for found in sorted(cache.glob("prometheus_*/usr/bin/prometheus")):
        return found, ""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return None, "there is no Prometheus, nor apt-get to get it with"
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetch.") as name:
        temp = Path(name)
        done = subprocess.run(
            ["apt-get", "-q", "-o", "APT::Sandbox::User=",
             "-o", "Acquire::Retries=3", "download", "prometheus"],
            cwd=temp, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)
        debs = list(temp.glob("prometheus_*.deb"))
        if done.returncode or not debs:
            print(done.stdout)
            return None, "the package prometheus could not be downloaded"
        subprocess.run(["dpkg-deb", "-x", str(debs[0]), str(temp / "tree")],
                       check=True)
        version = debs[0].name.split("_")[1].replace("%", "-")
        dest = cache / f"prometheus_{version}"
        (temp / "tree").rename(dest)
    return dest / "usr/bin/prometheus", ""


def build_prometheus3(cache: Path) -> Tuple[Optional[Path], str]:
    """Builds a Prometheus 3 from its Go modules, unless it is there."""
    dest = cache / f"prometheus3-{PROMETHEUS3}"
    if (dest / "prometheus").exists():
        return dest / "prometheus", ""
    with tempfile.TemporaryDirectory(dir=cache, prefix="build.") as name:
        temp = Path(name)
        (temp / "go.mod").write_text("module wrapper\n\ngo 1.25.0\n")
        (temp / "out").mkdir()
        packages = ["github.com/prometheus/prometheus/cmd/" + name
                    for name in ("prometheus", "promtool")]
        for command in (["get"] + [f"{p}@{PROMETHEUS3}" for p in packages],
                        ["build", "-o", str(temp / "out"),
                         "-ldflags=-X github.com/prometheus/common/version"
                         f".Version={PROMETHEUS3_VERSION}"] + packages):
            done = subprocess.run(
                ["go"] + command, cwd=temp, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env=dict(os.environ, GOFLAGS="-mod=mod"), check=False)
            if done.returncode:
                print(done.stdout)
                return None, "Prometheus 3 could not be built"
        (temp / "out").rename(dest)
    return dest / "prometheus", ""
