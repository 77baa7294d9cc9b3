"""Summary of a run, compared with hand-computed values of four ranks."""

from __future__ import annotations

from array import array
from dataclasses import replace
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.records.collective_assembly import CollectiveJoiner
from chakram.records.named_rows import OperationTable, rank_records
from chakram.records.row_layout import RecordRows
from chakram.records.run_records import CollectiveKey, LinkRecord
from chakram.summary.generator_health import GeneratorSummary, SaturatedProcess
from chakram.summary.message_summary import (
    MessageTransport,
    PortFacts,
    SentMessage,
)
from chakram.summary.result_warnings import banners
from chakram.summary.retransmissions import Traffic
from chakram.summary.run_summary import (
    Measurements,
    RunFacts,
    Summary,
    SummaryRow,
    Verification,
)
from chakram.summary.summarize_run import summarize_run
from tests.small_run import (
    ALL_REDUCE_NS,
    ALL_TO_ALL_NS,
    COMPUTE_NS,
    MARKED_PER_SHARE,
    MESSAGE_NS,
    completion_times,
    small_plan,
    small_rows,
)

WORLD = CollectiveKey("moe", "world", 0)
EP0 = CollectiveKey("moe", "ep0", 0)
FACTS = RunFacts(run_id="r1", name="quickstart", world="namespaces", measured=3)


def measurements(rows: RecordRows, **facts: Any) -> Measurements:
    operations = OperationTable(small_plan())
    joiner = CollectiveJoiner(operations, warmup=1)
    complete = joiner.add(rows)
    return Measurements(
        facts=replace(FACTS, **facts),
        collectives=complete + joiner.unfinished(),
        ranks=rank_records(rows.iterations, operations, warmup=1),
        completion_times=completion_times(rows.flows, operations, warmup=1),
    )


def run(iterations: int = 4, **options: int) -> RecordRows:
    rows = RecordRows()
    for iteration in range(iterations):
        rows.extend(small_rows(iteration, **options))  # type: ignore[arg-type] # any of its arguments
    return rows


def row_of(summary: Summary, op: CollectiveOp) -> SummaryRow:
    (row,) = (row for row in summary.rows if row.op is op)
    return row


TRAFFIC = Traffic(
    packets=100,
    retransmitted=70,
    for_nak=40,
    for_timeout=20,
    for_rnr=10,
    timeouts=5,
    naks=9,
    reordered=3,
    marked=8,
    corrupted=2,
)


def test_retransmissions_of_an_unfinished_run_are_counted() -> None:
    # No collective was done, so no record tells of any packet.
    nothing = measurements(RecordRows())
    assert summarize_run(nothing).retransmitted == 0

    summary = summarize_run(replace(nothing, traffic=TRAFFIC))

    assert summary.rows == ()
    assert (summary.packets, summary.retransmitted, summary.marked) == (100, 70, 8)
    assert summary.traffic is not None
    assert summary.traffic.lost == 6


def test_rows_are_one_per_collective_size_and_group_size() -> None:
    summary = summarize_run(measurements(run()))
    found = [
        (row.op, row.algorithm, row.nranks, row.size_bytes, row.groups, row.samples)
        for row in summary.rows
    ]
    assert found == [
        (CollectiveOp.ALL_REDUCE, "ring", 4, 2**20, 1, 3),
        (CollectiveOp.ALL_TO_ALL, "direct", 2, 2**18, 2, 6),
        (CollectiveOp.SEND_RECV, "send", 2, 2**16, 1, 3),
    ]
    assert [row.iterations for row in summary.rows] == [3, 3, 3]
    assert summary.rows[0].trace_size_bytes == 2**24


def test_bandwidths_equal_those_of_nccl_tests() -> None:
    summary = summarize_run(measurements(run()))
    row = row_of(summary, CollectiveOp.ALL_REDUCE)
    assert row.time_ns == ALL_REDUCE_NS
    assert row.algbw == pytest.approx(2**20 / (ALL_REDUCE_NS * 1e-9))
    assert row.busbw == pytest.approx(row.algbw * 2 * 3 / 4)
    bandwidths = [row.busbw for row in summary.rows]
    assert None not in bandwidths
    assert summary.average_busbw == pytest.approx(sum(filter(None, bandwidths)) / 3)


def test_warm_up_is_left_out() -> None:
    rows = small_rows(0, slower_ns=10**9)
    rows.extend(small_rows(1))
    row = row_of(summarize_run(measurements(rows)), CollectiveOp.ALL_REDUCE)
    assert (row.samples, row.max_ns) == (1, ALL_REDUCE_NS)


def test_one_time_has_no_variation() -> None:
    once = summarize_run(measurements(small_rows(1)))
    row = row_of(once, CollectiveOp.ALL_REDUCE)
    assert (row.samples, row.cv, once.iterations[0].cv) == (1, None, None)


def test_spread_of_times_is_reported() -> None:
    rows = small_rows(1)
    rows.extend(small_rows(2, slower_ns=ALL_REDUCE_NS))
    row = row_of(summarize_run(measurements(rows)), CollectiveOp.ALL_REDUCE)
    assert (row.min_ns, row.max_ns) == (ALL_REDUCE_NS, 2 * ALL_REDUCE_NS)
    assert row.time_ns == 1.5 * ALL_REDUCE_NS
    assert row.cv == pytest.approx(1 / 3)
    assert row.mean_over_ranks_ns < row.time_ns


def test_measured_is_compared_with_bound_and_predictions() -> None:
    summary = summarize_run(
        measurements(run()),
        bound=lambda identity: (
            ALL_REDUCE_NS // 2 if identity.op is CollectiveOp.ALL_REDUCE else None
        ),
        alone=lambda identity: {WORLD: 2 * ALL_REDUCE_NS}.get(identity.key),
        predictions={"simulate": {WORLD: ALL_REDUCE_NS // 4, EP0: ALL_TO_ALL_NS}},
    )
    row = row_of(summary, CollectiveOp.ALL_REDUCE)
    assert (row.bound_ns, row.bound_share) == (ALL_REDUCE_NS / 2, 0.5)
    # No bound: a run may well be faster.
    assert (row.alone_ns, row.alone_share) == (2 * ALL_REDUCE_NS, 2.0)
    assert row.predictions["simulate"].time_ns == ALL_REDUCE_NS / 4
    assert row.predictions["simulate"].deviation == 3.0
    other = row_of(summary, CollectiveOp.ALL_TO_ALL)
    assert (other.bound_ns, other.bound_share) == (None, None)
    assert other.predictions["simulate"].deviation == 0.0
    assert row_of(summary, CollectiveOp.SEND_RECV).predictions == {}


@pytest.mark.parametrize(
    ("draws", "deviation"),
    [
        ((ALL_REDUCE_NS // 2, ALL_REDUCE_NS // 4), 1.0),
        ((2 * ALL_REDUCE_NS, 4 * ALL_REDUCE_NS), -0.5),
        ((ALL_REDUCE_NS // 2, 2 * ALL_REDUCE_NS, ALL_REDUCE_NS - 1), 0.0),
    ],
)
def test_path_draws_give_a_range_for_deviations(
    draws: tuple[int, ...], deviation: float
) -> None:
    summary = summarize_run(
        measurements(run()),
        predictions={
            f"simulate.{number}": {WORLD: time_ns}
            for number, time_ns in enumerate(draws)
        },
    )
    found = row_of(summary, CollectiveOp.ALL_REDUCE).predictions
    assert list(found) == ["simulate"]
    prediction = found["simulate"]
    assert prediction.deviation == pytest.approx(deviation)
    assert (prediction.least_ns, prediction.most_ns) == (min(draws), max(draws))
    assert (prediction.draws, prediction.time_ns) == (len(draws), median(draws))


def test_completion_times_are_nearest_rank_percentiles() -> None:
    row = row_of(summarize_run(measurements(run())), CollectiveOp.ALL_REDUCE)
    assert row.completion is not None
    assert row.completion.flows == 3 * 24
    assert row.completion.p50_ns == ALL_REDUCE_NS // 6
    assert row.completion.p100_ns == ALL_REDUCE_NS - 5 * (ALL_REDUCE_NS // 6)


def test_dilation_shrinks_times_and_raises_bandwidths() -> None:
    plain = summarize_run(measurements(run()), bound=lambda _: 1000)
    dilated = summarize_run(measurements(run(), dilation=100), bound=lambda _: 1000)
    for row, scaled in zip(plain.rows, dilated.rows, strict=True):
        assert scaled.time_ns == pytest.approx(row.time_ns / 100)
        assert row.busbw is not None
        assert scaled.busbw == pytest.approx(row.busbw * 100)
        assert scaled.bound_ns == 10
        assert scaled.bound_share == row.bound_share
        assert row.completion is not None
        assert scaled.completion is not None
        assert scaled.completion.p99_ns == row.completion.p99_ns / 100
    assert dilated.ranks[0].exposed_ns == plain.ranks[0].exposed_ns / 100
    assert dilated.iterations[0].mean_ns == plain.iterations[0].mean_ns / 100
    assert dilated.banners[0].startswith("TIME DILATED by 100")


def test_dilation_shrinks_times_of_links_and_raises_their_rates() -> None:
    link = LinkRecord(
        link="h0-s0", kind="host", direction="up", bytes_before=0, bytes_after=5,
        pauses=3, paused_ns=4_000, down_ns=7_000, rate_bps=10**6,
    )  # fmt: skip
    for dilation, times in ((1, (4_000, 7_000, 10**6)), (10, (400, 700, 10**7))):
        (found,) = summarize_run(
            replace(measurements(run(), dilation=dilation), links=[link])
        ).links
        assert (found.paused_ns, found.down_ns, found.rate_bps) == times
        assert (found.pauses, found.bytes) == (3, 5)


def test_ranks_report_exposed_communication() -> None:
    summary = summarize_run(measurements(run()))
    assert [(rank.rank, rank.iterations) for rank in summary.ranks] == [
        (0, 3),
        (1, 3),
        (2, 3),
        (3, 3),
    ]
    assert summary.ranks[0].exposed_ns == ALL_REDUCE_NS + ALL_TO_ALL_NS + MESSAGE_NS
    assert summary.ranks[3].exposed_ns == ALL_REDUCE_NS + ALL_TO_ALL_NS
    (iteration,) = summary.iterations
    assert iteration.iterations == 3
    assert iteration.mean_ns == COMPUTE_NS + ALL_REDUCE_NS + ALL_TO_ALL_NS + MESSAGE_NS


def test_packets_add_up_over_the_measured_iterations() -> None:
    summary = summarize_run(measurements(run(retransmitted=2)))
    assert summary.retransmitted == 3 * 4 * 2
    assert summary.packets == 3 * (4 * 6 * 64 + 4 * 32 + 16)
    assert summary.marked == 3 * 10 * MARKED_PER_SHARE


@pytest.mark.parametrize(
    ("every", "packets", "wrong", "told"),
    [
        (0, 0, 0, None),
        (1, 9, 0, 0),
        # A sample without wrong packets does not prove that there were none.
        (64, 9, 0, None),
        (64, 9, 3, 3),
    ],
)
def test_wrong_packets_are_known_if_enough_were_checked(
    every: int, packets: int, wrong: int, told: int | None
) -> None:
    verification = Verification(every=every, packets=packets)
    found = measurements(run(), verification=verification)
    first, *others = found.collectives
    measured = next(each for each in others if each.measured)
    others[others.index(measured)] = measured._replace(wrong=wrong)
    summary = summarize_run(replace(found, collectives=[first, *others]))
    assert row_of(summary, measured.identity.op).wrong == told


def test_generator_bound_is_the_first_banner() -> None:
    summary = summarize_run(measurements(run(generator_wait_ns=10_000)))
    assert (summary.generator_bound, summary.verdicts) == (3, 12)
    assert summary.banners == (
        "GENERATOR-BOUND: 3 of 12 collectives (3 all_reduce) waited for this generator "
        "for more than 5 % of their time, those of one row for 15 % of its total time: "
        "these times are the generator's, not the network's",
    )


def test_simultaneous_waits_are_no_longer_than_the_collective() -> None:
    rows = run(3)
    rows.extend(small_rows(3, generator_wait_ns=10**9))
    reduce = row_of(summarize_run(measurements(rows)), CollectiveOp.ALL_REDUCE)
    assert reduce.generator_wait_share == pytest.approx(1 / 4, rel=0.5)


def test_single_wait_is_counted_without_a_banner() -> None:
    rows = run(3)
    rows.extend(small_rows(3, generator_wait_ns=8_000))
    summary = summarize_run(measurements(rows))
    assert (summary.generator_bound, summary.verdicts) == (1, 12)
    reduce = row_of(summary, CollectiveOp.ALL_REDUCE)
    (waits_ns,) = {
        each.generator_wait_ns
        for each in measurements(rows).collectives
        if each.generator_wait_ns
    }
    assert reduce.generator_wait_share == pytest.approx(waits_ns / (3 * reduce.time_ns))
    assert summary.generator_wait_share == reduce.generator_wait_share < 0.05
    assert summary.banners == ()
    assert summary.keeping_up is None
    # Nor is there where the rates of ports are known, as of a run.
    found = measurements(rows)
    ports = {0: PortFacts(number=0, host="h0", rate_bps=10**9)}
    transport: Any = SimpleNamespace(ports=ports)
    assert summarize_run(replace(found, transport=transport)).keeping_up is None
    bound = measurements(run(generator_wait_ns=10_000))
    assert summarize_run(replace(bound, transport=transport)).keeping_up is not None


def test_unfinished_collectives_are_excluded_and_reported() -> None:
    rows = run(2)
    rows.extend(small_rows(2, ranks=[0, 1]))
    summary = summarize_run(measurements(rows, status="partial", reason="interrupted"))
    assert row_of(summary, CollectiveOp.ALL_REDUCE).samples == 1
    assert summary.unfinished == 1
    assert summary.banners == (
        "PARTIAL: interrupted; 1 unfinished collectives are left out",
    )


def test_banners_report_lost_records_and_scaling() -> None:
    summary = summarize_run(
        measurements(
            run(),
            status="running",
            samples_dropped=7,
            size_scale="1/64",
            banners=("clocks drift",),
        )
    )
    heads = [banner.split(":")[0] for banner in summary.banners]
    assert heads == [
        "RUNNING",
        "SAMPLES DROPPED",
        "SIZES SCALED by 1/64",
        "clocks drift",
    ]


def test_balance_of_uplinks_is_computed() -> None:
    def link(kind: str, load_bytes: int) -> LinkRecord:
        return LinkRecord(
            link="a-b",
            kind=kind,
            direction="up",
            bytes_before=5,
            bytes_after=5 + load_bytes,
        )

    loaded = replace(
        measurements(run()),
        links=[link("uplink", 30), link("uplink", 10), link("host", 999)],
    )
    balance = summarize_run(loaded).uplinks
    assert balance is not None
    assert balance.links == 2
    assert balance.max_over_mean == 1.5
    assert balance.jain == pytest.approx(40**2 / (2 * 1000))
    idle = replace(loaded, links=[link("uplink", 0)])
    assert summarize_run(idle).uplinks is None


def test_a_barrier_has_no_bandwidth_and_no_verdict() -> None:
    found = measurements(run(generator_wait_ns=10_000))
    barriers = [
        record._replace(
            identity=replace(
                record.identity, op=CollectiveOp.BARRIER, input_bytes=0, trace_bytes=0
            ),
        )
        for record in found.collectives
        if record.identity.key == WORLD
    ]
    summary = summarize_run(replace(found, collectives=barriers))
    (row,) = summary.rows
    assert (row.algbw, row.busbw, row.generator_bound) == (None, None, 3)
    assert (summary.average_busbw, summary.generator_bound) == (None, 0)
    assert summary.banners == ()


def test_a_barrier_lasts_from_its_last_arrival() -> None:
    found = measurements(run())
    (row,) = summarize_run(
        replace(
            found,
            collectives=[
                record._replace(
                    identity=replace(record.identity, op=CollectiveOp.BARRIER),
                    start_ns=1_000,
                    start_spread_ns=70_000,
                    end_ns=71_300,
                )
                for record in found.collectives
                if record.identity.key == WORLD
            ],
        ),
        bound=lambda _: 100,
        predictions={"simulate": {WORLD: 200}},
    ).rows
    assert (row.time_ns, row.skew_ns) == (300, 70_000)
    # Hosts take that time: what a model says of the network is no yardstick for it.
    assert (row.bound_ns, row.bound_share) == (100, None)
    assert row.predictions["simulate"].time_ns == 200
    assert row.predictions["simulate"].deviation is None


def test_no_collective_is_due_after_it_was_done() -> None:
    rows = small_rows(1)
    rows.extend(small_rows(2, slower_ns=ALL_REDUCE_NS))
    bound_ns = ALL_REDUCE_NS * 3 // 2
    row = row_of(
        summarize_run(measurements(rows), bound=lambda _: bound_ns),
        CollectiveOp.ALL_REDUCE,
    )
    assert row.bound_ns == (ALL_REDUCE_NS + bound_ns) / 2
    assert row.bound_share == row.bound_ns / row.time_ns < 1


def test_skew_is_computed_for_collectives_only() -> None:
    found = measurements(run())
    records = [record._replace(start_spread_ns=50) for record in found.collectives]
    summary = summarize_run(replace(found, collectives=records, facts=FACTS))
    assert row_of(summary, CollectiveOp.ALL_REDUCE).skew_ns == 50
    assert row_of(summary, CollectiveOp.SEND_RECV).skew_ns is None


def test_a_simulation_has_no_verdicts() -> None:
    summary = summarize_run(measurements(run(), world="simulate"))
    assert (summary.verdicts, summary.generator_bound) == (0, 0)


def test_a_run_without_measured_collectives_has_no_rows() -> None:
    summary = summarize_run(measurements(small_rows(0)))
    assert (summary.rows, summary.average_busbw, summary.iterations) == ((), None, ())
    assert array("q") == measurements(RecordRows()).completion_times.get(
        WORLD, array("q")
    )


def test_a_group_of_one_rank_has_no_bandwidth() -> None:
    found = measurements(run())
    alone = [
        record._replace(
            identity=replace(record.identity, nranks=1, shares=1),
            shares=1,
            end_ns=record.start_ns,
        )
        for record in found.collectives
        if record.identity.key == EP0
    ]
    (row,) = summarize_run(
        replace(found, collectives=alone), predictions={"simulate": {EP0: 1}}
    ).rows
    assert (row.time_ns, row.algbw, row.busbw) == (0, None, None)
    assert row.predictions == {}


def test_without_flows_there_are_no_completion_times() -> None:
    found = replace(measurements(run()), completion_times={})
    assert [row.completion for row in summarize_run(found).rows] == [None] * 3


def test_a_saturated_process_is_a_banner() -> None:
    generator = GeneratorSummary(
        pacing_error_p99_ns=None,
        generator_lag_p99_ns=None,
        generator_lag_max_ns=0,
        round_trip_p50_ns=None,
        round_trip_p99_ns=None,
        busy_share=0.97,
        cpu_share=1,
        socket_drops=0,
        send_retries=0,
        saturated=(
            SaturatedProcess(agent="h1", shard=2, busy_share=0.97),
            SaturatedProcess(agent="h0", shard=0, busy_share=0.93),
        ),
    )
    facts = RunFacts(run_id="r", name="n", world="simulate")
    (banner,) = banners(facts, (), 0, generator)
    assert banner == (
        "GENERATOR SATURATED: data-plane process 2 of agent h1 (and 1 more) was busy "
        "for 97 % of the time in which its ranks communicated: this process, not the "
        "network, may be the limit"
    )
    assert banners(facts, (), 0, None) == ()


def test_drops_belong_to_hosts_whatever_the_names_of_switches() -> None:
    links = [
        LinkRecord(
            link=name, kind="host", direction=direction, port=port, drops=drops,
            bytes_before=0, bytes_after=0,
        )
        for name, direction, port, drops in (
            ("h0-sw-1", "up", "h0:eth0", 3), ("h0-sw-1", "down", "sw-1:p0", 4),
            # Older runs do not record ports.
            ("h1-sw1", "down", None, 5),
        )
    ]  # fmt: skip
    transport = MessageTransport(
        path_mtu=4096,
        verb="write",
        overhead_bytes=0,
        ports={
            ("j", rank): PortFacts(number=rank, host=f"h{rank}", rate_bps=None)
            for rank in (0, 1)
        },
    )
    messages = [
        SentMessage("j", src, 1 - src, size_bytes=1, posted_ns=0, acked_ns=1)
        for src in (0, 1)
    ]
    found = summarize_run(
        Measurements(
            facts=FACTS, collectives=(), links=links, messages=messages,
            transport=transport,
        )
    ).messages  # fmt: skip
    assert found is not None
    assert [each.drops for each in found.senders] == [3, None]
    assert [each.drops for each in found.receivers] == [4, 5]


def test_longest_iterations_are_not_those_of_a_background_job() -> None:
    made = measurements(run())
    summary = summarize_run(made)
    assert summary.longest == summary.iterations[0]
    assert not summary.iterations[0].is_background
    summary = summarize_run(replace(made, background=("moe",)))
    assert summary.longest is None
    assert summary.iterations[0].is_background
