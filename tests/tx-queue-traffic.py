#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends numbered packets of many flows from one network device to another,
through a switch whose configuration changes all the time, and checks that
each flow's packets arrive once, all of them, in order.

Where the switch drops packets, --drops is a shell command that prints how many
it has dropped.  Then exactly as many have to be missing, those that arrive
have to be in order all the same, and none may arrive twice.

Never are more packets under way than fit into every ring, and into the send
buffer of one packet socket, so that one that does not arrive was lost in the
switch.  (When that buffer is full, DPDK's net_af_packet leaves packets in its
ring until it sends another one, and forgets them if it is closed.  Packets are
in there until the kernel has brought them to the other end of a veth pair.)
Each change is a shell command, one line of standard input; they are run in a
random order, over and over, each at least once.

Prints how many packets were "sent", and how many "long" ones besides, of
which none may arrive; how many were "received" and "dropped".
"""

import argparse
import random
import select
import socket
import struct
import subprocess
import sys
import time

MAGIC = bytes.fromhex("7c05a11e")
N_FLOWS = 64
PAUSE = 0.1                     # Seconds from one change to the next.
MAX_UNDER_WAY = 1000
TRUESIZE = 1600                 # Bytes, at most, of a packet in the kernel.
BATCH = 40                      # Packets sent at a time, at most.
MAX_TSO_UNDER_WAY = 2           # Fewer, because the socket has less room.
LONG = 1500                     # Bytes.
SEGMENT = 1400                  # Bytes, without headers.
# Seconds until a packet counts as lost.  PMD threads may keep all CPUs busy.
TIMEOUT = 60.0
PATIENCE = 0.5                  # Seconds until packets may have been dropped.


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def make_packet(flow, number):
    header = struct.pack(">BBHHHBBHII", 0x45, 0, 48, 0, 0, 64, 17, 0,
                         0x0a000000 + flow, 0x0b000001)
    header = (header[:10] + struct.pack(">H", checksum(header))
              + header[12:])
    return (bytes.fromhex("505400000002" "505400000001" "0800") + header
            + struct.pack(">HHHH", 1000 + flow, 2000, 28, 0)
            + MAGIC + struct.pack(">IQ", flow, number) + bytes(4))


def make_tso_packet(flow, number, n_segments):
    """Returns a TCP packet that has to be cut into that many segments, which
    are numbered from 'number' on, with a header that tells the kernel so."""
    length = 40 + n_segments * SEGMENT
    header = struct.pack(">BBHHHBBHII", 0x45, 0, length, 0, 0, 64, 6, 0,
                         0x0a000000 + flow, 0x0b000001)
    header = (header[:10] + struct.pack(">H", checksum(header))
              + header[12:])
    # The kernel wants the sum of the pseudo header.
    pseudo = header[12:] + struct.pack(">HH", 6, length - 20)
    return (struct.pack("=BBHHHH", 1, 1, 54, SEGMENT, 34, 16)
            + bytes.fromhex("505400000002" "505400000001" "0800") + header
            + struct.pack(">HHIIBBHHH", 1000 + flow, 2000,
                          number * SEGMENT & 0xffffffff, 0, 0x50, 0x10, 65535,
                          ~checksum(pseudo) & 0xffff, 0)
            + b"".join((MAGIC + struct.pack(">IQ", flow, number + i)).ljust(
                SEGMENT, b"x") for i in range(n_segments)))


def open_device(name, protocol):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)     # SO_RCVBUFFORCE
    sock.bind((name, protocol))
    return sock


class Traffic:
    def __init__(self, args):
        self.rng = random.Random(1)
        self.long_every = args.long_every
        self.drops = args.drops
        self.n_segments = args.segments
        self.source = open_device(args.source, 0)
        self.max_under_way = min(MAX_UNDER_WAY, self.source.getsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF) // TRUESIZE)
        if args.segments > 1:
            self.max_under_way = MAX_TSO_UNDER_WAY * args.segments
            self.source.setsockopt(263, 15, 1)  # SOL_PACKET, PACKET_VNET_HDR
        self.sink = open_device(args.sink, 3)           # ETH_P_ALL
        self.sink.setblocking(False)
        self.n_sent = [0] * N_FLOWS
        self.expected = [0] * N_FLOWS                # Next number.
        self.n_received = 0
        self.n_long = 0
        self.n_dropped = 0
        self.n_dropped_before = self.read_drops()
        self.gap = None
        self.under_way = 0
        self.moved = time.monotonic()   # When 'under_way' was less than ever.
        self.looked = self.moved        # When drops were read.

    def read_drops(self):
        """Returns how many packets the switch has dropped."""
        if not self.drops:
            return 0
        return int(subprocess.check_output(self.drops, shell=True, text=True))

    def has_room(self):
        return self.under_way + self.n_segments <= self.max_under_way

    def send_one(self, flow):
        """Sends a packet of 'flow'."""
        number = self.n_sent[flow]
        self.source.send(
            make_packet(flow, number) if self.n_segments == 1
            else make_tso_packet(flow, number, self.n_segments))
        self.n_sent[flow] += self.n_segments
        self.under_way += self.n_segments

    def start(self):
        """Sends a packet of each flow, one after another.  If the first
        upcalls of two PMD threads were at the same time, one would be lost:
        see fat_rwlock_tryrdlock()."""
        for flow in range(N_FLOWS):
            self.send_one(flow)
            self.moved = time.monotonic()
            while self.under_way:
                self.wait()

    def send(self):
        """Sends some packets, often only one, sometimes many."""
        for _ in range(self.rng.choice((1, 1, 2, 5, BATCH))):
            if not self.has_room():
                break
            flow = self.rng.randrange(N_FLOWS)
            self.send_one(flow)
            if self.long_every and not self.rng.randrange(self.long_every):
                packet = make_packet(flow, 1 << 63)
                self.source.send(packet.ljust(LONG, b"x"))
                self.n_long += 1
                self.under_way += 1

    def receive(self):
        """Receives all packets that are there, and returns how many."""
        n = 0
        while True:
            try:
                packet = self.sink.recv(2048)
            except BlockingIOError:
                if self.gap and time.monotonic() > self.gap_seen + PATIENCE:
                    raise SystemExit(self.gap) from None
                return n
            # There may be headers of a tunnel in front.
            start = packet.find(MAGIC)
            if start < 0 or len(packet) < start + 16:
                continue
            flow, number = struct.unpack(">IQ", packet[start + 4:start + 16])
            expected = self.expected[flow]
            if number >> 63:
                raise SystemExit(f"a packet of {len(packet)} bytes arrived")
            if number < expected:
                raise SystemExit(f"flow {flow}: packet {number} arrived again,"
                                 f" or after packet {expected - 1}")
            if number > expected and not self.drops and not self.gap:
                # It would be good to know whether they come later.
                self.gap = (f"flow {flow}: packet {number} arrived, but not "
                            f"{expected}, by {PATIENCE} s later")
                self.gap_seen = time.monotonic()
            self.expected[flow] = number + 1
            self.n_received += 1
            self.under_way -= 1
            n += 1

    def wait(self):
        """Receives what is there.  If there is nothing, waits a bit, and looks
        every now and then how many packets have been dropped."""
        now = time.monotonic()
        if self.receive():
            self.moved = now
            return
        if self.drops and now > max(self.looked, self.moved) + PATIENCE:
            before = self.under_way
            self.n_dropped = self.read_drops() - self.n_dropped_before
            self.receive()
            self.under_way = (sum(self.n_sent) + self.n_long
                              - self.n_received - self.n_dropped)
            self.looked = time.monotonic()
            if self.under_way < before:
                self.moved = self.looked
        if self.under_way < 0:
            raise SystemExit(f"{-self.under_way} packets fewer are missing "
                             "than have been dropped")
        if now > self.moved + TIMEOUT:
            lost = [(flow, expected, sent) for flow, (expected, sent)
                    in enumerate(zip(self.expected, self.n_sent))
                    if expected < sent]
            raise SystemExit(
                f"{self.under_way} packets lost; the last of {len(lost)} "
                f"flows are missing, as (flow, number, sent): {lost[:3]}")
        select.select([self.sink], [], [], 0.01)

    def wait_for_all(self):
        """Returns when nothing is under way any more."""
        self.moved = time.monotonic()
        while self.under_way or self.gap:
            self.wait()
        # Nothing may come twice.
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.wait()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="device to send to")
    parser.add_argument("sink", help="device to receive from")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--drops", metavar="COMMAND",
                        help="print the number of packets dropped so far")
    parser.add_argument("--long-every", type=int, metavar="N",
                        help=f"also send packets of {LONG} bytes, one for N "
                        "others")
    parser.add_argument("--segments", type=int, metavar="N", default=1,
                        help="send packets that have to be cut into N")
    args = parser.parse_args()

    changes = [line.strip() for line in sys.stdin if line.strip()]
    deck = []
    n_changes = 0
    traffic = Traffic(args)
    traffic.start()
    start = next_change = time.monotonic()
    change = None
    while (time.monotonic() < start + args.seconds
           or n_changes < len(changes)):
        if change and change.poll() is not None:
            if change.returncode:
                raise SystemExit(f"{change.args}: "
                                 f"{change.stdout.read().strip()}")
            change = None
            n_changes += 1
            next_change = time.monotonic() + PAUSE
        if changes and not change and time.monotonic() >= next_change:
            if not deck:
                deck = traffic.rng.sample(changes, len(changes))
            change = subprocess.Popen(
                deck.pop(), shell=True, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT)
        if traffic.has_room():
            traffic.send()
            if traffic.receive():
                traffic.moved = time.monotonic()
        else:
            traffic.wait()
    if change and change.wait():
        raise SystemExit(f"{change.args}: {change.stdout.read().strip()}")
    traffic.wait_for_all()
    print(f"{n_changes} changes", file=sys.stderr)
    print(f"sent {sum(traffic.n_sent)}")
    print(f"long {traffic.n_long}")
    print(f"received {traffic.n_received}")
    print(f"dropped {traffic.n_dropped}")


if __name__ == "__main__":
    main()
