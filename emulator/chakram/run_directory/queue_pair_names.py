"""Who the ends of a queue pair are, by the names of the Open Traffic Generator.

Rows of counters carry the number of a rank and a QPN and nothing else that stays the
same; what they stand for is joined when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from chakram.foundation.ip_addresses import family_of
from chakram.records.counter_definitions import QueuePairStatistics, columns_of

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan, QueuePairPlan, RankPlan


COUNTED = columns_of(QueuePairStatistics)
"""The columns of a queue pair that count."""

PORT_SUMS = {
    name: f"payload_{name}" if name in ("tx_bytes", "rx_bytes") else name
    for name in COUNTED
}
"""By counter of a queue pair, what its sum over those of a port is called there.

The bytes of a port itself are those of layer 2, hence another name.
"""

_RANKS_AT_HAND = 64


def flow_name(
    job: str, group: str, channel: int, index: int, *, rank: int, peer: int
) -> str:
    """Return what the messages on one queue pair, in one direction, are called."""
    return f"{job}/{group}/{channel}.{index}/{rank}>{peer}"


class QueuePairEnds(NamedTuple):
    """A queue pair, by the names of the Open Traffic Generator, and its peer.

    ``peer`` is the number of the rank at the other end.
    """

    document: dict[str, object]
    peer: int
    peer_qpn: int


class QueuePairNames:
    """Finds the ends of the queue pairs of some agents.

    Args:
        agents: Their plans: those of a run, or the one that an agent has.
    """

    def __init__(self, agents: Iterable[AgentPlan]) -> None:
        agents = list(agents)
        self._ports = {port.number: port for each in agents for port in each.ports}
        self._ranks = {rank.number: rank for each in agents for rank in each.ranks}
        self._numbers = agents[0].numbers() if agents else {}
        # Of a thousand ranks a page shows a few; all pairs at once would be a million.
        self._pairs = lru_cache(_RANKS_AT_HAND)(self._pairs_of)

    def hosts(self) -> dict[int, str]:
        """Return by number of a port its host."""
        return {number: port.host for number, port in sorted(self._ports.items())}

    def place(self, number: int) -> tuple[int, int] | None:
        """Return port and shard of the rank with *number*, None if it is not here."""
        rank = self._ranks.get(number)
        return None if rank is None else (rank.port, rank.shard)

    def ends(self, number: int, qpn: int) -> QueuePairEnds | None:
        """Return the ends of a queue pair of the rank with *number*, None likewise."""
        rank = self._ranks.get(number)
        pair = self._pairs(number).get(qpn)
        return None if rank is None or pair is None else self._ends(rank, pair)

    def _pairs_of(self, number: int) -> dict[int, QueuePairPlan]:
        rank = self._ranks.get(number)
        return {} if rank is None else {pair.qpn: pair for pair in rank.queue_pairs}

    def _ends(self, rank: RankPlan, pair: QueuePairPlan) -> QueuePairEnds:
        own, other = self._ports.get(rank.port), self._ports.get(pair.remote_port)
        job, place = rank.program.job, (pair.group, pair.channel, pair.index)
        name = flow_name(job, *place, rank=rank.program.rank, peer=pair.peer_rank)
        family = family_of(pair.remote_address)
        document: dict[str, object] = {
            "flow_name": name,
            "port_tx": own.host if own is not None else None,
            "port_rx": other.host if other is not None else None,
            "src_qp": pair.qpn,
            "dest_qp": pair.remote_qpn,
            f"src_{family}": own.address if own is not None else None,
            f"dest_{family}": pair.remote_address,
        }
        peer = self._numbers.get((job, pair.peer_rank), -1)
        return QueuePairEnds(document, peer, pair.remote_qpn)
