"""Warnings about settings of an experiment that may have unexpected effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.collectives.ops import ROOTED
from chakram.foundation.units import about_size, format_size, format_time
from chakram.plan.wire_cost import overhead_bytes_of
from chakram.roce.congestion import CONTROLS
from chakram.roce.opcodes import RNR_TIMER_NS
from chakram.switch.headroom import LinkEnd, ns3_overrun_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chakram.config.experiment import Experiment
    from chakram.plan.transport import TransportPlan
    from chakram.settings.field_types import Model
    from chakram.topology.topology import Link


_OF_LAWS = ("share", "target", "period", "length", "sigma")
"""Keys of routing that need a law."""

_LOSSY = frozenset({"down", "flap", "loss", "corruption"})
"""Kinds of link faults that lose packets."""


def experiment_warnings(experiment: Experiment, transport: TransportPlan) -> list[str]:
    """Return warnings about settings that may have unexpected effects."""
    warnings = experiment.fabric.warnings()
    warnings += _unused_key_warnings(experiment)
    warnings += _dilation_warnings(experiment)
    warnings += _loss_warnings(experiment)
    warnings += _rate_warnings(experiment)
    warnings += _timeout_warnings(experiment, transport)
    warnings += _reordering_warnings(experiment)
    warnings += _headroom_warnings(experiment, transport)
    warnings += _queue_warnings(experiment, transport)
    name = experiment.transport.congestion_control.name
    if CONTROLS.load(name).wants_cnps:
        warnings += _mark_warnings(experiment, name)
    return warnings


def _unused_key_warnings(experiment: Experiment) -> list[str]:
    """Warn about keys of jobs that have no effect with other keys."""
    warnings = []
    for index, job in enumerate(experiment.jobs):
        compute, placement = job.compute, job.placement
        unused = {
            "compute.peak": (compute.peak_flops, "from: roofline"),
            "compute.memory": (compute.memory_bytes_per_s, "from: roofline"),
            "placement.local_rate": (placement.local_rate_bps, "same_host: skip"),
        }
        used = {
            "from: roofline": compute.source == "roofline",
            "same_host: skip": placement.same_host == "skip",
        }
        warnings += [
            f"jobs[{index}].{key}: has no effect without {needed}"
            for key, (value, needed) in unused.items()
            if value is not None and not used[needed]
        ]
        warnings += [f"jobs[{index}].trace.{each}" for each in _unused_in(job.trace)]
    return warnings


def _unused_in(trace: Model) -> Iterator[str]:
    """Yield the keys of a synthetic trace that have no effect with other keys."""
    routing = getattr(trace, "routing", None)
    written = set() if routing is None else routing.model_fields_set
    # A sweep may set law: balanced together with keys of other laws.
    for key in _OF_LAWS if "law" not in written else ():
        if key in written:
            yield f"routing.{key}: has no effect without law"
    for number, stream in enumerate(getattr(trace, "streams", ())):
        default = type(stream).model_fields["size_bytes"].default
        if stream.size_bytes != default and (stream.sizes_bytes or stream.splits):
            yield f"streams[{number}].size: has no effect with sizes or splits"
        if stream.root and stream.op not in ROOTED:
            yield f"streams[{number}].root: has no effect on {stream.op}"


def _dilation_warnings(experiment: Experiment) -> list[str]:
    """Warn if no RNR timer code is long enough for the dilated time."""
    written = experiment.written.transport
    wanted_ns = RNR_TIMER_NS[written.rnr_timer] * experiment.dilation
    longest_ns = max(RNR_TIMER_NS)
    not_ready = any(each.action == "not_ready" for each in experiment.faults.packets)
    if not not_ready or wanted_ns <= longest_ns:
        return []
    return [
        f"transport.rnr_timer: {format_time(RNR_TIMER_NS[written.rnr_timer])} times "
        f"the dilation of {experiment.dilation} is more than any timer code can "
        f"represent; peers are asked to wait {format_time(longest_ns)}"
    ]


def _loss_warnings(experiment: Experiment) -> list[str]:
    """Warn if dropped packets may stall the run until the hang timeout ends it."""
    faults = experiment.faults
    loses = (
        faults.drop > 0
        or any(each.action in ("drop", "corrupt") for each in faults.packets)
        or any(each.kind in _LOSSY for each in faults.links)
    )
    if experiment.transport.local_ack_timeout != 0 or not loses:
        return []
    return [
        "transport.local_ack_timeout: 0 disables the timeout, but faults drop packets: "
        "if the last packets of a queue pair or an acknowledgment are lost, they are "
        "never retransmitted, and the run ends as hung"
    ]


def faults_above_link_rate(experiment: Experiment) -> dict[int, str]:
    """Return index and link of faults that do not lower the rate of their link."""
    fabric = experiment.fabric
    topology = None if fabric.nports is None else fabric.to_topology(fabric.nports)
    links = () if topology is None else topology.links
    rates_bps = {link.name: link.rate_bps for link in links if link.rate_bps}
    return {
        at: each.link
        for at, each in enumerate(experiment.faults.links)
        if each.kind == "degrade"
        and (each.rate_bps or 0) >= rates_bps.get(each.link, 1 << 62)
    }


def _rate_warnings(experiment: Experiment) -> list[str]:
    """Warn about faults that do not lower the rate of their link."""
    return [
        f"faults.links[{at}]: its rate is not below that of {link}, so it has no effect"
        for at, link in faults_above_link_rate(experiment).items()
    ]


def _timeout_warnings(experiment: Experiment, plan: TransportPlan) -> list[str]:
    """Warn if queue pairs may give up although no packet is lost."""
    rate_bps = experiment.fabric.port_rate_bps
    transport = experiment.transport
    if rate_bps is None or transport.adaptive_retransmission is not None:
        return []
    timeout_ns = plan.retransmit_timeout_ns
    window_ns = plan.window_bytes * 8 * 10**9 // rate_bps
    # The in-flight packets of a single queue pair wait only for each other. With two
    # queue pairs to one port, the packets of one also wait for the window of the other.
    if not 0 < timeout_ns < window_ns:
        return []
    name = "retransmit_timeout"
    if transport.local_ack_timeout is not None:
        name = "local_ack_timeout"
    dilation = experiment.dilation
    return [
        f"transport.{name}: {format_time(timeout_ns // dilation)} is less than the "
        f"{format_time(window_ns // dilation)} that a window of "
        f"{about_size(plan.window_bytes)} takes at the rate of a port: if two ports "
        "send to one, packets wait longer, are retransmitted without need, and queue "
        "pairs give up; raise it, or lower transport.window"
    ]


def _reordering_warnings(experiment: Experiment) -> list[str]:
    """Warn if packet spraying over several paths causes retransmissions."""
    switches = experiment.fabric.simulated_switches
    if (
        switches is None
        or switches.balancing == "hash"
        or not experiment.fabric.has_uplinks
        or experiment.transport.reordering.accept is not None
    ):
        return []
    return [
        f"fabric.switches.balancing: {switches.balancing} sends the packets of a queue "
        "pair over several paths, and queue pairs treat overtaken packets as lost: "
        "each time, they retransmit all packets in flight; to keep packets that "
        "arrive out of order, set transport.reordering: accept"
    ]


def _headroom_warnings(experiment: Experiment, plan: TransportPlan) -> list[str]:
    """Warn if switches of profile ns3 may drop packets despite pauses."""
    fabric = experiment.fabric
    profile = fabric.switching(experiment.seed).profile
    if profile.name != "ns3" or fabric.nports is None:
        return []
    topology = fabric.to_topology(fabric.nports)
    packet_bytes = plan.path_mtu + overhead_bytes_of(fabric.family)

    def overrun_bytes(link: Link) -> int:
        end = LinkEnd(rate_bps=link.rate_bps, delay_ns=link.delay_ns)
        return ns3_overrun_bytes(end, mtu=packet_bytes)

    if topology is None:
        return []
    link = max(topology.links, key=overrun_bytes)
    most_bytes = overrun_bytes(link)
    if not most_bytes:
        return []
    return [
        "fabric.switches.profile: ns3 reserves headroom for three times the bytes in "
        "flight on a link in one direction, but none for packets being sent: on "
        f"{link.name} (delay {format_time(link.delay_ns)}), up to "
        f"{about_size(most_bytes)} more arrive after a pause, and may be dropped; "
        "use longer delays, a smaller MTU or profile: sonic"
    ]


def _queue_warnings(experiment: Experiment, plan: TransportPlan) -> list[str]:
    """Warn about a link whose queue cannot hold a full packet."""
    fabric = experiment.fabric
    topology = None if fabric.nports is None else fabric.to_topology(fabric.nports)
    packet_bytes = plan.path_mtu + overhead_bytes_of(fabric.family)
    for link in () if topology is None else topology.links:
        if link.queue_bytes is not None and link.queue_bytes < packet_bytes:
            return [
                f"fabric: the queue of {format_size(link.queue_bytes)} at {link.name} "
                f"cannot hold a packet of {packet_bytes} bytes: a full packet that "
                "must wait is always lost, also when it is retransmitted; use a longer "
                "queue, or a smaller transport.path_mtu"
            ]
    return []


def _mark_warnings(experiment: Experiment, name: str) -> list[str]:
    """Warn if a congestion control that needs CNPs may never receive one."""
    where = "transport.congestion_control"
    if experiment.transport.ecn == "off":
        return [f"{where}: {name} has no effect, because transport.ecn is off"]
    marks = any(each.action == "mark" for each in experiment.faults.packets)
    if marks or experiment.fabric.may_mark:
        return []
    return [
        f"{where}: {name} reacts to marks, but no link of the fabric marks packets; "
        "to mark packets, set fabric.links.host.ecn in a simulation, or "
        "faults.packets with the action mark in a run"
    ]
