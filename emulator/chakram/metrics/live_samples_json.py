"""Last samples of queue pairs and ports during a run, served as JSON pages.

Samples arrive in batches from the data plane, or from memory shared with it. A page
adds constant properties to the samples (``chakram.run_directory.queue_pair_names``). It
derives rates from two samples of a queue pair. For each port, it also shows the sums
over the port's queue pairs.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from chakram.metrics.catalog import HOST_COUNTERS, OTHERS, host_labels
from chakram.metrics.state import MetricsState
from chakram.plan.plan import AgentPlan
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS, RecordRows
from chakram.run_directory.queue_pair_names import COUNTED, PORT_SUMS, QueuePairNames

MOST_ROWS = 1000
"""Limit on queue pairs or ports in one response."""

MOST_QUEUE_PAIRS = 100_000
"""Limit on queue pairs that pages show. A queue pair takes about 700 bytes of memory.

All other queue pairs count in the sums of their ports only. Each takes about 400 bytes.
"""

RATE_NS = 1_000_000_000
"""Shortest interval from which a rate is computed, except at the start of traffic."""

IDLE_NS = 2_000_000_000
"""Time after which a queue pair without new samples is idle, if other queue pairs of
its port have newer samples."""

MOST_RATES = 10_000
"""Limit on queue pairs whose rates are included in the metrics."""

_TIME, _RANK, _QPN = (
    QUEUE_PAIR_FIELDS.index(name) for name in ("time_ns", "rank", "qpn")
)
_HOST_OF_PORT = {
    name: PORT_FIELDS.index(name) for name in HOST_COUNTERS if name in PORT_FIELDS
}
_HOST_OF_PAIRS = {
    name: COUNTED.index(name) for name in HOST_COUNTERS if name not in PORT_FIELDS
}
_PORT, _SHARD = (PORT_FIELDS.index(name) for name in ("port", "shard"))
_FIRST_COUNT = len(QUEUE_PAIR_FIELDS) - len(COUNTED)
_NOTHING = [0] * len(COUNTED)
_SENT, _RECEIVED = (QUEUE_PAIR_FIELDS.index(name) for name in ("tx_bytes", "rx_bytes"))
_PACKETS_SENT, _PACKETS_RECEIVED = (
    QUEUE_PAIR_FIELDS.index(name) for name in ("data_frames_tx", "data_frames_rx")
)


class LiveRows:
    """The last samples of a run. One thread adds samples, and other threads read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begin(())

    def begin(self, agents: Iterable[AgentPlan]) -> None:
        """Discard all rows. Later rows belong to the plans of *agents*."""
        self.begin_of(QueuePairNames(agents))

    def begin_of(self, names: QueuePairNames) -> None:
        """Discard all rows. Later rows belong to the ranks and ports in *names*."""
        with self._lock:
            self._names = names
            # By rank and QPN: the last row, and the first rows of the current and of
            # the previous rate interval.
            self._pairs: dict[tuple[int, int], tuple[array[int], ...]] = {}
            # Last counts of queue pairs that pages do not show.
            self._left_out: dict[tuple[int, int], array[int]] = {}
            self._ports: dict[tuple[int, int], array[int]] = {}
            self._sums: dict[tuple[int, int], list[int]] = {}
            self._newest_ns: dict[tuple[int, int], int] = {}
            hosts = self._names.hosts()
            labels = host_labels(hosts.values())
            self._host_of = {port: labels[host] for port, host in hosts.items()}

    def take(self, rows: RecordRows) -> None:
        """Add samples of queue pairs and ports, and ignore other rows."""
        with self._lock:
            for row in _cut(rows.queue_pairs, len(QUEUE_PAIR_FIELDS)):
                self._take_pair(row)
            for row in _cut(rows.ports, len(PORT_FIELDS)):
                self._ports[row[_PORT], row[_SHARD]] = row

    def show(self, metrics: MetricsState) -> None:
        """Update *metrics* with counters of hosts and send rates of queue pairs."""
        hosts: dict[str, Counter[str]] = {}
        with self._lock:
            for key, row in self._ports.items():
                host = hosts.setdefault(self._host_of.get(key[0], OTHERS), Counter())
                sums = self._sums.get(key, _NOTHING)
                host.update({name: row[at] for name, at in _HOST_OF_PORT.items()})
                host.update({name: sums[at] for name, at in _HOST_OF_PAIRS.items()})
            some = islice(self._pairs.values(), MOST_RATES)
            rates = [1e9 * (self._rate(rows, _SENT) or 0.0) for rows in some]
        metrics.set_hosts(hosts)
        metrics.set_queue_pair_rates(rates)

    def pages(self) -> dict[str, Callable[[Mapping[str, str]], object]]:
        """Return the functions that create JSON documents, for ``MetricsServer``."""
        return {"/queue-pairs": self.queue_pairs, "/ports": self.ports}

    def queue_pairs(self, parameters: Mapping[str, str]) -> dict[str, object]:
        """Return up to ``MOST_ROWS`` queue pairs, starting with number ``first``.

        In the result, ``total`` is the number of available queue pairs, and
        ``left_out`` is the number of queue pairs that pages do not show.
        """
        with self._lock:
            keys = list(self._pairs)
            first, listed = _part(keys, parameters)
            return {
                "total": len(keys),
                "first": first,
                "left_out": len(self._left_out),
                "queue_pairs": [self._queue_pair(self._pairs[key]) for key in listed],
            }

    def ports(self, parameters: Mapping[str, str]) -> dict[str, object]:
        """Return up to ``MOST_ROWS`` ports. A port has one row per shard."""
        with self._lock:
            keys = sorted(self._ports)
            first, listed = _part(keys, parameters)
            return {
                "total": len(keys),
                "first": first,
                "ports": [self._port(key) for key in listed],
            }

    # ---- internal methods, which require the lock -----------------------------------

    def _take_pair(self, row: array[int]) -> None:
        key = row[_RANK], row[_QPN]
        counts = row[_FIRST_COUNT:]
        before: Iterable[int] = _NOTHING
        known = self._pairs.get(key)
        if known is not None:
            last, since, earlier = known
            if last == row:
                return  # the sample is not new
            if last[_TIME] - since[_TIME] >= RATE_NS:
                since, earlier = last, since
            self._pairs[key] = row, since, earlier
            before = last[_FIRST_COUNT:]
        elif len(self._pairs) < MOST_QUEUE_PAIRS:
            self._pairs[key] = row, row, row
        else:
            before = self._left_out.get(key, before)
            self._left_out[key] = counts
        place = self._names.place(key[0])
        if place is None:
            return
        self._newest_ns[place] = max(self._newest_ns.get(place, 0), row[_TIME])
        sums = self._sums.setdefault(place, [0] * len(COUNTED))
        for index, (now, then) in enumerate(zip(counts, before, strict=True)):
            sums[index] += now - then

    def _rate(self, rows: tuple[array[int], ...], column: int) -> float | None:
        """Return the rate of a counter in bytes per nanosecond, or None if unknown.

        The rate of an idle queue pair is 0.
        """
        row, _, earlier = rows
        place = self._names.place(row[_RANK])
        newest_ns = 0 if place is None else self._newest_ns.get(place, 0)
        if newest_ns - row[_TIME] > IDLE_NS:
            return 0.0
        time_ns = row[_TIME] - earlier[_TIME]
        return (row[column] - earlier[column]) / time_ns if time_ns > 0 else None

    def _port(self, key: tuple[int, int]) -> dict[str, int]:
        values = *self._ports[key], *self._sums.get(key, _NOTHING)
        return dict(zip((*PORT_FIELDS, *PORT_SUMS.values()), values, strict=True))

    def _queue_pair(self, rows: tuple[array[int], ...]) -> dict[str, object]:
        row = rows[0]
        found: dict[str, object] = dict(zip(QUEUE_PAIR_FIELDS, row, strict=True))
        ends = self._names.ends(row[_RANK], row[_QPN])
        if ends is not None:
            found |= ends.document
            peer = self._pairs.get((ends.peer, ends.peer_qpn))
            arrived = None if peer is None else peer[0][_PACKETS_RECEIVED]
            sent = row[_PACKETS_SENT]
            found["frame_delta"] = None if arrived is None else sent - arrived
        for name, column in (("data_tx_rate", _SENT), ("data_rx_rate", _RECEIVED)):
            rate = self._rate(rows, column)
            # Bits per nanosecond are Gbit/s.
            found[name] = None if rate is None else 8 * rate
        return found


def _cut(rows: array[int], width: int) -> Iterator[array[int]]:
    for start in range(0, len(rows), width):
        yield rows[start : start + width]


def _part(
    keys: list[tuple[int, int]], parameters: Mapping[str, str]
) -> tuple[int, list[tuple[int, int]]]:
    """Return the index of the first requested key, and the requested keys."""
    text = parameters.get("first", "0")
    first = int(text) if text.isdecimal() and len(text) < 10 else 0
    return first, keys[first : first + MOST_ROWS]
