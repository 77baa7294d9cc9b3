"""The commands of launchers."""

from __future__ import annotations

import pytest

from chakram.foundation.errors import ConfigError
from chakram.launch.launched_agents import listen_address
from chakram.launch.launchers import LAUNCHERS, LaunchRequest, launcher

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


@pytest.mark.parametrize("text", ["a:b", "192.0.2.1:65536", "[::1", "a:"])
def test_what_is_no_address_to_listen_at(text: str) -> None:
    with pytest.raises(ConfigError, match="--listen"):
        listen_address(text)
