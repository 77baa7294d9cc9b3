"""How many packets of 4 KiB modeled switches pass on in a second of their process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chakram._compiled import status
from chakram.fabric.labs.lab import start_lab
from chakram.fabric.labs.link_counters import read_counters
from chakram.switch.profiles import Profile
from chakram.topology.common_topologies import single_switch
from chakram.topology.topology import EcnThresholds
from tests.bench.extent import at_least, sized
from tests.leaks import own_lab
from tests.netns.labs import GBIT, traffic

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = sized("2", "0.2")
SIZE = "4112"
"""Of a packet of 4 KiB: BTH and ICRC are payload to UDP."""

LEAST = 150_000
PLAIN_LEAST = 2_000


@pytest.mark.asyncio
async def test_switch_forwards_enough_packets_per_second(
    record_property: Callable[[str, object], None],
) -> None:
    """Saturated, delivered; marks, pauses and counters on."""
    marks = EcnThresholds(kmin_bytes=100_000, kmax_bytes=400_000, probability=0.2)
    topology = single_switch(8, 20 * GBIT, host_ecn=marks)
    lab = await start_lab(
        topology,
        lab_name=own_lab("speed"),
        forwarding="model",
        profile=Profile(name="sonic", mtu=4214),
    )
    best = 0.0
    async with lab:
        for _ in range(sized(3, 1)):
            before = read_counters(lab.state).process
            traffic(lab.state, "flood", SECONDS, SIZE, *topology.hosts[:4])
            after = read_counters(lab.state).process
            delivered = after["delivered"] - before["delivered"]
            cpu_ns = after["cpu_ns"] - before["cpu_ns"]
            assert delivered > sized(10_000, 0)
            best = max(best, delivered * 1e9 / cpu_ns)
    record_property("packets per CPU second", round(best))
    assert best >= at_least(LEAST if status().is_compiled() else PLAIN_LEAST)
