"""Inference of process groups for operations that name no group.

gloo writes no ``record_param_comms``, so its operations have no group in a host trace.
Three kinds of evidence limit the possible groups of an operation:

* **Members**: splits, lists of tensors and the buffer ratio of a gather state the
  number of participants. Roots and peers are positions in the group.
* **Other ranks**: every other member of the group has a matching operation with the
  same size and root. For an uneven all_to_all, the splits must mirror each other.
* **Threads**, if a profile states them: each group has two threads, created together
  with the group. So thread numbers ascend in the order of the groups. Either thread can
  run the next operation. A thread that ran no operation is not in the profile.

The inference removes contradicting groups until nothing changes. If the group of an
operation is certain on one rank, the other members of that group must have the
operation too. If one group remains, the operation belongs to that group. If several
groups remain, the inference fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from chakram.chakra.read.groups import InitialGroup
from chakram.collectives.groups import ranks_text
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import TraceError

_THREADS_OF_A_GROUP = 2
_MIRROR = {"send": "recv", "recv": "send"}

Side: TypeAlias = "tuple[str, int, int, int | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnnamedOperation:
    """An operation that names no group.

    Attributes:
        where: Location of the operation.
        op: The operation: a collective, ``send`` or ``recv``.
        size_bytes: The contribution of the rank.
        members: Number of participants, or None if the arguments do not state it.
        splits: The splits of an uneven all_to_all.
        position: Position of the root or peer in the group.
        tag: The tag of a message.
        thread: Number of the thread that ran the operation, or None if unknown.
        stated: Names of the groups that the user allows. If empty, all are allowed.
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
    """The unnamed operations of a rank, in order, and the groups that contain the rank.

    The groups are in the order of their creation.
    """

    rank: int
    groups: tuple[InitialGroup, ...]
    operations: tuple[UnnamedOperation, ...]


def infer_groups(ranks: Mapping[int, RankOperations]) -> dict[int, list[str]]:
    """Return the group names of the unnamed operations, by rank.

    Args:
        ranks: The operations by rank. Ranks without an entry exclude no groups.

    Raises:
        TraceError: At the first operation that has no possible group, or several
            possible groups.
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
    """Possible and certain operations toward one peer in one group."""

    possible: set[Side] = field(default_factory=set)
    certain: Counter[Side] = field(default_factory=Counter)


_NO_SIDES = _Sides()


class _Rank:
    """The possible groups, by index, of each operation of a rank."""

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
        """Remove groups that no assignment of threads allows.

        Returns:
            Whether any group was removed.
        """
        if not self._threads:
            return False
        possible = self._by_threads()
        if not any(possible):  # no assignment fits the threads
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
        """Return the possible groups of each thread over all valid assignments.

        An assignment gives each group, in order, none, one or two of the next threads.
        """
        nthreads, ngroups = len(self._threads), len(self._groups)
        common = [
            set.intersection(*(self._left[index] for index in thread))
            for thread in self._threads
        ]

        def steps(thread: int, group: int) -> Iterator[int]:
            """Yield how many threads, starting at *thread*, *group* can have."""
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
        """Return this rank's possible operations toward each peer in each group."""
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
        """Remove groups in which a member has no matching operation.

        An operation with only one possible group keeps it. If other ranks contradict
        that group, the check across ranks reports the location.

        Returns:
            Whether any group was removed.
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
        """Assign operations to a group if a peer's certain operations need all of them.

        Returns:
            Whether anything changed.
        """
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
        more = f", like {alike} more of its kind" if alike else ""
        if left:
            names = " or ".join(_shown(self._groups[index]) for index in sorted(left))
            settings = ", ".join(
                f"{op}: NAME" for op in dict.fromkeys(other.op for other in unclear)
            )
            advice = (
                "use the profile of the run (kineto), whose threads may identify the "
                "group, or "
            )
            if any(other.thread is not None for other in self._operations):
                advice = "the threads of the profile do not identify the group; "
            raise TraceError(
                each.where,
                f"is {each.op} and names no process group{more}; it may belong to "
                f"{names}",
                f"{advice}set the group: unnamed_group: {{{settings}}}, by name or "
                "pg_desc",
            )
        groups = ", ".join(map(_shown, self._groups))
        about = "" if each.members is None else f" of {each.members} ranks"
        reason = (
            "no other rank of them has a matching operation"
            if self._first[operation]
            else "none of them fits"
        )
        raise TraceError(
            each.where,
            f"is {each.op}{about} and names no process group{more}; rank {self._rank} "
            f"is in {groups}, and {reason}",
            "check that the traces come from one run and include all of its ranks",
        )


def _fits(each: UnnamedOperation, group: InitialGroup, of: RankOperations) -> bool:
    """Return whether the parameters of an operation are possible in a group."""
    if each.stated and group.name not in each.stated:
        return False
    if not group.size or each.members not in (None, group.size):
        return False
    if each.op == CollectiveOp.ALL_TO_ALL:
        # The rows are divided evenly among the members.
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
    """Yield the other participants of an operation, assuming that it is in *group*.

    Each peer comes with the operation as seen from this rank. This view consists of the
    kind, the bytes sent to the peer, the bytes received from the peer, and the value on
    which both ends must agree.
    """
    if each.op in _MIRROR:
        if each.position is not None and each.position < group.size:
            yield (
                _rank_at(group, each.position),
                (each.op, each.size_bytes, each.size_bytes, each.tag),
            )
        return
    is_even = each.op == CollectiveOp.ALL_TO_ALL
    even = each.size_bytes // group.size if is_even else None
    # In a gather or scatter, only the root's buffer has the size of the whole.
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


def _facing(side: Side) -> Side:
    """Return an operation as seen from its other end."""
    op, sent, received, agreed = side
    return _MIRROR.get(op, op), received, sent, agreed


def _shown(group: InitialGroup) -> str:
    about = [group.purpose] if group.purpose else []
    about.append(f"ranks {ranks_text(group.ranks)}" if group.ranks else "all ranks")
    return f"{group.name!r} ({', '.join(about)})"


def operations_in_groups(of: RankOperations, names: Sequence[str]) -> str:
    """Return the number of operations by kind and group, as text."""
    counts = Counter(
        (each.op, name) for each, name in zip(of.operations, names, strict=True)
    )
    return ", ".join(
        f"{count} {op} in {name!r}" for (op, name), count in sorted(counts.items())
    )
