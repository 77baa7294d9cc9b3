"""The kernel's multipath hash; ``tests/netns`` compares it with kernels."""

from __future__ import annotations

from collections import Counter

import pytest

from chakram.switch.kernel_hash import hash_seed, kernel_hash, next_hop, upper_bounds

ANY = (1 << 31) - 1


def value(
    source: str, destination: str, ports: tuple[int, int] = (49152, 4791), seed: int = 7
) -> int:
    return kernel_hash(
        seed,
        source=source,
        destination=destination,
        source_port=ports[0],
        destination_port=ports[1],
    )


FLOWS = [("198.18.0.1", "198.18.1.2"), ("2001:2::1", "2001:2:0:1::2")]


@pytest.mark.parametrize(("near", "far"), FLOWS)
def test_swapping_addresses_or_ports_does_not_change_the_hash(
    near: str, far: str
) -> None:
    swapped = {
        value(*addresses, ports)
        for addresses in ((near, far), (far, near))
        for ports in ((49152, 4791), (4791, 49152))
    }
    assert len(swapped) == 1


@pytest.mark.parametrize(("near", "far"), FLOWS)
def test_addresses_ports_protocol_and_seed_all_count(near: str, far: str) -> None:
    values = [
        value(near, far),
        value(near, far[:-1] + "3"),
        value(near, far, (49153, 4791)),
        value(near, far, (49152, 4792)),
        value(near, far, seed=8),
        kernel_hash(
            7,
            source=near,
            destination=far,
            source_port=49152,
            destination_port=4791,
            protocol=6,
        ),
    ]
    assert len(set(values)) == len(values)
    assert all(0 <= each <= ANY for each in values)


@pytest.mark.parametrize(
    ("near", "far", "ports", "seed", "expected"),
    [
        ("198.18.0.1", "198.18.1.2", (49152, 4791), 7, 266513505),
        ("198.18.1.2", "198.18.0.201", (40001, 50002), 2**32 - 1, 944157121),
        ("2001:2::1", "2001:2:0:1::2", (49152, 4791), 7, 2106334472),
        ("2001:2:0:1::2", "2001:2::9", (40001, 50002), 2**32 - 1, 2048134951),
    ],
)
def test_hash_values_equal_those_of_a_kernel(
    near: str, far: str, ports: tuple[int, int], seed: int, expected: int
) -> None:
    assert value(near, far, ports, seed) == expected


@pytest.mark.parametrize("count", range(1, 9))
def test_equal_next_hops_get_equal_shares(count: int) -> None:
    bounds = upper_bounds([1] * count)
    assert bounds[-1] == ANY
    sizes = [b - a for a, b in zip([-1, *bounds], bounds, strict=False)]
    assert max(sizes) - min(sizes) <= 1
    assert [next_hop(bound, bounds) for bound in bounds] == list(range(count))
    assert [next_hop(bound + 1, bounds) for bound in bounds[:-1]] == (
        list(range(1, count))
    )
    assert next_hop(0, bounds) == 0


def test_bounds_are_rounded_to_nearest_and_follow_the_weights() -> None:
    # 2**31 / 3 is 715,827,882.67, twice that 1,431,655,765.33.
    assert upper_bounds([1, 1, 1]) == [715_827_882, 1_431_655_764, ANY]
    assert upper_bounds([1, 3]) == [(1 << 29) - 1, ANY]


def test_flows_spread_over_next_hops_by_their_weights() -> None:
    bounds = upper_bounds([1, 2, 1])
    used = Counter(
        next_hop(value("198.18.0.1", "198.18.1.1", (port, 4791)), bounds)
        for port in range(49152, 49152 + 2000)
    )
    assert [used[0] / 500, used[1] / 1000, used[2] / 500] == (
        pytest.approx([1, 1, 1], abs=0.12)
    )


def test_hash_seeds_differ_by_switch_and_seed_and_are_never_zero() -> None:
    seeds = [hash_seed(seed, number) for seed in range(50) for number in range(50)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 < each < 2**32 for each in seeds)
    assert hash_seed(1, 0) == hash_seed(1, 0)
    assert 0 < hash_seed(2**63 - 1, 4095) < 2**32
