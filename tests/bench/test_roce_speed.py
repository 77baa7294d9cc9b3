"""What a burst of 15 packets of 4 KiB costs, in each form of the code.

The limits are generous: several times what a 2.5 GHz core of 2020 needs. They are there
to notice when something per packet creeps into what is meant to be per burst.
"""

from __future__ import annotations

import time
import timeit
from typing import TYPE_CHECKING

import pytest

from chakram._compiled import status
from chakram.roce.packet_encoder import WireEncoder
from chakram.roce.packet_verification import PacketVerifier
from chakram.roce.port import PortEngine
from tests.bench.extent import at_most, sized
from tests.virtual_wire import make_queue_pair

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = sized(400, 10)
SHORT_TURNS = sized(3_000, 30)


def best_us(work: Callable[[], object]) -> float:
    """Return the fastest of five averages, in microseconds."""
    return min(timeit.repeat(work, number=ROUNDS, repeat=5)) / ROUNDS * 1e6


def limit_us(compiled: float, plain: float) -> float:
    return at_most(compiled if status().is_compiled() else plain)


def make_port(qpn: int, remote_qpn: int) -> PortEngine:
    port = PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=15)
    port.add_queue_pair(
        make_queue_pair(qpn, remote_qpn, path_mtu=4096, window_bytes=1 << 40)
    )
    return port


def begin(receiver: PortEngine) -> None:
    """Let *receiver* have the first burst of what `sender` sends."""
    port = make_port(0x11, 0x12)
    port.post_send(0x11, 0, 1 << 31, 0)
    burst = port.next_burst(0)
    assert burst is not None
    receiver.receive_burst(burst, 0)


@pytest.fixture
def sender() -> PortEngine:
    port = make_port(0x11, 0x12)
    for number in range(4):
        port.post_send(0x11, number, 1 << 31, 0)
    port.next_burst(0)
    return port


@pytest.fixture
def encoder() -> WireEncoder:
    encoder = WireEncoder(
        local_address="198.18.0.1", path_mtu=4096, max_burst_packets=15
    )
    encoder.set_destination(0, "198.18.0.2")
    return encoder


def test_building_and_encoding_a_burst_is_fast(
    sender: PortEngine, encoder: WireEncoder
) -> None:
    def work() -> None:
        burst = sender.next_burst(0)
        assert burst is not None
        encoder.encode(burst)

    assert best_us(work) < limit_us(compiled=8, plain=200)


def test_receiving_and_acknowledging_a_burst_is_fast(
    sender: PortEngine, encoder: WireEncoder
) -> None:
    receiver = make_port(0x12, 0x11)
    begin(receiver)
    burst = sender.next_burst(0)
    assert burst is not None
    view, segment_size = encoder.encode(burst)
    buffer, psn = bytearray(view), burst.psn

    def work() -> None:
        nonlocal psn
        for position in range(15):
            # Nothing else changes from burst to burst.
            at = position * segment_size + 9
            buffer[at : at + 3] = psn.to_bytes(3, "big")
            psn += 1
        receiver.receive_datagrams(buffer, len(buffer), segment_size, 0)
        receiver.next_burst(0)

    assert best_us(work) < limit_us(compiled=25, plain=250)
    assert receiver.queue_pair(0x12).statistics().out_of_sequence == 0


@pytest.mark.parametrize(("path_mtu", "limit_ns"), [(4096, 110), (1024, 60)])
def test_inspecting_a_packet_costs_little(path_mtu: int, limit_ns: int) -> None:
    """Of many short turns with and without the fastest third: others work here, too."""
    if not status().is_compiled():
        pytest.skip("uncompiled a sample is looked at")
    local, remote = "198.18.0.1", "198.18.0.2"
    packets = 60_000 // path_mtu
    port = PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=packets)
    port.add_queue_pair(
        make_queue_pair(0x11, 0x12, path_mtu=path_mtu, window_bytes=1 << 40)
    )
    port.post_send(0x11, 0, 1 << 31, 0)
    encoder = WireEncoder(
        local_address=local, path_mtu=path_mtu, max_burst_packets=packets
    )
    encoder.set_destination(0, remote)
    verifier = PacketVerifier(local_address=remote, path_mtu=path_mtu)
    receivers = []
    for its_verifier in (None, verifier):
        receiver = PortEngine(
            rate_bps=None,
            burst_bound_ns=0,
            max_burst_packets=packets,
            verifier=its_verifier,
        )
        pair = make_queue_pair(0x12, 0x11, path_mtu=path_mtu)
        if its_verifier is not None:
            pair.flow = its_verifier.flow(local)
        receiver.add_queue_pair(pair)
        receivers.append(receiver)
    taken: tuple[list[float], list[float]] = [], []
    for turn in range(SHORT_TURNS):
        burst = port.next_burst(0)
        assert burst is not None
        view, segment_size = encoder.encode(burst)
        data = bytearray(view)
        for which in (turn % 2, 1 - turn % 2):
            began_ns = time.perf_counter_ns()
            receivers[which].receive_datagrams(
                data, len(data), segment_size, 0, False, burst.source_port
            )
            elapsed_ns = time.perf_counter_ns() - began_ns
            if burst.count == packets:
                taken[which].append(elapsed_ns / packets)
    assert (
        receivers[1].statistics().verified == receivers[1].statistics().packets_received
    )
    assert receivers[1].statistics().icrc_errors == 0
    off_ns, full_ns = (sorted(each)[len(each) // 3] for each in taken)
    assert full_ns - off_ns < at_most(limit_ns)


def test_burst_without_bytes_is_fast(sender: PortEngine) -> None:
    receiver = make_port(0x12, 0x11)
    begin(receiver)

    def work() -> None:
        burst = sender.next_burst(0)
        assert burst is not None
        receiver.receive_burst(burst, 0)
        answer = receiver.next_burst(0)
        if answer is not None:
            sender.receive_burst(answer, 0)

    assert best_us(work) < limit_us(compiled=5, plain=60)
    assert receiver.queue_pair(0x12).statistics().out_of_sequence == 0
