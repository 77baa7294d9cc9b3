"""Dilation changes no ratio: results equal those of the undilated simulation.

Compared is what a reader sees, times divided by the dilation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakram.config.experiment import parse_experiment
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.predictions import durations
from chakram.preparation.schedule_bounds import bounds
from tests.experiments import planned_run
from tests.made_plans import flow_rows

SWITCH = "topology: {single_switch: {hosts: 4}}"
# A byte takes a nanosecond, so without a paced rate every time is exact.
HOST = "rate: 8Gbit, delay: 1us, queue: 4MiB"
EXPERIMENTS = {
    "dcqcn-incast": (
        "{synth: incast, ranks: 4, size: 16MiB}",
        f"{SWITCH}, links: {{host: {{{HOST}, ecn: 100KB/400KB/0.2}}}}",
        "{congestion_control: dcqcn, window: 1MiB, burst: 4}",
        "{}",
    ),
    "training": (
        "{synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}",
        "topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}, "
        f"links: {{host: {{{HOST}}}, uplink: {{{HOST}}}}}",
        "{window: 1MiB, burst: 4}",
        "{}",
    ),
    "loss": (
        "{synth: incast, ranks: 4, size: 8MiB}",
        f"{SWITCH}, links: {{host: {{{HOST}}}}}",
        "{local_ack_timeout: 9, burst: 4}",
        # The last packet of a message is missed by a timeout only.
        "{packets: [{action: drop, packets: last, nth: 1}, "
        "{action: delay, nth: 40, by: 3us}, {action: drop, nth: 90}]}",
    ),
}


@dataclass(frozen=True)
class Told:
    """Reported values of a simulation, with undilated times."""

    iteration_ns: float
    times_ns: dict[object, float]
    bounds_ns: dict[object, float]
    fcts_ns: list[float]
    packets: int
    retransmitted: int
    marked: int
    cnp: int

    @property
    def mean_fct_ns(self) -> float:
        """Mean completion time of flows."""
        return fmean(self.fcts_ns)


@cache
def told(name: str, dilation: int, seed: int = 1) -> Told:
    trace, fabric, transport, faults = EXPERIMENTS[name]
    experiment = parse_experiment(
        f"version: 1\nname: d\njobs: [{{name: a, start: 2us, trace: {trace}, "
        f"size_scale: 1/8}}]\n"
        f"fabric: {{kind: namespaces, dilation: {dilation}, {fabric}}}\n"
        f"transport: {transport}\nfaults: {faults}\n"
        "iterations: {warmup: 0, measured: 2, sync: gap, gap: 5us}\n"
    )
    jobs = load_jobs(experiment)
    plan = planned_run(experiment, jobs, "r")
    # What pacing may make up is this machine's own time, and is never stretched; here
    # it is, so that nothing is left that is not.
    plan = replace(
        plan,
        agents=tuple(
            replace(
                agent,
                transport=replace(agent.transport, burst_bound_ns=1000 * dilation),
            )
            for agent in plan.agents
        ),
    )
    topology = experiment.fabric.to_topology()
    assert topology is not None
    # Buckets and lateness of a lab are this machine's own, and not stretched, either.
    topology = replace(topology, is_shaped=False)
    result = simulate_plan(plan, topology, seed=seed)
    flows = flow_rows(result.records)
    least = bounds(plan, topology).times_ns
    return Told(
        iteration_ns=result.end_ns / dilation,
        times_ns={
            key: time_ns / dilation for key, time_ns in durations(plan, result).items()
        },
        bounds_ns={key: time_ns / dilation for key, time_ns in least.items()},
        fcts_ns=sorted(
            (flow.last_acked_ns - flow.posted_ns) / dilation for flow in flows
        ),
        packets=sum(flow.packets for flow in flows),
        retransmitted=sum(flow.retransmitted for flow in flows),
        marked=sum(result.marked_packets.values()),
        cnp=sum(flow.cnp for flow in flows),
    )


DILATIONS = st.sampled_from([2, 5, 64, 1000, 8000])


@pytest.mark.parametrize("name", ["training", "loss"])
@settings(max_examples=4, deadline=None)
@given(dilation=DILATIONS)
def test_dilated_simulation_reports_exactly_the_undilated_times(
    name: str, dilation: int
) -> None:
    assert told(name, dilation) == told(name, 1)


SEEDS = range(1, 9)


@pytest.mark.slow  # uncompiled, seconds for each
@pytest.mark.parametrize("dilation", [2, 64, 1000, 8000])
def test_dcqcn_behaves_equally_under_dilation(dilation: int) -> None:
    """On average: marks are drawn, and one that falls elsewhere changes the rest."""
    plain = [told("dcqcn-incast", 1, seed) for seed in SEEDS]
    dilated = [told("dcqcn-incast", dilation, seed) for seed in SEEDS]

    assert dilated[0].bounds_ns == pytest.approx(plain[0].bounds_ns, abs=1)
    for name, share in (
        ("iteration_ns", 0.02),
        ("mean_fct_ns", 0.03),
        ("marked", 0.12),
        ("cnp", 0.12),
        ("packets", 0.0),
    ):
        expected = fmean(getattr(each, name) for each in plain)
        found = fmean(getattr(each, name) for each in dilated)
        assert found == pytest.approx(expected, rel=share), name


def test_dilation_experiments_show_their_effect() -> None:
    incast = told("dcqcn-incast", 1)
    assert incast.marked > 20
    assert incast.cnp > 20
    assert told("loss", 1).retransmitted > 0
