"""Request for a run or simulation, and the first steps that both share."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.config.experiment import Experiment
from chakram.preparation.resolved_run import ResolvedRun, load_run
from chakram.preparation.run_description import manifest_of
from chakram.run_directory.writer import RunDirectory

if TYPE_CHECKING:
    from chakram.execution.observer import Progress
    from chakram.launch.launched_agents import LaunchOptions


def new_run_id(started: datetime) -> str:
    """Return a unique name for a run."""
    return f"{started:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run on a fabric or in virtual time, as the user requested it.

    Attributes:
        experiment: Experiment to run or simulate.
        text: The text of the experiment file, for the run directory.
        runs_directory: Folder of all run directories.
        progress: The progress display.
        plan_file: A saved plan to take the programs from, instead of the traces.
        alone: The only job to run, or None for all jobs. The job keeps its placement
            among the other jobs.
        launch: Options for launching agents. None if they already listen.
        banners: Warnings for readers of the results.
        jobs_file: File with the names of the jobs that may begin iterations, or None
            for all jobs. The file may change during the run.
    """

    experiment: Experiment
    text: str
    runs_directory: Path
    progress: Progress
    plan_file: Path | None = None
    alone: str | None = None
    launch: LaunchOptions | None = None
    banners: tuple[str, ...] = ()
    jobs_file: Path | None = None

    def resolve(self) -> ResolvedRun:
        """Return the resolved run, with the programs of the saved plan, if any."""
        self.progress.phase(
            "reading traces" if self.plan_file is None else "reading the plan"
        )
        return load_run(self.experiment, plan_file=self.plan_file)

    def new_directory(
        self,
        resolved: ResolvedRun,
        run_id: str,
        *,
        started: datetime,
        world: str | None = None,
    ) -> RunDirectory:
        """Create the run directory, with *world* set for a run without the fabric."""
        manifest = manifest_of(
            resolved,
            run_id=run_id,
            started=started,
            world=world,
            alone=self.alone,
        )
        return RunDirectory.create(
            self.runs_directory,
            manifest=replace(manifest, banners=(*self.banners, *manifest.banners)),
            started=started,
            experiment_text=self.text,
        )
