# SPDX-License-Identifier: Apache-2.0
"""ovs-cost pcap: the packets of the slowest upcalls, in the format pcapng."""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Tuple

from ovs.cost import text

# Block types and options, see draft-ietf-opsawg-pcapng.
SECTION, INTERFACE, PACKET = 0x0a0d0d0a, 1, 6
COMMENT, IF_NAME, IF_TSRESOL = 1, 2, 9
MAGIC = 0x1a2b3c4d
ETHERNET, RAW = 1, 101          # Link types: RAW begins with an IP header.
SNAPLEN = 128                   # As in lib/upcall-cost.h.


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def comment(event: Dict[str, Any], pid: int) -> str:
    """Returns what is known of an upcall, in the form of upcall_monitor.py."""
    times = {"total": event["total_ns"], **event["stages"]}
    fields = {"comm": event["thread"], "pid": pid,
              "upcall_type": event["class"],
              **{name: text.us(ns, "us").replace(" ", "")
                 for name, ns in times.items()},
              "cause": event["cause"].replace(" ", "-")}
    return (" ".join(f"{name}={value}" for name, value in fields.items())
            + "\n" + event["details"]["flow"])


def capture(reply: Dict[str, Any]) -> bytes:
    """Returns the packets in a reply to "upcall/cost-show -packet", each
    with the time at which its upcall began, or nothing if it has none."""
    out = [_block(SECTION, struct.pack("<IHHq", MAGIC, 1, 0, -1))]
    interfaces: List[Tuple[str, int]] = []
    events = [(1000 * event["time_us"] - event["total_ns"]
               - event["excluded_ns"], account["name"], event)
              for account in reply["accounts"] for event in account["slowest"]
              if "packet" in event["details"]]
    for begin, account, event in sorted(events, key=lambda e: e[:2]):
        details = event["details"]
        port = details.get("port_name", f"port {details['dp_port']}")
        interface = (f"{port} ({account})",
                     ETHERNET if details["ethernet"] else RAW)
        if interface not in interfaces:
            interfaces.append(interface)
            out.append(_block(INTERFACE, struct.pack(
                "<HHI", interface[1], 0, SNAPLEN)
                + _option(IF_NAME, interface[0].encode())
                + _option(IF_TSRESOL, b"\x09") + _option(0, b"")))
        data = bytes.fromhex(details["packet"])
        out.append(_block(PACKET, struct.pack(
            "<IIIII", interfaces.index(interface), begin >> 32,
            begin & 0xffffffff, len(data), details["packet_bytes"])
            + _padded(data)
            + _option(COMMENT, comment(event, reply["pid"]).encode())
            + _option(0, b"")))
    return b"".join(out) if events else b""
