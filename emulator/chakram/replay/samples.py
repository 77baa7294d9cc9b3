# cython: language_level=3, annotation_typing=False, boundscheck=False
# cython: wraparound=False, initializedcheck=False
"""Samples of ports and queue pairs over time, for the records of a run.

In each bin, every port and queue pair that has changed since its last sample gets a
row. Counters are cumulative from the start of the run, so skipping a row only reduces
the resolution. If the number of rows per bin is limited, queue pairs get rows in
rotation. Bins become longer as rows accumulate. This limits the size of the table in a
long run with many queue pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from chakram.native.append_rows import append_values
from chakram.records.counter_definitions import (
    PortStatistics,
    QueuePairStatistics,
    columns_of,
    row_of,
    row_reader,
)
from chakram.records.row_layout import PORT_FIELDS, SHARE_UNIT, RecordRows

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan
    from chakram.replay.endpoint import Endpoint
    from chakram.roce.queue_pair import QueuePair


ROWS_PER_BIN_LENGTH = 50_000
"""Number of rows after which the bin length doubles."""

_COLUMNS = columns_of(PortStatistics)
_invalid = itemgetter(
    *(at for at, name in enumerate(_COLUMNS) if name.startswith("invalid_"))
)
_PAUSED = _COLUMNS.index("paused_ns")
# Index of each value in the complete list. A duplicate name has its last index.
_PLACES = {
    name: at
    for at, name in enumerate(
        (
            *_COLUMNS,
            "invalid_packets",
            "injected_disturbances",
            "shard",
            "rx_bytes",
            "socket_drops",
            "send_retries",
            "paused_ns",
        )
    )
}
_behind_number = itemgetter(*(_PLACES[name] for name in PORT_FIELDS[2:]))
_pair_columns = row_reader(QueuePairStatistics)


class _Sampled:
    """A queue pair with its rank and peer, and its state at the last sample.

    Attributes:
        seen: `QueuePair.happenings` of the queue pair at the last sample.
    """

    __slots__ = ("pair", "peer", "rank", "seen")

    def __init__(self, pair: QueuePair, rank: int, peer: int) -> None:
        self.pair = pair
        self.rank = rank
        self.peer = peer
        self.seen = 0


class Sampler:
    """Takes samples of the ports and queue pairs of endpoints.

    Args:
        endpoints: Endpoints to sample.
        plans: Plans of their agents.
        port_row: Returns the values of ``PORT_FIELDS`` that follow time and number. It
            is called with the index of an endpoint and the result of
            `PortEngine.sampled`.
        bin_ns: Time between two samples; 0: samples are taken only at the end.
        most_looked_at: Maximum number of queue pairs to examine per bin.
        most_rows: Maximum number of queue pairs that get a row per bin.
        turns_per_bin: Number of calls of `turn` over which the samples of a bin's queue
            pairs are spread. Queue pairs that are left when the next bin begins are
            examined then.

    Attributes:
        rows: Rows taken so far.
        bin_ns: Current bin length.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        plans: Iterable[AgentPlan],
        *,
        port_row: Callable[[int, tuple[int, ...], int], tuple[int, ...]],
        bin_ns: int,
        most_looked_at: int = 1 << 30,
        most_rows: int = 1 << 30,
        turns_per_bin: int = 1,
    ) -> None:
        self.rows = RecordRows()
        self.bin_ns = bin_ns
        self._endpoints = endpoints
        self._port_row = port_row
        self._most_looked_at = most_looked_at
        self._most_rows = most_rows
        self._turns_per_bin = turns_per_bin
        # In this bin: queue pairs still to examine, and rows still allowed.
        self._pairs_left = 0
        self._rows_left = 0
        self._next_ns = 0
        self._taken = 0
        self._turn = 0
        self._ports_seen: dict[int, tuple[int, ...]] = {}
        owners: dict[tuple[int, int], tuple[int, int]] = {}
        for plan in plans:
            owners |= queue_pair_owners(plan)
        self._pairs = [
            _Sampled(pair, *owners[endpoint.port.number, pair.qpn])
            for endpoint in endpoints
            for pair in endpoint.engine.queue_pairs()
        ]

    def turn(self, now_ns: int) -> None:
        """Take the samples that are due: all ports once per bin, then queue pairs."""
        if self.bin_ns and now_ns >= self._next_ns:
            # Examine the queue pairs left over from the last bin, which had too few
            # turns for them.
            self._sample_pairs(self._pairs_left, now_ns)
            self._next_ns = now_ns + self.bin_ns
            self._sample_ports(now_ns)
            self._pairs_left = min(self._most_looked_at, len(self._pairs))
            self._rows_left = self._most_rows
            self._count(len(self._endpoints))
        if self._pairs_left:
            share = -(
                -min(self._most_looked_at, len(self._pairs)) // self._turns_per_bin
            )
            self._sample_pairs(share, now_ns)

    def _sample_pairs(self, most: int, now_ns: int) -> None:
        """Sample up to *most* of the remaining queue pairs of this bin."""
        rows = 0
        pairs, turn, allowed = self._pairs, self._turn, self._rows_left
        count = min(most, self._pairs_left)
        self._pairs_left -= count
        for _ in range(count):
            entry = pairs[turn]
            turn += 1
            if turn == len(pairs):
                turn = 0
            if entry.pair.happenings() != entry.seen:
                self._sample_pair(entry, now_ns)
                rows += 1
            if rows == allowed:
                self._pairs_left = 0
                break
        self._turn = turn
        self._rows_left -= rows
        self._count(rows)

    def finish(self, now_ns: int) -> None:
        """Take the final sample of everything. Without bins, it is the only sample."""
        self._sample_ports(now_ns)
        for entry in self._pairs:
            if entry.pair.happenings() != entry.seen:
                self._sample_pair(entry, now_ns)

    def _count(self, rows: int) -> None:
        self._taken += rows
        if self._taken >= ROWS_PER_BIN_LENGTH:
            self._taken = 0
            self.bin_ns *= 2

    def _sample_ports(self, now_ns: int) -> None:
        for at, endpoint in enumerate(self._endpoints):
            row = self._port_row(at, *endpoint.engine.sampled())
            number = endpoint.port.number
            if self._ports_seen.get(number) != row:
                self._ports_seen[number] = row
                append_values(self.rows.ports, [now_ns, number, *row])

    def _sample_pair(self, entry: _Sampled, now_ns: int) -> None:
        """Add a row for a queue pair that has changed since its last row."""
        pair = entry.pair
        entry.seen = pair.happenings()
        parts = {"requester": pair.requester, "responder": pair.responder}
        append_values(
            self.rows.queue_pairs,
            [
                *(now_ns, entry.rank, entry.peer, pair.qpn),
                *_congestion_values(*pair.congestion()),
                *_pair_columns(parts),
            ],
        )


def port_values(
    counted: tuple[int, ...],
    disturbances: int,
    *,
    shard: int,
    rx_bytes: int,
    socket_drops: int,
    send_retries: int,
    paused_ns: int | None = None,
) -> tuple[int, ...]:
    """Return the values of ``PORT_FIELDS`` that follow time and number.

    Args:
        counted: Counters of the port that have columns.
        disturbances: Number of packets disturbed by faults other than drops.
        shard: Number of the shard.
        rx_bytes: Number of bytes received.
        socket_drops: Number of packets dropped because a socket buffer was full.
        send_retries: Number of failed sends, for example for lack of buffer space.
        paused_ns: Pause time, if a more accurate value than the one in *counted* is
            known.
    """
    row: tuple[int, ...] = _behind_number(
        (
            *counted,
            sum(_invalid(counted)),
            disturbances,
            shard,
            rx_bytes,
            socket_drops,
            send_retries,
            counted[_PAUSED] if paused_ns is None else paused_ns,
        )
    )
    return row


def queue_pair_owners(plan: AgentPlan) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the plan numbers of rank and peer by (port, QPN)."""
    numbers = plan.numbers()
    return {
        (rank.port, pair.qpn): (rank.number, numbers[rank.program.job, pair.peer_rank])
        for rank in plan.ranks
        for pair in rank.queue_pairs
    }


def queue_pair_row(
    time_ns: int, rank: int, peer: int, qpn: int, counters: QueuePairStatistics
) -> tuple[int, ...]:
    """Return the values of ``QUEUE_PAIR_FIELDS``."""
    return (
        *(time_ns, rank, peer, qpn),
        *_congestion_values(counters.rate_bps, counters.target_bps, counters.alpha),
        *row_of(counters),
    )


def _congestion_values(
    rate_bps: int | None, target_bps: int | None, alpha: float | None
) -> tuple[int, int, int]:
    return (
        rate_bps or 0,
        target_bps or 0,
        -1 if alpha is None else round(alpha * SHARE_UNIT),
    )
