"""Laws of the switch model under any traffic and faults."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chakram.switch.faults import FaultKind
from chakram.switch.packet_slots import ECT, NOT_ECT
from chakram.switch.port import NEVER
from chakram.switch.settings import CLASSES, Balancing, WatchdogAction
from tests.property import switch_laws as laws
from tests.property.modeled_switches import GBIT, flow_to, ring
from tests.support import examples

SWITCHES = 3
PORTS = 4 * SWITCHES
hosts = st.integers(0, SWITCHES - 1)
ports = st.integers(0, PORTS - 1)


class FabricMachine(RuleBasedStateMachine):
    """Three switches on a line, with soon full memory, and a host on each."""

    def __init__(self) -> None:
        super().__init__()
        self.wires, _ = ring(SWITCHES, laws.small, clockwise=False)
        self.model = self.wires.model
        self.flows = {
            (source, destination): flow_to(self.wires, source, destination)
            for source in range(SWITCHES)
            for destination in range(SWITCHES)
            if source != destination
        }

    @rule(
        source=hosts,
        step=st.integers(1, SWITCHES - 1),
        count=st.integers(1, 40),
        size=st.sampled_from((64, 1000, 1100)),
        dscp=st.sampled_from((0, 26, 34, 48)),
        ecn=st.sampled_from((NOT_ECT, ECT)),
    )
    def send(
        self, source: int, step: int, count: int, size: int, dscp: int, ecn: int
    ) -> None:
        destination = (source + step) % SWITCHES
        for _ in range(count):
            self.wires.send(
                source,
                SWITCHES + destination,
                self.flows[source, destination],
                size=size,
                dscp=dscp,
                ecn=ecn,
            )

    @rule(span_ns=st.sampled_from((1, 700, 10_000, 400_000)))
    def wait(self, span_ns: int) -> None:
        self.wires.run(self.wires.now_ns + span_ns)

    @rule(
        port=ports,
        klass=st.integers(0, CLASSES - 1),
        duration_ns=st.sampled_from((0, 5_000, 10**6, NEVER)),
    )
    def pause(self, port: int, klass: int, duration_ns: int) -> None:
        self.wires.obey(port, klass, duration_ns)

    @rule(port=ports, is_up=st.booleans())
    def set_link(self, port: int, is_up: bool) -> None:
        self.model.set_link(port, is_up, self.wires.now_ns)
        self.wires.settle()

    @rule(port=ports, rate_bps=st.sampled_from((0, GBIT, 10 * GBIT)))
    def set_rate(self, port: int, rate_bps: int) -> None:
        self.model.set_rate(port, rate_bps, self.wires.now_ns)
        self.wires.drive(port)

    @rule(port=ports, loss=st.floats(0, 0.5), corruption=st.floats(0, 0.5))
    def set_errors(self, port: int, loss: float, corruption: float) -> None:
        self.model.set_errors(port, loss=loss, corruption=corruption)

    @invariant()
    def every_packet_is_in_sight(self) -> None:
        assert self.wires.check() == []

    def teardown(self) -> None:
        assert laws.ends_well(self.wires) == []


TestFabricMachine = FabricMachine.TestCase
TestFabricMachine.settings = settings(
    max_examples=examples(40), stateful_step_count=30, deadline=None
)


@settings(max_examples=15, deadline=None)
@given(
    senders=st.integers(2, 8), packets=st.integers(1, 120), seed=st.integers(0, 1000)
)
def test_a_lossless_class_within_headroom_loses_nothing(
    senders: int, packets: int, seed: int
) -> None:
    assert laws.lossless_classes_lose_nothing(senders, packets, seed) == []


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_packets_of_a_flow_keep_their_order(seed: int) -> None:
    assert laws.packets_keep_their_order(seed) == []


@settings(max_examples=6, deadline=None)
@given(
    weights=st.lists(st.integers(1, 8), min_size=2, max_size=4),
    sizes=st.lists(st.sampled_from((64, 300, 1000)), min_size=1, max_size=3),
)
def test_classes_share_a_port_by_their_weights(
    weights: list[int], sizes: list[int]
) -> None:
    every = (*weights, *[0] * (CLASSES - len(weights)))
    assert laws.weights_are_kept(every, sizes) == []


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(
    kmin=st.integers(0, 1 << 24),
    width=st.integers(0, 1 << 24),
    probability=st.floats(0, 1),
    place=st.floats(-0.2, 1.2),
)
def test_marks_of_100000_packets_follow_the_curve(
    kmin: int, width: int, probability: float, place: float
) -> None:
    assert laws.marks_follow_the_curve(kmin, width, probability, place) == []


@given(limit_bytes=st.integers(1, 20_000), size=st.integers(60, 5_000))
@settings(max_examples=20, deadline=None)
def test_limits_of_queues_hold(limit_bytes: int, size: int) -> None:
    assert laws.limits_of_queues_hold(limit_bytes, size) == []


@pytest.mark.parametrize("shift", [-3, -1, 0, 1, 3])
def test_dynamic_limits_share_free_buffer(shift: int) -> None:
    assert laws.dynamic_limits_share_what_is_free(shift) == []


@pytest.mark.parametrize("action", ["drop", "forward", "alert"])
def test_pause_storms_are_ended_by_the_watchdog(action: WatchdogAction) -> None:
    assert laws.storms_are_cut(action) == []


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "kind", ["down", "flap", "degrade", "loss", "corruption", "pause_storm"]
)
def test_fault_affects_only_its_target(kind: FaultKind, seed: int) -> None:
    assert laws.faults_hit_what_they_name(kind, seed) == []


@pytest.mark.parametrize("balancing", ["hash", "random", "round_robin", "adaptive"])
def test_choices_are_balanced(balancing: Balancing) -> None:
    assert laws.choices_are_balanced(balancing) == []


@pytest.mark.parametrize(
    "name",
    [
        "strict",
        "average",
        "place of marks",
        "pause",
        "pause frame",
        "refresh",
        "link down",
    ],
)
def test_switch_model_obeys_every_law(name: str) -> None:
    assert laws.LAWS[name]() == []
