"""Requests and answers of the service's API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_TEXT = 1 << 20
"""Longest experiment, in characters."""

Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$")]

Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\[\]-]{1,256}$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RunRequest(_Model):
    """An experiment to run."""

    experiment: str = Field(min_length=1, max_length=MOST_TEXT)
    """Text of the experiment file."""
    verb: Literal["run", "simulate"] = "run"
    """What to do."""
    set: dict[Key, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict, max_length=64
    )
    """Changes by key, as with ``--set``."""
    tags: tuple[Tag, ...] = Field(default=(), max_length=16)
    """Words for searches. Runs with the tag keep are not removed."""


class TagsRequest(_Model):
    """New tags of a run."""

    tags: tuple[Tag, ...] = Field(max_length=16)
    """The tags."""


class RunDescription(_Model):
    """A run."""

    id: str
    """Its name in addresses."""
    owner: str
    """Who submitted it."""
    name: str
    """Name of the experiment."""
    verb: str
    """``run`` or ``simulate``."""
    fabric: str
    """The fabric that the run locks while it is in progress."""
    tags: tuple[str, ...]
    """Words of the owner, for searches."""
    digest: str
    """SHA-256 of the text; equal experiments have equal ones."""
    state: Literal["queued", "running", "done", "failed", "canceled", "interrupted"]
    submitted_s: float
    """When it was submitted, in seconds since 1970."""
    started_s: float | None
    """When it left the queue."""
    ended_s: float | None
    """When it ended."""
    exit_code: int | None
    """Exit code of the command."""
    reason: str | None
    """Reason why the run is not complete."""
    run_directory: str | None
    """Name of its run directory."""


class RunList(_Model):
    """Runs, the latest first."""

    runs: list[RunDescription]
    next: int | None
    """Value of ``before`` for the next page; null: there is none."""


class Fabrics(_Model):
    """Fabrics that experiments can name."""

    fabrics: list[str]
    in_use: dict[str, str]
    """The current run of each fabric that is in use, or otg for a client of OTG."""


class Problem(_Model):
    """Why a request failed."""

    where: str
    found: str
    hint: str | None = None


class Failure(_Model):
    """An error."""

    error: Problem


_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "ID of a run",
}


def openapi(version: str, views: list[str], comparisons: list[str]) -> dict[str, Any]:
    """Return the description of the API in OpenAPI 3.1.

    Args:
        version: Version of Chakram.
        views: Names of views of a run.
        comparisons: Formats of comparisons.
    """
    return {
        "openapi": "3.1.0",
        "info": {"title": "Chakram", "version": version},
        "paths": {**_run_paths(views), **_other_paths(comparisons)},
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _schemas() -> dict[str, Any]:
    models = (RunRequest, TagsRequest, RunDescription, RunList, Fabrics, Failure)
    schemas: dict[str, Any] = {}
    for model in models:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    return schemas


def _body(name: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{name}"}
    return {"application/json": {"schema": schema}}


def _answers(name: str | None, code: str = "200", text: str = "") -> dict[str, Any]:
    content = {"text/plain": {}, "text/html": {}} if name is None else _body(name)
    failed = {"description": "an error", "content": _body("Failure")}
    return {code: {"description": text or "the result", "content": content}} | {
        "default": failed
    }


def _query(name: str, text: str, kind: str = "string") -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "schema": {"type": kind},
        "description": text,
    }


def _run_paths(views: list[str]) -> dict[str, Any]:
    """Return the operations on runs, by path."""
    run = {
        "get": {"summary": "A run", "responses": _answers("RunDescription")},
        "delete": {
            "summary": "Cancel a run",
            "responses": _answers("RunDescription", "202", "it ends soon"),
        },
        "patch": {
            "summary": "Change the tags of a run",
            "requestBody": {"content": _body("TagsRequest"), "required": True},
            "responses": _answers("RunDescription"),
        },
        "parameters": [_ID],
    }
    runs = {
        "get": {
            "summary": "Runs, the latest first",
            "parameters": [
                _query("state", "state; may be repeated"),
                _query("text", "part of the name or ID"),
                _query("tag", "a tag"),
                _query("owner", "the owner"),
                _query("before", "value of next", "integer"),
                _query("limit", "number of runs, at most 200", "integer"),
            ],
            "responses": _answers("RunList"),
        },
        "post": {
            "summary": "Queue an experiment",
            "requestBody": {"content": _body("RunRequest"), "required": True},
            "responses": _answers("RunDescription", "201", "it is queued"),
        },
    }
    events = {
        "get": {
            "summary": "Events of a run as they happen (text/event-stream)",
            "description": "Events have the type state (a RunDescription) or line (a "
            "line of output). Last-Event-ID continues an earlier stream.",
            "responses": _answers(None),
        },
        "parameters": [_ID],
    }
    one_view = {
        "get": {"summary": "A result of a run", "responses": _answers(None)},
        "parameters": [
            _ID,
            {
                "name": "view",
                "in": "path",
                "required": True,
                "schema": {"enum": views},
                "description": "which result",
            },
        ],
    }
    get_text = {"get": {"responses": _answers(None)}, "parameters": [_ID]}
    return {
        "/api/v1/runs": runs,
        "/api/v1/runs/{id}": run,
        "/api/v1/runs/{id}/events": events,
        "/api/v1/runs/{id}/output": get_text,
        "/api/v1/runs/{id}/experiment": get_text,
        "/api/v1/runs/{id}/views/{view}": one_view,
    }


def _other_paths(comparisons: list[str]) -> dict[str, Any]:
    """Return all other operations, by path."""
    check = {
        "post": {
            "summary": "Check an experiment without running it",
            "requestBody": {"content": _body("RunRequest"), "required": True},
            "responses": {"204": {"description": "it is valid"}}
            | _answers(None, "default"),
        }
    }
    comparison = {
        "get": {
            "summary": "Compare two runs",
            "parameters": [
                _query("a", "baseline; default: the last good run of the experiment"),
                _query("b", "the other run"),
                {**_query("format", "text"), "schema": {"enum": comparisons}},
            ],
            "responses": _answers(None),
        }
    }
    return {
        "/api/v1/check": check,
        "/api/v1/compare": comparison,
        "/api/v1/fabrics": {"get": {"responses": _answers("Fabrics")}},
    }
