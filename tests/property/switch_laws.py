"""Laws of the switch model: each function returns the violations.

They are functions of plain numbers, so that Hypothesis calls them with many, and the
test of planted bugs with a few.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Literal

from chakram.switch.faults import LinkFault
from chakram.switch.marking import Marker
from chakram.switch.packet_outcomes import (
    CORRUPTED,
    EGRESS_LIMIT,
    LINK_DOWN,
    LINK_LOSS,
    WATCHDOG,
    WRED,
)
from chakram.switch.packet_slots import CE, CLASS, ECT, NOT_ECT, SIZE, Packets
from chakram.switch.port import NEVER, Port
from chakram.switch.profiles import fifo, sonic
from chakram.switch.settings import (
    CLASSES,
    BufferLimit,
    PauseSettings,
    PoolSettings,
    PortSettings,
    SwitchSettings,
    WatchdogSettings,
    WredSettings,
)
from tests.property.modeled_switches import (
    DELAY_NS,
    GBIT,
    Wires,
    flow_to,
    port_ready_ns,
    ring,
    star,
    two_leaves,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chakram.switch.faults import FaultKind
    from chakram.switch.headroom import LinkEnd
    from chakram.switch.settings import Balancing, WatchdogAction

SOME_FAULTS: tuple[FaultKind, ...] = ("down", "loss", "degrade", "pause_storm")
PACKET_NS = 800
"""Of 1,000 bytes at 10 Gbit/s."""

WATCH = WatchdogSettings(detection_ns=200_000, restoration_ns=200_000, poll_ns=100_000)


def small(ends: Sequence[LinkEnd]) -> SwitchSettings:
    """Return a switch with little memory."""
    mark = WredSettings(kmin_bytes=4_000, kmax_bytes=12_000, probability=0.2)
    return sonic(
        ends,
        mtu=1100,
        buffer_bytes=220_000,
        wred=[mark] * len(ends),
        watchdog=WATCH,
        quanta=300,
    )


def plain(ends: Sequence[LinkEnd]) -> SwitchSettings:
    """Return a switch with queues without limits."""
    return fifo(ends, queue_bytes=[None] * len(ends))


def shared(
    ports: int,
    *,
    limit: BufferLimit,
    pause: PauseSettings,
    shared_bytes: int = 1_000_000,
    weights: Sequence[int] = (1,) * CLASSES,
) -> SwitchSettings:
    """Return a switch with equal limits at all ports."""
    return SwitchSettings(
        pools=(
            PoolSettings(name="memory", shared_bytes=shared_bytes),
            PoolSettings(name="free"),
        ),
        ports=(
            PortSettings(
                ingress=(limit,) * CLASSES,
                egress=(BufferLimit(pool="free"),) * CLASSES,
                weights=tuple(weights),
                pause=pause,
            ),
        )
        * ports,
        class_of_dscp=tuple(dscp // 8 for dscp in range(64)),
    )


def nothing_is_lost_from_sight(seed: int, steps: int = 150) -> list[str]:
    """Whatever happens, every packet is somewhere, and in both of its accounts."""
    rng = Random(seed)
    wires, _ = ring(3, small, clockwise=False)
    flows = {
        (source, destination): flow_to(wires, source, destination)
        for source in range(3)
        for destination in range(3)
        if source != destination
    }
    model = wires.model
    for _ in range(steps):
        what = rng.random()
        port = rng.randrange(len(model.ports()))
        if what < 0.6:
            pair = rng.choice(list(flows))
            for _ in range(rng.randrange(1, 12)):
                wires.send(
                    pair[0],
                    3 + pair[1],
                    flows[pair],
                    size=rng.choice((64, 999, 1100)),
                    dscp=rng.choice((0, 26, 34, 48)),
                    ecn=rng.choice((NOT_ECT, ECT)),
                )
        elif what < 0.7:
            wires.obey(port, rng.randrange(CLASSES), rng.choice((0, 5_000, NEVER)))
        elif what < 0.78:
            model.set_link(port, rng.random() < 0.6, wires.now_ns)
            wires.settle()
        elif what < 0.84:
            model.set_rate(port, rng.choice((0, GBIT, 10 * GBIT)), wires.now_ns)
            wires.drive(port)
        elif what < 0.9:
            model.set_errors(port, loss=rng.random() / 2, corruption=rng.random() / 2)
        else:
            wires.run(wires.now_ns + rng.randrange(100_000))
        wrong = wires.check()
        if wrong:
            return wrong
    return ends_well(wires)


def ends_well(wires: Wires) -> list[str]:
    """Return violations after links are up, pauses have ended and queues are empty."""
    model = wires.model
    for port in model.ports():
        model.set_link(port.number, True, wires.now_ns)
        model.set_errors(port.number, loss=0.0, corruption=0.0)
        wires.settle()
        for klass in range(CLASSES):
            wires.obey(port.number, klass, 0)
    wires.run()
    wrong = wires.check()
    held = model.waiting() + wires.on_wires()
    if held:
        wrong.append(f"{held} packets never arrive")
    for port in model.ports():
        wrong += [
            f"{port.name} class {klass} stays paused"
            for klass in range(CLASSES)
            if port.is_paused(klass)
        ]
    return wrong


def lossless_classes_lose_nothing(senders: int, packets: int, seed: int) -> list[str]:
    """An incast into memory that is far too small pauses senders, and loses nothing."""
    rng = Random(seed)
    wires = star(
        senders + 1,
        lambda ends: sonic(ends, mtu=1100, buffer_bytes=320_000, quanta=300),
    )
    for _ in range(packets):
        for sender in range(1, senders + 1):
            wires.send(sender, 1, 0, size=rng.choice((200, 1000, 1100)))
    wires.run()
    wrong = wires.check()
    if wires.drops:
        wrong.append(f"{len(wires.drops)} packets of a lossless class are lost")
    if len(wires.arrived) != wires.sent:
        wrong.append(f"{len(wires.arrived)} of {wires.sent} arrive")
    model = wires.model
    paused = sum(
        sum(model.port(each).counted(wires.now_ns)["pfc_sent"])
        for each in range(senders + 1)
    )
    # Some 770 bytes each: this fills what the class may have of the buffer.
    if senders * packets > 500 and not paused:
        wrong.append("nobody was paused")
    last_ns = max(each.time_ns for each in wires.arrived)
    total_bytes = sum(model.port(0).counted(last_ns)["sent_bytes"])
    fair_ns = total_bytes * 8 // 10
    if packets > 100 and last_ns > 1.05 * fair_ns + 10 * PACKET_NS:
        wrong.append(f"the incast takes {last_ns} ns, its bytes {fair_ns} ns")
    return wrong


def packets_keep_their_order(seed: int) -> list[str]:
    """Packets of one class and flow arrive in the order in which they were sent."""
    rng = Random(seed)
    wires, _ = ring(4, small, clockwise=False)
    flows = [flow_to(wires, source, 3) for source in range(3)]
    for _ in range(200):
        source = rng.randrange(3)
        wires.send(source, 4 + 3, flows[source], size=rng.choice((64, 1000)))
        if rng.random() < 0.3:
            wires.run(wires.now_ns + rng.randrange(5_000))
    wires.run()
    wrong = wires.check()
    for flow in flows:
        numbers = [each.number for each in wires.arrived if each.flow == flow]
        if numbers != sorted(numbers):
            wrong.append(f"flow {flow} arrives as {numbers}")
    return wrong


def weights_are_kept(weights: Sequence[int], sizes: Sequence[int]) -> list[str]:
    """Classes that always have packets share a port by their weights, within 1 %."""
    sharing = [klass for klass, weight in enumerate(weights) if weight]
    packets = Packets()
    port = Port(
        number=0,
        node=0,
        name="p0",
        rate_bps=GBIT,
        peer=-1,
        is_host=False,
        packets=packets,
        weights=weights,
    )
    for klass in sharing:
        for number in range(12):
            slot = packets.take()
            packets.put(slot, SIZE, sizes[number % len(sizes)])
            port.push(klass, slot, packets.get(slot, SIZE))
    sent = dict.fromkeys(sharing, 0)
    while min(sent.values()) < 400_000:
        klass = port.pick()
        slot = port.pop(klass)
        size = packets.get(slot, SIZE)
        sent[klass] += size
        port.push(klass, slot, size)
    all_bytes = sum(sent.values())
    wrong: list[str] = []
    for klass in sharing:
        share = sent[klass] / all_bytes
        due = weights[klass] / sum(weights)
        if abs(share - due) > 0.01:
            wrong.append(f"class {klass} has {share:.4f} of the port, not {due:.4f}")
    return wrong


def strict_classes_go_first() -> list[str]:
    """Strict priority precedes weighted classes, highest class first."""
    weights = (1, 1, 0, 1, 1, 1, 0, 1)
    settings = shared(
        2, limit=BufferLimit(pool="free"), pause=PauseSettings(), weights=weights
    )
    wires = star(2, lambda _ends: settings)
    for klass in range(CLASSES):
        wires.model.pause(0, klass, NEVER, 0)
    for klass in (1, 2, 4, 6, 2, 6):
        wires.send(1, 1, 0, dscp=8 * klass)
    wires.run()
    for klass in range(CLASSES):
        wires.model.pause(0, klass, 0, wires.now_ns)
    order: list[int] = []
    while (ready_ns := port_ready_ns(wires.model, 0)) != NEVER:
        slot = wires.model.transmit(0, max(ready_ns, wires.now_ns))
        order.append(wires.model.packets.get(slot, CLASS))
    return [] if order == [6, 6, 2, 2, 1, 4] else [f"classes leave in order {order}"]


def marks_follow_the_curve(
    kmin: int, width: int, probability: float, place: float, packets: int = 100_000
) -> list[str]:
    """The share of marked packets at one queue follows the curve, within 2 %."""
    marker = Marker(
        WredSettings(kmin_bytes=kmin, kmax_bytes=kmin + width, probability=probability),
        seed=7,
        stream=3,
    )
    queue_bytes = kmin + round(place * width)
    marked = sum(marker.chooses(queue_bytes, number) for number in range(packets))
    due = 0.0
    if queue_bytes > kmin + width:
        due = 1.0
    elif queue_bytes > kmin:
        due = probability * (queue_bytes - kmin) / width
    if abs(marked / packets - due) > 0.02:
        return [f"{marked / packets:.4f} are marked, not {due:.4f}"]
    return []


def averages_follow_the_queue() -> list[str]:
    """A moving average goes to the queue, by the weight's part of the way a packet."""
    settings = WredSettings(
        kmin_bytes=0, kmax_bytes=1 << 30, probability=0.0, average_shift=3
    )
    marker = Marker(settings, seed=1, stream=1)
    marker.chooses(8_000, 0)
    wrong = [] if marker.average_bytes == 1_000 else ["the first step is not an eighth"]
    for _ in range(200):
        marker.chooses(8_000, 0)
    if abs(marker.average_bytes - 8_000) > 8:
        wrong.append(f"the average ends at {marker.average_bytes}")
    return wrong


def marks_are_where_they_are_said_to_be() -> list[str]:
    """Marking at dequeue counts the remaining packets, at enqueue the present ones."""
    wrong: list[str] = []
    cases: list[tuple[Literal["dequeue", "enqueue"], int, int]]
    cases = [("dequeue", 0, 6), ("enqueue", 5, 10)]
    for at, first, last in cases:
        mark = WredSettings(
            kmin_bytes=3_500,
            kmax_bytes=3_500,
            probability=1.0,
            at=at,
        )
        wires = star(2, partial(fifo, queue_bytes=[None] * 2, wred=[mark] * 2))
        wires.model.pause(0, 0, NEVER, 0)
        for _ in range(10):
            wires.send(1, 1, 0)
        wires.run()
        wires.obey(0, 0, 0)
        wires.run()
        marked = [each.number for each in wires.arrived if each.ecn == CE]
        # With 1,000 bytes each: the fifth packet finds 4,000; that of number 5 leaves
        # 4,000 behind, the next one 3,000.
        due = list(range(first, last)) if at == "dequeue" else list(range(4, last))
        if marked != due:
            wrong.append(f"at {at} packets {marked} are marked, not {due}")
        if at == "enqueue" and wires.model.port(0).counted(0)["marked_packets"][0] != 6:
            wrong.append("marks are counted elsewhere")
    wires = star(2, lambda ends: fifo(ends, queue_bytes=[None] * 2, wred=[mark] * 2))
    wires.model.pause(0, 0, NEVER, 0)
    for _ in range(10):
        wires.send(1, 1, 0, ecn=NOT_ECT)
    wires.run()
    reasons = [reason for _, reason in wires.drops]
    if reasons != [WRED] * 6:
        wrong.append(f"what cannot be marked is dropped for {reasons}")
    return wrong


def limits_of_queues_hold(limit_bytes: int, size: int) -> list[str]:
    """A queue accepts exactly as many packets as its limit allows."""
    wires = star(2, lambda ends: fifo(ends, queue_bytes=[limit_bytes] * 2))
    wires.model.pause(0, 0, NEVER, 0)
    fitting = limit_bytes // size
    for _ in range(fitting + 3):
        wires.send(1, 1, 0, size=size)
    wires.run()
    held = wires.model.waiting()
    reasons = {reason for _, reason in wires.drops}
    if held != fitting or reasons != {EGRESS_LIMIT}:
        return [f"{held} of {size} bytes wait in {limit_bytes}, dropped: {reasons}"]
    return wires.check()


def dynamic_limits_share_what_is_free(shift: int) -> list[str]:
    """With alpha, n queues that are always full each have alpha / (1 + n alpha)."""
    total = 900_000
    limit = BufferLimit(pool="memory", alpha_shift=shift)
    settings = SwitchSettings(
        pools=(
            PoolSettings(name="memory", shared_bytes=total),
            PoolSettings(name="free"),
        ),
        ports=(
            PortSettings(
                ingress=(BufferLimit(pool="free"),) * CLASSES, egress=(limit,) * CLASSES
            ),
        )
        * 4,
        class_of_dscp=(0,) * 64,
    )
    wires = star(4, lambda _ends: settings)
    for port in (0, 1):
        wires.model.pause(port, 0, NEVER, 0)
    for _ in range(1_000):
        wires.send(2, 1, 0)
        wires.send(3, 2, 1)
    wires.run()
    alpha = 2.0**shift
    due = min(1_000_000, total * alpha / (1 + 2 * alpha))
    wrong = wires.check()
    for port in (0, 1):
        held = wires.model.port(port).queued_bytes
        if abs(held - due) > 2_000:
            wrong.append(f"a queue has {held} bytes, not {due:.0f}")
    return wrong


def pauses_stop_the_next_packet_only() -> list[str]:
    """A pause lets the packet on the wire finish, and ends with its quanta."""
    wires = star(2, plain)
    model = wires.model
    for _ in range(5):
        wires.send(1, 1, 0)
    # Packets leave the host at 0, 800, ...: at 1,000 the second one is on the wire.
    port = model.host_port(1)
    wires.run(1_000)
    wires.obey(port, 3, 10_000)
    wires.run()
    sent = [time_ns for number, _, time_ns in wires.departures if number == port]
    wrong = [] if sent == [0, 800, 11_000, 11_800, 12_600] else [f"it sends at {sent}"]
    paused_ns = model.port(port).counted(wires.now_ns)["paused_ns"][3]
    if paused_ns != 10_000:
        wrong.append(f"it was paused for {paused_ns} ns")
    return wrong


def pause_frames_wait_for_the_wire() -> list[str]:
    """A pause frame leaves behind the packet on the wire, and in front of the next."""
    limit = BufferLimit(pool="memory", static_bytes=2_000, headroom_bytes=10_000)
    pause = PauseSettings(classes=(3,), quanta=None, frame_bytes=125, response_ns=40)
    settings = shared(2, limit=limit, pause=pause)
    wires = star(2, lambda _ends: settings)
    model = wires.model
    model.pause(0, 3, NEVER, 0)
    wires.send(0, 2, 1, size=10_000, dscp=0)  # keeps port 1 busy on its way to host 1
    wires.run(9_000)
    for _ in range(2):
        wires.send(1, 1, 0)
    host = model.port(model.host_port(1))
    wires.run_until(lambda: host.is_paused(3))
    # The large packet comes to the switch at 8,500 and leaves port 1 until 16,500. Two
    # packets come in there by 11,100; the frame takes 100, the response 40.
    due_ns = 16_500 + 100 + 40 + DELAY_NS
    if not host.is_paused(3) or wires.now_ns != due_ns:
        return [
            f"host 1 is paused: {host.is_paused(3)} at {wires.now_ns}, not {due_ns}"
        ]
    return []


def pauses_last_while_they_are_wanted() -> list[str]:
    """A pause is refreshed as long as memory is full, and ended below the offset."""
    limit = BufferLimit(
        pool="memory", static_bytes=5_000, headroom_bytes=20_000, xon_offset_bytes=2_000
    )
    pause = PauseSettings(classes=(3,), quanta=100)  # 5,120 ns
    settings = shared(2, limit=limit, pause=pause)
    wires = star(2, lambda _ends: settings)
    model = wires.model
    model.pause(0, 3, NEVER, 0)
    for _ in range(40):
        wires.send(1, 1, 0)
    wires.run(100_000)
    wrong = wires.check()
    held = model.port(0).queued_bytes
    late = [
        time_ns
        for number, _, time_ns in wires.departures
        if number == model.host_port(1) and time_ns > 20_000
    ]
    if late:
        wrong.append(f"a paused host sends at {late[:3]}")
    if not 5_000 <= held <= 8_000:
        wrong.append(f"{held} bytes wait")
    # One packet after the other leaves: the sender goes on once 3,000 bytes are left.
    wires.obey(0, 3, 0)
    host = model.port(model.host_port(1))
    wires.run_until(lambda: not host.is_paused(3))
    left = model.port(0).queued_bytes
    if host.is_paused(3) or not 1_000 <= left <= 3_000:
        wrong.append(f"it goes on with {left} bytes left")
    wires.run()
    if len(wires.arrived) != 40:
        wrong.append(f"{len(wires.arrived)} of 40 arrive")
    return wrong + wires.check()


def storms_are_cut(action: WatchdogAction) -> list[str]:
    """A watchdog acts after the detection time, on that queue, until the storm ends."""
    watchdog = WatchdogSettings(
        detection_ns=300_000,
        restoration_ns=200_000,
        poll_ns=100_000,
        action=action,
    )
    fault = LinkFault(
        kind="pause_storm", port=0, at_ns=0, until_ns=2_000_000, classes=(3,)
    )
    wires = star(
        2,
        lambda ends: sonic(
            ends, mtu=1100, buffer_bytes=2_000_000, watchdog=watchdog, quanta=300
        ),
        faults=[fault],
    )
    model = wires.model
    wires.run(1_000)
    for _ in range(20):
        wires.send(1, 1, 0)
        wires.send(1, 1, 0, dscp=34)
    wires.run(250_000)
    wrong = wires.check()
    others = [each for each in wires.arrived if each.number % 2 == 1]
    if len(others) != 20 or len(wires.arrived) != 20:
        wrong.append(f"before it acts, {len(wires.arrived)} have arrived")
    wires.run(500_000)
    counted = model.port(0).counted(wires.now_ns)
    if counted["storms"] != [0, 0, 0, 1, 0, 0, 0, 0] and action != "alert":
        wrong.append(f"storms: {counted['storms']}")
    due = {"drop": (20, 20), "forward": (40, 0), "alert": (20, 0)}[action]
    if (len(wires.arrived), len(wires.drops)) != due:
        wrong.append(f"{action}: {len(wires.arrived)}, {len(wires.drops)} dropped")
    reasons = counted["drops_by_reason"]
    if reasons[WATCHDOG] != due[1]:
        wrong.append(f"drops: {reasons}")
    wires.run()
    counted = model.port(0).counted(wires.now_ns)
    if action != "alert" and counted["restored"][3] != 1:
        wrong.append(f"restored: {counted['restored']}")
    wires.send(1, 1, 0)
    wires.run()
    if wires.arrived[-1].number != 40:
        wrong.append("after the storm nothing arrives")
    return wrong + wires.check()


def faults_hit_what_they_name(kind: FaultKind, seed: int) -> list[str]:
    """A fault changes the behavior of its link from start to end, and nothing else."""
    begin_ns, end_ns = 40_000, 120_000
    fault = LinkFault(
        kind=kind,
        port=1,
        at_ns=begin_ns,
        until_ns=end_ns,
        rate_bps=GBIT,
        probability=0.5,
        period_ns=20_000,
        classes=(3,),
    )
    wires = star(
        3,
        lambda ends: sonic(ends, mtu=1100, buffer_bytes=4_000_000),
        faults=[fault],
        seed=seed,
    )
    for time_ns in range(0, 160_000, 2 * PACKET_NS):
        wires.run(time_ns)
        for host in (0, 1, 2):
            wires.send((host + 2) % 3, 1 + host, host)
    wires.run()
    wrong = wires.check()
    other = [each for each in wires.arrived if each.host != 1]
    lost = {number for number, _ in wires.drops}
    by_flow = [[number for number in lost if number % 3 == host] for host in range(3)]
    # Host 1 sends to host 2: a link that is down takes both directions along.
    harmed = {"down": {1, 2}, "flap": {1, 2}, "loss": {1}, "corruption": {1}}
    for host in range(3):
        if bool(by_flow[host]) != (host in harmed.get(kind, set())):
            wrong.append(f"{kind}: of flow {host} {len(by_flow[host])} are lost")
    reason = {
        "down": LINK_DOWN,
        "flap": LINK_DOWN,
        "loss": LINK_LOSS,
        "corruption": CORRUPTED,
    }.get(kind)
    for number in range(6):
        reasons = wires.model.port(number).counted(0)["drops_by_reason"]
        for each, count in enumerate(reasons):
            if count and each != reason:
                wrong.append(f"{kind}: {count} drops for reason {each} at {number}")
    sent_early = [n for n in lost if n // 3 * 2 * PACKET_NS < begin_ns - 10_000]
    sent_late = [n for n in lost if n // 3 * 2 * PACKET_NS > end_ns]
    if sent_early or sent_late:
        wrong.append(f"{kind} hits packets {sent_early} before and {sent_late} after")
    share = len(by_flow[1]) / 50
    if kind in ("loss", "corruption", "flap") and not 0.25 < share < 0.75:
        wrong.append(f"{kind}: {share:.2f} are lost")
    if kind == "down" and share < 0.95:
        wrong.append(f"a link that is down loses {share:.2f}")
    delays = {
        each.number: each.time_ns - each.number // 3 * 2 * PACKET_NS
        for each in wires.arrived
    }
    slow = [number for number, delay_ns in delays.items() if delay_ns > 6_000]
    if bool(slow) != (kind in ("degrade", "pause_storm")) or any(
        number % 3 != 1 for number in slow
    ):
        wrong.append(f"{kind}: packets {slow[:5]} are late")
    if kind == "loss" and len(other) < 190:
        wrong.append(f"only {len(other)} of others arrive")
    return wrong


def links_that_go_down_drop_what_waits() -> list[str]:
    """A link that goes down loses waiting packets at both ends and those on it."""
    wires = star(2, plain)
    model = wires.model
    model.pause(0, 0, NEVER, 0)
    for _ in range(5):
        wires.send(1, 1, 0)
    wires.run()
    for _ in range(4):
        wires.send(0, 2, 1)
    wires.run(wires.now_ns + 100)
    model.set_link(0, False, wires.now_ns)
    wires.settle()
    wrong = wires.check()
    if len(wires.drops) != 9 or model.waiting() or wires.on_wires():
        wrong.append(f"{len(wires.drops)} of 9 are lost with their link")
    wires.send(1, 1, 0)
    wires.run()
    model.set_link(0, True, wires.now_ns)
    wires.settle()
    wires.send(1, 1, 0)
    wires.run()
    if [each.number for each in wires.arrived] != [10]:
        wrong.append(f"when it is up again, {wires.arrived} arrive")
    return wrong + wires.check()


def choices_are_balanced(balancing: Balancing, flows: int = 1) -> list[str]:
    """Spraying and adaptive choice use all next hops equally, also with one flow."""
    wires = two_leaves(spines=4, balancing=balancing)
    for number in range(800):
        wires.send(0, wires.model.port(wires.model.host_port(1)).node, number % flows)
    wires.run()
    wrong = wires.check()
    uplinks = [
        sum(port.counted(0)["sent_packets"])
        for port in wires.model.ports()
        if port.name.startswith("leaf0:up")
    ]
    spread = {"hash": 800, "random": 70, "round_robin": 1, "adaptive": 100}[balancing]
    if max(uplinks) - min(uplinks) > spread:
        wrong.append(f"{balancing}: uplinks send {uplinks}")
    if balancing == "hash" and sorted(uplinks) != [0, 0, 0, 800]:
        wrong.append(f"one flow takes several paths: {uplinks}")
    return wrong


LAWS: dict[str, Callable[[], list[str]]] = {
    "sight": lambda: [
        text for seed in range(6) for text in nothing_is_lost_from_sight(seed)
    ],
    "lossless": lambda: lossless_classes_lose_nothing(4, 150, 1),
    "order": lambda: packets_keep_their_order(1),
    "weights": lambda: weights_are_kept((3, 1, 0, 2, 0, 0, 0, 0), (1000, 300)),
    "strict": strict_classes_go_first,
    "curve": lambda: marks_follow_the_curve(5_000, 20_000, 0.8, 0.5, 20_000),
    "average": averages_follow_the_queue,
    "place of marks": marks_are_where_they_are_said_to_be,
    "limits": lambda: limits_of_queues_hold(10_500, 1_000),
    "alpha": lambda: dynamic_limits_share_what_is_free(0),
    "pause": pauses_stop_the_next_packet_only,
    "pause frame": pause_frames_wait_for_the_wire,
    "refresh": pauses_last_while_they_are_wanted,
    "watchdog": lambda: storms_are_cut("drop"),
    "faults": lambda: [
        text for kind in SOME_FAULTS for text in faults_hit_what_they_name(kind, 1)
    ],
    "link down": links_that_go_down_drop_what_waits,
    "balance": lambda: choices_are_balanced("adaptive"),
}
