"""Progress of a run at regular intervals, as lines like those of iperf3.

Agents send their counters about once per second, each at its own time.  A line is due
when all known agents have sent counters since the last line, and most of an interval
has passed.  Times are those of this machine, and rates are those of the undilated
fabric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chakram.records.counter_slots import slot

if TYPE_CHECKING:
    from chakram.summary.collectives_in_flight import CollectivesInFlight


HEADING = (
    "# interval (s)  iterations    transfer       goodput    retx      CE  busy    left"
)

_NEARLY = 0.75
"""Share of an interval that must pass, because counters may arrive slightly early."""

_SENT_AGAIN = (
    "retransmitted_packets_nak",
    "retransmitted_packets_timeout",
    "retransmitted_packets_rnr",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSample:
    """Counters of one agent since the start of the run.

    ``busy_ns`` is the time in which each data-plane process received or sent.  Packet
    counts are None if NICs send the packets.
    """

    delivered_bytes: int = 0
    retransmitted: int | None = 0
    marked: int | None = 0
    busy_ns: Mapping[int, int] = field(default_factory=dict)


def agent_sample(values: Sequence[int], busy_ns: Mapping[int, int]) -> AgentSample:
    """Return a sample of counters laid out as in ``chakram.records.counter_slots``."""
    return AgentSample(
        delivered_bytes=values[slot("delivered_bytes")],
        retransmitted=sum(values[slot(name)] for name in _SENT_AGAIN),
        marked=values[slot("ecn_marked_packets")],
        busy_ns=dict(busy_ns),
    )


class Intervals:
    """Converts agents' samples to progress lines.

    Args:
        every_ns: Time between two lines.
        begin_ns: Start of the run.
        dilation: Factor by which rates are multiplied.
        expected_ns: Expected duration of the run.  It is used until the progress of the
            run allows a prediction.
    """

    def __init__(
        self,
        *,
        every_ns: int,
        begin_ns: int,
        dilation: int = 1,
        expected_ns: int = 0,
    ) -> None:
        self._every_ns = every_ns
        self._dilation = dilation
        self._begin_ns = begin_ns
        self._end_ns = begin_ns + expected_ns
        self._line_ns = begin_ns
        self._last: dict[str, AgentSample] = {}
        # Samples that the last line used, with their times.
        self._before: dict[str, tuple[int, AgentSample]] = {}
        self._times_ns: dict[str, int] = {}
        self._fresh: set[str] = set()

    def take(
        self,
        agent: str,
        sample: AgentSample,
        *,
        now_ns: int,
        done: int,
        total: int,
        work: CollectivesInFlight | None = None,
    ) -> str | None:
        """Take a sample of an agent, and return a line if one is due.

        Args:
            agent: Name of the agent.
            sample: Counters of the agent.
            now_ns: Current time, on the clock of ``begin_ns``.
            done: Number of iterations that all ranks have completed.
            total: Total number of iterations.
            work: Progress that predicts the remaining time. None means no prediction.
        """
        self._last[agent] = sample
        self._times_ns[agent] = now_ns
        self._fresh.add(agent)
        if (
            now_ns - self._line_ns < self._every_ns * _NEARLY
            or self._fresh != self._last.keys()
        ):
            return None
        left_ns = None if work is None else work.left_ns(now_ns - self._begin_ns)
        if left_ns is None and self._end_ns > now_ns:
            left_ns = self._end_ns - now_ns
        line = self._line(now_ns, done, total, left_ns)
        self._before = {
            name: (self._times_ns[name], found) for name, found in self._last.items()
        }
        self._line_ns = now_ns
        self._fresh.clear()
        return line

    def _line(self, now_ns: int, done: int, total: int, left_ns: int | None) -> str:
        sent_bytes = again = marked = 0
        is_counted = True
        rate_bps = busy = 0.0
        nothing = (self._begin_ns, AgentSample())
        for name, sample in self._last.items():
            then_ns, before = self._before.get(name, nothing)
            time_ns = max(1, self._times_ns[name] - then_ns)
            new_bytes = sample.delivered_bytes - before.delivered_bytes
            sent_bytes += new_bytes
            rate_bps += 8e9 * new_bytes * self._dilation / time_ns
            again += _grown(sample.retransmitted, before.retransmitted)
            marked += _grown(sample.marked, before.marked)
            is_counted = is_counted and sample.retransmitted is not None
            for shard, busy_ns in sample.busy_ns.items():
                busy = max(busy, (busy_ns - before.busy_ns.get(shard, 0)) / time_ns)
        counts = (again, marked) if is_counted else ("N/A", "N/A")
        interval = (
            f"{(self._line_ns - self._begin_ns) / 1e9:.1f}-"
            f"{(now_ns - self._begin_ns) / 1e9:.1f}"
        )
        return (
            f"{interval:>14}  {f'{done}/{total}':>10}  {_scaled(sent_bytes, 'B')}  "
            f"{_scaled(rate_bps, 'bit/s')}  {counts[0]:>6}  {counts[1]:>6}  "
            f"{min(1.0, busy):>4.0%}  {time_left(left_ns):>6}"
        )


def _grown(now: int | None, before: int | None) -> int:
    return (now or 0) - (before or 0)


def time_left(left_ns: int | None) -> str:
    """Format a time in at most six characters, or as ``-`` if it is unknown."""
    if left_ns is None:
        return "-"
    seconds = -(-left_ns // 10**9)
    minutes, hours = seconds // 60, seconds // 3600
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m{seconds % 60:02}s" if minutes else f"{seconds}s"


def _scaled(value: float, unit: str) -> str:
    """Format a number with three digits and a decimal unit, for a column."""
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:>6.3g} {prefix}{unit}"
    return f"{value:>6.3g} {unit:>{len(unit) + 1}}"
