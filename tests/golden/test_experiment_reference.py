"""Every key of the experiment file is described, to editors and in the reference."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from tools.generate_reference import PAGES
from tools.generate_reference import reference_pages as generated_pages

from chakram.config.schema import RESTRICTED, WORLDS, experiment_schema, worlds_of
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


@cache
def schema() -> dict[str, Any]:
    return experiment_schema()


def every_section() -> dict[str, Any]:
    return {"Experiment": schema(), **schema()["$defs"]}


@cache
def reference_pages() -> dict[str, str]:
    return generated_pages()


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
    committed = {path.name: path.read_text("utf-8") for path in PAGES.glob("*.md")}
    assert committed == reference_pages(), "run: make reference"


def test_no_key_lacks_a_description() -> None:
    entries = dict(keys_below("", schema()))
    assert len(entries) > 390
    assert [place for place, each in entries.items() if "description" not in each] == []


def test_a_description_is_plain_text_that_editors_show() -> None:
    for place, entry in keys_below("", schema()):
        text = entry["description"]
        assert not re.search(r"`|\bNone\b|_ns\b|_bps\b", text), place


def documented_keys() -> dict[str, tuple[str, str]]:
    """Return value and meaning by page and key; equal keys of a page count once."""
    return {
        f"{page}: {cells[0].strip().rpartition('.')[2].strip('`')}": (
            cells[1],
            cells[2],
        )
        for page, text in reference_pages().items()
        for line in text.splitlines()
        if line.startswith("| `")
        for cells in [re.split(r"(?<!\\)\|", line)[1:-1]]
    }


def test_every_key_is_on_a_page_with_a_type_and_a_meaning() -> None:
    documented = documented_keys()
    assert all(cell.strip() for cells in documented.values() for cell in cells)
    # Headings show the kind of a fabric or trace, and notes the alternative names.
    elsewhere = {"kind", "synth", "qps_per_rankpair", "rdma_message_size"}
    keys = {
        key for each in every_section().values() for key in each.get("properties", ())
    }
    found = {name.rpartition(" ")[2] for name in documented}
    # The tables show the keys of a section instead of the section.
    sections = {"arrivals", "iterations", "agents", "records", "stop_if", "compute"}
    sections |= {"dscp", "queue_pairs", "defaults", "faults"}
    assert keys - found <= elsewhere | sections
    assert found <= keys


def test_every_link_of_the_reference_leads_to_a_heading() -> None:
    pages = reference_pages()
    headings = {
        (page, re.sub(r"[^a-z0-9 _-]", "", line[3:].lower()).replace(" ", "-"))
        for page, text in pages.items()
        for line in text.splitlines()
        if line.startswith("## ")
    }
    for page, text in pages.items():
        for target, anchor in re.findall(r"\]\(([a-z-]*\.md)?#([^)]*)\)", text):
            assert (target or page, anchor) in headings
        for target in re.findall(r"\]\(([^)#]+\.[a-z.]+)", text):
            assert (PAGES / target).exists(), target


@pytest.mark.parametrize("place", RESTRICTED, ids=".".join)
def test_worlds_are_told_of_keys_that_there_are(place: tuple[str, str]) -> None:
    section, key = place
    properties = every_section()[section]["properties"]
    assert not key or key in properties
    assert set(RESTRICTED[place]) < set(WORLDS)
    for each in [key] if key else properties:
        told = ", ".join(worlds_of(section, each))
        assert properties[each]["description"].endswith(f" (used in: {told})")


def test_the_readme_leads_to_the_reference() -> None:
    text = (REPO_ROOT / "README.md").read_text(encoding="utf-8")
    assert "docs/reference/experiment/index.md" in text
