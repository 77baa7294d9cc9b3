"""Pages of a service: the queue, runs, a form, comparisons.

They work without scripts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

import chakram
from chakram.foundation.text_escaping import plain
from chakram.foundation.units import format_time
from chakram.report.palette import variables
from chakram.service.access import User
from chakram.service.job_queue import JobQueue
from chakram.service.run_store import ENDED, STATES, StoredRun
from chakram.service.submissions import EXPERIMENTS, VERBS, fabric_names, file_names

_TEMPLATE = "pages.html.j2"
_MOST_OUTPUT = 200_000
_MOST_EXAMPLE = 100_000
_FIRST = """\
version: 1
name: first
jobs:
  - name: moe
    trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}
    compute: {from: none}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 4}}
  links: {host: {rate: 100Mbit}}
"""


class Pages:
    """Renderer of the service's pages.

    Args:
        queue: Queue of the service.
        resources: Folder of resources.
    """

    def __init__(self, queue: JobQueue, resources: Path) -> None:
        self._queue = queue
        self._resources = resources

    def home(
        self,
        user: User,
        runs: Sequence[StoredRun],
        query: Mapping[str, str],
        following: int | None,
    ) -> Response:
        """Return the page of the queue and the runs.

        Args:
            user: User of the request.
            runs: Runs to list.
            query: Search terms that selected the runs.
            following: Value of ``before`` for the next page of runs, if there is one.
        """
        store = self._queue.store
        locks, reserved = self._queue.locks(), self._queue.reservations()
        names = [*fabric_names(self._resources), *locks, *reserved]
        return self.page(
            "home",
            "Runs",
            user=user,
            runs=runs,
            following=following,
            waiting=store.waiting(),
            counts=store.counts(),
            locks=locks,
            reserved=reserved,
            fabrics=[*dict.fromkeys(names)],
            query={name: query.get(name, "") for name in ("text", "tag", "state")},
        )

    def new(
        self, user: User, form: Mapping[str, str], *, problem: str = "", note: str = ""
    ) -> Response:
        """Return the page with the form for a new experiment."""
        text = form.get("experiment") or self._example(form.get("example", ""))
        again = self._queue.store.find(form.get("again", ""))
        if again is not None and "experiment" not in form:
            text = again.experiment
        return self.page(
            "new",
            "New run",
            status=422 if problem else 200,
            user=user,
            experiment=text,
            verb=form.get("verb", "run"),
            tags=form.get("tags", ""),
            again=form.get("again", ""),
            changes=self._queue.changes_of(again.id) if again is not None else {},
            examples=file_names(self._resources / EXPERIMENTS),
            fabrics=fabric_names(self._resources),
            problem=plain(problem),
            note=note,
        )

    def run(
        self, user: User, run: StoredRun, output: str, baseline: StoredRun | None
    ) -> Response:
        """Return the page of a run."""
        waiting = self._queue.store.waiting()
        return self.page(
            "run",
            run.name,
            user=user,
            run=run,
            is_ended=run.state in ENDED,
            place=sum(each.number < run.number for each in waiting),
            output=plain(output[-_MOST_OUTPUT:]),
            baseline=baseline,
        )

    def page(self, kind: str, title: str, status: int = 200, **values: Any) -> Response:
        """Return a page as an HTML response.

        Args:
            kind: Part of the template.
            title: Title of the page.
            status: Status code.
            values: Values for this part of the template, including the user if known.
        """
        text = self._template.render(kind=kind, title=title, **values)
        return HTMLResponse(text, status)

    @cached_property
    def _template(self) -> Any:
        environment = Environment(
            loader=PackageLoader("chakram.service", ""),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.globals |= {
            "colors": variables(),
            "version": chakram.__version__,
            "states": STATES,
            "verbs": VERBS,
            "user": None,
        }
        environment.filters |= {"moment": _moment, "ago": _ago, "lasted": _lasted}
        return environment.get_template(_TEMPLATE)

    def _example(self, name: str) -> str:
        folder = self._resources / EXPERIMENTS
        try:
            if name in file_names(folder):
                text = (folder / f"{name}.yaml").read_text("utf-8", "replace")
                return text[:_MOST_EXAMPLE]
        except OSError:
            pass
        return _FIRST


def _moment(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ago(time_s: float) -> str:
    passed_s = max(0.0, time.time() - time_s)
    for size_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if passed_s >= size_s:
            return f"{passed_s / size_s:.0f} {unit} ago"
    return f"{passed_s:.0f} s ago"


def _lasted(run: StoredRun) -> str:
    if run.started_s is None:
        return ""
    end_s = time.time() if run.ended_s is None else run.ended_s
    return format_time(round(max(0.0, end_s - run.started_s), 1) * 1e9)
