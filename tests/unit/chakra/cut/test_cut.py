"""Parts of trace sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from chakram.chakra.cut.cut import Cut, CutOptions, Dropped
from chakram.chakra.cut.cut_writer import write_cut
from chakram.chakra.cut.node_removal import bridge
from chakram.chakra.et_codec import NodeType
from chakram.chakra.lint.replay_blockers import check_across_ranks, check_trace_set
from chakram.chakra.sets.trace_set import TraceSet, load_trace_set
from chakram.chakra.summary.traffic import measure_traffic
from chakram.chakra.write.writer import write_trace_set
from chakram.collectives.groups import (
    WORLD,
    GroupDescription,
    ProcessGroup,
    world_group,
)
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import ConfigError, TraceError, UnsupportedTrace
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind
from tests.made_graphs import (
    Row,
    collective,
    compute,
    job,
    label,
    receive,
    send,
    trace,
)
from tests.trace_bytes import metadata, node

A2A = CollectiveOp.ALL_TO_ALL


def cut_of(
    *ranks: Sequence[Row],
    options: CutOptions,
    groups: dict[str, tuple[int, ...]] | None = None,
) -> Cut:
    members = (groups or {}) | {WORLD: world_group(len(ranks)).ranks}
    return Cut(
        job(*ranks),
        {name: ProcessGroup(name=name, ranks=of) for name, of in members.items()},
        options,
    )


def write_groups(
    folder: Path, *ranks: Sequence[Row], members: dict[str, tuple[int, ...]]
) -> Path:
    """Write a set with process groups, and return its folder."""
    groups = [ProcessGroup(name=name, ranks=of) for name, of in members.items()]
    write_trace_set(
        folder, prefix="w", graphs=job(*ranks).values(), groups=groups, producer="t"
    )
    return folder


def edges(graph: TraceGraph) -> dict[int, set[int]]:
    return {
        node.node_id: {graph.node_id(each) for each in node.dependencies}
        for node in graph.nodes()
    }


def marker(node_id: int, step: int, start_us: int, duration_us: int = 10) -> Row:
    return {
        **label(node_id),
        "name": f"ProfilerStep#{step}",
        "start_ns": start_us * 1000,
        "duration_ns": duration_us * 1000,
    }


def test_dependencies_bridge_removed_nodes() -> None:
    rows = [
        collective(1),
        compute(2, after=[1]),
        compute(3, after=[2]),
        collective(4, after=[3, 1]),
        collective(5, after=[4, 2]),
    ]
    part = cut_of(rows, options=CutOptions(communication_only=True)).rank(0)
    assert edges(part.graph) == {1: set(), 4: {1}, 5: {4}}
    assert part.joins == 0


def test_a_node_that_joins_many_before_many_stays_as_a_join() -> None:
    many = range(50)
    rows = [
        *(collective(each) for each in many),
        compute(100, after=many),
        *(collective(200 + each, after=[100]) for each in many),
    ]
    part = cut_of(rows, options=CutOptions(communication_only=True)).rank(0)
    assert part.joins == 1
    assert sum(map(len, edges(part.graph).values())) == 100


def test_a_long_chain_that_gathers_is_bridged_with_few_edges() -> None:
    rows: list[Row] = []
    for each in range(0, 2000, 2):
        rows += [
            collective(each),
            compute(each + 1, after=[each, *([each - 1] if each else [])]),
        ]
    graph = trace(0, [*rows, collective(3000, after=[1999])])
    kept = [graph.node_id(at) % 2 == 0 for at in range(len(graph))]
    bridged = bridge(graph, kept)
    assert sum(map(len, bridged.dependencies.values())) < 1100


def test_ids_are_new_only_where_the_old_ones_give_another_order() -> None:
    options = CutOptions(communication_only=True)
    early = [collective(10, name="a"), compute(50), collective(1, after=[50], name="b")]
    part = cut_of(early, options=options).rank(0)
    order = [part.graph.name(at) for at in part.graph.topological_order()]
    assert part.renumbered
    assert order == ["a", "b"]
    late = [collective(1), compute(50), collective(60, after=[50])]
    assert not cut_of(late, options=options).rank(0).renumbered


def test_ranks_are_renumbered_in_groups_and_messages() -> None:
    rows: list[list[Row]] = [
        [],
        [collective(1, group="4"), send(2, 3, after=[1]), send(3, 0, after=[2])],
        [],
        [collective(1, group="4"), receive(2, 1, after=[1])],
    ]
    groups = {"4": (3, 0, 1), "5": (0, 2)}
    cut = cut_of(*rows, options=CutOptions(ranks=(1, 3)), groups=groups)
    assert cut.groups == {"4": (1, 0), WORLD: (0, 1)}
    part = cut.rank(1)
    assert [node.peer for node in part.graph.nodes()] == [None, 1]
    assert part.dropped[Dropped.MESSAGES] == 1
    cut = cut_of(
        *rows, options=CutOptions(ranks=(1, 3), keep_numbers=True), groups=groups
    )
    assert cut.groups["4"] == (3, 1)
    assert cut.rank(3).graph.node(1).peer == 1


@pytest.mark.parametrize(("root", "left"), [(0, []), (None, []), (1, [0]), (2, [1])])
def test_root_is_renumbered_in_the_cut_group(root: int | None, left: list[int]) -> None:
    rows = [[collective(1, CollectiveOp.BROADCAST, root=root)]] * 3
    cut = cut_of(*rows, options=CutOptions(ranks=(1, 2)))
    part = cut.rank(1)
    assert [node.root for node in part.graph.nodes()] == left
    assert part.dropped[Dropped.ROOTLESS] == 1 - len(left)


def test_parts_between_ranks_that_stay_keep_their_sizes() -> None:
    rows = [
        [collective(1, A2A, size=6, splits=Splits((1, 2, 3), (1, 4, 2)))],
        [collective(1, A2A, size=12)],
        [collective(1, A2A, size=6, splits=Splits((2, 4, 0), (3, 4, 0)))],
    ]
    cut = cut_of(*rows, options=CutOptions(ranks=(0, 2)))
    first = cut.rank(0).graph.node(0)
    assert (first.splits, first.comm_bytes) == (Splits((1, 3), (1, 2)), 4)
    cut = cut_of(*rows, options=CutOptions(ranks=(1, 2)))
    even = cut.rank(1).graph.node(0)
    assert (even.splits, even.comm_bytes) == (Splits((4, 4), (4, 4)), 8)


def test_collective_of_a_group_of_one_rank_stays_with_the_group(
    tmp_path: Path,
) -> None:
    rows = [collective(1, group="1"), collective(2, group="2", after=[1])]
    members = {"1": (0,), "2": (0, 1)}
    path = write_groups(
        tmp_path / "a", rows, [collective(2, group="2")], members=members
    )
    traces = load_trace_set(path)
    written = write_cut(
        path, tmp_path / "b", traces, CutOptions(communication_only=True)
    )
    part = load_trace_set(tmp_path / "b")
    assert lints_clean(part)
    assert edges(part.graphs[0]) == {1: set(), 2: {1}}
    assert "1 nodes of collectives of one rank, on which ASTRA-sim hangs" in (
        written.notes
    )


def test_one_recorded_rank_keeps_its_groups_and_splits(tmp_path: Path) -> None:
    splits = Splits((1, 2, 3), (4, 5, 6))
    rows = [
        collective(1, A2A, size=6, group="1", splits=splits, root=None),
        collective(2, CollectiveOp.BROADCAST, group="1", root=2),
        collective(3, group="2"),
    ]
    path = write_groups(tmp_path / "a", rows, members={"1": (0, 4, 8), "2": (0,)})
    traces = load_trace_set(path)
    write_cut(path, tmp_path / "b", traces, CutOptions(anonymize=True))
    part = load_trace_set(tmp_path / "b")
    first, second, _ = part.graphs[0].nodes()
    assert (first.splits, first.comm_bytes, second.root) == (splits, 6, 2)
    assert {name: part.groups[name].ranks for name in ("1", "2")} == {
        "1": (0, 4, 8),
        "2": (0,),
    }


def test_groups_keep_their_purposes_unless_names_are_secret(tmp_path: Path) -> None:
    members = {"7": (0, 1), "8": (1, 2)}
    groups = {name: ProcessGroup(name=name, ranks=of) for name, of in members.items()}
    first, second = collective(1, group="7"), collective(2, group="8")
    rows = [[first], [first, second], [second]]
    write_trace_set(
        tmp_path / "a",
        prefix="w",
        graphs=job(*rows).values(),
        groups=groups.values(),
        producer="chakram test",
        descriptions_of=lambda rank: [
            GroupDescription(group, f"purpose {name}")
            for name, group in groups.items()
            if rank in group
        ],
    )
    traces = load_trace_set(tmp_path / "a")
    write_cut(tmp_path / "a", tmp_path / "b", traces, CutOptions(ranks=(1, 2)))
    part = load_trace_set(tmp_path / "b")
    assert (part.purposes, part.groups["8"].ranks) == ({"8": "purpose 8"}, (0, 1))
    write_cut(tmp_path / "a", tmp_path / "c", traces, CutOptions(anonymize=True))
    assert load_trace_set(tmp_path / "c").purposes == {}


def test_body_of_a_collective_is_not_cut(tmp_path: Path) -> None:
    for rank in range(2):
        body = metadata(collective="allreduce", producer="chakram trace convert")
        body += node(1, NodeType.COMP)
        (tmp_path / f"w.{rank}.et").write_bytes(body)
    traces = load_trace_set(tmp_path)
    with pytest.raises(UnsupportedTrace, match="is the body of a custom collective"):
        write_cut(tmp_path, tmp_path / "b", traces, CutOptions(ranks=(0,)))


def test_range_keeps_only_complete_nodes() -> None:
    rows = [
        [collective(1), collective(2, after=[1]), collective(3, after=[2])],
        [collective(2), collective(3, after=[2]), collective(4, after=[3])],
    ]
    cut = cut_of(*rows, options=CutOptions(node_ids=(2, 3)))
    # Node 2 of rank 0 and node 3 of rank 1 are the second collective.
    assert edges(cut.rank(0).graph) == {2: set()}
    assert edges(cut.rank(1).graph) == {3: set()}
    assert [cut.rank(rank).dropped[Dropped.HALVES] for rank in (0, 1)] == [1, 1]


def test_step_contains_the_nodes_that_start_in_it() -> None:
    rows = [
        marker(1, 4, 10),
        collective(2, start_ns=11_000),
        marker(3, 5, 20),
        collective(4, start_ns=21_000, after=[2]),
    ]
    cut = cut_of(rows, rows, options=CutOptions(iteration=4))
    assert set(edges(cut.rank(0).graph)) == {1, 2}
    cut = cut_of(rows, rows, options=CutOptions(iteration=5))
    assert edges(cut.rank(1).graph) == {3: set(), 4: set()}


def test_computations_without_a_start_are_counted() -> None:
    rows = [
        marker(1, 4, 10),
        compute(2, duration_ns=5_000),
        compute(3),
        collective(4, start_ns=11_000),
    ]
    part = cut_of(rows, rows, options=CutOptions(iteration=4)).rank(0)
    assert part.dropped[Dropped.STARTLESS] == 1
    assert set(edges(part.graph)) == {1, 4}
    options = CutOptions(iteration=4, communication_only=True)
    assert not cut_of(rows, rows, options=options).rank(0).dropped[Dropped.STARTLESS]


def test_cut_set_can_be_cut_by_steps(tmp_path: Path) -> None:
    rows = [
        marker(1, 4, 10),
        collective(2, start_ns=11_000),
        marker(3, 5, 20),
        {**label(4), "start_ns": 21_000},
        collective(5, start_ns=22_000, after=[2]),
    ]
    write_trace_set(
        tmp_path / "a",
        prefix="w",
        graphs=job(rows, rows).values(),
        groups=[],
        producer="t",
    )
    options = CutOptions(node_ids=(2, 5), anonymize=True)
    traces = load_trace_set(tmp_path / "a")
    write_cut(tmp_path / "a", tmp_path / "b", traces, options)
    part = load_trace_set(tmp_path / "b")
    # Of step 4 the marker is outside; other labels go.
    nodes = [(node.node_id, node.name, node.kind) for node in part.graphs[1].nodes()]
    assert nodes == [
        (2, "all_reduce_1", NodeKind.COLLECTIVE),
        (3, "ProfilerStep#5", NodeKind.PASS),
        (5, "all_reduce_2", NodeKind.COLLECTIVE),
    ]
    # The last step lasts as long as its marker says, which takes no time in a replay.
    assert part.graphs[0].duration_ns(1) == 10_000
    prefix = tmp_path / "b/trace"
    write_cut(prefix, tmp_path / "c", part, CutOptions(iteration=5))
    assert len(load_trace_set(tmp_path / "c").graphs[0]) == 2
    with pytest.raises(
        TraceError, match=r"has no ProfilerStep#4 \(steps in this trace: 5\)"
    ):
        write_cut(prefix, tmp_path / "d", part, CutOptions(iteration=4))


def test_times_of_a_profile_from_0_on_are_kept(tmp_path: Path) -> None:
    rows = [
        marker(1, 4, 0, 20),
        collective(2, start_ns=5_000),
        marker(3, 5, 20),
        collective(4, start_ns=21_000),
    ]
    path = write_groups(tmp_path / "a", rows, rows, members={})
    traces = load_trace_set(path)
    assert [node.start_ns for node in traces.graphs[0].nodes()] == [
        *(1_000, 6_000, 21_000, 22_000)
    ]
    write_cut(path, tmp_path / "b", traces, CutOptions(iteration=4))
    part = load_trace_set(tmp_path / "b")
    assert [node.node_id for node in part.graphs[1].nodes()] == [1, 2]


def test_a_cut_to_communication_has_no_markers() -> None:
    rows = [marker(1, 4, 10), collective(2, start_ns=11_000)]
    cut = cut_of(rows, rows, options=CutOptions(communication_only=True))
    assert set(edges(cut.rank(0).graph)) == {2}


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ([collective(1)], [collective(1)], "the ends of iterations are unknown"),
        (
            [marker(1, 3, 10)],
            [marker(1, 3, 10)],
            "has no ProfilerStep#4 (steps in this trace: 3)",
        ),
        ([marker(1, 4, 9), marker(2, 4, 10)], [], "marks the same step again"),
        ([marker(1, 4, 9, 0)], [], "marks the last step but has no duration"),
        ([marker(1, 4, 0)], [], "marks a step but has no start time"),
        ([marker(1, 4, 9), collective(2)], [], "has no recorded start"),
        (
            [marker(1, 4, 10), collective(2, start_ns=11_000)],
            [marker(1, 4, 10), collective(2, start_ns=31_000)],
            "starts outside step 4",
        ),
    ],
)
def test_ambiguous_cut_is_refused(
    first: list[Row], second: list[Row], text: str
) -> None:
    with pytest.raises(TraceError) as refused:
        cut_of(first, second, options=CutOptions(iteration=4))
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (CutOptions(ranks=(0, 7)), "--ranks: there is no rank 7"),
        (
            CutOptions(node_ids=(5, 9)),
            "--nodes: no rank has a node in this range (ids are 1 to 1)",
        ),
    ],
)
def test_cut_by_missing_ranks_or_steps_is_refused(
    options: CutOptions, text: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        cut_of([collective(1)], [collective(1)], options=options)
    assert text in str(refused.value)


def test_anonymized_names_are_equal_on_all_ranks() -> None:
    rows = [
        [collective(1, name="secret"), compute(2), send(3, 1)],
        [collective(1, name="other"), collective(2, name="secret"), receive(3, 0)],
    ]
    cut = cut_of(*rows, options=CutOptions(anonymize=True))
    names = [[node.name for node in cut.rank(rank).graph.nodes()] for rank in (0, 1)]
    assert names == [
        ["all_reduce_1", "compute_1", "send_1"],
        ["all_reduce_2", "all_reduce_1", "receive_1"],
    ]


@pytest.fixture(scope="module")
def mixtral(request: pytest.FixtureRequest) -> tuple[Path, TraceSet]:
    data: Path = request.getfixturevalue("chakram_data")
    path = data / "traces/stage/moe_mixtral_ep4_tp2_8r"
    return path, load_trace_set(path, bytes_per_element=2)


def lints_clean(traces: TraceSet) -> bool:
    return (
        not check_trace_set(traces.graphs, traces.groups)
        and not check_across_ranks(traces.graphs, traces.groups)[0]
    )


def test_the_communication_of_a_real_set_sends_the_same_bytes(
    chakram_data: Path, mixtral: tuple[Path, TraceSet], tmp_path: Path
) -> None:
    path, traces = mixtral
    write_cut(path, tmp_path, traces, CutOptions(communication_only=True))
    left = load_trace_set(tmp_path)
    assert lints_clean(left)
    assert sum(map(len, left.graphs.values())) == 720
    before = measure_traffic(traces.graphs, traces.groups)
    after = measure_traffic(left.graphs, left.groups)
    assert after.sent_bytes == before.sent_bytes


def test_half_of_the_ranks_of_a_real_set_are_a_clean_set(
    chakram_data: Path, mixtral: tuple[Path, TraceSet], tmp_path: Path
) -> None:
    path, traces = mixtral
    write_cut(path, tmp_path, traces, CutOptions(ranks=(0, 1, 2, 3)))
    left = load_trace_set(tmp_path)
    assert left.nranks == 4
    assert lints_clean(left)
    assert left.graphs[3].node(0).name == traces.graphs[3].node(0).name
