"""Checking ICRCs without seeing the identification."""

from __future__ import annotations

import pytest

from chakram.roce.verify import IcrcVerifier
from chakram.roce.wire import WireEncoder
from chakram.testing.pair import make_queue_pair, split


def packets(local: str, remote: str) -> list[bytes]:
    encoder = WireEncoder(local_address=local, path_mtu=256, max_burst_packets=15)
    encoder.set_destination(0, remote)
    qp = make_queue_pair(path_mtu=256)
    qp.post_send(0, 17 * 256, 0)
    qp.next_burst(0, 2)
    burst = qp.next_burst(0, 14)
    assert burst is not None
    return split(*encoder.encode(burst))


def make_verifier(local: str, remote: str, every: int = 1) -> IcrcVerifier:
    verifier = IcrcVerifier(local_address=remote, every=every)
    verifier.set_destination(5, local)
    return verifier


@pytest.mark.parametrize(
    ("local", "remote"), [("198.18.0.1", "198.18.0.2"), ("fd00::1", "fd00::2")]
)
def test_any_segment_of_a_send_is_valid(local: str, remote: str) -> None:
    verifier = make_verifier(local, remote)
    for packet in packets(local, remote):
        assert verifier.is_valid(packet, peer=5, source_port=0xC000)
        damaged = packet[:20] + bytes([packet[20] ^ 4]) + packet[21:]
        assert not verifier.is_valid(damaged, peer=5, source_port=0xC000)
        assert not verifier.is_valid(packet, peer=5, source_port=0xC001)


def test_nothing_of_an_unknown_peer_is_valid() -> None:
    verifier = make_verifier("198.18.0.1", "198.18.0.2")
    (packet, *_) = packets("198.18.0.1", "198.18.0.2")

    assert not verifier.is_valid(packet, peer=6, source_port=0xC000)


def test_every_nth_packet_is_due() -> None:
    verifier = make_verifier("198.18.0.1", "198.18.0.2", every=3)

    assert [verifier.is_due() for _ in range(7)] == [False, False, True] * 2 + [False]


def test_a_sample_has_a_size() -> None:
    with pytest.raises(ValueError, match="one packet in 0"):
        IcrcVerifier(local_address="198.18.0.1", every=0)
