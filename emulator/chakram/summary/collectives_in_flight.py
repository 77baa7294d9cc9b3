"""Progress of a run: the collective in flight in each process group.

A collective is recorded only when it has ended.  The collectives of a group end in
order, so the number of ended collectives identifies the collective in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from chakram.collectives.groups import POINT_TO_POINT
from chakram.foundation.grouping import grouped

if TYPE_CHECKING:
    from chakram.records.run_records import CollectiveIdentity, CollectiveRecord


_LEAST_SHARE = 0.02
"""Minimum share of the work that must be done to predict the remaining time."""

_Group = tuple[str, str]
"""Job and process group.  All point-to-point messages of a job form one group."""


class CollectivesInFlight:
    """Counter of collectives that have ended.

    One thread writes the counter, and other threads read it.

    Args:
        identities: Collectives in one iteration of each job.
        iterations: Number of iterations by job, without background jobs.
    """

    def __init__(
        self, identities: Iterable[CollectiveIdentity], iterations: Mapping[str, int]
    ) -> None:
        self._order = grouped((_group(each), each) for each in identities)
        self._iterations = iterations
        self._done: Counter[_Group] = Counter()
        self._done_bytes = 0
        self._all_bytes = sum(
            _weight(identity) * iterations.get(group[0], 0)
            for group, several in self._order.items()
            for identity in several
        )

    def take(self, records: Iterable[CollectiveRecord]) -> None:
        """Count collectives that have ended."""
        for record in records:
            group = _group(record.identity)
            self._done[group] += 1
            if group[0] in self._iterations:
                self._done_bytes += _weight(record.identity)

    def left_ns(self, elapsed_ns: int) -> int | None:
        """Return the expected remaining time, or None if too little work is done."""
        share = self._done_bytes / self._all_bytes if self._all_bytes else 0.0
        if share < _LEAST_SHARE:
            return None
        return max(0, round(elapsed_ns * (1 - share) / share))

    def text(self, most: int = 3) -> str:
        """Describe the progress of groups, those furthest behind first."""
        open_groups = [
            (self._done[group] / len(several), group, several)
            for group, several in self._order.items()
            if self._done[group]
            < len(several) * self._iterations.get(group[0], self._done[group] + 1)
        ]
        open_groups.sort(key=lambda each: each[0])
        has_jobs = len({job for job, _ in self._order}) > 1
        shown = [
            self._at(group, several, has_jobs)
            for _, group, several in open_groups[:most]
        ]
        if len(open_groups) > most:
            shown.append(f"{len(open_groups) - most} more")
        return ", ".join(shown)

    def _at(
        self, group: _Group, several: Sequence[CollectiveIdentity], has_jobs: bool
    ) -> str:
        number = self._done[group] % len(several)
        job, name = group
        name = f"{job}/{name}" if has_jobs else name
        return f"{name} {several[number].op} {number + 1}/{len(several)}"


def _group(identity: CollectiveIdentity) -> _Group:
    name = identity.key.group
    return identity.key.job, (
        POINT_TO_POINT if name.startswith(f"{POINT_TO_POINT}:") else name
    )


def _weight(identity: CollectiveIdentity) -> int:
    return max(1, identity.size_bytes)
