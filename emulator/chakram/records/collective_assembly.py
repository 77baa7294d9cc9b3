"""Assembly of a collective's record from the reports of its ranks.

Shards report in batches, at different times.  Within a batch, the flows of a rank's
share precede the share, because a share ends with its last acknowledgment.  So when all
shares of a collective have arrived, all of the collective's flows have arrived, and the
record is complete.  Memory use is proportional to the collectives in flight.

**Arrivals.**  Only the receiver knows when a message completed.  The receiver reports
that time before its share.  A flow waits for this report, but only until its collective
is complete.

**Generator wait.**  Each flow reports how long its due packets waited for the data
plane.  Flows of a rank that the same event released wait at the same time, so only the
longest of these waits counts.  A flow that a message released waits after the flows of
earlier steps, so the waits of steps add up.  The generator wait of a collective is the
largest of these sums over its ranks.
"""

from __future__ import annotations

from array import array
from dataclasses import KW_ONLY, dataclass, field

from chakram.records.named_rows import OperationTable
from chakram.records.row_layout import (
    CAUSE_MESSAGE,
    FLOW_FIELDS,
    UNKNOWN,
    ArrivalRow,
    FlowRow,
    RecordRows,
    ShareRow,
    rows_of,
)
from chakram.records.run_records import (
    CollectiveIdentity,
    CollectiveRecord,
    CriticalFlow,
)

_WIDTH = len(FLOW_FIELDS)
(
    _ITERATION,
    _RANK,
    _OPERATION,
    _STEP,
    _PEER,
    _POSTED_NS,
    _LAST_ACKED_NS,
    _PACKETS,
    _GENERATOR_WAIT_NS,
    _CAUSE_KIND,
    _NUMBER,
    _RECEIVED_NS,
) = map(
    FLOW_FIELDS.index,
    (
        "iteration",
        "rank",
        "operation",
        "step",
        "peer",
        "posted_ns",
        "last_acked_ns",
        "packets",
        "generator_wait_ns",
        "cause_kind",
        "number",
        "received_ns",
    ),
)

_RELEASED_TOGETHER = -1
"""Step number for all flows that the start of the collective released."""


@dataclass(slots=True)
class _Gathering:
    """Reports that have arrived about one collective in one iteration."""

    shares: int = 0
    starts: int = 0
    first_start_ns: int | None = None
    last_start_ns: int | None = None
    end_ns: int | None = None
    durations_ns: int = 0
    sent_bytes: int = 0
    packets: int = 0
    retransmitted: int = 0
    ce: int = 0
    wrong: int = 0
    slip_ns: int = 0
    flow_start_ns: int | None = None
    flow_end_ns: int | None = None
    critical: CriticalFlow | None = None
    waits_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    """Longest wait of a flow for the generator, by rank and step."""
    arrived_ns: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Arrival times of unreported flows, by sender, receiver and message number."""
    waiting: dict[tuple[int, int, int], FlowRow] = field(default_factory=dict)
    """Flows with an unreported arrival, by sender, receiver and message number."""


@dataclass(slots=True, eq=False)
class CollectiveJoiner:
    """Incremental join of rows into records of complete collectives.

    Args:
        operations: Operations of the run's plan.
        warmup: Number of iterations that are not measured.
        has_arrivals: Whether receivers report when messages completed.
    """

    operations: OperationTable
    _: KW_ONLY
    warmup: int
    has_arrivals: bool = False
    _gathering: dict[tuple[int, int], _Gathering] = field(
        init=False, default_factory=dict
    )

    def add(self, rows: RecordRows) -> list[CollectiveRecord]:
        """Take a batch of rows and return the collectives that it completes.

        The method removes arrivals from *rows*, and flows whose arrival is missing.  It
        adds earlier flows whose arrival is in this batch.

        Raises:
            ValueError: If a row does not belong to the plan.
        """
        found = self._add_arrivals(rows)
        self._add_flows(rows)
        for row in found:
            rows.flows.extend(row)
        return self._add_shares(rows)

    def waiting(self) -> array[int]:
        """Remove and return the flows that still wait for an arrival."""
        flows = array("q")
        for gathering in self._gathering.values():
            _release(gathering, flows)
        return flows

    def unfinished(self) -> list[CollectiveRecord]:
        """Return a partial record of each collective that some ranks did not report."""
        return [
            self._record(self.operations.identities[index], iteration, gathering)
            for (iteration, index), gathering in sorted(self._gathering.items())
            # Skip collectives with no report except an arrival.
            if gathering.end_ns is not None or gathering.flow_end_ns is not None
        ]

    def _add_arrivals(self, rows: RecordRows) -> list[FlowRow]:
        """Store arrivals and return the flows that waited for them."""
        operations = self.operations
        found = []
        for row in rows_of(ArrivalRow, rows.arrivals):
            number = operations.operation_number(row.rank, row.operation)
            operations.rank(row.peer)
            gathering = self._gather(row.iteration, operations.identity_of[number])
            received_ns = row.received_ns
            key = (row.peer, row.rank, row.number)
            flow = gathering.waiting.pop(key, None)
            if flow is None:
                gathering.arrived_ns[key] = received_ns
            else:
                found.append(flow._replace(received_ns=received_ns))
        rows.arrivals = array("q")
        return found

    def _add_flows(self, rows: RecordRows) -> None:
        """Add flows, of which there may be millions, without an object for each."""
        operations, flows = self.operations, rows.flows
        if len(flows) % _WIDTH:
            raise ValueError(f"{len(flows)} numbers are not rows of {_WIDTH}")
        late = []
        # Flows of one operation of a rank are adjacent.
        iteration = rank = operation = UNKNOWN
        gathering: _Gathering | None = None
        for at in range(0, len(flows), _WIDTH):
            if (
                gathering is None
                or operation != flows[at + _OPERATION]
                or rank != flows[at + _RANK]
                or iteration != flows[at + _ITERATION]
            ):
                iteration, rank = flows[at + _ITERATION], flows[at + _RANK]
                operation = flows[at + _OPERATION]
                number = operations.operation_number(rank, operation)
                gathering = self._gather(iteration, operations.identity_of[number])
            if self.has_arrivals and not _has_arrived(flows, at, gathering):
                late.append(at)
            start_ns = flows[at + _POSTED_NS]
            end_ns = flows[at + _LAST_ACKED_NS]
            if gathering.flow_start_ns is None or start_ns < gathering.flow_start_ns:
                gathering.flow_start_ns = start_ns
            if gathering.flow_end_ns is None or end_ns > gathering.flow_end_ns:
                gathering.flow_end_ns = end_ns
                gathering.critical = CriticalFlow(
                    src=operations.rank(rank)[1],
                    dst=operations.rank(flows[at + _PEER])[1],
                    step=flows[at + _STEP],
                    posted_ns=start_ns,
                    last_acked_ns=end_ns,
                )
            gathering.packets += flows[at + _PACKETS]
            wait_ns = flows[at + _GENERATOR_WAIT_NS]
            if wait_ns:
                is_alone = flows[at + _CAUSE_KIND] >= CAUSE_MESSAGE
                key = (rank, flows[at + _STEP] if is_alone else _RELEASED_TOGETHER)
                if wait_ns > gathering.waits_ns.get(key, 0):
                    gathering.waits_ns[key] = wait_ns
        for at in reversed(late):
            del flows[at : at + _WIDTH]

    def _add_shares(self, rows: RecordRows) -> list[CollectiveRecord]:
        operations = self.operations
        completed = []
        for row in rows_of(ShareRow, rows.shares):
            number = operations.operation_number(row.rank, row.operation)
            index = operations.identity_of[number]
            gathering = self._gather(row.iteration, index)
            gathering.shares += 1
            gathering.sent_bytes += row.sent_bytes
            gathering.retransmitted += row.retransmitted
            gathering.ce += row.ce
            gathering.wrong += row.wrong
            if row.slip_ns > gathering.slip_ns:
                gathering.slip_ns = row.slip_ns
            if not operations.is_receive(number):
                gathering.starts += 1
                gathering.durations_ns += row.end_ns - row.start_ns
                start = row.start_ns
                first_ns, last_ns = gathering.first_start_ns, gathering.last_start_ns
                if first_ns is None or start < first_ns:
                    gathering.first_start_ns = start
                if last_ns is None or start > last_ns:
                    gathering.last_start_ns = start
            end = row.end_ns
            if gathering.end_ns is None or end > gathering.end_ns:
                gathering.end_ns = end
            identity = operations.identities[index]
            if gathering.shares == identity.shares:
                del self._gathering[row.iteration, index]
                _release(gathering, rows.flows)
                completed.append(self._record(identity, row.iteration, gathering))
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
        # A complete collective has start times.  A partial one may have only flows.
        starts_ns = (gathering.first_start_ns, gathering.flow_start_ns)
        ends_ns = (gathering.end_ns, gathering.flow_end_ns)
        end_ns = max(time_ns for time_ns in ends_ns if time_ns is not None)
        start_ns = next((time for time in starts_ns if time is not None), end_ns)
        last_start_ns = gathering.last_start_ns
        return CollectiveRecord(
            identity=identity,
            iteration=iteration,
            measured=iteration >= self.warmup,
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


def _release(gathering: _Gathering, flows: array[int]) -> None:
    """Move the waiting flows of a collective to *flows*."""
    for row in gathering.waiting.values():
        flows.extend(row)
    gathering.waiting.clear()


def _has_arrived(flows: array[int], at: int, gathering: _Gathering) -> bool:
    """Set the arrival time of a flow, or store the flow if the time is unknown."""
    if flows[at + _RECEIVED_NS] >= 0 or flows[at + _NUMBER] < 0:
        return True
    message = (flows[at + _RANK], flows[at + _PEER], flows[at + _NUMBER])
    received_ns = gathering.arrived_ns.pop(message, UNKNOWN)
    if received_ns < 0:
        gathering.waiting[message] = FlowRow._make(flows[at : at + _WIDTH])
        return False
    flows[at + _RECEIVED_NS] = received_ns
    return True
