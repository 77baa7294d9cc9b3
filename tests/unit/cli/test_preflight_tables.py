from __future__ import annotations

import io
from itertools import permutations

import pytest
from rich.console import Console

from chakram.cli.preflight_tables import print_report
from chakram.preflight.report import (
    FAILED,
    UNPROVEN,
    Finding,
    PairReport,
    PreflightReport,
)
from chakram.preflight.settings import PreflightSettings


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
    assert "path MTU that passes (bytes)" in text
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
