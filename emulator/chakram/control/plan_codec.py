"""Conversion of plans to and from messages, with checks when decoding.

The decoder does not trust received data. Values must be within the bounds of their
fields (``chakram.control.dataclass_codec``), programs must be complete, and all
references within the plan must be valid. Otherwise, the decoder raises a ``PlanError``
with the path of the invalid field.

Data-plane processes use this module too: it needs protobuf, but not gRPC.
"""

from __future__ import annotations

from collections.abc import Collection

from chakram.collectives.groups import POINT_TO_POINT
from chakram.control.dataclass_codec import Mapper
from chakram.control.program_codec import decode_programs, encode_programs
from chakram.control.protobuf_messages import pb
from chakram.foundation.errors import PlanError
from chakram.foundation.field_bounds import MAX_TEXT, AtMost, Fault, taken
from chakram.foundation.ip_addresses import is_ipv6
from chakram.plan.plan import MAX_JOBS, MAX_RANKS, AgentPlan, QueuePairPlan, RankPlan
from chakram.program.operations import RankProgram

# Ranks refer to their programs by index, so a message contains each program once.
_PLANS = Mapper(
    AgentPlan, pb.AgentPlan, without=["ranks"], beyond=["ranks", "programs"]
)
_RANKS = Mapper(RankPlan, pb.RankPlan, without=["program"], beyond=["job", "program"])


def encode_plan(plan: AgentPlan) -> pb.AgentPlan:
    """Convert a plan to a message."""
    message = _PLANS.encode(plan)
    jobs: dict[str, list[RankProgram]] = {}
    for rank in plan.ranks:
        of_job = jobs.setdefault(rank.program.job, [])
        encoded = _RANKS.encode(rank)
        encoded.job = list(jobs).index(rank.program.job)
        encoded.program = len(of_job)
        message.ranks.append(encoded)
        of_job.append(rank.program)
    message.programs.extend(
        encode_programs(job, programs) for job, programs in jobs.items()
    )
    return message


def decode_plan(message: pb.AgentPlan, *, is_checked: bool = False) -> AgentPlan:
    """Convert a message to a plan.

    Args:
        message: Message from the sender.
        is_checked: Whether the sender has already checked the programs.

    Raises:
        PlanError: If the plan is invalid. The error contains the path of the invalid
            field.
    """
    try:
        plan = _plan(message, is_checked=is_checked)
        _check_references(plan)
    except Fault as fault:
        run_id = message.run_id if len(message.run_id) <= MAX_TEXT else "?"
        raise PlanError(
            f"plan {run_id or '?'}: {fault.path}", fault.found, fault.hint
        ) from None
    return plan


def _plan(message: pb.AgentPlan, *, is_checked: bool) -> AgentPlan:
    name = "programs"
    try:
        programs = taken(
            AtMost(MAX_JOBS).take(message.programs),
            lambda job: decode_programs(job, is_checked=is_checked),
        )
        if len({job.job for job in message.programs}) != len(programs):
            raise Fault("", "two jobs have the same name")
        name = "ranks"
        ranks = taken(
            AtMost(MAX_RANKS).take(message.ranks), lambda row: _rank(row, programs)
        )
    except Fault as fault:
        raise fault.below(name) from None
    return _PLANS.decode(message, ranks=ranks)


def _rank(
    message: pb.RankPlan, programs: tuple[tuple[RankProgram, ...], ...]
) -> RankPlan:
    if message.job >= len(programs):
        raise Fault("job", f"is {message.job}, but there are {len(programs)} jobs")
    of_job = programs[message.job]
    if message.program >= len(of_job):
        raise Fault(
            "program", f"is {message.program}, but there are {len(of_job)} programs"
        )
    return _RANKS.decode(message, program=of_job[message.program])


def _check_references(plan: AgentPlan) -> None:
    """Check that references within the plan are valid and numbers are unique."""
    ports = {port.number: port.address for port in plan.ports}
    if len(ports) != len(plan.ports):
        raise Fault("ports", "two ports have the same number")
    if len({rank.number for rank in plan.ranks}) != len(plan.ranks):
        raise Fault("ranks", "two ranks have the same number")
    numbers = plan.numbers()
    if len(numbers) != len(plan.rank_numbers):
        raise Fault("rank_numbers", "a rank is listed twice")
    peers = set(plan.peers)
    _check_probes(plan, ports, peers)
    shard_of_port: dict[int, int] = {}
    kinds = {port.number: port.open for port in plan.ports}
    taken: set[tuple[int, int]] = set()
    for index, rank in enumerate(plan.ranks):
        path = f"ranks[{index}]"
        program = rank.program
        if rank.port not in ports:
            raise Fault(f"{path}.port", f"port {rank.port} is not in the plan")
        if rank.shard >= plan.shards:
            raise Fault(
                f"{path}.shard", f"is {rank.shard}, but there are {plan.shards} shards"
            )
        if shard_of_port.setdefault(rank.port, rank.shard) != rank.shard and not kinds[
            rank.port
        ].startswith("udp:"):
            raise Fault(
                f"{path}.shard",
                f"port {rank.port} ({kinds[rank.port]}) has ranks in two shards",
                "only ports of kind udp: can be divided",
            )
        if numbers.get((program.job, program.rank)) != rank.number:
            raise Fault(
                f"{path}.number",
                f"{rank.number} does not match rank_numbers for job {program.job} rank "
                f"{program.rank}",
            )
        groups = {group.name for group in program.groups}
        for place, pair in enumerate(rank.queue_pairs):
            where = f"{path}.queue_pairs[{place}]"
            _check_queue_pair(pair, rank, groups, peers, numbers, where)
            if is_ipv6(pair.remote_address) != is_ipv6(ports[rank.port]):
                raise Fault(
                    f"{where}.remote_address",
                    f"{pair.remote_address} and {ports[rank.port]} have different IP "
                    "versions",
                )
            if (rank.port, pair.qpn) in taken:
                raise Fault(
                    f"{path}.queue_pairs[{place}].qpn",
                    f"port {rank.port} has two queue pairs numbered {pair.qpn}",
                )
            taken.add((rank.port, pair.qpn))


def _check_queue_pair(
    pair: QueuePairPlan,
    rank: RankPlan,
    groups: set[str],
    peers: set[str],
    numbers: dict[tuple[str, int], int],
    path: str,
) -> None:
    _check_peer(f"{path}.remote_address", pair.remote_address, peers)
    if (rank.program.job, pair.peer_rank) not in numbers:
        raise Fault(f"{path}.peer_rank", f"there is no rank {pair.peer_rank}")
    if pair.group != POINT_TO_POINT and pair.group not in groups:
        raise Fault(f"{path}.group", f"there is no process group {pair.group!r}")


def _check_probes(
    plan: AgentPlan, ports: Collection[int], peers: Collection[str]
) -> None:
    if plan.probes is None:
        return
    if plan.ranks:
        raise Fault("probes", "cannot be combined with ranks")
    for index, target in enumerate(plan.probes.targets):
        path = f"probes.targets[{index}]"
        if target.source not in ports:
            raise Fault(f"{path}.source", f"port {target.source} is not in the plan")
        _check_peer(f"{path}.address", target.address, peers)


def _check_peer(path: str, address: str, peers: Collection[str]) -> None:
    if address not in peers:
        raise Fault(
            path,
            f"{address} is not among the peers of the plan",
            "an agent sends only to members of the plan",
        )
