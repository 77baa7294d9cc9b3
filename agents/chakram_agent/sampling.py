"""Samples of ports and queue pairs over time, for the record of a run.

Every bin, what has changed since its last sample gets a row. Values count from the
start of the run, so a row that is not taken costs resolution and nothing else. Queue
pairs take turns if many have changed at once, and when the rows get many the bins get
longer: a long run of many queue pairs stays a table that one can open.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from chakram.replay.samples import queue_pair_owners, queue_pair_row
from chakram.results.records import PORT_FIELDS, RecordRows
from chakram.results.statistics import (
    PortStatistics,
    columns_of,
    counters_of,
    row_of,
)

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan
    from chakram.roce.queue_pair import QueuePair
    from chakram_agent.dataplane.loop import DataPlane, Line

__all__ = ["Sampler", "port_row"]

LOOKED_AT_PER_BIN = 512
ROWS_PER_BIN = 64
"""A snapshot takes a few microseconds, and while it is taken no packet moves."""

ROWS_PER_BIN_LENGTH = 50_000
"""After so many rows bins are twice as long."""

_COLUMNS = columns_of(PortStatistics)
_INVALID = tuple(name for name in _COLUMNS if name.startswith("invalid_"))
_disturbances = attrgetter(
    *(
        counter.name
        for counter in counters_of(PortStatistics)
        if counter.metric == "chakram_injected_disturbances_total"
    )
)


class _Pair:
    """A queue pair, who it belongs to, and when it was sampled last."""

    __slots__ = ("pair", "peer", "rank", "seen")

    def __init__(self, pair: QueuePair, rank: int, peer: int) -> None:
        self.pair = pair
        self.rank = rank
        self.peer = peer
        self.seen = (0, 0, 0, 0)

    def signature(self) -> tuple[int, int, int, int]:
        """Return what changes whenever something happens to the queue pair."""
        requester, responder = self.pair.requester, self.pair.responder
        return (
            requester.packets_sent,
            requester.acks_received + requester.cnps_received + requester.naks_received,
            responder.packets_received,
            requester.timeouts,
        )


class Sampler:
    """Samples the lines of one data plane.

    Args:
        plane: The data plane.
        plan: What it executes: the part of one shard.
        bin_ns: Time between two samples; 0: none are taken before the end.
    """

    def __init__(self, plane: DataPlane, plan: AgentPlan, *, bin_ns: int) -> None:
        self.rows = RecordRows()
        self._lines = plane.lines
        self._bin_ns = bin_ns
        self._next_ns = 0
        self._taken = 0
        self._turn = 0
        (self._shard,) = plan.shard_numbers()
        self._ports_seen: dict[int, tuple[int, ...]] = {}
        owners = queue_pair_owners(plan)
        self._pairs = [
            _Pair(pair, *owners[line.endpoint.port.number, pair.qpn])
            for line in plane.lines
            for pair in line.endpoint.engine.queue_pairs()
        ]

    def turn(self, now_ns: int) -> None:
        """Take samples if a bin has ended."""
        if not self._bin_ns or now_ns < self._next_ns:
            return
        self._next_ns = now_ns + self._bin_ns
        self._sample_ports(now_ns)
        rows = 0
        for _ in range(min(LOOKED_AT_PER_BIN, len(self._pairs))):
            entry = self._pairs[self._turn]
            self._turn = (self._turn + 1) % len(self._pairs)
            rows += self._sample_pair(entry, now_ns)
            if rows == ROWS_PER_BIN:
                break
        self._taken += rows + len(self._lines)
        if self._taken >= ROWS_PER_BIN_LENGTH:
            self._taken = 0
            self._bin_ns *= 2

    def finish(self, now_ns: int) -> None:
        """Take the last sample of everything, without bins the only one."""
        self._sample_ports(now_ns)
        for entry in self._pairs:
            self._sample_pair(entry, now_ns)

    def _sample_ports(self, now_ns: int) -> None:
        for line in self._lines:
            row = port_row(line, self._shard, line.endpoint.engine.statistics())
            number = line.endpoint.port.number
            if self._ports_seen.get(number) != row:
                self._ports_seen[number] = row
                self.rows.ports.extend((now_ns, number, *row))

    def _sample_pair(self, entry: _Pair, now_ns: int) -> bool:
        """Add a row if something has happened since the last one."""
        signature = entry.signature()
        if signature == entry.seen:
            return False
        entry.seen = signature
        self.rows.queue_pairs.extend(
            queue_pair_row(
                now_ns, entry.rank, entry.peer, entry.pair.qpn, entry.pair.statistics()
            )
        )
        return True


def port_row(line: Line, shard: int, counters: PortStatistics) -> tuple[int, ...]:
    """Return the values of ``PORT_FIELDS`` behind time and number."""
    port = line.port
    values = dict(zip(_COLUMNS, row_of(counters), strict=True))
    values.update(
        shard=shard,
        rx_bytes=line.received_bytes,
        socket_drops=port.socket_drops,
        send_retries=port.send_retries,
        invalid_packets=sum(values[name] for name in _INVALID),
        injected_disturbances=sum(_disturbances(counters)),
    )
    return tuple(values[name] for name in PORT_FIELDS[2:])
