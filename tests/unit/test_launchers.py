"""The commands of launchers."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING
from unittest.mock import AsyncMock, Mock

import pytest

from chakram.cli import main
from chakram.foundation.errors import (
    AgentError,
    ConfigError,
    EnvironmentProblem,
    HostsAbsent,
)
from chakram.launch.deployment_files import batch_script
from chakram.launch.launched_agents import (
    LaunchedAgents,
    _reaches,
    _Started,
    _why_absent,
    listen_address,
)
from chakram.launch.launchers import LAUNCHERS, LaunchCommand, LaunchRequest, launcher
from chakram.run_directory.agent_logs import FOLDER, agent_logs

if TYPE_CHECKING:
    from pathlib import Path

AGENT = ("chakram-agent", "serve", "--token-file", "-", "--allow", "198.18.0.0/15")
HOSTS = {"gpu1": "gpu1", "gpu2": "me@192.0.2.2"}


def commands(name: str, **environment: str) -> list[str]:
    request = LaunchRequest(
        hosts=HOSTS, agent=AGENT, options=("-v",), environment=environment
    )
    return [" ".join(each.arguments) for each in LAUNCHERS[name].commands(request)]


def test_ssh_starts_one_agent_per_host_that_ends_with_its_connection() -> None:
    settings = (
        "-o BatchMode=yes -o ConnectTimeout=10 -o ControlPath=none "
        "-o ServerAliveInterval=5 -o ServerAliveCountMax=3"
    )
    agent = f"exec {' '.join(AGENT)} --die-with-parent"
    assert commands("ssh") == [
        f"ssh -T -v {settings} -- gpu1 {agent}",
        f"ssh -T -v {settings} -- me@192.0.2.2 {agent}",
    ]


def test_local_starts_one_agent_per_host_here() -> None:
    assert commands("local") == [f"{' '.join(AGENT)} --die-with-parent"] * 2


def test_slurm_starts_all_agents_with_all_cores_of_their_nodes() -> None:
    assert commands("slurm", SLURM_JOB_ID="7", SLURM_CPUS_ON_NODE="96") == [
        "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=gpu1,gpu2 --overlap "
        "--cpu-bind=none --mem=0 --kill-on-bad-exit=0 --cpus-per-task=96 -v "
        + " ".join(AGENT)
    ]


def test_slurm_needs_an_allocation() -> None:
    with pytest.raises(ConfigError, match="salloc"):
        commands("slurm")


def test_mpi_starts_all_agents_by_one_mpirun() -> None:
    assert commands("mpi") == [
        "mpirun --host gpu1:1,me@192.0.2.2:1 --map-by ppr:1:node --bind-to none "
        "--stdin all -v " + " ".join(AGENT) + " --die-with-parent"
    ]


def test_an_unknown_launcher_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="local, ssh, slurm, mpi"):
        launcher("pdsh")


@pytest.mark.parametrize(
    ("text", "address", "port"),
    [
        ("", "", 0),
        (":7410", "", 7410),
        ("192.0.2.1", "192.0.2.1", 0),
        ("192.0.2.1:7410", "192.0.2.1", 7410),
        ("[2001:db8::1]:7410", "2001:db8::1", 7410),
        ("[2001:db8::1]", "2001:db8::1", 0),
        ("2001:db8::1", "2001:db8::1", 0),
        ("login1:80", "login1", 80),
    ],
)
def test_an_address_to_listen_at(text: str, address: str, port: int) -> None:
    assert listen_address(text) == (address, port)


@pytest.mark.parametrize("text", ["a:b", "192.0.2.1:65536", "[::1", "a:", "ü..b"])
def test_what_is_no_address_to_listen_at(text: str) -> None:
    with pytest.raises(ConfigError, match="--listen"):
        listen_address(text)


@pytest.mark.parametrize("address", ["gpu..1", f"{64 * 'a'}.example"])
def test_what_is_no_host_name_leaves_the_address_of_the_controller_unknown(
    address: str,
) -> None:
    with pytest.raises(EnvironmentProblem, match="is not a host name"):
        _reaches("", LAUNCHERS["mpi"], [address])


@pytest.mark.parametrize(
    ("refused", "found"),
    [
        ("gpu1", "agent 'gpu1' at 192.0.2.1:5: has version '0.1'"),
        ("gpu2", "did not start: ssh ended with exit status 255: no route to gpu1"),
    ],
)
def test_an_absent_host_is_not_explained_by_the_refusal_of_another(
    refused: str, found: str
) -> None:
    error = AgentError(f"agent {refused!r} at 192.0.2.1:5", "has version '0.1'")
    listener = Mock(refusals={"192.0.2.1": error})

    async def explain() -> HostsAbsent:
        command = LaunchCommand(("gpu1",), ("ssh", "--", "gpu1", "exec chakram-agent"))
        started = _Started(command, Mock(returncode=255))
        started.last.append("no route to gpu1")
        started.reading = asyncio.create_task(asyncio.sleep(0))
        return await _why_absent(started, ["gpu1"], listener)

    assert asyncio.run(explain()).found == found


def test_the_end_of_a_launcher_is_told_with_its_last_line() -> None:
    async def tell() -> list[str]:
        started = _Started(
            LaunchCommand(("gpu1", "gpu2"), ("srun",)),
            Mock(returncode=1, wait=AsyncMock()),
        )

        async def read() -> None:
            for _ in range(9):
                await asyncio.sleep(0)
            started.last.append("srun: error: node failure")

        started.reading = asyncio.create_task(read())
        return await LaunchedAgents(Mock(), None, [started]).ended()

    assert asyncio.run(tell()) == [
        "gpu1, gpu2: srun ended with exit status 1: srun: error: node failure"
    ]


@pytest.mark.parametrize("host", ["gpu1", "agent-1", "rack 1/gpu1", "../gpu1"])
def test_the_log_of_a_host_is_found_by_its_name(tmp_path: Path, host: str) -> None:
    agents = LaunchedAgents(Mock(), tmp_path / "run" / FOLDER)
    (tmp_path / "run").mkdir()
    agents.write_log(host, "a line")
    assert agent_logs(tmp_path / "run") == {host: "a line\n"}


def test_logs_are_in_natural_order_and_keep_their_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["logs", str(tmp_path)]) == 0
    assert "no agent of this run wrote a log" in capsys.readouterr().err
    monkeypatch.setattr("chakram.run_directory.agent_logs._LIMIT_BYTES", 6)
    for host in ("n10", "n2"):
        (tmp_path / f"agent-{host}.log").write_text("started\nended\n")
    assert list(agent_logs(tmp_path).items()) == [("n2", "ended\n"), ("n10", "ended\n")]


def test_a_batch_script_is_bash_and_names_everything(tmp_path: Path) -> None:
    text = batch_script(
        "my experiment.yaml",
        nodes=4,
        port_in=["198.18.0.0/15"],
        directives=["--partition=gpu"],
    )
    path = tmp_path / "job.sh"
    path.write_text(text)
    subprocess.run(["bash", "-n", str(path)], check=True)
    assert text.splitlines()[:4] == [
        "#!/bin/bash",
        "#SBATCH --nodes=4",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --partition=gpu",
    ]
    assert "chakram run 'my experiment.yaml' --launch slurm" in text


@pytest.mark.parametrize("directive", ["gpu", "--time=1\nrm -rf /"])
def test_a_directive_must_be_an_option(directive: str) -> None:
    with pytest.raises(ConfigError, match="not an option of sbatch"):
        batch_script("e", nodes=1, port_in=["198.18.0.0/15"], directives=[directive])


def test_launch_prints_commands(capsys: pytest.CaptureFixture[str]) -> None:
    verb = ["launch", "show", "ssh", "gpu[1-2]", "--agent", "/opt/agent"]
    assert main(verb) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("ssh -T -o BatchMode=yes")
    assert first.endswith(
        "-- gpu1 'exec /opt/agent serve --token-file - --lease 10min --verbose "
        "--die-with-parent'"
    )
    assert "-- gpu2 " in second


def test_launch_prints_a_batch_script(capsys: pytest.CaptureFixture[str]) -> None:
    verb = ["launch", "sbatch", "e.yaml", "--nodes", "2", "--port-in", "198.18.0.0/15"]
    assert main(verb) == 0
    assert "#SBATCH --nodes=2" in capsys.readouterr().out
