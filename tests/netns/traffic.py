"""Traffic inside a lab, made by a separate process.

``python traffic.py KIND ARGUMENTS...`` reads a lab's state from standard input and
prints what it found as JSON.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chakram.fabric.labs.enter_namespace import in_namespace, run_in_namespace
from chakram.fabric.labs.lab_spec import LabState, decode_state
from chakram.fabric.modeled_switch.packet_ring import RETIRE_MS, PacketRing
from chakram.foundation.errors import PrivilegeError
from chakram.foundation.ip_addresses import is_ipv6
from chakram.switch.pause_frames import pause_frame

if TYPE_CHECKING:
    from collections.abc import Callable

PORT = 4791
_UDP_SEGMENT = 103
_SO_RCVBUFFORCE = 33
_IPV6_AUTOFLOWLABEL = 70
_ETH_P_ALL = 3
_RTM_NEWROUTE, _RTM_GETROUTE = 24, 26
_RTA_DST, _RTA_SRC, _RTA_IIF, _RTA_OIF = 1, 2, 3, 4
_RTA_IP_PROTO, _RTA_SPORT, _RTA_DPORT = 27, 28, 29
_OWN_NAMESPACE = "/proc/thread-self/ns/net"
_PATIENCE_S = 20.0
_SILENCE_S = 1.0
"""Nothing more comes after it: a link of 1 Mbit/s needs a sixth of it for its queue."""


def udp_socket(lab: LabState, host: str, port: int = PORT) -> socket.socket:
    """Return a socket at a host's address."""
    state = lab.host(host)
    family = socket.AF_INET6 if is_ipv6(state.address) else socket.AF_INET
    opened = run_in_namespace(state.netns, socket.socket, family, socket.SOCK_DGRAM)
    opened.settimeout(_PATIENCE_S)
    if family == socket.AF_INET6:
        # As ports do it: a label is a hash of the kernel's own, which paths go by.
        opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_AUTOFLOWLABEL, 0)
    opened.bind((state.address, port))
    return opened


def frames_at(path: str, interface: str) -> socket.socket:
    """Return a socket that gets every frame at an interface."""
    kind = socket.htons(_ETH_P_ALL)
    opened = run_in_namespace(
        path, socket.socket, socket.AF_PACKET, socket.SOCK_RAW, kind
    )
    opened.settimeout(_PATIENCE_S)
    opened.bind((interface, _ETH_P_ALL))
    return opened


def pairs(lab: LabState) -> int:
    """Return how many of all ordered pairs of hosts a packet crossed."""
    sockets = {host.name: udp_socket(lab, host.name) for host in lab.hosts}
    for sender in sockets:
        for target in lab.hosts:
            if target.name != sender:
                sockets[sender].sendto(sender.encode(), (target.address, PORT))
    arrived = 0
    for receiver, opened in sockets.items():
        missing = set(sockets) - {receiver}
        while missing:
            missing.discard(opened.recv(100).decode())
            arrived += 1
    return arrived


def flows(lab: LabState, sender: str, receiver: str, count: str, size: str) -> int:
    """Send one packet from each of many source ports; return how many arrived.

    It knows that no more will come when all have, or nothing for ``_SILENCE_S``.
    """
    target = udp_socket(lab, receiver)
    for port in range(49152, 49152 + int(count)):
        with udp_socket(lab, sender, port) as source:
            source.sendto(bytes(int(size)), target.getsockname())
    arrived = 0
    while arrived < int(count) and select.select([target], [], [], _SILENCE_S)[0]:
        target.recv(65536)
        arrived += 1
    return arrived


def routes(lab: LabState, switch: str, interface: str, path: str) -> list[str]:
    """Return by which interface a switch sends each flow that comes in by another.

    A file lists them: addresses and UDP ports of both, one flow a line.
    """
    state = next(each for each in lab.switches if each.name == switch)
    lines = Path(path).read_text(encoding="ascii").splitlines()

    def ask() -> list[str]:
        name_of = dict(socket.if_nameindex())
        index = socket.if_nametoindex(interface)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as netlink:
            netlink.settimeout(_PATIENCE_S)
            return [name_of[_next_hop(netlink, index, *line.split())] for line in lines]

    return run_in_namespace(state.netns, ask)


def _next_hop(
    netlink: socket.socket, index: int, source: str, target: str, *ports: str
) -> int:
    """Return the number of the interface that a forwarded flow leaves by."""
    family = socket.AF_INET6 if is_ipv6(source) else socket.AF_INET
    near, far = (socket.inet_pton(family, each) for each in (source, target))
    bits = 8 * len(near)
    request = struct.pack("=BBBBBBBBI", family, bits, bits, 0, 0, 0, 0, 0, 0)
    for kind, value in (
        (_RTA_SRC, near),
        (_RTA_DST, far),
        (_RTA_IIF, struct.pack("=I", index)),
        (_RTA_IP_PROTO, bytes([socket.IPPROTO_UDP])),
        (_RTA_SPORT, int(ports[0]).to_bytes(2)),
        (_RTA_DPORT, int(ports[1]).to_bytes(2)),
    ):
        request += struct.pack("=HH", 4 + len(value), kind) + value
        request += bytes(-len(value) % 4)
    # struct nlmsghdr: length, type, flags (NLM_F_REQUEST), sequence, port
    header = struct.pack("=IHHII", 16 + len(request), _RTM_GETROUTE, 1, 0, 0)
    netlink.sendto(header + request, (0, 0))
    answer = netlink.recv(1 << 16)
    (kind,) = struct.unpack_from("=H", answer, 4)
    assert kind == _RTM_NEWROUTE, f"error {struct.unpack_from('=i', answer, 16)}"
    offset = 16 + 12
    while offset < len(answer):
        length, kind = struct.unpack_from("=HH", answer, offset)
        if kind == _RTA_OIF:
            (found,) = struct.unpack_from("=I", answer, offset + 4)
            return int(found)
        offset += (length + 3) & ~3
    raise AssertionError("a route without an interface")


def rate(lab: LabState, sender: str, receiver: str, count: str, size: str) -> float:
    """Return the payload rate at which many packets arrive, in bit/s."""
    source, target = udp_socket(lab, sender), udp_socket(lab, receiver)
    with suppress(PermissionError):
        # A process that waits for a core loses no packets.
        target.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 24)
    address, payload = target.getsockname(), bytes(int(size))

    def send() -> None:
        for _ in range(int(count)):
            source.sendto(payload, address)

    thread = threading.Thread(target=send)
    thread.start()
    target.recv(65536)
    started_ns = time.monotonic_ns()
    for _ in range(int(count) - 1):
        target.recv(65536)
    elapsed_ns = time.monotonic_ns() - started_ns
    thread.join()
    return (int(count) - 1) * len(payload) * 8 * 10**9 / elapsed_ns


def flood(lab: LabState, seconds: str, size: str, *hosts: str) -> int:
    """Send as fast as one core can, from every second host to the one before it.

    Marked as capable of ECN, in class 3; return how many arrived.
    """
    pairs = list(zip(hosts[1::2], hosts[::2], strict=True))
    nbytes = int(size)
    segment = [(socket.SOL_UDP, _UDP_SEGMENT, struct.pack("=H", nbytes))]
    payload = bytes(65_000 // nbytes * nbytes)
    sources = []
    targets = []
    for sender, receiver in pairs:
        sources.append(udp_socket(lab, sender))
        sources[-1].setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 26 << 2 | 2)
        targets.append(udp_socket(lab, receiver))
        targets[-1].setblocking(False)
    addresses = [each.getsockname() for each in targets]
    first = bytearray(1)
    arrived = 0
    end_ns = time.monotonic_ns() + int(float(seconds) * 1e9)
    while time.monotonic_ns() < end_ns:
        for source, address in zip(sources, addresses, strict=True):
            source.sendmsg([payload], segment, 0, address)
        for target in targets:
            with suppress(BlockingIOError):
                for _ in range(64):
                    target.recv_into(first)
                    arrived += 1
    return arrived


def storm(lab: LabState, sender: str, receiver: str, seconds: str) -> int:
    """Pause class 3 permanently at a host while another host sends to it.

    Return how many packets of that class arrived after the first second.
    """
    state = lab.host(receiver)
    pauses = frames_at(state.netns, state.interface)
    target = udp_socket(lab, receiver)
    target.setblocking(False)
    source = udp_socket(lab, sender)
    source.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 26 << 2 | 2)
    begin_s = time.monotonic()
    late = 0
    while (passed_s := time.monotonic() - begin_s) < float(seconds):
        pauses.send(pause_frame(3, 0xFFFF))
        source.sendto(bytes(1000), target.getsockname())
        with suppress(BlockingIOError):
            while target.recv(2000):
                late += passed_s > 1
        time.sleep(0.005)
    return late


def burst(lab: LabState, sender: str, receiver: str, at: str = "switch") -> list[int]:
    """Send one burst of eight packets; return the lengths of frames somewhere.

    They are looked at at the sender's port of the switch, or at host *at*.
    """
    if at == "switch":
        state = lab.host(sender)
        switch = next(each for each in lab.switches if _has_port(each, state))
        frames = frames_at(switch.netns, state.switch_interface)
    else:
        frames = frames_at(lab.host(at).netns, lab.host(at).interface)
    source = udp_socket(lab, sender)
    segment = [(socket.SOL_UDP, _UDP_SEGMENT, struct.pack("=H", 1000))]
    target = (lab.host(receiver).address, PORT)
    source.sendmsg([bytes(8000)], segment, 0, target)
    lengths: list[int] = []
    six = is_ipv6(lab.host(receiver).address)
    while sum(length - (62 if six else 42) for length in lengths) < 8000:
        frame = frames.recv(1 << 17)
        # Otherwise the receiver answers that the port is unreachable.
        if frame[20 if six else 23] == socket.IPPROTO_UDP:
            lengths.append(len(frame))
    return lengths


def ring(lab: LabState, sender: str, receiver: str, *counts: str) -> list[Any]:
    """Send packets in rounds; return the kept and dropped packets of a small ring."""
    state = lab.host(receiver)
    target = (state.address, PORT)
    source = udp_socket(lab, sender)
    found: list[Any] = []

    def open_it() -> PacketRing:
        return PacketRing(state.interface, blocks=2)

    dropped = 0
    with run_in_namespace(state.netns, open_it) as opened:
        for count in map(int, counts):
            # No process listens there, and the answer of the receiver is not UDP.
            for number in range(count):
                source.sendto(number.to_bytes(4, "big") * 1000, target)
            kept: list[int] = []
            before = dropped
            end_s = time.monotonic() + _PATIENCE_S
            while len(kept) + dropped - before < count and time.monotonic() < end_s:
                time.sleep(2 * RETIRE_MS / 1e3)
                while (frames := opened.next_block()) is not None:
                    for _, _, length, frame in frames:
                        assert length == len(frame) == 4042
                        kept.append(int.from_bytes(frame[-4:], "big"))
                dropped = opened.dropped()
            found.append([kept, dropped])
    return found


def _has_port(switch: Any, host: Any) -> bool:
    return any(
        port.interface == host.switch_interface
        and port.link.startswith(f"{host.name}-")
        for port in switch.ports
    )


def addresses_seen(lab: LabState) -> list[str]:
    """Return the address of eth0 that is seen inside each host, one after another."""
    found: list[str] = []
    for host in lab.hosts:
        with (
            in_namespace(host.netns, may_stay=True),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
        ):
            if is_ipv6(host.address):
                found += _ipv6_addresses("eth0")
                continue
            request = struct.pack("16s16x", b"eth0")
            answer = fcntl.ioctl(probe.fileno(), 0x8915, request)  # SIOCGIFADDR
            found.append(socket.inet_ntoa(answer[20:24]))
    return found


def _ipv6_addresses(interface: str) -> list[str]:
    """Return all addresses of IPv6 of an interface of this thread's namespace."""
    lines = Path("/proc/thread-self/net/if_inet6").read_text("ascii").splitlines()
    return [
        socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))
        for fields in map(str.split, lines)
        if fields[-1] == interface
    ]


def coming_back(lab: LabState) -> str:
    """Return whether a temporary entry into a namespace returns or is refused."""
    home = os.readlink(_OWN_NAMESPACE)
    try:
        with in_namespace(lab.hosts[0].netns):
            inside = os.readlink(_OWN_NAMESPACE)
    except PrivilegeError as error:
        assert os.readlink(_OWN_NAMESPACE) == home
        return f"refused: {error.found}"
    assert inside != home
    assert os.readlink(_OWN_NAMESPACE) == home
    return "came back"


_KINDS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        *(pairs, flows, routes, rate, flood, storm, burst, ring),
        *(addresses_seen, coming_back),
    )
}


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    lab_state = decode_state(sys.stdin.read())
    json.dump(_KINDS[kind](lab_state, *arguments), sys.stdout)
