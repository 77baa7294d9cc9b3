"""What went over each link, and what was dropped before it.

Bytes and packets are those that left the queue of the sending end: layer-2 bytes with
the headers of every packet of a burst, as the shaping counts them.  On a link without
shaping they are those of the interface, where a burst counts as one packet with one
set of headers.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from chakram.fabric.labs.holder_protocol import ask_holder
from chakram.foundation.errors import FabricError

if TYPE_CHECKING:
    from chakram.fabric.labs.description import LabState
    from chakram.switch.faults import LinkFault


COUNTERS_REQUEST = "counters"
FAULTS_REQUEST = "faults"
"""What the holder of a lab is asked to let happen to its links."""

BIN_REQUEST = "sample"
"""What that of a lab with modelled switches is asked for, as the next."""

SAMPLES_REQUEST = "samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounters:
    """Counters of one link since it was built.

    ``tx`` is the direction from the link's end ``a`` (the host, or the leaf) to ``b``,
    ``rx`` the other one.  Drops are those of the queue at the sending end, and what
    faults of the link drop at the other: packets, or bursts where the kernel had not
    cut them.
    """

    tx_bytes: int
    tx_packets: int
    tx_drops: int
    rx_bytes: int
    rx_packets: int
    rx_drops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LabCounters:
    """What a lab has counted since it was built.

    Attributes:
        links: By name of the link.
        ports: Of modelled switches and their hosts, by name of the port: what
            ``chakram.switch.port.Port.counted`` says; empty where the kernel switches.
        process: Of the process of modelled switches: frames ``received``,
            ``delivered``, ``unknown`` (for no host), ``lost`` (that came when there was
            no room) and ``refused`` (by the kernel), ``late_ns`` (the most that one
            left too late since somebody asked) and ``cpu_ns``.
    """

    links: Mapping[str, LinkCounters] = field(default_factory=dict)
    ports: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    process: Mapping[str, int] = field(default_factory=dict)


def read_counters(lab: LabState) -> LabCounters:
    """Return the counters of a lab.

    Blocks for some milliseconds; call it before and after a run, and seldom during one.

    Raises:
        FabricError: If the lab's holder does not answer.
    """
    fields = ask_holder(lab.directory, COUNTERS_REQUEST)
    try:
        return LabCounters(
            links={
                str(name): LinkCounters(**counters)
                for name, counters in fields["links"].items()
            },
            ports=fields.get("ports", {}),
            process=fields.get("process", {}),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise FabricError(
            f"lab {lab.name}", f"its holder's counters are not as expected ({error})"
        ) from error


def disturb_links(lab: LabState, faults: Sequence[LinkFault]) -> None:
    """Let more faults happen to the links of a lab; none: let all of them end.

    Raises:
        FabricError: If it cannot do that, or does not answer.
    """
    ask_holder(lab.directory, FAULTS_REQUEST, faults=[asdict(each) for each in faults])


def sample_links(lab: LabState, bin_ns: int) -> None:
    """Take samples of the links of a lab from now on; *bin_ns* 0: none.

    Raises:
        FabricError: If its switches are not modelled, or do not answer.
    """
    ask_holder(lab.directory, BIN_REQUEST, bin_ns=bin_ns)


def link_samples(lab: LabState) -> array[int]:
    """Return the samples taken since, rows of ``LINK_SAMPLE_FIELDS``; forget them.

    Raises:
        FabricError: If its switches are not modelled, or do not answer.
    """
    rows = array("q")
    while True:
        more = ask_holder(lab.directory, SAMPLES_REQUEST)["rows"]
        if not more:
            return rows
        rows.extend(more)
