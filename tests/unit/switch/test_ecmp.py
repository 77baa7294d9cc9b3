"""Hashes of switches as choices among equal-cost next hops."""

from __future__ import annotations

from chakram.switch.ecmp import DrawnPaths, Flow, KernelPaths
from chakram.switch.kernel_hash import hash_seed, kernel_hash
from chakram.switch.keyed_random import flow_hash


def flow(source_port: int, *, backwards: bool = False) -> Flow:
    ends = [(0, "198.18.0.1"), (5, "198.18.1.2")]
    (sender, source), (receiver, destination) = ends[::-1] if backwards else ends
    return Flow(
        sender=sender,
        receiver=receiver,
        source=source,
        destination=destination,
        source_port=source_port,
        destination_port=4791,
    )


PORTS = range(49152, 49152 + 256)


def test_hashes_of_neighbors_differ() -> None:
    hashes = {flow_hash(7, 0, 1, port) for port in range(49152, 49152 + 64)}
    assert len(hashes) == 64
    assert len({value % 4 for value in hashes}) == 4
    assert all(0 <= value < 1 << 32 for value in hashes)
    assert flow_hash(1, 2, 3, 4) != flow_hash(1, 3, 2, 4)


def test_draws_at_two_switches_in_a_row_are_independent() -> None:
    used = set()
    for port in PORTS:
        choose = DrawnPaths(seed=1).chooser(flow(port))
        used.add((choose(0, 4), choose(1, 4)))
    assert len(used) == 16


def test_lab_chooses_by_kernel_hash_and_switch_seed() -> None:
    for port in PORTS:
        way = flow(port)
        choose = KernelPaths(seed=9).chooser(way)
        for switch in range(3):
            value = kernel_hash(
                hash_seed(9, switch),
                source=way.source,
                destination=way.destination,
                source_port=port,
                destination_port=4791,
            )
            assert choose(switch, 2) == (value >= 1 << 30)
        assert choose(0, 1) == 0
        back = KernelPaths(seed=9).chooser(flow(port, backwards=True))
        assert [back(0, 8), back(1, 8)] == [choose(0, 8), choose(1, 8)]


def test_second_tier_of_a_lab_spreads_its_flows() -> None:
    used = set()
    for port in PORTS:
        choose = KernelPaths(seed=1).chooser(flow(port))
        used.add((choose(0, 4), choose(1, 4)))
    assert len(used) == 16
