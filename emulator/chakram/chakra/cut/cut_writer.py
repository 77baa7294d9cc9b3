"""Write a part of a trace set as a separate set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from chakram.chakra.cut.cut import Cut, CutOptions, CutRank, Dropped
from chakram.chakra.read.groups import encode_group_file
from chakram.chakra.read.producers import Producer
from chakram.chakra.sets.find_files import find_trace_set
from chakram.chakra.sets.trace_set import TraceSet
from chakram.chakra.trace_warning import WarningKind
from chakram.chakra.write.compatibility import GraphCompatibility
from chakram.chakra.write.new_set import (
    GROUP_FILE,
    new_trace_set,
    refuse_folder_of,
)
from chakram.chakra.write.writer import encode_trace
from chakram.collectives.groups import (
    WORLD,
    GroupDescription,
    ProcessGroup,
    ranks_text,
)
from chakram.foundation.errors import UnsupportedTrace
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind

PRODUCER = "chakram trace cut"
"""Name of the producer in the metadata of the written files."""

_ROUNDED = "durations were rounded to microseconds"
_LONE = "nodes of collectives of one rank, on which ASTRA-sim hangs"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLeft:
    """Node counts of one rank after the cut. *rank* is the rank's new number."""

    rank: int
    from_rank: int
    nodes_before: int
    nodes: int
    collectives: int
    messages: int
    joins: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCut:
    """The written files, the remaining ranks and groups, and notes on the changes."""

    written: tuple[Path, ...]
    ranks: tuple[RankLeft, ...]
    groups: dict[str, tuple[int, ...]]
    notes: tuple[str, ...]


def write_cut(
    path: str | Path,
    folder: Path,
    traces: TraceSet,
    options: CutOptions,
    *,
    force: bool = False,
    on_rank: Callable[[int, int], None] | None = None,
) -> WrittenCut:
    """Write the part of a set that *options* selects, with its group file.

    Args:
        path: The set. Its file names determine the prefix and the compression of the
            output.
        folder: The target folder.
        traces: The traces that were read from *path*.
        options: The part to keep.
        force: Replace existing files.
        on_rank: Called with (ranks written, total ranks) after every file.

    Raises:
        ChakramError: As for ``Cut``.
        UnsupportedTrace: If the set is the body of a custom collective, or has a node
            that cannot be written.
        RunDirectoryError: If the files cannot be written or already exist, or if
            *folder* contains the set itself.
    """
    with find_trace_set(path) as found:
        names = dict(found.files)
        prefix = found.prefix.rpartition("/")[2]
        refuse_folder_of(found.place, folder)
    if options.anonymize:
        prefix = "trace"
    if any(each.kind is WarningKind.COLLECTIVE_BODY for each in traces.warnings):
        raise UnsupportedTrace(
            traces.name,
            "is the body of a custom collective; a part of it is not an algorithm",
            "use all of its files, unchanged",
        )
    left: list[RankLeft] = []
    with new_trace_set(folder, prefix=prefix, force=force) as new:
        cut = Cut(
            traces.graphs,
            traces.groups,
            options,
            in_host_order=traces.producer == Producer.PYTORCH_HOST,
        )
        groups = {
            cut.renamed.get(name, name): members
            for name, members in cut.groups.items()
            # Collectives in groups of one rank remain if no ranks are removed.
            if name != WORLD and (len(members) > 1 or len(cut.ranks) == traces.nranks)
        }
        described = _described(cut, groups, traces, options)
        notes = _Notes(groups, len(cut.ranks))
        elsewhere = GraphCompatibility()
        for rank in cut.ranks:
            part = cut.rank(rank)
            gz = ".gz" if names[rank].endswith(".gz") else ""
            with new.open(f"{prefix}.{part.graph.rank}.et{gz}") as file:
                try:
                    file.writelines(
                        encode_trace(
                            part.graph,
                            producer=PRODUCER,
                            groups=[
                                each
                                for each in described
                                if part.graph.rank in each.group
                            ],
                        )
                    )
                except ValueError as error:
                    raise UnsupportedTrace(
                        part.graph.source,
                        f"cannot be written: {error}",
                        "leave this node out: --nodes",
                    ) from error
            notes.add(part)
            elsewhere.add(part.graph)
            left.append(_left(part))
            if on_rank is not None:
                on_rank(len(left), len(cut.ranks))
        if groups:
            with new.open(GROUP_FILE) as file:
                file.write(encode_group_file(groups))
        written = tuple(new.written())
    return WrittenCut(
        written=written,
        ranks=tuple(left),
        groups=groups,
        notes=(
            *_notes_of_set(cut, traces, options),
            *notes.sentences(),
            *elsewhere.sentences(),
        ),
    )


def _described(
    cut: Cut,
    groups: Mapping[str, tuple[int, ...]],
    traces: TraceSet,
    options: CutOptions,
) -> list[GroupDescription]:
    """Return the written groups with known purposes, or none if names are anonymous."""
    if options.anonymize:
        return []
    return [
        GroupDescription(ProcessGroup(name=written, ranks=groups[written]), purpose)
        for name, purpose in traces.purposes.items()
        if (written := cut.renamed.get(name, name)) in groups
    ]


class _Notes:
    """Notes on changes, collected over all ranks.

    Args:
        groups: The written groups.
        nranks: Number of remaining ranks.
    """

    def __init__(self, groups: Mapping[str, tuple[int, ...]], nranks: int) -> None:
        self._groups = groups
        self._nranks = nranks
        self._counts: Counter[str] = Counter()
        self._renumbered: list[int] = []

    def add(self, part: CutRank) -> None:
        self._counts.update(part.dropped)
        self._counts[_ROUNDED] += _rounded(part.graph)
        self._counts[_LONE] += self._lone(part.graph)
        if part.renumbered:
            self._renumbered.append(part.graph.rank)

    def sentences(self) -> list[str]:
        told = ((self._counts[what], what) for what in (*Dropped, _ROUNDED, _LONE))
        lines = [f"{count} {what}" for count, what in told if count]
        if self._renumbered:
            lines.append(
                f"nodes have new ids on ranks {ranks_text(self._renumbered)}: the old "
                "ids would change their order"
            )
        return lines

    def _lone(self, graph: TraceGraph) -> int:
        """Return the number of collectives in groups of one rank."""
        world = range(self._nranks)
        return sum(
            graph.op(position) is not None
            and len(self._groups.get(graph.group(position) or WORLD, world)) == 1
            for position in graph.communication()
        )


def _notes_of_set(cut: Cut, traces: TraceSet, options: CutOptions) -> Iterator[str]:
    if len(cut.ranks) < traces.nranks:
        yield (
            f"kept ranks {ranks_text(cut.ranks)} of {traces.nranks}; process groups "
            "contain only these ranks, and collectives keep their sizes"
        )
    if list(cut.numbers.values()) != list(range(len(cut.numbers))):
        yield (
            "ranks keep their numbers, which have gaps: chakram replays only sets "
            "whose ranks are numbered from 0 without gaps"
        )
    elif any(old != new for old, new in cut.numbers.items()):
        yield "ranks are renumbered from 0"
    gone = len(traces.groups) - len(cut.groups)
    if gone:
        yield f"{gone} process groups without remaining ranks were dropped"
    if cut.renamed:
        yield f"{len(cut.renamed)} process groups have numbers instead of names"


def _left(part: CutRank) -> RankLeft:
    graph = part.graph
    kinds = graph.kinds()
    return RankLeft(
        rank=graph.rank,
        from_rank=part.from_rank,
        nodes_before=part.nodes_before,
        nodes=len(graph),
        collectives=kinds.count(NodeKind.COLLECTIVE),
        messages=kinds.count(NodeKind.SEND) + kinds.count(NodeKind.RECEIVE),
        joins=part.joins,
    )


def _rounded(graph: TraceGraph) -> int:
    return sum(graph.duration_ns(at) % 1_000 != 0 for at in range(len(graph)))
