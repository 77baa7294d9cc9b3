"""Collective operations and the meaning of their sizes.

Chakram uses one convention: ``input_bytes`` is the contribution of one rank, as a
Chakra trace stores it in ``comm_size``.

===============  ==========================  ==================  ============
collective       input_bytes (per rank)      nccl-tests size S   busbw factor
===============  ==========================  ==================  ============
all_reduce       the buffer                  input_bytes         2(n-1)/n
all_gather       the shard contributed       n x input_bytes     (n-1)/n
reduce_scatter   the whole input             input_bytes         (n-1)/n
all_to_all       the whole send buffer       input_bytes         (n-1)/n
all_to_all_v     mean of all send buffers    input_bytes         (n-1)/n
broadcast        the buffer                  input_bytes         1
reduce           the buffer                  input_bytes         1
gather           the shard contributed       n x input_bytes     (n-1)/n
scatter          the root's whole buffer     input_bytes         (n-1)/n
send_recv        the message                 input_bytes         1
barrier          0                           0                   -
===============  ==========================  ==================  ============

An all_to_all_v is an all_to_all with splits: a byte count for every pair of ranks
(``chakram.collectives.split_sizes``). Its send buffers differ in size, so
``input_bytes`` is their mean over the ranks, rounded up. With even splits, this equals
the size of the all_to_all.

The last two columns follow nccl-tests: doc/PERFORMANCE.md and the source of each
collective. Only the source files state the factors of gather, scatter and sendrecv. The
values for all_to_all_v are from rccl-tests, alltoallv.cu. The S of nccl-tests'
alltoallv_perf differs: it is the largest send or receive buffer of any rank. ``chakram
bench`` prints that value.
"""

from __future__ import annotations

from enum import StrEnum


class CollectiveOp(StrEnum):
    """A collective operation. ``send_recv`` is a matched point-to-point pair."""

    ALL_REDUCE = "all_reduce"
    REDUCE = "reduce"
    ALL_GATHER = "all_gather"
    GATHER = "gather"
    SCATTER = "scatter"
    BROADCAST = "broadcast"
    ALL_TO_ALL = "all_to_all"
    ALL_TO_ALL_V = "all_to_all_v"
    REDUCE_SCATTER = "reduce_scatter"
    BARRIER = "barrier"
    SEND_RECV = "send_recv"


ROOTED = frozenset(
    {
        CollectiveOp.REDUCE,
        CollectiveOp.GATHER,
        CollectiveOp.SCATTER,
        CollectiveOp.BROADCAST,
    }
)
"""Collectives in which one rank, the root, has a special role."""


def nccl_size_bytes(op: CollectiveOp, *, input_bytes: int, nranks: int) -> int:
    """Return S, the size column of nccl-tests, for a collective of *nranks* ranks."""
    if op in (CollectiveOp.ALL_GATHER, CollectiveOp.GATHER):
        return input_bytes * nranks
    return input_bytes


def buffer_bytes(op: CollectiveOp, *, input_bytes: int, nranks: int) -> int:
    """Return the bytes of the whole buffer that a schedule divides into chunks.

    For all_gather and gather, it is the concatenation of all shards. For all_to_all, it
    is the send buffer of one rank. For all_to_all_v, it is the mean send buffer. For
    all other collectives, it is the buffer of one rank.
    """
    return nccl_size_bytes(op, input_bytes=input_bytes, nranks=nranks)
