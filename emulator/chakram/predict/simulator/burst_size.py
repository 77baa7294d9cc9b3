"""Number of packets that a simulation moves over links as one burst.

A simulated event costs the same for one packet as for many, so large jobs are simulated
in bursts. The cost is accuracy: every node stores a whole burst before it forwards it.
With b packets in a burst, a message takes about ``(b - 1) x links`` packet times
longer. The window must also have room for these bursts, or the sender stalls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.groups import POINT_TO_POINT
from chakram.collectives.schedule import Algorithm
from chakram.collectives.split_sizes import Matrix
from chakram.collectives.uneven_messages import splits_bytes, uneven_messages
from chakram.plan.packed_queue_pairs import peers_within_host
from chakram.plan.plan import Plan
from chakram.plan.wire_cost import packets_of
from chakram.program.columns import CollectiveUse
from chakram.program.operations import RankProgram
from chakram.topology.topology import Topology

BURSTS_TARGET = 2_000_000
"""Maximum number of bursts before a simulation becomes coarser. They take about ten
seconds."""

_TOLERANCE = 20
"""Inverse of the maximum slowdown of a message by bursts: 1/20."""

_MOST_PACKETS = 64

_MORE_BURSTS = 2
"""Number of bursts that a window must hold in addition to one per link.

One of these bursts leaves the sender, and the other one is acknowledged.
"""

_BIT_NS = 8_000_000_000  # bits in a byte x nanoseconds in a second

_BURSTS_TO_KMIN = 4
"""Number of bursts that must fit below the smallest ECN threshold."""

_SAMPLED_POSITIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The data packets of a job.

    Attributes:
        messages: Number of messages.
        packets: Number of packets, each sent once.
        squares: Sum of the squared numbers of packets over all messages.
    """

    messages: int = 0
    packets: int = 0
    squares: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            messages=self.messages + other.messages,
            packets=self.packets + other.packets,
            squares=self.squares + other.squares,
        )

    def __mul__(self, times: int) -> Traffic:
        return Traffic(
            messages=self.messages * times,
            packets=self.packets * times,
            squares=self.squares * times,
        )

    def typical_packets(self) -> int:
        """Return the packet-weighted mean message size, in packets."""
        return self.squares // self.packets if self.packets else 0


def coarse_burst(plan: Plan, topology: Topology, traffic: Traffic) -> int:
    """Return how many packets to simulate as one burst, given the size of the plan.

    Args:
        plan: The plan.
        topology: The fabric.
        traffic: Traffic of all iterations that crosses links.
    """
    transport = plan.agents[0].transport
    links = longest_path(topology)
    # The window also holds packets that propagate, and packets that await an ACK.
    round_trip_ns = 2 * links * max(link.delay_ns for link in topology.links)
    fastest_bps = max(topology.host_link(each).rate_bps or 0 for each in topology.hosts)
    busy_bytes = round_trip_ns * fastest_bps // _BIT_NS
    busy_bytes += transport.ack_interval_packets * transport.path_mtu
    coarse = burst_packets_for(
        traffic,
        spare_packets=(transport.window_bytes - busy_bytes) // transport.path_mtu,
        links=links,
    )
    kmin_bytes = [link.ecn.kmin_bytes for link in topology.links if link.ecn]
    if kmin_bytes:
        # A burst enters a queue as a whole, so it must be small compared with the ECN
        # thresholds.
        limit = min(kmin_bytes) // (_BURSTS_TO_KMIN * transport.path_mtu)
        coarse = min(coarse, max(1, limit))
    return coarse


def burst_packets_for(traffic: Traffic, *, spare_packets: int, links: int) -> int:
    """Return the number of packets of *traffic* to simulate as one burst.

    The result is the smallest number that keeps the number of bursts below
    ``BURSTS_TARGET``. It is also limited so that bursts slow down a typical message by
    at most a twentieth. Small jobs are fast without bursts, and jobs with small
    messages gain nothing from bursts.

    Args:
        traffic: Traffic of all iterations.
        spare_packets: Number of packets in a window beyond those that keep an idle path
            busy.
        links: Number of links on the longest path.
    """
    enough = -(-traffic.packets // BURSTS_TARGET)
    accurate = 1 + traffic.typical_packets() // (_TOLERANCE * max(1, links))
    flowing = spare_packets // (links + _MORE_BURSTS)
    return max(1, min(enough, accurate, flowing, _MOST_PACKETS))


def plan_traffic(plan: Plan, *, iterations: int, with_local: bool = True) -> Traffic:
    """Return the approximate traffic of all ranks of *plan* in all *iterations*.

    If *with_local* is false, groups whose messages all stay within hosts are excluded.
    """
    if not plan.agents:
        return Traffic()
    path_mtu = plan.agents[0].transport.path_mtu
    programs = (rank.program for rank in plan.ranks())
    without = () if with_local else groups_within_hosts(plan)
    return program_traffic(programs, path_mtu=path_mtu, without=without) * iterations


def groups_within_hosts(plan: Plan) -> set[tuple[str, str]]:
    """Return the job and name of each group whose messages all stay within hosts."""
    local: set[tuple[str, str]] = set()
    crossing: set[tuple[str, str]] = set()
    for rank in plan.ranks():
        if peers_within_host(rank.queue_pairs):
            for pair in rank.queue_pairs:
                found = local if pair.local_rate_bps is not None else crossing
                found.add((rank.program.job, pair.group))
    return local - crossing


def algorithm_used(program: RankProgram, use: CollectiveUse) -> Algorithm:
    """Return the algorithm that a program uses for a collective."""
    return algorithm_of(
        use.op,
        use.algorithm,
        nranks=len(program.groups[use.group].ranks),
        root=use.root,
        listed=program.algorithms,
    )


def messages_of_splits(
    program: RankProgram, use: CollectiveUse, how: Algorithm, position: int
) -> Iterator[tuple[int, int]]:
    """Yield (destination, size) of the messages of a member in an all_to_all_v."""
    assert use.splits is not None  # an all_to_all_v has splits
    own = program.splits[use.splits]
    return uneven_messages(
        how,
        position=position,
        nranks=len(own.splits.sent_bytes),
        pair_bytes=splits_bytes(how, own.splits, own.passed_bytes, position=position),
    )


def program_traffic(
    programs: Iterable[RankProgram],
    *,
    path_mtu: int,
    without: Container[tuple[str, str]] = (),
) -> Traffic:
    """Return the approximate traffic of the ranks of *programs* in one iteration.

    The result is exact for groups of up to 16 ranks. In larger groups, only some ranks
    are sampled, because a group of 1,024 ranks has a million messages.

    Args:
        programs: Programs of all ranks.
        path_mtu: Payload of a full packet.
        without: Job and name of groups to exclude.
    """
    total = Traffic()
    known: dict[tuple[object, ...], Traffic] = {}
    for program in programs:
        if (program.job, POINT_TO_POINT) not in without:
            for message, count in program.columns.message_uses.items():
                total += _message(message.size_bytes, path_mtu) * count
        for use, count in program.columns.collective_uses.items():
            if (program.job, program.groups[use.group].name) in without:
                continue
            ranks = program.groups[use.group].ranks
            if use.splits is None and program.rank != ranks[0]:
                continue  # counted at the first rank of the group
            how = algorithm_used(program, use)
            if use.splits is not None:
                position = ranks.index(program.rank)
                for _, size_bytes in messages_of_splits(program, use, how, position):
                    total += _message(size_bytes, path_mtu)
                continue
            key = (how, use.root, use.input_bytes, len(ranks))
            whole = known.get(key)
            if whole is None:
                whole = known[key] = _collective(
                    how,
                    root=use.root,
                    input_bytes=use.input_bytes,
                    nranks=len(ranks),
                    path_mtu=path_mtu,
                )
            total += whole * count
    return total


def schedule_traffic(
    how: Algorithm,
    *,
    nranks: int,
    root: int,
    input_bytes: int,
    matrix: Matrix | None,
    path_mtu: int,
) -> Traffic:
    """Return the approximate traffic of all ranks of a group in one collective.

    For an all_to_all_v, *matrix* contains the bytes between each pair of positions.
    Data that is forwarded for other ranks is not counted.
    """
    if matrix is None:
        return _collective(
            how, root=root, input_bytes=input_bytes, nranks=nranks, path_mtu=path_mtu
        )
    total = Traffic()
    for size_bytes, count in Counter(size for row in matrix for size in row).items():
        if size_bytes:
            total += _message(size_bytes, path_mtu) * count
    return total


def longest_path(topology: Topology) -> int:
    """Return the number of links on the longest path from the first host."""
    if len(topology.hosts) < 2:
        return 0
    first, *others = topology.hosts
    # Hosts of one switch are at the same distance.
    by_switch = {topology.switch_of(host): host for host in others}
    return max(
        (
            len(path)
            for host in by_switch.values()
            for path in topology.paths(first, host)[:1]
        ),
        default=0,
    )


def _collective(
    how: Algorithm, *, root: int, input_bytes: int, nranks: int, path_mtu: int
) -> Traffic:
    """Return the approximate traffic of all ranks of a group in one collective."""

    def share(position: int) -> Traffic:
        """Return the traffic of one position of the group."""
        total = Traffic()
        sizes = how.sent_sizes(
            position, nranks=nranks, root=root, input_bytes=input_bytes
        )
        for size_bytes, count in sizes.items():
            total += _message(size_bytes, path_mtu) * count
        return total

    others = [each for each in range(nranks) if each != root]
    stride = -(-len(others) // _SAMPLED_POSITIONS) if others else 1
    looked_at = others[::stride]
    sampled = Traffic()
    for position in looked_at:
        sampled += share(position)
    scaled = Traffic()
    if looked_at:
        scaled = Traffic(
            messages=sampled.messages * len(others) // len(looked_at),
            packets=sampled.packets * len(others) // len(looked_at),
            squares=sampled.squares * len(others) // len(looked_at),
        )
    return scaled + share(root)


def _message(size_bytes: int, path_mtu: int) -> Traffic:
    packets = packets_of(size_bytes, path_mtu=path_mtu)
    return Traffic(messages=1, packets=packets, squares=packets * packets)
