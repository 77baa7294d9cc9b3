"""Messages, times and counters of a run on a network, or of its simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow.compute as pc

from chakram.analysis.simulation_misfit import Message, Pair, pauses
from chakram.diagnosis.counterfactual import (
    PlannedVariant,
    Rerun,
    recorded_iterations,
)
from chakram.foundation.errors import InputError
from chakram.foundation.grouping import grouped
from chakram.foundation.ip_addresses import IPV4
from chakram.predict.routing import Router, ports_of
from chakram.records.named_rows import OperationTable
from chakram.records.row_layout import FlowRow, rows_of
from chakram.run_directory.reader import RunResults
from chakram.topology.topology import Topology

Messages = tuple[dict[int, list[Message]], dict[int, list[int]]]
"""Messages, and iteration times of all jobs in ns, both by iteration number."""

End = tuple[str, int, int]
"""End of a queue pair: job, rank and queue pair number."""

_CLOCKS = 0.02
"""Maximum uncertainty of the clocks, as a share of a usable delivery time."""

_PACKETS = ("data_frames", "ack", "nak", "cnp")


def measured_messages(results: RunResults, job: str | None) -> Messages:
    """Return the messages and times of measured iterations, by iteration number."""
    names = [
        *("job", "iteration", "src", "dst", "posted_ns", "last_acked_ns"),
        *("packets", "retransmitted", "received_ns"),
    ]
    flows = results.table("flows", *names, "measured")
    flows = flows.filter(pc.field("measured"))
    recorded_ns = recorded_iterations(results, job)
    columns = [flows[name].to_pylist() for name in names]
    least_ns = results.manifest.clock_uncertainty_ns / _CLOCKS
    of_iteration: dict[int, list[Message]] = {}
    for (
        name,
        iteration,
        src,
        dst,
        posted_ns,
        acked_ns,
        packets,
        again,
        received_ns,
    ) in zip(*columns, strict=True):
        if (name, iteration) not in recorded_ns:
            continue
        time_ns = max(0, acked_ns - posted_ns)
        delivered_ns = None if received_ns is None else received_ns - posted_ns
        if delivered_ns is not None and not least_ns <= delivered_ns <= time_ns:
            delivered_ns = None
        of_iteration.setdefault(iteration, []).append(
            Message(Pair(name, src, dst), time_ns, packets, again, delivered_ns)
        )
    # Only a damaged table has iterations that end before they start.
    times_ns = {
        iteration: each_ns
        for iteration, each_ns in _by_iteration(recorded_ns).items()
        if min(each_ns) > 0
    }
    if not times_ns:
        raise InputError(
            str(results.path), "has no measured iteration that all ranks finished"
        )
    return of_iteration, times_ns


def _by_iteration(times_ns: Mapping[tuple[str, int], int]) -> dict[int, list[int]]:
    return grouped((at, time_ns) for (_, at), time_ns in times_ns.items())


def simulated_messages(run: Rerun, job: str | None) -> Messages:
    """Return the messages and times of simulated iterations, by iteration number."""
    table = OperationTable(run.plan)
    flows: dict[int, list[Message]] = {}
    iterations_ns = run.iterations_ns(job)
    for row in rows_of(FlowRow, run.result.records.flows):
        name, src = table.rank(row.rank)
        if (name, row.iteration) in iterations_ns:
            pair = Pair(name, src, table.rank(row.peer)[1])
            message = Message(
                pair,
                time_ns=row.last_acked_ns - row.posted_ns,
                packets=row.packets,
                retransmitted=row.retransmitted,
                delivered_ns=None
                if row.received_ns < 0
                else row.received_ns - row.posted_ns,
            )
            flows.setdefault(row.iteration, []).append(message)
    return flows, _by_iteration(iterations_ns)


def _begin_and_end(results: RunResults) -> tuple[int, int]:
    ranks = results.table("ranks", "start_ns", "end_ns")
    begin_ns = pc.min(ranks["start_ns"]).as_py()
    return begin_ns or 0, pc.max(ranks["end_ns"]).as_py() or 0


def generator_waits(results: RunResults) -> dict[str, float]:
    """Return the share of the run for which the data plane of each host was late."""
    begin_ns, end_ns = _begin_and_end(results)
    names = ("port", "host", "generator_wait_ns")
    table = results.table("ports", "time_ns", *names)
    inside = (pc.field("time_ns") >= begin_ns) & (pc.field("time_ns") <= end_ns)
    table = table.filter(inside).select(list(names)).group_by(["port", "host"])
    waits: dict[str, float] = {}
    counted = [("generator_wait_ns", "max"), ("generator_wait_ns", "min")]
    for row in table.aggregate(counted).to_pylist():
        waited_ns = row["generator_wait_ns_max"] - row["generator_wait_ns_min"]
        share = waited_ns / max(1, end_ns - begin_ns)
        waits[row["host"]] = max(share, waits.get(row["host"], 0.0))
    return waits


def without_core(results: RunResults) -> dict[str, float]:
    """Return the share of the run for which the process of each host had no core."""
    plan = results.plan()
    agents = {} if plan is None else {each.number: each.agent for each in plan.ports}
    table = results.table("ports", "port", "host", "shard")
    rows = table.group_by(["port", "host", "shard"]).aggregate([]).to_pylist()
    shares: dict[str, float] = {}
    for row in rows:
        health = results.manifest.generator.get(agents.get(row["port"], ""))
        for process in () if health is None else health.shards:
            if process.shard == row["shard"]:
                share = process.queued_ns / max(1, process.wall_ns)
                shares[row["host"]] = max(share, shares.get(row["host"], 0.0))
    return shares


def is_generator_bound(results: RunResults) -> bool:
    """Return whether any collective except barriers was generator-bound.

    Barriers are so short that any host is sometimes late for a barrier.
    """
    table = results.table("collectives", "collective", "generator_bound")
    bound = table.filter(pc.field("generator_bound"))["collective"].to_pylist()
    return bool(set(bound) - {"barrier"})


def sent_and_received(
    results: RunResults,
) -> tuple[dict[End, int], dict[End, int]]:
    """Return the numbers of packets that each end of a queue pair sent and received."""
    counted = [f"{what}_{way}" for what in _PACKETS for way in ("tx", "rx")]
    ends = ["job", "rank", "qpn"]
    table = results.table("queue_pairs", *ends, *counted).group_by(ends)
    sent, received = {}, {}
    for row in table.aggregate([(name, "max") for name in counted]).to_pylist():
        end = row["job"], row["rank"], row["qpn"]
        sent[end] = sum(row[f"{each}_tx_max"] for each in _PACKETS)
        received[end] = sum(row[f"{each}_rx_max"] for each in _PACKETS)
    return sent, received


def data_and_naks(results: RunResults) -> tuple[dict[End, int], dict[End, int]]:
    """Return the numbers of data packets sent and NAKs received, by queue pair end."""
    ends, counted = ["job", "rank", "qpn"], ["data_frames_tx", "nak_rx"]
    table = results.table("queue_pairs", *ends, *counted).group_by(ends)
    sent, naks = {}, {}
    for row in table.aggregate([(name, "max") for name in counted]).to_pylist():
        end = row["job"], row["rank"], row["qpn"]
        sent[end] = row["data_frames_tx_max"] or 0
        naks[end] = row["nak_rx_max"] or 0
    return sent, naks


def counted_at_ports(results: RunResults, *names: str) -> list[int]:
    """Return the sum of each named counter over all ports of hosts."""
    table = results.table("ports", "port", *names).group_by(["port"])
    table = table.aggregate([(name, "max") for name in names])
    return [pc.sum(table[f"{name}_max"]).as_py() or 0 for name in names]


def paused_spans(results: RunResults) -> dict[str, list[tuple[int, int, int]]]:
    """Return the pauses of each fabric port: traffic class, start and end in ns."""
    names = ("port", "traffic_class", "time_ns", "paused_ns")
    table = results.table("link_samples", *names).drop_null()
    begin_ns, _ = _begin_and_end(results)
    samples: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for port, number, time_ns, paused_ns in zip(
        *(table[name].to_pylist() for name in names), strict=True
    ):
        samples.setdefault((port, number), []).append((time_ns - begin_ns, paused_ns))
    found: dict[str, list[tuple[int, int, int]]] = {}
    for (port, number), counted in samples.items():
        for at_ns, end_ns in pauses(sorted(counted)):
            found.setdefault(port, []).append((number, at_ns, end_ns))
    return found


def without_down_links(run: PlannedVariant) -> Topology:
    """Return the topology without the links that a variant assumes to be down."""
    down = {each.port for each in run.assumed if each.kind == "down"}
    links = tuple(
        link
        for link in run.topology.links
        if down.isdisjoint((str(link.a), str(link.b)))
    )
    return replace(run.topology, links=links)


def paths_of(run: PlannedVariant) -> dict[End, tuple[frozenset[str], End]]:
    """Return the egress ports and the remote end of each end of a queue pair."""
    ports = ports_of(run.plan)
    router = Router(ports=ports, topology=without_down_links(run), ecmp=run.ecmp)
    index_of = {port.number: index for index, port in enumerate(ports)}
    paths: dict[End, tuple[frozenset[str], End]] = {}
    for rank in run.plan.ranks():
        for queue_pair in rank.queue_pairs:
            if queue_pair.local_rate_bps is not None:
                continue
            ends, _ = router(
                index_of[rank.port],
                queue_pair.remote_address,
                queue_pair.remote_udp_port,
                queue_pair.source_port,
            )
            job = rank.program.job
            paths[job, rank.program.rank, queue_pair.qpn] = (
                frozenset(map(str, ends)),
                (job, queue_pair.peer_rank, queue_pair.remote_qpn),
            )
    return paths


def ways_of(run: Rerun) -> dict[Pair, frozenset[str]]:
    """Return the egress ports on the paths of each pair of ranks."""
    ways: dict[Pair, frozenset[str]] = {}
    for (job, rank, _), (ports, (_, peer, _)) in paths_of(run).items():
        pair = Pair(job, rank, peer)
        ways[pair] = ways.get(pair, frozenset()) | ports
    return ways


_HEADER_BYTES, _MORE_BYTES = 58, 20
"""Header bytes of a packet over IPv4, and additional bytes over IPv6, without FCS."""


def bytes_sent(results: RunResults, run: Rerun) -> dict[str, float]:
    """Return the number of bytes that the run itself sent over each egress port."""
    frames = [f"{each}_tx" for each in _PACKETS]
    names = ["tx_bytes", *frames]
    ends = ["job", "rank", "qpn"]
    table = results.table("queue_pairs", *ends, *names).group_by(ends)
    header = _HEADER_BYTES + _MORE_BYTES * (results.manifest.family != IPV4)
    sent = {
        (row["job"], row["rank"], row["qpn"]): row["tx_bytes_max"]
        + header * sum(row[f"{each}_max"] for each in frames)
        for row in table.aggregate([(name, "max") for name in names]).to_pylist()
    }
    over: dict[str, float] = {}
    for end, (ports, _) in paths_of(run).items():
        for port in ports:
            over[port] = over.get(port, 0.0) + sent.get(end, 0)
    return over


def duration_ns(results: RunResults) -> int:
    """Return the time from the first start to the last end over all ranks."""
    begin_ns, end_ns = _begin_and_end(results)
    return end_ns - begin_ns
