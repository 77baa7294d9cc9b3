"""Tests of a fabric before a run, with the agents, ports and queue pairs of the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from chakram.execution.session import RunObserver, Session
from chakram.foundation.errors import (
    ChakramError,
    ConfigError,
    PlanError,
    RunFailed,
    RunInterrupted,
)
from chakram.plan.nic_queue_pairs import as_sockets, is_verbs
from chakram.plan.placement import place
from chakram.plan.plan_check import check_plan
from chakram.plan.probes import ProbeEvent
from chakram.preflight.confirmation import (
    TRAINS,
    Evidence,
    is_late,
    loss_copies,
    may_lose,
    resent_for_naks,
    train_evidence,
    train_packet,
)
from chakram.preflight.pair_results import (
    Measured,
    expected_bps,
    passing,
    rate_share,
    report_of,
)
from chakram.preflight.probe_plan import (
    SMALL_BYTES,
    PathReport,
    headers_bytes,
    plan_probes,
    probe_packets,
    read_probes,
)
from chakram.preflight.rate_measurements import (
    JOB,
    Figures,
    Measurement,
    measurement,
    read_flows,
)
from chakram.preflight.report import PreflightSettings
from chakram.preflight.rounds import all_rounds, apart, chosen_rounds, shifted
from chakram.preparation.plan_settings import shards_of
from chakram.preparation.plugin_versions import with_plug_ins
from chakram.records.row_layout import FLOW_FIELDS, ProbeRow, RecordRows, rows_of
from chakram.roce.constants import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from chakram.control.client import AgentClient
    from chakram.control.clock_track import ClockTrack
    from chakram.control.events import (
        CountersSnapshot,
    )
    from chakram.execution.interrupts import Interrupts
    from chakram.execution.observer import Progress
    from chakram.execution.state import Phase
    from chakram.plan.plan import Plan
    from chakram.plan.port_plan import PortPlan
    from chakram.plan.probes import ProbePacket, ProbePlan
    from chakram.preflight.report import PreflightReport
    from chakram.preparation.resolved_run import ResolvedRun


log = logging.getLogger(__name__)

_PATHS_OF_SEVERAL = 8
"""Number of source ports to probe if packets may take several paths."""
_LEAST_PACKETS = 128
"""Minimum number of packets of a message. A shorter message would measure the round
trip rather than the rate. It might also cross a bad cable without losing a packet."""
_MOST_BYTES = min(256 << 20, MAX_MESSAGE_BYTES)
_HANG_TIMEOUT_NS = 10 * 10**9
_REPEATS = 2
"""Number of times to repeat probes between pairs with missing probes."""


def preflight_settings(resolved: ResolvedRun) -> PreflightSettings:
    """Return the tests that the experiment requests."""
    experiment = resolved.experiment
    wanted = experiment.preflight
    paths = wanted.paths
    if paths is None:
        paths = 1 if experiment.fabric.tiers == 1 else _PATHS_OF_SEVERAL
    return PreflightSettings(
        path_mtu=wanted.path_mtu or resolved.transport.path_mtu,
        check_mtu=wanted.mtu,
        check_classes=wanted.dscp_ecn_echo,
        check_latency=wanted.pairs != "none",
        check_rate=wanted.pairs == "rate",
        check_permutation=wanted.permutation and wanted.pairs == "rate",
        min_rate_share=wanted.min_rate,
        min_permutation_share=wanted.min_permutation_rate,
        max_latency_ns=wanted.max_latency_ns,
        max_loss_share=wanted.max_loss,
        rate_time_ns=wanted.duration_ns,
        paths=paths,
        rounds=wanted.rounds,
    )


@dataclass(slots=True)
class _Collector(RunObserver):
    """Collector of the rows that agents send, which also reports progress.

    It ignores all other events: a preflight has one iteration and uses sockets.
    """

    progress: Progress
    total: int
    unit: str
    rows: RecordRows = field(default_factory=RecordRows)
    late: set[str] = field(default_factory=set)
    lost: str | None = None
    _done: int = 0

    def phase_changed(self, phase: Phase) -> None:
        """Log a phase change of the session."""
        log.info("phase changed phase=%s", phase.name)

    def rows_arrived(self, rows: RecordRows) -> None:
        """Add records of an agent."""
        self.rows.extend(rows)
        self._done += len(rows.flows) // len(FLOW_FIELDS)
        self._done += sum(
            row.count
            for row in rows_of(ProbeRow, rows.probes)
            if row.event == ProbeEvent.SENT
        )
        self.progress.iterations(min(self._done, self.total), self.total, self.unit)

    def counters_arrived(self, agent: str, snapshot: CountersSnapshot) -> None:
        """Record the agent if it could not keep up with its work."""
        if any(map(is_late, snapshot.loads)):
            self.late.add(agent)

    def agent_lost(self, agent: str) -> None:
        """Record that an agent is lost. Without the agent, no test is possible."""
        self.lost = f"agent {agent} was lost"

    def records_missing(self, agent: str, reason: str) -> None:
        """Record that an agent's counts are missing. Its packets would seem lost."""
        self.lost = f"the last records of agent {agent} are missing: {reason}"

    def agent_said(self, agent: str, level: str, text: str) -> None:
        """Show a message of an agent."""
        self.progress.note(f"agent {agent}: {text}")


def refuse_shared_namespaces(ports: Iterable[PortPlan]) -> None:
    """Refuse a host with several NICs in one namespace, where sockets skip the fabric.

    Raises:
        ConfigError: If there is such a host.
    """
    seen: dict[tuple[str, str | None], PortPlan] = {}
    for port in filter(is_verbs, ports):
        other = seen.setdefault((port.agent, port.netns), port)
        if other is not port:
            raise ConfigError(
                "preflight",
                f"{other.host} and {port.host} share a network namespace, so that "
                "sockets on them would not reach each other through the fabric",
                "move each interface into a separate namespace, and name it with netns",
            )


@dataclass
class Preflight:
    """One preflight with connected agents.

    Attributes:
        resolved: The resolved run, whose jobs are not used.
        ports: All ports to test, in order.
        clients: The connected agents. They are free again at the end.
        clocks: Models of the agents' clocks.
        progress: The progress display.
        interrupts: Source of signals.
        run_id: Name of the run.
        absent: Reasons why agents could not be reached, by agent.
    """

    resolved: ResolvedRun
    _: KW_ONLY
    ports: Sequence[PortPlan]
    clients: Mapping[str, AgentClient]
    clocks: Mapping[str, ClockTrack]
    progress: Progress
    interrupts: Interrupts
    run_id: str
    absent: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._absent = dict(self.absent)
        self._session: Session | None = None
        self._ended: str | None = None
        self.experiment = self.resolved.experiment
        self._transport = self.resolved.transport
        self._settings = preflight_settings(self.resolved)
        if any(map(is_verbs, self.ports)):
            self.progress.note(
                "sockets test the ports of RDMA NICs, on a UDP port other than 4791: "
                "rules of switches for port 4791 are not tested"
            )
            refuse_shared_namespaces(self.ports)
            self.ports = [as_sockets(port) for port in self.ports]

    async def run(self) -> PreflightReport:
        """Run all tests, and return the findings.

        Raises:
            RunInterrupted: If the user interrupted the preflight.
            ChakramError: If the connection to an agent was lost.
            RunFailed: If ``abort`` was called.
        """
        settings = self._settings
        measured = Measured(
            packets=probe_packets(self.ports, self._transport, settings)
        )
        measured.tested = {
            way
            for pairs in chosen_rounds(len(self.ports), settings.rounds)
            for a, b in pairs
            for way in ((a, b), (b, a))
        }
        await self._probe(measured)
        await self._probe_again(measured)
        if settings.sends_messages:
            await self._send_messages(measured)
        measured.absent = self._absent
        return report_of(
            self.ports, measured, transport=self._transport, settings=settings
        )

    def abort(self, reason: str) -> None:
        """End the preflight because it cannot be completed."""
        self._ended = reason
        if self._session is not None:
            self._session.abort(reason)

    # ---- probes ----------------------------------------------------------------------

    async def _probe(self, measured: Measured) -> None:
        while True:
            ports = [port for port in self.ports if port.agent not in self._absent]
            if len(ports) < 2:
                return
            plan = self._probe_plan(ports, self._settings)
            try:
                measured.paths = await self._count_probes("probing paths", plan)
                measured.source_ports = _probes_of(plan).source_ports
                return
            except ChakramError as error:
                # Exclude an agent that cannot open its ports, and test the other
                # agents.
                if not self._leave_out(error):
                    raise

    async def _probe_again(self, measured: Measured) -> None:
        """Repeat probes for pairs with missing probes, with larger gaps.

        Packets that were lost by chance, or because of busy hosts, should arrive in a
        repetition.
        """
        for attempt in range(1, _REPEATS + 1):
            doubtful = {
                pair for pair, report in measured.paths.items() if report.missing
            }
            # A host that was too late to send anything has no report.
            doubtful |= {
                pair
                for pair in measured.tested
                if pair not in measured.paths
                and not {self.ports[place].agent for place in pair} & set(self._absent)
            }
            if not doubtful or not measured.source_ports:
                return
            plan = self._plan_of_pairs(
                doubtful, self._settings, packets=measured.packets, slower=2**attempt
            )
            again = await self._count_probes("probing doubtful paths again", plan)
            paths = dict(measured.paths)
            for pair in doubtful & again.keys():
                paths.setdefault(pair, PathReport()).merge(again[pair])
            measured.paths = paths

    def _plan_of_pairs(
        self,
        pairs: Collection[tuple[int, int]],
        settings: PreflightSettings,
        *,
        packets: Sequence[ProbePacket],
        slower: int = 1,
        is_train: bool = False,
    ) -> Plan:
        """Return a plan in which only *pairs* of ports send probes."""
        places = sorted({place for pair in pairs for place in pair})
        position = {place: number for number, place in enumerate(places)}
        rounds = [
            [way for a, b in each for way in ((a, b), (b, a)) if way in pairs]
            for each in apart(all_rounds(len(self.ports)), self._switches())
        ]
        return self._probe_plan(
            [self.ports[place] for place in places],
            settings,
            packets=packets,
            rounds=[
                [(position[a], position[b]) for a, b in each] for each in rounds if each
            ],
            slower=slower,
            is_train=is_train,
        )

    def _probe_plan(
        self, ports: Sequence[PortPlan], settings: PreflightSettings, **how: Any
    ) -> Plan:
        return plan_probes(
            ports,
            self._transport,
            settings,
            run_id=f"{self.run_id}-probes",
            caps_bps={
                name: client.description.max_rate_bps
                for name, client in self.clients.items()
            },
            **how,
        )

    async def _count_probes(
        self, what: str, plan: Plan
    ) -> dict[tuple[int, int], PathReport]:
        """Send probes, and return reports by positions of source and destination."""
        planned = [each.probes for each in plan.agents if each.probes is not None]
        first = _probes_of(plan)
        collector = _Collector(
            self.progress,
            sum(each.packets_per_target * len(each.targets) for each in planned),
            "probe",
        )
        await self._execute(what, plan, collector)
        place_of = {port.number: place for place, port in enumerate(self.ports)}
        return {
            (place_of[source], place_of[destination]): report
            for (source, destination), report in read_probes(
                collector.rows.probes,
                first.packets,
                paths=len(first.source_ports),
            ).items()
            if source in place_of and destination in place_of
        }

    def _leave_out(self, error: ChakramError) -> bool:
        """Exclude the agent that raised *error*, or return False if no agent did."""
        for name, client in self.clients.items():
            if name not in self._absent and error.where.startswith(client.where):
                place = error.where.removeprefix(client.where).lstrip(": ")
                hint = f" ({error.hint})" if error.hint else ""
                self._absent[name] = (f"{place}: " if place else "") + (
                    f"{error.found}{hint}"
                )
                return True
        return False

    # ---- messages --------------------------------------------------------------------

    async def _send_messages(self, measured: Measured) -> None:
        if self._settings.check_permutation:
            measured.permutation = shifted(range(len(self.ports)))
        reached, passes = self._passing(measured)
        rounds = chosen_rounds(len(self.ports), self._settings.rounds)
        programs = measurement(
            rounds=apart(rounds, self._switches()),
            reached=reached,
            passes=passes,
            permutation=measured.permutation,
            size_of=self._size_of,
            settings=self._settings,
        )
        if not programs.messages:
            return
        plan = self._plan(programs)
        collector = _Collector(
            self.progress,
            sum(len(program.columns) for program in programs.programs) // 2,
            "message",
        )
        try:
            await self._execute("measuring pairs", plan, collector)
        except RunFailed as error:
            if isinstance(error, RunInterrupted) or collector.lost or self._ended:
                raise
            # Keep earlier measurements. The report lists other pairs as not measured.
            measured.not_measured = error.found
        measured.alone, measured.together = read_flows(collector.rows.flows, programs)
        places = [program.rank for program in programs.programs]
        resent = resent_for_naks(
            collector.rows.queue_pairs,
            collector.rows.ports,
            places=places,
            ports=self.ports,
        )
        measured.evidence = {
            pair: Evidence(
                hosts_late=any(
                    self.ports[place].agent in collector.late for place in pair
                ),
                naks=pair in resent,
            )
            for pair in measured.tested
        }
        await self._confirm(measured)

    async def _confirm(self, measured: Measured) -> None:
        """Send probes to confirm doubtful results of the messages."""
        settings = self._settings
        slow = {}
        resent = set()
        passes = self._passing(measured)[1]
        for pair in passes:
            a, b = ends = [self.ports[place] for place in pair]
            figures = measured.alone.get(pair, Figures())
            rates = [port.rate_bps for port in ends if port.rate_bps is not None]
            if settings.check_rate and rates:
                share = rate_share(figures, a, b, self._transport)
                if share is None or share < settings.min_rate_share:
                    slow[pair] = min(rates)
            if figures.retransmitted > settings.max_loss_share * figures.packets:
                resent.add(pair)
        naks = {pair for pair in passes if measured.evidence[pair].naks}
        unsure = may_lose(passes, resent=resent, naks=naks)
        evidence = dict(measured.evidence)
        if slow:
            npaths = min(len(measured.source_ports), TRAINS)
            address = self.ports[0].address
            packet, count = train_packet(address, self._transport, min(slow.values()))
            plan = self._plan_of_pairs(
                slow,
                replace(settings, paths=npaths, copies=count),
                packets=(packet,) * (TRAINS // npaths),
                is_train=True,
            )
            reports = await self._count_probes("sending trains over slow paths", plan)
            for pair in slow.keys() & reports.keys():
                best, agreed = train_evidence(
                    reports[pair],
                    size_bytes=packet.size_bytes,
                    packets=count,
                    rate_bps=slow[pair],
                )
                evidence[pair] = replace(
                    evidence[pair], train_share=best, slow_share=agreed
                )
        if unsure:
            size = self._transport.path_mtu + headers_bytes(self.ports[0].address)
            plan = self._plan_of_pairs(
                unsure,
                replace(settings, copies=loss_copies(len(measured.source_ports))),
                packets=(replace(measured.packets[0], size_bytes=size),),
            )
            reports = await self._count_probes("counting lost packets", plan)
            for pair in unsure & reports.keys():
                report = reports[pair]
                sent = report.sent.total()
                lost = max(0, sent - report.arrived.total() - report.drops)
                evidence[pair] = replace(evidence[pair], probed=sent, lost=lost)
        measured.evidence = evidence

    def _passing(
        self, measured: Measured
    ) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """Return the pairs that pass short packets, and those that pass full ones."""
        npaths = len(measured.source_ports)
        classes = {self._transport.dscp_ack << 2} & {p.tos for p in measured.packets}
        needed = self._transport.path_mtu + headers_bytes(self.ports[0].address)
        reached, passes = (
            passing(
                measured.paths,
                measured.packets,
                npaths=npaths,
                packet_bytes=packet_bytes,
                classes=classes,
            )
            for packet_bytes in (SMALL_BYTES, needed)
        )
        return reached, (passes if self._settings.check_mtu else reached)

    def _switches(self) -> list[str]:
        """Return the switch of each port, or its host if the topology is unknown."""
        topology = self.experiment.fabric.to_topology(len(self.ports))
        hosts = () if topology is None else topology.hosts
        return [
            topology.switch_of(port.host)
            if topology is not None and port.host in hosts
            else port.host
            for port in self.ports
        ]

    def _size_of(self, pair: tuple[int, int]) -> int:
        """Return the bytes of a message that fills the measurement time of a pair."""
        settings = self._settings
        source, destination = (self.ports[place] for place in pair)
        least = _LEAST_PACKETS * self._transport.path_mtu
        payload_bps = expected_bps(
            source, destination, self._transport, size_bytes=least
        )
        if payload_bps is None:
            return settings.unrated_bytes
        wanted = int(payload_bps * settings.rate_time_ns / 8e9)
        return min(max(wanted, least), _MOST_BYTES)

    def _plan(self, programs: Measurement) -> Plan:
        experiment = self.experiment
        ports = [self.ports[program.rank] for program in programs.programs]
        plan = place(
            {JOB: programs.programs},
            ports,
            {},
            self._transport,
            replace(
                self.resolved.settings,
                warmup=0,
                measured=1,
                sync="free",
                gap_ns=0,
                credits=0,
                drop_ratio=0.0,
                faults=(),
                sample_bin_ns=0,
                jobs=(),
            ),
            shards=shards_of(experiment, ports),
            run_id=f"{self.run_id}-preflight",
            layout=self.resolved.layout,
        )
        problems = check_plan(plan)
        if problems:
            raise PlanError("preflight", problems[0])
        return with_plug_ins(plan, experiment)

    # ---- sessions --------------------------------------------------------------------

    async def _execute(self, what: str, plan: Plan, collector: _Collector) -> None:
        """Execute *plan* on the agents, and free them for the next plan."""
        self.progress.phase(what)
        plans = {agent.agent: agent for agent in plan.agents}
        clients = {name: self.clients[name] for name in plans}
        self._session = session = Session(
            plans=plans,
            clients=clients,
            clocks=self.clocks,
            observer=collector,
            hang_timeout_ns=max(self.experiment.hang_timeout_ns, _HANG_TIMEOUT_NS),
            iterations_of=plan.iterations_of(),
        )
        if self._ended is not None:
            session.abort(self._ended)
        try:
            with self.interrupts.heard_by(session.interrupt):
                await session.run()
        except ChakramError as error:
            # Some agents may still be preparing a plan that another agent has refused.
            await _free(clients.values(), why=error.found)
            raise
        await _free(clients.values())
        if collector.lost is not None:
            raise RunFailed("preflight", collector.lost)


def _probes_of(plan: Plan) -> ProbePlan:
    """Return the probes of one agent. Probes of other agents differ in targets only."""
    return next(each.probes for each in plan.agents if each.probes is not None)


async def _free(clients: Iterable[AgentClient], *, why: str | None = None) -> None:
    """Free agents by a reset. If *why* is given, abort their plan first."""

    async def free(client: AgentClient) -> None:
        # The loss of an agent has been reported, and its run is over in any case.
        with suppress(ChakramError):
            if why is not None:
                await client.abort(why)
            await client.reset()

    await asyncio.gather(*map(free, clients))
