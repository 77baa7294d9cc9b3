"""Counters in memory that a shard shares with its agent, and those of all shards.

A shard writes plain 64-bit integers; the agent copies them whenever somebody asks.
Neither waits for the other: an aligned 64-bit store is seen whole or not at all.  The
first ``TOTAL_SLOTS`` have the layout of ``chakram.records.counter_slots``; what
describes the load of the shard follows, then the one number that the agent writes and
the shard reads (``chakram_agent.stall_lease``), and then a row for each of its queue
pairs and each of its ports, with the columns of ``QUEUE_PAIR_FIELDS`` and
``PORT_FIELDS``.

A row has a version before it, which is odd while the row is written.  A reader that
finds it odd, or another one after the copy, reads again; so no row is half of one time
and half of another.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from chakram.collectives.ops import CollectiveOp
from chakram.control.events import ShardLoad
from chakram.program.columns import COLLECTIVE
from chakram.records.counter_slots import (
    TOTAL_SLOTS,
    fct_bucket,
    fct_slot,
    fct_sum_slot,
    slot,
    sum_counters,
)
from chakram.records.row_layout import (
    FLOW_FIELDS,
    PORT_FIELDS,
    QUEUE_PAIR_FIELDS,
    RecordRows,
)

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan


_LOAD = tuple(each.name for each in fields(ShardLoad) if each.name != "shard")
_LOAD_SLOT = {name: TOTAL_SLOTS + index for index, name in enumerate(_LOAD)}
_QUEUE_PAIRS, _PORTS, _STAMP, _FIRST_ROW = (
    TOTAL_SLOTS + len(_LOAD) + n for n in range(4)
)
_PAIR_ROW = 1 + len(QUEUE_PAIR_FIELDS)
_PORT_ROW = 1 + len(PORT_FIELDS)
_TRIES = 100
"""Times that a row is read again while it changes; writing one takes a microsecond."""


class SharedCounters:
    """The counters of one shard, in memory behind ``descriptor``.

    Args:
        descriptor: Of the memory, which is created by the agent; owned from here on.

    Attributes:
        queue_pairs: Queue pairs that there is room for.
        ports: Likewise.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        nbytes = os.fstat(descriptor).st_size
        self._map = mmap.mmap(descriptor, nbytes)
        self.values = memoryview(self._map).cast("q")
        """All slots; writing here is all that a shard does."""
        self.queue_pairs = self.values[_QUEUE_PAIRS]
        self.ports = self.values[_PORTS]

    @classmethod
    def create(
        cls, name: str, *, queue_pairs: int = 0, ports: int = 0
    ) -> SharedCounters:
        """Return new counters, all 0; *name* is what /proc shows."""
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
        """When the agent lived last, as it has written."""
        return self.values[_STAMP]

    @stamp_ns.setter
    def stamp_ns(self, stamp_ns: int) -> None:
        self.values[_STAMP] = stamp_ns

    def snapshot(self) -> array[int]:
        """Return a copy of the counters; see ``chakram.records.counter_slots``."""
        copy = array("q")
        copy.frombytes(self.values[:TOTAL_SLOTS].tobytes())
        return copy

    def set_load(self, load: ShardLoad) -> None:
        """Write how the shard keeps up."""
        for name, number in _LOAD_SLOT.items():
            self.values[number] = getattr(load, name)

    def load(self, shard: int) -> ShardLoad:
        """Return how the shard keeps up."""
        found = {name: self.values[number] for name, number in _LOAD_SLOT.items()}
        return ShardLoad(shard=shard, **found)

    def set_queue_pair(self, index: int, row: Sequence[int]) -> None:
        """Write the row of the queue pair with number *index* in the shard.

        One for which there is no room is left out.
        """
        if index < self.queue_pairs:
            self._write(_FIRST_ROW + index * _PAIR_ROW, row)

    def set_port(self, index: int, row: Sequence[int]) -> None:
        """Write the row of the port with number *index* in the shard; likewise."""
        if index < self.ports:
            first = _FIRST_ROW + self.queue_pairs * _PAIR_ROW
            self._write(first + index * _PORT_ROW, row)

    def queue_pair_rows(self) -> array[int]:
        """Return the rows of queue pairs that have been written, as they are now."""
        return self._rows(_FIRST_ROW, self.queue_pairs, _PAIR_ROW)

    def port_rows(self) -> array[int]:
        """Return the rows of ports, likewise."""
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
        """Give the memory back; nothing happens the second time."""
        if self.descriptor >= 0:
            self.values.release()
            self._map.close()
            os.close(self.descriptor)
            self.descriptor = -1


# Completion times are counted here and not in the shards: the agent sees every record
# anyway, and time in a shard is dear.

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
        """Return all counters of the agent; see ``chakram.records.counter_slots``."""
        return sum_counters(
            [self._past, *(counters.snapshot() for counters in self._live.values())]
        )
