"""Collective algorithms: from an operation to a schedule of transfers. Pure.

Every algorithm here passes ``chakram.collectives.schedule_check`` for every number of
ranks and every root.  Its name is a family, with parameters where those are not the
defaults (``chakram.collectives.algorithms.parameters``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from chakram.collectives.algorithms.barrier import DisseminationBarrier
from chakram.collectives.algorithms.chain import (
    CHAIN_CHUNKS,
    ChainBroadcast,
    ChainReduce,
)
from chakram.collectives.algorithms.choice import (
    AUTO,
    AlgorithmSource,
    Choice,
    Rule,
    UserAlgorithm,
    chosen,
    user_algorithms,
)
from chakram.collectives.algorithms.direct import (
    DirectAllGather,
    DirectAllToAll,
    DirectGather,
    DirectReduceScatter,
    DirectScatter,
    DirectSendReceive,
)
from chakram.collectives.algorithms.double_tree import (
    TREE_CHUNKS,
    DoubleBinaryTreeAllReduce,
)
from chakram.collectives.algorithms.hierarchical import (
    RANKS_PER_NODE,
    HierarchicalAllReduce,
    PxnAllToAll,
)
from chakram.collectives.algorithms.pairwise import (
    BruckAllGather,
    BruckAllToAll,
    PairwiseAllToAll,
)
from chakram.collectives.algorithms.parameters import (
    OrdersParameter,
    Parameter,
    WholeParameter,
    canonical_name,
    read_values,
    split_name,
)
from chakram.collectives.algorithms.rank_order import ASCENDING
from chakram.collectives.algorithms.recursive_doubling import (
    DoublingAllGather,
    DoublingAllReduce,
    HalvingDoublingAllReduce,
    HalvingReduceScatter,
)
from chakram.collectives.algorithms.ring import (
    BOTH_WAYS,
    RingAllGather,
    RingAllReduce,
    RingReduceScatter,
)
from chakram.collectives.algorithms.tree import (
    TreeAllReduce,
    TreeBroadcast,
    TreeGather,
    TreeReduce,
    TreeScatter,
)
from chakram.collectives.ops import CollectiveOp
from chakram.errors import ScheduleError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chakram.collectives.algorithms.listed import ListedAlgorithm
    from chakram.collectives.schedule import Algorithm

__all__ = [
    "AUTO",
    "AlgorithmSource",
    "Choice",
    "Rule",
    "UserAlgorithm",
    "algorithm",
    "algorithm_fitting",
    "algorithm_names",
    "algorithm_of",
    "automatic_algorithm",
    "chosen",
    "default_algorithm",
    "parameters_of",
    "user_algorithms",
]

MAX_CHANNELS = 32
MAX_CHUNKS = 256
MAX_RANKS_PER_NODE = 1024


@dataclass(frozen=True, slots=True)
class _Family:
    """One algorithm of one collective, its parameters open.

    ``make`` takes the canonical name and the values of all parameters; without any
    the instance is always the same.
    """

    name: str
    op: CollectiveOp
    make: Callable[..., Algorithm]
    parameters: tuple[Parameter, ...] = ()


def _whole(name: str, default: int, most: int) -> WholeParameter:
    return WholeParameter(name=name, default=default, most=most)


_CHANNELS = _whole("channels", 1, MAX_CHANNELS)
_CHUNKS = _whole("chunks", 1, MAX_CHUNKS)
_ORDER = OrdersParameter(name="order", default=(ASCENDING,), most=MAX_CHANNELS)
_NODE = (_whole("ranks_per_node", RANKS_PER_NODE, MAX_RANKS_PER_NODE),)
_RING = (_CHANNELS, _CHUNKS, _ORDER)
_CHAIN = (_CHANNELS, _whole("chunks", CHAIN_CHUNKS, MAX_CHUNKS), _ORDER)


def _ring(kind: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    def make(*, name: str, channels: int, chunks: int, order: Any) -> Algorithm:
        # An order for every channel makes channels of them.
        return kind(
            name=name,
            channels=max(channels, len(order)),
            chunks=chunks,
            orders=order,
        )

    return make


def _both_ways(kind: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    def make(*, name: str, channels: int, chunks: int) -> Algorithm:
        return kind(name=name, channels=channels, chunks=chunks, orders=BOTH_WAYS)

    return make


def _uneven(kind: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    def make(*, name: str) -> Algorithm:
        return kind(op=CollectiveOp.ALL_TO_ALL_V)

    return make


def _plain(kind: Callable[[], Algorithm]) -> Callable[..., Algorithm]:
    def make(*, name: str) -> Algorithm:
        return kind()

    return make


_TWO_RINGS = (_whole("channels", len(BOTH_WAYS), MAX_CHANNELS), _CHUNKS)

# The first one of an operation is what stands for it where no size is known.
_FAMILIES: tuple[_Family, ...] = (
    _Family("ring", CollectiveOp.ALL_REDUCE, _ring(RingAllReduce), _RING),
    _Family("tree", CollectiveOp.ALL_REDUCE, _plain(TreeAllReduce)),
    _Family(
        "bidirectional_ring",
        CollectiveOp.ALL_REDUCE,
        _both_ways(RingAllReduce),
        _TWO_RINGS,
    ),
    _Family(
        "double_binary_tree",
        CollectiveOp.ALL_REDUCE,
        DoubleBinaryTreeAllReduce,
        (_whole("chunks", TREE_CHUNKS, MAX_CHUNKS),),
    ),
    _Family("halving_doubling", CollectiveOp.ALL_REDUCE, HalvingDoublingAllReduce),
    _Family("recursive_doubling", CollectiveOp.ALL_REDUCE, DoublingAllReduce),
    _Family("hierarchical", CollectiveOp.ALL_REDUCE, HierarchicalAllReduce, _NODE),
    _Family("ring", CollectiveOp.ALL_GATHER, _ring(RingAllGather), _RING),
    _Family("direct", CollectiveOp.ALL_GATHER, _plain(DirectAllGather)),
    _Family(
        "bidirectional_ring",
        CollectiveOp.ALL_GATHER,
        _both_ways(RingAllGather),
        _TWO_RINGS,
    ),
    _Family("recursive_doubling", CollectiveOp.ALL_GATHER, DoublingAllGather),
    _Family("bruck", CollectiveOp.ALL_GATHER, BruckAllGather),
    _Family("ring", CollectiveOp.REDUCE_SCATTER, _ring(RingReduceScatter), _RING),
    _Family("direct", CollectiveOp.REDUCE_SCATTER, _plain(DirectReduceScatter)),
    _Family(
        "bidirectional_ring",
        CollectiveOp.REDUCE_SCATTER,
        _both_ways(RingReduceScatter),
        _TWO_RINGS,
    ),
    _Family("recursive_halving", CollectiveOp.REDUCE_SCATTER, HalvingReduceScatter),
    _Family("direct", CollectiveOp.ALL_TO_ALL, _plain(DirectAllToAll)),
    _Family("pairwise", CollectiveOp.ALL_TO_ALL, PairwiseAllToAll),
    _Family("bruck", CollectiveOp.ALL_TO_ALL, BruckAllToAll),
    _Family("pxn", CollectiveOp.ALL_TO_ALL, PxnAllToAll, _NODE),
    # Only those whose messages go straight from source to destination: who passes on
    # what is not its own does not know how long it is.
    _Family("direct", CollectiveOp.ALL_TO_ALL_V, _uneven(DirectAllToAll)),
    _Family("pairwise", CollectiveOp.ALL_TO_ALL_V, _uneven(PairwiseAllToAll)),
    _Family("tree", CollectiveOp.BROADCAST, _plain(TreeBroadcast)),
    _Family("ring", CollectiveOp.BROADCAST, _ring(ChainBroadcast), _CHAIN),
    _Family("tree", CollectiveOp.REDUCE, _plain(TreeReduce)),
    _Family("ring", CollectiveOp.REDUCE, _ring(ChainReduce), _CHAIN),
    _Family("direct", CollectiveOp.GATHER, _plain(DirectGather)),
    _Family("tree", CollectiveOp.GATHER, _plain(TreeGather)),
    _Family("direct", CollectiveOp.SCATTER, _plain(DirectScatter)),
    _Family("tree", CollectiveOp.SCATTER, _plain(TreeScatter)),
    _Family("direct", CollectiveOp.SEND_RECV, _plain(DirectSendReceive)),
    _Family("dissemination", CollectiveOp.BARRIER, _plain(DisseminationBarrier)),
)

_BY_OP: dict[CollectiveOp, dict[str, _Family]] = {
    op: {each.name: each for each in _FAMILIES if each.op == op} for op in CollectiveOp
}


@lru_cache(maxsize=256)
def algorithm(op: CollectiveOp, name: str) -> Algorithm:
    """Return the algorithm called *name*, e.g. ``ring`` or ``ring(channels=2)``.

    ``auto`` is the default one: without the size of a collective there is nothing to
    choose by (``chosen`` has it).

    Raises:
        ScheduleError: If *op* has no such algorithm, or that no such parameters; it
            names those there are.
    """
    where = f"collectives.{op}"
    family_name, given = split_name(
        default_algorithm(op) if name == AUTO else name, where=where
    )
    family = _family(op, family_name)
    values = read_values(family.name, given, family.parameters, where=where)
    canonical = canonical_name(family.name, values, family.parameters)
    if canonical != name:
        return algorithm(op, canonical)
    return family.make(name=canonical, **values)


def algorithm_fitting(op: CollectiveOp, name: str, *, nranks: int) -> Algorithm:
    """Return the algorithm called *name*, for groups of *nranks* ranks.

    Raises:
        ScheduleError: As ``algorithm``, and if it does not fit a group of this size.
    """
    how = algorithm(op, name)
    unfit = how.unfit(nranks)
    if unfit is not None:
        raise ScheduleError(
            f"collectives.{op}",
            f"{how.name[:60]} does not fit a group of {nranks} ranks: {unfit}",
            "name an order that fits every group, e.g. ascending",
        )
    return how


def automatic_algorithm(op: CollectiveOp, *, size_bytes: int, nranks: int) -> Algorithm:
    """Return what ``auto`` is for a collective of this size, as nccl-tests count it."""
    which = chosen(op, AUTO, size_bytes=size_bytes, nranks=nranks)
    return algorithm(op, str(which))  # rules of ours name nobody else's


def algorithm_of(
    op: CollectiveOp,
    name: str,
    *,
    nranks: int,
    root: int,
    listed: Sequence[ListedAlgorithm],
) -> Algorithm:
    """Return the algorithm that a program names: one of its own, or one of ours.

    Raises:
        ScheduleError: As ``algorithm``.
    """
    for each in listed:
        if (each.op, each.name, each.nranks, each.root) == (op, name, nranks, root):
            return each
    return algorithm(op, name)


def algorithm_names(op: CollectiveOp) -> tuple[str, ...]:
    """Return the names of all algorithms of *op*, the default one first."""
    return tuple(_BY_OP[op])


def parameters_of(op: CollectiveOp, name: str) -> tuple[Parameter, ...]:
    """Return the parameters of the algorithm *name*, a plain one.

    Raises:
        ScheduleError: If *op* has no such algorithm.
    """
    return _family(op, name).parameters


def default_algorithm(op: CollectiveOp) -> str:
    """Return the name of the algorithm of *op* that is taken without a size."""
    return next(iter(_BY_OP[op]))


def _family(op: CollectiveOp, name: str) -> _Family:
    try:
        return _BY_OP[op][name]
    except KeyError:
        raise ScheduleError(
            f"collectives.{op}",
            f"there is no algorithm {name[:60]!r}",
            f"choose from {', '.join([AUTO, *_BY_OP[op]])}",
        ) from None
