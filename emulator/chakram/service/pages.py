"""Pages of a service: the queue, runs, a form, comparisons.

They work without scripts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

import chakram
from chakram.foundation.text_escaping import plain
from chakram.foundation.units import format_time
from chakram.report.palette import variables
from chakram.service.run_store import ENDED, STATES
from chakram.service.submissions import EXPERIMENTS, VERBS, fabric_names

if TYPE_CHECKING:
    from chakram.foundation.errors import ChakramError
    from chakram.service.access import User
    from chakram.service.job_queue import JobQueue
    from chakram.service.run_store import StoredRun


_TEMPLATE = "pages.html.j2"
_MOST_OUTPUT = 200_000
_MOST_EXAMPLE = 100_000
_STATIC = {"live.js": ("live.js.j2", "text/javascript; charset=utf-8")}
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
    """Renders pages.

    Args:
        queue: The queue.
        resources: Folder of resources.
    """

    def __init__(self, queue: JobQueue, resources: Path) -> None:
        self._queue = queue
        self._resources = resources

    def static(self, name: str) -> tuple[str, str] | None:
        """Return the text and type of a file that pages refer to, or None."""
        if name not in _STATIC:
            return None
        file, media_type = _STATIC[name]
        return (files("chakram.service") / file).read_text("utf-8"), media_type

    def home(
        self, user: User, runs: Sequence[StoredRun], query: Mapping[str, str]
    ) -> str:
        """Return the page of the queue and the runs."""
        store = self._queue.store
        waiting = store.waiting()
        locks, reserved = self._queue.locks(), self._queue.reservations()
        names = [*fabric_names(self._resources), *locks, *reserved]
        return self._page(
            "home",
            "Runs",
            user=user,
            runs=runs,
            waiting=waiting,
            counts=store.counts(),
            locks=locks,
            reserved=reserved,
            fabrics=[*dict.fromkeys(names)],
            query={name: query.get(name, "") for name in ("text", "tag", "state")},
            states=STATES,
        )

    def new(
        self,
        user: User,
        form: Mapping[str, str],
        *,
        problem: str = "",
        note: str = "",
    ) -> str:
        """Return the form of an experiment."""
        text = form.get("experiment") or self._example(form.get("example", ""))
        again = self._queue.store.find(form.get("again", ""))
        if again is not None and "experiment" not in form:
            text = again.experiment
        return self._page(
            "new",
            "New run",
            user=user,
            experiment=text,
            verb=form.get("verb", "run"),
            tags=form.get("tags", ""),
            again=form.get("again", ""),
            changes=self._queue.changes_of(again.id) if again is not None else {},
            verbs=VERBS,
            examples=[*self._examples],
            fabrics=fabric_names(self._resources),
            problem=plain(problem),
            note=note,
        )

    def run(
        self, user: User, run: StoredRun, output: str, baseline: StoredRun | None
    ) -> str:
        """Return the page of a run."""
        ahead = [each for each in self._queue.store.waiting() if each.id != run.id]
        place = sum(each.number < run.number for each in ahead)
        return self._page(
            "run",
            run.name,
            user=user,
            run=run,
            is_ended=run.state in ENDED,
            place=place,
            output=plain(output[-_MOST_OUTPUT:]),
            baseline=baseline,
        )

    def comparison(
        self, user: User, first: StoredRun, second: StoredRun, text: str
    ) -> str:
        """Return the page of a comparison."""
        return self._page(
            "comparison",
            "Comparison",
            user=user,
            first=first,
            second=second,
            output=plain(text),
        )

    def login(self, problem: str = "") -> str:
        """Return the page for entering a token."""
        return self._page("login", "Log in", user=None, problem=problem)

    def problem(self, error: ChakramError) -> str:
        """Return the page of an error."""
        return self._page("problem", "Problem", user=None, error=error)

    def _page(self, kind: str, title: str, **values: Any) -> str:
        page: str = self._template.render(
            kind=kind,
            title=title,
            colors=variables(),
            version=chakram.__version__,
            **values,
        )
        return page

    @cached_property
    def _template(self) -> Any:
        environment = Environment(
            loader=PackageLoader("chakram.service", ""),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {"moment": _moment, "ago": _ago, "lasted": _lasted}
        return environment.get_template(_TEMPLATE)

    @property
    def _examples(self) -> dict[str, Path]:
        folder = self._resources / EXPERIMENTS
        found = folder.glob("*.yaml") if folder.is_dir() else ()
        return {path.stem: path for path in sorted(found)}

    def _example(self, name: str) -> str:
        path = self._examples.get(name)
        if path is None:
            return _FIRST
        try:
            return path.read_text("utf-8", "replace")[:_MOST_EXAMPLE]
        except OSError:
            return _FIRST


def _moment(time_s: float | None) -> str:
    if time_s is None:
        return ""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ago(time_s: float | None) -> str:
    if time_s is None:
        return ""
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
