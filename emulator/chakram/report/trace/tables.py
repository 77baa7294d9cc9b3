"""The tables of a trace set, for consoles and pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from chakram.chakra.summary.kernel_classes import KernelClass
from chakram.chakra.summary.summary import (
    POINT_TO_POINT,
    GroupSummary,
    RankSummary,
    TraceSummary,
)
from chakram.chakra.summary.traffic import PATH_MTU
from chakram.collectives.groups import WORLD, ranks_text
from chakram.foundation.units import about_size, format_time
from chakram.report.blocks import Facts, Table, facts, table

if TYPE_CHECKING:
    from chakram.chakra.sets.trace_set import TraceSet
    from chakram.chakra.summary.distribution import Distribution
    from chakram.chakra.summary.sizes import SizeBin


_SLOTS_SHOWN = 8

_KERNELS = {
    KernelClass.GEMM: "GeMM",
    KernelClass.ATTENTION: "Attn",
    KernelClass.ELEMENTWISE: "ElemWise",
    KernelClass.OTHER: "Others",
}
_COLLECTIVES = {
    POINT_TO_POINT: "P2P",
    "all_reduce": "AllReduce",
    "all_to_all": "All2All",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
}
"""Names of collectives, in the wording and order of table 5 of the Chakra paper."""


_BAR = 12
"""Length of the longest bar in characters."""

_NAMES_SHOWN = 4

_TENSOR = "tensor parallelism: each rank has a part of every matrix of a layer"
_CONTEXT = "context parallelism: each rank has a part of every sequence"
_EXPERT = "expert parallelism: each rank has some of a layer's experts"
_SHARDED = "sharded data parallelism: each rank stores a part of a copy of the model"
_EXPERT_DATA = "ranks with copies of the same experts, which sum up their gradients"
_DATA = "data parallelism: ranks with copies of the model, which sum up gradients"
_PIPELINE = "pipeline parallelism: each rank has some layers, one stage after the other"

_WORDS: Final[Mapping[str, str]] = {
    "tensor": _TENSOR,
    "tp": _TENSOR,
    "context": _CONTEXT,
    "cp": _CONTEXT,
    "expert": _EXPERT,
    "ep": _EXPERT,
    "expert data": _EXPERT_DATA,
    "expert dp": _EXPERT_DATA,
    "edp": _EXPERT_DATA,
    "sharded data": _SHARDED,
    "fsdp": _SHARDED,
    "data": _DATA,
    "dp": _DATA,
    "pipeline": _PIPELINE,
    "pp": _PIPELINE,
    "embedding": "the ends of a pipeline, each with a copy of a shared matrix",
}
"""Meaning of labels in the names of process groups. Labels are in lower case."""

_LONGEST_FIRST: Final = sorted(_WORDS, key=len, reverse=True)
_LABEL: Final = re.compile(rf"(?<![a-z])({'|'.join(_LONGEST_FIRST)})(?![a-z])")


def trace_facts(
    traces: TraceSet, summary: TraceSummary, *, bytes_per_element: int | None
) -> Facts:
    """Return facts about a trace set."""
    kinds = (f"{count} {kind}" for kind, count in summary.nodes_by_kind.items())
    edges = summary.dependencies
    num_ops = sum(rank.num_ops for rank in summary.per_rank)
    rows = [
        ("trace set", traces.name),
        ("producer", f"{traces.producer} (schema {traces.schema})"),
        ("digest", traces.digest[:16]),
        ("ranks", str(traces.nranks)),
        ("process groups", _groups_fact(traces, summary)),
        ("nodes of all ranks", ", ".join(kinds) or "none"),
        (
            "dependencies",
            f"{edges.edges}; {edges.roots} nodes have no dependency, {edges.leaves} "
            "have no dependent",
        ),
        (
            "computation",
            f"{num_ops:.3g} floating-point operations on all ranks"
            if num_ops
            else "no floating-point operations are stated",
        ),
        ("compute slots of all ranks", _slots_fact(summary)),
    ]
    if bytes_per_element not in (None, 1):
        rows.append(("stored sizes", f"units of {bytes_per_element} bytes"))
    return facts(*rows)


def _slots_fact(summary: TraceSummary) -> str:
    """Return the compute time of each execution slot, summed over ranks, as text."""
    slots_ns: Counter[str] = Counter()
    for rank in summary.per_rank:
        slots_ns.update(rank.slots_ns)
    shown = [
        f"{name} {format_time(slots_ns[name])}"
        for name in sorted(slots_ns, key=lambda name: -slots_ns[name])[:_SLOTS_SHOWN]
    ]
    if len(slots_ns) > _SLOTS_SHOWN:
        shown.append(f"{len(slots_ns) - _SLOTS_SHOWN} more")
    return ", ".join(shown) or "none"


def operations_table(ranks: Sequence[RankSummary]) -> Table:
    """Return a table of the operations of each rank. Identical ranks share a row."""
    found = {name for rank in ranks for name in rank.communication}
    collectives = [*_COLLECTIVES, *sorted(found - _COLLECTIVES.keys())]
    memory = any(rank.memory for rank in ranks)
    passed = any(rank.passed for rank in ranks)
    alike: dict[tuple[str, ...], list[int]] = {}
    for rank in ranks:
        cells = (
            *(str(rank.computation[kernel]) for kernel in _KERNELS),
            *(str(rank.communication.get(name, 0)) for name in collectives),
            *((str(rank.memory),) * memory + (str(rank.passed),) * passed),
            format_time(rank.duration_ns) if rank.duration_ns else "-",
            about_size(rank.sent_bytes),
            about_size(rank.received_bytes),
        )
        alike.setdefault(cells, []).append(rank.rank)
    columns = [
        *("ranks", *_KERNELS.values()),
        *(_COLLECTIVES.get(name, name) for name in collectives),
        *(["memory"] * memory + ["pass"] * passed),
        *("durations", "sends", "receives"),
    ]
    return table(
        "Nodes of each rank, one iteration",
        "|".join(columns),
        ((ranks_text(ranks), *cells) for cells, ranks in alike.items()),
        note="Computation is classified by STAGE operators, otherwise by the names of "
        "nodes. Others: nodes that match neither, and nodes that only move data. "
        + "pass: nodes without effect on the network. "
        * passed
        + f"durations: sum over all nodes{' except pass' * passed}, - if none; sends, "
        "receives: payload.",
    )


def communication_table(
    summary: TraceSummary, *, bytes_per_element: int | None
) -> Table:
    """Return a table of collectives by size of group, with totals over all ranks."""
    unit = bytes_per_element or 1
    return table(
        "Communication of all ranks",
        "collective | ranks | groups | nodes | smallest | largest | stored | "
        "contributed | sent | on the wire | algorithm",
        (
            (
                row.what,
                "" if row.group_ranks is None else str(row.group_ranks),
                *(str(row.groups or ""), str(row.nodes)),
                *(about_size(row.min_bytes), about_size(row.max_bytes)),
                f"{row.total_bytes // unit:.4g}",
                *map(about_size, (row.total_bytes, row.sent_bytes, row.wire_bytes)),
                ", ".join(row.algorithms),
            )
            for row in summary.communication
        ),
        note="Totals over all nodes of all ranks. smallest, largest: contribution of "
        "one rank to one collective; stored, contributed: their sum, in the unit of "
        "the files"
        + f" ({unit} bytes)"
        * (unit != 1)
        + " and in bytes; sent: payload that ranks send each other; "
        f"on the wire: with headers, {PATH_MTU} bytes of payload per packet. A trace "
        "does not define algorithms: these are the choices of auto for these sizes.",
    )


def _groups_fact(traces: TraceSet, summary: TraceSummary) -> str:
    """Return the number of defined groups and the names of unused groups, as text."""
    defined = len(traces.groups.keys() - {WORLD})
    together = any(group.name == WORLD for group in summary.groups)
    if not defined:
        return "none defined: all ranks together" if together else "none defined"
    text = f"{defined} defined{' (and all ranks together)' if together else ''}"
    by_size: dict[int, list[str]] = {}
    for name in summary.unused_groups:
        by_size.setdefault(len(traces.groups[name].ranks), []).append(name)
    if not by_size:
        return f"{text}, all of them used"
    unused = ", ".join(
        f"{group_names_text(names)} ({size} rank{'s' if size > 1 else ''} each)"
        for size, names in sorted(by_size.items())
    )
    return f"{text}; unused: {unused}"


def groups_table(traces: TraceSet, summary: TraceSummary) -> Table:
    """Return a table of the process groups that communication uses."""
    groups, purposes = summary.groups, traces.purposes
    has_purposes = any(group.name in purposes for group in groups)
    words = dimension_words(
        chain.from_iterable(
            (group.name, purposes.get(group.name, "")) for group in groups
        )
    )
    return table(
        "Process groups",
        f"group {'| for ' * has_purposes}| ranks | collectives | size | sent",
        (
            (
                *(group.name, *(purposes.get(group.name, ""),) * has_purposes),
                "not defined" if group.ranks is None else ranks_text(group.ranks),
                _collectives(group),
                "" if group.ranks is None else str(len(group.ranks)),
                about_size(group.sent_bytes),
            )
            for group in groups
        ),
        left=4 if has_purposes else 3,
        note=words,
    )


def dimension_words(names: Iterable[str]) -> str:
    """Return the meaning of the labels in *names*, empty if there are no labels.

    Args:
        names: Names of process groups, or their purposes: ``tp[0:8]``, ``expert``,
            ``TENSOR_MODEL_PARALLEL_GROUP``.
    """
    found = {
        label
        for name in names
        for label in _LABEL.findall(name.lower().replace("_", " "))
    }
    return "; ".join(
        f"{label}: {words}" for label, words in _WORDS.items() if label in found
    )


def _collectives(group: GroupSummary) -> str:
    """Return a group's numbers of collectives, or of nodes if members differ."""
    size = len(group.ranks or ()) or 1
    even = all(nodes % size == 0 for nodes in group.nodes.values())
    counts = (
        f"{nodes // size if even else nodes} {what}"
        for what, nodes in group.nodes.items()
    )
    return ", ".join(counts) + ("" if even else " (nodes)")


def distributions_table(summary: TraceSummary) -> Table:
    """Return a table with percentiles of durations, sizes and dependency counts."""
    rows: list[tuple[str, ...]] = []

    def add(what: str, spread: Distribution | None, text: Callable[[int], str]) -> None:
        if spread is not None:
            low = spread.smallest, spread.p50, spread.p90
            high = spread.p99, spread.p99_9, spread.largest
            rows.append((what, str(spread.count), *map(text, (*low, *high))))

    for kind, spread in summary.durations.items():
        add(f"duration of {kind}", spread, format_time)
    add("size of a message", summary.messages, about_size)
    add("dependencies of a node", summary.dependencies.parents, str)
    add("dependents of a node", summary.dependencies.children, str)
    return table(
        "Distributions",
        "of | number | smallest | p50 | p90 | p99 | p99.9 | largest",
        rows,
        note="Percentiles are values that occur (method of the nearest rank).",
    )


def sizes_table(summary: TraceSummary) -> Table:
    """Return a table of collectives by size. Identical groups share rows."""
    rows: list[tuple[str, ...]] = []
    for row in summary.communication:
        if row.group_ranks is None:
            if row.what != "receive":
                rows += _size_rows(row.what, "", "", row.sizes, nranks=1)
            continue
        alike: dict[tuple[SizeBin, ...], list[str]] = {}
        for group in summary.groups:
            if group.ranks is not None and len(group.ranks) == row.group_ranks:
                bins = group.sizes.get(row.what)
                if bins is not None:
                    alike.setdefault(bins, []).append(group.name)
        for bins, names in alike.items():
            rows += _size_rows(
                row.what,
                str(row.group_ranks),
                group_names_text(names),
                bins,
                nranks=row.group_ranks,
            )
    made = table(
        "Sizes of collectives",
        "collective | groups | ranks | size | number | contributed | share |",
        rows,
        left=2,
        note="size: contribution of one rank to one collective; more than a dozen are "
        "grouped between powers of two. number, contributed: per group, all its ranks "
        "together (send: over all ranks), counted in nodes if ranks contribute "
        "different sizes. share: part of the collective's bytes in that group.",
    )
    return replace(made, bars=7)


def _size_rows(
    what: str, ranks: str, groups: str, bins: Sequence[SizeBin], *, nranks: int
) -> Iterator[tuple[str, ...]]:
    all_bytes = sum(each.total_bytes for each in bins) or 1
    for number, each in enumerate(bins):
        size = about_size(each.smallest_bytes)
        if each.largest_bytes > each.smallest_bytes:
            size += f" - {about_size(each.largest_bytes)}"
        yield (
            "" if number else what,
            "" if number else groups,
            "" if number else ranks,
            size,
            _number(each.nodes, nranks),
            about_size(each.total_bytes),
            f"{100 * each.total_bytes / all_bytes:.1f} %",
            f"{'#' * round(_BAR * each.total_bytes / all_bytes):.<{_BAR}}",
        )


def _number(nodes: int, nranks: int) -> str:
    """Return the number of collectives that *nodes* represent, one node per rank."""
    if nodes % nranks == 0:
        return str(nodes // nranks)
    return f"{nodes} node{'s' if nodes > 1 else ''}"


def group_names_text(names: Sequence[str]) -> str:
    """Return names of groups as a short list: ``1-8``, ``a, b and 3 more``."""
    if all(name.isdecimal() for name in names):
        return ranks_text(sorted(map(int, names)))
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown


def pairs_table(summary: TraceSummary, limit: int) -> Table:
    """Return a table of the pairs of ranks with the most traffic, up to *limit*."""
    largest = summary.largest_pairs
    if largest is None or not largest.pairs:
        return Table(title="", header=(), rows=())
    shown, hidden = largest.pairs[:limit], largest.pairs[limit:]
    last = shown[-1][2]
    as_large = sum(size_bytes == last for _, _, size_bytes in hidden)
    if last == largest.pairs[-1][2]:
        as_large += largest.as_large
    all_bytes = sum(summary.traffic.sent_bytes)
    return table(
        "Most bytes from rank to rank",
        "from | to | bytes | share of all",
        (
            (str(a), str(b), about_size(size), f"{100 * size / all_bytes:.2f} %")
            for a, b, size in shown
        ),
        left=0,
        note=f"{largest.all_pairs} pairs send data"
        + (f", {as_large} more send as much as the last" if as_large else ""),
    )
