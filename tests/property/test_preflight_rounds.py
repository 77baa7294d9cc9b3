from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from chakram.preflight.rounds import all_rounds, apart, chosen_rounds, shifted

COUNTS = st.integers(0, 65)


@given(COUNTS)
def test_every_pair_meets_exactly_once(count: int) -> None:
    met = [pair for pairs in all_rounds(count) for pair in pairs]

    assert sorted(met) == list(combinations(range(count), 2))


@given(COUNTS)
def test_the_pairs_of_a_round_are_disjoint_and_leave_out_one_at_most(
    count: int,
) -> None:
    for pairs in all_rounds(count):
        busy = [position for pair in pairs for position in pair]
        assert len(set(busy)) == len(busy) >= count - 1


@given(COUNTS)
def test_there_are_no_more_rounds_than_needed(count: int) -> None:
    needed = 0 if count < 2 else count - 1 + count % 2

    assert len(all_rounds(count)) == needed


@given(COUNTS, st.integers(1, 80))
def test_chosen_rounds_are_different_ones_of_all(count: int, most: int) -> None:
    rounds = all_rounds(count)
    chosen = chosen_rounds(count, most)

    assert len(chosen) == min(most, len(rounds))
    assert len({tuple(pairs) for pairs in chosen}) == len(chosen)
    assert all(pairs in rounds for pairs in chosen)


@given(st.lists(st.sampled_from("abcd"), max_size=24))
def test_separated_pairs_share_no_links_of_a_switch(
    switch_of: list[str],
) -> None:
    rounds = all_rounds(len(switch_of))
    split = apart(rounds, switch_of)

    met = [pair for pairs in split for pair in pairs]
    assert sorted(met) == sorted(pair for pairs in rounds for pair in pairs)
    for pairs in split:
        leaving = [
            switch_of[position]
            for a, b in pairs
            for position in (a, b)
            if switch_of[a] != switch_of[b]
        ]
        assert len(set(leaving)) == len(leaving)
    if len(set(switch_of)) == 1:
        assert split == rounds


@given(st.lists(st.integers(0, 1000), unique=True, max_size=70))
def test_permutation_gives_each_port_one_receiver(positions: list[int]) -> None:
    pairs = shifted(positions)

    if len(positions) < 2:
        assert pairs == []
        return
    assert sorted(source for source, _ in pairs) == sorted(positions)
    assert sorted(destination for _, destination in pairs) == sorted(positions)
    assert all(source != destination for source, destination in pairs)
