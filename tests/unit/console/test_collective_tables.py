"""The table on the console and its JSON twin."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.console.collective_tables import render_table
from chakram.console.summary_document import summary_document
from chakram.records.run_records import LinkRecord
from chakram.summary.generator_health import GeneratorSummary
from chakram.summary.run_summary import (
    Measurements,
    Prediction,
    RunFacts,
    Summary,
    Verification,
)
from chakram.summary.summarize_messages import summarize_messages
from chakram.summary.summarize_run import summarize_run
from tests.golden.test_message_tables import incast
from tests.unit.summary.test_summarize_messages import JOB, transport
from tests.unit.summary.test_summarize_run import WORLD, measurements, run

HOST = LinkRecord(
    link="leaf1-h1", kind="host", direction="up", bytes_before=0, bytes_after=1, drops=3
)


def summary(**facts: object) -> Summary:
    found = measurements(run(retransmitted=1), **facts)
    links = [
        LinkRecord(
            link=f"leaf{leaf}-spine1",
            kind="uplink",
            direction="up",
            bytes_before=0,
            bytes_after=leaf * 10**6,
        )
        for leaf in (1, 2)
    ]
    return summarize_run(
        replace(found, links=[*links, HOST]),
        bound=lambda identity: 380_000 if identity.key == WORLD else None,
        alone=lambda identity: 390_000 if identity.key == WORLD else None,
        predictions={"simulate": {WORLD: 395_000}},
    )


def data_lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if not line.startswith("#")]


def test_first_columns_equal_those_of_nccl_tests() -> None:
    reduce, exchange, message = data_lines(render_table(summary()))
    # size count type redop root time algbw busbw #wrong
    assert reduce[:9] == (
        ["1048576", "1048576", "uint8", "sum", "-1", "400.00", "2.621", "3.932", "N/A"]
    )
    assert exchange[:5] == ["262144", "131072", "uint8", "none", "-1"]
    assert message[:5] == ["65536", "65536", "uint8", "none", "-1"]


def test_our_columns_come_last() -> None:
    reduce, exchange, _ = data_lines(render_table(summary()))
    # skew, bound %bound alone %alone simulated dev, FCT p50 p99 p100, retx n cv
    assert reduce[10:14] == ["380.00", "95.0", "390.00", "97.5"]
    assert reduce[14:16] == ["395.00", "+1.3"]
    assert reduce[16:19] == ["66.67", "66.67", "66.67"]
    assert reduce[19:] == ["0", "3", "0.0"]
    assert exchange[10:16] == ["N/A"] * 6
    assert exchange[19] == "12"


def test_path_draws_are_shown() -> None:
    small = summary()
    prediction = Prediction(time_ns=1.0, deviation=0.0, draws=5)
    row = replace(small.rows[0], predictions={"simulate": prediction})
    assert "median of 5 simulations of unknown paths" in render_table(
        replace(small, rows=(row,))
    )
    assert "of unknown paths" not in render_table(small)


def test_lines_are_aligned_and_fit() -> None:
    text = render_table(summary())
    data = [line for line in text.splitlines() if not line.startswith("#")]
    headings = [line for line in text.splitlines() if "#wrong" in line]
    assert len(headings) == 1
    assert {len(line) for line in data} == {len(headings[0])}


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_tables_take_no_more_than_the_width(width: int) -> None:
    many = [
        replace(row, job=f"job{number}", generator_bound=1, size_bytes=2**33 + number)
        for number, row in enumerate(summary().rows * 3)
    ]
    messages = summarize_messages(
        incast(7, 5), transport(8), marked={(JOB, 1, 0): 12}, drops={}
    )
    big = replace(
        summary(), rows=tuple(many), generator_bound=9, messages=messages, banners=()
    )
    text = render_table(big, width=width)
    table = [
        line
        for line in text.splitlines()
        if not line.startswith("# ") or line.startswith("#  ")
    ]
    assert len(table) > 30
    assert max(map(len, table)) <= width
    assert (" FCT p100" in text) == (width == 200)
    assert " redop" in text or width < 120
    # Columns of nccl-tests are all there, or only the first and those of results.
    for line in text.splitlines():
        if "#wrong" in line:
            names = line.removeprefix("#").split()
            first = ["size", "time", "algbw", "busbw", "#wrong"]
            whole = ["size", "count", "type", "redop", "root", *first[1:]]
            assert names[:9] == whole or (names[:5] == first and width < 120)


def test_pipes_have_the_references_that_the_readme_explains() -> None:
    rows = [
        replace(
            row,
            size_bytes=2**27,
            time_ns=176_903_000,
            bound_ns=85_414_000,
            alone_ns=85_414_000,
            generator_bound=1,
        )
        for row in summary().rows[:1]
    ]
    text = render_table(
        replace(summary(), rows=tuple(rows), generator_bound=1), width=120
    )
    (names,) = (line.split() for line in text.splitlines() if "#wrong" in line)
    assert {"redop", "bound", "%alone", "simulated", "dev", "retx"} <= {*names}


@pytest.mark.parametrize(
    ("deviation", "text"),
    [
        (0.0134, "+1.3"),
        (-0.5, "-50.0"),
        (1.842, "+184"),
        (9.99, "+999"),
        (29.32, ">+999"),
        (None, "N/A"),
    ],
)
def test_deviations_have_significant_digits(deviation: float | None, text: str) -> None:
    small = summary()
    row = replace(
        small.rows[0],
        predictions={"simulate": Prediction(time_ns=1.0, deviation=deviation)},
    )
    (line,) = data_lines(render_table(replace(small, rows=(row,))))
    assert line[15] == text


def test_a_simulation_has_no_generator() -> None:
    text = render_table(summary(world="simulate"))
    assert "Generator" not in text
    assert summary_document(summary(world="simulate"))["generator_bound"] is None


def test_headlines_name_algorithm_and_groups() -> None:
    text = render_table(summary())
    assert "# all_reduce: ring, 1 group of 4 ranks\n" in text
    assert "# all_to_all: direct, 2 groups of 2 ranks\n" in text
    assert "# send_recv: 1 pair of ranks\n" in text


def test_footer_shows_the_rest() -> None:
    text = render_table(summary(directory="runs/x"))
    for expected in (
        "# Out of bounds values : N/A (not checked)",
        "# Iteration: mean 750.0 us, p50 750.0 us, p99 750.0 us, max 750.0 us, CV 0.0",
        "# Exposed communication: 72.4 % of the iteration, 525.0 us per rank",
        "# Packets: 5040 sent, 12 retransmitted (0.238 %), 60 marked for congestion",
        "# Uplinks: 2 directions, max/mean 1.333, Jain 0.9000",
        "#   leaf2-spine1 up          2.000 MB",
        "# Drops: 3 in link queues",
        "# Generator: kept up with all 12 collectives",
        "# Run directory: runs/x",
        "# Run complete.",
    ):
        assert expected in text


def health(**values: object) -> GeneratorSummary:
    usual = GeneratorSummary(
        pacing_error_p99_ns=16_000,
        generator_lag_p99_ns=64_000,
        generator_lag_max_ns=70_500,
        round_trip_p50_ns=32_000,
        round_trip_p99_ns=128_000,
        busy_share=0.63,
        cpu_share=0.98,
        socket_drops=0,
        send_retries=0,
    )
    return replace(usual, **values)  # type: ignore[arg-type] # any of its fields


def generator_lines(found: GeneratorSummary | None) -> list[str]:
    lines = render_table(replace(summary(), generator=found)).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("# Generator"))
    return lines[first:-1]


def test_generator_health_is_shown() -> None:
    kept_up = (
        "# Generator: kept up with all 12 collectives (waits of at most 5 % of their "
        "time)"
    )
    assert generator_lines(None) == [kept_up]
    assert generator_lines(health()) == [
        kept_up,
        "# Generator: pacing error p99 <= 16.00 us, loop lag p99 <= 64.00 us "
        "(max 70.50 us); busy 63.0 %, CPU 98.0 % of the busiest process",
        "# Round trips: p50 <= 32.00 us, p99 <= 128.0 us",
    ]
    unpaced = health(pacing_error_p99_ns=None, socket_drops=2, send_retries=3)
    assert generator_lines(unpaced)[1:] == [
        "# Generator: pacing error p99 N/A, loop lag p99 <= 64.00 us (max 70.50 us); "
        "busy 63.0 %, CPU 98.0 % of the busiest process",
        "# Round trips: p50 <= 32.00 us, p99 <= 128.0 us",
        "# Sockets: 2 packets dropped on arrival, 3 failed sends (no buffer space, or "
        "interface down)",
    ]


def test_times_above_the_last_bucket_are_marked() -> None:
    found = health(
        round_trip_p50_ns=67_108_864_000,
        round_trip_p99_ns=67_108_864_000,
        beyond=("round_trip_p99_ns",),
    )
    assert generator_lines(found)[-1] == (
        "# Round trips: p50 <= 67.11 s, p99 > 67.11 s"
    )


def test_banners_precede_everything_else() -> None:
    text = render_table(summary(status="partial", reason="loss", size_scale="1/4"))
    first, second, third = text.splitlines()[:3]
    assert first == "# !! PARTIAL: loss"
    assert second.startswith("# !! SIZES SCALED by 1/4")
    assert third == "# chakram run r1  quickstart"
    assert text.endswith("# Run partial.")


def test_generator_bound_rows_are_marked() -> None:
    text = render_table(summarize_run(measurements(run(generator_wait_ns=10_000))))
    marked = [line.endswith(" *") for line in text.splitlines() if line[:1] == " "]
    assert marked == [True, False, False]
    assert (
        "# * generator-bound: 3 of 12 collectives; waits take at most 15.0 % of a "
        "row's time\n"
    ) in text
    assert "kept up" not in text


def test_many_ranks_and_links_are_cut_to_the_worst() -> None:
    small = summary()
    ranks = tuple(
        replace(small.ranks[0], rank=rank, exposed_ns=1000.0 * rank)
        for rank in range(40)
    )
    links = tuple(
        replace(small.links[0], link=f"l{n}", bytes_after=n) for n in range(40)
    )
    text = render_table(replace(small, ranks=ranks, links=links))
    assert "the 16 most exposed of 40 ranks" in text
    listed = [line.split()[1] for line in text.splitlines() if line.endswith("  0 ns")]
    assert listed == [str(rank) for rank in range(39, 23, -1)]
    assert "# Uplinks: 2 directions" in text
    assert "#   and 24 with fewer bytes" in text


def test_jobs_are_distinguished() -> None:
    small = summary()
    other = tuple(replace(rank, job="dense") for rank in small.ranks)
    iterations = (*small.iterations, replace(small.iterations[0], job="dense"))
    text = render_table(
        replace(small, ranks=(*small.ranks, *other), iterations=iterations)
    )
    assert "# Iteration of moe: mean" in text
    assert "# Iteration of dense: mean" in text
    assert "dense:0" in text


@pytest.mark.parametrize(
    ("world", "fabric", "line"),
    [
        ("namespaces", "namespaces, one switch", "namespaces, one switch"),
        ("simulate", "namespaces, one switch", "simulate: namespaces, one switch"),
        ("loopback", "", "loopback"),
    ],
)
def test_simulated_fabric_is_marked(world: str, fabric: str, line: str) -> None:
    text = render_table(summary(world=world, fabric=fabric))
    assert f"# fabric     {line}\n" in text


def test_missing_measurements_are_reported() -> None:
    facts = RunFacts(run_id="r", name="n", world="loopback", status="failed")
    text = render_table(summarize_run(Measurements(facts=facts, collectives=[])))
    assert "# no collective was measured\n" in text
    assert "# Avg bus bandwidth    : N/A\n" in text


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(999.0, "1.00"), (123_456.0, "123.46"), (1_234_567.0, "1234.6"), (1e9, "1000000")],
)
def test_times_keep_their_digits(time_ns: float, text: str) -> None:
    small = summary()
    row = replace(small.rows[0], time_ns=time_ns)
    (line,) = data_lines(render_table(replace(small, rows=(row,))))
    assert line[5] == text


@pytest.mark.parametrize(
    ("busbw", "text"),
    [
        (4.56e6, "0.00456"),
        (29.8e6, "0.0298"),
        (3.9321e9, "3.932"),
        (46.913e9, "46.91"),
        (388.12e9, "388.1"),
    ],
)
def test_bandwidths_keep_their_digits(busbw: float, text: str) -> None:
    small = summary()
    row = replace(small.rows[0], busbw=busbw)
    (line,) = data_lines(render_table(replace(small, rows=(row,))))
    assert line[7] == text


def test_document_is_json_with_the_keys_of_nccl_tests() -> None:
    document = json.loads(json.dumps(summary_document(summary(directory="runs/x"))))
    reduce, exchange, _ = document["results"]
    assert reduce["size"] == reduce["count"] == 2**20
    assert (reduce["type"], reduce["redop"], reduce["root"]) == ("uint8", "sum", -1)
    assert reduce["out_of_place"]["time"] == 400.0
    assert reduce["out_of_place"]["bus_bw"] == pytest.approx(3.93216)
    assert reduce["out_of_place"]["nwrong"] is None
    assert exchange["count"] == 2**17
    assert exchange["collective"] == CollectiveOp.ALL_TO_ALL
    assert reduce["predictions"]["simulate"]["time_ns"] == 395_000
    assert document["average_bus_bandwidth"] > 0
    assert document["run"]["directory"] == "runs/x"
    assert document["links"][1]["bytes"] == 2 * 10**6
    assert document["uplinks"]["links"] == 2
    assert document["generator_bound"] == {
        "collectives": 0,
        "of": 12,
        "wait_share": 0.0,
    }


def test_clock_uncertainty_and_missing_columns_are_shown() -> None:
    small = summary(clock_uncertainty_ns=12_300)
    text = render_table(small)
    assert "collectives measured; clocks agree to 12.30 us\n" in text
    row = replace(small.rows[0], completion=None)
    (line,) = data_lines(render_table(replace(small, rows=(row,))))
    assert line[16:19] == ["N/A"] * 3


@pytest.mark.parametrize(("wrong", "cell"), [(0, "0"), (None, "N/A"), (3, "3")])
def test_unknown_numbers_of_wrong_packets_are_blank(
    wrong: int | None, cell: str
) -> None:
    small = summary()
    row = replace(small.rows[0], wrong=wrong)
    (line,) = data_lines(render_table(replace(small, rows=(row,))))
    assert line[8] == cell


BOUNDS = "# Out of bounds values :"


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (
            Verification(every=1, packets=9),
            [f"{BOUNDS} 0 OK (ICRC and payload of every packet checked)"],
        ),
        (
            Verification(every=64, packets=9, wrong_payloads=2, icrc_errors=3),
            [
                "# Out of bounds values : 2 FAILED (ICRC and payload of 9 packets "
                "checked, 1 in 64)",
                "# Wrong ICRCs          : 3 packets dropped",
            ],
        ),
        (
            Verification(every=1, packets=9, has_icrcs=False),
            ["# Out of bounds values : 0 OK (payload of every packet checked)"],
        ),
    ],
)
def test_footer_shows_the_checked_packets(
    found: Verification, lines: list[str]
) -> None:
    facts = RunFacts(run_id="r", name="n", world="loopback", verification=found)
    text = render_table(summarize_run(Measurements(facts=facts, collectives=())))
    assert [
        line for line in text.splitlines() if "bounds values" in line or "ICRCs" in line
    ] == lines
