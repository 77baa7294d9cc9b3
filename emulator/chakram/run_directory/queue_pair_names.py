"""Names of queue pairs and their ends, as in the Open Traffic Generator.

Rows of counters identify a queue pair by rank number and QPN only. Readers add the
names to the rows.
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
"""The counter columns of a queue pair."""

PORT_SUMS = {
    name: f"payload_{name}" if name in ("tx_bytes", "rx_bytes") else name
    for name in COUNTED
}
"""Column of ports that contains the sum of a queue pair counter, by counter.

Ports have separate counters of layer-2 bytes, so the sums of payload have other names.
"""

_RANKS_AT_HAND = 64


def flow_name(
    job: str, group: str, channel: int, index: int, *, rank: int, peer: int
) -> str:
    """Return the flow name for the messages of a queue pair in one direction."""
    return f"{job}/{group}/{channel}.{index}/{rank}>{peer}"


class QueuePairEnds(NamedTuple):
    """Names and addresses of a queue pair's ends, and the queue pair at the other end.

    ``document`` has the names of the Open Traffic Generator. ``peer`` is the number of
    the rank at the other end.
    """

    document: dict[str, object]
    peer: int
    peer_qpn: int


class QueuePairNames:
    """Lookup of the ends of queue pairs.

    Args:
        agents: Plans of all agents of a run, or of a single agent.
    """

    def __init__(self, agents: Iterable[AgentPlan]) -> None:
        agents = list(agents)
        self._ports = {port.number: port for each in agents for port in each.ports}
        self._ranks = {rank.number: rank for each in agents for rank in each.ranks}
        self._numbers = agents[0].numbers() if agents else {}
        # A thousand ranks may have a million queue pairs in total, but a page shows the
        # queue pairs of only a few ranks.
        self._pairs = lru_cache(_RANKS_AT_HAND)(self._pairs_of)

    def hosts(self) -> dict[int, str]:
        """Return the host of each port, by port number."""
        return {number: port.host for number, port in sorted(self._ports.items())}

    def place(self, number: int) -> tuple[int, int] | None:
        """Return port and shard of rank *number*, or None if the rank is unknown."""
        rank = self._ranks.get(number)
        return None if rank is None else (rank.port, rank.shard)

    def ends(self, number: int, qpn: int) -> QueuePairEnds | None:
        """Return the ends of a queue pair of rank *number*, or None if unknown."""
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
