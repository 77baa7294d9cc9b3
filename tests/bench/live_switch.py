"""Measures modeled switches in real time; ``make bench`` runs it as a program."""

from __future__ import annotations

import asyncio
import json

from chakram.fabric.labs.lab import start_lab
from chakram.fabric.labs.link_counters import read_counters
from chakram.switch.profiles import Profile
from chakram.topology.topology import EcnThresholds
from chakram.topology.topology_helpers import single_switch
from tests.bench.extent import sized
from tests.leaks import own_lab
from tests.netns.labs import GBIT, traffic

__all__ = ["LEAST", "packets_per_cpu_second"]

LEAST = 200_000
"""Packets of 4 KiB per second of CPU time. Eight hosts at 500 Mbit/s send 120,000."""

_SECONDS = sized("2", "0.2")
_SIZE = "4112"
"""Of a packet of 4 KiB: BTH and ICRC are payload to UDP."""


async def packets_per_cpu_second(turns: int) -> list[float]:
    """Return how many packets the switch delivers in a second of its process, by turn.

    Two hosts send as fast as one core can; marks, pauses and counters are on.
    """
    marks = EcnThresholds(kmin_bytes=100_000, kmax_bytes=400_000, probability=0.2)
    topology = single_switch(8, 20 * GBIT, host_ecn=marks)
    lab = await start_lab(
        topology,
        lab_name=own_lab("speed"),
        forwarding="model",
        profile=Profile(name="sonic", mtu=4214),
    )
    found = []
    async with lab:
        for _ in range(turns):
            before = read_counters(lab.state).process
            traffic(lab.state, "flood", _SECONDS, _SIZE, *topology.hosts[:4])
            after = read_counters(lab.state).process
            delivered = after["delivered"] - before["delivered"]
            assert delivered > sized(10_000, 0)
            found.append(delivered * 1e9 / (after["cpu_ns"] - before["cpu_ns"]))
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(packets_per_cpu_second(1))))  # noqa: T201 - read by the benchmark
