"""A service queues, runs and shows experiments, and loses none."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chakram.service.access import add_user
from chakram.service.run_store import RunStore
from chakram.service.server import DATABASE
from tests.axe import axe_violations
from tests.chromium import open_page, require_chromium
from tests.service_client import ENDLESS, EXPERIMENT, Service, served
from tests.waiting import PATIENCE_S, wait_until

FOLDER = "shared"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp(FOLDER)
    with served(folder) as made:
        yield made


@pytest.fixture(scope="module")
def done(service: Service) -> tuple[str, str]:
    """Return two runs of one experiment that are done."""
    first, second = service.submit(verb="run"), service.submit(verb="run")
    for each in (first, second):
        run = service.wait(each)
        assert run["state"] == "done", run
    return first, second


def chakram(service: Service, *arguments: object, **environment: str) -> Any:
    command = [sys.executable, "-P", "-m", "chakram", "--server", service.address]
    return subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE_S,
        env={**os.environ, **environment},
    )


def test_results_are_those_of_the_command_line(
    service: Service, done: tuple[str, str]
) -> None:
    (directory,) = (service.folder / "jobs" / done[0] / "runs").iterdir()
    for view, arguments in {
        "show.json": ("show", "--json"),
        "why.json": ("why", "--json"),
        "validate": ("validate",),
    }.items():
        own = subprocess.run(
            [sys.executable, "-P", "-m", "chakram", *arguments, str(directory)],
            capture_output=True,
            check=True,
        ).stdout
        status, body, headers = service.ask(f"/api/v1/runs/{done[0]}/views/{view}")
        assert (status, body) == (200, own)
        assert headers["x-content-type-options"] == "nosniff"
    status, body, headers = service.ask(f"/api/v1/runs/{done[0]}/views/report")
    assert status == 200
    assert b"<html" in body[:200]
    # Its scripts may not act as the user.
    assert "allow-same-origin" not in headers["content-security-policy"]
    status, body, _ = service.ask(f"/api/v1/runs/{done[0]}/views/other")
    assert status == 404
    assert json.loads(body)["error"]["found"] == "is not a view"


def test_two_runs_are_compared(service: Service, done: tuple[str, str]) -> None:
    status, body, _ = service.ask(f"/api/v1/compare?a={done[0]}&b={done[1]}")
    assert status == 200
    assert body.startswith(b"A  ")
    # Without a baseline, it is the last good run.
    assert service.ask(f"/api/v1/compare?b={done[1]}")[1] == body
    assert service.ask(f"/api/v1/compare?b={done[0]}")[0] == 409


def test_events_arrive_while_a_run_is_under_way(service: Service) -> None:
    run_id = service.submit(verb="run")
    status, body, headers = service.ask(f"/api/v1/runs/{run_id}/events")
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    events = [
        dict(line.split(": ", 1) for line in part.splitlines())
        for part in body.decode().strip().split("\n\n")
    ]
    states = [
        json.loads(each["data"])["state"] for each in events if each["event"] == "state"
    ]
    assert states[-1] == "done"
    lines = [json.loads(each["data"]) for each in events if each["event"] == "line"]
    assert lines[0] == "reading traces"
    assert "# Run complete." in lines
    output = service.ask(f"/api/v1/runs/{run_id}/output")[1].decode()
    assert output.splitlines() == lines
    assert events[-1]["event"] == "end"


def test_runs_of_one_fabric_follow_one_another_and_can_be_canceled(
    service: Service,
) -> None:
    first = service.submit(ENDLESS, "run", tags=["long"])
    second = service.submit()
    service.wait(first, "running")
    assert service.json("/fabrics")["in_use"] == {"this machine": first}
    assert service.state(second) == "queued"
    third = service.submit()
    assert service.json(f"/runs/{third}", "DELETE")["state"] == "canceled"
    wait_until(
        lambda: b"replaying" in service.ask(f"/api/v1/runs/{first}/output")[1],
        "traffic",
    )
    service.json(f"/runs/{first}", "DELETE")
    run = service.wait(first)
    assert (run["state"], run["reason"]) == ("canceled", "canceled by local")
    assert run["run_directory"] is not None  # with what it has measured
    assert service.wait(second)["state"] == "done"
    assert service.ask(f"/api/v1/runs/{first}", "DELETE")[0] == 409


def test_a_run_that_fails_says_why(service: Service) -> None:
    text = EXPERIMENT.replace("fabric:\n", "stop_if: {duration: 1ms}\nfabric:\n")
    run = service.wait(service.submit(text, "run"))
    assert run["state"] == "failed"
    assert run["exit_code"] not in (0, None)
    assert run["reason"]


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({}, "experiment"),
        ({"experiment": ""}, "experiment"),
        ({"experiment": EXPERIMENT, "more": 1}, "more"),
        ({"experiment": EXPERIMENT, "verb": "bench"}, "verb"),
        ({"experiment": EXPERIMENT, "tags": ["a b"]}, "tags.0"),
        ({"experiment": EXPERIMENT, "set": {"seed": 1}}, "set.seed"),
        ({"experiment": EXPERIMENT, "set": {"seed=1\nruns": "/tmp"}}, "set.seed=1"),
        ({"experiment": "[1"}, "experiment"),
        ({"experiment": EXPERIMENT + "runs: /tmp\n"}, "experiment: runs"),
        ([], "request"),
    ],
)
def test_wrong_requests_are_told_with_their_place(
    service: Service, document: Any, place: str
) -> None:
    for path in ("/api/v1/runs", "/api/v1/check"):
        status, body, _ = service.ask(path, "POST", json.dumps(document).encode())
        assert status == 422
        assert json.loads(body)["error"]["where"].startswith(place)


def test_long_and_broken_requests_are_refused(service: Service) -> None:
    assert service.ask("/api/v1/runs", "POST", b"{" * (3 << 20))[0] == 413
    assert service.ask("/api/v1/runs", "POST", b"{not json")[0] == 400
    assert service.ask("/api/v1/runs", "POST", b"[" * 100_000)[0] == 400
    assert service.ask("/api/v1/runs", "PUT", b"")[0] == 405
    assert service.ask("/api/v1/runs/none")[0] == 404
    assert service.ask("/api/v1/runs/..%2f..%2fetc%2fpasswd")[0] == 404
    assert service.ask("/static/..%2f..%2fpages.py")[0] == 404
    assert service.ask("/static/pages.py")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "status", "found"),
    [
        ("GET", "/api/v1/none", 404, "does not exist"),
        ("PUT", "/api/v1/fabrics", 405, "has no such method"),
    ],
)
def test_errors_of_unknown_requests_are_json(
    service: Service, method: str, path: str, status: int, found: str
) -> None:
    answered, body, headers = service.ask(path, method)
    assert answered == status
    error = {"where": path, "found": found, "hint": None}
    assert json.loads(body) == {"error": error}
    assert ("allow" in headers) == (status == 405)


def test_unknown_pages_are_pages(service: Service) -> None:
    status, body, headers = service.ask("/none")
    assert (status, headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b"/none" in body


def test_other_web_sites_are_kept_out(service: Service) -> None:
    evil = {"Origin": "http://evil.example"}
    assert service.ask("/api/v1/runs", "POST", b"{}", evil)[0] == 403
    assert service.ask("/new", "POST", b"experiment=x", evil)[0] == 403
    assert service.ask("/api/v1/runs", headers={"Host": "evil.example"})[0] == 403
    own = {"Origin": service.address}
    assert service.ask("/api/v1/runs", "POST", b"{}", own)[0] == 422


def test_searches_and_pages_of_a_list(service: Service, done: tuple[str, str]) -> None:
    service.json(f"/runs/{done[0]}", "PATCH", {"tags": ["good", "keep"]})
    found = service.json("/runs?tag=good")["runs"]
    assert [run["id"] for run in found] == [done[0]]
    page = service.json("/runs?limit=1")
    following = service.json(f"/runs?limit=1&before={page['next']}")
    assert page["runs"][0]["id"] != following["runs"][0]["id"]
    for wrong in ("state=odd", "limit=x", "before=-1", "limit=%00"):
        assert service.ask(f"/api/v1/runs?{wrong}")[0] == 422


@pytest.mark.parametrize("count", [400, pytest.param(5_000, marks=pytest.mark.soak)])
def test_drawn_requests_never_break_it(service: Service, count: int) -> None:
    draw = random.Random(2911)
    paths = [
        *("/", "/new", "/login", "/compare", "/api/v1/runs", "/api/v1/check"),
        *("/api/v1/compare", "/api/v1/fabrics", "/api/v1/openapi.json", "/runs/x"),
        *("/api/v1/runs/x", "/api/v1/runs/x/events", "/api/v1/runs/x/views/report"),
    ]
    methods = ("GET", "POST", "DELETE", "PATCH", "PUT", "HEAD", "OPTIONS")
    before = memory_of(service.process.pid)
    for _ in range(count):
        path = draw.choice(paths)
        for _ in range(draw.randrange(3)):
            path += draw.choice(("?a=", "&b=", "/..", "%2e", "%00", "?limit=", "%ff"))
        body = draw.randbytes(draw.randrange(200))
        if draw.random() < 0.5:
            text = draw.choice((EXPERIMENT, "fabric: x", "a: [", ""))
            cut = text[: draw.randrange(len(text) + 1)]
            value: Any = draw.choice((cut, 5, None, [], {"a": 1}))
            body = json.dumps({"experiment": value, "verb": "bench"}).encode()
        method = draw.choice(methods)
        given = None if method in ("GET", "HEAD") else body
        status, answer, _ = service.ask(path, method, given)
        assert status < 500, (method, path, given, answer)
    assert memory_of(service.process.pid) - before < 50 << 20


def memory_of(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_the_command_drives_a_service(
    service: Service, tmp_path: Path, done: tuple[str, str]
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(EXPERIMENT)
    ran = chakram(service, "run", path, "--set", "seed=5", "--tag", "mine")
    assert ran.returncode == 0, ran.stderr
    assert "# Run complete." in ran.stderr
    assert "# fabric     loopback" in ran.stdout
    listed = chakram(service, "runs", "--text", "first")
    assert "mine" in listed.stdout
    run_id = listed.stdout.splitlines()[1].split()[0]
    assert chakram(service, "why", run_id).returncode == 0
    out = tmp_path / "r.html"
    assert chakram(service, "report", run_id, "--out", out).returncode == 0
    assert out.read_bytes().lstrip().startswith(b"<!DOCTYPE html>")
    again = chakram(service, "report", run_id, "--out", out)
    assert (again.returncode, "exists already" in again.stderr) == (2, True)
    compared = chakram(service, "compare", done[0], done[1])
    assert compared.stdout.startswith("A  ")
    wrong = chakram(service, "run", path, "--set", "seed=many")
    assert wrong.returncode == 2
    assert "seed" in wrong.stderr
    assert chakram(service, "bench").returncode == 2
    unknown = chakram(service, "run", path, "--report")
    assert "--report: is not an option of run on a service" in unknown.stderr
    assert "Traceback" not in ran.stderr + wrong.stderr + again.stderr


def test_tokens_and_roles(tmp_path: Path) -> None:
    users = tmp_path / "users"
    writer, reader = add_user(users, "alice", "run"), add_user(users, "bob", "read")
    with served(tmp_path, "--tokens", str(users)) as service:
        assert service.ask("/api/v1/runs")[0] == 401
        assert service.ask("/")[0] == 303
        service.headers = {"Authorization": "Bearer wrong"}
        assert service.ask("/api/v1/runs")[0] == 401
        service.headers = {"Authorization": f"Bearer {reader}"}
        assert service.json("/runs")["runs"] == []
        wanted = json.dumps({"experiment": EXPERIMENT}).encode()
        assert service.ask("/api/v1/runs", "POST", wanted)[0] == 403
        service.headers = {"Authorization": f"Bearer {writer}"}
        run = service.wait(service.submit())
        assert run["owner"] == "alice"
        service.headers = {"Authorization": f"Bearer {reader}"}
        assert service.ask(f"/api/v1/runs/{run['id']}", "DELETE")[0] == 403
        service.headers = {}
        status, _, headers = service.ask("/login", "POST", f"token={reader}".encode())
        assert status == 303
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert service.ask("/login", "POST", b"token=wrong")[0] == 401
        service.headers = {"Cookie": cookie.partition(";")[0]}
        assert b"bob (read)" in service.ask("/")[1]
        assert b"/new" not in service.ask("/")[1]
        # A user who is added later needs no restart.
        late = add_user(users, "carol", "read")
        assert service.ask("/api/v1/runs", headers={"Cookie": ""})[0] == 401
        bearer = {"Authorization": f"Bearer {late}", "Cookie": ""}
        assert service.ask("/api/v1/runs", headers=bearer)[0] == 200
        done = chakram(service, "runs", CHAKRAM_TOKEN=reader)
        assert "alice" in done.stdout
        refused = chakram(service, "runs", CHAKRAM_TOKEN="")
        assert "set CHAKRAM_TOKEN" in refused.stderr


@pytest.mark.parametrize("count", [4, pytest.param(50, marks=pytest.mark.soak)])
def test_no_run_is_lost_when_the_service_is_killed(tmp_path: Path, count: int) -> None:
    with served(tmp_path) as service:
        long = service.submit(ENDLESS, "run")
        queued = [service.submit(tags=[f"n{number}"]) for number in range(count)]
        service.wait(long, "running")
        wait_until(
            lambda: b"replaying" in service.ask(f"/api/v1/runs/{long}/output")[1],
            "traffic",
        )
        child = child_of(service.process.pid)
        service.kill()
        # It ends its traffic, without a service to tell it.
        wait_until(lambda: not Path(f"/proc/{child}").exists(), "the end of the run")
    with served(tmp_path) as service:
        run = service.json(f"/runs/{long}")
        assert run["state"] == "interrupted"
        assert run["run_directory"] is not None
        clients = [
            threading.Thread(target=follow, args=(service, queued[number % count]))
            for number in range(min(20, 2 * count))
        ]
        for client in clients:
            client.start()
        for each in queued:
            assert service.wait(each)["state"] == "done"
            runs = service.folder / "jobs" / each / "runs"
            assert len(list(runs.iterdir())) == 1
        for client in clients:
            client.join(PATIENCE_S)
            assert not client.is_alive()
        with subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "chakram", "serve", "--listen"),
                *("127.0.0.1:0", "--folder", str(service.folder)),
                *("--resources", str(tmp_path / "resources")),
            ],
            stderr=subprocess.PIPE,
            text=True,
        ) as second:
            _, errors = second.communicate(timeout=PATIENCE_S)
        assert "is used by another service" in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_interrupt_runs_in_progress(tmp_path: Path, number: int) -> None:
    with served(tmp_path) as service:
        run_id = service.submit(ENDLESS, "run")
        service.wait(run_id, "running")
        service.process.send_signal(number)
        service.process.wait(PATIENCE_S)
    store = RunStore(service.folder / DATABASE)
    run = store.find(run_id)
    store.close()
    assert run is not None
    assert run.state == "interrupted"


def follow(service: Service, run_id: str) -> None:
    service.ask(f"/api/v1/runs/{run_id}/events")


def child_of(pid: int) -> int:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return int(text.split()[0])


def test_the_oldest_runs_are_removed(tmp_path: Path) -> None:
    with served(tmp_path, "--keep", "1") as service:
        kept = service.submit(tags=["keep"])
        first, second = service.submit(), service.submit()
        service.wait(second)
        assert service.ask(f"/api/v1/runs/{first}")[0] == 404
        folder = service.folder / "jobs" / first
        wait_until(lambda: not folder.exists(), "the removal of the folder")
        assert service.state(kept) == "done"


def test_what_a_run_left_behind_does_not_hold_the_fabric(tmp_path: Path) -> None:
    """A process that outlives the run keeps its output open."""
    child = tmp_path / "bin"
    child.mkdir()
    with served(tmp_path) as service:
        run_id = service.submit(ENDLESS, "run")
        service.wait(run_id, "running")
        wait_until(
            lambda: (service.folder / "jobs" / run_id / "process.json").exists(),
            "the description of the process",
        )
        pid = child_of(service.process.pid)
        # It obeys nothing any more.
        os.kill(pid, signal.SIGKILL)
        run = service.wait(run_id)
        assert (run["state"], run["exit_code"]) == ("failed", -signal.SIGKILL)
        assert service.wait(service.submit())["state"] == "done"


def test_idle_connections_do_not_lock_others_out(service: Service) -> None:
    host, _, port = service.address.rpartition("/")[2].rpartition(":")
    with contextlib.ExitStack() as stack:
        for number in range(450):
            idle = stack.enter_context(socket.create_connection((host, int(port))))
            idle.sendall(b"GET / HTTP/1.1\r\n" * (number % 2))
        assert service.ask("/login")[0] == 200


def test_an_idle_service_uses_hardly_any_time(service: Service) -> None:
    wait_until(lambda: service.json("/fabrics")["in_use"] == {}, "the end of all runs")
    before = ticks_of(service.process.pid)
    time.sleep(3)
    used = (ticks_of(service.process.pid) - before) / os.sysconf("SC_CLK_TCK")
    assert used < 0.03


def ticks_of(pid: int) -> int:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--listen", "0.0.0.0:0"), "there is no --cert"),
        (("--listen", "nowhere"), "is not an address and port"),
        (("--resources", "/nonexistent"), "is not a folder"),
        (("--cert", "a.pem"), "a.pem: is not a file"),
        (("--metrics", "127.0.0.1:9", "--parallel", "2"), "needs --parallel 1"),
        (("--listen", "127.evil.example:0"), "there is no --cert"),
        (("--otg", "none"), "is not a fabric of the service"),
        (("--add-user", "x"), "needs --tokens"),
        (("--tokens", "/nonexistent"), "cannot be read"),
    ],
)
def test_mistakes_of_the_operator_are_one_sentence(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    ended = refused_service(tmp_path, *options)
    assert ended.returncode in (2, 3)
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_used_port_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        ended = refused_service(tmp_path, "--listen", address)
    assert ended.returncode == 3
    assert f"chakram: error: --listen {address}: is not available" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_invalid_fabric_for_otg_clients_is_an_error(tmp_path: Path) -> None:
    fabrics = tmp_path / "resources/fabrics"
    fabrics.mkdir(parents=True)
    (fabrics / "bad.yaml").write_text("kind: loopback\nudp_port: -1\n")
    ended = refused_service(tmp_path, "--otg", "bad")
    assert ended.returncode == 2
    assert "fabrics/bad.yaml: fabric.udp_port: -1" in ended.stderr


def refused_service(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "resources").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-P", "-m", "chakram", "serve", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


# ---- pages ---------------------------------------------------------------------------


def test_an_experiment_is_started_and_watched_on_pages(service: Service) -> None:
    form = "experiment=" + "version%3A+1" + "&verb=run&action=check"
    status, body, _ = service.ask("/new", "POST", form.encode())
    assert status == 422
    assert b'role="alert"' in body
    from urllib.parse import urlencode

    fields = {"experiment": EXPERIMENT, "verb": "simulate", "tags": "<b>"}
    status, body, _ = service.ask("/new", "POST", urlencode(fields).encode())
    assert status == 422
    assert b"&lt;b&gt;" in body
    fields["tags"] = "page"
    checked = service.ask(
        "/new", "POST", urlencode({**fields, "action": "check"}).encode()
    )
    assert b"It is valid." in checked[1]
    status, _, headers = service.ask("/new", "POST", urlencode(fields).encode())
    assert status == 303
    run_id = headers["location"].rpartition("/")[2]
    service.wait(run_id)
    page = service.ask(f"/runs/{run_id}")[1].decode()
    assert "# Run complete." in page
    assert f"/api/v1/runs/{run_id}/views/report" in page
    assert "live.js" not in page
    again = service.ask(f"/new?again={run_id}")[1].decode()
    assert "ranks: 2" in again
    changed = service.submit(set={"seed": "77"})
    service.wait(changed)
    again = service.ask(f"/new?again={changed}")[1].decode()
    assert "--set seed=77" in again
    fields = {"experiment": EXPERIMENT, "verb": "simulate", "again": changed}
    location = service.ask("/new", "POST", urlencode(fields).encode())[2]["location"]
    found = service.wait(location.rpartition("/")[2])
    assert found["digest"] == service.json(f"/runs/{changed}")["digest"]


def test_a_run_is_watched_in_a_browser(service: Service, tmp_path: Path) -> None:
    require_chromium()
    run_id = service.submit(ENDLESS, "run")
    try:
        wait_until(
            lambda: b"replaying" in service.ask(f"/api/v1/runs/{run_id}/output")[1],
            "traffic",
        )
        opened = open_page(f"{service.address}/runs/{run_id}", profile=tmp_path)
    finally:
        service.json(f"/runs/{run_id}", "DELETE")
    assert opened.complaints == []
    assert '<p id="note" class="faint" role="status">Live.</p>' in opened.dom
    (output,) = re.findall(r'<pre id="output".*?>(.*?)</pre>', opened.dom, re.DOTALL)
    assert "replaying" in output.splitlines()
    service.wait(run_id)


def metric_names(address: str) -> set[str]:
    """Return the names of the metrics at an address, once flows have completed."""
    names: set[str] = set()

    def scraped() -> bool:
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://{address}/metrics") as answer:
                text = answer.read().decode()
            names.update(re.findall(r"^(chakram_\w+)", text, re.MULTILINE))
        return "chakram_queue_pair_sent_bytes_per_second" in names

    wait_until(scraped, "the metrics of a run")
    return names


def test_a_run_serves_the_metrics_of_the_command_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with served(tmp_path, "--metrics", address) as service:
        run_id = service.submit(ENDLESS, "run")
        found = metric_names(address)
        service.json(f"/runs/{run_id}", "DELETE")
        service.wait(run_id)
    path = tmp_path / "endless.yaml"
    path.write_text(ENDLESS)
    command = [sys.executable, "-P", "-m", "chakram", "run", str(path)]
    with subprocess.Popen(
        [*command, "--metrics", address, "--runs", str(tmp_path / "own")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as own:
        try:
            # Some appear with the first event of their kind.
            wait_until(lambda: metric_names(address) >= found, "the same metrics")
        finally:
            own.send_signal(signal.SIGINT)


@pytest.mark.parametrize("width", [400, pytest.param(1400, marks=pytest.mark.soak)])
def test_pages_have_no_faults_in_a_browser(
    service: Service, done: tuple[str, str], tmp_path: Path, width: int
) -> None:
    require_chromium()
    pages = {
        "home": "/",
        "new": "/new",
        "run": f"/runs/{done[1]}",
        "compare": f"/compare?b={done[1]}",
        "login": "/login",
        "problem": "/runs/none",
    }
    for name, path in pages.items():
        page = tmp_path / f"{name}.html"
        page.write_bytes(service.ask(path)[1])
        found = axe_violations(page, tmp_path / name, dark=width == 400, width=width)
        assert found == [], name
