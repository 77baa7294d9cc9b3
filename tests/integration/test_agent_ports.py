"""Ports on real loopback sockets, segmented and plain."""

from __future__ import annotations

import re
import select
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from chakram.foundation.errors import AgentError, ConfigError, FabricError, PortInUse
from chakram.roce.constants import BurstKind
from chakram_agent.dataplane import udp_port as udp
from chakram_agent.dataplane.memory_port import MemoryNetwork
from chakram_agent.dataplane.open_port import open_port
from chakram_agent.dataplane.port_base import Port
from chakram_agent.dataplane.port_options import PortOptions
from chakram_agent.dataplane.route_check import check_route, outgoing_interface
from tests.udp_ports import free_udp_ports
from tests.waiting import PATIENCE_S

# Where the two ports of a test are. There is but one loopback address of IPv6.
A, B = 0, 1
PORT = free_udp_ports(2)
PLACES = (("127.18.1.1", PORT), ("127.18.1.2", PORT))
PLACES_IPV6 = (("::1", PORT), ("::1", PORT + 1))
SOURCES = (50001, 50002)
DATA_TOS, CONTROL_TOS, CNP_TOS = 26 << 2 | 2, 26 << 2, 48 << 2
DATA = int(BurstKind.DATA)

UDP = ["udp", "udp plain", "udp ipv6", "udp ipv6 plain"]


def options(place: tuple[str, int], **changes: Any) -> PortOptions:
    address, udp_port = place
    return PortOptions(
        **{
            "address": address,
            "udp_port": udp_port,
            "destinations": PLACES_IPV6 if ":" in address else PLACES,
            "source_ports": SOURCES,
            "data_tos": DATA_TOS,
            "control_tos": CONTROL_TOS,
            "cnp_tos": CNP_TOS,
            **changes,
        }
    )


class Opener:
    """Opens ports of one kind, in one form, with addresses of one family."""

    def __init__(self, kind: str, places: tuple[tuple[str, int], ...]) -> None:
        self.kind = kind
        self.places = places
        self.network = MemoryNetwork()
        self.opened: list[Port] = []

    def __call__(self, place: int, **changes: Any) -> Port:
        port = open_port(
            f"{self.kind}:", options(self.places[place], **changes), self.network
        )
        self.opened.append(port)
        return port


@pytest.fixture(params=["memory", *UDP])
def opener(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Opener]:
    kind, *form = request.param.split()
    if "plain" in form:
        monkeypatch.setattr(udp, "_batch", None)
    opened = Opener(kind, PLACES_IPV6 if "ipv6" in form else PLACES)
    yield opened
    for port in opened.opened:
        port.close()
        port.close()


def arrivals(port: Port) -> list[tuple[bytes, int, bool, int]]:
    """Wait for something to arrive; return all of it."""
    poll = select.poll()
    poll.register(port.fileno(), select.POLLIN)
    assert poll.poll(PATIENCE_S * 1000)
    found = []
    while port.receive_burst():
        data = bytes(port.buffer[: port.length])
        found.append((data, port.segment_size, port.marked, port.source_port))
    return found


def split(bursts: list[tuple[bytes, int, bool, int]]) -> list[bytes]:
    """Return the single packets of received segments."""
    return [
        data[start : start + (size or len(data))]
        for data, size, _, _ in bursts
        for start in range(0, len(data), size or len(data))
    ]


def test_burst_arrives_as_its_packets(opener: Opener) -> None:
    sender, receiver = opener(A), opener(B)
    burst = memoryview(bytes(range(256)) * 40)  # 3 segments of 3000 and a shorter one
    assert sender.send_burst(burst, 3000, 1, SOURCES[0], DATA)
    packets = split(arrivals(receiver))
    assert b"".join(packets) == burst
    assert [len(packet) for packet in packets] == [3000, 3000, 3000, 1240]


@pytest.mark.parametrize("opener", UDP, indirect=True)
def test_without_segmentation_packets_leave_one_by_one(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unsegmented(udp.UdpSockets):
        def __init__(self, interface: str, options: PortOptions) -> None:
            super().__init__(interface, options)
            self.segmentation = False

    monkeypatch.setattr(udp, "UdpSockets", Unsegmented)
    sender, receiver = opener(A), opener(B)
    assert not sender.capabilities.segmentation
    burst = memoryview(bytes(range(250)) * 10)
    assert sender.send_burst(burst, 1000, 1, SOURCES[0], DATA)
    found = arrivals(receiver)
    assert [len(data) for data in split(found)] == [1000, 1000, 500]
    assert b"".join(split(found)) == burst


@pytest.mark.parametrize("opener", UDP, indirect=True)
def test_port_without_segmentation_reports_it_and_sends_nothing(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoOffload(udp.UdpSockets):
        """UDP-Lite sockets to send from, which the kernel refuses to segment with the
        error that an interface without offload gives.
        """

        def __init__(self, interface: str, options: PortOptions) -> None:
            super().__init__(interface, options)
            for number, sender in self.senders.items():
                sender.close()
                self.senders[number] = socket.socket(
                    sender.family, socket.SOCK_DGRAM, socket.IPPROTO_UDPLITE
                )

    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDPLITE).close()
    except OSError:
        pytest.skip("this kernel has no UDP-Lite")
    receiver = opener(B)
    monkeypatch.setattr(udp, "UdpSockets", NoOffload)
    sender = opener(A)
    assert sender.segments
    burst = memoryview(bytes(2500))
    assert not sender.send_burst(burst, 1000, B, SOURCES[0], DATA)
    assert not sender.segments
    assert not sender.capabilities.segmentation
    assert sender.send_retries == 0
    assert sender.send_burst(burst, 1000, B, SOURCES[0], DATA)
    assert not receiver.receive_burst()


@pytest.mark.parametrize("opener", UDP, indirect=True)
@pytest.mark.parametrize(
    ("destination", "source_port", "error"),
    [(2, SOURCES[0], (ValueError, IndexError)), (1, 1, KeyError)],
)
def test_datagram_larger_than_the_port_was_opened_for_is_refused(
    opener: Opener, destination: int, source_port: int, error: type[Exception]
) -> None:
    sender = opener(A)
    with pytest.raises(error):
        sender.send_burst(memoryview(b"x"), 1, destination, source_port, DATA)
    sender.close()
    with pytest.raises((KeyError, AgentError)):
        sender.send_burst(memoryview(b"x"), 1, 1, SOURCES[0], DATA)


@pytest.mark.parametrize("opener", UDP, indirect=True)
def test_bytes_are_read_when_sent_and_released_at_the_end(
    opener: Opener,
) -> None:
    sender, receiver = opener(A), opener(B)
    data = bytearray(b"first")
    view = memoryview(data)
    assert sender.send_burst(view, 5, 1, SOURCES[0], DATA)
    data[:] = b"again"
    assert sender.send_burst(view, 5, 1, SOURCES[1], DATA)
    assert sender.send_burst(memoryview(b"other"), 5, 1, SOURCES[1], DATA)
    assert sender.send_burst(view[:3], 5, 1, SOURCES[0], DATA)
    found = [(bytes_, port) for bytes_, _, _, port in arrivals(receiver)]
    assert sorted(found) == [
        (b"aga", SOURCES[0]),
        (b"again", SOURCES[1]),
        (b"first", SOURCES[0]),
        (b"other", SOURCES[1]),
    ]
    sender.close()
    view.release()
    data.clear()  # a BufferError if anybody still had the bytes


def test_a_single_packet_arrives(opener: Opener) -> None:
    sender, receiver = opener(A), opener(B)
    assert sender.send_burst(memoryview(b"one packet"), 4096, 1, SOURCES[1], DATA)
    ((data, size, marked, source_port),) = arrivals(receiver)
    assert (data, marked, source_port) == (b"one packet", False, SOURCES[1])
    assert size in (0, len(data), 4096)


def test_nothing_arrives_without_a_sender(opener: Opener) -> None:
    assert not opener(A).receive_burst()


def test_unreachable_destination_is_no_error(opener: Opener) -> None:
    sender = opener(A)
    for _ in range(3):
        assert sender.send_burst(memoryview(b"x"), 1, 1, SOURCES[0], DATA)


@pytest.mark.parametrize("opener", UDP, indirect=True)
@pytest.mark.parametrize(
    ("kind", "tos"),
    [
        (BurstKind.DATA, DATA_TOS),
        (BurstKind.ACK, CONTROL_TOS),
        (BurstKind.NAK, CONTROL_TOS),
        (BurstKind.CNP, CNP_TOS),
    ],
)
def test_packets_carry_the_class_of_their_type(
    opener: Opener, kind: BurstKind, tos: int
) -> None:
    assert tos_of_one(opener, kind, marked=False) == tos


def tos_of_one(opener: Opener, kind: BurstKind, *, marked: bool) -> int:
    sender = opener(A)
    is_ipv6 = opener.places == PLACES_IPV6
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as receiver:
        receiver.bind(opener.places[B])
        receiver.settimeout(PATIENCE_S)
        if is_ipv6:
            receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        else:
            receiver.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS
        sender.send_burst(memoryview(b"x"), 1, B, SOURCES[0], kind, marked)
        _, ancillary, _, _ = receiver.recvmsg(10, socket.CMSG_SPACE(4))
    ((_, _, data),) = ancillary
    return data[0]


@pytest.mark.parametrize("kind", list(BurstKind))
def test_a_packet_can_leave_marked(opener: Opener, kind: BurstKind) -> None:
    sender, receiver = opener(A), opener(B)
    seen = []
    for marked in (False, True, False):
        sender.send_burst(memoryview(b"x"), 1, B, SOURCES[0], kind, marked)
        ((_, _, is_marked, _),) = arrivals(receiver)
        seen.append(is_marked)
    assert seen == [False, True, False]


@pytest.mark.parametrize("opener", UDP, indirect=True)
@pytest.mark.parametrize(
    ("kind", "tos"),
    [
        (BurstKind.DATA, DATA_TOS | 3),
        (BurstKind.NAK, CONTROL_TOS | 3),
        (BurstKind.CNP, CNP_TOS | 3),
    ],
)
def test_a_marked_packet_keeps_its_class(
    opener: Opener, kind: BurstKind, tos: int
) -> None:
    assert tos_of_one(opener, kind, marked=True) == tos


@pytest.mark.parametrize("opener", UDP, indirect=True)
def test_congestion_mark_is_read(opener: Opener) -> None:
    sender, receiver = opener(A, data_tos=26 << 2 | 3), opener(B)
    sender.send_burst(memoryview(bytes(2000)), 1000, 1, SOURCES[0], DATA)
    assert all(marked for _, _, marked, _ in arrivals(receiver))


@pytest.mark.parametrize("opener", UDP, indirect=True)
def test_packets_without_buffer_space_are_counted(opener: Opener) -> None:
    sender, receiver = opener(A), opener(B, buffer_bytes=4096)
    for _ in range(200):
        sender.send_burst(memoryview(bytes(4000)), 4000, 1, SOURCES[0], DATA)
    arrivals(receiver)
    # The count comes with the next packet.
    sender.send_burst(memoryview(b"x"), 1, 1, SOURCES[0], DATA)
    arrivals(receiver)
    assert receiver.socket_drops > 0


@pytest.mark.parametrize("opener", UDP, indirect=True)
def test_address_cannot_be_opened_twice(opener: Opener) -> None:
    opener(A)
    where = "[::1]" if opener.places == PLACES_IPV6 else "127.18.1.1"
    text = re.escape(f"{where}:{PORT}: the UDP port is taken")
    with pytest.raises(PortInUse, match=text):
        opener(A)


@pytest.mark.parametrize("opener", UDP, indirect=True)
def test_port_reports_its_features(opener: Opener) -> None:
    capabilities = opener(A).capabilities
    assert capabilities.segmentation
    assert capabilities.coalescing


@pytest.mark.parametrize("opener", UDP, indirect=True)
def test_too_long_packet_is_reported(opener: Opener) -> None:
    sender = opener(A)
    with pytest.raises(AgentError, match="lower path_mtu"):
        sender.send_burst(memoryview(bytes(65_530)), 65_530, 1, SOURCES[0], DATA)


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
def test_address_of_another_host_is_reported(address: str) -> None:
    with pytest.raises(FabricError, match="no interface has that address"):
        open_port("udp:", options((address, PORT)))


@pytest.mark.parametrize("opener", ["memory"], indirect=True)
def test_full_memory_port_refuses_packets(opener: Opener) -> None:
    sender, _ = opener(A), opener(B)
    while sender.send_burst(memoryview(b"x"), 1, 1, SOURCES[0], DATA):
        pass
    assert sender.send_retries == 1


@pytest.mark.parametrize("text", ["", "udp", "packet:eth0", "memory:x"])
def test_unknown_port_specification_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="known: udp:, verbs:, memory:"):
        open_port(text, options(PLACES[A]))


@pytest.mark.parametrize("interface", ["nonesuch0", "../eth0", "x" * 16])
def test_missing_interface_is_named_by_the_port(interface: str) -> None:
    with pytest.raises(FabricError, match="interface"):
        open_port(f"udp:{interface}", options(PLACES[A]))


@pytest.mark.parametrize("address", ["127.18.1.2", "::1"])
def test_loopback_leaves_by_lo(address: str) -> None:
    assert outgoing_interface(address) == socket.if_nametoindex("lo")


@pytest.mark.parametrize("address", ["127.18.1.2", "::1"])
def test_loopback_can_be_requested_explicitly(address: str) -> None:
    check_route(address, source=address)


@pytest.mark.parametrize(
    ("address", "source"), [("127.18.1.2", "198.18.0.1"), ("::1", "2001:2::1")]
)
def test_destination_that_is_routed_through_lo_is_refused(
    address: str, source: str
) -> None:
    with pytest.raises(FabricError, match="would go through lo"):
        check_route(address, source=source)


@pytest.mark.parametrize("opener", ["udp ipv6", "udp ipv6 plain"], indirect=True)
def test_packets_without_a_udp_checksum_are_accepted(opener: Opener) -> None:
    receiver = opener(B)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_UDP, 101, 1)  # UDP_NO_CHECK6_TX
        sender.sendto(b"unchecked", opener.places[B])
    assert [data for data, _, _, _ in arrivals(receiver)] == [b"unchecked"]


@pytest.mark.parametrize("address", ["127.255.255.255", "224.0.0.1"])
def test_multicast_and_broadcast_are_refused(address: str) -> None:
    with pytest.raises(FabricError, match="broadcast address of a subnet"):
        check_route(address, source="127.0.0.1")
