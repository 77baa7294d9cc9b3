"""Faults of a run are found in its records, without the declared faults."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from chakram.analysis.run_causes import why_of
from chakram.cli import main
from chakram.diagnosis import (
    fault_search,
    simulated_runs,
    simulation_budget,
    verification,
)
from chakram.diagnosis.counterfactual import (
    Rerun,
    Variant,
    mean_time,
    recorded_iterations,
    rerun,
    variant_of,
)
from chakram.diagnosis.fault_search import Fit, fit
from chakram.diagnosis.late_host_attribution import merged
from chakram.diagnosis.run_evidence import is_generator_bound
from chakram.diagnosis.simulation_budget import SimulationBudget, expected_s
from chakram.fabric.fabric_types.namespaces import NamespaceFabric
from chakram.foundation.errors import ChakramError
from chakram.run_directory.reader import RunResults, open_run
from chakram.switch.ecmp import DrawnPaths, EcmpHash, RestrictedPaths

HOSTS = 6
SHAPES: dict[str, dict[str, Any]] = {
    "star": {
        "topology": {"single_switch": {"hosts": HOSTS}},
        "links": {"host": {"rate": "100Mbit"}},
    },
    "clos": {
        "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 3}},
        "links": {"host": {"rate": "100Mbit"}, "uplink": {"rate": "300Mbit"}},
    },
    "fat tree": {
        "topology": {
            "fat_tree": {
                "pods": 2,
                "leaves": 1,
                "spines": 2,
                "cores": 2,
                "hosts_per_leaf": 3,
            }
        },
        "links": {"host": {"rate": "100Mbit"}, "uplink": {"rate": "100Mbit"}},
    },
}


def found_in(folder: Path, shape: str, *faults: dict[str, Any], **more: Any) -> Fit:
    """Return the explanation of a simulated run, treated as a measured one."""
    return fit(simulated(folder, shape, *faults, **more))


def simulated(
    folder: Path,
    shape: str,
    *faults: dict[str, Any],
    transport: dict[str, Any] | None = None,
    packets: list[dict[str, Any]] | None = None,
    sizes: tuple[str, ...] = ("300KB",),
    expected_code: int = 0,
    other_jobs: list[dict[str, Any]] | None = None,
    **more: Any,
) -> RunResults:
    """Return a simulated run with faults."""
    document = {
        "version": 1,
        "name": "measured",
        "jobs": [
            {
                "name": "main",
                "trace": {
                    "synth": "collectives",
                    "streams": [{"op": "all_to_all", "sizes": list(sizes), "count": 1}],
                    "ranks": HOSTS,
                },
            },
            *(other_jobs or []),
        ],
        "collectives": {"all_to_all": "direct"},
        "iterations": {"warmup": 1, "measured": 4},
        "fabric": {
            "kind": "namespaces",
            **SHAPES[shape],
            **more,
        },
        "transport": {"retransmit_timeout": "200ms", **(transport or {})},
        "faults": {"links": list(faults), "packets": packets or []},
        "predict": ["bound"],
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    code = main(["simulate", str(path), "--runs", str(folder / "runs")])
    assert code == expected_code
    (run,) = (folder / "runs").iterdir()
    return open_run(run)


def names(found: Fit) -> list[tuple[str, str]]:
    return [(best.cause, best.place) for best, _ in found.found]


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_run_without_faults_has_no_hypotheses(tmp_path: Path, shape: str) -> None:
    found = found_in(tmp_path, shape)
    assert not found.found
    assert found.is_explained
    assert found.misfit == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize(
    ("shape", "link", "direction"),
    [
        ("star", "h4-s0", "up"),
        ("clos", "h1-leaf0", "both"),
        ("clos", "h5-leaf1", "down"),
    ],
)
def test_slow_direction_is_distinguished_from_a_slow_link(
    tmp_path: Path, shape: str, link: str, direction: str
) -> None:
    fault = {"kind": "degrade", "link": link, "direction": direction, "rate": "31Mbit"}
    found = found_in(tmp_path, shape, fault)
    ((best, rivals),) = found.found
    assert best.cause == "slow link"
    if direction != "both":
        assert best.place == f"{link} {direction}"
    elif best.place != link:
        # One direction explains as much as both; then neither is named alone.
        places = {best.place, *(each.place for each in rivals)}
        assert places == {f"{link} up", f"{link} down"}
    assert best.assumed[0].rate_bps == pytest.approx(31e6, rel=0.03)
    assert found.is_explained


@pytest.mark.parametrize(
    ("packets", "cause", "place"),
    [
        # All packets of a rank are delayed, short ones as much as long ones.
        ({"action": "delay", "by": "4ms", "probability": 1}, "delay", "h2-s0"),
        (
            {"action": "reorder", "behind": 8, "probability": 0.1},
            "reordering",
            "h2-s0 up",
        ),
        ({"action": "duplicate", "probability": 0.3}, "duplication", "h2-s0 up"),
    ],
    ids=["delay", "reordering", "duplication"],
)
def test_other_disturbances_are_no_slow_link(
    tmp_path: Path, packets: dict[str, Any], cause: str, place: str
) -> None:
    entries = [{"source": 2, "packets": "any", "at": "send", **packets}]
    if cause == "delay":
        entries.append({"destination": 2, "packets": "any", **packets})
    sizes = ("4KB", "60KB", "300KB")
    found = found_in(tmp_path, "star", packets=entries, sizes=sizes)
    assert (cause, place) in names(found)
    assert not any(each == "slow link" for each, _ in names(found))


@pytest.mark.parametrize(
    ("link", "direction"), [("h2-leaf0", "up"), ("h3-leaf1", "down")]
)
def test_losses_are_located_where_packets_did_not_arrive(
    tmp_path: Path, link: str, direction: str
) -> None:
    fault = {
        "kind": "loss",
        "link": link,
        "direction": direction,
        "probability": 0.04,
    }
    found = found_in(tmp_path, "clos", fault)
    assert names(found)[:1] == [("loss", f"{link} {direction}")]
    (best, _) = found.found[0]
    assert best.is_counted
    assert best.assumed[0].probability == pytest.approx(0.04, rel=0.5)


def test_a_port_was_paused_when_its_counter_grew(tmp_path: Path) -> None:
    storm = {
        "kind": "pause_storm",
        "link": "h3-leaf1",
        "direction": "down",
        "classes": [3],
        "at": "70ms",
        "for": "80ms",
    }
    found = found_in(
        tmp_path, "clos", storm, switches={"profile": "sonic"}, switch="model"
    )
    assert names(found) == [("pause", "h3-leaf1 down")]
    (best, _) = found.found[0]
    assert best.assumed[0].at_ns == pytest.approx(70e6, abs=2e6)
    assert best.assumed[0].until_ns == pytest.approx(150e6, abs=2e6)


def test_an_uplink_without_bytes_is_dead(tmp_path: Path) -> None:
    down = [
        {"kind": "down", "link": f"leaf{leaf}-spine1", "at": "0ns"} for leaf in (0, 1)
    ]
    links = {"host": {"rate": "100Mbit"}, "uplink": {"rate": "150Mbit"}}
    found = found_in(tmp_path, "clos", *down, links=links)
    ((best, _),) = found.found
    assert best.cause == "dead uplink"
    assert set(best.place.split(", ")) == {"leaf0-spine1", "leaf1-spine1"}
    assert found.is_explained


def test_switch_that_avoids_uplinks_is_distinguished_from_dead_uplinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_the_kind = NamespaceFabric.ecmp_hash

    def ecmp_hash(self: NamespaceFabric, seed: int) -> EcmpHash:
        # The first leaf sends everything by its second uplink.
        return RestrictedPaths(inner=of_the_kind(self, seed), kept=(((0, 2), (1,)),))

    links = {"host": {"rate": "100Mbit"}, "uplink": {"rate": "150Mbit"}}
    with monkeypatch.context() as patched:
        patched.setattr(NamespaceFabric, "ecmp_hash", ecmp_hash)
        run = simulated(tmp_path, "clos", links=links)
    found = fit(run)
    ((best, rivals),) = found.found
    assert (best.cause, best.place) == ("hash imbalance", "leaf0")
    assert rivals == ()
    assert "leaf0-spine0" in best.evidence
    assert found.is_explained


@pytest.mark.parametrize("observed", ["switch", "nowhere"])
def test_counters_of_switches_prove_collisions_although_the_hash_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observed: str
) -> None:
    of_the_kind = NamespaceFabric.ecmp_hash

    def restricted(self: NamespaceFabric, seed: int) -> EcmpHash:
        return RestrictedPaths(inner=of_the_kind(self, seed), kept=(((0, 2), (1,)),))

    links = {"host": {"rate": "100Mbit"}, "uplink": {"rate": "150Mbit"}}
    with monkeypatch.context() as patched:
        patched.setattr(NamespaceFabric, "ecmp_hash", restricted)
        run = simulated(tmp_path, "clos", links=links)
    monkeypatch.setattr(
        NamespaceFabric, "ecmp_hash", lambda _, seed: DrawnPaths(seed=seed)
    )
    monkeypatch.setattr(verification, "SIMULATE", "another world")
    counted = [replace(each, observed=observed) for each in run.links()]
    monkeypatch.setattr(RunResults, "links", lambda _: counted)
    verdict = verification.verify(run, why_of(run)).verdict
    assert verdict is not None
    if observed == "nowhere":
        assert "hash imbalance" not in {each.suspect.cause for each in verdict.faults}
        return
    (finding,) = verdict.faults
    assert (finding.suspect.cause, finding.suspect.place) == ("hash imbalance", "leaf0")
    assert (
        "2.00 times the mean of its group (as counted; its flows"
        in finding.suspect.evidence
    )
    assert 0.1 < finding.saving.low < finding.saving.share < 0.6


def test_queue_overflow_before_a_slow_link_is_no_lossy_link(tmp_path: Path) -> None:
    slow = {
        "kind": "degrade",
        "link": "h4-leaf1",
        "direction": "down",
        "rate": "31Mbit",
    }
    links = {
        "host": {"rate": "100Mbit", "queue": "48KiB"},
        "uplink": {"rate": "300Mbit"},
    }
    run = simulated(tmp_path, "clos", slow, links=links)
    assert {each.link for each in run.links() if each.drops} == {"h4-leaf1"}
    found = fit(run)
    assert names(found)[:1] == [("slow link", "h4-leaf1 down")]
    assert "loss" not in {cause for cause, _ in names(found)}


def test_two_lossy_links_are_both_found(tmp_path: Path) -> None:
    faults = [
        {"kind": "loss", "link": link, "direction": direction, "probability": 0.05}
        for link, direction in (("h1-leaf0", "up"), ("h4-leaf1", "down"))
    ]
    found = found_in(tmp_path, "clos", *faults)
    assert set(names(found)) == {("loss", "h1-leaf0 up"), ("loss", "h4-leaf1 down")}
    for best, rivals in found.found:
        assert best.assumed[0].probability == pytest.approx(0.05, rel=0.5)
        assert rivals == ()


def test_pause_is_found_despite_heavy_losses(tmp_path: Path) -> None:
    loss = {
        "kind": "loss",
        "link": "h1-leaf0",
        "direction": "up",
        "probability": 0.15,
    }
    storm = {
        "kind": "pause_storm",
        "link": "h3-leaf1",
        "direction": "down",
        "classes": [3],
        "at": "70ms",
        "for": "80ms",
    }
    switches = {"profile": "sonic"}
    found = found_in(tmp_path, "clos", loss, storm, switches=switches, switch="model")
    assert set(names(found)) == {("loss", "h1-leaf0 up"), ("pause", "h3-leaf1 down")}


def test_repetitions_that_do_not_end_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rerun_once(variant: Variant, *, measured: int | None = None) -> Rerun:
        if variant.seed is not None:
            raise ChakramError("run", "a queue pair gave up after 50 retries")
        return rerun(variant, measured=measured)

    fault = {"kind": "loss", "link": "h2-leaf0", "direction": "up", "probability": 0.04}
    run = simulated(tmp_path, "clos", fault)
    monkeypatch.setattr(simulation_budget, "rerun", rerun_once)
    assert names(fit(run))[:1] == [("loss", "h2-leaf0 up")]


def test_no_hypothesis_is_simulated_after_the_budget(tmp_path: Path) -> None:
    slow = {"kind": "degrade", "link": "h4-s0", "direction": "up", "rate": "31Mbit"}
    run = simulated(tmp_path, "star", slow)
    found = fit(run, budget=SimulationBudget(0))
    assert found.found == ()
    assert found.simulations == 1
    assert not found.is_explained


def with_clock(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    """Let each look at the clock take *step_s* seconds, as on a busy machine."""
    clock = SimpleNamespace(monotonic=(step_s * at for at in count()).__next__)
    monkeypatch.setattr(simulation_budget, "time", clock)


def test_verdict_does_not_depend_on_the_speed_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {"kind": "degrade", "link": "h4-s0", "direction": "up", "rate": "31Mbit"}
    run = simulated(tmp_path, "star", slow)
    monkeypatch.setattr(verification, "SIMULATE", "another world")
    why = why_of(run)
    found = []
    for step_s in (0.0, 0.5):
        with_clock(monkeypatch, step_s)
        found.append(verification.verify(run, why, budget_s=6))
    assert found[0] == found[1]
    assert found[0].verdict is not None
    assert found[0].verdict.faults


@pytest.mark.parametrize("world", ["simulate", "another world"])
def test_much_too_slow_simulations_have_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: str
) -> None:
    slow = {"kind": "degrade", "link": "h4-s0", "direction": "up", "rate": "31Mbit"}
    run = simulated(tmp_path, "star", slow)
    monkeypatch.setattr(verification, "SIMULATE", world)
    with_clock(monkeypatch, 40.0)
    found = verification.verify(run, why_of(run), budget_s=10)
    assert found.verdict is None
    assert str(found.reason).startswith("unproven: stopped after 80 s, because ")


def test_expected_work_is_that_of_the_simulated_iterations(tmp_path: Path) -> None:
    base = variant_of(simulated(tmp_path, "star").manifest, "run")
    whole, part = expected_s(base), expected_s(base, measured={"main": 1})
    assert 0 < part < 0.5 * whole
    budget = SimulationBudget(60)
    budget.rerun(base, measured=1)
    assert 0.3 * part < budget.used_s


def test_links_are_not_blamed_for_late_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {"kind": "degrade", "link": "h0-s0", "direction": "up", "rate": "60Mbit"}
    run = simulated(tmp_path, "star", slow)
    waits = {"h4": 0.5, **dict.fromkeys(("h0", "h1", "h2", "h3", "h5"), 0.2)}
    monkeypatch.setattr(fault_search, "generator_waits", lambda results: waits)
    found = fit(run)
    assert "h4" in found.late
    assert not {place.partition(" ")[0] for _, place in names(found)} - {"h4-s0", "h4"}


@pytest.mark.parametrize(
    ("others", "place"), [(0.42, "all hosts"), (0.35, "h0")], ids=["all", "one"]
)
def test_one_host_is_named_only_if_most_others_are_less_late(
    others: float, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {"kind": "degrade", "link": "h0-s0", "direction": "up", "rate": "31Mbit"}
    run = simulated(tmp_path, "star", slow)
    waits = {"h0": 0.5, **dict.fromkeys(("h1", "h2", "h3", "h4", "h5"), others)}
    monkeypatch.setattr(fault_search, "generator_waits", lambda results: waits)
    assert ("generator slow", place) in names(fit(run))


def test_late_hosts_at_barriers_do_not_weaken_a_fault() -> None:
    class Results:
        def __init__(self, late: str) -> None:
            self._late = late

        def table(self, name: str, *columns: str) -> pa.Table:
            assert name == "collectives"
            kinds = ["all_reduce", "barrier"]
            rows = {
                "collective": kinds,
                "generator_bound": [x == self._late for x in kinds],
            }
            return pa.table({each: rows[each] for each in columns})

    assert not is_generator_bound(cast("RunResults", Results("barrier")))
    assert is_generator_bound(cast("RunResults", Results("all_reduce")))


def test_hosts_send_at_the_hypothetical_rate_of_their_links(tmp_path: Path) -> None:
    run = simulated(tmp_path, "star")
    variant = replace(variant_of(run.manifest, str(run.path)), ports=tuple(run.ports()))
    faster = {f"h{host}-s0": 10**9 for host in range(HOSTS)}
    before, after = (
        mean_time(rerun(replace(variant, link_rates_bps=rates)).iterations_ns())
        for rates in ({}, faster)
    )
    assert after < 0.2 * before


def test_slow_link_between_switches_is_found_in_both_directions(
    tmp_path: Path,
) -> None:
    link = "pod0-leaf0-pod0-spine0"
    fault = {"kind": "degrade", "link": link, "direction": "both", "rate": "9Mbit"}
    found = found_in(tmp_path, "fat tree", fault)
    ((best, rivals),) = found.found
    assert (best.cause, link) in [(each.cause, each.place) for each in (best, *rivals)]
    assert found.is_explained


def test_slow_link_in_series_with_others_names_them_all(tmp_path: Path) -> None:
    single = {"pods": 2, "leaves": 1, "spines": 1, "cores": 1, "hosts_per_leaf": 3}
    fault = {
        "kind": "degrade",
        "link": "pod0-spine0-core0",
        "direction": "up",
        "rate": "20Mbit",
    }
    links = {"host": {"rate": "100Mbit"}, "uplink": {"rate": "300Mbit"}}
    shape = {"topology": {"fat_tree": single}, "links": links}
    ((best, rivals),) = found_in(tmp_path, "fat tree", fault, **shape).found
    assert {each.cause for each in (best, *rivals)} == {"slow link"}
    assert {each.place for each in (best, *rivals)} == {
        "pod0-leaf0-pod0-spine0 up",
        "pod0-spine0-core0 up",
        "pod1-spine0-core0 down",
        "pod1-leaf0-pod1-spine0 down",
    }


def test_bytes_of_links_prove_a_dead_uplink_whose_times_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = [
        {"kind": "down", "link": f"leaf{leaf}-spine1", "at": "0ns"} for leaf in (0, 1)
    ]
    run = simulated(tmp_path, "clos", *down)
    monkeypatch.setattr(fault_search, "misfit", lambda measured, shown: 0.2)
    assert ("dead uplink", "leaf0-spine1, leaf1-spine1") in names(fit(run))


def test_loss_that_is_too_rare_to_fit_is_found_by_its_retransmissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = {"kind": "loss", "link": "h2-leaf0", "direction": "up", "probability": 0.04}
    run = simulated(tmp_path, "clos", fault)
    monkeypatch.setattr(verification, "SIMULATE", "another world")
    # With this spread, no simulation fits well enough.
    monkeypatch.setattr(simulated_runs.SimulatedRuns, "spread", lambda *_: -9.0)
    verdict = verification.verify(run, why_of(run)).verdict
    assert verdict is not None
    (finding,) = verdict.faults
    assert (finding.suspect.cause, finding.suspect.place) == ("loss", "h2-leaf0 up")
    assert 0.1 < finding.saving.share < finding.saving.high
    assert finding.saving.low == 0


DELAY = 200_000
"""Time in ns by which hosts delay what they send and receive."""


def with_small_window(
    folder: Path, *faults: dict[str, Any], delay: str = f"{DELAY}ns"
) -> RunResults:
    """Return a simulated run as if its hosts, not its links, had delayed packets."""
    host = {"rate": "100Mbit", "delay": delay}
    transport = {"window": "1KiB", "path_mtu": 1024}
    results = simulated(
        folder, "star", *faults, links={"host": host}, transport=transport
    )
    path = results.path / "run.json"
    manifest = json.loads(path.read_text())
    del manifest["experiment"]["fabric"]["links"]["host"]["delay"]
    round_trip = {"count": 100, "p50_ns": 1_024_000, "p99_ns": 2_048_000}
    manifest["generator"] = {"local": {"round_trip": round_trip}}
    path.write_text(json.dumps(manifest))
    return open_run(results.path)


def test_no_link_is_slow_if_hosts_cannot_fill_a_small_window(tmp_path: Path) -> None:
    found = fit(with_small_window(tmp_path))
    assert names(found) == [("generator slow", "all hosts")]
    ((best, rivals),) = found.found
    assert best.assumed[0].delay_ns == pytest.approx(DELAY, rel=0.05)
    assert not rivals
    assert found.is_delayed
    assert found.is_explained
    assert found.null_misfit > 0.3


def test_a_host_that_was_much_later_is_named_before_all_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = with_small_window(tmp_path)
    waits = {"h2": 0.3, **dict.fromkeys(("h0", "h1", "h3", "h4", "h5"), 0.12)}
    monkeypatch.setattr(fault_search, "generator_waits", lambda results: waits)
    found = fit(run)
    ((best, rivals),) = merged(found.found, found.late, {})
    assert (best.cause, best.place) == ("generator slow", "h2")
    assert [each.place for each in rivals] == ["all hosts"]


def test_a_slow_link_is_found_beside_delays_of_all_hosts(tmp_path: Path) -> None:
    fault = {"kind": "degrade", "link": "h4-s0", "direction": "up", "rate": "25Mbit"}
    found = fit(with_small_window(tmp_path, fault))
    assert set(names(found)) == {
        ("generator slow", "all hosts"),
        ("slow link", "h4-s0 up"),
    }


def test_a_slow_link_is_no_delay_of_hosts(tmp_path: Path) -> None:
    fault = {"kind": "degrade", "link": "h4-s0", "direction": "up", "rate": "25Mbit"}
    found = fit(with_small_window(tmp_path, fault, delay="0ns"))
    assert names(found) == [("slow link", "h4-s0 up")]


@pytest.mark.parametrize("is_delayed", [True, False])
def test_poor_fit_proves_no_slow_link_if_hosts_are_delayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_delayed: bool
) -> None:
    fault = {"kind": "degrade", "link": "h4-s0", "direction": "up", "rate": "25Mbit"}
    results = with_small_window(tmp_path, fault, delay="0ns")
    found = replace(fit(results), misfit=0.4, is_delayed=is_delayed)
    monkeypatch.setattr(verification, "SIMULATE", "another world")
    monkeypatch.setattr(verification, "fit", lambda *_, **__: found)
    verdict = verification.verify(results, why_of(results)).verdict
    assert verdict is not None
    causes = {each.suspect.cause for each in verdict.faults}
    assert causes == (set() if is_delayed else {"slow link"})


def test_a_simulated_job_that_a_dead_link_ends_keeps_what_it_completed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = {"kind": "down", "link": "h4-leaf1", "at": "70ms"}
    transport = {"retry_limit": 3, "retransmit_timeout": "10ms"}
    results = simulated(tmp_path, "clos", fault, transport=transport, expected_code=4)
    assert results.manifest.status == "partial"
    finished = {row.iteration for row in results.ranks(whole=True)}
    assert 2 <= len(finished) < 5
    capsys.readouterr()
    assert main(["why", str(results.path)]) == 0
    told = capsys.readouterr().out
    end, *_ = told.splitlines()
    assert end.startswith("End: the queue pair of job main, rank ")
    assert "h4-leaf1 down dropped" in end
    assert "Fault before the run ended: none found" in told
    rules = tmp_path / "gate.yaml"
    rules.write_text("{version: 1, rules: [{check: no confirmed fault}]}")
    assert main(["gate", str(results.path), str(rules)]) == 6
    assert "UNKNOWN no confirmed fault" in capsys.readouterr().out


def test_iterations_of_background_jobs_are_not_explained(tmp_path: Path) -> None:
    trace = {"synth": "incast", "ranks": 3, "size": "50KB"}
    results = simulated(
        tmp_path,
        "star",
        other_jobs=[{"name": "b", "trace": trace, "repeat": "until_others_end"}],
        topology={"single_switch": {"hosts": HOSTS + 3}},
    )
    assert set(results.manifest.jobs) == {"main", "b"}
    assert list(why_of(results).jobs) == ["main"]
    assert list(why_of(results, job="b").jobs) == ["b"]


PAIR: dict[str, Any] = {
    "synth": "collectives",
    "streams": [{"op": "all_reduce", "size": "100KB", "count": 1}],
    "ranks": 2,
}
SLOW = {"kind": "degrade", "link": "h4-s0", "direction": "up", "rate": "31Mbit"}


def beside(**more: Any) -> dict[str, Any]:
    """Return a job that shares ports with the main job."""
    return {"name": "b", "trace": PAIR, "placement": {"ports": [0, 4]}, **more}


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([beside(repeat=9)], marks=pytest.mark.soak),
        pytest.param([beside(repeat=3, start="300ms")], marks=pytest.mark.soak),
        [beside(repeat="until_others_end"), {"name": "c", "trace": PAIR}],
    ],
    ids=["other number", "later start", "background"],
)
def test_a_slow_link_is_found_beside_jobs_with_other_iterations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[dict[str, Any]]
) -> None:
    results = simulated(
        tmp_path,
        "star",
        SLOW,
        other_jobs=others,
        topology={"single_switch": {"hosts": HOSTS + 2}},
    )
    found = fit(results)
    ((best, _),) = found.found
    assert (best.cause, best.place) == ("slow link", "h4-s0 up")
    assert best.assumed[0].rate_bps == pytest.approx(31e6, rel=0.03)
    assert found.misfit < 0.03
    recorded_ns = recorded_iterations(results, None)
    assert round(found.measured_ns) == mean_time(recorded_ns)
    monkeypatch.setattr(verification, "SIMULATE", "another world")
    verdict = verification.verify(results, why_of(results)).verdict
    assert verdict is not None
    (finding,) = verdict.faults
    assert finding.suspect.place == "h4-s0 up"
    assert " only (" not in finding.suspect.evidence
    assert not any("times the median" in note for note in verdict.notes)


@pytest.mark.parametrize("repeat", [3, 50, "until_others_end"])
@pytest.mark.parametrize("job", [None, "main", "b"])
def test_jobs_that_an_end_interrupts_are_simulated_until_then(
    tmp_path: Path, repeat: int | str, job: str | None
) -> None:
    fault = {"kind": "down", "link": "h5-leaf1", "at": "120ms"}
    transport = {"retry_limit": 3, "retransmit_timeout": "20ms"}
    results = simulated(
        tmp_path,
        "clos",
        fault,
        transport=transport,
        other_jobs=[beside(repeat=repeat)],
        expected_code=4,
    )
    verified = verification.verify(results, why_of(results, job=job), job=job)
    assert verified.verdict is not None, verified.reason
    assert not verified.verdict.faults


def test_a_loss_is_found_if_only_some_switches_count(tmp_path: Path) -> None:
    incast = {"synth": "incast", "ranks": HOSTS, "fan_in": 5, "size": "300KB"}
    placement = {"ports": list(range(HOSTS))}
    results = simulated(
        tmp_path,
        "clos",
        {"kind": "loss", "link": "h4-leaf1", "direction": "up", "probability": 0.05},
        transport={"retransmit_timeout": "20ms"},
        other_jobs=[{"name": "b", "trace": incast, "placement": placement}],
    )
    path = results.path / "links.parquet"
    links = pq.read_table(path)
    # The traffic through a spine is not the same in both directions.
    of_leaf = ["leaf1" in each for each in links["link"].to_pylist()]
    pq.write_table(links.filter(pa.array(of_leaf)), path)
    found = fit(open_run(results.path))
    assert names(found)[:1] == [("loss", "h4-leaf1 up")]
    assert not any("spine" in each for each in found.tried if "loss" in each)
