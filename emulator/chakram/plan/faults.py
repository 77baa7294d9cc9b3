"""Packet faults: what a port is to do to packets on purpose.

They disturb the transport at a known place, which no network does on demand: "lose the
third data packet from rank 0 to rank 5", "delay one ACK in a hundred by 2 ms". Every
packet that is touched is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["MAX_FAULTS", "PACKET_CLASSES", "PARTS", "FaultAction", "PacketFault"]

MAX_FAULTS = 64
"""Packet faults of one run; what each has hit is counted in a slot of its own."""


class FaultAction(IntEnum):
    """What happens to a packet."""

    DROP = 0
    DELAY = 1
    """It comes, or leaves, later; what follows it overtakes it."""
    DUPLICATE = 2
    """It comes, or leaves, twice."""
    REORDER = 3
    """So many packets of its queue pair overtake it."""
    MARK = 4
    """It counts as, or leaves, marked "congestion experienced"."""
    NOT_READY = 5
    """It is answered with a receiver-not-ready NAK."""
    CORRUPT = 6
    """One bit of it is flipped, its ICRC stays: a wrong one, if anybody looks."""


FIRST, MIDDLE, LAST, ONLY, ACK, NAK, CNP, OTHER = (1 << bit for bit in range(8))

PACKET_CLASSES = {
    "any": FIRST | MIDDLE | LAST | ONLY | ACK | NAK | CNP | OTHER,
    "data": FIRST | MIDDLE | LAST | ONLY,
    "first": FIRST,
    "middle": MIDDLE,
    "last": LAST,
    "only": ONLY,
    "ack": ACK,
    "nak": NAK,
    "cnp": CNP,
}
"""Classes of packets by opcode, as sets of bits; a NAK is not an ACK here."""


PARTS = ("any", "header", "payload")
"""Of a packet, from the BTH on: all of it, headers of the transport, what they lead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketFault:
    """One fault, at every port that it fits.

    Attributes:
        action: What happens.
        at_send: Whether the port that sends a packet does it, else the receiving one.
        packets: Which ones, a key of `PACKET_CLASSES`.
        job: Only packets of this job; None: of all.
        source: Only packets that this rank sends; None: that any sends.
        destination: Only packets to this rank; None: to any.
        group: Only packets of queue pairs of this process group; None: of all.
        channel: Only of this channel of an algorithm, from 0; None: of all.
        queue_pair: Only of this one of the queue pairs between two ranks, from 0; None:
            of all.
        nth: Of the packets that fit, counted from 1 at each port, the one it happens
            to; 0: it happens at random.
        count: To so many in a row.
        every: And again after so many packets from *nth* on; 0: not again.
        probability: Share of the packets, if it happens at random.
        delay_ns: How much later, for a delay; for a reordered packet how long at most
            it waits for others to overtake it.
        behind: How many packets overtake it.
        part: Where a bit is flipped, one of `PARTS`; of a packet without payload always
            in its headers.

    Raises:
        ValueError: If the values do not fit together; it tells everything.
    """

    action: FaultAction
    at_send: bool = False
    packets: str = "data"
    job: str | None = None
    source: int | None = None
    destination: int | None = None
    group: str | None = None
    channel: int | None = None
    queue_pair: int | None = None
    nth: int = 0
    count: int = 1
    every: int = 0
    probability: float = 0.0
    delay_ns: int = 1_000_000
    behind: int = 3
    part: str = "any"

    def __post_init__(self) -> None:
        problems = [text for is_wrong, text in self._doubts() if is_wrong]
        if problems:
            raise ValueError("; ".join(problems))

    def _doubts(self) -> tuple[tuple[bool, str], ...]:
        """Return what may be wrong, each with whether it is."""
        return (
            (
                self.packets not in PACKET_CLASSES,
                f"packet class {self.packets!r} is not known",
            ),
            (
                (self.nth > 0) == (self.probability > 0.0),
                "a fault has either nth or a probability",
            ),
            (
                self.nth < 0 or self.count < 1 or self.every < 0,
                "nth, count and every count packets",
            ),
            (
                0 < self.every < self.count,
                f"{self.count} packets in every {self.every}",
            ),
            (
                not 0.0 <= self.probability <= 1.0,
                f"probability {self.probability} is not in 0..1",
            ),
            (
                self.delay_ns < 1 or self.behind < 1,
                "a delay and a distance are positive",
            ),
            (
                self.at_send and self.action is FaultAction.NOT_READY,
                "not_ready is something that a receiver does",
            ),
            (
                self.part not in PARTS,
                f"part {self.part!r} is none of {', '.join(PARTS)}",
            ),
            (
                self.part != "any" and self.action is not FaultAction.CORRUPT,
                f"part says where to corrupt, and the action is {self.name}",
            ),
        )

    @property
    def is_for_all(self) -> bool:
        """Whether it is about the packets of every flow."""
        return (
            self.job,
            self.source,
            self.destination,
            self.group,
            self.channel,
            self.queue_pair,
        ) == (None,) * 6

    @property
    def name(self) -> str:
        """The action in words, as the experiment file has it."""
        return self.action.name.lower()

    def describe(self) -> str:
        """Return it in a few words."""
        where = "sent" if self.at_send else "received"
        which = (
            f"number {self.nth}" if self.nth else f"{self.probability:.2%} at random"
        )
        if self.count > 1:
            which += f" and the next {self.count - 1}"
        if self.every:
            which += f", again every {self.every}"
        flow = "".join(
            f" {word} {value}"
            for word, value in (
                ("of job", self.job),
                ("from rank", self.source),
                ("to rank", self.destination),
                ("of group", self.group),
                ("of channel", self.channel),
                ("of queue pair", self.queue_pair),
            )
            if value is not None
        )
        name = self.name if self.part == "any" else f"{self.name} the {self.part} of"
        return f"{name} {which} of the {self.packets} packets {where}{flow}"
