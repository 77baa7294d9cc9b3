"""Compact queue pairs for large plans, at 50 bytes each instead of 450.

A queue pair is a row of numbers. Its two ends become objects each time they are read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from chakram.plan.plan import QueuePairPlan
from chakram.plan.port_plan import PortPlan

if TYPE_CHECKING:
    from typing import TypeAlias

    Column: TypeAlias = array[int]


PACKED_FROM = 1 << 18
"""Minimum number of queue pair ends in a plan that packs its queue pairs."""

_NO_RATE = -1


class JobQueuePairs:
    """The queue pairs of one job.

    Attributes:
        has_local_rates: Whether messages of any of these queue pairs stay within a
            host.

    Args:
        ports: Port of each rank.
        dscp_of: DSCP of the groups that have their own traffic class.
    """

    def __init__(
        self, ports: Mapping[int, PortPlan], dscp_of: Mapping[str, int]
    ) -> None:
        self._ports = ports
        self._dscp_of = dscp_of
        self._numbers: dict[str, int] = {}
        self._groups: list[str] = []
        self._group = array("I")
        self._channel = array("I")
        self._index = array("H")
        self._source_port = array("H")
        self._rates_bps = array("q")
        # Values of both ends of each queue pair: the lower rank's, then the higher
        # rank's.
        self._ranks = array("I")
        self._qpns = array("I")
        self._psns = array("I")
        self._ends_of: dict[int, Column] = {}
        self.has_local_rates = False

    def __len__(self) -> int:
        """Return the number of queue pairs."""
        return len(self._group)

    def add(
        self,
        group: str,
        channel: int,
        index: int,
        *,
        ranks: tuple[int, int],
        qpns: tuple[int, int],
        psns: tuple[int, int],
        source_port: int,
        local_rate_bps: int | None,
    ) -> None:
        """Add a queue pair. Each tuple contains the value of the lower rank first."""
        number = self._numbers.get(group)
        if number is None:
            number = self._numbers[group] = len(self._groups)
            self._groups.append(group)
        end = 2 * len(self._group)
        for side, rank in enumerate(ranks):
            ends = self._ends_of.get(rank)
            if ends is None:
                ends = self._ends_of[rank] = array("I")
            ends.append(end + side)
        self._group.append(number)
        self._channel.append(channel)
        self._index.append(index)
        self._source_port.append(source_port)
        self.has_local_rates = self.has_local_rates or local_rate_bps is not None
        self._rates_bps.append(_NO_RATE if local_rate_bps is None else local_rate_bps)
        self._ranks.extend(ranks)
        self._qpns.extend(qpns)
        self._psns.extend(psns)

    def of_rank(self, rank: int) -> RankQueuePairs:
        """Return the queue pairs of a rank."""
        return RankQueuePairs(self, self._ends_of.get(rank, array("I")))

    def end(self, number: int) -> QueuePairPlan:
        """Return end *number*: twice the pair's index, plus 1 for the higher rank."""
        pair, other = number >> 1, number ^ 1
        peer = self._ranks[other]
        port = self._ports[peer]
        group = self._groups[self._group[pair]]
        rate_bps = self._rates_bps[pair]
        return QueuePairPlan(
            group=group,
            channel=self._channel[pair],
            peer_rank=peer,
            qpn=self._qpns[number],
            remote_qpn=self._qpns[other],
            remote_port=port.number,
            remote_address=port.address,
            remote_udp_port=port.udp_port,
            source_port=self._source_port[pair],
            send_psn=self._psns[number],
            receive_psn=self._psns[other],
            index=self._index[pair],
            local_rate_bps=None if rate_bps == _NO_RATE else rate_bps,
            dscp=self._dscp_of.get(group),
        )


class RankQueuePairs(Sequence[QueuePairPlan]):
    """The queue pairs of one rank. The sequence equals a tuple of the same elements.

    Args:
        job: Queue pairs of the job.
        ends: Numbers of the ends that belong to the rank.
    """

    __slots__ = ("_ends", "_job")

    def __init__(self, job: JobQueuePairs, ends: Column) -> None:
        self._job = job
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[QueuePairPlan]:
        return map(self._job.end, self._ends)

    @overload
    def __getitem__(self, place: int) -> QueuePairPlan: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[QueuePairPlan, ...]: ...
    def __getitem__(
        self, place: int | slice
    ) -> QueuePairPlan | tuple[QueuePairPlan, ...]:
        if isinstance(place, slice):
            return tuple(map(self._job.end, self._ends[place]))
        return self._job.end(self._ends[place])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RankQueuePairs | tuple):
            return NotImplemented
        return tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    @property
    def are_within_hosts(self) -> bool:
        """Whether messages of any queue pair of the job stay within a host."""
        return self._job.has_local_rates

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


def peers_within_host(pairs: Sequence[QueuePairPlan]) -> set[int]:
    """Return the peers of a rank whose messages stay within its host."""
    if isinstance(pairs, RankQueuePairs) and not pairs.are_within_hosts:
        return set()
    return {pair.peer_rank for pair in pairs if pair.local_rate_bps is not None}
