"""Foreign YAML: plain data, bounded, with line numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from chakram.foundation.errors import ConfigError
from chakram.settings import yaml_document
from chakram.settings.yaml_document import parse_document, read_document


def refused(text: bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_document(text, source="x.yaml")
    return str(caught.value)


def test_scalars_follow_yaml_1_2() -> None:
    read = parse_document(
        b"a: off\nb: 22:30\nc: 010\nd: 1.5\ne: true\nf: ~\ng: 2001-01-01\nh: 1e3\ni:\n",
        source="x",
    )
    assert read.data == {
        "a": "off",
        "b": "22:30",
        "c": 10,
        "d": 1.5,
        "e": True,
        "f": None,
        "g": "2001-01-01",
        "h": 1000.0,
        "i": None,
    }


def test_line_numbers_are_those_of_keys() -> None:
    read = parse_document(b"a: 1\nb:\n  - c: 2\n  -\n    d: 3\n", source="x")
    assert read.line(("a",)) == 1
    assert read.line(("b", 0, "c")) == 3
    assert read.line(("b", 1, "d")) == 5
    assert read.line(("b", 1, "missing")) == 5
    assert read.line(("nothing",)) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "x.yaml: is empty"),
        (b"- a", "x.yaml:1: is not a mapping"),
        (b"a: [1\nb: 2", "x.yaml:2: is not YAML"),
        (b"a: *b", "undefined alias 'b'"),
        (b"a: 1\n---\nb: 2", "is not YAML"),
        (b"a: 1\nb: \xff", "x.yaml:2: is not UTF-8 text"),
        (b"a: \0", "characters that YAML does not allow"),
        (b"? [a]\n: b", "a key is not plain text"),
        (b"a: &a [*a]", "after its aliases are resolved"),
        (b"[" * 5000, "nested too deeply"),
    ],
)
def test_value_that_is_no_mapping_is_refused_with_its_line(
    text: bytes, expected: str
) -> None:
    assert expected in refused(text)


def test_aliases_that_multiply_are_refused() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]"
        for level in range(1, 9)
    ]
    assert "aliases" in refused("\n".join(rows).encode())


def test_duplicate_key_is_reported() -> None:
    (mistake,) = parse_document(b"a: {b: 1,\n    b: 2}", source="x").mistakes
    assert mistake.path == "a.b"
    assert mistake.line == 2
    assert "already set on line 1" in mistake.found


def test_tags_are_never_followed() -> None:
    read = parse_document(b"a: !!python/object/apply:os.getcwd []", source="x")
    assert read.data == {"a": []}
    read = parse_document(b"a: !!python/name:os.getcwd x", source="x")
    assert read.data == {"a": None}
    assert "is not supported" in read.mistakes[0].found


def test_a_file_that_is_too_long_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_document, "SIZE_LIMIT_BYTES", 10)
    file = tmp_path / "x.yaml"
    file.write_text("name: " + "x" * 10)
    with pytest.raises(ConfigError, match="is longer than 10B"):
        read_document(file)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        read_document(tmp_path / "none.yaml")
