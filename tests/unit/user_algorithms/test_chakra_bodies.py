"""Bodies of collectives in Chakra traces."""

from __future__ import annotations

import shutil
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram.chakra.et_codec import (
    Metadata,
    NodeType,
    encode_metadata,
    encode_node,
)
from chakram.chakra.read.framing import frame, read_records
from chakram.collectives.algorithms import UserAlgorithm
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ScheduleError
from chakram.user_algorithms.files import load_source

if TYPE_CHECKING:
    from chakram.collectives.algorithms import AlgorithmSource
    from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm

AR = CollectiveOp.ALL_REDUCE


def source(path: Path) -> AlgorithmSource:
    return load_source(UserAlgorithm(kind="chakra", path=str(path)))


def listed(path: Path, op: CollectiveOp = AR, *, nranks: int = 2) -> ListedAlgorithm:
    return source(path).listed(op, nranks=nranks, root=0, size_scale=Fraction(1))


def write(
    folder: Path, ranks: list[list[dict[str, object]]], *, name: str = ""
) -> Path:
    """Write files of nodes, each after the one before it unless ``after`` is given."""
    folder.mkdir(exist_ok=True)
    for rank, rows in enumerate(ranks):
        metadata = Metadata(attributes={"collective": name} if name else {})
        data = frame(encode_metadata(metadata))
        for place, row in enumerate(rows):
            attributes = dict(row)
            kind = attributes.pop("kind")
            after = attributes.pop("after", [place - 1] if place else [])
            data += frame(
                encode_node(
                    node_id=place,
                    name="x",
                    node_type=kind,  # type: ignore[arg-type] # a number of the enum
                    data_deps=after,  # type: ignore[arg-type] # any sequence will do
                    attributes=attributes,  # type: ignore[arg-type] # any sequence will do
                )
            )
        (folder / f"body.{rank}.et").write_bytes(data)
    return folder


def send(peer: int, chunk: int | None = None, **more: object) -> dict[str, object]:
    return _message(NodeType.COMM_SEND, "comm_dst", peer, chunk, more)


def receive(peer: int, chunk: int | None = None, **more: object) -> dict[str, object]:
    return _message(NodeType.COMM_RECV, "comm_src", peer, chunk, more)


def _message(
    kind: NodeType, end: str, peer: int, chunk: int | None, more: dict[str, object]
) -> dict[str, object]:
    size: dict[str, object] = {"comm_size": 1000}
    if chunk is not None:
        size = {"msg_chunk_idx": chunk, "msg_chunk_cnt": 1, "total_chunk_cnt": 2}
    return {"kind": kind, end: peer, **size, **more}


@pytest.mark.parametrize(
    ("name", "op", "nranks"),
    [
        ("ring_allreduce_4r", AR, 4),
        ("ring_allreduce_8r", AR, 8),
        ("ring_allgather_8r", CollectiveOp.ALL_GATHER, 8),
    ],
)
def test_traces_with_chunks_equal_their_xml(
    chakra_data_folder: Path, name: str, op: CollectiveOp, nranks: int
) -> None:
    how = listed(chakra_data_folder / name, op, nranks=nranks)
    xml = UserAlgorithm(kind="msccl", path=str(chakra_data_folder / f"{name}.xml"))
    theirs = load_source(xml).listed(op, nranks=nranks, root=0, size_scale=Fraction(1))
    assert how.transfers == theirs.transfers


@pytest.fixture
def chakra_data_folder(chakram_data: Path) -> Path:
    return chakram_data / "traces/msccl_custom_symbolic"


def test_traces_with_bytes_keep_their_sizes(chakram_data: Path) -> None:
    path = chakram_data / "traces/astra_sim_custom_collective_ring8"
    how = listed(path, nranks=8)
    assert len(how.transfers) == 8 * 14
    assert {each.nbytes for each in how.transfers} == {131_072}
    assert how.chunk_bytes(0, nranks=8, input_bytes=7) == 131_072
    scaled = source(path).listed(AR, nranks=8, root=0, size_scale=Fraction(1, 64))
    assert {each.nbytes for each in scaled.transfers} == {2048}
    (warning,) = source(path).warnings()
    assert "has sizes in bytes, not chunks" in warning
    with pytest.raises(ScheduleError, match="is an algorithm for all_reduce"):
        listed(path, CollectiveOp.ALL_GATHER, nranks=8)


def test_bytes_cannot_follow_splits_but_chunks_can(tmp_path: Path) -> None:
    op = CollectiveOp.ALL_TO_ALL_V
    sized = write(tmp_path / "a", [[send(1), receive(1)], [send(0), receive(0)]])
    with pytest.raises(ScheduleError) as caught:
        listed(sized, op)
    assert "has sizes in bytes, which are the same for all" in str(caught.value)
    chunks = [
        [send(1, 1), receive(1, 1)],
        [send(0, 0), receive(0, 0)],
    ]
    how = listed(write(tmp_path / "b", chunks, name="alltoall"), op)
    assert (how.op, [each.parts for each in how.transfers]) == (
        op,
        [((1, 1),), ((2, 1),)],
    )


@pytest.mark.parametrize(
    ("op", "ends"),
    [
        (CollectiveOp.GATHER, [(0, 2), (1, 2)]),
        (CollectiveOp.SCATTER, [(2, 0), (2, 1)]),
    ],
)
def test_gather_and_scatter_turn_to_their_root(
    tmp_path: Path, op: CollectiveOp, ends: list[tuple[int, int]]
) -> None:
    leaf, root = (send, receive) if op is CollectiveOp.GATHER else (receive, send)
    rows = [[root(1), root(2, after=[])], [leaf(0)], [leaf(0)]]
    how = source(write(tmp_path / "a", rows)).listed(
        op, nranks=3, root=2, size_scale=Fraction(1)
    )
    assert how.root == 2
    assert sorted((each.src, each.dst) for each in how.transfers) == ends


@pytest.mark.parametrize("op", [CollectiveOp.GATHER, CollectiveOp.BARRIER])
def test_chunks_of_other_collectives_are_refused(
    tmp_path: Path, op: CollectiveOp
) -> None:
    path = write(tmp_path / "a", [[receive(1, 1)], [send(0, 1)]])
    with pytest.raises(ScheduleError) as caught:
        listed(path, op)
    assert f"which have no meaning for a {op}" in str(caught.value)


def test_file_without_metadata_or_with_two_equal_ids_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [[receive(1)], [send(0)]])
    file = path / "body.0.et"
    first, node = (
        frame(body) for _, body in read_records([file.read_bytes()], source="w")
    )
    file.write_bytes(node)
    with pytest.raises(ScheduleError, match="first record must be metadata"):
        source(path)
    file.write_bytes(first + node + node)
    with pytest.raises(ScheduleError, match=r"body\.0\.et: node 0: occurs twice"):
        source(path)


def exchange(*, adds: bool = True) -> list[list[dict[str, object]]]:
    def rank(own: int) -> list[dict[str, object]]:
        other = 1 - own
        return [
            send(other, own),
            receive(other, other, is_rrc=adds),
            {"kind": NodeType.COMP},
            send(other, other),
            receive(other, own),
        ]

    return [rank(0), rank(1)]


def test_missing_chunks_are_reported(tmp_path: Path) -> None:
    assert len(listed(write(tmp_path, exchange(), name="allreduce")).transfers) == 4
    with pytest.raises(
        ScheduleError, match=r"part 1 in i\[1\] without the contribution of rank 0"
    ):
        listed(write(tmp_path, exchange(adds=False), name="allreduce"))


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ([[send(1)], [receive(0)]], "no data of rank 1 can reach rank 0"),
        ([[send(1), send(1)], [receive(0)]], "rank 0 sends 2 messages to rank 1"),
        (
            [[receive(1), send(1)], [receive(0), send(0)]],
            "body.0.et: node 0 waits forever for a message from rank 1",
        ),
        (
            [[send(1, comm_size=5), receive(1)], [receive(0), send(0)]],
            "from 0 to 1 has 5 bytes at its source and 1000 at its destination",
        ),
        ([[send(1, 0), receive(1)], [receive(0), send(0, 0)]], "parts of no and of 2"),
        ([[send(2)], [receive(0)]], "comm_dst is 2"),
        (
            [[send(1, after=[9])], [receive(0)]],
            "depends on node 9, which does not exist",
        ),
        (
            [[send(1, after=[1]), receive(1, after=[0])], [receive(0), send(0)]],
            "position 0: its dependencies form a cycle (remove one of",
        ),
        (
            [[send(1, 0, msg_chunk_cnt=0)], [receive(0, 0)]],
            "node 0: carries no chunks (msg_chunk_cnt) (use chunks from 0",
        ),
        ([[{"kind": NodeType.COMM_COLL}], []], "node 0: is a collective"),
    ],
)
def test_invalid_body_is_refused(
    tmp_path: Path, ranks: list[list[dict[str, object]]], told: str
) -> None:
    with pytest.raises(ScheduleError) as caught:
        listed(write(tmp_path, ranks))
    assert told in str(caught.value)


def only(peer_bytes: list[list[dict[str, object]]], op: CollectiveOp) -> str:
    """Return why these messages are refused as *op*."""
    path = Path(tempfile.mkdtemp())
    try:
        with pytest.raises(ScheduleError) as caught:
            listed(write(path, peer_bytes), op, nranks=len(peer_bytes))
    finally:
        shutil.rmtree(path)
    return str(caught.value)


def sized(kind: object, peer: int, size: int, **more: object) -> dict[str, object]:
    return kind(peer, comm_size=size, **more)  # type: ignore[operator, no-any-return] # either kind of operation


def test_rank_without_transfers_is_reported() -> None:
    ranks = [
        [sized(send, 1, 0), sized(receive, 1, 9)],
        [sized(receive, 0, 0), sized(send, 0, 9)],
    ]
    told = only(ranks, CollectiveOp.ALL_GATHER)
    assert "rank 0 sends no bytes, but must send some" in told
    assert "rank 1 receives no bytes, but must receive some" in told


def test_rank_cannot_forward_data_that_it_did_not_receive() -> None:
    # A broadcast down a chain; the last link is fed before its source has all of it.
    ranks = [
        [sized(send, 1, 60), sized(send, 1, 40)],
        [
            sized(receive, 0, 60, after=[]),
            sized(receive, 0, 40, after=[]),
            sized(send, 2, 100, after=[0]),
        ],
        [sized(receive, 1, 100)],
    ]
    told = only(ranks, CollectiveOp.BROADCAST)
    assert (
        "body.1.et: node 2: rank 1 sends 100 bytes, but can have only 60 at that "
        "point: it starts without data; it has received 60 bytes" in told
    )


def test_broadcast_that_waits_for_both_directions_is_correct(tmp_path: Path) -> None:
    ranks = [
        [sized(send, 1, 60), sized(send, 1, 40)],
        [
            sized(receive, 0, 60, after=[]),
            sized(receive, 0, 40, after=[]),
            sized(send, 2, 100, after=[0, 1]),
        ],
        [sized(receive, 1, 100)],
    ]
    how = listed(write(tmp_path, ranks), CollectiveOp.BROADCAST, nranks=3)
    assert [each.nbytes for each in how.transfers] == [60, 40, 100]


def test_gathered_message_is_bounded_by_own_and_received_data() -> None:
    # Shards of at most 10 bytes, for rank 1 gets no more; and it sends 30.
    ranks = [
        [sized(send, 1, 10), sized(receive, 1, 30)],
        [sized(receive, 0, 10), sized(send, 0, 30)],
    ]
    told = only(ranks, CollectiveOp.ALL_GATHER)
    assert "rank 1 sends 30 bytes, but can have only 20 at that point" in told
    assert "its messages allow a buffer of at most 10 bytes" in told


def test_sums_are_no_larger_than_one_buffer() -> None:
    ranks = [
        [sized(send, 1, 10), sized(receive, 1, 30)],
        [sized(receive, 0, 10), sized(send, 0, 30)],
    ]
    assert "rank 1 sends 30 bytes, but can have only 10 at that point" in only(
        ranks, AR
    )


def test_a_folder_without_one_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match="contains no sets of files"):
        listed(tmp_path)
    write(tmp_path / "a", exchange())
    (tmp_path / "a/body.1.et").unlink()
    with pytest.raises(ScheduleError, match="has files for 1 positions"):
        listed(tmp_path / "a")
    with pytest.raises(ScheduleError, match="is for the collective 'magic'"):
        listed(write(tmp_path / "b", exchange(), name="magic"))
