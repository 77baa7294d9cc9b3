"""Saved plans: files with the programs of an experiment, used instead of its traces.

Programs depend on the traces, on how Chakram reads and lowers traces, and on the
algorithms. Programs do not depend on transport, placement, or fabric (except for its
dilation). You can change these settings between runs. A saved plan lists its inputs.
Chakram refuses a plan if the experiment differs, or if an input has changed. It ignores
inputs that no longer exist.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from chakram import __version__
from chakram.chakra.sets.find_files import find_trace_set
from chakram.chakra.sets.profiles import profile_paths
from chakram.collectives.algorithms import ALGORITHMS, user_algorithms
from chakram.config.jobs import Job, TraceFiles
from chakram.control import plan_file
from chakram.foundation.bounded_reading import read_bounded
from chakram.foundation.errors import PlanError
from chakram.foundation.units import about_size, format_size
from chakram.preparation.job_loading import LoadedJob, placement_options
from chakram.preparation.plugin_versions import plug_ins_of

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment


_READ_TRACES = "read the traces in every run"
_SAVE_AGAIN = "save it again with `chakram plan ... --save`"

_NOT_IN_PROGRAMS = {"name", "placement", "start_ns", "repeat"}
"""Settings of a job that do not affect its programs."""


def save_plan(path: Path, experiment: Experiment, jobs: Sequence[LoadedJob]) -> None:
    """Write the programs of the loaded jobs of an experiment to a file.

    Raises:
        PlanError: If the file cannot be written, or would exceed the size limit.
    """
    data = plan_file.encode(
        plan_file.SavedPlan(
            made_by=__version__,
            jobs=tuple(
                plan_file.SavedJob(
                    settings=_settings(experiment, wanted), **_shared(job)
                )
                for wanted, job in zip(experiment.jobs, jobs, strict=True)
            ),
            inputs=tuple(map(_input, dict.fromkeys(_inputs(experiment)))),
        )
    )
    if len(data) > plan_file.MAX_FILE_BYTES:
        raise PlanError(
            str(path),
            f"would have {about_size(len(data))}, but the limit is "
            f"{format_size(plan_file.MAX_FILE_BYTES)}",
            _READ_TRACES,
        )
    try:
        plan_file.decode(data, where=str(path))
    except PlanError as error:
        raise PlanError(
            error.where, f"would not be readable: {error.found}", _READ_TRACES
        ) from None
    if path.exists() and not path.is_file():  # the new file would replace a device
        raise PlanError(str(path), "is not a file", "choose another place")
    temporary = path.with_name(f"{path.name}.part")
    try:
        # Concurrent readers see the old file or the new one.
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise PlanError(
            str(path), f"cannot be written: {error.strerror}", "choose another place"
        ) from error


def load_plan(path: Path, experiment: Experiment) -> list[LoadedJob]:
    """Return the jobs of an experiment from a saved plan.

    Raises:
        PlanError: If the file is not a plan, or does not fit the experiment or its
            traces.
    """
    data = read_bounded(
        path,
        limit_bytes=plan_file.MAX_FILE_BYTES,
        error=PlanError,
        size_hint="is it a saved plan?",
    )
    plan = plan_file.decode(data, where=str(path))
    if plan.made_by != __version__:
        raise PlanError(
            str(path),
            f"was saved by chakram {plan.made_by}, but this is {__version__}",
            _SAVE_AGAIN,
        )
    names = [job.name for job in plan.jobs]
    wanted_names = [job.name for job in experiment.jobs]
    if names != wanted_names:
        raise PlanError(
            str(path),
            f"has the jobs {', '.join(names)}, but the experiment has "
            f"{', '.join(wanted_names)}",
            _SAVE_AGAIN,
        )
    for wanted, job in zip(experiment.jobs, plan.jobs, strict=True):
        if job.settings != _settings(experiment, wanted):
            raise PlanError(
                f"{path}: job {job.name}",
                "was saved for a different trace, or for different settings of trace, "
                "compute, sizes, dilation, order, collectives or barrier",
                _SAVE_AGAIN,
            )
    for saved in plan.inputs:
        if _has_changed(saved):
            raise PlanError(
                str(path), f"{saved.path} has changed since it was saved", _SAVE_AGAIN
            )
    return [
        LoadedJob(
            **_shared(job),
            size_scale=str(wanted.size_scale),
            placement=placement_options(wanted.placement),
        )
        for wanted, job in zip(experiment.jobs, plan.jobs, strict=True)
    ]


def _shared(job: LoadedJob | plan_file.SavedJob) -> dict[str, Any]:
    """Return the values of the fields that loaded and saved jobs have in common."""
    names = (each.name for each in fields(plan_file.SavedJob))
    return {name: getattr(job, name) for name in names if name != "settings"}


def _settings(experiment: Experiment, job: Job) -> str:
    """Return the digest of the settings that the programs of a job depend on."""
    said = {
        "job": job.model_dump(mode="json", exclude=_NOT_IN_PROGRAMS),
        "collectives": experiment.model_dump(mode="json", include={"collectives"}),
        "barrier": experiment.iterations.sync == "barrier",
    }
    if packages := [
        each.package for each in plug_ins_of(experiment) if each.noun == ALGORITHMS.noun
    ]:
        said["packages"] = packages
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _inputs(experiment: Experiment) -> Iterator[Path]:
    """Yield the files that the programs depend on."""
    for job in experiment.jobs:
        if isinstance(job.trace, TraceFiles):
            only = None if job.trace.replicate is None else job.trace.rank
            with find_trace_set(job.trace.path, only=only) as found:
                yield from found.paths()
                kineto = None if job.trace.kineto is None else Path(job.trace.kineto)
                yield from profile_paths(found, kineto, only=only)
            if job.trace.comm_groups is not None:
                yield Path(job.trace.comm_groups)
        else:
            yield from _paths_in(job.trace)
    for choice in experiment.collectives.values():
        for user in user_algorithms(choice):
            yield from _files_at(Path(user.path))


def _files_at(path: Path) -> Iterator[Path]:
    """Yield *path*, or the files in it if it is a folder.

    The state of a folder itself does not show changes in its files.
    """
    if path.is_dir():
        yield from (each for each in sorted(path.iterdir()) if each.is_file())
    else:
        yield path


def _paths_in(value: object) -> Iterator[Path]:
    """Yield all files in the settings of a synthetic trace, at any depth."""
    if isinstance(value, Path):
        yield from _files_at(value)
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _paths_in(getattr(value, name))
    elif isinstance(value, tuple):
        for each in value:
            yield from _paths_in(each)


def _input(path: Path) -> plan_file.SavedInput:
    path = path.absolute()
    try:
        state = path.stat()
    except OSError as error:
        raise PlanError(str(path), f"cannot be read: {error.strerror}") from error
    return plan_file.SavedInput(
        path=str(path), size_bytes=state.st_size, changed_ns=state.st_mtime_ns
    )


def _has_changed(saved: plan_file.SavedInput) -> bool:
    try:
        state = Path(saved.path).stat()
    except OSError:
        return False
    return (state.st_size, state.st_mtime_ns) != (saved.size_bytes, saved.changed_ns)
