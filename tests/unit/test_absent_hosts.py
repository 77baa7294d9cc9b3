"""Experiments without hosts that do not start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from chakram.config.experiment import load_experiment
from chakram.execution.absent_hosts import without_hosts
from chakram.foundation.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.config.experiment import Experiment


def job(name: str, **more: Any) -> dict[str, Any]:
    stream = {"op": "all_reduce", "size": "64KiB"}
    trace = {"synth": "collectives", "ranks": 2, "streams": [stream]}
    return {"name": name, "trace": trace, **more}


def experiment(folder: Path, *jobs: dict[str, Any], **fabric: Any) -> Experiment:
    """Return jobs on six hosts with one port each."""
    hosts = [
        {
            "name": f"h{at}",
            "ports": [{"open": "udp:eth1", "address": f"198.18.0.{at}/24"}],
        }
        for at in range(1, 7)
    ]
    document = {
        "version": 1,
        "name": "some",
        "jobs": list(jobs),
        "fabric": {"kind": "external", "hosts": hosts, **fabric},
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_experiment(path)


def test_all_jobs_remain_while_ports_suffice(tmp_path: Path) -> None:
    whole = experiment(tmp_path, job("a"), job("b"))
    rest, left_out = without_hosts(whole, {"h1", "h4"}, {"a": {0, 1}, "b": {2, 3}})
    assert left_out == ()
    assert rest.fabric.host_names(0) == ["h2", "h3", "h5", "h6"]
    assert [each.name for each in rest.jobs] == ["a", "b"]


def test_the_last_jobs_are_left_out_if_ports_are_too_few(tmp_path: Path) -> None:
    whole = experiment(tmp_path, job("a"), job("b"), job("c"))
    used = {"a": {0, 1}, "b": {2, 3}, "c": {4, 5}}
    rest, left_out = without_hosts(whole, {"h1"}, used)
    assert left_out == ("c",)
    assert [each.name for each in rest.jobs] == ["a", "b"]


def test_jobs_that_name_a_port_of_an_absent_host_are_left_out(tmp_path: Path) -> None:
    named = job("a", placement={"ports": ["h5", "h6"]})
    whole = experiment(tmp_path, named, job("b"))
    rest, left_out = without_hosts(whole, {"h6"}, {"a": {4, 5}, "b": {0, 1}})
    assert left_out == ("a",)
    assert [each.name for each in rest.jobs] == ["b"]


def test_a_topology_that_needs_all_hosts_is_named(tmp_path: Path) -> None:
    topology = {"single_switch": {"hosts": 6}}
    whole = experiment(tmp_path, job("a"), topology=topology)
    with pytest.raises(InputError, match=r"fabric\.hosts has 5 ports"):
        without_hosts(whole, {"h6"}, {"a": {0, 1}})


def test_one_job_has_to_remain(tmp_path: Path) -> None:
    whole = experiment(tmp_path, job("a"))
    hosts = {f"h{at}" for at in range(2, 7)}
    with pytest.raises(InputError, match="leaves no job"):
        without_hosts(whole, hosts, {"a": {0, 1}})
