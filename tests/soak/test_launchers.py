"""Runs of four hosts by ssh, Slurm and MPI, each several times, with nothing left."""

from __future__ import annotations

import os
import shlex
import sys
import time
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.e2e.test_launched_agents import EXPERIMENT
from tests.host_lab import AGENT, HostLab, ip, ssh_lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)

TIMES = int(os.environ.get("CHAKRAM_LAUNCHES", "10"))

_BATCH = """\
#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1 --output={folder}/batch.out
cd {folder}
nodes="$SLURM_JOB_NODELIST"
{chakram} hosts find "$nodes" --port-in 198.18.0.0/15 {launch} > hosts.yaml || exit
{chakram} run experiment.yaml --runs {folder}/batch {launch}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostLab]:
    with ssh_lab(tmp_path_factory.mktemp("lab")) as made:
        yield made


@pytest.fixture(scope="module")
def slurm(lab: HostLab) -> dict[str, str]:
    return lab.start_slurm()


def write_experiment(folder: Path) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT))
    return path


def find_and_run(
    lab: HostLab, folder: Path, launch: list[str], environment: dict[str, str]
) -> None:
    """Find the ports of the hosts, and run an experiment on them several times."""
    found = lab.chakram(
        *("hosts", "find", "n[1-4]", "--port-in", "198.18.0.0/15", *launch),
        environment=environment,
    )
    (folder / "hosts.yaml").write_text(found.stdout)
    path = write_experiment(folder)
    for number in range(TIMES):
        done = lab.chakram(
            *("run", str(path), "--runs", str(folder / f"runs{number}"), *launch),
            environment=environment,
        )
        assert "# Run complete." in done.stdout
        assert lab.agents() == []


def test_ssh(lab: HostLab, tmp_path: Path) -> None:
    options = [f"--launcher-option={each}" for each in lab.ssh_options]
    find_and_run(lab, tmp_path, ["--launch", "ssh", "--agent", AGENT, *options], {})


def test_64_agents_start_soon(lab: HostLab, tmp_path: Path) -> None:
    hosts = []
    for at, name in enumerate(lab.hosts, start=1):
        for number in range(1, 17):
            address = f"198.18.77.{16 * at + number}/24"
            ip("-n", f"ck-{name}", "address", "replace", address, "dev", "eth1")
            port = {"open": "udp:eth1", "address": address, "mtu": 4200}
            login = f"10.77.0.{at}"
            hosts.append({"name": f"{name}-{number}", "login": login, "ports": [port]})
    inventory = tmp_path / "many.yaml"
    inventory.write_text(yaml.safe_dump({"version": 1, "hosts": hosts}))
    options = [f"--launcher-option={each}" for each in lab.ssh_options]
    launch = ["--launch", "ssh", "--agent", AGENT, *options]
    began_s = time.monotonic()
    lab.chakram("hosts", "check", str(inventory), *launch)
    took_s = time.monotonic() - began_s
    assert took_s < 30
    assert lab.agents() == []


def test_mpirun(lab: HostLab, tmp_path: Path) -> None:
    remote = shlex.join(["ssh", *lab.ssh_options])
    options = [
        *("--allow-run-as-root", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent"),
        *(remote, "--mca", "oob_tcp_if_include", "10.77.0.0/24"),
    ]
    launch = ["--launch", "mpi", "--agent", AGENT, "--listen", "10.77.0.254"]
    launch += [f"--launcher-option={each}" for each in options]
    find_and_run(lab, tmp_path, launch, {})


def test_srun_in_an_allocation(
    lab: HostLab, slurm: dict[str, str], tmp_path: Path
) -> None:
    # salloc runs its command where it is, with the environment of the job.
    path = write_experiment(tmp_path)
    launch = ["--launch", "slurm", "--agent", AGENT]
    chakram = [sys.executable, "-m", "chakram"]
    allocate = ["salloc", "--quiet", "--nodes=4", "--immediate=20"]
    find = ["hosts", "find", "n[1-4]", "--port-in", "198.18.0.0/15", *launch]
    done = lab.run(*allocate, *chakram, *find, environment=slurm)
    (tmp_path / "hosts.yaml").write_text(done.stdout)
    port = '{open: "udp:eth1", address: 198.18.77.9/24}'
    larger = f"{done.stdout}  - {{name: n9, ports: [{port}]}}\n"
    (tmp_path / "larger.yaml").write_text(larger)
    check = ["hosts", "check", str(tmp_path / "larger.yaml"), *launch]
    done = lab.run(*allocate, *chakram, *check, environment=slurm)
    assert "not in the allocation: n9" in done.stderr
    for number in range(TIMES):
        runs = str(tmp_path / f"runs{number}")
        command = [*chakram, "run", str(path), "--runs", runs, *launch]
        done = lab.run(*allocate, *command, environment=slurm)
        assert "# Run complete." in done.stdout
        assert lab.agents() == []


def test_sbatch(lab: HostLab, slurm: dict[str, str], tmp_path: Path) -> None:
    write_experiment(tmp_path)
    script = tmp_path / "job.sh"
    script.write_text(
        _BATCH.format(
            folder=tmp_path,
            chakram=f"{sys.executable} -m chakram",
            launch=f"--launch slurm --agent '{AGENT}'",
        )
    )
    for _ in range(TIMES):
        lab.run("sbatch", "--wait", str(script), environment=slurm)
        assert "# Run complete." in (tmp_path / "batch.out").read_text()
        assert lab.agents() == []
