"""Algorithms as explicit transfer lists for groups of one size.

Chakram converts users' algorithms (``chakram.user_algorithms``) to such lists and
stores the lists in the plan. Agents therefore need neither the files nor the code.
Every rank takes its own transfers from the list.

Every transfer is a separate message. It lists the transfers that its source must
receive first. Its content is a set of *parts* of the collective's buffer, which
determine its size. Alternatively, it has a fixed number of bytes, independent of the
size of the collective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from chakram.collectives.algorithms.base import Scheduled
from chakram.collectives.ops import CollectiveOp, buffer_bytes
from chakram.collectives.schedule import Algorithm, Transfer, rank_schedule
from chakram.collectives.schedule_check import build_schedule

MAX_LISTED = 1 << 17
"""Maximum transfers of one listed algorithm."""

MAX_PARTS = 1 << 20
"""Maximum parts of the buffer of a listed algorithm."""

MAX_AFTER = 1 << 12
"""Maximum transfers that one transfer may wait for."""


_PAIRED = frozenset({CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_TO_ALL_V})
"""Collectives in which every pair of source and destination has its own parts."""

_BUFFER_EACH = _PAIRED | {CollectiveOp.SEND_RECV}
"""Collectives whose parts cover all ranks' buffers, one buffer after another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransfer:
    """One message of a listed algorithm.

    Attributes:
        step: Step number, greater than the step of any transfer in *after*.
        src: Position that sends it.
        dst: Position that receives it.
        channel: Index of the queue pair between the two positions.
        parts: Runs of buffer parts that it carries, as (first, count). Empty if the
            message is only a notification.
        nbytes: Size in bytes. None means the size of its parts.
        reduce: Whether the destination adds it to its own data.
        after: List indices of the transfers that its source must have received.
    """

    step: int
    src: int
    dst: int
    channel: int = 0
    parts: tuple[tuple[int, int], ...] = ()
    nbytes: int | None = None
    reduce: bool = False
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAlgorithm(Scheduled):
    """A listed algorithm for *nranks* positions and one root.

    Attributes:
        name: Name in plans and records.
        op: The collective that it implements.
        nranks: Size of the groups that it serves.
        root: The root that it serves.
        nparts: Number of parts of all buffers together, as ``nchunks`` of
            ``chakram.collectives.schedule.Algorithm``.
        transfers: The transfers, in ascending order of step. Within a step, each source
            sends in the order of this list.
    """

    name: str
    op: CollectiveOp
    nranks: int
    root: int
    nparts: int
    transfers: tuple[ListedTransfer, ...]
    _sends: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    _receives: tuple[tuple[int, ...], ...] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        sends: list[list[int]] = [[] for _ in range(self.nranks)]
        receives: list[list[int]] = [[] for _ in range(self.nranks)]
        for place, transfer in enumerate(self.transfers):
            sends[transfer.src].append(place)
            receives[transfer.dst].append(place)
        object.__setattr__(self, "_sends", tuple(map(tuple, sends)))
        object.__setattr__(self, "_receives", tuple(map(tuple, receives)))

    def __hash__(self) -> int:
        """Return a hash without the transfers, because algorithms are cache keys."""
        return hash((self.name, self.op, self.nranks, self.root, len(self.transfers)))

    def unfit(self, nranks: int) -> str | None:
        """Return why the algorithm cannot serve *nranks* ranks, or None if it can."""
        if nranks == self.nranks:
            return None
        return f"it is for {self.nranks} ranks"

    def nchunks(self, nranks: int) -> int:
        """Return the number of transfers, because each transfer is one chunk."""
        return len(self.transfers)

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of the transfer at index *chunk* in bytes."""
        transfer = self.transfers[chunk]
        if transfer.nbytes is not None:
            return transfer.nbytes
        total_bytes, period = _buffer(self, input_bytes)

        def before(part: int) -> int:
            buffers, within = divmod(part, period)
            return buffers * total_bytes + total_bytes * within // period

        return sum(
            before(first + count) - before(first) for first, count in transfer.parts
        )

    def pairs(self, place: int) -> Iterator[tuple[int, int]]:
        """Yield (source, destination) of the data in an all_to_all's transfer."""
        each = self.nparts // self.nranks**2
        for first, count in self.transfers[place].parts:
            for pair in range(first // each, (first + count - 1) // each + 1):
                yield divmod(pair, self.nranks)

    def uneven_bytes(self, place: int, pair_bytes: Callable[[int, int], int]) -> int:
        """Return the size of the transfer at *place* in an all_to_all_v.

        Args:
            place: Index in the list.
            pair_bytes: Function from (source, destination) to the bytes of that pair.
                These bytes are divided into the parts of the pair.
        """
        each = self.nparts // self.nranks**2
        size_bytes = 0
        for first, count in self.transfers[place].parts:
            end = first + count
            while first < end:
                pair, begin = divmod(first, each)
                until = min(each, begin + end - first)
                whole = pair_bytes(*divmod(pair, self.nranks))
                size_bytes += whole * until // each - whole * begin // each
                first += until - begin
        return size_bytes

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the sends of *position*."""
        return map(self._transfer, self._sends[position])

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the receives of *position*."""
        return map(self._transfer, self._receives[position])

    def _transfer(self, place: int) -> Transfer:
        listed = self.transfers[place]
        return Transfer(
            step=listed.step,
            src=listed.src,
            dst=listed.dst,
            chunk=place,
            reduce=listed.reduce,
            channel=listed.channel,
            after=listed.after,
        )


def _buffer(how: ListedAlgorithm, input_bytes: int) -> tuple[int, int]:
    """Return the bytes of one buffer and its number of parts."""
    if how.op in _BUFFER_EACH:
        return input_bytes, how.nparts // how.nranks  # each rank has its own buffer
    total_bytes = buffer_bytes(how.op, input_bytes=input_bytes, nranks=how.nranks)
    return total_bytes, how.nparts


def runs_of(parts: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return *parts* as runs of (first, count)."""
    runs: list[tuple[int, int]] = []
    for part in parts:
        if runs and sum(runs[-1]) == part:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((part, 1))
    return tuple(runs)


def listed_from(
    algorithm: Algorithm, *, name: str, nranks: int, root: int = 0
) -> ListedAlgorithm:
    """Return *algorithm* as a list for one group size and one root."""
    transfers = build_schedule(algorithm, nranks=nranks, root=root).transfers
    shares = [
        rank_schedule(algorithm, position=position, nranks=nranks, root=root)
        for position in range(nranks)
    ]
    # ``transfers`` and ``share.sends`` have the sends of a position in the same order.
    turns = [iter(share.sends) for share in shares]
    sent = [(each, next(turns[each.src])) for each in transfers]
    places = {
        (each.src, each.dst, send.channel, send.message): place
        for place, (each, send) in enumerate(sent)
    }
    listed: list[ListedTransfer] = []
    for transfer, send in sent:
        needs = (shares[transfer.src].receives[need] for need in send.needs)
        listed.append(
            ListedTransfer(
                step=transfer.step,
                src=transfer.src,
                dst=transfer.dst,
                channel=transfer.channel,
                parts=runs_of(transfer.chunks),
                reduce=transfer.reduce,
                after=tuple(
                    sorted(
                        places[need.peer, transfer.src, need.channel, need.message]
                        for need in needs
                    )
                ),
            )
        )
    return ListedAlgorithm(
        name=name,
        op=algorithm.op,
        nranks=nranks,
        root=root,
        nparts=algorithm.nchunks(nranks),
        transfers=tuple(listed),
    )


def check_listed(
    transfers: Sequence[ListedTransfer], *, op: CollectiveOp, nranks: int, nparts: int
) -> list[str]:
    """Return the formal errors of a list from an external source.

    This function does not check that the list implements its collective. The program
    that created the list has checked that.
    """
    problems: list[str] = []
    for place, transfer in enumerate(transfers):
        where = f"transfer {place}"
        if not (0 <= transfer.src < nranks and 0 <= transfer.dst < nranks):
            problems.append(f"{where}: outside {nranks} positions")
        elif transfer.src == transfer.dst:
            problems.append(f"{where}: position {transfer.src} sends to itself")
        if any(
            first < 0 or count < 1 or first + count > nparts
            for first, count in transfer.parts
        ):
            problems.append(f"{where}: outside {nparts} parts")
        for other in transfer.after:
            if not 0 <= other < place:
                problems.append(f"{where}: waits for transfer {other}, which is later")
            elif transfers[other].dst != transfer.src:
                problems.append(
                    f"{where}: waits for transfer {other}, which goes to another "
                    "position"
                )
            elif transfers[other].step >= transfer.step:
                problems.append(
                    f"{where}: waits for transfer {other} of step "
                    f"{transfers[other].step}, but is in step {transfer.step}"
                )
    if any(a.step > b.step for a, b in pairwise(transfers)):
        problems.append("the steps are not in ascending order")
    if nparts % (nranks if op in _BUFFER_EACH else 1):
        problems.append(f"{nparts} parts do not divide evenly among the ranks")
    elif op in _PAIRED and nparts % nranks**2:
        problems.append(f"{nparts} parts do not divide evenly among the pairs of ranks")
    if op == CollectiveOp.ALL_TO_ALL_V and any(
        each.nbytes is not None for each in transfers
    ):
        problems.append(
            "its messages have fixed sizes, but must have those of the splits"
        )
    return problems
