"""Start times of link faults, and their description in ``run.json``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from chakram.collectives.groups import POINT_TO_POINT
from chakram.foundation.errors import ConfigError
from chakram.plan.plan import Plan
from chakram.predict.simulator.run_plan import SimulationResult
from chakram.predict.simulator.switch_fabric import port_names
from chakram.records.named_rows import OperationTable
from chakram.records.row_layout import FlowRow, IterationRow, RecordRows, rows_of
from chakram.switch.faults import LinkFault
from chakram.topology.topology import Topology

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.config.link_faults import LinkFaultSettings, Moment

    Simulate = Callable[[Sequence[LinkFault]], SimulationResult]


class LinkFaults:
    """The link faults of an experiment, with their start times if known.

    Args:
        settings: The faults as the experiment specifies them.
        topology: The topology that contains the links.
        start_ns: Start time of the run.
    """

    def __init__(
        self,
        settings: Sequence[LinkFaultSettings],
        topology: Topology,
        start_ns: int = 0,
    ) -> None:
        self._settings = settings
        self._links = {link.name: link for link in topology.links}
        self._ports = {name: at for at, name in enumerate(port_names(topology))}
        self.times_ns: list[int | None] = [
            None if each.when is not None else start_ns + (each.at_ns or 0)
            for each in settings
        ]

    def happening(self) -> list[LinkFault]:
        """Return the faults whose start time is known."""
        return self._faults(range(len(self._settings)))

    def beginning(
        self, iterations: Iterable[tuple[str, int]], now_ns: int
    ) -> list[LinkFault]:
        """Return the faults that start now because a job has begun an iteration.

        Args:
            iterations: Pairs of job and iteration that ranks have reached.
            now_ns: Time at which agents reported these pairs.
        """
        begun = [
            index
            for index, each in enumerate(self._settings)
            if each.when is not None and self.times_ns[index] is None
            for job, iteration in iterations
            if each.when.job in (None, job) and iteration >= (each.when.iteration or 0)
        ]
        for index in begun:
            self.times_ns[index] = now_ns
        return self._faults(dict.fromkeys(begun))

    def _faults(self, indexes: Iterable[int]) -> list[LinkFault]:
        found = [(self._settings[index], self.times_ns[index]) for index in indexes]
        return [
            fault
            for each, at_ns in found
            if at_ns is not None
            for fault in each.faults(self._ports, self._links[each.link], at_ns)
        ]

    def end(self, now_ns: int) -> None:
        """Mark faults that did not start before the end of the run as never started."""
        self.times_ns = [
            None if at_ns is None or at_ns >= now_ns else at_ns
            for at_ns in self.times_ns
        ]

    def banners(self) -> tuple[str, ...]:
        """Return the banners about faults that never started."""
        return tuple(
            f"fault: faults.links[{index}] never started: {each.describe()}"
            for index, each in enumerate(self._settings)
            if self.times_ns[index] is None
        )

    def described(self, words: Sequence[LinkFaultSettings]) -> tuple[Any, ...]:
        """Return the entries for ``run.json`` that describe the settings *words*."""
        return tuple(
            {
                "fault": said.describe(),
                "kind": each.kind,
                "link": each.link,
                "ports": each.ends(self._links[each.link]),
                "at_ns": at_ns,
                "until_ns": None
                if each.duration_ns is None or at_ns is None
                else at_ns + each.duration_ns,
            }
            for each, said, at_ns in zip(
                self._settings, words, self.times_ns, strict=True
            )
        )


def refuse_faults_of_runs(experiment: Experiment) -> None:
    """Refuse link faults that cannot be injected in a run.

    Raises:
        ConfigError: For the first such fault.
    """
    kinds = experiment.fabric.fault_kinds
    for index, each in enumerate(experiment.faults.links):
        if not kinds:
            raise ConfigError(
                "faults.links",
                "a run on this fabric cannot inject link faults",
                "use chakram simulate, or fabric.kind: namespaces",
            )
        if each.kind not in kinds:
            raise ConfigError(
                f"faults.links[{index}].kind",
                f"the kernel's switches do not support {each.kind}",
                "set fabric.switch: model, or use chakram simulate",
            )
        if each.when is not None and each.when.is_of_messages:
            raise ConfigError(
                f"faults.links[{index}].when",
                "only simulations know the times of messages in advance",
                "give an iteration, or a time from the start of the run (at)",
            )


def simulated_with(
    faults: LinkFaults,
    settings: Sequence[LinkFaultSettings],
    plan: Plan,
    simulate: Simulate,
    *,
    may_never_begin: bool = False,
) -> SimulationResult:
    """Simulate a plan whose faults start at fixed times or at events of a job.

    Before a fault starts, simulations with and without it are identical. So a
    simulation without that fault gives the time of the event that starts it. Events are
    handled in the order of their times.

    Args:
        faults: Object that stores the start time of each fault.
        settings: The settings of the faults.
        plan: The plan to simulate.
        simulate: Function that simulates the plan with the faults known so far.
        may_never_begin: Whether an event may never occur, as in a run on a network.

    Raises:
        ConfigError: If an event never occurs although it must.
        RunFailed: If the simulation does not end.
    """
    table = OperationTable(plan)
    while True:
        result = simulate(faults.happening())
        found: list[tuple[int, int]] = []
        missing = None
        for index, at_ns in enumerate(faults.times_ns):
            when = settings[index].when
            if at_ns is not None or when is None:
                continue
            moment_ns = _moment_ns(when, result.records, table)
            if moment_ns is None:
                missing = index
            else:
                found.append((moment_ns, index))
        if found:
            moment_ns, index = min(found)
            faults.times_ns[index] = moment_ns + 1
        elif missing is not None and not may_never_begin:
            raise ConfigError(
                f"faults.links[{missing}].when",
                "never occurs: the run has no such "
                + ("message" if settings[missing].when.is_of_messages else "iteration"),  # type: ignore[union-attr] # it has one
                "choose one from flows.parquet of a run without the fault",
            )
        else:
            faults.end(result.end_ns)
            return result


def _kind_of(group: str) -> str:
    """Return ``p2p`` for the messages between two ranks, else the group itself."""
    kind = group.partition(":")[0]
    return kind if kind == POINT_TO_POINT else group


def _moment_ns(when: Moment, records: RecordRows, table: OperationTable) -> int | None:
    """Return the time when an event first occurs, or None if it never does."""
    if not when.is_of_messages:
        return min(
            (
                row.start_ns
                for row in rows_of(IterationRow, records.iterations)
                if row.iteration == when.iteration
                and when.job in (None, table.rank(row.rank)[0])
            ),
            default=None,
        )
    fits = [
        when.job in (None, each.key.job)
        and when.group in (None, each.key.group, _kind_of(each.key.group))
        and when.collective in (None, each.op)
        and when.k in (None, each.key.k)
        for each in table.identities
    ]
    return min(
        (
            row.posted_ns
            for row in rows_of(FlowRow, records.flows)
            if when.iteration in (None, row.iteration)
            and when.step in (None, row.step)
            and fits[table.identity_of[table.first[row.rank] + row.operation]]
        ),
        default=None,
    )
