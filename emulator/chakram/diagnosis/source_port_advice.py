"""UDP source ports that would balance the links between switches of a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.compute as pc

from chakram.collectives.groups import POINT_TO_POINT
from chakram.foundation.errors import ChakramError
from chakram.plan.plan import CREDIT_CHANNELS
from chakram.plan.queue_pairs import SHARD_BITS
from chakram.predict.routing import Router
from chakram.predict.source_ports import (
    LoadedPair,
    Loads,
    balanced_source_ports,
    loads_of,
)
from chakram.switch.ecmp import DrawnPaths

if TYPE_CHECKING:
    from chakram.fabric.fabric_types.base import FabricKind
    from chakram.run_directory.reader import RunResults
    from chakram.summary.message_summary import MessageTransport
    from chakram.topology.topology import Topology


_MOST_PAIRS = 2048
EVEN = 1.05
"""Ratio of the busiest link's load to the mean below which no change is needed."""
_GAIN = 0.01
DIVIDE = (
    "single flows are this large; more queue pairs divide them, e.g. "
    "transport.queue_pairs: {count: 4, split: even}"
)


class Advice(NamedTuple):
    """Source ports for queue pairs to use in turn, and their effect on link balance.

    ``before`` and ``after`` contain the load of the busiest link divided by the mean,
    by direction. ``before`` applies to the source ports of the run, and ``after`` to
    the proposed ports. Both are computed from paths.
    """

    source_ports: list[int]
    before: dict[str, float]
    after: dict[str, float]
    pairs: list[tuple[str, str, int, int]]
    """Ranks, group and channel, source port of the run, and proposed source port."""


def source_port_advice(
    results: RunResults,
    fabric: FabricKind,
    topology: Topology,
    transport: MessageTransport | None,
) -> Advice | str:
    """Return source ports that would balance the uplinks, or why there are none."""
    ecmp = fabric.ecmp_hash(results.manifest.seed)
    if results.manifest.nics:
        return "RDMA NICs choose their source ports"
    if isinstance(ecmp, DrawnPaths):
        return "the hash of these switches is unknown"
    if transport is None or transport.within_hosts:
        return "some ranks cannot reach each other over the fabric"
    rows = results.table("queue_pair_ends").to_pylist()
    rows = [row for row in rows if row["rank"] < row["peer"]]
    if not 0 < len(rows) <= _MOST_PAIRS:
        return (
            f"it has {len(rows)} queue pairs, but at most {_MOST_PAIRS} are supported"
        )
    rows = _in_turn(rows)
    if rows is None:
        return "ports are divided among processes, or their order is unknown"
    try:
        ports = results.ports()
        router = Router(ports=ports, topology=topology, ecmp=ecmp)
        place = {port.number: index for index, port in enumerate(ports)}
        sent = _sent(results, rows, transport.overhead_bytes)
        pairs = [
            LoadedPair(
                ends=(place[row["port"]], place[row["peer_port"]]),
                sent_bytes=(
                    sent[row["job"], row["rank"], row["qpn"]],
                    sent[row["job"], row["peer"], row["peer_qpn"]],
                ),
            )
            for row in rows
        ]
        known = [row["udp_source_port"] for row in rows]
        before = loads_of(zip(pairs, known, strict=True), router=router, ports=ports)
        was = _imbalance(before, topology)
        if max(was.values(), default=1.0) < EVEN:
            return "the uplinks are already balanced"
        chosen = balanced_source_ports(pairs, router=router, ports=ports)
        given = [chosen[turn % len(chosen)] for turn in range(len(pairs))]
        after = loads_of(zip(pairs, given, strict=True), router=router, ports=ports)
    except ChakramError as error:
        return f"paths cannot be determined: {error}"
    then = _imbalance(after, topology)
    if sum(then.values()) > sum(was.values()) - _GAIN:
        return f"no other ports are better; {DIVIDE}"
    return Advice(
        source_ports=chosen,
        before=was,
        after=then,
        pairs=[
            (
                f"{row['job']}: {row['rank']} - {row['peer']}",
                f"{row['group']}, channel {row['channel']}.{row['index']}",
                old,
                new,
            )
            for row, old, new in zip(rows, known, given, strict=True)
        ],
    )


def _in_turn(rows: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Return queue pairs in the order in which source ports were assigned to them.

    ``chakram.plan.queue_pairs.connect`` defines the order: by job, group, channel and
    ranks, with groups in the order in which ranks list them. Each queue pair precedes
    the queue pair for its grants. Queue pairs of point-to-point messages come last.
    Queue pair numbers increase at every port, which verifies the order.
    """
    jobs = list(dict.fromkeys(row["job"] for row in rows))
    groups = list(dict.fromkeys((row["job"], row["group"]) for row in rows))
    place = {key: number for number, key in enumerate(groups)}
    ordered = sorted(
        rows,
        key=lambda row: (
            jobs.index(row["job"]),
            row["group"] == POINT_TO_POINT,
            place[row["job"], row["group"]],
            row["channel"] % CREDIT_CHANNELS,
            row["rank"],
            row["peer"],
            row["channel"] >= CREDIT_CHANNELS,
            row["index"],
        ),
    )
    last: dict[int, int] = {}
    shards: dict[int, int] = {}
    for row in ordered:
        for port, qpn in (
            (row["port"], row["qpn"]),
            (row["peer_port"], row["peer_qpn"]),
        ):
            index, shard = qpn >> SHARD_BITS, qpn & ((1 << SHARD_BITS) - 1)
            if index <= last.get(port, -1) or shards.setdefault(port, shard) != shard:
                return None
            last[port] = index
    return ordered


def _sent(
    results: RunResults, rows: Iterable[dict[str, Any]], overhead: int
) -> Counter[tuple[str, int, int]]:
    """Return the number of wire bytes by job, rank and queue pair."""
    names = ["job", "src", "qpn"]
    table = results.table("flows", *names, "bytes", "packets").unify_dictionaries()
    grouped = table.group_by(names).aggregate([("bytes", "sum"), ("packets", "sum")])
    wire = pc.add(grouped["bytes_sum"], pc.multiply(grouped["packets_sum"], overhead))
    columns = (*(grouped[name].to_pylist() for name in names), wire.to_pylist())
    sent = Counter(
        {(job, src, qpn): size for job, src, qpn, size in zip(*columns, strict=True)}
    )
    transport = results.manifest.experiment.get("transport") or {}
    if (transport.get("queue_pairs") or {}).get("split") != "even":
        return sent
    # Records contain only the first of the queue pairs that share a message.
    together: defaultdict[tuple[Any, ...], list[tuple[str, int, int]]]
    together = defaultdict(list)
    for row in rows:
        key = row["job"], row["group"], row["channel"], row["rank"], row["peer"]
        together[(*key, 0)].append((row["job"], row["rank"], row["qpn"]))
        together[(*key, 1)].append((row["job"], row["peer"], row["peer_qpn"]))
    for own in together.values():
        whole = sum(sent.get(each, 0) for each in own)
        sent.update(dict.fromkeys(own, 0))
        for each in own:
            sent[each] = whole // len(own)
    return sent


def _imbalance(loads: Loads, topology: Topology) -> dict[str, float]:
    """Return the busiest switch link's load divided by the mean, by direction."""
    found = {}
    for direction, side in (("up", "a"), ("down", "b")):
        own = [loads.get(getattr(link, side), 0) for link in topology.uplinks()]
        if sum(own):
            found[direction] = max(own) * len(own) / sum(own)
    return found
