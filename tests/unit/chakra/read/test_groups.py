"""Formats of process groups in traces."""

from __future__ import annotations

import json

import pytest

from chakram.chakra.read.groups import (
    encode_group_file,
    inline_group,
    is_process_group_init,
    normal_name,
    parse_group_file,
    process_groups_of_init,
)
from chakram.foundation.errors import TraceError


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("4", "4"),
        ("4.0", "4"),
        ("04", "4"),
        ("0.0", "0"),
        ("00", "0"),
        (" 7 ", "7"),
        ("4.5", "4.5"),
        ("3abc", "3abc"),
        ("", ""),
        ("g\ud800", "g\ufffd"),
    ],
)
def test_a_number_has_one_name(raw: str, name: str) -> None:
    assert normal_name(raw) == name


def test_a_group_file_keeps_the_order_of_ranks() -> None:
    assert parse_group_file(b'{"1": [2, 0], "2.0": [3]}', "g") == {
        "1": (2, 0),
        "2": (3,),
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[1]", "is not one JSON object"),
        (b"[]", "is not one JSON object"),
        (b"3", "is not one JSON object"),
        (b'{"1": [0], "1.0": [1]}', "defines group '1' twice"),
        (b'{"world": [0]}', "defines the group 'world'"),
        (b'{"1": 0}', "is not a list of ranks"),
        (b'{"1": [0, "1"]}', "is not a list of ranks"),
        (b'{"1": [0, -1]}', "is not a list of ranks"),
        (b'{"1": [true]}', "is not a list of ranks"),
        (b'{"1": {"0": 1}}', "is not a list of ranks"),
        (b'{"1": [0, 0]}', "names a rank twice"),
        (b'{"1": []}', "has no ranks"),
    ],
)
def test_a_wrong_group_file_is_refused(text: bytes, found: str) -> None:
    with pytest.raises(TraceError, match=found) as caught:
        parse_group_file(text, "comm_group.json")
    assert caught.value.where.startswith("comm_group.json")


def test_an_empty_object_defines_no_group() -> None:
    assert parse_group_file(b"{}", "g") == {}


def test_a_group_file_is_read_as_it_was_written() -> None:
    groups = {"1": (0, 4), "2": (1, 5)}
    text = encode_group_file(groups)
    assert parse_group_file(text, "g") == groups
    assert json.loads(text) == {"1": [0, 4], "2": [1, 5]}


@pytest.mark.parametrize("name", ["0", "tp", "", "-1"])
def test_only_numbers_above_0_are_written(name: str) -> None:
    with pytest.raises(ValueError, match="not a number above 0"):
        encode_group_file({name: (0,)})


def init_values(*groups: dict[str, object]) -> str:
    return repr([json.dumps(groups)])


def test_pytorch_groups_are_read_and_the_default_group_is_all_ranks() -> None:
    values = init_values(
        {"pg_name": "0", "ranks": []},
        {"pg_name": "1", "ranks": [0, 2], "pg_desc": "TENSOR_MODEL_PARALLEL_GROUP"},
        {"pg_name": "a3f", "ranks": [], "pg_desc": "undefined"},
        {"pg_name": "9", "ranks": [1], "pg_desc": 7},
    )
    groups = process_groups_of_init(values, "w")
    assert [(group.name, group.ranks, group.purpose) for group in groups] == [
        ("0", (), ""),
        ("1", (0, 2), "TENSOR_MODEL_PARALLEL_GROUP"),
        ("a3f", (), ""),
        ("9", (1,), ""),
    ]
    assert is_process_group_init("## process_group:init ##")
    assert not is_process_group_init("aten::add")


@pytest.mark.parametrize(
    "values",
    [
        "",
        "[",
        "[]",
        "3",
        "['{']",
        "['[1]']",
        "['[{}]']",
        "[['x']]",
        "__import__('os').getcwd()",
        "[" * 1000,
        "-" * 100_000 + "1",
        init_values({"pg_name": "1", "ranks": "all"}),
    ],
)
def test_wrong_pytorch_groups_are_refused(values: str) -> None:
    with pytest.raises(TraceError):
        process_groups_of_init(values, "w: node 2")


def test_endless_pytorch_groups_are_refused() -> None:
    with pytest.raises(TraceError, match="characters of groups"):
        process_groups_of_init(" " * (4 * 2**20 + 1), "w: node 2")


def test_an_inline_group_is_named_by_its_ranks() -> None:
    assert inline_group("tp", (0, 2, 4, 6), "w") == ("tp[0:7:2]", (0, 2, 4, 6))
    assert inline_group("", (0, 5, 6), "w") == ("group[0,5,6]", (0, 5, 6))
    assert inline_group("pp", (3, 2, 1), "w") == ("pp[3,2,1]", (3, 2, 1))
    assert inline_group("dp", (0, 4), "w") == ("dp[0,4]", (0, 4))
    with pytest.raises(TraceError, match="not a list of ranks"):
        inline_group("tp", 3, "w")
