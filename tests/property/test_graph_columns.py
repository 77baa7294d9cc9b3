"""Laws of the tables behind a graph's columns; plain Python is the oracle."""

from __future__ import annotations

import pickle
from array import array
from heapq import heapify, heappop, heappush
from itertools import accumulate, chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from chakram.trace.graph_index import (
    NameTable,
    NodeIndex,
    grouped,
    merged_lists,
    topological_order,
)

IDS = st.one_of(st.integers(0, 30), st.integers(0, 2**64 - 1))


@given(names=st.lists(st.one_of(st.text(max_size=9), st.sampled_from(["a", "b"]))))
def test_names_are_found_by_their_numbers(names: list[str]) -> None:
    table = NameTable()
    numbers = [table.add(name) for name in names]
    copy = pickle.loads(pickle.dumps(table))
    assert [table[number] for number in numbers] == names
    assert [copy[number] for number in numbers] == names
    assert len(table) <= len(names)


@given(name=st.text(max_size=9), times=st.integers(1, 5))
def test_repeated_name_is_stored_once(name: str, times: int) -> None:
    table = NameTable()
    assert {table.add(name) for _ in range(times)} == {0}
    assert len(table) == 1


@given(ids=st.lists(IDS, max_size=300), others=st.lists(IDS, max_size=10))
def test_an_id_has_the_position_at_which_it_came_first(
    ids: list[int], others: list[int]
) -> None:
    index = NodeIndex()
    positions: dict[int, int] = {}
    for node_id in ids:
        assert index.put(node_id) == (node_id not in positions)
        positions.setdefault(node_id, len(positions))
    assert len(index) == len(positions)
    for node_id in [*ids, *others]:
        assert index.find(node_id) == positions.get(node_id, -1)


@given(data=st.data(), drop_own=st.booleans())
def test_lists_of_ids_become_lists_of_positions(
    data: st.DataObject, drop_own: bool
) -> None:
    ids = data.draw(st.lists(st.integers(0, 9), unique=True))
    lists = [data.draw(st.lists(st.integers(0, 12), max_size=5)) for _ in ids]
    index = NodeIndex()
    for node_id in ids:
        index.put(node_id)
    wanted, ends = array("Q"), array("q", [0])
    for each in lists:
        wanted.extend(each)
        ends.append(len(wanted))
    missing: list[tuple[int, int]] = []
    found, found_ends = index.resolve(
        wanted, ends, lambda *where: missing.append(where), drop_own=drop_own
    )
    for position, each in enumerate(lists):
        unique = list(dict.fromkeys(each))
        assert list(found[found_ends[position] : found_ends[position + 1]]) == [
            ids.index(node_id)
            for node_id in unique
            if node_id in ids and not (drop_own and ids[position] == node_id)
        ]
        assert [node_id for where, node_id in missing if where == position] == [
            node_id for node_id in unique if node_id not in ids
        ]


@given(data=st.data())
def test_the_order_is_the_one_of_a_heap_of_ids(data: st.DataObject) -> None:
    ids = data.draw(st.lists(IDS, unique=True, max_size=12))
    if data.draw(st.booleans()):
        ids.sort()
    count = len(ids)
    positions = st.integers(0, max(0, count - 1))
    dependencies = [data.draw(st.sets(positions, max_size=3)) for _ in ids]
    if data.draw(st.booleans()):  # no cycles
        dependencies = [
            {each for each in of if each < place}
            for place, of in enumerate(dependencies)
        ]
    flat, ends = array("i"), array("q", [0])
    for each in dependencies:
        flat.extend(each)
        ends.append(len(flat))
    order, missing = topological_order(array("Q", ids), flat, ends)

    left = [len(each) for each in dependencies]
    ready = [(ids[place], place) for place in range(count) if not left[place]]
    heapify(ready)
    expected: list[int] = []
    while ready:
        _, done = heappop(ready)
        expected.append(done)
        for place in range(count):
            if done in dependencies[place]:
                left[place] -= 1
                if not left[place]:
                    heappush(ready, (ids[place], place))
    assert list(order) == expected
    assert list(missing) == left


@given(
    pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 99)), max_size=40),
    beyond=st.integers(1, 3),
)
def test_values_are_grouped_by_key_in_their_order(
    pairs: list[tuple[int, int]], beyond: int
) -> None:
    count = 6 + beyond
    keys, values = (array("i", [pair[side] for pair in pairs]) for side in (0, 1))
    lists, ends = grouped(keys, values, count)
    assert [list(lists[ends[key] : ends[key + 1]]) for key in range(count)] == [
        [value for each, value in pairs if each == key] for key in range(count)
    ]


_LISTS = st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=3, max_size=3)


@given(first=_LISTS, second=_LISTS)
def test_lists_are_merged_without_a_number_twice(
    first: list[list[int]], second: list[list[int]]
) -> None:
    merged, ends = merged_lists(_in_one_piece(first), _in_one_piece(second))
    assert [list(merged[start:end]) for start, end in pairwise(ends)] == [
        list(dict.fromkeys(a + b)) for a, b in zip(first, second, strict=True)
    ]


def _in_one_piece(lists: list[list[int]]) -> tuple[array[int], array[int]]:
    ends = array("q", [0, *accumulate(map(len, lists))])
    return array("i", chain.from_iterable(lists)), ends
