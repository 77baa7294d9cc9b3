"""Measurements of faulty fabrics in virtual time."""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from chakram.foundation.errors import PeerError
from chakram.plan.placement import place
from chakram.plan.plan import RunSettings
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.preflight.pair_results import Measured, expected_bps, report_of
from chakram.preflight.rate_measurements import JOB, Figures, measurement, read_flows
from chakram.preflight.report import PreflightSettings
from chakram.preflight.rounds import all_rounds, shifted
from chakram.program.program_check import ProgramChecks
from chakram.records.row_layout import FLOW_FIELDS
from chakram.topology.topology_helpers import single_switch
from tests.unit.preflight.ports import MBIT, TRANSPORT, ports

if TYPE_CHECKING:
    from collections.abc import Collection

    from chakram.preflight.rate_measurements import Measurement

COUNT = 4
SETTINGS = PreflightSettings(
    path_mtu=1024, check_mtu=False, check_classes=False, pings=5
)
SIZE_BYTES = 128 * 1024
DELAY_NS = 5_000

Pairs = set[tuple[int, int]]
ALL: Pairs = set(permutations(range(COUNT), 2))


def measured_over(
    *, reached: Collection[tuple[int, int]] = ALL, passes: Collection[tuple[int, int]]
) -> Measurement:
    return measurement(
        rounds=all_rounds(COUNT),
        reached=reached,
        passes=passes,
        permutation=shifted(range(COUNT)),
        size_of=lambda _: SIZE_BYTES,
        settings=SETTINGS,
    )


def simulated(
    programs: Measurement, *, slow: int | None = None
) -> tuple[dict[tuple[int, int], Figures], dict[tuple[int, int], Figures]]:
    """Return the measurements of a star whose host *slow* has a tenth of the rate."""
    for program in programs.programs:
        assert ProgramChecks().problems(program) == []
    star = single_switch(COUNT, 100 * MBIT, host_delay_ns=DELAY_NS)
    links = tuple(
        replace(link, rate_bps=10 * MBIT)
        if slow is not None and f"h{slow}" in (link.a.node, link.b.node)
        else link
        for link in star.links
    )
    found = ports(COUNT)
    plan = place(
        {JOB: programs.programs},
        [found[program.rank] for program in programs.programs],
        {},
        TRANSPORT,
        RunSettings(warmup=0, measured=1, sync="free"),
        shards={},
        run_id="r",
    )
    result = simulate_plan(plan, replace(star, links=links), seed=1)
    return read_flows(result.records.flows, programs)


def test_every_pair_reaches_the_rate_of_its_links() -> None:
    alone, together = simulated(measured_over(passes=ALL))

    found = ports(COUNT)
    assert set(alone) == ALL
    assert set(together) == set(shifted(range(COUNT)))
    for (a, b), figures in [*alone.items(), *together.items()]:
        expected = expected_bps(
            found[a], found[b], TRANSPORT, size_bytes=figures.size_bytes
        )
        assert expected is not None
        goodput = figures.size_bytes * 8e9 / figures.elapsed_ns
        assert 0.96 < goodput / expected <= 1.0
        assert figures.retransmitted == 0
    for figures in alone.values():
        assert len(figures.round_trips_ns) == SETTINGS.pings
        # Twice over two links, and the packets themselves.
        assert all(4 * DELAY_NS < each < 60_000 for each in figures.round_trips_ns)


def test_only_pairs_of_a_slow_link_are_slow() -> None:
    measured = Measured(tested=ALL)
    measured.alone, measured.together = simulated(measured_over(passes=ALL), slow=2)

    report = report_of(ports(COUNT), measured, transport=TRANSPORT, settings=SETTINGS)

    rates = [each for each in report.findings if each.check == "rate"]
    (finding,) = rates
    assert finding.where == "h2 <-> all others"
    assert finding.found.startswith("less than 90% of its nominal rate: 10% (9.")


def test_pairs_of_a_lost_agent_have_no_figures() -> None:
    measured = Measured(tested=ALL, absent={"a2": "it is gone"})
    measured.alone, measured.together = simulated(measured_over(passes=ALL))

    report = report_of(ports(COUNT), measured, transport=TRANSPORT, settings=SETTINGS)

    named = {each.source for each in report.pairs}
    assert named == {each.destination for each in report.pairs} == {"h0", "h1", "h3"}
    first = report.findings[0]
    assert (first.check, first.found) == ("agent", "it is gone")


def test_pairs_that_lose_long_packets_are_skipped() -> None:
    short = {pair for pair in ALL if pair[0] == 1}

    alone, together = simulated(measured_over(passes=ALL - short))

    assert {pair for pair, each in alone.items() if each.size_bytes} == ALL - short
    assert all(each.round_trips_ns for each in alone.values())
    assert set(together) == {pair for pair in shifted(range(COUNT)) if pair[0] != 1}


def test_isolated_port_is_skipped() -> None:
    reached = {pair for pair in ALL if 3 not in pair}

    programs = measured_over(reached=reached, passes=reached)
    alone, _ = simulated(programs)

    assert [program.rank for program in programs.programs] == [0, 1, 2]
    assert set(alone) == reached


def test_disconnected_parts_are_measured_separately() -> None:
    reached = {(0, 1), (1, 0), (2, 3), (3, 2)}

    alone, _ = simulated(measured_over(reached=reached, passes=reached))

    assert set(alone) == reached


def test_messages_need_both_directions() -> None:
    programs = measured_over(reached={(0, 1), (1, 2), (2, 1)}, passes=ALL)

    assert [program.rank for program in programs.programs] == [1, 2]


def flows(*rows: dict[str, int]) -> array[int]:
    return array("q", [row.get(name, 0) for row in rows for name in FLOW_FIELDS])


def operation_of(programs: Measurement, kind: str, pair: tuple[int, int]) -> list[int]:
    """Return the operations of the sender that measure something of a pair."""
    return [
        operation
        for (_, operation), message in programs.messages.items()
        if (message.kind, message.pair) == (kind, pair)
    ]


def test_parts_of_a_message_are_one_message() -> None:
    programs = measured_over(passes=ALL)
    (rate,) = operation_of(programs, "rate", (1, 0))
    (together,) = operation_of(programs, "permutation", (1, 3))
    usual = {"rank": 1, "size_bytes": 1000, "packets": 4, "retransmitted": 1}

    alone, all_at_once = read_flows(
        flows(
            {**usual, "operation": rate, "first_sent_ns": 500, "last_acked_ns": 900}
            | {"generator_wait_ns": 20},
            {**usual, "operation": rate, "first_sent_ns": 400, "last_acked_ns": 800}
            | {"generator_wait_ns": 3},
            {**usual, "operation": rate, "first_sent_ns": 600, "last_acked_ns": 700},
            {**usual, "operation": together, "first_sent_ns": 7, "last_acked_ns": 9},
        ),
        programs,
    )

    # From the first packet of any part to the last acknowledgment.
    assert alone == {
        (1, 0): Figures(
            size_bytes=3000,
            elapsed_ns=500,
            packets=12,
            retransmitted=3,
            generator_wait_ns=23,
        )
    }
    assert all_at_once == {
        (1, 3): Figures(size_bytes=1000, elapsed_ns=2, packets=4, retransmitted=1)
    }


def test_first_round_trip_is_excluded_in_any_order() -> None:
    programs = measured_over(passes=ALL)
    first, *others = operation_of(programs, "ping", (2, 0))
    times = [(100, 190), *((200 + 10 * n, 230 + 11 * n) for n in range(len(others)))]

    rows = [
        {"rank": 2, "operation": operation, "first_sent_ns": a, "last_acked_ns": b}
        for operation, (a, b) in zip([first, *others], times, strict=True)
    ]
    alone, _ = read_flows(flows(*reversed(rows)), programs)

    assert alone[2, 0].round_trips_ns == [30 + n for n in range(len(others))]
    assert alone[2, 0].size_bytes == 0


@pytest.mark.parametrize(("rank", "operation"), [(-1, 0), (COUNT, 0), (0, 10_000)])
def test_unplanned_flow_is_refused(rank: int, operation: int) -> None:
    with pytest.raises(PeerError, match=f"name operation {operation}"):
        read_flows(
            flows({"rank": rank, "operation": operation}), measured_over(passes=ALL)
        )


def test_barriers_between_rounds_are_not_measured() -> None:
    programs = measured_over(passes=ALL)
    meeting = next(
        operation for operation in range(10) if (0, operation) not in programs.messages
    )

    assert read_flows(flows({"rank": 0, "operation": meeting}), programs) == ({}, {})
