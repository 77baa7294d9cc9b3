from __future__ import annotations

from typing import Any

import pytest

from chakram.foundation.declared_settings import settings_of
from chakram.plan.packet_faults import PacketFault
from chakram.plan.transport import TransportPlan


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"verb": "read"}, "verb: 'read' is not one of write, send"),
        ({"path_mtu": 1500}, "path_mtu: 1500 is not one of 256, 512"),
        ({"window_bytes": 0}, "window_bytes: 0 is not in 1.."),
        ({"max_burst_packets": 0}, "max_burst_packets: 0 is not in 1.."),
        ({"retransmit_timeout_ns": 2**53 + 1}, "retransmit_timeout_ns: "),
    ],
)
def test_settings_that_are_impossible_are_refused(
    settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        TransportPlan(**settings)


@pytest.mark.parametrize("kind", [TransportPlan, PacketFault])
def test_every_field_has_a_unique_number_and_key(kind: type) -> None:
    settings = settings_of(kind)
    numbers = sorted(each.setting.number for each in settings)
    assert numbers == list(range(1, len(settings) + 1))
    assert len({each.path for each in settings}) == len(settings)
