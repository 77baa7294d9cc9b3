"""Declared link faults without effect, because no queue pair uses their link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from chakram.foundation.errors import FabricError, PlanError
from chakram.predict.routing import Router, ports_of
from chakram.switch.ecmp import DrawnPaths

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.plan.plan import Plan
    from chakram.topology.topology import Topology

_MOST_QUEUE_PAIRS = 200_000
"""Maximum number of queue pairs whose paths are searched, which takes seconds."""


def idle_faults(
    experiment: Experiment, plan: Plan, topology: Topology
) -> tuple[str, ...]:
    """Return a sentence for each link fault that affects no queue pair of a plan.

    If the paths are unknown, or switches choose one for each packet, all equal-cost
    paths count.  The result is empty if there are too many queue pairs.
    """
    faults = experiment.faults.links
    links = {link.name: link for link in topology.links}
    ends_of = {
        at: frozenset(
            {str(links[each.link].a), str(links[each.link].b)}
            if each.direction == "both"
            else each.ends(links[each.link])
        )
        for at, each in enumerate(faults)
    }
    try:
        for number, path in enumerate(_paths(experiment, plan, topology)):
            ends_of = {at: ends for at, ends in ends_of.items() if not ends & path}
            if not ends_of or number >= _MOST_QUEUE_PAIRS:
                return ()
    except (FabricError, PlanError):
        return ()  # the run or simulation reports this problem
    return tuple(
        f"faults.links[{at}] affects no traffic: no queue pair uses link "
        + faults[at].link
        + ("" if faults[at].direction == "both" else f" {faults[at].direction}")
        for at in ends_of
    )


def _paths(
    experiment: Experiment, plan: Plan, topology: Topology
) -> Iterator[frozenset[str]]:
    """Yield the egress ports that the packets of each queue pair may take."""
    if not experiment.faults.links:
        return
    switching = experiment.fabric.switching(experiment.seed)
    is_known = switching.profile.balancing == "hash" and not isinstance(
        switching.ecmp, DrawnPaths
    )
    ports = ports_of(plan)
    router = Router(ports=ports, topology=topology, ecmp=switching.ecmp)
    index_of = {port.number: index for index, port in enumerate(ports)}
    for rank in plan.ranks():
        source = index_of[rank.port]
        for pair in rank.queue_pairs:
            if pair.local_rate_bps is not None:
                continue
            to = pair.remote_address, pair.remote_udp_port
            if is_known:
                ends, _ = router(source, *to, pair.source_port)
                yield frozenset(map(str, ends))
            else:
                target = ports[router.receiver(source, *to)].host
                yield _all_ends(topology, ports[source].host, target)


def _all_ends(topology: Topology, host: str, target: str) -> frozenset[str]:
    """Return the egress ports of all equal-cost paths between two hosts."""
    found: set[str] = set()
    nodes = [host]
    while nodes:
        node = nodes.pop()
        hops = {str(end) for end in topology.next_hops(node, target)} - found
        found |= hops
        nodes += [
            link.other_end(node).node
            for link in topology.links_of(node)
            if str(link.end_at(node)) in hops
        ]
    return frozenset(found)
