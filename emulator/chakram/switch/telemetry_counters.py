"""Port counters under their SONiC and OpenConfig names, as switches serve them.

The byte counters of switches include the FCS of each packet, but the byte counters of
the model do not. The byte counters in this module therefore include 4 more bytes per
packet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chakram.switch.packet_outcomes import (
    CORRUPTED,
    DROP_REASONS,
    HEADROOM_FULL,
    INGRESS_LIMIT,
    NO_ROUTE,
)
from chakram.switch.settings import CLASSES

AT_INGRESS = frozenset({INGRESS_LIMIT, HEADROOM_FULL, NO_ROUTE, CORRUPTED})
"""Drop reasons that a port counts for arriving packets. The port counts all other drop
reasons for packets that it sends."""

FCS_BYTES = 4
"""Length of the frame check sequence of a packet."""

UP = "up"
"""Name of the counter that is 1 as long as a port is up."""

Counted = Mapping[str, Sequence[int]]
"""Counters from ``chakram.switch.port.Port.counted``."""

_PORT = "SAI_PORT_STAT_"
_QUEUE = "SAI_QUEUE_STAT_"
_WATCHDOG = "PFC_WD_QUEUE_STATS_DEADLOCK_"


def drops(counted: Counted, *, at_ingress: bool) -> int:
    """Return how many arriving packets, or else outgoing packets, a port dropped."""
    return sum(
        counted["drops_by_reason"][reason]
        for reason in DROP_REASONS
        if (reason in AT_INGRESS) == at_ingress
    )


def sonic_port(counted: Counted) -> dict[str, int]:
    """Return the counters of a port as in SONiC's COUNTERS table."""
    values = {
        f"{_PORT}IF_IN_OCTETS": _octets(counted, "received"),
        f"{_PORT}IF_OUT_OCTETS": _octets(counted, "sent"),
        f"{_PORT}IF_IN_UCAST_PKTS": sum(counted["received_packets"]),
        f"{_PORT}IF_OUT_UCAST_PKTS": sum(counted["sent_packets"]),
        f"{_PORT}IF_IN_DISCARDS": drops(counted, at_ingress=True),
        f"{_PORT}IF_OUT_DISCARDS": drops(counted, at_ingress=False),
    }
    for klass in range(CLASSES):
        values[f"{_PORT}PFC_{klass}_RX_PKTS"] = counted["pfc_received"][klass]
        values[f"{_PORT}PFC_{klass}_TX_PKTS"] = counted["pfc_sent"][klass]
    return values


def sonic_queue(counted: Counted, klass: int) -> dict[str, int]:
    """Return the counters of a queue as in SONiC's COUNTERS table.

    SONiC does not have ``CHAKRAM_PAUSED_NS``, the total pause time of a queue.
    """
    packets = counted["sent_packets"][klass]
    return {
        f"{_QUEUE}PACKETS": packets,
        f"{_QUEUE}BYTES": counted["sent_bytes"][klass] + FCS_BYTES * packets,
        f"{_QUEUE}DROPPED_PACKETS": counted["drop_packets"][klass],
        f"{_QUEUE}DROPPED_BYTES": counted["drop_bytes"][klass],
        f"{_QUEUE}WRED_ECN_MARKED_PACKETS": counted["marked_packets"][klass],
        f"{_QUEUE}WRED_DROPPED_PACKETS": counted["wred_drops"][klass],
        f"{_QUEUE}CURR_OCCUPANCY_BYTES": counted["queue_bytes"][klass],
        f"{_QUEUE}SHARED_WATERMARK_BYTES": counted["peak_bytes"][klass],
        f"{_WATCHDOG}DETECTED": counted["storms"][klass],
        f"{_WATCHDOG}RESTORED": counted["restored"][klass],
        "CHAKRAM_PAUSED_NS": counted["paused_ns"][klass],
    }


def openconfig_interface(counted: Counted) -> dict[str, int]:
    """Return a port's ``interface/state/counters`` of openconfig-interfaces."""
    return {
        "in-octets": _octets(counted, "received"),
        "in-pkts": sum(counted["received_packets"]),
        "in-discards": drops(counted, at_ingress=True),
        "out-octets": _octets(counted, "sent"),
        "out-pkts": sum(counted["sent_packets"]),
        "out-discards": drops(counted, at_ingress=False),
    }


def openconfig_queue(counted: Counted, klass: int) -> dict[str, int]:
    """Return a queue's ``queue/state`` of openconfig-qos, version 2.2."""
    packets = counted["sent_packets"][klass]
    return {
        "transmit-pkts": packets,
        "transmit-octets": counted["sent_bytes"][klass] + FCS_BYTES * packets,
        "dropped-pkts": counted["drop_packets"][klass],
        "ecn-marked-pkts": counted["marked_packets"][klass],
        "max-queue-len": counted["peak_bytes"][klass],
    }


def switch_tree(ports: Mapping[str, Counted]) -> dict[str, Any]:
    """Return a switch's counters as nested objects that SONiC and OpenConfig define.

    An entry of an OpenConfig list is a member ``name[key=value]``. SONiC values are
    strings, as in the replies of the SONiC server.

    Args:
        ports: Counters of the switch's ports, by port name.
    """
    tables: dict[str, Any] = {}
    states: dict[str, Any] = {}
    interfaces: dict[str, Any] = {}
    queues: dict[str, Any] = {}
    for name, counted in ports.items():
        is_up = bool(counted[UP][0])
        tables[name] = {
            **_texts(sonic_port(counted)),
            "Queues": {
                f"{name}:{klass}": _texts(sonic_queue(counted, klass))
                for klass in range(CLASSES)
            },
        }
        states[name] = {"netdev_oper_status": "up" if is_up else "down"}
        interfaces[f"interface[name={name}]"] = {
            "state": {
                "counters": openconfig_interface(counted),
                "oper-status": "UP" if is_up else "DOWN",
            }
        }
        queues[f"interface[interface-id={name}]"] = {
            "output": {
                "queues": {
                    f"queue[name={klass}]": {"state": openconfig_queue(counted, klass)}
                    for klass in range(CLASSES)
                }
            }
        }
    return {
        "COUNTERS": tables,
        "PORT_TABLE": states,
        "interfaces": interfaces,
        "qos": {"interfaces": queues},
    }


def description_tree(facts: Mapping[str, str]) -> dict[str, Any]:
    """Return *facts* about a switch under the SONiC and OpenConfig paths for them."""
    return {
        "DEVICE_METADATA": {"localhost": dict(facts)},
        "system": {"state": dict(facts)},
    }


def _octets(counted: Counted, way: str) -> int:
    packets = sum(counted[f"{way}_packets"])
    return sum(counted[f"{way}_bytes"]) + FCS_BYTES * packets


def _texts(values: Mapping[str, int]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}
