"""Exports of a run's records, by node for ns-3, by pair of ranks, and by link.

Queue lengths and pauses come from samples of links. They have the format of ns-3's
output.
"""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from chakram.formats import ns3
from chakram.foundation.errors import DamagedRun, ResultsError

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults


_SUMMED = ("messages", "bytes")
_OF_PAIR = ("job", "src", "dst")


def _flows(results: RunResults, *names: str) -> pa.Table:
    """Return the messages of measured iterations.

    Raises:
        ResultsError: If no message was recorded.
    """
    table = results.table("flows", *names, "measured").filter(pc.field("measured"))
    if not table.num_rows:
        raise ResultsError(
            str(results.path),
            "has no messages of measured iterations",
            "use a smaller job, and let the run finish",
        )
    return table.unify_dictionaries()


def flow_times(results: RunResults) -> list[ns3.FlowTime]:
    """Return the messages of measured iterations in ns-3's format, ordered by end time.

    Each port is a node. Times are undilated and start with the first message.
    ``alone_ns`` is the lower bound on a message's time. If the bound is unknown or 0,
    as for barriers, it is the shortest time of a message of the same size between
    the same ports. It is at least 1, because ns-3 scripts divide by it.

    Raises:
        ResultsError: If no message was recorded, or the ports of ranks are unknown.
    """
    names = ["job", "src", "dst", "bytes", "posted_ns", "fct_ns"]
    bounds = ["bound_ns"] if "bound_ns" in results.columns("flows") else []
    table = _flows(results, *names, *bounds).sort_by("posted_ns")
    transport = results.message_transport()
    if transport is None:
        raise ResultsError(str(results.path), "has no plan, so its ports are unknown")
    dilation = results.manifest.dilation
    begin_ns = table["posted_ns"][0].as_py()
    count: dict[tuple[int, int], int] = {}
    found: list[ns3.FlowTime] = []
    shortest_ns: dict[tuple[int, int, int], int] = {}
    for row in table.to_pylist():
        src, dst = (
            transport.ports[row["job"], row[end]].number for end in ("src", "dst")
        )
        number = count.get((src, dst), 0)
        count[src, dst] = number + 1
        fct_ns = row["fct_ns"] // dilation
        kind = (src, dst, row["bytes"])
        shortest_ns[kind] = min(shortest_ns.get(kind, fct_ns), fct_ns)
        found.append(
            ns3.FlowTime(
                *(
                    src,
                    dst,
                    (ns3.FIRST_PORT + number) % ns3.PORTS,
                    ns3.PORT,
                    row["bytes"],
                ),
                (row["posted_ns"] - begin_ns) // dilation,
                fct_ns,
                (row.get("bound_ns") or 0) // dilation,
            )
        )
    return sorted(
        (
            each
            if each.alone_ns
            else each._replace(
                alone_ns=max(1, shortest_ns[each.src, each.dst, each.size_bytes])
            )
            for each in found
        ),
        key=lambda each: each.end_ns,
    )


def pairs_csv(results: RunResults) -> bytes:
    """Return messages and bytes of all pairs of ranks in measured iterations, as CSV.

    Raises:
        ResultsError: If no message was recorded.
    """
    grouped = _flows(results, *_OF_PAIR, "bytes").group_by(list(_OF_PAIR))
    table = grouped.aggregate([("bytes", "count"), ("bytes", "sum")])
    table = table.rename_columns([*_OF_PAIR, *_SUMMED])
    order = [(name, "ascending") for name in _OF_PAIR]
    job = table["job"].cast(pa.string())
    return _csv(table.set_column(0, "job", job).sort_by(order))


def links_csv(results: RunResults) -> bytes:
    """Return the traffic counters of each direction of every link, as CSV.

    Raises:
        ResultsError: If the run has no link counters.
    """
    table = results.table("links")
    if not table.num_rows:
        raise ResultsError(
            str(results.path),
            "has no counters of links",
            results.incomplete
            or "simulate it, run it in namespaces, or set fabric.telemetry",
        )
    own = [name for name in table.column_names if name not in ("run_id", "world")]
    return _csv(table.select(own))


def _csv(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(
        table, buffer, pyarrow.csv.WriteOptions(quoting_style="needed")
    )
    return buffer.getvalue()


class _Place(NamedTuple):
    """Node and interface of a port in ns-3's numbering.

    Hosts have the first node numbers, which are the numbers of their ports. Interfaces
    start with 1.
    """

    node: int
    is_switch: bool
    interface: int


def _places(results: RunResults) -> dict[str, _Place]:
    """Return the locations of all ports of the fabric, by port name.

    Raises:
        ResultsError: If the run ended before it wrote the table of links.
    """
    links = results.table("links", "kind", "direction", "port").to_pylist()
    ports = [each["port"] for each in links if each["port"]]
    if not ports:
        raise ResultsError(
            str(results.path), "does not list its ports", results.incomplete
        )
    hosts = dict.fromkeys(
        each["port"].partition(":")[0]
        for each in links
        if each["port"] and (each["kind"], each["direction"]) == ("host", "up")
    )
    nodes = dict.fromkeys([*hosts, *(port.partition(":")[0] for port in ports)])
    number_of = {node: number for number, node in enumerate(nodes)}
    # The order of links may differ from that of host ports. The nodes in fct.txt are
    # port numbers.
    known = {each.host: each.number for each in results.ports() if each.host in hosts}
    free = iter(sorted({*range(len(hosts))} - {*known.values()}))
    number_of |= {node: known[node] if node in known else next(free) for node in hosts}
    used: Counter[str] = Counter()
    found = {}
    for port in ports:
        node = port.partition(":")[0]
        used[node] += 1
        number = number_of[node]
        found[port] = _Place(number, number >= len(hosts), used[node])
    return found


def _samples(results: RunResults, name: str) -> tuple[list[dict[str, Any]], int]:
    """Return link samples in order of time, and the time of the first measured message.

    The samples have a value in column *name*. The class of a sample is None if the
    sample covers all classes of a port.

    Raises:
        ResultsError: If there are no samples, or no measured message.
    """
    columns = ["time_ns", "port", "traffic_class", name]
    table = results.table("link_samples", *columns).filter(pc.field(name).is_valid())
    # A switch may count all classes together, and also each class.
    is_whole = pc.is_null(table["traffic_class"])
    names = table["port"].cast(pa.string())
    has_whole = pc.is_in(names, pc.unique(names.filter(is_whole)))
    table = table.filter(pc.or_(is_whole, pc.invert(has_whole)))
    # Even runs without sampling have a final sample.
    if pc.count_distinct(table["time_ns"]).as_py() < 2:
        raise ResultsError(
            str(results.path),
            "contains no queue samples",
            "simulate packets, or use fabric.switch: model or fabric.telemetry, and "
            "set records.sample_bin below the duration of the run, but not to 0s",
        )
    ports = pc.unique(table["port"].cast(pa.string())).to_pylist()
    if unknown := sorted({*ports} - {*_places(results)}):
        raise DamagedRun(
            str(results.path / "link_samples.parquet"),
            f"names port {unknown[0]!r}, which the fabric does not have",
            "copy the run directory again",
        )
    flows = results.table("flows", "posted_ns", "measured")
    begin_ns = pc.min(flows.filter(pc.field("measured"))["posted_ns"]).as_py()
    if begin_ns is None:
        raise ResultsError(
            str(results.path), "has no measured message", results.incomplete
        )
    return table.sort_by("time_ns").to_pylist(), begin_ns


def queue_lengths(results: RunResults) -> list[ns3.QueueLength]:
    """Return the queue lengths of switches, at each sample with a changed queue.

    Raises:
        ResultsError: If there are no samples.
    """
    rows, begin_ns = _samples(results, "queue_bytes")
    places, dilation = _places(results), results.manifest.dilation
    waiting: dict[_Place, dict[int | None, int]] = defaultdict(dict)
    found = []
    for time_ns, changed in groupby(rows, key=lambda row: row["time_ns"]):
        for row in changed:
            place = places[row["port"]]
            waiting[place][row["traffic_class"]] = row["queue_bytes"]
        found += [
            ns3.QueueLength(
                (time_ns - begin_ns) // dilation, place.node, place.interface, size
            )
            for place, by_class in sorted(waiting.items())
            if place.is_switch
            and time_ns >= begin_ns
            and (size := sum(by_class.values())) >= ns3.LEAST_QUEUE_BYTES
        ]
    return found


def pause_events(results: RunResults) -> list[ns3.PauseEvent]:
    """Return when ports were paused and resumed, in order of time.

    Samples contain only the total duration of pauses. If a port had several pauses
    between two samples, the result has one pause of their total duration.

    Raises:
        ResultsError: If there are no samples.
    """
    rows, begin_ns = _samples(results, "paused_ns")
    places, dilation = _places(results), results.manifest.dilation
    before: dict[tuple[str, int | None], tuple[int, int, bool]] = {}
    found = []

    def tell(time_ns: int, port: str, pauses: bool) -> None:
        place = places[port]
        at_ns = max(0, time_ns - begin_ns) // dilation
        event = ns3.PauseEvent(
            at_ns, place.node, place.is_switch, place.interface, pauses
        )
        found.append(event)

    for row in rows:
        key = (row["port"], row["traffic_class"])
        last_ns, sum_ns, rests = before.get(key, (0, 0, False))
        time_ns, rested_ns = row["time_ns"], row["paused_ns"] - sum_ns
        if rests and rested_ns < time_ns - last_ns:
            tell(last_ns + rested_ns, row["port"], False)
            rests = False
        elif rested_ns and not rests:
            tell(time_ns - rested_ns, row["port"], True)
            rests = True
        before[key] = time_ns, row["paused_ns"], rests
    for (port, _), (last_ns, _, rests) in before.items():
        # If the run is incomplete, the end of the last pause is unknown.
        if rests and not results.incomplete:
            tell(last_ns, port, False)
    return sorted(found, key=lambda each: each.time_ns)
