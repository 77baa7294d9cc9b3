# cython: language_level=3, annotation_typing=False
"""A queue pair as replay sees it: where its messages belong, and to whom it leads."""

from __future__ import annotations

__all__ = ["Pair"]


class Pair:
    """A queue pair of a rank.

    Events of the queue pair name it (`QueuePair.belong_to`), so nothing has to be
    looked for by QPN when they come.

    Attributes:
        qpn: Its number.
        group: Number of the process group whose messages it carries, or what stands for
            none; see ``ProgramTables``.
        peer: The rank at the other end.
        place: Its number among those of all ranks of the port.
    """

    __slots__ = ("group", "peer", "place", "qpn")

    def __init__(self, qpn: int, group: int, peer: int, place: int) -> None:
        self.qpn = qpn
        self.group = group
        self.peer = peer
        self.place = place
