"""Switches that avoid some of their next hops."""

from __future__ import annotations

from collections import Counter

from chakram.switch.ecmp import Flow, KernelPaths, RestrictedPaths

HASH = KernelPaths(seed=7)


def flow(source_port: int) -> Flow:
    return Flow(
        sender=0,
        receiver=1,
        source="198.18.0.1",
        destination="198.18.0.2",
        source_port=source_port,
        destination_port=4791,
    )


def test_flows_are_spread_over_the_remaining_next_hops() -> None:
    narrowed = RestrictedPaths(inner=HASH, kept=(((3, 4), (0, 2)),))
    chosen = Counter(narrowed.chooser(flow(each))(3, 4) for each in range(2000, 2400))
    assert set(chosen) == {0, 2}
    assert min(chosen.values()) > 100


def test_other_switches_and_choices_follow_the_hash() -> None:
    narrowed = RestrictedPaths(inner=HASH, kept=(((3, 4), (0, 2)),))
    for source_port in range(2000, 2050):
        inner, outer = (
            HASH.chooser(flow(source_port)),
            narrowed.chooser(flow(source_port)),
        )
        for place in ((3, 2), (5, 4), (0, 1)):
            assert outer(*place) == inner(*place)
