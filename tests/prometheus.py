"""A real Prometheus for tests.

::

    with start_prometheus(tmp_path, targets=["127.0.0.1:9464"]) as prometheus:
        prometheus.wait_for_all(["up"], timeout_s=60)
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PROGRAM = "prometheus"

MAX_SERIES_PER_AGENT = 150
MAX_SERIES_PER_RUN = 6450
"""Of a run with 64 jobs on 64 hosts."""

MAX_SERIES_OF_SWITCHES = 5500
"""Of 64 links with eight classes each way; few of those are used at a time."""

START_TIMEOUT_S = 60.0
_POLL_S = 0.05
_QUERY_TIMEOUT_S = 60.0
# Prometheus 2 writes `msg="Listening on" address=127.0.0.1:9090`, 3 writes the same
# after a `level=`; some builds quote the address.
_LISTENING = re.compile(r'msg="Listening on".*?address="?127\.0\.0\.1:(\d+)')


def prometheus_missing() -> str | None:
    """Return why Prometheus is unavailable; None if it is available."""
    if shutil.which(PROGRAM) is None:
        return f"the program {PROGRAM} is not installed"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A running server."""

    url: str

    def query(self, expr: str, *, time_s: float | None = None) -> list[dict[str, Any]]:
        """Return the result of an instant query: one item per series.

        Args:
            expr: What is asked for.
            time_s: Of when, as Unix time; None: of now.

        Raises:
            ValueError: If the server refuses the query.
        """
        moment = {} if time_s is None else {"time": str(time_s)}
        result = self._get("query", query=expr, **moment)
        found: list[dict[str, Any]] = result["result"]
        return found

    def times_answered(
        self, expr: str, *, start_s: float, end_s: float, step_s: float
    ) -> set[float]:
        """Return at which moments of a time a query has an answer.

        Raises:
            ValueError: If the server refuses the query.
        """
        result = self._get(
            "query_range",
            query=expr,
            start=f"{start_s:.3f}",
            end=f"{end_s:.3f}",
            step=f"{step_s:g}",
        )
        return {
            float(time_s)
            for series in result["result"]
            for time_s, _ in series["values"]
        }

    def label_values(self, label: str) -> list[str]:
        """Return all values of a label."""
        values: list[str] = self._get(f"label/{label}/values")
        return values

    def wait_for_all(
        self, expressions: Sequence[str], *, timeout_s: float
    ) -> dict[str, list[dict[str, Any]]]:
        """Return the results of queries, each as soon as it is not empty.

        Raises:
            TimeoutError: If some stay empty; it names all of them.
        """
        deadline = time.monotonic() + timeout_s
        found: dict[str, list[dict[str, Any]]] = {}
        while True:
            for expr in expressions:
                if not found.get(expr):
                    found[expr] = self.query(expr)
            empty = [expr for expr in expressions if not found[expr]]
            if not empty:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing in {timeout_s:g} s: {'; '.join(empty)}")
            time.sleep(_POLL_S)

    def _get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/{path}?{query}", timeout=_QUERY_TIMEOUT_S
            ) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
            raise ValueError(f"{parameters.get('query')}: {text}") from error
        return document["data"]


@contextmanager
def start_prometheus(
    folder: Path,
    targets: Sequence[str],
    *,
    scrape_interval: str = "1s",
    rules: Sequence[Path] = (),
    data: Path | None = None,
) -> Iterator[Prometheus]:
    """Run a separate Prometheus on a free port of 127.0.0.1.

    The first scrape comes about 6 s after the start, whatever the interval.

    Args:
        folder: Its configuration, data and log go there.
        targets: Addresses with ports that it scrapes, as job ``chakram``.
        scrape_interval: Time between two scrapes, and two evaluations of rules.
        rules: Files of rules.
        data: Where its data are; None: in *folder*.

    Raises:
        RuntimeError: If it does not start; with its log.
    """
    configuration = {
        "global": {
            "scrape_interval": scrape_interval,
            "evaluation_interval": scrape_interval,
        },
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [
            {"job_name": "chakram", "static_configs": [{"targets": list(targets)}]}
        ],
    }
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(configuration), encoding="utf-8")  # JSON is YAML
    log = folder / "prometheus.log"
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [
                PROGRAM,
                f"--config.file={file}",
                f"--storage.tsdb.path={data or folder / 'data'}",
                "--storage.tsdb.retention.time=100y",
                "--web.listen-address=127.0.0.1:0",
                "--log.level=info",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        yield Prometheus(url=f"http://127.0.0.1:{_port(process, log)}")
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        text = log.read_text(encoding="utf-8")
        match = _LISTENING.search(text)
        if match and "Server is ready" in text:
            return int(match[1])
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{PROGRAM} did not start:\n{text}")
        time.sleep(_POLL_S)
