"""JSON piece by piece."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from chakram.chakra.read.json_scan import JsonScanner
from chakram.foundation.errors import GarbageTrace, OversizedRecord, TruncatedTrace


def pieces(text: str, size: int) -> Iterable[bytes]:
    data = text.encode()
    return (data[i : i + size] for i in range(0, len(data), size))


def values(text: str, *, size: int = 7, limit: int = 1000) -> list[tuple[int, object]]:
    return list(JsonScanner(pieces(text, size), source="w", limit=limit).values())


def elements(text: str, *, size: int = 7, limit: int = 1000) -> list[object]:
    scanner = JsonScanner(pieces(text, size), source="w", limit=limit)
    return [value for _, value in scanner.elements("nodes")]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_values_have_their_offset_in_bytes(size: int) -> None:
    text = ' {"a": 12}\n{"ä": "é"}[1,2]   {}'
    assert values(text, size=size) == [
        (1, {"a": 12}),
        (11, {"ä": "é"}),
        (23, [1, 2]),
        (31, {}),
    ]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_elements_come_from_the_array_of_the_key(size: int) -> None:
    text = '{"x": [0], "y": {"nodes": [9]}, "nodes": [1, 23, {"n": []}], "z": 4.5}'
    assert elements(text, size=size) == [1, 23, {"n": []}]
    assert elements('{"nodes": []}', size=size) == []


@pytest.mark.parametrize("half", ["\\ud800", "\\uDFFF", "\\udc00"])
def test_lone_surrogate_is_replaced_anywhere(half: str) -> None:
    text = f'{{"nodes": ["a{half}", {{"k{half}": [1, "{half}b"]}}, "c"]}}'
    assert elements(text) == ["a\ufffd", {"k\ufffd": [1, "\ufffdb"]}, "c"]


def test_surrogate_pairs_and_escaped_backslashes_are_kept() -> None:
    text = r'{"nodes": ["\ud83d\ude00", "\\ud800"]}'
    assert elements(text) == ["\U0001f600", r"\ud800"]


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_byte_order_mark_at_the_start_is_skipped_and_counted(size: int) -> None:
    assert values('\ufeff{"a": 1} [2]', size=size) == [(3, {"a": 1}), (12, [2])]
    with pytest.raises(GarbageTrace, match="offset 3: the text is not JSON"):
        values("[1]\ufeff[2]", size=size)


def test_an_empty_chunk_is_not_the_end() -> None:
    chunks = [b"[1,", b"", b"2]"]
    assert list(JsonScanner(chunks, source="w").values()) == [(0, [1, 2])]


@pytest.mark.parametrize(
    ("text", "error", "found"),
    [
        ('{"nodes": [1, {"a": "b', TruncatedTrace, "offset 14: the file ends inside"),
        ('{"nodes": [1, ', TruncatedTrace, "ends inside"),
        ('{"nodes": [1', TruncatedTrace, "ends inside"),
        ('{"nodes"', TruncatedTrace, "ends inside"),
        ('{"nodes": [1 2]}', GarbageTrace, "offset 13: there is '2]}', not"),
        ('{"nodes": [1, x]}', GarbageTrace, "offset 14: the text is not JSON"),
        ('{"nodes": [1]} 5', GarbageTrace, "offset 15: there is more text after"),
        ('{"other": [1]}', GarbageTrace, "there is no array 'nodes'"),
        ('{"nodes": {"a": 1}}', GarbageTrace, "there is no array 'nodes'"),
        ("{}", GarbageTrace, "there is no array 'nodes'"),
        ("{5: 6}", GarbageTrace, "the name of a member is not a string"),
        ("[1]", GarbageTrace, r"there is '\[1\]', not '{'"),
        ('{"nodes": [' + "9" * 5000 + "]}", GarbageTrace, "too many digits"),
    ],
)
def test_unexpected_json_is_reported_with_its_offset(
    text: str, error: type[Exception], found: str
) -> None:
    with pytest.raises(error, match=found):
        elements(text, limit=10_000)


def test_an_element_is_bounded_in_length() -> None:
    for text in ('{"nodes": ["' + "x" * 2000 + '"]}', '{"nodes": [' + " " * 2000):
        with pytest.raises((OversizedRecord, TruncatedTrace)):
            elements(text, limit=1000)
    with pytest.raises(OversizedRecord, match="more than 1000 characters"):
        elements('{"nodes": ["' + "x" * 2000 + '"]}', size=5000)


def test_an_element_is_bounded_in_depth() -> None:
    with pytest.raises(GarbageTrace, match="nested too deep"):
        elements('{"nodes": [' + "[" * 100_000, limit=10**6, size=10**6)


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    with pytest.raises(GarbageTrace, match="not UTF-8"):
        list(JsonScanner([b'{"a": "\xff"}'], source="w").values())
    with pytest.raises(GarbageTrace, match="not UTF-8"):
        list(JsonScanner([b'"\xc3'], source="w").values())


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_duplicate_member_must_have_one_value(size: int) -> None:
    assert values('{"a": 1, "a": 1}', size=size) == [(0, {"a": 1})]
    with pytest.raises(GarbageTrace, match=r"member 'a' occurs twice .*: 1 and 2"):
        values('[{"b": {"a": 1, "a": 2}}]', size=size)


def test_duplicate_array_is_refused() -> None:
    with pytest.raises(GarbageTrace, match="'nodes' occurs twice"):
        elements('{"nodes": [1], "nodes": [2]}')


def test_last_duplicate_member_can_be_used() -> None:
    scanner = JsonScanner(pieces('{"a": 1, "a": 2}', 7), source="w", last_wins=True)
    assert list(scanner.values()) == [(0, {"a": 2})]
