"""Host traces of PyTorch: communication, sizes and order."""

from __future__ import annotations

import pytest

from chakram.chakra.read.pytorch.host_trace_nodes import host_node
from chakram.chakra.trace_warning import WarningKind
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import TraceError, UnsupportedTrace
from chakram.trace.node import NodeKind, TraceNode
from tests.unit.chakra.read.pytorch.hosts import (
    PAIR,
    WORLD,
    after,
    all_reduce,
    all_to_all,
    event,
    groups,
    node,
    nodes_of,
    profile,
    read,
    record,
    tensor,
    wait,
)


def test_only_the_record_node_is_a_transfer() -> None:
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
def test_sizes_are_the_contribution_of_one_rank(
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


def test_dispatcher_values_are_used_without_backend_records() -> None:
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


def test_attributes_complete_missing_values() -> None:
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


def test_duplicate_attribute_must_have_one_value() -> None:
    row = record(11, "allreduce", [tensor(2)], pg_name="a")
    row["attrs"].append({"name": "pg_name", "type": "string", "value": "a"})
    assert nodes_of(groups(WORLD), row)[0].group == "a"
    row["attrs"].append({"name": "pg_name", "type": "string", "value": "b"})
    with pytest.raises(TraceError, match=r"node 11 .*'pg_name' twice: 'a' and 'b'"):
        nodes_of(groups(WORLD), row)


def test_pointers_are_groups_where_the_trace_explains_them() -> None:
    pointers = [{**WORLD, "backend_id": 4096}, {**PAIR, "backend_id": 8192}]
    found = nodes_of(
        groups(*pointers),
        record(5, "allreduce", [tensor(1)], group=8192),
        record(6, "allreduce", [tensor(1)], group=4096),
    )
    assert [each.group for each in found] == ["7", None]


def test_single_pointer_means_all_ranks_with_a_warning() -> None:
    trace = read(record(5, "allreduce", [tensor(1)], group=4096), schema="1.0.1")
    assert trace.graph.node(0).group is None
    assert WarningKind.GROUP_OF_POINTER in {each.kind for each in trace.warnings}


def test_several_unexplained_pointers_are_refused() -> None:
    with pytest.raises(
        TraceError, match=r"node 6 .*by a pointer.*the members are unknown"
    ):
        read(
            record(6, "allreduce", [tensor(1)], group=4096),
            record(7, "allreduce", [tensor(1)], group=8192),
        )


def test_transfers_without_a_group_are_refused_where_there_are_several() -> None:
    rows = (groups(WORLD, PAIR), all_reduce(5, 1))
    with pytest.raises(TraceError, match=r"node 5 .*names no process group.*kineto"):
        read(*rows)
    assert nodes_of(*rows, unnamed_groups={"any": "7"})[0].group == "7"


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
    with pytest.raises(
        TraceError, match="number 2 of group '7', but the group has 2 ranks"
    ):
        read(
            groups(WORLD, PAIR),
            record(5, "send", [tensor(4)], group=("7", "pp"), rank=2),
        )


def test_collectives_and_messages_have_separate_sequences() -> None:
    found = nodes_of(
        groups(WORLD),
        record(5, "allreduce", [tensor(1)], sequence=[1, False]),
        record(6, "send", [tensor(1)], sequence=[1, True], rank=1),
        wait(7, [1, True]),
    )
    assert after(found, 7) == {6}


def test_root_comes_from_the_dispatcher() -> None:
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


def test_wait_follows_an_asynchronous_transfer() -> None:
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


def test_one_wait_completes_all_coalesced_operations() -> None:
    rows = [
        groups(WORLD, PAIR),
        record(5, "send", [tensor(1)], sequence=[4, True], rank=1),
        record(6, "recv", [tensor(1)], sequence=[4, True], rank=2),
        record(7, "allreduce", [tensor(1)], sequence=[4, False]),
        record(8, "send", [tensor(1)], sequence=[4, True], group=("7", "pp"), rank=1),
        wait(9, [4, True], group=("0", "default_pg")),
    ]
    trace = read(*rows)
    assert after(list(trace.graph.nodes()), 9) == {5, 6}
    (unknown,) = (each for each in trace.warnings if each.kind == "wait-unknown")
    assert unknown.count == 2
    assert "node 7" in unknown.where
    assert "is one of 2 asynchronous operations, of 4 in total" in unknown.found
    # Numbers without a kind may be those of a message and of a collective.
    rows = [
        groups(WORLD),
        record(5, "send", [tensor(1)], sequence=4, rank=1),
        record(7, "allreduce", [tensor(1)], sequence=4),
        wait(9, 4),
    ]
    assert after(nodes_of(*rows), 9) == {5}


def unknown_waits(*rows: object) -> int:
    found = read(groups(WORLD, PAIR), *rows).warnings
    return sum(each.count for each in found if each.kind == "wait-unknown")


def test_wait_covers_earlier_operations_of_its_group() -> None:
    other = ("7", "pp")
    rows = [
        record(5, "allreduce", [tensor(1)], sequence=[1, False]),
        record(6, "allreduce", [tensor(1)], sequence=[1, False], group=other),
        record(7, "allgather", [tensor(1)], sequence=[2, False]),
        record(8, "allreduce", [tensor(1)], sequence=[3, False]),
    ]
    assert unknown_waits(*rows) == 4
    assert unknown_waits(*rows, wait(9, [2, False])) == 2
    assert unknown_waits(*rows, wait(9, [3, False])) == 1
    # One that is not asynchronous has been waited for by itself.
    behind = record(9, "allreduce", [tensor(1)], sequence=[4, False], behind=[0, False])
    assert unknown_waits(*rows, behind) == 1
    assert unknown_waits(*rows, behind, wait(10, [1, False], group=other)) == 0


def test_matching_sequences_identify_the_group_of_a_wait() -> None:
    found = nodes_of(
        groups(WORLD, PAIR),
        record(5, "allreduce", [tensor(1)], sequence=1),
        record(6, "allreduce", [tensor(1)], sequence=1, group=("7", "pp")),
        wait(7, 1, group=("7", "pp")),
    )
    assert after(found, 7) == {6}


def test_synchronous_transfer_blocks_following_operations() -> None:
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


def test_record_function_without_a_number_is_ignored() -> None:
    numbers = [
        host_node(node(4, "aten::mm", rf_id=found), offset=0, source="s").rf_id
        for found in (40, "40", None)
    ]
    assert numbers == [40, 0, 0]


# What is refused.


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (7, "is not a node but another JSON value"),
        ({"id": 5}, "node 5: has no name"),
        ({"name": "c10d::x"}, "its id is missing, not a number"),
        ({"name": "c10d::x", "id": True}, "its id is True, not a number"),
        ({"name": "c10d::x", "id": 5, "attrs": 3}, "its attrs are 3, not a list"),
        ({"name": "c10d::x", "id": 5, "attrs": [3]}, "3 is not an attribute"),
        ({"name": "c10d::x", "id": 5, "attrs": []}, "its ctrl_deps is missing"),
        (
            {"name": "c10d::x", "id": 5, "parent": 1},
            "its inputs are missing, not a list",
        ),
        (node(5, "process_group:init", ["[3]"]), "its process groups are not readable"),
        (node(5, "process_group:init", []), "its process groups are not readable"),
        (
            node(5, "record_param_comms", [1, 2]),
            "does not state which data it communicates",
        ),
        (node(5, "c10d::allreduce_"), "has no op_schema"),
        (record(5, "allreduce", 3), "3 is not a tensor"),
        (record(5, "allreduce", [tensor(-1)]), "is not a tensor"),
        (record(5, "allreduce", [tensor(2**49)]), "has a tensor of"),
        (record(5, "all_to_allv", tensor(4), in_splits=[-1]), "not a list of numbers"),
        (record(5, "all_to_allv", tensor(4), in_splits=[0]), "its splits are all 0"),
        (record(5, "all_to_allv", tensor(4), in_splits=[3]), "do not divide 4"),
        (record(5, "send", [tensor(4)], rank=-1), "without a peer"),
        (node(5, "gloo:all_reduce", [tensor(1)]), "only as labels"),
    ],
)
def test_faulty_nodes_are_refused_with_their_place(row: object, found: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(row)
    assert found in str(caught.value)
    assert str(caught.value).startswith("host.0.json: offset ")


def test_unknown_communication_is_reported() -> None:
    trace = read(
        record(4, "init", None),
        record(5, "allmagic", [tensor(1)]),
        record(6, "barrier", None),
    )
    assert [each.node_id for each in trace.graph.nodes()] == [6]
    (warning,) = (
        each
        for each in trace.warnings
        if each.kind is WarningKind.UNKNOWN_COMMUNICATION
    )
    assert (warning.count, "node 5" in warning.where) == (1, True)


def test_other_schemas_are_refused() -> None:
    with pytest.raises(UnsupportedTrace, match=r"schema '2\.0'"):
        read(schema="2.0")


def test_duplicate_ids_are_refused() -> None:
    with pytest.raises(TraceError, match="node id 5 occurs twice"):
        read(groups(WORLD), all_reduce(5, 1), all_reduce(5, 1))
