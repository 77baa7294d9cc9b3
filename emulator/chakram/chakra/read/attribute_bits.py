"""Attributes of nodes that count, by number; a bit each says that one is there."""

from __future__ import annotations

ATTRIBUTES = (
    # What has to be an integer.
    b"num_ops",
    b"tensor_size",
    b"stream",
    b"comm_type",
    b"comm_size",
    b"comm_src",
    b"comm_dst",
    b"comm_tag",
    b"comm_group",
    b"is_cpu_op",
    b"pg_name",
    b"involved_dim",
    # Of these two only counts that they are there, and not twice.
    b"group_size",
    b"group_count",
    b"op_type",
    # With any of these a node is not plain.
    b"ranks",
    b"root",
    b"in_split_sizes",
    b"out_split_sizes",
    b"label_duration_micros",
)
OPS, TENSOR, STREAM, TYPE, SIZE, SOURCE, DESTINATION, TAG = range(8)
GROUP_NUMBER, ON_CPU, GROUP, INVOLVED = range(8, 12)
OP_TYPE = ATTRIBUTES.index(b"op_type")
FIRST_ODD = ATTRIBUTES.index(b"ranks")

_LABEL = len(ATTRIBUTES) - 1
OF_COMPUTE = 1 << OPS | 1 << TENSOR | 1 << STREAM | 1 << ON_CPU | 1 << _LABEL
OF_COMMUNICATION = (1 << _LABEL) - 1 & ~(1 << OPS)
