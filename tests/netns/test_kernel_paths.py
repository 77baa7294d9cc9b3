"""Predicted paths through a lab equal those of the kernel."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from chakram.fabric.labs.lab import start_lab
from chakram.fabric.labs.link_counters import read_counters
from chakram.switch.ecmp import Flow, KernelPaths
from chakram.switch.kernel_hash import hash_seed, kernel_hash, next_hop, upper_bounds
from chakram.topology.topology_builders import fat_tree, leaf_spine, rails
from chakram.topology.topology_helpers import LinkKind
from tests.leaf_spines import clos
from tests.leaks import own_lab
from tests.netns.labs import HEADER_BYTES, traffic

if TYPE_CHECKING:
    from pathlib import Path

FLOWS = 10_000
"""Over 2 to 8 next hops, of both families, from both leaves."""

HOSTS = 3
SPINES = range(2, 9)
FAMILIES = ("ipv4", "ipv6")
QUICK = {("ipv4", 2), ("ipv4", 7), ("ipv6", 3), ("ipv6", 8)}
SOAK = pytest.mark.soak
EACH = [
    # Few and many next hops, powers of two and others; all of both families in soak.
    pytest.param(family, spines, marks=() if (family, spines) in QUICK else SOAK)
    for family in FAMILIES
    for spines in SPINES
]


def predicted(seed: int, spines: int, flow: tuple[str, str, int, int]) -> str:
    """Return the port of a switch that a flow leaves by."""
    source, destination, source_port, destination_port = flow
    value = kernel_hash(
        seed,
        source=source,
        destination=destination,
        source_port=source_port,
        destination_port=destination_port,
    )
    return f"up{next_hop(value, upper_bounds([1] * spines))}"


@pytest.mark.asyncio
@pytest.mark.parametrize(("family", "spines"), EACH)
async def test_every_predicted_next_hop_equals_that_of_the_kernel(
    family: str, spines: int, tmp_path: Path
) -> None:
    draw = random.Random(f"{family} {spines}")
    seed = draw.randrange(1 << 32)
    topology = clos(2, spines, HOSTS, None, None)
    count = -(-FLOWS // (2 * len(SPINES) * len(FAMILIES)))
    lab_name = own_lab(f"hash{spines}")
    async with await start_lab(
        topology, lab_name=lab_name, seed=seed, addressing=family
    ) as handle:
        addresses = [host.address for host in handle.state.hosts]
        for leaf in "leaf0", "leaf1":
            flows = [
                (
                    draw.choice(addresses[:HOSTS]),
                    draw.choice(addresses[HOSTS:]),
                    draw.randrange(1, 1 << 16),
                    # Of queue pairs, and any other.
                    draw.choice((4791, draw.randrange(1, 1 << 16))),
                )
                for _ in range(count)
            ]
            path = tmp_path / leaf
            path.write_text("\n".join(" ".join(map(str, flow)) for flow in flows))
            found = traffic(handle.state, "routes", leaf, "br0", str(path))
            own_seed = hash_seed(seed, topology.switches.index(leaf))
            assert found == [predicted(own_seed, spines, flow) for flow in flows]
            assert len(set(found)) == spines
            addresses.reverse()


@pytest.mark.asyncio
@pytest.mark.parametrize("family", FAMILIES)
async def test_packets_take_the_paths_that_are_predicted(family: str) -> None:
    """Queries of routes are one thing, packets another: they come through a bridge."""
    seed, count, size_bytes = 12, 64, 1000
    topology = clos(2, 3, 2, None, None)
    packet_bytes = size_bytes + HEADER_BYTES[family]
    async with await start_lab(
        topology, lab_name=own_lab("paths"), seed=seed, addressing=family
    ) as handle:
        lab = handle.state
        for leaf, near, far in (("leaf0", "h0", "h2"), ("leaf1", "h2", "h0")):
            before = read_counters(lab).links
            assert traffic(lab, "flows", near, far, str(count), str(size_bytes))
            after = read_counters(lab).links
            own_seed = hash_seed(seed, topology.switches.index(leaf))
            places = lab.host(near).address, lab.host(far).address
            expected = Counter(
                predicted(own_seed, 3, (*places, port, 4791))
                for port in range(49152, 49152 + count)
            )
            assert {
                spine: after[name].tx_bytes - before[name].tx_bytes
                for spine in range(3)
                for name in (f"{leaf}-spine{spine}",)
            } == {spine: expected[f"up{spine}"] * packet_bytes for spine in range(3)}


_RATELESS = LinkKind()
_SHAPES = {
    "side by side": leaf_spine(2, 2, 2, uplinks=5, host=_RATELESS, uplink=_RATELESS),
    "fat tree": fat_tree(
        2, 2, 2, 3, 1, host=_RATELESS, uplink=_RATELESS, core=_RATELESS
    ),
    "rails": rails(2, 2, 3, uplinks=3, host=_RATELESS, uplink=_RATELESS),
}


_CHOOSERS = {
    "side by side": (
        ("leaf0", "br0", 5),
        # Two of the five links of the other leaf are to this spine.
        ("spine0", "down0", 2),
    ),
    "fat tree": (("pod0-leaf1", "br0", 2), ("pod0-spine1", "down0", 3)),
    "rails": (("rail0", "br0", 3),),
}
"""By shape: switches, where flows come to them, and how many links they go on by."""


@pytest.mark.asyncio
@pytest.mark.parametrize("shape", _SHAPES)
async def test_every_switch_of_other_shapes_chooses_as_predicted(
    shape: str, tmp_path: Path
) -> None:
    topology, seed = _SHAPES[shape], 77
    draw = random.Random(shape)
    near, far = "h1" if shape == "fat tree" else "h0", topology.hosts[-1]
    ports = draw.sample(range(1024, 1 << 16), 300)
    path = tmp_path / "flows"
    found = {}
    async with await start_lab(
        topology, lab_name=own_lab("shape"), seed=seed, addressing="ipv4"
    ) as handle:
        places = handle.state.host(near).address, handle.state.host(far).address
        path.write_text("\n".join(f"{places[0]} {places[1]} {p} 4791" for p in ports))
        for switch, comes_by, _ in _CHOOSERS[shape]:
            found[switch] = traffic(handle.state, "routes", switch, comes_by, str(path))
    paths = KernelPaths(seed=seed)
    for switch, _, choices in _CHOOSERS[shape]:
        hops = topology.next_hops(switch, far)
        assert len(hops) == choices
        number = topology.switches.index(switch)
        expected = []
        for port in ports:
            flow = Flow(
                sender=0,
                receiver=1,
                source=places[0],
                destination=places[1],
                source_port=port,
                destination_port=4791,
            )
            expected.append(hops[paths.chooser(flow)(number, choices)].port)
        assert found[switch] == expected
        assert len(set(expected)) == choices
