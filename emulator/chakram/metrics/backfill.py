"""Export of a finished run as OpenMetrics text with timestamps, for Prometheus.

``promtool tsdb create-blocks-from openmetrics`` reads the text. The names of the
metrics and the code that computes them (``chakram.metrics.state``) are the same as for
a run in progress. The export replays the events of the run in order, and reads the
metrics after every step. Collectives, iterations and messages count at their end.
Counters of queue pairs and ports change at their samples. Metrics without samples
(``chakram.run_directory.writer.LAST_METRICS``) are 0 until the end.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from chakram.analysis.run_causes import why_of
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import DamagedRun, InputError
from chakram.metrics.catalog import COUNTER, HISTOGRAM, METRICS, Metric
from chakram.metrics.exporter import BOUNDS
from chakram.metrics.live_samples_json import LiveRows
from chakram.metrics.state import Snapshot, metrics_of
from chakram.records import counter_definitions, row_layout
from chakram.records import counter_slots as layout
from chakram.run_directory.manifest import RUNNING
from chakram.run_directory.plan_document import PlanDocument
from chakram.run_directory.queue_pair_names import QueuePairNames
from chakram.run_directory.reader import RunResults
from chakram.run_directory.writer import LAST_METRICS

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


JOB, INSTANCE = "chakram", "backfill"
"""Values of the labels that Prometheus adds to scraped series."""

MOST_STEPS = 100_000
"""Limit on the number of steps of a run, enough for 1000 s in steps of 10 ms."""

_KEEP_MS = 1000
"""Interval between samples of an unchanged series. A rate needs two samples."""

_OF_QUEUE_PAIRS = {
    counter.column: layout.slot(counter.slot)
    for counter in counter_definitions.counters_of(
        counter_definitions.QueuePairStatistics
    )
    # The number of posted messages grows with each message, not with samples.
    if counter.column and counter.slot and counter.name != "messages_posted"
}
_OF_PORTS = {
    counter.column: layout.slot(counter.slot)
    for counter in counter_definitions.counters_of(counter_definitions.PortStatistics)
    if counter.column and counter.slot
} | {name: layout.slot(name) for name in ("rx_bytes", "socket_drops", "send_retries")}
"""Slot in the agent's counters, by column of the samples of ports."""

Key = tuple[int, tuple[str, ...]]
"""Key of a series or histogram: the index of its metric in the catalog, and labels."""

Values = dict[Key, tuple[float, ...]]
"""Values at one time: a number per series, or buckets, count and sum per histogram."""


def openmetrics(results: RunResults, *, step_ns: int) -> Iterator[str]:
    """Return the metrics of a run over time, as lines of OpenMetrics text.

    Args:
        results: Results of a run or simulation that has ended.
        step_ns: Time between two readings. Must be a multiple of a millisecond.

    Raises:
        InputError: If the run has not ended, nothing was recorded, or there are too
            many steps.
    """
    where = str(results.path)
    if results.manifest.status == RUNNING:
        raise InputError(where, "has not ended", "wait for its end")
    replay = _Replay(results)
    start_ns = replay.start_ns
    steps = -(-(replay.end_ns - start_ns) // step_ns)
    if steps > MOST_STEPS:
        least_ms = -(-(replay.end_ns - start_ns) // MOST_STEPS // 10**6)
        raise InputError(
            where,
            f"takes {steps:,} steps, but at most {MOST_STEPS:,} are allowed",
            f"use longer steps: --step {least_ms}ms",
        )
    step_ms = step_ns // 10**6
    start_ms = (replay.epoch_ns + start_ns) // 10**6
    series = _Series()
    series.look(start_ms, start_ms, replay.begin())
    last_ms = start_ms
    times_ns = np.concatenate([each.times_ns for each in replay.events])
    # A step includes all events until its end. The first step also includes the events
    # before the start.
    ends = np.unique(np.maximum(-(-(times_ns - start_ns) // step_ns), 1))
    for step in ends.tolist():
        time_ms = start_ms + step * step_ms
        series.look(
            time_ms,
            max(last_ms, time_ms - step_ms),
            replay.advance(start_ns + step * step_ns),
        )
        last_ms = time_ms
    end_ms = max(last_ms, start_ms) + step_ms
    series.look(end_ms, last_ms, replay.finish(), is_last=True)
    return series.lines()


class _Events(NamedTuple):
    """Events of one kind, by time. ``take`` processes a range of them."""

    times_ns: NDArray[np.int64]
    take: Callable[[int, int], None]


class _Names(QueuePairNames):
    """Lookup of the hosts of ports and the ports of ranks in a recorded plan."""

    def __init__(self, plan: PlanDocument) -> None:
        super().__init__(())
        self._hosts = {port.number: port.host for port in plan.ports}
        self._places = {rank.number: (rank.port, rank.shard) for rank in plan.ranks}

    def hosts(self) -> dict[int, str]:
        return self._hosts

    def place(self, number: int) -> tuple[int, int] | None:
        return self._places.get(number)


def _begun_ns(results: RunResults) -> int:
    """Return when a run was started, in ns since 1970.

    Raises:
        RunDirectoryError: If the manifest has no valid start time.
    """
    text = results.manifest.started_at
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1e9)
    except ValueError:
        raise DamagedRun(
            str(results.path), f"run.json: started_at is not a time: {text!r}"
        ) from None


class _Replay:
    """Replay of a run's events, which updates metrics.

    Attributes:
        start_ns, end_ns: Start and end of the events, on the clock of the records.
        epoch_ns: Offset from that clock to Unix time.
        events: Events by kind.

    Raises:
        InputError: If nothing was recorded.
    """

    def __init__(self, results: RunResults) -> None:
        manifest = results.manifest
        plan = results.plan()
        ranks = results.ranks()
        if plan is None or not ranks:
            raise InputError(
                str(results.path),
                "contains no record of an iteration",
                results.incomplete,
            )
        self._results = results
        self._state = metrics_of(manifest)
        self._live = LiveRows()
        self._live.begin_of(_Names(plan))
        self._number = {(rank.job, rank.rank): rank.number for rank in plan.ranks}
        self._agent_of_rank = {rank.number: rank.agent for rank in plan.ranks}
        self._agent_of_port = {port.number: port.agent for port in plan.ports}
        # Older and damaged plans do not list the agents.
        listed = [each.agent for each in plan.agents]
        used = [rank.agent for rank in plan.ranks]
        names = dict.fromkeys(listed or used)
        self._agents = {agent: at for at, agent in enumerate(names)}
        self._counters = np.zeros((len(self._agents), layout.TOTAL_SLOTS), np.int64)
        events = chain(self._records(), self._messages(), self._samples())
        self.events = [each for each in events if len(each.times_ns)]
        self._done = [0] * len(self.events)
        self.start_ns = min(rank.start_ns for rank in ranks)
        self.end_ns = max(int(each.times_ns[-1]) for each in self.events)
        self.epoch_ns = manifest.unix_offset_ns or _begun_ns(results) - self.start_ns

    def begin(self) -> Values:
        """Return the values at the start of traffic."""
        results, state = self._results, self._state
        manifest = results.manifest
        jobs = manifest.jobs
        state.set_epoch(self.epoch_ns * 1e-9)
        state.set_start_time((self.epoch_ns + self.start_ns) * 1e-9)
        state.set_state("running")
        planned = {job: each.get("iterations") for job, each in jobs.items()}
        if manifest.nics:
            state.set_nics(results.ports())
        state.set_jobs(
            {job: each["ranks"] for job, each in jobs.items()},
            {job: count for job, count in planned.items() if count is not None},
        )
        state.begin_collectives(each.identity for each in results.collectives())
        state.begin_messages()
        for agent in self._agents:
            state.set_agent_up(agent, True)
        for link in results.links():
            state.set_link_bytes(link.link, link.direction, 0)
        found = self.advance(self.start_ns)
        # Counters and histograms without samples start at 0.
        for key, numbers in self._last().items():
            metric = METRICS[key[0]]
            if key in found:
                continue
            if metric.kind in (COUNTER, HISTOGRAM):
                found[key] = (0,) * len(numbers)
            elif metric.name in _KNOWN_BEFORE:
                found[key] = numbers
        return found

    def advance(self, until_ns: int) -> Values:
        """Replay events until a time, and return the values at that time."""
        for at, each in enumerate(self.events):
            last = int(np.searchsorted(each.times_ns, until_ns, side="right"))
            if last > self._done[at]:
                each.take(self._done[at], last)
                self._done[at] = last
        for agent, at in self._agents.items():
            self._state.set_counters(agent, self._counters[at].tolist())
        self._live.show(self._state)
        return _values(self._state.snapshot())

    def finish(self) -> Values:
        """Return the values for the whole run."""
        results, state = self._results, self._state
        for link in results.links():
            state.set_link_bytes(link.link, link.direction, link.bytes)
        with suppress(InputError):  # if there is no measured iteration
            state.set_why(why_of(results))
        status = results.manifest.status
        state.set_state(status)
        state.set_end_time((self.epoch_ns + self.end_ns) * 1e-9)
        return _values(state.snapshot()) | self._last()

    def _last(self) -> Values:
        """Return the final values that the run served, empty for simulations."""
        path = self._results.path / LAST_METRICS
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else "# EOF\n"
            read: Any = text_string_to_metric_families
            families = list(read(text))
        except (OSError, ValueError) as error:
            raise DamagedRun(
                str(path), f"is not in the text format of metrics: {error}", "remove it"
            ) from error
        places = {
            metric.name.removesuffix("_total").removesuffix("_info"): place
            for place, metric in enumerate(METRICS)
        }
        found: Values = {}
        for family in families:
            if family.name in places:
                place = places[family.name]
                names = METRICS[place].label_names
                for sample in family.samples:
                    key = place, tuple(sample.labels.get(name, "") for name in names)
                    found[key] = (*found.get(key, ()), sample.value)
        return found

    # ---- events ---------------------------------------------------------------------

    def _records(self) -> Iterator[_Events]:
        ended = [each for each in self._results.collectives() if each.complete]
        ended.sort(key=lambda each: each.end_ns)
        yield _Events(
            np.array([each.end_ns for each in ended], np.int64),
            lambda first, last: self._state.add_collectives(ended[first:last]),
        )
        ranks = sorted(self._results.ranks(), key=lambda each: each.end_ns)
        yield _Events(
            np.array([each.end_ns for each in ranks], np.int64),
            lambda first, last: self._state.add_ranks(ranks[first:last]),
        )

    def _messages(self) -> Iterator[_Events]:
        names = [name for name in row_layout.FLOW_FIELDS if name.endswith("_ns")]
        known = [name for name in names if name in self._results.columns("flows")]
        table = self._results.table(
            "flows", "job", "src", "bytes", "collective", *known
        )
        agents = self._of_ranks(table, "src")
        columns = {name: _numbers(table, name) for name in ("bytes", *known)}
        unknown = np.full(table.num_rows, row_layout.UNKNOWN, np.int64)
        columns |= {name: unknown for name in names if name not in columns}
        posted = np.argsort(columns["posted_ns"], kind="stable")
        started_slot = layout.slot("flows_started")

        def start(first: int, last: int) -> None:
            np.add.at(self._counters[:, started_slot], agents[posted[first:last]], 1)

        yield _Events(columns["posted_ns"][posted], start)
        order = np.argsort(columns["last_acked_ns"], kind="stable")
        columns = {name: values[order] for name, values in columns.items()}
        agents_then = agents[order]
        collectives = table["collective"].combine_chunks().take(order)
        ops = [CollectiveOp(name) for name in collectives.dictionary.to_pylist()]
        op_of = collectives.indices.to_numpy()
        fct_ns = columns["last_acked_ns"] - columns["posted_ns"]
        done, delivered = layout.slot("flows_completed"), layout.slot("delivered_bytes")

        def end(first: int, last: int) -> None:
            part = slice(first, last)
            own = agents_then[part]
            counters = self._counters
            np.add.at(counters[:, done], own, 1)
            np.add.at(counters[:, delivered], own, columns["bytes"][part])
            times = zip(own.tolist(), op_of[part], fct_ns[part].tolist(), strict=True)
            for agent, op, time_ns in times:
                counters[
                    agent, layout.fct_slot(ops[op], layout.fct_bucket(time_ns))
                ] += 1
                counters[agent, layout.fct_sum_slot(ops[op])] += time_ns
            self._state.add_messages(
                {name: values[part] for name, values in columns.items()}
            )

        yield _Events(columns["last_acked_ns"], end)

    def _samples(self) -> Iterator[_Events]:
        for name, fields, keys, slots in (
            (
                "queue_pairs",
                row_layout.QUEUE_PAIR_FIELDS,
                ("rank", "qpn"),
                _OF_QUEUE_PAIRS,
            ),
            ("ports", row_layout.PORT_FIELDS, ("port", "shard"), _OF_PORTS),
        ):
            table = self._results.table(name)
            if not table.num_rows:
                continue
            columns = {
                field: _numbers(table, field)
                for field in fields
                if field in table.column_names and field != "alpha"
            }
            if name == "queue_pairs":
                columns["rank"] = self._numbers_of_ranks(table, "rank")
                agents = self._of_ranks(table, "rank")
            else:
                places = map(self._agent_of_port.get, columns["port"].tolist())
                agents = np.array([self._agents[str(agent)] for agent in places])
            yield self._sampled(name, fields, columns, agents, keys, slots)

    def _sampled(
        self,
        name: str,
        fields: Sequence[str],
        columns: dict[str, NDArray[np.int64]],
        agents: NDArray[np.int64],
        keys: tuple[str, str],
        slots: Mapping[str, int],
    ) -> _Events:
        """Return events that add samples to the counters of their agents."""
        order = np.lexsort([columns["time_ns"], columns[keys[1]], columns[keys[0]]])
        counted = {column: at for column, at in slots.items() if column in columns}
        values = np.stack([columns[column][order] for column in counted], axis=1)
        added = np.diff(values, axis=0, prepend=0 * values[:1])
        is_first = np.ones(len(order), bool)
        is_first[1:] = np.any(
            [np.diff(columns[key][order]) != 0 for key in keys], axis=0
        )
        added[is_first] = values[is_first]
        by_time = np.argsort(columns["time_ns"][order], kind="stable")
        order, added = order[by_time], added[by_time]
        agents = agents[order]
        unknown = np.full(len(order), row_layout.UNKNOWN, np.int64)
        known = (
            columns[field][order] if field in columns else unknown for field in fields
        )
        rows = np.stack(list(known), axis=1)
        places = list(counted.values())

        def take(first: int, last: int) -> None:
            for agent in np.unique(agents[first:last]).tolist():
                own = agents[first:last] == agent
                self._counters[agent, places] += added[first:last][own].sum(axis=0)
            flat = array("q", np.ascontiguousarray(rows[first:last]).tobytes())
            self._live.take(row_layout.RecordRows(**{name: flat}))

        return _Events(columns["time_ns"][order], take)

    def _numbers_of_ranks(self, table: pa.Table, column: str) -> NDArray[np.int64]:
        """Return the number that the rank of each row has in the plan."""
        jobs, ranks = table["job"].to_pylist(), table[column].to_pylist()
        return np.array(
            [self._number[key] for key in zip(jobs, ranks, strict=True)], np.int64
        )

    def _of_ranks(self, table: pa.Table, column: str) -> NDArray[np.int64]:
        """Return the index of the agent that ran the rank of each row."""
        numbers = self._numbers_of_ranks(table, column).tolist()
        return np.array(
            [self._agents[self._agent_of_rank[each]] for each in numbers], np.int64
        )


_KNOWN_BEFORE = frozenset(
    {
        "chakram_predicted_collective_duration_seconds",
        "chakram_preflight_pairs",
        "chakram_agent_clock_offset_seconds",
        "chakram_agent_clock_uncertainty_seconds",
        "chakram_agent_clock_drift_ratio",
    }
)
"""Gauges whose values do not change during a run."""


class _Series:
    """Samples of all series. Most repeated values are left out."""

    def __init__(self) -> None:
        self._samples: dict[Key, list[tuple[int, tuple[float, ...]]]] = {}

    def look(
        self, time_ms: int, before_ms: int, values: Values, *, is_last: bool = False
    ) -> None:
        """Add the values at *time_ms*. Values did not change before *before_ms*."""
        for key, numbers in values.items():
            samples = self._samples.get(key)
            if samples is None:
                self._samples[key] = [(time_ms, numbers)]
                continue
            last_ms, last = samples[-1]
            if numbers != last:
                # Repeat the last value, so that graphs show a step and not a slope.
                if last_ms < before_ms < time_ms:
                    samples.append((before_ms, last))
                samples.append((time_ms, numbers))
            elif time_ms > last_ms and (is_last or time_ms - last_ms >= _KEEP_MS):
                samples.append((time_ms, numbers))

    def lines(self) -> Iterator[str]:
        """Yield lines of text, grouped by metric as OpenMetrics requires."""
        before = -1
        for key in sorted(self._samples, key=lambda key: key[0]):
            place, labels = key
            if place != before:
                before = place
                yield from _head(METRICS[place])
            names = _names(METRICS[place], labels)
            for time_ms, numbers in self._samples[key]:
                seconds, rest = divmod(time_ms, 1000)
                for name, number in zip(names, numbers, strict=True):
                    yield f"{name} {number!r} {seconds}.{rest:03}\n"
        yield "# EOF\n"


def _head(metric: Metric) -> Iterator[str]:
    name = metric.name.removesuffix("_total").removesuffix("_info")
    yield f"# TYPE {name} {metric.kind}\n"
    yield f"# HELP {name} {_escaped(metric.help)}\n"


def _values(snapshot: Snapshot) -> Values:
    """Return the values of all series in a snapshot."""
    found: Values = {}
    for place, metric in enumerate(METRICS):
        for labels, value in snapshot.values.get(metric.name, {}).items():
            found[place, labels] = (value,)
        for labels, histogram in snapshot.histograms.get(metric.name, {}).items():
            counts = tuple(accumulate(histogram.counts))
            found[place, labels] = (*counts, counts[-1], histogram.sum_seconds)
    return found


def _names(metric: Metric, labels: tuple[str, ...]) -> list[str]:
    """Return a series, or all series of a histogram, in the notation of OpenMetrics."""
    own = dict(zip(metric.label_names, labels, strict=True))
    own = {"job": JOB, "instance": INSTANCE, **own}
    text = ",".join(f'{name}="{_escaped(value)}"' for name, value in own.items())
    if metric.kind != HISTOGRAM:
        return [f"{metric.name}{{{text}}}"]
    buckets = [f'{metric.name}_bucket{{{text},le="{bound}"}}' for bound in BOUNDS]
    return [*buckets, f"{metric.name}_count{{{text}}}", f"{metric.name}_sum{{{text}}}"]


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    filled = pc.fill_null(table[name], row_layout.UNKNOWN)
    return np.asarray(filled.to_numpy(), np.int64)
