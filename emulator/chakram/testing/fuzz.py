"""Damaged packets: what an attacker, or a broken switch, may hand to a port.

Packets of real conversations are changed where it hurts: in the opcode, the lengths,
the numbers, the end. Most of them still name a queue pair that is there, since a packet
for nobody is soon forgotten.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from chakram.errors import PacketError
from chakram.roce.burst import Burst
from chakram.roce.constants import UDP_PORT, Verb
from chakram.roce.contents import ContentsEncoder
from chakram.roce.datagrams import SERVED, SegmentParser
from chakram.roce.events import MessageReceived, QueuePairFailed, SendCompleted
from chakram.roce.headers import decode_packet, encode_packet
from chakram.roce.memory import MemoryRegion
from chakram.roce.opcodes import Opcode
from chakram.roce.port import PortEngine
from chakram.roce.verify import IcrcVerifier
from chakram.roce.wire import WireEncoder
from chakram.testing.pair import make_queue_pair, split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["conversation", "fuzz_conversation", "fuzz_decoder", "fuzz_port", "mutants"]

_LEFT, _RIGHT = "198.18.0.1", "198.18.0.2"
_ADDRESSES = ((_LEFT, _RIGHT), ("fd00::1", "fd00::2"))
_LEFT_QPN, _RIGHT_QPN = 0x11, 0x12
_SOURCE_PORT = 0xC000
_PATH_MTU = 256
_OPCODES = tuple(range(256))
_KNOWN = tuple(int(opcode) for opcode in Opcode)
_MEMORY_BYTES = 1_000
_POSTED = 4
"""Messages that a port under fire sends: more than its window holds."""
_LIVES = 50
"""Packets after which the port is replaced, since its queue pairs are in error."""


def conversation(verb: Verb) -> list[bytes]:
    """Return the packets of two queue pairs that exchange a few messages."""
    packets: list[bytes] = []
    ports = _ports(verb=verb)
    encoders = (_encoders(_LEFT, _RIGHT)[0], _encoders(_RIGHT, _LEFT)[0])
    for number, size in enumerate((0, 1, 255, 256, 257, 2_000)):
        ports[0].post_send(_LEFT_QPN, number, size, 0)
        ports[1].post_send(_RIGHT_QPN, number, size, 0)
    busy = True
    while busy:
        busy = False
        for side in (0, 1):
            while (burst := ports[side].next_burst(0)) is not None:
                busy = True
                packets += split(*encoders[side].encode(burst))
                ports[1 - side].receive_burst(burst, 0, ce=1)
    return packets


def mutants(seeds: Sequence[bytes], rng: Random) -> Iterator[bytes]:
    """Yield damaged packets without end."""
    choose, below = rng.choice, rng.randrange
    while True:
        data = bytearray(choose(seeds))
        for _ in range(1 + below(3)):
            kind = below(9)
            if kind == 0:
                data[0] = choose(_KNOWN)
            elif kind == 1:
                data[0] = choose(_OPCODES)
            elif kind == 2 and len(data) > 12:
                # A PSN that is near, or anywhere.
                psn = below(64) - 8 if below(2) else below(1 << 24)
                data[9:12] = (psn & 0xFFFFFF).to_bytes(3, "big")
            elif kind == 3:
                del data[below(len(data)) :]
            elif kind == 4:
                data += bytes(below(300))
            elif kind == 5 and len(data) > 2:
                data[1] = below(256)
            elif kind == 6 and len(data) > 12:
                at = 12 + below(len(data) - 12)
                data[at : at + 4] = below(1 << 32).to_bytes(4, "big")
            elif kind == 7 and len(data) > 8:
                data[5:8] = choose((_LEFT_QPN, _RIGHT_QPN, 1, below(1 << 24))).to_bytes(
                    3, "big"
                )
            elif data:
                data[below(len(data))] ^= 1 << below(8)
            if not data:
                break
        yield bytes(data)


def fuzz_port(packets: int, *, seed: int, keeps: bool = False) -> dict[str, int]:
    """Hand damaged packets to a port that checks no ICRC.

    Args:
        packets: How many.
        seed: Of all chance.
        keeps: Whether the queue pair puts what arrives into memory.

    Returns:
        How often a queue pair failed, and how many packets were taken for what.

    Raises:
        AssertionError: If the port's account does not come out even, a queue pair fails
            without a reason, delivers what nobody can have sent, or writes outside.
    """
    rng = Random(seed)
    source = mutants([*conversation(Verb.WRITE), *conversation(Verb.SEND)], rng)
    totals = {"failed": 0, "malformed": 0, "unknown": 0, "unsupported": 0, "served": 0}
    handed = 0
    while handed < packets:
        memory = None
        if keeps:
            memory = MemoryRegion(_MEMORY_BYTES)
            memory.post_receive(100, _MEMORY_BYTES - 100)
            memory.post_receive(0, 100)
        _, port = _ports(verb=Verb.WRITE, memory=memory)
        for _ in range(_POSTED):
            port.post_send(_RIGHT_QPN, 1, 3_000, 0)
        now_ns = 0
        for _ in range(min(_LIVES, packets - handed)):
            data = next(source)
            segment = (
                rng.randrange(1, len(data) + 1) if data and rng.random() < 0.1 else 0
            )
            now_ns += rng.randrange(50_000)
            port.receive_datagrams(
                data, len(data), segment, now_ns, rng.random() < 0.2, _SOURCE_PORT
            )
            handed += 1
            while (burst := port.next_burst(now_ns)) is not None:
                assert isinstance(burst, Burst)
            while (entry := port.next_event()) is not None:
                totals["failed"] += _is_sound(entry)
        _add_account(totals, port)
        assert memory is None or len(memory.buffer) == _MEMORY_BYTES
    return totals


def fuzz_decoder(packets: int, *, seed: int) -> int:
    """Decode damaged packets; return how many were packets after all.

    Raises:
        AssertionError: If one decodes to something that encodes to other bytes, or the
            port's parser does not see in it what the decoder does.
    """
    rng = Random(seed)
    source = mutants([*conversation(Verb.WRITE), *conversation(Verb.SEND)], rng)
    parser = SegmentParser()
    decoded = 0
    for _ in range(packets):
        data = next(source)
        verdict = parser.parse(data, 0, len(data))
        try:
            packet = decode_packet(data)
        except PacketError:
            assert verdict != SERVED or not parser.is_data
            continue
        decoded += 1
        assert encode_packet(packet) == data
        if packet.bth.opcode <= Opcode.WRITE_ONLY_WITH_IMMEDIATE:
            assert verdict == SERVED
            immediate, reth = packet.immediate, packet.reth
            payload_end = parser.payload_at + parser.payload_bytes
            assert data[parser.payload_at : payload_end] == packet.payload
            assert (parser.address, parser.key) == (
                (reth.virtual_address, reth.remote_key) if reth else (0, 0)
            )
            assert (
                parser.qpn,
                parser.psn,
                parser.ack_request,
                parser.payload_bytes,
                parser.immediate,
            ) == (
                packet.bth.destination_qpn,
                packet.bth.psn,
                packet.bth.ack_request,
                len(packet.payload),
                immediate.value if immediate else -1,
            )
    return decoded


def fuzz_conversation(packets: int, *, seed: int) -> int:
    """Mix damaged packets into conversations of ports that check every ICRC.

    Verb, IP version, path MTU, and whether messages have contents, differ.

    Returns:
        How many messages arrived meanwhile.

    Raises:
        AssertionError: If a message is lost, damaged, delivered twice or out of order.
    """
    rng = Random(seed)
    handed = 0
    arrived = 0
    while handed < packets:
        talk = _Conversation(rng)
        while not talk.is_over():
            handed += talk.go_on()
        talk.check()
        arrived += len(talk.received)
    return arrived


class _Conversation:
    """Messages from left to right, among packets that nobody sent."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        addresses = rng.choice(_ADDRESSES)
        path_mtu = rng.choice((256, 1024))
        verb = rng.choice(list(Verb))
        sizes = [rng.randrange(3_000) for _ in range(20)]
        self._contents = [rng.randbytes(size) for size in sizes]
        self._memory: MemoryRegion | None = None
        if rng.randrange(2):
            self._memory = MemoryRegion(sum(sizes))
        self._ports = _ports(
            verb=verb,
            verified=True,
            memory=self._memory,
            addresses=addresses,
            path_mtu=path_mtu,
        )
        self._encoders = [
            encoder
            for local, remote in (addresses, addresses[::-1])
            for encoder in _encoders(local, remote, path_mtu=path_mtu)
        ]
        self._now_ns = 0
        self.received: list[tuple[int | None, int]] = []
        offset = 0
        for number, contents in enumerate(self._contents):
            kept = None
            if self._memory is not None:
                self._memory.post_receive(offset, len(contents))
                kept = contents
            self._ports[0].post_send(
                _LEFT_QPN, number, len(contents), 0, 0, kept, offset if kept else 0
            )
            offset += len(contents)

    def is_over(self) -> bool:
        """Tell whether everything has arrived, and nothing more is sent."""
        return (
            len(self.received) == len(self._contents)
            and self._ports[0].next_wakeup_ns() > self._now_ns
        )

    def go_on(self) -> int:
        """Exchange what may be sent now; return how many packets came of it."""
        self._now_ns += 10_000
        handed = 0
        for side in (0, 1):
            while (burst := self._ports[side].next_burst(self._now_ns)) is not None:
                encoder = self._encoders[2 * side + (burst.contents is not None)]
                genuine = split(*encoder.encode(burst))
                damaged = mutants(genuine, self._rng)
                for data in genuine:
                    for noise in (next(damaged), data, next(damaged)):
                        self._ports[1 - side].receive_datagrams(
                            noise, len(noise), 0, self._now_ns, False, _SOURCE_PORT
                        )
                        handed += 1
        while (entry := self._ports[1].next_event()) is not None:
            assert isinstance(entry[1], MessageReceived)
            self.received.append((entry[1].message_id, entry[1].size_bytes))
        return handed

    def check(self) -> None:
        """See that every message arrived once, in order, as it was sent."""
        assert self.received == [
            (number, len(contents)) for number, contents in enumerate(self._contents)
        ]
        if self._memory is not None:
            assert self._memory.buffer == b"".join(self._contents)


def _ports(
    *,
    verb: Verb,
    verified: bool = False,
    memory: MemoryRegion | None = None,
    addresses: tuple[str, str] = (_LEFT, _RIGHT),
    path_mtu: int = _PATH_MTU,
) -> tuple[PortEngine, PortEngine]:
    """Return two ports; *memory* is that of the right one."""
    ports = []
    for local, remote, qpn, remote_qpn in (
        (*addresses, _LEFT_QPN, _RIGHT_QPN),
        (*addresses[::-1], _RIGHT_QPN, _LEFT_QPN),
    ):
        verifier = None
        if verified:
            verifier = IcrcVerifier(local_address=local, every=1)
            verifier.set_destination(0, remote)
        port = PortEngine(
            rate_bps=None, burst_bound_ns=0, max_burst_packets=4, verifier=verifier
        )
        port.add_queue_pair(
            make_queue_pair(
                qpn,
                remote_qpn,
                path_mtu=path_mtu,
                verb=verb,
                cnp_interval_ns=0,
                source_port=_SOURCE_PORT,
                retry_limit=1_000,
                window_bytes=4_000,
                memory=memory if qpn == _RIGHT_QPN else None,
            )
        )
        ports.append(port)
    left, right = ports
    return left, right


def _encoders(
    local: str, remote: str, *, path_mtu: int = _PATH_MTU
) -> tuple[WireEncoder, ContentsEncoder]:
    """Return encoders of bursts without and with contents."""
    encoder = WireEncoder(local_address=local, path_mtu=path_mtu, max_burst_packets=4)
    encoder.set_destination(0, remote)
    with_contents = ContentsEncoder(local_address=local)
    with_contents.set_destination(0, remote, UDP_PORT)
    return encoder, with_contents


def _is_sound(entry: tuple[int, object]) -> bool:
    """Check an event of a port that is fed with damaged packets; is it a failure?"""
    qpn, event = entry
    assert qpn == _RIGHT_QPN
    if isinstance(event, QueuePairFailed):
        assert event.reason
        return True
    if isinstance(event, MessageReceived):
        assert 0 <= event.size_bytes <= event.packets * _PATH_MTU
        assert event.ce <= event.packets
    else:
        assert isinstance(event, SendCompleted)
        assert (event.message_id, event.size_bytes) == (1, 3_000)
        # Whoever forges ACKs can end a message, but none that has not been sent.
        assert event.first_sent_ns >= 0
    return False


def _add_account(totals: dict[str, int], port: PortEngine) -> None:
    """Add up what became of the packets of a port; all of them became something."""
    counters = port.statistics()
    queue_pair = port.queue_pair(_RIGHT_QPN)
    held = queue_pair.statistics()
    dropped = (
        counters.malformed
        + counters.partition_key_errors
        + counters.unknown_queue_pair
        + counters.unsupported
    )
    taken = (
        held.packets_received
        + held.acks_received
        + held.naks_received
        + held.cnps_received
    )
    # Answers to a queue pair that has failed are forgotten.
    if held.failure is None:
        assert dropped + taken == counters.packets_received
    else:
        assert dropped + taken <= counters.packets_received
    assert held.duplicates + held.out_of_sequence <= held.packets_received
    assert held.messages_completed + held.messages_flushed <= held.messages_posted
    assert queue_pair.unacknowledged_bytes() >= 0
    totals["malformed"] += counters.malformed
    totals["unknown"] += counters.unknown_queue_pair
    totals["unsupported"] += counters.unsupported
    totals["served"] += counters.packets_received - dropped
