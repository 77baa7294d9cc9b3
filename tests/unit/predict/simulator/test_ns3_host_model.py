"""Hosts with one queue pair per message: order of simultaneous events.

400 Gbit/s, 500 ns: a full packet of 1,036 bytes takes 21 ns, one of 37 bytes 1 ns, and
so does an acknowledgment.
"""

from __future__ import annotations

import pytest

from chakram.predict.simulator.ns3_host_model import MessageHosts, Ns3Hosts
from chakram.predict.simulator.switch_fabric import SwitchFabric
from chakram.switch.profiles import Profile
from tests.ns3_runs import star

FULL_NS = 21
TINY_NS = 1
DELAY_NS = 500
FAR_NS = 1_000_000


def ends_ns(*posts: tuple[int, int, int]) -> list[int]:
    """Return when messages to host 2 are over.

    Args:
        posts: Of each its time, the sending host, and its bytes.
    """
    fabric = SwitchFabric(star(3), Profile(name="ns3"), ecn=False, seed=1)
    hosts = MessageHosts(
        model=fabric.model,
        hosts=fabric.host_ports,
        delays_ns=fabric.delays_ns,
        settings=Ns3Hosts(window="off"),
        make_control=None,
        has_choice=False,
    )
    found = [0] * len(posts)

    def run(until_ns: int) -> None:
        while hosts.next_ns() <= until_ns:
            hosts.run_until(until_ns)
            for pair in hosts.done:
                found[pair.message] = hosts.now_ns
            hosts.done = []

    for number, (at_ns, source, size_bytes) in enumerate(posts):
        run(at_ns - 1)
        hosts.post(source, 2, number, size_bytes, 0, at_ns)
    run(FAR_NS)
    assert hosts.unfinished() == 0
    return found


# Both arrive at the switch with the last bit of the second full packet.
LATER = pytest.mark.parametrize(
    ("at_ns", "size_bytes", "takes_ns"),
    [(2 * FULL_NS - TINY_NS, 1, TINY_NS), (FULL_NS, 1000, FULL_NS)],
    ids=["which left later", "which was posted when the other left"],
)


@LATER
def test_packet_follows_the_one_that_was_sent_first(
    at_ns: int, size_bytes: int, takes_ns: int
) -> None:
    _, end_ns = ends_ns((0, 0, 2000), (at_ns, 1, size_bytes))
    at_switch_ns = 2 * FULL_NS + DELAY_NS
    assert end_ns == (
        at_switch_ns + FULL_NS + takes_ns + DELAY_NS + 2 * (TINY_NS + DELAY_NS)
    )
