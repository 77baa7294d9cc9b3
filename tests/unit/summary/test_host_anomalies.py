"""Host counters that show a disturbance become sentences."""

from __future__ import annotations

import pytest

from chakram.summary.host_anomalies import host_anomalies

S = 10**9


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"ens1 rx_dropped": 20}, "ens1 rx_dropped grew by 20"),
        ({"ens1 qdisc_dropped": 3}, "ens1 qdisc_dropped grew by 3"),
        ({"e ethtool:rx_discards_phy": 1}, "e ethtool:rx_discards_phy grew by 1"),
        ({"softnet_dropped": 9}, "the kernel dropped 9 packets on arrival (softnet)"),
        ({"softnet_squeezed": 100}, "ran out of time for arriving packets 100 times"),
        ({"cpu_throttled": 2}, "throttled 2 times"),
        ({"cpu_steal_ms": 300}, "other virtual machines used 3% of a CPU's time"),
        (
            {"cpu_fastest_khz": 1_200_000, "cpu_limit_khz": 3_500_000},
            "the fastest CPU ran at 1.2 GHz of 3.5 GHz",
        ),
    ],
)
def test_anomalies_are_named(counts: dict[str, int], words: str) -> None:
    (found,) = host_anomalies(counts, 10 * S)
    assert words in found


def test_a_quiet_host_has_none() -> None:
    quiet = {
        "ens1 rx_dropped": 19,
        "ens1 ethtool:rx_prio3_pause": 7,  # pauses are what a lossless network does
        "softnet_dropped": 0,
        "softnet_squeezed": 99,
        "cpu_steal_ms": 200,
        "cpu_fastest_khz": 3_000_000,
        "cpu_limit_khz": 3_500_000,
    }
    assert host_anomalies(quiet, 10 * S) == []
    assert host_anomalies({}, 0) == []
