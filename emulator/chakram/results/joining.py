"""Joins what the ranks report of a collective into one record of it.

Shards report in batches, each in its own time; within a batch the flows of a rank's
share stand before the share, because a share ends with its last acknowledgement.  So
once every rank's share has come, all flows have come too, and the record is complete:
memory follows what is under way.

**Generator wait.**  Each flow says how long its due packets waited for the data plane.
Flows of a rank that the same event released wait at the same time, so of these only the
longest wait counts; a flow that a message released waits after those of earlier steps,
so the waits of steps add up.  The largest sum over the ranks is the collective's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.results.records import (
    CAUSE_MESSAGE,
    FLOW_FIELDS,
    SHARE_FIELDS,
    RecordRows,
)
from chakram.results.resolve import OperationTable, columns
from chakram.results.run_records import (
    CollectiveIdentity,
    CollectiveRecord,
    CriticalFlow,
)

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

_RELEASED_TOGETHER = -1
"""Stands for the step of all flows that the start of the collective released."""


class _Gathering:
    """What has been reported of one collective in one iteration."""

    __slots__ = (
        "ce",
        "critical",
        "durations_ns",
        "end_ns",
        "first_start_ns",
        "flow_end_ns",
        "flow_start_ns",
        "last_start_ns",
        "packets",
        "retransmitted",
        "sent_bytes",
        "shares",
        "slip_ns",
        "starts",
        "waits_ns",
        "wrong",
    )

    def __init__(self) -> None:
        self.shares = 0
        self.starts = 0
        self.first_start_ns: int | None = None
        self.last_start_ns: int | None = None
        self.end_ns: int | None = None
        self.durations_ns = 0
        self.sent_bytes = 0
        self.packets = 0
        self.retransmitted = 0
        self.ce = 0
        self.wrong = 0
        self.slip_ns = 0
        self.flow_start_ns: int | None = None
        self.flow_end_ns: int | None = None
        self.critical: CriticalFlow | None = None
        self.waits_ns: dict[tuple[int, int], int] = {}


class CollectiveJoiner:
    """Takes rows as they come and gives records of collectives as they are complete.

    Args:
        operations: Of the plan that the rows were recorded under.
        warmup: Iterations that are not measured.
        offsets_ns: By rank number, what to add to the times of that rank's clock to
            get the controller's; nothing where it is empty.
    """

    def __init__(
        self,
        operations: OperationTable,
        *,
        warmup: int,
        offsets_ns: Sequence[int] = (),
    ) -> None:
        self._operations = operations
        self._warmup = warmup
        self._offsets_ns = offsets_ns
        self._gathering: dict[tuple[int, int], _Gathering] = {}

    def add(self, rows: RecordRows) -> list[CollectiveRecord]:
        """Take a batch of rows; return the collectives that it completed.

        Raises:
            ValueError: If a row does not belong to the plan.
        """
        self._add_flows(rows.flows)
        return self._add_shares(rows.shares)

    def unfinished(self) -> list[CollectiveRecord]:
        """Return a record of each collective that not all its ranks have reported."""
        return [
            self._record(self._operations.identities[index], iteration, gathering)
            for (iteration, index), gathering in sorted(self._gathering.items())
        ]

    def _add_flows(self, rows: array[int]) -> None:
        table = columns(rows, FLOW_FIELDS)
        operations = self._operations
        for (
            iteration,
            src,
            operation,
            dst,
            step,
            posted_ns,
            acked_ns,
            packets,
            cause,
            wait_ns,
        ) in zip(
            table["iteration"],
            table["rank"],
            table["operation"],
            table["peer"],
            table["step"],
            table["posted_ns"],
            table["last_acked_ns"],
            table["packets"],
            table["cause_kind"],
            table["generator_wait_ns"],
            strict=True,
        ):
            number = operations.operation_number(src, operation)
            gathering = self._gather(iteration, operations.identity_of[number])
            offset_ns = self._offsets_ns[src] if self._offsets_ns else 0
            start_ns, end_ns = posted_ns + offset_ns, acked_ns + offset_ns
            if gathering.flow_start_ns is None or start_ns < gathering.flow_start_ns:
                gathering.flow_start_ns = start_ns
            if gathering.flow_end_ns is None or end_ns > gathering.flow_end_ns:
                gathering.flow_end_ns = end_ns
                gathering.critical = CriticalFlow(
                    src=operations.rank(src)[1],
                    dst=operations.rank(dst)[1],
                    step=step,
                    posted_ns=start_ns,
                    last_acked_ns=end_ns,
                )
            gathering.packets += packets
            if wait_ns:
                key = (src, step if cause >= CAUSE_MESSAGE else _RELEASED_TOGETHER)
                if wait_ns > gathering.waits_ns.get(key, 0):
                    gathering.waits_ns[key] = wait_ns

    def _add_shares(self, rows: array[int]) -> list[CollectiveRecord]:
        table = columns(rows, SHARE_FIELDS)
        operations = self._operations
        completed = []
        for (
            iteration,
            rank,
            operation,
            start_ns,
            end_ns,
            sent_bytes,
            retransmitted,
            ce,
            slip_ns,
            wrong,
        ) in zip(
            table["iteration"],
            table["rank"],
            table["operation"],
            table["start_ns"],
            table["end_ns"],
            table["sent_bytes"],
            table["retransmitted"],
            table["ce"],
            table["slip_ns"],
            table["wrong"],
            strict=True,
        ):
            number = operations.operation_number(rank, operation)
            index = operations.identity_of[number]
            gathering = self._gather(iteration, index)
            offset_ns = self._offsets_ns[rank] if self._offsets_ns else 0
            gathering.shares += 1
            gathering.sent_bytes += sent_bytes
            gathering.retransmitted += retransmitted
            gathering.ce += ce
            gathering.wrong += wrong
            if slip_ns > gathering.slip_ns:
                gathering.slip_ns = slip_ns
            if not operations.is_receive(number):
                gathering.starts += 1
                gathering.durations_ns += end_ns - start_ns
                start = start_ns + offset_ns
                first_ns, last_ns = gathering.first_start_ns, gathering.last_start_ns
                if first_ns is None or start < first_ns:
                    gathering.first_start_ns = start
                if last_ns is None or start > last_ns:
                    gathering.last_start_ns = start
            end = end_ns + offset_ns
            if gathering.end_ns is None or end > gathering.end_ns:
                gathering.end_ns = end
            identity = operations.identities[index]
            if gathering.shares == identity.shares:
                del self._gathering[iteration, index]
                completed.append(self._record(identity, iteration, gathering))
        return completed

    def _gather(self, iteration: int, index: int) -> _Gathering:
        if index < 0:
            raise ValueError("a row names a compute operation as communication")
        key = (iteration, index)
        gathering = self._gathering.get(key)
        if gathering is None:
            gathering = self._gathering[key] = _Gathering()
        return gathering

    def _record(
        self, identity: CollectiveIdentity, iteration: int, gathering: _Gathering
    ) -> CollectiveRecord:
        waits_ns: dict[int, int] = {}
        for (rank, _), wait_ns in gathering.waits_ns.items():
            waits_ns[rank] = waits_ns.get(rank, 0) + wait_ns
        # A complete collective has starts; of a partial one there may be flows only.
        starts_ns = (gathering.first_start_ns, gathering.flow_start_ns)
        ends_ns = (gathering.end_ns, gathering.flow_end_ns)
        end_ns = max(time_ns for time_ns in ends_ns if time_ns is not None)
        start_ns = next((time for time in starts_ns if time is not None), end_ns)
        last_start_ns = gathering.last_start_ns
        return CollectiveRecord(
            identity=identity,
            iteration=iteration,
            measured=iteration >= self._warmup,
            shares=gathering.shares,
            start_ns=start_ns,
            end_ns=end_ns,
            mean_duration_ns=gathering.durations_ns // max(1, gathering.starts),
            start_spread_ns=0 if last_start_ns is None else last_start_ns - start_ns,
            sent_bytes=gathering.sent_bytes,
            packets=gathering.packets,
            retransmitted=gathering.retransmitted,
            ce=gathering.ce,
            generator_wait_ns=max(waits_ns.values(), default=0),
            critical=gathering.critical,
            slip_ns=gathering.slip_ns,
            wrong=gathering.wrong,
        )
