"""Modeled switches: changed frames, send times and pauses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from chakram.fabric.modeled_switch import live_switch
from chakram.predict.simulator.event_queue import NO_EVENT
from chakram.switch.ecmp import Flow, KernelPaths
from chakram.switch.faults import LinkFault
from chakram.switch.pause_frames import pause_frame, paused_classes
from chakram.switch.profiles import Profile
from chakram.switch.settings import WatchdogSettings
from chakram.topology.topology import EcnThresholds
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.unit.fabric.live_frames import (
    ON_WIRE_NS,
    RATE,
    SEED,
    SIZE,
    LiveFabric,
    checksum,
    incast,
    lossless,
)

CLASS = 3


def test_a_frame_leaves_when_its_last_bit_has_crossed_both_links() -> None:
    lab = LiveFabric(single_switch(2, RATE, host_delay_ns=5000))
    frame = lab.frame(0, 1, SIZE)
    due_ns = 1000 + 2 * (ON_WIRE_NS + 5000)
    lab.hand(0, 1000, frame)

    lab.live.round(2000)
    assert lab.take() == []
    lab.live.round(due_ns - 1)
    assert lab.take() == []
    lab.live.round(due_ns)
    ((port, sent),) = lab.take()

    assert port == 1
    # The UDP checksum says that there is none; nothing else has changed.
    assert sent == frame[:40] + b"\0\0" + frame[42:]
    assert lab.live.next_ns() == NO_EVENT
    assert (lab.live.received, lab.live.delivered, lab.live.unknown) == (1, 1, 0)


def test_frame_that_arrives_during_a_round_is_timed_from_its_arrival() -> None:
    lab = LiveFabric(single_switch(2, RATE))
    lab.hand(0, 15_000, lab.frame(0, 1, SIZE))
    lab.live.round(1_000)
    due_ns = 15_000 + 2 * ON_WIRE_NS
    lab.live.round(due_ns - 1)
    assert lab.take() == []
    lab.live.round(due_ns)
    assert len(lab.take()) == 1


def test_setting_the_system_clock_does_not_change_delays() -> None:
    lab = LiveFabric(single_switch(2, RATE))
    lab.hand(0, 3600 * 10**9, lab.frame(0, 1, SIZE))
    lab.live.round(1_000)
    lab.live.round(1_000 + 2 * ON_WIRE_NS)
    assert len(lab.take()) == 1


def test_cut_through_frame_arrives_with_its_last_bit() -> None:
    rate_bps, size = 3 * 10**9, SIZE - 1  # 11,074.67 ns
    lab = LiveFabric(single_switch(3, rate_bps), Profile(cut_through=True))
    for target in (1, 2):
        lab.hand(0, 0, lab.frame(0, target, size))
    # What two packets take to leave their host, rounded up.
    last_ns = -(-2 * size * 8 * 10**9 // rate_bps)
    lab.live.round(last_ns - 1)
    assert [port for port, _ in lab.take()] == [1]
    lab.live.round(last_ns)
    assert [port for port, _ in lab.take()] == [2]


def test_late_rounds_do_not_reduce_the_rate() -> None:
    lab = LiveFabric(single_switch(3, RATE))
    for number in range(50):
        lab.hand(0, number, lab.frame(0, 2, SIZE))
    # 50 packets take as long as they take, not 50 rounds that come when they like.
    last_ns = 51 * ON_WIRE_NS
    lab.live.round(last_ns // 2)
    lab.live.round(last_ns - 1)
    assert len(lab.take()) == 49
    lab.live.round(last_ns + 100)
    assert len(lab.take()) == 1


def test_two_senders_share_the_port_of_their_receiver() -> None:
    lab = LiveFabric(single_switch(3, RATE))
    for number in range(20):
        for source in (0, 1):
            lab.hand(source, number, lab.frame(source, 2, SIZE, source_port=source))
    lab.live.round(21 * ON_WIRE_NS + 100)
    ports = Counter(frame[34:36] for _, frame in lab.take())
    assert ports == {b"\0\0": 10, b"\0\1": 10}


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_marked_packet_has_ce_and_a_correct_checksum(family: str) -> None:
    topology = single_switch(
        4,
        RATE,
        host_ecn=EcnThresholds(kmin_bytes=0, kmax_bytes=0, probability=1.0),
    )
    lab = LiveFabric(topology, Profile(name="sonic"), family=family)
    frames = [lab.frame(source, 3, SIZE) for source in range(3)]
    for source, frame in enumerate(frames):
        lab.hand(source, 0, frame)
    lab.live.round(10 * ON_WIRE_NS)
    sent = [frame for _, frame in lab.take()]

    # Only the second one leaves another one behind when it goes.
    capable, marked = 26 << 2 | 2, 26 << 2 | 3
    if family == "ipv4":
        assert [frame[15] for frame in sent] == [capable, marked, capable]
        assert [checksum(frame[14:34]) for frame in sent] == [0, 0, 0]
        assert sent[1][26:40] == frames[1][26:40]
    else:
        classes = [(frame[14] & 15) << 4 | frame[15] >> 4 for frame in sent]
        assert classes == [capable, marked, capable]
        assert sent[1][16:60] == frames[1][16:60]


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_dscp_determines_the_class_of_packets(family: str) -> None:
    lab = LiveFabric(single_switch(2, RATE), Profile(name="sonic"), family=family)
    for number, dscp in enumerate((26, 26, 48, 0, 3)):
        lab.hand(0, number, lab.frame(0, 1, SIZE, dscp=dscp))
    now_ns = 10 * ON_WIRE_NS
    lab.live.round(now_ns)

    assert len(lab.take()) == 5
    model = lab.fabric.model
    port = model.port(model.port(lab.fabric.host_port("h1")).peer)
    sent = port.counted(now_ns)["sent_packets"]
    classes = {klass: count for klass, count in enumerate(sent) if count}
    # Of sonic a class is a DSCP divided by 8.
    assert classes == {0: 2, 3: 2, 6: 1}


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda frame: frame[:20], id="short"),
        pytest.param(lambda frame: frame + bytes(200), id="longer than the MTU"),
        pytest.param(lambda frame: bytes(6) + frame[6:], id="for nobody"),
        pytest.param(lambda frame: frame[:12] + b"\x08\x06" + frame[14:], id="ARP"),
        pytest.param(lambda frame: frame[:12] + b"\x86\xdd" + frame[14:40], id="IPv6"),
    ],
)
def test_frames_to_unknown_hosts_are_counted_and_dropped(spoil) -> None:  # type: ignore[no-untyped-def] # of bytes
    lab = LiveFabric(single_switch(2, RATE))
    lab.hand(0, 0, spoil(lab.frame(0, 1, SIZE)))
    lab.hand(0, 1, lab.frame(0, 1, SIZE))
    lab.live.round(10 * ON_WIRE_NS)
    assert len(lab.take()) == 1
    assert (lab.live.received, lab.live.delivered, lab.live.unknown) == (2, 1, 1)


def test_flows_take_the_paths_that_the_kernel_would_choose() -> None:
    lab = LiveFabric(clos(2, 4, 1, RATE, RATE))
    for source_port in range(50_000, 50_064):
        lab.hand(0, 0, lab.frame(0, 1, SIZE, source_port=source_port))
    lab.live.round(100 * ON_WIRE_NS)

    assert len(lab.take()) == 64
    assert taken_paths(lab) == kernel_paths(lab, range(50_000, 50_064))


def test_flows_beyond_the_maximum_take_their_own_paths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_switch, "_MANY_FLOWS", 8)
    lab = LiveFabric(clos(2, 4, 1, RATE, RATE))
    source_ports = [*range(50_000, 50_064), *range(50_000, 50_010)]
    for count, source_port in enumerate(source_ports):
        lab.hand(0, 0, lab.frame(0, 1, SIZE, source_port=source_port))
        lab.live.round(count * 4 * ON_WIRE_NS)
    lab.live.round(1000 * ON_WIRE_NS)

    assert len(lab.take()) == len(source_ports)
    assert taken_paths(lab) == kernel_paths(lab, source_ports)
    # The switches remember no more flows: the next number is 8.
    ends = lab.fabric.node("leaf0"), lab.fabric.node(lab.hosts[1])
    assert lab.fabric.model.forwarding.add_drawn_flow(*ends, 0) == 8


def test_a_flow_keeps_its_number_while_its_packets_are_in_the_switches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_switch, "_MANY_FLOWS", 8)
    lab = LiveFabric(clos(2, 4, 1, RATE, RATE))
    for source_port in range(50_000, 50_064):
        lab.hand(0, 0, lab.frame(0, 1, SIZE, source_port=source_port))
    lab.live.round(1000 * ON_WIRE_NS)

    assert len(lab.take()) == 64
    assert taken_paths(lab) == kernel_paths(lab, range(50_000, 50_064))


def taken_paths(lab: LiveFabric) -> dict[str, int]:
    """Return the packets that each uplink of the first leaf has sent."""
    return {
        link.name: sum(
            lab.fabric.model.port(lab.fabric.port(link.a)).counted(0)["sent_packets"]
        )
        for link in lab.topology.uplinks()
        if link.a.node == "leaf0"
    }


def kernel_paths(lab: LiveFabric, source_ports: Iterable[int]) -> dict[str, int]:
    """Return the packets that the kernel would send over each uplink of that leaf."""
    expected = dict.fromkeys(taken_paths(lab), 0)
    near, far = (lab.addresses.host(host).address for host in lab.hosts)
    for source_port in source_ports:
        flow = Flow(
            sender=0,
            receiver=1,
            source=near,
            destination=far,
            source_port=source_port,
            destination_port=4791,
        )
        expected[f"leaf0-spine{KernelPaths(seed=SEED).chooser(flow)(0, 4)}"] += 1
    return expected


def test_an_incast_pauses_hosts_and_loses_nothing() -> None:
    lab = LiveFabric(single_switch(8, RATE), lossless())
    now_ns = incast(lab, steps=60)
    received = lab.take()

    pauses = [(port, frame) for port, frame in received if paused_classes(frame)]
    data = [port for port, frame in received if not paused_classes(frame)]
    assert data == [0] * 7 * 60
    # All senders were paused and resumed; the receiver was not.
    assert {port for port, _ in pauses} == set(range(1, 8))
    quanta = [paused_classes(frame) for _, frame in pauses]
    assert {klass for each in quanta for klass, _ in each} == {CLASS}
    assert {bool(each[0][1]) for each in quanta} == {True, False}
    for host in range(1, 8):
        number = lab.fabric.host_port(f"h{host}")
        counted = lab.fabric.model.port(number).counted(now_ns)
        assert counted["paused_ns"][CLASS] > 0
        assert sum(counted["drops_by_reason"]) == 0


def test_pause_of_a_host_lasts_for_its_quanta() -> None:
    lab = LiveFabric(single_switch(2, RATE), lossless())
    quanta = 1000
    ends_ns = 100 + quanta * 512 * 5
    lab.hand(1, 100, pause_frame(CLASS, quanta))
    lab.hand(0, 100, lab.frame(0, 1, SIZE))
    lab.hand(0, 101, lab.frame(0, 1, SIZE, dscp=0))
    lab.live.round(ends_ns)
    (other,) = lab.take()
    assert other[1][15] == 2
    lab.live.round(ends_ns + ON_WIRE_NS - 1)
    assert lab.take() == []
    lab.live.round(ends_ns + ON_WIRE_NS)
    assert len(lab.take()) == 1


def test_pause_of_0_quanta_resumes_at_once() -> None:
    lab = LiveFabric(single_switch(2, RATE), lossless())
    lab.hand(1, 0, pause_frame(CLASS, 0xFFFF))
    lab.hand(0, 0, lab.frame(0, 1, SIZE))
    lab.live.round(5 * ON_WIRE_NS)
    lab.hand(1, 5 * ON_WIRE_NS, pause_frame(CLASS, 0))
    lab.live.round(6 * ON_WIRE_NS)
    assert len(lab.take()) == 1


def test_watchdog_ends_a_pause_storm() -> None:
    watchdog = WatchdogSettings(
        detection_ns=2_000_000, restoration_ns=4_000_000, poll_ns=1_000_000
    )
    lab = LiveFabric(single_switch(3, RATE), lossless(watchdog=watchdog))
    now_ns = 0
    for _ in range(40):
        # Host 1 pauses all the time; host 2 is sent to as well.
        lab.hand(1, now_ns, pause_frame(CLASS, 0xFFFF))
        lab.hand(0, now_ns, lab.frame(0, 1, SIZE))
        lab.hand(0, now_ns, lab.frame(0, 2, SIZE))
        now_ns += 500_000
        lab.live.round(now_ns)
    number = lab.fabric.host_port("h1")
    port = lab.fabric.model.port(lab.fabric.model.port(number).peer)
    counted = port.counted(now_ns)
    assert counted["storms"][CLASS] == 1
    # Packets for the pausing host are dropped, so other hosts need not wait.
    assert {host for host, _ in lab.take()} == {2}
    assert counted["queue_packets"][CLASS] == 0

    lab.live.round(now_ns + 20_000_000)
    lab.hand(0, now_ns + 20_000_000, lab.frame(0, 1, SIZE))
    lab.live.round(now_ns + 30_000_000)
    assert port.counted(now_ns)["restored"][CLASS] == 1
    assert [host for host, _ in lab.take() if host == 1] == [1]


def test_frames_wait_in_the_kernel_without_buffer_space() -> None:
    lab = LiveFabric(single_switch(2, RATE))
    for _ in range(600):
        lab.hand(0, 0, lab.frame(0, 1, 100))
    lab.live.round(1)
    lab.live.round(2)
    lab.live.round(3)
    assert 0 < len(lab.frames.coming) < 100
    lab.live.round(10**9)
    lab.live.round(2 * 10**9)
    assert len(lab.take()) == 600


def test_links_fail_for_the_declared_time_only() -> None:
    lab = LiveFabric(single_switch(3, RATE))
    port = lab.fabric.host_port("h1")
    from_ns, until_ns = 10 * ON_WIRE_NS, 20 * ON_WIRE_NS
    lab.live.disturb(
        [LinkFault(kind="down", port=port, at_ns=from_ns, until_ns=until_ns)]
    )
    arrived = []
    for turn in range(30):
        lab.hand(0, turn * ON_WIRE_NS, lab.frame(0, 1, SIZE))
        lab.hand(0, turn * ON_WIRE_NS, lab.frame(0, 2, SIZE))
        lab.live.round(turn * ON_WIRE_NS)
        arrived += [(turn, port) for port, _ in lab.take()]
    assert {turn for turn, host in arrived if host == 1 and turn < 9}
    assert not {turn for turn, host in arrived if host == 1 and 10 <= turn < 20}
    assert {turn for turn, host in arrived if host == 1 and turn > 21}
    assert {turn for turn, host in arrived if host == 2 and 12 <= turn < 20}


def test_lasting_faults_end_on_request() -> None:
    lab = LiveFabric(single_switch(2, RATE))
    port = lab.fabric.host_port("h0")
    lasting = {"port": port, "at_ns": 10, "until_ns": 10**12}
    lab.live.disturb(
        [
            LinkFault(kind="degrade", rate_bps=RATE // 10, **lasting),
            LinkFault(kind="loss", probability=1.0, **lasting),
        ]
    )
    lab.live.round(100)
    lab.hand(0, 100, lab.frame(0, 1, SIZE))
    lab.live.round(30 * ON_WIRE_NS)
    assert lab.take() == []
    lab.live.disturb([])
    lab.hand(0, 30 * ON_WIRE_NS, lab.frame(0, 1, SIZE))
    lab.live.round(32 * ON_WIRE_NS)
    assert len(lab.take()) == 1
