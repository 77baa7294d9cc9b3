"""Timeline of a run for Perfetto: events in Chrome's trace format.

Ranks are processes, and their process groups and streams are threads. Collectives and
computations are slices. A message is an arrow from the sender's slice to the
receiver's. Counters show the load of ports and links and the length of queues over
time. Chakram writes events as it produces them. Even for a million messages, it needs
little memory in addition to the columns of the flows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc

from chakram.report.run.data import NicTraffic, RunData
from chakram.report.run.flows import Shares, shares_of
from chakram.report.run.links_over_time import LinksOverTime, links_over_time
from chakram.run_directory.added_flow_columns import paths_of_text

_FIRST_GROUP, _FIRST_STREAM = 1_000_000, 2_000_000
"""First thread numbers of groups and streams.

Iterations use the process number as their thread number, because Perfetto treats that
thread as the main thread of the process.
"""

_LEAST_NS = 0.01
"""Offset of times in ns: larger than the rounding error of a time in us, but invisible.

Readers truncate times to whole ns. Without the offset, an event could start before the
end of the previous event.
"""

_QUEUES = 64
"""Maximum number of queue counters, which show the longest queues."""

_CHUNK = 20_000
"""Number of messages whose columns are converted to Python numbers at once."""


def write_timeline(data: RunData, write: Callable[[bytes], object]) -> Counter[str]:
    """Write the timeline of a run and return the number of events of each kind.

    Args:
        data: Data of the run.
        write: Function that takes the next bytes of the JSON.

    Raises:
        RunDirectoryError: If the run cannot be read.
    """
    manifest = data.manifest
    facts = {
        "run_id": manifest.run_id,
        "name": manifest.name,
        "world": manifest.world,
        "status": manifest.status,
        "dilation": manifest.dilation,
        "time": "since the first rank began, undilated",
    }
    write(b'{"displayTimeUnit":"ns","otherData":')
    write(json.dumps(facts).encode())
    write(b',"traceEvents":[\n')
    counts: Counter[str] = Counter()
    separator = ""
    for lines in _events(data, counts):
        write(f"{separator}{lines}".encode())
        separator = ",\n"
    write(b"\n]}\n")
    return counts


def _events(data: RunData, counts: Counter[str]) -> Iterator[str]:
    """Yield pieces of JSON, each with one or more events separated by commas."""
    shares = shares_of(data.flows)
    threads = _threads(data, shares)
    names = data.flows.names
    # The numbers include ranks that have not ended an iteration.
    numbers = data.results.rank_numbers()
    number_of = {place: number + 1 for place, number in numbers.items()}
    number_of |= {(rank.job, rank.rank): rank.number + 1 for rank in data.ranks}
    hosts = {} if data.transport is None else data.transport.ports
    yield _named("process_name", "ports and links", pid=0)
    several = len({job for job, _ in number_of}) > 1
    for (job, rank), pid in number_of.items():
        port = hosts.get((job, rank))
        label = f"{job} rank {rank}" if several else f"rank {rank}"
        label += f" at {port.host}" if port is not None else ""
        yield _named("process_name", label, pid=pid)
        yield _event("M", pid=pid, name="process_sort_index", args={"sort_index": pid})
    for record in data.ranks:
        start_ns = data.undilated(record.start_ns)
        counts["iterations"] += 1
        yield _event(
            "X",
            pid=number_of[record.job, record.rank],
            tid=number_of[record.job, record.rank],
            ts=_us(start_ns),
            dur=max(0, data.undilated(record.end_ns) - start_ns) / 1000,
            name=f"iteration {record.iteration}",
            args={
                "measured": record.measured,
                "compute_us": record.compute_ns / data.dilation / 1000,
                "exposed_us": record.exposed_ns / data.dilation / 1000,
                "idle_us": record.idle_ns / data.dilation / 1000,
            },
        )
    for pid in number_of.values():
        yield _named("thread_name", "iterations", pid=pid, tid=pid)
    pids = np.zeros(len(shares), np.int64)
    places = zip(shares["job"].tolist(), shares["rank"].tolist(), strict=True)
    for at, (job_number, rank) in enumerate(places):
        pids[at] = number_of.get((str(names["job"][job_number]), rank), 0)
    tids = np.array([tid for tid, _ in threads], np.int64)
    called = dict(
        zip(zip(pids.tolist(), tids.tolist(), strict=True), threads, strict=True)
    )
    for (pid, tid), (_, text) in called.items():
        yield _named("thread_name", text, pid=pid, tid=tid)
    # A reader processes events by time, then by position in the file. It attaches an
    # arrow to the slice that is open at that point. Arrow heads therefore come before
    # slices that start at that time, and arrow tails after them.
    total = len(data.flows)
    yield from _arrows(data, shares.places[total:], pids, tids, "f", counts)
    for at in range(len(shares)):
        counts["slices"] += 1
        own = {name: int(column[at]) for name, column in shares.columns.items()}
        yield _event(
            "X",
            pid=int(pids[at]),
            tid=int(tids[at]),
            ts=_us(own["start_ns"]),
            dur=(own["end_ns"] - own["start_ns"]) / 1000,
            name=str(names["collective"][own["collective"]]),
            args={
                "group": names["group"][own["group"]],
                **{name: own[name] for name in ("k", "iteration", "sent_bytes")},
            },
        )
    yield from _computations(data, number_of, counts)
    yield from _arrows(data, shares.places[:total], pids, tids, "s", counts)
    yield from _counters(data, counts)


def _computations(
    data: RunData, number_of: Mapping[tuple[str, int], int], counts: Counter[str]
) -> Iterator[str]:
    """Yield the computations of ranks, with a thread for each stream of a rank."""
    names = ("job", "rank", "iteration", "name", "stream", "start_ns", "end_ns")
    table = data.results.table("operations", "kind", *names)
    table = table.filter(pc.field("kind") == "compute")
    threads: dict[tuple[int, object], int] = {}
    for row in zip(*(table[name].to_pylist() for name in names), strict=True):
        job, rank, iteration, name, stream, start_ns, end_ns = row
        pid = number_of.get((job, rank))
        if pid is None:
            continue  # a damaged run, in which no other table has this rank
        if (pid, stream) not in threads:
            tid = threads[pid, stream] = _FIRST_STREAM + len(threads)
            label = "compute" if stream is None else f"compute, stream {stream}"
            yield _named("thread_name", label, pid=pid, tid=tid)
        counts["computations"] += 1
        yield _event(
            "X",
            pid=pid,
            tid=threads[pid, stream],
            ts=_us(data.undilated(start_ns)),
            dur=(end_ns - start_ns) / data.dilation / 1000,
            name=name,
            args={"iteration": iteration},
        )


def _threads(data: RunData, shares: Shares) -> list[tuple[int, str]]:
    """Return the number and name of the thread that shows each rank's share.

    Slices of one thread must not overlap, so a group has several threads if shares of
    the same rank overlap.
    """
    found: list[tuple[int, str]] = [(0, "")] * len(shares)
    ends: dict[tuple[int, int, int], list[int]] = {}
    known: dict[tuple[int, int, int, int], int] = {}
    count: Counter[tuple[int, int]] = Counter()
    order = np.lexsort([shares["end_ns"], shares["start_ns"]])
    groups = data.flows.names["group"]
    names = ("job", "rank", "group", "start_ns", "end_ns")
    rows = np.stack([shares[name][order] for name in names], axis=1)
    for at, (job, rank, group, start, end) in zip(
        order.tolist(), rows.tolist(), strict=True
    ):
        # The messages of all pairs of a rank share threads, because a rank may have a
        # thousand pairs.
        is_message = str(groups[group]).startswith("p2p:")
        key = job, rank, -1 if is_message else group
        lanes = ends.setdefault(key, [])
        lane = next(
            (number for number, free in enumerate(lanes) if free <= start), len(lanes)
        )
        if lane == len(lanes):
            lanes.append(end)
            count[job, rank] += 1
            known[(*key, lane)] = _FIRST_GROUP + count[job, rank]
        lanes[lane] = end
        label = "messages" if is_message else f"group {groups[group]}"
        found[at] = known[(*key, lane)], f"{label} ({lane + 1})" if lane else label
    return found


def _arrows(
    data: RunData, places: Any, pids: Any, tids: Any, end: str, counts: Counter[str]
) -> Iterator[str]:
    """Yield the start (``s``) or end (``f``) of each message's arrow, in batches.

    *places* are the indices of the ranks' slices at that end. Perfetto does not draw an
    arrow without a slice.
    """
    flows = data.flows
    tail = end == "s"
    time_ns = flows["first_sent_ns" if tail else "last_acked_ns"]
    columns = [pids[places], tids[places], (time_ns + _LEAST_NS) / 1000]
    columns += [flows[name] for name in ("bytes", "step", "retransmitted")]
    for first in range(0, len(flows), _CHUNK):
        part = [column[first : first + _CHUNK].tolist() for column in columns]
        lines = []
        for number, row in enumerate(zip(*part, strict=True), first + 1):
            pid, tid, time_us, size, step, again = row
            resent = "null" if again < 0 else again
            more = (
                f',"args":{{"bytes":{size},"step":{step},"sent_again":{resent}}}'
                if tail
                else ',"bp":"e"'
            )
            lines.append(
                f'{{"ph":"{end}","id":{number},"cat":"flow","name":"message",'
                f'"pid":{pid},"tid":{tid},"ts":{time_us:.5f}{more}}}'
            )
        if tail:
            counts["arrows"] += len(lines)
        yield ",\n".join(lines)


def _counters(data: RunData, counts: Counter[str]) -> Iterator[str]:
    """Yield the load of ports and of links between switches, and the longest queues."""
    for name, (unit, values) in _series(data).items():
        before = None
        lines = []
        for number, value in enumerate([*values.round(6).tolist(), 0.0]):
            if value != before:
                before = value
                time_us = _us(round(number * data.bin_ns))
                lines.append(
                    _event("C", pid=0, ts=time_us, name=name, args={unit: value})
                )
        counts["counters"] += len(lines)
        yield ",\n".join(lines)


def _series(data: RunData) -> dict[str, tuple[str, Any]]:
    """Return time series by name: the unit, and a value for each time bin."""
    series: dict[str, tuple[str, Any]] = {}
    if isinstance(data.nics, NicTraffic):
        ports = {} if data.transport is None else data.transport.ports
        rates = {
            port.host: (port.rate_bps or 0) * data.dilation / 1e9
            for port in ports.values()
        }
        for at, host in enumerate(data.nics.hosts):
            for side in ("transmit", "receive"):
                shares = getattr(data.nics, side)[at]
                series[f"{host} {side}"] = "Gbit/s", shares * rates[host]
    for name, values in _links(data).items():
        series[name] = "Gbit/s", values
    sampled = links_over_time(data)
    if isinstance(sampled, LinksOverTime):
        longest = sampled.queue_max_bytes.max(axis=1)
        for at in np.argsort(-longest, kind="stable")[:_QUEUES].tolist():
            if longest[at]:
                name = f"queue at {sampled.ports[at]}"
                if sampled.classes[at] >= 0:
                    name += f", class {sampled.classes[at]}"
                series[name] = "bytes", sampled.queue_max_bytes[at].astype(float)
    return series


def _links(data: RunData) -> dict[str, Any]:
    """Return the rates of links between switches over time, from the paths of flows."""
    flows, topology = data.flows, data.topology
    if isinstance(topology, str) or data.transport is None or not data.end_ns:
        return {}
    link_at = {at: " ".join(way) for at, way in topology.uplink_ports().items()}
    numbers = {name: number for number, name in enumerate(link_at.values())}
    wire = flows["bytes"] + flows["packets"] * data.transport.overhead_bytes
    order = np.argsort(flows["path"], kind="stable")
    bounds = np.searchsorted(flows["path"][order], range(len(flows.names["path"]) + 1))
    found: list[tuple[Any, Any, Any]] = []
    for path, first, last in zip(
        flows.names["path"], bounds[:-1], bounds[1:], strict=True
    ):
        own = order[first:last]
        ways = paths_of_text(path or "")
        for port in (port for way in ways for port in way if port in link_at):
            row = np.full(len(own), numbers[link_at[port]])
            found.append((own, row, wire[own] / len(ways)))
    if not found:
        return {}
    which, rows, parts = map(np.concatenate, zip(*found, strict=True))
    times = flows["first_sent_ns"][which], flows["last_acked_ns"][which]
    total = data.binned(rows, *times, parts, count=len(numbers))
    return {name: total[number] * 8 / data.bin_ns for name, number in numbers.items()}


def _named(what: str, name: str, **place: int) -> str:
    return _event("M", **place, name=what, args={"name": name})


def _us(time_ns: float) -> float:
    """Convert ns to us so that truncating to whole ns gives the same time."""
    return round((time_ns + _LEAST_NS) / 1000, 5)


def _event(phase: str, **fields: object) -> str:
    return json.dumps(
        {"ph": phase, "cat": "run", **fields}, separators=(",", ":"), allow_nan=False
    )
