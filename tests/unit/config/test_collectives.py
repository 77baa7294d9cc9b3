"""Algorithms in an experiment file: names, parameters, rules by size."""

from __future__ import annotations

import json

import pytest
import yaml

from chakram.config.experiment import Experiment, parse_experiment
from chakram.core.algorithms import Rule, algorithm
from chakram.core.collectives import CollectiveOp
from chakram.errors import ConfigError

MOE = {"synth": "moe", "ranks": 4, "ep": 2, "dp": 2}
AR = CollectiveOp.ALL_REDUCE


def experiment(choice: object) -> Experiment:
    return parse_experiment(
        json.dumps(
            {
                "version": 1,
                "name": "x",
                "jobs": [{"name": "a", "trace": MOE}],
                "collectives": {"all_reduce": choice},
                "fabric": {"kind": "loopback", "ports": 4, "rate": "1Gbit"},
            }
        )
    )


def wrong(choice: object) -> str:
    with pytest.raises(ConfigError) as caught:
        experiment(choice)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("ring", "ring"),
        ("ring(channels=2)", "ring(channels=2)"),
        ({"ring": None}, "ring"),
        ({"ring": {"channels": 2, "chunks": 4}}, "ring(channels=2,chunks=4)"),
        ({"ring": {"order": "interleaved"}}, "ring(order=interleaved)"),
        ({"ring": {"order": [0, 2, 1, 3]}}, "ring(order=0-2-1-3)"),
        (
            {"ring": {"order": ["descending", [1, 0]]}},
            "ring(order=descending/1-0)",
        ),
        ({"hierarchical": {"ranks_per_node": 4}}, "hierarchical(ranks_per_node=4)"),
        ("auto", "auto"),
    ],
)
def test_an_algorithm_is_a_name_or_a_mapping(written: object, name: str) -> None:
    choice = experiment(written).algorithm_of(AR)
    assert choice == name
    assert name == "auto" or algorithm(AR, name).name == name


def test_what_is_not_named_is_automatic() -> None:
    assert experiment("ring").algorithm_of(CollectiveOp.BROADCAST) == "auto"


def test_rules_are_by_size_and_ranks() -> None:
    written = yaml.safe_load(
        "[{up_to: 64KiB, algorithm: tree},"
        " {up_to_ranks: 8, algorithm: {ring: {chunks: 2}}},"
        " {algorithm: auto}]"
    )
    read = experiment(written)
    rules = read.algorithm_of(AR)
    assert rules == (
        Rule(algorithm="tree", up_to_bytes=64 * 1024),
        Rule(algorithm="ring(chunks=2)", up_to_ranks=8),
        Rule(algorithm="auto"),
    )
    again = json.loads(read.model_dump_json(include={"collectives"}))
    assert experiment(again["collectives"]["all_reduce"]).algorithm_of(AR) == rules


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("rign", "there is no algorithm 'rign' for all_reduce (did you mean 'ring'?)"),
        (3, "collectives.all_reduce: 3 is not an algorithm"),
        (None, "nothing is not an algorithm"),
        ({"ring": {}, "tree": {}}, "is not an algorithm"),
        ({"ring": 4}, "is not an algorithm"),
        ({"ring": {"channels": True}}, "channels: True is no value of a parameter"),
        ({"ring": {"order": []}}, "order: [] is no value of a parameter"),
        ({"ring": {"order": "a,b"}}, "order: 'a,b' is no value of a parameter"),
        ({"ring": {"channels": 0}}, "channels is '0' (write a whole number from 1"),
        ({"ring": {"rings": 2}}, "no parameter 'rings' (it has channels, chunks,"),
        ({"ring": {"order": [0, 0]}}, "order is '0-0'"),
        ({"tree": {"chunks": 2}}, "tree has no parameter 'chunks' (write tree alone)"),
        ({"auto": {"chunks": 2}}, "auto has no parameters (write auto)"),
        ("ring(", "'ring(' is not the name of an algorithm"),
        ([], "has 0 rules"),
        (["ring"], "'ring' is not a rule (e.g. {up_to: 64KiB, algorithm: tree})"),
        ([{"algorithm": "ring", "upto": 3}], "'upto' is not known (did you mean"),
        ([{"algorithm": "ring", "up_to": 3}], "up_to: '3' has no unit"),
        (
            [{"algorithm": "ring", "up_to_ranks": 1}],
            "up_to_ranks: 1 is not a number of ranks (at least 2)",
        ),
        (
            [{"algorithm": "tree"}, {"algorithm": "ring", "up_to": "1KiB"}],
            "collectives.all_reduce[1]: is never reached: the rule of tree before it",
        ),
        (
            [{"algorithm": "ring"}, {"algorithm": "rign"}],
            "collectives.all_reduce[1].algorithm: there is no algorithm 'rign'",
        ),
    ],
)
def test_what_is_wrong_is_told(choice: object, told: str) -> None:
    assert told in wrong(choice)
