# SPDX-License-Identifier: Apache-2.0
"""bpftrace, beside a switch."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from typing import List

from tools.switch import Failed, Switch, wait_until


class Tracer:
    """bpftrace, which runs 'script' from now on."""

    def __init__(self, switch: Switch, script: str, *options: str) -> None:
        self.switch = switch
        self.process = switch.spawn("bpftrace", [
            "bpftrace", *options, "-e",
            script + " BEGIN { printf(\"started\\n\"); }"])
        wait_until(lambda: "started" in self.output(), "bpftrace", 600, 0.1)
        time.sleep(1)           # It starts to attach now.

    def output(self) -> str:
        self.process.check()
        return self.process.output.read_text()

    def finish(self) -> str:
        """Ends it, and returns what it has printed."""
        for _ in range(60):
            # A signal just before it waits for events is lost.
            self.process.popen.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.popen.wait(10)
                break
        else:
            raise Failed("bpftrace does not end")
        self.switch.wait_for(self.process)
        return self.process.output.read_text()


class Counter(Tracer):
    """Counts how often each of 'probes' fires in a switch: in the words of
    bpftrace, with {} for the program."""

    def __init__(self, switch: Switch, probes: List[str]) -> None:
        self.n = len(probes)
        pid = switch.vswitchd.pid
        binary = os.path.realpath(f"/proc/{pid}/exe")
        super().__init__(switch, " ".join(
            f"{probe.format(binary)} {{ @p{i} = count(); }}"
            for i, probe in enumerate(probes)), "-p", str(pid))

    def counts(self) -> List[int]:
        """Ends counting and returns the counts."""
        found = dict(re.findall(r"^@p(\d+): (\d+)", self.finish(), re.M))
        return [int(found.get(str(i), 0)) for i in range(self.n)]
