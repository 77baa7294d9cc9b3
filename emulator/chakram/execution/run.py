"""Execution of one run: fabric, predictions, agents, session, and records."""

from __future__ import annotations

import asyncio
import secrets
import time
from array import array
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chakram.control.time_daemons import time_source, wall_ahead_ns
from chakram.control.wall_clock_sync import disagreement
from chakram.execution.agents_of_run import AgentsOfRun, agents_of_run
from chakram.execution.clock_watch import ClockWatch
from chakram.execution.concurrent_calls import call_all
from chakram.execution.fabric_counters import (
    disagreements,
    link_records,
    merged,
    switch_banners,
)
from chakram.execution.observer import Observer
from chakram.execution.preflight_run import preflight_failed
from chakram.execution.preflight_session import Preflight
from chakram.execution.run_predictions import RunPredictions
from chakram.execution.session import Session
from chakram.fabric.fabric_types.base import WorldRequest
from chakram.fabric.labs.link_counters import LabCounters
from chakram.foundation.errors import ChakramError, FabricError
from chakram.plan.plan_check import refuse_large_agents
from chakram.predict.simulator.switch_fabric import port_names
from chakram.preparation.link_fault_times import LinkFaults
from chakram.preparation.link_records import directions_of
from chakram.preparation.predictions import (
    early_timeouts,
)
from chakram.preparation.run_description import (
    Reference,
    agent_banners,
    agent_facts,
    faults_disturbed,
    injected_banners,
    invalid_banners,
    verification_banners,
)
from chakram.records.counter_slots import INJECTED, INVALID
from chakram.records.named_rows import OperationTable
from chakram.run_directory import agent_logs
from chakram.run_directory.added_flow_columns import MessageColumns, paths_of_sockets
from chakram.run_directory.manifest import COMPLETE, FAILED, PARTIAL, ClockReading
from chakram.run_directory.missing_nic_values import nic_ends, with_counters
from chakram.run_directory.preflight_files import preflight_summary, save_preflight
from chakram.summary.host_anomalies import host_anomalies
from chakram.telemetry.collector import Collector

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.control.client import AgentClient
    from chakram.control.clock_track import ClockTrack
    from chakram.control.events import AgentDescription
    from chakram.control.wall_clock_sync import TimeSource
    from chakram.execution.interrupts import Interrupts
    from chakram.execution.request import RunRequest
    from chakram.fabric.fabric_types.base import AgentPlace, World
    from chakram.metrics.live_samples_json import LiveRows
    from chakram.metrics.state import MetricsState
    from chakram.plan.plan import Plan
    from chakram.preparation.resolved_run import ResolvedRun
    from chakram.records.run_records import LinkRecord
    from chakram.run_directory.writer import RunDirectory


_LINKS_INTERVAL_S = 1
_PSN_SEED_BITS = 53
"""Maximum number of bits of an integer that every JSON reader preserves."""
_INJECTED = {name: f"injected_{name}" for name in INJECTED}
_INVALID = {name: f"invalid_{name}" for name in INVALID}
_VERIFIED = {
    "packets": "verified_packets",
    "icrc_errors": "invalid_icrc",
    "wrong_payloads": "wrong_payload_packets",
}
"""Counters of all agents, by their names in ``run.json``."""
_RESENT = {"timeout": "retransmitted_packets_timeout"}
_LOSSES = {name: name for name in ("nak_sent", "nak_received")}
_ON_WIRE = {name: name for name in ("tx_packets", "rx_packets")}


def _readings(
    clocks: Mapping[str, ClockTrack], sources: Mapping[str, TimeSource | None]
) -> dict[str, ClockReading]:
    """Return the facts for ``run.json`` about the agents' clocks."""
    readings = {}
    for name, each in clocks.items():
        source = sources.get(name)
        if source is not None and not source.is_synchronized:
            source = None
        readings[name] = ClockReading(
            offset_ns=-round(each.line.offset_ns),
            uncertainty_ns=each.uncertainty_ns,
            drift_ppm=each.segments[-1].drift_ppm if each.segments else 0.0,
            steps=max(0, len(each.segments) - 1),
            wall_source=source.name if source else None,
            wall_offset_ns=source.offset_ns if source else None,
            wall_bound_ns=source.bound_ns if source else None,
        )
    return readings


def _disagreements(
    descriptions: Mapping[str, AgentDescription],
    clocks: Mapping[str, ClockTrack],
    own_source: TimeSource | None,
    wall_ahead_ns: int,
) -> list[str]:
    """Return warnings about hosts whose pings contradict chrony.

    Args:
        descriptions: Descriptions of the agents, by name.
        clocks: Models of their clocks.
        own_source: Program that synchronizes the controller's wall clock.
        wall_ahead_ns: How far that wall clock is ahead of the controller's monotonic
            clock.
    """
    found = (
        disagreement(
            name,
            ahead_ns=round(track.line.offset_ns)
            + descriptions[name].wall_ahead_ns
            - wall_ahead_ns,
            uncertainty_ns=track.uncertainty_ns,
            sources=(own_source, descriptions[name].time_source),
        )
        for name, track in clocks.items()
        if track.samples
    )
    return [each for each in found if each is not None]


def psn_seed_of(experiment: Experiment) -> int:
    """Return the seed of the first PSNs of a run.

    By default, the seed is random, so that an attacker cannot derive PSNs in flight
    from the experiment.
    """
    psn_seed = experiment.transport.psn_seed
    return secrets.randbits(_PSN_SEED_BITS) if psn_seed is None else psn_seed


@dataclass(eq=False)
class Run:
    """One run, from loaded jobs to a finished run directory."""

    request: RunRequest
    resolved: ResolvedRun
    directory: RunDirectory
    metrics: MetricsState
    interrupts: Interrupts
    _: KW_ONLY
    live: LiveRows | None
    iterations: int
    _world: World | None = None
    _clocks: Mapping[str, ClockTrack] = field(default_factory=dict)
    _time_sources: Mapping[str, TimeSource | None] = field(default_factory=dict)
    _nic_ends: set[tuple[str, int]] = field(default_factory=set)
    _counters: tuple[LabCounters, LabCounters] = (LabCounters(), LabCounters())
    _late_ns: int = 0
    _began_ns: int = field(default_factory=time.monotonic_ns)
    _link_faults: LinkFaults | None = None
    _table: OperationTable | None = None
    _uncounted: tuple[str, ...] = ()
    _collector: Collector | None = None
    reference: Reference = field(default_factory=Reference)
    error: ChakramError | None = None

    def __post_init__(self) -> None:
        self._experiment = self.request.experiment
        self._progress = self.request.progress
        self._run_id = self.directory.manifest.run_id
        self._psn_seed = psn_seed_of(self._experiment)
        self._observer = Observer(
            self.directory, self.metrics, self._progress, self.iterations, self.live
        )
        self._agents = AgentsOfRun(None)
        self._predictions = RunPredictions(
            self._experiment, self.reference, self.metrics, self._progress
        )

    @property
    def began(self) -> bool:
        """Whether traffic was started. If not, there are no results."""
        return self._observer.began

    async def execute(self) -> None:
        """Build the fabric, execute the run on it, and tear the fabric down."""
        experiment = self._experiment
        self._progress.phase("building the fabric")
        async with AsyncExitStack() as stack:
            world = await stack.enter_async_context(
                experiment.fabric.open(
                    WorldRequest(
                        seed=experiment.seed,
                        nports=self.resolved.ports_needed,
                        processes=experiment.agents.shards,
                        lab_name=experiment.lab_name,
                        logs=self.directory.path,
                    )
                )
            )
            self._world = world
            if world.lab is not None and world.lab.lifetime == "up":
                self._progress.note(f"using the running lab {experiment.lab_name}")
            plan = await asyncio.to_thread(
                self.resolved.plan,
                world.ports,
                self._run_id,
                alone=self.request.alone,
                psn_seed=self._psn_seed,
            )
            refuse_large_agents(plan)
            names = {agent.agent for agent in plan.agents}
            places = [place for place in world.agents if place.name in names]
            agents = await stack.enter_async_context(
                agents_of_run(
                    places,
                    launch=self.request.launch,
                    allow=experiment.fabric.launched_allow(),
                    logs=self.directory.path / agent_logs.FOLDER,
                    progress=self._progress,
                )
            )
            self._agents = agents

            async def connect(place: AgentPlace) -> AgentClient:
                return await stack.enter_async_context(await agents.connect(place))

            # Predictions may take minutes. So connect first, to fail early if a
            # certificate is missing, or if an agent does not listen or has another
            # version.
            connected = await call_all(connect, places)
            clients = {client.name: client for client in connected}
            agents.check(clients)
            await self._open_telemetry(stack, world)
            pings = await stack.enter_async_context(ClockWatch(clients))
            self._clocks = clocks = pings.tracks
            await self._predictions.predict(plan, world)
            await self._predictions.announce(plan, world.topology)
            await pings.start()
            if experiment.preflight.action != "off":
                await self._preflight(plan, clients, clocks)
            own_source = await time_source() if pings.is_needed else None
            self._begin(plan, world, clients, clocks, own_source)
            if self._collector is not None:
                self._progress.phase("waiting for counters of switches")
                await self._collector.begin()
            before = await world.counters()
            sample_bin_ns = experiment.records.sample_bin_ns
            if experiment.fabric.is_modeled:
                await world.sample_links(sample_bin_ns)
            session = Session(
                plans={agent.agent: agent for agent in plan.agents},
                clients=clients,
                clocks=clocks,
                observer=self._observer,
                hang_timeout_ns=experiment.hang_timeout_ns,
                iterations_of=plan.iterations_of(),
                duration_limit_ns=experiment.stop_if.duration_ns,
                starting=self._begin_faults if experiment.faults.links else None,
                progressed=self._begin_more_faults,
                jobs_file=self.request.jobs_file,
            )
            self._progress.phase("preparing agents")
            await self._attend(session, world, before)
            await self._predictions.add_host_delays(
                plan, world, self._observer.round_trips_ns(), self.interrupts
            )
            self._progress.phase("collecting")

    async def _attend(
        self,
        session: Session,
        world: World,
        before: LabCounters,
    ) -> None:
        """Run the session while watching its links and the launcher of its agents."""
        watch = asyncio.create_task(self._watch_links(world, before), name="links")
        is_complete = False
        try:
            with self.interrupts.heard_by(session.interrupt):
                async with self._agents.watched(session.abort):
                    await session.run()
            is_complete = True
        finally:
            if self._link_faults is not None:
                self._link_faults.end(time.monotonic_ns())
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            await self._count_links(world, before)
            if self._collector is not None:
                self._progress.phase("waiting for counters of switches")
                await self._collector.end(is_patient=is_complete)
            # An error here must not hide how the run ended.
            with suppress(FabricError):
                if self._experiment.faults.links:
                    await world.disturb_links(())
                self.directory.add_link_samples(await self._samples(world))

    async def _open_telemetry(self, stack: AsyncExitStack, world: World) -> None:
        """Start to read the switches, if the experiment requests their counters."""
        if world.telemetry is None or world.topology is None:
            return
        self._progress.phase("connecting to switches")
        collector = Collector(world.telemetry, world.topology)
        self._collector = await stack.enter_async_context(collector)

    async def _samples(self, world: World) -> array[int]:
        """Return the samples of the links, as rows of ``LINK_SAMPLE_FIELDS``."""
        if self._collector is not None and world.topology is not None:
            return self._collector.samples(port_names(world.topology))
        if self._experiment.fabric.is_modeled:
            return await world.link_samples()
        return array("q")

    def _links(self, before: LabCounters, after: LabCounters) -> list[LinkRecord]:
        """Return the traffic of the links so far."""
        topology = self._world.topology if self._world is not None else None
        if topology is None:
            return []
        counted = link_records(topology, before, after)
        if self._collector is None:
            return counted
        return merged(counted, self._collector.links(directions_of(topology)))

    async def _begin_faults(self, start_ns: int) -> None:
        """Schedule the link faults whose start time is known."""
        world = self._world
        assert world is not None
        assert world.topology is not None
        faults = LinkFaults(self._experiment.faults.links, world.topology, start_ns)
        self._link_faults = faults
        if world.lab is not None and world.lab.lifetime == "up":
            # An earlier run that was killed may have left its faults active.
            await world.disturb_links(())
        await world.disturb_links(faults.happening())

    def _begin_more_faults(
        self, iterations: Sequence[tuple[int, int]]
    ) -> Coroutine[object, object, None] | None:
        """Return a coroutine that starts the link faults of *iterations*, if any."""
        faults, table, world = self._link_faults, self._table, self._world
        if faults is None or table is None or world is None:
            return None
        if None not in faults.times_ns:
            return None  # all faults have begun
        begun = {(table.rank(number)[0], each) for number, each in iterations}
        beginning = faults.beginning(begun, time.monotonic_ns())
        return world.disturb_links(beginning) if beginning else None

    async def _count_links(self, world: World, before: LabCounters) -> None:
        """Read the final counters of the links.

        An error here does not fail the run, because its measurements are available.
        """
        try:
            self._counters = (before, await self._read_counters(world, before))
        except FabricError as error:
            self._uncounted = (f"the counters of the links are unknown: {error}",)

    async def _preflight(
        self,
        plan: Plan,
        clients: Mapping[str, AgentClient],
        clocks: Mapping[str, ClockTrack],
    ) -> None:
        """Test the ports before the run.

        Raises:
            PreflightFailed: If a test failed and the experiment requires it to pass.
        """
        preflight = Preflight(
            self.resolved,
            ports=plan.ports(),
            clients=clients,
            clocks=clocks,
            progress=self._progress,
            interrupts=self.interrupts,
            run_id=self._run_id,
        )
        async with self._agents.watched(preflight.abort):
            report = await preflight.run()
        save_preflight(
            self.directory.path,
            report,
            run_id=self._run_id,
            dilation=self._experiment.dilation,
        )
        self.metrics.set_preflight(report.findings)
        minds = self._experiment.preflight.action == "require"
        self.directory.update(
            preflight=preflight_summary(report),
            banners=(
                *self.directory.manifest.banners,
                *(f"preflight: {finding}" for finding in report.findings),
            ),
        )
        for finding in report.findings:
            self._progress.note(f"preflight: {finding.verdict} {finding}")
        error = preflight_failed(report)
        if error is not None and minds:
            raise error

    async def _read_counters(self, world: World, before: LabCounters) -> LabCounters:
        """Return the counters of the fabric, and update the metrics of switches."""
        counters = await world.counters()
        if world.topology is not None and counters.ports:
            self.metrics.set_switches(world.topology, counters, before)
            self._late_ns = max(self._late_ns, counters.process["late_ns"])
        return counters

    async def _watch_links(self, world: World, before: LabCounters) -> None:
        """Keep the metrics of the links up to date, if they are exported."""
        topology = world.topology
        collector = self._collector
        is_counted = before.links or collector is not None
        if self.live is None or topology is None or not is_counted:
            return
        # Export zeros first, because rates need the first value of a counter.
        self._show_links(self._links(before, before))
        if before.ports:
            self.metrics.set_switches(topology, before, before)
        if collector is not None:
            self.metrics.set_reported(collector.classes())
        while True:
            await asyncio.sleep(_LINKS_INTERVAL_S)
            counters = await self._read_counters(world, before)
            if collector is not None:
                self.metrics.set_reported(collector.classes())
            self._show_links(self._links(before, counters))

    def _show_links(self, links: Sequence[LinkRecord]) -> None:
        for link in links:
            self.metrics.set_link_bytes(link.link, link.direction, link.bytes)

    def _begin(
        self,
        plan: Plan,
        world: World,
        clients: Mapping[str, AgentClient],
        clocks: Mapping[str, ClockTrack],
        own_source: TimeSource | None,
    ) -> None:
        unix_offset_ns = wall_ahead_ns(time.monotonic_ns)
        descriptions = {
            name: client.description for name, client in sorted(clients.items())
        }
        self._time_sources = {
            name: each.time_source for name, each in descriptions.items()
        }
        self.directory.update(
            unix_offset_ns=unix_offset_ns,
            clocks=_readings(clocks, self._time_sources),
            banners=(
                *self.directory.manifest.banners,
                *world.notes,
                *agent_banners(descriptions),
                *_disagreements(descriptions, clocks, own_source, unix_offset_ns),
            ),
            agents={
                name: {**facts, **self._agents.facts(name)}
                for name, facts in agent_facts(descriptions).items()
            },
        )
        operations = self.directory.begin(
            plan,
            ports=[] if world.topology is None else port_names(world.topology),
        )
        self._table = operations
        self._nic_ends = nic_ends(plan)
        self._observer.begin(operations.identities, plan.planned_iterations())
        self.metrics.set_plan(plan)
        self.metrics.begin_collectives(operations.identities)
        self.metrics.set_epoch(unix_offset_ns * 1e-9)
        if self.live is not None:
            self.live.begin(plan.agents)
            self.metrics.begin_messages()
        self._show_clocks()

    def _show_clocks(self) -> None:
        """Update the metrics of the agents' clocks."""
        for name, reading in _readings(self._clocks, self._time_sources).items():
            self.metrics.set_clock(
                name,
                offset_ns=reading.offset_ns,
                uncertainty_ns=reading.uncertainty_ns,
                drift_ppm=reading.drift_ppm,
            )

    def _early_timeouts(
        self, injected: Mapping[str, int], links: Sequence[LinkRecord]
    ) -> tuple[str, ...]:
        """Return a note if timeouts caused retransmissions, but nothing was lost."""
        counted = self._observer.counted
        resent, on_wire = counted(_RESENT).get("timeout", 0), counted(_ON_WIRE)
        lost = sum(counted(_LOSSES).values()) + sum(injected.values())
        lost += sum(link.drops or 0 for link in links)
        missing = on_wire.get("tx_packets", 0) - on_wire.get("rx_packets", 0)
        return early_timeouts(resent, lost, missing)

    def _verification(self) -> dict[str, object]:
        """Return how packets were verified, and the results of the verification."""
        transport = self.resolved.transport
        found = (
            self._observer.counted(_VERIFIED) if self.directory.verifies_payload else {}
        )
        return {
            "every": transport.verify_every,
            # A NIC checks ICRCs itself.
            "has_icrcs": transport.icrc != "off" and not self.directory.manifest.nics,
            **{name: found.get(name, 0) for name in _VERIFIED},
        }

    def _telemetry_banners(self) -> list[str]:
        """Return warnings about what the switches reported."""
        collector, world = self._collector, self._world
        if collector is None or world is None or world.topology is None:
            return []
        counted = link_records(world.topology, *self._counters)
        reported = collector.links(directions_of(world.topology))
        return [*collector.banners(), *disagreements(counted, reported)]

    def _host_anomalies(self) -> list[str]:
        """Return warnings about the hosts of agents on other machines."""
        if self._experiment.fabric.on_this_machine:
            return []
        duration_ns = max(0, time.monotonic_ns() - self._began_ns)
        return [
            f"host of agent {agent}: {anomaly}"
            for agent, counts in sorted(self._observer.hosts.items())
            for anomaly in host_anomalies(counts, duration_ns)
        ]

    def finish(self, error: ChakramError | None) -> None:
        """Close the run directory, with *error* if the run is incomplete."""
        try:
            self._observer.close()
        except ChakramError as failure:
            error = error or failure
        self.error = error
        before, after = self._counters
        captures = self._world.captures if self._world is not None else None
        links = self._links(before, after)
        collector = self._collector
        faults = self._experiment.faults
        injected = self._observer.counted(_INJECTED)
        invalid = self._observer.counted(_INVALID)
        dropped = self._observer.counted({"records": "samples_dropped"})
        disturbed = self._observer.disturbed(len(faults.packets))
        self.directory.finish(
            COMPLETE if error is None else PARTIAL if self.began else FAILED,
            ended=datetime.now(UTC),
            reason=None if error is None else str(error),
            links=links,
            bound=self.reference.bounds,
            alone=self.reference.alone,
            ceiling=self.reference.ceilings,
            flow_bound=self.reference.flow_bound,
            messages=MessageColumns(
                self.reference.fair_times,
                paths_of_sockets(self.reference.ways, self._nic_ends),
            ),
            nics=with_counters(self.directory.manifest.nics, self._observer.nics),
            switches={} if collector is None else collector.described(),
            agents={
                name: {**facts, "counters": self._observer.hosts.get(name, {})}
                for name, facts in self.directory.manifest.agents.items()
            },
            predictions=self.reference.predictions,
            banners=(
                *self.directory.manifest.banners,
                *self._observer.banners,
                *self._uncounted,
                *switch_banners(before.process, after.process, self._late_ns),
                *self._telemetry_banners(),
                *self._host_anomalies(),
                *self.reference.notes,
                *(
                    injected_banners(
                        injected, disturbed, faults, alone=self.request.alone
                    )
                    if self.began
                    else ()
                ),
                *(self._link_faults.banners() if self._link_faults else ()),
                *(self._early_timeouts(injected, links) if error is None else ()),
                *invalid_banners(invalid),
                *verification_banners(self._observer.counted(_VERIFIED)),
                *(captures.banners() if captures is not None else ()),
            ),
            samples_dropped=dropped.get("records", 0),
            injected=injected,
            invalid=invalid,
            verification=self._verification(),
            psn_seed=self._psn_seed,
            packet_faults=faults_disturbed(disturbed, faults),
            link_faults=()
            if self._link_faults is None
            else self._link_faults.described(self._experiment.written.faults.links),
            generator=self._observer.generator(),
            clock_samples=self._clocks,
            clocks=_readings(self._clocks, self._time_sources),
        )
        self._show_clocks()
        self._show_links(links)
        if collector is not None:
            # Counters of classes may have arrived long after the last traffic.
            self.metrics.set_reported(collector.classes())
        self.metrics.set_state(self.directory.manifest.status)
        self.metrics.set_end_time(time.time())
