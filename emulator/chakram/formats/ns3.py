"""Files of ns-3's RDMA model, as HPCC has it: fct.txt, pfc.txt and qlen.txt.

A line of ``fct.txt`` is a message: the addresses of sender and receiver in hexadecimal,
both ports, its bytes, when it began, how long it took until its last acknowledgement
was back, and what it would have taken alone; times in nanoseconds.  Node n has the
address ``0x0b000001 + n * 256``.

A line of ``pfc.txt`` is a pause frame that a node has received: time in nanoseconds,
node, 0 for a host and 1 for a switch, interface, 1 for a pause and 0 for its end.

A line of ``qlen.txt`` is what waits in a switch at some time: time, number of the
switch, and of every port that has 1,000 bytes or more its interface and its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from chakram.formats.text_lines import lines_of, number
from chakram.foundation.errors import ResultsError

FIRST_PORT = 10_000
"""Source port of the first message of a pair; the next has the next one."""

PORT = 100
"""Where all messages go to."""

PORTS = 1 << 16

LEAST_QUEUE_BYTES = 1000
"""Shorter queues are not told."""

_FIRST_ADDRESS = 0x0B000001
_ADDRESS = re.compile(r"[0-9a-f]{8}")
_FLOW_HINT = "e.g. 0b000201 0b000501 10003 100 65536 18250 2710 2384"


class FlowTime(NamedTuple):
    """A message; nodes are numbers."""

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
        """When its last acknowledgement was back."""
        return self.start_ns + self.fct_ns


class PauseEvent(NamedTuple):
    """A pause frame, or the one that ends the pause."""

    time_ns: int
    node: int
    is_switch: bool
    interface: int
    pauses: bool


class QueueLength(NamedTuple):
    """What waits at an interface of a switch."""

    time_ns: int
    node: int
    interface: int
    size_bytes: int


def read_flow_times(data: bytes, source: str) -> list[FlowTime]:
    """Return the messages of a ``fct.txt``, in its order.

    Raises:
        ResultsError: If it is none.
    """
    found = []
    for where, line in lines_of(data, source):
        fields = line.split()
        if len(fields) != len(FlowTime._fields):
            raise ResultsError(
                where, f"has {len(fields)} fields, not 8 as in fct.txt", _FLOW_HINT
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
            raise ResultsError(where, "a port is not below 65536", _FLOW_HINT)
        found.append(flow)
    return found


def _node(text: str, where: str) -> int:
    if not _ADDRESS.fullmatch(text):
        raise ResultsError(
            where, f"{text[:60]!r} is not an address of 8 digits", _FLOW_HINT
        )
    return int(text, 16) >> 8 & 0xFFFF


def flow_times_text(flows: Iterable[FlowTime]) -> str:
    """Return the ``fct.txt`` of messages."""
    return "".join(
        f"{_address(each.src)} {_address(each.dst)} {' '.join(map(str, each[2:]))}\n"
        for each in flows
    )


def _address(node: int) -> str:
    return f"{_FIRST_ADDRESS + (node << 8):08x}"


def pauses_text(events: Iterable[PauseEvent]) -> str:
    """Return the ``pfc.txt`` of pause frames."""
    return "".join(
        f"{' '.join(str(int(field)) for field in each)}\n" for each in events
    )


def queue_lengths_text(queues: Sequence[QueueLength]) -> str:
    """Return the ``qlen.txt`` of queues, those of a time and a switch in one line.

    As there, a blank follows all interfaces of a switch but the last that has a queue.
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
