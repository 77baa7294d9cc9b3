"""Our engine with the kernel's Soft-RoCE: every byte in both directions."""

from __future__ import annotations

import select
import socket

import pytest

from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.roce.icrc import ip_icrc
from chakram.roce.opcodes import Opcode
from tests.interop.softroce.host import exchange
from tests.interop.softroce.machine import GUEST, HOST, LIMIT_S, Machine
from tests.interop.softroce.orders import Order

pytestmark = [pytest.mark.timeout(LIMIT_S), pytest.mark.slow]

MESSAGES = 256
"""On each of two queue pairs, for each path MTU: so 1,024 each way and IP version, in
soak."""
FEW = 96
_ETH_P_ALL = 0x0003
_SO_RCVBUFFORCE = 33
_IPV4 = 0x45
"""Version and length of a header without options."""
_LAST_OPCODES = frozenset(
    opcode
    for opcode in Opcode
    if opcode <= Opcode.WRITE_ONLY_WITH_IMMEDIATE
    and ("LAST" in opcode.name or "ONLY" in opcode.name)
)


@pytest.mark.parametrize(
    ("version", "path_mtu", "messages"),
    [
        (4, 4096, FEW),
        (6, 1024, FEW),
        *(
            pytest.param(version, path_mtu, MESSAGES, marks=pytest.mark.soak)
            for version in (4, 6)
            for path_mtu in (1024, 4096)
        ),
    ],
)
def test_messages_of_every_size_arrive_in_both_directions(
    machine: Machine, version: int, path_mtu: int, messages: int
) -> None:
    outcome = exchange(
        machine,
        Order(
            version=version,
            path_mtu=path_mtu,
            to_guest=messages,
            to_host=messages,
            seed=f"{version} {path_mtu}",
        ),
    )

    outcome.check()
    for pair in outcome.pairs.values():
        assert pair.messages_completed == pair.messages_received == messages
    # It drops packets with a wrong ICRC without a word, but counts only what it takes.
    assert outcome.counters["rcvd_pkts"] == outcome.port.packets_sent
    assert outcome.counters["sent_pkts"] == outcome.port.packets_received
    assert outcome.rejections() == {}
    assert outcome.port.icrc_errors == 0
    assert outcome.port.verified == outcome.port.packets_received > 30 * messages


@pytest.mark.parametrize("first_psn", [0xFFFFFF, 0xFFFFF0])
def test_psns_wrap(machine: Machine, first_psn: int) -> None:
    order = Order(
        version=4,
        to_guest=20,
        to_host=20,
        largest_bytes=100_000,
        seed=f"wrap {first_psn}",
        first_psn=first_psn,
    )
    outcome = exchange(machine, order)

    outcome.check()
    assert outcome.rejections() == {}
    for pair in outcome.pairs.values():
        assert pair.packets_sent > 0x1000000 - first_psn
        assert pair.acks_invalid == pair.packets_retransmitted == 0


def test_its_icrcs_equal_ours_and_every_ack_was_requested(
    machine: Machine,
) -> None:
    # Over IPv4 a UDP socket cannot tell: it does not see the identification.
    with run_in_namespace(machine.namespace, _packet_socket) as capture:
        order = Order(
            version=4, to_guest=100, to_host=100, largest_bytes=100_000, seed="icrc"
        )
        exchange(machine, order).check()
        requests = {HOST[4]: 0, GUEST[4]: 0}
        acks = {HOST[4]: 0, GUEST[4]: 0}
        checked = 0
        while select.select([capture], [], [], 0)[0]:
            packet = capture.recv(1 << 16)[14:]
            if packet[0] != _IPV4 or packet[9] != socket.IPPROTO_UDP:
                continue
            source = socket.inet_ntoa(packet[12:16])
            opcode, asks_for_ack = packet[28], packet[36] >= 0x80
            if source == GUEST[4]:
                assert packet[-4:] == ip_icrc(packet)
                checked += 1
            assert asks_for_ack or opcode not in _LAST_OPCODES
            requests[source] += asks_for_ack
            acks[source] += opcode == Opcode.ACKNOWLEDGE

    assert checked >= 400
    # It answers each request; ours that have not left yet are replaced by newer ones.
    assert acks[GUEST[4]] == requests[HOST[4]] >= 200
    assert 0 < acks[HOST[4]] <= requests[GUEST[4]]


def _packet_socket() -> socket.socket:
    """Return a socket that gets every frame at the tap, of both directions."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 32 << 20)
    opened.bind(("tap0", _ETH_P_ALL))
    return opened
