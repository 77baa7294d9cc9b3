"""The critical path of an iteration: what followed what until its last operation ended.

Every event has one *releaser*, the one before it that came last: an operation is ready
when a dependency ends, or when the iteration of its rank starts; it starts when it is
ready, or when the one ends that had its stream; a message is ready when its operation
starts, or when another message arrives that it needs, and its turn comes when it is
ready, or when the one before it has left its queue pair, which keeps their order; a
collective ends on a rank with the last message that arrives there or is acknowledged.
Records name releasers, so the path is found by going back from the latest end to a
start, without looking at anything else.

The path is cut into pieces, each with a *part* that says where the time went.  Pieces
follow each other without gaps: in virtual time, where all parts are known to the
nanosecond, they sum to the iteration exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol


class Part(StrEnum):
    """Where time of a path goes; the parts are disjoint."""

    COMPUTE = "compute"
    HOST = "host"
    """Between being ready and being posted, in virtual time."""
    ORDER = "order"
    """Ready, but its stream, or the credit of its receiver, was taken."""
    SCHEDULE = "schedule"
    """Until its recorded start."""
    OWN_PORT = "own port"
    WINDOW = "window"
    PACE = "pace"
    PAUSE = "pause"
    TRANSFER = "transfer"
    REPAIR = "repair"
    QUEUE = "queue"
    SWITCH_PAUSE = "pause at switch"
    SERIALISE = "serialise"
    PROPAGATE = "propagate"
    NETWORK = "network"
    """The last four of a run on a network, where only their sum is known."""
    ACK = "ack"
    START_SKEW = "start skew"
    GENERATOR = "generator"
    UNKNOWN = "unknown"


class Operation(NamedTuple):
    """One operation of a rank in an iteration; fields are columns of its table."""

    rank: int
    operation: int
    kind: str
    name: str
    group: str | None
    k: int | None
    ready_ns: int
    start_ns: int
    end_ns: int
    nominal_ns: int | None
    cause_number: int | None
    held_by: int | None
    end_cause: str | None
    end_rank: int | None
    end_number: int | None


class Message(NamedTuple):
    """One message in an iteration; fields are columns of ``flows``."""

    group: str
    k: int
    src: int
    dst: int
    number: int | None
    collective: str
    bytes: int
    qpn: int
    ready_ns: int
    posted_ns: int
    last_acked_ns: int
    rate_at_start_bps: int
    packets: int
    retransmitted: int
    cnp: int
    generator_wait_ns: int
    cause: str
    cause_rank: int | None
    cause_number: int | None
    departed_ns: int | None
    received_ns: int | None
    own_port_ns: int | None
    window_ns: int | None
    pace_ns: int | None
    pause_ns: int | None
    transfer_ns: int | None
    repair_ns: int | None
    queue_ns: int | None
    switch_pause_ns: int | None
    serialise_ns: int | None
    propagate_ns: int | None
    queue_port: str | None
    pause_port: str | None
    slow_ns: int | None
    slow_port: str | None
    path: str | None


class Records(Protocol):
    """The records of one job in one iteration."""

    is_virtual: bool
    """Whether time was virtual, so that nothing was ever late."""

    def last(self) -> Operation | None:
        """Return the operation that ended last, of the lowest rank; None: no one."""

    def start_ns(self, rank: int) -> int | None:
        """Return when the iteration of a rank started."""

    def first_start_ns(self) -> int:
        """Return when that of any did."""

    def operation(self, rank: int, number: int) -> Operation | None:
        """Return an operation of a rank by its number in the program."""

    def share(self, rank: int, group: str, k: int) -> Operation | None:
        """Return what a rank did of a collective, or as one end of a message."""

    def message(
        self, group: str, k: int, src: int, dst: int, number: int
    ) -> Message | None:
        """Return a message of a collective by its number between two ranks."""

    def ahead_of(self, message: Message) -> Message | None:
        """Return what left its queue pair before a message that was ready by then."""


class Piece(NamedTuple):
    """A part of the path, on one rank or between two.

    Attributes:
        part: What the time is.
        start_ns: When it begins.
        end_ns: When it ends.
        operation: Of which operation, or None.
        message: Of which message, or None.
    """

    part: Part
    start_ns: int
    end_ns: int
    rank: int
    operation: Operation | None = None
    message: Message | None = None

    @property
    def time_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """What the end of an operation had to wait for, from the first start on.

    Attributes:
        job: Of it.
        iteration: Likewise.
        pieces: First to last; each begins where the one before ends.
    """

    job: str
    iteration: int
    pieces: tuple[Piece, ...]

    @property
    def time_ns(self) -> int:
        """From the first start to that end."""
        return self.pieces[-1].end_ns - self.pieces[0].start_ns if self.pieces else 0


def message_parts(message: Message, *, is_virtual: bool) -> list[tuple[Part, int]]:
    """Return what the time from ready to received is made of, in its order.

    In virtual time that is all of it.  Of a message of a run on a network what its
    sender knows is a part each, and all after its last packet left is ``NETWORK``,
    whose time is not in the list.
    """
    waited_ns = message.posted_ns - message.ready_ns
    parts = [(Part.HOST if is_virtual else Part.GENERATOR, waited_ns)]
    own = (
        message.own_port_ns,
        message.window_ns,
        message.pace_ns,
        message.pause_ns,
        message.transfer_ns,
        message.repair_ns,
    )
    known = [each for each in own if each is not None]
    if len(known) < len(own) or message.departed_ns is None:
        return parts
    port_ns, *others = known
    # What the data plane was late for a packet that was due, its port was not busy.
    lost_ns = min(port_ns, max(0, message.generator_wait_ns - max(0, waited_ns)))
    if not is_virtual and lost_ns:
        parts.append((Part.GENERATOR, lost_ns))
        port_ns -= lost_ns
    names = (Part.WINDOW, Part.PACE, Part.PAUSE, Part.TRANSFER, Part.REPAIR)
    parts += [(Part.OWN_PORT, port_ns), *zip(names, others, strict=True)]
    left_ns = message.departed_ns - message.posted_ns - sum(known)
    if left_ns:
        parts.append((Part.UNKNOWN, left_ns))
    ways = (
        (Part.QUEUE, message.queue_ns),
        (Part.SWITCH_PAUSE, message.switch_pause_ns),
        (Part.SERIALISE, message.serialise_ns),
        (Part.PROPAGATE, message.propagate_ns),
    )
    if message.received_ns is None:
        return parts
    found = [(part, time_ns) for part, time_ns in ways if time_ns is not None]
    if len(found) < len(ways):
        return [*parts, (Part.NETWORK, message.received_ns - message.departed_ns)]
    return parts + found


def critical_path(
    records: Records, *, job: str, iteration: int, last: Operation | None = None
) -> Path:
    """Return what led to the end of an iteration, or of one of its operations.

    Args:
        records: Of the job and the iteration.
        job: Its name.
        iteration: Its number.
        last: The operation at whose end the path ends; None: that which ended last.
    """
    if last is None:
        last = records.last()
    if last is None:
        return Path(job=job, iteration=iteration, pieces=())
    walk = _Walk(records)
    pieces = list(walk.back_from(last))
    pieces.reverse()
    return Path(job=job, iteration=iteration, pieces=tuple(pieces))


class _Walk:
    """Goes back over releasers; what it yields are pieces, the last one first."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._at_ns = 0

    def _until(
        self,
        time_ns: int,
        part: Part,
        rank: int,
        operation: Operation | None = None,
        message: Message | None = None,
    ) -> Iterator[Piece]:
        """Go back to a time; clocks of two hosts may disagree: never forward."""
        if time_ns < self._at_ns:
            yield Piece(part, time_ns, self._at_ns, rank, operation, message)
            self._at_ns = time_ns

    def back_from(self, last: Operation) -> Iterator[Piece]:
        records = self._records
        operation: Operation | None = last
        self._at_ns = last.end_ns
        rank, rest = last.rank, Part.UNKNOWN
        # Damaged records may release one another in a circle: what lies before is
        # unknown.
        seen: set[Operation | Message] = set()
        while operation is not None and operation not in seen:
            seen.add(operation)
            rank = operation.rank
            yield from self._until(operation.end_ns, Part.UNKNOWN, rank, operation)
            if operation.kind == "compute":
                yield from self._until(
                    operation.start_ns, Part.COMPUTE, rank, operation
                )
                if operation.held_by is not None:
                    holder = records.operation(rank, operation.held_by)
                    if holder is not None:
                        operation = holder
                        continue
                yield from self._until(operation.ready_ns, Part.ORDER, rank, operation)
            else:
                late = Part.HOST if records.is_virtual else Part.GENERATOR
                message = self._end(operation)
                while message is not None and message not in seen:
                    seen.add(message)
                    ahead = records.ahead_of(message)
                    yield from self._cross(message, operation, ahead)
                    if ahead is None and message.cause == "grant":
                        late = Part.ORDER  # it waited for its receiver's credit
                    rank = message.src
                    before = self._before(message) if ahead is None else ahead
                    share = records.share(rank, message.group, message.k)
                    if share is not None:
                        operation = share
                    message = before
                yield from self._until(operation.ready_ns, late, rank, operation)
            if operation.cause_number is None:
                rest = Part.SCHEDULE
            operation = (
                None
                if operation.cause_number is None or operation.rank != rank
                else records.operation(rank, operation.cause_number)
            )
        start_ns = records.start_ns(rank)
        if start_ns is not None:
            yield from self._until(start_ns, rest, rank)
        yield from self._until(records.first_start_ns(), Part.START_SKEW, rank)

    def _end(self, operation: Operation) -> Message | None:
        """Return the message that an operation ended with, if that is not its start."""
        if operation.group is None or operation.k is None:
            return None
        peer, number = operation.end_rank, operation.end_number
        if peer is None or number is None:
            return None
        src, dst = peer, operation.rank
        if operation.end_cause == "acknowledged":
            src, dst = dst, src
        elif operation.end_cause != "received":
            return None
        return self._records.message(operation.group, operation.k, src, dst, number)

    def _before(self, message: Message) -> Message | None:
        """Return the message that released one, if one did."""
        if message.cause != "message":
            return None
        if message.cause_rank is None or message.cause_number is None:
            return None
        return self._records.message(
            message.group,
            message.k,
            message.cause_rank,
            message.src,
            message.cause_number,
        )

    def _cross(
        self, message: Message, operation: Operation, ahead: Message | None
    ) -> Iterator[Piece]:
        """Go back from where a message is to where it was ready, or its turn came.

        Of its parts those before its turn are left out; repair comes before transfer
        then, for what it had sent before was sent for nothing.
        """
        received_ns = message.received_ns
        if (
            operation.end_cause == "acknowledged"
            and operation.rank == message.src
            and self._at_ns == message.last_acked_ns
            and received_ns is not None
        ):
            yield from self._until(
                received_ns, Part.ACK, message.src, operation, message
            )
        parts = message_parts(message, is_virtual=self._records.is_virtual)
        turn_ns = message.ready_ns
        if ahead is not None and ahead.departed_ns is not None:
            turn_ns = ahead.departed_ns
            if len(parts) > 1:  # else only its wait is known
                at = [part for part, _ in parts].index(Part.TRANSFER)
                parts[at : at + 2] = reversed(parts[at : at + 2])
        times_ns = [message.ready_ns]
        for _, time_ns in parts:
            times_ns.append(times_ns[-1] + time_ns)
        times_ns = [max(each, turn_ns) for each in times_ns]
        rest = Part.NETWORK if len(parts) > 1 and received_ns is None else Part.UNKNOWN
        yield from self._until(times_ns[-1], rest, message.src, operation, message)
        for (part, _), time_ns in zip(reversed(parts), times_ns[-2::-1], strict=True):
            yield from self._until(time_ns, part, message.src, operation, message)
