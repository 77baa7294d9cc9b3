"""From the bytes of a PyTorch host trace to one rank's graph.

Of the many nodes of such a file only transfers, waits and, with a profile, what took
time become nodes of the graph: the rest is structure.  So memory follows the
communication, and the profile, not the file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from chakram.chakra.decode import RankTrace
from chakram.chakra.groups import InitialGroup, initial_groups
from chakram.chakra.json_scan import JsonScanner
from chakram.chakra.messages import Metadata
from chakram.chakra.options import ReadOptions, TraceWarning, WarningKind
from chakram.chakra.producers import Producer
from chakram.chakra.pytorch.groups import GroupFinder, Transfer
from chakram.chakra.pytorch.host import (
    C10D,
    INIT,
    LABELS,
    RECORD,
    HostNode,
    host_node,
    quick_rf_id,
)
from chakram.chakra.pytorch.operations import (
    WAIT,
    Communication,
    from_c10d,
    from_record,
)
from chakram.chakra.pytorch.order import HostOrder
from chakram.chakra.pytorch.values import check_size
from chakram.core.collectives import CollectiveOp
from chakram.core.trace import NodeKind, TraceGraphBuilder
from chakram.errors import TraceError, UnsupportedTrace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from chakram.chakra.pytorch.kineto import Profile, Span

_LONGEST_NAME = 200
# Ids of a node's parts on further streams; PyTorch counts its nodes from 1.
_STREAM_SHIFT = 40
_MOST_ID = 1 << _STREAM_SHIFT


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compute:
    """A node that took time."""

    node_id: int
    offset: int
    name: str
    rf_id: int


def read_host_trace(
    chunks: Iterable[bytes],
    *,
    rank: int,
    source: str,
    options: ReadOptions,
    zero_is_a_group: bool = False,
    profile: Profile | None = None,
) -> RankTrace:
    """Return the trace of one rank.

    Args:
        chunks: The bytes of the file.
        rank: The rank whose file it is.
        source: Name of the file, for messages.
        options: How to read; the edges of such a trace are its order, so nothing of
            dependencies counts.
        zero_is_a_group: Whether a group file defines a group ``0``.
        profile: What the profile of that rank says; without it nothing takes time.

    Raises:
        TraceError: If the file is damaged, contradicts itself, or does not say which
            group an operation belongs to.
    """
    reader = _Reader(
        rank=rank,
        source=source,
        options=options,
        zero_is_a_group=zero_is_a_group,
        profile=profile,
    )
    return reader.read(chunks)


class _Reader:
    def __init__(
        self,
        *,
        rank: int,
        source: str,
        options: ReadOptions,
        zero_is_a_group: bool,
        profile: Profile | None,
    ) -> None:
        self._rank = rank
        self._source = source
        self._options = options
        self._zero_is_a_group = zero_is_a_group
        self._profile = profile
        self._records: list[HostNode] = []
        self._dispatched: list[HostNode] = []
        self._labels: list[tuple[int, int]] = []
        self._first_label: str | None = None
        self._computes: list[_Compute] = []
        self._initial: list[InitialGroup] = []
        self._warnings: dict[WarningKind, TraceWarning] = {}
        self._builder = TraceGraphBuilder(rank=rank, source=source)

    def read(self, chunks: Iterable[bytes]) -> RankTrace:
        scanner = JsonScanner(chunks, source=self._source)
        for number, (offset, raw) in enumerate(scanner.elements("nodes")):
            if number == self._options.node_limit:
                raise TraceError(
                    f"{self._source}: offset {offset}",
                    f"the file has more than {number} nodes",
                    "raise the limit if that is meant",
                )
            self._take(offset, raw)
        schema = str(scanner.members.get("schema", ""))[:80]
        if not schema.startswith("1."):
            raise UnsupportedTrace(
                self._source,
                f"this is a PyTorch execution trace of schema {schema!r}",
                "1.0.1 to 1.1.1 are read",
            )
        groups = GroupFinder(
            rank=self._rank,
            initial=self._initial,
            unnamed_group=self._options.unnamed_group,
            zero_is_a_group=self._zero_is_a_group,
            profile=self._profile,
        )
        self._check_process(scanner.members.get("pid"))
        self._build(self._transfers(), groups)
        for kind, where, found in groups.warnings:
            self._warn(kind, where, found)
        if not len(self._builder):
            self._warn(WarningKind.NO_NODES, self._source, "the rank has nothing to do")
        return RankTrace(
            graph=self._builder.build(),
            metadata=Metadata(attributes={"schema": schema}),
            producer=Producer.PYTORCH_HOST,
            groups=groups.members,
            warnings=tuple(self._warnings.values()),
        )

    def _take(self, offset: int, raw: Any) -> None:
        """Sort one node in: a transfer, a label, the groups, work, or nothing."""
        name = raw.get("name") if isinstance(raw, dict) else None
        if not isinstance(name, str):
            host_node(raw, offset=offset, source=self._source)  # says what is wrong
            return
        if name == RECORD:
            self._records.append(host_node(raw, offset=offset, source=self._source))
        elif name.startswith(C10D):
            self._dispatched.append(host_node(raw, offset=offset, source=self._source))
        elif name.startswith(LABELS):
            node = host_node(raw, offset=offset, source=self._source)
            self._labels.append((node.node_id, node.rf_id))
            self._first_label = self._first_label or node.where
        elif INIT in name:
            node = host_node(raw, offset=offset, source=self._source)
            text = node.inputs[0] if node.inputs else None
            self._initial += initial_groups(text, node.where)
        elif self._profile is not None:
            self._take_work(offset, raw)

    def _take_work(self, offset: int, raw: Mapping[str, Any]) -> None:
        assert self._profile is not None  # who calls it has looked
        rf_id = quick_rf_id(raw)
        if rf_id is None:
            return
        called = self._profile.names.get(rf_id, raw["name"])
        if called != raw["name"]:
            raise TraceError(
                f"{self._source}: offset {offset}: node {raw.get('id')}",
                f"is {raw['name'][:60]!r}, but {called[:60]!r} in the profile "
                f"{self._profile.source}",
                "is it the profile of this run and rank? name the right one (kineto), "
                "or move it away",
            )
        if rf_id in self._profile.kernels or (
            not self._profile.kernels and rf_id in self._profile.own
        ):
            node = host_node(raw, offset=offset, source=self._source)
            self._computes.append(
                _Compute(
                    node_id=node.node_id,
                    offset=offset,
                    name=node.name[:_LONGEST_NAME],
                    rf_id=node.rf_id,
                )
            )

    def _check_process(self, process: object) -> None:
        """Refuse the profile of another process: ranks of one run do much alike."""
        profile = self._profile
        if profile is None or None in (process, profile.process):
            return
        if process != profile.process:
            raise TraceError(
                self._source,
                f"is the trace of process {process}, but {profile.source} is the "
                f"profile of process {profile.process}",
                "a profile must have the number of its rank in its name",
            )

    def _transfers(self) -> list[Transfer]:
        """Return what is transferred and waited for, one item each, in order of ids."""
        found: list[tuple[HostNode, Communication, tuple[int, ...]]] = []
        callers = {node.node_id: node for node in self._dispatched}
        records = {node.node_id for node in self._records}
        recorded: set[int] = set()
        for node in self._records:
            recorded.add(node.parent)
            # A backend that does one transfer by others states those inside it too.
            if node.parent in records and node.parent != node.node_id:
                continue
            caller = callers.get(node.parent)
            what = from_record(node, caller)
            if what is None:
                self._unknown(node)
            else:
                callers_rf = () if caller is None else (caller.rf_id,)
                found.append((node, what, (node.rf_id, *callers_rf)))
        for node in self._dispatched:
            if node.node_id in recorded:
                continue
            what = from_c10d(node)
            if what is None:
                self._unknown(node)
            else:
                found.append((node, what, (node.rf_id,)))
        if self._labels and not found:
            raise TraceError(
                self._first_label or self._source,
                "communication is there as labels only, which have no process group",
                "record it with PyTorch 1.13 or later, whose traces have "
                "record_param_comms or c10d nodes",
            )
        found.sort(key=lambda item: item[0].node_id)
        labels = self._labels_of([node.node_id for node, _, _ in found])
        return [
            Transfer(node=node, what=what, rf_ids=rf_ids, label=label)
            for (node, what, rf_ids), label in zip(found, labels, strict=True)
        ]

    def _labels_of(self, node_ids: Sequence[int]) -> Iterator[int | None]:
        """Yield, of each node, the record function of the first label behind it."""
        labels = sorted(self._labels)
        at = 0
        for index, node_id in enumerate(node_ids):
            end = node_ids[index + 1] if index + 1 < len(node_ids) else None
            own: int | None = None
            while at < len(labels) and (end is None or labels[at][0] < end):
                if own is None and labels[at][0] > node_id:
                    own = labels[at][1]
                at += 1
            yield own

    def _build(self, transfers: Sequence[Transfer], groups: GroupFinder) -> None:
        names = groups.names_of(transfers)
        order = HostOrder()
        items: list[tuple[int, _Compute | tuple[Transfer, str | None]]] = [
            (each.node_id, each) for each in self._computes
        ]
        items += [
            (each.node.node_id, (each, group))
            for each, group in zip(transfers, names, strict=True)
        ]
        for node_id, item in sorted(items, key=lambda pair: pair[0]):
            if node_id >= _MOST_ID:
                raise TraceError(
                    self._source, f"has node id {node_id}", f"below {_MOST_ID} they are"
                )
            if isinstance(item, _Compute):
                self._add_compute(order, item)
            else:
                self._add_transfer(order, groups, *item)
        profile = self._profile
        if profile is None:
            self._warn(
                WarningKind.NO_TIMES,
                self._source,
                "a host trace has no times, so computation takes none; the profile of "
                "the run has them (kineto)",
            )
        elif not profile.has_ids:
            self._warn(
                WarningKind.NO_TIMES,
                profile.source,
                "its events have no 'Record function id', so computation takes no "
                "time; record it with PyTorch 2.1 or later",
            )

    def _add_compute(self, order: HostOrder, item: _Compute) -> None:
        assert self._profile is not None  # else there are no such items
        kernels = self._profile.kernels.get(item.rf_id)
        parts: Iterable[tuple[int | None, Span]]
        if kernels is None:
            parts = [(None, self._profile.own[item.rf_id])]
        else:
            parts = sorted(kernels.items())
        for number, (stream, span) in enumerate(parts):
            if not span.duration_ns:
                continue
            node_id = item.node_id | number << _STREAM_SHIFT
            self._builder.add(
                node_id=node_id,
                kind=NodeKind.COMPUTE,
                name=item.name,
                dependencies=order.compute(node_id, stream),
                file_offset=item.offset,
                duration_ns=span.duration_ns,
                start_ns=span.start_ns,
                stream=stream,
            )

    def _add_transfer(
        self,
        order: HostOrder,
        groups: GroupFinder,
        transfer: Transfer,
        group: str | None,
    ) -> None:
        node, what = transfer.node, transfer.what
        columns: dict[str, Any] = {
            "node_id": node.node_id,
            "file_offset": node.offset,
            **self._times(transfer),
        }
        if what.op == WAIT:
            after = order.wait(node.node_id, group=what.group, sequence=what.sequence)
            if after is not None:
                self._builder.add(
                    kind=NodeKind.PASS, name=WAIT, dependencies=after, **columns
                )
            return
        after = order.transfer(
            node.node_id,
            group=what.group,
            sequence=what.sequence,
            is_async=what.is_async is not False,
        )
        columns["dependencies"] = after
        columns["group"] = group
        if isinstance(what.op, CollectiveOp):
            size_bytes = what.size_bytes
            if what.op is CollectiveOp.SCATTER:
                size_bytes *= groups.size(what, group, node.where)
                check_size(size_bytes, node.where)
            self._builder.add(
                kind=NodeKind.COLLECTIVE,
                name=what.op.value,
                op=what.op,
                comm_bytes=size_bytes,
                root=what.rank,
                splits=what.splits,
                **columns,
            )
            return
        if what.rank is None:
            raise TraceError(
                node.where,
                f"is a {what.op} that does not say with whom",
                "a receive from any source cannot be replayed",
            )
        kind = NodeKind.SEND if what.op == "send" else NodeKind.RECEIVE
        self._builder.add(
            kind=kind,
            name=what.op,
            comm_bytes=what.size_bytes,
            peer=groups.global_rank(what.rank, group, node.where),
            tag=what.tag,
            **columns,
        )

    def _times(self, transfer: Transfer) -> dict[str, Any]:
        """Return how long a transfer took and on which stream, if that is known."""
        profile = self._profile
        if profile is None:
            return {}
        label = () if transfer.label is None else (transfer.label,)
        rf_ids = (*label, *transfer.rf_ids)
        for rf_id in rf_ids:
            for stream, span in profile.kernels.get(rf_id, {}).items():
                return {
                    "duration_ns": span.duration_ns,
                    "start_ns": span.start_ns,
                    "stream": stream,
                }
        for rf_id in rf_ids:
            whole = profile.spans.get(rf_id)
            if whole is not None:
                return {
                    "duration_ns": whole.duration_ns,
                    "start_ns": whole.start_ns,
                }
        return {}

    def _unknown(self, node: HostNode) -> None:
        self._warn(
            WarningKind.UNKNOWN_COMMUNICATION,
            node.where,
            "is communication of a kind that is not known; it is left out",
        )

    def _warn(self, kind: WarningKind, where: str, found: str) -> None:
        first = self._warnings.get(kind)
        self._warnings[kind] = (
            TraceWarning(kind=kind, rank=self._rank, where=where, found=found)
            if first is None
            else replace(first, count=first.count + 1)
        )
