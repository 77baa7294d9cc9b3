"""Where the host waited for asynchronous transfers, of which no trace tells.

A wait for a transfer of gloo leaves no event.  But the profile shows a host that stood
still until the transfer had ended, and went on then: there it waited.  Of a transfer
that ended while the host was at work nothing is known, and nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from chakram.chakra.read.pytorch.groups import Transfer
    from chakram.chakra.read.pytorch.kineto import Profile, Span


_STILL: Final = 10
"""A host that waits does nothing for so many times as long as it mostly does between
two operations."""


def waits_shown(
    transfers: Sequence[Transfer],
    work: Iterable[tuple[int, int]],
    profile: Profile,
) -> Mapping[int, Sequence[int]]:
    """Return before which nodes the host waited, and for which transfers.

    Args:
        transfers: What the rank transfers.
        work: Ids and record functions of what its host computed.
        profile: Its profile.

    Returns:
        By id of a node, the ids of the transfers that it had to wait for.
    """
    busy: list[tuple[int, int, int]] = []
    ends: dict[int, int] = {}
    for node_id, rf_id in work:
        _add(busy, node_id, profile.spans.get(rf_id))
    for each in transfers:
        label = None if each.label is None else profile.spans.get(each.label)
        _add(busy, each.node.node_id, profile.spans.get(each.rf_ids[-1]))
        if each.what.is_async is False:
            # The host waited for it, whatever else ended meanwhile.
            _add(busy, each.node.node_id, label)
        elif each.what.sequence is None and label is not None:
            # What has a sequence number is recorded, and so are waits for it.
            ends[each.node.node_id] = label.start_ns + label.duration_ns
    return _shown(sorted(busy), ends) if ends else {}


def _add(busy: list[tuple[int, int, int]], node_id: int, span: Span | None) -> None:
    if span is not None:
        busy.append((span.start_ns, span.start_ns + span.duration_ns, node_id))


def _shown(
    busy: Sequence[tuple[int, int, int]], ends: Mapping[int, int]
) -> dict[int, list[int]]:
    """Return the waits, given when the host was at work on what, and ends by id."""
    gaps: list[tuple[int, int, int]] = []
    until_ns = busy[0][0]
    for start_ns, end_ns, node_id in busy:
        if start_ns > until_ns:
            gaps.append((until_ns, start_ns, node_id))
        until_ns = max(until_ns, end_ns)
    if not gaps:
        return {}
    long_ns = _STILL * median(after_ns - before_ns for before_ns, after_ns, _ in gaps)
    found: dict[int, list[int]] = {}
    for before_ns, after_ns, node_id in gaps:
        if after_ns - before_ns < long_ns:
            continue
        # It went on soon after: most of the gap was before the end.
        middle_ns = (before_ns + after_ns) // 2
        ended = [
            each
            for each, end_ns in ends.items()
            if each < node_id and middle_ns < end_ns <= after_ns
        ]
        if ended:
            found[node_id] = ended
    return found
