# cython: language_level=3, annotation_typing=False
"""A queue pair of a rank in the replay, with its process group and peer."""

from __future__ import annotations

__all__ = ["Pair"]


class Pair:
    """A queue pair of a rank.

    Events of the queue pair refer to this object (`QueuePair.belong_to`), so no lookup
    by QPN is necessary.

    Attributes:
        qpn: Queue pair number.
        group: Number of the process group that uses the queue pair, or the number for
            point-to-point messages: see ``ProgramTables``.
        peer: Rank at the other end.
        place: Index among the queue pairs of all ranks of the port.
    """

    __slots__ = ("group", "peer", "place", "qpn")

    def __init__(self, qpn: int, group: int, peer: int, place: int) -> None:
        self.qpn = qpn
        self.group = group
        self.peer = peer
        self.place = place
