"""Our engine against the kernel's Soft-RoCE: both directions, every byte looked at."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from chakram.fabric.netns import run_in_namespace
from chakram.roce.icrc import ip_icrc
from tests.interop.softroce.conftest import FEATURE
from tests.interop.softroce.host import TRANSPORT, Order, Outcome, exchange
from tests.interop.softroce.kernel import Kernel
from tests.interop.softroce.machine import (
    GUEST,
    MTU,
    GuestDied,
    Machine,
    why_no_machine,
)
from tests.support import require

# The guest is started by whichever test comes first.
pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]

MESSAGES = 256
"""On each of two queue pairs, for each path MTU: so 1,024 each way and IP version."""
MANY_MESSAGES = 512
MOSTLY_BYTES = 16 * 1024
"""Where it takes long, there are as many messages, but less of the large ones."""

# Of Soft-RoCE: what it counts when it does not take a packet in its turn.
REJECTIONS = (
    "out_of_seq_request",
    "duplicate_request",
    "rcvd_seq_err",
    "rcvd_rnr_err",
    "send_rnr_err",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
    "completer_retry_err",
    "send_err",
)
_ETH_P_IP = 0x0800
_SO_RCVBUFFORCE = 33
ECN_CAPABLE = 0x6A
"""DSCP 26, ECT(0)."""

# What arrives passes ifb0, for an interface queues only what leaves.
REDIRECT = f"""
ip link set ifb0 mtu {MTU} up
tc qdisc add dev eth0 handle ffff: ingress
for protocol in ip ipv6; do
    tc filter add dev eth0 parent ffff: protocol $protocol flower ip_proto udp \\
        action mirred egress redirect dev ifb0
done
"""
# Orders and answers, which are TCP, pass it by.
DISTURB = """
tc qdisc add dev {device} root handle 1: htb
tc class add dev {device} parent 1: classid 1:1 htb rate {rate}
tc qdisc add dev {device} parent 1:1 handle 10: {discipline}
for protocol in ip ipv6; do
    tc filter add dev {device} parent 1: protocol $protocol flower ip_proto udp \\
        classid 1:1
done
"""
LOSS = {"rate": "10gbit", "discipline": "netem loss 5% limit 100000"}
# It has room for all that is under way: nothing is lost but what cannot be marked.
MARKS = {
    "rate": "100mbit",
    "discipline": "red limit 4000000 min 20000 max 60000 avpkt 4200 burst 8 "
    "bandwidth 100mbit probability 0.2 ecn",
}
CLEAN = """
for place in "eth0 ingress" "eth0 root" "ifb0 root"; do
    tc qdisc del dev $place 2>/dev/null || true
done
"""


@pytest.fixture
def disturbed(machine: Machine) -> Iterator[Machine]:
    """Return the guest, whose queueing disciplines are taken away afterwards."""
    machine.execute(REDIRECT)
    yield machine
    machine.execute(CLEAN)


def check(outcome: Outcome) -> None:
    """Every message has arrived once, with its contents, and both sides know it."""
    assert outcome.failures == []
    assert outcome.guest["failed"] == []
    assert outcome.guest["wrong"] == []
    assert outcome.faults == []
    assert outcome.port.malformed == outcome.port.unknown_queue_pair == 0
    assert outcome.port.unsupported == outcome.port.partition_key_errors == 0


@pytest.mark.parametrize("path_mtu", [1024, 4096])
@pytest.mark.parametrize("version", [4, 6])
def test_messages_of_every_size_arrive_both_ways(
    machine: Machine, version: int, path_mtu: int
) -> None:
    # Over IPv6 a plain socket sees all that the ICRC covers.
    transport = replace(TRANSPORT, icrc_check=1) if version == 6 else TRANSPORT
    outcome = exchange(
        machine,
        Order(
            version=version,
            path_mtu=path_mtu,
            to_guest=MESSAGES,
            to_host=MESSAGES,
            seed=f"{version} {path_mtu}",
            transport=transport,
        ),
    )

    check(outcome)
    for pair in outcome.pairs.values():
        assert pair.messages_completed == pair.messages_received == MESSAGES
    # It drops packets with a wrong ICRC without a word, but counts only what it takes.
    assert outcome.counters["rcvd_pkts"] == outcome.port.packets_sent
    assert outcome.counters["sent_pkts"] == outcome.port.packets_received
    assert {name: outcome.counters[name] for name in REJECTIONS} == dict.fromkeys(
        REJECTIONS, 0
    )
    assert outcome.port.icrc_errors == 0
    assert (outcome.port.icrc_checked > 10_000) is (version == 6)


@pytest.mark.parametrize("version", [4, 6])
def test_nothing_is_missing_when_packets_are_lost(
    disturbed: Machine, version: int
) -> None:
    for device in ("eth0", "ifb0"):
        disturbed.execute(DISTURB.format(device=device, **LOSS))
    outcome = exchange(
        disturbed,
        Order(
            version=version,
            to_guest=MANY_MESSAGES,
            to_host=MANY_MESSAGES,
            mostly_bytes=MOSTLY_BYTES,
            seed=f"loss {version}",
            # A lost last packet, or its ACK, costs a timeout.
            transport=replace(
                TRANSPORT, retransmit_timeout_ns=60_000_000, retry_limit=100
            ),
            guest_timeout=15,
        ),
    )

    check(outcome)
    for pair in outcome.pairs.values():
        assert pair.messages_completed == pair.messages_received == MANY_MESSAGES
        assert pair.packets_retransmitted > 0
        assert pair.naks_sent > 0
    assert outcome.counters["out_of_seq_request"] > 0
    assert outcome.counters["rcvd_pkts"] < outcome.port.packets_sent


@pytest.mark.parametrize("version", [4, 6])
def test_marks_are_seen_and_answered(disturbed: Machine, version: int) -> None:
    disturbed.execute(DISTURB.format(device="eth0", **MARKS))
    transport = replace(
        TRANSPORT, congestion_parameters=(("cnp_interval_ns", 1_000_000),)
    )
    outcome = exchange(
        disturbed,
        Order(
            version=version,
            to_host=MANY_MESSAGES,
            mostly_bytes=MOSTLY_BYTES,
            seed=f"marks {version}",
            transport=transport,
            traffic_class=ECN_CAPABLE,
        ),
    )

    check(outcome)
    pairs = outcome.pairs.values()
    assert sum(pair.ce for pair in pairs) == red_marks(disturbed, "eth0") > 100
    assert all(pair.cnps_sent > 0 for pair in pairs)


def red_marks(machine: Machine, device: str) -> int:
    """Return how many packets a device has marked."""
    disciplines = json.loads(machine.execute(f"tc -s -j qdisc show dev {device}"))
    return sum(int(each["marked"]) for each in disciplines if each["kind"] == "red")


def test_our_packets_are_marked_and_taken(disturbed: Machine) -> None:
    disturbed.execute(DISTURB.format(device="ifb0", **MARKS))
    transport = replace(TRANSPORT, window_bytes=256 * 1024)
    outcome = exchange(
        disturbed,
        Order(
            version=4,
            to_guest=MANY_MESSAGES,
            mostly_bytes=MOSTLY_BYTES,
            seed="marked",
            transport=transport,
        ),
    )

    check(outcome)
    assert red_marks(disturbed, "ifb0") > 100


def test_who_is_not_ready_gets_it_later(machine: Machine) -> None:
    outcome = exchange(
        machine,
        Order(
            version=4,
            to_guest=20,
            to_host=20,
            largest_bytes=10_000,
            seed="not ready",
            receives_after_s=0.2,
        ),
    )

    check(outcome)
    assert all(pair.receiver_not_ready > 0 for pair in outcome.pairs.values())
    assert outcome.pairs["send"].receiver_not_ready_sent > 2
    assert outcome.counters["rcvd_rnr_err"] > 2
    assert outcome.counters["send_rnr_err"] > 0


def test_the_icrcs_of_its_packets_are_as_we_compute_them(machine: Machine) -> None:
    # Over IPv4 a UDP socket cannot tell: it does not see the identification.
    with run_in_namespace(machine.namespace, _packet_socket) as capture:
        order = Order(version=4, to_host=100, largest_bytes=10_000, seed="icrc")
        check(exchange(machine, order))
        checked = 0
        while select.select([capture], [], [], 0)[0]:
            packet = capture.recv(1 << 16)[14:]
            is_from_guest = packet[12:16] == socket.inet_aton(GUEST[4])
            if is_from_guest and packet[9] == socket.IPPROTO_UDP:
                assert packet[-4:] == ip_icrc(packet)
                checked += 1

    assert checked >= 200


def _packet_socket() -> socket.socket:
    """Return a socket that gets every IPv4 frame at the tap."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_IP))
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 32 << 20)
    opened.bind(("tap0", _ETH_P_IP))
    return opened


@pytest.mark.parametrize("who", ["host", "guest"])
def test_a_wrong_key_opens_no_memory(machine: Machine, who: str) -> None:
    outcome = exchange(
        machine,
        Order(
            version=4,
            to_guest=2 * (who == "host"),
            to_host=2 * (who == "guest"),
            largest_bytes=5000,
            seed="keys",
            wrong_keys=who,
            limit_s=2,
        ),
    )

    (failure,) = outcome.failures
    write, send = outcome.pairs["write"], outcome.pairs["send"]
    if who == "host":
        assert failure == "the peer refused access to its memory"
        assert write.messages_completed == 0
        assert send.messages_completed == 2
    else:
        assert failure == "invalid request of the peer: a WRITE has a wrong key"
        # IBV_WC_REM_ACCESS_ERR
        assert "message 0: status 10" in outcome.guest["failed"]
        assert send.messages_received == 2


def test_the_last_words_of_a_guest_are_told(tmp_path: Path) -> None:
    require(FEATURE, why_no_machine())
    image = tmp_path / "vmlinuz"
    image.write_bytes(b"no kernel")
    with (
        closing(Machine(tmp_path, Kernel(image=image, modules=()))) as machine,
        pytest.raises(GuestDied) as caught,
    ):
        machine.boot()

    said = str(caught.value)
    assert said.startswith("the guest has ended (QEMU's exit code: 1)")
    # QEMU calls it too old.
    assert "kernel" in said.partition("end of console.log:")[2]
