"""The output of PARAM's replay."""

from __future__ import annotations

import pytest

from chakram.formats.param_replay import read_replayed
from chakram.foundation.errors import ResultsError


def record(**changes: object) -> dict[str, object]:
    return {
        "comms": "all_reduce",
        "id": 1,
        "in_msg_size": 1024,
        "out_msg_size": 1024,
        "dtype": "float32",
        "pg_id": 3,
        "world_size": 4,
        "latency_us": 12.5,
        "global_latency_us": 15.0,
    } | changes


def test_collectives_of_a_group_are_counted_in_each_replay() -> None:
    found = read_replayed(
        [
            record(),
            record(id=2, comms="wait"),
            record(id=3, comms="all_gather_into_tensor_coalesced", dtype="bfloat16"),
            record(id=4, pg_id=5),
            record(),
        ],
        "r.json",
    )
    assert [(each.op.value, each.group, each.k, each.replay) for each in found] == [
        ("all_reduce", "3", 0, 0),
        ("all_gather", "3", 1, 0),
        ("all_reduce", "5", 0, 0),
        ("all_reduce", "3", 0, 1),
    ]
    # S: the whole gathered buffer.
    assert [each.size_bytes for each in found[:2]] == [4096, 1024 * 2 * 4]
    assert {each.time_ns for each in found} == {15_000}


def test_latency_of_the_rank_is_used_for_all() -> None:
    (found,) = read_replayed([record(global_latency_us=0.0)], "r.json")
    assert found.time_ns == 12_500
    (found,) = read_replayed([record(dtype="strange", dtype_size=8)], "r.json")
    assert found.size_bytes == 8192


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "is not a list"),
        ("text", "is not a list"),
        ([], "has no replayed collective"),
        ([{"comms": 3}], r"r.json: \[0\]: is not a record of a replay"),
        ([record(id={})], r"r.json: \[0\]: is not a record of a replay"),
        ([record(dtype_size=-8)], "has dtype"),
        ([record(dtype="strange")], "has dtype 'strange'"),
        ([record(in_msg_size=-1)], "in_msg_size is -1"),
        ([record(world_size=None)], "world_size is None"),
        ([record(latency_us="x", global_latency_us=None)], "has neither"),
        ([record(latency_us=float("nan"), global_latency_us=None)], "has neither"),
    ],
)
def test_other_documents_are_refused(document: object, message: str) -> None:
    with pytest.raises(ResultsError, match=message):
        read_replayed(document, "r.json")
