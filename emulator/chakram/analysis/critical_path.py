"""Critical path of an iteration: the chain of events that led to its end.

Every event has one *releaser*, the last of the events that it waited for:

* An operation is ready when a dependency ends, or when its rank starts the iteration.
* An operation starts when it is ready, or when the previous one on its stream ends.
* A message is ready when its operation starts, or when a message that it needs arrives.
* A message has its turn when it is ready, or when the previous message has left the
  queue pair.  Queue pairs keep the order of messages.
* A collective ends on a rank when its last message arrives or is acknowledged.

Records contain the releaser of each event.  So this module can follow the releasers
from the latest end back to a start.

The path consists of pieces without gaps.  Each piece has a *part*, the category of its
time, for example computation or waiting in a queue.  In virtual time, all parts are
known to the nanosecond, and the times of all pieces add up exactly to the iteration
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol


class Part(StrEnum):
    """Category of time on a path.  Parts are disjoint."""

    COMPUTE = "compute"
    HOST = "host"
    """Time from ready to posted in a run in virtual time."""
    ORDER = "order"
    """Wait of a ready operation for its stream, or of a message for a credit."""
    SCHEDULE = "schedule"
    """Wait for the recorded start time of an operation."""
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
    """Sum of the previous four parts, which a run on a network cannot separate."""
    ACK = "ack"
    START_SKEW = "start skew"
    GENERATOR = "generator"
    UNKNOWN = "unknown"


class Operation(NamedTuple):
    """One operation of a rank in an iteration, with the columns of ``operations``."""

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
    """One message in an iteration, with the columns of ``flows``."""

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
    """Whether the run used virtual time, in which the data plane is never late."""

    def start_ns(self, rank: int) -> int | None:
        """Return when the iteration of a rank started."""

    def first_start_ns(self) -> int:
        """Return the earliest start of the iteration on any rank."""

    def operation(self, rank: int, number: int) -> Operation | None:
        """Return an operation of a rank by its number in the program."""

    def share(self, rank: int, group: str, k: int) -> Operation | None:
        """Return a rank's operation in a collective or point-to-point transfer."""

    def message(
        self, group: str, k: int, src: int, dst: int, number: int
    ) -> Message | None:
        """Return a message of a collective by its ranks and its number."""

    def ahead_of(self, message: Message) -> Message | None:
        """Return the previous message of the queue pair, if *message* waited for it."""


class Piece(NamedTuple):
    """A span of time on the path, on one rank or between two ranks.

    Attributes:
        part: Category of the time.
        start_ns: Start of the span.
        end_ns: End of the span.
        rank: Rank on which the time passes, or the sender of the message.
        operation: The operation that the span belongs to, or None.
        message: The message that the span belongs to, or None.
    """

    part: Part
    start_ns: int
    end_ns: int
    rank: int
    operation: Operation | None = None
    message: Message | None = None

    @property
    def time_ns(self) -> int:
        """Length of the span."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The critical path from the first start to the end of an operation.

    Attributes:
        job: Name of the job.
        iteration: Number of the iteration.
        pieces: Pieces in order.  Each begins where the previous one ends.
    """

    job: str
    iteration: int
    pieces: tuple[Piece, ...]

    @property
    def time_ns(self) -> int:
        """Time from the first start to the end of the operation."""
        return self.pieces[-1].end_ns - self.pieces[0].start_ns if self.pieces else 0


def message_parts(message: Message, *, is_virtual: bool) -> list[tuple[Part, int]]:
    """Split the time of a message from ready to received into parts, in order.

    The parts cover all of that time in virtual time.  Only the time at the sender is
    split in a run on a network.  ``NETWORK`` covers the time after the last packet
    left.  This part is missing if the time of arrival is unknown.  If an RDMA NIC sends
    a message, ``NETWORK`` covers all time after the NIC received the message.
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
    if not is_virtual and not known and message.received_ns is not None:
        # An RDMA NIC sent the packets, so only the start and end of the transfer are
        # known.
        handed_ns = max(0, message.generator_wait_ns - max(0, waited_ns))
        rest_ns = message.received_ns - message.posted_ns - handed_ns
        return [*parts, (Part.GENERATOR, handed_ns), (Part.NETWORK, rest_ns)]
    if len(known) < len(own) or message.departed_ns is None:
        return parts
    port_ns, *others = known
    # While the data plane was late with a due packet, the port was not busy.
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
    records: Records, *, job: str, iteration: int, last: Operation
) -> Path:
    """Return the critical path to the end of an iteration or operation.

    Args:
        records: Records of the job in this iteration.
        job: Name of the job.
        iteration: Number of the iteration.
        last: Operation at whose end the path ends.
    """
    walk = _Walk(records)
    pieces = list(walk.back_from(last))
    pieces.reverse()
    return Path(job=job, iteration=iteration, pieces=tuple(pieces))


class _Walk:
    """Backward walk over releasers that yields the last piece first."""

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
        """Yield the piece that begins at *time_ns*, or none if *time_ns* is too late.

        The piece ends where the next one begins.  If the clocks of two hosts disagree,
        *time_ns* can be after that end.
        """
        if time_ns < self._at_ns:
            yield Piece(part, time_ns, self._at_ns, rank, operation, message)
            self._at_ns = time_ns

    def back_from(self, last: Operation) -> Iterator[Piece]:
        records = self._records
        operation: Operation | None = last
        self._at_ns = last.end_ns
        rank, rest = last.rank, Part.UNKNOWN
        # Releasers in damaged records may form a cycle.  The time before such a cycle
        # is unknown.
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
                        late = Part.ORDER  # waited for a credit from the receiver
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
        """Return the message whose arrival or ACK ended an operation, or None."""
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
        """Return the message that released another message, or None."""
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
        """Yield the pieces of a message, back to when it was ready or had its turn.

        Parts before the message's turn are omitted.  Repair then precedes transfer,
        because all packets that the message sent before its turn were lost.
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
            if len(parts) > 1:  # else only the wait before posting is known
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
