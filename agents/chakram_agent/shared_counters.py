"""Counters in memory that a shard shares with its agent, and their sums.

A shard writes plain 64-bit integers, and the agent copies them on request. Neither
waits for the other, because an aligned 64-bit store is atomic. The memory contains, in
this order:

* ``TOTAL_SLOTS`` counters with the layout of ``chakram.records.counter_slots``;
* the load of the shard;
* the numbers of rows allocated for queue pairs and ports;
* the stamp, which is the only number that the agent writes
  (``chakram_agent.hang_watchdog``);
* one row per queue pair, with the columns of ``QUEUE_PAIR_FIELDS``;
* one row per port, with the columns of ``PORT_FIELDS``.

A version number precedes each row. It is odd while the shard writes the row. If the
version is odd, or changes during the copy, the reader reads the row again. A row is
therefore always consistent.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import fields

from chakram.collectives.ops import CollectiveOp
from chakram.control.events import ShardLoad
from chakram.plan.plan import AgentPlan
from chakram.program.columns import COLLECTIVE
from chakram.records import counter_slots
from chakram.records.row_layout import (
    FLOW_FIELDS,
    PORT_FIELDS,
    QUEUE_PAIR_FIELDS,
    RecordRows,
)

_LOAD = tuple(each.name for each in fields(ShardLoad) if each.name != "shard")
_LOAD_SLOT = {
    name: counter_slots.TOTAL_SLOTS + index for index, name in enumerate(_LOAD)
}
_QUEUE_PAIRS, _PORTS, _STAMP, _FIRST_ROW = (
    counter_slots.TOTAL_SLOTS + len(_LOAD) + n for n in range(4)
)
_PAIR_ROW = 1 + len(QUEUE_PAIR_FIELDS)
_PORT_ROW = 1 + len(PORT_FIELDS)
_TRIES = 100
"""Number of attempts to read a row that changes. Writing a row takes a microsecond."""


class SharedCounters:
    """The counters of one shard, in the memory behind ``descriptor``.

    Args:
        descriptor: Descriptor of memory from ``create``. ``close`` closes it.

    Attributes:
        queue_pairs: Number of rows allocated for queue pairs.
        ports: Number of rows allocated for ports.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        nbytes = os.fstat(descriptor).st_size
        self._map = mmap.mmap(descriptor, nbytes)
        self.values = memoryview(self._map).cast("q")
        """All slots. A shard writes here to update its counters."""
        self.queue_pairs = self.values[_QUEUE_PAIRS]
        self.ports = self.values[_PORTS]

    @classmethod
    def create(
        cls, name: str, *, queue_pairs: int = 0, ports: int = 0
    ) -> SharedCounters:
        """Return new counters, all 0. In /proc, *name* identifies their memory."""
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            slots = _FIRST_ROW + _PAIR_ROW * queue_pairs + _PORT_ROW * ports
            os.ftruncate(descriptor, 8 * slots)
            with mmap.mmap(descriptor, 8 * _FIRST_ROW) as head:
                counts = array("q", (queue_pairs, ports)).tobytes()
                head[8 * _QUEUE_PAIRS : 8 * _STAMP] = counts
            return cls(descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def stamp_ns(self) -> int:
        """Time of the agent's last stamp."""
        return self.values[_STAMP]

    @stamp_ns.setter
    def stamp_ns(self, stamp_ns: int) -> None:
        self.values[_STAMP] = stamp_ns

    def snapshot(self) -> array[int]:
        """Return a copy of the counters (see ``chakram.records.counter_slots``)."""
        copy = array("q")
        copy.frombytes(self.values[: counter_slots.TOTAL_SLOTS].tobytes())
        return copy

    def set_load(self, load: ShardLoad) -> None:
        """Write the load of the shard."""
        for name, number in _LOAD_SLOT.items():
            self.values[number] = getattr(load, name)

    def load(self, shard: int) -> ShardLoad:
        """Return the load of the shard."""
        found = {name: self.values[number] for name, number in _LOAD_SLOT.items()}
        return ShardLoad(shard=shard, **found)

    def set_queue_pair(self, index: int, row: Sequence[int]) -> None:
        """Write the row of queue pair *index* of the shard.

        If there is no room for the row, drop it.
        """
        if index < self.queue_pairs:
            self._write(_FIRST_ROW + index * _PAIR_ROW, row)

    def set_port(self, index: int, row: Sequence[int]) -> None:
        """Write the row of the shard's port *index*, or drop it if there is no room."""
        if index < self.ports:
            first = _FIRST_ROW + self.queue_pairs * _PAIR_ROW
            self._write(first + index * _PORT_ROW, row)

    def queue_pair_rows(self) -> array[int]:
        """Return the current rows of all queue pairs that have a row."""
        return self._rows(_FIRST_ROW, self.queue_pairs, _PAIR_ROW)

    def port_rows(self) -> array[int]:
        """Return the current rows of all ports that have a row."""
        first = _FIRST_ROW + self.queue_pairs * _PAIR_ROW
        return self._rows(first, self.ports, _PORT_ROW)

    def _write(self, at: int, row: Sequence[int]) -> None:
        values = self.values
        values[at] += 1
        values[at + 1 : at + 1 + len(row)] = memoryview(array("q", row))
        values[at] += 1

    def _rows(self, first: int, count: int, width: int) -> array[int]:
        values = self.values
        rows = array("q")
        for at in range(first, first + count * width, width):
            for _ in range(_TRIES):
                version = values[at]
                row = values[at + 1 : at + width].tobytes()
                if version % 2 == 0 and values[at] == version:
                    if version:
                        rows.frombytes(row)
                    break
        return rows

    def close(self) -> None:
        """Release the memory. Later calls have no effect."""
        if self.descriptor >= 0:
            self.values.release()
            self._map.close()
            os.close(self.descriptor)
            self.descriptor = -1


# The agent counts completion times, because it receives every record in any case, and
# because CPU time in a shard is scarce.

_WIDTH = len(FLOW_FIELDS)
_RANK = FLOW_FIELDS.index("rank")
_OPERATION = FLOW_FIELDS.index("operation")
_SIZE = FLOW_FIELDS.index("size_bytes")
_POSTED = FLOW_FIELDS.index("posted_ns")
_ACKED = FLOW_FIELDS.index("last_acked_ns")
_DELIVERED = counter_slots.slot("delivered_bytes")


class Metering:
    """Sums of an agent's counters over all of its runs."""

    def __init__(self) -> None:
        self._past = array("q", bytes(8 * counter_slots.TOTAL_SLOTS))
        self._before = self._past
        self._live: dict[int, SharedCounters] = {}
        self._ops: dict[int, list[CollectiveOp]] = {}

    def begin(self, plan: AgentPlan) -> None:
        """Start counting for the run of *plan*."""
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
        """Include the counters of a shard from now on."""
        self._live[number] = counters

    def remove_shard(self, number: int) -> None:
        """Keep the counts of a shard that has ended, and release the shard's memory."""
        counters = self._live.pop(number, None)
        if counters is not None:
            self._past = counter_slots.sum_counters([self._past, counters.snapshot()])
            counters.close()

    def shards(self) -> Iterable[tuple[int, SharedCounters]]:
        """Return the running shards with their counters, by number."""
        return sorted(self._live.items())

    def rows(self) -> RecordRows:
        """Return the current counters of each queue pair and port of running shards."""
        rows = RecordRows()
        for _, counters in self.shards():
            rows.queue_pairs.extend(counters.queue_pair_rows())
            rows.ports.extend(counters.port_rows())
        return rows

    def note(self, rows: RecordRows) -> None:
        """Count the flows in a batch of records."""
        values = self._past
        flows = rows.flows
        for start in range(0, len(flows), _WIDTH):
            fct_ns = flows[start + _ACKED] - flows[start + _POSTED]
            op = self._ops[flows[start + _RANK]][flows[start + _OPERATION]]
            values[counter_slots.fct_slot(op, counter_slots.fct_bucket(fct_ns))] += 1
            values[counter_slots.fct_sum_slot(op)] += fct_ns
            values[_DELIVERED] += flows[start + _SIZE]

    def of_run(self) -> array[int]:
        """Return the counters of the current or last run alone."""
        before = self._before
        return array(
            "q",
            (now - then for now, then in zip(self.totals(), before, strict=True)),
        )

    def totals(self) -> array[int]:
        """Return all counters of the agent (see ``chakram.records.counter_slots``)."""
        return counter_slots.sum_counters(
            [self._past, *(counters.snapshot() for counters in self._live.values())]
        )
