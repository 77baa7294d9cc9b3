"""Which process groups operations without a name can be in, from what ranks recorded.

gloo writes no ``record_param_comms``, so its operations name no group in a host trace.
What they are says which of the rank's groups they can be in:

* **members**: splits, lists of tensors and the ratio of a gather's buffers state how
  many ranks take part; roots and peers are positions in the group.
* **other ranks**: whoever else is in the group has done the same operation: of the same
  size and root, and of an uneven all_to_all with the splits that face those here.
* **threads**, where a profile tells them.  Every group has two of its own, made when
  the group is, so that the numbers of threads ascend in the order of the groups.
  Whichever of the two is free takes the next operation, so one that never worked is not
  seen.

What contradicts any of these is taken out until nothing more falls, and what some rank
certainly did in a group, the others did there, too.  An operation whose group is the
only one left is in it; nothing is chosen where several are left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from chakram.collectives.groups import ranks_text
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import TraceError

if TYPE_CHECKING:
    from chakram.chakra.read.groups import InitialGroup
    from chakram.collectives.split_sizes import Splits


_THREADS_OF_A_GROUP = 2
_MIRROR = {"send": "recv", "recv": "send"}

Side: TypeAlias = "tuple[str, int, int, int | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnnamedOperation:
    """An operation that names no group.

    Attributes:
        where: Its place.
        op: What it does: a collective, ``send`` or ``recv``.
        size_bytes: What the rank contributes.
        members: How many ranks its arguments say that take part; None: they do not.
        splits: Those of an uneven all_to_all.
        position: The root's or the peer's position in the group.
        tag: That of a message.
        thread: The thread that did it; None where no profile tells.
        stated: The names of the only groups that the user allows; empty: any.
    """

    where: str
    op: str
    size_bytes: int
    members: int | None
    splits: Splits | None
    position: int | None
    tag: int
    thread: int | None
    stated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOperations:
    """The unnamed operations of a rank, in order, and the groups that it is in.

    The groups stand in the order in which they were made.
    """

    rank: int
    groups: tuple[InitialGroup, ...]
    operations: tuple[UnnamedOperation, ...]


def infer_groups(ranks: Mapping[int, RankOperations]) -> dict[int, list[str]]:
    """Return by rank the names of the groups of its operations.

    Args:
        ranks: What is known, by rank.  Ranks that are not in it object to nothing.

    Raises:
        TraceError: At the first operation whose group is not the only one left.
    """
    states = {rank: _Rank(each) for rank, each in ranks.items()}
    changed = True
    while changed:
        changed = False
        for state in states.values():
            changed |= state.follow_threads()
        sides = {rank: state.sides() for rank, state in states.items()}
        for state in states.values():
            changed |= state.keep_supported(sides)
            changed |= state.keep_demanded(sides)
    return {rank: state.names() for rank, state in states.items()}


@dataclass(slots=True)
class _Sides:
    """What operations can be, or certainly are, towards a peer in a group."""

    possible: set[Side] = field(default_factory=set)
    certain: Counter[Side] = field(default_factory=Counter)


_NO_SIDES = _Sides()


class _Rank:
    """The groups, by index, that each operation of a rank can still be in."""

    def __init__(self, of: RankOperations) -> None:
        self._rank = of.rank
        self._groups = of.groups
        self._operations = of.operations
        self._first = [
            {index for index, group in enumerate(of.groups) if _fits(each, group, of)}
            for each in of.operations
        ]
        self._left = [set(each) for each in self._first]
        by_thread: dict[int, list[int]] = {}
        for index, each in enumerate(of.operations):
            if each.thread is not None:
                by_thread.setdefault(each.thread, []).append(index)
        self._threads = [by_thread[thread] for thread in sorted(by_thread)]

    def follow_threads(self) -> bool:
        """Take out what no way to give the threads to the groups has; say if any."""
        if not self._threads:
            return False
        possible = self._by_threads()
        if not any(possible):  # not the threads of this rule
            self._threads = []
            return False
        return self._take_out(
            {
                operation: allowed
                for thread, allowed in zip(self._threads, possible, strict=True)
                for operation in thread
            }
        )

    def _by_threads(self) -> list[set[int]]:
        """Return by thread the groups that it has in any way to give out all threads.

        A way goes through threads and groups together: it leaves a group out, or gives
        it the next thread or the next two.
        """
        nthreads, ngroups = len(self._threads), len(self._groups)
        common = [
            set.intersection(*(self._left[index] for index in thread))
            for thread in self._threads
        ]

        def steps(thread: int, group: int) -> Iterator[int]:
            """Yield how many threads, from *thread* on, *group* can have."""
            yield 0
            for count in range(1, _THREADS_OF_A_GROUP + 1):
                if thread + count > nthreads or group not in common[thread + count - 1]:
                    return
                yield count

        ends = {(nthreads, ngroups)}
        for group in reversed(range(ngroups)):
            for thread in range(nthreads + 1):
                if any((thread + n, group + 1) in ends for n in steps(thread, group)):
                    ends.add((thread, group))
        found: list[set[int]] = [set() for _ in self._threads]
        reached = {0}
        for group in range(ngroups):
            further: set[int] = set()
            for thread in reached:
                for count in steps(thread, group):
                    if (thread + count, group + 1) not in ends:
                        continue
                    further.add(thread + count)
                    for each in range(thread, thread + count):
                        found[each].add(group)
            reached = further
        return found

    def sides(self) -> dict[tuple[str, int], _Sides]:
        """Return by group and peer what the operations here can be towards it."""
        found: dict[tuple[str, int], _Sides] = {}
        for each, left in zip(self._operations, self._left, strict=True):
            for index in left:
                group = self._groups[index]
                for peer, side in _peers(each, group, self._rank):
                    at = found.setdefault((group.name, peer), _Sides())
                    at.possible.add(side)
                    at.certain[side] += len(left) == 1
        return found

    def keep_supported(
        self, sides: Mapping[int, Mapping[tuple[str, int], _Sides]]
    ) -> bool:
        """Take out groups of which another member did not do the same; say if any.

        What can only be in one group stays there: if others contradict it, the check
        of all ranks against one another shows where.
        """

        def is_supported(each: UnnamedOperation, group: InitialGroup) -> bool:
            return all(
                _facing(side)
                in sides[peer].get((group.name, self._rank), _NO_SIDES).possible
                for peer, side in _peers(each, group, self._rank)
                if peer in sides
            )

        return self._take_out(
            {
                operation: {
                    index for index in left if is_supported(each, self._groups[index])
                }
                for operation, (each, left) in enumerate(
                    zip(self._operations, self._left, strict=True)
                )
                if len(left) > 1
            }
        )

    def keep_demanded(
        self, sides: Mapping[int, Mapping[tuple[str, int], _Sides]]
    ) -> bool:
        """Settle what others certainly did in a group, where no more than that fits."""
        able: dict[tuple[int, int, Side], list[int]] = {}
        for operation, (each, left) in enumerate(
            zip(self._operations, self._left, strict=True)
        ):
            for index in left:
                for peer, side in _peers(each, self._groups[index], self._rank):
                    able.setdefault((index, peer, side), []).append(operation)
        kept: dict[int, set[int]] = {}
        for (index, peer, side), operations in able.items():
            of_peer = sides.get(peer, {}).get((self._groups[index].name, self._rank))
            if of_peer is not None and of_peer.certain[_facing(side)] == len(
                operations
            ):
                kept |= {operation: {index} for operation in operations}
        return self._take_out(kept)

    def _take_out(self, kept: Mapping[int, set[int]]) -> bool:
        changed = False
        for operation, allowed in kept.items():
            left = self._left[operation] & allowed
            changed |= len(left) < len(self._left[operation])
            self._left[operation] = left
        return changed

    def names(self) -> list[str]:
        for operation, left in enumerate(self._left):
            if len(left) != 1:
                self._refuse(operation)
        return [self._groups[min(left)].name for left in self._left]

    def _refuse(self, operation: int) -> None:
        each, left = self._operations[operation], self._left[operation]
        unclear = [
            other
            for other, groups in zip(self._operations, self._left, strict=True)
            if len(groups) != 1
        ]
        alike = sum(other.op == each.op for other in unclear) - 1
        more = f", as {alike} more of its kind" if alike else ""
        if left:
            names = " or ".join(_shown(self._groups[index]) for index in sorted(left))
            settings = ", ".join(
                f"{op}: NAME" for op in dict.fromkeys(other.op for other in unclear)
            )
            advice = "give the profile of the run (kineto), whose threads may tell, or "
            if any(other.thread is not None for other in self._operations):
                advice = "the threads of the profile do not tell; "
            raise TraceError(
                each.where,
                f"is {each.op} and names no process group{more}; it may be in {names}",
                f"{advice}say which: unnamed_group: {{{settings}}}, by name or pg_desc",
            )
        groups = ", ".join(map(_shown, self._groups))
        about = "" if each.members is None else f" of {each.members} ranks"
        reason = (
            "no other rank that would be in it did the same"
            if self._first[operation]
            else "it fits none"
        )
        raise TraceError(
            each.where,
            f"is {each.op}{about} and names no process group{more}; rank {self._rank} "
            f"is in {groups}, and {reason}",
            "are the traces those of one run, and of all its ranks?",
        )


def _fits(each: UnnamedOperation, group: InitialGroup, of: RankOperations) -> bool:
    """Say whether what an operation states of itself fits a group."""
    if each.stated and group.name not in each.stated:
        return False
    if not group.size or each.members not in (None, group.size):
        return False
    if each.op == CollectiveOp.ALL_TO_ALL:
        # Its rows are divided evenly among the members.
        return each.size_bytes % group.size == 0
    if each.position is None:
        return True
    if each.position >= group.size:
        return False
    return each.op not in _MIRROR or _rank_at(group, each.position) != of.rank


def _rank_at(group: InitialGroup, position: int) -> int:
    return group.ranks[position] if group.ranks else position


def _peers(
    each: UnnamedOperation, group: InitialGroup, rank: int
) -> Iterator[tuple[int, Side]]:
    """Yield who else takes part in an operation, were it of this group.

    With every rank comes what the operation is on that side of it: kind, what goes to
    the peer, what comes from it, and what else both ends agree about.
    """
    if each.op in _MIRROR:
        if each.position is not None and each.position < group.size:
            yield (
                _rank_at(group, each.position),
                (each.op, each.size_bytes, each.size_bytes, each.tag),
            )
        return
    even = _even_part(each, group)
    # Only the root's buffer of these is that of the whole.
    is_rooted = each.op in (CollectiveOp.GATHER, CollectiveOp.SCATTER)
    size_bytes = 0 if is_rooted else each.size_bytes
    for at, member in enumerate(group.ranks or range(group.size)):
        if member == rank:
            continue
        if each.splits is not None:
            sent, received = each.splits.sent_bytes[at], each.splits.received_bytes[at]
            yield member, (CollectiveOp.ALL_TO_ALL, sent, received, None)
        elif even is not None:
            yield member, (CollectiveOp.ALL_TO_ALL, even, even, None)
        else:
            yield member, (each.op, size_bytes, size_bytes, each.position)


def _even_part(each: UnnamedOperation, group: InitialGroup) -> int | None:
    """Return what an all_to_all without splits sends to each member."""
    if each.op != CollectiveOp.ALL_TO_ALL:
        return None
    return each.size_bytes // group.size


def _facing(side: Side) -> Side:
    """Return what an operation is at its other end."""
    op, sent, received, agreed = side
    return _MIRROR.get(op, op), received, sent, agreed


def _shown(group: InitialGroup) -> str:
    about = [group.purpose] if group.purpose else []
    about.append(f"ranks {ranks_text(group.ranks)}" if group.ranks else "all ranks")
    return f"{group.name!r} ({', '.join(about)})"


def operations_in_groups(of: RankOperations, names: Sequence[str]) -> str:
    """Return which operations were found to be in which groups, in words."""
    counts = Counter(
        (each.op, name) for each, name in zip(of.operations, names, strict=True)
    )
    return ", ".join(
        f"{count} {op} in {name!r}" for (op, name), count in sorted(counts.items())
    )
