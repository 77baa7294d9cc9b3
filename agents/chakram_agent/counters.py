"""Counters in memory that a shard shares with its agent.

A shard writes plain 64-bit integers; the agent copies them whenever somebody asks.
Neither waits for the other: an aligned 64-bit store is seen whole or not at all.  The
first ``TOTAL_SLOTS`` have the layout of ``chakram.core.counters``; what describes the
load of the shard follows.
"""

from __future__ import annotations

import mmap
import os
from array import array

from chakram.control.events import ShardLoad
from chakram.core.counters import TOTAL_SLOTS

__all__ = ["SharedCounters"]

_WALL_NS, _CPU_NS, _MAX_LAG_NS, _LATE_ROUNDS, _ROUNDS = range(
    TOTAL_SLOTS, TOTAL_SLOTS + 5
)
_BYTES = 8 * (TOTAL_SLOTS + 5)


class SharedCounters:
    """The counters of one shard, in memory behind ``descriptor``.

    Args:
        descriptor: Of the memory, which is created by the agent; owned from here on.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map = mmap.mmap(descriptor, _BYTES)
        self.values = memoryview(self._map).cast("q")
        """All slots; writing here is all that a shard does."""

    @classmethod
    def create(cls, name: str) -> SharedCounters:
        """Return new counters, all 0; *name* is what /proc shows."""
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, _BYTES)
            return cls(descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def snapshot(self) -> array[int]:
        """Return a copy of the counters that ``chakram.core.counters`` describes."""
        copy = array("q")
        copy.frombytes(self.values[:TOTAL_SLOTS].tobytes())
        return copy

    def set_load(self, load: ShardLoad) -> None:
        """Write how the shard keeps up."""
        values = self.values
        values[_WALL_NS] = load.wall_ns
        values[_CPU_NS] = load.cpu_ns
        values[_MAX_LAG_NS] = load.max_lag_ns
        values[_LATE_ROUNDS] = load.late_rounds
        values[_ROUNDS] = load.rounds

    def load(self, shard: int) -> ShardLoad:
        """Return how the shard keeps up."""
        values = self.values
        return ShardLoad(
            shard=shard,
            wall_ns=values[_WALL_NS],
            cpu_ns=values[_CPU_NS],
            max_lag_ns=values[_MAX_LAG_NS],
            late_rounds=values[_LATE_ROUNDS],
            rounds=values[_ROUNDS],
        )

    def close(self) -> None:
        """Give the memory back; nothing happens the second time."""
        if self.descriptor >= 0:
            self.values.release()
            self._map.close()
            os.close(self.descriptor)
            self.descriptor = -1
