"""Who the ends of a queue pair are, by the names of the Open Traffic Generator.

Rows of counters carry the number of a rank and a QPN and nothing else that stays the
same; what they stand for is joined when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from chakram.addresses import family_of
from chakram.results.statistics import QueuePairStatistics, columns_of

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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePairEnds:
    """A queue pair and its peer, seen from the side that sends.

    ``source_port`` and ``destination_port`` are what the ports are in the topology,
    None if unknown here; ``peer`` is the number of the rank at the other end.
    """

    flow_name: str
    source_port: str | None
    destination_port: str | None
    qpn: int
    peer: int
    peer_qpn: int
    source_address: str | None
    destination_address: str

    def document(self) -> dict[str, object]:
        """Return it by the names of the Open Traffic Generator."""
        family = family_of(self.destination_address)
        return {
            "flow_name": self.flow_name,
            "port_tx": self.source_port,
            "port_rx": self.destination_port,
            "src_qp": self.qpn,
            "dest_qp": self.peer_qpn,
            f"src_{family}": self.source_address,
            f"dest_{family}": self.destination_address,
        }


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
        job = rank.program.job
        return QueuePairEnds(
            flow_name=flow_name(
                job,
                pair.group,
                pair.channel,
                pair.index,
                rank=rank.program.rank,
                peer=pair.peer_rank,
            ),
            source_port=own.host if own is not None else None,
            destination_port=other.host if other is not None else None,
            qpn=pair.qpn,
            peer=self._numbers.get((job, pair.peer_rank), -1),
            peer_qpn=pair.remote_qpn,
            source_address=own.address if own is not None else None,
            destination_address=pair.remote_address,
        )
