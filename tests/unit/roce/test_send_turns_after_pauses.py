"""Order of queue pairs after one had nothing to send for a while."""

from __future__ import annotations

import pytest

from chakram.roce.port import PortEngine
from tests.unit.roce.ports import MTU, drained, make_port

# A quantum is two packets with all headers, 2 x (1024 + 58); two bursts of
# immediate and RETH take what stands here.
QUANTUM_BYTES = 2 * (MTU + 58)


def turns(port: PortEngine) -> list[int]:
    """Return the order of sends while queue pairs 1 and 2 have much data."""
    for qpn in (1, 2):
        port.post_send(qpn, 0, 2 * MTU, 0)
        port.post_send(qpn, 0, 99 * MTU, 0)
    return [port.next_burst(0).source_qpn for _ in range(8)]


@pytest.mark.parametrize("sizes", [[10], [1_004], [1_004, 996]])
def test_unused_quantum_expires_with_a_pause(sizes: list[int]) -> None:
    """A queue pair that pauses within its turn returns as a new one."""
    port = make_port(qpns=(1, 2), max_burst_packets=2)
    for size_bytes in sizes:
        port.post_send(1, 0, size_bytes, 0)
    assert sum(burst.wire_bytes for burst in drained(port)) < QUANTUM_BYTES

    assert turns(port) == turns(make_port(qpns=(1, 2), max_burst_packets=2))


def test_pausing_does_not_cancel_a_deficit() -> None:
    port = make_port(qpns=(1, 2), max_burst_packets=2)
    # The third burst goes with the last 8 bytes of the first quantum.
    for size_bytes in (1_004, 996, 2 * MTU):
        port.post_send(1, 0, size_bytes, 0)
    drained(port)

    order = turns(port)
    assert order != turns(make_port(qpns=(1, 2), max_burst_packets=2))
    assert order[:2] == [2, 1]
