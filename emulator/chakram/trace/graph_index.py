# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Compact name tables, ID lookup and ordering for the columns of a ``TraceGraph``.

A trace may have millions of nodes, and each Python object per node costs 30 to 200
bytes. Therefore all names share one buffer, a hash table of integers maps IDs to
positions, and edges and orders are arrays of positions.
"""

from __future__ import annotations

from array import array
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NameTable", "NodeIndex", "grouped", "merged_lists", "topological_order"]

_NAME_SLOTS = 1 << 12
_NAME_START = 2166136261
_NAME_FACTOR = 16777619
_NAME_MASK = 0xFFFFFFFF

_FIRST_BITS = 6
_WORD_MASK = (1 << 64) - 1

_INDEX_FACTOR = (hash("chakram") & _WORD_MASK) | 1
"""Hash factor, different in every process so that no file can force ID collisions."""


class NameTable:
    """Node names, numbered in the order of their first appearance.

    The lookup is a fixed-size cache of recent names. A name that was evicted from the
    cache is stored again under a new number. That costs memory but does not change the
    result, and no choice of names can make the lookup slow.
    """

    __slots__ = ("_ends", "_latest", "_text")

    def __init__(self) -> None:
        self._text = bytearray()
        self._ends = array("q", [0])
        self._latest = array("i", [-1]) * _NAME_SLOTS

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        """Return a name by its number, from 0."""
        start, end = self._ends[number], self._ends[number + 1]
        return bytes(self._text[start:end]).decode("utf-8", "surrogatepass")

    def __reduce__(self) -> tuple[object, ...]:
        return _name_table, self.columns()

    def columns(self) -> tuple[bytes, array[int]]:
        """Return all names as concatenated UTF-8, and the offsets of the boundaries."""
        return bytes(self._text), self._ends

    def utf8(self, number: int) -> bytes:
        """Return the UTF-8 bytes of a name by its number, from 0."""
        return bytes(self._text[self._ends[number] : self._ends[number + 1]])

    def release(self) -> None:
        """Free the cache of recent names, which later names fill again."""
        self._latest = array("i")

    def add(self, name: str) -> int:
        """Return the number of a name. An unknown name gets a new number."""
        # JSON can spell half a surrogate pair, which strict UTF-8 cannot encode.
        data = name.encode("utf-8", "surrogatepass")
        return self.put(data, 0, len(data))

    def put(self, data: bytes | bytearray, start: int, end: int) -> int:
        """Return the number of the UTF-8 name in ``data[start:end]``."""
        if len(self._latest) == 0:
            self._latest = array("i", [-1]) * _NAME_SLOTS
        value = _NAME_START
        for at in range(start, end):
            value = ((value ^ data[at]) * _NAME_FACTOR) & _NAME_MASK
        slot = (value ^ (value >> 15)) & (_NAME_SLOTS - 1)
        number = self._latest[slot]
        if number >= 0 and self._is(number, data, start, end):
            return number
        number = len(self._ends) - 1
        self._text += data[start:end]
        self._ends.append(len(self._text))
        self._latest[slot] = number
        return number

    def _is(self, number: int, data: bytes | bytearray, start: int, end: int) -> bool:
        known = self._text
        first = self._ends[number]
        if self._ends[number + 1] - first != end - start:
            return False
        for at in range(end - start):  # noqa: SIM110 - C functions have no closures
            if known[first + at] != data[start + at]:
                return False
        return True

    def restore(self, text: bytes, ends: array[int]) -> None:
        """Replace all names with the ``columns`` of another table."""
        self._text = bytearray(text)
        self._ends = ends


def _name_table(text: bytes, ends: array[int]) -> NameTable:
    table = NameTable()
    table.restore(text, ends)
    return table


class NodeIndex:
    """Positions of nodes by ID: an open-addressing hash table of integers.

    IDs get the positions 0, 1, 2, ... in the order in which they are added.
    """

    __slots__ = ("_bits", "_count", "_full", "_ids", "_positions")

    def __init__(self) -> None:
        self._count = 0
        self._make(_FIRST_BITS)

    def __len__(self) -> int:
        return self._count

    def _make(self, bits: int) -> None:
        self._bits = bits
        # At a load of at most two thirds, a lookup takes two or three probes.
        self._full = (2 << bits) // 3
        self._ids = array("Q", bytes(8 << bits))
        self._positions = array("i", [-1]) * (1 << bits)

    def put(self, node_id: int) -> bool:
        """Assign the next position to an ID. Return False if the ID already has one."""
        if self._count >= self._full:
            self._grow()
        slot = self._slot(node_id)
        if self._positions[slot] >= 0:
            return False
        self._ids[slot] = node_id
        self._positions[slot] = self._count
        self._count += 1
        return True

    def find(self, node_id: int) -> int:
        """Return the position of an ID, or -1 if it has none."""
        return self._positions[self._slot(node_id)]

    def _slot(self, node_id: int) -> int:
        """Return the slot of an ID, or the free slot where it belongs."""
        mask = (1 << self._bits) - 1
        slot = ((node_id * _INDEX_FACTOR) & _WORD_MASK) >> (64 - self._bits)
        while self._positions[slot] >= 0 and self._ids[slot] != node_id:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        ids, positions = self._ids, self._positions
        count = 1 << self._bits
        self._make(self._bits + 1)
        for old in range(count):
            if positions[old] >= 0:
                slot = self._slot(ids[old])
                self._ids[slot] = ids[old]
                self._positions[slot] = positions[old]

    def resolve(
        self,
        wanted: array[int],
        ends: array[int],
        on_missing: Callable[[int, int], None],
        *,
        drop_own: bool = False,
    ) -> tuple[array[int], array[int]]:
        """Resolve lists of IDs, one list per position, to lists of positions.

        Args:
            wanted: The IDs of all lists, concatenated, as unsigned 64-bit integers.
            ends: Offsets at which each list begins, then the offset at which the last
                one ends.
            on_missing: Called for each ID that has no position, with the position of
                its list and the ID. The ID is left out.
            drop_own: Whether to drop a position from its own list.

        Returns:
            The lists of positions without duplicates, concatenated, and their offsets
            as in *ends*.
        """
        found = array("i", bytes(4 * len(wanted)))
        found_ends = array("q", bytes(8 * len(ends)))
        filled = self._resolve(wanted, ends, found, found_ends, on_missing, drop_own)
        del found[filled:]
        return found, found_ends

    def _resolve(
        self,
        wanted: array[int],
        ends: array[int],
        found: array[int],
        found_ends: array[int],
        on_missing: Callable[[int, int], None],
        drop_own: bool,
    ) -> int:
        # For each position: the last list to which it was added.
        seen = array("i", [-1]) * self._count
        last_in = seen
        filled = 0
        for position in range(len(ends) - 1):
            missing: list[int] = []
            for edge in range(ends[position], ends[position + 1]):
                target = self.find(wanted[edge])
                if target < 0:
                    if wanted[edge] not in missing:
                        missing.append(wanted[edge])
                        on_missing(position, wanted[edge])
                elif last_in[target] != position and not (
                    drop_own and target == position
                ):
                    last_in[target] = position
                    found[filled] = target
                    filled += 1
            found_ends[position + 1] = filled
        return filled


def merged_lists(
    first: tuple[array[int], array[int]], second: tuple[array[int], array[int]]
) -> tuple[array[int], array[int]]:
    """Merge two sets of lists, position by position, without duplicates in a list.

    Each set is a pair of arrays: the concatenated lists, and the offsets of their
    starts, followed by the total length.
    """
    merged, ends = array("i"), array("q", [0])
    for position in range(len(first[1]) - 1):
        lists = [
            edges[of[position] : of[position + 1]] for edges, of in (first, second)
        ]
        merged.extend(dict.fromkeys(chain.from_iterable(lists)))
        ends.append(len(merged))
    return merged, ends


def grouped(
    keys: array[int], values: array[int], count: int
) -> tuple[array[int], array[int]]:
    """Group values by key and return the lists of keys 0 to *count* - 1, concatenated.

    Args:
        keys: The key of each value.
        values: The values. Values with the same key keep their order.
        count: The number of keys, which is larger than the largest key.

    Returns:
        The values by key, and the offsets where each key's values begin. The last
        offset is the end of all values.
    """
    lists = array("i", bytes(4 * len(values)))
    ends = array("q", bytes(8 * (count + 1)))
    _group(keys, values, count, lists, ends)
    return lists, ends


def _group(
    keys: array[int],
    values: array[int],
    count: int,
    lists: array[int],
    ends: array[int],
) -> None:
    for edge in range(len(keys)):
        ends[keys[edge]] += 1
    for key in range(count):
        ends[key + 1] += ends[key]
    # Filling from the back decrements each end until it is the start of its list.
    for back in range(len(keys)):
        edge = len(keys) - 1 - back
        key = keys[edge]
        ends[key] -= 1
        lists[ends[key]] = values[edge]


def topological_order(
    ids: array[int], dependencies: array[int], ends: array[int]
) -> tuple[array[int], array[int]]:
    """Return a topological order and the number of unmet dependencies by position.

    Args:
        ids: The ID of every position.
        dependencies: The dependencies of all positions, concatenated.
        ends: Offsets at which the dependencies of each position begin, then the offset
            at which the last ones end.

    Returns:
        The order and the number of unmet dependencies by position. Ties in the order
        are broken by smallest ID. The order is shorter than *ids* if there is a cycle.
        The number of unmet dependencies is 0 for every position in the order.
    """
    count = len(ids)
    order = array("i", range(count))
    missing = array("i", bytes(4 * count))
    if not _is_in_order(ids, dependencies, ends):
        done = _fill_order(ids, dependencies, ends, order, missing)
        del order[done:]
    return order, missing


def _is_in_order(ids: array[int], dependencies: array[int], ends: array[int]) -> bool:
    """Return whether IDs ascend and each dependency precedes its dependents."""
    for position in range(len(ids)):
        if position and ids[position] < ids[position - 1]:
            return False
        for edge in range(ends[position], ends[position + 1]):
            if dependencies[edge] >= position:
                return False
    return True


def _fill_order(
    ids: array[int],
    dependencies: array[int],
    ends: array[int],
    order: array[int],
    missing: array[int],
) -> int:
    count = len(ids)
    starts_array = array("q", bytes(8 * (count + 1)))
    successors_array = array("i", bytes(4 * len(dependencies)))
    heap_array = array("i", bytes(4 * count))
    starts, successors, heap = starts_array, successors_array, heap_array
    for edge in range(len(dependencies)):
        starts[dependencies[edge]] += 1
    for position in range(count):
        starts[position + 1] += starts[position]
    # Filling decrements each end until it is the start of its list.
    for position in range(count):
        missing[position] = ends[position + 1] - ends[position]
        for edge in range(ends[position], ends[position + 1]):
            target = dependencies[edge]
            starts[target] -= 1
            successors[starts[target]] = position
    ready = 0
    for position in range(count):
        if not missing[position]:
            _push(heap, ready, ids, position)
            ready += 1
    done = 0
    while ready:
        position = heap[0]
        ready -= 1
        _pop(heap, ready, ids)
        order[done] = position
        done += 1
        for edge in range(starts[position], starts[position + 1]):
            target = successors[edge]
            missing[target] -= 1
            if not missing[target]:
                _push(heap, ready, ids, target)
                ready += 1
    return done


def _push(heap: array[int], size: int, ids: array[int], position: int) -> None:
    """Push a position onto a heap of *size* positions, smallest ID first."""
    at = size
    node_id = ids[position]
    while at > 0:
        parent = (at - 1) >> 1
        if ids[heap[parent]] < node_id:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = position


def _pop(heap: array[int], size: int, ids: array[int]) -> None:
    """Remove the first position of a heap, leaving *size* positions."""
    position = heap[size]
    node_id = ids[position]
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and ids[heap[child + 1]] < ids[heap[child]]:
            child += 1
        if node_id < ids[heap[child]]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = position
