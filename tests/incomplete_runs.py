"""Incomplete runs, and the results that commands may print for them.

The judge is ``raw``: it reads the tables with pyarrow alone, so that no code under test
decides which iterations are whole.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from chakram.cli import main
from chakram.report.run.data import RunData
from chakram.run_directory.manifest import SIMULATE
from chakram.run_directory.reader import open_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JOB, RANKS = "moe", 4
ANSWERS = (0, 2)
"""Exit codes of a verb that answers, and of one that says why it has no answer."""

CLOCKS = {
    "flows": "last_acked_ns",
    "operations": "end_ns",
    "ports": "time_ns",
    "link_samples": "time_ns",
}
"""Tables and their columns that end last."""

RULES = """\
version: 1
rules:
  - check: run.status == "complete" and unfinished_collectives == 0
  - check: retransmitted_packets <= 0.1% * packets
  - {each: iterations, check: iterations > 0}
"""
SLOWER = "  - {each: iterations, check: slower <= 5%}\n"

KILLED_AT_A_RENAME = """\
import os, signal, sys
from chakram.cli import main

which, *arguments = sys.argv[1:]
put = os.replace
count = 0

def put_or_end(source, target):
    global count
    count += 1
    if which in (str(count), os.path.basename(target)):
        os.kill(os.getpid(), signal.SIGKILL)
    put(source, target)

os.replace = put_or_end
sys.exit(main(arguments))
"""
"""The command, killed before it puts a file in its place: by its name or number."""


def raw(directory: Path, name: str, *columns: str) -> list[dict[str, Any]]:
    """Return the rows of a table of a run directory."""
    merged = directory / f"{name}.parquet"
    files = [merged] if merged.exists() else (directory / name).glob("part-*.parquet")
    return [
        row
        for file in files
        for row in pq.ParquetFile(file).read(list(columns)).to_pylist()
    ]


def whole_iterations(directory: Path) -> dict[int, int]:
    """Return by measured iteration that all ranks have ended its time in ns."""
    names = ("iteration", "measured", "rank", "start_ns", "end_ns")
    rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in raw(directory, "ranks", *names):
        if row["measured"]:
            rows[row["iteration"]].append(row)
    return {
        iteration: max(row["end_ns"] for row in own)
        - min(row["start_ns"] for row in own)
        for iteration, own in rows.items()
        if {row["rank"] for row in own} == set(range(RANKS))
    }


def times_in(value: object, name: str = "") -> Iterator[tuple[str, float]]:
    """Yield the durations in a JSON document by their keys."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("start_ns", "end_ns"):
                yield from times_in(
                    inner, key if isinstance(inner, float | int) else f"{name}.{key}"
                )
    elif isinstance(value, list):
        for inner in value:
            yield from times_in(inner, name)
    elif name.endswith("_ns") and isinstance(value, int | float):
        yield name, float(value)


def told(*arguments: object) -> tuple[int, str, str]:
    """Run a verb; return its exit code, output and errors."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main([str(each) for each in arguments])
    return code, output.getvalue(), errors.getvalue()


class Checks:
    """Expected output of every command for an incomplete run.

    Args:
        run: Its directory.
        folder: Where files may be written.
        status: How it ended.
        age_ns: More than it took; no time may be longer.
        all_pages: Whether reports of all forms are written, which takes a second.
    """

    def __init__(
        self, run: Path, folder: Path, *, status: str, age_ns: int, all_pages: bool
    ) -> None:
        self.all_pages = all_pages
        self.run = run
        self.folder = folder
        self.mark = f"{status.upper()}: "
        self.status = status
        self.age_ns = age_ns
        self.whole = whole_iterations(run)
        self.flows = raw(run, "flows", "src", "dst", "measured", "bytes")

    def _answer(self, *arguments: object, codes: tuple[int, ...] = ANSWERS) -> str:
        """Return the output of a command, whose error names the end of the run."""
        code, output, errors = told(*arguments)
        assert code in codes, (arguments, code, errors)
        assert "unexpected" not in errors
        if code == 2:
            assert errors.count("\n") == 1, errors
        return output

    def _document(self, *arguments: object) -> Any:
        output = self._answer(*arguments, "--json")
        if not output:
            return None
        document = json.loads(output)
        for name, time_ns in times_in(document):
            assert 0 <= time_ns <= self.age_ns, (arguments, name, time_ns)
        return document

    def show(self) -> None:
        assert f"# !! {self.mark}" in self._answer("show", self.run)
        document = self._document("show", self.run)
        assert document["run"]["status"] == self.status
        found = {each["job"]: each for each in document["iterations"]}
        if not self.whole:
            assert not found
            return
        assert found[JOB]["iterations"] == len(self.whole)
        assert math.isclose(found[JOB]["mean_ns"], fmean(self.whole.values()))
        assert {each["iterations"] for each in document["ranks"]} == {len(self.whole)}

    def why(self) -> None:
        code, output, errors = told("why", self.run)
        assert (code, self.mark in output + errors) == (0 if self.whole else 2, True)
        document = self._document("why", self.run)
        if document is not None:
            assert document["iterations"] == len(self.whole)
            assert document["incomplete"].startswith(self.mark)
            mean_ns = fmean(self.whole.values())
            assert document["mean_iteration_ns"] <= mean_ns

    def report(self) -> None:
        page = self.folder / "page.html"
        for options in ((), ("--bmwg",), (self.run,))[: 3 if self.all_pages else 1]:
            self._answer("report", self.run, *options, "--out", page, "--force")
            assert self.mark in page.read_text(encoding="utf-8")
        assert 0 <= RunData(open_run(self.run)).end_ns <= self.age_ns

    def timeline(self) -> None:
        file = self.folder / "timeline.json"
        assert self.mark in self._answer("timeline", self.run, "--out", file)
        timeline = json.loads(file.read_text(encoding="utf-8"))
        assert timeline["otherData"]["status"] == self.status
        for event in timeline["traceEvents"]:
            assert -1000 <= 1000 * event.get("ts", 0) <= self.age_ns, event
            assert 0 <= 1000 * event.get("dur", 0) <= self.age_ns, event
            # Everything but ports and links is on the row of a rank.
            is_of_rank = event["ph"] in "Xsf"
            assert (event["pid"] > 0) is is_of_rank or event["ph"] == "M", event

    def compare(self) -> None:
        # Lines are wrapped, so a long path begins a line.
        answer = " ".join(self._answer("compare", self.run, self.run).split())
        assert self.mark in answer
        document = self._document("compare", self.run, self.run)
        (comparison,) = document["comparisons"]
        assert any(each.startswith(self.mark) for each in comparison["a"]["notes"])
        samples = {
            each["a"]["samples"]
            for level in ("iteration", "part", "fct")
            for each in comparison["levels"].get(level, ())
        }
        assert samples <= {len(self.whole)}

    def export(self) -> None:
        for what, name in {
            "fct": "fct.txt",
            "pfc": "pfc.txt",
            "qlen": "qlen.txt",
            "p2p": "p2p.csv",
            "links": "links.csv",
            "nccl-tests": "",
            "openmetrics": "run.om",
        }.items():
            out = self.folder / what
            output = self._answer("export", what, self.run, "--out", out)
            assert not output or self.mark in output, (what, output)
            assert (out / name).exists() is bool(output)
        measured = [flow for flow in self.flows if flow["measured"]]
        if measured:
            lines = (self.folder / "fct/fct.txt").read_text().split()
            assert len(lines) == 8 * len(measured)
            assert all(0 <= int(each) <= self.age_ns for each in lines[5::8])
            assert all(0 <= int(each) <= self.age_ns for each in lines[6::8])
            rows = (self.folder / "p2p/p2p.csv").read_text().splitlines()[1:]
            assert sum(int(row.rpartition(",")[2]) for row in rows) == sum(
                flow["bytes"] for flow in measured
            )
        metrics = self.folder / "openmetrics/run.om"
        if metrics.exists():
            states = re.findall(
                r"^chakram_run_state{.*state=\"(\w+)\"} (\S+) ",
                metrics.read_text(),
                re.M,
            )
            assert [name for name, value in dict(states).items() if float(value)] == [
                self.status
            ]

    def gate(self) -> None:
        rules = self.folder / "rules.yaml"
        rules.write_text(RULES, encoding="utf-8")
        output = self._answer("gate", self.run, rules, codes=(6,))
        assert self.mark in output
        assert "ok      run.status" not in output
        if not raw(self.run, "queue_pairs", "qpn") and not self.whole:
            assert "ok      retransmitted" not in output
        rules.write_text(RULES + SLOWER, encoding="utf-8")
        self._answer("gate", self.run, rules, "--baseline", self.run, codes=(6,))

    def validate(self) -> None:
        assert f": {self.status} run of " in self._answer("validate", self.run)

    def runs(self) -> None:
        (row,) = (
            each
            for each in json.loads(self._answer("runs", self.run.parent, "--json"))[
                "runs"
            ]
            if Path(each["directory"]).name == self.run.name
        )
        assert row["status"] == self.status
        assert row["iterations"] == len(self.whole)

    def interference(self) -> None:
        self._answer("interference", self.run, self.run, codes=(0, 2, 3))


VERBS: dict[str, Callable[[Checks], None]] = {
    name: check for name, check in vars(Checks).items() if not name.startswith("_")
}


def check_all(
    run: Path, folder: Path, *, status: str, all_pages: bool = True
) -> Checks:
    """Ask every verb about a run.

    Args:
        run: Its directory.
        folder: For what they write.
        status: How the run ended.
        all_pages: See ``Checks``.
    """
    folder.mkdir()
    manifest = open_run(run).manifest
    began = datetime.fromisoformat(manifest.started_at)
    # It is written to the second.
    age_ns = round(((datetime.now(UTC) - began).total_seconds() + 1) * 1e9)
    if manifest.world == SIMULATE:  # its clock may be ahead of ours
        times = (
            row[column]
            for name, column in CLOCKS.items()
            for row in raw(run, name, column)
        )
        age_ns = max(age_ns, 1 + max(times, default=0))
    checks = Checks(run, folder, status=status, age_ns=age_ns, all_pages=all_pages)
    for check in VERBS.values():
        check(checks)
    return checks
