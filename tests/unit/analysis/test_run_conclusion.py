"""The answer of a run in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.analysis.cause_ranking import Finding, Saving, Suspect, Verdict
from chakram.analysis.lost_time_causes import Cause, Why
from chakram.analysis.run_conclusion import (
    answer_lines,
    generator_doubt,
    generator_remedy,
)
from chakram.summary.generator_advice import KeepingUp
from chakram.summary.run_summary import Measurements, RunFacts, Summary
from chakram.summary.summarize_run import summarize_run
from tests.unit.summary.test_summarize_run import WORLD, measurements, run


def made_summary(predicted_ns: int = 395_000, **facts: object) -> Summary:
    return summarize_run(
        measurements(run(), **facts), predictions={"simulate": {WORLD: predicted_ns}}
    )


def made_why(*causes: tuple[str, str, float]) -> Why:
    return Why(
        iterations=1,
        time_ns=1000,
        causes=tuple(
            Cause(cause=cause, place=place, lost_ns=round(1000 * share), share=share)
            for cause, place, share in causes
        ),
        parts_ns={},
        by_rank=(),
        by_collective=(),
        path=None,
    )


def test_time_exposure_and_deviation_are_stated() -> None:
    found = made_summary()
    assert answer_lines(found, None) == [
        "# An iteration took 750.0 us, 72.4 % of it exposed communication.",
        f"# Its collectives took {100 * (found.deviation or 0):.1f} % more time than "
        "simulated.",
    ]


@pytest.mark.parametrize(
    ("factor", "text"),
    [(1, "took as long as simulated"), (2, "took 50.0 % less time than simulated")],
)
def test_deviation_is_relative_to_the_simulation(factor: int, text: str) -> None:
    (row,) = (row for row in made_summary().rows if row.predictions)
    predicted_ns = round(factor * row.time_ns)
    assert text in answer_lines(made_summary(predicted_ns), None)[1]


def test_dilated_runs_state_the_real_time() -> None:
    found = made_summary()
    dilated = replace(found, facts=replace(found.facts, dilation=800))
    assert answer_lines(dilated, None)[-1] == (
        "# Time was stretched 800 times: on this machine an iteration took 600.0 ms."
    )
    (own,) = dilated.iterations
    load = replace(own, job="load", mean_ns=9 * own.mean_ns, is_background=True)
    assert answer_lines(replace(dilated, iterations=(load, own)), None)[-1] == (
        "# Time was stretched 800 times: on this machine an iteration of moe took "
        "600.0 ms."
    )


def test_simulations_are_not_called_measured() -> None:
    found = summarize_run(measurements(run(), world="simulate"))
    assert answer_lines(found, None)[0].startswith(
        "# An iteration would take 750.0 us, "
    )
    assert len(answer_lines(found, None)) == 1


def test_largest_limits_are_named_with_place_and_share() -> None:
    why = made_why(
        ("contention", "leaf0-spine0 up", 0.5),
        ("window", "rank 1", 0.1),
        ("host", "h1", 0.01),
    )
    assert answer_lines(made_summary(), why)[-1] == (
        "# Most of the lost time is charged to contention at leaf0-spine0 up (50.0 %), "
        "window at rank 1 (10.0 %), which proves no fault. `chakram why` tests causes, "
        "faults included."
    )
    assert answer_lines(made_summary(), made_why(("host", "h1", 0.01)))[-1] == (
        "# Nothing cost the run much time."
    )


def test_no_link_is_accused_by_a_charge_alone() -> None:
    (*_, text) = answer_lines(made_summary(), made_why(("slow link", "h3 up", 0.5)))
    assert "h3" not in text
    assert "`chakram why` tests causes" in text


def test_injected_faults_precede_limits() -> None:
    fault = "link h3-leaf1 has 50Mbit at 0ns"
    why = made_why(("contention", "leaf0-spine0 up", 0.5), ("slow link", "h3 up", 0.2))
    why = replace(why, causes=(why.causes[0], replace(why.causes[1], fault=fault)))
    assert answer_lines(made_summary(), why, injected=[fault])[2:] == [
        "# Injected fault: link h3-leaf1 has 50Mbit at 0ns, with 20.0 % of the time "
        "charged to its place.",
        "# Limits of the design: contention at leaf0-spine0 up (50.0 %). `chakram why` "
        "tests causes, faults included.",
    ]
    small = answer_lines(made_summary(), None, injected=[fault] * 5)[-1]
    assert small == f"# Injected fault: {'; '.join([fault] * 3)}; and 2 more."


def test_found_faults_precede_limits() -> None:
    why = made_why(("contention", "leaf0-spine0 up", 0.5), ("slow link", "h3 up", 0.2))
    saving = Saving(share=0.1, low=0.1, high=0.1)
    suspect = Suspect(cause="slow link", place="h3-leaf1")
    found = Finding(suspect=suspect, saving=saving, after_previous=saving)
    verdict = Verdict(faults=(found,))
    assert answer_lines(made_summary(), why, verdict=verdict)[2:] == [
        "# A fault was found: without slow link at h3-leaf1, an iteration takes 10.0 % "
        "less.",
        "# Limits of the design: contention at leaf0-spine0 up (50.0 %).",
    ]


def test_possible_faults_precede_limits_without_a_place() -> None:
    why = made_why(("own port", "rank 1", 0.5), ("slow compute", "rank 3", 0.2))
    assert answer_lines(made_summary(), why)[-1] == (
        "# 20.0 % of the time is charged to possible faults. Limits of the design: own "
        "port at rank 1 (50.0 %). `chakram why` tests causes, faults included."
    )


@pytest.mark.parametrize(
    ("share", "distorted", "expected"),
    [
        (0.09, 0.0, None),
        (0.3, 0.0, "took 30.0 % of the time, so this run says little about "),
        (0.06, 0.4, None),
        (0.06, 0.5, "took 6.0 % of the time and distorted another 50.0 %, so this "),
    ],
)
def test_material_share_of_the_generator_refuses_a_verdict_on_the_network(
    share: float, distorted: float, expected: str | None
) -> None:
    halves = (("generator slow", host, share / 2) for host in ("h0", "h1"))
    why = replace(made_why(*halves), distorted_ns=round(1000 * distorted))
    doubt = generator_doubt(why)
    told = " ".join(answer_lines(made_summary(), why))
    if expected is None:
        assert doubt is None
        assert "says little" not in told
    else:
        assert doubt is not None
        assert expected in doubt
        assert doubt in told


def test_doubt_about_a_run_with_a_network_fault_concerns_other_faults() -> None:
    why = made_why(("generator slow", "h0", 0.3))
    for cause, expected in (("slow link", "little else"), ("generator slow", "little")):
        saving = Saving(share=0.1, low=0.1, high=0.1)
        suspect = Suspect(cause=cause, place="h0")
        found = Finding(suspect=suspect, saving=saving, after_previous=saving)
        doubt = generator_doubt(why, Verdict(faults=(found,)))
        assert doubt is not None
        assert f"this run says {expected} about the network" in doubt


def test_remedies_of_the_generator_agree_with_each_other() -> None:
    crowded, slower = KeepingUp(idle_share=0.7), KeepingUp(slowdown=4.0, dilation=8)
    slower = replace(slower, port_rate_bps=10**6)
    general = "Use lower rates, more dilation, or more agents or cores."

    def remedy(known: KeepingUp | None) -> str:
        return generator_remedy(replace(made_summary(), keeping_up=known))

    assert remedy(None) == general
    assert "lower rates" not in remedy(crowded)
    assert remedy(slower).startswith(f"{general} At 1/4 of its rates (ports of ")
    assert remedy(slower).endswith(
        "fabric.dilation=8) this machine would have kept up."
    )


def test_each_of_several_jobs_has_its_iteration() -> None:
    found = made_summary()
    jobs = (*found.iterations, replace(found.iterations[0], job="dense"))
    lines = answer_lines(replace(found, iterations=jobs), None)
    assert lines[:2] == [
        "# An iteration of moe took 750.0 us.",
        "# An iteration of dense took 750.0 us.",
    ]


def test_names_cannot_control_the_terminal() -> None:
    why = made_why(("contention", "h3\x1b[2J up", 0.5))
    assert "\x1b" not in "".join(answer_lines(made_summary(), why))


def test_a_run_without_results_has_no_answer() -> None:
    facts = RunFacts(run_id="r", name="n", world="loopback", status="failed")
    found = summarize_run(Measurements(facts=facts, collectives=[]))
    assert answer_lines(found, None) == []
