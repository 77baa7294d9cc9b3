"""A connection over a wire that does anything a network can.

Two ports talk as bytes over a wire that the machine holds in its hands. Whatever it
does in whatever order, the laws hold after every step; and once it lets the wire rest,
every message arrives, once, whole and in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from chakram.roce.congestion import CongestionControl
from chakram.roce.congestion.dcqcn import Dcqcn
from chakram.roce.congestion.fixed_rate import FixedRate
from chakram.roce.constants import NEVER, Verb
from chakram.roce.events import MessageReceived, SendCompleted
from chakram.roce.packet_encoder import WireEncoder
from chakram.roce.packet_verification import PacketVerifier
from chakram.roce.port import PortEngine
from tests.strategies import first_psns, path_mtus, verbs
from tests.support import examples
from tests.virtual_wire import make_queue_pair, split

LEFT, RIGHT = 0, 1
ADDRESSES = ("198.18.0.1", "198.18.0.2")
QPNS = (0x11, 0x12)
SOURCE_PORT = 0xC000
TIMEOUT_NS = 100_000
PATIENT = 10**6
WINDOW_BYTES = 20_000

sides = st.sampled_from((LEFT, RIGHT))


@dataclass(slots=True)
class Flying:
    """A packet on the wire."""

    to: int
    data: bytes
    ce: bool = False


def control_of(name: str) -> CongestionControl:
    """Return a congestion control of that kind."""
    if name == "dcqcn":
        return Dcqcn(line_rate_bps=10**10, min_rate_bps=10**9)
    if name == "fixed_rate":
        return FixedRate(rate_bps=10**9)
    return CongestionControl()


class Connection(RuleBasedStateMachine):
    """See the module."""

    @initialize(
        path_mtu=path_mtus,
        psns=st.tuples(first_psns, first_psns),
        verb=verbs,
        interval=st.integers(1, 20),
        control=st.sampled_from(["none", "dcqcn", "fixed_rate"]),
        rate_bps=st.sampled_from([None, 10**9]),
        low_ns=st.sampled_from([0, 50_000]),
    )
    def connect(
        self,
        path_mtu: int,
        psns: tuple[int, int],
        verb: Verb,
        interval: int,
        control: str,
        rate_bps: int | None,
        low_ns: int,
    ) -> None:
        self.now_ns = 0
        self.path_mtu = path_mtu
        self.ports: list[PortEngine] = []
        self.encoders: list[WireEncoder] = []
        for side in (LEFT, RIGHT):
            other = 1 - side
            verifier = PacketVerifier(local_address=ADDRESSES[side], path_mtu=path_mtu)
            port = PortEngine(
                rate_bps=rate_bps,
                burst_bound_ns=0,
                max_burst_packets=7,
                verifier=verifier,
            )
            port.add_queue_pair(
                make_queue_pair(
                    QPNS[side],
                    QPNS[other],
                    path_mtu=path_mtu,
                    send_psn=psns[side],
                    receive_psn=psns[other],
                    verb=verb,
                    window_bytes=WINDOW_BYTES,
                    ack_interval_packets=interval,
                    retransmit_timeout_ns=TIMEOUT_NS,
                    adaptive_low_ns=low_ns,
                    retry_limit=PATIENT,
                    congestion_control=control_of(control),
                    cnp_interval_ns=1_000,
                    source_port=SOURCE_PORT,
                )
            )
            port.queue_pair(QPNS[side]).flow = verifier.flow(ADDRESSES[other])
            encoder = WireEncoder(
                local_address=ADDRESSES[side], path_mtu=path_mtu, max_burst_packets=7
            )
            encoder.set_destination(0, ADDRESSES[other])
            self.ports.append(port)
            self.encoders.append(encoder)
        self.wire: list[Flying] = []
        self.full = 0
        self.sizes: tuple[list[int], list[int]] = ([], [])
        self.received: tuple[list[tuple[int | None, int]], ...] = ([], [])
        self.completed: tuple[list[tuple[int, int]], ...] = ([], [])

    # What the user does.

    @rule(side=sides, size=st.integers(0, 6_000))
    def post(self, side: int, size: int) -> None:
        number = len(self.sizes[side])
        self.sizes[side].append(size)
        self.ports[side].post_send(QPNS[side], number, size, self.now_ns)
        self.serve()

    @rule(wait_ns=st.sampled_from([1, 700, 20_000, TIMEOUT_NS, 20 * TIMEOUT_NS]))
    def wait(self, wait_ns: int) -> None:
        self.now_ns += wait_ns
        self.serve()

    @rule(times=st.integers(1, 6))
    def fill_the_sockets(self, times: int) -> None:
        """Refuse the next sends, with any calls between them."""
        self.full = times

    @precondition(lambda self: self.wire)
    @rule()
    def set_not_ready(self) -> None:
        """Make a receiver not ready for the first packet, if that is next."""
        first = self.wire[0]
        psn = int.from_bytes(first.data[9:12], "big")
        is_data = len(first.data) > 11 and first.data[0] < 0x0C
        port = self.ports[first.to]
        if is_data and port.set_not_ready(QPNS[first.to], psn, self.now_ns):
            del self.wire[0]
        self.serve()

    # What the wire does.

    @precondition(lambda self: self.wire)
    @rule(count=st.integers(1, 12), at_most=st.integers(1, 8))
    def deliver(self, count: int, at_most: int) -> None:
        for _ in range(min(count, len(self.wire))):
            if self.wire:
                self.take_first(at_most)
        self.serve()

    @precondition(lambda self: self.wire)
    @rule(data=st.data(), count=st.integers(1, 5))
    def lose(self, data: st.DataObject, count: int) -> None:
        start = data.draw(st.integers(0, len(self.wire) - 1))
        del self.wire[start : start + count]

    @precondition(lambda self: self.wire)
    @rule(data=st.data(), copies=st.integers(1, 3))
    def repeat(self, data: st.DataObject, copies: int) -> None:
        packet = self.wire[data.draw(st.integers(0, len(self.wire) - 1))]
        at = data.draw(st.integers(0, len(self.wire)))
        self.wire[at:at] = [packet] * copies

    @precondition(lambda self: len(self.wire) > 1)
    @rule(data=st.data())
    def reorder(self, data: st.DataObject) -> None:
        last = len(self.wire) - 1
        packet = self.wire.pop(data.draw(st.integers(0, last)))
        self.wire.insert(data.draw(st.integers(0, last)), packet)

    @precondition(lambda self: self.wire)
    @rule(data=st.data())
    def mark(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.wire) - 1))
        packet = self.wire[at]
        self.wire[at] = Flying(packet.to, packet.data, True)

    @precondition(lambda self: self.wire)
    @rule(data=st.data())
    def corrupt(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.wire) - 1))
        packet = self.wire[at]
        damaged = bytearray(packet.data)
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] ^= data.draw(st.integers(1, 255))
        cut = data.draw(st.sampled_from([0, 0, 0, 1, 4, 9]))
        kept = bytes(damaged[: max(1, len(damaged) - cut)])
        self.wire[at] = Flying(packet.to, kept, packet.ce)

    # What follows from it.

    def take_first(self, at_most: int) -> None:
        """Hand over the first packet, with those behind it that a kernel would join."""
        first = self.wire.pop(0)
        data = first.data
        size = len(data)
        for _ in range(at_most - 1):
            if not self.wire or len(data) % size:
                break
            packet = self.wire[0]
            if (packet.to, packet.ce) != (first.to, first.ce) or not (
                0 < len(packet.data) <= size
            ):
                break
            data += self.wire.pop(0).data
        port = self.ports[first.to]
        before = port.queue_pair(QPNS[first.to]).statistics()
        port.receive_datagrams(
            data, len(data), size, self.now_ns, first.ce, SOURCE_PORT
        )
        after = port.queue_pair(QPNS[first.to]).statistics()
        # Every packet of data that is looked at is marked, or none is.
        came = after.packets_received - before.packets_received
        assert after.ce - before.ce == (came if first.ce else 0)

    def serve(self) -> None:
        for side in (LEFT, RIGHT):
            port = self.ports[side]
            port.handle_timers(self.now_ns)
            while (burst := port.peek_burst(self.now_ns)) is not None:
                if self.full:
                    self.full -= 1
                    break
                port.commit_burst(burst, self.now_ns)
                self.wire += [
                    Flying(1 - side, data)
                    for data in split(*self.encoders[side].encode(burst))
                ]
            while (entry := port.next_event()) is not None:
                _, event = entry
                if isinstance(event, MessageReceived):
                    self.received[side].append((event.message_id, event.size_bytes))
                else:
                    assert isinstance(event, SendCompleted)
                    self.completed[side].append((event.message_id, event.size_bytes))

    @invariant()
    def nothing_is_delivered_twice_or_out_of_order(self) -> None:
        for side in (LEFT, RIGHT):
            sent = list(enumerate(self.sizes[side]))
            arrived = self.received[1 - side]
            assert arrived == sent[: len(arrived)]
            # No message completes before it has arrived.
            done = self.completed[side]
            assert done == sent[: len(done)]
            assert len(done) <= len(arrived)

    @invariant()
    def counters_agree(self) -> None:
        for side in (LEFT, RIGHT):
            queue_pair = self.ports[side].queue_pair(QPNS[side])
            counters = queue_pair.statistics()
            assert counters.failure is None
            assert counters.packets_retransmitted == (
                counters.retransmitted_for_nak
                + counters.retransmitted_for_timeout
                + counters.retransmitted_for_rnr
            )
            assert counters.messages_posted == len(self.sizes[side])
            assert counters.messages_completed == len(self.completed[side])
            assert counters.messages_received == len(self.received[side])
            assert queue_pair.unacknowledged_bytes() <= max(WINDOW_BYTES, self.path_mtu)
            port = self.ports[side].statistics()
            assert port.malformed + port.icrc_errors <= port.packets_received

    def teardown(self) -> None:
        """Stop disturbing the wire, so that everything arrives."""
        if not hasattr(self, "ports"):
            return
        limit_ns = self.now_ns + 10**9
        self.full = 0
        self.serve()
        while True:
            while self.wire:
                self.take_first(4)
                self.serve()
            wakeup_ns = min(port.next_wakeup_ns() for port in self.ports)
            if wakeup_ns == NEVER:
                break
            assert wakeup_ns < limit_ns, "it never comes to rest"
            self.now_ns = max(self.now_ns, wakeup_ns)
            self.serve()
        self.nothing_is_delivered_twice_or_out_of_order()
        self.counters_agree()
        for side in (LEFT, RIGHT):
            assert len(self.received[1 - side]) == len(self.sizes[side])
            assert len(self.completed[side]) == len(self.sizes[side])
            counters = self.ports[side].queue_pair(QPNS[side]).statistics()
            # The first mark causes a notification with any interval.
            assert (counters.cnps_sent > 0) == (counters.ce > 0)


TestConnection = pytest.mark.slow(Connection.TestCase)
TestConnection.settings = settings(max_examples=examples(150), stateful_step_count=40)
