"""Laws of cut-through switches with failing links."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from chakram.collectives.groups import world_group
from chakram.plan.plan import TransportPlan
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.predict.simulator.switch_fabric import port_names
from chakram.switch.ecmp import DrawnPaths
from chakram.switch.faults import LinkFault
from chakram.switch.pause_frames import ETHERTYPE_PAUSE
from chakram.switch.profiles import Profile, Switching
from chakram.topology.topology import Topology
from tests.leaf_spines import clos
from tests.made_plans import flow_rows, make_plan, program
from tests.property.model_check import check_model
from tests.property.test_bound import operations
from tests.simulation_bounds import check_bounds
from tests.unit.fabric.live_frames import FRAME_BYTES, LiveFabric

RATES = st.sampled_from([10**9, 4 * 10**9, 999_999_937])
END_NS = 2_000_000
"""When faults are over."""


@st.composite
def fabrics(draw: st.DrawFn) -> Topology:
    return clos(
        2,
        2,
        draw(st.integers(1, 3)),
        draw(RATES),
        draw(RATES),
        host_delay_ns=draw(st.integers(0, 700)),
        uplink_delay_ns=draw(st.integers(0, 2000)),
    )


@st.composite
def disturbances(
    draw: st.DrawFn, topology: Topology, kinds: Sequence[str]
) -> list[LinkFault]:
    """Return faults that are over at ``END_NS``."""
    found = []
    for _ in range(draw(st.integers(0, 3))):
        at_ns = draw(st.integers(0, END_NS // 2))
        kind = draw(st.sampled_from(kinds))
        found.append(
            LinkFault(
                kind=kind,  # type: ignore[arg-type] # one of them
                port=draw(st.integers(0, len(port_names(topology)) - 1)),
                at_ns=at_ns,
                until_ns=at_ns + draw(st.integers(1, END_NS // 2)),
                rate_bps=draw(st.sampled_from([10**8, 7 * 10**8])),
                probability=draw(st.sampled_from([0.02, 0.3])),
                period_ns=draw(st.integers(2, 50)) * 1000,
                classes=(3,),
            )
        )
    return found


PROFILES = st.sampled_from(
    [
        Profile(cut_through=True),
        Profile(name="sonic", mtu=FRAME_BYTES, cut_through=True),
        # Who sends is soon paused.
        Profile(name="sonic", mtu=FRAME_BYTES, cut_through=True, buffer_bytes=700_000),
    ]
)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_every_frame_arrives_in_order_and_not_too_soon_or_is_counted(
    data: st.DataObject,
) -> None:
    topology = data.draw(fabrics())
    lab = LiveFabric(topology, data.draw(PROFILES))
    # A host whose link is slow from begin to end can be recognized from its frames.
    slow = data.draw(st.sampled_from([None, 10**8]))
    faults = data.draw(
        disturbances(topology, ["down", "flap", "degrade", "loss", "pause_storm"])
    )
    if slow is not None:
        port = lab.fabric.host_port("h0")
        lasting = {"port": port, "at_ns": 0, "until_ns": 10**15, "rate_bps": slow}
        faults.append(LinkFault(kind="degrade", **lasting))  # type: ignore[arg-type] # by name
    lab.live.disturb(faults)
    arrivals: list[int] = []
    leave = lab.frames.send

    def send(place: int, length: int, port: int) -> None:
        arrivals.append(lab.live.now_ns)
        leave(place, length, port)

    lab.frames.send = send  # type: ignore[method-assign] # it also tells when
    draw = random.Random(data.draw(st.integers(0, 1000)))
    hosts = len(topology.hosts)
    sent: list[tuple[int, int, int, int]] = []
    now_ns = 0
    for number in range(data.draw(st.integers(1, 120))):
        source = draw.randrange(hosts)
        target = (source + draw.randrange(1, hosts)) % hosts
        size = draw.choice((100, 1100, FRAME_BYTES))
        frame = lab.frame(source, target, size, source_port=50_000 + draw.randrange(3))
        sent.append((source, target, size, now_ns))
        lab.hand(source, now_ns, frame[:-4] + number.to_bytes(4, "big"))
        lab.live.round(now_ns)
        now_ns += draw.choice((0, 0, 500, 40_000))
    for turn in range(1, 40):
        lab.live.round(now_ns + turn * END_NS)
    assert arrivals == sorted(arrivals)
    delays_ns = {
        True: 2 * (topology.links[0].delay_ns + topology.uplinks()[0].delay_ns),
        False: 2 * topology.links[0].delay_ns,
    }
    last: dict[tuple[int, int, bytes], int] = {}
    arrived = 0
    for (target, frame), arrival_ns in zip(lab.take(), arrivals, strict=True):
        if frame[12:14] == ETHERTYPE_PAUSE.to_bytes(2, "big"):
            continue
        arrived += 1
        number = int.from_bytes(frame[-4:], "big")
        source, wanted, size, handed_ns = sent[number]
        assert (target, len(frame)) == (wanted, size)
        crosses = topology.switch_of(f"h{source}") != topology.switch_of(f"h{target}")
        rates = [topology.links[0].rate_bps or 0]
        rates += [topology.uplinks()[0].rate_bps or 0] * crosses
        rates += [slow] * (source == 0 and slow is not None)
        least_ns = size * 8 * 10**9 // min(rates) + delays_ns[crosses]
        # Its last bit has crossed the slowest link, and all of them.
        assert arrival_ns >= handed_ns + least_ns - 2 * len(rates)
        if not any(fault.kind in ("down", "flap") for fault in faults):
            flow = source, target, frame[34:36]
            assert last.get(flow, -1) < number
            last[flow] = number
    model = lab.fabric.model
    assert arrived + model.dropped == model.entered == len(sent)
    assert model.waiting() == 0
    assert model.packets.in_use == 1  # the next frame's place
    assert check_model(model, lab.live.now_ns) == []


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_failing_links_never_beat_the_bound(data: st.DataObject) -> None:
    topology = replace(data.draw(fabrics()), cuts_through=True)
    nranks = len(topology.hosts)
    group = world_group(nranks)
    rows = data.draw(operations(nranks))
    profile = data.draw(PROFILES)
    kinds = ["down", "flap", "degrade", "loss", "corruption", "pause_storm"]
    faults = data.draw(disturbances(topology, kinds))
    loses = profile.name != "sonic" or any(
        fault.kind not in ("degrade", "pause_storm") for fault in faults
    )
    plan = make_plan(
        [program(rank, group, rows[rank]) for rank in range(nranks)],
        topology,
        transport=TransportPlan(
            window_bytes=data.draw(st.sampled_from([2**15, 2**18])),
            max_burst_packets=data.draw(st.integers(1, 4)),
            # What waits in queues for longer is not lost, and would be sent again.
            retransmit_timeout_ns=10**6 if loses else 10**10,
            # No queue pair gives up during a storm.
            retry_limit=10_000,
        ),
    )
    result = simulate_plan(
        plan,
        topology,
        seed=1,
        switching=Switching(ecmp=DrawnPaths(seed=1), profile=profile),
        faults=faults,
    )
    check_bounds(plan, topology, result)
    lost = sum(result.dropped.values())
    assert lost == sum(result.drops.values())
    if not loses:
        # One that finds the pool full takes headroom beside the two it is made for.
        assert lost == result.dropped["headroom full"] <= len(topology.links)
        if not lost:
            assert not sum(flow.retransmitted for flow in flow_rows(result.records))
