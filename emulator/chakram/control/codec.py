"""Plans as messages, and back.

Data-plane processes use this module too: it needs protobuf, but not gRPC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.control.decoding import decode_plan
from chakram.control.fault_codec import encode_faults
from chakram.control.probe_codec import encode_probes
from chakram.control.program_codec import encode_programs
from chakram.control.protocol_messages import decode_message, pb

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan, RankPlan
    from chakram.program.operations import RankProgram

__all__ = [
    "decode_plan",
    "encode_plan",
    "parse_plan",
    "plan_bytes",
]


def encode_plan(plan: AgentPlan) -> pb.AgentPlan:
    """Return the message of a plan."""
    transport = plan.transport
    settings = plan.settings
    jobs: dict[str, list[RankProgram]] = {}
    places: list[tuple[int, int]] = []
    for rank in plan.ranks:
        of_job = jobs.setdefault(rank.program.job, [])
        places.append((list(jobs).index(rank.program.job), len(of_job)))
        of_job.append(rank.program)
    return pb.AgentPlan(
        run_id=plan.run_id,
        agent=plan.agent,
        shards=plan.shards,
        ports=[
            pb.PortPlan(
                number=port.number,
                agent=port.agent,
                host=port.host,
                open=port.open,
                netns=port.netns,
                address=port.address,
                udp_port=port.udp_port,
                rate_bps=port.rate_bps,
                mtu=port.mtu,
            )
            for port in plan.ports
        ],
        ranks=[
            _encode_rank(rank, job, program)
            for rank, (job, program) in zip(plan.ranks, places, strict=True)
        ],
        programs=[encode_programs(job, programs) for job, programs in jobs.items()],
        transport=pb.TransportPlan(
            path_mtu=transport.path_mtu,
            window_bytes=transport.window_bytes,
            congestion_control=transport.congestion_control,
            congestion_parameters=[
                pb.Parameter(name=name, value=value)
                for name, value in transport.congestion_parameters
            ],
            verb=transport.verb,
            dscp_data=transport.dscp_data,
            dscp_ack=transport.dscp_ack,
            dscp_cnp=transport.dscp_cnp,
            ecn=transport.ecn,
            ack_interval_packets=transport.ack_interval_packets,
            retransmit_timeout_ns=transport.retransmit_timeout_ns,
            retry_limit=transport.retry_limit,
            rnr_retry_limit=transport.rnr_retry_limit,
            rnr_timer=transport.rnr_timer,
            adaptive_low_ns=transport.adaptive_low_ns,
            adaptive_tries=transport.adaptive_tries,
            split=transport.split,
            message_bytes=transport.message_bytes,
            icrc=transport.icrc,
            verify_every=transport.verify_every,
            max_burst_packets=transport.max_burst_packets,
            burst_bound_ns=transport.burst_bound_ns,
        ),
        settings=pb.RunSettings(
            warmup=settings.warmup,
            measured=settings.measured,
            sync=settings.sync,
            gap_ns=settings.gap_ns,
            drop_ratio=settings.drop_ratio,
            seed=settings.seed,
            hang_timeout_ns=settings.hang_timeout_ns,
            credits=settings.credits,
            faults=encode_faults(settings.faults),
            sample_bin_ns=settings.sample_bin_ns,
            jobs=[
                pb.JobSettings(
                    job=job.job,
                    offset_ns=job.offset_ns,
                    iterations=job.iterations,
                    is_background=job.is_background,
                    policy=job.policy,
                    order=job.order,
                )
                for job in settings.jobs
            ],
        ),
        peers=plan.peers,
        rank_numbers=[
            pb.RankNumber(job=job, rank=rank, number=number)
            for job, rank, number in plan.rank_numbers
        ],
        probes=None if plan.probes is None else encode_probes(plan.probes),
        plug_ins=[
            pb.PlugIn(noun=each.noun, name=each.name, package=each.package)
            for each in plan.plug_ins
        ],
    )


def plan_bytes(plan: AgentPlan) -> bytes:
    """Return the bytes of a plan's message."""
    return encode_plan(plan).SerializeToString()


def _encode_rank(rank: RankPlan, job: int, program: int) -> pb.RankPlan:
    return pb.RankPlan(
        number=rank.number,
        port=rank.port,
        shard=rank.shard,
        job=job,
        program=program,
        queue_pairs=[
            pb.QueuePairPlan(
                group=pair.group,
                channel=pair.channel,
                peer_rank=pair.peer_rank,
                qpn=pair.qpn,
                remote_qpn=pair.remote_qpn,
                remote_port=pair.remote_port,
                remote_address=pair.remote_address,
                remote_udp_port=pair.remote_udp_port,
                source_port=pair.source_port,
                send_psn=pair.send_psn,
                receive_psn=pair.receive_psn,
                index=pair.index,
                local_rate_bps=pair.local_rate_bps,
            )
            for pair in rank.queue_pairs
        ],
    )


def parse_plan(data: bytes, *, where: str) -> AgentPlan:
    """Return the plan whose message *data* holds.

    Raises:
        PeerError: At *where*, if it holds no such message.
        PlanError: If the plan is wrong.
    """
    return decode_plan(decode_message(pb.AgentPlan, data, where=where))
