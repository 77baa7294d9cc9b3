"""The switch model: profiles, counters, dependencies, cut-through, refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from chakram.predict.simulator.switch_fabric import buffer_cycle
from chakram.switch.faults import LinkFault
from chakram.switch.headroom import LinkEnd, headroom_bytes
from chakram.switch.keyed_random import packet_number
from chakram.switch.model import SwitchModel
from chakram.switch.packet_outcomes import (
    CORRUPTED,
    EGRESS_LIMIT,
    HEADROOM_FULL,
    INGRESS_LIMIT,
    LINK_DOWN,
    LINK_LOSS,
    WRED,
)
from chakram.switch.packet_slots import (
    CHOSEN,
    DESTINATION,
    DSCP,
    ENTERED,
    FATE,
    FLOW,
    INGRESS,
    NUMBER,
    SIZE,
)
from chakram.switch.port import NEVER
from chakram.switch.profiles import fifo, ns3, sonic
from chakram.switch.settings import (
    BufferLimit,
    PauseSettings,
    PoolSettings,
    PortSpec,
    SwitchSettings,
    SwitchSpec,
    WatchdogSettings,
    WredSettings,
)
from chakram.switch.telemetry_counters import sonic_port, sonic_queue
from tests.property.modeled_switches import (
    DELAY_NS,
    GBIT,
    flow_to,
    port_ready_ns,
    ring,
    star,
)

FAST = LinkEnd(rate_bps=400 * GBIT, delay_ns=500)


def test_ns3_has_the_limits_that_its_model_has() -> None:
    settings = ns3([FAST] * 10, buffer_bytes=32 * 2**20)
    limit = settings.ports[0].ingress[3]
    assert limit.headroom_bytes == 75_000
    assert limit.reserved_bytes == 4_096
    assert limit.alpha_shift == -3
    assert settings.pools[0].shared_bytes == 32 * 2**20 - 10 * (75_000 + 4_096)
    assert settings.ports[0].pause.quanta is None


def test_ns3_gives_ports_faster_than_hosts_more() -> None:
    faster = LinkEnd(rate_bps=1600 * GBIT, delay_ns=500)
    settings = ns3([FAST, faster])
    shifts = [port.ingress[3].alpha_shift for port in settings.ports]
    assert shifts == [-3, -1]


def test_headroom_holds_the_data_in_flight() -> None:
    # Two packets, 25,000 bytes on the link each way, 2,560 for the answer, two frames.
    assert (
        headroom_bytes(FAST, mtu=9216) == -(-(18_432 + 50_000 + 2_680) // 1024) * 1024
    )
    assert headroom_bytes(FAST, mtu=9216, cell_bytes=254) > headroom_bytes(
        FAST, mtu=9216
    )


@pytest.mark.parametrize("profile", [ns3, sonic])
def test_a_buffer_without_room_is_refused(
    profile: Callable[..., SwitchSettings],
) -> None:
    with pytest.raises(ValueError, match="is too small for the headroom"):
        profile([FAST] * 8, buffer_bytes=100_000)


def test_counters_have_the_names_of_sonic() -> None:
    wires = star(2, lambda ends: sonic(ends, mtu=1100, buffer_bytes=10**6))
    wires.model.pause(0, 3, NEVER, 0)
    for _ in range(3):
        wires.send(1, 1, 0)
    wires.run(10_000)
    paused = wires.model.port(0).counted(wires.now_ns)
    assert sonic_port(paused)["SAI_PORT_STAT_PFC_3_RX_PKTS"] == 1
    queue = sonic_queue(paused, 3)
    assert queue["SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES"] == 3_000
    assert queue["SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES"] == 3_000
    assert queue["CHAKRAM_PAUSED_NS"] == 10_000
    incoming = sonic_port(wires.model.port(1).counted(wires.now_ns))
    # Switches count the FCS of each packet.
    assert incoming["SAI_PORT_STAT_IF_IN_OCTETS"] == 3 * (1_000 + 4)
    wires.obey(0, 3, 0)
    wires.run()
    queue = sonic_queue(wires.model.port(0).counted(wires.now_ns), 3)
    assert queue["SAI_QUEUE_STAT_PACKETS"] == 3
    assert queue["SAI_QUEUE_STAT_BYTES"] == 3 * (1_000 + 4)
    assert queue["SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES"] == 3_000


def lossless(ends: Sequence[LinkEnd]) -> SwitchSettings:
    return sonic(ends, mtu=1100, buffer_bytes=120_000, classes=(3,))


def test_cyclic_buffer_dependency_of_a_ring_is_named() -> None:
    wires, hops = ring(4, lossless)
    named = buffer_cycle(wires.model, next_hops=hops, destinations=range(4, 8))
    assert sorted(named) == ["s0:next", "s1:next", "s2:next", "s3:next"]
    followers = [*named[1:], named[0]]
    for name, after in zip(named, followers, strict=True):
        assert (int(name[1]) + 1) % 4 == int(after[1])


def test_a_line_has_no_cycle() -> None:
    wires, hops = ring(4, lossless, clockwise=False)
    assert buffer_cycle(wires.model, next_hops=hops, destinations=range(4, 8)) == ()


def waiting(model: SwitchModel, klass: int) -> dict[str, set[str]]:
    """Return the ports that rest, each with those that it waits for.

    Each is paused by the switch behind it, where what has come from it waits for them.
    """
    ports = [port for port in model.ports() if port.is_paused(klass)]
    return {
        port.name: {
            other.name
            for other in ports
            if any(
                model.packets.get(slot, INGRESS) == port.peer
                for slot in other.slots(klass)
            )
        }
        for port in ports
        if port.peer >= 0
    }


def test_traffic_round_a_ring_deadlocks() -> None:
    wires, _ = ring(3, lossless)
    flows = [flow_to(wires, host, (host + 2) % 3) for host in range(3)]
    assert waiting(wires.model, 3) == {}
    for _ in range(400):
        for host in range(3):
            wires.send(host, 3 + (host + 2) % 3, flows[host])
    wires.run(5_000_000)
    waits = waiting(wires.model, 3)
    assert {name: waits[name] for name in ("s0:next", "s1:next", "s2:next")} == {
        "s0:next": {"s1:next"},
        "s1:next": {"s2:next"},
        "s2:next": {"s0:next"},
    }
    assert wires.check() == []
    assert len(wires.arrived) < wires.sent


def test_cut_through_needs_an_idle_and_no_faster_egress() -> None:
    wires = star(
        3, lambda ends: replace(fifo(ends, queue_bytes=[None] * 3), cut_through=True)
    )
    model = wires.model
    slot = model.packets.take()
    fields = ((SIZE, 1000), (DSCP, 26), (FLOW, 0), (DESTINATION, 1), (ENTERED, 800))
    for name, value in fields:
        model.packets.put(slot, name, value)
    assert model.cuts_through(1, slot, 0)
    assert model.packets.get(slot, CHOSEN) == 1
    model.set_rate(0, 20 * GBIT, 0)
    assert not model.cuts_through(1, slot, 0)
    model.set_rate(0, 5 * GBIT, 0)
    assert model.cuts_through(1, slot, 0)
    # It comes by a link that has lost half of its rate, and would be out too soon.
    model.set_rate(0, 10 * GBIT, 0)
    model.packets.put(slot, ENTERED, 1600)
    assert not model.cuts_through(1, slot, 0)
    model.packets.put(slot, ENTERED, 800)
    model.pause(0, 0, NEVER, 0)
    assert not model.cuts_through(1, slot, 0)
    model.pause(0, 0, 0, 0)
    wires.send(2, 1, 0)
    wires.run(800 + DELAY_NS + 1)
    assert not model.cuts_through(1, slot, wires.now_ns)


def test_rate_change_does_not_affect_the_packet_on_the_wire() -> None:
    wires = star(2, lambda ends: fifo(ends, queue_bytes=[None] * 2))
    for _ in range(3):
        wires.send(1, 1, 0)
    wires.run(400)
    wires.model.set_rate(3, GBIT, wires.now_ns)
    wires.run()
    sent = [time_ns for port, _, time_ns in wires.departures if port == 3]
    assert sent == [0, 800, 8_800]


def test_token_bucket_sends_a_burst_and_then_keeps_its_rate() -> None:
    free = fifo([LinkEnd(rate_bps=GBIT, delay_ns=0)], queue_bytes=[None])
    port = PortSpec(name="p", rate_bps=GBIT, bucket_bytes=2_500)
    model = SwitchModel(
        switches=[SwitchSpec(name="s", settings=free, ports=(port,))],
        hosts=[],
        next_hops=lambda _node, _destination: [0],
        seed=1,
    )
    left = []
    now_ns = 10**6
    for _ in range(6):
        slot = model.packets.take()
        model.packets.put(slot, SIZE, 1_000)
        model.send(0, slot, now_ns)
    while port_ready_ns(model, 0) != NEVER:
        now_ns = max(now_ns, port_ready_ns(model, 0))
        model.transmit(0, now_ns)
        left.append(model.port(0).sent_ns() - 10**6)
    # Three at once: 2.5 are saved, and the third leaves in debt; then 8 us each.
    assert left == [0, 0, 0, 4_000, 12_000, 20_000]


def test_host_delays_are_random_and_preserve_the_order() -> None:
    free = fifo([LinkEnd(rate_bps=GBIT, delay_ns=0)], queue_bytes=[None])
    port = PortSpec(name="p", rate_bps=GBIT, bucket_bytes=10**6, jitter_ns=30_000)
    model = SwitchModel(
        switches=[SwitchSpec(name="s", settings=free, ports=(port,))],
        hosts=[],
        next_hops=lambda _node, _destination: [0],
        seed=1,
    )
    left = []
    for number in range(200):
        slot = model.packets.take()
        model.packets.put(slot, SIZE, 100)
        model.packets.put(slot, NUMBER, number)
        now_ns = 10**6 + number // 2 * 50_000
        model.send(0, slot, now_ns)
        model.transmit(0, now_ns)
        left.append((model.port(0).sent_ns(), model.port(0).sent_ns() - now_ns))
    assert left == sorted(left, key=lambda each: each[0])
    late = [late_ns for _, late_ns in left[::2]]
    assert 0 <= min(late) < 2_000
    assert 28_000 < max(late) < 30_000


def fates_of_a_flow(others: int) -> list[int]:
    """Return the outcome of 300 packets on a lossy wire, with other flows between."""
    free = fifo([LinkEnd(rate_bps=GBIT, delay_ns=0)], queue_bytes=[None])
    port = PortSpec(name="p", rate_bps=GBIT)
    model = SwitchModel(
        switches=[SwitchSpec(name="s", settings=free, ports=(port,))],
        hosts=[],
        next_hops=lambda _node, _destination: [0],
        seed=1,
    )
    model.set_errors(0, loss=0.1, corruption=0.1)
    fates = []
    for position in range(300):
        for flow in range(others + 1):
            now_ns = model.port(0).free_ns
            slot = model.packets.take()
            model.packets.put(slot, SIZE, 100)
            model.packets.put(slot, NUMBER, packet_number(flow, position, 0))
            model.send(0, slot, now_ns)
            model.transmit(0, now_ns)
            if flow == 0:
                fates.append(model.packets.get(slot, FATE))
    return fates


def test_loss_of_a_flow_does_not_depend_on_other_flows() -> None:
    alone = fates_of_a_flow(others=0)
    assert 15 < alone.count(LINK_LOSS) < 45
    assert 15 < alone.count(CORRUPTED) < 45
    assert fates_of_a_flow(others=2) == alone


def test_cells_are_accounted_whole() -> None:
    wires = star(
        2, lambda ends: replace(fifo(ends, queue_bytes=[1_000] * 2), cell_bytes=256)
    )
    wires.model.pause(0, 0, NEVER, 0)
    for _ in range(4):
        wires.send(1, 1, 0, size=260)
    wires.run()
    # 512 bytes each: a second one would need 1,024.
    assert wires.model.waiting() == 1
    assert wires.check() == []


def test_shared_headroom_limits_the_sum() -> None:
    settings = SwitchSettings(
        pools=(
            PoolSettings(name="memory", shared_bytes=0, headroom_bytes=3_000),
            PoolSettings(name="free"),
        ),
        ports=(
            replace(
                fifo([FAST], queue_bytes=[None]).ports[0],
                ingress=(BufferLimit(pool="memory", headroom_bytes=2_000),) * 8,
                egress=(BufferLimit(pool="free"),) * 8,
                pause=PauseSettings(classes=(0,), quanta=None),
            ),
        )
        * 3,
        class_of_dscp=(0,) * 64,
    )
    wires = star(3, lambda _ends: settings)
    wires.model.pause(0, 0, NEVER, 0)
    for sender in (1, 2):
        for _ in range(4):
            wires.send(sender, 1, 0, dscp=26)
    wires.run()
    assert wires.check() == []
    assert wires.model.pools[0].headroom_used_bytes == 3_000


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: BufferLimit(pool="p", alpha_shift=17),
            "alpha_shift: 17 is not in -16..16",
        ),
        (
            lambda: BufferLimit(pool="p", headroom_bytes=-1),
            "headroom_bytes: -1 is not in",
        ),
        (
            lambda: WredSettings(kmin_bytes=2, kmax_bytes=1, probability=1.0),
            "not a range",
        ),
        (
            lambda: WredSettings(kmin_bytes=1, kmax_bytes=1, probability=2.0),
            "probability: 2.0 is not in 0.0..1.0",
        ),
        (lambda: PauseSettings(classes=(8,)), "not all in 0..7"),
        (lambda: PauseSettings(quanta=70_000), "quanta: 70000 is not in 1..65535"),
        (
            lambda: WatchdogSettings(detection_ns=0, restoration_ns=1),
            "detection_ns: 0 is not in 1..",
        ),
        (
            lambda: LinkFault(kind="loss", port=0, at_ns=0, until_ns=1),
            "needs probability",
        ),
        (
            lambda: LinkFault(kind="down", port=0, at_ns=5, until_ns=5),
            "not a time interval",
        ),
        (lambda: replace(fifo([FAST], queue_bytes=[1]), pools=()), "no pool"),
        (
            lambda: SwitchSpec(
                name="s", settings=fifo([FAST], queue_bytes=[1]), ports=()
            ),
            "settings of 1 ports, but 0 ports",
        ),
    ],
)
def test_contradictory_settings_are_refused(
    make: Callable[[], object], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_peers_must_be_mutual() -> None:
    settings = fifo([FAST, FAST], queue_bytes=[None] * 2)
    with pytest.raises(ValueError, match="port 1 is not its peer"):
        SwitchModel(
            switches=[
                SwitchSpec(
                    name="s0",
                    settings=settings,
                    ports=(
                        PortSpec(name="a", rate_bps=GBIT, peer=1),
                        PortSpec(name="b", rate_bps=GBIT),
                    ),
                )
            ],
            next_hops=lambda _node, _destination: [0],
            seed=1,
        )


def test_watchdog_starts_from_0_after_a_storm() -> None:
    watchdog = WatchdogSettings(
        detection_ns=100_001, restoration_ns=10**9, action="alert", poll_ns=100_000
    )
    wires = star(2, lambda ends: sonic(ends, watchdog=watchdog))
    wires.model.pause(1, 3, NEVER, 0)
    wires.send(0, 1, 1)
    wires.run(1_050_000)
    # At every second look only: one alone is a nanosecond too short.
    assert wires.model.port(1).counted(1_050_000)["storms"][3] == 5


def test_watchdog_interval_may_be_one_nanosecond() -> None:
    settings = WatchdogSettings(detection_ns=1, restoration_ns=1, poll_ns=1)
    assert settings.action == "drop"


def limited(ingress: BufferLimit, *, paused: tuple[int, ...]) -> SwitchSettings:
    """Return a switch of five ports; all packets are of class 3."""
    port = replace(
        fifo([FAST], queue_bytes=[None]).ports[0],
        ingress=(ingress,) * 8,
        egress=(BufferLimit(pool="free"),) * 8,
        pause=PauseSettings(classes=paused, quanta=None),
    )
    return SwitchSettings(
        pools=(
            PoolSettings(name="memory", shared_bytes=0, headroom_bytes=3_000),
            PoolSettings(name="free"),
        ),
        ports=(port,) * 5,
        class_of_dscp=(3,) * 64,
    )


@pytest.mark.parametrize(
    ("paused", "reason"),
    [
        ((3,), HEADROOM_FULL),
        ((0, 3), HEADROOM_FULL),
        ((0,), INGRESS_LIMIT),
        ((2, 4), INGRESS_LIMIT),
        ((), INGRESS_LIMIT),
    ],
)
def test_headroom_overflow_is_reported_only_for_paused_classes(
    paused: tuple[int, ...], reason: int
) -> None:
    limit = BufferLimit(pool="memory", headroom_bytes=2_000)
    wires = star(5, lambda _ends: limited(limit, paused=paused))
    wires.model.pause(0, 3, NEVER, 0)
    for sender in (1, 2, 3, 4):
        wires.send(sender, 1, 0)
    wires.run()

    # Three find room, each at its own port; the fourth finds no space.
    assert [outcome for _, outcome in wires.drops] == [reason]
    dropped = [
        wires.model.port(number).counted(wires.now_ns)["drops_by_reason"][reason]
        for number in range(5)
    ]
    assert sum(dropped) == wires.model.dropped == 1
    assert dropped[0] == 0  # where it came in, not where it would have gone out
    assert wires.check() == []


def test_a_full_queue_drops_where_packets_would_leave() -> None:
    wires = star(2, lambda ends: fifo(ends, queue_bytes=[2_500] * 2))
    wires.model.pause(0, 0, NEVER, 0)
    for _ in range(4):
        wires.send(1, 1, 0)
    wires.run()

    assert wires.drops == [(2, EGRESS_LIMIT), (3, EGRESS_LIMIT)]
    counted = wires.model.port(0).counted(wires.now_ns)
    assert counted["drops_by_reason"][EGRESS_LIMIT] == 2
    assert (counted["drop_packets"][0], counted["drop_bytes"][0]) == (2, 2_000)


def test_packets_to_a_link_that_is_down_are_dropped() -> None:
    wires = star(2, lambda ends: fifo(ends, queue_bytes=[None] * 2))
    wires.model.set_link(0, False, 0)

    wires.send(1, 1, 0)
    wires.run()

    assert wires.drops == [(0, LINK_DOWN)]
    assert wires.model.waiting() == 0


@pytest.mark.parametrize("ecn", [0, 1, 2, 3])
def test_only_packets_that_cannot_be_marked_are_dropped_early(ecn: int) -> None:
    always = WredSettings(kmin_bytes=1_000, kmax_bytes=1_000, probability=1.0)
    plain = fifo([FAST], queue_bytes=[None])
    settings = replace(plain, ports=(replace(plain.ports[0], wred=(always,) * 8),) * 2)
    wires = star(2, lambda _ends: settings)
    wires.model.pause(0, 0, NEVER, 0)
    for _ in range(4):
        wires.send(1, 1, 0, ecn=ecn)
    wires.run()

    counted = wires.model.port(0).counted(wires.now_ns)
    assert [outcome for _, outcome in wires.drops] == [WRED] * (2 if ecn == 0 else 0)
    assert wires.model.waiting() == (2 if ecn == 0 else 4)
    assert counted["wred_drops"][0] == (2 if ecn == 0 else 0)
