# SPDX-License-Identifier: Apache-2.0
"""Packets, and captures of them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Iterable


def checksum(data: bytes) -> int:
    """Returns the checksum of a header in which it is 0, RFC 1071."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def make_packet(flow: int, number: int = 0,
                destination: int = 0x0b000001) -> bytes:
    """Returns a UDP packet of 60 bytes from 10.0.0.0 plus 'flow' to
    'destination', with 'number' as its payload."""
    header = struct.pack(">BBHHHBBHII", 0x45, 0, 46, 0, 0, 64, 17, 0,
                         0x0a000000 + flow, destination)
    header = header[:10] + struct.pack(">H", checksum(header)) + header[12:]
    return (bytes.fromhex("505400000002" "505400000001" "0800") + header
            + struct.pack(">HHHH", 1000, 2000, 26, 0)
            + struct.pack(">Q", number) + bytes(10))


def write_capture(path: Path, flows: Iterable[int]) -> None:
    """Writes a packet of each of 'flows' in pcap format."""
    with open(path, "wb") as stream:
        stream.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535,
                                 1))
        for flow in flows:
            packet = make_packet(flow)
            stream.write(struct.pack("<IIII", 0, 0, len(packet),
                                     len(packet)) + packet)
