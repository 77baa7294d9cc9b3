"""Every key of the experiment file is described, to editors and in the reference."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tools.generate_reference import PAGE, reference_text

from chakram.config.schema import RESTRICTED, WORLDS, experiment_schema, worlds_of
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = experiment_schema()
SECTIONS: dict[str, Any] = {"Experiment": SCHEMA, **SCHEMA["$defs"]}


def keys_below(place: str, node: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key that stands anywhere in the schema, with its place."""
    if isinstance(node, list):
        for index, each in enumerate(node):
            yield from keys_below(f"{place}[{index}]", each)
    elif isinstance(node, dict):
        for name, each in node.items():
            if name == "properties":
                for key, entry in each.items():
                    yield f"{place}.{key}", entry
            yield from keys_below(f"{place}/{name}", each)


def test_the_reference_is_what_the_schema_gives() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference_text(), "run: make reference"


def test_no_key_lacks_a_description() -> None:
    entries = dict(keys_below("", SCHEMA))
    assert len(entries) > 390
    assert [place for place, each in entries.items() if "description" not in each] == []


def test_a_description_is_plain_text_that_editors_show() -> None:
    for place, entry in keys_below("", SCHEMA):
        text = entry["description"]
        assert not re.search(r"`|\bNone\b|_ns\b|_bps\b", text), place


def test_every_key_has_a_type_a_default_or_none_and_an_example() -> None:
    rows = [
        re.split(r"(?<!\\)\|", line)[1:-1]
        for line in reference_text().splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) >= sum(
        len(each.get("properties", ())) for each in SECTIONS.values()
    )
    for key, means, kind, _, example, worlds in rows:
        assert all(cell.strip() for cell in (means, kind, example)), key
        assert set(worlds.replace(",", " ").split()) <= set(WORLDS), key


def test_every_link_of_the_reference_leads_to_a_heading() -> None:
    text = reference_text()
    headings = {
        re.sub(r"[^a-z0-9 _-]", "", line[3:].lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("## ")
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= headings


@pytest.mark.parametrize("place", RESTRICTED, ids=".".join)
def test_worlds_are_told_of_keys_that_there_are(place: tuple[str, str]) -> None:
    section, key = place
    properties = SECTIONS[section]["properties"]
    assert not key or key in properties
    assert set(RESTRICTED[place]) < set(WORLDS)
    for each in [key] if key else properties:
        told = ", ".join(worlds_of(section, each))
        assert properties[each]["description"].endswith(f" (used in: {told})")


def test_the_readme_leads_to_the_reference() -> None:
    text = (REPO_ROOT / "README.md").read_text(encoding="utf-8")
    assert "docs/reference/experiment.md" in text
