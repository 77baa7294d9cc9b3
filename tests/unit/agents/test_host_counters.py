"""Counters of hosts are those of events, however many CPUs count them."""

from __future__ import annotations

from pathlib import Path

import pytest

from chakram.foundation import ethtool
from chakram_agent.host_counters import grown, interface_counters, processor


def test_an_event_is_not_counted_by_each_cpu_of_a_core_or_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two packages of two cores with two CPUs each; the second core was throttled twice,
    # the second package three times.
    for number in range(8):
        core, package = number // 2 % 2, number // 4
        cpu = tmp_path / f"cpu{number}"
        counts = {
            "topology/core_id": core,
            "topology/physical_package_id": package,
            "thermal_throttle/core_throttle_count": 2 * (number in (2, 3)),
            "thermal_throttle/package_throttle_count": 3 * package,
        }
        for name, count in counts.items():
            path = cpu / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{count}\n")
    monkeypatch.setattr("chakram_agent.host_counters._CPUS", tmp_path)
    assert processor()["cpu_throttled"] == 2 + 3


def test_growth_leaves_out_numbers_that_no_counter_reaches() -> None:
    """Some drivers report an error as a number of 64 bits, too large for messages."""
    before = {"tx_timeout": 0, "rx_dropped": (1 << 64) - 9}
    after = {"tx_timeout": (1 << 64) - 1, "rx_dropped": (1 << 64) - 5}
    assert grown(before, after) == {"rx_dropped": 4}


def test_counters_of_a_port_are_not_lost_after_those_of_many_rings() -> None:
    names = [f"e0 ethtool:[{ring}]: rx_discards" for ring in range(100)]
    names += ["e0 ethtool:rx_pause_frames", "e0 rx_dropped", "e1 ethtool:rx_discards"]
    after = dict.fromkeys(names, 5) | {names[0]: 6, "e0 ethtool:rx_pause_frames": 9}
    found = grown(dict.fromkeys(names, 5), after)
    assert len(found) == 64 + 2
    assert (found["e0 ethtool:rx_pause_frames"], found[names[0]]) == (4, 1)
    assert found["e0 rx_dropped"] == found["e1 ethtool:rx_discards"] == 0
    assert list(found) == [name for name in names if name in found]


@pytest.mark.parametrize(
    "name",
    [
        *("rx_prio3_pause", "tx_pause_ctrl_phy", "rx_discards_phy"),  # mlx5
        *("rx_pfc_ena_frames_pri3", "pfc_pri3_rx_duration_us"),  # bnxt_en
        *("rx_priority_3_xoff.nic", "link_xoff_tx.nic"),  # ice
    ],
)
def test_pauses_of_all_drivers_are_counted(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    counts = {name: 7, "rx_bytes": 5}
    monkeypatch.setattr(ethtool, "statistics", lambda interface: counts)
    assert interface_counters("no-such-one") == {f"ethtool:{name}": 7}
