"""Formats of process groups in traces."""

from __future__ import annotations

import json

import pytest

from chakram.chakra.read.groups import (
    encode_group_file,
    groups_text,
    initial_groups,
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


def test_name_of_many_ranks_fits_a_plan() -> None:
    members = [(0, 1, *range(16, 16 * count, 16)) for count in (400, 401)]
    names = [inline_group("tp", each, "w")[0] for each in members]
    assert names[0].startswith("tp[0,1,...,6384#")
    assert names[0] == inline_group("tp", list(members[0]), "w")[0]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 64


LONG = list(range(0, 4000, 2))


def long_groups(**changes: object) -> str:
    entries = [
        {"pg_name": "1", "ranks": LONG},
        {"pg_name": "2", "ranks": [0, 1], "pg_desc": "TP"},
        {"pg_name": "3", "ranks": LONG[::-1], **changes},
    ]
    return json.dumps(entries)


def test_traces_share_the_long_lists_that_they_repeat() -> None:
    first = initial_groups(long_groups(), "rank 0")
    # The texts of ranks differ in other groups.
    second = initial_groups(long_groups(pg_desc="other"), "rank 1")
    assert first[0].ranks == tuple(LONG)
    assert first[2].ranks == tuple(LONG[::-1])
    assert first[0].ranks is second[0].ranks
    assert first[2].ranks is second[2].ranks
    assert (first[0].size, first[0].least_ranks) == (2000, 3999)
    assert (first[1].ranks, first[1].purpose) == ((0, 1), "TP")


@pytest.mark.parametrize(
    ("ranks", "found"),
    [
        ([*LONG, 0], "group '3', names a rank twice"),
        ([*LONG, -1], "group '3', is not a list of ranks"),
        ([*LONG, "x"], "group '3', is not a list of ranks"),
        ([*LONG, [1]], "group '3', is not a list of ranks"),
        ({"": 0}, "not readable"),
        ({"": 7}, "not readable"),
        ({"x": 0}, "not readable"),
    ],
)
def test_a_wrong_long_list_is_located(ranks: object, found: str) -> None:
    text = long_groups(ranks=ranks)
    with pytest.raises(TraceError) as caught:
        initial_groups(text, "rank 7")
    assert found in str(caught.value).replace(": ", ", ")
    assert "rank 7" in str(caught.value)


def test_written_groups_are_read_again() -> None:
    text = groups_text([("1", "TP", (0, 1)), ("2", "", tuple(LONG))])
    assert json.loads(text)[1]["group_size"] == 2000
    first, second = initial_groups(text, "w")
    assert (first.name, first.purpose, first.ranks) == ("1", "TP", (0, 1))
    assert second.ranks == tuple(LONG)


@pytest.mark.parametrize("end", ["", "]", '"ranks": [', '{"ranks": [1'])
def test_groups_that_break_off_are_refused(end: str) -> None:
    with pytest.raises(TraceError):
        initial_groups('[{"pg_name": "1", "ranks": [0, 1, 2, 3' + end, "w")
