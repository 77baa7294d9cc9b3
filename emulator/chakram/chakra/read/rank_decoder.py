"""Decoder from the records of one file to the graph of one rank.

``RankDecoder`` takes the records in order and returns the graph at the end. It stores
columns instead of messages. Files are untrusted: whatever a record contains, the only
possible error is ``TraceError``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from typing import TYPE_CHECKING

from chakram.chakra.et_codec import (
    Metadata,
    Node,
    NodeType,
    attribute_values,
    decode_metadata,
    decode_node,
    strip_type_prefix,
)
from chakram.chakra.read.eras import FirstRecord, classify_first_record
from chakram.chakra.read.fast_node_reader import PlainNodes
from chakram.chakra.read.groups import (
    ALL_RANKS_NAMES,
    GROUPS_ATTRIBUTE,
    RECORD,
    InitialGroup,
    group_of_record,
    initial_groups,
    is_process_group_init,
    process_groups_of_init,
)
from chakram.chakra.read.kernel_order import Kernel, kernel_order
from chakram.chakra.read.node_meaning import COLLECTIVE_OPS, NodeReader
from chakram.chakra.read.producers import (
    Producer,
    check_unit_of_sizes,
    is_chakram,
    is_own_body,
    is_pytorch,
    producer_of,
)
from chakram.chakra.read.reader_options import DependencyPolicy, ReadOptions
from chakram.chakra.read.schema_check import SchemaCheck
from chakram.chakra.trace_warning import WarningKind, WarningLog
from chakram.foundation.errors import GarbageTrace, TraceError
from chakram.trace.builder import TraceGraphBuilder

if TYPE_CHECKING:
    from chakram.chakra.read.involved_dims import GroupPart
    from chakram.chakra.trace_warning import TraceWarning
    from chakram.trace.graph import TraceGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """The content of one file.

    Attributes:
        graph: The nodes and their dependencies.
        metadata: The metadata record.
        producer: The tool that wrote the file.
        groups: The groups that the file defines, by name. A group without ranks means
            all ranks of the job.
        purposes: The purposes of groups by name, if the file states them.
        least_ranks: The minimum number of ranks in the job that the groups imply, or 0
            if the file states nothing.
        warnings: The warnings about the file.
        parts: The parts of groups for collectives over some dimensions, by name.
    """

    graph: TraceGraph
    metadata: Metadata
    producer: str
    groups: Mapping[str, tuple[int, ...]]
    purposes: Mapping[str, str]
    least_ranks: int
    warnings: tuple[TraceWarning, ...]
    parts: Mapping[str, GroupPart] = field(default_factory=dict)


@dataclass(eq=False, kw_only=True)
class RankDecoder:
    """Decoder from the records of one rank's file to its graph.

    Attributes:
        rank: Rank whose file is decoded.
        source: Name of the file, for error messages and warnings.
        options: Reader options.
        zero_is_a_group: Whether group ``0`` is a separate group instead of all ranks.
    """

    rank: int
    source: str
    options: ReadOptions
    zero_is_a_group: InitVar[bool] = False
    _metadata: Metadata | None = None
    # The GPU kernels so far, collected only if the file's kernels may lack an order.
    _kernels: list[Kernel] | None = None
    _groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _purposes: dict[str, str] = field(default_factory=dict)
    _recorded_groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _least_ranks: int = 0
    _records: int = 0
    # None if the fast path is off or not set up yet.
    _plain: PlainNodes | None = None

    def __post_init__(self, zero_is_a_group: bool) -> None:
        self._reader = NodeReader(
            rank=self.rank,
            bytes_per_unit=self.options.bytes_per_element or 1,
            zero_is_a_group=zero_is_a_group,
            uncorrected=self.options.uncorrected,
            dimensions=self.options.dimensions,
            nranks=self.options.nranks,
        )
        self._schema = SchemaCheck(self.source)
        self._noticed = WarningLog(rank=self.rank, uncorrected=self.options.uncorrected)
        self._builder = TraceGraphBuilder(rank=self.rank, source=self.source)

    def take_plain(self, data: bytearray, start: int, offset: int) -> int:
        """Take whole records from *start* on, up to the first that is not a plain node.

        Args:
            data: Bytes of the file.
            start: Index of the first record in *data*.
            offset: File offset of the first byte of *data*.

        Returns:
            The index of the first record that was not taken.
        """
        if self._plain is None or not self._schema.is_current:
            return start
        return self._plain.take(data, start, len(data), offset)

    def take(self, offset: int, body: bytes) -> None:
        """Take the next record.

        Raises:
            TraceError: If the record cannot be read.
        """
        self._records += 1
        if self._records == 1 and self._took_metadata(offset, body):
            return
        self._schema.take_node(offset, body)
        if len(self._builder) == self.options.node_limit:
            raise TraceError(
                self._at(offset),
                f"the file has more than {len(self._builder)} nodes",
                "if this is intended, raise the limit",
            )
        node = self._decoded(offset, body)
        try:
            self._take_node(offset, node)
        except TraceError:
            self._schema.refuse_unknown(offset)
            raise

    def finish(self) -> RankTrace:
        """Return the graph and all warnings.

        Raises:
            TraceError: If the file is empty, or lacks a node that other nodes wait for.
        """
        if not self._records:
            raise TraceError(
                self.source,
                "the file is empty",
                "check that its producer was not interrupted",
            )
        # The fast path's callbacks refer to this object. Break the reference cycle, so
        # that the memory of the file is freed without the garbage collector.
        self._plain = None
        self._schema.finish()
        builder, policy = self._builder, self.options.dependencies
        if not len(builder):
            self._noticed.warn(
                WarningKind.NO_NODES, self.source, "the rank has no operations"
            )
        use_data = policy is not DependencyPolicy.CONTROL
        use_control = policy in (DependencyPolicy.CONTROL, DependencyPolicy.BOTH)
        if (
            policy is DependencyPolicy.AUTO
            and not builder.data_dependencies
            and WarningKind.CONTROL_ONLY not in self.options.uncorrected
        ):
            use_data, use_control = False, True
            if builder.control_dependencies:
                self._noticed.warn(
                    WarningKind.CONTROL_ONLY,
                    self.source,
                    "there are only control dependencies; they order the nodes",
                )
        graph = builder.build(
            on_missing=self._missing_data_dependency,
            on_missing_control=self._missing_control_dependency,
            use_data=use_data,
            use_control=use_control,
        )
        if self._kernels:
            graph = self._ordered(graph, self._kernels)
        producer = producer_of(
            self._metadata,
            graph,
            control_only=self._noticed.has(WarningKind.CONTROL_ONLY),
            counts_groups=self._reader.counts_groups,
        )
        if producer == Producer.MSCCL or is_own_body(self._metadata):
            self._noticed.warn(
                WarningKind.COLLECTIVE_BODY,
                self.source,
                "this is the body of one custom collective, not a workload",
            )
        return RankTrace(
            graph=graph,
            metadata=self._metadata or Metadata(),
            producer=producer,
            groups={
                **self._recorded_groups,
                **self._groups,
                **self._reader.groups,
            },
            parts=self._reader.parts,
            purposes=self._purposes,
            least_ranks=self._least_ranks,
            warnings=self._noticed.warnings(),
        )

    def _took_metadata(self, offset: int, body: bytes) -> bool:
        """Take the first record if it is metadata. Return whether it was metadata."""
        where = self._at(offset)
        first = classify_first_record(body)
        if first is FirstRecord.NEITHER:
            raise GarbageTrace(
                where,
                "the first record is neither metadata nor a node",
                "check that this is a Chakra trace",
            )
        if first is FirstRecord.METADATA:
            self._schema.take_metadata(offset, body)
            self._metadata = decode_metadata(body, where)
            self._add_groups_of_metadata(self._metadata, where)
        else:
            self._noticed.warn(
                WarningKind.NO_METADATA, where, "the file has no metadata record"
            )
        unit_ns = self.options.duration_unit_ns
        if unit_ns is not None:
            self._reader.duration_unit_ns = unit_ns
        oddity = check_unit_of_sizes(self._metadata, self.options, where)
        if oddity is not None:
            self._noticed.warn(oddity[0], where, oddity[1])
        self._choose_how_to_take()
        return first is FirstRecord.METADATA

    def _add_groups_of_metadata(self, metadata: Metadata, where: str) -> None:
        """Add the groups in the metadata of a trace that Chakram wrote."""
        text = metadata.attributes.get(GROUPS_ATTRIBUTE)
        if is_chakram(metadata) and text is not None:
            self._add_groups(initial_groups(text, where))
            # Drop the text, because it can list thousands of ranks in each of many
            # traces.
            kept = {**metadata.attributes}
            del kept[GROUPS_ATTRIBUTE]
            self._metadata = replace(metadata, attributes=kept)

    def _add_groups(self, groups: Iterable[InitialGroup]) -> None:
        for group in groups:
            self._least_ranks = max(self._least_ranks, group.least_ranks)
            if group.name in ALL_RANKS_NAMES:
                continue
            self._groups[group.name] = group.ranks
            self._purposes[group.name] = group.purpose

    def _add_recorded_group(self, group: InitialGroup | None) -> None:
        """Add the group of a ``record_param_comms`` node.

        Other definitions of the group override it.
        """
        if group is None:
            return
        self._least_ranks = max(self._least_ranks, group.least_ranks)
        if group.ranks and group.name not in ALL_RANKS_NAMES:
            self._recorded_groups.setdefault(group.name, group.ranks)

    def _decoded(self, offset: int, body: bytes) -> Node:
        try:
            return decode_node(body, self._at(offset))
        except TraceError:
            # An error about an old schema is more helpful, unless the file clearly uses
            # the current schema.
            self._schema.refuse_unknown(offset)
            raise

    def _choose_how_to_take(self) -> None:
        """Set up the fast path for plain nodes, now that the units are known."""
        options = self.options
        if (
            self._metadata is not None
            and is_pytorch(self._metadata)
            and WarningKind.UNORDERED_KERNELS not in options.uncorrected
        ):
            self._kernels = []
        # The fast path refuses nothing. Turn it off if nodes that depend on themselves
        # must be refused.
        if WarningKind.SELF_CONTROL_DEPENDENCY in options.uncorrected:
            return
        self._plain = PlainNodes(
            self._builder,
            rank=self.rank,
            bytes_per_unit=options.bytes_per_element or 1,
            duration_unit_ns=self._reader.duration_unit_ns,
            record_limit_bytes=options.record_limit_bytes,
            node_limit=options.node_limit,
            ops=COLLECTIVE_OPS,
            group_of=self._reader.group_of,
            on_self_control=self._warn_of_self_control,
            on_kernel=None if self._kernels is None else self._add_kernel,
        )

    def _take_node(self, offset: int, node: Node) -> None:
        # Field access on a message is slow, and the id is needed often.
        node_id = node.id
        where = f"{self.source}: offset {offset}: rank {self.rank} node {node_id}"
        columns, oddities = self._reader.columns(node, where)
        columns["node_id"] = node_id
        columns["name"] = strip_type_prefix(node.name, node.type)
        columns["file_offset"] = offset
        for kind, found in oddities:
            self._noticed.warn(kind, where, found)
        if int(node.type) == NodeType.METADATA and is_process_group_init(node.name):
            self._add_groups(process_groups_of_init(node.inputs.values, where))
        if columns["name"] == RECORD:
            self._add_recorded_group(group_of_record(node.inputs.values))
        if self._kernels is not None:
            self._note_kernel(node, where)
        control = node.ctrl_deps
        if node_id in control:
            self._warn_of_self_control(offset, node_id)
        self._builder.add(dependencies=node.data_deps, control=control, **columns)

    def _note_kernel(self, node: Node, where: str) -> None:
        """Remember a node that states that it did not run on the CPU."""
        values = attribute_values(node.attr, where, ("is_cpu_op", "stream"))
        if values.get("is_cpu_op") in (False, 0):
            stream = values.get("stream")
            self._add_kernel(
                len(self._builder), stream if isinstance(stream, int) else None
            )

    def _add_kernel(self, position: int, stream: int | None) -> None:
        if self._kernels is not None:
            self._kernels.append(Kernel(position=position, stream=stream))

    def _ordered(self, graph: TraceGraph, kernels: list[Kernel]) -> TraceGraph:
        """Return the graph, with the order of the kernels added if it is missing."""
        before = kernel_order(graph, kernels)
        if not before:
            return graph
        self._noticed.warn(
            WarningKind.UNORDERED_KERNELS,
            graph.locate(min(before)),
            "nothing waits for GPU kernels; each kernel now follows the previous "
            "kernel of its stream",
            count=len(before),
        )
        return graph.with_dependencies(before)

    def _warn_of_self_control(self, offset: int, node_id: int) -> None:
        self._noticed.correct(
            WarningKind.SELF_CONTROL_DEPENDENCY,
            f"{self._at(offset)}: rank {self.rank} node {node_id}",
            "lists itself as a control dependency; dropped",
        )

    def _missing_control_dependency(self, position: int, node_id: int) -> None:
        kind = WarningKind.MISSING_CONTROL_DEPENDENCY
        if self._noticed.has(kind):
            # Traces have thousands of these warnings, and only the location of the
            # first is reported.
            self._noticed.count(kind)
            return
        self._noticed.correct(
            kind,
            self._builder.locate(position),
            f"control dependency {node_id} is not in the file; dropped",
        )

    def _missing_data_dependency(self, position: int, node_id: int) -> None:
        where = self._builder.locate(position)
        if not self.options.drop_missing_dependencies:
            raise TraceError(
                where,
                f"depends on node {node_id}, which is not in the file",
                "check that the trace is complete, or use drop_missing_dependencies",
            )
        self._noticed.warn(
            WarningKind.MISSING_DATA_DEPENDENCY,
            where,
            f"data dependency {node_id} is not in the file; dropped",
        )

    def _at(self, offset: int) -> str:
        return f"{self.source}: offset {offset}"
