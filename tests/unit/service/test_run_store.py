"""Runs of a service are stored, searched and changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chakram.foundation.errors import RunDirectoryError
from chakram.service.api_models import RunDescription, openapi
from chakram.service.run_store import DONE, QUEUED, RUNNING, RunStore, StoredRun


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    made = RunStore(tmp_path / "s.sqlite")
    yield made
    made.close()


def add(store: RunStore, run_id: str, **fields: Any) -> StoredRun:
    return store.add(
        **{
            "id": run_id,
            "owner": "alice",
            "name": f"name of {run_id}",
            "verb": "run",
            "fabric": "rack7",
            "tags": (),
            "experiment": "text",
            "digest": "d",
            "state": QUEUED,
            "submitted_s": 1.0,
            **fields,
        }
    )


def ids(runs: list[StoredRun]) -> list[str]:
    return [run.id for run in runs]


def test_runs_wait_in_the_order_of_their_submission(store: RunStore) -> None:
    for name in ("c", "a", "b"):
        add(store, name)
    store.change("a", state=RUNNING)
    assert ids(store.waiting()) == ["c", "b"]
    assert ids(store.search()) == ["b", "a", "c"]
    assert store.counts()[QUEUED] == 2


def test_searches(store: RunStore) -> None:
    add(store, "a", tags=("x", "keep"), name="Ring 100%")
    add(store, "b", owner="bob")
    add(store, "c", tags=("xy",))
    assert ids(store.search(tag="x")) == ["a"]
    assert ids(store.search(owner="bob")) == ["b"]
    assert ids(store.search(text="ring")) == ["a"]
    assert ids(store.search(text="%")) == ["a"]  # no pattern
    assert ids(store.search(text="'; DROP TABLE runs; --")) == []
    assert ids(store.search(states=(RUNNING,))) == []
    assert ids(store.search(limit=2)) == ["c", "b"]
    last = store.find("b")
    assert last is not None
    assert ids(store.search(before=last.number)) == ["a"]


def test_changes_survive_a_restart(store: RunStore, tmp_path: Path) -> None:
    add(store, "a", tags=("x",))
    store.change("a", state=DONE, exit_code=0, directory=tmp_path, tags=("y", "z"))
    again = RunStore(tmp_path / "s.sqlite")
    found = again.find("a")
    again.close()
    assert found is not None
    assert (found.state, found.directory, found.tags) == (DONE, tmp_path, ("y", "z"))
    document = found.document()
    assert RunDescription.model_validate(document).run_directory == tmp_path.name
    assert "experiment" not in document


def test_the_last_good_run_is_of_the_same_experiment(store: RunStore) -> None:
    for name, fields in {
        "a": {"state": DONE},
        "b": {"state": DONE, "digest": "other"},
        "c": {"state": RUNNING},
        "d": {"state": DONE, "verb": "simulate"},
        "e": {},
    }.items():
        add(store, name, **fields)
    last, first = store.find("e"), store.find("a")
    assert last is not None
    assert first is not None
    found = store.last_good(last)
    assert found is not None
    assert found.id == "a"
    assert store.last_good(first) is None


def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.write_bytes(b"something else, and longer than a header of a database" * 50)
    with pytest.raises(RunDirectoryError, match="cannot be opened as a database"):
        RunStore(path)


def test_the_description_of_the_api_refers_to_what_it_contains() -> None:
    described = openapi("1", ["show"], ["text"])
    schemas = described["components"]["schemas"]

    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "$ref":
                    yield value.rpartition("/")[2]
                else:
                    yield from references(value)
        elif isinstance(node, list):
            for value in node:
                yield from references(value)

    assert set(references(described)) <= set(schemas)
    assert "experiment" in schemas["RunRequest"]["properties"]


def test_errors_of_the_database_are_one_sentence(
    store: RunStore, tmp_path: Path
) -> None:
    database = sqlite3.connect(tmp_path / "s.sqlite", isolation_level=None)
    database.execute("DROP TABLE runs")
    database.close()
    for call in (store.counts, store.waiting, lambda: store.change("a", state=DONE)):
        with pytest.raises(RunDirectoryError, match="cannot be read or written"):
            call()
