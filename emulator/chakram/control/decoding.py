"""Plans that came as messages, checked.

Nothing is trusted: counts and sizes are bounded, numbers stand in the ranges of their
fields, addresses parse, programs are whole, and every reference inside the plan finds
what it names.  Whatever is wrong becomes a ``PlanError`` with its path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.addresses import is_ipv6
from chakram.control.fault_codec import MAX_FAULTS, decode_fault
from chakram.control.field_checks import (
    MAX_NAMES,
    MAX_TEXT,
    MAX_TIME_NS,
    Fault,
    address,
    between,
    check_count,
    inside,
    name_text,
    one_of,
    rows,
)
from chakram.control.probe_codec import check_probes, decode_probes
from chakram.control.program_codec import MAX_JOBS, MAX_RANKS, decode_programs
from chakram.errors import PlanError
from chakram.plan.plan import (
    ORDERS,
    POLICIES,
    AgentPlan,
    JobSettings,
    PlugInUse,
    PortPlan,
    QueuePairPlan,
    RankPlan,
    RunSettings,
    TransportPlan,
)
from chakram.plan.queue_pairs import CREDIT_CHANNELS
from chakram.program.operations import POINT_TO_POINT
from chakram.roce.constants import ICRC_MODES, PATH_MTUS
from chakram.units import LARGEST_SIZE_BYTES

if TYPE_CHECKING:
    from chakram.control.protocol_messages import pb
    from chakram.program.operations import RankProgram

__all__ = ["decode_plan"]

MAX_PORTS = 1024
MAX_QUEUE_PAIRS = 2**17
"""Of one rank.  A job of 4,096 ranks with 8 channels to each peer needs 2**15."""
MAX_SHARDS = 256
MAX_PLUG_INS = 64
MAX_ITERATIONS = 10**9
MAX_MTU = 65535
MAX_RATE_BPS = 10**15
MAX_BURST_PACKETS = 128
MAX_ADAPTIVE_NS = 10**12

_VERBS = ("write", "send")
_SPLITS = ("round_robin", "even")
_SYNCS = ("barrier", "free", "gap")


def decode_plan(message: pb.AgentPlan, *, is_checked: bool = False) -> AgentPlan:
    """Return the plan of a message.

    Args:
        message: What came.
        is_checked: Whether it came from whoever has checked its programs.

    Raises:
        PlanError: If the plan is wrong; it names the path of what is.
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
    programs = rows(
        "programs",
        message.programs,
        lambda job: decode_programs(job, is_checked=is_checked),
        most=MAX_JOBS,
    )
    if len({job.job for job in message.programs}) != len(programs):
        raise Fault("programs", "two jobs have one name")
    return AgentPlan(
        run_id=name_text("run_id", message.run_id),
        agent=name_text("agent", message.agent),
        shards=between("shards", message.shards, 1, MAX_SHARDS),
        ports=rows("ports", message.ports, _port, most=MAX_PORTS),
        ranks=rows(
            "ranks", message.ranks, lambda row: _rank(row, programs), most=MAX_RANKS
        ),
        transport=inside("transport", message.transport, _transport),
        settings=inside("settings", message.settings, _settings),
        peers=rows(
            "peers", message.peers, lambda text: address("", text), most=MAX_NAMES
        ),
        rank_numbers=rows(
            "rank_numbers",
            message.rank_numbers,
            lambda row: (name_text("job", row.job), row.rank, row.number),
            most=MAX_NAMES,
        ),
        probes=inside("probes", message.probes, decode_probes)
        if message.HasField("probes")
        else None,
        plug_ins=rows("plug_ins", message.plug_ins, _plug_in, most=MAX_PLUG_INS),
    )


def _plug_in(message: pb.PlugIn) -> PlugInUse:
    return PlugInUse(
        noun=name_text("noun", message.noun),
        name=name_text("name", message.name),
        package=name_text("package", message.package),
    )


def _port(message: pb.PortPlan) -> PortPlan:
    return PortPlan(
        number=message.number,
        agent=name_text("agent", message.agent),
        host=name_text("host", message.host),
        open=name_text("open", message.open),
        netns=name_text("netns", message.netns) if message.HasField("netns") else None,
        address=address("address", message.address),
        udp_port=between("udp_port", message.udp_port, 1, 65535),
        rate_bps=(
            between("rate_bps", message.rate_bps, 1, MAX_RATE_BPS)
            if message.HasField("rate_bps")
            else None
        ),
        mtu=between("mtu", message.mtu, 68, MAX_MTU),
    )


def _rank(
    message: pb.RankPlan, programs: tuple[tuple[RankProgram, ...], ...]
) -> RankPlan:
    if message.job >= len(programs):
        raise Fault("job", f"{message.job} of {len(programs)} jobs")
    of_job = programs[message.job]
    if message.program >= len(of_job):
        raise Fault("program", f"{message.program} of {len(of_job)} programs")
    return RankPlan(
        number=message.number,
        port=message.port,
        shard=message.shard,
        program=of_job[message.program],
        queue_pairs=rows(
            "queue_pairs", message.queue_pairs, _queue_pair, most=MAX_QUEUE_PAIRS
        ),
    )


def _queue_pair(message: pb.QueuePairPlan) -> QueuePairPlan:
    return QueuePairPlan(
        group=name_text("group", message.group),
        # Grants of each channel go on one of their own, so much higher.
        channel=between("channel", message.channel, 0, 2 * CREDIT_CHANNELS - 1),
        peer_rank=between("peer_rank", message.peer_rank, 0, MAX_NAMES),
        qpn=between("qpn", message.qpn, 0, 2**24 - 1),
        remote_qpn=between("remote_qpn", message.remote_qpn, 0, 2**24 - 1),
        remote_port=message.remote_port,
        remote_address=address("remote_address", message.remote_address),
        remote_udp_port=between("remote_udp_port", message.remote_udp_port, 1, 65535),
        source_port=between("source_port", message.source_port, 1, 65535),
        send_psn=between("send_psn", message.send_psn, 0, 2**24 - 1),
        receive_psn=between("receive_psn", message.receive_psn, 0, 2**24 - 1),
        index=between("index", message.index, 0, 2**16),
        local_rate_bps=(
            between("local_rate_bps", message.local_rate_bps, 0, MAX_RATE_BPS)
            if message.HasField("local_rate_bps")
            else None
        ),
    )


def _transport(message: pb.TransportPlan) -> TransportPlan:
    if message.path_mtu not in PATH_MTUS:
        raise Fault(
            "path_mtu",
            f"{message.path_mtu} is no path MTU",
            f"one of {', '.join(map(str, PATH_MTUS))}",
        )
    check_count("congestion_parameters", message.congestion_parameters, 100)
    return TransportPlan(
        path_mtu=message.path_mtu,
        window_bytes=between(
            "window_bytes", message.window_bytes, 1, LARGEST_SIZE_BYTES
        ),
        congestion_control=name_text("congestion_control", message.congestion_control),
        congestion_parameters=tuple(
            (name_text("congestion_parameters", parameter.name), parameter.value)
            for parameter in message.congestion_parameters
        ),
        verb=one_of("verb", message.verb, _VERBS),
        dscp_data=between("dscp_data", message.dscp_data, 0, 63),
        dscp_ack=between("dscp_ack", message.dscp_ack, 0, 63),
        dscp_cnp=between("dscp_cnp", message.dscp_cnp, 0, 63),
        ecn=between("ecn", message.ecn, 0, 3),
        ack_interval_packets=between(
            "ack_interval_packets", message.ack_interval_packets, 1, 2**16
        ),
        retransmit_timeout_ns=between(
            "retransmit_timeout_ns", message.retransmit_timeout_ns, 0, MAX_TIME_NS
        ),
        retry_limit=between("retry_limit", message.retry_limit, 0, 2**16),
        rnr_retry_limit=between("rnr_retry_limit", message.rnr_retry_limit, 0, 7),
        rnr_timer=between("rnr_timer", message.rnr_timer, 0, 31),
        adaptive_low_ns=between(
            "adaptive_low_ns", message.adaptive_low_ns, 0, MAX_ADAPTIVE_NS
        ),
        adaptive_tries=between("adaptive_tries", message.adaptive_tries, 1, 2**16),
        split=one_of("split", message.split, _SPLITS),
        message_bytes=between(
            "message_bytes", message.message_bytes, 0, LARGEST_SIZE_BYTES
        ),
        icrc=one_of("icrc", message.icrc, ICRC_MODES),
        verify_every=between("verify_every", message.verify_every, 0, 2**30),
        max_burst_packets=between(
            "max_burst_packets", message.max_burst_packets, 1, MAX_BURST_PACKETS
        ),
        burst_bound_ns=between(
            "burst_bound_ns", message.burst_bound_ns, 0, MAX_TIME_NS
        ),
    )


def _settings(message: pb.RunSettings) -> RunSettings:
    if not 0.0 <= message.drop_ratio < 1.0:
        raise Fault("drop_ratio", f"{message.drop_ratio} is not in [0, 1)")
    return RunSettings(
        warmup=between("warmup", message.warmup, 0, MAX_ITERATIONS),
        measured=between("measured", message.measured, 0, MAX_ITERATIONS),
        sync=one_of("sync", message.sync, _SYNCS),
        gap_ns=between("gap_ns", message.gap_ns, 0, MAX_TIME_NS),
        drop_ratio=message.drop_ratio,
        seed=message.seed,
        hang_timeout_ns=between(
            "hang_timeout_ns", message.hang_timeout_ns, 1, MAX_TIME_NS
        ),
        credits=between("credits", message.credits, 0, 64),
        jobs=rows("jobs", message.jobs, _job_settings, most=MAX_JOBS),
        faults=rows("faults", message.faults, decode_fault, most=MAX_FAULTS),
        sample_bin_ns=between("sample_bin_ns", message.sample_bin_ns, 0, MAX_TIME_NS),
    )


def _job_settings(message: pb.JobSettings) -> JobSettings:
    return JobSettings(
        job=name_text("job", message.job),
        offset_ns=between("offset_ns", message.offset_ns, 0, MAX_TIME_NS),
        iterations=between("iterations", message.iterations, 0, MAX_ITERATIONS)
        if message.HasField("iterations")
        else None,
        is_background=message.is_background,
        policy=one_of("policy", message.policy, POLICIES),
        order=one_of("order", message.order, ORDERS),
    )


def _check_references(plan: AgentPlan) -> None:
    """Find what ports, ranks, shards and queue pairs name, and what is there twice."""
    ports = {port.number: port.address for port in plan.ports}
    if len(ports) != len(plan.ports):
        raise Fault("ports", "two ports have one number")
    if len({rank.number for rank in plan.ranks}) != len(plan.ranks):
        raise Fault("ranks", "two ranks have one number")
    numbers = plan.numbers()
    if len(numbers) != len(plan.rank_numbers):
        raise Fault("rank_numbers", "a rank stands there twice")
    peers = set(plan.peers)
    check_probes(plan, ports, peers)
    shard_of_port: dict[int, int] = {}
    kinds = {port.number: port.open for port in plan.ports}
    taken: set[tuple[int, int]] = set()
    for index, rank in enumerate(plan.ranks):
        path = f"ranks[{index}]"
        program = rank.program
        if rank.port not in ports:
            raise Fault(f"{path}.port", f"port {rank.port} is not in the plan")
        if rank.shard >= plan.shards:
            raise Fault(f"{path}.shard", f"shard {rank.shard} of {plan.shards} shards")
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
                f"{rank.number} is not what rank_numbers says of job "
                f"{program.job} rank {program.rank}",
            )
        groups = {group.name for group in program.groups}
        for place, pair in enumerate(rank.queue_pairs):
            where = f"{path}.queue_pairs[{place}]"
            _check_queue_pair(pair, rank, groups, peers, numbers, where)
            if is_ipv6(pair.remote_address) != is_ipv6(ports[rank.port]):
                raise Fault(
                    f"{where}.remote_address",
                    f"{pair.remote_address} is not of the IP version of "
                    f"{ports[rank.port]}",
                )
            if (rank.port, pair.qpn) in taken:
                raise Fault(
                    f"{path}.queue_pairs[{place}].qpn",
                    f"port {rank.port} has two queue pairs {pair.qpn}",
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
    if pair.remote_address not in peers:
        raise Fault(
            f"{path}.remote_address",
            f"{pair.remote_address} is not among the peers of the plan",
            "an agent sends to members of the plan only",
        )
    if (rank.program.job, pair.peer_rank) not in numbers:
        raise Fault(f"{path}.peer_rank", f"there is no rank {pair.peer_rank}")
    if pair.group != POINT_TO_POINT and pair.group not in groups:
        raise Fault(f"{path}.group", f"there is no process group {pair.group!r}")
