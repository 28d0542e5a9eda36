#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends numbered packets of many flows from one network device to another,
through a switch whose configuration changes all the time, and checks that
each flow's packets arrive once, all of them, in order.

Never are more packets under way than fit into every ring, so that one that
does not arrive was lost in the switch.  Each change is a shell command, one
line of standard input; they are run in a random order, over and over.
"""

import argparse
import random
import select
import socket
import struct
import subprocess
import sys
import time

MAGIC = 0x7c05a11e
MAX_UNDER_WAY = 1000
BATCH = 40                      # Packets sent at a time, at most.
TIMEOUT = 5.0                   # Seconds until a packet counts as lost.


def make_packet(flow, number):
    header = struct.pack(">BBHHHBBHII", 0x45, 0, 48, 0, 0, 64, 17, 0,
                         0x0a000000 + flow, 0x0b000001)
    checksum = sum(struct.unpack(">10H", header))
    while checksum >> 16:
        checksum = (checksum & 0xffff) + (checksum >> 16)
    header = header[:10] + struct.pack(">H", ~checksum & 0xffff) + header[12:]
    return (bytes.fromhex("505400000002" "505400000001" "0800") + header
            + struct.pack(">HHHH", 1000 + flow, 2000, 28, 0)
            + struct.pack(">IIQ", MAGIC, flow, number) + bytes(4))


def open_device(name, protocol):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)     # SO_RCVBUFFORCE
    sock.bind((name, protocol))
    return sock


class Traffic:
    def __init__(self, args):
        self.rng = random.Random(args.seed)
        self.n_flows = args.flows
        self.source = open_device(args.source, 0)
        self.sink = open_device(args.sink, 3)           # ETH_P_ALL
        self.sink.setblocking(False)
        self.n_sent = [0] * args.flows
        self.n_received = [0] * args.flows
        self.under_way = 0

    def send(self):
        """Sends some packets, often only one, sometimes many."""
        n = min(self.rng.choice((1, 1, 2, 5, BATCH)),
                MAX_UNDER_WAY - self.under_way)
        for _ in range(n):
            flow = self.rng.randrange(self.n_flows)
            self.source.send(make_packet(flow, self.n_sent[flow]))
            self.n_sent[flow] += 1
            self.under_way += 1

    def receive(self):
        """Receives all packets that are there, and returns how many."""
        n = 0
        while True:
            try:
                packet = self.sink.recv(2048)
            except BlockingIOError:
                return n
            if len(packet) < 58:
                continue
            magic, flow, number = struct.unpack(">IIQ", packet[42:58])
            if magic != MAGIC:
                continue
            expected = self.n_received[flow]
            if number != expected:
                raise SystemExit(
                    f"flow {flow}: packet {number} arrived, "
                    + ("again or too late" if number < expected
                       else f"but not {expected}"))
            self.n_received[flow] += 1
            self.under_way -= 1
            n += 1

    def wait_for_all(self):
        """Returns when nothing is under way any more."""
        deadline = time.monotonic() + TIMEOUT
        while self.under_way:
            if self.receive():
                deadline = time.monotonic() + TIMEOUT
            elif time.monotonic() > deadline:
                lost = [(i, r, s) for i, (r, s)
                        in enumerate(zip(self.n_received, self.n_sent))
                        if r < s]
                raise SystemExit(
                    f"{self.under_way} packets lost, of {len(lost)} flows; "
                    "flow {}: {} of {} arrived".format(*lost[0]))
            else:
                select.select([self.sink], [], [], 0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="device to send to")
    parser.add_argument("sink", help="device to receive from")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--flows", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.1,
                        help="seconds from one change to the next")
    args = parser.parse_args()

    changes = [line.strip() for line in sys.stdin if line.strip()]
    n_changes = 0
    traffic = Traffic(args)
    start = next_change = time.monotonic()
    change = None
    moved = start
    while time.monotonic() < start + args.seconds:
        if change and change.poll() is not None:
            if change.returncode:
                raise SystemExit(f"{change.args}: "
                                 f"{change.stdout.read().strip()}")
            change = None
            n_changes += 1
            next_change = time.monotonic() + args.pause
        if changes and not change and time.monotonic() >= next_change:
            change = subprocess.Popen(
                traffic.rng.choice(changes), shell=True, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT)
        traffic.send()
        if traffic.receive():
            moved = time.monotonic()
        elif traffic.under_way == MAX_UNDER_WAY:
            if time.monotonic() > moved + TIMEOUT:
                traffic.wait_for_all()
            select.select([traffic.sink], [], [], 0.01)
    if change:
        change.wait()
    traffic.wait_for_all()
    print(f"{sum(traffic.n_sent)} packets, {n_changes} changes",
          file=sys.stderr)
    print(sum(traffic.n_received))


if __name__ == "__main__":
    main()
