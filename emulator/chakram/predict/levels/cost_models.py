"""Cost models of other simulators, at the message level.

ASTRA-sim's analytical network, *congestion-aware*: every directed link is a queue, a
message of s bytes keeps it for floor(s / bandwidth) and reaches the next node after
floor(latency + s / bandwidth), where it is queued again as a whole.
*Congestion-unaware*: a message takes floor(hops x latency + s / bandwidth) and shares
nothing with anybody.  Bytes are those of the messages alone.

Its hosts (the *system layer*): a collective of C bytes is cut into parts, which follow
one another.  A rank that begins a part sends ``endpoint_delay`` later, and takes up
what has arrived ``endpoint_delay`` after that.  What is added up costs two reads and a
write more: 3 floor(bytes / local memory rate).  Which bytes these are depends on the
algorithm: with halving and doubling, of each message but the last the half that is
kept; with trees, what is handed on downwards costs it as well.  A rank is done with a
collective when it has received and posted all; with a single message, when that has
arrived.  The second half of a direct all_reduce goes by count: once all parts have come
a rank sends, in the order of its peers, as many messages as it has taken up.  Messages
of a pair in one collective are told apart by nothing: around a ring the n-th receive,
which is posted with the n-th send, takes the n-th that comes, even if a later one has
overtaken it on another path.

Over ns-3 it has the same hosts; what lies between is in
``chakram.predict.levels.packet_messages``.

Source: read and measured at ASTRA-sim 518bd51, analytical network e8c5119.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chakram.collectives.algorithms.direct import DirectAllReduce
from chakram.collectives.algorithms.double_tree import TREES, BinaryTreeAllReduce
from chakram.collectives.algorithms.recursive_doubling import (
    HalvingDoublingAllReduce,
    HalvingDoublingReduceScatter,
)
from chakram.collectives.algorithms.ring import RingAlgorithm
from chakram.collectives.ops import CollectiveOp
from chakram.predict.levels.collective_messages import (
    MessageColumns,
    ReducedBytes,
    collective_columns,
    whole_message,
)
from chakram.predict.levels.message_times import LevelTimes

if TYPE_CHECKING:
    from chakram.collectives.schedule import Algorithm, Transfer
    from chakram.predict.levels.network import LevelLink


ASTRA_SIM_AWARE = "astra-sim-aware"
ASTRA_SIM_UNAWARE = "astra-sim-unaware"
ASTRA_SIM_NS3 = "astra-sim-ns3"

_BITS_PER_BYTE_NS = 8_000_000_000

ENDPOINT_DELAY_NS = 10
"""ASTRA-sim's where nothing is said."""

LOCAL_MEMORY_BYTES_PER_S = 1_600_000_000_000
"""That of the systems that ASTRA-sim brings along."""

_MEMORY_PASSES = 3
"""Two reads and a write."""


class Division:
    """What becomes of a collective before it is sent: nothing.

    Attributes:
        parts: Into how many it is cut.
    """

    parts: int = 1

    def algorithm(self, how: Algorithm, part: int) -> Algorithm:
        """Return what does one of its parts."""
        return how

    def part_bytes(
        self, op: CollectiveOp, input_bytes: int, *, nranks: int, part: int
    ) -> int:
        """Return what one rank contributes to a part."""
        return input_bytes

    def columns(
        self, how: Algorithm, *, nranks: int, root: int, input_bytes: int
    ) -> MessageColumns:
        """Return the messages of a part."""
        return collective_columns(
            how, nranks=nranks, root=root, input_bytes=input_bytes
        )


@dataclass(frozen=True, slots=True)
class AstraSimDivision(Division):
    """ASTRA-sim's system layer.

    Attributes:
        parts: Into how many a collective is cut, ``preferred-dataset-splits``; one is
            under way at a time.
    """

    parts: int = 1

    def algorithm(self, how: Algorithm, part: int) -> Algorithm:
        """Return the algorithm; parts take turns at the two trees."""
        if isinstance(how, BinaryTreeAllReduce):
            return replace(how, tree=1 + part % TREES)
        return how

    def part_bytes(
        self, op: CollectiveOp, input_bytes: int, *, nranks: int, part: int
    ) -> int:
        """Return an equal part, rounded down, but a byte for each rank at least."""
        if op is CollectiveOp.BARRIER:
            return input_bytes
        least = 1 if op is CollectiveOp.ALL_GATHER else nranks
        return max(input_bytes // self.parts, least)

    def columns(
        self, how: Algorithm, *, nranks: int, root: int, input_bytes: int
    ) -> MessageColumns:
        """Return the messages of a part; see the module."""
        columns = collective_columns(
            how,
            nranks=nranks,
            root=root,
            input_bytes=input_bytes,
            reduced_bytes=_added_up(how, nranks),
        )
        columns.awaits_sends = False
        if isinstance(how, RingAlgorithm):
            columns.in_turn = how.channels == how.chunks == 1
        if isinstance(how, DirectAllReduce):
            columns.batch = nranks - 1
        return columns


def _added_up(how: Algorithm, nranks: int) -> ReducedBytes:
    if isinstance(how, BinaryTreeAllReduce):
        return _with_trees(how, nranks)
    if isinstance(how, HalvingDoublingAllReduce | HalvingDoublingReduceScatter):
        return _with_halves
    return whole_message


def _with_trees(how: BinaryTreeAllReduce, nranks: int) -> ReducedBytes:
    def reduced(transfer: Transfer, size_bytes: int) -> int:
        is_last = not transfer.reduce and how.is_leaf(transfer.dst, nranks)
        return 0 if is_last else size_bytes

    return reduced


def _with_halves(transfer: Transfer, size_bytes: int) -> int:
    # The last step leaves one chunk, of which nothing is passed on.
    return size_bytes // 2 if transfer.reduce and transfer.further else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraSimTimes(LevelTimes):
    """ASTRA-sim's analytical networks; see the module.

    Attributes:
        is_shared: Whether it is the congestion-aware one.
        start_ns: The endpoint delay.
        local_memory_bytes_per_s: 0: adding up takes no time.
    """

    is_shared: bool = True
    start_ns: int = ENDPOINT_DELAY_NS
    local_memory_bytes_per_s: int = LOCAL_MEMORY_BYTES_PER_S

    def hold_ns(self, link: LevelLink, size_bytes: int) -> int:
        """Return its bytes at the rate of the link, rounded down."""
        return _bytes_ns(size_bytes, link.rate_bps)

    def reach_ns(self, link: LevelLink, size_bytes: int) -> int:
        """Return that and the latency."""
        return link.delay_ns + _bytes_ns(size_bytes, link.rate_bps)

    def path_ns(self, links: Sequence[LevelLink], size_bytes: int) -> int:
        """Return the latency of all hops, and its bytes once."""
        slowest = min((link.rate_bps for link in links if link.rate_bps), default=None)
        return sum(link.delay_ns for link in links) + _bytes_ns(size_bytes, slowest)

    def take_ns(self, size_bytes: int, reduced_bytes: int) -> int:
        """Return the endpoint delay, and what adding up costs."""
        if not self.local_memory_bytes_per_s:
            return self.start_ns
        passes_ns = reduced_bytes * 10**9 // self.local_memory_bytes_per_s
        return self.start_ns + _MEMORY_PASSES * passes_ns


def _bytes_ns(size_bytes: int, rate_bps: int | None) -> int:
    if not rate_bps:
        return 0
    return size_bytes * _BITS_PER_BYTE_NS // rate_bps
