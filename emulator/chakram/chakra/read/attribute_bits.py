"""Numbers of the relevant node attributes, for use as bit positions in a set."""

from __future__ import annotations

ATTRIBUTES = (
    # Integers up to is_cpu_op, then a group name and a list of booleans.
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
    # Only the presence of these two matters, but they must not be repeated.
    b"group_size",
    b"group_count",
    b"op_type",
    # A node with any of these is not plain.
    b"ranks",
    b"root",
    b"in_split_sizes",
    b"out_split_sizes",
    b"label_duration_micros",
)
OPS, TENSOR, STREAM, TYPE, SIZE, SOURCE, DESTINATION, TAG = range(8)
GROUP_NUMBER, ON_CPU, GROUP, INVOLVED = range(8, 12)
OP_TYPE = ATTRIBUTES.index(b"op_type")
FIRST_NOT_PLAIN = ATTRIBUTES.index(b"ranks")

_LABEL = len(ATTRIBUTES) - 1
OF_COMPUTE = 1 << OPS | 1 << TENSOR | 1 << STREAM | 1 << ON_CPU | 1 << _LABEL
OF_COMMUNICATION = (1 << _LABEL) - 1 & ~(1 << OPS)
