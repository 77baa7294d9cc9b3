"""Names and IDs of nodes that were read from PyTorch host traces.

A node of a file can become several nodes of a graph, such as the kernels of one
operation on several streams. They share the lower bits of their IDs. PyTorch numbers
its nodes from 1, in the order in which the host started them.
"""

from __future__ import annotations

import re
from typing import Final

STEP: Final = re.compile(r"ProfilerStep\s?#\s?([0-9]{1,18})")
"""Pattern of the names of nodes that mark a step of PyTorch's profiler."""

PART_SHIFT: Final = 40
"""Bit of a node ID at which the number of the part begins."""

MOST_ID: Final = 1 << PART_SHIFT
"""Upper limit of node IDs in a file. All IDs are smaller."""


def host_id(node_id: int) -> int:
    """Return the ID in the file, which all parts of a node share."""
    return node_id % MOST_ID
