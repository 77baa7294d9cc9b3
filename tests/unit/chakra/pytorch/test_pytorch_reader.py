"""Host traces of PyTorch: what becomes communication, of which size, in which order."""

from __future__ import annotations

import pytest

from chakram.chakra.options import WarningKind
from chakram.core.collectives import CollectiveOp
from chakram.core.splits import Splits
from chakram.core.trace_node import NodeKind, TraceNode
from chakram.errors import GarbageTrace, TraceError, UnsupportedTrace
from tests.unit.chakra.pytorch.hosts import (
    all_reduce,
    all_to_all,
    event,
    groups,
    kernel,
    node,
    profile,
    read,
    record,
    tensor,
    wait,
)

WORLD = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 4}
PAIR = {"pg_name": "7", "pg_desc": "pp", "ranks": [1, 3], "group_size": 2}


def nodes_of(*rows: object, **how: object) -> list[TraceNode]:
    return list(read(*rows, **how).graph.nodes())


def after(nodes: list[TraceNode], node_id: int) -> set[int]:
    """The ids of what a node waits for."""
    (found,) = (each for each in nodes if each.node_id == node_id)
    return {nodes[position].node_id for position in found.dependencies}


def test_a_record_is_the_transfer_and_what_is_round_it_and_in_it_is_not() -> None:
    found = nodes_of(
        groups(WORLD),
        all_reduce(10, 25),
        record(11, "allreduce", [tensor(25)], parent=10),
        node(12, "nccl:all_reduce", [tensor(25)], ["Tensor(float)"], parent=11),
        node(13, "aten::add"),
    )
    assert [(each.node_id, each.op, each.comm_bytes) for each in found] == [
        (11, CollectiveOp.ALL_REDUCE, 100)
    ]
    assert found[0].group is None


@pytest.mark.parametrize(
    ("name", "sent", "received", "op", "size"),
    [
        ("allreduce_coalesced", [tensor(3), tensor(5, 2)], None, "all_reduce", 22),
        ("_allgather_base", tensor(3), tensor(12), "all_gather", 12),
        ("all_gather", [tensor(3)], [[tensor(3)] * 4], "all_gather", 12),
        ("_reduce_scatter_base", tensor(12), tensor(3), "reduce_scatter", 48),
        ("broadcast", [tensor(9)], None, "broadcast", 36),
        ("_reduce_oop", [tensor(9)], [tensor(9)], "reduce", 36),
        ("gather", [tensor(3)], [[tensor(3)] * 4], "gather", 12),
        ("scatter", [], [tensor(3)], "scatter", 48),
        ("all_to_all", tensor(12), tensor(12), "all_to_all", 48),
        ("barrier", [tensor(1, 1)], None, "barrier", 0),
    ],
)
def test_sizes_are_what_one_rank_contributes(
    name: str, sent: list, received: list | None, op: str, size: int
) -> None:
    (found,) = nodes_of(groups(WORLD), record(5, name, sent, received=received))
    assert (found.op, found.comm_bytes) == (op, size)


def test_splits_count_rows_and_become_bytes() -> None:
    # Rows of 3 elements of 4 bytes.
    (found,) = nodes_of(
        groups(WORLD),
        record(
            5, "all_to_allv", tensor(30), received=tensor(12),
            in_splits=[1, 2, 3, 4], out_splits=[1, 0, 0, 3],
        ),
    )  # fmt: skip
    assert found.op is CollectiveOp.ALL_TO_ALL_V
    assert found.splits == Splits((12, 24, 36, 48), (12, 0, 0, 36))
    assert found.comm_bytes == 120


def test_what_the_dispatcher_says_counts_where_a_backend_records_nothing() -> None:
    found = nodes_of(
        groups(WORLD),
        all_to_all(5, 10, 6, in_splits=[4, 1, 0, 0], out_splits=[0, 0, 1, 2]),
        all_to_all(6, 8, 8),
    )
    assert found[0].splits == Splits((32, 8, 0, 0), (0, 0, 8, 16))
    assert (found[1].op, found[1].comm_bytes) == (CollectiveOp.ALL_TO_ALL, 32)
    # They are not asynchronous: the host waits for each.
    assert after(found, 6) == {5}


def test_lists_of_tensors_are_splits_where_they_differ() -> None:
    def of(*elements: int) -> TraceNode:
        sent = [tensor(each) for each in elements]
        (found,) = nodes_of(
            groups(WORLD), record(5, "all_to_all", sent, received=[tensor(2)] * 4)
        )
        return found

    assert of(1, 2, 3, 4).splits == Splits((4, 8, 12, 16), (8, 8, 8, 8))
    assert of(2, 2, 2, 2).op is CollectiveOp.ALL_TO_ALL


def test_attributes_say_what_values_leave_open() -> None:
    (found,) = nodes_of(
        groups(WORLD, PAIR),
        record(
            5, "all_to_allv", None, group=None, collective_name="all_to_allv",
            pg_name="7", dtype="BFloat16", in_msg_nelems=6, out_msg_nelems=3,
            in_split_size="[2, 1]", out_split_size="[0, 1]",
        ),
    )  # fmt: skip
    assert found.group == "7"
    assert found.splits == Splits((8, 4), (0, 6))


def test_a_transfer_names_its_group_or_spells_it_out() -> None:
    trace = read(
        groups(WORLD, PAIR),
        record(5, "allreduce", [tensor(1)], group=("7", "pp")),
        record(6, "allreduce", [tensor(1)], group=("9", "tp"), behind=[2, 3, 2]),
    )
    assert [each.group for each in trace.graph.nodes()] == ["7", "9"]
    assert trace.groups == {"7": (1, 3), "9": (2, 5)}


def test_pointers_are_groups_where_the_trace_explains_them() -> None:
    pointers = [{**WORLD, "backend_id": 4096}, {**PAIR, "backend_id": 8192}]
    found = nodes_of(
        groups(*pointers),
        record(5, "allreduce", [tensor(1)], group=8192),
        record(6, "allreduce", [tensor(1)], group=4096),
    )
    assert [each.group for each in found] == ["7", None]


def test_the_only_pointer_is_taken_for_all_ranks_and_said() -> None:
    trace = read(record(5, "allreduce", [tensor(1)], group=4096), schema="1.0.1")
    assert trace.graph.node(0).group is None
    assert WarningKind.GROUP_OF_POINTER in {each.kind for each in trace.warnings}


def test_several_unexplained_pointers_are_refused() -> None:
    with pytest.raises(TraceError, match=r"node 6 .*by a pointer.*who is in it"):
        read(
            record(6, "allreduce", [tensor(1)], group=4096),
            record(7, "allreduce", [tensor(1)], group=8192),
        )


def test_transfers_without_a_group_are_refused_where_there_are_several() -> None:
    rows = (groups(WORLD, PAIR), all_reduce(5, 1))
    with pytest.raises(TraceError, match=r"node 5 .*names no process group.*kineto"):
        read(*rows)
    assert nodes_of(*rows, unnamed_group="7")[0].group == "7"


def test_messages_go_to_the_rank_at_a_position_of_the_group() -> None:
    found = nodes_of(
        groups(WORLD, PAIR),
        record(5, "send", [tensor(4)], group=("7", "pp"), rank=1),
        record(6, "recv", [tensor(2)], group=("7", "pp"), rank=0),
        record(7, "send", [tensor(1)], rank=2),
        rank=1,
    )
    assert [(each.kind, each.peer, each.comm_bytes) for each in found] == [
        (NodeKind.SEND, 3, 16),
        (NodeKind.RECEIVE, 1, 8),
        (NodeKind.SEND, 2, 4),
    ]


def test_a_peer_outside_of_the_group_is_refused() -> None:
    with pytest.raises(TraceError, match="number 2 of group '7', which has 2 ranks"):
        read(
            groups(WORLD, PAIR),
            record(5, "send", [tensor(4)], group=("7", "pp"), rank=2),
        )


def test_collectives_and_messages_have_sequences_of_their_own() -> None:
    found = nodes_of(
        groups(WORLD),
        record(5, "allreduce", [tensor(1)], sequence=[1, False]),
        record(6, "send", [tensor(1)], sequence=[1, True], rank=1),
        wait(7, [1, True]),
    )
    assert after(found, 7) == {6}


def test_the_root_is_that_of_the_dispatcher() -> None:
    schema = (
        "c10d::broadcast_(Tensor[] tensors, __torch__.PG process_group, int root_rank, "
        "int root_tensor, bool async_op=True, int timeout=-1) -> (Tensor[], Work)"
    )
    values = [[tensor(2)], "<Object>", 3, 0, False, -1]
    types = ["GenericList[Tensor(float)]", "Object", "Int", "Int", "Bool", "Int"]
    (found,) = nodes_of(
        groups(WORLD),
        node(4, "c10d::broadcast_", values, types, schema=schema),
        record(5, "broadcast", [tensor(2)], rank=1, parent=4),
    )
    assert found.root == 3


def test_a_wait_is_what_follows_an_asynchronous_transfer() -> None:
    found = nodes_of(
        groups(WORLD),
        record(5, "allreduce", [tensor(1)], sequence=[7, False]),
        record(6, "allreduce", [tensor(1)], sequence=[8, False]),
        wait(8, [7, False]),
        record(9, "allreduce", [tensor(1)], sequence=[9, False]),
        wait(10, [3, False]),  # of a transfer before the trace
    )
    assert [each.node_id for each in found] == [5, 6, 8, 9]
    assert after(found, 6) == set()
    assert after(found, 8) == {5}
    assert after(found, 9) == {8}


def test_waits_know_their_group_where_sequences_meet() -> None:
    found = nodes_of(
        groups(WORLD, PAIR),
        record(5, "allreduce", [tensor(1)], sequence=1),
        record(6, "allreduce", [tensor(1)], sequence=1, group=("7", "pp")),
        wait(7, 1, group=("7", "pp")),
    )
    assert after(found, 7) == {6}


def test_a_transfer_that_is_not_asynchronous_holds_up_what_follows() -> None:
    found = nodes_of(
        groups(WORLD),
        all_reduce(5, 1, is_async=False),
        record(6, "allreduce", [tensor(1)], parent=5),
        record(8, "allreduce", [tensor(1)], behind=[0, 1, 4, True]),
        record(9, "allreduce", [tensor(1)]),
    )
    assert after(found, 8) == {6}
    assert after(found, 9) == {6}


def test_both_forms_of_nodes_are_read() -> None:
    old = record(5, "all_to_allv", tensor(4), old=True, group=4096,
                 in_splits=[3, 1], out_splits=[2, 2])  # fmt: skip
    (found,) = nodes_of(old, schema="1.0.1")
    assert found.splits == Splits((12, 4), (8, 8))


# With a profile.


def test_without_a_profile_nothing_takes_time_and_it_is_said() -> None:
    trace = read(groups(WORLD), node(4, "aten::mm"), all_reduce(5, 1))
    assert len(trace.graph) == 1
    assert WarningKind.NO_TIMES in {each.kind for each in trace.warnings}


def test_operations_of_the_cpu_take_the_time_of_their_own() -> None:
    profiled = profile(
        event(40, 100, 50),
        event(41, 110, 20),
        event(60, 200, 5),
        event(51, 160, 30, thread=9, category="user_annotation"),
        event(50, 155, 1),
    )
    trace = read(
        groups(WORLD),
        node(4, "aten::mm", rf_id=40),
        node(41, "aten::mm", parent=4, rf_id=41),
        all_reduce(45, 1, rf_id=50),
        node(46, "gloo:all_reduce", [tensor(1)], ["Tensor(float)"], rf_id=51),
        node(60, "aten::mm", rf_id=60),
        profiled=profiled,
    )
    found = list(trace.graph.nodes())
    assert [(each.node_id, each.duration_ns, each.start_ns) for each in found] == [
        (4, 30_000, 0),
        (41, 20_000, 10_000),
        (45, 30_000, 60_000),
        (60, 5_000, 100_000),
    ]
    assert after(found, 45) == {41}
    assert after(found, 60) == {41, 45}
    assert not trace.warnings


def test_names_of_nodes_and_groups_can_be_encoded() -> None:
    named = {**PAIR, "pg_name": "g\ud800", "pg_desc": "\udc00"}
    trace = read(
        groups(WORLD, named),
        node(4, "aten::\ud800", rf_id=40),
        record(5, "allreduce", [tensor(1)], group=("g\ud800", "x"), rf_id=50),
        rank=1,
        profiled=profile(event(40, 0, 50, name="aten::\ud800"), event(50, 60, 1)),
    )
    work, transfer = trace.graph.nodes()
    assert work.name == "aten::\ufffd"
    assert transfer.group == "g\ufffd"
    assert trace.groups["g\ufffd"] == (1, 3)
    assert trace.purposes["g\ufffd"] == "\ufffd"


def test_where_there_are_kernels_only_they_compute_each_on_its_stream() -> None:
    profiled = profile(
        event(40, 0, 50),
        event(50, 60, 1),
        event(60, 70, 1),
        kernel(40, 10, 100, stream=7),
        kernel(40, 120, 10, stream=7),
        kernel(40, 20, 3, stream=20),
        kernel(50, 130, 500, stream=13),
        kernel(60, 700, 4, stream=7),
    )
    trace = read(
        groups(WORLD),
        node(4, "aten::mm", rf_id=40),
        record(5, "allreduce", [tensor(1)], rf_id=50, sequence=1),
        node(6, "aten::mm", rf_id=60),
        profiled=profiled,
    )
    found = list(trace.graph.nodes())
    shown = [(each.node_id % 2**40, each.stream, each.duration_ns) for each in found]
    assert shown == [
        (4, 7, 110_000),
        (4, 20, 3_000),
        (5, 13, 500_000),
        (6, 7, 4_000),
    ]
    assert found[2].dependencies == (1,)  # the stream that the host used last
    assert found[3].dependencies == (0,)


def test_a_profile_without_ids_is_said_to_have_no_times() -> None:
    trace = read(groups(WORLD), all_reduce(5, 1), profiled=profile(event(0, 1, 2)))
    assert [each.kind for each in trace.warnings] == [WarningKind.NO_TIMES]
    assert "Record function id" in trace.warnings[0].found


def test_the_profile_of_another_run_is_refused() -> None:
    other = profile(event(40, 1, 2, name="aten::add"))
    with pytest.raises(TraceError, match=r"node 4: is 'aten::mm', but 'aten::add' in"):
        read(groups(WORLD), node(4, "aten::mm", rf_id=40), profiled=other)


def test_the_profile_of_another_rank_is_refused() -> None:
    other = profile(event(40, 1, 2, process=7))
    with pytest.raises(TraceError, match=r"of process 1, but device\.0\.json is"):
        read(groups(WORLD), node(4, "aten::mm", rf_id=40), profiled=other)


def done(*threads: int, splits: dict[int, int] | None = None) -> dict[str, object]:
    """Operations of gloo, one by each thread; those of *splits* are uneven."""
    rows: list[object] = []
    events = []
    for index, thread in enumerate(threads):
        count = (splits or {}).get(index)
        rows.append(
            all_reduce(10 * index + 10, 1)
            if count is None
            else all_to_all(10 * index + 10, count, count, [1] * count, [1] * count)
        )
        label = 10 * index + 11
        rows.append(node(label, "gloo:x", [tensor(1)], ["Tensor(float)"]))
        events.append(
            event(10 * label, index, 1, thread=thread, category="user_annotation")
        )
    trace = read(groups(WORLD, PAIR), *rows, profiled=profile(*events))
    return {
        "groups": [each.group for each in trace.graph.nodes()],
        "warned": WarningKind.GROUP_INFERRED in {each.kind for each in trace.warnings},
    }


def test_threads_tell_the_groups_of_gloo() -> None:
    assert done(500, 501, 503, 503, 509, 500) == {
        "groups": [None, None, "7", "7", "7", None],
        "warned": True,
    }


def test_splits_tell_what_threads_leave_open() -> None:
    assert done(500, 501, splits={0: 4, 1: 2})["groups"] == [None, "7"]
    assert done(500, 501, splits={0: 4, 1: 4})["groups"] == [None, None]
    assert done(5, splits={0: 2})["groups"] == ["7"]


@pytest.mark.parametrize("threads", [(5,), (500, 501), (500, 501, 503), range(5)])
def test_threads_that_leave_it_open_are_refused(threads: tuple[int, ...]) -> None:
    with pytest.raises(TraceError, match="names no process group"):
        done(*threads)


# What is refused.


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (7, "is no node but another JSON value"),
        ({"id": 5}, "node 5: has no name"),
        ({"name": "c10d::x"}, "its id is missing, no number"),
        ({"name": "c10d::x", "id": True}, "its id is True, no number"),
        ({"name": "c10d::x", "id": 5, "attrs": 3}, "its attrs are 3, no list"),
        ({"name": "c10d::x", "id": 5, "attrs": [3]}, "3 is no attribute"),
        ({"name": "c10d::x", "id": 5, "attrs": []}, "its ctrl_deps is missing"),
        ({"name": "c10d::x", "id": 5, "parent": 1}, "its inputs are missing, no list"),
        (node(5, "process_group:init", ["[3]"]), "its process groups cannot be read"),
        (node(5, "process_group:init", []), "its process groups cannot be read"),
        (node(5, "record_param_comms", [1, 2]), "does not state what it communicates"),
        (node(5, "c10d::allreduce_"), "has no op_schema"),
        (record(5, "allreduce", 3), "3 is no tensor"),
        (record(5, "allreduce", [tensor(-1)]), "is no tensor"),
        (record(5, "allreduce", [tensor(2**49)]), "has a tensor of"),
        (record(5, "all_to_allv", tensor(4), in_splits=[-1]), "no list of numbers"),
        (record(5, "all_to_allv", tensor(4), in_splits=[0]), "its splits are all 0"),
        (record(5, "all_to_allv", tensor(4), in_splits=[3]), "do not divide 4"),
        (record(5, "send", [tensor(4)], rank=-1), "does not say with whom"),
        (node(5, "gloo:all_reduce", [tensor(1)]), "labels only"),
    ],
)
def test_faulty_nodes_are_refused_with_their_place(row: object, found: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(row)
    assert found in str(caught.value)
    assert str(caught.value).startswith("host.0.json: offset ")


def test_communication_of_unknown_kinds_is_said() -> None:
    trace = read(record(5, "allmagic", [tensor(1)]), record(6, "barrier", None))
    assert [each.node_id for each in trace.graph.nodes()] == [6]
    (warning,) = (
        each
        for each in trace.warnings
        if each.kind is WarningKind.UNKNOWN_COMMUNICATION
    )
    assert "node 5" in warning.where


def test_other_schemas_are_refused() -> None:
    with pytest.raises(UnsupportedTrace, match=r"schema '2\.0'"):
        read(schema="2.0")


def test_ids_stand_once() -> None:
    with pytest.raises(TraceError, match="node id 5 stands twice"):
        read(groups(WORLD), all_reduce(5, 1), all_reduce(5, 1))


@pytest.mark.parametrize(
    "wrong", [3, {"ph": "X", "cat": "cpu_op", "ts": "x"}, {"ph": "X", "cat": "kernel",
    "ts": -1, "args": {"External id": 3}}],
)  # fmt: skip
def test_faulty_profiles_are_refused_with_their_place(wrong: object) -> None:
    with pytest.raises(GarbageTrace, match=r"^device\.0\.json: offset "):
        profile(wrong)  # type: ignore[arg-type] # wrong on purpose
