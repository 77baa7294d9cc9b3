"""Detect waits for transfers by the idle gaps of the host or GPU in the profile."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

from chakram.chakra.read.pytorch.communication_nodes import WAIT

if TYPE_CHECKING:
    from chakram.chakra.read.pytorch.groups import Transfer
    from chakram.chakra.read.pytorch.kineto import Profile, Span

_STILL: Final = 10
"""Minimum length of a wait, as a multiple of the median idle gap."""


def waits_from_profile(
    transfers: Sequence[Transfer],
    work: Iterable[tuple[int, int]],
    profile: Profile,
) -> Mapping[int, Sequence[int]]:
    """Return the host waits that the profile shows.

    Args:
        transfers: The transfers of the rank.
        work: Node ids and record function ids of the host's computation.
        profile: The profile of the rank.

    Returns:
        The ids of the transfers of each wait, by the id of the node that followed the
        wait.
    """
    busy: list[tuple[int, int, int]] = []
    ends: dict[int, int] = {}
    for node_id, rf_id in work:
        _add(busy, node_id, profile.spans.get(rf_id))
    for each in transfers:
        label = None if each.label is None else profile.spans.get(each.label)
        _add(busy, each.node.node_id, profile.spans.get(each.rf_ids[-1]))
        if each.what.is_async is False:
            # The host waits for this synchronous transfer even if others end meanwhile.
            _add(busy, each.node.node_id, label)
        elif each.what.sequence is None and label is not None:
            # Transfers with a sequence number have recorded waits.
            ends[each.node.node_id] = label.start_ns + label.duration_ns
    return _waits_of(sorted(busy), ends)


def waits_of_gpu(
    transfers: Sequence[Transfer],
    work: Iterable[tuple[int, int]],
    profile: Profile,
) -> Mapping[int, Sequence[int]]:
    """Return the waits that only the idle gaps between a GPU's kernels show.

    PyTorch's data parallelism waits for NCCL without recording the wait. The arguments
    and the result are those of ``waits_from_profile``.
    """
    busy: list[tuple[int, int, int]] = []
    ends: dict[int, int] = {}
    for node_id, rf_id in work:
        for span in profile.kernels[rf_id].values():
            _add(busy, node_id, span)
    recorded = {
        (each.what.group, each.what.sequence)
        for each in transfers
        if each.what.op == WAIT
    }
    for each in transfers:
        kernel, what = each.kernel(profile), each.what
        if kernel is None:
            continue
        waits = {(group, what.sequence) for group in (what.group, None)}
        if what.is_async is False or waits & recorded:
            _add(busy, each.node.node_id, kernel[1])
        else:
            ends[each.node.node_id] = kernel[1].end_ns
    return _waits_of(sorted(busy), ends)


def waits_inside_callers(
    transfers: Iterable[Transfer], work: Mapping[int, int], profile: Profile
) -> dict[int, int]:
    """Return how long operations of the host waited for transfers that they called.

    A backend such as gloo runs transfers on its own thread. The profile counts the wait
    for a synchronous transfer as self time of the caller, such as an autograd function.

    Args:
        transfers: The transfers of the rank.
        work: Record function ids of the host's computation, by node id.
        profile: The profile of the rank.

    Returns:
        Nanoseconds, by the record function id of the caller.
    """
    waited_ns: dict[int, int] = {}
    for each in transfers:
        caller = work.get(each.node.parent)
        if caller is None or each.label is None or each.what.is_async is not False:
            continue
        spans = [profile.spans.get(f) for f in (caller, each.rf_ids[-1], each.label)]
        if None not in spans:
            around, posted, transferred = (each.end_ns for each in spans if each)
            wait_ns = min(transferred, around) - posted
            waited_ns[caller] = waited_ns.get(caller, 0) + max(0, wait_ns)
    return waited_ns


def _add(busy: list[tuple[int, int, int]], node_id: int, span: Span | None) -> None:
    if span is not None:
        busy.append((span.start_ns, span.start_ns + span.duration_ns, node_id))


def _waits_of(
    busy: Sequence[tuple[int, int, int]], ends: Mapping[int, int]
) -> dict[int, list[int]]:
    """Return the waits, given the busy intervals and the ends of the transfers."""
    if not (busy and ends):
        return {}
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
    by_end = sorted((end_ns, each) for each, end_ns in ends.items())
    ends_ns = [end_ns for end_ns, _ in by_end]
    for before_ns, after_ns, node_id in gaps:
        if after_ns - before_ns < long_ns:
            continue
        # The host continues soon after the transfer that it waits for has ended. So the
        # end of the transfer must be in the second half of the gap.
        middle_ns = (before_ns + after_ns) // 2
        first, last = bisect_right(ends_ns, middle_ns), bisect_right(ends_ns, after_ns)
        ended = sorted(each for _, each in by_end[first:last] if each < node_id)
        if ended:
            found[node_id] = ended
    return found
