"""The collectives and what their sizes mean.

One convention inside the program: ``input_bytes`` is what one rank contributes, as a
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

An all_to_all_v is an all_to_all with splits, bytes for every pair of ranks
(``chakram.collectives.split_sizes``).  Its send buffers differ, so the mean over the
ranks, rounded up, stands for them: with even splits it is the size of the all_to_all.

Source of the last two columns: nccl-tests, doc/PERFORMANCE.md and the per-collective
sources (the factors of gather, scatter and sendrecv stand only there); of all_to_all_v
rccl-tests, alltoallv.cu.  (S of nccl-tests' alltoallv_perf is the largest buffer that a
rank sends or receives; ``chakram bench`` prints that one.)
"""

from __future__ import annotations

from enum import StrEnum


class CollectiveOp(StrEnum):
    """What a collective does; ``send_recv`` is a matched point-to-point pair."""

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
"""Collectives in which one rank, the root, has a part of its own."""


def nccl_size_bytes(op: CollectiveOp, *, input_bytes: int, nranks: int) -> int:
    """Return S, the size column of nccl-tests, for a collective of *nranks* ranks."""
    if op in (CollectiveOp.ALL_GATHER, CollectiveOp.GATHER):
        return input_bytes * nranks
    return input_bytes


def buffer_bytes(op: CollectiveOp, *, input_bytes: int, nranks: int) -> int:
    """Return the bytes of the whole buffer that a schedule's chunks divide.

    It is the concatenation of the shards for all_gather and gather, otherwise the
    buffer of one rank.  For all_to_all it is one rank's send buffer, for
    all_to_all_v their mean.
    """
    return nccl_size_bytes(op, input_bytes=input_bytes, nranks=nranks)
