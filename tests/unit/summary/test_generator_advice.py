"""Rate or dilation at which a machine would have kept up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.records.run_records import (
    CollectiveIdentity,
    CollectiveKey,
    CollectiveRecord,
    RankRecord,
)
from chakram.summary.generator_advice import KeepingUp, keeping_up, slowdown_needed
from chakram.summary.generator_health import GeneratorSummary, SaturatedProcess
from chakram.summary.message_summary import PortFacts
from chakram.summary.result_warnings import banners
from chakram.summary.run_summary import RunFacts

IDENTITY = CollectiveIdentity(
    key=CollectiveKey("j", "world", 0),
    name="",
    op=CollectiveOp.ALL_REDUCE,
    algorithm="ring",
    nranks=2,
    root=None,
    input_bytes=1,
    trace_bytes=1,
    shares=2,
)


def record(wait_ns: int, time_ns: int = 1000, **more: object) -> CollectiveRecord:
    found = CollectiveRecord(
        identity=IDENTITY,
        iteration=1,
        measured=True,
        shares=2,
        start_ns=0,
        end_ns=time_ns,
        mean_duration_ns=time_ns,
        start_spread_ns=0,
        sent_bytes=1000,
        packets=1,
        retransmitted=0,
        ce=0,
        generator_wait_ns=wait_ns,
        critical=None,
    )
    return found._replace(**more)  # type: ignore[arg-type] # any of its fields


def health(busy_share: float, *, saturated: bool = False) -> GeneratorSummary:
    process = SaturatedProcess(agent="a", shard=0, busy_share=busy_share)
    return GeneratorSummary(
        pacing_error_p99_ns=None,
        generator_lag_p99_ns=None,
        generator_lag_max_ns=0,
        round_trip_p50_ns=None,
        round_trip_p99_ns=None,
        busy_share=busy_share,
        cpu_share=1.0,
        socket_drops=0,
        send_retries=0,
        saturated=(process,) if saturated else (),
    )


def found(
    collectives: list[CollectiveRecord],
    *,
    rate_bps: int | None = 10**9,
    generator: GeneratorSummary | None = None,
    dilation: int = 1,
    stretches: bool = True,
) -> KeepingUp | None:
    rank = RankRecord(
        number=0,
        job="j",
        rank=0,
        iteration=1,
        measured=True,
        start_ns=0,
        end_ns=1000,
        compute_ns=0,
        communication_ns=1000,
        exposed_ns=1000,
        idle_ns=0,
    )
    return keeping_up(
        collectives,
        ranks=[rank],
        ports=[PortFacts(number=0, host="h", rate_bps=rate_bps)],
        generator=generator,
        dilation=dilation,
        stretches=stretches,
    )


@pytest.mark.parametrize(
    ("wait_ns", "factor"),
    [
        (0, 1.0),
        (50, 1.0),  # 5 %: it keeps up
        (100, 2.2),  # 0.95 x 100 / (0.05 x 900) = 2.11
        (500, 19.0),
        (999, 19_000.0),
        (1000, 19_000.0),  # no part is the network's
        (2000, 38_000.0),
    ],
)
def test_slowdown_factor_leaves_time_for_the_generator(
    wait_ns: int, factor: float
) -> None:
    needed = slowdown_needed([record(wait_ns)])
    assert needed == factor
    if wait_ns < 999:
        slower_ns = needed * (1000 - wait_ns) + wait_ns
        assert not record(wait_ns, round(slower_ns)).generator_bound


def test_few_collectives_do_not_determine_the_advice() -> None:
    assert slowdown_needed([record(10)] * 95 + [record(900)] * 5) == 1.0
    assert slowdown_needed([record(10)] * 94 + [record(500)] * 6) == 19.0
    assert slowdown_needed([]) == 1.0


def test_saturated_process_needs_an_additional_margin() -> None:
    assert slowdown_needed([record(0)], busy_share=1.0) == 1.2
    assert slowdown_needed([record(0)], busy_share=0.9) == 1.0


def test_generator_that_kept_up_needs_no_advice() -> None:
    assert found([record(50)], generator=health(0.85)) is None
    barrier = replace(IDENTITY, op=CollectiveOp.BARRIER)
    assert found([record(900, identity=barrier)]) is None
    assert found([record(900, measured=False)]) is None
    assert found([record(900, shares=1)]) is None


def test_rate_and_dilation_advice_are_equivalent() -> None:
    assert found([record(500)]) == KeepingUp(
        slowdown=19.0, dilation=19, port_rate_bps=52_000_000
    )
    # Ports had 1 Gbit/s of stretched time.
    assert found([record(100)], dilation=4) == KeepingUp(
        slowdown=2.2, dilation=9, port_rate_bps=1_800_000_000
    )
    external = found([record(500)], stretches=False)
    assert external is not None
    assert external.dilation is None


def test_a_saturated_process_is_enough() -> None:
    assert found([record(0)], generator=health(0.99, saturated=True)) == KeepingUp(
        slowdown=1.1,
        dilation=2,
        port_rate_bps=900_000_000,
        idle_share=pytest.approx(0.01),
    )


def test_ports_without_a_rate_get_one() -> None:
    # 1000 bytes in 1000 ns of communication are 8 Gbit/s, at 80 % busy.
    assert found([record(900)], rate_bps=None, generator=health(0.8)) == KeepingUp(
        slowdown=None,
        dilation=None,
        port_rate_bps=5_000_000_000,
        idle_share=pytest.approx(0.2),
    )


def test_advice_is_omitted_if_other_programs_used_the_machine() -> None:
    crowded = found([record(500)], generator=health(0.3))
    assert crowded is not None
    assert (crowded.slowdown, crowded.dilation, crowded.port_rate_bps) == (None,) * 3
    # A few times slower may well be what short waits of timers need.
    mended = found([record(100)], generator=health(0.3))
    assert mended is not None
    assert mended.slowdown == 2.2
    assert found([record(500)], generator=health(0.6)) == KeepingUp(
        slowdown=19.0,
        dilation=19,
        port_rate_bps=52_000_000,
        idle_share=pytest.approx(0.4),
    )


FACTS = RunFacts(
    run_id="r", name="n", world="namespaces", rate_key="fabric.links.host.rate"
)


@pytest.mark.parametrize(
    ("remedy", "told"),
    [
        (
            KeepingUp(slowdown=3.2, dilation=4, port_rate_bps=156_000_000),
            ". At 1/3.2 of its rates (ports of 156Mbit, or --set fabric.dilation=4) "
            "this machine would have kept up",
        ),
        (
            KeepingUp(slowdown=3.2, dilation=None, port_rate_bps=7_800_000_000),
            ". At 1/3.2 of its rates (ports of 7.8Gbit), or with 3.2 times as many "
            "cores, these hosts would have kept up",
        ),
        (
            KeepingUp(slowdown=None, dilation=None, port_rate_bps=10**9),
            "with --set fabric.links.host.rate=1Gbit this machine would have kept up",
        ),
        (
            KeepingUp(slowdown=1.0, dilation=1, port_rate_bps=10**9, idle_share=0.8),
            "a slower fabric would not help: check what else runs on this machine",
        ),
        (
            KeepingUp(slowdown=None, dilation=None, port_rate_bps=None, idle_share=0.8),
            ". Its busiest process was busy for only 20 % of the time: it waited for "
            "processors that other processes used, so a slower fabric may not help; "
            "check what else runs there",
        ),
    ],
)
def test_banner_contains_the_advice(remedy: KeepingUp, told: str) -> None:
    saturated = health(0.95, saturated=True)
    (banner,) = banners(FACTS, [], 0, saturated, remedy)
    assert banner.startswith("GENERATOR SATURATED: ")
    assert banner.endswith(told)
