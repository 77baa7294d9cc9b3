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
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return load_experiment(path)


def test_all_jobs_remain_while_ports_suffice(tmp_path: Path) -> None:
    whole = experiment(tmp_path, job("a"), job("b"))
    rest, changes = without_hosts(whole, {"h1", "h4"}, {"a": {0, 1}, "b": {2, 3}})
    assert changes == ()
    assert rest.fabric.host_names(0) == ["h2", "h3", "h5", "h6"]
    assert [each.name for each in rest.jobs] == ["a", "b"]


def test_the_last_jobs_are_changes_if_ports_are_too_few(tmp_path: Path) -> None:
    whole = experiment(tmp_path, job("a"), job("b"), job("c"))
    used = {"a": {0, 1}, "b": {2, 3}, "c": {4, 5}}
    rest, changes = without_hosts(whole, {"h1"}, used)
    assert changes == ("job c is left out, too",)
    assert [each.name for each in rest.jobs] == ["a", "b"]


def test_jobs_that_name_a_port_of_an_absent_host_are_changes(tmp_path: Path) -> None:
    named = job("a", placement={"ports": ["h5", "h6"]})
    whole = experiment(tmp_path, named, job("b"))
    rest, changes = without_hosts(whole, {"h6"}, {"a": {4, 5}, "b": {0, 1}})
    assert changes == ("job a is left out, too",)
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


@pytest.mark.parametrize(
    ("absent", "sizes"),
    [({"h1"}, {"tp": 2, "dp": 2}), ({"h1", "h2", "h6"}, {"tp": 2, "dp": 1})],
)
def test_replicas_are_left_out_of_a_replicated_trace(
    tmp_path: Path, absent: set[str], sizes: dict[str, int]
) -> None:
    trace = {"path": "traces", "replicate": 6, "dimensions": {"tp": 2, "dp": 3}}
    whole = experiment(tmp_path, {"name": "a", "trace": trace})
    rest, changes = without_hosts(whole, absent, {"a": {0, 1, 2, 3, 4, 5}})
    ranks = 2 * sizes["dp"]
    assert changes == (f"job a has {ranks} ranks instead of 6",)
    (left,) = rest.jobs
    assert left.trace.model_dump()["replicate"] == ranks
    assert left.trace.model_dump()["dimensions"] == sizes


@pytest.mark.parametrize(
    ("sizes", "ranks"), [({}, 3), ({"dp": 4}, 3), ({"tp": 4}, None)]
)
def test_only_data_parallelism_has_replicas(
    tmp_path: Path, sizes: dict[str, int], ranks: int | None
) -> None:
    trace = {"path": "traces", "replicate": 4, "dimensions": sizes}
    whole = experiment(tmp_path, job("b"), {"name": "a", "trace": trace})
    used = {"b": {0, 1}, "a": {2, 3, 4, 5}}
    rest, changes = without_hosts(whole, {"h1"}, used)
    if ranks is None:
        assert changes == ("job a is left out, too",)
        assert [each.name for each in rest.jobs] == ["b"]
    else:
        assert changes == (f"job a has {ranks} ranks instead of 4",)


def test_replicas_on_ports_of_other_jobs_free_none(tmp_path: Path) -> None:
    trace = {"path": "traces", "replicate": 4}
    whole = experiment(tmp_path, job("b"), {"name": "a", "trace": trace})
    used = {"b": {0, 1, 2, 3, 4, 5}, "a": {2, 3, 4, 5}}
    with pytest.raises(InputError, match="leaves no job"):
        without_hosts(whole, {"h1"}, used)
