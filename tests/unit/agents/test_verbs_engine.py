"""The engine of ports on RDMA NICs, on a device that moves bytes in this process.

The real binding is tested in a guest with Soft-RoCE (tests/interop/softroce).
"""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from chakram.foundation.errors import EnvironmentProblem, PlanError, RunFailed
from chakram.plan.nic_queue_pairs import peers_of
from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.plan.plan import AgentPlan, RunSettings
from chakram.plan.transport import TransportPlan
from chakram.rdma.nic_device import open_device
from chakram.replay.endpoint import Endpoint
from chakram.roce.constants import NEVER, NO_IMMEDIATE
from chakram.roce.events import Event, MessageReceived, QueuePairFailed, SendCompleted
from chakram_agent.dataplane import verbs_engine
from chakram_agent.dataplane.nic_payload import PIECE_BYTES, PayloadLayout
from chakram_agent.dataplane.verbs_engine import VerbsEngine, timeout_code
from chakram_agent.dataplane.verbs_port import open_verbs_line
from tests.plans import ring_plan
from tests.rdma_devices import FABRIC, Device, DeviceQueuePair, nic_of, replace_binding


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the binding, which needs a device."""
    replace_binding(monkeypatch)
    monkeypatch.setattr(verbs_engine, "open_device", Device)
    monkeypatch.setattr(verbs_engine, "read_counters", lambda *_: {})
    monkeypatch.setattr(verbs_engine, "find_nic", nic_of)


class Ends:
    """Two ports on NICs, whose ranks have one queue pair between them."""

    def __init__(
        self,
        transport: TransportPlan | None = None,
        *,
        credits: int = 0,
        port: str = "verbs:mlx5_0",
    ) -> None:
        settings = RunSettings(credits=credits)
        self.plan = ring_plan(open_spec=port, transport=transport, settings=settings)
        self.now_ns = 0
        self.engines = [self._engine(number) for number in range(2)]
        self.qpns = [rank.queue_pairs[0].qpn for rank in self.plan.ranks]

    def _engine(self, number: int) -> VerbsEngine:
        plan = self.plan
        port, ranks = plan.ports[number], [plan.ranks[number]]
        engine = VerbsEngine(
            port, ranks, plan.transport, plan.settings, lambda: self.now_ns
        )
        Endpoint(
            port=port,
            ranks=ranks,
            transport=plan.transport,
            settings=plan.settings,
            rank_numbers=plan.numbers(),
            engine=engine,
        )
        engine.bind()
        return engine

    def connect(self) -> None:
        bound = [each for engine in self.engines for each in engine.bound]
        peers = peers_of(self.plan, bound).peers
        for number, engine in enumerate(self.engines):
            engine.connect({each.qpn: each for each in peers if each.port == number})

    def post(self, message_id: int, size_bytes: int, *, context: object = None) -> None:
        """Post a message at the first port."""
        pair = self.engines[0].queue_pair(self.qpns[0])
        if context is None:
            context = message_id
        self.engines[0].post_on(
            pair, message_id, size_bytes, self.now_ns, context=context
        )

    def events(self, *, rounds: int = 200) -> list[Event]:
        """Let everything arrive, and return the events of both ends."""
        found: list[Event] = []
        for _ in range(rounds):
            for engine in self.engines:
                engine.hand_over()
                engine.take_completions()
                while (event := engine.take_event()) is not None:
                    found.append(event)
        return found

    def use_roce_port(self) -> None:
        """Let the peers of the first port listen where NICs send to."""
        for pair in self.engines[0].counted_pairs():
            pair.plan = replace(pair.plan, remote_udp_port=4791)

    @property
    def device(self) -> DeviceQueuePair:
        """The queue pair of the first port."""
        return FABRIC.pairs[100]


def received(events: list[Event]) -> list[tuple[int | None, int, int]]:
    return [
        (each.message_id, each.size_bytes, each.wrong)
        for each in events
        if isinstance(each, MessageReceived)
    ]


@pytest.mark.parametrize("verb", ["write", "send"])
def test_messages_of_all_sizes_arrive_in_order(verb: str) -> None:
    ends = Ends(TransportPlan(verb=verb))
    ends.connect()
    sizes = [0, 1, 4096, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES - 5]
    for number, size in enumerate(sizes):
        ends.post(number, size)
    events = ends.events()
    assert received(events) == [(at, size, 0) for at, size in enumerate(sizes)]
    done = [each for each in events if isinstance(each, SendCompleted)]
    assert [(each.context, each.size_bytes) for each in done] == list(enumerate(sizes))
    assert ends.engines[0].next_wakeup_ns() == NEVER


def test_messages_of_one_round_go_to_the_nic_as_one_list() -> None:
    ends = Ends()
    ends.connect()
    for number in range(10):
        ends.post(number, 64)
    assert ends.engines[0].next_wakeup_ns() == 0
    ends.events()
    assert ends.device.lists == [10]


def test_the_descriptor_is_armed_before_every_wait() -> None:
    ends = Ends()
    ends.connect()
    queue = ends.device.completions
    assert queue.armed == 1
    engine = ends.engines[0]
    assert not engine.take_completions()
    assert queue.armed == 1
    ends.post(0, 64)
    engine.hand_over()
    assert engine.take_completions()
    assert queue.armed == 2


def test_a_full_queue_waits_for_the_nic_and_a_late_data_plane_is_the_generators() -> (
    None
):
    ends = Ends()
    ends.connect()
    depth = ends.device.depths["send_depth"]
    for number in range(depth + 1):
        ends.post(number, 64)
    ends.now_ns = 7
    engine = ends.engines[0]
    assert engine.hand_over()
    ends.now_ns = 100
    engine.take_completions()
    ends.now_ns = 103
    done = [each for each in ends.events() if isinstance(each, SendCompleted)]
    assert [each.generator_wait_ns for each in done] == [*[7] * depth, 3]
    assert [each.first_sent_ns for each in done] == [*[7] * depth, 103]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ports with one queue pair share receives, as those with many do."""
    monkeypatch.setattr(verbs_engine, "SHARE_FROM", 1)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("verb", ["write", "send"])
def test_many_queue_pairs_share_their_receives(verb: str) -> None:
    ends = Ends(TransportPlan(verb=verb, verify_every=0))
    ends.connect()
    receiver = ends.engines[1]
    assert receiver.settings["shared_receives"] == "4096"
    assert ends.device.depths == {"send_depth": 64, "receive_depth": 0}
    for number in range(9000):
        ends.post(number, 8)
        assert received(ends.events(rounds=1)) == [(number, 8, 0)]
    for engine in ends.engines:
        engine.close()
    assert FABRIC.opened == 0


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("can_share", "verb"), [(False, "write"), (True, "send")])
def test_receives_are_apart_where_the_device_or_verification_needs_it(
    can_share: bool, verb: str
) -> None:
    FABRIC.can_share = can_share
    ends = Ends(TransportPlan(verb=verb))
    ends.connect()
    assert "shared_receives" not in ends.engines[0].settings
    assert ends.device.depths == {"send_depth": 64, "receive_depth": 128}
    ends.post(1, 8)
    assert received(ends.events()) == [(1, 8, 0)]


FIXED_RATE = TransportPlan(
    congestion_control="fixed_rate", congestion_parameters=(("rate_bps", 25_000_000),)
)


def test_a_fixed_rate_is_the_rate_limit_of_the_queue_pairs() -> None:
    FABRIC.rate_limits_kbps = (1_000, 100_000_000)
    ends = Ends(FIXED_RATE)
    ends.connect()
    assert ends.device.settings["rate_kbps"] == 25_000
    assert ends.engines[0].settings["rate_limit"] == "25Mbit/s"


@pytest.mark.parametrize(
    ("limits_kbps", "message"),
    [
        ((0, 0), r"25Mbit/s: not at all, as it has no packet pacing"),
        ((50_000, 100_000), r"only from 50Mbit/s to 100Mbit/s"),
        ((1, 20_000), r"only from 1kbit/s to 20Mbit/s"),
    ],
)
def test_a_rate_that_the_device_cannot_keep_is_refused(
    limits_kbps: tuple[int, int], message: str
) -> None:
    FABRIC.rate_limits_kbps = limits_kbps
    with pytest.raises(EnvironmentProblem, match=message):
        Ends(FIXED_RATE)


def test_queue_pairs_have_no_rate_limit_otherwise() -> None:
    FABRIC.rate_limits_kbps = (1_000, 100_000_000)
    ends = Ends()
    ends.connect()
    assert ends.device.settings["rate_kbps"] == 0
    assert "rate_limit" not in ends.engines[0].settings


def test_memory_may_have_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs_engine, "huge_page_bytes", lambda: 1 << 21)
    ends = Ends(port="verbs:mlx5_0,huge-pages")
    assert FABRIC.huge_page_bytes == 1 << 21
    assert ends.engines[0].settings["huge_pages"] == "2 of 2097152 B"
    FABRIC.refusal = OSError(12, "Cannot allocate memory")
    with pytest.raises(EnvironmentProblem, match=r"reserve 2 more huge pages: sysctl"):
        Ends(port="verbs:mlx5_0,huge-pages")


def test_receives_are_posted_again() -> None:
    ends = Ends()
    ends.connect()
    for number in range(1000):
        ends.post(number, 8)
        assert received(ends.events()[:5])


@pytest.mark.parametrize(
    ("verb", "credits", "is_found"),
    [("write", 2, True), ("send", 0, True), ("write", 0, False)],
)
def test_wrong_payload_is_found_where_it_is_verified(
    verb: str, credits: int, is_found: bool
) -> None:
    ends = Ends(TransportPlan(verb=verb), credits=credits)
    ends.connect()
    for number in range(9):
        ends.device.damage = number in (3, 8)
        ends.post(number, 3000 + number)
        (found,) = received(ends.events())
        assert found == (number, 3000 + number, int(is_found and number in (3, 8)))
    counted = ends.engines[1].statistics()
    assert counted.wrong_payloads == (2 if is_found else 0)
    assert (counted.verified > 0) == is_found


def test_messages_in_flight_have_a_slot_each() -> None:
    ends = Ends(credits=4)
    ends.connect()
    for number in range(4):
        ends.post(number, 4000)
    assert received(ends.events()) == [(number, 4000, 0) for number in range(4)]


def test_the_first_error_of_a_queue_pair_is_reported_once() -> None:
    ends = Ends()
    ends.connect()
    ends.device.status = 12
    for number in range(3):
        ends.post(number, 64)
    (event,) = ends.events()
    assert isinstance(event, QueuePairFailed)
    assert event.flushed == 3
    assert event.reason == "mlx5_0 reports 'error 12' (status 12)"
    (pair,) = ends.engines[0].counted_pairs()
    assert pair.statistics().messages_flushed == 3


def test_statistics_count_messages_and_no_packets() -> None:
    ends = Ends()
    ends.connect()
    for number in range(3):
        ends.post(number, 500)
    ends.events()
    (sender,), (receiver,) = (each.counted_pairs() for each in ends.engines)
    sent, taken = sender.statistics(), receiver.statistics()
    assert (sent.messages_posted, sent.messages_completed, sent.bytes_sent) == (
        3,
        3,
        1500,
    )
    assert (taken.messages_received, taken.bytes_received) == (3, 1500)
    assert sent.packets_sent == taken.packets_received == 0


def test_settings_of_the_plan_go_to_the_queue_pair() -> None:
    transport = TransportPlan(
        path_mtu=4096, dscp_data=10, ecn=1, retry_limit=900, rnr_retry_limit=3
    )
    ends = Ends(transport)
    ends.connect()
    settings = ends.device.settings
    pair = ends.plan.ranks[0].queue_pairs[0]
    assert settings["path_mtu"] == 1024  # the most that the NICs can do
    assert settings["traffic_class"] == 10 << 2 | 1
    assert (settings["retries"], settings["rnr_retries"]) == (7, 3)
    assert settings["send_psn"] == pair.send_psn
    assert settings["remote_gid"] == pair.remote_address
    assert settings["remote_qpn"] == 101


@pytest.mark.parametrize(
    ("timeout_ns", "code"),
    [(0, 0), (1, 1), (4096, 1), (8192, 1), (8193, 2), (67_108_864, 14), (1 << 60, 31)],
)
def test_timeout_codes_are_never_shorter(timeout_ns: int, code: int) -> None:
    assert timeout_code(timeout_ns) == code


def test_sockets_may_send_no_more_than_a_slot() -> None:
    ends = Ends()
    with pytest.raises(PlanError, match="NICs send to UDP port 4791"):
        ends.engines[0].connect({})
    ends.use_roce_port()
    with pytest.raises(PlanError, match=r"message_size: 1048576"):
        ends.engines[0].connect({})
    fitting = Ends(TransportPlan(message_bytes=1 << 20, path_mtu=1024))
    fitting.use_roce_port()
    fitting.engines[0].connect({})
    plan = fitting.plan.ranks[0].queue_pairs[0]
    assert FABRIC.pairs[102].settings["remote_qpn"] == plan.remote_qpn


def test_sockets_with_a_larger_mtu_are_refused() -> None:
    ends = Ends(TransportPlan(message_bytes=1 << 20, path_mtu=4096))
    ends.use_roce_port()
    with pytest.raises(PlanError, match=r"set transport\.path_mtu: 1024"):
        ends.engines[0].connect({})


def refused(plan: AgentPlan) -> str:
    with pytest.raises(PlanError) as caught:
        VerbsEngine(
            plan.ports[0], [plan.ranks[0]], plan.transport, plan.settings, lambda: 0
        )
    return str(caught.value)


def test_sockets_without_icrc_are_refused() -> None:
    ends = Ends(TransportPlan(message_bytes=1 << 20, path_mtu=1024, icrc="off"))
    ends.use_roce_port()
    with pytest.raises(PlanError, match="drop packets without an ICRC"):
        ends.engines[0].connect({})


def test_ports_with_different_slots_agree_on_the_payload() -> None:
    few, many = PayloadLayout(slots=2, pairs=1), PayloadLayout(slots=64, pairs=1000)
    assert few.piece_bytes == PIECE_BYTES
    assert many.piece_bytes == 4096
    assert PayloadLayout(slots=0, pairs=9).piece_bytes == PIECE_BYTES
    ends = [
        (layout.slot_offset(index, slot), layout.piece_bytes)
        for layout in (many,)
        for index in (0, 999)
        for slot in (0, 63)
    ]
    assert ends[0][0] == many.scratch_offset + PIECE_BYTES
    assert ends[-1][0] + ends[-1][1] == many.size_bytes


def test_pieces_of_a_send_do_not_touch_its_buffers() -> None:
    ends = Ends(TransportPlan(verb="send"))
    ends.connect()
    for number in range(300):
        ends.post(number, PIECE_BYTES + 5)
    assert received(ends.events()) == [(at, PIECE_BYTES + 5, 0) for at in range(300)]


def test_parts_of_a_message_wait_once_for_the_generator() -> None:
    ends = Ends()
    ends.connect()
    for _ in range(3):
        ends.post(NO_IMMEDIATE, 64, context=ends)
    ends.post(5, 64, context=ends)
    ends.now_ns = 20
    done = [each for each in ends.events() if isinstance(each, SendCompleted)]
    assert [each.generator_wait_ns for each in done] == [20, 0, 0, 0]
    (sender,), (receiver,) = (each.counted_pairs() for each in ends.engines)
    sent = sender.statistics()
    assert (sent.messages_posted, sent.messages_completed) == (4, 4)
    assert receiver.statistics().messages_received == 1


def test_a_flood_of_completions_is_taken_in_portions() -> None:
    ends = Ends()
    ends.connect()
    queue = ends.device.completions
    portion = [(0, 0, False, 0, -1, 100)]
    engine = ends.engines[0]
    queue.poll = lambda: portion  # type: ignore[method-assign]
    taken: list[int] = []
    engine._take = lambda each, now_ns: taken.append(1)  # type: ignore[method-assign]
    assert engine.take_completions()
    assert len(taken) == 16
    assert engine.is_behind
    assert engine.next_wakeup_ns() == 0
    queue.poll = list  # type: ignore[method-assign, assignment]
    assert not engine.take_completions()
    assert not engine.is_behind
    assert queue.armed == 2


def test_late_events_of_the_descriptor_are_drained() -> None:
    ends = Ends()
    ends.connect()
    for _ in range(200):
        ends.engines[0].take_completions()
    assert 3 <= ends.device.completions.armed <= 5


def test_what_only_sockets_can_do_is_refused() -> None:
    drop = PacketFault(action=FaultAction.DROP, packets="any", nth=1)
    for settings in (RunSettings(faults=(drop,)), RunSettings(drop_ratio=0.1)):
        plan = ring_plan(open_spec="verbs:mlx5_0", settings=settings)
        assert "packet faults cannot be injected on an RDMA NIC" in refused(plan)
    assert "remove the suffix" in refused(ring_plan(open_spec="verbs:mlx5_0,pauses"))


def test_what_was_made_before_an_error_is_released() -> None:
    plan = ring_plan(open_spec="verbs:mlx5_0")
    port, ranks = plan.ports[0], [plan.ranks[0]]
    engine = VerbsEngine(port, ranks, plan.transport, plan.settings, lambda: 0)
    endpoint = Endpoint(
        port=port,
        ranks=ranks,
        transport=plan.transport,
        settings=plan.settings,
        rank_numbers=plan.numbers(),
        engine=engine,
    )
    FABRIC.refusal = OSError(12, "Cannot allocate memory")
    with pytest.raises(EnvironmentProblem):
        open_verbs_line(endpoint, engine, plan.transport)
    assert FABRIC.opened == 0


def test_refusals_of_the_device_name_port_and_cure() -> None:
    FABRIC.refusal = OSError(12, "Cannot allocate memory")
    with pytest.raises(EnvironmentProblem, match="ulimit -l unlimited") as caught:
        Ends()
    assert caught.value.where == "port 0 (verbs:mlx5_0 of h0)"
    FABRIC.refusal = None
    ends = Ends()
    FABRIC.refusal = OSError(110, "Connection timed out")
    with pytest.raises(RunFailed, match="mlx5_0 cannot connect queue pair"):
        ends.connect()


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "chakram.rdma.libibverbs", None)
    monkeypatch.setattr(verbs_engine, "open_device", open_device)
    with pytest.raises(EnvironmentProblem, match="install libibverbs1"):
        Ends()


def test_closing_releases_everything() -> None:
    ends = Ends()
    ends.connect()
    for engine in ends.engines:
        engine.close()
        engine.close()
    assert FABRIC.opened == 0
