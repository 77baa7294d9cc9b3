"""Files of the ns-3 RDMA model from HPCC: fct.txt, pfc.txt and qlen.txt.

A line of ``fct.txt`` describes one message. Its fields are:

- the sender and receiver addresses, in hexadecimal
- the source port and the destination port
- the size in bytes
- the start time
- the completion time, up to the arrival of the last acknowledgment
- the completion time without other traffic

All times are in nanoseconds. Node n has the address ``0x0b000001 + n * 256``.

A line of ``pfc.txt`` describes a PFC frame that a node received. Its fields are:

- the time
- the node
- 0 for a host, 1 for a switch
- the interface
- 1 for pause, 0 for resume

A line of ``qlen.txt`` lists the queues of one switch at one time. The line has the time
and the switch number, then interface and bytes of every port with at least 1,000 queued
bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from chakram.formats.text_lines import lines_of, number
from chakram.foundation.errors import ResultsError

FIRST_PORT = 10_000
"""Source port of the first message between two nodes. Each later message adds 1."""

PORT = 100
"""Destination port of all messages."""

PORTS = 1 << 16

LEAST_QUEUE_BYTES = 1000
"""Minimum queue length that ``qlen.txt`` reports."""

_FIRST_ADDRESS = 0x0B000001
_ADDRESS = re.compile(r"[0-9a-f]{8}")
_FLOW_HINT = "e.g. 0b000201 0b000501 10003 100 65536 18250 2710 2384"


class FlowTime(NamedTuple):
    """One message, with ``src`` and ``dst`` as node numbers."""

    src: int
    dst: int
    src_port: int
    dst_port: int
    size_bytes: int
    start_ns: int
    fct_ns: int
    alone_ns: int

    @property
    def end_ns(self) -> int:
        """Arrival time of the last acknowledgment."""
        return self.start_ns + self.fct_ns


class PauseEvent(NamedTuple):
    """A PFC pause or resume frame."""

    time_ns: int
    node: int
    is_switch: bool
    interface: int
    pauses: bool


class QueueLength(NamedTuple):
    """Bytes queued at one interface of a switch."""

    time_ns: int
    node: int
    interface: int
    size_bytes: int


def read_flow_times(data: bytes, source: str) -> list[FlowTime]:
    """Parse a ``fct.txt`` and return its messages in file order.

    Raises:
        ResultsError: If the data is not a ``fct.txt``.
    """
    found = []
    for where, line in lines_of(data, source):
        fields = line.split()
        if len(fields) != len(FlowTime._fields):
            raise ResultsError(
                where, f"has {len(fields)} fields, but fct.txt has 8", _FLOW_HINT
            )
        names = FlowTime._fields[2:]
        flow = FlowTime(
            _node(fields[0], where),
            _node(fields[1], where),
            *(
                number(text, where, name)
                for name, text in zip(names, fields[2:], strict=True)
            ),
        )
        if max(flow.src_port, flow.dst_port) >= PORTS:
            raise ResultsError(where, "a port is above 65535", _FLOW_HINT)
        found.append(flow)
    return found


def _node(text: str, where: str) -> int:
    if not _ADDRESS.fullmatch(text):
        raise ResultsError(
            where, f"{text[:60]!r} is not an address of 8 digits", _FLOW_HINT
        )
    return int(text, 16) >> 8 & 0xFFFF


def flow_times_text(flows: Iterable[FlowTime]) -> str:
    """Format messages as ``fct.txt``."""
    return "".join(
        f"{_address(each.src)} {_address(each.dst)} {' '.join(map(str, each[2:]))}\n"
        for each in flows
    )


def _address(node: int) -> str:
    return f"{_FIRST_ADDRESS + (node << 8):08x}"


def pauses_text(events: Iterable[PauseEvent]) -> str:
    """Format PFC frames as ``pfc.txt``."""
    return "".join(
        f"{' '.join(str(int(field)) for field in each)}\n" for each in events
    )


def queue_lengths_text(queues: Sequence[QueueLength]) -> str:
    """Format queue lengths as ``qlen.txt``, one line per time and switch.

    As in ns-3, a space follows each interface. The exception is the highest interface
    of the switch that ever has a queue.
    """
    last: dict[int, int] = {}
    for each in queues:
        last[each.node] = max(last.get(each.node, 0), each.interface)
    return "".join(
        f"time {time_ns} {node} "
        + "".join(
            f"j {each.interface} {each.size_bytes}"
            f"{' ' if each.interface < last[node] else ''}"
            for each in line
        )
        + "\n"
        for (time_ns, node), line in groupby(queues, key=lambda each: each[:2])
    )
