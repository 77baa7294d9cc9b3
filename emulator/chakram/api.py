"""Python interface to experiments, exported by the ``chakram`` package."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chakram.analysis import comparison
from chakram.analysis.comparison import Comparison
from chakram.analysis.comparison_inputs import read_side
from chakram.analysis.lost_time_causes import Why
from chakram.analysis.run_causes import why_of
from chakram.config.experiment import (
    Experiment,
    check_changes,
    load_experiment,
    parse_experiment,
)
from chakram.console.collective_tables import render_table
from chakram.execution import run_experiment
from chakram.execution.observer import Progress, Silent
from chakram.execution.outcome import RunOutcome
from chakram.execution.request import RunRequest
from chakram.fabric.fabric_types import KINDS
from chakram.foundation.errors import ConfigError, RunInterrupted
from chakram.foundation.platform_support import require_linux
from chakram.foundation.text_escaping import plain
from chakram.run_directory import reader
from chakram.settings.yaml_document import json_as_yaml, recorded_changes
from chakram.simulation import simulate_experiment

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Results", "open_run", "run", "simulate"]

AnyExperiment = str | Path | Mapping[str, Any] | Experiment
"""The path of an experiment file, its content as a mapping, or a loaded experiment."""

_SIMULATE, _RUN = "simulate", "run"


class Results(reader.RunResults):
    """Results of a run: Arrow tables, and dataclasses computed from them.

    ``print`` and notebooks show the same table as ``chakram show``.
    """

    @property
    def flows(self) -> pa.Table:
        """The table ``flows``, with one row per message."""
        return self.table("flows")

    @property
    def operations(self) -> pa.Table:
        """The table ``operations``, with one row per operation of a rank."""
        return self.table("operations")

    def why(self, *, until: str | None = None, job: str | None = None) -> Why:
        """Return the causes of lost time, like ``chakram why``.

        Args:
            until: Explain only the time until this collective completed. Identify it by
                name or as ``group#k``.
            job: Explain this job only.

        Raises:
            InputError: If the records are insufficient, or the collective does not
                exist.
        """
        return why_of(self, until=until, job=job)

    def compare(self, other: reader.RunResults | str | Path) -> Comparison:
        """Return the differences from another run or file, like ``chakram compare``.

        Raises:
            ChakramError: If *other* cannot be compared.
        """
        path = other.path if isinstance(other, reader.RunResults) else Path(other)
        return comparison.compare(read_side(self.path), read_side(path))

    def __str__(self) -> str:
        return render_table(self.summary())

    def __repr__(self) -> str:
        return f"<Results of {self.manifest.name} in {self.path}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(plain(str(self)))}</pre>"


def open_run(directory: str | Path) -> Results:
    """Return the results in a run directory, even while the run is still writing it.

    Raises:
        ChakramError: If *directory* is not a run directory, or cannot be read.
    """
    found = reader.open_run(Path(directory))
    return Results(found.path, found.manifest)


def simulate(
    experiment: AnyExperiment,
    *,
    set: Mapping[str, Any] | None = None,
    runs: str | Path | None = None,
    plan: str | Path | None = None,
    alone: str | None = None,
    progress: Progress | None = None,
) -> Results:
    """Run an experiment in virtual time, like ``chakram simulate``.

    Args:
        experiment: The path of an experiment file, its content as a mapping, or the
            result of `load_experiment`. Relative paths in a mapping are relative to the
            current folder.
        set: Settings to change, like ``--set``: values by key, e.g.
            ``{"transport.window": "64KiB", "iterations.measured": 3}``.
        runs: Folder for the run directory. Default: the one in the experiment.
        plan: A saved plan to take the programs from, instead of the traces.
        alone: The only job to run. It keeps its placement among the other jobs.
        progress: Object that receives progress reports.

    Returns:
        The results in the run directory.

    Raises:
        ChakramError: If the experiment is invalid, or the simulation does not complete.
            A simulation that has started always leaves its run directory.
    """
    request = _request(experiment, set or {}, runs, plan, alone, progress)
    return _results(simulate_experiment.simulate_experiment(request))


def run(
    experiment: AnyExperiment,
    *,
    world: str | None = None,
    set: Mapping[str, Any] | None = None,
    runs: str | Path | None = None,
    plan: str | Path | None = None,
    alone: str | None = None,
    progress: Progress | None = None,
) -> Results:
    """Run an experiment on its fabric, like ``chakram run``.

    The call blocks until the run ends. If an event loop is already running, as in a
    notebook, the run uses a separate loop in another thread. If you call this in the
    main thread, signals end the run cleanly.

    Args:
        experiment: As for `simulate`.
        world: ``run`` or None uses the experiment's fabric. ``simulate`` uses virtual
            time. Any other value is the fabric type to use instead, e.g. ``loopback``.
            The new fabric keeps the settings that both types share, and the rate of the
            slowest port. *set* can change the new fabric.
        set: As for `simulate`. The keys ``lab`` and ``metrics`` replace the command's
            options ``--lab`` and ``--metrics``.
        runs: As for `simulate`.
        plan: As for `simulate`.
        alone: As for `simulate`.
        progress: As for `simulate`.

    Returns:
        The results in the run directory.

    Raises:
        ChakramError: As for `simulate`.
    """
    changes = set or {}
    options: dict[str, str] = {}
    if world not in (None, _RUN, _SIMULATE):
        check_changes(changes, name="set")
        moved = _fabric_of_kind(experiment, world)
        options = dict.fromkeys(moved.keys() - changes.keys(), f"world={world!r}")
        changes = {**moved, **changes}
    if world != _SIMULATE:
        require_linux("chakram.run")
    request = _request(experiment, changes, runs, plan, alone, progress, options)
    if world == _SIMULATE:
        return _results(simulate_experiment.simulate_experiment(request))
    return _results(_ended(request))


def _fabric_of_kind(experiment: AnyExperiment, kind: str) -> dict[str, Any]:
    """Return the change that replaces the fabric with one of type *kind*.

    The new fabric keeps the settings that both types share, and the port rate.
    """
    written = _read(experiment, {})[0].written.fabric
    if written.kind == kind:
        return {}
    if kind not in KINDS:
        return {"fabric.kind": kind}
    keys = {each.alias or name for name, each in KINDS[kind].model_fields.items()}
    kept = {
        key: value
        for key, value in written.model_dump(
            mode="json", by_alias=True, exclude_unset=True
        ).items()
        if key in keys
    }
    if "rate" in keys and written.port_rate_bps is not None:
        kept["rate"] = f"{written.port_rate_bps}bit"
    return {"fabric": {**kept, "kind": kind}}


def _ended(request: RunRequest) -> RunOutcome:
    if not _is_in_event_loop():
        return asyncio.run(run_experiment.run_experiment(request))
    under_way: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def whole() -> RunOutcome:
        task = asyncio.current_task()
        assert task is not None
        under_way.append((asyncio.get_running_loop(), task))
        return await run_experiment.run_experiment(request)

    with ThreadPoolExecutor(1, thread_name_prefix="chakram-run") as pool:
        future = pool.submit(lambda: asyncio.run(whole()))
        try:
            return future.result()
        except KeyboardInterrupt:
            # At the end of this block, the pool waits until the run has cleaned up.
            for loop, task in under_way:
                loop.call_soon_threadsafe(task.cancel)
            raise RunInterrupted("run", "interrupted by SIGINT") from None


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _request(
    experiment: AnyExperiment,
    changes: Mapping[str, Any],
    runs: str | Path | None,
    plan: str | Path | None,
    alone: str | None,
    progress: Progress | None,
    options: Mapping[str, str] | None = None,
) -> RunRequest:
    settings, text = _read(experiment, changes, options)
    return RunRequest(
        experiment=settings,
        text=text,
        runs_directory=Path(runs or settings.runs),
        progress=progress or Silent(),
        plan_file=None if plan is None else Path(plan),
        alone=alone,
    )


def _read(
    experiment: AnyExperiment,
    changes: Mapping[str, Any],
    options: Mapping[str, str] | None = None,
) -> tuple[Experiment, str]:
    """Return the experiment with its changes, and the text to save with the run.

    *options* maps the key of each change that is not from *set* to the argument that
    caused it. Error messages name that argument.
    """
    check_changes(changes, name="set")
    said = {key: _yaml(value, f"set: {key}") for key, value in changes.items()}
    if isinstance(experiment, str | Path):
        settings = load_experiment(experiment, overrides=said, options=options)
        text = Path(experiment).read_text(encoding="utf-8")
    else:
        document: Any = experiment
        if isinstance(experiment, Experiment):
            document = experiment.written.model_dump(
                mode="json", by_alias=True, exclude_unset=True
            )
        text = _yaml(document, "experiment", indent=2) + "\n"
        if isinstance(experiment, Experiment) and not said:
            settings = experiment
        else:
            settings = parse_experiment(text, overrides=said, options=options)
    return settings, recorded_changes(said) + text


def _yaml(value: object, where: str, indent: int | None = None) -> str:
    """Return a string unchanged, and any other value as JSON that is also YAML.

    Raises:
        ConfigError: If an experiment file cannot have the value.
    """
    try:
        if isinstance(value, str):
            text = value
        else:
            text = json_as_yaml(value, indent=indent, default=_plain)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            where,
            f"cannot be written to an experiment file: {error}",
            "use text, numbers, lists and mappings",
        ) from error
    return text


def _plain(value: Any) -> object:
    """Convert a value to an equivalent value of a type that ``json`` supports.

    Raises:
        TypeError: If there is no such value.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if hasattr(value, "tolist"):  # a number or an array of numpy
        return value.tolist()
    raise TypeError(f"it has a value of type {type(value).__name__}")


def _results(outcome: RunOutcome) -> Results:
    if outcome.error is not None:
        raise outcome.error
    return open_run(outcome.directory)
