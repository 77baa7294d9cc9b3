"""State of the exported metrics: plain numbers that the controller updates.

The data plane does not use this module. Agents send copies of their counters, and
records in batches, so an update takes only a few additions. A scrape copies the state
while it holds the lock, then releases the lock and renders the copy.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.analysis.lost_time_causes import Why
from chakram.collectives.ops import CollectiveOp
from chakram.control.events import ShardLoad
from chakram.fabric.labs.link_counters import LabCounters
from chakram.metrics import catalog
from chakram.metrics.switch_values import Value, modeled_values, reported_values
from chakram.plan.nic_queue_pairs import is_verbs
from chakram.plan.plan import Plan
from chakram.plan.port_plan import PortPlan
from chakram.preflight.report import CHECKS, FAILED, UNPROVEN, Finding
from chakram.rdma.hardware_counters import NAMES as NIC_COUNTERS
from chakram.records import counter_slots as layout
from chakram.records import run_records
from chakram.summary.bandwidth import bus_factor
from chakram.topology.topology import Topology

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from chakram.run_directory.manifest import RunManifest

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HistogramValues:
    """Counts of a histogram's buckets, and sum of its values.

    ``chakram.records.counter_slots`` defines the bounds of the buckets.
    """

    counts: tuple[int, ...]
    sum_seconds: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All values, by name of the metric and by the values of its labels."""

    values: Mapping[str, Mapping[Labels, float]]
    histograms: Mapping[str, Mapping[Labels, HistogramValues]]


_AGENT_COUNTERS: tuple[tuple[str, Labels, int, float], ...] = tuple(
    (
        counter.metric,
        () if counter.label is None else (counter.label,),
        place,
        counter.factor,
    )
    for place, counter in enumerate(layout.COUNTERS)
    if counter.metric is not None
)
"""Counters that have a metric: its name, the values of its labels, the index of the
slot, and the factor to the metric's unit."""


_OF_COLLECTIVES = (
    "chakram_collectives_total",
    "chakram_collective_bus_bytes_total",
    "chakram_collective_busy_seconds_total",
)
"""Counters of collectives, by collective and size."""

_OF_PACKETS = ("packets", "retransmitted_packets", "marked_packets")
"""Counters of jobs that a run on RDMA NICs does not have."""


class MetricsState:
    """The metrics of one run. Different threads may update and read them.

    Args:
        run_id: Value of the label ``run_id``.
        info: Additional labels of ``chakram_run_info``. None omits this metric.
        build: Labels of ``chakram_build_info``. None omits this metric.

    Raises:
        ValueError: If a label is missing or unknown.
    """

    def __init__(
        self,
        run_id: str,
        *,
        info: Mapping[str, str] | None = None,
        build: Mapping[str, str] | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._run_id = run_id
        self._values: dict[str, dict[Labels, float]] = {}
        self._counts: dict[str, dict[Labels, list[int]]] = {}
        self._sums: dict[str, dict[Labels, float]] = {}
        self._counters: dict[str, Sequence[int]] = {}
        self._loads: dict[str, dict[int, ShardLoad]] = {}
        self._epoch_s: float | None = None
        self._ranks_of_job: dict[str, int] = {}
        self._nic_agents: set[str] = set()
        self._host_of_nic: dict[int, str] = {}
        self._of_nics: dict[int, Mapping[str, int]] = {}
        self._waits: dict[tuple[object, ...], list[int]] = {}
        self._open_iterations: dict[tuple[str, int], tuple[int, int, int]] = {}
        self._has_own_switches = False
        if info is not None:
            self._set_info("chakram_run_info", info)
        if build is not None:
            self._set_info("chakram_build_info", build)
        self._set("chakram_generator_bound", (), 0)
        self.set_state(catalog.RUN_STATES[0])

    # ---- the run -------------------------------------------------------------------

    def set_state(self, state: str) -> None:
        """Set the state of the run, one of ``RUN_STATES``."""
        if state not in catalog.RUN_STATES:
            raise ValueError(
                f"state {state!r} is not one of {', '.join(catalog.RUN_STATES)}"
            )
        with self._lock:
            for name in catalog.RUN_STATES:
                self._set("chakram_run_state", (name,), int(name == state))

    def set_start_time(self, unix_seconds: float) -> None:
        """Set the time at which traffic started."""
        with self._lock:
            self._set("chakram_run_start_time_seconds", (), unix_seconds)

    def set_end_time(self, unix_seconds: float) -> None:
        """Set the time at which the run ended."""
        with self._lock:
            self._set("chakram_run_end_time_seconds", (), unix_seconds)

    def set_epoch(self, unix_seconds: float) -> None:
        """Set the offset from times in records to Unix time."""
        with self._lock:
            self._epoch_s = unix_seconds

    def set_plan(self, plan: Plan) -> None:
        """Set jobs and agents from the plan, before any record arrives."""
        jobs = Counter(rank.program.job for rank in plan.ranks())
        self.set_nics(plan.ports())
        self.set_jobs(jobs, plan.planned_iterations())
        for agent in plan.agents:
            self.set_agent_up(agent.agent, True)

    def set_nics(self, ports: Iterable[PortPlan]) -> None:
        """Set which ports of a run are on RDMA NICs, whose packets are not counted."""
        ports = list(ports)
        hosts = catalog.host_labels(port.host for port in ports)
        with self._lock:
            self._nic_agents = {port.agent for port in ports} - {
                port.agent for port in ports if not is_verbs(port)
            }
            self._host_of_nic = {
                port.number: hosts[port.host] for port in ports if is_verbs(port)
            }

    def set_nic(self, port: int, counts: Mapping[str, int]) -> None:
        """Set the hardware counters of the RDMA NIC of a port."""
        with self._lock:
            host = self._host_of_nic.get(port)
            if host is None:
                return
            self._of_nics[port] = counts
            for name in counts.keys() & set(NIC_COUNTERS):
                # Hosts beyond the limit share a label.
                total = sum(
                    each.get(name, 0)
                    for other, each in self._of_nics.items()
                    if self._host_of_nic.get(other) == host
                )
                self._set("chakram_nic_events_total", (host, name), total)

    def set_jobs(self, ranks: Mapping[str, int], planned: Mapping[str, int]) -> None:
        """Set the number of ranks per job, and the planned iterations of some jobs."""
        with self._lock:
            self._ranks_of_job = dict(ranks)
            for job in ranks:
                if job in planned:
                    self._set("chakram_iterations_planned", (job,), planned[job])
                # Export zeros first, because rates need the first value of a counter.
                self._add("chakram_iterations_total", (job,), 0)
                self._begin_histogram("chakram_iteration_duration_seconds", (job,))
                for activity in catalog.ACTIVITIES:
                    self._add("chakram_rank_seconds_total", (job, activity), 0)
                for name in self._job_counters():
                    self._add(f"chakram_job_{name}_total", (job,), 0)

    def begin_collectives(
        self, identities: Iterable[run_records.CollectiveIdentity]
    ) -> None:
        """Export zeros for the collectives that will run."""
        with self._lock:
            for identity in identities:
                size = catalog.message_size(identity.size_bytes)
                for name in _OF_COLLECTIVES:
                    self._add(name, (str(identity.op), size), 0)
                name = "chakram_collective_duration_seconds"
                self._begin_histogram(name, (str(identity.op),))

    def begin_messages(self) -> None:
        """Export zeros for the times of messages, if messages are to be added."""
        with self._lock:
            for part in catalog.MESSAGE_PARTS:
                self._add("chakram_message_seconds_total", (part,), 0)

    def set_predictions(
        self,
        source: str,
        times_ns: Mapping[run_records.CollectiveKey, int],
        identities: Iterable[run_records.CollectiveIdentity],
    ) -> None:
        """Set the times that a model predicts for the collectives of an iteration."""
        found: dict[Labels, list[int]] = {}
        labels: Labels
        for identity in identities:
            time_ns = times_ns.get(identity.key)
            if time_ns is not None:
                labels = (
                    str(identity.op),
                    catalog.message_size(identity.size_bytes),
                    source,
                )
                found.setdefault(labels, []).append(time_ns)
        with self._lock:
            for labels, values in found.items():
                name = "chakram_predicted_collective_duration_seconds"
                self._set(name, labels, sum(values) / len(values) * 1e-9)

    def set_preflight(self, findings: Iterable[Finding]) -> None:
        """Set the results of the preflight before the run."""
        pairs: dict[Labels, set[tuple[str, str]]] = {
            (check, verdict): set()
            for check in CHECKS
            for verdict in (FAILED, UNPROVEN)
        }
        for finding in findings:
            pairs[finding.check, finding.verdict].update(finding.pairs)
        with self._lock:
            for labels, found in pairs.items():
                self._set("chakram_preflight_pairs", labels, len(found))

    def add_collectives(self, records: Iterable[run_records.CollectiveRecord]) -> None:
        """Count finished collectives."""
        with self._lock:
            for record in records:
                self._add_collective(record)

    def add_ranks(self, records: Iterable[run_records.RankRecord]) -> None:
        """Count iterations that all ranks of a job completed, and ranks' activities."""
        with self._lock:
            for record in records:
                for activity in catalog.ACTIVITIES:
                    seconds = getattr(record, f"{activity}_ns") * 1e-9
                    labels = (record.job, activity)
                    self._add("chakram_rank_seconds_total", labels, seconds)
                self._add_rank(record)

    def add_messages(self, flows: Mapping[str, NDArray[np.int64]]) -> None:
        """Add the times of finished messages, divided into ``MESSAGE_PARTS``.

        Args:
            flows: Columns that ``FlowRow`` and the table ``flows`` share, by name.
                Unknown values are negative.
        """
        import numpy as np  # not at the top, because agents do not need numpy

        def total(name: str) -> int:
            return int(np.maximum(flows[name], 0).sum())

        departed_ns = flows["departed_ns"]
        flight_ns = (flows["last_acked_ns"] - departed_ns)[departed_ns >= 0]
        # The wait for a busy port includes delays caused by the data plane.
        posting_ns = flows["posted_ns"] - flows["ready_ns"]
        late_ns = np.maximum(flows["generator_wait_ns"] - np.maximum(posting_ns, 0), 0)
        # An RDMA NIC does not report when packets leave.
        on_nic = departed_ns < 0
        own_ns = np.maximum(flows["own_port_ns"], 0)
        in_port_ns = np.where(on_nic, 0, np.minimum(late_ns, own_ns))
        nic_ns = (flows["last_acked_ns"] - flows["posted_ns"] - late_ns)[on_nic]
        lost_ns = int(in_port_ns.sum())
        late_nic_ns = int(late_ns[on_nic].sum())
        seconds = {
            "generator": int(posting_ns.sum()) + lost_ns + late_nic_ns,
            "own port": total("own_port_ns") - lost_ns,
            **{name: total(f"{name}_ns") for name in catalog.MESSAGE_PARTS[2:-1]},
            "network": int(flight_ns.sum()) + int(nic_ns.sum()),
        }
        with self._lock:
            for part in catalog.MESSAGE_PARTS:
                name = "chakram_message_seconds_total"
                self._add(name, (part,), seconds[part] * 1e-9)

    def set_why(self, why: Why) -> None:
        """Set the lost time of the run, by cause."""
        with self._lock:
            for part, time_ns in why.parts_ns.items():
                name = "chakram_critical_path_seconds"
                self._set(name, (str(part),), time_ns * 1e-9)
            for each in why.causes[: catalog.MOST_CAUSES]:
                labels = (each.cause, each.place)
                self._set("chakram_lost_seconds", labels, each.lost_ns * 1e-9)

    def set_hosts(self, hosts: Mapping[str, Mapping[str, int]]) -> None:
        """Set the counters of hosts, by the columns of ``HOST_COUNTERS``."""
        with self._lock:
            for host, counted in hosts.items():
                for column, value in counted.items():
                    name = f"chakram_host_{catalog.HOST_COUNTERS[column][0]}"
                    factor = 1e-9 if column.endswith("_ns") else 1
                    self._set(name, (host,), value * factor)

    def set_queue_pair_rates(self, bytes_per_second: Sequence[float]) -> None:
        """Set the send rates of queue pairs, with one number per queue pair."""
        if not bytes_per_second:
            return
        ordered = sorted(bytes_per_second)
        with self._lock:
            for text in catalog.RATE_SHARES:
                place = round(float(text) * (len(ordered) - 1))
                name = "chakram_queue_pair_sent_bytes_per_second"
                self._set(name, (text,), ordered[place])

    def set_link_bytes(self, link: str, direction: str, nbytes: int) -> None:
        """Set the bytes sent so far in one direction of a link.

        A switch may report packets before their bytes. The computed bytes, which
        exclude the FCS of each packet, could then decrease. The metric does not
        decrease, because Prometheus would take that for a reset.
        """
        name, labels = "chakram_link_bytes_total", (link, direction)
        with self._lock:
            so_far = self._values.get(name, {}).get(labels, 0)
            self._set(name, labels, max(so_far, nbytes))

    def set_switches(
        self,
        topology: Topology,
        counters: LabCounters,
        before: LabCounters | None = None,
    ) -> None:
        """Set the counters of modeled switches.

        Args:
            topology: Topology of the fabric.
            counters: Counters of the fabric.
            before: Counters at the start of the run, which include frames lost in
                earlier runs. None means the counters of a new lab.
        """
        with self._lock:
            self._has_own_switches = True
            self._set_of_switches(modeled_values(topology, counters, before))

    def set_reported(
        self, classes: Iterable[tuple[str, str, int, Mapping[str, int]]]
    ) -> None:
        """Set the counters that switches reported.

        If the switches belong to a lab, the lab's own counters remain, because the lab
        counts drops at once and by reason.

        Args:
            classes: Link, direction, class (negative for a whole port) and counters.
        """
        with self._lock:
            if not self._has_own_switches:
                self._set_of_switches(reported_values(classes))

    # ---- agents --------------------------------------------------------------------

    def set_agent_up(self, agent: str, up: bool) -> None:
        """Record whether an agent responds."""
        with self._lock:
            self._set("chakram_agent_up", (agent,), int(up))

    def set_clock(
        self, agent: str, *, offset_ns: int, uncertainty_ns: int, drift_ppm: float
    ) -> None:
        """Set an agent's clock offset to the controller, its uncertainty and drift."""
        with self._lock:
            for name, time_ns in (
                ("offset", offset_ns),
                ("uncertainty", uncertainty_ns),
            ):
                metric = f"chakram_agent_clock_{name}_seconds"
                self._set(metric, (agent,), time_ns * 1e-9)
            drift = drift_ppm * 1e-6
            self._set("chakram_agent_clock_drift_ratio", (agent,), drift)

    def set_counters(
        self, agent: str, values: Sequence[int], *, of_run: Sequence[int] | None = None
    ) -> None:
        """Set the counters of an agent, as ``chakram.records.counter_slots`` defines.

        Args:
            agent: Name of the agent.
            values: Counters of the agent.
            of_run: Counters of the run in progress, if *values* include earlier runs.
                Messages of earlier runs may have been given up.

        Raises:
            ValueError: If the number of values is wrong.
        """
        if len(values) != layout.TOTAL_SLOTS:
            raise ValueError(
                f"{len(values)} counters of {agent} instead of {layout.TOTAL_SLOTS}"
            )
        with self._lock:
            self._counters[agent] = values
            on_nics = agent in self._nic_agents
            for name, own_labels, source, factor in _AGENT_COUNTERS:
                if on_nics and name not in catalog.NIC_METRICS:
                    continue
                self._set(name, (agent, *own_labels), values[source] * factor)
            own = values if of_run is None else of_run
            active = own[layout.slot("flows_started")] - sum(
                own[layout.slot(name)] for name in ("flows_completed", "flows_failed")
            )
            self._set("chakram_flows_active", (agent,), max(0, active))

    def set_loads(self, agent: str, loads: Sequence[ShardLoad]) -> None:
        """Set the loads of an agent's shards, and the states of their queue pairs.

        A shard whose process has ended is no longer listed. Its last load counts until
        no shard is left, because sums of counters must not decrease.
        """
        with self._lock:
            known = self._loads.setdefault(agent, {})
            if not loads:
                known.clear()
            known.update((load.shard, load) for load in loads)
            listed = list(known.values())

        def total(name: str) -> int:
            return sum(getattr(load, name) for load in listed)

        limited, failed = total("queue_pairs_limited"), total("queue_pairs_failed")
        at_line = total("queue_pairs") - limited - failed
        lag_max_ns = max((load.max_lag_ns for load in listed), default=0)
        with self._lock:
            for name, value in (
                ("lag_max_seconds", lag_max_ns * 1e-9),
                ("rounds_total", total("rounds")),
                ("late_rounds_total", total("late_rounds")),
                ("busy_seconds_total", total("busy_ns") * 1e-9),
            ):
                self._set(f"chakram_generator_{name}", (agent,), value)
            counts = (at_line, limited, failed)
            for state, count in zip(catalog.QUEUE_PAIR_STATES, counts, strict=True):
                self._set("chakram_queue_pairs", (agent, state), count)

    # ---- reading -------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return a copy of all values, with all labels."""
        with self._lock:
            values = {
                name: {self._full(name, labels): value for labels, value in own.items()}
                for name, own in self._values.items()
            }
            histograms = {
                name: {
                    self._full(name, labels): HistogramValues(
                        tuple(counts), self._sums[name][labels]
                    )
                    for labels, counts in own.items()
                }
                for name, own in self._counts.items()
            }
            counters = list(self._counters.values())
            by_agent = dict(self._counters)
        for name in layout.DISTRIBUTIONS:
            first = layout.distribution_slot(name)
            for agent, counted in by_agent.items():
                metric = f"chakram_{name}_seconds"
                histograms.setdefault(metric, {})[self._full(metric, (agent,))] = (
                    HistogramValues(
                        tuple(counted[first : first + layout.FCT_BUCKETS]),
                        counted[first + layout.FCT_BUCKETS] * 1e-9,
                    )
                )
        if counters:
            name = "chakram_flow_completion_seconds"
            histograms[name] = {
                self._full(name, (str(found.op),)): HistogramValues(
                    found.counts, found.sum_ns * 1e-9
                )
                for found in layout.fct_histograms(layout.sum_counters(counters))
            }
        return Snapshot(values, histograms)

    # ---- internal methods, which require the lock -----------------------------------

    def _job_counters(self) -> tuple[str, ...]:
        """Return the counters of jobs, without ``chakram_job_`` and ``_total``."""
        own = ("collectives", "collective_seconds", "bus_bytes", "sent_bytes")
        return own if self._host_of_nic else (*own, *_OF_PACKETS)

    def _begin_histogram(self, name: str, labels: Labels) -> None:
        counts = self._counts.setdefault(name, {})
        counts.setdefault(labels, [0] * layout.FCT_BUCKETS)
        self._sums.setdefault(name, {}).setdefault(labels, 0.0)

    def _add_collective(self, record: run_records.CollectiveRecord) -> None:
        identity = record.identity
        labels = (str(identity.op), catalog.message_size(identity.size_bytes))
        seconds = record.duration_ns * 1e-9
        self._add("chakram_collectives_total", labels, 1)
        self._add("chakram_collective_busy_seconds_total", labels, seconds)
        factor = float(bus_factor(identity.op, nranks=identity.nranks))
        bus_bytes = identity.size_bytes * factor
        self._add("chakram_collective_bus_bytes_total", labels, bus_bytes)
        if bus_bytes and seconds > 0:
            name = "chakram_collective_bus_bandwidth_bytes_per_second"
            self._set(name, labels, bus_bytes / seconds)
        name = "chakram_collective_duration_seconds"
        self._observe(name, labels[:1], record.duration_ns)
        own: dict[str, float] = {
            "collectives": 1,
            "collective_seconds": seconds,
            "bus_bytes": bus_bytes,
            "sent_bytes": record.sent_bytes,
            "packets": record.packets,
            "retransmitted_packets": record.retransmitted,
            "marked_packets": record.ce,
        }
        for name in self._job_counters():
            self._add(f"chakram_job_{name}_total", (identity.key.job,), own[name])
        if record.measured and identity.op is not CollectiveOp.BARRIER:
            self._judge(record, labels[:1])

    def _judge(self, record: run_records.CollectiveRecord, labels: Labels) -> None:
        """Add a collective's wait for the generator, and update the verdict."""
        if record.generator_bound:
            self._add("chakram_generator_bound_collectives_total", labels, 1)
        identity = record.identity
        kind = (identity.key.job, identity.op, identity.algorithm, identity.nranks)
        waits = self._waits.setdefault((*kind, identity.size_bytes), [0, 0])
        waits[0] += record.generator_wait_ns
        waits[1] += record.duration_ns
        is_bound = any(
            run_records.is_generator_bound(wait_ns / max(1, time_ns))
            for wait_ns, time_ns in self._waits.values()
        )
        self._set("chakram_generator_bound", (), int(is_bound))

    def _add_rank(self, record: run_records.RankRecord) -> None:
        key = (record.job, record.iteration)
        count, start_ns, end_ns = self._open_iterations.pop(
            key, (0, record.start_ns, record.end_ns)
        )
        count += 1
        start_ns, end_ns = min(start_ns, record.start_ns), max(end_ns, record.end_ns)
        if count >= self._ranks_of_job.get(record.job, 1):
            self._add("chakram_iterations_total", (record.job,), 1)
            name = "chakram_iteration_duration_seconds"
            self._observe(name, (record.job,), end_ns - start_ns)
            if self._epoch_s is not None:
                name = "chakram_iteration_end_time_seconds"
                self._set(name, (record.job,), self._epoch_s + end_ns * 1e-9)
        else:
            self._open_iterations[key] = (count, start_ns, end_ns)

    def _set_of_switches(self, values: Iterable[Value]) -> None:
        for name, labels, value in values:
            self._set(f"chakram_switch_{name}", labels, value)

    def _set(self, name: str, labels: Labels, value: float) -> None:
        _check_labels(name, labels)
        self._values.setdefault(name, {})[labels] = value

    def _add(self, name: str, labels: Labels, value: float) -> None:
        _check_labels(name, labels)
        own = self._values.setdefault(name, {})
        own[labels] = own.get(labels, 0) + value

    def _observe(self, name: str, labels: Labels, time_ns: int) -> None:
        _check_labels(name, labels)
        counts = self._counts.setdefault(name, {}).setdefault(
            labels, [0] * layout.FCT_BUCKETS
        )
        counts[layout.fct_bucket(time_ns)] += 1
        sums = self._sums.setdefault(name, {})
        sums[labels] = sums.get(labels, 0.0) + time_ns * 1e-9

    def _set_info(self, name: str, labels: Mapping[str, str]) -> None:
        names = _labels_given(name)
        if set(labels) != set(names):
            raise ValueError(
                f"{name} has the labels {', '.join(names)}, not {', '.join(labels)}"
            )
        self._set(name, tuple(labels[label] for label in names), 1)

    def _full(self, name: str, labels: Labels) -> Labels:
        if catalog.BY_NAME[name].label_names[:1] == ("run_id",):
            return (self._run_id, *labels)
        return labels


def metrics_of(manifest: RunManifest) -> MetricsState:
    """Return the initial metrics of a run."""
    transport = manifest.experiment.get("transport", {})
    controls = transport.get("congestion_control") or {}
    return MetricsState(
        manifest.run_id,
        info={
            "name": manifest.name,
            "case": manifest.case or "",
            "world": manifest.world,
            "congestion_control": next(
                (name for name, given in controls.items() if given is not None), "none"
            ),
            "size_scale": manifest.size_scale,
            "dilation": str(manifest.dilation),
        },
        build={
            "version": manifest.versions.get("chakram", ""),
            "python": manifest.versions.get("python", ""),
            "compiled": str(bool(manifest.compiled.get("all_compiled"))).lower(),
        },
    )


def _labels_given(name: str) -> tuple[str, ...]:
    """Return the labels whose values callers pass: all except ``run_id``."""
    return tuple(each for each in catalog.BY_NAME[name].label_names if each != "run_id")


def _check_labels(name: str, labels: Labels) -> None:
    """Reject a wrong number of label values, because ``zip`` would drop values."""
    if len(labels) != _LABELS_GIVEN[name]:
        raise ValueError(
            f"{name} has the labels {', '.join(_labels_given(name))}, "
            f"not as many as {labels}"
        )


_LABELS_GIVEN = {name: len(_labels_given(name)) for name in catalog.BY_NAME}
