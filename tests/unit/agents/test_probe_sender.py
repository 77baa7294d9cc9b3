"""Probes in virtual time: times and counters."""

from __future__ import annotations

import errno
import os
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from chakram.plan.probes import ProbeEvent, ProbePacket, ProbePlan, ProbeTarget
from chakram.records.row_layout import PROBE_FIELDS
from chakram_agent.dataplane.probe_packets import (
    ProbeName,
    name_of,
    probe_datagram,
    token_of,
)
from chakram_agent.dataplane.probe_port import Answer
from chakram_agent.probe_sender import Prober
from tests.plans import ring_plan
from tests.port_plans import port_plan
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

GAP_NS = 1_000
TOKEN = token_of("r")


@dataclass
class Descriptor:
    number: int

    def fileno(self) -> int:
        return self.number


class Sockets:
    """The sockets of a port: descriptors represent them, and nothing leaves.

    Attributes:
        sent: What left: its name, source port, destination and type of service.
        sizes: Bytes of what left, from the IPv4 header on.
        refusals: What becomes of the next ones: 0: it leaves; another error number; or
            None: there is no room at the moment.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[ProbeName, int, tuple[str, int], int]] = []
        self.sizes: list[int] = []
        self.refusals: deque[int | None] = deque()
        self._arrived: list[tuple[bytes, int, int]] = []
        self.socket_drops = 0
        self._told: list[Answer] = []
        self._peer, sender = os.pipe()
        self.receiver = Descriptor(os.eventfd(0))
        self.senders = {0xC000: Descriptor(sender)}

    def send(
        self, datagram: bytes, source_port: int, remote: tuple[str, int], tos: int
    ) -> int | None:
        refused = self.refusals.popleft() if self.refusals else 0
        if refused == 0:
            name = name_of(datagram, token=TOKEN)
            assert name is not None
            self.sent.append((name, source_port, remote, tos))
            self.sizes.append(20 + 8 + len(datagram))
        return refused

    def arrive(self, datagram: bytes, tos: int, stamp_ns: int = 0) -> None:
        self._arrived.append((datagram, tos, stamp_ns))
        os.eventfd_write(self.receiver.number, 1)

    def arrivals(self, most: int) -> Iterator[tuple[bytes, int, int]]:
        os.eventfd_read(self.receiver.number)
        arrived, self._arrived = self._arrived, []
        yield from arrived

    def tell(self, *answers: Answer) -> None:
        """Queue answers on the error queue of a descriptor."""
        self._told += answers
        os.close(self._peer)
        self._peer = -1

    def answers(self, source_port: int) -> Iterator[Answer]:
        assert source_port == 0xC000
        told, self._told = self._told, []
        yield from told

    def close(self) -> None:
        for descriptor in (self.receiver.number, self.senders[0xC000].number):
            os.close(descriptor)
        if self._peer >= 0:
            os.close(self._peer)


def target(destination: int, offset_ns: int = 0, *, source: int = 0) -> ProbeTarget:
    return ProbeTarget(
        offset_ns=offset_ns,
        source=source,
        destination=destination,
        address=f"198.18.0.{destination + 1}",
        udp_port=4791 + destination,
    )


@pytest.fixture
def made() -> Iterator[Any]:
    """Return a function that makes a prober of ports, and their sockets."""
    opened: list[Prober] = []

    def make(
        *targets: ProbeTarget,
        nports: int = 1,
        rate_bps: int | None = None,
        source_ports: tuple[int, ...] = (0xC000,),
        packets: tuple[ProbePacket, ...] = (ProbePacket(size_bytes=128, tos=106),),
        copies: int = 1,
        is_train: bool = False,
    ) -> tuple[Any, ...]:
        ports = [port_plan(number, rate_bps=rate_bps) for number in range(nports)]
        plan = replace(
            ring_plan(),
            run_id="r",
            ports=tuple(ports),
            ranks=(),
            probes=ProbePlan(
                packets=packets,
                source_ports=source_ports,
                copies=copies,
                gap_ns=GAP_NS,
                end_ns=100_000,
                targets=targets,
                is_train=is_train,
            ),
        )
        sockets = [Sockets() for _ in ports]
        prober = Prober(plan, dict(enumerate(sockets)))  # type: ignore[arg-type] # these represent sockets
        opened.append(prober)
        return prober, *sockets

    yield make
    for each in opened:
        each.close()


def play(prober: Prober, *, until_ns: int, begin_ns: int = 0) -> None:
    """Come by every 100 ns."""
    for now_ns in range(begin_ns, until_ns, 100):
        prober.turn(now_ns)


def counted(prober: Prober) -> list[dict[str, int]]:
    rows = prober.take_rows().probes
    width = len(PROBE_FIELDS)
    return [
        dict(zip(PROBE_FIELDS, rows[start : start + width], strict=True))
        for start in range(0, len(rows), width)
    ]


def events(prober: Prober) -> dict[int, int]:
    found: Counter[int] = Counter()
    for row in counted(prober):
        found[row["event"]] += row["count"]
    return dict(found)


def test_every_probe_is_sent_on_every_path_the_planned_number_of_times(
    made: Any,
) -> None:
    packets = (
        ProbePacket(size_bytes=128, tos=106),
        ProbePacket(size_bytes=1502, tos=7),
    )
    prober, sockets = made(
        target(1), target(2), source_ports=(1, 2), packets=packets, copies=2
    )
    prober.arm(0)
    play(prober, until_ns=20_000)

    # Copies lie as far apart as may be, and paths further than packets.
    assert sockets.sent == [
        (
            ProbeName(0, destination, packet, path),
            (1, 2)[path],
            (f"198.18.0.{destination + 1}", 4791 + destination),
            packets[packet].tos,
        )
        for destination in (1, 2)
        for _ in range(2)
        for path in range(2)
        for packet in range(2)
    ]
    # Whole words.
    assert set(sockets.sizes) == {128, 1500}
    rows = counted(prober)
    assert [row["count"] for row in rows] == [2] * 8
    assert {row["event"] for row in rows} == {ProbeEvent.SENT}
    assert prober.packets == 16
    assert counted(prober) == []


@pytest.mark.parametrize(
    ("rate_bps", "gap_ns"),
    [
        (None, GAP_NS),
        # 128 bytes and the Ethernet header take 1,136 ns at 1 Gbit/s, and less than
        # the gap at 2 Gbit/s.
        (10**9, 1_136),
        (2 * 10**9, GAP_NS),
    ],
)
def test_probes_respect_their_gap_and_the_rate(
    made: Any, rate_bps: int | None, gap_ns: int
) -> None:
    prober, sockets = made(target(1), rate_bps=rate_bps, copies=3)
    prober.arm(5_000)

    left = []
    for now_ns in range(4_000, 10_000):
        prober.turn(now_ns)
        left += [now_ns] * (len(sockets.sent) - len(left))
    assert left == [5_000, 5_000 + gap_ns, 5_000 + 2 * gap_ns]


def test_each_target_has_its_time_and_its_port(made: Any) -> None:
    prober, first, second = made(
        target(1), target(0, 2_000, source=1), target(2, 9_000), nports=2
    )
    prober.arm(0)

    play(prober, until_ns=1_900)
    assert (len(first.sent), len(second.sent)) == (1, 0)
    play(prober, begin_ns=1_900, until_ns=8_900)
    assert (len(first.sent), len(second.sent)) == (1, 1)
    play(prober, begin_ns=8_900, until_ns=9_100)
    assert [each[0].destination for each in first.sent] == [1, 2]


def test_probes_without_buffer_space_are_retried_and_counted_once(made: Any) -> None:
    prober, sockets = made(target(1), copies=2)
    sockets.refusals += [None, None]
    prober.arm(0)

    play(prober, until_ns=1_900)
    assert sockets.sent == []
    play(prober, begin_ns=1_900, until_ns=10_000)
    assert len(sockets.sent) == 2
    assert events(prober) == {ProbeEvent.SENT: 2}


def test_refused_probes_are_counted_by_reason(made: Any) -> None:
    prober, sockets = made(target(1), copies=3)
    sockets.refusals += [0, errno.EMSGSIZE]
    prober.arm(0)
    play(prober, until_ns=10_000)

    sent, refused = counted(prober)
    assert (sent["event"], sent["count"], sent["value"]) == (ProbeEvent.SENT, 2, 0)
    assert (refused["event"], refused["count"]) == (ProbeEvent.REFUSED, 1)
    assert refused["value"] == errno.EMSGSIZE
    # It is not sent another time.
    assert len(sockets.sent) == 2


def datagram(name: ProbeName, *, run_id: str = "r") -> bytes:
    return probe_datagram(
        name,
        token=token_of(run_id),
        size_bytes=128,
        local=("198.18.0.2", 0xC000),
        remote=("198.18.0.1", 4791),
    )


def test_arrivals_are_counted_by_class_except_those_of_other_runs(
    made: Any,
) -> None:
    prober, sockets = made(target(1))
    name = ProbeName(1, 0, 4, 2)
    for tos in (106, 106, 2):
        sockets.arrive(datagram(name), tos)
    sockets.arrive(datagram(name, run_id="another"), 106)
    sockets.arrive(b"noise", 106)
    prober.turn(0)

    rows = counted(prober)
    assert [(row["value"], row["count"]) for row in rows] == [(2, 1), (106, 2)]
    assert {row["event"] for row in rows} == {ProbeEvent.ARRIVED}
    for row in rows:
        assert (row["source"], row["destination"]) == (1, 0)
        assert (row["packet"], row["path"]) == (4, 2)
    assert prober.packets == 3


def test_train_is_sent_at_once_and_records_its_sender_delay(
    made: Any,
) -> None:
    packets = (ProbePacket(size_bytes=128, tos=106),) * 2
    # At 1 kbit/s, the sender is on time after the first packet.
    prober, sockets = made(
        target(1), packets=packets, copies=4, is_train=True, rate_bps=1000
    )
    sockets.refusals += [0, 0, None, None]
    prober.arm(0)
    prober.turn(100)

    # There was no room meanwhile: the train has waited, and is whole.
    assert [name.packet for name, *_ in sockets.sent] == [0] * 4
    sent, offered = counted(prober)
    assert (sent["event"], sent["count"]) == (ProbeEvent.SENT, 4)
    assert (offered["event"], offered["count"]) == (ProbeEvent.OFFERED, 1)
    assert 0 <= offered["value"] < PATIENCE_S * 1e9


def test_train_ends_at_the_first_refused_packet(made: Any) -> None:
    prober, sockets = made(target(1), copies=4, is_train=True)
    sockets.refusals += [0, errno.ENETDOWN]
    prober.arm(0)
    prober.turn(100)

    assert events(prober) == {ProbeEvent.SENT: 1, ProbeEvent.OFFERED: 1}


def test_later_half_of_a_train_is_timed_by_the_kernel(made: Any) -> None:
    prober, sockets = made(target(1), copies=8, is_train=True)
    name = ProbeName(1, 0, 0, 0)

    def spans() -> list[tuple[int, int]]:
        return [
            (row["count"], row["value"])
            for row in counted(prober)
            if row["event"] == ProbeEvent.SPAN
        ]

    # Four that a shaper had saved up come at once, then one every 100 ns.
    for stamp_ns in (7, 7, 7, 7, 100):
        sockets.arrive(datagram(name), 106, stamp_ns)
    prober.turn(0)
    assert spans() == []
    for stamp_ns in (200, 300, 400):
        sockets.arrive(datagram(name), 106, stamp_ns)
    prober.turn(0)
    assert spans() == [(3, 300)]


def test_waiting_packets_are_counted_at_the_end(made: Any) -> None:
    prober, sockets = made(target(1))
    for _ in range(3):
        sockets.arrive(datagram(ProbeName(1, 0, 0, 0)), 106)

    prober.receive_all()

    assert events(prober) == {ProbeEvent.ARRIVED: 3}


def test_socket_drops_are_counted_once(made: Any) -> None:
    prober, sockets = made(target(1))
    sockets.socket_drops = 3
    (row,) = counted(prober)
    assert (row["event"], row["source"], row["count"]) == (ProbeEvent.DROPPED, 0, 3)

    assert counted(prober) == []
    sockets.socket_drops = 5
    assert events(prober) == {ProbeEvent.DROPPED: 2}


def test_icmp_errors_are_counted_by_sender_and_reason(made: Any) -> None:
    prober, sockets = made(target(1))
    back = datagram(ProbeName(0, 1, 3, 0))
    sockets.tell(
        Answer(errno.EMSGSIZE, 1400, 0x0A000001, back),
        Answer(errno.EHOSTUNREACH, 7, 0x0A000002, back),
        Answer(errno.EHOSTUNREACH, 0, 0x0A000003, back[:8]),
    )
    prober.turn(0)

    rows = [(row["event"], row["value"], row["address"]) for row in counted(prober)]
    assert rows == [
        (ProbeEvent.TOO_BIG, 1400, 0x0A000001),
        (ProbeEvent.UNREACHABLE, errno.EHOSTUNREACH, 0x0A000002),
    ]


def test_probing_ends_after_the_timeout_of_the_last_packet(made: Any) -> None:
    prober, _ = made(target(1))
    assert not prober.finished(10**9)  # it has not begun
    prober.arm(1_000)
    assert not prober.finished(10**9)  # nothing has left

    # 500 ns late: so is the end.
    prober.turn(1_500)
    assert not prober.finished(1_000 + 100_000 + 499)
    assert prober.finished(1_000 + 100_000 + 500)
