"""The number of packets in a burst."""

import pytest

from chakram.plan.transport_defaults import (
    ack_interval_packets,
    burst_packets,
    window_bytes,
)

WINDOW = 64 * 1024


@pytest.mark.parametrize(
    ("rate_bps", "ports", "packets"),
    [
        (100_000_000, 8, 2),
        (250_000_000, 8, 2),
        (500_000_000, 8, 4),
        (1_000_000_000, 2, 2),
        (1_000_000_000, 8, 8),
        (1_000_000_000, 64, 8),
    ],
)
def test_bursts_grow_with_the_rate_of_a_process(
    rate_bps: int, ports: int, packets: int
) -> None:
    assert packets == burst_packets(
        rate_bps=rate_bps,
        path_mtu=4096,
        window_bytes=WINDOW,
        on_kernel=True,
        ports=ports,
    )


@pytest.mark.parametrize(
    ("rate_bps", "path_mtu", "packets"),
    [
        (10 * 10**9, 4096, 4),
        (25 * 10**9, 4096, 11),
        (400 * 10**9, 4096, 15),
        (400 * 10**9, 1024, 60),
        (400 * 10**9, 256, 64),
        (10**9, 1024, 2),
    ],
)
def test_on_real_switches_bursts_are_short_in_time(
    rate_bps: int, path_mtu: int, packets: int
) -> None:
    assert packets == burst_packets(
        rate_bps=rate_bps,
        path_mtu=path_mtu,
        window_bytes=1 << 20,
        on_kernel=False,
        ports=1,
    )


@pytest.mark.parametrize(("window", "packets"), [(WINDOW, 8), (1 << 20, 15), (4096, 2)])
def test_two_bursts_fit_into_the_window(window: int, packets: int) -> None:
    for on_kernel in (False, True):
        assert packets == burst_packets(
            rate_bps=None,
            path_mtu=4096,
            window_bytes=window,
            on_kernel=on_kernel,
            ports=8,
        )


@pytest.mark.parametrize(
    ("rate_bps", "packets"),
    [(50_000_000, 2), (250_000_000, 8), (500_000_000, 15), (1_000_000_000, 15)],
)
def test_more_hops_need_longer_bursts(rate_bps: int, packets: int) -> None:
    assert packets == burst_packets(
        rate_bps=rate_bps,
        path_mtu=4096,
        window_bytes=None,
        on_kernel=True,
        ports=8,
        tiers=2,
    )


@pytest.mark.parametrize("tiers", [1, 2, 3])
@pytest.mark.parametrize(
    ("rate_bps", "packets"),
    [(40_000_000, 2), (100_000_000, 2), (200_000_000, 4), (1_000_000_000, 15)],
)
def test_modeled_switches_need_fewer_bursts_regardless_of_their_number(
    rate_bps: int, packets: int, tiers: int
) -> None:
    assert packets == burst_packets(
        rate_bps=rate_bps,
        path_mtu=4096,
        window_bytes=None,
        on_kernel=True,
        ports=8,
        tiers=tiers,
        is_modeled=True,
    )


@pytest.mark.parametrize(
    ("rate_bps", "packets", "window"),
    [(40_000_000, 15, 245_760), (40_000_000, 2, WINDOW), (200_000_000, 4, 125_000)],
)
def test_modeled_switches_have_windows_of_5_ms(
    rate_bps: int, packets: int, window: int
) -> None:
    assert window == window_bytes(
        burst_packets=packets, path_mtu=4096, modeled_rate_bps=rate_bps
    )


@pytest.mark.parametrize(
    ("packets", "window"), [(2, WINDOW), (4, WINDOW), (8, 2 * WINDOW), (15, 245_760)]
)
def test_the_window_holds_four_bursts_and_half_of_it_is_acknowledged(
    packets: int, window: int
) -> None:
    assert window == window_bytes(burst_packets=packets, path_mtu=4096)
    assert ack_interval_packets(packets) * 4096 * 2 <= window
