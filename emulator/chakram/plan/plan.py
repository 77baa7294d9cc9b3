"""The plan: what is to be executed, where, over which queue pairs.

Everything that an agent needs stands in its ``AgentPlan``; nothing in it has to be
looked up elsewhere.  Rates are payload plus headers on the wire (layer 2 without
preamble and FCS), as a kernel queueing discipline counts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.addresses import family_of

if TYPE_CHECKING:
    from chakram.plan.faults import PacketFault
    from chakram.plan.probes import ProbePlan
    from chakram.program.operations import RankProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class PortPlan:
    """One place where packets of ranks leave and enter.

    ``open`` is a port specification such as ``udp:eth0`` or ``memory:``; ``netns`` is
    the path of the network namespace it is opened in (None: the agent's own).
    ``rate_bps`` None means unlimited.  ``host`` names it in the topology.
    """

    number: int
    agent: str
    host: str
    open: str
    netns: str | None
    address: str
    udp_port: int
    rate_bps: int | None
    mtu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePairPlan:
    """One end of a queue pair: (job, group, channel) between a rank and a peer."""

    group: str
    channel: int
    peer_rank: int
    qpn: int
    remote_qpn: int
    remote_port: int
    remote_address: str
    remote_udp_port: int
    source_port: int
    send_psn: int
    receive_psn: int
    index: int = 0
    """Which of the queue pairs between the same two it is; see ``TransportPlan``."""
    local_rate_bps: int | None = None
    """Its messages stay within the host and take their bytes at this rate, 0: no time;
    None: they go through the port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """One rank with its place: port, shard and queue pairs."""

    number: int
    """Index of the rank over all jobs of the plan; records name it."""
    port: int
    shard: int
    program: RankProgram
    queue_pairs: tuple[QueuePairPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportPlan:
    """Settings of every queue pair."""

    path_mtu: int = 4096
    window_bytes: int = 64 * 1024
    congestion_control: str = "none"
    congestion_parameters: tuple[tuple[str, int], ...] = ()
    verb: str = "write"
    """``write`` (RDMA WRITE, the last packet WITH_IMM) or ``send`` (SEND, likewise)."""
    dscp_data: int = 26
    dscp_ack: int = 26
    dscp_cnp: int = 48
    ecn: int = 2
    """ECN field of data packets and CNPs: 0 not-ECT, 1 ECT(1), 2 ECT(0)."""
    ack_interval_packets: int = 4
    retransmit_timeout_ns: int = 67_108_864
    """Default: local ACK timeout 14, 4.096 us x 2**14; 0: none, one waits for ever."""
    retry_limit: int = 7
    rnr_retry_limit: int = 7
    """7: no limit."""
    rnr_timer: int = 12
    """Code of the time that a peer is asked to wait: 0.64 ms."""
    adaptive_low_ns: int = 0
    """Adaptive retransmission in place of the timeout: where its first range begins."""
    adaptive_tries: int = 2
    split: str = "round_robin"
    """What several queue pairs between two do with messages: ``round_robin`` sends each
    on another one, ``even`` sends a part of each on all of them."""
    message_bytes: int = 0
    """Longer messages are posted as several of at most so much; 0: as they are."""
    icrc: str = "table"
    """``table``, ``full`` (the same, computed over every byte) or ``off`` (zeros)."""
    verify_every: int = 1
    """One in so many received packets is looked at, ICRC and payload; 0: none."""
    max_burst_packets: int = 4
    burst_bound_ns: int = 1_000_000
    """How much lag the pacing of a port may make up, in time at its rate."""


POLICIES = ("fifo", "start_time", "communication_first")
"""Which of several ready operations goes first: ``chakram.replay.policies``."""

ORDERS = ("dependencies", "start_times")
"""What starts an operation: its dependencies alone, or its recorded start as well."""


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

    job: str
    offset_ns: int = 0
    iterations: int | None = None
    is_background: bool = False
    policy: str = "fifo"
    order: str = "dependencies"

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"policy {self.policy!r} is none of {POLICIES}")
        if self.order not in ORDERS:
            raise ValueError(f"order {self.order!r} is none of {ORDERS}")
        if self.offset_ns < 0:
            raise ValueError(f"an offset of {self.offset_ns} ns is negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What all agents do with their programs."""

    warmup: int = 2
    measured: int = 20
    sync: str = "barrier"
    """``barrier`` (in the programs), ``free`` or ``gap``."""
    gap_ns: int = 0
    drop_ratio: float = 0.0
    """Share of received packets that ports drop at random."""
    faults: tuple[PacketFault, ...] = ()
    """What else ports do to packets on purpose."""
    sample_bin_ns: int = 10_000_000
    """Time between two samples of a port or queue pair; 0: none are taken."""
    seed: int = 1
    hang_timeout_ns: int = 30 * 10**9
    """Without any progress of a rank for so long, the run is declared hung."""

    credits: int = 0
    """Messages of a collective that a rank may send to a peer on one channel before the
    peer has taken them up; 0: any number."""
    jobs: tuple[JobSettings, ...] = ()
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

    noun: str
    name: str
    package: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlan:
    """What one agent executes."""

    run_id: str
    agent: str
    shards: int
    ports: tuple[PortPlan, ...]
    ranks: tuple[RankPlan, ...]
    transport: TransportPlan
    settings: RunSettings
    peers: tuple[str, ...] = ()
    """Addresses of all ports of the whole plan: nothing else is ever sent to."""
    rank_numbers: tuple[tuple[str, int, int], ...] = ()
    """(job, rank, number) of all ranks of the whole plan: records name ranks so."""
    probes: ProbePlan | None = None
    """Instead of ranks: packets that the ports send to one another."""
    plug_ins: tuple[PlugInUse, ...] = ()
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

    def iterations_of(self) -> dict[int, int]:
        """Return by number the iterations of all ranks whose job has an end."""
        return {
            rank.number: agent.settings.iterations_of(rank.program.job)
            for agent in self.agents
            for rank in agent.ranks
            if not agent.settings.of(rank.program.job).is_background
        }
