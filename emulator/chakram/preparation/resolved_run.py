"""An experiment with all derived settings, the starting point of every kind of run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.collectives.groups import POINT_TO_POINT
from chakram.config.transport_checks import check_packet_faults
from chakram.foundation.errors import PlanError
from chakram.foundation.grouping import grouped
from chakram.plan.isolated_collective import job_alone
from chakram.plan.placement import place
from chakram.plan.plan_check import check_plan
from chakram.preparation.experiment_warnings import experiment_warnings
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.plan_settings import (
    ports_needed,
    queue_pair_layout,
    run_settings,
    shards_of,
    transport_plan,
)
from chakram.preparation.plugin_versions import with_plug_ins
from chakram.program.columns import COLLECTIVE, RECEIVE, SEND
from chakram.settings.located_errors import report

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from chakram.config.experiment import Experiment
    from chakram.plan.plan import Plan, RunSettings
    from chakram.plan.port_plan import PortPlan
    from chakram.plan.queue_pairs import QueuePairLayout
    from chakram.plan.transport import TransportPlan
    from chakram.preparation.job_loading import LoadedJob
    from chakram.program.operations import RankProgram
    from chakram.topology.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRun:
    """An experiment with its jobs loaded and its settings derived.

    `run`, `simulate`, `plan`, `preflight` and `sweep` all start from a ``ResolvedRun``,
    so that each setting is derived in one place.

    Attributes:
        experiment: The experiment.
        jobs: Loaded jobs of the experiment. Empty for a preflight, which needs no
            trace.
        transport: Settings of every queue pair.
        settings: Settings of the run that all agents share.
        layout: Number of queue pairs between two ranks, and their source ports.
    """

    experiment: Experiment
    jobs: tuple[LoadedJob, ...]
    transport: TransportPlan
    settings: RunSettings
    layout: QueuePairLayout

    @property
    def ports_needed(self) -> int:
        """Minimum number of ports that the ranks of all jobs need."""
        return ports_needed(self.jobs)

    def topology(self) -> Topology | None:
        """Return the topology of the fabric, or None if the experiment has none."""
        return self.experiment.fabric.to_topology(self.ports_needed)

    def warnings(self) -> list[str]:
        """Return warnings about settings that may have unexpected effects."""
        return experiment_warnings(self.experiment, self.transport)

    def expected_plan(self, run_id: str, *, alone: str | None = None) -> Plan:
        """Return the plan of a run over the ports that are known before the run starts.

        Raises:
            FabricError: If the fabric cannot have that shape.
            PlanError: As for `plan`.
        """
        ports = self.experiment.fabric.planned_ports(self.ports_needed)
        return self.plan(ports, run_id, alone=alone)

    def plan(
        self,
        ports: Sequence[PortPlan],
        run_id: str,
        *,
        shards: Mapping[str, int] | None = None,
        alone: str | None = None,
        psn_seed: int | None = None,
        connected: bool = True,
    ) -> Plan:
        """Return the plan of a run over *ports*.

        Args:
            ports: All ports, in the order in which ranks are placed on them.
            run_id: Name of the run.
            shards: Number of data-plane processes by agent. The default is the result
                of ``shards_of``.
            alone: The only job to run, or None for all jobs. The job keeps its
                placement among the other jobs.
            psn_seed: Seed of the first PSNs. The default is ``psn_seed`` of the
                experiment, or ``seed`` if that is not set.
            connected: Whether ranks get queue pairs.

        Raises:
            PlanError: If the ranks do not fit onto the ports.
        """
        experiment = self.experiment
        hosts = experiment.fabric.host_names(len(ports))
        plan = place(
            {job.name: job.programs for job in self.jobs},
            ports,
            {job.name: job.placement for job in self.jobs},
            self.transport,
            self.settings,
            shards=shards_of(experiment, ports) if shards is None else shards,
            run_id=run_id,
            layout=self.layout,
            near=self._neighborhood(len(ports)),
            host_of=lambda port: hosts[port.number],
            psn_seed=experiment.transport.psn_seed if psn_seed is None else psn_seed,
            connected=connected,
        )
        self._check_packet_faults()
        plan = with_plug_ins(plan, experiment)
        if alone is not None:
            plan = job_alone(plan, alone)
        self._refuse_endless(plan, hosts)
        problems = check_plan(plan)
        if problems:
            raise PlanError.of_problems(f"plan {run_id}", problems)
        return plan

    def _neighborhood(self, nports: int) -> Callable[[PortPlan], str]:
        """Return a function that maps a port to its switch, or else to its agent."""
        topology = self.experiment.fabric.to_topology(nports)
        if topology is None:
            return lambda port: port.agent
        switch_of = {host: topology.switch_of(host) for host in topology.hosts}
        return lambda port: switch_of.get(port.host, port.agent)

    def _refuse_endless(self, plan: Plan, hosts: Sequence[str]) -> None:
        """Refuse background jobs that would repeat forever without advancing time."""
        settings = plan.agents[0].settings
        for job in self.jobs:
            own = settings.of(job.name)
            if (
                not own.is_background
                or own.order != "dependencies"
                or settings.gap_ns
                or job.placement.local_rate_bps != 0
            ):
                continue
            programs_of = grouped(
                (hosts[rank.port], rank.program)
                for rank in plan.ranks()
                if rank.program.job == job.name
            )
            if any(map(_takes_no_time, programs_of.values())):
                raise PlanError(
                    f"job {job.name}",
                    "repeats until others end, but takes no time on a host: there, its "
                    "messages stay within the host, and it does not compute",
                    "set placement.local_rate, a number of repetitions, or "
                    "placement.same_host: fabric",
                )

    def _check_packet_faults(self) -> None:
        """Refuse packet faults for ranks or groups that do not exist."""
        ranks_of = {job.name: job.nranks for job in self.jobs}
        groups_of = {
            job.name: {
                POINT_TO_POINT,
                *(group.name for program in job.programs for group in program.groups),
            }
            for job in self.jobs
        }
        faults = self.experiment.faults
        mistakes = list(check_packet_faults(faults, ranks_of, groups_of))
        if mistakes:
            raise report(self.experiment.name, mistakes, lambda _: None)


def _takes_no_time(programs: Sequence[RankProgram]) -> bool:
    """Return whether ranks communicate only with one another and do not compute."""
    partners: set[int] = set()
    for program in programs:
        columns = program.columns
        if columns.compute_ns:
            return False
        for row in columns.rows_of(COLLECTIVE):
            partners.update(program.groups[columns.targets[row]].ranks)
        for row in columns.rows_of(SEND, RECEIVE):
            partners.add(program.peers[columns.targets[row]])
    # Idle ranks do not repeat.
    return bool(partners) and partners <= {program.rank for program in programs}


def resolve(experiment: Experiment, jobs: Sequence[LoadedJob] = ()) -> ResolvedRun:
    """Return *experiment* with all settings derived, for loaded *jobs*."""
    return ResolvedRun(
        experiment=experiment,
        jobs=tuple(jobs),
        transport=transport_plan(experiment),
        settings=run_settings(experiment),
        layout=queue_pair_layout(experiment),
    )


def load_run(
    experiment: Experiment,
    *,
    plan_file: Path | None = None,
    workers: Executor | None = None,
) -> ResolvedRun:
    """Load the jobs of an experiment and resolve it.

    Args:
        experiment: The experiment.
        plan_file: A saved plan to take the programs from, instead of the traces.
        workers: Processes that read traces in parallel. None means this process.

    Raises:
        ChakramError: If a trace or the plan cannot be read (see ``load_jobs`` and
            ``load_plan``).
    """
    if plan_file is not None:
        # The protobuf code of saved plans is slow to import.
        from chakram.preparation.saved_plans import load_plan

        return resolve(experiment, load_plan(plan_file, experiment))
    return resolve(experiment, load_jobs(experiment, workers=workers))
