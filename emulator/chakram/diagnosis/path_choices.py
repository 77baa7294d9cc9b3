"""Choices among equal-cost paths: by the hash, or with an even spread of flows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from chakram.diagnosis.counterfactual import Rerun
from chakram.diagnosis.run_evidence import without_down_links
from chakram.predict.routing import ports_of
from chakram.records.row_layout import FLOW_FIELDS
from chakram.switch.ecmp import AssignedPaths, Flow
from chakram.topology.topology import PortRef, Topology

Hops = tuple[PortRef, ...]
"""Next hops of equal cost: ports of one switch."""


class _SentFlow(NamedTuple):
    """A flow, the payload that it sent, its first switch and its receiving host."""

    flow: Flow
    nbytes: int
    switch: str
    target: str


def bytes_by_choice(run: Rerun) -> dict[Hops, Counter[PortRef]]:
    """Return the payload by next hop, for every choice among next hops.

    Flows are not included at switches where they have no choice.
    """
    found: dict[Hops, Counter[PortRef]] = defaultdict(Counter)
    walker = _Walker(without_down_links(run))
    numbers = {switch: at for at, switch in enumerate(run.topology.switches)}
    for sent in _flows(run):
        choose = run.ecmp.chooser(sent.flow)

        def next_hop(hops: Hops, choose: Callable[[int, int], int] = choose) -> PortRef:
            return hops[choose(numbers[hops[0].node], len(hops))]

        for hops, end in walker.walk(sent, next_hop):
            if len(hops) > 1:
                found[hops][end] += sent.nbytes
    return found


def even_spread(run: Rerun) -> AssignedPaths:
    """Return paths that spread the flows of a run evenly, largest flows first."""
    loads: Counter[PortRef] = Counter()

    def least_loaded(hops: Hops) -> PortRef:
        return min(hops, key=lambda each: loads[each])

    walker = _Walker(without_down_links(run))
    numbers = {switch: at for at, switch in enumerate(run.topology.switches)}
    next_hops: dict[tuple[int, int, int], dict[int, int]] = {}
    for sent in sorted(_flows(run), key=lambda each: -each.nbytes):
        chosen = {}
        for hops, end in walker.walk(sent, least_loaded):
            loads[end] += sent.nbytes
            chosen[numbers[end.node]] = hops.index(end)
        flow = sent.flow
        next_hops[flow.sender, flow.receiver, flow.source_port] = chosen
    return AssignedPaths(next_hops=next_hops)


class _Walker:
    """Paths through a topology, with the choices at every switch."""

    def __init__(self, topology: Topology) -> None:
        self._next_hops = lru_cache(None)(topology.next_hops)
        self._switch_of = lru_cache(None)(topology.switch_of)
        self._node_after = {
            end: link.other_end(end.node).node
            for link in topology.links
            for end in (link.a, link.b)
        }

    def walk(
        self, sent: _SentFlow, next_hop: Callable[[Hops], PortRef]
    ) -> Iterator[tuple[Hops, PortRef]]:
        """Yield the next hops toward other switches on a path, and the selected one."""
        switch, last = sent.switch, self._switch_of(sent.target)
        while switch != last:
            hops = self._next_hops(switch, sent.target)
            end = next_hop(hops)
            yield hops, end
            switch = self._node_after[end]


def _flows(run: Rerun) -> list[_SentFlow]:
    """Return the flows of a run. Several queue pairs may form one flow."""
    rows, width = run.result.records.flows, len(FLOW_FIELDS)
    columns = (
        rows[FLOW_FIELDS.index(name) :: width] for name in ("rank", "qpn", "size_bytes")
    )
    sent_bytes: Counter[tuple[int, int]] = Counter()
    for number, qpn, nbytes in zip(*columns, strict=True):
        sent_bytes[number, qpn] += nbytes
    ports = ports_of(run.plan)
    index_of = {port.number: index for index, port in enumerate(ports)}
    at_address = {(port.address, port.udp_port): at for at, port in enumerate(ports)}
    found: dict[Flow, _SentFlow] = {}
    for rank in run.plan.ranks():
        sender = index_of[rank.port]
        switch = run.topology.switch_of(ports[sender].host)
        for pair in rank.queue_pairs:
            receiver = at_address.get((pair.remote_address, pair.remote_udp_port))
            if pair.local_rate_bps is not None or receiver is None:
                continue
            flow = Flow(
                sender=ports[sender].number,
                receiver=ports[receiver].number,
                source=ports[sender].address,
                destination=pair.remote_address,
                source_port=pair.source_port,
                destination_port=pair.remote_udp_port,
            )
            nbytes = sent_bytes[rank.number, pair.qpn]
            if flow in found:
                nbytes += found[flow].nbytes
            found[flow] = _SentFlow(flow, nbytes, switch, ports[receiver].host)
    return list(found.values())
