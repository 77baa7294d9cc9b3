"""Packet faults: what a port is to do to packets on purpose.

They disturb the transport at a known place, which no network does on demand: "lose the
third data packet from rank 0 to rank 5", "delay one ACK in a hundred by 2 ms". Every
packet that is touched is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from chakram.foundation.declared_parameters import Knob
from chakram.foundation.field_bounds import (
    MAX_NAMES,
    MAX_TIME_NS,
    Identifier,
    Name,
    OneOf,
    Within,
    check_fields,
)

MAX_FAULTS = 64
"""Packet faults of one run; what each has hit is counted in a slot of its own."""


class FaultAction(IntEnum):
    """What happens to a packet; counted as ``records.counter_definitions`` says."""

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


Rank = Annotated[int, Within(0, MAX_NAMES - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketFault:
    """One fault, at every port that it fits.

    Without `nth` it happens at random. None of job, ranks, group, channel and queue
    pair: of any. Of a packet without payload a bit is always flipped in its headers.

    Raises:
        ValueError: If a value is out of its bounds, or they do not fit together.
    """

    action: Annotated[
        FaultAction, Knob(1, words={each.name.lower(): each for each in FaultAction})
    ]
    """What is done. drop; delay: others overtake it; duplicate; reorder: a few of its
    queue pair overtake it; mark: "congestion experienced"; corrupt: one bit is flipped;
    not_ready: answered with a receiver-not-ready NAK."""
    at_send: Annotated[
        bool, Knob(2, key="at", words={"receive": False, "send": True})
    ] = False
    """Which of the two ports does it."""
    packets: Annotated[str, OneOf(tuple(PACKET_CLASSES)), Knob(3)] = "data"
    """Which class of packets, by opcode."""
    job: Annotated[Identifier | None, Knob(4, example="moe")] = None
    """Only packets of this job."""
    source: Annotated[Rank | None, Knob(5, example=0)] = None
    """Only packets that this rank sends."""
    destination: Annotated[Rank | None, Knob(6, example=5)] = None
    """Only packets to this rank."""
    group: Annotated[Name | None, Knob(13, most=256, example="p2p")] = None
    """Only packets of this process group, as "chakram trace show" names it; p2p: of
    messages between two ranks."""
    channel: Annotated[
        Annotated[int, Within(0, 2**10 - 1)] | None, Knob(14, example=0)
    ] = None
    """Only packets of this channel of an algorithm, from 0."""
    queue_pair: Annotated[Annotated[int, Within(0, 63)] | None, Knob(15, example=0)] = (
        None
    )
    """Only packets of this one of transport.queue_pairs.count, from 0."""
    nth: Annotated[
        int, Within(0, 2**53), Knob(7, is_optional=True, least=1, example=3)
    ] = 0
    """The packet that it happens to, counted from 1 at each port."""
    count: Annotated[int, Within(1, 2**53), Knob(8)] = 1
    """How many in a row."""
    every: Annotated[
        int, Within(0, 2**53), Knob(9, is_optional=True, least=1, example=1000)
    ] = 0
    """And again, each time after so many packets."""
    probability: Annotated[
        float, Within(0.0, 1.0), Knob(10, is_optional=True, above=0.0, example=0.01)
    ] = 0.0
    """Share of the packets that it happens to, at random; in place of nth."""
    delay_ns: Annotated[
        int, Within(1, MAX_TIME_NS), Knob(11, key="by", most=10 * 10**9)
    ] = 1_000_000
    """How much a delay is; how long a reordered packet waits for others at most."""
    behind: Annotated[int, Within(1, 1_000), Knob(12)] = 3
    """How many packets overtake a reordered one."""
    part: Annotated[str, OneOf(("any", "header", "payload")), Knob(16)] = "any"
    """Where corrupt flips a bit: anywhere from the BTH to the ICRC, in the headers of
    the transport, or in the payload."""

    def __post_init__(self) -> None:
        check_fields(self)
        problems = [text for is_wrong, text in self._doubts() if is_wrong]
        if problems:
            raise ValueError("; ".join(problems))

    def _doubts(self) -> tuple[tuple[bool, str], ...]:
        """Return what may contradict itself, each with whether it does."""
        return (
            (
                (self.nth > 0) == (self.probability > 0.0),
                "a fault has either nth or a probability",
            ),
            (
                0 < self.every < self.count,
                f"{self.count} packets in every {self.every}",
            ),
            (
                self.at_send and self.action is FaultAction.NOT_READY,
                "not_ready is something that a receiver does",
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
