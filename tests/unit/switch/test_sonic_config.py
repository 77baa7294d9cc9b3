"""Configurations of SONiC switches as settings of the model."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from chakram.foundation.errors import ConfigError
from chakram.switch.headroom import LinkEnd, headroom_bytes
from chakram.switch.settings import WatchdogSettings, WredSettings
from chakram.switch.sonic_config import (
    checked_tables,
    port_names,
    read_sonic,
    stretched_watchdog,
)
from tests.sonic_tables import TABLES, tables

END = LinkEnd(rate_bps=100 * 10**9, delay_ns=500)


def test_ports_are_in_the_order_of_their_lanes() -> None:
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


def test_row_may_list_several_ports() -> None:
    settings = read_sonic(tables(), [END, END], where="db")
    assert settings.ports[1].egress[0].alpha_shift == 3
    assert settings.ports[1].ingress[4].headroom_bytes == 165568


def test_headroom_is_computed_like_on_the_switch() -> None:
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
def test_contradictory_configuration_is_refused(
    table: str, row: str, field: str, value: str, text: str
) -> None:
    given = tables()
    given[table][row][field] = value
    with pytest.raises(ConfigError) as caught:
        read_sonic(given, [END, END], where="db")
    assert str(caught.value) == text


@pytest.mark.parametrize("table", sorted(TABLES))
@pytest.mark.parametrize("junk", [None, 3, "x", [], {"a": None}, {"Ethernet0|3": []}])
def test_arbitrary_input_is_read_or_refused(table: str, junk: object) -> None:
    given = tables()
    given[table] = junk
    with contextlib.suppress(ConfigError):
        read_sonic(given, [END, END], where="db")


def test_more_links_than_ports_are_refused() -> None:
    with pytest.raises(ConfigError, match="has 2 entries for 3 links"):
        read_sonic(tables(), [END] * 3, where="db")


def test_only_what_the_model_uses_is_kept_and_the_rest_is_named() -> None:
    said = tables()
    said["DEVICE_METADATA"] = {"localhost": {"hwsku": "ACS-MSN2700"}}
    said["VLAN"] = {}
    found = checked_tables(said, where="db")
    assert found.unused == (
        "BUFFER_POOL: mode, type",
        "PORT: speed",
        "tables: DEVICE_METADATA, VLAN",
    )
    assert found.used["PORT"]["Ethernet0"] == {"lanes": "1,2,3,4"}
    assert found.used["DSCP_TO_TC_MAP"] == TABLES["DSCP_TO_TC_MAP"]
    ends = [END, END]
    settings = read_sonic(said, ends, where="db")
    assert read_sonic(found.used, ends, where="db") == settings
    assert checked_tables(found.used, where="db").unused == ()


@pytest.mark.parametrize(
    ("table", "rows", "note"),
    [
        (
            "QUEUE",
            {"chassis|asic0|Ethernet0|3": {"wred_profile": "AZURE_LOSSLESS"}},
            "QUEUE.chassis|asic0|Ethernet0|3: does not belong to a port in PORT",
        ),
        (
            "BUFFER_PG",
            {"Ethernet0|3": {"profile": "pg_lossless_100000_5m_profile"}},
            "BUFFER_PG: has no profile for the lossless classes of Ethernet0, which "
            "therefore never pause",
        ),
        (
            "BUFFER_POOL",
            {
                **TABLES["BUFFER_POOL"],
                "egress_lossless_pool": {"percentage": "50"},
            },
            "BUFFER_POOL.egress_lossless_pool: has no size, which means no limit",
        ),
    ],
)
def test_what_the_model_cannot_express_is_named(
    table: str, rows: dict[str, Any], note: str
) -> None:
    said = tables()
    said[table] = rows
    assert note in checked_tables(said, where="db").unused


def test_a_queue_that_drops_instead_of_marking_marks_nothing() -> None:
    said = tables()
    said["WRED_PROFILE"]["AZURE_LOSSLESS"]["ecn"] = "ecn_none"
    assert read_sonic(said, [END], where="db").ports[0].wred == (None,) * 8


@pytest.mark.parametrize("key", ["detection_time", "restoration_time"])
def test_times_of_the_watchdog_are_bounded(key: str) -> None:
    said = tables()
    ((port, row),) = [
        each for each in said["PFC_WD"].items() if "detection_time" in each[1]
    ]
    said["PFC_WD"][port] = {**row, key: "1000000000000000"}
    with pytest.raises(
        ConfigError, match=rf"PFC_WD\.{port}\.{key}: .* is not a number"
    ):
        read_sonic(said, [END], where="db")


def test_dilation_stretches_the_times_of_the_watchdog() -> None:
    said = tables()
    watchdog = (
        read_sonic(stretched_watchdog(said, 10), [END], where="db").ports[0].watchdog
    )
    assert watchdog == WatchdogSettings(
        detection_ns=4 * 10**9, restoration_ns=6 * 10**9, poll_ns=2 * 10**9
    )
    del said["PFC_WD"]["GLOBAL"]
    stretched = read_sonic(stretched_watchdog(said, 10), [END], where="db")
    assert stretched.ports[0].watchdog is not None
    assert stretched.ports[0].watchdog.poll_ns == 10**9
    del said["PFC_WD"]
    assert stretched_watchdog(said, 10) == said
