"""Definitions of all counters, each declared once as a field of a dataclass.

A field declares the meaning of the number, where the engine keeps it, and its
destinations:

* a slot in the memory that a shard shares (``chakram.records.counter_slots``);
* a column in the tables of a run (``chakram.records.row_layout``);
* a metric (``chakram.metrics.catalog``).

Chakram generates snapshots, rows, slots and metrics from these declarations.

To add a counter, add a field here, an attribute in the engine, and the code that
increments this attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

_DECLARED = "counter"

Snapshot = TypeVar("Snapshot", "QueuePairStatistics", "PortStatistics")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric with several counters, each of which is a series.

    Attributes:
        help: Help text of the metric.
        label: Label that distinguishes the series.
    """

    help: str
    label: str


FAMILIES = {
    "chakram_flows_completed_total": Family(
        help="Messages that finished or failed.", label="outcome"
    ),
    "chakram_retransmitted_packets_total": Family(
        help="Retransmitted packets.", label="reason"
    ),
    "chakram_invalid_packets_total": Family(
        help="Rejected packets, by reason.", label="reason"
    ),
    "chakram_injected_disturbances_total": Family(
        help="Packets disturbed by injected faults except drops (`faults.packets`).",
        label="disturbance",
    ),
}
"""Metrics with an additional label.  Every other metric exports one counter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """Source and destinations of a counter's value.

    Attributes:
        name: Name of the field.
        part: Part of the engine that keeps the value.  If empty, the caller supplies
            the value.
        reads: Attribute of *part* that contains the value.
        about: Description of the counter.
        slot: Name of the counter's slot in shared memory, or None without a slot.
        column: Column in the table of a run, or None without a column.
        metric: Metric that exports the slot.
        label: Value of the metric's additional label, if the metric is in ``FAMILIES``.
        factor: Conversion factor from the counter's unit to the unit of the metric.
    """

    name: str
    part: str
    reads: str
    about: str
    slot: str | None
    column: str | None
    metric: str | None
    label: str | None
    factor: float


def _counted(
    part: str,
    about: str,
    *,
    reads: str = "",
    column: str | None = None,
    metric: str | None = None,
    slot: str | None = None,
    label: str | None = None,
    factor: float = 1,
    **options: Any,
) -> Any:
    """Declare a counter (see ``Counter``), with a slot if the counter has a metric."""
    if metric is not None and slot is None:
        slot = metric.removeprefix("chakram_").removesuffix("_total")
        slot += f"_{label}" if label is not None else ""
    counter = Counter(
        name="",
        part=part,
        reads=reads,
        about=about,
        slot=slot,
        column=column,
        metric=metric,
        label=label,
        factor=factor,
    )
    return field(metadata={_DECLARED: counter}, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramCounts:
    """Buckets and sum of a histogram of times.

    Attributes:
        counts: Count of each bucket, not cumulative.  The bounds of the buckets are
            ``chakram.records.counter_slots.FCT_BUCKET_BOUNDS_NS``.
        sum_ns: Sum of all times.
    """

    counts: tuple[int, ...]
    sum_ns: int


_REQUESTER, _RESPONDER = "requester", "responder"


@dataclass(slots=True, kw_only=True)  # frozen would take twice as long to create
class QueuePairStatistics:
    """Statistics of a queue pair since its creation.

    Bytes are payload, except in ``wire_bytes_sent``.  Columns have the order of the
    fields.  If the RoCEv2 models of the Open Traffic Generator define a value, the
    column has the name from these models.

    Attributes:
        rate_bps: Current rate limit of congestion control.  None if there is no limit.
        target_bps: Target rate of congestion control.  None if there is no target.
        alpha: Estimated congestion of the path, 0 to 1.  None if there is no estimate.
        failure: Reason for the error state.  None if there is no error.
    """

    packets_sent: int = _counted(
        _REQUESTER,
        "Data packets sent, retransmissions included.",
        column="data_frames_tx",
    )
    packets_received: int = _counted(
        _RESPONDER, "Data packets received, accepted or not.", column="data_frames_rx"
    )
    packets_retransmitted: int = _counted(
        _REQUESTER,
        "Data packets retransmitted.",
        column="data_frames_retransmitted",
    )
    retransmitted_for_nak: int = _counted(
        _REQUESTER,
        "Data packets retransmitted after a NAK.",
        reads="retries.for_nak",
        column="retransmitted_nak",
        metric="chakram_retransmitted_packets_total",
        label="nak",
    )
    retransmitted_for_timeout: int = _counted(
        _REQUESTER,
        "Data packets retransmitted after a timeout.",
        reads="retries.for_timeout",
        column="retransmitted_timeout",
        metric="chakram_retransmitted_packets_total",
        label="timeout",
    )
    retransmitted_for_rnr: int = _counted(
        _REQUESTER,
        "Data packets retransmitted because the peer was not ready.",
        reads="retries.for_rnr",
        column="retransmitted_rnr",
        metric="chakram_retransmitted_packets_total",
        label="rnr",
    )
    out_of_sequence: int = _counted(
        _RESPONDER,
        "Packets that arrived ahead of the expected one.",
        column="frame_sequence_error",
        metric="chakram_out_of_sequence_packets_total",
    )
    bytes_sent: int = _counted(
        _REQUESTER, "Payload of the packets sent.", column="tx_bytes"
    )
    bytes_received: int = _counted(
        _RESPONDER, "Payload of the packets accepted.", column="rx_bytes"
    )
    messages_posted: int = _counted(
        _REQUESTER,
        "Messages posted.",
        column="message_tx",
        metric="chakram_flows_started_total",
    )
    messages_received: int = _counted(
        _RESPONDER, "Messages received completely.", column="message_complete_rx"
    )
    messages_flushed: int = _counted(
        _REQUESTER,
        "Messages given up when the queue pair failed, or posted after that.",
        column="message_fail",
        metric="chakram_flows_completed_total",
        slot="flows_failed",
        label="failed",
    )
    messages_completed: int = _counted(
        _REQUESTER,
        "Messages acknowledged to the last byte.",
        metric="chakram_flows_completed_total",
        slot="flows_completed",
        label="acknowledged",
    )
    ce: int = _counted(
        _RESPONDER,
        "Data packets received with a congestion mark (CE).",
        column="ecn_ce_rx",
        metric="chakram_ecn_marked_packets_total",
    )
    cnps_sent: int = _counted(
        _RESPONDER,
        "Congestion notifications sent.",
        column="cnp_tx",
        metric="chakram_cnp_sent_total",
    )
    cnps_received: int = _counted(
        _REQUESTER,
        "Congestion notifications received.",
        column="cnp_rx",
        metric="chakram_cnp_received_total",
    )
    acks_sent: int = _counted(_RESPONDER, "ACKs sent.", column="ack_tx")
    acks_received: int = _counted(_REQUESTER, "ACKs received.", column="ack_rx")
    naks_sent: int = _counted(
        _RESPONDER,
        "Negative acknowledgments sent.",
        column="nak_tx",
        metric="chakram_nak_sent_total",
    )
    naks_received: int = _counted(
        _REQUESTER,
        "Negative acknowledgments received.",
        column="nak_rx",
        metric="chakram_nak_received_total",
    )
    timeouts: int = _counted(
        _REQUESTER,
        "Acknowledgment timeouts.",
        column="ack_timeouts",
        metric="chakram_ack_timeouts_total",
    )
    sequence_naks_sent: int = _counted(
        _RESPONDER,
        "NAKs sent for a missing packet.",
        column="nak_sequence_tx",
    )
    sequence_naks_reordered: int = _counted(
        _RESPONDER,
        "NAKs sent for a packet that was late and not lost: it arrived by itself, and "
        "again because of the NAK.",
        column="nak_reordered_tx",
    )
    naks_overtaken: int = _counted(
        _REQUESTER,
        "NAKs received for a packet that was late and not lost: it was acknowledged "
        "before it was retransmitted. The peer cannot know this, so its "
        "sequence_naks_reordered does not include them.",
        column="nak_reordered_rx",
    )
    wire_bytes_sent: int = _counted(
        _REQUESTER, "Bytes of the packets sent, from Ethernet header to ICRC."
    )
    bytes_retransmitted: int = _counted(
        _REQUESTER, "Payload of the packets retransmitted."
    )
    acks_invalid: int = _counted(
        _REQUESTER,
        "ACKs and NAKs for packets that were never sent.",
        metric="chakram_invalid_packets_total",
        slot="invalid_ack",
        label="ack",
    )
    naks_stale: int = _counted(_REQUESTER, "NAKs without effect: outdated or repeated.")
    receiver_not_ready: int = _counted(_REQUESTER, "Receiver-not-ready NAKs received.")
    receiver_not_ready_sent: int = _counted(_RESPONDER, "Receiver-not-ready NAKs sent.")
    duplicates: int = _counted(
        _RESPONDER,
        "Packets that had arrived before.",
        metric="chakram_duplicate_packets_total",
    )
    invalid_requests: int = _counted(
        _RESPONDER,
        "Packets that a requester must not send.",
        metric="chakram_invalid_packets_total",
        slot="invalid_request",
        label="request",
    )
    kept_out_of_order: int = _counted(
        _RESPONDER,
        "Packets that arrived ahead of a missing packet and were kept until it "
        "arrived.",
        column="reordered_rx",
        metric="chakram_kept_out_of_order_packets_total",
    )
    beyond_window: int = _counted(
        _RESPONDER,
        "Packets that arrived ahead and were dropped, beyond the window of "
        "`transport.reordering`.",
        column="beyond_window_rx",
        metric="chakram_beyond_window_packets_total",
    )
    rate_bps: int | None
    target_bps: int | None
    alpha: float | None
    failure: str | None


_SENT, _RECEIVED, _LINE = "sent", "received", "line"
_INVALID = "chakram_invalid_packets_total"
_DISTURBED = "chakram_injected_disturbances_total"


def _invalid(reason: str, about: str) -> Any:
    name = f"invalid_{reason}"
    return _counted(
        _RECEIVED, about, column=name, slot=name, metric=_INVALID, label=reason
    )


def _disturbed(kind: str, about: str) -> Any:
    slot = f"injected_{kind}"
    return _counted("", about, slot=slot, metric=_DISTURBED, label=kind, default=0)


@dataclass(slots=True, kw_only=True)  # frozen would take twice as long to create
class PortStatistics:
    """Statistics of a port since its creation.

    Bytes include everything from the Ethernet header to the ICRC.

    Attributes:
        round_trips: Times from a packet that requested an ACK to the ACK, excluding
            retransmitted packets.
        pacing_errors: Delays of data bursts relative to their pace, for ports or queue
            pairs with a rate.
    """

    bytes_sent: int = _counted(
        _SENT,
        "Bytes sent: layer 2 without FCS.",
        column="tx_bytes",
        metric="chakram_tx_bytes_total",
    )
    packets_sent: int = _counted(
        _SENT, "Packets sent.", column="tx_packets", metric="chakram_tx_packets_total"
    )
    packets_received: int = _counted(
        _RECEIVED,
        "Packets received.",
        column="rx_packets",
        metric="chakram_rx_packets_total",
    )
    malformed: int = _invalid(
        "header", "Datagrams, or segments of one, that are not valid packets."
    )
    partition_key_errors: int = _invalid(
        "partition_key", "Packets of another partition."
    )
    unknown_queue_pair: int = _invalid("queue_pair", "Packets to an unknown QPN.")
    foreign_address: int = _invalid(
        "address", "Packets from an address that is not the queue pair's peer."
    )
    unsupported: int = _invalid("opcode", "Packets of an unsupported operation.")
    icrc_errors: int = _invalid("icrc", "Checked packets with a wrong ICRC.")
    verified: int = _counted(
        _RECEIVED,
        "Received packets whose ICRC and payload were checked.",
        column="verified_packets",
        metric="chakram_verified_packets_total",
    )
    wrong_payloads: int = _counted(
        _RECEIVED,
        "Packets accepted with a wrong payload.",
        column="wrong_payloads",
        metric="chakram_wrong_payload_packets_total",
    )
    faults_dropped: int = _counted(
        "",
        "Packets dropped by injected faults (`faults`).",
        column="injected_drops",
        metric="chakram_injected_drops_total",
        default=0,
    )
    faults_delayed: int = _disturbed("delays", "Packets delayed.")
    faults_duplicated: int = _disturbed("duplicates", "Packets duplicated.")
    faults_reordered: int = _disturbed("reorders", "Packets reordered.")
    faults_marked: int = _disturbed("marks", "Packets treated as marked.")
    faults_not_ready: int = _disturbed(
        "not_ready", "Packets answered with receiver not ready."
    )
    faults_corrupted: int = _disturbed("corruptions", "Packets with one bit flipped.")
    generator_wait_ns: int = _counted(
        _LINE,
        "Time that due packets waited for the data plane, summed over flows.",
        column="generator_wait_ns",
        metric="chakram_generator_wait_seconds_total",
        slot="generator_wait_ns",
        factor=1e-9,
    )
    generator_waits: int = _counted(
        _LINE, "Number of times that the port stalled for the data plane."
    )
    bursts_sent: int = _counted(_SENT, "Bursts sent, control packets included.")
    control_sent: int = _counted(_SENT, "ACKs, NAKs and CNPs sent.")
    paused_ns: int = _counted(
        _SENT,
        "Time that data was paused by pause frames of the fabric.",
        column="paused_ns",
        metric="chakram_paused_seconds_total",
        slot="paused_ns",
        factor=1e-9,
    )
    round_trips: HistogramCounts
    pacing_errors: HistogramCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatistics:
    """Statistics of a data-plane process that are not counters of the engine."""

    received_bytes: int = _counted(
        "", "Bytes received: layer 2 without FCS.", metric="chakram_rx_bytes_total"
    )
    delivered_bytes: int = _counted(
        "",
        "Payload acknowledged by its receiver; its rate is the goodput.",
        metric="chakram_delivered_bytes_total",
    )
    socket_drops: int = _counted(
        "",
        "Packets that the kernel dropped because the receive buffer was full.",
        metric="chakram_socket_drops_total",
    )
    send_retries: int = _counted(
        "",
        "Failed sends: the kernel had no buffer space, or the interface was down.",
        metric="chakram_send_retries_total",
    )
    samples_dropped: int = _counted(
        "",
        "Records lost because a queue was full. If above 0, the results are "
        "incomplete.",
        metric="chakram_samples_dropped_total",
    )
    cpu_ns: int = _counted(
        "",
        "CPU time of the data plane.",
        metric="chakram_cpu_seconds_total",
        slot="cpu_ns",
        factor=1e-9,
    )


def _declared(kind: type) -> tuple[Counter, ...]:
    return tuple(
        replace(counter, name=each.name, reads=counter.reads or each.name)
        for each in fields(kind)
        if (counter := each.metadata.get(_DECLARED)) is not None
    )


_COUNTERS: dict[type, tuple[Counter, ...]] = {
    kind: _declared(kind)
    for kind in (QueuePairStatistics, PortStatistics, ProcessStatistics)
}


FAULT_COUNTERS = tuple(
    each.name
    for each in _COUNTERS[PortStatistics]
    if each.slot is not None and each.slot.startswith("injected_")
)
"""Counters of injected faults, in the order of ``plan.packet_faults.FaultAction``."""


def counters_of(kind: type) -> tuple[Counter, ...]:
    """Return the counters that a class of statistics declares, in order."""
    return _COUNTERS[kind]


def columns_of(kind: type) -> tuple[str, ...]:
    """Return the columns of a class of statistics in tables of a run, in order."""
    return tuple(each.column for each in _COUNTERS[kind] if each.column is not None)


_ROW_READERS: dict[type, Callable[[object], tuple[int, ...]]] = {
    kind: attrgetter(
        *(each.name for each in _COUNTERS[kind] if each.column is not None)
    )
    for kind in (QueuePairStatistics, PortStatistics)
}


def row_of(statistics: QueuePairStatistics | PortStatistics) -> tuple[int, ...]:
    """Return the values of the columns that ``columns_of`` lists."""
    return _ROW_READERS[type(statistics)](statistics)


def _readers(
    kind: type,
) -> tuple[tuple[str, tuple[str, ...], Callable[[object], tuple[int, ...]]], ...]:
    by_part: dict[str, list[Counter]] = {}
    for each in _COUNTERS[kind]:
        if each.part:
            by_part.setdefault(each.part, []).append(each)
    return tuple(
        (
            part,
            tuple(each.name for each in counters),
            attrgetter(*(each.reads for each in counters)),
        )
        for part, counters in by_part.items()
    )


_READERS = {kind: _readers(kind) for kind in (QueuePairStatistics, PortStatistics)}


def sampled_of(statistics: PortStatistics) -> tuple[tuple[int, ...], int]:
    """Return the same values as ``PortEngine.sampled``, from a snapshot."""
    return row_of(statistics), sum(_disturbances(statistics))


def row_reader(
    kind: type[QueuePairStatistics] | type[PortStatistics],
) -> Callable[[Mapping[str, object]], tuple[int, ...]]:
    """Return a function that reads the values of ``columns_of`` from the engine.

    The function takes the parts of the engine, as ``gather`` does.  Values that no part
    counts are 0.  With a snapshot by ``gather``, reading would take three times as
    long.
    """
    places = [name for _, names, _ in _READERS[kind] for name in names]
    in_order = itemgetter(
        *(
            places.index(each.name) if each.part else len(places)
            for each in _COUNTERS[kind]
            if each.column is not None
        )
    )

    readers = [(part, of_part) for part, _, of_part in _READERS[kind]]

    def read(parts: Mapping[str, object]) -> tuple[int, ...]:
        values: list[int] = []
        for part, of_part in readers:
            values += of_part(parts[part])
        values.append(0)
        row: tuple[int, ...] = in_order(values)
        return row

    return read


_disturbances = attrgetter(
    *(each.name for each in _COUNTERS[PortStatistics] if each.metric == _DISTURBED)
)


def gather(
    kind: type[Snapshot], parts: Mapping[str, object], **others: Any
) -> Snapshot:
    """Return a snapshot of the current counters.

    Args:
        kind: Class of statistics.
        parts: Parts of the engine that keep the counters, by the names of the parts in
            the declarations.
        others: Values of the fields that no part keeps.
    """
    for part, names, read in _READERS[kind]:
        others.update(zip(names, read(parts[part]), strict=True))
    return kind(**others)
