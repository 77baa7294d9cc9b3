"""The reference page of algorithms matches the code."""

from __future__ import annotations

import re

import pytest

from chakram.collectives.algorithms import (
    algorithm,
    algorithm_names,
    parameters_of,
    user_algorithms,
)
from chakram.collectives.algorithms.algorithm_choice import AUTO_RULES
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule_check import build_schedule
from chakram.config.experiment import Experiment, parse_experiment
from chakram.foundation.units import format_size
from tests.schedules import nsteps, sent_bytes
from tests.support import REPO_ROOT

PAGE = (REPO_ROOT / "docs/reference/algorithms.md").read_text()
SIZE = 3 * 2**20


def table(heading: str) -> list[list[str]]:
    """Return the rows of the table below a heading, without its own heading."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.*) \|$", section, flags=re.MULTILINE)
    return [[cell.strip(" `") for cell in row.split(" | ")] for row in rows[1:]]


ROWS = table("All algorithms")


def default(op: CollectiveOp, name: str, parameter: str) -> int:
    return next(
        (each.default for each in parameters_of(op, name) if each.name == parameter), 1
    )


def test_every_algorithm_is_listed_once() -> None:
    assert sorted((row[0], row[1]) for row in ROWS) == sorted(
        (op.value, name) for op in CollectiveOp for name in algorithm_names(op)
    )
    # What is taken without a size is named first.
    for op in CollectiveOp:
        assert next(row[1] for row in ROWS if row[0] == op) == algorithm_names(op)[0]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
@pytest.mark.parametrize("n", [16, 32])
def test_steps_and_bytes_equal_those_of_the_schedules(row: list[str], n: int) -> None:
    op, name = CollectiveOp(row[0]), row[1]
    how = algorithm(op, name)
    members = default(op, name, "ranks_per_node")
    values = {
        "n": n,
        "m": n.bit_length() - 1,
        "S": SIZE,
        "K": default(op, name, "chunks"),
        "M": members,
        "J": n // members,
    }
    steps, sent = (eval(form, {}, values) for form in row[2:4])
    assert nsteps(build_schedule(how, nranks=n)) == steps
    assert sent == max(
        sent_bytes(how, position=p, nranks=n, root=0, input_bytes=SIZE)
        for p in range(n)
    )


def test_every_parameter_is_listed_with_its_default() -> None:
    told = {(row[0], row[1]) for row in table("Parameters")}
    assert told == {
        (parameter.name, parameter.text(parameter.default))
        for op in CollectiveOp
        for name in algorithm_names(op)
        for parameter in parameters_of(op, name)
    }


def test_rules_of_auto_are_listed() -> None:
    rows = table("What auto chooses")
    assert rows == [
        [
            op,
            "any" if rule.up_to_bytes is None else format_size(rule.up_to_bytes),
            "powers of two" if rule.power_of_two else "any",
            rule.algorithm,
        ]
        for op in dict.fromkeys(row[0] for row in rows)
        for rule in AUTO_RULES[CollectiveOp(op)]
    ]
    assert {row[0] for row in rows} == {op.value for op in CollectiveOp}


def examples() -> list[Experiment]:
    return [
        parse_experiment(
            "version: 1\nname: x\n"
            "jobs: [{name: a, trace: {synth: moe, ranks: 4, ep: 2, dp: 2}}]\n"
            "fabric: {kind: loopback, ports: 4, rate: 1Gbit}\n" + example
        )
        for example in re.findall(r"```yaml\n(collectives:.*?)```", PAGE, re.DOTALL)
    ]


def test_examples_can_be_read() -> None:
    ours, users = examples()
    assert (
        ours.algorithm_of(CollectiveOp.REDUCE_SCATTER)
        == "ring(channels=2,chunks=4,order=interleaved)"
    )
    assert len(ours.algorithm_of(CollectiveOp.BROADCAST)) == 3
    assert {
        user.kind
        for choice in users.collectives.values()
        for user in user_algorithms(choice)
    } <= {"msccl", "mscclpp", "chakra", "python"}
