"""A service as a process, and a client of its API."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_S, Stopwatch

EXPERIMENT = """\
version: 1
name: first
jobs:
  - name: moe
    trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}
    compute: {from: none}
fabric:
  kind: loopback
iterations: {warmup: 0, measured: 3}
"""

ENDLESS = EXPERIMENT.replace(
    "measured: 3",
    # With gaps, so that a run leaves the cores to what is tested beside it.
    "measured: 1000000, sync: gap, gap: 20ms",
)


@dataclass(slots=True)
class Service:
    """A service that runs.

    Attributes:
        process: Its process.
        address: Its URL.
        folder: Its folder.
        headers: Headers of every request.
        grpc_address: Where it serves OTG through gRPC.
    """

    process: subprocess.Popen[str]
    address: str
    folder: Path
    headers: dict[str, str] = field(default_factory=dict)
    grpc_address: str = ""

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers of an answer; redirects are not followed."""
        request = urllib.request.Request(
            self.address + path,
            data=body,
            method=method,
            headers={**self.headers, **(headers or {})},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay)
        try:
            with opener.open(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), dict(error.headers)

    def json(self, path: str, method: str = "GET", document: Any = None) -> Any:
        """Return the document that answers a request, which must succeed."""
        body = None if document is None else json.dumps(document).encode()
        status, answer, _ = self.ask(f"/api/v1{path}", method, body)
        assert 200 <= status < 300, answer
        return json.loads(answer) if answer else None

    def submit(
        self, text: str = EXPERIMENT, verb: str = "simulate", **more: Any
    ) -> str:
        """Queue an experiment and return its ID."""
        wanted = {"experiment": text, "verb": verb, **more}
        return str(self.json("/runs", "POST", wanted)["id"])

    def state(self, run_id: str) -> str:
        return str(self.json(f"/runs/{run_id}")["state"])

    def wait(self, run_id: str, *states: str) -> dict[str, Any]:
        """Wait until a run has one of some states, and return it."""
        wanted = states or ("done", "failed", "canceled", "interrupted")
        watch = Stopwatch()
        while watch.look() < PATIENCE_S:
            run: dict[str, Any] = self.json(f"/runs/{run_id}")
            if run["state"] in wanted:
                return run
            time.sleep(0.05)
        raise AssertionError(f"{run_id} stays {run['state']}")

    def kill(self) -> None:
        """Kill it as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@contextmanager
def served(folder: Path, *options: str, **environment: str) -> Iterator[Service]:
    """Run a service on loopback until the end of the block."""
    resources = folder / "resources"
    resources.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "chakram", "serve"),
            *("--listen", "127.0.0.1:0", "--folder", str(folder / "service")),
            *("--resources", str(resources), *options),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )
    assert process.stdout is not None
    try:
        grpc_address = ""
        line = process.stdout.readline()
        if line.startswith("serving OTG"):
            grpc_address = line.split()[-1]
            line = process.stdout.readline()
        assert line.startswith("serving at "), line
        address = line.split()[2]
        yield Service(process, address, folder / "service", grpc_address=grpc_address)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
