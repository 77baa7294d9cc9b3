"""What of an experiment does not mean what one may think."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.config.fabric import ExternalFabric, NamespaceFabric
from chakram.roce.opcodes import RNR_TIMER_NS
from chakram.units import format_time

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.config.fabric import Fabric, LinkSettings

__all__ = [
    "experiment_warnings",
]


def experiment_warnings(experiment: Experiment) -> list[str]:
    """Return what of the experiment does not mean what one may think."""
    fabric = experiment.fabric
    warnings: list[str] = []
    if isinstance(fabric, NamespaceFabric) and (
        fabric.links.host.delay_ns or fabric.links.uplink.delay_ns
    ):
        warnings.append(
            "fabric.links: delays are simulated only; the links of a kernel fabric "
            "have none beside the kernel's own"
        )
    if isinstance(fabric, NamespaceFabric) and (
        fabric.links.host.ecn or fabric.links.uplink.ecn
    ):
        warnings.append(
            "fabric.links: ECN marks are simulated only; the links of a kernel fabric "
            "mark nothing"
        )
    warnings += _dilation_warnings(experiment)
    warnings += _loss_warnings(experiment)
    if experiment.transport.congestion_control.dcqcn is not None:
        warnings += _dcqcn_warnings(experiment)
    return warnings


def _dilation_warnings(experiment: Experiment) -> list[str]:
    """Return what of the transport cannot be stretched as far as time is."""
    written = experiment.written.transport
    wanted_ns = RNR_TIMER_NS[written.rnr_timer] * experiment.dilation
    longest_ns = max(RNR_TIMER_NS)
    not_ready = any(each.action == "not_ready" for each in experiment.faults.packets)
    if not not_ready or wanted_ns <= longest_ns:
        return []
    return [
        f"transport.rnr_timer: {format_time(RNR_TIMER_NS[written.rnr_timer])} times "
        f"the dilation of {experiment.dilation} is more than any timer code says; "
        f"peers are asked to wait {format_time(longest_ns)}"
    ]


def _loss_warnings(experiment: Experiment) -> list[str]:
    """Return why what faults take away may be waited for until the run is given up."""
    faults = experiment.faults
    loses = faults.drop > 0 or any(each.action == "drop" for each in faults.packets)
    if experiment.transport.local_ack_timeout != 0 or not loses:
        return []
    return [
        "transport.local_ack_timeout: 0 is no timeout, and faults drop packets: a gap "
        "is repaired when a later packet shows it, but nothing sends the last packets "
        "of a queue pair again, nor an acknowledgement that is lost; the run then "
        "ends as hung"
    ]


def _dcqcn_warnings(experiment: Experiment) -> list[str]:
    """Return why DCQCN may have nothing to react to."""
    where = "transport.congestion_control"
    fabric = experiment.fabric
    if experiment.transport.ecn == "off":
        return [f"{where}: dcqcn does nothing, since transport.ecn is off"]
    marks = any(each.action == "mark" for each in experiment.faults.packets)
    if (
        marks
        or isinstance(fabric, ExternalFabric)
        or any(link.ecn for link in _links_of(fabric))
    ):
        return []
    return [
        f"{where}: dcqcn reacts to marks, and no link of the fabric marks packets; "
        "in a simulation, fabric.links.host.ecn makes them; in a run, "
        "faults.packets with the action mark"
    ]


def _links_of(fabric: Fabric) -> tuple[LinkSettings, ...]:
    if not isinstance(fabric, NamespaceFabric):
        return ()
    return fabric.links.host, fabric.links.uplink
