"""Problems in traces of single ranks and in groups."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.chakra.lint.replay_blockers import (
    ProblemKind,
    check_across_ranks,
    check_trace_set,
    require_replayable,
)
from chakram.chakra.trace_warning import TraceWarning
from chakram.collectives.groups import WORLD, ProcessGroup, world_group
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import TraceError
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NO_SIZE, NodeKind
from tests.made_graphs import job, receive, send

COLLECTIVE: dict[str, Any] = {
    "kind": NodeKind.COLLECTIVE,
    "op": CollectiveOp.ALL_REDUCE,
    "comm_bytes": 8,
}
SEND: dict[str, Any] = {"kind": NodeKind.SEND, "comm_bytes": 8, "peer": 1}


def graph(*nodes: dict[str, Any], rank: int = 0) -> TraceGraph:
    builder = TraceGraphBuilder(rank=rank, source=f"w.{rank}.et")
    for number, columns in enumerate(nodes):
        builder.add(node_id=number, name=f"n{number}", **columns)
    return builder.build()


def problems(*nodes: dict[str, Any], **groups: tuple[int, ...]) -> list[TraceWarning]:
    return check_trace_set(
        {0: graph(*nodes), 1: graph(rank=1)},
        {
            WORLD: world_group(2),
            **{name: ProcessGroup(name=name, ranks=r) for name, r in groups.items()},
        },
    )


def test_replayable_set_has_no_problems() -> None:
    assert problems(COLLECTIVE, SEND, {**COLLECTIVE, "group": "a"}, a=(0, 1)) == []
    assert problems({**SEND, "comm_bytes": 0}) == []
    require_replayable({0: graph(COLLECTIVE)}, {WORLD: world_group(1)})


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        ({**COLLECTIVE, "group": "b"}, ProblemKind.UNKNOWN_GROUP),
        ({**COLLECTIVE, "group": "a"}, ProblemKind.NOT_A_MEMBER),
        ({**COLLECTIVE, "comm_bytes": NO_SIZE}, ProblemKind.NO_SIZE),
        ({**SEND, "comm_bytes": NO_SIZE}, ProblemKind.NO_SIZE),
        ({**SEND, "peer": None}, ProblemKind.NO_PEER),
        ({**SEND, "peer": 2}, ProblemKind.RANK_OUT_OF_RANGE),
        ({**SEND, "peer": 0}, ProblemKind.SELF_MESSAGE),
        (
            {"kind": NodeKind.COMPUTE, "dependencies": [1]},
            ProblemKind.CYCLE,
        ),
    ],
)
def test_problem_is_reported_at_its_location(
    node: dict[str, Any], kind: ProblemKind
) -> None:
    back = {"kind": NodeKind.COMPUTE, "dependencies": [0]}
    (problem,) = problems(node, back, a=(1,))
    assert (problem.kind, problem.rank) == (kind, 0)
    assert problem.where.startswith("w.0.et: offset 0: rank 0 node ")
    assert problem.found


def test_group_with_unknown_ranks_is_a_problem_where_used() -> None:
    (problem,) = problems({**COLLECTIVE, "group": "a"}, a=(0, 5), unused=(7,))
    assert (problem.kind, problem.rank) == (ProblemKind.RANK_OUT_OF_RANGE, None)
    assert "'a'" in problem.where


def test_the_first_fault_is_raised_with_the_number_of_the_others() -> None:
    with pytest.raises(TraceError, match="1 more: chakram trace lint") as caught:
        require_replayable(
            {0: graph({**SEND, "peer": None}, {**SEND, "peer": 9})},
            {WORLD: world_group(1)},
        )
    assert "without a peer" in caught.value.found
    with pytest.raises(TraceError, match=r"comm_src of a receive\)$"):
        require_replayable({0: graph({**SEND, "peer": None})}, {WORLD: world_group(1)})


def test_mismatched_ranks_are_reported() -> None:
    groups = {WORLD: world_group(2)}
    agreed = {rank: graph(COLLECTIVE, rank=rank) for rank in range(2)}
    assert check_across_ranks(agreed, groups) == ([], ())
    agreed[1] = graph({**COLLECTIVE, "comm_bytes": 9}, rank=1)
    (problem,), _ = check_across_ranks(agreed, groups)
    assert problem.kind is ProblemKind.MISMATCH
    assert problem.found
    assert problem.hint


def test_first_thousand_problems_of_a_rule_are_listed() -> None:
    rows = [send(k, 9) for k in range(1_500)]
    problems = check_trace_set(job(rows, [send(1, None)]), {})
    assert len(problems) == 1_000 + 1 + 1
    assert problems[-1].kind is ProblemKind.RANK_OUT_OF_RANGE
    assert problems[-1].found == "500 more findings of this kind are not listed"
    assert problems[-2].kind is ProblemKind.NO_PEER


def test_first_thousand_mismatches_are_listed() -> None:
    sends = [send(k, 1, size=5) for k in range(1_500)]
    receives = [receive(k, 0, size=6) for k in range(1_500)]
    problems, _ = check_across_ranks(job(sends, receives), {})
    assert {problem.kind for problem in problems} == {ProblemKind.MISMATCH}
    assert len(problems) == 1_001
    assert problems[-1].found.startswith("500 more")
