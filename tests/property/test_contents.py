"""Laws of messages with contents: they arrive unchanged over any wire."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from chakram.roce.constants import NO_IMMEDIATE, Verb
from chakram.roce.contents_encoder import ContentsEncoder
from chakram.roce.events import MessageReceived, SendCompleted
from chakram.roce.packet_encoder import WireEncoder
from chakram.roce.packet_verification import INTACT, PacketVerifier
from chakram.roce.queue_pair import QueuePair
from chakram.roce.receive_memory import MemoryRegion
from chakram.roce.segment_parser import SegmentParser
from tests.strategies import path_mtus, psns, verbs
from tests.virtual_wire import Pair, make_queue_pair, split

ADDRESSES = {4: ("198.18.0.1", "198.18.1.2"), 6: ("fd00::1", "fd00:9::2")}
ADDRESS, KEY = 0xFFFF_FFF0_0000, 0xABCD
SIZES = st.lists(
    st.one_of(st.integers(0, 10), st.integers(0, 5000)), min_size=1, max_size=6
)


class Encoders:
    """Both encoders of a port, as a data plane has them."""

    def __init__(self, *, local: str, remote: str, path_mtu: int) -> None:
        self._pattern = WireEncoder(
            local_address=local, path_mtu=path_mtu, max_burst_packets=15
        )
        self._pattern.set_destination(0, remote)
        self._contents = ContentsEncoder(local_address=local)
        self._contents.set_destination(0, remote, 4791)

    def encode(self, burst):  # type: ignore[no-untyped-def] # of many kinds
        chosen = self._pattern if burst.contents is None else self._contents
        return chosen.encode(burst)


def ends(
    *, path_mtu: int, verb: Verb, psn: int, memory: MemoryRegion, reordering: int = 0
) -> tuple[QueuePair, QueuePair]:
    sender = make_queue_pair(
        0x11,
        0x12,
        path_mtu=path_mtu,
        verb=verb,
        send_psn=psn,
        remote_address=ADDRESS,
        remote_key=KEY,
        reordering_packets=reordering,
    )
    receiver = make_queue_pair(
        0x12,
        0x11,
        path_mtu=path_mtu,
        receive_psn=psn,
        memory=memory,
        reordering_packets=reordering,
    )
    return sender, receiver


@given(
    path_mtu=path_mtus,
    verb=verbs,
    psn=psns,
    sizes=SIZES,
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.2]),
    reordering=st.sampled_from([0, 3, 64]),
    version=st.sampled_from([None, 4, 6]),
)
def test_every_message_ends_up_in_its_place_once(
    path_mtu: int,
    verb: Verb,
    psn: int,
    sizes: list[int],
    seed: int,
    loss: float,
    reordering: int,
    version: int | None,
) -> None:
    random = Random(seed)
    memory = MemoryRegion(sum(sizes) + 8, address=ADDRESS, key=KEY)
    encoders = None
    if version is not None:
        one, two = ADDRESSES[version]
        encoders = (
            Encoders(local=one, remote=two, path_mtu=path_mtu),
            Encoders(local=two, remote=one, path_mtu=path_mtu),
        )
    pair = Pair(
        *ends(
            path_mtu=path_mtu,
            verb=verb,
            psn=psn,
            memory=memory,
            reordering=reordering,
        ),
        drop=lambda: random.random() < loss,
        duplicate=lambda: random.random() < loss,
        extra_delay_ns=lambda: random.randrange(20_000) if reordering else 0,
        encoders=encoders,  # type: ignore[arg-type] # played
    )
    expected = bytearray(len(memory.buffer))
    told = []
    offset = 0
    for number, size in enumerate(sizes):
        contents = random.randbytes(size)
        expected[offset : offset + size] = contents
        is_told = verb is Verb.SEND or number == len(sizes) - 1 or random.random() < 0.5
        has_immediate = random.random() < 0.5 if verb is Verb.SEND else is_told
        if verb is Verb.SEND:
            memory.post_receive(offset, size)
        if is_told:
            told.append(number if has_immediate else None)
        message_id = number if has_immediate else NO_IMMEDIATE
        pair.left.port.post_send(0x11, message_id, size, 0, 0, contents, offset)
        offset += size
    pair.run()

    assert memory.buffer == expected
    events = pair.right.events_of(0x12)
    assert all(isinstance(event, MessageReceived) for event in events)
    assert [event.message_id for event in events] == told  # type: ignore[union-attr] # all are of one kind
    completed = pair.left.events_of(0x11)
    assert all(isinstance(event, SendCompleted) for event in completed)
    assert len(completed) == len(sizes)


@given(
    path_mtu=path_mtus,
    verb=verbs,
    psn=psns,
    size=st.integers(0, 20_000),
    version=st.sampled_from([4, 6]),
    has_immediate=st.booleans(),
)
def test_contents_change_only_the_payload(
    path_mtu: int, verb: Verb, psn: int, size: int, version: int, has_immediate: bool
) -> None:
    local, remote = ADDRESSES[version]
    pattern = WireEncoder(local_address=local, path_mtu=path_mtu, max_burst_packets=15)
    pattern.set_destination(0, remote)
    contents = ContentsEncoder(local_address=local)
    contents.set_destination(0, remote, 4791)
    verifier = PacketVerifier(local_address=remote, path_mtu=path_mtu)
    flow = verifier.flow(local, is_ours=False)
    parser = SegmentParser()
    text = Random(size).randbytes(size)
    made = []
    for payload in (None, text):
        sender, _ = ends(
            path_mtu=path_mtu, verb=verb, psn=psn, memory=MemoryRegion(size)
        )
        message_id = 9 if has_immediate else NO_IMMEDIATE
        sender.post_send(message_id, size, 0, payload, 5)
        made.append(list(iter(lambda end=sender: end.next_burst(0, 15), None)))
    for plain, own in zip(*made, strict=True):
        as_pattern = split(*pattern.encode(plain))
        as_contents = split(*contents.encode(own))
        assert len(as_pattern) == len(as_contents)
        for position, (one, other) in enumerate(
            zip(as_pattern, as_contents, strict=True)
        ):
            payload_bytes = own.packet_payload_bytes(position)
            end = len(other) - 4 - -payload_bytes % 4
            headers = end - payload_bytes
            assert one[:headers] == other[:headers]
            assert len(one) == len(other)
            start = (own.packet_index + position) * path_mtu
            assert other[headers:end] == text[start : start + payload_bytes]
            parser.parse(other, 0, len(other))
            assert (
                verifier.judge(
                    other, 0, len(other), parser, flow, own.source_port, position
                )
                == INTACT
            )
