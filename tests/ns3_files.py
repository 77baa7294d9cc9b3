"""Readers of pause and queue files of ns-3's RDMA model, or of an export."""

from __future__ import annotations

from chakram.formats.ns3 import PauseEvent, QueueLength
from chakram.formats.text_lines import lines_of, number
from chakram.foundation.errors import ResultsError

_PAUSE_HINT = "e.g. 18250 4 1 2 1"
_QUEUE_HINT = "e.g. time 600 16 j 9 3108 j 10 1036"


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


def read_queue_lengths(data: bytes, source: str) -> list[QueueLength]:
    """Return the queues of a ``qlen.txt``, in its order.

    Raises:
        ResultsError: If it is none.
    """
    found = []
    for where, line in lines_of(data, source):
        fields = line.split()
        if fields[0] != "time" or len(fields) % 3 or set(fields[3::3]) - {"j"}:
            raise ResultsError(where, "is no line of qlen.txt", _QUEUE_HINT)
        time_ns, node = (number(text, where, "number") for text in fields[1:3])
        for interface, size in zip(fields[4::3], fields[5::3], strict=True):
            found.append(
                QueueLength(
                    *(time_ns, node, number(interface, where, "interface")),
                    number(size, where, "queue"),
                )
            )
    return found
