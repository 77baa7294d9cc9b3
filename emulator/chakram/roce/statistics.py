"""Snapshots of the counters of a queue pair and of a port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.roce.congestion.base import CongestionControl
    from chakram.roce.histogram import HistogramCounts
    from chakram.roce.requester import Requester
    from chakram.roce.responder import Responder

__all__ = ["PortStatistics", "QueuePairStatistics", "queue_pair_statistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePairStatistics:
    """What a queue pair has done since it was made. Bytes are payload but for wire.

    Attributes:
        messages_posted: By `post_send`.
        messages_completed: Acknowledged to the last byte.
        messages_flushed: Given up when the queue pair failed, or posted after that.
        messages_received: Complete messages of the peer.
        packets_sent: Data packets, new and again.
        bytes_sent: Of these.
        wire_bytes_sent: Of these, from Ethernet header to ICRC.
        packets_retransmitted: Those of them that had been sent before.
        bytes_retransmitted: Of these.
        retransmitted_for_nak: Of the packets, those that the peer had missed.
        retransmitted_for_timeout: Those for which no ACK had come in time.
        retransmitted_for_rnr: Those that the peer had not been ready for.
        packets_received: Data packets that came, wanted or not.
        bytes_received: Of those that were accepted.
        acks_sent: ACKs to the peer.
        acks_received: ACKs of the peer.
        acks_invalid: ACKs and NAKs of packets that were never sent.
        naks_sent: NAKs to the peer.
        sequence_naks_sent: Of these, those that asked for a packet that was missing.
        sequence_naks_reordered: Of these, those whose packet was seen to be late and
            not lost: it came by itself, and once more because of the NAK.
        naks_received: NAKs of the peer, receiver-not-ready included.
        naks_stale: NAKs that changed nothing: overtaken, or said twice.
        naks_overtaken: NAKs of the peer that asked for a packet that was late and not
            lost: it was acknowledged before it had been sent again. The peer cannot
            know, so these are not among its `sequence_naks_reordered`.
        receiver_not_ready: NAKs that asked to try again later.
        receiver_not_ready_sent: Likewise, to the peer.
        cnps_sent: Congestion notifications to the peer.
        cnps_received: Congestion notifications of the peer.
        duplicates: Packets that had been accepted before.
        out_of_sequence: Packets dropped because one before them was missing.
        invalid_requests: Packets that no requester may send.
        timeouts: Times that no ACK came.
        ce: Data packets that came marked "congestion experienced".
        rate_bps: What congestion control allows now; None: no limit.
        target_bps: What it wants to return to; None: it has no such thing.
        alpha: How congested it takes the path to be, 0 to 1; None: likewise.
        failure: Why the queue pair is in the error state; None: it is not.
    """

    messages_posted: int
    messages_completed: int
    messages_flushed: int
    messages_received: int
    packets_sent: int
    bytes_sent: int
    wire_bytes_sent: int
    packets_retransmitted: int
    bytes_retransmitted: int
    retransmitted_for_nak: int
    retransmitted_for_timeout: int
    retransmitted_for_rnr: int
    packets_received: int
    bytes_received: int
    acks_sent: int
    acks_received: int
    acks_invalid: int
    naks_sent: int
    sequence_naks_sent: int
    sequence_naks_reordered: int
    naks_received: int
    naks_stale: int
    naks_overtaken: int
    receiver_not_ready: int
    receiver_not_ready_sent: int
    cnps_sent: int
    cnps_received: int
    duplicates: int
    out_of_sequence: int
    invalid_requests: int
    timeouts: int
    ce: int
    rate_bps: int | None
    target_bps: int | None
    alpha: float | None
    failure: str | None


def queue_pair_statistics(
    requester: Requester, responder: Responder, congestion_control: CongestionControl
) -> QueuePairStatistics:
    """Return the counters of a queue pair as they are now."""
    rate_bps = congestion_control.rate_bps
    return QueuePairStatistics(
        messages_posted=requester.messages_posted,
        messages_completed=requester.messages_completed,
        messages_flushed=requester.messages_flushed,
        messages_received=responder.messages_received,
        packets_sent=requester.packets_sent,
        bytes_sent=requester.bytes_sent,
        wire_bytes_sent=requester.wire_bytes_sent,
        packets_retransmitted=requester.packets_retransmitted,
        bytes_retransmitted=requester.bytes_retransmitted,
        retransmitted_for_nak=requester.retries.for_nak,
        retransmitted_for_timeout=requester.retries.for_timeout,
        retransmitted_for_rnr=requester.retries.for_rnr,
        packets_received=responder.packets_received,
        bytes_received=responder.bytes_received,
        acks_sent=responder.acks_sent,
        acks_received=requester.acks_received,
        acks_invalid=requester.acks_invalid,
        naks_sent=responder.naks_sent,
        sequence_naks_sent=responder.sequence_naks_sent,
        sequence_naks_reordered=responder.sequence_naks_reordered,
        naks_received=requester.naks_received,
        naks_stale=requester.naks_stale,
        naks_overtaken=requester.naks_overtaken,
        receiver_not_ready=requester.receiver_not_ready,
        receiver_not_ready_sent=responder.receiver_not_ready_sent,
        cnps_sent=responder.cnps_sent,
        cnps_received=requester.cnps_received,
        duplicates=responder.duplicates,
        out_of_sequence=responder.out_of_sequence,
        invalid_requests=responder.invalid_requests,
        timeouts=requester.timeouts,
        ce=responder.ce,
        rate_bps=rate_bps if rate_bps > 0 else None,
        target_bps=getattr(congestion_control, "target_bps", None),
        alpha=getattr(congestion_control, "alpha", None),
        failure=responder.failure,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PortStatistics:
    """What a port has done since it was made. Bytes are from Ethernet header to ICRC.

    Attributes:
        packets_sent: Of all kinds.
        bytes_sent: Of these.
        bursts_sent: Bursts that they left in, control packets included.
        control_sent: ACKs, NAKs and CNPs among the packets.
        packets_received: Of all kinds; those that a fault took are included.
        unknown_queue_pair: Packets to a QPN that is not here.
        foreign_address: Packets from another address than that of their queue pair's
            peer, dropped.
        malformed: Datagrams, or segments of one, that are no packets.
        partition_key_errors: Packets of another partition, dropped.
        unsupported: Packets with an opcode that is not served here.
        verified: Packets whose ICRC and payload were looked at.
        icrc_errors: Those of them that were dropped because the ICRC was wrong.
        wrong_payloads: Those of them that were taken though they do not carry what was
            sent.
        faults_dropped: Packets that the port dropped because it was told to; as the
            next ones, see `chakram.plan.faults`.
        faults_delayed: Likewise, kept for a while.
        faults_duplicated: Likewise, taken or sent twice.
        faults_reordered: Likewise, overtaken by others.
        faults_marked: Likewise, taken as marked.
        faults_not_ready: Likewise, answered with receiver-not-ready.
        faults_corrupted: Likewise, with one bit flipped.
        generator_waits: Times that the port stood still for the data plane.
        generator_wait_ns: How long, in all; `PortEngine` says what counts.
        round_trips: Times from a packet that asked for an ACK to that ACK, of packets
            that were sent once.
        pacing_errors: How much later than their pace allowed bursts of data were
            offered to the wire; only those of ports or queue pairs with a rate.
    """

    packets_sent: int
    bytes_sent: int
    bursts_sent: int
    control_sent: int
    packets_received: int
    unknown_queue_pair: int
    foreign_address: int
    malformed: int
    partition_key_errors: int
    unsupported: int
    verified: int
    icrc_errors: int
    wrong_payloads: int
    generator_waits: int
    generator_wait_ns: int
    round_trips: HistogramCounts
    pacing_errors: HistogramCounts
    faults_dropped: int = 0
    faults_delayed: int = 0
    faults_duplicated: int = 0
    faults_reordered: int = 0
    faults_marked: int = 0
    faults_not_ready: int = 0
    faults_corrupted: int = 0
