"""From the records of one file to one rank's graph.

``RankDecoder`` takes the records in order and gives the graph at the end.  It keeps
columns, not messages.  Files are untrusted: whatever a record holds, only
``TraceError`` comes out.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from chakram.chakra.eras import (
    FirstRecord,
    classify_first_record,
    old_schema_of_metadata,
    old_schema_of_node,
)
from chakram.chakra.groups import is_process_group_init, process_groups_of_init
from chakram.chakra.json_records import STAGE_SCHEMA
from chakram.chakra.messages import Metadata, NodeType, decode_metadata, decode_node
from chakram.chakra.nodes import NodeReader
from chakram.chakra.options import (
    DependencyPolicy,
    ReadOptions,
    TraceWarning,
    WarningKind,
)
from chakram.core.trace import TraceGraph, TraceGraphBuilder
from chakram.errors import GarbageTrace, TraceError, UnsupportedTrace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chakram.chakra.messages import Node

_OLD_SCHEMA_LOOK = 64
"""Nodes at the start of a file in which an old schema is looked for.  Each of them but
a first one without attributes and parents shows its era."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """What one file holds.

    ``groups`` are those that the file itself defines, by name; empty ranks stand for
    all ranks of the job.
    """

    graph: TraceGraph
    metadata: Metadata
    groups: Mapping[str, tuple[int, ...]]
    warnings: tuple[TraceWarning, ...]


class RankDecoder:
    """Turns the records of one rank's file into its graph.

    Args:
        rank: The rank.
        source: Name of the file, for messages.
        options: How to read.
        zero_is_a_group: Whether group ``0`` is one of its own, not all ranks.
    """

    def __init__(
        self,
        *,
        rank: int,
        source: str,
        options: ReadOptions,
        zero_is_a_group: bool = False,
    ) -> None:
        self._rank = rank
        self._source = source
        self._options = options
        self._reader = NodeReader(
            rank=rank,
            bytes_per_unit=options.bytes_per_element or 1,
            duration_unit_ns=options.duration_unit_ns,
            zero_is_a_group=zero_is_a_group,
        )
        self._metadata: Metadata | None = None
        self._groups: dict[str, tuple[int, ...]] = {}
        self._warnings: dict[WarningKind, TraceWarning] = {}
        self._builder = TraceGraphBuilder(rank=rank, source=source)
        self._records = 0
        self._nodes = 0
        self._control = array("Q")
        self._control_offsets = array("Q", [0])
        # Whether control dependencies order is known of an AUTO file once a data
        # dependency comes, and of a node's control dependencies whether they exist
        # once all nodes are there.  Till then nodes are held; mostly that is soon.
        self._held: list[tuple[dict[str, Any], tuple[int, ...]]] | None = (
            None if options.dependencies is DependencyPolicy.DATA else []
        )

        self._held_ids: set[int] = set()

    def take(self, offset: int, body: bytes) -> None:
        """Take the next record.

        Raises:
            TraceError: If it cannot be read.
        """
        self._records += 1
        if self._records == 1 and self._took_metadata(offset, body):
            return
        if self._records <= _OLD_SCHEMA_LOOK:
            self._refuse_old_schema(
                offset,
                old_schema_of_node(body, has_metadata=self._metadata is not None),
            )
        if self._nodes == self._options.node_limit:
            raise TraceError(
                self._at(offset),
                f"the file has more than {self._nodes} nodes",
                "raise the limit if that is meant",
            )
        self._nodes += 1
        self._take_node(offset, decode_node(body, self._at(offset)))

    def finish(self) -> RankTrace:
        """Return the graph and all that was noticed.

        Raises:
            TraceError: If the file was empty or lacks a node that others wait for.
        """
        if not self._records:
            raise TraceError(
                self._source,
                "the file is empty",
                "its producer was interrupted before it wrote anything",
            )
        if not self._nodes:
            self._warn(WarningKind.NO_NODES, self._source, "the rank has nothing to do")
        self._release_held_nodes()
        self._report_control_dependencies()
        graph = self._builder.build(on_missing=self._missing_data_dependency)
        return RankTrace(
            graph=graph,
            metadata=self._metadata or Metadata(),
            groups={**self._groups, **self._reader.groups},
            warnings=tuple(self._warnings.values()),
        )

    def _took_metadata(self, offset: int, body: bytes) -> bool:
        """Take the first record if it is metadata; say whether it was."""
        where = self._at(offset)
        first = classify_first_record(body)
        if first is FirstRecord.NEITHER:
            raise GarbageTrace(
                where,
                "the first record is neither metadata nor a node",
                "is this a Chakra trace?",
            )
        schema: object = None
        if first is FirstRecord.METADATA:
            self._refuse_old_schema(offset, old_schema_of_metadata(body))
            self._metadata = decode_metadata(body, where)
            schema = self._metadata.attributes.get("schema")
        else:
            self._warn(
                WarningKind.NO_METADATA, where, "the file has no metadata record"
            )
        unit = self._options.bytes_per_element
        if schema == STAGE_SCHEMA and unit is None:
            raise TraceError(
                where,
                "STAGE stores sizes as numbers of elements, and nobody said how many "
                "bytes one has",
                "say `bytes_per_element: 2` (or --bytes-per-element 2) for bf16",
            )
        if schema != STAGE_SCHEMA and unit not in (None, 1):
            self._warn(
                WarningKind.SCALED_BYTES,
                where,
                f"sizes are multiplied by {unit} bytes per element, although this "
                "producer is not known to store elements",
            )
        return first is FirstRecord.METADATA

    def _take_node(self, offset: int, node: Node) -> None:
        # Every look at a field of a message costs; an id is needed often.
        node_id = node.id
        where = f"{self._source}: offset {offset}: rank {self._rank} node {node_id}"
        columns, oddity = self._reader.columns(node, where)
        columns["node_id"] = node_id
        columns["name"] = node.name
        columns["file_offset"] = offset
        if oddity is not None:
            self._warn(oddity[0], where, oddity[1])
        if int(node.type) == NodeType.METADATA and is_process_group_init(node.name):
            self._groups.update(process_groups_of_init(node.inputs.values, where))
        control = node.ctrl_deps
        if node_id in control:
            self._warn(
                WarningKind.SELF_CONTROL_DEPENDENCY,
                where,
                "lists itself as control dependency; dropped",
            )
        self._control.extend(control)
        self._control_offsets.append(len(self._control))
        data = node.data_deps
        if self._held is None:
            self._builder.add(dependencies=data, **columns)
            return
        if node_id in self._held_ids:
            raise TraceError(
                where,
                f"node id {node_id} stands twice in the file",
                "ids must be unique within one rank",
            )
        self._held_ids.add(node_id)
        self._held.append((columns, tuple(data)))
        if data and self._options.dependencies is DependencyPolicy.AUTO:
            self._add_held(with_control=False)

    def _add_held(self, *, with_control: bool) -> None:
        held, self._held = self._held or [], None
        known, self._held_ids = self._held_ids, set()
        policy = self._options.dependencies
        for position, (columns, data) in enumerate(held):
            dependencies = () if policy is DependencyPolicy.CONTROL else data
            if with_control:
                own = columns["node_id"]
                control = self._control_dependencies(position)
                dependencies += tuple(i for i in control if i != own and i in known)
            self._builder.add(dependencies=dependencies, **columns)

    def _release_held_nodes(self) -> None:
        if self._held is None:
            return
        if self._control and self._options.dependencies is DependencyPolicy.AUTO:
            self._warn(
                WarningKind.CONTROL_ONLY,
                self._source,
                "there are control dependencies only; they order the nodes",
            )
        self._add_held(with_control=True)

    def _control_dependencies(self, position: int) -> Sequence[int]:
        start, end = self._control_offsets[position : position + 2]
        return self._control[start:end]

    def _report_control_dependencies(self) -> None:
        """Warn of control dependencies that order nothing, having no node."""
        for position in range(len(self._builder)):
            for node_id in self._control_dependencies(position):
                if node_id not in self._builder:
                    self._warn(
                        WarningKind.MISSING_CONTROL_DEPENDENCY,
                        self._builder.locate(position),
                        f"control dependency {node_id} is not in the file; dropped",
                    )

    def _missing_data_dependency(self, position: int, node_id: int) -> None:
        where = self._builder.locate(position)
        if not self._options.drop_missing_dependencies:
            raise TraceError(
                where,
                f"depends on node {node_id}, which is not in the file",
                "incomplete trace? drop_missing_dependencies goes on without",
            )
        self._warn(
            WarningKind.MISSING_DATA_DEPENDENCY,
            where,
            f"data dependency {node_id} is not in the file; dropped",
        )

    def _refuse_old_schema(self, offset: int, schema: str | None) -> None:
        if schema is not None:
            raise UnsupportedTrace(
                self._at(offset),
                f"the file has Chakra schema {schema}; read with today's its nodes "
                "would change their types",
                "convert it with the tool that wrote it to schema 0.0.4 or later",
            )

    def _warn(self, kind: WarningKind, where: str, found: str) -> None:
        first = self._warnings.get(kind)
        self._warnings[kind] = (
            TraceWarning(kind=kind, rank=self._rank, where=where, found=found)
            if first is None
            else replace(first, count=first.count + 1)
        )

    def _at(self, offset: int) -> str:
        return f"{self._source}: offset {offset}"
