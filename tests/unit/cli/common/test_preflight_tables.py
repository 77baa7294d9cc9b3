from __future__ import annotations

import io
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from rich.console import Console

from chakram.cli.common.preflight_tables import print_report
from chakram.preflight.report import (
    FAILED,
    UNPROVEN,
    Finding,
    PairReport,
    PreflightReport,
    PreflightSettings,
)


def report(
    count: int, *findings: Finding, slow: tuple[str, str] | None = None
) -> PreflightReport:
    """Return a report of ports p0, p1, ..., one pair of them slower."""
    names = tuple(f"p{number}" for number in range(count))
    return PreflightReport(
        ports=names,
        pairs=tuple(
            PairReport(
                source=source,
                destination=destination,
                probes_sent=10,
                probes_arrived=10,
                path_mtu=4096,
                goodput_bps=12e6 if (source, destination) == slow else 98e6,
                expected_bps=100e6,
                round_trip_p50_ns=20_000,
                round_trip_p99_ns=50_000,
                jitter_ns=500.0,
                packets=100,
            )
            for source, destination in permutations(names, 2)
        ),
        findings=findings,
        settings=PreflightSettings(path_mtu=4096),
    )


def printed(of: PreflightReport) -> str:
    out = io.StringIO()
    print_report(of, Console(file=out, width=200))
    return out.getvalue()


def finding(verdict: str = FAILED, where: str = "p1 -> p0") -> Finding:
    return Finding(
        check="rate",
        verdict=verdict,
        where=where,
        found="slow",
        hint="look",
        pairs=(("p1", "p0"),),
    )


def test_a_sound_fabric_has_a_matrix_of_each_figure_and_passes() -> None:
    text = printed(report(3))

    assert "goodput (Mbit/s): row sends, column receives" in text
    assert "median round trip (us)" in text
    assert "path MTU (bytes)" in text
    assert text.count("98.0") == 6
    assert text.count("4096 ") >= 6
    assert text.endswith("preflight passed\n")


@pytest.mark.parametrize(
    ("verdict", "end"),
    [
        (FAILED, "preflight failed\n"),
        (UNPROVEN, "preflight passed, but not everything could be proven\n"),
    ],
)
def test_findings_are_sentences_and_a_verdict(verdict: str, end: str) -> None:
    text = printed(report(3, finding(verdict), slow=("p1", "p0")))

    assert f"{verdict} rate: p1 -> p0: slow (look)" in text
    assert "1 of 6" in text
    assert "12% to 98%" in text
    assert text.endswith(end)


def test_of_many_ports_the_worst_pairs_are_listed_first() -> None:
    text = printed(report(17, finding(), slow=("p16", "p3")))

    assert "the worst of 272 pairs" in text
    rows = [line for line in text.splitlines() if " -> " in line and "│" in line]
    assert len(rows) == 16
    assert "p1 -> p0" in rows[0]  # what has failed
    assert "p16 -> p3" in rows[1]  # then what is slowest
    assert "12%" in rows[1]


def test_many_findings_are_cut_with_their_number() -> None:
    several = [finding(where=f"p{number} -> p0") for number in range(30)]

    text = printed(report(3, *several))

    assert "p23 -> p0" in text
    assert "p24 -> p0" not in text
    assert "and 6 more findings" in text


def test_nothing_has_passed_that_was_not_measured() -> None:
    names = ("p0", "p1")
    nothing = PreflightReport(
        ports=names,
        pairs=tuple(
            PairReport(source=source, destination=destination, probes_sent=10)
            for source, destination in permutations(names, 2)
        ),
        findings=(),
        settings=PreflightSettings(path_mtu=4096),
    )
    checks = printed(nothing).partition("checks")[2].splitlines()

    verdicts = {
        line.split("│")[1].strip(): line.split("│")[2].strip()
        for line in checks
        if line.count("│") > 4
    }
    assert verdicts.pop("reach") == "passed"
    assert verdicts
    assert set(verdicts.values()) == {"-"}


def cells_of(text: str, title: str) -> dict[str, list[str]]:
    """Return by their first cell the rows of the table below a title."""
    lines = text[text.index(title) :].splitlines()
    rows: dict[str, list[str]] = {}
    for line in lines[1:]:
        if line.startswith("└"):
            break
        if line.startswith("│"):
            first, *others = (cell.strip() for cell in line.strip("│").split("│"))
            rows[first] = others
    return rows


def one_pair(**figures: Any) -> PreflightReport:
    """Return a report in which only the way from p0 to p1 was measured."""
    return PreflightReport(
        ports=("p0", "p1"),
        pairs=(PairReport(source="p0", destination="p1", **figures),),
        findings=(),
        settings=PreflightSettings(path_mtu=4096),
    )


@pytest.mark.parametrize(
    ("goodput_bps", "unit", "cell"),
    [
        (None, "Mbit/s", "-"),
        (123_456.0, "Mbit/s", "0.123"),
        (1e6, "Mbit/s", "1.00"),
        (9.99e6, "Mbit/s", "9.99"),
        (10e6, "Mbit/s", "10.0"),
        (999.94e6, "Mbit/s", "999.9"),
        (1e9, "Gbit/s", "1.00"),
        (123.4e9, "Gbit/s", "123.4"),
    ],
)
def test_rates_have_the_unit_of_the_fastest_and_three_digits(
    goodput_bps: float | None, unit: str, cell: str
) -> None:
    text = printed(one_pair(goodput_bps=goodput_bps))

    rows = cells_of(text, f"goodput ({unit})")
    assert rows["p0"] == ["", cell]
    # Nobody measured the way back.
    assert rows["p1"] == ["-", ""]


def test_a_matrix_has_who_sends_in_rows() -> None:
    text = printed(
        one_pair(round_trip_p50_ns=12_345, round_trip_p99_ns=1, path_mtu=1024)
    )

    assert cells_of(text, "median round trip (us)")["p0"] == ["", "12.3"]
    assert cells_of(text, "path MTU (bytes)")["p0"] == ["", "1024"]


@pytest.mark.parametrize("check", ["rate", "latency", "mtu"])
def test_what_was_not_tested_has_no_matrix(check: str) -> None:
    all_of_them = printed(one_pair())
    settings = PreflightSettings(path_mtu=4096, **{f"check_{check}": False})

    text = printed(replace(one_pair(), settings=settings))

    titles = {
        "rate": "goodput (",
        "latency": "median round trip (us)",
        "mtu": "path MTU (bytes)",
    }
    assert titles[check] in all_of_them
    assert titles[check] not in text
    assert all(title in text for name, title in titles.items() if name != check)


def test_up_to_16_ports_there_is_a_matrix() -> None:
    assert "row sends" in printed(report(16))
    assert "row sends" not in printed(report(17))


def test_a_bad_pair_is_listed_with_all_its_figures() -> None:
    text = printed(report(17, finding(), slow=("p16", "p3")))
    lost = replace(
        report(17),
        pairs=(
            PairReport(
                source="p0",
                destination="p1",
                probes_sent=10,
                probes_arrived=7,
                retransmitted=4,
                goodput_bps=99e6,
                expected_bps=100e6,
                round_trip_p50_ns=20_000,
                round_trip_p99_ns=50_000,
                jitter_ns=500.0,
                path_mtu=512,
            ),
            PairReport(source="p1", destination="p0"),
        ),
    )

    rows = cells_of(printed(lost), "the worst of 2 pairs")
    assert rows["p0 -> p1"] == [
        *("99Mbit/s", "99%", "20.0, 50.0 us", "0.500 us", "512", "3", "4")
    ]
    assert rows["p1 -> p0"] == ["-", "-", "-, - us", "- us", "-", "0", "0"]
    assert list(rows) == ["p0 -> p1", "p1 -> p0"]
    assert cells_of(text, "the worst of")["p16 -> p3"][:2] == ["12Mbit/s", "12%"]


def test_of_pairs_as_fast_the_one_that_answers_late_is_worse() -> None:
    pairs = tuple(
        PairReport(
            source=f"p{number}",
            destination="p0",
            goodput_bps=90e6,
            expected_bps=100e6,
            round_trip_p50_ns=number * 1000,
            round_trip_p99_ns=number * 1000,
        )
        for number in (1, 3, 2)
    )

    rows = cells_of(printed(replace(report(17), pairs=pairs)), "the worst of 3 pairs")

    assert list(rows) == ["p3 -> p0", "p2 -> p0", "p1 -> p0"]


def test_checks_are_told_with_what_was_demanded_and_measured() -> None:
    pairs = tuple(
        PairReport(
            source=source,
            destination=destination,
            probes_sent=10,
            probes_arrived=10 - number,
            path_mtu=mtu,
            classes=((106, 106, 3), (104 + number, 106, 1)),
            goodput_bps=90e6,
            expected_bps=100e6,
            together_bps=(40 + 20 * number) * 1e6,
            round_trip_p50_ns=10_000 + 2_000 * number,
            round_trip_p99_ns=30_000 + 2_000 * number,
            packets=100,
            retransmitted=number,
        )
        for number, (source, destination, mtu) in enumerate(
            [("p0", "p1", 4096), ("p1", "p0", 1024)]
        )
    )
    asked = PreflightReport(
        ports=("p0", "p1"),
        pairs=pairs,
        findings=(finding(),),
        settings=PreflightSettings(
            path_mtu=4096,
            max_latency_ns=12_500,
            max_loss_share=0.005,
            min_permutation_share=0.5,
        ),
    )

    assert cells_of(printed(asked), "checks") == {
        "reach": ["passed", "", "all paths", "1 of 20 probes lost"],
        "mtu": ["passed", "", "path MTU 4096", "1024 to 4096"],
        "dscp": ["passed", "", "unchanged", "3 packet types"],
        "ecn": ["passed", "", "unchanged", "3 packet types"],
        "latency": [
            *("passed", "", "p50 <= 12.5 us", "p50 10 to 12 us, p99 up to 32 us")
        ],
        "rate": ["failed", "1 of 2", ">= 90% of the links", "90% to 90%"],
        "loss": ["passed", "", "<= 0.50%", "1 retransmission for 200 packets"],
        "permutation": ["passed", "", ">= 50% of the links", "40% to 60%"],
    }
