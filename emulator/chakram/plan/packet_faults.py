"""Packet faults: disturbances that a port applies to packets on purpose.

They disturb the transport at a known point, which a real network does not do on demand.
Examples: "drop the third data packet from rank 0 to rank 5", "delay one ACK in a
hundred by 2 ms". Every affected packet is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from chakram.foundation.declared_settings import Setting
from chakram.foundation.field_bounds import (
    MAX_NAMES,
    MAX_TIME_NS,
    Identifier,
    Name,
    OneOf,
    Within,
    check_fields,
)
from chakram.foundation.units import format_share


class FaultAction(IntEnum):
    """Action of a fault. ``records.counter_definitions`` defines its counters."""

    DROP = 0
    DELAY = 1
    """The packet arrives or leaves later; subsequent packets overtake it."""
    DUPLICATE = 2
    """The packet arrives or leaves twice."""
    REORDER = 3
    """A given number of packets of its queue pair overtake the packet."""
    MARK = 4
    """The packet arrives or leaves with the mark "congestion experienced"."""
    NOT_READY = 5
    """The packet is answered with a receiver-not-ready NAK."""
    CORRUPT = 6
    """One bit of the packet is flipped; the ICRC is not updated and is therefore
    wrong."""


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
"""Packet classes by opcode, as sets of bits; the class ``ack`` excludes NAKs."""


Rank = Annotated[int, Within(0, MAX_NAMES - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketFault:
    """One fault, which applies at every port with matching packets.

    A fault without `nth` affects packets at random. The value None for job, ranks,
    group, channel or queue pair matches any value. If a packet has no payload, the
    flipped bit is always in its headers.

    Raises:
        ValueError: If a value is out of bounds, or values contradict each other.
    """

    action: Annotated[
        FaultAction, Setting(1, words={each.name.lower(): each for each in FaultAction})
    ]
    """drop: the packet is lost; delay: it is late, and others overtake it; duplicate:
    it arrives twice; reorder: some packets of its queue pair overtake it; mark: it gets
    a congestion mark; corrupt: one bit is flipped; not_ready: it is answered with a
    receiver-not-ready NAK."""
    at_send: Annotated[
        bool, Setting(2, key="at", words={"receive": False, "send": True})
    ] = False
    """Port that applies the fault. receive: the receiver's; send: the sender's."""
    packets: Annotated[str, OneOf(tuple(PACKET_CLASSES)), Setting(3)] = "data"
    """Packets that the fault applies to, by opcode."""
    job: Annotated[Identifier | None, Setting(4, example="moe")] = None
    """Only packets of this job."""
    source: Annotated[Rank | None, Setting(5, example=0)] = None
    """Only packets that this rank sends."""
    destination: Annotated[Rank | None, Setting(6, example=5)] = None
    """Only packets to this rank."""
    group: Annotated[Name | None, Setting(13, most=256, example="p2p")] = None
    """Only packets of this process group, as named by "chakram trace show". "p2p" means
    messages between two ranks."""
    channel: Annotated[
        Annotated[int, Within(0, 2**10 - 1)] | None, Setting(14, example=0)
    ] = None
    """Only packets of this channel of an algorithm, from 0."""
    queue_pair: Annotated[
        Annotated[int, Within(0, 63)] | None, Setting(15, example=0)
    ] = None
    """Only packets of this queue pair of transport.queue_pairs.count, from 0."""
    nth: Annotated[
        int, Within(0, 2**53), Setting(7, is_optional=True, least=1, example=3)
    ] = 0
    """Number of the packet that is hit, from 1 at each port."""
    count: Annotated[int, Within(1, 2**53), Setting(8)] = 1
    """Consecutive packets that are hit, from nth."""
    every: Annotated[
        int, Within(0, 2**53), Setting(9, is_optional=True, least=1, example=1000)
    ] = 0
    """Packets after which the fault repeats, from nth."""
    probability: Annotated[
        float, Within(0.0, 1.0), Setting(10, is_optional=True, above=0.0, example=0.01)
    ] = 0.0
    """Fraction of packets that are hit at random, instead of nth."""
    delay_ns: Annotated[
        int, Within(1, MAX_TIME_NS), Setting(11, key="by", most=10 * 10**9)
    ] = 1_000_000
    """Delay of a packet; longest wait of a reordered one."""
    behind: Annotated[int, Within(1, 1_000), Setting(12)] = 3
    """Packets that overtake a reordered one."""
    part: Annotated[str, OneOf(("any", "header", "payload")), Setting(16)] = "any"
    """Where corrupt flips a bit. any: from the BTH to the ICRC; header: in the
    transport headers; payload: in the payload."""

    def __post_init__(self) -> None:
        check_fields(self)
        problems = [text for is_wrong, text in self._doubts() if is_wrong]
        if problems:
            raise ValueError("; ".join(problems))

    def _doubts(self) -> tuple[tuple[bool, str], ...]:
        """Return (whether it is present, description) of each contradiction."""
        return (
            (
                (self.nth > 0) == (self.probability > 0.0),
                "a fault needs either nth or a probability",
            ),
            (
                self.nth == 0 and (self.count > 1 or self.every > 0),
                "count and every apply only with nth, but packets are hit at random",
            ),
            (
                0 < self.every < self.count,
                f"count is {self.count}, but must not exceed every, {self.every}",
            ),
            (
                self.at_send and self.action is FaultAction.NOT_READY,
                "not_ready applies only to receivers",
            ),
            (
                self.part != "any" and self.action is not FaultAction.CORRUPT,
                "part applies only to the action corrupt, but the action is "
                f"{self.name}",
            ),
        )

    @property
    def is_for_all(self) -> bool:
        """Whether the fault applies to the packets of every flow."""
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
        """Name of the action, as in the experiment file."""
        return self.action.name.lower()

    def describe(self) -> str:
        """Return a short description of the fault."""
        where = "sent" if self.at_send else "received"
        which = (
            f"number {self.nth}"
            if self.nth
            else f"{format_share(self.probability)} at random"
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
