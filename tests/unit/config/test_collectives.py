"""Algorithms in an experiment file: names, parameters, rules by size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from chakram.collectives.algorithms import Rule, UserAlgorithm, algorithm
from chakram.collectives.ops import CollectiveOp
from chakram.config.experiment import Experiment, load_experiment, parse_experiment
from chakram.foundation.errors import ConfigError

MOE = {"synth": "moe", "ranks": 4, "ep": 2, "dp": 2}
AR = CollectiveOp.ALL_REDUCE


def experiment(choice: object, op: str = "all_reduce") -> Experiment:
    return parse_experiment(
        json.dumps(
            {
                "version": 1,
                "name": "x",
                "jobs": [{"name": "a", "trace": MOE}],
                "collectives": {op: choice},
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
        ({"ring": {"channels": True}}, "channels: True is not a valid parameter value"),
        ({"ring": {"order": []}}, "order: [] is not a valid parameter value"),
        ({"ring": {"order": "a,b"}}, "order: 'a,b' is not a valid parameter value"),
        ({"ring": {"channels": 0}}, "channels is '0' (use a whole number from 1"),
        ({"ring": {"rings": 2}}, "no parameter 'rings' (choose from channels, chunks,"),
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
            "collectives.all_reduce[1]: is never reached: the rule for tree before it",
        ),
        (
            [{"algorithm": "ring"}, {"algorithm": "rign"}],
            "collectives.all_reduce[1].algorithm: there is no algorithm 'rign'",
        ),
    ],
)
def test_what_is_wrong_is_told(choice: object, told: str) -> None:
    assert told in wrong(choice)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ({"msccl": "a/ring8.xml"}, "msccl:ring8.xml"),
        ({"mscclpp": "plan.json"}, "mscclpp:plan.json"),
        ({"chakra": "ring8/"}, "chakra:ring8"),
        ({"python": "a/mine.py:my_ring"}, "python:mine.py:my_ring"),
    ],
)
def test_an_algorithm_may_be_the_users_own(written: object, name: str) -> None:
    choice = experiment(written).algorithm_of(AR)
    assert isinstance(choice, UserAlgorithm)
    assert choice.name == name
    kept = experiment([{"up_to": "1KiB", "algorithm": written}])
    again = json.loads(kept.model_dump_json())["collectives"]["all_reduce"]
    assert experiment(again).algorithm_of(AR) == kept.algorithm_of(AR)


def test_files_of_users_algorithms_start_at_the_experiment(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        json.dumps(
            {
                "version": 1,
                "name": "x",
                "jobs": [{"name": "a", "trace": MOE}],
                "collectives": {"all_reduce": {"msccl": "ring8.xml"}},
                "fabric": {"kind": "loopback", "ports": 4, "rate": "1Gbit"},
            }
        )
    )
    choice = load_experiment(file).algorithm_of(AR)
    assert choice == UserAlgorithm(kind="msccl", path=str(tmp_path / "ring8.xml"))


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (
            {"msccl": 7},
            "7 is not the location of an algorithm (e.g. {msccl: ring8.xml})",
        ),
        ({"python": "mine.py"}, "'mine.py' does not name a function in a file"),
        (
            [
                {"up_to": "1KiB", "algorithm": {"msccl": "a/x.xml"}},
                {"algorithm": {"msccl": "b/x.xml"}},
            ],
            "2 different files are called msccl:x.xml",
        ),
    ],
)
def test_a_users_algorithm_that_cannot_be_is_refused(choice: object, told: str) -> None:
    assert told in wrong(choice)


def test_credits_need_collectives_in_one_order() -> None:
    text = json.dumps(
        {
            "version": 1,
            "name": "x",
            "jobs": [{"name": "a", "trace": MOE, "ordering": "overlap"}],
            "transport": {"credits": 4},
            "fabric": {"kind": "loopback", "ports": 4, "rate": "1Gbit"},
        }
    )
    with pytest.raises(
        ConfigError, match=r"jobs\[0\].ordering: overlapping collectives"
    ):
        parse_experiment(text)
    serial = parse_experiment(text.replace("overlap", "serial"))
    assert serial.transport.credits == 4


def test_messages_between_two_ranks_accept_no_other_algorithm() -> None:
    for choice in ({"python": "mine.py:f"}, [{"algorithm": {"msccl": "a.xml"}}]):
        with pytest.raises(ConfigError, match="no other algorithm than direct"):
            experiment(choice, op="send_recv")
    for valid in ("auto", "direct"):
        experiment(valid, op="send_recv")
