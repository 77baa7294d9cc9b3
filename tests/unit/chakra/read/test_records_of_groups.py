"""``record_param_comms`` in converted and linked traces: groups and their ranks."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chakram.chakra.et_codec import NodeType, encode_node
from chakram.chakra.lint.replay_blockers import require_replayable
from chakram.chakra.read.framing import frame
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.sets.trace_set import load_trace_set
from chakram.foundation.errors import TraceError
from tests.full_decoder import read_fast, read_fully
from tests.trace_bytes import collective, metadata, node, read_stream

READERS = pytest.mark.parametrize(
    "reads",
    [
        lambda *each, **options: read_fast(*each, **options)[0],
        read_fully,
    ],
    ids=["fast decoder", "full decoder"],
)
TENSOR = [320, 713, 0, 6144, 4, "cuda:2"]


def record(values: object, name: str = "record_param_comms") -> bytes:
    """Return the node as Chakra's converter writes it."""
    return frame(
        encode_node(
            node_id=5,
            name=name,
            node_type=NodeType.COMP,
            attributes={"is_cpu_op": True},
            input_values=values if isinstance(values, str) else repr(values),
        )
    )


def stated(group: object, *behind: object) -> list[object]:
    return [TENSOR, 147, group, 2, "all_to_allv", [768, 768], [768, 768], *behind]


@READERS
@pytest.mark.parametrize(
    ("values", "least_ranks", "groups"),
    [
        (stated(["3", "tp"], 1, 2, 4), 8, {"3": (1, 3, 5, 7)}),
        (stated(("3", "tp"), 1, 2, 4), 8, {"3": (1, 3, 5, 7)}),
        # Not evenly apart: their number is known.
        (stated(["3", "tp"], 0, -1, 6), 6, {}),
        # All ranks, and a pointer, which means nothing here.
        (stated(["0", "default_pg"], 0, 1, 8), 8, {}),
        (stated(93891384002768, 0, 1, 8), 8, {}),
        # Of older schemas, which state no ranks.
        (stated(93891384002768), 0, {}),
        (stated(82149104, 2), 0, {}),
        ([141, 0, 2, "wait", [], []], 0, {}),
        # Not what PyTorch writes.
        (stated(["3", "tp"], -1, 1, 8), 0, {}),
        (stated(["3", "tp"], 0, 1, 2**40), 0, {}),
        ([], 0, {}),
        ({"a": 1}, 0, {}),
        ("[1, 2", 0, {}),
        ("", 0, {}),
    ],
)
def test_a_record_states_a_group(
    reads: Callable[..., Any],
    values: object,
    least_ranks: int,
    groups: dict[str, tuple[int, ...]],
) -> None:
    data = metadata() + node(9) + record(values)
    trace = reads(data, rank=1, options=ReadOptions())
    assert (trace.least_ranks, trace.groups) == (least_ranks, groups)
    # Of any other name the inputs mean nothing.
    for name in ("record_param_commz", "aten::mm"):
        data = metadata() + node(9) + record(values, name)
        assert not reads(data, rank=1, options=ReadOptions()).least_ranks


def test_defined_groups_override_those_of_records(tmp_path: Path) -> None:
    init = json.dumps([{"pg_name": "3", "ranks": [0, 1], "group_size": 2}])
    made = encode_node(
        node_id=4,
        name="## process_group:init ##",
        node_type=NodeType.METADATA,
        attributes={},
        input_values=repr([init]),
    )
    data = metadata() + frame(made) + record(stated(["3", "tp"], 0, 1, 4))
    trace = read_stream(io.BytesIO(data), rank=0, source="w").trace
    assert trace.groups == {"3": (0, 1)}


def test_a_set_of_fewer_ranks_than_a_record_states_is_not_replayed(
    tmp_path: Path,
) -> None:
    for rank in range(2):
        data = metadata() + record(stated(["3", "tp"], 0, 1, 2))
        data += collective(6, pg_name="3")
        (tmp_path / f"w.{rank}.et").write_bytes(data)
    traces = load_trace_set(tmp_path)
    require_replayable(traces.graphs, traces.groups, traces.least_ranks)
    assert traces.groups["3"].ranks == (0, 1)
    (tmp_path / "w.1.et").write_bytes(
        metadata() + record(stated(["0", "default_pg"], 0, 1, 8))
    )
    traces = load_trace_set(tmp_path)
    told = "states that the job had 8 ranks, but the set has files of 2"
    with pytest.raises(TraceError, match=told):
        require_replayable(traces.graphs, traces.groups, traces.least_ranks)


def test_linked_traces_contain_records_of_groups() -> None:
    linked = {
        "schema": "1.1.1-chakra.0.0.4",
        "nodes": [
            {
                "id": 2,
                "name": "record_param_comms",
                "ctrl_deps": 1,
                "inputs": {"values": stated(["3", "tp"], 1, 2, 4), "types": []},
                "outputs": {"values": [TENSOR], "types": ["Tensor(float)"]},
                "attrs": [],
                "exclusive_dur": 5,
            }
        ],
    }
    trace = read_stream(
        io.BytesIO(json.dumps(linked).encode()), rank=1, source="w.json"
    ).trace
    assert trace.least_ranks == 8
    assert trace.groups == {"3": (1, 3, 5, 7)}


@READERS
def test_a_record_with_two_values_is_refused(reads: Callable[..., Any]) -> None:
    body = b"\x18\x04\x12\x12record_param_comms\x42" + frame(b"\x0a\x02[]\x0a\x02{}")
    with pytest.raises(TraceError, match=r"'inputs\.values' twice"):
        reads(metadata() + node(9) + frame(body), rank=0, options=ReadOptions())
