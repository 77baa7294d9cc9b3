"""Samples of simulations are correct and have no side effects."""

from __future__ import annotations

from array import array
from collections import defaultdict
from itertools import pairwise

import pytest

from chakram.collectives.groups import world_group
from chakram.plan.plan import Plan
from chakram.plan.transport import TransportPlan
from chakram.predict.simulator import run_plan
from chakram.predict.simulator.samples import LinkSampler
from chakram.predict.simulator.switch_fabric import SwitchFabric, port_names
from chakram.records.row_layout import (
    LINK_SAMPLE_FIELDS,
    PORT_FIELDS,
    QUEUE_PAIR_FIELDS,
)
from chakram.replay import samples
from chakram.switch.ecmp import DrawnPaths
from chakram.switch.packet_outcomes import QUEUED
from chakram.switch.packet_slots import SIZE as SIZE_FIELD
from chakram.switch.profiles import Profile, Switching
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import compute, make_plan, program, receive, send

LINE = 10**10
SIZE = 1 << 20
SENDERS = 3
QUEUE = 100_000
TOPOLOGY = single_switch(SENDERS + 1, LINE, host_delay_ns=500, host_queue_bytes=QUEUE)
NAMES = port_names(TOPOLOGY)
(TO_RECEIVER,) = (
    str(TOPOLOGY.host_link("h0").end_at(node)) for node in TOPOLOGY.switches
)


def incast() -> Plan:
    """Ranks that send to the first one, wait, and send again."""
    world = world_group(SENDERS + 1)
    peers = range(1, SENDERS + 1)
    programs = [
        program(
            0,
            world,
            [receive(peer, SIZE, number=n) for peer in peers for n in range(2)],
        ),
        *(
            program(
                rank,
                world,
                [
                    send(0, SIZE),
                    compute(20_000_000, after=[0]),
                    send(0, SIZE, number=1, after=[1]),
                ],
            )
            for rank in peers
        ),
    ]
    transport = TransportPlan(
        window_bytes=1 << 18, retransmit_timeout_ns=10**6, retry_limit=100
    )
    return make_plan(programs, TOPOLOGY, transport=transport)


def simulated(bin_ns: int, profile: Profile | None = None) -> run_plan.SimulationResult:
    return run_plan.simulate_plan(
        incast(),
        TOPOLOGY,
        seed=1,
        warmup=0,
        measured=1,
        switching=Switching(ecmp=DrawnPaths(seed=1), profile=profile or Profile()),
        sample_bin_ns=bin_ns,
    )


def rows(values: array[int], fields: tuple[str, ...]) -> list[dict[str, int]]:
    width = len(fields)
    return [
        dict(zip(fields, values[at : at + width], strict=True))
        for at in range(0, len(values), width)
    ]


PAUSING = Profile(name="sonic", mtu=4300, buffer_bytes=1_000_000)


@pytest.mark.parametrize("profile", [None, PAUSING], ids=["fifo", "sonic"])
def test_samples_do_not_change_the_simulation(profile: Profile | None) -> None:
    without, sampled = simulated(0, profile), simulated(10_000, profile)
    assert sampled.records.flows == without.records.flows
    assert sampled.end_ns == without.end_ns
    assert (sampled.events, sampled.hops) == (without.events, without.hops)
    assert sampled.drops == without.drops
    assert {
        row["time_ns"] for row in rows(without.link_samples, LINK_SAMPLE_FIELDS)
    } == {without.end_ns}


@pytest.mark.parametrize("profile", [None, PAUSING], ids=["fifo", "sonic"])
def test_last_samples_equal_the_totals(profile: Profile | None) -> None:
    result = simulated(10_000, profile)
    last: dict[tuple[str, int], dict[str, int]] = {}
    for row in rows(result.link_samples, LINK_SAMPLE_FIELDS):
        last[NAMES[row["port"]], row["traffic_class"]] = row
    for column, counted in (
        ("bytes", result.link_bytes),
        ("drops", result.drops),
        ("paused_ns", result.paused_ns),
        ("pauses", result.pauses),
    ):
        sums: dict[str, int] = defaultdict(int)
        for (name, _), row in last.items():
            sums[name] += row[column]
        assert {name: sum_ for name, sum_ in sums.items() if sum_} == {
            name: count for name, count in counted.items() if count
        }, column
    assert sum(result.drops.values()) > 0 or sum(result.paused_ns.values()) > 0
    pairs = {
        (row["rank"], row["qpn"]): row
        for row in rows(result.records.queue_pairs, QUEUE_PAIR_FIELDS)
    }
    flows = sum(row["tx_bytes"] for row in pairs.values())
    assert flows >= 2 * SENDERS * SIZE
    ports = {row["port"]: row for row in rows(result.records.ports, PORT_FIELDS)}
    for number, row in ports.items():
        name = str(TOPOLOGY.host_link(f"h{number}").end_at(f"h{number}"))
        assert row["tx_bytes"] == result.link_bytes[name]
        assert row["paused_ns"] == result.paused_ns.get(name, 0)


def test_queues_have_the_depth_that_their_limit_allows() -> None:
    result = simulated(10_000)
    assert result.drops
    deepest: dict[str, int] = defaultdict(int)
    for row in rows(result.link_samples, LINK_SAMPLE_FIELDS):
        name = NAMES[row["port"]]
        deepest[name] = max(deepest[name], row["queue_max_bytes"])
        assert (
            row["queue_bytes"] <= row["queue_max_bytes"] or not row["queue_max_bytes"]
        )
    assert QUEUE - 4300 < deepest[TO_RECEIVER] <= QUEUE
    others = [name for name in NAMES if name.split(":")[0] in TOPOLOGY.switches]
    others.remove(TO_RECEIVER)
    # ACKs only.
    assert max(deepest[name] for name in others) < 4300


def test_pause_between_messages_is_visible_in_its_bins() -> None:
    result = simulated(10_000)
    (to_receiver,) = (
        number for number, name in enumerate(NAMES) if name == TO_RECEIVER
    )
    own = [
        (row["time_ns"], row["bytes"])
        for row in rows(result.link_samples, LINK_SAMPLE_FIELDS)
        if row["port"] == to_receiver
    ]
    busy_ns = sum(b - a for (a, before), (b, after) in pairwise(own) if after > before)
    least_ns = own[-1][1] * 8 * 10**9 // LINE
    assert least_ns <= busy_ns + 20_000 < 2 * 10**7 < result.end_ns
    # No bin carries more than its time.
    for (a, before), (b, after) in pairwise(own):
        assert (after - before) * 8 * 10**9 <= (b - a + 10_000) * LINE


def test_bins_get_longer_when_rows_get_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "ROWS_PER_BIN_LENGTH", 200)
    result = simulated(10_000)
    times = sorted({row["time_ns"] for row in rows(result.records.ports, PORT_FIELDS)})
    gaps = [b - a for a, b in pairwise(times)]
    assert gaps[0] == 10_000
    assert max(gaps[:-1]) >= 80_000


def test_continued_model_is_sampled_from_its_next_run() -> None:
    fabric = SwitchFabric(TOPOLOGY, Profile(), ecn=False, seed=1)
    sampler = LinkSampler(fabric.model)
    port = fabric.host_port("h0")

    def send_one(now_ns: int) -> None:
        slot = fabric.model.packets.take()
        fabric.model.packets.put(slot, SIZE_FIELD, 1000)
        assert fabric.model.send(port, slot, now_ns) == QUEUED
        assert fabric.model.transmit(port, now_ns) == slot

    send_one(0)
    sampler.begin(10_000, 5_000)
    sampler.turn(14_999)
    assert not sampler.rows
    send_one(20_000)
    sampler.turn(25_000)
    sampler.turn(26_000)
    sampler.end(30_000)
    sampler.end(40_000)
    taken = rows(sampler.rows, LINK_SAMPLE_FIELDS)
    assert [(row["time_ns"], row["bytes"]) for row in taken] == [
        (25_000, 1000),
        (30_000, 1000),
    ]
    assert [row["queue_max_bytes"] for row in taken] == [1000, 0]
