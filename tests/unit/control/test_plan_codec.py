from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.collectives.groups import POINT_TO_POINT
from chakram.control import program_codec
from chakram.control.plan_codec import decode_plan, encode_plan
from chakram.control.protobuf_messages import MAX_MESSAGE_BYTES, pb
from chakram.foundation.errors import PeerError, PlanError
from chakram.plan.packet_faults import PACKET_CLASSES, FaultAction, PacketFault
from chakram.plan.plan import (
    ORDERS,
    POLICIES,
    AgentPlan,
    JobSettings,
    PlugInUse,
    RunSettings,
)
from chakram.plan.transport import TransportPlan
from chakram.program.columns import OperationColumns
from chakram.program.operations import (
    ComputeOperation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
)
from chakram.program.program_check import ColumnsCheck, ProgramChecks
from chakram_agent.shards import shard_part
from tests.plans import parse_plan, plan_bytes, queue_pair, rewritten, ring_plan

PLUG_INS = (
    PlugInUse(noun="congestion control", name="aimd", package="chakram-aimd 1.0"),
    PlugInUse(noun="algorithm", name="star", package="chakram-star 2.1"),
)


def plan_of_every_operation() -> AgentPlan:
    plan = ring_plan(nranks=3, shards=3)
    rank = plan.ranks[0]
    program = rank.program
    operations = (
        *program.operations,
        ComputeOperation(
            node_id=None, name="", dependencies=(0,), duration_ns=5, stream=7
        ),
        ComputeOperation(node_id=2**64 - 1, name="x", dependencies=(1,), duration_ns=0),
        SendOperation(
            node_id=9,
            name="send",
            dependencies=(0, 2),
            peer=1,
            number=0,
            tag=-3,
            size_bytes=0,
            trace_bytes=0,
        ),
        ReceiveOperation(
            node_id=10,
            name="receive",
            dependencies=(),
            peer=2,
            number=4,
            tag=2**62,
            size_bytes=5,
            trace_bytes=320,
        ),
    )
    pair = replace(queue_pair(0, plan.ports[1]), group=POINT_TO_POINT, qpn=0x900)
    ranks = (
        replace(
            rank,
            program=rewritten(program, operations),
            queue_pairs=(*rank.queue_pairs, pair),
        ),
        *plan.ranks[1:],
    )
    ports = (replace(plan.ports[0], netns="/run/netns/x", rate_bps=None),)
    return replace(plan, ranks=ranks, ports=ports + plan.ports[1:], plug_ins=PLUG_INS)


@pytest.mark.parametrize("plan", [ring_plan(), plan_of_every_operation()])
def test_decoding_an_encoded_plan_returns_it(plan: AgentPlan) -> None:
    assert parse_plan(plan_bytes(plan), where="x") == plan


@given(
    transport=st.builds(
        TransportPlan,
        path_mtu=st.sampled_from([256, 1024, 4096]),
        window_bytes=st.integers(1, 2**40),
        congestion_parameters=st.lists(
            st.tuples(st.text("abc_", min_size=1), st.integers(-(2**63), 2**63 - 1)),
            max_size=5,
        ).map(tuple),
        verb=st.sampled_from(["write", "send"]),
        dscp_cnp=st.integers(0, 63),
        ecn=st.integers(0, 3),
        rnr_retry_limit=st.integers(0, 7),
        rnr_timer=st.integers(0, 31),
        adaptive_low_ns=st.integers(0, 10**9),
        adaptive_tries=st.integers(1, 10),
        split=st.sampled_from(["round_robin", "even"]),
        message_bytes=st.integers(0, 2**31),
        icrc=st.sampled_from(["table", "full", "off"]),
        verify_every=st.integers(0, 10**6),
    ),
    settings=st.builds(
        RunSettings,
        warmup=st.integers(0, 10**6),
        drop_ratio=st.floats(0, 0.99),
        seed=st.integers(-(2**63), 2**63 - 1),
        faults=st.lists(
            st.builds(
                PacketFault,
                action=st.sampled_from(FaultAction),
                packets=st.sampled_from(list(PACKET_CLASSES)),
                job=st.none() | st.text("abc", min_size=1, max_size=9),
                source=st.none() | st.integers(0, 99),
                destination=st.none() | st.integers(0, 99),
                group=st.none() | st.text("abc", min_size=1, max_size=9),
                channel=st.none() | st.integers(0, 99),
                queue_pair=st.none() | st.integers(0, 63),
                nth=st.integers(1, 2**40),
                delay_ns=st.integers(1, 10**9),
                behind=st.integers(1, 9),
            ),
            max_size=4,
        ).map(tuple),
        jobs=st.lists(
            st.builds(
                JobSettings,
                job=st.text("abc", min_size=1),
                offset_ns=st.integers(0, 10**12),
                iterations=st.none() | st.integers(0, 10**6),
                is_background=st.booleans(),
                policy=st.sampled_from(POLICIES),
                order=st.sampled_from(ORDERS),
            ),
            max_size=3,
        ).map(tuple),
    ),
    nranks=st.integers(2, 5),
)
def test_plans_survive_the_wire(
    transport: TransportPlan, settings: RunSettings, nranks: int
) -> None:
    plan = ring_plan(nranks=nranks, transport=transport, settings=settings)
    assert decode_plan(encode_plan(plan)) == plan


@given(data=st.binary(max_size=300))
def test_arbitrary_bytes_raise_only_our_errors(data: bytes) -> None:
    with pytest.raises((PlanError, PeerError)):
        parse_plan(data, where="peer")


@given(place=st.integers(0, 10**6), value=st.integers(0, 255), cut=st.integers(0, 1500))
def test_damaged_plans_raise_only_our_errors(place: int, value: int, cut: int) -> None:
    data = bytearray(plan_bytes(ring_plan(nranks=3)))
    data[place % len(data)] = value
    try:
        plan = parse_plan(bytes(data[: len(data) - cut]), where="peer")
    except (PlanError, PeerError):
        return
    assert decode_plan(encode_plan(plan)) == plan


def test_too_long_a_message_is_refused_unread() -> None:
    with pytest.raises(PeerError, match="longer than"):
        parse_plan(bytes(MAX_MESSAGE_BYTES + 1), where="peer")


def test_undecodable_bytes_are_refused_with_their_source() -> None:
    with pytest.raises(PeerError, match=r"shard 3: 4 bytes are not a valid AgentPlan"):
        parse_plan(b"\xff\xff\xff\xff", where="shard 3")


def damaged(plan: AgentPlan, change: str) -> pb.AgentPlan:
    message = encode_plan(plan)
    exec(f"message.{change}")
    return message


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("run_id = ''", "plan ?: run_id: '' is not a valid name"),
        ("shards = 0", "plan run-1: shards: 0 is not in 1..256"),
        (
            "ports[1].address = '127.0.0.256'",
            "plan run-1: ports[1].address: '127.0.0.256' is not an IP address",
        ),
        (
            "ports[0].address = 'fe80::1'",
            "plan run-1: ports[0].address: 'fe80::1' cannot be the address of a port: "
            "a link-local address may belong to another host on every link",
        ),
        (
            "ports[0].address = '::1'",
            "plan run-1: ranks[0].queue_pairs[0].remote_address: 127.18.0.2 and "
            "::1 have different IP versions",
        ),
        (
            "ranks[0].queue_pairs[0].remote_udp_port = 0",
            "plan run-1: ranks[0].queue_pairs[0].remote_udp_port: 0 is not in 1..65535",
        ),
        ("ports[0].mtu = 3", "plan run-1: ports[0].mtu: 3 is not in 68..65535"),
        ("ports[1].number = 0", "plan run-1: ports: two ports have the same number"),
        ("ranks[0].number = 1", "plan run-1: ranks: two ranks have the same number"),
        ("ranks[0].port = 5", "plan run-1: ranks[0].port: port 5 is not in the plan"),
        (
            "ranks[1].shard = 2",
            "plan run-1: ranks[1].shard: is 2, but there are 1 shards",
        ),
        (
            "ranks[1].queue_pairs[0].qpn = 1 << 24",
            "plan run-1: ranks[1].queue_pairs[0].qpn: 16777216 is not in 0..16777215",
        ),
        (
            "ranks[0].queue_pairs[0].remote_address = '192.0.2.1'",
            "plan run-1: ranks[0].queue_pairs[0].remote_address: 192.0.2.1 is not "
            "among the peers of the plan (an agent sends only to members of the plan)",
        ),
        (
            "ranks[0].queue_pairs[0].group = 'tp'",
            "plan run-1: ranks[0].queue_pairs[0].group: there is no process group 'tp'",
        ),
        (
            "ranks[0].queue_pairs[0].peer_rank = 9",
            "plan run-1: ranks[0].queue_pairs[0].peer_rank: there is no rank 9",
        ),
        (
            "programs[0].columns[0].dependencies = bytes([4, 0, 0, 0]); "
            "message.programs[0].columns[0].dependency_ends = bytes([1, 0, 0, 0])",
            "plan run-1: programs[0].programs[0]: job job rank 0 operation 0: depends "
            "on 4, which does not exist",
        ),
        (
            "programs[0].columns[0].all_algorithms[0].op = 'all_regret'",
            "plan run-1: programs[0].columns[0].all_algorithms[0].op: "
            "'all_regret' is not a collective",
        ),
        (
            "programs[0].columns[0].all_algorithms[0].op = 'all_to_all_v'",
            "programs[0].programs[0]: job job rank 0 operation 0: all_to_all_v without "
            "splits",
        ),
        (
            "programs[0].splits.add(sent_bytes=[-1])",
            "programs[0].splits[0].sent_bytes[0]: -1 is not in 0..",
        ),
        (
            "programs[0].columns[0].kinds = bytes([9])",
            "plan run-1: programs[0].columns[0].kinds: contains an unknown kind of "
            "operation",
        ),
        ("ranks[1].job = 1", "plan run-1: ranks[1].job: is 1, but there are 1 jobs"),
        (
            "ranks[1].program = 2",
            "plan run-1: ranks[1].program: is 2, but there are 2 programs",
        ),
        (
            "programs.append(message.programs[0])",
            "plan run-1: programs: two jobs have the same name",
        ),
        (
            "programs[0].groups[0].ranks.append(1)",
            "plan run-1: programs[0].groups[0]: process group 'world' names a rank "
            "twice",
        ),
        (
            "transport.path_mtu = 1500",
            "transport.path_mtu: 1500 is not one of 256, 512, 1024, 2048, 4096",
        ),
        ("transport.verb = 'read'", "transport.verb: 'read' is not one of write, send"),
        (
            "settings.faults.add(action='lose', nth=1)",
            "settings.faults[0].action: 'lose' is not one of drop, delay, duplicate, ",
        ),
        (
            "settings.faults.add(action='drop', packets='any', count=1, delay_ns=1, "
            "behind=1, part='any')",
            "a fault needs either nth or a probability",
        ),
        ("ClearField('transport')", "transport.path_mtu: 0 is not one of 256, 512"),
        ("settings.drop_ratio = 1.0", "settings.drop_ratio: 1.0 is not in [0, 1)"),
        ("settings.drop_ratio = float('nan')", "settings.drop_ratio: nan is not in"),
        (
            "rank_numbers[0].number = 7",
            "ranks[0].number: 0 does not match rank_numbers",
        ),
        ("rank_numbers[1].rank = 0", "rank_numbers: a rank is listed twice"),
        ("agent = 'x' * 1025", "agent: 1025 characters, but at most 1024 are allowed"),
    ],
)
def test_errors_name_the_path_of_the_field(change: str, sentence: str) -> None:
    with pytest.raises(PlanError) as caught:
        decode_plan(damaged(ring_plan(), change))
    assert sentence in str(caught.value)


def test_two_queue_pairs_of_one_port_need_two_numbers() -> None:
    message = encode_plan(ring_plan(nranks=3))
    pairs = message.ranks[0].queue_pairs
    pairs[1].qpn = pairs[0].qpn
    with pytest.raises(PlanError, match="port 0 has two queue pairs numbered"):
        decode_plan(message)


def test_only_ports_with_sockets_are_divided() -> None:
    message = encode_plan(ring_plan(nranks=2, shards=2))
    message.ranks[1].port = 0
    assert decode_plan(message).shards_of_ports() == {0: (0, 1)}
    message.ports[0].open = "memory:"
    with pytest.raises(PlanError, match="only ports of kind udp: can be divided"):
        decode_plan(message)


def test_too_many_ports_are_refused() -> None:
    message = encode_plan(ring_plan())
    message.ports.extend([message.ports[0]] * 1024)
    with pytest.raises(PlanError, match="1026 entries, but at most 1024"):
        decode_plan(message)


@pytest.mark.parametrize("are_alike", [False, True])
def test_every_program_is_checked_once_and_read_once_a_process(
    monkeypatch: pytest.MonkeyPatch, are_alike: bool
) -> None:
    read: list[object] = []
    looked_at: dict[int, object] = {}
    checked: list[RankProgram] = []
    decode = program_codec.decode_columns

    class CountingChecks(ProgramChecks):
        def of(self, columns: OperationColumns) -> ColumnsCheck:
            known = super().of(columns)
            looked_at[id(known)] = known
            return known

        def problems(self, program: RankProgram) -> list[str]:
            checked.append(program)
            return super().problems(program)

    def counted_decode(message: pb.OperationColumns) -> OperationColumns:
        read.append(message)
        return decode(message)

    plan = ring_plan(nranks=64, shards=4)
    if are_alike:
        columns = plan.ranks[0].program.columns
        ranks = [
            replace(rank, program=replace(rank.program, columns=columns))
            for rank in plan.ranks
        ]
        plan = replace(plan, ranks=tuple(ranks))
    message = encode_plan(plan)
    monkeypatch.setattr(program_codec, "decode_columns", counted_decode)
    monkeypatch.setattr(program_codec, "ProgramChecks", CountingChecks)
    of_agent = decode_plan(message)
    assert len(checked) == 64
    assert len(read) == len(looked_at) == (1 if are_alike else 64)
    numbers = of_agent.shard_numbers()
    assert len(numbers) == 4
    parts = [
        decode_plan(encode_plan(shard_part(of_agent, number)), is_checked=True)
        for number in numbers
    ]
    assert sum(len(part.ranks) for part in parts) == 64
    assert len(read) == (1 + 4 if are_alike else 64 + 64)
    assert len(checked) == 64
