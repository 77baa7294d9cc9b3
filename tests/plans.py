"""Small plans for tests of agents and of the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from chakram.collectives.groups import WORLD, world_group
from chakram.config.congestion import congestion_arguments, settings_model
from chakram.control.plan_codec import decode_plan, encode_plan
from chakram.control.plan_file import SavedInput, SavedJob, SavedPlan
from chakram.control.protobuf_messages import decode_message, pb
from chakram.plan.plan import AgentPlan, QueuePairPlan, RankPlan, RunSettings
from chakram.plan.port_plan import PortPlan
from chakram.plan.transport import TransportPlan
from chakram.program.operations import Operation, RankProgram, program_of
from tests.made_plans import collective, program
from tests.port_plans import pair_plan, port_plan
from tests.udp_ports import free_udp_ports

JOB = "job"
UDP_PORT = free_udp_ports()
"""Where the ports of plans listen unless a test wants another one."""


def plan_bytes(plan: AgentPlan) -> bytes:
    """Return the bytes of a plan's message."""
    return encode_plan(plan).SerializeToString()


def parse_plan(data: bytes, *, where: str) -> AgentPlan:
    """Return the plan whose message *data* holds."""
    return decode_plan(decode_message(pb.AgentPlan, data, where=where))


def ring_plan(
    *,
    nranks: int = 2,
    agent: str = "a",
    shards: int = 1,
    input_bytes: int = 100_000,
    iterations: int = 3,
    settings: RunSettings | None = None,
    transport: TransportPlan | None = None,
    open_spec: str = "udp:lo",
    first_address: int = 1,
    prefix: str = "127.18.0",
    udp_port: int = UDP_PORT,
    netns: tuple[str | None, ...] | None = None,
    rate_bps: int | None = 1_000_000_000,
    collectives: int = 1,
) -> AgentPlan:
    """Return a plan of *nranks* ranks that all-reduce over a ring, a port for each.

    Every rank has a queue pair to its two neighbors; those of 2 ranks are the same.
    """
    addresses = [f"{prefix}.{first_address + rank}" for rank in range(nranks)]
    world = world_group(nranks)
    ports = tuple(
        port_plan(
            rank,
            agent=agent,
            open_spec=open_spec,
            netns=None if netns is None else netns[rank],
            address=address,
            udp_port=udp_port,
            rate_bps=rate_bps,
        )
        for rank, address in enumerate(addresses)
    )
    operations = [
        collective(
            "all_reduce",
            input_bytes,
            number=number,
            algorithm="ring",
            after=[number - 1] if number else [],
        )
        for number in range(collectives)
    ]
    ranks = tuple(
        RankPlan(
            number=rank,
            port=rank,
            shard=rank % shards,
            program=program(rank, world, operations, job=JOB),
            queue_pairs=tuple(
                queue_pair(rank, ports[peer])
                for peer in sorted({(rank - 1) % nranks, (rank + 1) % nranks} - {rank})
            ),
        )
        for rank in range(nranks)
    )
    return AgentPlan(
        run_id="run-1",
        agent=agent,
        shards=shards,
        ports=ports,
        ranks=ranks,
        transport=transport or TransportPlan(),
        settings=settings or RunSettings(warmup=1, measured=iterations - 1),
        peers=tuple(addresses),
        rank_numbers=tuple((JOB, rank, rank) for rank in range(nranks)),
    )


def moved(
    plan: AgentPlan, places: Sequence[tuple[str, int]], *, open_spec: str | None = None
) -> AgentPlan:
    """Return a plan with its ports at other (address, UDP port), in their order."""
    place_of = {
        port.number: where for port, where in zip(plan.ports, places, strict=True)
    }

    def pair_moved(pair: QueuePairPlan) -> QueuePairPlan:
        address, udp_port = place_of[pair.remote_port]
        return replace(pair, remote_address=address, remote_udp_port=udp_port)

    return replace(
        plan,
        peers=tuple(dict.fromkeys(address for address, _ in places)),
        ports=tuple(
            replace(
                port,
                open=open_spec or port.open,
                address=place_of[port.number][0],
                udp_port=place_of[port.number][1],
            )
            for port in plan.ports
        ),
        ranks=tuple(
            replace(rank, queue_pairs=tuple(map(pair_moved, rank.queue_pairs)))
            for rank in plan.ranks
        ),
    )


def queue_pair(rank: int, remote: PortPlan) -> QueuePairPlan:
    """Return the end at *rank* of its queue pair with the rank behind a port."""
    peer = remote.number
    return pair_plan(
        qpn(rank, peer),
        qpn(peer, rank),
        remote=remote,
        group=WORLD,
        peer_rank=peer,
        source_port=49152 + rank * 16 + peer,
        send_psn=1000 * rank + peer,
        receive_psn=1000 * peer + rank,
    )


def qpn(rank: int, peer: int) -> int:
    """Return the number of the queue pair of *rank* to *peer*."""
    return 0x100 + rank * 0x40 + peer


def saved_plan(
    programs: Iterable[RankProgram], *, inputs: Iterable[SavedInput] = ()
) -> SavedPlan:
    """Return a saved plan of one job."""
    programs = tuple(programs)
    job = SavedJob(
        name=programs[0].job,
        settings="0f",
        trace="t",
        producer="p",
        digest="d",
        nodes=7,
        warnings=("w",),
        programs=programs,
    )
    return SavedPlan(made_by="1", jobs=(job,), inputs=tuple(inputs))


def rewritten(old: RankProgram, operations: Iterable[Operation]) -> RankProgram:
    """Return a program with other operations."""
    return program_of(
        tuple(operations),
        job=old.job,
        rank=old.rank,
        groups=old.groups,
        algorithms=old.algorithms,
    )


def dcqcn_arguments(
    scope: str = "queue_pair", *, interval: str = "50us", line_bps: int = 10**10
) -> tuple[tuple[str, int], ...]:
    """Return the arguments of the paper's DCQCN, with CNPs limited by *scope*."""
    settings = settings_model("dcqcn").model_validate(
        {
            "profile": "dcqcn-paper",
            "overrides": {"cnp_scope": scope, "cnp_interval": interval},
        }
    )
    return congestion_arguments("dcqcn", settings, line_bps)
