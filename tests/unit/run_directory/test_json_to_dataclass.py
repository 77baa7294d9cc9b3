"""Conversion of documents: valid ones as by pydantic, others by pydantic itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter

from chakram.run_directory.json_to_dataclass import (
    DocumentReader,
    InRange,
    InvalidDocument,
    Members,
)

_Count = Annotated[int, InRange(0, 100)]


@dataclass(frozen=True, kw_only=True)
class Part:
    share: float
    pair: tuple[str, int] = ("x", 0)


@dataclass(frozen=True, kw_only=True)
class Whole:
    name: str
    count: _Count = 0
    is_whole: bool = False
    note: str | None = None
    parts: tuple[Part, ...] = ()
    by_name: Mapping[str, _Count] = field(default_factory=dict)
    facts: Annotated[Mapping[str, Any], Members("a", a=list[str], b=_Count | None)] = (
        field(default_factory=lambda: {"a": []})
    )
    later: int = field(init=False, default=7)

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise ValueError("a bad name")


VALID: list[dict[str, Any]] = [
    {"name": "n"},
    {"name": "\u00e9", "count": 99, "is_whole": True, "note": None, "more": [{}]},
    {"name": "n", "parts": [{"share": 1}, {"share": 0.5, "pair": ["y", 2]}]},
    {"name": "n", "by_name": {"a": 1}, "facts": {"a": ["x"], "b": None, "c": 3}},
]
CONVERTED: list[dict[str, Any]] = [
    {"name": "n", "count": "5"},
    {"name": "n", "count": 5.0, "is_whole": 1},
    {"name": "n", "parts": [{"share": "0.5"}]},
]
INVALID: list[Any] = [
    {},
    [],
    None,
    {"name": 3},
    {"name": "bad"},
    {"name": "n", "count": 100},
    {"name": "n", "count": -1},
    {"name": "n", "parts": [{"share": 1, "pair": ["y"]}]},
    {"name": "n", "by_name": {"a": None}},
    {"name": "n", "facts": {}},
    {"name": "n", "facts": {"a": [1]}},
    {"name": "n", "facts": {"a": [], "b": "1"}},
]


@pytest.mark.parametrize("document", [*VALID, *CONVERTED])
def test_document_is_read_as_by_pydantic(document: dict[str, Any]) -> None:
    assert DocumentReader(Whole).read(document) == TypeAdapter(Whole).validate_python(
        document
    )


@pytest.mark.parametrize("document", VALID)
def test_valid_document_needs_no_pydantic(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = TypeAdapter(Whole).validate_python(document)
    text = json.dumps(document, ensure_ascii=False)
    monkeypatch.setattr(DocumentReader, "_validated", None)
    assert DocumentReader(Whole).read(document) == expected
    assert DocumentReader(Whole).read_json(text.encode()) == expected


@pytest.mark.parametrize("document", INVALID)
def test_invalid_document_is_refused(document: Any) -> None:
    with pytest.raises(InvalidDocument) as caught:
        DocumentReader(Whole).read(document)
    assert caught.value.mistakes


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"{", "json_invalid"),
        (b"\xff", "json_invalid"),
        (b'{"name": "\\ud800"}', "json_invalid"),
        (b'{"name": "n", "count": "5"}', "int_type"),
        (b'{"name": "n", "count": 100}', "less_than"),
    ],
)
def test_json_text_is_read_without_conversions(text: bytes, kind: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        DocumentReader(Whole).read_json(text)
    assert caught.value.mistakes[0]["type"] == kind


def test_type_that_no_document_has_is_refused() -> None:
    @dataclass
    class Odd:
        value: complex

    with pytest.raises(TypeError, match="documents contain no"):
        DocumentReader(Odd).read({})
