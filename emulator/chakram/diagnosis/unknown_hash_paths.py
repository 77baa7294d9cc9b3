"""Paths for the simulation of a run whose switches have an unknown hash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from chakram.analysis.paths_from_counters import FlowBytes, assign_paths
from chakram.diagnosis.counterfactual import Rerun, Variant
from chakram.predict.routing import ports_of
from chakram.records.run_records import SWITCH
from chakram.run_directory.reader import RunResults
from chakram.switch.ecmp import AssignedPaths, DrawnPaths
from chakram.topology.topology import PortRef, Topology

_SAME_BYTES = 0.02
"""Maximum share of the bytes that take a different link than the counters show."""

_SEEDS = 12
_CHOSEN = 3
_MOST_PATHS = 64
_ACKS = ("ack", "nak", "cnp")
_DATA_HEADER, _ACK_FRAME = 58, 62
"""Header bytes of a data packet and bytes of an acknowledgment over IPv4, without FCS.

Only the ratios between flows matter.
"""


def counted_paths(results: RunResults, variant: Variant, run: Rerun) -> list[Variant]:
    """Return variants whose paths agree with the bytes that the switches counted.

    The list is empty if the paths are known, or if no paths agree with the counters. It
    is also empty if a switch did not count the bytes of one of its equal-cost ports.

    Args:
        results: Results of the run.
        variant: The variant to simulate.
        run: Simulation of the variant with randomly drawn paths.
    """
    if not isinstance(run.ecmp, DrawnPaths):
        return []
    choices = {str(port) for port in run.topology.equal_cost()}
    counted = {
        each.port: each.bytes
        for each in results.links()
        if each.port is not None and each.observed == SWITCH and each.kind != "host"
    }
    if not choices or not choices <= counted.keys():
        return []
    keys: list[_Key] = []
    options: list[tuple[_Path, ...]] = []
    flows: list[FlowBytes] = []
    for key, nbytes, paths in _flows(results, run):
        if len(paths) > _MOST_PATHS:
            return []
        keys.append(key)
        options.append(paths)
        ports = tuple(tuple(str(end) for end, _ in path) for path in paths)
        flows.append(FlowBytes(nbytes, ports))
    found = {}
    for seed in range(_SEEDS if flows else 0):
        chosen, misfit = assign_paths(flows, counted, seed=seed)
        if misfit <= _SAME_BYTES:
            found[tuple(chosen)] = misfit
    numbers = {switch: at for at, switch in enumerate(run.topology.switches)}
    variants = []
    for each in sorted(found, key=lambda each: found[each])[:_CHOSEN]:
        next_hops = {
            key: {numbers[end.node]: index for end, index in paths[at]}
            for key, paths, at in zip(keys, options, each, strict=True)
        }
        variants.append(replace(variant, ecmp=AssignedPaths(next_hops=next_hops)))
    return variants


class _Arrived(NamedTuple):
    """Mean payload of data packets sent, and numbers of packets received."""

    payload: float
    data: int
    acks: int


_NOTHING = _Arrived(0.0, 0, 0)

_Key = tuple[int, int, int]
"""Numbers of the sending and receiving ports of a flow, and its source port."""

_Path = tuple[tuple[PortRef, int], ...]
"""Egress ports toward other switches, each with its index among the next hops."""


def _flows(
    results: RunResults, run: Rerun
) -> Iterator[tuple[_Key, float, tuple[_Path, ...]]]:
    """Yield each flow between switches, with its bytes and equal-cost paths.

    Switches do not count packets that they drop, so the bytes are those that arrived.
    """
    ends = _bytes_arrived(results)
    ports = ports_of(run.plan)
    index_of = {port.number: index for index, port in enumerate(ports)}
    at_address = {(port.address, port.udp_port): at for at, port in enumerate(ports)}
    between: dict[tuple[str, str], tuple[_Path, ...]] = {}
    for rank in run.plan.ranks():
        sender, job = index_of[rank.port], rank.program.job
        for pair in rank.queue_pairs:
            receiver = at_address.get((pair.remote_address, pair.remote_udp_port))
            if pair.local_rate_bps is not None or receiver is None:
                continue
            source, target = ports[sender].host, ports[receiver].host
            first, last = map(run.topology.switch_of, (source, target))
            if first == last:
                continue
            if (first, last) not in between:
                between[first, last] = tuple(_paths(run.topology, first, target))
            near = ends.get((job, rank.program.rank, pair.qpn), _NOTHING)
            far = ends.get((job, pair.peer_rank, pair.remote_qpn), _NOTHING)
            nbytes = (near.payload + _DATA_HEADER) * far.data + _ACK_FRAME * far.acks
            key = ports[sender].number, ports[receiver].number, pair.source_port
            yield key, nbytes, between[first, last]


def _paths(topology: Topology, switch: str, target: str) -> Iterator[_Path]:
    """Yield each shortest path from a switch to the switch of a host."""
    if switch == topology.switch_of(target):
        yield ()
        return
    for index, end in enumerate(topology.next_hops(switch, target)):
        for link in topology.links_of(switch):
            if end in (link.a, link.b):
                for rest in _paths(topology, link.other_end(switch).node, target):
                    yield (end, index), *rest


def _bytes_arrived(results: RunResults) -> dict[tuple[str, int, int], _Arrived]:
    """Return the packets received and mean payload sent by each end of a queue pair."""
    counted = [f"{each}_rx" for each in ("data_frames", *_ACKS)]
    names = ["tx_bytes", "data_frames_tx", *counted]
    ends = ["job", "rank", "qpn"]
    table = results.table("queue_pairs", *ends, *names).group_by(ends)
    return {
        (row["job"], row["rank"], row["qpn"]): _Arrived(
            payload=row["tx_bytes_max"] / max(1, row["data_frames_tx_max"]),
            data=row["data_frames_rx_max"],
            acks=sum(row[f"{each}_rx_max"] for each in _ACKS),
        )
        for row in table.aggregate([(name, "max") for name in names]).to_pylist()
    }
