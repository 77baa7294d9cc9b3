"""The plan: what is to be executed, where, over which queue pairs.

Everything that an agent needs stands in its ``AgentPlan``; nothing in it has to be
looked up elsewhere.  Rates are payload plus headers on the wire (layer 2 without
preamble and FCS), as a kernel queueing discipline counts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from chakram.foundation.field_bounds import (
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
from chakram.plan.packet_faults import MAX_FAULTS, PacketFault
from chakram.plan.probes import ProbePlan
from chakram.plan.transport import TransportPlan
from chakram.program.operations import RankProgram

MAX_JOBS = 2**14
MAX_RANKS = 4096
MAX_MTU = 65535
MAX_RATE_BPS = 10**15

CREDIT_CHANNELS = 1 << 16
"""Channels from here on carry grants, each for the channel so much below it."""

HEARS_PAUSES = ",pauses"
"""Behind the specification of a port: it obeys pause frames that come there."""

Number24 = Annotated[int, Within(0, 2**24 - 1)]
"""A QPN or a PSN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortPlan:
    """One place where packets of ranks leave and enter.

    ``open`` is a port specification such as ``udp:eth0`` or ``memory:``; ``netns`` is
    the path of the network namespace it is opened in (None: the agent's own).
    ``rate_bps`` None means unlimited.  ``host`` names it in the topology.
    """

    number: int
    agent: Name
    host: Name
    open: Name
    netns: Name | None
    address: HostAddress
    udp_port: UdpPort
    rate_bps: Annotated[int, Within(1, MAX_RATE_BPS)] | None
    mtu: Annotated[int, Within(68, MAX_MTU)]

    @property
    def interface(self) -> str:
        """What the specification names behind its kind."""
        return self.open.removesuffix(HEARS_PAUSES).partition(":")[2]

    @property
    def hears_pauses(self) -> bool:
        """Whether it obeys pause frames."""
        return self.open.endswith(HEARS_PAUSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePairPlan:
    """One end of a queue pair: (job, group, channel) between a rank and a peer."""

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
    """Which of the queue pairs between the same two it is; see ``TransportPlan``."""
    local_rate_bps: Annotated[int, Within(0, MAX_RATE_BPS)] | None = None
    """Its messages stay within the host and take their bytes at this rate, 0: no time;
    None: they go through the port."""
    dscp: Annotated[int, Within(0, 63)] | None = None
    """Of its data, where it has a class of its own; None: as ``TransportPlan`` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """One rank with its place: port, shard and queue pairs."""

    number: int
    """Index of the rank over all jobs of the plan; records name it."""
    port: int
    shard: int
    program: RankProgram
    queue_pairs: Annotated[tuple[QueuePairPlan, ...], AtMost(2**17)]
    """A job of 4,096 ranks with 8 channels to each peer needs 2**15."""


POLICIES = ("fifo", "start_time", "communication_first")
"""Which of several ready operations goes first: ``chakram.replay.policies``."""

ORDERS = ("dependencies", "start_times")
"""What starts an operation: its dependencies alone, or its recorded start as well."""

Iterations = Annotated[int, Within(0, 10**9)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """What the ranks of one job do otherwise than those of others.

    Attributes:
        job: Its name.
        offset_ns: How long after the start of the run it begins.
        iterations: All of its iterations, warm-up included; None: as many as the run's.
        is_background: It repeats until all other jobs have ended; *iterations* means
            nothing then.
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
    """What all agents do with their programs."""

    warmup: Iterations = 2
    measured: Iterations = 20
    sync: Annotated[str, OneOf(("barrier", "free", "gap"))] = "barrier"
    """Barriers stand in the programs."""
    gap_ns: TimeNs = 0
    drop_ratio: Annotated[float, Share()] = 0.0
    """Share of received packets that ports drop at random."""
    faults: Annotated[tuple[PacketFault, ...], AtMost(MAX_FAULTS)] = ()
    """What else ports do to packets on purpose."""
    sample_bin_ns: TimeNs = 10_000_000
    """Time between two samples of a port or queue pair; 0: none are taken."""
    seed: int = 1
    hang_timeout_ns: Annotated[int, Within(1, MAX_TIME_NS)] = 30 * 10**9
    """Without any progress of a rank for so long, the run is declared hung."""

    credits: Annotated[int, Within(0, 64)] = 0
    """Messages of a collective that a rank may send to a peer on one channel before the
    peer has taken them up; 0: any number."""
    jobs: Annotated[tuple[JobSettings, ...], AtMost(MAX_JOBS)] = ()
    """Of the jobs that differ from the usual."""

    @property
    def iterations(self) -> int:
        """All iterations, warm-up included, of a job that has no number of its own."""
        return self.warmup + self.measured

    def of(self, job: str) -> JobSettings:
        """Return the settings of one job."""
        return next((each for each in self.jobs if each.job == job), None) or (
            JobSettings(job=job)
        )

    def iterations_of(self, job: str) -> int:
        """Return how many iterations a job has that is not in the background."""
        own = self.of(job).iterations
        return self.iterations if own is None else own


@dataclass(frozen=True, slots=True, kw_only=True)
class PlugInUse:
    """Something that a plan names and another package brings.

    Attributes:
        noun: What it is: ``congestion control`` or ``algorithm``.
        name: As the plan has it.
        package: Name and version of the package at whoever made the plan.
    """

    noun: Name
    name: Name
    package: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlan:
    """What one agent executes."""

    run_id: Name
    agent: Name
    shards: Annotated[int, Within(1, 256)]
    ports: Annotated[tuple[PortPlan, ...], AtMost(1024)]
    ranks: tuple[RankPlan, ...]
    transport: TransportPlan
    settings: RunSettings
    peers: Annotated[tuple[HostAddress, ...], AtMost(MAX_NAMES)] = ()
    """Addresses of all ports of the whole plan: nothing else is ever sent to."""
    rank_numbers: Annotated[tuple[tuple[Name, int, int], ...], AtMost(MAX_NAMES)] = ()
    """(job, rank, number) of all ranks of the whole plan: records name ranks so."""
    probes: ProbePlan | None = None
    """Instead of ranks: packets that the ports send to one another."""
    plug_ins: Annotated[tuple[PlugInUse, ...], AtMost(64)] = ()
    """What of it has to be installed where it is carried out."""

    def shard_numbers(self) -> list[int]:
        """Return the shards that have work; probes are sent by one."""
        if self.probes is not None:
            return [0]
        return sorted({rank.shard for rank in self.ranks})

    def shards_of_ports(self) -> dict[int, tuple[int, ...]]:
        """Return the shards of every port with ranks, ascending; several: divided."""
        found: dict[int, set[int]] = {}
        for rank in self.ranks:
            found.setdefault(rank.port, set()).add(rank.shard)
        return {port: tuple(sorted(shards)) for port, shards in found.items()}

    def goes_on(self) -> bool:
        """Tell whether ranks send for as long as the jobs with an end need."""
        return any(
            self.settings.of(rank.program.job).is_background for rank in self.ranks
        )

    def numbers(self) -> dict[tuple[str, int], int]:
        """Return ``rank_numbers`` as a mapping from (job, rank)."""
        return {(job, rank): number for job, rank, number in self.rank_numbers}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a whole run executes: one ``AgentPlan`` per agent."""

    run_id: str
    agents: tuple[AgentPlan, ...]

    def ranks(self) -> list[RankPlan]:
        """Return all ranks of all agents, by number."""
        return sorted(
            (rank for agent in self.agents for rank in agent.ranks),
            key=lambda rank: rank.number,
        )

    def ports(self) -> list[PortPlan]:
        """Return all ports of all agents, by number."""
        return sorted(
            (port for agent in self.agents for port in agent.ports),
            key=lambda port: port.number,
        )

    def family(self) -> str:
        """Return ``ipv4`` or ``ipv6``: all ports of a plan are of one address family.

        Raises:
            ValueError: If the plan has no port.
        """
        port = next((port for agent in self.agents for port in agent.ports), None)
        if port is None:
            raise ValueError("a plan without ports has no address family")
        return family_of(port.address)

    def planned_iterations(self) -> dict[str, int]:
        """Return by job how many iterations it has, if that has an end."""
        return {rank.program.job: count for rank, count in self._with_end()}

    def iterations_of(self) -> dict[int, int]:
        """Return by number the iterations of all ranks whose job has an end."""
        return {rank.number: count for rank, count in self._with_end()}

    def _with_end(self) -> Iterator[tuple[RankPlan, int]]:
        for agent in self.agents:
            for rank in agent.ranks:
                job = rank.program.job
                if not agent.settings.of(job).is_background:
                    yield rank, agent.settings.iterations_of(job)
