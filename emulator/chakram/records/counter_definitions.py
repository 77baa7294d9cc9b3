"""What is counted: each counter declared once, as a field of what it is counted of.

A field says where the engine keeps the number, what it means, and where it goes: its
slot in the memory that a shard shares (``chakram.records.counter_slots``), its column
in the tables of a run (``chakram.records.row_layout``), and its metric
(``chakram.metrics.catalogue``).  Snapshots, rows, slots and metrics are made from here.

To count something more: a line here, the attribute in the engine, and the place there
that adds to it.
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
    """A metric of which several counters are the series.

    Attributes:
        help: What the metric says.
        label: The label that tells them apart.
    """

    help: str
    label: str


FAMILIES = {
    "chakram_flows_completed_total": Family(
        help="Messages that came to an end.", label="outcome"
    ),
    "chakram_retransmitted_packets_total": Family(
        help="Packets sent again.", label="reason"
    ),
    "chakram_invalid_packets_total": Family(
        help="Packets that were not taken, by what is wrong with them.", label="reason"
    ),
    "chakram_injected_disturbances_total": Family(
        help="Packets disturbed otherwise on purpose (`faults.packets`).",
        label="disturbance",
    ),
}
"""The metrics with a label of their own; all others are of one counter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """Where a number comes from, and where it goes.

    Attributes:
        name: The field.
        part: Which part of the engine keeps it; empty: whoever makes the snapshot.
        reads: The attribute there.
        about: What it says.
        slot: Its name among the slots that shards share; None: it has none.
        column: Its column in the table of a run; likewise.
        metric: The metric that its slot is exported as.
        label: Value of that metric's own label, for one of ``FAMILIES``.
        factor: From its unit to that of the metric.
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
    """Declare a counter: see ``Counter``. A metric's slot is named like it."""
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
    """What a histogram holds.

    Attributes:
        counts: By bucket, not cumulative; the bounds are those of completion times,
            ``chakram.records.counter_slots.FCT_BUCKET_BOUNDS_NS``.
        sum_ns: Of all times.
    """

    counts: tuple[int, ...]
    sum_ns: int


_REQUESTER, _RESPONDER = "requester", "responder"


@dataclass(slots=True, kw_only=True)  # one is made per turn: frozen takes twice as long
class QueuePairStatistics:
    """What a queue pair has done since it was made. Bytes are payload but for wire.

    The columns are called as in the Open Traffic Generator's models of RoCEv2, where
    those have the number, and stand in this order.

    Attributes:
        rate_bps: What congestion control allows now; None: no limit.
        target_bps: What it wants to return to; None: it has no such thing.
        alpha: How congested it takes the path to be, 0 to 1; None: likewise.
        failure: Why the queue pair is in the error state; None: it is not.
    """

    packets_sent: int = _counted(
        _REQUESTER, "Data packets, new and again.", column="data_frames_tx"
    )
    packets_received: int = _counted(
        _RESPONDER, "Data packets that came, wanted or not.", column="data_frames_rx"
    )
    packets_retransmitted: int = _counted(
        _REQUESTER,
        "Of those sent, those that had been sent before.",
        column="data_frames_retransmitted",
    )
    retransmitted_for_nak: int = _counted(
        _REQUESTER,
        "Of these, those that the peer had missed.",
        reads="retries.for_nak",
        column="retransmitted_nak",
        metric="chakram_retransmitted_packets_total",
        label="nak",
    )
    retransmitted_for_timeout: int = _counted(
        _REQUESTER,
        "Those for which no ACK had come in time.",
        reads="retries.for_timeout",
        column="retransmitted_timeout",
        metric="chakram_retransmitted_packets_total",
        label="timeout",
    )
    retransmitted_for_rnr: int = _counted(
        _REQUESTER,
        "Those that the peer had not been ready for.",
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
    bytes_sent: int = _counted(_REQUESTER, "Of the packets sent.", column="tx_bytes")
    bytes_received: int = _counted(
        _RESPONDER, "Of the packets that were accepted.", column="rx_bytes"
    )
    messages_posted: int = _counted(
        _REQUESTER,
        "Messages posted.",
        column="message_tx",
        metric="chakram_flows_started_total",
    )
    messages_received: int = _counted(
        _RESPONDER, "Complete messages of the peer.", column="message_complete_rx"
    )
    messages_flushed: int = _counted(
        _REQUESTER,
        "Given up when the queue pair failed, or posted after that.",
        column="message_fail",
        metric="chakram_flows_completed_total",
        slot="flows_failed",
        label="failed",
    )
    messages_completed: int = _counted(
        _REQUESTER,
        "Acknowledged to the last byte.",
        metric="chakram_flows_completed_total",
        slot="flows_completed",
        label="acknowledged",
    )
    ce: int = _counted(
        _RESPONDER,
        "Data packets received with the mark congestion experienced.",
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
    acks_sent: int = _counted(_RESPONDER, "ACKs to the peer.", column="ack_tx")
    acks_received: int = _counted(_REQUESTER, "ACKs of the peer.", column="ack_rx")
    naks_sent: int = _counted(
        _RESPONDER,
        "Negative acknowledgements sent.",
        column="nak_tx",
        metric="chakram_nak_sent_total",
    )
    naks_received: int = _counted(
        _REQUESTER,
        "Negative acknowledgements received.",
        column="nak_rx",
        metric="chakram_nak_received_total",
    )
    timeouts: int = _counted(
        _REQUESTER,
        "Times that no acknowledgement came.",
        column="ack_timeouts",
        metric="chakram_ack_timeouts_total",
    )
    sequence_naks_sent: int = _counted(
        _RESPONDER,
        "Of the NAKs sent, those that asked for a packet that was missing.",
        column="nak_sequence_tx",
    )
    sequence_naks_reordered: int = _counted(
        _RESPONDER,
        "Of these, those whose packet was seen to be late and not lost: it came by "
        "itself, and once more because of the NAK.",
        column="nak_reordered_tx",
    )
    naks_overtaken: int = _counted(
        _REQUESTER,
        "NAKs of the peer that asked for a packet that was late and not lost: it was "
        "acknowledged before it had been sent again. The peer cannot know, so these "
        "are not among its sequence_naks_reordered.",
        column="nak_reordered_rx",
    )
    wire_bytes_sent: int = _counted(
        _REQUESTER, "Of the packets sent, from Ethernet header to ICRC."
    )
    bytes_retransmitted: int = _counted(_REQUESTER, "Of the packets sent again.")
    acks_invalid: int = _counted(
        _REQUESTER,
        "ACKs and NAKs of packets that were never sent.",
        metric="chakram_invalid_packets_total",
        slot="invalid_ack",
        label="ack",
    )
    naks_stale: int = _counted(
        _REQUESTER, "NAKs that changed nothing: overtaken, or said twice."
    )
    receiver_not_ready: int = _counted(_REQUESTER, "NAKs that asked to try later.")
    receiver_not_ready_sent: int = _counted(_RESPONDER, "Likewise, to the peer.")
    duplicates: int = _counted(
        _RESPONDER,
        "Packets that had arrived before.",
        metric="chakram_duplicate_packets_total",
    )
    invalid_requests: int = _counted(
        _RESPONDER,
        "Packets that no requester may send.",
        metric="chakram_invalid_packets_total",
        slot="invalid_request",
        label="request",
    )
    kept_out_of_order: int = _counted(
        _RESPONDER,
        "Of the packets that arrived ahead, those that were kept until what was "
        "missing had come.",
        column="reordered_rx",
        metric="chakram_kept_out_of_order_packets_total",
    )
    beyond_window: int = _counted(
        _RESPONDER,
        "Those that were dropped, beyond the window of `transport.reordering`.",
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


@dataclass(slots=True, kw_only=True)  # one is made per turn: frozen takes twice as long
class PortStatistics:
    """What a port has done since it was made. Bytes are from Ethernet header to ICRC.

    Attributes:
        round_trips: Times from a packet that asked for an ACK to that ACK, of packets
            that were sent once.
        pacing_errors: How much later than their pace allowed bursts of data were
            offered to the wire; only those of ports or queue pairs with a rate.
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
        "header", "Datagrams, or segments of one, that are no packets."
    )
    partition_key_errors: int = _invalid("partition_key", "Of another partition.")
    unknown_queue_pair: int = _invalid("queue_pair", "To a QPN that is not here.")
    foreign_address: int = _invalid(
        "address", "From another address than that of the queue pair's peer."
    )
    unsupported: int = _invalid("opcode", "Of an operation that is not served here.")
    icrc_errors: int = _invalid(
        "icrc", "With a wrong ICRC, of those that were looked at."
    )
    verified: int = _counted(
        _RECEIVED,
        "Packets that arrived and had ICRC and payload looked at.",
        column="verified_packets",
        metric="chakram_verified_packets_total",
    )
    wrong_payloads: int = _counted(
        _RECEIVED,
        "Packets that were taken with another payload than was sent.",
        column="wrong_payloads",
        metric="chakram_wrong_payload_packets_total",
    )
    faults_dropped: int = _counted(
        "",
        "Packets dropped on purpose (`faults`).",
        column="injected_drops",
        metric="chakram_injected_drops_total",
        default=0,
    )
    faults_delayed: int = _disturbed("delays", "Kept for a while.")
    faults_duplicated: int = _disturbed("duplicates", "Taken or sent twice.")
    faults_reordered: int = _disturbed("reorders", "Overtaken by others.")
    faults_marked: int = _disturbed("marks", "Taken as marked.")
    faults_not_ready: int = _disturbed("not_ready", "Answered: receiver not ready.")
    faults_corrupted: int = _disturbed("corruptions", "With one bit flipped.")
    generator_wait_ns: int = _counted(
        _LINE,
        "How long due packets waited for the data plane, summed over flows.",
        column="generator_wait_ns",
        metric="chakram_generator_wait_seconds_total",
        slot="generator_wait_ns",
        factor=1e-9,
    )
    generator_waits: int = _counted(
        _LINE, "Times that the port stood still for the data plane."
    )
    bursts_sent: int = _counted(
        _SENT, "Bursts that the packets left in, those of control included."
    )
    control_sent: int = _counted(_SENT, "ACKs, NAKs and CNPs among the packets.")
    paused_ns: int = _counted(
        _SENT,
        "How long data rested for pause frames of the fabric.",
        column="paused_ns",
        metric="chakram_paused_seconds_total",
        slot="paused_ns",
        factor=1e-9,
    )
    round_trips: HistogramCounts
    pacing_errors: HistogramCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatistics:
    """What is counted of a process of the data plane, beside its engine."""

    received_bytes: int = _counted(
        "", "Bytes received, likewise.", metric="chakram_rx_bytes_total"
    )
    delivered_bytes: int = _counted(
        "",
        "Payload acknowledged by its receiver; its rate is the goodput.",
        metric="chakram_delivered_bytes_total",
    )
    socket_drops: int = _counted(
        "",
        "Packets that the kernel dropped for want of receive buffer.",
        metric="chakram_socket_drops_total",
    )
    send_retries: int = _counted(
        "",
        "Times that the kernel had no room to send, or the interface was down.",
        metric="chakram_send_retries_total",
    )
    samples_dropped: int = _counted(
        "",
        "Records lost because a queue was full; above 0, the results miss them.",
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
"""What ports do to packets on purpose, in the order of ``plan.faults.FaultAction``."""


def counters_of(kind: type) -> tuple[Counter, ...]:
    """Return the counters of one of the kinds of statistics, in their order."""
    return _COUNTERS[kind]


def columns_of(kind: type) -> tuple[str, ...]:
    """Return the columns of its counters in the tables of a run, in their order."""
    return tuple(each.column for each in _COUNTERS[kind] if each.column is not None)


_ROW_READERS: dict[type, Callable[[object], tuple[int, ...]]] = {
    kind: attrgetter(
        *(each.name for each in _COUNTERS[kind] if each.column is not None)
    )
    for kind in (QueuePairStatistics, PortStatistics)
}


def row_of(statistics: QueuePairStatistics | PortStatistics) -> tuple[int, ...]:
    """Return the values of ``columns_of`` its kind."""
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
    """Return of a snapshot what ``PortEngine.sampled`` says of a port."""
    return row_of(statistics), sum(_disturbances(statistics))


def row_reader(
    kind: type[QueuePairStatistics] | type[PortStatistics],
) -> Callable[[Mapping[str, object]], tuple[int, ...]]:
    """Return what reads the values of ``columns_of`` a kind where they are counted.

    It takes the parts of the engine, as ``gather`` does; what no part counts is 0. A
    snapshot would take three times as long.
    """
    places = [name for _, names, _ in _READERS[kind] for name in names]
    in_order = itemgetter(
        *(
            places.index(each.name) if each.part else len(places)
            for each in _COUNTERS[kind]
            if each.column is not None
        )
    )

    def read(parts: Mapping[str, object]) -> tuple[int, ...]:
        values: tuple[int, ...] = ()
        for part, _, of_part in _READERS[kind]:
            values += of_part(parts[part])
        row: tuple[int, ...] = in_order((*values, 0))
        return row

    return read


_disturbances = attrgetter(
    *(each.name for each in _COUNTERS[PortStatistics] if each.metric == _DISTURBED)
)


def gather(
    kind: type[Snapshot], parts: Mapping[str, object], **others: Any
) -> Snapshot:
    """Return a snapshot of counters as they are now.

    Args:
        kind: What they are counted of.
        parts: The parts of the engine that keep them, by the names that they have in
            the declarations.
        others: The fields that no part keeps.
    """
    for part, names, read in _READERS[kind]:
        others.update(zip(names, read(parts[part]), strict=True))
    return kind(**others)
