"""Steps and bytes of single ranks equal closed forms."""

import pytest

from chakram.collectives.algorithms import algorithm, algorithm_names
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import part_bytes, rank_schedule
from tests.schedules import received_bytes, sent_bytes

SIZES = [0, 1, 7, 4096, 1_000_003]
NRANKS = [2, 3, 4, 7, 8]
# The others divide the buffers of all ranks, one after the other.
ONE_BUFFER = {"all_reduce", "reduce", "broadcast", "scatter", "reduce_scatter"}


def sent(op: CollectiveOp, name: str, *, nranks: int, size: int, root: int = 0) -> list:
    how = algorithm(op, name)
    return [
        sent_bytes(how, position=p, nranks=nranks, root=root, input_bytes=size)
        for p in range(nranks)
    ]


def received(op: CollectiveOp, name: str, *, nranks: int, size: int, root=0) -> list:
    how = algorithm(op, name)
    return [
        received_bytes(how, position=p, nranks=nranks, root=root, input_bytes=size)
        for p in range(nranks)
    ]


@pytest.mark.parametrize("op", CollectiveOp)
def test_a_single_rank_moves_nothing(op: CollectiveOp) -> None:
    for name in algorithm_names(op):
        share = rank_schedule(algorithm(op, name), position=0, nranks=1)
        assert share.sends == ()
        assert share.receives == ()


@pytest.mark.parametrize("op", CollectiveOp)
@pytest.mark.parametrize("nranks", [1, *NRANKS])
@pytest.mark.parametrize("size", SIZES)
def test_chunks_are_the_buffer_exactly(
    op: CollectiveOp, nranks: int, size: int
) -> None:
    whole = size if op in ONE_BUFFER else size * nranks
    for name in algorithm_names(op):
        how = algorithm(op, name)
        chunks = [
            how.chunk_bytes(chunk, nranks=nranks, input_bytes=size)
            for chunk in range(how.nchunks(nranks))
        ]
        assert sum(chunks) == (0 if op == CollectiveOp.BARRIER else whole)
        assert max(chunks) - min(chunks) <= 1


@pytest.mark.parametrize("nranks", NRANKS)
@pytest.mark.parametrize("size", SIZES)
def test_ring_bytes(nranks: int, size: int) -> None:
    n = nranks
    parts = [part_bytes(size, nparts=n, part=part) for part in range(n)]
    # A position sends all chunks but one in each half.
    assert sent(CollectiveOp.ALL_REDUCE, "ring", nranks=n, size=size) == [
        2 * size - parts[(p + 1) % n] - parts[(p + 2) % n] for p in range(n)
    ]
    assert sent(CollectiveOp.REDUCE_SCATTER, "ring", nranks=n, size=size) == [
        size - parts[p] for p in range(n)
    ]
    gather = [(n - 1) * size] * n
    assert sent(CollectiveOp.ALL_GATHER, "ring", nranks=n, size=size) == gather
    assert received(CollectiveOp.ALL_GATHER, "ring", nranks=n, size=size) == gather


def test_ring_bytes_are_two_n_minus_one_nths_of_a_divisible_buffer() -> None:
    size = 8 * 1024
    assert (
        sent(CollectiveOp.ALL_REDUCE, "ring", nranks=8, size=size)
        == [2 * 7 * size // 8] * 8
    )


@pytest.mark.parametrize("nranks", NRANKS)
@pytest.mark.parametrize("size", SIZES)
def test_direct_bytes(nranks: int, size: int) -> None:
    n, root = nranks, 1
    parts = [part_bytes(size, nparts=n, part=part) for part in range(n)]
    own = [size - part for part in parts]
    assert sent(CollectiveOp.ALL_TO_ALL, "direct", nranks=n, size=size) == own
    assert received(CollectiveOp.ALL_TO_ALL, "direct", nranks=n, size=size) == [
        (n - 1) * part for part in parts
    ]
    assert sent(CollectiveOp.REDUCE_SCATTER, "direct", nranks=n, size=size) == own
    assert (
        sent(CollectiveOp.ALL_GATHER, "direct", nranks=n, size=size)
        == [(n - 1) * size] * n
    )
    assert sent(CollectiveOp.SEND_RECV, "direct", nranks=n, size=size) == [size] * n
    assert sent(CollectiveOp.GATHER, "direct", nranks=n, size=size, root=root) == [
        0 if p == root else size for p in range(n)
    ]
    assert sent(CollectiveOp.SCATTER, "direct", nranks=n, size=size, root=root) == [
        size - parts[root] if p == root else 0 for p in range(n)
    ]


@pytest.mark.parametrize("nranks", NRANKS)
@pytest.mark.parametrize("size", SIZES)
def test_tree_bytes(nranks: int, size: int) -> None:
    n, root = nranks, nranks - 1
    wanted = [0 if p == root else size for p in range(n)]
    assert (
        received(CollectiveOp.BROADCAST, "tree", nranks=n, size=size, root=root)
        == wanted
    )
    assert sent(CollectiveOp.REDUCE, "tree", nranks=n, size=size, root=root) == wanted
    both = [
        a + b
        for a, b in zip(
            sent(CollectiveOp.REDUCE, "tree", nranks=n, size=size),
            sent(CollectiveOp.BROADCAST, "tree", nranks=n, size=size),
            strict=True,
        )
    ]
    assert sent(CollectiveOp.ALL_REDUCE, "tree", nranks=n, size=size) == both


@pytest.mark.parametrize(("nranks", "steps"), [(2, 1), (3, 2), (4, 2), (5, 3), (9, 4)])
def test_trees_and_barriers_take_log_steps(nranks: int, steps: int) -> None:
    for op, name in (
        (CollectiveOp.BROADCAST, "tree"),
        (CollectiveOp.BARRIER, "dissemination"),
    ):
        how = algorithm(op, name)
        last = max(
            transfer.step
            for position in range(nranks)
            for transfer in how.sends(position, nranks=nranks, root=0)
        )
        assert last == steps - 1


def test_direct_sends_begin_with_the_next_position() -> None:
    how = algorithm(CollectiveOp.ALL_TO_ALL, "direct")
    peers = [transfer.dst for transfer in how.sends(2, nranks=5, root=0)]
    assert peers == [3, 4, 0, 1]


def test_cost_per_rank_does_not_grow_with_the_group() -> None:
    how = algorithm(CollectiveOp.ALL_TO_ALL, "direct")
    share = rank_schedule(how, position=1000, nranks=1024)
    assert len(share.sends) == len(share.receives) == 1023
    assert all(send.needs == () and send.message == 0 for send in share.sends)


def test_a_ring_step_needs_the_chunk_of_the_step_before() -> None:
    how = algorithm(CollectiveOp.ALL_REDUCE, "ring")
    share = rank_schedule(how, position=0, nranks=4)
    assert [send.chunk for send in share.sends] == [0, 3, 2, 1, 0, 3]
    assert [send.needs for send in share.sends] == [
        (),
        (0,),
        (1,),
        (2,),
        (3,),
        (0, 4),
    ]
    assert [send.message for send in share.sends] == [0, 1, 2, 3, 4, 5]
