"""Traffic and drops of each link of a lab.

Bytes and packets are counted when they leave the queue of the sending end. The shaper
counts layer-2 bytes with the headers of every packet of a burst. Links without shaping
use the counters of the interface, which counts a burst as one packet with one set of
headers.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from chakram.fabric.labs.holder_protocol import ask_holder
from chakram.fabric.labs.lab_spec import LabState
from chakram.foundation.errors import FabricError

if TYPE_CHECKING:
    from chakram.switch.faults import LinkFault


COUNTERS_REQUEST = "counters"
FAULTS_REQUEST = "faults"
"""Request to the holder of a lab to inject link faults."""

BIN_REQUEST = "sample"
"""Request to sample links, for labs with modeled switches only."""

SAMPLES_REQUEST = "samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounters:
    """Counters of one link since it was built.

    ``tx`` is the direction from the link's end ``a`` (the host, or the leaf) to ``b``,
    and ``rx`` is the opposite direction. Drops are the sum of queue drops at the
    sending end and drops by link faults at the receiving end. A burst that the kernel
    has not segmented counts as one packet.
    """

    tx_bytes: int
    tx_packets: int
    tx_drops: int
    rx_bytes: int
    rx_packets: int
    rx_drops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LabCounters:
    """Counters of a lab since it was built.

    Attributes:
        links: Counters of each link, by name.
        ports: Counters of the ports of modeled switches and their hosts, by port name,
            from ``chakram.switch.port.Port.counted``. Empty with kernel switches.
        process: Counters of the switch process. Numbers of frames: ``received``,
            ``delivered``, ``unknown`` (unknown destination or type), ``lost`` (no room
            on arrival) and ``refused`` (by the kernel). Times: ``late_ns`` (maximum
            lateness of a sent frame since the last request) and ``cpu_ns``.
    """

    links: Mapping[str, LinkCounters] = field(default_factory=dict)
    ports: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    process: Mapping[str, int] = field(default_factory=dict)


def read_counters(lab: LabState) -> LabCounters:
    """Return the counters of a lab.

    The call blocks for some milliseconds. Call this function before and after a run,
    and rarely during a run.

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
            f"lab {lab.name}", f"its holder sent invalid counters ({error})"
        ) from error


def disturb_links(lab: LabState, faults: Sequence[LinkFault]) -> None:
    """Inject more faults into a lab's links. An empty sequence ends all faults.

    Raises:
        FabricError: If the lab cannot inject the faults, or does not answer.
    """
    ask_holder(lab.directory, FAULTS_REQUEST, faults=[asdict(each) for each in faults])


def sample_links(lab: LabState, bin_ns: int) -> None:
    """Sample the links of a lab every *bin_ns*. 0 stops sampling.

    Raises:
        FabricError: If the lab's switches are not modeled, or do not answer.
    """
    ask_holder(lab.directory, BIN_REQUEST, bin_ns=bin_ns)


def link_samples(lab: LabState) -> array[int]:
    """Return and delete the collected samples, as rows of ``LINK_SAMPLE_FIELDS``.

    Raises:
        FabricError: If the lab's switches are not modeled, or do not answer.
    """
    rows = array("q")
    while True:
        more = ask_holder(lab.directory, SAMPLES_REQUEST)["rows"]
        if not more:
            return rows
        rows.extend(more)
