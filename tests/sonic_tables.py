"""The config_db.json of a SONiC switch with two ports, as its tables."""

from __future__ import annotations

import copy
from typing import Any

TABLES: dict[str, Any] = {
    "PORT": {
        "Ethernet4": {"lanes": "5,6,7,8", "speed": "100000"},
        "Ethernet0": {"lanes": "1,2,3,4", "speed": "100000"},
    },
    "BUFFER_POOL": {
        "ingress_lossless_pool": {
            "type": "ingress",
            "mode": "dynamic",
            "size": "12766208",
            "xoff": "4194112",
        },
        "egress_lossless_pool": {
            "type": "egress",
            "mode": "static",
            "size": "12766208",
        },
        "egress_lossy_pool": {"type": "egress", "mode": "dynamic", "size": "7326924"},
    },
    "BUFFER_PROFILE": {
        "pg_lossless_100000_5m_profile": {
            "pool": "ingress_lossless_pool",
            "size": "1248",
            "xon": "2288",
            "xoff": "165568",
            "xon_offset": "2496",
            "dynamic_th": "-3",
        },
        "egress_lossless_profile": {
            "pool": "egress_lossless_pool",
            "size": "0",
            "static_th": "12766208",
        },
        "egress_lossy_profile": {
            "pool": "[BUFFER_POOL|egress_lossy_pool]",
            "size": "1518",
            "dynamic_th": "3",
        },
    },
    "BUFFER_PG": {
        "Ethernet0|3-4": {"profile": "pg_lossless_100000_5m_profile"},
        "Ethernet4|3-4": {"profile": "[BUFFER_PROFILE|pg_lossless_100000_5m_profile]"},
    },
    "BUFFER_QUEUE": {
        "Ethernet0,Ethernet4|3-4": {"profile": "egress_lossless_profile"},
        "Ethernet0,Ethernet4|0-2": {"profile": "egress_lossy_profile"},
    },
    "WRED_PROFILE": {
        "AZURE_LOSSLESS": {
            "ecn": "ecn_all",
            "wred_green_enable": "true",
            "green_min_threshold": "250000",
            "green_max_threshold": "2097152",
            "green_drop_probability": "5",
        }
    },
    "SCHEDULER": {
        "scheduler.0": {"type": "DWRR", "weight": "14"},
        "scheduler.1": {"type": "DWRR", "weight": "15"},
        "strict": {"type": "STRICT"},
    },
    "QUEUE": {
        "Ethernet0|3": {"wred_profile": "AZURE_LOSSLESS", "scheduler": "scheduler.1"},
        "Ethernet0|0": {"scheduler": "[SCHEDULER|scheduler.0]"},
        "Ethernet0|6": {"scheduler": "strict"},
    },
    "DSCP_TO_TC_MAP": {"AZURE": {"8": "0", "26": "3", "34": "4", "48": "6", "3": "3"}},
    "TC_TO_QUEUE_MAP": {"AZURE": {str(each): str(each) for each in range(8)}},
    "TC_TO_PRIORITY_GROUP_MAP": {
        "AZURE": {"0": "0", "1": "0", "3": "3", "4": "4", "6": "0"}
    },
    "PORT_QOS_MAP": {
        "Ethernet0": {
            "pfc_enable": "3,4",
            "dscp_to_tc_map": "AZURE",
            "tc_to_queue_map": "AZURE",
            "tc_to_pg_map": "[TC_TO_PRIORITY_GROUP_MAP|AZURE]",
        },
    },
    "PFC_WD": {
        "GLOBAL": {"POLL_INTERVAL": "200"},
        "Ethernet0": {
            "action": "drop",
            "detection_time": "400",
            "restoration_time": "600",
        },
    },
}


def tables() -> dict[str, Any]:
    """Return a copy that a test may change."""
    return copy.deepcopy(TABLES)
