"""Ports of a job, and their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.collectives.groups import world_group
from chakram.foundation.errors import PlanError
from chakram.plan.placement import PATTERNS, PlacementOptions, patterned, place
from chakram.plan.plan import RunSettings
from chakram.plan.port_plan import PortPlan
from chakram.plan.transport import TransportPlan
from tests.leaf_spines import clos
from tests.made_plans import collective, fabric_ports, program

TOPOLOGY = clos(2, 1, 4, 10**9, 10**9)
PORTS = fabric_ports(TOPOLOGY)


def leaf(port: PortPlan) -> str:
    return TOPOLOGY.switch_of(port.host)


def ports_of(
    *, seed: int = 1, nranks: int = 2, **options: PlacementOptions
) -> dict[str, list[int]]:
    """Return the ports of jobs of two ranks each, by job, in the order of ranks."""
    world = world_group(nranks)
    programs = {
        job: [
            program(rank, world, [collective("all_reduce", 8)], job=job)
            for rank in range(nranks)
        ]
        for job in options
    }
    plan = place(
        programs,
        PORTS,
        options,
        TransportPlan(),
        RunSettings(seed=seed),
        shards={},
        run_id="r",
        near=leaf,
    )
    found: dict[str, list[int]] = {}
    for rank in plan.ranks():
        found.setdefault(rank.program.job, []).append(rank.port)
    return found


def test_packed_jobs_follow_each_other() -> None:
    usual = PlacementOptions()
    assert ports_of(a=usual, b=usual) == {"a": [0, 1], "b": [2, 3]}


def test_striped_jobs_alternate_between_leaves() -> None:
    striped = PlacementOptions(pattern="striped")
    assert ports_of(a=striped, b=striped) == {"a": [0, 4], "b": [1, 5]}
    assert ports_of(nranks=5, a=striped) == {"a": [0, 4, 1, 5, 2]}


def test_jobs_may_share_ports_and_hosts_have_names() -> None:
    b = PlacementOptions(ports=(0, 3, 5), pattern="packed")
    names = [port.host for port in PORTS]
    a = PlacementOptions(ports=(3, names[7], 0))
    assert ports_of(nranks=3, a=a, b=b) == {"a": [3, 7, 0], "b": [0, 3, 5]}


def test_an_agent_names_all_of_its_ports() -> None:
    everything = PlacementOptions(ports=("agent0",), pattern="striped")
    assert ports_of(nranks=4, a=everything) == {"a": [0, 4, 1, 5]}


def test_random_ports_depend_on_seed_and_job() -> None:
    random = PlacementOptions(pattern="random")
    first = ports_of(nranks=4, a=random, b=random)
    assert ports_of(nranks=4, a=random, b=random) == first
    assert sorted(first["a"] + first["b"]) == list(range(8))
    others = [ports_of(seed=seed, nranks=4, a=random)["a"] for seed in range(8)]
    assert len({tuple(ports) for ports in others}) > 4


@pytest.mark.parametrize(
    ("option", "text"),
    [
        (
            PlacementOptions(ports=(8,)),
            "job a: placement.ports: there is no port 8 (use ports 0 to 7: ",
        ),
        (PlacementOptions(ports=("h99",)), "there is no port h99"),
        (PlacementOptions(ports=(1, "agent0")), "names port 1 twice"),
        (
            PlacementOptions(ports=(1,)),
            "its 2 ranks need 2 ports, but only 1 are available",
        ),
        (
            PlacementOptions(pattern="striped", first_port=7),
            "its 2 ranks need 2 ports, but only 1 are available",
        ),
    ],
)
def test_unknown_ports_are_refused(option: PlacementOptions, text: str) -> None:
    with pytest.raises(PlanError) as error:
        ports_of(a=option)
    assert text in str(error.value)


def test_an_unknown_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="pattern 'diagonal' is not one of"):
        PlacementOptions(pattern="diagonal")


@given(
    pattern=st.sampled_from(PATTERNS),
    candidates=st.lists(st.integers(0, 7), unique=True),
    seed=st.text(max_size=5),
)
def test_every_pattern_uses_each_port_once(
    pattern: str, candidates: list[int], seed: str
) -> None:
    order = patterned(pattern, candidates, PORTS, near=leaf, seed=seed)
    assert sorted(order) == sorted(candidates)
