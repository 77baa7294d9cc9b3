"""Queue pairs: which ranks need them, and their numbers.

Every (job, group, channel, pair of peers) that a schedule of the job uses gets its own
queue pair. Each queue pair is a separate flow on the wire with its own congestion
state. The same input gives the same numbers. The initial PSNs have a separate seed,
which a real run keeps secret.

The low bits of a queue pair number identify the shard that owns the queue pair. If the
ranks of a port are in several shards, the kernel reads that number to deliver packets
to the right shard. But a network adapter or the kernel may merge packets with the same
addresses and UDP ports (GRO). Merged packets are delivered together, according to the
number in the first packet. So between two ports, all queue pairs with the same UDP
source port belong to one shard at each end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm
from chakram.collectives.groups import POINT_TO_POINT
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Algorithm
from chakram.foundation.errors import PlanError
from chakram.plan.packed_queue_pairs import PACKED_FROM, JobQueuePairs
from chakram.plan.plan import CREDIT_CHANNELS, QueuePairPlan
from chakram.plan.port_plan import PortPlan
from chakram.program.operations import RankProgram

SHARD_BITS = 6
"""Number of low bits of a queue pair number that identify the owning shard."""

MAX_SHARDS = 1 << SHARD_BITS

FIRST_QUEUE_PAIR = 16
"""Smallest index of a queue pair; 0 and 1 are special on InfiniBand."""

_FIRST_STRIDE = 101
_FIRST_RANGE = 1 << 16
# Every port starts at a different index, because the ranks of a job create queue pairs
# in the same order. With a common start, the two ends of a queue pair would have equal
# numbers, and all flows would have the same source port.

_QUEUE_PAIRS = 1 << (24 - SHARD_BITS)
_PSN_BITS = 24

MAX_COUNT = 64
"""Maximum number of queue pairs between the same two ranks."""

SOURCE_PORT_BASE = 0xC000
SOURCE_PORT_POOL = 64
"""Number of UDP source ports of one port; sockets are opened only for these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Port and shard of one rank. ``number`` is the rank's index among all ranks."""

    number: int
    program: RankProgram
    port: PortPlan
    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRule:
    """Rule that gives matching queue pairs their own traffic class.

    Attributes:
        dscp: DSCP of data packets.
        job: Name of the job. None means any job.
        op: Collective operation of the process group, or ``SEND_RECV`` for
            point-to-point messages. None means any operation.
        group: Name of the process group, in which * matches any characters. None means
            any group.
    """

    dscp: int
    job: str | None = None
    op: CollectiveOp | None = None
    group: str | None = None

    def fits(self, job: str, group: str, op: CollectiveOp | None) -> bool:
        """Return whether the rule matches operation *op* of a group.

        None means point-to-point messages.
        """
        return (
            self.job in (None, job)
            and self.op in (None, op or CollectiveOp.SEND_RECV)
            and (self.group is None or fnmatchcase(group, self.group))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePairLayout:
    """Number of queue pairs between two ranks, and how their flows differ on the wire.

    Attributes:
        count: Number of queue pairs for each (group, channel, pair of peers).
        source_ports: UDP source ports, assigned in round-robin order. If empty, source
            ports are derived from the two queue pair numbers, as adapters do.
        with_grants: Whether each (group, channel, pair of peers) of collectives has an
            additional queue pair for grants. Its channel number is higher by
            ``CREDIT_CHANNELS``.
        classes: Rules for traffic classes. The first rule that matches applies.

    Raises:
        ValueError: If a value is out of range.
    """

    count: int = 1
    source_ports: tuple[int, ...] = ()
    with_grants: bool = False
    classes: tuple[ClassRule, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_COUNT:
            raise ValueError(
                f"{self.count} queue pairs are not between 1 and {MAX_COUNT}"
            )
        if len(set(self.source_ports)) > SOURCE_PORT_POOL:
            raise ValueError(f"more than {SOURCE_PORT_POOL} UDP source ports")


def connect(
    programs_by_job: Mapping[str, Sequence[RankProgram]],
    places: Mapping[tuple[str, int], Place],
    *,
    psn_seed: int,
    layout: QueuePairLayout | None = None,
    local_rate: Callable[[str, PortPlan, PortPlan], int | None] | None = None,
) -> dict[tuple[str, int], Sequence[QueuePairPlan]]:
    """Return the queue pairs of every (job, rank).

    Args:
        programs_by_job: The programs of all ranks of every job.
        places: Port and shard of every (job, rank).
        psn_seed: Seed of the initial PSNs, which are unpredictable without this seed.
        layout: Queue pairs between two peers, and their source ports. None means the
            default layout.
        local_rate: Function of a job and two ports. It returns the rate of messages
            that stay within a host (0 means that they take no time), or None if
            messages leave the host. Without this function, all messages use ports.

    Raises:
        PlanError: If the programs disagree about their groups, refer to ranks that do
            not exist, or need more queue pairs than a port can have.
    """
    layout = layout or QueuePairLayout()
    source_ports = _SourcePorts(layout.source_ports, places.values())
    used: dict[int, int] = {}

    def next_qpn(place: Place) -> int:
        index = used.get(place.port.number, first_index(place.port.number))
        if index >= _QUEUE_PAIRS:
            raise PlanError(
                f"port {place.port.number} of agent {place.port.agent}",
                f"needs more than {_QUEUE_PAIRS - _FIRST_RANGE} queue pairs",
                "place fewer ranks on it",
            )
        used[place.port.number] = index + 1
        return index << SHARD_BITS | place.shard

    tables: dict[str, JobQueuePairs] = {}
    for job, programs in programs_by_job.items():
        table = tables[job] = JobQueuePairs(
            {rank: place.port for (name, rank), place in places.items() if name == job},
            _dscps(job, programs, layout.classes),
        )
        for group, channel, low, high, index in (
            (*pair, index)
            for pair in _with_grants(_pairs(job, programs), layout.with_grants)
            for index in range(layout.count if pair[1] < CREDIT_CHANNELS else 1)
        ):
            a, b = places[job, low], places[job, high]
            local_rate_bps = local_rate and local_rate(job, a.port, b.port)
            if local_rate_bps is not None and index:
                continue  # without a fabric, messages are not divided
            qpns = next_qpn(a), next_qpn(b)
            name = f"{psn_seed}/{job}/{group}/{channel}"
            if index:
                name += f"/{index}"
            table.add(
                group,
                channel,
                index,
                ranks=(low, high),
                qpns=qpns,
                psns=(
                    _initial_psn(f"{name}/{low}/{high}"),
                    _initial_psn(f"{name}/{high}/{low}"),
                ),
                source_port=source_ports.choose(
                    a,
                    b,
                    qpns,
                    has_data=channel < CREDIT_CHANNELS and local_rate_bps is None,
                ),
                local_rate_bps=local_rate_bps,
            )
    is_packed = 2 * sum(map(len, tables.values())) >= PACKED_FROM
    found: dict[tuple[str, int], Sequence[QueuePairPlan]] = {}
    for job, rank in places:
        own = tables[job].of_rank(rank)
        found[job, rank] = own if is_packed else tuple(own)
    return found


class _SourcePorts:
    """Selector of the UDP source ports of queue pairs.

    Args:
        listed: Source ports to assign in round-robin order. If empty, source ports come
            from the default pool, chosen as adapters do.
        places: Port and shard of every rank.
    """

    def __init__(self, listed: Sequence[int], places: Iterable[Place]) -> None:
        self._listed = tuple(dict.fromkeys(listed))
        self._given: dict[tuple[int, int, bool], int] = {}
        shards: dict[int, set[int]] = {}
        for place in places:
            shards.setdefault(place.port.number, set()).add(place.shard)
        self._shards = {port: sorted(found) for port, found in shards.items()}

    def choose(
        self, a: Place, b: Place, qpns: tuple[int, int], *, has_data: bool
    ) -> int:
        """Return the source port of a queue pair between *a* and *b*.

        Listed ports alternate separately for queue pairs with and without data on the
        fabric. Otherwise, grants and messages within hosts would take every second
        port.

        Source ports determine paths, so the calculation ignores the shard bits of queue
        pair numbers. Flows therefore keep their paths if the number of processes
        changes, unless a port is divided.

        The result is the same at both ends. Source ports are numbered from 0. The
        remainder modulo (shards of one port x shards of the other) identifies both
        shards.
        """
        near, far = (a, b) if a.port.number <= b.port.number else (b, a)
        near_shards = self._shards[near.port.number]
        far_shards = self._shards[far.port.number]
        classes = len(near_shards) * len(far_shards)
        which = near_shards.index(near.shard) * len(far_shards)
        which += far_shards.index(far.shard)
        if not self._listed:
            first, second = (qpn >> SHARD_BITS << SHARD_BITS for qpn in qpns)
            number = source_port_of(first, second) - SOURCE_PORT_BASE
            return SOURCE_PORT_BASE + _of_class(
                number, which, classes, SOURCE_PORT_POOL
            )
        key = (classes, which, has_data)
        given = self._given.get(key, 0)
        self._given[key] = given + 1
        return self._listed[_of_class(given, which, classes, len(self._listed))]


def _of_class(number: int, which: int, classes: int, total: int) -> int:
    """Map *number* to a number below *total* that is *which* modulo *classes*."""
    return number % (total // classes) * classes + which


def first_index(port: int) -> int:
    """Return the index of a port's first queue pair. Later indices count up from it."""
    return FIRST_QUEUE_PAIR + port * _FIRST_STRIDE % _FIRST_RANGE


def _dscps(
    job: str, programs: Sequence[RankProgram], rules: Sequence[ClassRule]
) -> dict[str, int]:
    """Return the DSCPs of a job's groups that have their own traffic class."""
    found: dict[str, int] = {}
    ops: dict[str, set[CollectiveOp | None]] = {POINT_TO_POINT: {None}}
    for program in programs if rules else ():
        for use in program.columns.collective_uses:
            # Barriers queue no data, and traffic class rules do not list them.
            if use.op is not CollectiveOp.BARRIER:
                ops.setdefault(program.groups[use.group].name, set()).add(use.op)
    for group, done in ops.items():
        classes: dict[int | None, CollectiveOp | None] = {}
        for op in sorted(done, key=str):
            rule = next((each for each in rules if each.fits(job, group, op)), None)
            classes.setdefault(None if rule is None else rule.dscp, op)
        if len(classes) > 1:
            said = ", ".join(
                f"{op}: {'the default class' if each is None else f'DSCP {each}'}"
                for each, op in classes.items()
            )
            raise PlanError(
                f"job {job}: process group {group!r}",
                "its collectives share queue pairs, but have different classes "
                f"({said})",
                "name the group in a rule of transport.class_of",
            )
        (own,) = classes
        if own is not None:
            found[group] = own
    return found


def _with_grants(
    pairs: Iterator[tuple[str, int, int, int]], wanted: bool
) -> Iterator[tuple[str, int, int, int]]:
    """Yield queue pairs, each followed by its queue pair for grants if *wanted*."""
    for group, channel, low, high in pairs:
        yield group, channel, low, high
        if wanted and group != POINT_TO_POINT:
            yield group, channel + CREDIT_CHANNELS, low, high


def _pairs(
    job: str, programs: Sequence[RankProgram]
) -> Iterator[tuple[str, int, int, int]]:
    """Yield (group, channel, lower rank, higher rank) of all queue pairs of a job."""
    members = _members(job, programs)
    uses: dict[tuple[str, CollectiveOp, str, int], None] = {}
    point_to_point: set[tuple[int, int]] = set()
    ranks = {program.rank for program in programs}
    for program in programs:
        for use in program.columns.collective_uses:
            name = program.groups[use.group].name
            uses[name, use.op, use.algorithm, use.root] = None
        for peer in program.peers:
            if peer not in ranks:
                raise PlanError(
                    f"job {job}: rank {program.rank}",
                    f"exchanges messages with rank {peer}, which is not in the job",
                    "add the trace of that rank",
                )
            point_to_point.add(_ascending(program.rank, peer))
    by_group: dict[str, set[tuple[int, int, int]]] = {}
    listed: dict[ListedAlgorithm, None] = {
        each: None for program in programs for each in program.algorithms
    }
    schedules: dict[tuple[Algorithm, int, int], frozenset[_Positions]] = {}
    for group, op, name, root in uses:
        group_ranks = members[group]
        nranks = len(group_ranks)
        how = algorithm_of(op, name, nranks=nranks, root=root, listed=tuple(listed))
        key = (how, nranks, root)
        if key not in schedules:
            schedules[key] = frozenset(_peers(*key))
        by_group.setdefault(group, set()).update(
            (channel, *_ascending(group_ranks[src], group_ranks[dst]))
            for channel, src, dst in schedules[key]
        )
    for group, found in by_group.items():
        for channel, low, high in sorted(found):
            yield group, channel, low, high
    for low, high in sorted(point_to_point):
        yield POINT_TO_POINT, 0, low, high


_Positions = tuple[int, int, int]
"""(channel, lower position, higher position) of two members of a group."""


def _peers(how: Algorithm, nranks: int, root: int) -> Iterator[_Positions]:
    """Yield the communicating pairs of a collective, as listed by the senders."""
    for position in range(nranks):
        for channel, peer in how.peers(position, nranks=nranks, root=root):
            yield (channel, *_ascending(position, peer))


def _ascending(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def _members(job: str, programs: Sequence[RankProgram]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of every group, on which all programs must agree."""
    members: dict[str, tuple[int, ...]] = {}
    complete: set[int] = set()
    ranks = {program.rank for program in programs}
    for program in programs:
        for group in program.groups:
            if group.name == POINT_TO_POINT:
                raise PlanError(
                    f"job {job}: rank {program.rank}",
                    f"a process group is called {POINT_TO_POINT!r}, which is reserved "
                    "for point-to-point messages",
                    "give the group another name",
                )
            known = members.setdefault(group.name, group.ranks)
            # Members share one sequence of ranks, which may contain tens of thousands.
            if known is group.ranks and id(known) in complete:
                continue
            if known != group.ranks:
                raise PlanError(
                    f"job {job}: rank {program.rank}",
                    f"process group {group.name!r} has different ranks than on earlier "
                    "ranks",
                    "give all members the same group",
                )
            absent = [rank for rank in group.ranks if rank not in ranks]
            if absent:
                raise PlanError(
                    f"job {job}: process group {group.name!r}",
                    f"has rank {absent[0]}, which is not in the job",
                    "add the trace of that rank",
                )
            complete.add(id(known))
    return members


def _initial_psn(name: str) -> int:
    """Return a pseudorandom initial PSN that depends only on *name*."""
    digest = blake2b(name.encode(), digest_size=4).digest()
    return int.from_bytes(digest) % (1 << _PSN_BITS)


def flow_label_port(qpn: int, remote_qpn: int) -> int:
    """Return the UDP source port that adapters give a queue pair, 0xC000 to 0xFFFF.

    Source: ``rdma_calc_flow_label`` and ``rdma_flow_label_to_udp_sport`` in the Linux
    kernel's ``include/rdma/ib_verbs.h``.
    """
    product = qpn * remote_qpn
    product ^= product >> 20
    product ^= product >> 40
    label = product & 0xFFFFF
    return SOURCE_PORT_BASE | (label & 0x3FFF) ^ (label >> 14)


def source_port_of(qpn: int, remote_qpn: int) -> int:
    """Return the UDP source port of a queue pair, which is the same at both ends.

    The result is the port that adapters choose, mapped to a port that has a socket.
    """
    low = flow_label_port(qpn, remote_qpn) & 0x3FFF
    return SOURCE_PORT_BASE | (low ^ low >> 6 ^ low >> 12) % SOURCE_PORT_POOL
