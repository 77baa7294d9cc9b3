"""Reader for a PyTorch host trace: from its bytes to the graph of one rank.

Most nodes of a host trace only describe structure. Only transfers, waits and step
markers become nodes of the graph. With a profile, nodes that took time are included
too. Memory usage depends on the amount of communication and the profile instead of the
file size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chakram.chakra.et_codec import Metadata
from chakram.chakra.read.groups import RECORD, InitialGroup, initial_groups
from chakram.chakra.read.json_scan import JsonScanner
from chakram.chakra.read.producers import Producer
from chakram.chakra.read.pytorch.communication_nodes import (
    Communication,
    from_c10d,
    from_record,
)
from chakram.chakra.read.pytorch.graph import HostGraph, Work
from chakram.chakra.read.pytorch.groups import GroupFinder, Transfer
from chakram.chakra.read.pytorch.host_trace_nodes import (
    C10D,
    INIT,
    LABELS,
    HostNode,
    host_node,
    quick_rf_id,
)
from chakram.chakra.read.pytorch.host_waits import (
    waits_from_profile,
    waits_inside_callers,
    waits_of_gpu,
)
from chakram.chakra.read.rank_decoder import RankTrace
from chakram.chakra.trace_warning import WarningKind, WarningLog
from chakram.foundation.errors import ForeignProfile, TraceError, UnsupportedTrace
from chakram.trace.host_node_ids import STEP

if TYPE_CHECKING:
    from chakram.chakra.read.pytorch.kineto import Profile
    from chakram.chakra.read.reader_options import ReadOptions
    from chakram.trace.graph import TraceGraph

_LONGEST_NAME = 200
_UNPROFILED_SHARE = 0.25
"""Maximum share of a trace's operations that a profile may lack without a warning."""

_STRAY_SHARE = 0.01
"""Maximum share of kernel time that may lack an operation without a warning."""
_START = "init"
"""Operation name for the start of a communicator, which transfers no data."""
_STRUCTURE = "[pytorch|profiler|execution_trace|"
"""Name prefix of the nodes for the process and its threads."""


class HostTrace:
    """The trace of one rank, in which the groups of some operations may be unknown.

    Args:
        chunks: The bytes of the file.
        rank: The rank of the file.
        source: Name of the file, for error messages and warnings.
        options: Reader options. Options for dependencies have no effect, because the
            edges follow from the order of the operations.
        zero_is_a_group: Whether a group file defines a group ``0``.
        profile: The profile of the rank. If None, nothing takes time.

    Attributes:
        unnamed: The operations whose groups must be inferred together with other ranks,
            or None if there are none.

    Raises:
        TraceError: If the file is damaged or contradicts itself.
    """

    def __init__(
        self,
        chunks: Iterable[bytes],
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
        self._profile = profile
        self._records: list[HostNode] = []
        self._dispatched: list[HostNode] = []
        self._labels: list[tuple[int, int]] = []
        self._first_label: str | None = None
        self._work: list[Work] = []
        self._steps: list[HostNode] = []
        self._operations = 0
        self._profiled = self._unprofiled = 0
        self._initial: list[InitialGroup] = []
        self._noticed = WarningLog(rank=rank, uncorrected=())
        self._schema = self._read(chunks)
        self._groups = GroupFinder(
            rank=rank,
            initial=self._initial,
            unnamed_groups=options.unnamed_groups,
            zero_is_a_group=zero_is_a_group,
            profile=profile,
        )
        self._transfers = self._found_transfers()
        self.unnamed = self._groups.open_operations(self._transfers)

    def _read(self, chunks: Iterable[bytes]) -> str:
        """Classify all nodes and return the schema."""
        scanner = JsonScanner(chunks, source=self._source)
        for number, (offset, raw) in enumerate(scanner.elements("nodes")):
            if number == self._options.node_limit:
                raise TraceError(
                    f"{self._source}: offset {offset}",
                    f"the file has more than {number} nodes",
                    "if this is intended, raise the limit",
                )
            self._take(offset, raw)
        schema = str(scanner.members.get("schema", ""))[:80]
        if not schema.startswith("1."):
            raise UnsupportedTrace(
                self._source,
                f"this is a PyTorch execution trace of schema {schema!r}",
                "use a trace of schema 1.0.1 to 1.1.1",
            )
        self._check_process(scanner.members.get("pid"))
        self._check_steps()
        return schema

    def finish(self, inferred: Sequence[str]) -> RankTrace:
        """Return the trace, given the group names of *unnamed*. Call this only once."""
        groups, transfers = self._groups, self._transfers
        graph = self._build(transfers, groups, inferred)
        self._warn_of_missing_times()
        for kind, where, found in groups.warnings:
            self._noticed.warn(kind, where, found)
        if len(graph) == len(self._steps):
            self._say_that_it_is_empty()
        return RankTrace(
            graph=graph,
            metadata=Metadata(attributes={"schema": self._schema}),
            producer=Producer.PYTORCH_HOST,
            groups=groups.members,
            purposes={each.name: each.purpose for each in self._initial},
            least_ranks=max(
                (
                    *(each.least_ranks for each in self._initial),
                    *(each.what.least_ranks for each in transfers),
                ),
                default=0,
            ),
            warnings=self._noticed.warnings(),
        )

    def _take(self, offset: int, raw: Any) -> None:
        """Classify one node: transfer, label, groups, work, or none of these."""
        name = raw.get("name") if isinstance(raw, dict) else None
        if not isinstance(name, str):
            host_node(raw, offset=offset, source=self._source)  # raises the error
            return
        if not name.startswith(_STRUCTURE):
            self._operations += 1
            if self._profile is not None and INIT not in name:
                self._count(quick_rf_id(raw), self._profile)
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
        elif STEP.fullmatch(name):
            node = host_node(raw, offset=offset, source=self._source)
            self._steps.append(node)
            if self._profile is not None:
                self._check_name(offset, raw, node.rf_id, self._profile)
        elif self._profile is not None:
            self._take_work(offset, raw, self._profile)

    def _count(self, rf_id: int | None, profile: Profile) -> None:
        """Count an operation as present in the profile, or as missing there."""
        if rf_id:
            is_profiled = rf_id in profile.names
            self._profiled += is_profiled
            self._unprofiled += not is_profiled

    def _check_name(
        self, offset: int, raw: Mapping[str, Any], rf_id: int, profile: Profile
    ) -> None:
        """Refuse a profile in which a node has another name."""
        called = profile.names.get(rf_id, raw["name"])
        if called != raw["name"]:
            raise ForeignProfile(
                f"{self._source}: offset {offset}: node {raw.get('id')}",
                f"is {raw['name'][:60]!r} in the trace, but {called[:60]!r} in the "
                f"profile {profile.source}",
                "name the profile of this run and rank (kineto), or move this profile "
                "away",
            )

    def _take_work(self, offset: int, raw: Mapping[str, Any], profile: Profile) -> None:
        rf_id = quick_rf_id(raw)
        if rf_id is None:
            return
        self._check_name(offset, raw, rf_id, profile)
        if rf_id in profile.kernels or (not profile.kernels and rf_id in profile.own):
            node = host_node(raw, offset=offset, source=self._source)
            self._work.append(
                Work(
                    node_id=node.node_id,
                    offset=offset,
                    name=node.name[:_LONGEST_NAME],
                    rf_id=node.rf_id,
                )
            )

    def _check_process(self, process: object) -> None:
        """Refuse a profile of another process, even if all node names match."""
        profile = self._profile
        if profile is None or None in (process, profile.process):
            return
        if process != profile.process:
            raise ForeignProfile(
                self._source,
                f"is the trace of process {process}, but {profile.source} is the "
                f"profile of process {profile.process}",
                "put the rank into the name of each profile",
            )

    def _check_steps(self) -> None:
        """Refuse a profile without any operation of the trace.

        Such a profile covers other steps.
        """
        profile = self._profile
        if profile is None or self._profiled or not self._unprofiled:
            return
        if profile.names:
            raise ForeignProfile(
                self._source,
                f"has no operation that is in the profile {profile.source}",
                "record the trace and the profile of the same steps",
            )

    def _found_transfers(self) -> list[Transfer]:
        """Return the transfers and waits, one item each, ordered by id."""
        found: list[tuple[HostNode, Communication, tuple[int, ...]]] = []
        callers = {node.node_id: node for node in self._dispatched}
        records = {node.node_id for node in self._records}
        recorded: set[int] = set()
        for node in self._records:
            recorded.add(node.parent)
            # A backend that builds a transfer from other transfers records those too.
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
                "the trace has communication only as labels, which have no process "
                "group",
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
        """Yield, for each node, the record function id of the first label after it."""
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

    def _build(
        self,
        transfers: Sequence[Transfer],
        groups: GroupFinder,
        inferred: Sequence[str],
    ) -> TraceGraph:
        """Return the graph of the classified nodes."""
        profile = self._profile
        waited_ns: Mapping[int, int] = {}
        if profile is not None and not profile.kernels:
            work = {each.node_id: each.rf_id for each in self._work}
            waited_ns = waits_inside_callers(transfers, work, profile)
        graph = HostGraph(
            rank=self._rank,
            source=self._source,
            groups=groups,
            profile=profile,
            waited_ns=waited_ns,
        )
        names = groups.names_of(transfers, inferred)
        items: list[tuple[int, HostNode | Work | tuple[Transfer, str | None]]] = [
            (each.node_id, each) for each in self._work
        ]
        items += [(each.node_id, each) for each in self._steps]
        items += [
            (each.node.node_id, (each, group))
            for each, group in zip(transfers, names, strict=True)
        ]
        waits = self._shown_waits(transfers)
        for node_id, item in sorted(items, key=lambda pair: pair[0]):
            if node_id in waits:
                graph.add_wait(waits[node_id])
            if isinstance(item, Work):
                graph.add_work(item)
            elif isinstance(item, HostNode):
                graph.add_step(item)
            else:
                graph.add_transfer(*item)
        lost, asynchronous = graph.without_wait()
        for each in transfers:
            if lost and each.node.node_id == lost[0]:
                self._noticed.warn(
                    WarningKind.WAIT_UNKNOWN,
                    each.node.where,
                    f"is one of {len(lost)} asynchronous operations, of {asynchronous} "
                    "in total, for which no wait of the host is known; nothing waits "
                    "for them in the replay",
                    count=len(lost),
                    hint=None
                    if self._profile is None
                    else "rely on times of collectives, not of iterations",
                )
        return graph.build()

    def _shown_waits(
        self, transfers: Sequence[Transfer]
    ) -> Mapping[int, Sequence[int]]:
        """Return the transfers of each wait in the profile, by id of the next node."""
        profile = self._profile
        if profile is None:
            return {}
        work = [(each.node_id, each.rf_id) for each in self._work]
        shown = waits_of_gpu if profile.kernels else waits_from_profile
        waits = shown(transfers, work, profile)
        nodes = {each.node.node_id: each.node for each in transfers}
        for ended in waits.values():
            for each in ended:
                self._noticed.warn(
                    WarningKind.WAIT_INFERRED,
                    nodes[each].where,
                    "is asynchronous and no wait for it is recorded; in the profile, "
                    "computation stalled until the operation ended, and so does the "
                    "replay",
                )
        return waits

    def _warn_of_missing_times(self) -> None:
        profile = self._profile
        if profile is None:
            self._noticed.warn(
                WarningKind.NO_TIMES,
                self._source,
                "a host trace has no times, so computation takes no time; use the "
                "profile of the run, which has them (kineto)",
            )
        elif not profile.has_ids:
            self._noticed.warn(
                WarningKind.NO_TIMES,
                profile.source,
                "its events have no 'Record function id', so computation takes no time",
                hint="record the profile with PyTorch 2.1 or later",
            )
        elif self._unprofiled > _UNPROFILED_SHARE * (
            operations := self._profiled + self._unprofiled
        ):
            self._noticed.warn(
                WarningKind.NO_TIMES,
                profile.source,
                f"does not have {self._unprofiled} of the {operations} operations of "
                "the trace, so they take no time",
                hint="record the trace and the profile of the same steps",
            )
        elif profile.stray_ns > _STRAY_SHARE * profile.kernels_ns:
            self._noticed.warn(
                WarningKind.NO_TIMES,
                profile.source,
                f"{profile.stray_kernels} of its kernels, with "
                f"{profile.stray_ns / profile.kernels_ns:.1%} of the time of all, "
                "state no operation that launched them, so they take no time",
                hint="record without CUDA graphs, whose kernels have no operation",
            )

    def _say_that_it_is_empty(self) -> None:
        found, hint = "the rank has no operations", None
        if self._operations:
            found = f"none of its {self._operations} operations communicate"
            if self._profile is None:
                found += ", and without a profile they take no time"
                hint = "give the profile of the run: --kineto"
            else:
                found += ", and the profile has times for none of them"
                hint = "profile all operations of the run, with their record functions"
        self._noticed.warn(WarningKind.NO_NODES, self._source, found, hint=hint)

    def _unknown(self, node: HostNode) -> None:
        if _START in node.inputs:
            return
        self._noticed.warn(
            WarningKind.UNKNOWN_COMMUNICATION,
            node.where,
            "is communication of an unknown kind and is omitted",
        )
