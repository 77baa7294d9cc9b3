"""The plan: what is executed, where, and over which queue pairs.

An ``AgentPlan`` contains everything that its agent needs. Rates count payload and
headers on the wire (layer 2 without preamble and FCS), like those of a kernel queueing
discipline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from chakram.foundation.field_bounds import (
    MAX_FAULTS,
    MAX_NAMES,
    MAX_TIME_NS,
    AtMost,
    HostAddress,
    Name,
    OneOf,
    Share,
    TimeNs,
    UdpPort,
    Within,
    check_fields,
)
from chakram.foundation.ip_addresses import family_of
from chakram.plan.packet_faults import PacketFault
from chakram.plan.port_plan import MAX_RATE_BPS, PortPlan
from chakram.plan.probes import ProbePlan
from chakram.plan.transport import TransportPlan
from chakram.program.operations import RankProgram

MAX_JOBS = 2**14
MAX_RANKS = 4096
MAX_PORTS = 1024

CREDIT_CHANNELS = 1 << 16
"""Channel offset of grants: the grants of channel c use channel c + this offset."""

Number24 = Annotated[int, Within(0, 2**24 - 1)]
"""A queue pair number (QPN) or packet sequence number (PSN)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePairPlan:
    """One end of a queue pair, which connects a rank and a peer on one channel."""

    group: Name
    channel: Annotated[int, Within(0, 2 * CREDIT_CHANNELS - 1)]
    peer_rank: Annotated[int, Within(0, MAX_NAMES)]
    qpn: Number24
    remote_qpn: Number24
    remote_port: int
    remote_address: HostAddress
    remote_udp_port: UdpPort
    source_port: UdpPort
    send_psn: Number24
    receive_psn: Number24
    index: Annotated[int, Within(0, 2**16)] = 0
    """Index among the queue pairs between the same two ranks; see ``TransportPlan``."""
    local_rate_bps: Annotated[int, Within(0, MAX_RATE_BPS)] | None = None
    """Rate of messages that stay within the host (0: they take no time). None: messages
    go through the port."""
    dscp: Annotated[int, Within(0, 63)] | None = None
    """DSCP of data if the queue pair has its own traffic class. None: the DSCP in
    ``TransportPlan``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """One rank with its port, shard and queue pairs."""

    number: int
    """Index of the rank among the ranks of all jobs; records use this number."""
    port: int
    shard: int
    program: RankProgram
    queue_pairs: Annotated[tuple[QueuePairPlan, ...], AtMost(2**17)]
    """In a job of 4,096 ranks with 8 channels per peer, a rank needs 2**15 queue pairs.
    In large plans, this field is a sequence that creates queue pairs when they are
    read; see ``chakram.plan.packed_queue_pairs``."""


POLICIES = ("fifo", "start_time", "communication_first")
"""Policies that choose among ready operations. See
``chakram.replay.ready_queue_policies``."""

ORDERS = ("dependencies", "start_times")
"""What starts an operation: only its dependencies, or also its recorded start time."""

Iterations = Annotated[int, Within(0, 10**9)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """Settings of one job that may differ from those of other jobs.

    Attributes:
        job: Name of the job.
        offset_ns: Time from the start of the run to the start of the job.
        iterations: Number of iterations, including warm-up. None means the number for
            the run.
        is_background: Whether the job repeats until all other jobs have ended. If so,
            *iterations* is ignored.
        policy: One of ``POLICIES``.
        order: One of ``ORDERS``.
    """

    job: Name
    offset_ns: TimeNs = 0
    iterations: Iterations | None = None
    is_background: bool = False
    policy: Annotated[str, OneOf(POLICIES)] = "fifo"
    order: Annotated[str, OneOf(ORDERS)] = "dependencies"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings with which all agents execute their programs."""

    warmup: Iterations = 2
    measured: Iterations = 20
    sync: Annotated[str, OneOf(("barrier", "free", "gap"))] = "barrier"
    """Synchronization between iterations; barriers are part of the programs."""
    gap_ns: TimeNs = 0
    drop_ratio: Annotated[float, Share()] = 0.0
    """Fraction of received packets that ports drop at random."""
    faults: Annotated[tuple[PacketFault, ...], AtMost(MAX_FAULTS)] = ()
    """Packet faults that ports apply on purpose."""
    sample_bin_ns: TimeNs = 10_000_000
    """Time between two samples of a port or queue pair; 0: no samples."""
    seed: int = 1
    hang_timeout_ns: Annotated[int, Within(1, MAX_TIME_NS)] = 30 * 10**9
    """Time without progress of a rank after which the run is declared hung."""

    credits: Annotated[int, Within(0, 64)] = 0
    """Messages of a collective that a rank may send to a peer on one channel before the
    peer grants them; 0: unlimited."""
    jobs: Annotated[tuple[JobSettings, ...], AtMost(MAX_JOBS)] = ()
    """Settings of the jobs that differ from the defaults."""

    @property
    def iterations(self) -> int:
        """Default number of iterations of a job, including warm-up."""
        return self.warmup + self.measured

    def with_iterations(self, warmup: int | None, measured: int | None) -> RunSettings:
        """Return these settings with other iteration counts. None changes nothing.

        All jobs get the *measured* number of measured iterations. If it is None, each
        job keeps its number.
        """
        more = 0 if warmup is None else warmup - self.warmup
        return replace(
            self,
            warmup=self.warmup + more,
            measured=self.measured if measured is None else measured,
            jobs=tuple(
                replace(
                    job,
                    iterations=None
                    if measured is not None or job.iterations is None
                    else job.iterations + more,
                )
                for job in self.jobs
            ),
        )

    def of(self, job: str) -> JobSettings:
        """Return the settings of one job."""
        return next((each for each in self.jobs if each.job == job), None) or (
            JobSettings(job=job)
        )

    def iterations_of(self, job: str) -> int:
        """Return the number of iterations of a job that is not in the background."""
        own = self.of(job).iterations
        return self.iterations if own is None else own


@dataclass(frozen=True, slots=True, kw_only=True)
class PlugInUse:
    """A plug-in that the plan uses by name and that another package provides.

    Attributes:
        noun: Kind of the plug-in: ``congestion control`` or ``algorithm``.
        name: The name in the plan.
        package: Name and version of the package on the machine that made the plan.
    """

    noun: Name
    name: Name
    package: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlan:
    """The part of a plan that one agent executes."""

    run_id: Name
    agent: Name
    shards: Annotated[int, Within(1, 256)]
    ports: Annotated[tuple[PortPlan, ...], AtMost(MAX_PORTS)]
    ranks: tuple[RankPlan, ...]
    transport: TransportPlan
    settings: RunSettings
    peers: Annotated[tuple[HostAddress, ...], AtMost(MAX_NAMES)] = ()
    """Addresses of all ports of the whole plan; agents send to no other address."""
    rank_numbers: Annotated[tuple[tuple[Name, int, int], ...], AtMost(MAX_NAMES)] = ()
    """(job, rank, number) of all ranks of the whole plan; records use the numbers."""
    probes: ProbePlan | None = None
    """Probe packets that the ports send to each other, instead of ranks."""
    plug_ins: Annotated[tuple[PlugInUse, ...], AtMost(64)] = ()
    """Plug-ins that must be installed where the plan is executed."""

    def shard_numbers(self) -> list[int]:
        """Return the shards that have work. One shard sends all probes."""
        if self.probes is not None:
            return [0]
        return sorted({rank.shard for rank in self.ranks})

    def shards_of_ports(self) -> dict[int, tuple[int, ...]]:
        """Return the shards of every port with ranks.

        A divided port has several shards.
        """
        found: dict[int, set[int]] = {}
        for rank in self.ranks:
            found.setdefault(rank.port, set()).add(rank.shard)
        return {port: tuple(sorted(shards)) for port, shards in found.items()}

    def goes_on(self) -> bool:
        """Return whether the agent has ranks of background jobs."""
        return any(
            self.settings.of(rank.program.job).is_background for rank in self.ranks
        )

    def numbers(self) -> dict[tuple[str, int], int]:
        """Return ``rank_numbers`` as a mapping from (job, rank)."""
        return {(job, rank): number for job, rank, number in self.rank_numbers}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a whole run: one ``AgentPlan`` per agent."""

    run_id: str
    agents: tuple[AgentPlan, ...]

    def ranks(self) -> list[RankPlan]:
        """Return all ranks of all agents, sorted by number."""
        return sorted(
            (rank for agent in self.agents for rank in agent.ranks),
            key=lambda rank: rank.number,
        )

    def ports(self) -> list[PortPlan]:
        """Return all ports of all agents, sorted by number."""
        return sorted(
            (port for agent in self.agents for port in agent.ports),
            key=lambda port: port.number,
        )

    def family(self) -> str:
        """Return ``ipv4`` or ``ipv6``, the address family of all ports.

        Raises:
            ValueError: If the plan has no port.
        """
        port = next((port for agent in self.agents for port in agent.ports), None)
        if port is None:
            raise ValueError("a plan without ports has no address family")
        return family_of(port.address)

    def planned_iterations(self) -> dict[str, int]:
        """Return the number of iterations by job, except for background jobs."""
        return {rank.program.job: count for rank, count in self._with_end()}

    def iterations_of(self) -> dict[int, int]:
        """Return the iterations by rank number, except for background jobs."""
        return {rank.number: count for rank, count in self._with_end()}

    def _with_end(self) -> Iterator[tuple[RankPlan, int]]:
        for agent in self.agents:
            for rank in agent.ranks:
                job = rank.program.job
                if not agent.settings.of(job).is_background:
                    yield rank, agent.settings.iterations_of(job)
