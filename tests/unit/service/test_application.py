"""Answers of a service, without connections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from chakram.service.access import ROLES, Tokens, add_user
from chakram.service.application import Application
from chakram.service.job_queue import JobQueue
from chakram.service.otg_engine import OtgEngine
from chakram.service.request_guard import Door
from chakram.service.run_store import RunStore
from chakram.service.submissions import check_submission
from tests.service_client import EXPERIMENT

pytestmark = pytest.mark.asyncio

FABRIC = {"kind": "namespaces", "topology": {"single_switch": {"hosts": 2}}}


@dataclass
class Answer:
    """An answer of the application."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    (tmp_path / "fabrics").mkdir()
    (tmp_path / "fabrics/lab.yaml").write_text(json.dumps(FABRIC))
    store = RunStore(tmp_path / "runs.sqlite")
    queue = JobQueue(store, tmp_path, tmp_path)
    door = Door(tokens=None, hosts=frozenset(("localhost",)))
    yield Application(queue, tmp_path, door, OtgEngine(queue, tmp_path, "lab"))
    store.close()


async def asked(
    application: Application,
    path: str,
    method: str = "GET",
    body: bytes = b"",
    token: str = "",
) -> Answer:
    """Return the answer to a request."""
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": query.encode(),
        "headers": [
            (b"host", b"localhost"),
            (b"authorization", f"Bearer {token}".encode()),
        ],
    }
    answer = Answer()

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    await application.app()(scope, receive, send)
    return answer


async def test_lists_name_the_next_page_only_if_there_is_one(
    application: Application,
) -> None:
    submission = check_submission(EXPERIMENT, application.resources)
    queue = application.queue
    runs = [queue.submit(submission, owner="a") for _ in range(50)]
    for limit, following in ((1, 50), (49, 2), (50, None), (60, None)):
        found = (await asked(application, f"/api/v1/runs?limit={limit}")).json
        assert found["next"] == following
        assert len(found["runs"]) == min(limit, 50)
    assert b"Older runs" not in (await asked(application, "/")).body
    queue.submit(submission, owner="a")
    page = (await asked(application, "/")).body
    assert b"/?before=2&amp;" in page
    older = await asked(application, "/?before=2")
    assert runs[0].id.encode() in older.body
    assert runs[1].id.encode() not in older.body


@pytest.mark.parametrize(
    "text", ['{"ports": [{"name": "\\ud800"}]}', '{"a": NaN}', '{"a": 1e999}']
)
async def test_values_that_no_answer_can_contain_are_refused(
    application: Application, text: str
) -> None:
    for path in ("/config", "/api/v1/runs"):
        answer = await asked(application, path, "POST", text.encode())
        assert answer.status == 400
        assert "is not JSON" in answer.body.decode()


async def test_without_tokens_any_login_leads_to_the_runs(
    application: Application,
) -> None:
    answer = await asked(application, "/login", "POST", "token=\u2713".encode())
    assert (answer.status, answer.headers["location"]) == (303, "/")
    assert "set-cookie" not in answer.headers


async def test_readers_cannot_have_experiments_checked(
    application: Application, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    tokens = {role: add_user(users, role, role) for role in ROLES}
    application.door = replace(application.door, tokens=Tokens(users))
    body = json.dumps({"experiment": EXPERIMENT}).encode()
    for role, status in (("read", 403), ("run", 204)):
        path = "/api/v1/check"
        answer = await asked(application, path, "POST", body, tokens[role])
        assert answer.status == status
