"""What the formats of MSCCL's family share: names of collectives, and bounds."""

from __future__ import annotations

from chakram.collectives.ops import CollectiveOp

MAX_RANKS = 1024
MAX_CHUNKS = 1 << 16
MAX_CHANNELS = 1 << 10

COLLECTIVES = {
    "allreduce": CollectiveOp.ALL_REDUCE,
    "allgather": CollectiveOp.ALL_GATHER,
    "reduce_scatter": CollectiveOp.REDUCE_SCATTER,
    "reducescatter": CollectiveOp.REDUCE_SCATTER,
    "alltoall": CollectiveOp.ALL_TO_ALL,
    "broadcast": CollectiveOp.BROADCAST,
    "reduce": CollectiveOp.REDUCE,
}
"""The collectives' names in MSCCL and MSCCL++."""
