"""Catalog of all metrics, for the exporter, the reference and the dashboard checks.

Names and units follow Prometheus conventions: seconds and bytes, and ``_total``
on counters. Metrics have few labels, with limits on the number of values. A label never
identifies a flow, a peer, a queue pair or an address, and never contains free text. The
run directory contains the data of single flows. All values are raw: a run with dilation
exports the time that actually passed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from chakram.analysis.critical_path import Part
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.units import format_size
from chakram.preflight.report import CHECKS, FAILED, UNPROVEN
from chakram.rdma.hardware_counters import NAMES as NIC_COUNTERS
from chakram.records.counter_definitions import FAMILIES
from chakram.records.counter_slots import COUNTERS, FCT_BUCKET_BOUNDS_NS
from chakram.switch.packet_outcomes import DROP_REASONS

COUNTER = "counter"
GAUGE = "gauge"
HISTOGRAM = "histogram"
INFO = "info"

RUN = "run"
AGENT = "agent"
SWITCHES = "switches"
BUILD = "build"

RUN_STATES = ("preparing", "running", "complete", "partial", "failed", "killed")
"""Values of the label ``state``."""

ACTIVITIES = ("compute", "communication", "exposed", "idle")
"""Values of the label ``activity``."""

QUEUE_PAIR_STATES = ("at_line", "limited", "failed")
"""States of queue pairs: at their initial rate, below it, or in the error state."""

SOURCES = ("bound", "alone", "simulate")
"""Values of the label ``source``."""

MESSAGE_PARTS = (
    *("generator", "own port", "window", "pace", "pause", "transfer", "repair"),
    "network",
)
"""Values of the label ``part`` of messages, as in ``chakram why``."""

MOST_CAUSES = 16
"""Limit on causes of lost time in the metrics, which contain the largest causes."""

MOST_HOSTS = 64
"""Limit on values of the label ``host``. ``OTHERS`` represents all further hosts."""

OTHERS = "others"

RATE_SHARES = ("0", "0.5", "0.99", "1")
"""Values of the label ``share``: the fraction of queue pairs that do not exceed the
rate. The rates are the minimum, median, 99th percentile and maximum."""

_SIZE_BOUNDS_BYTES = tuple(1024 << (2 * step) for step in range(11))
LARGER = "larger"
MESSAGE_SIZES = (*(format_size(bound) for bound in _SIZE_BOUNDS_BYTES), LARGER)
"""Values of the label ``message_size``: upper limits on the nccl-tests size S."""


def host_labels(hosts: Iterable[str]) -> dict[str, str]:
    """Return the value of the label ``host`` for each host."""
    names = list(dict.fromkeys(hosts))
    if len(names) <= MOST_HOSTS:
        return {name: name for name in names}
    own = set(names[: MOST_HOSTS - 1])
    return {name: name if name in own else OTHERS for name in names}


def message_size(size_bytes: int) -> str:
    """Return the value of the label ``message_size``: the smallest limit that fits."""
    return MESSAGE_SIZES[bisect_left(_SIZE_BOUNDS_BYTES, size_bytes)]


HOST_COUNTERS = {
    "tx_bytes": ("tx_bytes_total", "Bytes sent by a host: layer 2 without FCS."),
    "rx_bytes": ("rx_bytes_total", "Bytes received by a host: layer 2 without FCS."),
    "data_frames_retransmitted": (
        "retransmitted_packets_total",
        "Packets that a host retransmitted.",
    ),
    "ecn_ce_rx": (
        "marked_packets_total",
        "Data packets that a host received with a congestion mark.",
    ),
    "cnp_rx": ("cnp_received_total", "Congestion notifications that a host received."),
    "ack_timeouts": ("ack_timeouts_total", "Acknowledgment timeouts."),
    "generator_wait_ns": (
        "generator_wait_seconds_total",
        "Time that ports of a host stalled for the data plane.",
    ),
    "paused_ns": (
        "paused_seconds_total",
        "Time that data of a host was paused by pause frames of the fabric.",
    ),
}
"""Host metrics and their help texts, by column of the samples of ports or queue pairs.
Metrics of columns that end in ``_ns`` are in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A label, with its meaning and its maximum number of values."""

    name: str
    values: int
    help: str


_RUN_ID = Label(name="run_id", values=1, help="ID of the run.")
_AGENT = Label(name="agent", values=1, help="Name of the agent.")
_COLLECTIVE = Label(
    name="collective",
    values=len(CollectiveOp),
    help="`all_reduce`, `all_to_all` ... `send_recv` for point-to-point messages.",
)
_MESSAGE_SIZE = Label(
    name="message_size",
    values=len(MESSAGE_SIZES),
    help=(
        "Upper limit on size S, as in nccl-tests: `1KiB`, `4KiB`, `16KiB` ... `1GiB`, "
        f"`{LARGER}`."
    ),
)
# Not `job`: Prometheus uses that label for scrape targets and would rename ours.
_JOB = Label(name="chakram_job", values=64, help="Name of the job.")
_LINK = Label(name="link", values=64, help="Link, such as `leaf1-spine1`.")
_HOST = Label(
    name="host",
    values=MOST_HOSTS,
    help=(
        f"Host, such as `host0`; `{OTHERS}`: all hosts beyond the first "
        f"{MOST_HOSTS - 1}."
    ),
)
_DIRECTION = Label(name="direction", values=2, help="`up` (away from hosts) or `down`.")
_CLASS = Label(name="class", values=8, help="Traffic class, `0` to `7`.")


NIC_METRICS = frozenset(
    f"chakram_{name}_total"
    for name in (
        "flows_started",
        "flows_completed",
        "verified_packets",
        "wrong_payload_packets",
        "delivered_bytes",
        "samples_dropped",
        "cpu_seconds",
    )
)
"""Counters of an agent whose ports are all on RDMA NICs. The other counters count
packets, which the NICs send."""


def _words(name: str, values: tuple[str, ...]) -> Label:
    listed = ", ".join(f"`{value}`" for value in values)
    return Label(name=name, values=len(values), help=f"One of {listed}.")


_PART = _words("part", tuple(Part))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric: name, kind, help text, scope and labels.

    ``name`` is the name of its samples, with ``_total`` for counters and ``_info`` for
    infos. ``scope`` is the entity that has one set of the metric's series: the run,
    each agent, the modeled switches of a lab, or the build.
    """

    name: str
    kind: str
    help: str
    scope: str = RUN
    own_labels: tuple[Label, ...] = ()

    @property
    def labels(self) -> tuple[Label, ...]:
        """All labels: the labels of the scope, then the metric's own labels."""
        if self.scope == BUILD:
            return self.own_labels
        if self.scope == AGENT:
            return (_RUN_ID, _AGENT, *self.own_labels)
        return (_RUN_ID, *self.own_labels)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of all labels."""
        return tuple(label.name for label in self.labels)

    @property
    def max_series(self) -> int:
        """Largest number of the metric's series in one run, agent or build."""
        series = 1
        for label in self.labels:
            series *= label.values
        # Finite buckets, the ``+Inf`` bucket, sum and count.
        return series * (len(FCT_BUCKET_BOUNDS_NS) + 3 if self.kind == HISTOGRAM else 1)


def _metric(kind: str) -> Callable[..., Metric]:
    def made(name: str, text: str, *labels: Label) -> Metric:
        return Metric(name=name, kind=kind, help=text, own_labels=labels)

    return made


_counter, _gauge = _metric(COUNTER), _metric(GAUGE)
_histogram, _info = _metric(HISTOGRAM), _metric(INFO)


def _scoped(scope: str, *metrics: Metric) -> tuple[Metric, ...]:
    """Return *metrics* with the given scope."""
    return tuple(replace(metric, scope=scope) for metric in metrics)


def _text(name: str, about: str) -> Label:
    return Label(name=name, values=1, help=about)


_BUILD_METRICS = _scoped(
    BUILD,
    _info(
        "chakram_build_info",
        "Version of Chakram, and whether its hot modules are compiled; always 1.",
        _text("version", "Version of Chakram."),
        _text("python", "Python version."),
        _text("compiled", "`true` if all hot modules are compiled."),
    ),
)

_RUN_METRICS = (
    _info(
        "chakram_run_info",
        "Properties of the run, as labels; always 1.",
        _text("name", "Name of the experiment."),
        _text("case", "Case of the suite; empty outside of suites."),
        _text("world", "`namespaces`, `loopback`, `external` or `simulate`."),
        _text("congestion_control", "Name of the congestion control."),
        _text("size_scale", "Factor applied to all message sizes."),
        _text("dilation", "Factor by which time is stretched."),
    ),
    _gauge(
        "chakram_run_state",
        "1 for the current state of the run, 0 for the others.",
        _words("state", RUN_STATES),
    ),
    _gauge("chakram_run_start_time_seconds", "Unix time at which traffic started."),
    _gauge("chakram_run_end_time_seconds", "Unix time at which the run ended."),
    _gauge(
        "chakram_iterations_planned",
        "Planned iterations of a job, warm-up included. Background jobs have none: "
        "they repeat until the others end.",
        _JOB,
    ),
    _counter(
        "chakram_iterations_total",
        "Iterations completed by all ranks of a job, warm-up included.",
        _JOB,
    ),
    _histogram(
        "chakram_iteration_duration_seconds",
        "Time of an iteration: first start to last end over the ranks of the job.",
        _JOB,
    ),
    _gauge(
        "chakram_iteration_end_time_seconds",
        "End of the last iteration that all ranks of a job completed, as Unix time.",
        _JOB,
    ),
    _counter(
        "chakram_rank_seconds_total",
        "Time that the ranks of a job spent on each activity, summed over the ranks. "
        "`exposed` is communication without concurrent compute.",
        _JOB,
        _words("activity", ACTIVITIES),
    ),
    _histogram(
        "chakram_collective_duration_seconds",
        "Time of a collective: first start to last end over the ranks of its group.",
        _COLLECTIVE,
    ),
    _counter(
        "chakram_collectives_total",
        "Collectives finished by all their ranks.",
        _COLLECTIVE,
        _MESSAGE_SIZE,
    ),
    _counter(
        "chakram_collective_bus_bytes_total",
        "Bytes of finished collectives times the nccl-tests busbw factor. Its rate "
        "over the rate of chakram_collective_busy_seconds_total is the bus bandwidth.",
        _COLLECTIVE,
        _MESSAGE_SIZE,
    ),
    _counter(
        "chakram_collective_busy_seconds_total",
        "Time of finished collectives.",
        _COLLECTIVE,
        _MESSAGE_SIZE,
    ),
    _gauge(
        "chakram_collective_bus_bandwidth_bytes_per_second",
        "Bus bandwidth of the last finished collective.",
        _COLLECTIVE,
        _MESSAGE_SIZE,
    ),
    _gauge(
        "chakram_predicted_collective_duration_seconds",
        "Predicted time of a collective, averaged over the collectives of an "
        "iteration. Messages (`send_recv`) have no `alone`: their fair times depend on "
        "the start of other messages, so they are in the results only.",
        _COLLECTIVE,
        _MESSAGE_SIZE,
        _words("source", SOURCES),
    ),
    *(
        _counter(f"chakram_job_{name}_total", text, _JOB)
        for name, text in (
            ("collectives", "Collectives and messages that a job has finished."),
            (
                "collective_seconds",
                "Time of the collectives and messages that a job has finished.",
            ),
            (
                "bus_bytes",
                (
                    "Bytes of a job's finished collectives and messages, times the "
                    "nccl-tests busbw factor."
                ),
            ),
            (
                "sent_bytes",
                "Payload sent in a job's finished collectives and messages.",
            ),
            (
                "packets",
                (
                    "Packets of a job's finished collectives and messages, each "
                    "counted once."
                ),
            ),
            (
                "retransmitted_packets",
                "Retransmitted packets of a job's finished collectives and messages.",
            ),
            (
                "marked_packets",
                (
                    "Packets of a job's finished collectives and messages that arrived "
                    "with a congestion mark."
                ),
            ),
        )
    ),
    _counter(
        "chakram_message_seconds_total",
        "Time of finished messages from ready to acknowledged, by part, summed over "
        "the messages. Its rate is the mean number of messages in that part.",
        _words("part", MESSAGE_PARTS),
    ),
    _gauge(
        "chakram_critical_path_seconds",
        "Time on the critical paths of the measured iterations, by part, as in "
        "`chakram why`. Available when the run has ended.",
        _PART,
    ),
    _gauge(
        "chakram_lost_seconds",
        "Lost time on the critical paths of the measured iterations, by cause and "
        f"place: the {MOST_CAUSES} largest. Available when the run has ended.",
        Label(name="cause", values=MOST_CAUSES, help="Cause, such as `slow link`."),
        _text("place", "Rank, link, port, host or switch."),
    ),
    _gauge(
        "chakram_generator_bound",
        "1 if the measured collectives of one kind and size waited for the generator "
        "for more than 5 % of their time. Their mean time then describes the "
        "generator.",
    ),
    _counter(
        "chakram_generator_bound_collectives_total",
        "Measured collectives that waited for the generator for more than 5 % of "
        "their time.",
        _COLLECTIVE,
    ),
    _histogram(
        "chakram_flow_completion_seconds",
        "Completion time of a flow: message posted to last byte acknowledged.",
        _COLLECTIVE,
    ),
    _counter(
        "chakram_link_bytes_total",
        "Bytes carried by one direction of a fabric link during the run.",
        _LINK,
        _DIRECTION,
    ),
    *(
        _counter(f"chakram_host_{name}", text, _HOST)
        for name, text in HOST_COUNTERS.values()
    ),
    _counter(
        "chakram_nic_events_total",
        "Hardware counter of the RDMA NIC of a port since the start of the run. No "
        "series for counters that the device does not have.",
        _HOST,
        _words("counter", NIC_COUNTERS),
    ),
    _gauge(
        "chakram_queue_pair_sent_bytes_per_second",
        "Payload rate of queue pairs over about the last second: minimum, median, 99 % "
        "and maximum over the queue pairs.",
        _words("share", RATE_SHARES),
    ),
    _gauge(
        "chakram_preflight_pairs",
        "Pairs of ports with this verdict in the preflight of the run, each direction "
        "counted separately. No series without a preflight.",
        _words("check", CHECKS),
        _words("verdict", (FAILED, UNPROVEN)),
    ),
)


def _counted_metrics() -> list[Metric]:
    """Return the metrics that export counters of the data plane."""
    labels: dict[str, list[str]] = {}
    about: dict[str, str] = {}
    for counter in COUNTERS:
        if counter.metric is not None:
            values = labels.setdefault(counter.metric, [])
            about.setdefault(counter.metric, counter.about)
            if counter.label is not None:
                values.append(counter.label)
    return [
        _counter(
            name,
            FAMILIES[name].help if values else about[name],
            *([_words(FAMILIES[name].label, tuple(values))] if values else []),
        )
        for name, values in labels.items()
    ]


_AGENT_METRICS = _scoped(
    AGENT,
    _gauge("chakram_agent_up", "1 while the agent answers the controller."),
    _gauge(
        "chakram_agent_clock_offset_seconds",
        "Offset to add to the agent's clock to get the controller's clock.",
    ),
    _gauge(
        "chakram_agent_clock_uncertainty_seconds",
        "Uncertainty of the agent's clock offset.",
    ),
    _gauge(
        "chakram_agent_clock_drift_ratio",
        "How much faster the agent's clock runs than the controller's, as a share.",
    ),
    _gauge("chakram_flows_active", "Messages posted and not yet finished."),
    *_counted_metrics(),
    _histogram(
        "chakram_round_trip_seconds",
        "Time from a packet that requests an acknowledgment to that acknowledgment, "
        "without retransmitted packets.",
    ),
    _histogram(
        "chakram_pacing_error_seconds",
        "Delay of data bursts against their pace, for ports or queue pairs with a "
        "rate.",
    ),
    _histogram(
        "chakram_generator_lag_seconds",
        "Time that due work waited for the next round of the data plane.",
    ),
    _gauge(
        "chakram_generator_lag_max_seconds",
        "Longest time that due work waited for the next round of the data plane.",
    ),
    _counter("chakram_generator_rounds_total", "Rounds of the data plane's loops."),
    _counter(
        "chakram_generator_late_rounds_total",
        "Rounds of the data plane's loops that started more than 1 ms late.",
    ),
    _counter(
        "chakram_generator_busy_seconds_total",
        "Time of the rounds that received or sent packets, summed over all data-plane "
        "processes.",
    ),
    _gauge(
        "chakram_queue_pairs",
        "Queue pairs by state: at their initial rate, below it because of congestion "
        "control, or in the error state.",
        _words("state", QUEUE_PAIR_STATES),
    ),
)


NO_REASON = "not reported"
"""Reason of drops that a switch counts without a reason."""

_OF_A_CLASS = (_LINK, _DIRECTION, _CLASS)

_SWITCH_METRICS = _scoped(
    SWITCHES,
    _gauge(
        "chakram_switch_queue_bytes",
        "Bytes that wait to be sent in one direction of a link, for classes that "
        "have sent packets.",
        *_OF_A_CLASS,
    ),
    _counter(
        "chakram_switch_marked_packets_total",
        "Packets that the sending port marked with ECN CE in one direction of a link.",
        *_OF_A_CLASS,
    ),
    _counter(
        "chakram_switch_pause_frames_total",
        "Pause frames received by the sender of one direction of a link.",
        *_OF_A_CLASS,
    ),
    _counter(
        "chakram_switch_paused_seconds_total",
        "Time that the sender of one direction of a link was paused by pause frames.",
        *_OF_A_CLASS,
    ),
    _counter(
        "chakram_switch_dropped_packets_total",
        "Packets dropped by the port that sends into one direction of a link: those to "
        "be sent, and those that had arrived there. Switches that are read through "
        "gNMI or OTLP give no reason.",
        _LINK,
        _DIRECTION,
        _words("reason", (*DROP_REASONS.values(), NO_REASON)),
    ),
    _counter(
        "chakram_switch_lost_frames_total",
        "Frames lost because the switch process had no buffer space, or because the "
        "kernel did not accept them.",
    ),
    _gauge(
        "chakram_switch_delay_max_seconds",
        "Largest recent delay of a frame that left the switch process late.",
    ),
    _counter("chakram_switch_cpu_seconds_total", "CPU time of the switch process."),
)

METRICS: tuple[Metric, ...] = (
    *_BUILD_METRICS,
    *_RUN_METRICS,
    *_AGENT_METRICS,
    *_SWITCH_METRICS,
)
"""All metrics, in the order of their scopes."""

BY_NAME = {metric.name: metric for metric in METRICS}

SERIES: dict[str, Metric] = {
    f"{metric.name}{part}": metric
    for metric in METRICS
    for part in (("_bucket", "_sum", "_count") if metric.kind == HISTOGRAM else ("",))
}
"""Metrics by the name of a series in queries, e.g.
``chakram_flow_completion_seconds_bucket``."""


def max_series(scope: str) -> int:
    """Return the largest number of series of one entity of *scope*."""
    return sum(metric.max_series for metric in METRICS if metric.scope == scope)
