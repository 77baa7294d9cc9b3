"""Collectives of some dimensions of the ranks: ``involved_dim``."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

from chakram.chakra.lint.replay_blockers import require_replayable
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.sets.trace_set import TraceSet, load_replicated, load_trace_set
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import TraceError
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.program.operations import CollectiveOperation
from chakram.trace.replication import Replication
from tests.full_decoder import read_fast, read_fully
from tests.trace_bytes import collective, first, metadata, node, read_stream

READERS = pytest.mark.parametrize(
    "reads",
    [
        lambda *each, **options: read_fast(*each, **options)[0],
        read_fully,
    ],
    ids=["fast decoder", "full decoder"],
)


def write(folder: Path, *records: bytes, ranks: int) -> Path:
    folder.mkdir(exist_ok=True)
    for rank in range(ranks):
        data = metadata() + b"".join(records)
        (folder / f"w.{rank}.et").write_bytes(data)
    return folder


def members(traces: TraceSet) -> list[tuple[int, ...]]:
    """Return by rank the members of the group of its first collective."""
    require_replayable(traces.graphs, traces.groups)
    lowered = lower_job("j", traces.graphs, traces.groups, LoweringOptions())
    found = []
    for program in lowered.programs:
        ranks = {group.name: tuple(group.ranks) for group in program.groups}
        operation = program.operations[0]
        assert isinstance(operation, CollectiveOperation)
        found.append(ranks[operation.group])
    return found


@READERS
@pytest.mark.parametrize("flags", [(True,), (True,) * 4, (1, 1), ()])
def test_all_dimensions_are_all_ranks(reads: Callable[..., Any], flags: Any) -> None:
    data = metadata() + node(9) + collective(1, involved_dim=flags)
    assert reads(data, rank=0, options=ReadOptions()).graph.node(1).group is None
    data = metadata() + node(9) + collective(1, involved_dim=flags, pg_name="4")
    assert reads(data, rank=0, options=ReadOptions()).graph.node(1).group == "4"


def test_all_dimensions_use_the_fast_decoder() -> None:
    def full_decodes(**fields: tuple[bool, ...]) -> int:
        data = metadata() + node(9) + collective(1, **fields)
        options = ReadOptions(dimensions=(2, 2))
        return read_fast(data, rank=0, options=options)[1]

    shown = full_decodes()
    assert full_decodes(involved_dim=(True,) * 4) == shown
    assert full_decodes(involved_dim=(True, False)) == shown + 1


@READERS
def test_unknown_dimensions_are_refused(
    reads: Callable[..., Any],
) -> None:
    data = metadata() + node(9) + collective(1, involved_dim=(True, False))
    with pytest.raises(
        TraceError,
        match=r"rank 0 node 1: is a collective of only some dimensions "
        r"\(involved_dim: true, false\), .*--dimensions 4,2",
    ):
        reads(data, rank=0, options=ReadOptions(nranks=8))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 6, 7, 12, 32, 49])
def test_dimensions_of_a_hint_make_all_ranks(
    tmp_path: Path, ranks: int, count: int
) -> None:
    flags = (True, *[False] * (count - 1))
    write(tmp_path, collective(1, involved_dim=flags), ranks=ranks)
    given: tuple[int, ...] = ()
    for _ in range(2):  # a wrong one gets a hint, too
        with pytest.raises(TraceError) as error:
            load_trace_set(tmp_path, options=ReadOptions(dimensions=given))
        found = re.search(r"(?:--dimensions|e\.g\.) ([0-9,]+)$", error.value.hint or "")
        assert found is not None
        sizes = tuple(map(int, found[1].split(",")))
        assert (len(sizes), prod(sizes)) == (count, ranks)
        load_trace_set(tmp_path, options=ReadOptions(dimensions=sizes))
        given = (*sizes[1:], ranks + 1)


def test_hint_shows_no_dimensions_with_unknown_ranks() -> None:
    with pytest.raises(TraceError) as error:
        first(collective(1, involved_dim=(True, False)))
    assert str(error.value.hint).endswith("or --dimensions")


@pytest.mark.parametrize(
    ("fields", "options", "found"),
    [
        ({"involved_dim": True}, {}, "involved_dim is True"),
        ({"involved_dim": (2, 1)}, {}, r"involved_dim is \(2, 1\)"),
        ({"involved_dim": ("true",)}, {}, "involved_dim is"),
        (
            {"involved_dim": (True, False)},
            {"dimensions": (2, 2, 2)},
            r"has 2 values \(true, false\), but there are 3 dimensions",
        ),
    ],
)
def test_invalid_dimensions_are_refused(
    fields: dict[str, Any], options: dict[str, Any], found: str
) -> None:
    with pytest.raises(TraceError, match=found):
        first(collective(1, **fields), **options)


def test_sizes_of_dimensions_are_above_0() -> None:
    with pytest.raises(ValueError, match="must all be at least 1"):
        ReadOptions(dimensions=(4, 0))


@pytest.mark.parametrize(
    ("dimensions", "flags", "expected"),
    [
        ((2, 4), (True, False), [(0, 1), (2, 3), (4, 5), (6, 7)]),
        ((2, 4), (False, True), [(0, 2, 4, 6), (1, 3, 5, 7)]),
        ((2, 2, 2), (True, False, True), [(0, 1, 4, 5), (2, 3, 6, 7)]),
        ((2, 2, 2), (False, True, False), [(0, 2), (1, 3), (4, 6), (5, 7)]),
        # A dimension of one rank, and those beyond, are the same either way.
        ((2, 1, 4), (True, False, False), [(0, 1), (2, 3), (4, 5), (6, 7)]),
        ((8, 1), (True, False), [tuple(range(8))]),
        ((8,), (True, False, False), [tuple(range(8))]),
        ((3, 2), (False, True), [(0, 3), (1, 4), (2, 5)]),
    ],
)
def test_ranks_with_equal_other_coordinates_form_a_group(
    tmp_path: Path,
    dimensions: tuple[int, ...],
    flags: tuple[bool, ...],
    expected: list[tuple[int, ...]],
) -> None:
    ranks = prod(dimensions)
    write(tmp_path, collective(1, involved_dim=flags), ranks=ranks)
    options = ReadOptions(dimensions=dimensions)
    got = members(load_trace_set(tmp_path, options=options))
    assert got == [
        next(group for group in expected if rank in group) for rank in range(ranks)
    ]


@pytest.mark.parametrize("zero", [False, True])
def test_a_process_group_is_split(tmp_path: Path, zero: bool) -> None:
    name = "0" if zero else "7"
    write(tmp_path, ranks=8)
    groups = {name: [6, 4, 3, 2, 1, 0]}
    (tmp_path / "comm_group.json").write_text(json.dumps(groups))
    for rank in groups[name]:
        of_group = collective(1, pg_name=name, involved_dim=(True, True, False))
        (tmp_path / f"w.{rank}.et").write_bytes(metadata() + of_group)
    traces = load_trace_set(tmp_path, options=ReadOptions(dimensions=(2, 2, 2)))
    require_replayable(traces.graphs, traces.groups)
    found = {
        traces.groups[graph.group(0) or "world"].ranks
        for graph in traces.graphs.values()
        if len(graph)
    }
    # In the order of the group.
    assert found == {(3, 2, 1, 0), (6, 4)}


def test_dimensions_must_make_all_ranks(tmp_path: Path) -> None:
    write(tmp_path, collective(1), ranks=6)
    with pytest.raises(
        TraceError, match=r"has 6 ranks, but the dimensions 2 x 4 have 8"
    ):
        load_trace_set(tmp_path, options=ReadOptions(dimensions=(2, 4)))
    with pytest.raises(TraceError, match="rank 8 is not one of the 8"):
        read_stream(
            io.BytesIO(metadata() + collective(1, involved_dim=(False, True))),
            rank=8,
            source="w",
            options=ReadOptions(dimensions=(2, 4)),
        )


def test_undefined_group_is_not_split(tmp_path: Path) -> None:
    write(tmp_path, collective(1, pg_name="7", involved_dim=(True, False)), ranks=4)
    traces = load_trace_set(tmp_path, options=ReadOptions(dimensions=(2, 2)))
    with pytest.raises(TraceError, match=r"7\[0,1\]"):
        require_replayable(traces.graphs, traces.groups)


@pytest.mark.parametrize(
    ("fields", "replication", "expected"),
    [
        ({}, {}, (2, 3)),
        ({"pg_name": "tp"}, {}, (2, 3)),
        ({"pg_name": "7"}, {"groups": {"7": ("tp", "dp")}}, (2, 3)),
        ({"pg_name": "7"}, {"groups": {"7": ("all",)}}, (2, 3)),
        ({"pg_name": "dp"}, {}, (2,)),
    ],
)
def test_one_rank_represents_all_in_dimensions(
    tmp_path: Path,
    fields: dict[str, Any],
    replication: dict[str, Any],
    expected: tuple[int, ...],
) -> None:
    write(tmp_path, collective(1, involved_dim=(True, False), **fields), ranks=1)
    how = Replication(nranks=8, dimensions={"tp": 2, "dp": 4}, **replication)
    traces = load_replicated(tmp_path, how)
    assert traces.groups[str(traces.graphs[2].group(0))].ranks == expected


def test_a_group_that_is_split_must_have_dimensions(tmp_path: Path) -> None:
    write(tmp_path, collective(1, involved_dim=(True, False), pg_name="7"), ranks=1)
    how = Replication(nranks=8, dimensions={"tp": 2, "dp": 4})
    with pytest.raises(TraceError, match="'7': has collectives over some of its dimen"):
        load_replicated(tmp_path, how)


@pytest.mark.parametrize(
    "message",
    [
        {
            "workload_graph": [
                {
                    "Id": 1,
                    "NodeType": 7,
                    "comm_type": 0,
                    "comm_size": 8,
                    "involved_dim": [False, True],
                }
            ]
        },
        {
            "nodes": [
                {
                    "id": 1,
                    "node_type": "coll_comm_node",
                    "comm_type": "ALL_REDUCE",
                    "comm_size": 8,
                    "involved_dim": [False, True],
                }
            ]
        },
    ],
    ids=["feeder", "STAGE"],
)
def test_json_forms_contain_involved_dim(message: dict[str, Any]) -> None:
    def read(**options: Any) -> Any:
        return read_stream(
            io.BytesIO(json.dumps(message).encode()),
            rank=1,
            source="w",
            options=ReadOptions(bytes_per_element=2, **options),
        ).trace

    trace = read(dimensions=(2, 2))
    assert trace.graph.op(0) is CollectiveOp.ALL_REDUCE
    assert trace.parts[trace.graph.group(0)].ranks == (1, 3)
    with pytest.raises(TraceError, match="of only some dimensions"):
        read()


def test_jsonizer_writes_involved_dim(tmp_path: Path) -> None:
    message = {
        "id": "1",
        "type": "COMM_COLL_NODE",
        "attr": [
            {"name": "comm_type", "int64Val": "0"},
            {"name": "comm_size", "int64Val": "8"},
            {"name": "involved_dim", "boolList": {"values": [True, False]}},
        ],
    }
    for rank in range(4):
        text = json.dumps({"version": "0.0.4"}) + json.dumps(message)
        (tmp_path / f"w.{rank}.json").write_text(text)
    options = ReadOptions(dimensions=(2, 2))
    assert set(members(load_trace_set(tmp_path, options=options))) == {(0, 1), (2, 3)}
