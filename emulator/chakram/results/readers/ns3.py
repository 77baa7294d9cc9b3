"""Files of ns-3's RDMA model, as HPCC has it: ``fct.txt`` and ``pfc.txt``.

A line of ``fct.txt`` is a message: the addresses of sender and receiver in hexadecimal,
both ports, its bytes, when it began, how long it took until its last acknowledgement
was back, and what it would have taken alone; times in nanoseconds.  Node n has the
address ``0x0b000001 + n * 256``.

A line of ``pfc.txt`` is a pause frame that a node has received: time in nanoseconds,
node, 0 for a host and 1 for a switch, interface, 1 for a pause and 0 for its end.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from chakram.errors import ResultsError
from chakram.results.readers.lines import lines_of, number

__all__ = ["FlowTime", "PauseEvent", "read_flow_times", "read_pauses"]

_ADDRESS = re.compile(r"[0-9a-f]{8}")
_FLOW_HINT = "e.g. 0b000201 0b000501 10003 100 65536 18250 2710 2384"
_PAUSE_HINT = "e.g. 18250 4 1 2 1"
_MOST_PORTS = 1 << 16


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
        if max(flow.src_port, flow.dst_port) >= _MOST_PORTS:
            raise ResultsError(where, "a port is not below 65536", _FLOW_HINT)
        found.append(flow)
    return found


def _node(text: str, where: str) -> int:
    if not _ADDRESS.fullmatch(text):
        raise ResultsError(
            where, f"{text[:60]!r} is not an address of 8 digits", _FLOW_HINT
        )
    return int(text, 16) >> 8 & 0xFFFF


def read_pauses(data: bytes, source: str) -> list[PauseEvent]:
    """Return the pause frames of a ``pfc.txt``, in its order.

    Raises:
        ResultsError: If it is none.
    """
    found = []
    for where, line in lines_of(data, source):
        fields = line.split()
        if len(fields) != len(PauseEvent._fields):
            raise ResultsError(
                where, f"has {len(fields)} fields, not 5 as in pfc.txt", _PAUSE_HINT
            )
        time_ns, node, kind, interface, event = (
            number(text, where, name)
            for name, text in zip(PauseEvent._fields, fields, strict=True)
        )
        if kind > 1 or event > 1:
            raise ResultsError(
                where, "kind of node and event are neither 0 nor 1", _PAUSE_HINT
            )
        found.append(PauseEvent(time_ns, node, bool(kind), interface, bool(event)))
    return found
