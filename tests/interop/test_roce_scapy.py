"""Our packets decoded by scapy's RoCE layer."""

from __future__ import annotations

import random
import warnings

import pytest

from chakram.roce.constants import Verb
from chakram.roce.opcodes import Opcode
from chakram.roce.packet_encoder import WireEncoder
from chakram.roce.port import PortEngine
from tests.virtual_wire import make_queue_pair, split

with warnings.catch_warnings():
    # Its imports warn of ciphers that are not used here.
    warnings.simplefilter("ignore")
    from scapy.contrib.roce import AETH, BTH
    from scapy.layers.inet import IP, UDP
    from scapy.layers.inet6 import IPv6

LOCAL, REMOTE = "198.18.0.1", "198.18.0.2"
LOCAL6, REMOTE6 = "fd00::1", "fd00::2"


def ip_packet(version: int, datagram: bytes, segment: int, source_port: int) -> bytes:
    """Put our UDP payload below headers that scapy makes."""
    udp = UDP(sport=source_port, dport=4791)
    if version == 4:
        ip = IP(src=LOCAL, dst=REMOTE, id=segment, flags="DF", tos=0x6A)
    else:
        ip = IPv6(src=LOCAL6, dst=REMOTE6, tc=0x6A)
    return bytes(ip / udp / datagram)


def parsed(version: int, data: bytes) -> IP | IPv6:
    return IP(data) if version == 4 else IPv6(data)


def with_scapy_icrc(version: int, data: bytes) -> bytes:
    """Return the packet as scapy builds it when it computes the ICRC itself."""
    packet = parsed(version, data)
    packet[BTH].icrc = None
    return bytes(packet)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("verb", list(Verb))
@pytest.mark.parametrize("path_mtu", [256, 1024, 4096])
def test_scapy_reads_the_bth_and_computes_the_same_icrc(
    version: int, verb: Verb, path_mtu: int
) -> None:
    rng = random.Random(path_mtu + verb)
    encoder = WireEncoder(
        local_address=LOCAL if version == 4 else LOCAL6,
        path_mtu=path_mtu,
        max_burst_packets=4,
    )
    encoder.set_destination(0, REMOTE if version == 4 else REMOTE6)
    psn = rng.randrange(2**24)
    port = PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=4)
    port.add_queue_pair(
        make_queue_pair(
            0x11, 0x12, path_mtu=path_mtu, send_psn=psn, verb=verb, window_bytes=10**9
        )
    )
    for number in range(5):
        port.post_send(0x11, number, rng.randrange(6 * path_mtu), 0)
    while (burst := port.next_burst(0)) is not None:
        for segment, datagram in enumerate(split(*encoder.encode(burst))):
            data = ip_packet(version, datagram, segment, burst.source_port)
            bth = parsed(version, data)[BTH]
            assert bth.dqpn == 0x12
            assert bth.psn == psn
            assert bth.version == 0
            assert (bth.migreq, bth.solicited) == (1, 0)
            assert bth.pkey == 0xFFFF
            assert bth.opcode == datagram[0]
            is_last = segment == burst.count - 1
            assert bth.ackreq == (burst.ack_request and is_last)
            assert bth.padcount == -(burst.packet_payload_bytes(segment)) % 4
            assert with_scapy_icrc(version, data)[-4:] == datagram[-4:]
            psn = (psn + 1) % 2**24


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("is_nak", [False, True])
def test_scapy_reads_our_acknowledgements(version: int, is_nak: bool) -> None:
    encoder = WireEncoder(
        local_address=LOCAL if version == 4 else LOCAL6,
        path_mtu=1024,
        max_burst_packets=1,
    )
    encoder.set_destination(0, REMOTE if version == 4 else REMOTE6)
    responder = make_queue_pair(0x12, 0x11, receive_psn=77)
    responder.arrivals.receive_run(77 + is_nak, 1, 0, True, True, 5, 5, 1, True, 0, 0)
    burst = responder.next_burst(0, 1)
    assert burst is not None
    datagram = bytes(encoder.encode(burst)[0])
    data = ip_packet(version, datagram, 0, burst.source_port)
    packet = parsed(version, data)

    assert packet[BTH].opcode == Opcode.ACKNOWLEDGE
    assert packet[BTH].migreq == 1
    assert packet[BTH].dqpn == 0x11
    assert packet[BTH].psn == 77
    assert packet[AETH].syndrome == (0x60 if is_nak else 0x1F)
    assert packet[AETH].msn == (0 if is_nak else 1)
    assert with_scapy_icrc(version, data)[-4:] == datagram[-4:]
