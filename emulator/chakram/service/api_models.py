"""Requests and answers of the service's API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

MOST_TEXT = 1 << 20
"""Maximum length of an experiment file, in characters."""

_REFERENCE = "#/components/schemas/{model}"

Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$")]

Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\[\]-]{1,256}$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RunRequest(_Model):
    """An experiment to run."""

    experiment: str = Field(min_length=1, max_length=MOST_TEXT)
    """Text of the experiment file."""
    verb: Literal["run", "simulate"] = "run"
    """Command to execute."""
    set: dict[Key, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict, max_length=64
    )
    """Changes by key, as with ``--set``."""
    tags: tuple[Tag, ...] = Field(default=(), max_length=16)
    """Tags, for searches. Runs with the tag keep are not removed."""


class TagsRequest(_Model):
    """New tags of a run."""

    tags: tuple[Tag, ...] = Field(max_length=16)
    """Tags that replace all tags of the run."""


class RunDescription(_Model):
    """A run."""

    id: str
    """ID of the run in URLs."""
    owner: str
    """User who submitted the run."""
    name: str
    """Name of the experiment."""
    verb: str
    """``run`` or ``simulate``."""
    fabric: str
    """The fabric that the run locks while it is in progress."""
    tags: tuple[str, ...]
    """Tags that users can search for."""
    digest: str
    """SHA-256 of verb, experiment and changes. Equal runs have the same digest."""
    state: Literal["queued", "running", "done", "failed", "canceled", "interrupted"]
    submitted_s: float
    """Time of submission, in seconds since 1970."""
    started_s: float | None
    """Time at which the run left the queue."""
    ended_s: float | None
    """Time at which the run ended."""
    exit_code: int | None
    """Exit code of the command."""
    reason: str | None
    """Reason why the run is not complete."""
    run_directory: str | None
    """Name of the run directory."""


class RunList(_Model):
    """Runs, the latest first."""

    runs: list[RunDescription]
    next: int | None
    """Value of ``before`` for the next page, or null if there is no next page."""


class Fabrics(_Model):
    """Fabrics that experiments can name."""

    fabrics: list[str]
    in_use: dict[str, str]
    """The current run of each fabric that is in use, or otg for an OTG client."""


class Problem(_Model):
    """Reason why a request failed."""

    where: str
    found: str
    hint: str | None = None


class Failure(_Model):
    """An error."""

    error: Problem


def openapi(version: str, views: list[str], comparisons: list[str]) -> dict[str, Any]:
    """Return the description of the API in OpenAPI 3.1.

    Args:
        version: Version of Chakram.
        views: Names of views of a run.
        comparisons: Formats of comparisons.
    """
    models = (RunRequest, TagsRequest, RunDescription, RunList, Fabrics, Failure)
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template=_REFERENCE
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Chakram", "version": version},
        "paths": _paths(views, comparisons),
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _body(model: str) -> dict[str, Any]:
    schema = {"$ref": _REFERENCE.format(model=model)}
    return {"application/json": {"schema": schema}}


_FAILED = {"default": {"description": "an error", "content": _body("Failure")}}


def _operation(
    answer: str | None,
    code: str = "200",
    text: str = "the result",
    *,
    body: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Return the OpenAPI description of an operation.

    Args:
        answer: Model of the answer, or None for text.
        code: Status code of the answer.
        text: Description of the answer.
        body: Model of the request body, or empty if there is no body.
        more: Other keys of the description.
    """
    content = _body(answer) if answer else {"text/plain": {}, "text/html": {}}
    answers = {code: {"description": text, "content": content}} | _FAILED
    found = {"responses": answers, **more}
    if body:
        found["requestBody"] = {"content": _body(body), "required": True}
    return found


def _parameter(name: str, text: str, **schema: Any) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "schema": schema or {"type": "string"},
        "description": text,
    }


def _paths(views: list[str], comparisons: list[str]) -> dict[str, Any]:
    """Return the OpenAPI descriptions of all operations, by path."""
    in_path = {"in": "path", "required": True}
    run_id = _parameter("id", "ID of a run") | in_path
    view = _parameter("view", "which result", enum=views) | in_path
    filters = [
        _parameter("state", "state; may be repeated"),
        _parameter("text", "part of the name or ID"),
        _parameter("tag", "a tag"),
        _parameter("owner", "the owner"),
        _parameter("before", "value of next", type="integer"),
        _parameter("limit", "number of runs, at most 200", type="integer"),
    ]
    pair = [
        _parameter("a", "baseline; default: the last good run of the experiment"),
        _parameter("b", "the other run"),
        _parameter("format", "text", enum=comparisons),
    ]
    submit = _operation(
        *("RunDescription", "201", "it is queued"),
        body="RunRequest",
        summary="Queue an experiment",
    )
    cancel = _operation("RunDescription", "202", "it ends soon", summary="Cancel a run")
    change = _operation(
        "RunDescription", body="TagsRequest", summary="Change the tags of a run"
    )
    events = _operation(
        None,
        summary="Events of a run as they happen (text/event-stream)",
        description="Events have the type state (a RunDescription) or line (a "
        "line of output). Last-Event-ID continues an earlier stream.",
    )
    check = _operation(
        None, body="RunRequest", summary="Check an experiment without running it"
    )
    check["responses"] = {"204": {"description": "it is valid"}} | _FAILED
    compare = _operation(None, summary="Compare two runs", parameters=pair)
    one_view = _operation(None, summary="A result of a run")
    runs = _operation("RunList", summary="Runs, the latest first", parameters=filters)
    run = _operation("RunDescription", summary="A run")
    get_text = {"get": _operation(None), "parameters": [run_id]}
    of_run = "/api/v1/runs/{id}"
    return {
        "/api/v1/runs": {"get": runs, "post": submit},
        of_run: {"get": run, "delete": cancel, "patch": change, "parameters": [run_id]},
        f"{of_run}/events": {"get": events, "parameters": [run_id]},
        f"{of_run}/output": get_text,
        f"{of_run}/experiment": get_text,
        f"{of_run}/views/{{view}}": {"get": one_view, "parameters": [run_id, view]},
        "/api/v1/check": {"post": check},
        "/api/v1/compare": {"get": compare},
        "/api/v1/fabrics": {"get": _operation("Fabrics")},
    }
