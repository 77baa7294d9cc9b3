"""Made-up mixture-of-experts iterations."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from chakram.chakra.lint import check_trace_set
from chakram.chakra.synth import MoeParameters, moe_groups, synth_moe
from chakram.chakra.synth_set import synth_moe_trace_set
from chakram.core.collectives import CollectiveOp
from chakram.core.groups import WORLD
from chakram.core.trace import NodeKind, TraceGraph

A2A, AR = CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_REDUCE


def graph(**parameters: Any) -> TraceGraph:
    return synth_moe(MoeParameters(**parameters)).graphs[0]


def ops(graph: TraceGraph) -> Counter[CollectiveOp]:
    return Counter(n.op for n in graph.nodes() if n.op is not None)


def names_before(graph: TraceGraph, name: str) -> set[str]:
    """Return the names of all nodes that *name* waits for, near or far."""
    nodes = list(graph.nodes())
    todo = [n.position for n in nodes if n.name == name]
    seen: set[int] = set()
    while todo:
        for position in nodes[todo.pop()].dependencies:
            if position not in seen:
                seen.add(position)
                todo.append(position)
    return {nodes[position].name for position in seen}


def test_ranks_form_a_grid_of_neighbours_and_distances() -> None:
    groups = moe_groups(MoeParameters(ranks=6, ep=3, dp=2))
    assert [(g.name, g.ranks) for g in groups] == [
        ("1", (0, 1, 2)),
        ("2", (3, 4, 5)),
        ("3", (0, 3)),
        ("4", (1, 4)),
        ("5", (2, 5)),
    ]


def test_a_layer_has_four_all_to_alls_and_two_all_reduces() -> None:
    assert ops(graph(layers=3)) == {A2A: 12, AR: 6}


def test_every_rank_works_in_its_own_groups() -> None:
    parameters = MoeParameters(ranks=6, ep=3, dp=2, layers=1)
    members = {group.name: group.ranks for group in moe_groups(parameters)}
    for graph in synth_moe(parameters).graphs:
        for node in graph.nodes():
            if node.op is A2A:
                assert node.group is not None
                assert graph.rank in members[node.group]
                assert len(members[node.group]) == 3
            elif node.op is AR and node.group is not None:
                assert graph.rank in members[node.group]
                assert len(members[node.group]) == 2


def test_forward_is_in_order_and_backward_mirrors_it() -> None:
    chain = [n.name for n in graph(layers=1).nodes() if "gradients" not in n.name]
    assert chain == [
        "layer0.forward.attention",
        "layer0.forward.gate",
        "layer0.forward.dispatch",
        "layer0.forward.expert",
        "layer0.forward.combine",
        "layer0.backward.combine",
        "layer0.backward.expert",
        "layer0.backward.dispatch",
        "layer0.backward.gate",
        "layer0.backward.attention",
        "optimizer",
    ]


def test_gradients_are_summed_up_while_lower_layers_exchange() -> None:
    made = graph(layers=2)
    for part in ("expert", "dense"):
        before = names_before(made, f"layer1.gradients.{part}")
        assert "layer1.backward.attention" in before
        assert not any("layer0.backward" in name for name in before)
    for name in ("layer0.backward.combine", "layer0.backward.dispatch"):
        assert not any("gradients" in before for before in names_before(made, name))


def test_the_optimizer_ends_the_iteration() -> None:
    made = graph(layers=3)
    assert len(names_before(made, "optimizer")) == len(made) - 1


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"ranks": 4, "ep": 4, "dp": 1}, {A2A: 4, AR: 1}),  # dense over all ranks
        ({"ranks": 4, "ep": 1, "dp": 4, "top_k": 1}, {AR: 2}),
        ({"ranks": 8, "ep": 4, "dp": 2, "dense_bytes": 0}, {A2A: 4, AR: 1}),
        ({"ranks": 1, "ep": 1, "dp": 1, "top_k": 1}, {}),
    ],
)
def test_a_group_of_one_has_nothing_to_send(
    parameters: dict[str, int], expected: dict[CollectiveOp, int]
) -> None:
    assert ops(graph(layers=1, **parameters)) == expected


def test_sizes_follow_from_the_model() -> None:
    made = graph(
        layers=1,
        hidden=10,
        ffn_hidden=30,
        sequence=7,
        micro_batch=2,
        top_k=3,
        experts_per_rank=2,
        bytes_per_element=4,
    )
    sizes = {n.name: n.comm_bytes for n in made.nodes() if n.op}
    assert sizes["layer0.forward.dispatch"] == 2 * 7 * 3 * 10 * 4
    assert sizes["layer0.gradients.expert"] == 2 * 2 * 10 * 30 * 4
    assert sizes["layer0.gradients.dense"] == 4 * 10 * 10 * 4


def test_sizes_and_times_may_be_given() -> None:
    made = graph(
        layers=1,
        all_to_all_bytes=1,
        all_reduce_bytes=2,
        dense_bytes=3,
        attention_ns=5_000,
        expert_ns=0,
    )
    assert {n.comm_bytes for n in made.nodes() if n.op is A2A} == {1}
    assert [n.comm_bytes for n in made.nodes() if n.op is AR] == [2, 3]
    times = {n.name: n.duration_ns for n in made.nodes()}
    assert times["layer0.forward.attention"] == 5_000
    assert times["layer0.backward.attention"] == 10_000
    assert times["layer0.backward.expert"] == 0


def test_times_are_operations_at_the_peak() -> None:
    parameters = MoeParameters(layers=1, peak_flops=10**9)
    made = synth_moe(parameters).graphs[0]
    by_name = {n.name: n for n in made.nodes()}
    expert = by_name["layer0.forward.expert"]
    # Two matrices, each two operations per weight, for each of top_k copies.
    assert expert.num_ops == 512 * 2 * 2 * 2 * 256 * 1024
    assert expert.duration_ns == pytest.approx(expert.num_ops, abs=1_000)
    backward = by_name["layer0.backward.expert"]
    assert backward.num_ops == 2 * expert.num_ops


def test_the_defaults_suit_a_slow_fabric() -> None:
    parameters = MoeParameters()
    assert parameters.dispatch_bytes == 512 * 1024
    assert parameters.expert_gradient_bytes == 1024 * 1024
    # What one rank sends with the best algorithms, at 250 Mbit/s.
    sent = 0.0
    for node in synth_moe(parameters).graphs[0].nodes():
        ranks = {A2A: 4, AR: 8 if node.group is None else 2}.get(node.op or A2A, 0)
        if node.op is not None:
            factor = 1 if node.op is A2A else 2
            sent += factor * node.comm_bytes * (ranks - 1) / ranks
    assert 0.3 < sent * 8 / 250e6 < 1.0
    computed = sum(n.duration_ns for n in synth_moe(parameters).graphs[0].nodes())
    assert 0.2e9 < computed < 1.0e9


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({"ranks": 7}, "ranks is 7, but ep x dp is 4 x 2 = 8"),
        ({"layers": 0}, "layers is 0, not from 1"),
        ({"dense_bytes": -1}, "dense_bytes is -1, not from 0"),
        ({"all_to_all_bytes": 0}, "all_to_all_bytes is 0, not from 1"),
        ({"ep": 4.0}, "ep is 4.0, not a whole number"),
        ({"ep": True, "ranks": 2}, "ep is True, not a whole number"),
        ({"layers": None}, "layers is None, not a whole number"),
        ({"hidden": 2**60}, "hidden is"),
        ({"hidden": 2**40}, "dispatch_bytes comes out as"),
        ({"top_k": 5}, "top_k is 5, but a layer has only 4 experts"),
        ({"layers": 10**6}, "are more than 20000000 nodes"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(
    parameters: dict[str, Any], found: str
) -> None:
    with pytest.raises(ValueError, match=found):
        MoeParameters(**parameters)


def test_the_set_is_what_its_files_would_give() -> None:
    made = synth_moe_trace_set(MoeParameters())
    assert (made.nranks, made.producer, made.schema) == (
        8,
        "chakram synth moe",
        "1.0.0",
    )
    assert set(made.groups) == {"1", "2", "3", "4", "5", "6", WORLD}
    assert made.warnings == ()
    assert check_trace_set(made.graphs, made.groups) == []
    assert made.graphs[3].node(1).file_offset > 0
    assert made.graphs[0].node(0).kind is NodeKind.COMPUTE
    assert synth_moe_trace_set(MoeParameters()).digest == made.digest
    assert synth_moe_trace_set(MoeParameters(layers=2)).digest != made.digest
