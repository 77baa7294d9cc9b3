"""Link faults on kernel switches: their effect and their end."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import pytest

from chakram.fabric.labs.lab import start_lab
from chakram.fabric.labs.link_counters import disturb_links, read_counters
from chakram.foundation.errors import FabricError
from chakram.predict.simulator.switch_fabric import port_names
from chakram.switch.faults import FaultKind, LinkFault
from chakram.switch.port import NEVER
from tests.leaf_spines import clos
from tests.leaks import own_lab
from tests.netns.labs import star, traffic

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.topology.topology import Topology

PACKETS = 400
ATTEMPTS = 5
"""Something else may keep the machine busy for a while."""


def lasting(topology: Topology, kind: FaultKind, port: str, **more: Any) -> LinkFault:
    """Return a fault that has begun and does not end by itself."""
    return LinkFault(
        kind=kind,
        port=port_names(topology).index(port),
        at_ns=monotonic_ns(),
        until_ns=NEVER,
        **more,
    )


@pytest.mark.asyncio
async def test_loss_on_a_link_is_counted_in_its_direction() -> None:
    topology = star(3)
    async with await start_lab(topology, lab_name=own_lab("loss")) as handle:
        lab = handle.state
        disturb_links(
            lab,
            [
                # Of two a packet is spared by one and the other: a half is left.
                lasting(topology, "loss", "h0:eth0", probability=0.25),
                lasting(topology, "corruption", "h0:eth0", probability=1 / 3),
            ],
        )
        arrived = traffic(lab, "flows", "h0", "h1", str(PACKETS), "100")
        counters = read_counters(lab).links
        # Six standard deviations.
        assert abs(arrived - PACKETS / 2) < 6 * PACKETS**0.5 / 2
        assert counters["h0-s0"].tx_drops == PACKETS - arrived
        assert counters["h0-s0"].tx_packets == PACKETS
        assert counters["h1-s0"].rx_packets == arrived
        for name in ("h1-s0", "h2-s0"):
            assert counters[name].tx_drops == counters[name].rx_drops == 0
        assert counters["h0-s0"].rx_drops == 0

        disturb_links(lab, [])
        # A storm of pauses is nothing that a kernel obeys; the lab stands all the same.
        with pytest.raises(FabricError, match="do not support pauses"):
            disturb_links(
                lab, [lasting(topology, "pause_storm", "s0:h0", classes=(3,))]
            )
        assert traffic(lab, "pairs") == 6


@pytest.mark.asyncio
@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
async def test_switches_remove_a_link_that_is_down_from_their_routes(
    family: str, tmp_path: Path
) -> None:
    topology = clos(2, 2, 2, None, None)
    async with await start_lab(
        topology, lab_name=own_lab("down"), addressing=family
    ) as handle:
        lab = handle.state
        near, far = lab.host("h0").address, lab.host("h2").address

        def ways(leaf: str) -> list[str]:
            """Return the port that a leaf sends each flow to the other one by."""
            ends = (near, far) if leaf == "leaf0" else (far, near)
            path = tmp_path / leaf
            path.write_text(
                "\n".join(f"{ends[0]} {ends[1]} {49152 + n} 4791" for n in range(64))
            )
            found: list[str] = traffic(lab, "routes", leaf, "br0", str(path))
            return found

        usual = {leaf: ways(leaf) for leaf in ("leaf0", "leaf1")}
        assert all(set(each) == {"up0", "up1"} for each in usual.values())

        disturb_links(lab, [lasting(topology, "down", "leaf0:up0")])
        assert set(ways("leaf0")) == {"up1"}
        # The other leaf is not informed. Its packets over that spine are lost.
        arrived = traffic(lab, "flows", "h2", "h0", "64", "100")
        assert arrived == usual["leaf1"].count("up1")
        link = read_counters(lab).links["leaf0-spine0"]
        assert (link.tx_drops, link.rx_drops) == (0, 64 - arrived)

        disturb_links(lab, [])
        assert ways("leaf0") == usual["leaf0"]


@pytest.mark.asyncio
@pytest.mark.parametrize("rate_bps", [10**8, None])
async def test_a_degraded_link_has_its_rate_until_it_ends(rate_bps: int | None) -> None:
    topology = star(2, rate_bps)
    degraded_bps = 20 * 10**6

    def rate() -> float:
        payload_bps: float = traffic(handle.state, "rate", "h0", "h1", "150", "4000")
        return payload_bps * 4042 / 4000

    async with await start_lab(topology, lab_name=own_lab("degrade")) as handle:
        fault = lasting(topology, "degrade", "s0:h1", rate_bps=degraded_bps)
        disturb_links(handle.state, [fault])
        slow = []
        for _ in range(ATTEMPTS):
            slow.append(rate())
            if slow[-1] == pytest.approx(degraded_bps, rel=0.08):
                break
        assert slow[-1] == pytest.approx(degraded_bps, rel=0.08), slow
        disturb_links(handle.state, [])
        # A busy machine may delay the packets of one attempt.
        assert any(rate() > 2 * degraded_bps for _ in range(ATTEMPTS))
