"""Counters of a port under their SONiC names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from chakram.switch.packet_outcomes import DROP_REASONS
from chakram.switch.settings import CLASSES

if TYPE_CHECKING:
    from chakram.switch.port import Port


_PORT = "SAI_PORT_STAT_"
_QUEUE = "SAI_QUEUE_STAT_"
_GROUP = "SAI_INGRESS_PRIORITY_GROUP_STAT_"
_WATCHDOG = "PFC_WD_QUEUE_STATS_DEADLOCK_"


def port_counters(port: Port, now_ns: int) -> Mapping[str, int]:
    """Return the current counters of a port.

    Counters of a queue or priority group end with its number: ``...:3``. Two kinds of
    counters are not in SONiC: ``paused_ns:3``, the total pause time of a queue, and
    ``dropped: ...``, the drops by reason.
    """
    counted = port.counted(now_ns)
    values = {
        f"{_PORT}IF_IN_OCTETS": sum(counted["received_bytes"]),
        f"{_PORT}IF_OUT_OCTETS": sum(counted["sent_bytes"]),
        f"{_PORT}IF_IN_UCAST_PKTS": sum(counted["received_packets"]),
        f"{_PORT}IF_OUT_UCAST_PKTS": sum(counted["sent_packets"]),
    }
    for klass in range(CLASSES):
        values[f"{_PORT}PFC_{klass}_RX_PKTS"] = counted["pfc_received"][klass]
        values[f"{_PORT}PFC_{klass}_TX_PKTS"] = counted["pfc_sent"][klass]
        for name, key in (
            (f"{_QUEUE}PACKETS", "sent_packets"),
            (f"{_QUEUE}BYTES", "sent_bytes"),
            (f"{_QUEUE}DROPPED_PACKETS", "drop_packets"),
            (f"{_QUEUE}DROPPED_BYTES", "drop_bytes"),
            (f"{_QUEUE}WRED_ECN_MARKED_PACKETS", "marked_packets"),
            (f"{_QUEUE}WRED_DROPPED_PACKETS", "wred_drops"),
            (f"{_QUEUE}CURR_OCCUPANCY_BYTES", "queue_bytes"),
            (f"{_QUEUE}WATERMARK_BYTES", "peak_bytes"),
            (f"{_WATCHDOG}DETECTED", "storms"),
            (f"{_WATCHDOG}RESTORED", "restored"),
            ("paused_ns", "paused_ns"),
        ):
            values[f"{name}:{klass}"] = counted[key][klass]
        if port.ingress:
            incoming = port.ingress[klass]
            values[f"{_GROUP}SHARED_WATERMARK_BYTES:{klass}"] = incoming.peak_bytes
            values[f"{_GROUP}XOFF_ROOM_WATERMARK_BYTES:{klass}"] = (
                incoming.headroom_peak_bytes
            )
        outgoing = port.egress[klass]
        values[f"{_QUEUE}SHARED_WATERMARK_BYTES:{klass}"] = outgoing.peak_bytes
    for reason, text in DROP_REASONS.items():
        values[f"dropped: {text}"] = counted["drops_by_reason"][reason]
    return values
