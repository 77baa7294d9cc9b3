"""When faults of links begin, and what is noted of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from chakram.foundation.errors import ConfigError
from chakram.predict.simulator.switch_fabric import port_names
from chakram.records.named_rows import OperationTable
from chakram.records.row_layout import FlowRow, IterationRow, RecordRows, rows_of

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.config.link_faults import LinkFaultSettings, Moment
    from chakram.plan.plan import Plan
    from chakram.predict.simulator.run_plan import SimulationResult
    from chakram.switch.faults import LinkFault
    from chakram.topology.topology import Topology

    Simulate = Callable[[Sequence[LinkFault]], SimulationResult]


class LinkFaults:
    """The faults of an experiment, once it is known when each begins.

    Args:
        settings: As the experiment says them.
        topology: Has their links.
        start_ns: When the run begins.
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
        """Return those of which it is known, for a model of the topology."""
        return self._faults(range(len(self._settings)))

    def beginning(
        self, iterations: Iterable[tuple[str, int]], now_ns: int
    ) -> list[LinkFault]:
        """Return those that begin now, with an iteration of a job that has begun.

        Args:
            iterations: By job, those that ranks are in.
            now_ns: When that was heard.
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
        """Let what has not begun by now, when the run is over, never begin."""
        self.times_ns = [
            None if at_ns is None or at_ns >= now_ns else at_ns
            for at_ns in self.times_ns
        ]

    @property
    def all_began(self) -> bool:
        """Whether it is known of all when they begin."""
        return None not in self.times_ns

    def banners(self) -> tuple[str, ...]:
        """Return what is to be said of those that never began."""
        return tuple(
            f"fault: faults.links[{index}] never began: {each.describe()}"
            for index, each in enumerate(self._settings)
            if self.times_ns[index] is None
        )

    def described(self, words: Sequence[LinkFaultSettings]) -> tuple[Any, ...]:
        """Return what ``run.json`` says of each, in *words* of the experiment."""
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
    """Refuse faults of links that cannot happen in a run.

    Raises:
        ConfigError: It names the first.
    """
    kinds = experiment.fabric.fault_kinds
    for index, each in enumerate(experiment.faults.links):
        if not kinds:
            raise ConfigError(
                "faults.links",
                "nobody can disturb the links of this fabric in a run",
                "chakram simulate; or fabric.kind: namespaces",
            )
        if each.kind not in kinds:
            raise ConfigError(
                f"faults.links[{index}].kind",
                f"the kernel's switches know no {each.kind}",
                "fabric.switch: model; or chakram simulate",
            )
        if each.when is not None and each.when.is_of_messages:
            raise ConfigError(
                f"faults.links[{index}].when",
                "messages are known beforehand in simulations only",
                "give an iteration, or at: the time from the start of the run",
            )


def simulated_with(
    faults: LinkFaults,
    settings: Sequence[LinkFaultSettings],
    plan: Plan,
    simulate: Simulate,
    *,
    may_never_begin: bool = False,
) -> SimulationResult:
    """Simulate a plan whose faults begin at times, or with what a job does.

    Until a fault begins, a simulation with it is the one without it: so a moment is
    looked up in that one, the earliest of several first.

    Args:
        faults: Told when each begins.
        settings: Theirs.
        plan: What is simulated.
        simulate: Simulates it with what is known to happen.
        may_never_begin: Whether there may be no such moment, as in a run.

    Raises:
        ConfigError: If there is none, and has to be.
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
                "never comes: the run has no such "
                + ("message" if settings[missing].when.is_of_messages else "iteration"),  # type: ignore[union-attr] # it has one
                "compare with flows.parquet of a run without the fault",
            )
        else:
            faults.end(result.end_ns)
            return result


def _moment_ns(when: Moment, records: RecordRows, table: OperationTable) -> int | None:
    """Return when something first happens; None: it never does."""
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
        and when.group in (None, each.key.group)
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
