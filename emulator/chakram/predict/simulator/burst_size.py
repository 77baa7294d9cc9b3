"""How many packets a simulation lets cross a link as one.

A simulated event costs the same for one packet as for many, so large jobs are simulated
in bursts.  The price is time: every node stores a burst whole before it passes it on,
so with b packets in a burst a message of p packets takes about ``(b - 1) x links``
packets longer, and the window must hold a burst on every link of the path and one more
or the sender stands still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.uneven_messages import splits_bytes, uneven_messages
from chakram.plan.wire_cost import packets_of

if TYPE_CHECKING:
    from chakram.collectives.schedule import Algorithm
    from chakram.collectives.split_sizes import Matrix
    from chakram.plan.plan import Plan
    from chakram.program.operations import RankProgram
    from chakram.topology.topology import Topology


BURSTS_TARGET = 2_000_000
"""Bursts that a simulation is allowed without becoming coarser: some ten seconds."""

_TOLERANCE = 20
"""One part in how many a message may become slower by being sent in bursts."""

_MOST_PACKETS = 64

_SAMPLED_POSITIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The data packets of a job.

    Attributes:
        messages: How many messages.
        packets: How many packets, each sent once.
        squares: The sum over messages of the square of its packets.
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
        """Return the size of the message that the mean packet belongs to."""
        return self.squares // self.packets if self.packets else 0


def burst_packets_for(traffic: Traffic, *, window_packets: int, links: int) -> int:
    """Return how many packets of *traffic* to simulate as one burst.

    As few as keep the bursts below ``BURSTS_TARGET``, but no more than let the typical
    message be within a twentieth of its time, for a small job is quick and a job of
    small messages gains nothing by bursts.

    Args:
        traffic: Of all iterations.
        window_packets: Packets that a queue pair may have under way.
        links: Of the longest path.
    """
    enough = -(-traffic.packets // BURSTS_TARGET)
    accurate = 1 + traffic.typical_packets() // (_TOLERANCE * max(1, links))
    flowing = window_packets // (links + 1)
    return max(1, min(enough, accurate, flowing, _MOST_PACKETS))


def plan_traffic(plan: Plan, *, iterations: int) -> Traffic:
    """Return about what all ranks of *plan* send in so many iterations."""
    if not plan.agents:
        return Traffic()
    path_mtu = plan.agents[0].transport.path_mtu
    programs = (rank.program for rank in plan.ranks())
    return program_traffic(programs, path_mtu=path_mtu) * iterations


def program_traffic(programs: Iterable[RankProgram], *, path_mtu: int) -> Traffic:
    """Return about what the ranks of *programs* send in one iteration.

    It is exact for groups of up to 16 ranks; of larger ones only some ranks are looked
    at, for a group of 1,024 has a million messages.
    """
    total = Traffic()
    known: dict[tuple[object, ...], Traffic] = {}
    for program in programs:
        for message, count in program.columns.message_uses.items():
            total += _message(message.size_bytes, path_mtu) * count
        for use, count in program.columns.collective_uses.items():
            ranks = program.groups[use.group].ranks
            if use.splits is None and program.rank != ranks[0]:
                continue  # counted by the first rank of its group
            how = algorithm_of(
                use.op,
                use.algorithm,
                nranks=len(ranks),
                root=use.root,
                listed=program.algorithms,
            )
            if use.splits is not None:
                position = ranks.index(program.rank)
                own = program.splits[use.splits]
                pair_bytes = splits_bytes(
                    how, own.splits, own.passed_bytes, position=position
                )
                for _, size_bytes in uneven_messages(
                    how, position=position, nranks=len(ranks), pair_bytes=pair_bytes
                ):
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
    """Return about what all ranks of a group send in one collective.

    *matrix* is, of an all_to_all_v, the bytes from each position to each; what is
    passed on for others is not counted.
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
    """Return the links of the longest path that begins at the first host."""
    if len(topology.hosts) < 2:
        return 0
    first, *others = topology.hosts
    # Hosts of one switch are equally far away.
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
    """Return what all ranks of a group send in one collective."""

    def share(position: int) -> Traffic:
        """Return what one position of the group sends."""
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
