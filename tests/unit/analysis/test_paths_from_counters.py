"""Paths of flows are found that agree with the counters of the links."""

from __future__ import annotations

import random

import pytest

from chakram.analysis.paths_from_counters import FlowBytes, assign_paths


def drawn(
    seed: int, flows: int, spines: int, sizes: tuple[float, ...]
) -> tuple[list[FlowBytes], dict[str, float]]:
    """Return flows between four leaves, and the bytes that random paths cause."""
    rng = random.Random(seed)
    found, counted = (
        [],
        dict.fromkeys(
            (
                port
                for leaf in range(4)
                for spine in range(spines)
                for port in (f"l{leaf}:s{spine}", f"s{spine}:l{leaf}")
            ),
            0.0,
        ),
    )
    for _ in range(flows):
        source, target = rng.sample(range(4), 2)
        paths = tuple(
            (f"l{source}:s{spine}", f"s{spine}:l{target}") for spine in range(spines)
        )
        flow = FlowBytes(rng.choice(sizes), paths)
        for port in rng.choice(paths):
            counted[port] += flow.nbytes
        found.append(flow)
    return found, counted


@pytest.mark.parametrize(
    ("flows", "spines", "sizes"),
    [
        (16, 2, (1e6,)),
        (56, 4, (1e6,)),
        (240, 8, (1e6, 3e6)),
        pytest.param(2000, 8, (1e6, 5e6), marks=pytest.mark.soak),
    ],
)
def test_assigned_paths_carry_what_was_counted(
    flows: int, spines: int, sizes: tuple[float, ...]
) -> None:
    for seed in range(1 + min(4, 2000 // flows)):
        made, counted = drawn(seed, flows, spines, sizes)
        # Counters of another unit, such as with headers, are in proportion.
        scaled = {port: 1.02 * each for port, each in counted.items()}
        found = [assign_paths(made, scaled, seed=each) for each in range(12)]
        chosen, misfit = min(found, key=lambda each: each[1])
        assert misfit < 0.01
        carried = dict.fromkeys(counted, 0.0)
        for flow, path in zip(made, chosen, strict=True):
            for port in flow.paths[path]:
                carried[port] += flow.nbytes
        off = sum(abs(carried[port] - each) for port, each in counted.items())
        assert off / 2 / sum(counted.values()) == pytest.approx(misfit, abs=1e-6)


def test_unequal_flows_are_exchanged() -> None:
    paths = (("l:a",), ("l:b",))
    flows = [FlowBytes(nbytes, paths) for nbytes in (7.0, 6.0, 5.0, 4.0)]
    chosen, misfit = assign_paths(flows, {"l:a": 11.0, "l:b": 11.0}, seed=1)
    assert misfit == 0
    assert chosen[0] == chosen[3] != chosen[1] == chosen[2]


def test_flows_without_counters_fit_nothing() -> None:
    flow = FlowBytes(1.0, (("l:a",), ("l:b",)))
    assert assign_paths([flow], {}, seed=1)[1] == 1
    assert assign_paths([], {"l:a": 5.0}, seed=1) == ([], 1)
    # What was counted elsewhere does not agree with any path.
    assert assign_paths([flow], {"l:a": 1.0, "l:b": 1.0}, seed=1)[1] == 0.5
