"""Exact explanation of simulated runs with planted causes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from chakram.analysis.run_causes import iterations_of, paths_of, why_of
from chakram.collectives.groups import world_group
from chakram.foundation.errors import InputError
from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.plan.plan import RunSettings
from chakram.plan.queue_pairs import QueuePairLayout
from chakram.plan.transport import TransportPlan
from chakram.predict.simulator.switch_fabric import port_names
from chakram.run_directory.manifest import PARTIAL
from chakram.run_directory.reader import RunResults
from chakram.run_directory.schemas import BLANK, OWN_PARTS, PATH_PARTS
from chakram.switch.faults import LinkFault
from chakram.switch.profiles import Profile, Switching
from chakram.topology.topology import EcnThresholds
from chakram.topology.topology_helpers import single_switch
from tests.explained_simulations import assert_exact, simulated_run
from tests.leaf_spines import clos
from tests.made_plans import collective, compute, make_plan, program, receive, send
from tests.unit.predict.simulator.test_marking import dcqcn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chakram.analysis.lost_time_causes import Why
    from chakram.plan.plan import Plan
    from chakram.switch.ecmp import Flow
    from chakram.topology.topology import Topology

LINE = 10**10
LATE = 10**15
RANKS = 8
SPINES = 4


@dataclass(frozen=True)
class Dealt:
    """Every host has its own uplink; or, with *of* 1, all have the first."""

    of: int = SPINES

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        return lambda _, count: flow.sender % self.of % count


def fabric(**changes: object) -> Topology:
    return clos(
        2,
        SPINES,
        RANKS // 2,
        LINE,
        LINE,
        host_delay_ns=500,
        uplink_delay_ns=700,
        **changes,
    )


def ring(
    size: int = 1 << 20,
    *,
    slow: int | None = None,
    transport: TransportPlan | None = None,
    extra: tuple[int, int, int] | None = None,
) -> Plan:
    """Computation, then a ring whose every hop crosses the spines, on all ranks.

    Rank *slow* computes for thrice as long; *extra* is a message besides: from, to,
    bytes.
    """
    order = [rank for pair in range(RANKS // 2) for rank in (pair, pair + RANKS // 2)]
    world = world_group(RANKS)
    world = type(world)(name=world.name, ranks=tuple(order))
    programs = []
    for rank in range(RANKS):
        rows = [
            compute(300_000 if rank == slow else 100_000),
            collective("all_reduce", size, algorithm="ring", after=[0]),
        ]
        if extra is not None and rank == extra[0]:
            rows.append(send(extra[1], extra[2], after=[0]))
        if extra is not None and rank == extra[1]:
            rows.append(receive(extra[0], extra[2], after=[0]))
        programs.append(program(rank, world, rows))
    return make_plan(
        programs,
        fabric(),
        transport=transport or TransportPlan(window_bytes=1 << 20),
        settings=RunSettings(warmup=0, measured=1),
    )


def incast(to: int, transport: TransportPlan, size: int = 1 << 20) -> Plan:
    world = world_group(RANKS)
    others = [rank for rank in range(RANKS) if rank != to]
    programs = [
        program(
            rank,
            world,
            [receive(peer, size) for peer in others]
            if rank == to
            else [send(to, size)],
        )
        for rank in range(RANKS)
    ]
    return make_plan(
        programs,
        fabric(),
        transport=transport,
        settings=RunSettings(warmup=0, measured=1),
    )


def number_of(port: str) -> int:
    return port_names(fabric()).index(port)


LOSSES = RunSettings(
    warmup=0,
    measured=1,
    faults=(
        PacketFault(action=FaultAction.DROP, packets="data", probability=0.02),
        PacketFault(action=FaultAction.DROP, packets="ack", probability=0.02),
    ),
)


def exchange(
    settings: RunSettings, transport: TransportPlan, **changes: object
) -> Plan:
    """Everything that a rank can do, on four ranks of one switch."""
    world = world_group(4)
    programs = [
        program(
            rank,
            world,
            [
                compute(1000 * rank),
                collective("all_reduce", 300_000, after=[0]),
                collective("all_to_all", 70_000, number=1, after=[0]),
                compute(5000, after=[1]),
                compute(7000, after=[1]),
                send((rank + 1) % 4, 50_000, after=[3]),
                receive((rank - 1) % 4, 50_000, after=[0]),
            ],
        )
        for rank in range(4)
    ]
    return make_plan(
        programs,
        single_switch(
            4 // int(changes.get("ranks_per_port", 1)), LINE, host_delay_ns=500
        ),
        transport=transport,
        settings=settings,
        **changes,
    )


PLAIN = RunSettings(warmup=0, measured=1)
LOSSY = TransportPlan(
    window_bytes=1 << 16, retransmit_timeout_ns=200_000, retry_limit=100
)


@pytest.mark.parametrize(
    ("settings", "transport", "changes"),
    [
        (PLAIN, TransportPlan(), {}),
        (PLAIN, TransportPlan(window_bytes=1 << 13, max_burst_packets=1), {}),
        (PLAIN, TransportPlan(verb="send", max_burst_packets=64), {}),
        (LOSSES, LOSSY, {}),
        (RunSettings(warmup=0, measured=1, credits=1), TransportPlan(), {}),
        (PLAIN, TransportPlan(), {"ranks_per_port": 2}),
        (PLAIN, TransportPlan(), {"ranks_per_port": 2, "local_rate_bps": 10**10}),
        (PLAIN, TransportPlan(message_bytes=8192), {}),
        (
            PLAIN,
            TransportPlan(split="even"),
            {"layout": QueuePairLayout(count=3)},
        ),
        (
            LOSSES,
            TransportPlan(
                split="even",
                message_bytes=16384,
                window_bytes=1 << 16,
                retransmit_timeout_ns=200_000,
                retry_limit=100,
            ),
            {"layout": QueuePairLayout(count=2)},
        ),
    ],
)
@pytest.mark.parametrize("burst_packets", [None, 4])
def test_parts_sum_to_every_message_and_to_the_iteration(
    tmp_path: Path,
    settings: RunSettings,
    transport: TransportPlan,
    changes: dict[str, object],
    burst_packets: int | None,
) -> None:
    plan = exchange(settings, transport, **changes)
    ports = 4 // int(changes.get("ranks_per_port", 1))
    topology = single_switch(ports, LINE, host_delay_ns=500)
    results = simulated_run(tmp_path, plan, topology, burst_packets=burst_packets)
    assert assert_exact(results) == 4 * (6 + 3 + 1)
    delays_ns = {0, 2 * 500}
    for _, _, records in iterations_of(results):
        assert {each.propagate_ns for each in records.messages()} <= delays_ns


def test_iterations_of_a_job_have_their_own_records(tmp_path: Path) -> None:
    pair = world_group(2)
    rows = [compute(20_000), collective("all_reduce", 10_000, after=[0])]
    plan = make_plan(
        [program(rank, pair, rows, job=job) for job in ("a", "b") for rank in (0, 1)],
        single_switch(4, LINE),
        settings=RunSettings(warmup=1, measured=2, sync="free"),
    )
    results = simulated_run(tmp_path, plan, single_switch(4, LINE))
    ranks = results.table("ranks").to_pylist()
    found = {
        (job, iteration): records for job, iteration, records in iterations_of(results)
    }
    assert list(found) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    for place, records in found.items():
        own = [row for row in ranks if (row["job"], row["iteration"]) == place]
        last = records.last()
        assert last is not None
        assert last.end_ns == max(row["end_ns"] for row in own)
        # Each rank sends the other one its half, twice.
        assert len(list(records.messages())) == 4
    for path in paths_of(results, job="b"):
        assert path.time_ns == found["b", path.iteration].last().end_ns - min(
            row["start_ns"]
            for row in ranks
            if (row["job"], row["iteration"]) == ("b", path.iteration)
        )


def test_unfinished_iteration_is_not_explained(
    tmp_path: Path,
) -> None:
    plan = make_plan(
        [program(rank, world_group(2), [compute(20_000)]) for rank in (0, 1)],
        single_switch(2, LINE),
        settings=RunSettings(warmup=0, measured=3, sync="free"),
    )
    results = simulated_run(tmp_path, plan, single_switch(2, LINE))
    assert why_of(results).iterations == 3
    file = results.path / "ranks.parquet"
    table = pq.read_table(file)
    ended = (pc.field("iteration") != 1) | (pc.field("rank") != 0)
    pq.write_table(table.filter(ended), file)
    assert {iteration for _, iteration, _ in iterations_of(results)} == {0, 2}
    assert why_of(results).time_ns == 2 * 20_000

    pq.write_table(table.filter(pc.field("rank") == 1), file)
    manifest = replace(
        results.manifest,
        status=PARTIAL,
        reason="interrupted",
        jobs={job: {"ranks": 2} for job in table["job"].unique().to_pylist()},
    )
    with pytest.raises(InputError) as caught:
        why_of(RunResults(results.path, manifest))
    assert caught.value.found == ("has no measured iteration that all ranks finished")
    assert caught.value.hint == "PARTIAL: interrupted"


def test_messages_of_nics_are_explained_beside_counters_of_switches(
    tmp_path: Path,
) -> None:
    results = simulated_run(tmp_path, exchange(PLAIN, LOSSY), single_switch(4, LINE))
    file = results.path / "flows.parquet"
    flows = pq.read_table(file)
    for at, field in enumerate(flows.schema):
        if field.name in (*BLANK["flows"], *OWN_PARTS, *PATH_PARTS, "departed_ns"):
            blank = pa.nulls(flows.num_rows, field.type)
            flows = flows.set_column(at, field, blank)
    pq.write_table(flows, file)
    nics = {"h0": {"device": "mlx5_0", "port": 0}}
    manifest = replace(results.manifest, world="external", nics=nics)
    assert results.links()
    why = why_of(RunResults(results.path, manifest))
    assert why.time_ns > 0


def test_lost_packets_are_time_of_repair(tmp_path: Path) -> None:
    topology = single_switch(4, LINE, host_delay_ns=500)
    results = simulated_run(tmp_path, exchange(LOSSES, LOSSY), topology)
    ((_, _, records),) = iterations_of(results)
    repaired = [each for each in records.messages() if each.repair_ns]
    assert any(each.retransmitted for each in repaired)
    clean = simulated_run(tmp_path, exchange(PLAIN, LOSSY), topology)
    ((_, _, records),) = iterations_of(clean)
    assert not any(each.repair_ns for each in records.messages())


def test_window_below_the_bandwidth_delay_product_is_the_cause(tmp_path: Path) -> None:
    plan = ring(transport=TransportPlan(window_bytes=8192, max_burst_packets=2))
    why = explained(tmp_path, plan)
    assert why.first is not None
    assert why.first.cause == "window"


# Planted causes.


def explained(
    tmp_path: Path,
    plan: Plan,
    *faults: LinkFault,
    topology: Topology | None = None,
    deal: Dealt = Dealt(),
    profile: Profile | None = None,
    seed: int = 1,
) -> Why:
    results = simulated_run(
        tmp_path,
        plan,
        topology or fabric(),
        switching=Switching(ecmp=deal, profile=profile or Profile()),
        faults=faults,
        seed=seed,
    )
    assert_exact(results)
    return why_of(results)


@pytest.fixture(scope="module")
def ring_ns(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., int]:
    """Return a function that gives the time of an intact ring."""

    @cache
    def time_ns(size: int, transport: TransportPlan | None = None) -> int:
        folder = tmp_path_factory.mktemp("clean")
        return explained(folder, ring(size, transport=transport)).time_ns

    return time_ns


def assert_saves(why: Why, without_ns: int) -> None:
    """Removing the first cause saves the time that it was charged with."""
    first = why.first
    assert first is not None
    charged = sum(each.lost_ns for each in why.causes if each.cause == first.cause)
    assert 0.5 * charged <= why.time_ns - without_ns <= 1.1 * charged


@pytest.mark.parametrize(
    ("size", "seed"), [((1 << 18) + 4096 * step, 1 + step % 2) for step in range(5)]
)
def test_a_clean_run_names_no_cause(tmp_path: Path, size: int, seed: int) -> None:
    assert explained(tmp_path, ring(size), seed=seed).first is None


@pytest.mark.parametrize(("rank", "size"), [(2, 1 << 18), (5, 1 << 19)])
def test_slow_computation_is_named(
    tmp_path: Path, ring_ns: Callable[..., int], rank: int, size: int
) -> None:
    why = explained(tmp_path, ring(size, slow=rank))
    assert why.first is not None
    assert (why.first.cause, why.first.place) == (
        "slow compute",
        f"rank {rank}, compute",
    )
    assert_saves(why, ring_ns(size))


@pytest.mark.parametrize(
    ("port", "place", "size"),
    [
        ("leaf0:up1", "leaf0-spine1 up", 1 << 18),
        ("leaf1:h6", "h6-leaf1 down", 1 << 19),
    ],
)
def test_a_slow_link_is_named(
    tmp_path: Path, ring_ns: Callable[..., int], port: str, place: str, size: int
) -> None:
    fault = LinkFault(
        kind="degrade", port=number_of(port), at_ns=0, until_ns=LATE, rate_bps=LINE // 3
    )
    why = explained(tmp_path, ring(size), fault)
    assert why.first is not None
    assert (why.first.cause, why.first.place) == ("slow link", place)
    assert_saves(why, ring_ns(size))


@pytest.mark.parametrize(
    ("port", "place", "seed"),
    [("leaf0:up1", "leaf0-spine1 up", 1), ("leaf1:h6", "h6-leaf1 down", 2)],
)
def test_loss_is_named_with_its_link(
    tmp_path: Path, ring_ns: Callable[..., int], port: str, place: str, seed: int
) -> None:
    fault = LinkFault(
        kind="loss", port=number_of(port), at_ns=0, until_ns=LATE, probability=0.02
    )
    transport = TransportPlan(
        window_bytes=1 << 20, retransmit_timeout_ns=500_000, retry_limit=100
    )
    why = explained(tmp_path, ring(transport=transport), fault, seed=seed)
    assert why.first is not None
    assert (why.first.cause, why.first.place) == ("loss", place)
    assert_saves(why, ring_ns(1 << 20, transport))


@pytest.mark.parametrize(
    ("port", "place"),
    [("leaf0:up1", "leaf0-spine1 up"), ("leaf1:h6", "h6-leaf1 down")],
)
def test_timeouts_on_a_slow_link_are_no_losses(
    tmp_path: Path, port: str, place: str
) -> None:
    """Data and acknowledgments take longer than the timeout; nothing is dropped."""
    transport = TransportPlan(
        window_bytes=1 << 17, retransmit_timeout_ns=100_000, retry_limit=1000
    )
    why = explained(tmp_path, ring(1 << 19, transport=transport), degraded(port))
    named = {(each.cause, each.place) for each in why.causes}
    assert {("spurious timeout", place), ("slow link", place)} <= named, why.causes
    assert "loss" not in {cause for cause, _ in named}, why.causes


@pytest.mark.parametrize(("spine", "size"), [(0, 1 << 18), (2, 1 << 19)])
def test_a_dead_uplink_is_named(
    tmp_path: Path, ring_ns: Callable[..., int], spine: int, size: int
) -> None:
    faults = [
        LinkFault(
            kind="down", port=number_of(f"leaf{leaf}:up{spine}"), at_ns=0, until_ns=LATE
        )
        for leaf in range(2)
    ]
    why = explained(tmp_path, ring(size), *faults)
    assert why.first is not None
    assert why.first.cause == "dead uplink"
    assert why.first.place in (f"leaf0-spine{spine} up", f"leaf1-spine{spine} up")
    assert_saves(why, ring_ns(size))


@pytest.mark.parametrize(("used", "size"), [(1, 1 << 18), (2, 1 << 19)])
def test_an_imbalance_of_the_hash_is_named(
    tmp_path: Path, ring_ns: Callable[..., int], used: int, size: int
) -> None:
    why = explained(tmp_path, ring(size), deal=Dealt(used))
    assert why.first is not None
    assert why.first.cause == "hash imbalance"
    assert why.first.place in ("leaf0", "leaf1")
    assert_saves(why, ring_ns(size))


@pytest.mark.parametrize(("src", "dst", "size"), [(6, 5, 1 << 19), (1, 2, 1 << 20)])
def test_contention_at_a_host_is_named(
    tmp_path: Path, src: int, dst: int, size: int
) -> None:
    """Another message meets those of the ring at the port toward one host."""
    plan = ring(size, extra=(src, dst, 4 << 20))
    why = explained(tmp_path, plan)
    assert why.first is not None
    named = {each.cause for each in why.causes[:3]}
    assert "contention" in named
    found = next(each for each in why.causes if each.cause == "contention")
    assert found.place == f"h{dst}-leaf{dst // 4} down"


@pytest.mark.parametrize("to", [0, 5])
def test_pauses_are_named_with_the_port_behind_them(tmp_path: Path, to: int) -> None:
    small = Profile(name="sonic", mtu=4300, buffer_bytes=1_400_000)
    plan = incast(to, TransportPlan(window_bytes=1 << 20))
    why = explained(tmp_path, plan, profile=small)
    assert "pause" in {each.cause for each in why.causes[:3]}


def test_congestion_control_is_named_with_the_link_that_marks(tmp_path: Path) -> None:
    ecn = EcnThresholds(kmin_bytes=0, kmax_bytes=0, probability=1.0)
    transport = dcqcn("dcqcn-nvidia")
    topology = fabric(host_ecn=ecn)
    why = explained(tmp_path, incast(5, transport), topology=topology)
    assert why.first is not None
    assert (why.first.cause, why.first.place) == ("congestion control", "h5-leaf1 down")


def test_a_run_without_records_is_refused(tmp_path: Path) -> None:
    results = simulated_run(tmp_path, ring(), fabric())
    with pytest.raises(InputError, match="has no operation 'nobody'"):
        why_of(results, until="nobody")
    (path,) = paths_of(results, until="world#0")
    assert path.pieces[-1].operation is not None


@pytest.mark.parametrize("table", ["flows", "operations", "ranks"])
def test_a_run_whose_records_were_removed_is_refused(
    table: str, tmp_path: Path
) -> None:
    results = simulated_run(tmp_path, ring(), fabric())
    (results.path / f"{table}.parquet").unlink()
    with pytest.raises(InputError, match=rf"no longer has {table}\.parquet \(copy"):
        why_of(results)


def test_a_simulation_of_whole_messages_has_no_path(tmp_path: Path) -> None:
    results = simulated_run(tmp_path, ring(), fabric())
    table = results.table("operations")
    column = table.schema.get_field_index("end_cause")
    nothing = pa.nulls(table.num_rows, table.schema.field("end_cause").type)
    pq.write_table(
        table.set_column(column, "end_cause", nothing),
        results.path / "operations.parquet",
    )
    with pytest.raises(InputError, match="has no records of operations"):
        why_of(results)


def degraded(port: str, times: int = 3) -> LinkFault:
    return LinkFault(
        kind="degrade",
        port=number_of(port),
        at_ns=0,
        until_ns=LATE,
        rate_bps=LINE // times,
    )


def losing(port: str, probability: float) -> LinkFault:
    return LinkFault(
        kind="loss",
        port=number_of(port),
        at_ns=0,
        until_ns=LATE,
        probability=probability,
    )


RANK, UPLINK, HOST = "rank 2, compute", "leaf0-spine1 up", "h6-leaf1 down"


@pytest.mark.parametrize(
    ("slow", "size", "faults", "expected"),
    [
        *(
            (
                2,
                size,
                [losing("leaf0:up1", 0.01)],
                {("slow compute", RANK), ("loss", UPLINK)},
            )
            for size in (3 << 19, 1 << 21)
        ),
        # A rank that computes for longer, and a link that is not its own; one that is
        # slower hides what the rank loses altogether.
        *(
            (
                2,
                1 << 18,
                [degraded(port, 2)],
                {("slow compute", RANK), ("slow link", at)},
            )
            for port, at in (
                ("leaf0:up1", UPLINK),
                ("leaf1:h6", HOST),
                ("h3:eth0", "h3-leaf0 up"),
            )
        ),
        (
            None,
            1 << 20,
            [degraded("leaf1:h6"), losing("leaf0:up1", 0.02)],
            {("slow link", HOST), ("loss", UPLINK)},
        ),
        (
            None,
            1 << 20,
            [degraded("leaf1:h6"), degraded("leaf0:up1")],
            {("slow link", HOST), ("slow link", UPLINK)},
        ),
    ],
)
def test_two_causes_at_once_are_among_the_first_three(
    tmp_path: Path,
    slow: int | None,
    size: int,
    faults: list[LinkFault],
    expected: set[tuple[str, str]],
) -> None:
    transport = TransportPlan(
        window_bytes=1 << 20, retransmit_timeout_ns=500_000, retry_limit=100
    )
    plan = ring(size, slow=slow, transport=transport)
    why = explained(tmp_path, plan, *faults, seed=2)
    assert expected <= {(each.cause, each.place) for each in why.causes[:3]}
