"""Cost models of other simulators at the message level.

These models follow ASTRA-sim's analytical networks. In the *congestion-aware* network,
every directed link is a queue. A message of s bytes occupies the link for floor(s /
bandwidth). It reaches the next node after floor(latency + s / bandwidth) and is queued
there as a whole. In the *congestion-unaware* network, a message takes floor(hops x
latency + s / bandwidth), regardless of other messages. Sizes do not include headers.

ASTRA-sim's hosts are its *system layer*:

- A collective of C bytes is divided into parts, which run one after another.
- A rank starts to send ``endpoint_delay`` after it begins a part. It processes a
  message ``endpoint_delay`` after the message arrives.
- A reduction adds two reads and one write: 3 floor(bytes / local memory rate). The
  bytes depend on the algorithm. With halving and doubling, they are half of each
  message, but none of the last message. With trees, messages that are forwarded down
  the tree have the same cost.
- A rank completes a collective when it has received all messages and posted all sends.
  A single message completes when it has arrived.
- The second half of a direct all_reduce counts messages. After all parts have arrived,
  a rank sends one message for each message it has processed, in the order of its peers.
- ASTRA-sim does not distinguish the messages between two ranks in one collective. In a
  ring, the n-th receive is posted with the n-th send. This receive matches the n-th
  message to arrive, even if messages overtook each other on different paths.

ASTRA-sim over ns-3 has the same hosts. ``chakram.predict.levels.ns3_packet_level``
models its network.

Source: code and measurements of ASTRA-sim 518bd51, analytical network e8c5119.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chakram.collectives.algorithms.direct import DirectAllReduce
from chakram.collectives.algorithms.double_tree import TREES, BinaryTreeAllReduce
from chakram.collectives.algorithms.recursive_doubling import (
    HalvingDoublingAllReduce,
    HalvingDoublingReduceScatter,
)
from chakram.collectives.algorithms.ring import RingAlgorithm
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Algorithm, Transfer
from chakram.predict.levels.collective_messages import (
    MessageColumns,
    ReducedBytes,
    collective_columns,
    whole_message,
)
from chakram.predict.levels.level_network import LevelLink
from chakram.predict.levels.message_times import LevelTimes

ASTRA_SIM_AWARE = "astra-sim-aware"
ASTRA_SIM_NS3 = "astra-sim-ns3"

_BITS_PER_BYTE_NS = 8_000_000_000

ENDPOINT_DELAY_NS = 10
"""ASTRA-sim's default endpoint delay."""

LOCAL_MEMORY_BYTES_PER_S = 1_600_000_000_000
"""Local memory rate in ASTRA-sim's example systems."""

_MEMORY_PASSES = 3
"""Memory accesses per reduced byte: two reads and one write."""


class Division:
    """Division of a collective into parts. This class keeps collectives whole.

    Attributes:
        parts: Number of parts.
    """

    parts: int = 1

    def algorithm(self, how: Algorithm, part: int) -> Algorithm:
        """Return the algorithm of one part."""
        return how

    def part_bytes(
        self, op: CollectiveOp, input_bytes: int, *, nranks: int, part: int
    ) -> int:
        """Return the contribution of one rank to a part, in bytes."""
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
    """Division of a collective as in ASTRA-sim's system layer.

    Attributes:
        parts: Number of parts (``preferred-dataset-splits`` in ASTRA-sim), which run
            one at a time.
    """

    parts: int = 1

    def algorithm(self, how: Algorithm, part: int) -> Algorithm:
        """Return the algorithm of one part. Parts alternate between the two trees."""
        if isinstance(how, BinaryTreeAllReduce):
            return replace(how, tree=1 + part % TREES)
        return how

    def part_bytes(
        self, op: CollectiveOp, input_bytes: int, *, nranks: int, part: int
    ) -> int:
        """Return the size of an equal part, rounded down, but at least 1 per rank."""
        if op is CollectiveOp.BARRIER:
            return input_bytes
        least = 1 if op is CollectiveOp.ALL_GATHER else nranks
        return max(input_bytes // self.parts, least)

    def columns(
        self, how: Algorithm, *, nranks: int, root: int, input_bytes: int
    ) -> MessageColumns:
        """Return the messages of a part: see the module docstring."""
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
        return lambda transfer, size_bytes: (
            size_bytes
            if transfer.reduce or not how.is_leaf(transfer.dst, nranks)
            else 0
        )
    if isinstance(how, HalvingDoublingAllReduce | HalvingDoublingReduceScatter):
        return _with_halves
    return whole_message


def _with_halves(transfer: Transfer, size_bytes: int) -> int:
    # In the last step, the message is one chunk, and none of it is forwarded.
    return size_bytes // 2 if transfer.reduce and transfer.further else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraSimTimes(LevelTimes):
    """Times of ASTRA-sim's analytical networks: see the module docstring.

    Attributes:
        is_shared: Whether the network is the congestion-aware one.
        start_ns: The endpoint delay.
        local_memory_bytes_per_s: Local memory rate, undilated; 0 means that reductions
            take no time.
        dilation: Factor that multiplies the time of reductions. All other times are
            already dilated.
    """

    is_shared: bool = True
    start_ns: int = ENDPOINT_DELAY_NS
    local_memory_bytes_per_s: int = LOCAL_MEMORY_BYTES_PER_S
    dilation: int = 1

    def hold_ns(self, link: LevelLink, size_bytes: int) -> int:
        """Return the serialization delay of the message, rounded down."""
        return _bytes_ns(size_bytes, link.rate_bps)

    def reach_ns(self, link: LevelLink, size_bytes: int) -> int:
        """Return the serialization delay, rounded down, plus the latency."""
        return link.delay_ns + _bytes_ns(size_bytes, link.rate_bps)

    def path_ns(self, links: Sequence[LevelLink], size_bytes: int) -> int:
        """Return all hop latencies plus the serialization delay at the lowest rate."""
        slowest = min((link.rate_bps for link in links if link.rate_bps), default=None)
        return sum(link.delay_ns for link in links) + _bytes_ns(size_bytes, slowest)

    def take_ns(self, size_bytes: int, reduced_bytes: int) -> int:
        """Return the endpoint delay plus the cost of the reduction."""
        if not self.local_memory_bytes_per_s:
            return self.start_ns
        passes_ns = reduced_bytes * 10**9 // self.local_memory_bytes_per_s
        return self.start_ns + self.dilation * _MEMORY_PASSES * passes_ns


def _bytes_ns(size_bytes: int, rate_bps: int | None) -> int:
    if not rate_bps:
        return 0
    return size_bytes * _BITS_PER_BYTE_NS // rate_bps
