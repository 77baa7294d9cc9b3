"""The counters of a whole agent: those of its shards, and what its records tell.

Completion times are counted here and not in the shards: the agent sees every record
anyway, and time in a shard is dear.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING

from chakram.collectives.ops import CollectiveOp
from chakram.program.columns import COLLECTIVE
from chakram.results.counters import (
    TOTAL_SLOTS,
    fct_bucket,
    fct_slot,
    fct_sum_slot,
    slot,
    sum_counters,
)
from chakram.results.records import FLOW_FIELDS, RecordRows

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan
    from chakram_agent.counters import SharedCounters


_WIDTH = len(FLOW_FIELDS)
_RANK = FLOW_FIELDS.index("rank")
_OPERATION = FLOW_FIELDS.index("operation")
_SIZE = FLOW_FIELDS.index("size_bytes")
_POSTED = FLOW_FIELDS.index("posted_ns")
_ACKED = FLOW_FIELDS.index("last_acked_ns")
_DELIVERED = slot("delivered_bytes")


class Metering:
    """Adds up what an agent counts, over all of its runs."""

    def __init__(self) -> None:
        self._past = array("q", bytes(8 * TOTAL_SLOTS))
        self._before = self._past
        self._live: dict[int, SharedCounters] = {}
        self._ops: dict[int, list[CollectiveOp]] = {}

    def begin(self, plan: AgentPlan) -> None:
        """Learn what the operations of a plan are; its run is what counts from now."""
        self._before = self.totals()
        self._ops = {
            rank.number: [
                columns.all_algorithms[place][0]
                if kind == COLLECTIVE
                else CollectiveOp.SEND_RECV
                for kind, place in zip(columns.kinds, columns.algorithms, strict=True)
            ]
            for rank in plan.ranks
            for columns in (rank.program.columns,)
        }

    def add_shard(self, number: int, counters: SharedCounters) -> None:
        """Count what a shard counts."""
        self._live[number] = counters

    def remove_shard(self, number: int) -> None:
        """Keep what a shard has counted, and give its memory back."""
        counters = self._live.pop(number, None)
        if counters is not None:
            self._past = sum_counters([self._past, counters.snapshot()])
            counters.close()

    def shards(self) -> Iterable[tuple[int, SharedCounters]]:
        """Return the shards that live."""
        return sorted(self._live.items())

    def rows(self) -> RecordRows:
        """Return the counters of each queue pair and port at work, as they are now."""
        rows = RecordRows()
        for _, counters in self.shards():
            rows.queue_pairs.extend(counters.queue_pair_rows())
            rows.ports.extend(counters.port_rows())
        return rows

    def note(self, rows: RecordRows) -> None:
        """Count the flows of a batch of records."""
        values = self._past
        flows = rows.flows
        for start in range(0, len(flows), _WIDTH):
            fct_ns = flows[start + _ACKED] - flows[start + _POSTED]
            op = self._ops[flows[start + _RANK]][flows[start + _OPERATION]]
            values[fct_slot(op, fct_bucket(fct_ns))] += 1
            values[fct_sum_slot(op)] += fct_ns
            values[_DELIVERED] += flows[start + _SIZE]

    def of_run(self) -> array[int]:
        """Return the counters of the last run that has begun, without earlier ones."""
        before = self._before
        return array(
            "q",
            (now - then for now, then in zip(self.totals(), before, strict=True)),
        )

    def totals(self) -> array[int]:
        """Return all counters of the agent; see ``chakram.results.counters``."""
        return sum_counters(
            [self._past, *(counters.snapshot() for counters in self._live.values())]
        )
