"""Algorithms by size and number of ranks."""

from __future__ import annotations

import pytest

from chakram.collectives import algorithms
from chakram.collectives.algorithms import AUTO, Rule, UserAlgorithm, algorithm
from chakram.collectives.algorithms.algorithm_choice import AUTO_RULES, Choice
from chakram.collectives.ops import CollectiveOp

AR = CollectiveOp.ALL_REDUCE
KIB = 1024


def chosen(choice: Choice, size_bytes: int, nranks: int = 8) -> str | UserAlgorithm:
    return algorithms.chosen(AR, choice, size_bytes=size_bytes, nranks=nranks)


def test_single_name_applies_to_every_size() -> None:
    assert chosen("tree", 0) == chosen("tree", 1 << 40) == "tree"


def test_the_first_rule_that_applies_counts() -> None:
    rules = (
        Rule(algorithm="tree", up_to_bytes=64 * KIB),
        Rule(algorithm="halving_doubling", up_to_ranks=16, power_of_two=True),
        Rule(algorithm="ring(chunks=2)"),
    )
    assert chosen(rules, 64 * KIB) == "tree"
    assert chosen(rules, 64 * KIB + 1) == "halving_doubling"
    assert chosen(rules, 64 * KIB + 1, nranks=12) == "ring(chunks=2)"
    assert chosen(rules, 64 * KIB + 1, nranks=32) == "ring(chunks=2)"


def test_auto_applies_without_a_rule_or_by_a_rule() -> None:
    few = (Rule(algorithm="tree", up_to_bytes=KIB),)
    said = (Rule(algorithm=AUTO, up_to_bytes=KIB), Rule(algorithm="tree"))
    assert chosen(few, 1 << 30) == chosen(AUTO, 1 << 30) == "ring"
    assert chosen(said, KIB) == chosen(AUTO, KIB) == "recursive_doubling"
    assert chosen(said, KIB + 1) == "tree"


@pytest.mark.parametrize("op", CollectiveOp)
def test_auto_has_a_rule_for_everything(op: CollectiveOp) -> None:
    assert AUTO_RULES[op][-1] == Rule(algorithm=AUTO_RULES[op][-1].algorithm)
    for rule in AUTO_RULES[op]:
        assert algorithm(op, rule.algorithm).name == rule.algorithm


def test_rule_matches_its_sizes_and_collectives() -> None:
    small, all_sizes = Rule(algorithm="a", up_to_bytes=1), Rule(algorithm="a")
    few = Rule(algorithm="a", up_to_ranks=4)
    even = Rule(algorithm="a", power_of_two=True)
    assert all_sizes.covers(small)
    assert all_sizes.covers(few)
    assert all_sizes.covers(even)
    assert small.covers(small)
    assert not small.covers(all_sizes)
    assert not small.covers(few)
    assert not few.covers(small)
    assert not even.covers(small)
