"""What somebody wants to be run, and what every kind of run begins with."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.preparation.planning import build_plan, transport_plan
from chakram.preparation.run_description import manifest_of
from chakram.preparation.saved_plans import jobs_of
from chakram.run_directory.writer import RunDirectory

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.execution.observer import Progress
    from chakram.plan.plan import Plan, PortPlan
    from chakram.preparation.job_loading import LoadedJob


def new_run_id(started: datetime) -> str:
    """Return what tells a run from all others."""
    return f"{started:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What is to be run, on a fabric or in virtual time.

    Attributes:
        experiment: What to run.
        text: Its file, word for word, for the run directory.
        runs_directory: Folder of all run directories.
        progress: Told how far it is.
        plan_file: A saved plan to take programs from, instead of the traces.
        alone: The one job that is run, where it is placed beside the others; None: all.
    """

    experiment: Experiment
    text: str
    runs_directory: Path
    progress: Progress
    plan_file: Path | None = None
    alone: str | None = None

    def jobs(self) -> list[LoadedJob]:
        """Return the jobs, from the saved plan or from their traces."""
        self.progress.phase(
            "reading traces" if self.plan_file is None else "reading the plan"
        )
        return jobs_of(self.experiment, self.plan_file)

    def plan(
        self,
        jobs: Sequence[LoadedJob],
        ports: Sequence[PortPlan],
        run_id: str,
        *,
        psn_seed: int | None = None,
        connected: bool = True,
    ) -> Plan:
        """Return the plan of the run over *ports*; see ``build_plan``."""
        return build_plan(
            self.experiment,
            jobs,
            ports,
            run_id,
            alone=self.alone,
            psn_seed=psn_seed,
            connected=connected,
        )

    def new_directory(
        self,
        jobs: Sequence[LoadedJob],
        run_id: str,
        *,
        started: datetime,
        world: str | None = None,
    ) -> RunDirectory:
        """Make the run directory; *world* is where it runs, if not on its fabric."""
        manifest = manifest_of(
            self.experiment,
            jobs,
            transport_plan(self.experiment),
            run_id=run_id,
            started=started,
            world=world,
            alone=self.alone,
        )
        return RunDirectory.create(
            self.runs_directory,
            manifest=manifest,
            started=started,
            experiment_text=self.text,
        )
