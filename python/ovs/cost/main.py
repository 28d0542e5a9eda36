# SPDX-License-Identifier: Apache-2.0
"""The command line of ovs-cost."""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import re
import socket
import sys
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set

from ovs.cost import archive, charts, compare, doctor, flight, html, model
from ovs.cost import otlp, pcap, picture, record, text, top
from ovs.cost import recording as rec
from ovs.cost.distribution import PERCENTILES, Unmergeable
from ovs.cost.picture import NoLibrary
from ovs.cost.record import warn
from ovs.cost.recording import BadRecording, Recording
from ovs.cost.target import CommandError, Target, TargetError

try:
    from ovs.version import VERSION
except ImportError:             # There is no other part of Open vSwitch's.
    VERSION = "not built"
    with contextlib.suppress(ImportError):      # Nor of pip's.
        from importlib import metadata
        VERSION = f"alone, {metadata.version('ovs-cost')}"

EXIT_FAILED_IF = 1              # What --fail-if is for.
EXIT_TROUBLE = 2
EXIT_INTERRUPTED = 130          # As shells have it.

DEFAULT_TARGET = "ovs-vswitchd"


def positive(value: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(value) < float("inf"):
            return float(value)
    raise argparse.ArgumentTypeError(f"\"{value}\" is not a positive number")


def positive_int(value: str) -> int:
    if positive(value) % 1:
        raise argparse.ArgumentTypeError(f"\"{value}\" is no whole number")
    return int(float(value))


def accounts(value: str) -> int:
    return 1000000 if value == "all" else positive_int(value)


def report_names(value: str) -> List[str]:
    names = value.split(",")
    for name in names:
        if name not in model.REPORTS:
            raise argparse.ArgumentTypeError(
                f"no report \"{name}\" (there are "
                f"{', '.join(model.REPORTS)})")
    return names


def limit(value: str) -> compare.Limit:
    try:
        return compare.Limit(value)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ovs-cost",
        description="Watches, records, shows and compares cost reports of "
                    "ovs-vswitchd, and says what is wrong.")
    parser.add_argument("-V", "--version", action="version",
                        version=f"%(prog)s (Open vSwitch) {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def target(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("-t", "--target", action="append", metavar="TARGET",
                         help="a daemon, or the path of its control socket "
                         f"(default: {DEFAULT_TARGET}); may be given several "
                         "times")
        sub.add_argument("-T", "--timeout", type=positive, default=10.0,
                         metavar="SECONDS", help="for a reply (default: 10)")

    def window(sub: argparse.ArgumentParser, text_: str) -> None:
        sub.add_argument("-l", "--last", choices=("10s", "1m", "5m", "15m"),
                         default="", help=text_)

    def live(sub: argparse.ArgumentParser, interval: float) -> None:
        target(sub)
        sub.add_argument("-r", "--reports", type=report_names,
                         metavar="REPORT[,REPORT]", default=model.REPORTS,
                         help="only these reports")
        sub.add_argument("-i", "--interval", type=positive,
                         default=interval, metavar="SECONDS",
                         help="length of a window (default: "
                              f"{interval:g})")
        sub.add_argument("--accounts", type=accounts, default=20,
                         metavar="N", help="read this many accounts of each "
                         "report, or \"all\"; those with the most time come "
                         "first (default: 20)")

    sub = commands.add_parser("top", help="watch where time goes")
    live(sub, 2)
    sub.add_argument("-b", "--batch", action="store_true",
                     help="print each interval, as for a log")
    sub.add_argument("-n", "--count", type=positive_int, metavar="N",
                     help="end after this many intervals")

    sub = commands.add_parser(
        "doctor", help="say what is wrong, and what to do about it",
        description="Watches ovs-vswitchd, of any version from 2.17 on, and "
                    "says what is wrong, who causes it, and what to do.  May "
                    "need root.  OVS_RUNDIR is the directory of its pidfile, "
                    "if that is not the usual one.",
        epilog="The exit status is 0 if nothing is wrong, 1 if something is, "
               "and 2 if there was an error.")
    live(sub, 10)
    sub.add_argument("file", nargs="*", metavar="FILE",
                     help="recordings, or directories of sosreport or "
                     "must-gather (default: watch the targets for an "
                     "interval)")
    window(sub, "say at once what was wrong in the last 10 seconds to 15 "
           "minutes, as a switch with accounting knows it")
    sub.add_argument("--json", action="store_true", help="for programs")

    for command, about in (
            ("flight", "show what threads did around the longest events"),
            ("pcap", "write the packets of the slowest upcalls to a file")):
        sub = commands.add_parser(command, help=about)
        target(sub)
        window(sub, "only of the last 10 seconds to 15 minutes")
        sub.add_argument("-f", "--force", action="store_true",
                         help="replace the file")
        if command == "flight":
            sub.add_argument("-k", "--kept", type=positive_int, default=0,
                             metavar="N", help="show the events that were "
                             "kept at the N-th latest moment, instead of the "
                             "present ones")
            sub.add_argument("-o", "--output", metavar="FILE",
                             help="write a trace, for Perfetto")
        else:
            sub.add_argument("-o", "--output", metavar="FILE", required=True)

    sub = commands.add_parser("record", help="write reports to a file")
    live(sub, 10)
    sub.add_argument("-d", "--duration", type=positive, metavar="SECONDS",
                     help="end after this time (default: when interrupted)")
    sub.add_argument("-o", "--output", metavar="FILE",
                     help="compressed if its name ends with .gz (default: "
                     "ovs-cost-HOST-TIME.jsonl.gz)")
    sub.add_argument("--rotate", type=positive, default=0, metavar="MB",
                     help="start a new file when the file has this size")
    sub.add_argument("--keep", type=int, default=9, metavar="N",
                     help="full files to keep, with --rotate (default: 9)")

    sub = commands.add_parser("show", help="print the last numbers of a "
                              "recording, or of replies")
    sub.add_argument("file", nargs="+", metavar="FILE")
    sub.add_argument("-r", "--reports", type=report_names, metavar="REPORT",
                     default=model.REPORTS)
    sub.add_argument("--hist", action="store_true", help="with bars")
    sub.add_argument("--slowest", action="store_true",
                     help="the slowest events, too")
    sub.add_argument("--recorded", action="store_true",
                     help="only events during the recording")

    sub = commands.add_parser("report", help="make a page with charts")
    sub.add_argument("file", nargs="+", metavar="FILE")
    sub.add_argument("-f", "--format", default="html",
                     choices=("html", "svg", "png", "text", "csv"))
    sub.add_argument("-o", "--output", metavar="FILE",
                     help="(default: standard output)")
    sub.add_argument("-r", "--reports", type=report_names, metavar="REPORT",
                     help="only these reports")
    sub.add_argument("--title", help="(default: host, daemon, date, length)")

    sub = commands.add_parser("diff", help="compare two recordings")
    sub.add_argument("a", metavar="A")
    sub.add_argument("b", metavar="B")
    sub.add_argument("-a", "--all", action="store_true",
                     help="also show numbers that have not changed")
    sub.add_argument("--fail-if", type=limit, action="append", default=[],
                     metavar="METRIC:[KIND/]STAGE:+N%",
                     help="exit with status 1 if there is such a change and "
                     "it is not noise, for instance mean:total:+5%%")

    sub = commands.add_parser("merge", help="add up recordings")
    sub.add_argument("file", nargs="+", metavar="FILE")
    sub.add_argument("-o", "--output", required=True, metavar="FILE")
    sub.add_argument("--all", action="store_true",
                     help="include events before the recordings began")

    sub = commands.add_parser("convert", help="write another format")
    sub.add_argument("file", nargs="+", metavar="FILE")
    sub.add_argument("--to", choices=("otlp-json",), required=True)
    return parser


@contextlib.contextmanager
def targets_of(args: argparse.Namespace) -> Iterator[List[Target]]:
    targets = [Target(name, args.timeout)
               for name in args.target or [DEFAULT_TARGET]]
    try:
        yield targets
    finally:
        for target in targets:
            target.close()


def cmd_top(args: argparse.Namespace) -> int:
    with targets_of(args) as targets:
        return top.run(targets, args.reports, args.accounts, args.interval,
                       args.count, args.batch)


def cmd_doctor(args: argparse.Namespace) -> int:
    if args.file:
        if args.target or args.last:
            warn("recordings, or --target and --last: not both")
            return EXIT_TROUBLE
        files = [path for path in args.file if not os.path.isdir(path)]
        for path in files:
            if re.search(r"\.(tar(\.\w+)?|tgz|txz|zip)$", path):
                raise BadRecording(f"{path}: unpack it, and name its "
                                   "directory")
        recording = rec.load(files, warn)
        for path in set(args.file) - set(files):
            stocks = archive.load(path)
            if not stocks:
                raise BadRecording(f"{path}: no output of Open vSwitch's "
                                   "commands in it")
            recording.stock.update(stocks)
        return doctor.run(recording, [], args.json)
    recording = Recording()
    with targets_of(args) as targets:
        errors = doctor.watch(targets, args.interval, args.last, recording)
    recording.finish()
    return doctor.run(recording, errors, args.json)


def write(path: str, data: bytes, force: bool) -> None:
    """Makes a file, or if 'force', may replace one."""
    try:
        with open(path, "wb" if force else "xb") as f:
            f.write(data)
    except FileExistsError as e:
        raise OSError(e.errno, "exists already (-f replaces it)", path) from e
    except OSError as e:
        raise OSError(e.errno, e.strerror, path) from e


def ask(args: argparse.Namespace, *command: str) -> Dict[str, Any]:
    """Returns the reply of the only target to 'command'."""
    with targets_of(args) as targets:
        if len(targets) > 1:
            raise ValueError("one --target is enough")
        reply: Dict[str, Any] = targets[0].command(
            *command, *(["-last", args.last] if args.last else []))
        return reply


def cmd_flight(args: argparse.Namespace) -> int:
    if args.kept and args.last:
        raise ValueError("--kept or --last: not both")
    reply = ask(args, "cost/flight",
                *(["-kept", str(args.kept)] if args.kept else []))
    events = flight.events(reply)
    if not events:
        warn("no event of that time" if reply["recording"] else
             "nothing is recorded: try ovs-vsctl set Open_vSwitch . "
             "other_config:cost-flight=true")
        return EXIT_TROUBLE
    if args.output:
        trace = flight.trace(events, reply["pid"])
        write(args.output, json.dumps(trace).encode(), args.force)
    else:
        print("\n".join(flight.summary(events)))
    return 0


def cmd_pcap(args: argparse.Namespace) -> int:
    reply = ask(args, "upcall/cost-show", "-slowest", "16", "-packet", "-n",
                "all")
    data = pcap.capture(reply)
    if not data:
        warn("no packet was kept: try ovs-vsctl set Open_vSwitch . "
             "other_config:cost-packets=true"
             if any(account["slowest"] for account in reply["accounts"])
             else "no upcall of that time")
        return EXIT_TROUBLE
    write(args.output, data, args.force)
    return 0


def cmd_record(args: argparse.Namespace) -> int:
    path = args.output or time.strftime(
        f"ovs-cost-{socket.gethostname()}-%Y%m%d-%H%M%S.jsonl.gz",
        time.gmtime())
    head = rec.header(args.target or [DEFAULT_TARGET], args.interval)
    try:
        writer = rec.Writer(path, head, int(args.rotate * 1e6),
                            max(args.keep, 0))
    except FileExistsError:
        warn(f"{path}: exists already")
        return EXIT_TROUBLE
    with contextlib.closing(writer), targets_of(args) as targets:
        n = record.record(targets, args.reports, args.accounts, args.interval,
                          args.duration, writer, warn)
    if not n:
        os.unlink(path)                 # It is known already why.
        return EXIT_TROUBLE
    if not args.output:
        print(path)
    return 0


def as_reply(window: model.Window, like: model.Reply) -> model.Reply:
    """Returns what happened in 'window' in the form of a reply."""
    reply = model.Reply(window.report)
    reply.head = dict(like.head)
    reply.ovs_version = like.ovs_version
    reply.start_us, reply.now_us = window.start_us, window.end_us
    for key, account in window.accounts.items():
        reply.accounts[key] = account.copy()
        reply.accounts[key].since_us = window.start_us
    reply.totals = window.totals
    return reply


def shown(recording: Recording, source: str, report: str,
          only_recorded: bool, histograms: bool) -> Iterator[str]:
    """Yields the text of what a report has of all time, or only of the time
    that was recorded."""
    replies = recording.replies.get((source, report))
    if not replies:
        return
    window: Optional[model.Window] = model.everything(replies[-1])
    if only_recorded:
        window = model.add_up(recording.windows(source, report))
    for key, account in window.accounts.items() if window else ():
        start_us = account.since_us
        if only_recorded or start_us is None:
            start_us = window.start_us
        yield from text.account(key.name, account,
                                (window.end_us - start_us) / 1e6, histograms)


def cmd_show(args: argparse.Namespace) -> int:
    recording = rec.load(args.file, warn)
    sources = recording.sources()
    for source in sources:
        if len(sources) > 1:
            print(f"# {text.printable(source)}")
        for report in recording.reports():
            if report not in args.reports:
                continue
            for line in shown(recording, source, report, args.recorded,
                              args.hist):
                print(line)
            for account in recording.slowest.get(
                    (source, report), ()) if args.slowest else ():
                print("\n".join(text.slowest(account["name"],
                                             account["slowest"])))
    return 0


def cmd_report(args: argparse.Namespace) -> int:
    recording = rec.load(args.file, warn)
    reports = args.reports or recording.reports()
    title = args.title or charts.title_of(recording)
    if args.format == "html":
        data = html.page(recording, title, reports)
    elif args.format in ("svg", "png"):
        data = picture.svg_of(recording, title, reports)
    elif args.format == "text":
        data = "".join(line + "\n" for source in recording.sources()
                       for report in reports
                       for line in shown(recording, source, report, True,
                                         True))
    else:
        data = as_csv(recording, reports)
    content = (picture.png_of(data) if args.format == "png"
               else data.encode(errors="backslashreplace"))
    if args.output:
        write(args.output, content, True)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    return 0


def as_csv(recording: Recording, reports: Sequence[str]) -> str:
    """Returns a row for each interval and stage."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["source", "start_us", "end_us", "report", "kind",
                     "datapath", "events", "stage", "unit", "sampled",
                     "count", "sum", "mean"]
                    + [name for name, _ in PERCENTILES] + ["min", "max"])
    for source in recording.sources():
        for report in reports:
            for window in recording.windows(source, report):
                for key, account in window.totals.items():
                    for name, stage in account.total.stages.items():
                        known = stage.count and stage.buckets is not None
                        writer.writerow(
                            [source, window.start_us, window.end_us, report,
                             key.kind, key.datapath, account.total.events,
                             name, stage.unit, int(stage.sampled),
                             stage.count, stage.sum, f"{stage.mean:.3f}"]
                            + [f"{stage.percentile(p):.3f}" if known else ""
                               for _, p in PERCENTILES]
                            + ([stage.min, stage.max] if stage.count
                               else ["", ""]))
    return out.getvalue()


def cmd_diff(args: argparse.Namespace) -> int:
    result, failed = compare.diff(rec.load([args.a], warn),
                                  rec.load([args.b], warn), args.fail_if,
                                  args.all)
    print(result)
    return EXIT_FAILED_IF if failed else 0


def cmd_merge(args: argparse.Namespace) -> int:
    sums: Dict[str, model.Window] = {}
    heads: Dict[str, model.Reply] = {}
    hosts: Set[str] = set()
    for path in args.file:
        recording = rec.load([path], warn)
        hosts.update(h.get("host", "") for h in recording.headers)
        for (source, report), replies in recording.replies.items():
            window = (model.everything(replies[-1]) if args.all
                      else model.add_up(recording.windows(source, report)))
            if window is None:
                continue
            heads.setdefault(report, replies[-1])
            try:
                sums.setdefault(report, model.Window(
                    report, window.start_us, window.end_us)).merge(window)
            except Unmergeable as e:
                raise BadRecording(f"{path}: {e}") from e
    if not sums:
        warn("nothing to add up")
        return EXIT_TROUBLE
    try:
        writer = rec.Writer(args.output, dict(
            rec.header([], 0), merged=args.file, hosts=sorted(hosts)))
    except FileExistsError:
        warn(f"{args.output}: exists already")
        return EXIT_TROUBLE
    for report, window in sums.items():
        reply = as_reply(window, heads[report])
        writer.write({"target": "", "reply": reply.to_json()})
    writer.close()
    return 0


def cmd_convert(args: argparse.Namespace) -> int:
    recording = rec.load(args.file, warn)
    resources = [
        otlp.resource(replies[-1], source.split("/")[0])
        for (source, _), replies in sorted(recording.replies.items())]
    json.dump({"resourceMetrics": resources}, sys.stdout)
    print()
    return 0


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = make_parser()
    args = parser.parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Not every terminal can show what a port may be called.
            stream.reconfigure(errors="backslashreplace")
    commands = {"top": cmd_top, "doctor": cmd_doctor, "record": cmd_record,
                "flight": cmd_flight, "pcap": cmd_pcap, "show": cmd_show,
                "report": cmd_report, "diff": cmd_diff, "merge": cmd_merge,
                "convert": cmd_convert}
    if not args.command:
        parser.error("a command is needed: " + ", ".join(commands))
    try:
        status = commands[args.command](args)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_TROUBLE
    except (BadRecording, CommandError, NoLibrary, TargetError,
            ValueError) as e:
        warn(str(e))
    except OSError as e:
        warn(f"{e.filename or 'cannot write'}: {e.strerror or e}")
    return EXIT_TROUBLE
