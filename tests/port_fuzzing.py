"""Damaged packets to a port: they are counted and have no other effect."""

from __future__ import annotations

from random import Random

from chakram.foundation.errors import PacketError
from chakram.roce.burst import Burst
from chakram.roce.constants import UDP_PORT, Verb
from chakram.roce.contents_encoder import ContentsEncoder
from chakram.roce.events import MessageReceived, QueuePairFailed, SendCompleted
from chakram.roce.headers import Packet, encode_packet
from chakram.roce.opcodes import Opcode
from chakram.roce.packet_encoder import WireEncoder
from chakram.roce.packet_verification import PacketVerifier
from chakram.roce.port import PortEngine
from chakram.roce.receive_memory import MemoryRegion
from chakram.roce.segment_parser import MALFORMED, SERVED, UNSUPPORTED, SegmentParser
from tests.damaged_packets import mutants
from tests.packets import decode_packet
from tests.plain_receiver import OF_ANSWERS, OF_PORT, PlainReceiver
from tests.virtual_wire import make_queue_pair, split

_LEFT, _RIGHT = "198.18.0.1", "198.18.0.2"
_ADDRESSES = ((_LEFT, _RIGHT), ("fd00::1", "fd00::2"))
_QPNS = _LEFT_QPN, _RIGHT_QPN = 0x11, 0x12
_SOURCE_PORT = 0xC000
_MEMORY_BYTES = 1_000
_CNP_RESERVED = 16
PATH_MTU = 256
"""Of the queue pairs of a port under fire."""

_POSTED = 4
"""Messages that a port under fire sends: more than its window holds."""
_LIVES = 50
"""Packets after which the port is replaced, since its queue pairs are in error."""
# In this order: who has failed counts nothing more.
_OF_DATA = (
    "invalid_requests",
    "messages_received",
    "duplicates",
    "out_of_sequence",
    "packets_received",
    "ce",
)


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


def fuzz_port(packets: int, *, seed: int, keeps: bool = False) -> dict[str, int]:
    """Hand damaged packets to a port that checks no ICRC.

    Args:
        packets: How many.
        seed: Of all chance.
        keeps: Whether the queue pair puts what arrives into memory.

    Returns:
        Number of failures of queue pairs, and number of packets by classification.

    Raises:
        AssertionError: If a packet is classified wrongly, or arrivals differ from those
            of a `PlainReceiver`. Also if a queue pair fails without a reason, or writes
            outside of its memory.
    """
    rng = Random(seed)
    random = rng.random
    source = mutants(
        [*conversation(Verb.WRITE), *conversation(Verb.SEND)], rng, qpns=_QPNS
    )
    totals = {"failed": 0, "malformed": 0, "unknown": 0, "unsupported": 0, "served": 0}
    handed = 0
    while handed < packets:
        memory = None
        if keeps:
            memory = MemoryRegion(_MEMORY_BYTES)
            memory.post_receive(100, _MEMORY_BYTES - 100)
            memory.post_receive(0, 100)
        port = _port(_QPNS[::-1], verb=Verb.WRITE, memory=memory)
        plain = PlainReceiver(_RIGHT_QPN, path_mtu=PATH_MTU)
        for _ in range(_POSTED):
            port.post_send(_RIGHT_QPN, 1, 3_000, 0)
        now_ns = 0
        for _ in range(min(_LIVES, packets - handed)):
            data = next(source)
            if len(data) > 12 and random() < 0.25:
                # What is next in order goes deeper than what is not.
                psn = plain.expected_psn.to_bytes(3, "big")
                data = data[:9] + psn + data[12:]
            segment = 0
            if data and random() < 0.1:
                segment = 1 + int(random() * len(data))
            now_ns += int(random() * 50_000)
            is_marked = random() < 0.2
            port.receive_datagrams(
                data, len(data), segment, now_ns, is_marked, _SOURCE_PORT
            )
            plain.take_joined(data, segment, is_marked)
            handed += 1
            while (burst := port.next_burst(now_ns)) is not None:
                assert isinstance(burst, Burst)
            while (entry := port.next_event()) is not None:
                if _is_sound(entry, plain, keeps=keeps):
                    totals["failed"] += 1
                    plain.has_failed = True
        _add_account(totals, port, plain, keeps=keeps)
        assert memory is None or len(memory.buffer) == _MEMORY_BYTES
    return totals


def fuzz_decoder(packets: int, *, seed: int) -> int:
    """Decode damaged packets; return how many were packets after all.

    Raises:
        AssertionError: If one decodes to something that encodes to other bytes, or the
            port's parser does not see in it what the decoder does.
    """
    rng = Random(seed)
    source = mutants(
        [*conversation(Verb.WRITE), *conversation(Verb.SEND)], rng, qpns=_QPNS
    )
    parser = SegmentParser()
    decoded = 0
    for _ in range(packets):
        data = next(source)
        verdict = parser.parse(data, 0, len(data))
        try:
            packet = decode_packet(data)
        except PacketError:
            assert verdict != SERVED
            continue
        decoded += 1
        assert encode_packet(packet) == data
        assert verdict == _verdict_on(packet)
        if verdict == SERVED:
            bth = packet.bth
            assert (parser.opcode, parser.qpn, parser.psn, parser.partition_key) == (
                bth.opcode, bth.destination_qpn, bth.psn, bth.partition_key,
            )  # fmt: skip
        if packet.aeth is not None and verdict == SERVED:
            assert parser.syndrome == packet.aeth.syndrome
        if packet.bth.opcode <= Opcode.WRITE_ONLY_WITH_IMMEDIATE:
            immediate, reth = packet.immediate, packet.reth
            payload_end = parser.payload_at + parser.payload_bytes
            assert data[parser.payload_at : payload_end] == packet.payload
            assert (parser.address, parser.key) == (
                (reth.virtual_address, reth.remote_key) if reth else (0, 0)
            )
            assert (
                parser.ack_request,
                parser.payload_bytes,
                parser.immediate,
            ) == (
                packet.bth.ack_request,
                len(packet.payload),
                immediate.value if immediate else -1,
            )
    return decoded


def _verdict_on(packet: Packet) -> int:
    """Return the expected result of a parser for a packet that can be decoded."""
    opcode, payload_bytes = packet.bth.opcode, len(packet.payload)
    if opcode == Opcode.CNP:
        is_right = packet.bth.backward_congestion and payload_bytes == _CNP_RESERVED
    elif opcode == Opcode.ACKNOWLEDGE:
        is_right = payload_bytes == 0
    elif opcode > Opcode.WRITE_ONLY_WITH_IMMEDIATE:
        return UNSUPPORTED
    else:
        is_right = True
    return SERVED if is_right else MALFORMED


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
    """Messages from left to right, among forged packets."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        has_contents = bool(rng.randrange(2))
        # Contents may come from any peer, so over IPv4 any identification is right, and
        # of 2**16 damaged packets one passes (see `PacketVerifier`).
        addresses = _ADDRESSES[1] if has_contents else rng.choice(_ADDRESSES)
        path_mtu = rng.choice((256, 1024))
        verb = rng.choice(list(Verb))
        sizes = [rng.randrange(3_000) for _ in range(20)]
        self._contents = [rng.randbytes(size) for size in sizes]
        self._memory: MemoryRegion | None = None
        if has_contents:
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
        """Return whether everything has arrived, and nothing more is sent."""
        return (
            len(self.received) == len(self._contents)
            and self._ports[0].next_wakeup_ns() > self._now_ns
        )

    def go_on(self) -> int:
        """Exchange all packets that may be sent now; return their number."""
        self._now_ns += 10_000
        handed = 0
        for side in (0, 1):
            while (burst := self._ports[side].next_burst(self._now_ns)) is not None:
                encoder = self._encoders[2 * side + (burst.contents is not None)]
                genuine = split(*encoder.encode(burst))
                damaged = mutants(genuine, self._rng, qpns=_QPNS)
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
        """Check that every message arrived once, in order, and unchanged."""
        assert self.received == [
            (number, len(contents)) for number, contents in enumerate(self._contents)
        ]
        if self._memory is not None:
            # Compared outside of `assert`: pytest may spend minutes on a diff of such
            # contents.
            is_intact = self._memory.buffer == b"".join(self._contents)
            assert is_intact, "contents differ from what was sent"


def _ports(
    *,
    verb: Verb,
    verified: bool = False,
    memory: MemoryRegion | None = None,
    addresses: tuple[str, str] = (_LEFT, _RIGHT),
    path_mtu: int = PATH_MTU,
) -> tuple[PortEngine, PortEngine]:
    """Return two ports; *memory* is that of the right one."""
    left = _port(_QPNS, verb=verb, path_mtu=path_mtu, way=addresses if verified else ())
    right = _port(
        _QPNS[::-1],
        verb=verb,
        memory=memory,
        path_mtu=path_mtu,
        way=addresses[::-1] if verified else (),
    )
    return left, right


def _port(
    qpns: tuple[int, int],
    *,
    verb: Verb,
    memory: MemoryRegion | None = None,
    path_mtu: int = PATH_MTU,
    way: tuple[str, ...] = (),
) -> PortEngine:
    """Return a port with one queue pair; *qpns* are its own number and the peer's.

    *way*: its own address and the peer's, where it is to look at what arrives.
    """
    verifier = PacketVerifier(local_address=way[0], path_mtu=path_mtu) if way else None
    port = PortEngine(
        rate_bps=None, burst_bound_ns=0, max_burst_packets=4, verifier=verifier
    )
    port.add_queue_pair(
        make_queue_pair(
            *qpns,
            path_mtu=path_mtu,
            verb=verb,
            cnp_interval_ns=0,
            source_port=_SOURCE_PORT,
            retry_limit=1_000,
            window_bytes=4_000,
            memory=memory,
        )
    )
    if verifier is not None:
        flow = verifier.flow(way[1], is_ours=memory is None)
        port.queue_pair(qpns[0]).flow = flow
    return port


def _encoders(
    local: str, remote: str, *, path_mtu: int = PATH_MTU
) -> tuple[WireEncoder, ContentsEncoder]:
    """Return encoders of bursts without and with contents."""
    encoder = WireEncoder(local_address=local, path_mtu=path_mtu, max_burst_packets=4)
    encoder.set_destination(0, remote)
    with_contents = ContentsEncoder(local_address=local)
    with_contents.set_destination(0, remote, UDP_PORT)
    return encoder, with_contents


def _is_sound(entry: tuple[int, object], plain: PlainReceiver, *, keeps: bool) -> bool:
    """Check an event of a port that is fed with damaged packets; is it a failure?"""
    qpn, event = entry
    assert qpn == _RIGHT_QPN
    if isinstance(event, QueuePairFailed):
        assert event.reason
        return True
    if isinstance(event, MessageReceived):
        seen = (event.message_id, event.size_bytes, event.packets, event.ce)
        assert keeps or seen == plain.messages.popleft()
    else:
        assert isinstance(event, SendCompleted)
        assert (event.message_id, event.size_bytes) == (1, 3_000)
        # Forged ACKs can end a message, but only one that has been sent.
        assert event.first_sent_ns >= 0
    return False


def _add_account(
    totals: dict[str, int], port: PortEngine, plain: PlainReceiver, *, keeps: bool
) -> None:
    """Sum the classifications of the packets of a port; each packet has one."""
    counters = port.statistics()
    queue_pair = port.queue_pair(_RIGHT_QPN)
    held = queue_pair.statistics()
    expected = plain.counted
    for name in OF_PORT:
        assert getattr(counters, name) == expected[name], name
    if not keeps:
        # Memory would refuse more.
        for name in (*_OF_DATA, *OF_ANSWERS):
            assert getattr(held, name) == expected[name], name
        assert not plain.messages
        assert (held.failure is not None) == plain.has_failed
    assert held.duplicates + held.out_of_sequence <= held.packets_received
    assert held.messages_completed + held.messages_flushed <= held.messages_posted
    assert queue_pair.unacknowledged_bytes() >= 0
    dropped = sum(getattr(counters, name) for name in OF_PORT)
    taken = held.packets_received + sum(getattr(held, name) for name in OF_ANSWERS)
    # What comes to a queue pair that has failed is forgotten.
    assert dropped + taken <= counters.packets_received
    assert held.failure is not None or dropped + taken == counters.packets_received
    totals["malformed"] += counters.malformed
    totals["unknown"] += counters.unknown_queue_pair
    totals["unsupported"] += counters.unsupported
    totals["served"] += counters.packets_received - dropped
