"""Configurations of SONiC switches as settings of the model."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest

from chakram.foundation.errors import ConfigError
from chakram.switch.profiles import LinkEnd, headroom_bytes
from chakram.switch.settings import WatchdogSettings, WredSettings
from chakram.switch.sonic import port_names, read_sonic

END = LinkEnd(rate_bps=100 * 10**9, delay_ns=500)

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
    return copy.deepcopy(TABLES)


def test_ports_stand_in_the_order_of_their_lanes() -> None:
    assert port_names(tables(), where="db") == ["Ethernet0", "Ethernet4"]


def test_buffers_marks_pauses_and_weights_are_read() -> None:
    settings = read_sonic(tables(), [END, END], where="db")
    port = settings.ports[0]
    pools = {pool.name: pool for pool in settings.pools}
    assert pools["ingress_lossless_pool"].shared_bytes == 12766208
    assert pools["ingress_lossless_pool"].headroom_bytes == 4194112
    assert pools["egress_lossy_pool"].headroom_bytes is None
    lossless = port.ingress[3]
    assert lossless.pool == "ingress_lossless_pool"
    assert (lossless.reserved_bytes, lossless.xon_bytes) == (2288, 2288)
    assert (lossless.headroom_bytes, lossless.xon_offset_bytes) == (165568, 2496)
    assert lossless.alpha_shift == -3
    assert port.ingress[0].headroom_bytes == 0
    assert port.egress[3].static_bytes == 12766208
    assert (port.egress[1].alpha_shift, port.egress[1].reserved_bytes) == (3, 1518)
    assert port.wred[3] == WredSettings(
        kmin_bytes=250000, kmax_bytes=2097152, probability=0.05
    )
    assert port.wred[4] is None
    assert port.weights == (14, 1, 1, 15, 1, 1, 0, 1)
    assert port.pause.classes == (3, 4)
    assert port.watchdog == WatchdogSettings(
        detection_ns=400_000_000, restoration_ns=600_000_000, poll_ns=200_000_000
    )
    assert settings.class_of_dscp[26] == 3
    assert settings.class_of_dscp[48] == 6
    assert settings.class_of_dscp[1] == 0
    assert settings.ports[1].pause.classes == ()


def test_ports_of_one_row_are_all_of_it() -> None:
    settings = read_sonic(tables(), [END, END], where="db")
    assert settings.ports[1].egress[0].alpha_shift == 3
    assert settings.ports[1].ingress[4].headroom_bytes == 165568


def test_headroom_that_the_switch_computes_is_computed() -> None:
    given = tables()
    del given["BUFFER_PROFILE"]["pg_lossless_100000_5m_profile"]["xoff"]
    del given["BUFFER_POOL"]["ingress_lossless_pool"]["xoff"]
    settings = read_sonic(given, [END, END], where="db")
    assert settings.ports[0].ingress[3].headroom_bytes == headroom_bytes(END, mtu=9216)


@pytest.mark.parametrize(
    ("table", "row", "field", "value", "text"),
    [
        (
            "BUFFER_PG",
            "Ethernet0|3-4",
            "profile",
            "none",
            "db: BUFFER_PG.Ethernet0|3-4.profile: refers to BUFFER_PROFILE 'none' "
            "(add it, or remove the reference)",
        ),
        (
            "BUFFER_PROFILE",
            "egress_lossy_profile",
            "pool",
            "p",
            "db: BUFFER_PROFILE.egress_lossy_profile.pool: there is no pool 'p' "
            "(choose from BUFFER_POOL)",
        ),
        (
            "BUFFER_PROFILE",
            "egress_lossy_profile",
            "dynamic_th",
            "99",
            "db: BUFFER_PROFILE.egress_lossy_profile.dynamic_th: '99' is not a number "
            "in -16..16 (use a whole number in this range)",
        ),
        (
            "BUFFER_POOL",
            "egress_lossy_pool",
            "size",
            "4k",
            "db: BUFFER_POOL.egress_lossy_pool.size: '4k' is not a number in "
            "0..1152921504606846976 (use a whole number in this range)",
        ),
        (
            "TC_TO_QUEUE_MAP",
            "AZURE",
            "3",
            "5",
            "db: TC_TO_QUEUE_MAP: maps the lossless class 3 to 5 (map it to itself: "
            "the model has one number for both)",
        ),
        (
            "PFC_WD",
            "Ethernet0",
            "action",
            "reboot",
            "db: PFC_WD.Ethernet0.action: 'reboot' is not known "
            "(use drop, forward or alert)",
        ),
        (
            "SCHEDULER",
            "strict",
            "type",
            "FQ",
            "db: SCHEDULER.strict.type: 'FQ' is not known (use DWRR, WRR or STRICT)",
        ),
        (
            "PORT_QOS_MAP",
            "Ethernet0",
            "pfc_enable",
            "3,9",
            "db: PORT_QOS_MAP.Ethernet0.pfc_enable: '9' is not a class (use 0 to 7)",
        ),
        (
            "WRED_PROFILE",
            "AZURE_LOSSLESS",
            "green_max_threshold",
            "1",
            "db: WRED_PROFILE.AZURE_LOSSLESS: thresholds 250000..1 are not a range "
            "(check its thresholds)",
        ),
        (
            "DSCP_TO_TC_MAP",
            "AZURE",
            "64",
            "1",
            "db: DSCP_TO_TC_MAP.AZURE.64: is not a number of the map (use 0 to 63)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    table: str, row: str, field: str, value: str, text: str
) -> None:
    given = tables()
    given[table][row][field] = value
    with pytest.raises(ConfigError) as caught:
        read_sonic(given, [END, END], where="db")
    assert str(caught.value) == text


@pytest.mark.parametrize("table", sorted(TABLES))
@pytest.mark.parametrize("junk", [None, 3, "x", [], {"a": None}, {"Ethernet0|3": []}])
def test_junk_raises_our_error_or_is_read(table: str, junk: object) -> None:
    given = tables()
    given[table] = junk
    with contextlib.suppress(ConfigError):
        read_sonic(given, [END, END], where="db")


def test_more_links_than_ports_are_refused() -> None:
    with pytest.raises(ConfigError, match="has 2 entries for 3 links"):
        read_sonic(tables(), [END] * 3, where="db")
