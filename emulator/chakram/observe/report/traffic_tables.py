"""Tables of what a trace set sends: sizes of collectives, and who sends most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from chakram.collectives.groups import ranks_text
from chakram.observe.report.blocks import Table
from chakram.units import about_size

if TYPE_CHECKING:
    from chakram.chakra.summary.sizes import SizeBin
    from chakram.chakra.summary.summary import TraceSummary


_BAR = 12
"""Characters of the longest bar."""

_NAMES_SHOWN = 4


def sizes_table(summary: TraceSummary) -> Table:
    """Return how many collectives have which size; groups that are alike share rows."""
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
    return Table(
        title="Sizes of collectives",
        header=(
            *("collective", "groups", "ranks", "size", "number"),
            *("contributed", "share", ""),
        ),
        left=2,
        rows=tuple(rows),
        note="size: what one rank puts into one collective; more than a dozen sizes "
        "are put together between powers of two. number, contributed: of each of these "
        "groups, all its ranks together (send: of all ranks), in nodes where ranks put "
        "in different sizes; share: of what the collective contributes there.",
    )


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
    """Return how many collectives of *nranks* ranks some nodes are."""
    if nodes % nranks == 0:
        return str(nodes // nranks)
    return f"{nodes} node{'s' if nodes > 1 else ''}"


def group_names_text(names: Sequence[str]) -> str:
    """Return names of groups as people write them: ``1-8``, ``a, b and 3 more``."""
    if all(name.isdecimal() for name in names):
        return ranks_text(sorted(map(int, names)))
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown


def pairs_table(summary: TraceSummary, limit: int) -> Table:
    """Return the pairs of ranks between which most is sent, *limit* at most."""
    largest = summary.largest_pairs
    if largest is None or not largest.pairs:
        return Table(title="", header=(), rows=())
    shown, hidden = largest.pairs[:limit], largest.pairs[limit:]
    last = shown[-1][2]
    as_large = sum(size_bytes == last for _, _, size_bytes in hidden)
    if last == largest.pairs[-1][2]:
        as_large += largest.as_large
    all_bytes = sum(summary.traffic.sent_bytes)
    return Table(
        title="Most bytes from rank to rank",
        header=("from", "to", "bytes", "share of all"),
        left=0,
        rows=tuple(
            (
                str(src),
                str(dst),
                about_size(size_bytes),
                f"{100 * size_bytes / all_bytes:.2f} %",
            )
            for src, dst, size_bytes in shown
        ),
        note=f"{largest.all_pairs} pairs send something"
        + (f", {as_large} more as much as the last" if as_large else ""),
    )
