# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Checks the programs of a job against one another while they are columns.

It says whether ``chakram.program.job_check`` would find anything, at a hundredth of its
time, but not what: whoever is told that something is wrong asks there.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

from chakram.collectives.ops import CollectiveOp
from chakram.collectives.splits import mismatch
from chakram.program.operation_table import NO_SPLITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.collectives.splits import Splits
    from chakram.program.operation_table import Column, TableColumns

__all__ = ["TableCheck", "are_ends", "are_within", "largest"]

_NOTHING = -1
_MEMBER, _NAMED = 1, 2


def largest(column: Column) -> int:
    """Return the largest of unsigned 32-bit numbers, -1 if there are none."""
    return _largest(column)


def are_within(column: Column, least: int, most: int) -> bool:
    """Say whether signed 64-bit numbers are in *least* to *most*, both inclusive."""
    return _are_within(column, least, most)


def are_ends(column: Column, total: int, longest: int) -> bool:
    """Say whether 32-bit numbers are ends of parts that have *total* entries in all.

    No part may have more than *longest* of them.
    """
    return _are_ends(column, total, longest)


def _largest(column: Column) -> int:
    found = _NOTHING
    for at in range(len(column)):
        if column[at] > found:
            found = column[at]
    return found


def _are_within(column: Column, least: int, most: int) -> bool:
    for at in range(len(column)):
        if column[at] < least or column[at] > most:
            return False
    return True


def _are_ends(column: Column, total: int, longest: int) -> bool:
    begin = 0
    for at in range(len(column)):
        end = column[at]
        if end < begin or end - begin > longest:
            return False
        begin = end
    return begin == total


class TableCheck:
    """The programs of all ranks of a job.

    Args:
        columns: Their operations; every place in them is one that is there, no two
            process groups have one name, and every rank of one is among *ranks*.
        ranks: Their ranks, each once.
        places: By program, the places of its operations.
        named: By program, the places of the process groups that it names.
    """

    def __init__(
        self,
        columns: TableColumns,
        *,
        ranks: Sequence[int],
        places: Sequence[Column],
        named: Sequence[Sequence[int]],
    ) -> None:
        collectives, messages = columns.collectives, columns.messages
        self._columns = columns
        self._ranks = ranks
        self._first_collective = len(columns.computes.durations_ns)
        self._first_message = self._first_collective + len(collectives.groups)
        self._has_splits = collectives.splits is not None
        self._dependencies = columns.dependencies
        self._dependency_ends = columns.dependency_ends
        self._groups = collectives.groups
        self._numbers = collectives.numbers
        self._kinds = collectives.kinds
        self._input_bytes = collectives.input_bytes
        self._trace_bytes = collectives.trace_bytes
        self._roots = collectives.roots
        self._peers = messages.peers
        self._sizes = array("I", [len(each.ranks) for each in collectives.all_groups])
        self._memberships = _memberships(columns, ranks, named)
        all_places = array("I")
        for each in places:
            all_places += each
        self._places = all_places
        self._starts = array("q", accumulate(map(len, places), initial=0))
        self._edges = array("q", bytes(8 * len(columns)))
        self._reach = array("q", bytes(8 * len(columns)))
        self._measure()

    def edges(self) -> int:
        """Return how many dependencies all programs have: what time and memory take."""
        return self._sum_of_edges()

    def is_sound(self) -> bool:
        """Say whether ``check_job`` would find nothing wrong."""
        count = len(self._places)
        # Of messages: rank, row, place in all programs.  Of collectives, if some have
        # splits: rank, row, number in the job.
        self._ends: list[tuple[int, int, int]] = []
        self._uneven: list[tuple[int, int, int]] = []
        # By group: the collectives of each member; by operation: the collective that
        # it is part of, and the receive of the message that it sends.
        self._counts = array("q", [_NOTHING]) * len(self._sizes)
        self._shared = array("i", [_NOTHING]) * count
        self._partner = array("i", [_NOTHING]) * count
        programs = range(len(self._ranks))
        if not all(
            self._has_sound_rows(program, self._memberships[program])
            for program in programs
        ):
            return False
        self._bases = array(
            "q", accumulate((max(0, each) for each in self._counts), initial=0)
        )
        total = self._bases[len(self._sizes)]
        self._first_seen = array("i", [_NOTHING]) * total
        self._seen_in = array("i", [_NOTHING]) * total
        self._absent = array("i", bytes(4 * total))
        return (
            all(self._has_sound_collectives(program) for program in programs)
            and self._have_sound_splits()
            and self._have_sound_messages()
            and self._all_end()
        )

    def _measure(self) -> None:
        """Find of every operation how many dependencies it has, and how far they go."""
        begin = 0
        for place in range(len(self._dependency_ends)):
            reach = _NOTHING
            for edge in range(begin, self._dependency_ends[place]):
                if self._dependencies[edge] > reach:
                    reach = self._dependencies[edge]
            self._reach[place] = reach
            self._edges[place] = self._dependency_ends[place] - begin
            begin = self._dependency_ends[place]

    def _sum_of_edges(self) -> int:
        total = 0
        for at in range(len(self._places)):
            total += self._edges[self._places[at]]
        return total

    def _has_sound_rows(self, program: int, membership: bytearray) -> bool:
        """Check one program by itself; count its collectives."""
        start, end = self._starts[program], self._starts[program + 1]
        length = end - start
        counts = array("q", bytes(8 * len(self._sizes)))
        own_counts = counts
        rank = self._ranks[program]
        for at in range(start, end):
            place = self._places[at]
            if self._reach[place] >= length:
                return False
            if place < self._first_collective:
                continue
            if place >= self._first_message:
                if self._peers[place - self._first_message] == rank:
                    return False
                self._ends.append((rank, place - self._first_message, at))
                continue
            row = place - self._first_collective
            group = self._groups[row]
            if membership[group] != _NAMED or self._roots[row] >= self._sizes[group]:
                return False
            own_counts[group] += 1
        # Every member has as many: with numbers from 0 on, that is each of them once.
        for group in range(len(self._sizes)):
            if not membership[group]:
                continue
            if self._counts[group] == _NOTHING:
                self._counts[group] = own_counts[group]
            elif self._counts[group] != own_counts[group]:
                return False
        return True

    def _has_sound_collectives(self, program: int) -> bool:
        """Check the numbers of one program, and that it agrees with those before it."""
        for at in range(self._starts[program], self._starts[program + 1]):
            place = self._places[at]
            if place < self._first_collective or place >= self._first_message:
                continue
            row = place - self._first_collective
            group, number = self._groups[row], self._numbers[row]
            if number >= self._counts[group]:
                return False
            which = self._bases[group] + number
            if self._seen_in[which] == program:
                return False
            self._seen_in[which] = program
            self._absent[which] += 1
            self._shared[at] = which
            if self._has_splits:
                self._uneven.append((self._ranks[program], row, which))
            first = self._first_seen[which]
            if first == _NOTHING:
                self._first_seen[which] = row
            elif first != row and not (
                self._kinds[first] == self._kinds[row]
                and self._input_bytes[first] == self._input_bytes[row]
                and self._trace_bytes[first] == self._trace_bytes[row]
                and self._roots[first] == self._roots[row]
            ):
                return False
        return True

    def _have_sound_splits(self) -> bool:
        """Check uneven collectives: that they have splits, and that these fit."""
        collectives = self._columns.collectives
        splits = collectives.splits
        is_uneven = [op == CollectiveOp.ALL_TO_ALL_V for op, _ in collectives.all_kinds]
        if splits is None:
            return not any(is_uneven[kind] for kind in set(collectives.kinds))
        # What users' algorithms pass on is not looked at here; their names have a kind.
        if any(collectives.all_passed_bytes) or any(
            op == CollectiveOp.ALL_TO_ALL_V and ":" in name
            for op, name in collectives.all_kinds
        ):
            return False
        found: dict[int, list[Splits]] = {}
        for rank, row, which in self._uneven:
            place = splits[row]
            if is_uneven[collectives.kinds[row]] != (place != NO_SPLITS):
                return False
            if place == NO_SPLITS:
                continue
            group = collectives.all_groups[collectives.groups[row]]
            own = collectives.all_splits[place]
            nranks = len(group.ranks)
            if {len(own.sent_bytes), len(own.received_bytes)} != {nranks}:
                return False
            rows = found.setdefault(which, [own] * nranks)
            rows[group.position(rank)] = own
        return all(mismatch(rows) is None for rows in found.values())

    def _have_sound_messages(self) -> bool:
        """Check that every message has its two ends, and that they agree."""
        messages = self._columns.messages
        sends: dict[tuple[int, int, int], tuple[int, int]] = {}
        receives: dict[tuple[int, int, int], tuple[int, int]] = {}
        for rank, row, at in self._ends:
            peer, number = messages.peers[row], messages.numbers[row]
            ends, key = receives, (peer, rank, number)
            if row < messages.sends:
                ends, key = sends, (rank, peer, number)
            if key in ends:
                return False
            ends[key] = (at, row)
        if sends.keys() != receives.keys():
            return False
        for key, (at, row) in sends.items():
            other_at, other = receives[key]
            if (
                messages.tags[row] != messages.tags[other]
                or messages.size_bytes[row] != messages.size_bytes[other]
                or messages.trace_bytes[row] != messages.trace_bytes[other]
            ):
                return False
            self._partner[at] = other_at
        return True

    def _all_end(self) -> bool:
        """Execute the programs with time left out; say whether all come to the end."""
        self._prepare()
        count = len(self._places)
        self._ended = 0
        for at in range(count):
            if not self._waits[at]:
                self._ready[self._nready] = at
                self._nready += 1
        while self._nready:
            self._nready -= 1
            at = self._ready[self._nready]
            which = self._shared[at]
            if which == _NOTHING:
                self._finish(at)
                continue
            self._absent[which] -= 1
            if self._absent[which]:
                continue
            member = self._latest[which]
            while member != _NOTHING:
                self._finish(member)
                member = self._before[member]
        return self._ended == count

    def _prepare(self) -> None:
        """Find what operations wait for, what they release, and which end together."""
        count = len(self._places)
        self._waits = array("i", bytes(4 * count))
        self._ready = array("i", bytes(4 * count))
        self._nready = 0
        self._first_released = array("q", bytes(8 * (count + 1)))
        self._released = array("i", bytes(4 * self._sum_of_edges()))
        # Members of a collective: the latest one, and of each the one before it.
        self._latest = array("i", [_NOTHING]) * len(self._first_seen)
        self._before = array("i", [_NOTHING]) * count
        for program in range(len(self._ranks)):
            first = self._starts[program]
            for at in range(first, self._starts[program + 1]):
                place = self._places[at]
                end = self._dependency_ends[place]
                for edge in range(end - self._edges[place], end):
                    self._first_released[first + self._dependencies[edge]] += 1
                self._waits[at] += self._edges[place]
                if self._partner[at] != _NOTHING:
                    self._waits[self._partner[at]] += 1
                which = self._shared[at]
                if which != _NOTHING:
                    self._before[at] = self._latest[which]
                    self._latest[which] = at
        for at in range(count):
            self._first_released[at + 1] += self._first_released[at]
        # Counted down while they are filled, the ends become the starts.
        for program in range(len(self._ranks)):
            first = self._starts[program]
            for at in range(first, self._starts[program + 1]):
                place = self._places[at]
                end = self._dependency_ends[place]
                for edge in range(end - self._edges[place], end):
                    target = first + self._dependencies[edge]
                    self._first_released[target] -= 1
                    self._released[self._first_released[target]] = at

    def _finish(self, at: int) -> None:
        """End an operation; whoever waits for nothing else is ready."""
        self._ended += 1
        for edge in range(self._first_released[at], self._first_released[at + 1]):
            self._release(self._released[edge])
        if self._partner[at] != _NOTHING:
            self._release(self._partner[at])

    def _release(self, at: int) -> None:
        self._waits[at] -= 1
        if not self._waits[at]:
            self._ready[self._nready] = at
            self._nready += 1


def _memberships(
    columns: TableColumns, ranks: Sequence[int], named: Sequence[Sequence[int]]
) -> list[bytearray]:
    """Return by program and group whether its rank is a member, and names the group."""
    groups = columns.collectives.all_groups
    known = {rank: bytearray(len(groups)) for rank in ranks}
    for place, group in enumerate(groups):
        for rank in group.ranks:
            known[rank][place] = _MEMBER
    memberships = list(known.values())
    for membership, places in zip(memberships, named, strict=True):
        for place in places:
            if membership[place]:
                membership[place] = _NAMED
    return memberships
