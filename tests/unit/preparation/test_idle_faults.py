"""Faults of links that carry no traffic."""

from __future__ import annotations

import pytest
import yaml

from chakram.config.experiment import parse_experiment
from chakram.preparation.idle_faults import idle_faults
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.resolved_run import resolve
from chakram.simulation.common import simulated_topology


def found(*faults: dict[str, object], balancing: str = "hash") -> tuple[str, ...]:
    """Return the sentences about faults of a job with a message from h0 to h4."""
    experiment = parse_experiment(
        yaml.safe_dump(
            {
                "version": 1,
                "name": "idle",
                "jobs": [
                    {
                        "name": "j",
                        "trace": {"synth": "incast", "ranks": 2, "size": "1MB"},
                        "placement": {"ports": [0, 4]},
                    }
                ],
                "fabric": {
                    "kind": "namespaces",
                    "switch": "model",
                    "topology": {
                        "clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 4}
                    },
                    "links": {"host": {"rate": "100Mbit"}},
                    "switches": {"balancing": balancing},
                },
                "faults": {"links": list(faults)},
            }
        )
    )
    resolved = resolve(experiment, load_jobs(experiment))
    topology = simulated_topology(resolved)
    plan = resolved.plan(experiment.fabric.simulated_ports(topology), "r")
    return idle_faults(experiment, plan, topology)


def degraded(link: str, direction: str = "both") -> dict[str, object]:
    return {"kind": "degrade", "link": link, "direction": direction, "rate": "10Mbit"}


def test_fault_of_an_unused_host_is_named() -> None:
    assert found() == ()
    assert found({"kind": "down", "link": "h4-leaf1"}) == ()
    # Acknowledgments cross the link of a sender, too.
    assert found(degraded("h0-leaf0", "up"), degraded("h0-leaf0", "down")) == ()
    assert found(degraded("h0-leaf0"), degraded("h3-leaf0", "up")) == (
        "faults.links[1] affects no traffic: no queue pair uses link h3-leaf0 up",
    )
    assert found({"kind": "down", "link": "h3-leaf0"}) == (
        "faults.links[0] affects no traffic: no queue pair uses link h3-leaf0",
    )


@pytest.mark.parametrize("balancing", ["hash", "round_robin"])
def test_links_that_the_hash_does_not_choose_carry_nothing(balancing: str) -> None:
    uplinks = [degraded(f"leaf0-spine{at}", "up") for at in range(2)]
    # One queue pair sends from leaf0, so the hash leaves one uplink idle.
    idle = found(*uplinks, balancing=balancing)
    assert len(idle) == (balancing == "hash")
