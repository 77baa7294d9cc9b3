"""Rules over results: their scope, and reports of verdicts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as Xml

import pytest

from chakram.analysis.comparison_inputs import read_side
from chakram.analysis.gate import (
    Judgment,
    Rule,
    Rules,
    Verdict,
    judge,
    junit,
    markdown,
    read_results,
)
from chakram.foundation.errors import ConfigError, ResultsError

if TYPE_CHECKING:
    from pathlib import Path


def row(collective: str, size: int, time_ns: float, **more: Any) -> dict[str, Any]:
    return {
        "job": "j", "collective": collective, "algorithm": "ring", "nranks": 4,
        "size": size, "root": None, "time_ns": time_ns, "cv": 0.01, "samples": 10,
        **more,
    }  # fmt: skip


def document(**changes: Any) -> dict[str, Any]:
    """Return the parts of ``show --json`` that rules use here."""
    return {
        "schema": "chakram.run/1",
        "run": {"world": "namespaces", "banners": []},
        "unfinished_collectives": 0,
        "average_bus_bandwidth": 5.25,
        "unknown": None,
        "iterations": [{"job": "j", "mean_ns": 1000.0, "cv": 0.01, "iterations": 10}],
        "results": [
            row("all_reduce", 1024, 500.0), row("all_to_all", 2048, 300.0),
        ],
        "ranks": [{"job": "j", "rank": 0, "idle_ns": 3}],
        "links": [{"link": "a-b", "direction": "up", "drops": 2}],
        **changes,
    }  # fmt: skip


@pytest.fixture
def judged(tmp_path: Path) -> Any:
    """Return a function that judges a document by rules, with or without a baseline."""

    def call(
        *rules: Rule, now: dict[str, Any], before: dict[str, Any] | None = None
    ) -> Judgment:
        paths = []
        for name, each in (("now", now), ("before", before)):
            path = tmp_path / f"{name}.json"
            path.write_text(json.dumps(each))
            paths.append(path)
        whole = Rules(version=1, rules=rules)
        baseline = None if before is None else paths[1]
        return judge(whole, paths[0], baseline, source=tmp_path / "rules.yaml")

    return call


def told(judgment: Judgment) -> list[tuple[str, bool | None, str]]:
    return [(each.subject, each.holds, each.values) for each in judgment.verdicts]


def test_rule_applies_to_the_run_or_to_each_member_of_a_list(judged: Any) -> None:
    found = judged(
        Rule(check="unfinished_collectives == 0", name="all done"),
        Rule(check="time_ns < 400", each="results"),
        Rule(check="mean_ns < 2000", each="iterations"),
        Rule(check="idle_ns > 5", each="ranks"),
        Rule(check="drops < 3", each="links"),
        now=document(),
    )
    assert told(found) == [
        ("", True, "unfinished_collectives = 0"),
        ("j: all_reduce of 1KiB, 4 ranks", False, "time_ns = 500ns"),
        ("j: all_to_all of 2KiB, 4 ranks", True, "time_ns = 300ns"),
        ("iterations of j", True, "mean_ns = 1us"),
        ("j: rank 0", False, "idle_ns = 3ns"),
        ("a-b up", True, "drops = 2"),
    ]
    assert [each.rule for each in found.verdicts[:2]] == ["all done", "time_ns < 400"]
    assert found.comparison == ()


def test_rule_without_members_fails(judged: Any) -> None:
    found = judged(
        Rule(check="time_ns < 400", each="results", where="size > 4096"),
        Rule(check="time_ns < 400", each="results", where="size > 1024"),
        Rule(check="drops == 0", each="links"),
        Rule(check="all(links.drops == 0)"),
        Rule(check="drops == 0 or nothing", each="links"),
        Rule(check="all(links.drops == 0) or nothing"),
        now=document(links=[]),
    )
    assert told(found) == [
        ("", None, "there are no results where size > 4096"),
        ("j: all_to_all of 2KiB, 4 ranks", True, "time_ns = 300ns"),
        ("", None, "there are no links"),
        ("", None, "links.drops = a list of 0"),
        ("", True, "there are no links"),
        ("", True, "links.drops = a list of 0"),
    ]


def test_rule_about_data_does_not_apply_to_barriers(judged: Any) -> None:
    def with_bandwidth(collective: str, bus_bw: float | None) -> dict[str, Any]:
        return row(collective, 1024, 500.0, out_of_place={"bus_bw": bus_bw})

    barrier = with_bandwidth("barrier", None)
    rule = Rule(check="out_of_place.bus_bw > 3", each="results")
    data = with_bandwidth("all_reduce", 4.0)
    (one,) = told(judged(rule, now=document(results=[data, barrier])))
    assert one[0].startswith("j: all_reduce ")
    assert one[1]
    unknown = with_bandwidth("all_reduce", None)
    ((_, holds, _),) = told(judged(rule, now=document(results=[unknown, barrier])))
    assert holds is None
    ((_, holds, why),) = told(judged(rule, now=document(results=[barrier])))
    assert (holds, why) == (None, "there are no results")
    other = Rule(check="time_ns < 600 and cv < 1", each="results")
    assert len(told(judged(other, now=document(results=[data, barrier])))) == 2
    missing = {**barrier, "cv": None}
    assert told(judged(other, now=document(results=[missing])))[0][1] is None


def test_values_are_described_in_words(judged: Any) -> None:
    (verdict,) = judged(
        Rule(check="unknown < 3 and average_bus_bandwidth > 5"), now=document()
    ).verdicts
    assert verdict.holds is None
    assert "unknown = not known" in verdict.values
    (verdict,) = judged(
        Rule(check="average_bus_bandwidth > 5"), now=document()
    ).verdicts
    assert verdict.values == "average_bus_bandwidth = 5.25 GB/s"


def test_values_have_the_units_of_their_names(judged: Any) -> None:
    slow = row("all_reduce", 65536, 2.17361e9, out_of_place={"time": 1500.0})
    mean = {"job": "j", "mean_ns": 2.17361e9, "cv": 0.01, "iterations": 10}
    found = judged(
        Rule(check="size > 1 and out_of_place.time > 1 and time_ns < 700ms",
             each="results"),
        Rule(check="iterations[0].mean_ns < 700ms"),
        Rule(check="link_rate_bps > 1 and trace_size_bytes == 0"),
        now=document(
            results=[slow], iterations=[mean], link_rate_bps=10**8,
            trace_size_bytes=1536,
        ),
    )  # fmt: skip
    assert [values for _, _, values in told(found)] == [
        "size = 64KiB, out_of_place.time = 1.5ms, time_ns = 2.17s",
        "iterations[0].mean_ns = 2.17s",
        "link_rate_bps = 100Mbit/s, trace_size_bytes = 1.5KiB",
    ]


def test_violating_members_of_a_list_are_shown(judged: Any) -> None:
    links = [
        {"link": f"a-b{at}", "direction": "up", "drops": drops, "busy_ns": 1500}
        for at, drops in enumerate((0, 3, 0, 4, 5, 6))
    ]
    found = judged(
        Rule(check="all(links.drops == 0)"),
        Rule(check="not any(links.drops > 4)"),
        Rule(check="all(other < 1) or all(links.busy_ns < 1us)"),
        Rule(check="any(links.drops == 0)"),
        now=document(links=links, other=[2]),
    )
    assert [(holds, values) for _, holds, values in told(found)] == [
        (False, "links.drops = 3 4 5 and 1 more (of 6)"),
        (False, "links.drops = 5 6 (of 6)"),
        (False, "other = 2 (of 1), "
         "links.busy_ns = 1.5us 1.5us 1.5us and 3 more (of 6)"),
        (True, "links.drops = a list of 6"),
    ]  # fmt: skip


def test_names_of_the_baseline_need_one(judged: Any) -> None:
    for check in ("slower <= 5%", "time_ns <= baseline.time_ns"):
        with pytest.raises(ConfigError, match=r"needs a baseline \(give --baseline"):
            judged(Rule(check=check, each="results"), now=document())


def test_list_of_truths_is_no_verdict(judged: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"rules\[0\].check: .*yields a list of truth values"
    ):
        judged(Rule(check="results.time_ns < 400"), now=document())


def test_slower_is_the_share_of_a_significant_difference(judged: Any) -> None:
    now = document(
        iterations=[{"job": "j", "mean_ns": 1300.0, "cv": 0.01, "iterations": 10}],
        results=[
            row("all_reduce", 1024, 650.0),
            row("all_to_all", 2048, 150.0),
            row("gather", 64, 10.0),
        ],
    )
    found = judged(
        Rule(check="slower < 0.2"),
        Rule(check="slower < 0.2", each="iterations"),
        Rule(check="slower < 0.2", each="results"),
        Rule(check="time_ns < 2 * baseline.time_ns", each="results"),
        now=now,
        before=document(),
    )
    assert [(subject, holds) for subject, holds, _ in told(found)] == [
        ("", False),
        ("iterations of j", False),
        ("j: all_reduce of 1KiB, 4 ranks", False),
        # Faster is not slower.
        ("j: all_to_all of 2KiB, 4 ranks", True),
        # There is none in the baseline.
        ("j: gather of 64B, 4 ranks", None),
        ("j: all_reduce of 1KiB, 4 ranks", True),
        ("j: all_to_all of 2KiB, 4 ranks", True),
        ("j: gather of 64B, 4 ranks", None),
    ]
    assert found.verdicts[0].values == "slower = 30.0 %"
    assert found.verdicts[3].values == "slower = 0.0 %"
    assert found.comparison[0].startswith(
        "A is the baseline, B the run. Iteration of j"
    )


def test_single_repetition_cannot_be_slower(judged: Any) -> None:
    once = [{"job": "j", "mean_ns": 1300.0, "cv": None, "iterations": 1}]
    found = judged(
        Rule(check="slower < 0.2"), now=document(iterations=once), before=document()
    )
    assert told(found)[0][1] is None


def test_the_baseline_of_a_member_is_the_one_of_the_same_keys(judged: Any) -> None:
    two = [
        row("all_reduce", 1024, 111.0, algorithm="tree"),
        row("all_reduce", 1024, 222.0, root=0),
        row("all_reduce", 1024, 333.0),
    ]
    found = judged(
        Rule(check="baseline.time_ns == 333", each="results", where="size == 1024"),
        now=document(),
        before=document(results=two),
    )
    assert told(found)[0][1:] == (True, "baseline.time_ns = 333ns")


VERDICTS = (
    Verdict(rule="kept", subject="", holds=True, values="a = 1"),
    Verdict(rule="broken | odd", subject="rank 3", holds=False, values="b = 2"),
    Verdict(rule="open", subject="", holds=None, values="c = not known"),
)


def test_markdown_lists_failed_rules_first() -> None:
    text = markdown(Judgment(verdicts=VERDICTS, comparison=("slow",)), name="ci")
    assert text.splitlines() == [
        "## `ci`: FAILED",
        "",
        "1 of 3 conditions hold.",
        "",
        "```text",
        "slow",
        "```",
        "",
        "| | rule | of | values |",
        "|---|---|---|---|",
        "| **FAILED** | `broken \\| odd` | `rank 3` | `b = 2` |",
        "| **unknown** | `open` |  | `c = not known` |",
        "| ok | `kept` |  | `a = 1` |",
    ]
    assert markdown(Judgment(verdicts=VERDICTS[:1]), name="ci").startswith(
        "## `ci`: passed\n\n1 of 1 conditions hold.\n"
    )


def test_junit_has_a_case_for_each_verdict() -> None:
    text = junit(Judgment(verdicts=VERDICTS, comparison=("slow",)), name="ci")
    suite = Xml.fromstring(text)
    assert suite.attrib == {
        "name": "ci", "tests": "3", "failures": "2", "errors": "0", "skipped": "0",
    }  # fmt: skip
    kept, broken, unknown = suite
    assert [each.get("name") for each in suite] == [
        "kept", "broken | odd: rank 3", "open",
    ]  # fmt: skip
    assert [each.tag for each in kept] == ["system-out"]
    assert kept[0].text == "a = 1"
    assert broken[0].get("message") == "does not hold: b = 2"
    assert broken[0].text == "b = 2\nslow"
    assert unknown[0].get("message") == "cannot be judged: c = not known"
    assert text.startswith("<?xml")


def test_number_of_reported_values_is_limited(judged: Any) -> None:
    names = [f"n{number}" for number in range(7)]
    (verdict,) = judged(
        Rule(check=" + ".join(names) + " == 21"),
        now=document(**{name: at for at, name in enumerate(names)}),
    ).verdicts
    assert verdict.holds is True
    assert verdict.values == ", ".join(f"n{at} = {at}" for at in range(6))


def test_results_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(document()))
    assert read_results(path)["average_bus_bandwidth"] == 5.25


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"links": [{"link": "a-b"}]}, "links[0].direction is missing"),
        ({"results": [3]}, "results[0].job is missing"),
        ({"results": [row("all_reduce", 1, "5")]}, "results[0].time_ns is missing"),
        ({"ranks": [{"job": "j", "rank": True}]}, "ranks[0].rank is missing"),
        ({"iterations": {}}, "iterations is missing"),
        ({"run": {"world": "x", "banners": [1]}}, "run.banners is missing"),
        ({"run": []}, "run.world is missing"),
        ({"average_bus_bandwidth": 10**400}, "has more than 20 digits"),
        ({"unknown": "\ud800"}, "surrogates not allowed"),
    ],
)
def test_a_document_that_no_run_has_printed_is_refused(
    tmp_path: Path, change: dict[str, Any], found: str
) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document(**change)))
    for read in (read_results, read_side):
        with pytest.raises(ResultsError) as caught:
            read(path)
        assert found in caught.value.found


@pytest.mark.parametrize("text", ["1e999", "-1e999"])
def test_a_number_that_is_not_finite_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document()).replace("5.25", text))
    with pytest.raises(ResultsError, match="is too large"):
        read_results(path)
    path.write_text(json.dumps(document()).replace("5.25", "NaN"))
    assert read_results(path)["average_bus_bandwidth"] is None


def test_foreign_names_are_escaped_in_reports() -> None:
    evil = Verdict(
        rule="a\x1b[31m`b`\n| <img> @you",
        subject="\u202egnp",
        holds=False,
        values="\x00 = \ufffe",
    )
    judgment = Judgment(verdicts=(evil,), comparison=("slow \x1b", "```\n# lively"))
    suite = Xml.fromstring(junit(judgment, name="\x07ci"))
    assert suite.get("name") == "\\u0007ci"
    assert suite[0].get("name") == ("a\\u001b[31m`b`\\u000a| <img> @you: \\u202egnp")
    assert (suite[0][0].text or "").startswith("\\u0000 = \\ufffe\nslow \\u001b\n")
    lines = markdown(judgment, name="ci").splitlines()
    assert lines[4:8] == ["````text", "slow \\u001b", "```", "# lively"]
    assert lines[-1] == (
        "| **FAILED** | ``a\\u001b[31m`b`\\u000a\\| <img> @you`` | `\\u202egnp` | "
        "`\\u0000 = \\ufffe` |"
    )


def test_missing_files_are_told(judged: Any) -> None:
    run = {"world": "namespaces", "banners": ["FILES ARE MISSING: links.parquet"]}
    found = judged(
        Rule(check="all(links.drops == 0) or nothing"),
        now=document(run=run, links=[]),
    )
    assert found.comparison == ("the run: FILES ARE MISSING: links.parquet",)


def test_rank_is_slower_only_if_its_own_job_is(judged: Any) -> None:
    def both(mean_ns: float) -> dict[str, Any]:
        times = {"cv": 0.01, "iterations": 10}
        return document(
            iterations=[
                {"job": "j", "mean_ns": 1000.0, **times},
                {"job": "k", "mean_ns": mean_ns, **times},
            ],
            ranks=[{"job": "j", "rank": 0}, {"job": "k", "rank": 0}],
        )

    rule = Rule(check="slower < 5%", each="ranks")
    found = judged(rule, now=both(2000.0), before=both(1000.0))
    assert [each.holds for each in found.verdicts] == [True, False]


def test_collectives_are_slower_only_in_their_own_job(judged: Any) -> None:
    def both(time_ns: float, *, jobs: str = "jk") -> dict[str, Any]:
        times_ns = {"j": 1000.0, "k": time_ns}
        return document(
            iterations=[
                {"job": job, "mean_ns": times_ns[job], "cv": 0.01, "iterations": 10}
                for job in jobs
            ],
            results=[row("all_reduce", 64, times_ns[job], job=job) for job in jobs],
        )

    rule = Rule(check="slower < 5%", each="results")
    found = judged(rule, now=both(2000.0), before=both(1000.0))
    assert told(found) == [
        ("j: all_reduce of 64B, 4 ranks", True, "slower = 0.0 %"),
        ("k: all_reduce of 64B, 4 ranks", False, "slower = 100.0 %"),
    ]
    # The baseline has one of both jobs.
    found = judged(rule, now=both(2000.0), before=both(1000.0, jobs="j"))
    assert [each.holds for each in found.verdicts] == [True, None]
