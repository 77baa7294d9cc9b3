"""All metrics, declared once.

The exporter, the reference page and the check of the dashboards are made from here.

Names and units follow the conventions of Prometheus: seconds and bytes, ``_total`` on
counters.  Labels are few and bounded: never a flow, a peer, a queue pair, an address or
a text; what is wanted per flow stands in the run directory.  Every value is raw: a run
with dilation exports the time that passed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from chakram.analysis.critical_path import Part
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.units import format_size
from chakram.preflight.report import CHECKS, FAILED, UNPROVEN
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
"""At the rate that they begin with, below it, in the error state."""

SOURCES = ("bound", "alone", "simulate")
"""Values of the label ``source``."""

MESSAGE_PARTS = (
    *("generator", "own port", "window", "pace", "pause", "transfer", "repair"),
    "network",
)
"""Values of the label ``part`` of messages: the words of ``chakram why``."""

MOST_CAUSES = 16
"""Causes of lost time that have a series, the largest ones."""

MOST_HOSTS = 64
"""Hosts that have series of their own; OTHERS stands for further ones."""

OTHERS = "others"

RATE_SHARES = ("0", "0.5", "0.99", "1")
"""Values of the label ``share``, of queue pairs that send so much or less: least,
median, 99 %, most."""

_SIZE_BOUNDS_BYTES = tuple(1024 << (2 * step) for step in range(11))
LARGER = "larger"
MESSAGE_SIZES = (*(format_size(bound) for bound in _SIZE_BOUNDS_BYTES), LARGER)
"""Values of the label ``message_size``: S of nccl-tests up to so much."""


def host_labels(hosts: Iterable[str]) -> dict[str, str]:
    """Return by host its value of the label ``host``."""
    names = list(dict.fromkeys(hosts))
    if len(names) <= MOST_HOSTS:
        return {name: name for name in names}
    own = set(names[: MOST_HOSTS - 1])
    return {name: name if name in own else OTHERS for name in names}


def message_size(size_bytes: int) -> str:
    """Return the value of the label ``message_size``: the first bound not below."""
    return MESSAGE_SIZES[bisect_left(_SIZE_BOUNDS_BYTES, size_bytes)]


HOST_COUNTERS = {
    "tx_bytes": ("tx_bytes_total", "Bytes that a host has sent: layer 2 without FCS."),
    "rx_bytes": ("rx_bytes_total", "Bytes that a host has received, likewise."),
    "data_frames_retransmitted": (
        "retransmitted_packets_total",
        "Packets that a host has sent again.",
    ),
    "ecn_ce_rx": (
        "marked_packets_total",
        "Data packets that a host has received with a congestion mark.",
    ),
    "cnp_rx": ("cnp_received_total", "Congestion notifications that a host has got."),
    "ack_timeouts": ("ack_timeouts_total", "Times that no acknowledgement came."),
    "generator_wait_ns": (
        "generator_wait_seconds_total",
        "How long ports of a host stood still for the data plane.",
    ),
    "paused_ns": (
        "paused_seconds_total",
        "How long data of a host rested for pause frames of the fabric.",
    ),
}
"""By column of the samples of ports, or of queue pairs, metric of hosts and its help;
those of names that end in ``_ns`` are in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A label, what it says, and how many values it has at most."""

    name: str
    values: int
    help: str


_RUN_ID = Label(name="run_id", values=1, help="Identity of the run.")
_AGENT = Label(name="agent", values=1, help="Name of the agent.")
_COLLECTIVE = Label(
    name="collective",
    values=len(CollectiveOp),
    help="`all_reduce`, `all_to_all` ... `send_recv` for point-to-point messages.",
)
_MESSAGE_SIZE = Label(
    name="message_size",
    values=len(MESSAGE_SIZES),
    help="Size S of nccl-tests, up to so much: `1KiB`, `4KiB`, `16KiB` ... "
    f"`1GiB`, `{LARGER}`.",
)
# Not `job`: so Prometheus calls what it scrapes, and would rename ours.
_JOB = Label(name="chakram_job", values=64, help="Name of the job.")
_LINK = Label(name="link", values=64, help="Link, such as `leaf1-spine1`.")
_HOST = Label(
    name="host",
    values=MOST_HOSTS,
    help=f"Host, such as `host0`; `{OTHERS}`: those beyond the first {MOST_HOSTS - 1}.",
)
_DIRECTION = Label(name="direction", values=2, help="`up` (away from hosts) or `down`.")
_CLASS = Label(name="class", values=8, help="Traffic class, `0` to `7`.")


def _words(name: str, values: tuple[str, ...]) -> Label:
    listed = ", ".join(f"`{value}`" for value in values)
    return Label(name=name, values=len(values), help=f"One of {listed}.")


_PART = _words("part", tuple(Part))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric.

    ``name`` is that of the samples (for counters with ``_total``, for infos with
    ``_info``).  ``scope`` says what has one set of its series: the run, each agent, the
    modelled switches of a lab, or the build.
    """

    name: str
    kind: str
    help: str
    scope: str = RUN
    own_labels: tuple[Label, ...] = ()

    @property
    def labels(self) -> tuple[Label, ...]:
        """All labels, those of the scope first."""
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
        """Most series that one run, agent or build can have of it."""
        series = 1
        for label in self.labels:
            series *= label.values
        # Buckets, the one for everything, sum and count.
        return series * (len(FCT_BUCKET_BOUNDS_NS) + 3 if self.kind == HISTOGRAM else 1)


def _metric(kind: str) -> Callable[..., Metric]:
    def made(name: str, text: str, *labels: Label) -> Metric:
        return Metric(name=name, kind=kind, help=text, own_labels=labels)

    return made


_counter, _gauge = _metric(COUNTER), _metric(GAUGE)
_histogram, _info = _metric(HISTOGRAM), _metric(INFO)


def _scoped(scope: str, *metrics: Metric) -> tuple[Metric, ...]:
    """Return metrics of which each thing of a scope has one set of series."""
    return tuple(replace(metric, scope=scope) for metric in metrics)


def _text(name: str, about: str) -> Label:
    return Label(name=name, values=1, help=about)


_BUILD_METRICS = _scoped(
    BUILD,
    _info(
        "chakram_build_info",
        "Version of Chakram, and whether its hot modules are compiled; always 1.",
        _text("version", "Version of Chakram."),
        _text("python", "Version of Python."),
        _text("compiled", "`true` if all hot modules are compiled."),
    ),
)

_RUN_METRICS = (
    _info(
        "chakram_run_info",
        "What the run is; always 1.",
        _text("name", "Name of the experiment."),
        _text("case", "Case of the suite; empty outside of suites."),
        _text("world", "`namespaces`, `loopback`, `external` or `simulate`."),
        _text("congestion_control", "Name of the congestion control."),
        _text("size_scale", "Factor of all message sizes."),
        _text("dilation", "Factor by which time is stretched."),
    ),
    _gauge(
        "chakram_run_state",
        "1 for the state that the run is in, 0 for the others.",
        _words("state", RUN_STATES),
    ),
    _gauge("chakram_run_start_time_seconds", "Unix time at which traffic started."),
    _gauge("chakram_run_end_time_seconds", "Unix time at which the run ended."),
    _gauge(
        "chakram_iterations_planned",
        "Iterations that a job is to do, warm-up included; none of jobs in the "
        "background, which repeat until the others have ended.",
        _JOB,
    ),
    _counter(
        "chakram_iterations_total",
        "Iterations that all ranks of a job have done, warm-up included.",
        _JOB,
    ),
    _histogram(
        "chakram_iteration_duration_seconds",
        "Time of an iteration: first start to last end over the ranks of the job.",
        _JOB,
    ),
    _gauge(
        "chakram_iteration_end_time_seconds",
        "Unix time at which the last iteration that all ranks of a job have done "
        "ended.",
        _JOB,
    ),
    _counter(
        "chakram_rank_seconds_total",
        "What the ranks did, summed over them: compute, communication, exposed "
        "communication (without compute beside it), idle.",
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
        "Collectives that all their ranks have finished.",
        _COLLECTIVE,
        _MESSAGE_SIZE,
    ),
    _counter(
        "chakram_collective_bus_bytes_total",
        "Bytes of finished collectives times the busbw factor of nccl-tests. Its rate "
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
        "Time of a collective, mean over those of an iteration, as a model says.",
        _COLLECTIVE,
        _MESSAGE_SIZE,
        _words("source", SOURCES),
    ),
    *(
        _counter(f"chakram_job_{name}_total", text, _JOB)
        for name, text in (
            ("collectives", "Collectives and messages that a job has finished."),
            ("collective_seconds", "Time of those."),
            ("bus_bytes", "Their bytes times the busbw factor of nccl-tests."),
            ("sent_bytes", "Payload that its ranks have sent in them."),
            ("packets", "Packets of that, each counted once."),
            ("retransmitted_packets", "Packets of that sent again."),
            ("marked_packets", "Packets of that received with a congestion mark."),
        )
    ),
    _counter(
        "chakram_message_seconds_total",
        "Where the time of finished messages went, from ready to acknowledged, summed "
        "over them: its rate is how many are in that part at a time.",
        _PART,
    ),
    _gauge(
        "chakram_critical_path_seconds",
        "Time on the critical paths of the measured iterations, by part, as `chakram "
        "why` has it; there once the run has ended.",
        _PART,
    ),
    _gauge(
        "chakram_lost_seconds",
        "What of that was lost, by cause and place; likewise. The "
        f"{MOST_CAUSES} largest.",
        Label(name="cause", values=MOST_CAUSES, help="Cause, such as `slow link`."),
        _text("place", "Where: a rank, a link, a port, a host, a switch."),
    ),
    _gauge(
        "chakram_generator_bound",
        "1 if the measured collectives of one kind and size waited for the generator "
        "for more than 5 % of their time: then its mean is not that of the network.",
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
        "Bytes that one direction of a link of the fabric has carried in the run.",
        _LINK,
        _DIRECTION,
    ),
    *(
        _counter(f"chakram_host_{name}", text, _HOST)
        for name, text in HOST_COUNTERS.values()
    ),
    _gauge(
        "chakram_queue_pair_sent_bytes_per_second",
        "Payload that queue pairs have sent over about the last second, least to most "
        "over the queue pairs.",
        _words("share", RATE_SHARES),
    ),
    _gauge(
        "chakram_preflight_pairs",
        "Pairs of ports, each direction one, that the test before the run has found "
        "so; no series where there was none.",
        _words("check", CHECKS),
        _words("verdict", (FAILED, UNPROVEN)),
    ),
)


def _counted_metrics() -> list[Metric]:
    """Return the metrics of what the data plane counts, as that is declared."""
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
        "What to add to the agent's clock to get the controller's.",
    ),
    _gauge("chakram_agent_clock_uncertainty_seconds", "How wrong that offset may be."),
    _gauge("chakram_flows_active", "Messages posted and not ended."),
    *_counted_metrics(),
    _histogram(
        "chakram_round_trip_seconds",
        "Time from a packet that asked for an acknowledgement to that, of packets sent "
        "once.",
    ),
    _histogram(
        "chakram_pacing_error_seconds",
        "How much later than their pace allowed bursts of data were offered to the "
        "wire, where a port or a queue pair has a rate.",
    ),
    _histogram(
        "chakram_generator_lag_seconds",
        "How long something due waited for a round of the data plane.",
    ),
    _gauge(
        "chakram_generator_lag_max_seconds",
        "The longest that something due had to wait for a round of the data plane.",
    ),
    _counter("chakram_generator_rounds_total", "Rounds of the data plane's loops."),
    _counter(
        "chakram_generator_late_rounds_total",
        "Rounds of the data plane's loops that came more than 1 ms late.",
    ),
    _counter(
        "chakram_generator_busy_seconds_total",
        "Time of those rounds of the data plane's loops, over all processes, in which "
        "something was received or sent.",
    ),
    _gauge(
        "chakram_queue_pairs",
        "Queue pairs by what congestion control lets them do: at the rate that they "
        "begin with, below it, or in the error state.",
        _words("state", QUEUE_PAIR_STATES),
    ),
)


_OF_A_CLASS = (_LINK, _DIRECTION, _CLASS)

_SWITCH_METRICS = _scoped(
    SWITCHES,
    _gauge(
        "chakram_switch_queue_bytes",
        "What waits to be sent into a direction of a link, in a class that has sent "
        "anything.",
        *_OF_A_CLASS,
    ),
    _counter(
        "chakram_switch_marked_packets_total",
        "Packets marked when they were sent into a direction of a link.",
        *_OF_A_CLASS,
    ),
    _counter(
        "chakram_switch_pause_frames_total",
        "Pause frames that the sender of a direction of a link got.",
        *_OF_A_CLASS,
    ),
    _counter(
        "chakram_switch_paused_seconds_total",
        "How long the sender of a direction of a link rested for them.",
        *_OF_A_CLASS,
    ),
    _counter(
        "chakram_switch_dropped_packets_total",
        "Packets dropped at the port that sends into a direction of a link, or that "
        "they came in by; none is listed where there was none.",
        _LINK,
        _DIRECTION,
        _words("reason", tuple(DROP_REASONS.values())),
    ),
    _counter(
        "chakram_switch_lost_frames_total",
        "Frames that came when the process of the switches had no room for them, or "
        "that the kernel did not take from it.",
    ),
    _gauge(
        "chakram_switch_delay_max_seconds",
        "The most that a frame has lately left the process of the switches too late.",
    ),
    _counter(
        "chakram_switch_cpu_seconds_total", "CPU time of the process of the switches."
    ),
)

METRICS: tuple[Metric, ...] = (
    *_BUILD_METRICS,
    *_RUN_METRICS,
    *_AGENT_METRICS,
    *_SWITCH_METRICS,
)
"""The catalogue."""

BY_NAME = {metric.name: metric for metric in METRICS}

SERIES: dict[str, Metric] = {
    f"{metric.name}{part}": metric
    for metric in METRICS
    for part in (("_bucket", "_sum", "_count") if metric.kind == HISTOGRAM else ("",))
}
"""By what a query may name, e.g. ``chakram_flow_completion_seconds_bucket``."""


def max_series(scope: str) -> int:
    """Return the most series that one thing of *scope* can have."""
    return sum(metric.max_series for metric in METRICS if metric.scope == scope)
