"""Steps and bytes of every algorithm equal independent closed forms.

``S`` is what one rank contributes, divisible wherever a form divides it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakram.collectives.algorithms import algorithm, algorithm_names
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule_check import build_schedule, check_schedule
from tests.schedules import nsteps, received_bytes, sent_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

AR, AG, RS = (
    CollectiveOp.ALL_REDUCE,
    CollectiveOp.ALL_GATHER,
    CollectiveOp.REDUCE_SCATTER,
)

A2A, BC, RD = CollectiveOp.ALL_TO_ALL, CollectiveOp.BROADCAST, CollectiveOp.REDUCE


def log2_up(n: int) -> int:
    return (n - 1).bit_length()


def folded(n: int) -> int:
    """Positions of an n-group beyond the next lower power of two."""
    return n - (1 << n.bit_length() - 1)


@dataclass(frozen=True)
class Form:
    """Number of steps, and bytes that a position sends, of n ranks; for n > 1."""

    steps: Callable[[int], int]
    sends: Callable[[int, int, int], int]


def halving_steps(n: int) -> int:
    return n.bit_length() - 1 + 2 * bool(folded(n))


def doubling(n: int, p: int, size: int) -> int:
    if p < 2 * folded(n):
        # The even one gives its buffer away; the odd one gives the result back.
        return size if p % 2 == 0 else (n.bit_length() - 1) * size + size
    return (n.bit_length() - 1) * size


def halving_doubling(n: int, p: int, size: int) -> int:
    actors = 1 << n.bit_length() - 1
    both = 2 * (actors - 1) * size // actors
    if p < 2 * folded(n):
        return size if p % 2 == 0 else both + size
    return both


def halving(n: int, p: int, size: int) -> int:
    part, extra = size // n, folded(n)
    if p < 2 * extra:
        # The odd one keeps two parts until the end and then gives one back.
        return size if p % 2 == 0 else size - part
    return size - part


def doubling_gather(n: int, p: int, size: int) -> int:
    """Shards grow from 1 (2 where two are one) to half of all."""
    extra, actors = folded(n), 1 << n.bit_length() - 1
    if p < 2 * extra and p % 2 == 0:
        return size
    own = p // 2 if p < 2 * extra else p - extra

    def shards(begin: int, end: int) -> int:
        return sum(2 if virtual < extra else 1 for virtual in range(begin, end))

    total, length = 0, 1
    while length < actors:
        begin = own // length * length
        total += shards(begin, begin + length)
        length *= 2
    return (total + (n - 1 if p < 2 * extra else 0)) * size


def bruck(n: int, p: int, size: int) -> int:
    return size // n * sum(way.bit_count() for way in range(1, n))


def chain(n: int, p: int, size: int) -> int:
    """Everybody but the last of the row; the row begins at the root, position 0."""
    return 0 if p == n - 1 else size


def below(n: int, p: int) -> int:
    """Positions for which *p* is in a binomial tree, itself included."""
    return min(p & -p, n - p) if p else n


def hierarchical(rails: int) -> Form:
    """Whole nodes only."""

    def sends(n: int, p: int, size: int) -> int:
        members, nodes = min(rails, n), -(-n // rails)
        within = 2 * (members - 1) * size // members
        between = 2 * (nodes - 1) * size // (members * nodes)
        return within + between

    return Form(lambda n: 2 * -(-n // rails), sends)


def pxn(rails: int) -> Form:
    """Whole nodes only: M - 1 of M parts stay within the node, then all that leaves."""

    def sends(n: int, p: int, size: int) -> int:
        members = min(rails, n)
        return (members - 1) * size // members + size // n * (n - members)

    return Form(lambda n: 2 if n > rails else 1, sends)


def ring(half: int) -> Callable[[int, int, int], int]:
    return lambda n, p, size: half * (n - 1) * size // n


FORMS: dict[tuple[CollectiveOp, str], Form] = {
    (AR, "ring"): Form(lambda n: 2 * (n - 1), ring(2)),
    (AR, "ring(channels=3,chunks=2,order=interleaved)"): Form(
        lambda n: 2 * (n - 1), ring(2)
    ),
    (AR, "bidirectional_ring"): Form(lambda n: 2 * (n - 1), ring(2)),
    (RS, "ring(channels=2,chunks=2)"): Form(lambda n: n - 1, ring(1)),
    (RS, "bidirectional_ring"): Form(lambda n: n - 1, ring(1)),
    (AG, "ring(channels=2,order=descending)"): Form(
        lambda n: n - 1, lambda n, p, size: (n - 1) * size
    ),
    (AG, "bidirectional_ring(chunks=3)"): Form(
        lambda n: n - 1, lambda n, p, size: (n - 1) * size
    ),
    (AR, "recursive_doubling"): Form(halving_steps, doubling),
    (AR, "halving_doubling"): Form(
        lambda n: 2 * (n.bit_length() - 1) + 2 * bool(folded(n)), halving_doubling
    ),
    (RS, "recursive_halving"): Form(halving_steps, halving),
    (AG, "recursive_doubling"): Form(halving_steps, doubling_gather),
    (AG, "bruck"): Form(log2_up, lambda n, p, size: (n - 1) * size),
    (A2A, "bruck"): Form(log2_up, bruck),
    (A2A, "pairwise"): Form(lambda n: n - 1, ring(1)),
    (BC, "ring"): Form(lambda n: n - 2 + 8, chain),
    (BC, "ring(chunks=1)"): Form(lambda n: n - 1, chain),
    (BC, "ring(channels=2,chunks=4,order=ascending/ascending)"): Form(
        lambda n: n - 2 + 4, chain
    ),
    (CollectiveOp.SCATTER, "tree"): Form(
        log2_up, lambda n, p, size: size // n * (below(n, p) - 1)
    ),
    (CollectiveOp.GATHER, "tree"): Form(
        log2_up, lambda n, p, size: size * below(n, p) if p else 0
    ),
}
# A number that all sizes up to 33, their powers of two and all chunks divide.
DIVISIBLE = 2**7 * 3**4 * 5**2 * 7 * 11 * 13 * 17 * 19 * 23 * 29 * 31
LARGE = [*range(2, 18), 24, 31, 32, 33]


@pytest.mark.parametrize(("op", "name"), FORMS)
def test_steps_and_bytes_equal_the_closed_form(op: CollectiveOp, name: str) -> None:
    form, how = FORMS[op, name], algorithm(op, name)
    for n in LARGE:
        assert nsteps(build_schedule(how, nranks=n)) == form.steps(n)
        assert [
            sent_bytes(how, position=p, nranks=n, root=0, input_bytes=DIVISIBLE)
            for p in range(n)
        ] == [form.sends(n, p, DIVISIBLE) for p in range(n)]


@pytest.mark.parametrize("rails", [1, 2, 4, 8])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("op", "name", "form"), [(AR, "hierarchical", hierarchical), (A2A, "pxn", pxn)]
)
def test_whole_nodes_have_closed_forms(
    op: CollectiveOp, name: str, form: Callable[[int], Form], rails: int, nodes: int
) -> None:
    n, how = rails * nodes, algorithm(op, f"{name}(ranks_per_node={rails})")
    if n == 1:
        return
    wanted = form(rails)
    steps = nsteps(build_schedule(how, nranks=n))
    if rails > 1 and (nodes > 1 or name == "hierarchical"):
        assert steps == wanted.steps(n)
    for p in range(n):
        assert sent_bytes(
            how, position=p, nranks=n, root=0, input_bytes=DIVISIBLE
        ) == wanted.sends(n, p, DIVISIBLE)


@pytest.mark.parametrize("n", LARGE)
def test_a_double_binary_tree_moves_what_two_trees_do(n: int) -> None:
    how = algorithm(AR, "double_binary_tree")
    schedule = build_schedule(how, nranks=n)
    assert nsteps(schedule) == 2 * log2_up(n) + 4 - 1
    sent = [
        sent_bytes(how, position=p, nranks=n, root=0, input_bytes=DIVISIBLE)
        for p in range(n)
    ]
    # Each tree has n - 1 edges, each of which carries its half up and down.
    assert sum(sent) == 2 * (n - 1) * DIVISIBLE
    # A half up, and two halves down, at most, in each of the trees.
    assert max(sent) <= 3 * DIVISIBLE
    if n % 2 == 0:
        # Who is inside of one tree is a leaf of the other.
        assert max(sent) <= 2 * DIVISIBLE


@pytest.mark.parametrize("n", LARGE)
def test_a_bidirectional_ring_halves_what_each_neighbor_gets(n: int) -> None:
    how = algorithm(AR, "bidirectional_ring")
    for p in range(n):
        ways = {(t.channel, t.dst) for t in how.sends(p, nranks=n, root=0)}
        assert ways == {(0, (p + 1) % n), (1, (p - 1) % n)}


@pytest.mark.parametrize("rails", [2, 4, 8])
@pytest.mark.parametrize("n", LARGE)
def test_pxn_never_changes_rails_between_nodes_that_are_whole(
    n: int, rails: int
) -> None:
    how = algorithm(A2A, f"pxn(ranks_per_node={rails})")
    whole = n // rails * rails
    for transfer in build_schedule(how, nranks=n).transfers:
        if transfer.src // rails != transfer.dst // rails and transfer.src < whole:
            assert transfer.src % rails == transfer.dst % rails


PARAMETERISED = [
    (AR, "ring(channels=2,chunks=4)"),
    (AR, "ring(order=descending)"),
    (AR, "ring(channels=3,order=interleaved/ascending)"),
    (AR, "bidirectional_ring(channels=4,chunks=2)"),
    (AR, "double_binary_tree(chunks=1)"),
    (AR, "hierarchical(ranks_per_node=1)"),
    (AR, "hierarchical(ranks_per_node=3)"),
    (AR, "hierarchical(ranks_per_node=4)"),
    (AG, "ring(channels=2,chunks=3,order=interleaved)"),
    (RS, "ring(channels=2,chunks=3,order=descending)"),
    (A2A, "pxn(ranks_per_node=1)"),
    (A2A, "pxn(ranks_per_node=3)"),
    (A2A, "pxn(ranks_per_node=4)"),
    (BC, "ring(chunks=3,order=interleaved)"),
    (RD, "ring(chunks=3,order=descending)"),
]


@pytest.mark.parametrize(("op", "name"), PARAMETERISED)
def test_parameters_change_no_result(op: CollectiveOp, name: str) -> None:
    how = algorithm(op, name)
    assert how.name == name
    for n in (*range(1, 10), 12, 16, 17):
        for root in {0, n // 2, n - 1} if op in (BC, RD) else {0}:
            assert check_schedule(how, nranks=n, root=root) == []


@settings(max_examples=20)
@given(order=st.permutations(range(7)), chunks=st.integers(1, 3))
def test_any_order_of_ranks_is_a_ring(order: list[int], chunks: int) -> None:
    written = "-".join(map(str, order))
    for op in (AR, AG, RS, BC, RD):
        how = algorithm(op, f"ring(chunks={chunks},order={written})")
        assert check_schedule(how, nranks=7, root=3) == []
        assert how.unfit(7) is None
        assert how.unfit(8) is not None


EVERY = [(op, name) for op in CollectiveOp for name in algorithm_names(op)]


@pytest.mark.parametrize(("op", "name"), EVERY)
def test_all_that_is_sent_is_received_by_each_position(
    op: CollectiveOp, name: str
) -> None:
    """What leaves for a position is what the position expects, byte for byte."""
    how = algorithm(op, name)
    for n in (2, 3, 6, 8, 13):
        leaving = [0] * n
        for transfer in build_schedule(how, nranks=n).transfers:
            leaving[transfer.dst] += sum(
                how.chunk_bytes(chunk, nranks=n, input_bytes=1_000_003)
                for chunk in transfer.chunks
            )
        assert leaving == [
            received_bytes(how, position=p, nranks=n, root=0, input_bytes=1_000_003)
            for p in range(n)
        ]
