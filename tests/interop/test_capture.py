"""Packets of real runs, decoded by tshark and scapy.

Scapy checks the ICRC but knows neither RETH nor immediate data; tshark knows those but
does not check the ICRC.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path

import pytest

from chakram.fabric.labs.lab_files import STATE_ROOT_VARIABLE
from chakram.roce.constants import PSN_MODULUS
from chakram.roce.icrc import ip_icrc
from chakram.roce.opcodes import ACK_CREDITS_UNUSED, NakCode, Opcode
from chakram.run_directory.reader import RunResults, open_run
from tests.e2e.runs import completed, star, write_experiment
from tests.interop.tshark import Decoded, decode
from tests.pcap_files import ip_packet, read_frames
from tests.support import missing_program, require, why_no_lab

with warnings.catch_warnings():
    # Its imports warn of ciphers that are not used here.
    warnings.simplefilter("ignore")
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP
    from scapy.layers.inet6 import IPv6

CAPTURED = ("h0", "h3")
LOSS = 0.05
CHECKED_BY_SCAPY = 1_000
PATH_MTU = 4096
BURST = 4
IP_BYTES = {"ipv4": 20, "ipv6": 40}
LARGEST_FRAME = 14 + 8 + 12 + 16 + PATH_MTU + 4
"""But for the IP header."""

REQUESTS = {
    "write": {
        Opcode.WRITE_FIRST,
        Opcode.WRITE_MIDDLE,
        Opcode.WRITE_LAST_WITH_IMMEDIATE,
        Opcode.WRITE_ONLY_WITH_IMMEDIATE,
    },
    "send": {
        Opcode.SEND_FIRST,
        Opcode.SEND_MIDDLE,
        Opcode.SEND_LAST_WITH_IMMEDIATE,
        Opcode.SEND_ONLY_WITH_IMMEDIATE,
    },
}
FIRSTS = {Opcode.WRITE_FIRST, Opcode.SEND_FIRST}
MIDDLES = {Opcode.WRITE_MIDDLE, Opcode.SEND_MIDDLE}
LASTS = {Opcode.WRITE_LAST_WITH_IMMEDIATE, Opcode.SEND_LAST_WITH_IMMEDIATE}
WITH_IMMEDIATE = LASTS | {
    Opcode.WRITE_ONLY_WITH_IMMEDIATE,
    Opcode.SEND_ONLY_WITH_IMMEDIATE,
}


@dataclass(frozen=True)
class Captured:
    """A run, and its capture."""

    directory: Path
    verb: str
    family: str = "ipv4"

    @cached_property
    def results(self) -> RunResults:
        return open_run(self.directory)

    @cached_property
    def rank_of(self) -> dict[str, int]:
        """Ranks by the address of their host."""
        plan = json.loads((self.directory / "plan.json").read_text())
        ports = {port["number"]: port["address"] for port in plan["ports"]}
        return {ports[each["port"]]: each["rank"] for each in plan["ranks"]}

    def path(self, host: str) -> Path:
        return self.directory / f"capture-{host}.pcap"

    def ip_packets(self, host: str) -> list[bytes]:
        path = self.path(host)
        frames = read_frames(path.read_bytes(), where=str(path))
        return [ip_packet(frame.data) for frame in frames]

    @cached_property
    def decoded(self) -> dict[str, list[Decoded]]:
        require("tshark", missing_program("tshark"))
        return {host: decode(self.path(host)) for host in CAPTURED}

    @cached_property
    def addresses(self) -> dict[str, str]:
        """Addresses of the captured hosts; host 3 is that of rank 3."""
        return {
            host: address
            for address, rank in self.rank_of.items()
            for host in CAPTURED
            if host == f"h{rank}"
        }

    @cached_property
    def messages(self) -> list[Message]:
        """All messages that captured hosts sent."""
        return [
            message
            for host, address in self.addresses.items()
            for message in messages(requests_from(self.decoded[host], address))
        ]


@dataclass(frozen=True)
class Message:
    """Packets of one message, from its FIRST to its LAST, or its ONLY."""

    packets: tuple[Decoded, ...]

    @property
    def size_bytes(self) -> int:
        return sum(packet.payload_bytes for packet in self.packets)


def requests_from(packets: list[Decoded], address: str) -> list[Decoded]:
    return [
        packet
        for packet in packets
        if packet.source == address and packet.opcode != Opcode.ACKNOWLEDGE
    ]


def by_queue_pair(
    packets: list[Decoded],
) -> dict[tuple[str, str, int], list[Decoded]]:
    found = defaultdict(list)
    for packet in packets:
        found[packet.queue_pair].append(packet)
    return found


def messages(requests: list[Decoded]) -> list[Message]:
    """Cut the packets of each queue pair into messages; nothing may be left over."""
    found = []
    for packets in by_queue_pair(requests).values():
        begun: list[Decoded] = []
        for packet in packets:
            if begun:
                assert packet.opcode in MIDDLES | LASTS, packet
            else:
                assert packet.opcode in FIRSTS | WITH_IMMEDIATE - LASTS, packet
            begun.append(packet)
            if packet.opcode in WITH_IMMEDIATE:
                found.append(Message(tuple(begun)))
                begun = []
        assert not begun
    return found


def run(folder: Path, *, family: str = "ipv4", **sections: object) -> Path:
    """Run two iterations of some collectives on four hosts; return its directory."""
    trace = {
        **{"synth": "moe", "ranks": 4, "ep": 4, "dp": 1, "layers": 1},
        **{"all_to_all": "300KiB", "all_reduce": "300KiB", "dense": "200001B"},
    }
    experiment = write_experiment(
        folder,
        [{"name": "moe", "trace": trace, "compute": {"from": "none"}}],
        {
            **star(4, rate="500Mbit"),
            "capture": list(CAPTURED),
            "addressing": family,
        },
        iterations={"warmup": 0, "measured": 2},
        predict=[],
        **sections,
    )
    return completed(experiment).directory


@pytest.fixture(scope="module")
def _state_root() -> Iterator[None]:
    require("netns", why_no_lab())
    with (
        tempfile.TemporaryDirectory(prefix="ck-") as root,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(STATE_ROOT_VARIABLE, root)
        yield


@pytest.fixture(scope="module", params=["write", "send ipv6"])
def captured(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    _state_root: None,
) -> Captured:
    verb, _, family = request.param.partition(" ")
    family = family or "ipv4"
    directory = run(
        tmp_path_factory.mktemp(verb),
        family=family,
        transport={
            **{"verb": verb, "path_mtu": PATH_MTU, "burst": BURST},
            # Nothing is lost, and nothing may be sent again because a machine is busy.
            "retransmit_timeout": "20s",
        },
    )
    return Captured(directory, verb, family)


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory, _state_root: None) -> Captured:
    directory = run(
        tmp_path_factory.mktemp("lossy"),
        transport={
            "path_mtu": PATH_MTU,
            "retransmit_timeout": "10ms",
            "retry_limit": 100,
        },
        faults={"drop": LOSS},
    )
    return Captured(directory, "write")


def test_every_packet_is_captured_by_itself(captured: Captured) -> None:
    for host in CAPTURED:
        packets = captured.decoded[host]
        whole = captured.ip_packets(host)
        if captured.family == "ipv4":
            # The kernel cut them from bursts, and numbered them.
            numbers = {int.from_bytes(ip[4:6], "big") for ip in whole}
            assert numbers == set(range(BURST))
        assert len(packets) == len(whole)
        assert {packet.opcode for packet in packets} == {
            *REQUESTS[captured.verb],
            Opcode.ACKNOWLEDGE,
        }
        largest = LARGEST_FRAME + IP_BYTES[captured.family]
        assert max(packet.frame_bytes for packet in packets) <= largest
        # Tshark does not check the ICRC, but looks for it in the right place.
        assert [packet.icrc for packet in packets] == [
            packet[-4:] for packet in captured.ip_packets(host)
        ]
    banners = captured.results.manifest.banners
    assert not any(text.startswith("capture") for text in banners)


def test_run_reports_that_bursts_were_split(captured: Captured) -> None:
    (note,) = (text for text in captured.results.manifest.banners if "captured" in text)
    assert note.startswith("packets to and from h0, h3 are sent one at a time")


def test_both_ends_capture_the_same_packets(captured: Captured) -> None:
    def between(host: str) -> list[list[bytes]]:
        h0, h3 = (ip_address(each).packed for each in captured.addresses.values())
        # Both addresses stand at the end of either header, without options.
        end = IP_BYTES[captured.family]
        return [
            [
                packet
                for packet in captured.ip_packets(host)
                if packet[end - len(ends) : end] == ends
            ]
            for ends in (h0 + h3, h3 + h0)
        ]

    there, back = between("h0")
    assert there
    assert back
    assert between("h3") == [there, back]


def test_psns_of_a_queue_pair_follow_each_other(captured: Captured) -> None:
    for host in CAPTURED:
        requests = [
            packet
            for packet in captured.decoded[host]
            if packet.opcode != Opcode.ACKNOWLEDGE
        ]
        for packets in by_queue_pair(requests).values():
            for one, next_one in itertools.pairwise(packets):
                assert next_one.psn == (one.psn + 1) % PSN_MODULUS


def test_packets_on_the_wire_are_the_messages_of_the_records(
    captured: Captured,
) -> None:
    senders = {captured.rank_of[address] for address in captured.addresses.values()}
    flows = captured.results.table("flows").to_pylist()
    collectives: Counter[str] = Counter()
    for flow in flows:
        collectives[flow["group"]] = max(collectives[flow["group"]], flow["k"] + 1)
    expected = Counter(
        (
            flow["src"],
            flow["dst"],
            flow["iteration"] * collectives[flow["group"]] + flow["k"],
            flow["bytes"],
        )
        for flow in flows
        if flow["src"] in senders
    )
    found = Counter(
        (
            captured.rank_of[last.source],
            captured.rank_of[last.destination],
            # Its group's collectives are counted over all iterations.
            (last.immediate or 0) >> 16,
            message.size_bytes,
        )
        for message in captured.messages
        for last in message.packets[-1:]
    )
    assert found == expected
    assert sum(key[3] * count for key, count in expected.items()) > 3_000_000


def test_headers_contain_the_size_and_number_of_a_message(
    captured: Captured,
) -> None:
    numbers = defaultdict(list)
    for message in captured.messages:
        first, *rest = message.packets
        last = message.packets[-1]
        told = message.size_bytes if captured.verb == "write" else None
        assert first.dma_length_bytes == told
        assert all(packet.dma_length_bytes is None for packet in rest)
        assert all(packet.immediate is None for packet in message.packets[:-1])
        assert all(packet.payload_bytes == PATH_MTU for packet in message.packets[:-1])
        assert 0 < last.payload_bytes <= PATH_MTU or message.size_bytes == 0
        assert last.ack_request
        numbers[last.queue_pair].append(last.immediate)
    for of_queue_pair in numbers.values():
        assert len(set(of_queue_pair)) == len(of_queue_pair)


def test_acknowledgements_follow_the_acknowledged_packets(captured: Captured) -> None:
    for host, own in captured.addresses.items():
        highest: dict[tuple[str, int], int] = {}
        for packet in captured.decoded[host]:
            if packet.source == own or packet.opcode != Opcode.ACKNOWLEDGE:
                continue
            assert packet.syndrome == ACK_CREDITS_UNUSED
            assert packet.msn is not None
            key = packet.source, packet.qpn
            assert packet.msn >= highest.get(key, 0)
            highest[key] = packet.msn
        sent = Counter(
            message.packets[0].destination
            for message in captured.messages
            if message.packets[0].source == own
        )
        acknowledged: Counter[str] = Counter()
        for (peer, _), msn in highest.items():
            acknowledged[peer] += msn
        assert acknowledged == sent


def test_every_icrc_is_correct(captured: Captured) -> None:
    for host in CAPTURED:
        packets = captured.ip_packets(host)
        assert packets
        assert all(ip_icrc(packet) == packet[-4:] for packet in packets)


def test_scapy_computes_the_same_icrcs(captured: Captured) -> None:
    packets = captured.ip_packets("h0")[:CHECKED_BY_SCAPY]
    assert len(packets) == CHECKED_BY_SCAPY
    for packet in packets:
        layer = IPv6 if captured.family == "ipv6" else IP
        assert layer(packet)[BTH].compute_icrc(packet) == packet[-4:]


def test_lost_packets_are_requested_and_retransmitted(lossy: Captured) -> None:
    retransmitted = Counter()
    for flow in lossy.results.table("flows", "src", "retransmitted").to_pylist():
        retransmitted[f"h{flow['src']}"] += flow["retransmitted"]
    for host, address in lossy.addresses.items():
        packets = lossy.decoded[host]
        naks = [
            packet
            for packet in packets
            if packet.destination == address
            and packet.syndrome == NakCode.PSN_SEQUENCE_ERROR
        ]
        assert naks
        again = 0
        sent_again = set()
        for requests in by_queue_pair(requests_from(packets, address)).values():
            seen = Counter(packet.psn for packet in requests)
            again += seen.total() - len(seen)
            peer = requests[0].destination
            sent_again |= {(peer, psn) for psn, count in seen.items() if count > 1}
            # Whatever was lost and sent again, no PSN is left out in the end.
            first = requests[0].psn
            assert {(psn - first) % PSN_MODULUS for psn in seen} == set(
                range(len(seen))
            )
        assert again == retransmitted[host] > 0
        assert {(nak.source, nak.psn) for nak in naks} <= sent_again


def test_icrcs_are_correct_when_packets_are_lost(lossy: Captured) -> None:
    for host in CAPTURED:
        for packet in lossy.ip_packets(host):
            assert ip_icrc(packet) == packet[-4:]
