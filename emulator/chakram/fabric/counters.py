"""What went over each link, and what was dropped before it.

Bytes and packets are those that left the queue of the sending end: layer-2 bytes with
the headers of every packet of a burst, as the shaping counts them.  On a link without
shaping they are those of the interface, where a burst counts as one packet with one
set of headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.errors import FabricError
from chakram.fabric.exchange import ask_holder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chakram.fabric.description import LabState

__all__ = [
    "COUNTERS_REQUEST",
    "LinkCounters",
    "difference",
    "max_over_mean",
    "read_link_counters",
]

COUNTERS_REQUEST = "counters"
"""What the holder is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounters:
    """Counters of one link since it was built, or between two moments.

    ``tx`` is the direction from the link's end ``a`` (the host, or the leaf) to ``b``,
    ``rx`` the other one.  Drops are those of the queue at the sending end.
    """

    tx_bytes: int
    tx_packets: int
    tx_drops: int
    rx_bytes: int
    rx_packets: int
    rx_drops: int

    @property
    def drops(self) -> int:
        """Packets (or bursts, where the kernel had not cut them) lost in a queue."""
        return self.tx_drops + self.rx_drops

    def __sub__(self, before: LinkCounters) -> LinkCounters:
        return LinkCounters(
            tx_bytes=self.tx_bytes - before.tx_bytes,
            tx_packets=self.tx_packets - before.tx_packets,
            tx_drops=self.tx_drops - before.tx_drops,
            rx_bytes=self.rx_bytes - before.rx_bytes,
            rx_packets=self.rx_packets - before.rx_packets,
            rx_drops=self.rx_drops - before.rx_drops,
        )


def read_link_counters(lab: LabState) -> dict[str, LinkCounters]:
    """Return the counters of every link of a lab, by the link's name.

    Blocks for some milliseconds; call it before and after a run, not during one.

    Raises:
        FabricError: If the lab's holder does not answer.
    """
    fields = ask_holder(lab.directory, COUNTERS_REQUEST)
    try:
        return {
            str(name): LinkCounters(**counters)
            for name, counters in fields["links"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise FabricError(
            f"lab {lab.name}", f"its holder's counters are not as expected ({error})"
        ) from error


def difference(
    after: Mapping[str, LinkCounters], before: Mapping[str, LinkCounters]
) -> dict[str, LinkCounters]:
    """Return what was added between two readings, by the link's name."""
    return {name: after[name] - before[name] for name in after if name in before}


def max_over_mean(values: Iterable[int]) -> float | None:
    """Return how unevenly a load is spread: 1.0 is even; None if there is no load."""
    known = list(values)
    total = sum(known)
    return max(known) * len(known) / total if total else None
