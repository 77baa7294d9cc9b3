"""Names of nodes as others want to see them.

``chakra_timeline_visualizer`` knows what a node is by its name, in the log of
ASTRA-sim, and refuses a log with a name that does not say so.  So names are written
with what they want in front, and read without.  Source: ``timeline_visualizer.py`` of
mlcommons/chakra; ASTRA-sim has memory nodes access a remote memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chakram.chakra.et_messages import NodeType

PREFIXES: Final[Mapping[int, str]] = {
    NodeType.COMP: "COMP_NODE: ",
    NodeType.MEM_LOAD: "MEM_LOAD_NODE of REMOTE_MEMORY: ",
    NodeType.MEM_STORE: "MEM_STORE_NODE of REMOTE_MEMORY: ",
    NodeType.COMM_SEND: "COMM_SEND_NODE: ",
    NodeType.COMM_RECV: "COMM_RECV_NODE: ",
    NodeType.COMM_COLL: "COMM_COLL_NODE: ",
}
"""By type of a node, what stands before its name; a colon is the last but one of it."""


def shown_name(name: str, node_type: int) -> str:
    """Return a name as it is written."""
    return PREFIXES.get(node_type, "") + name


def own_name(name: str, node_type: int) -> str:
    """Return a name without what was written before it for others."""
    return name.removeprefix(PREFIXES.get(node_type, ""))
