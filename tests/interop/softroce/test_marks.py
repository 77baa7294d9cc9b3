"""Soft-RoCE behind RED with ECN: marks and CNPs in both directions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.interop.softroce.disturbance import ARRIVING, LEAVING, mark, marks
from tests.interop.softroce.host import exchange
from tests.interop.softroce.machine import LIMIT_S, Machine
from tests.interop.softroce.orders import TRANSPORT, Order
from tests.plans import dcqcn_arguments

pytestmark = [pytest.mark.timeout(LIMIT_S), pytest.mark.slow]

MESSAGES = 64
"""On each of two queue pairs."""
ECN_CAPABLE = 0x6A
"""DSCP 26, ECT(0)."""


@pytest.mark.parametrize("version", [pytest.param(4, marks=pytest.mark.soak), 6])
def test_marks_are_counted_and_answered_with_cnps(
    disturbed: Machine, version: int
) -> None:
    mark(disturbed, LEAVING)
    transport = replace(
        TRANSPORT,
        congestion_control="dcqcn",
        congestion_parameters=dcqcn_arguments(interval="1ms"),
    )
    outcome = exchange(
        disturbed,
        Order(
            version=version,
            to_host=MESSAGES,
            seed=f"marks {version}",
            transport=transport,
            traffic_class=ECN_CAPABLE,
        ),
    )

    outcome.check()
    pairs = outcome.pairs.values()
    assert sum(pair.ce for pair in pairs) == marks(disturbed, LEAVING) > 30
    assert all(pair.cnps_sent > 0 for pair in pairs)
    # It knows no CNPs: it drops each before it counts it, and nothing comes of that.
    cnps = sum(pair.cnps_sent for pair in pairs)
    assert outcome.counters["rcvd_pkts"] == outcome.port.packets_sent - cnps
    assert outcome.rejections() == {}


def test_our_marked_packets_are_accepted(disturbed: Machine) -> None:
    mark(disturbed, ARRIVING)
    transport = replace(TRANSPORT, window_bytes=256 * 1024)
    outcome = exchange(
        disturbed,
        Order(version=4, to_guest=MESSAGES, seed="marked", transport=transport),
    )

    outcome.check()
    assert marks(disturbed, ARRIVING) > 30
    assert outcome.counters["rcvd_pkts"] == outcome.port.packets_sent
    assert outcome.rejections() == {}
