"""Several jobs on one fabric: settings, placement, arrivals."""

from __future__ import annotations

import pytest

from chakram.config.experiment import Experiment, parse_experiment
from chakram.foundation.errors import ConfigError, PlanError
from chakram.plan.plan import JobSettings
from chakram.plan.plan_check import check_plan
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.plan_settings import (
    arrivals_ns,
    run_settings,
)
from tests.experiments import EXPERIMENT, planned_run

TWO_JOBS = """\
version: 1
name: two
jobs:
  - name: a
    trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}
    placement: {pattern: striped}
  - name: b
    trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}
    placement: {ports: [0, 3]}
    start: 5ms
    repeat: 7
    policy: communication_first
  - name: c
    trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}
    placement: {pattern: random}
    repeat: until_others_end
iterations: {warmup: 1, measured: 4}
fabric:
  kind: namespaces
  topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 3}}
  links: {host: {rate: 1Gbit}, uplink: {rate: 1Gbit}}
"""


def two_jobs(*more: str) -> Experiment:
    return parse_experiment("\n".join([TWO_JOBS, *more]))


def test_jobs_have_their_own_settings() -> None:
    settings = run_settings(two_jobs())
    assert settings.jobs == (
        JobSettings(
            job="b", offset_ns=5_000_000, iterations=8, policy="communication_first"
        ),
        JobSettings(job="c", is_background=True),
    )
    assert settings.iterations_of("a") == 5


def test_jobs_are_placed_by_pattern_and_may_share_ports() -> None:
    experiment = two_jobs()
    jobs = load_jobs(experiment)
    plan = planned_run(experiment, jobs, "r")
    ports: dict[str, list[int]] = {}
    for rank in plan.ranks():
        ports.setdefault(rank.program.job, []).append(rank.port)
    assert ports["a"] == [0, 3]  # one of each leaf
    assert ports["b"] == [0, 3]
    assert not {0, 3} & set(ports["c"])
    assert check_plan(plan) == []


def test_arrivals_follow_each_other() -> None:
    assert arrivals_ns(two_jobs()) == {"a": 0, "b": 5_000_000, "c": 0}
    even = two_jobs("arrivals: {gap: 10ms, order: [c, b, a]}")
    assert arrivals_ns(even) == {"a": 20_000_000, "b": 15_000_000, "c": 0}
    text = "arrivals: {gap: 10ms, order: random, spacing: exponential}"
    found = arrivals_ns(two_jobs(text))
    assert arrivals_ns(two_jobs(text)) == found
    assert arrivals_ns(two_jobs(text, "seed: 5")) != found
    assert len(set(found.values())) == 3


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("repeat: 7", "repeat: 0", "jobs[1].repeat: 0 is not in 1..1000000"),
        ("repeat: 7", "repeat: often", "'often' is not a number of iterations"),
        (
            "repeat: until_others_end",
            "repeat: 3\narrivals: {gap: 1ms, order: [a, b]}",
            "arrivals.order: does not list each of the jobs a, b, c once",
        ),
        ("ports: [0, 3]", "ports: [0, 0]", "placement.ports: names a port twice"),
        ("ports: [0, 3]", "ports: [-1]", "-1 is not a port"),
        ("ports: [0, 3]", "ports: [0]", "needs 2 ports, but only 1 are available"),
        (
            "ports: [0, 3]",
            "ports: [0, 3], first_port: 2",
            "first_port: cannot be combined with ports",
        ),
    ],
)
def test_mistakes_of_several_jobs_are_reported(
    old: str, new: str, expected: str
) -> None:
    text = TWO_JOBS.replace(old, new)
    if "ports: [0]" in new:
        # What follows a pattern is not known before the plan.
        text = text.replace("    placement: {pattern: striped}\n", "")
    with pytest.raises(ConfigError) as error:
        parse_experiment(text)
    assert expected in str(error.value)


def test_at_least_one_job_must_end() -> None:
    text = EXPERIMENT.replace("layers: 1}", "layers: 1}\n    repeat: until_others_end")
    with pytest.raises(ConfigError, match="so no job ends"):
        parse_experiment(text)


PAIRS = """\
version: 1
name: pairs
jobs:
  - {name: front, trace: {synth: incast, ranks: 2}}
  - name: back
    trace: {synth: collectives, ranks: 4, streams: [{op: all_reduce, members: 2}]}
    compute: {from: none}
    placement: {ranks_per_port: 2, same_host: skip, first_port: 0}
    repeat: until_others_end
iterations: {sync: free}
fabric: {kind: loopback, ports: 2}
"""


def test_hosts_of_a_background_job_must_let_time_pass() -> None:
    def planned(text: str) -> None:
        experiment = parse_experiment(text)
        planned_run(experiment, load_jobs(experiment), "r")

    with pytest.raises(PlanError, match="takes no time on a host"):
        planned(PAIRS)
    planned(PAIRS.replace("members: 2", "members: 4"))  # over both hosts
    planned(PAIRS.replace("sync: free", "sync: barrier"))


def test_a_background_job_that_takes_no_time_is_refused() -> None:
    def planned(text: str) -> None:
        experiment = parse_experiment(text)
        planned_run(experiment, load_jobs(experiment), "r")

    text = TWO_JOBS.replace(
        "placement: {pattern: random}",
        "compute: {from: none}\n    placement: {ranks_per_port: 2, same_host: skip}",
    )
    with pytest.raises(PlanError) as caught:
        planned(text)
    assert str(caught.value).startswith("job c: repeats until others end, but takes no")
    for changed in (
        text.replace("same_host: skip", "same_host: skip, local_rate: 1Gbit"),
        text.replace("repeat: until_others_end", "repeat: 2"),
        text.replace("ranks_per_port: 2, ", ""),
        text.replace("{from: none}", "{from: trace}"),
    ):
        planned(changed)
