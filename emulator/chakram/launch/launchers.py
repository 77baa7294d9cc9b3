"""The commands that start agents on hosts: local, ssh, Slurm and MPI.

A launcher is a function that returns commands. It does no I/O. Each command gets the
token on standard input, so that arguments, environments and files contain no token.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from chakram.foundation.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """The agents to start, and their hosts.

    Attributes:
        hosts: Names of the hosts, each with the address that reaches it.
        agent: Command that starts an agent.
        options: Further options for the launcher's own command.
        environment: Environment of the controller, in which Slurm describes its job.
        ends_with_parent: Whether the command is an agent that must end with the process
            that has started it.
    """

    hosts: Mapping[str, str]
    agent: Sequence[str]
    options: Sequence[str] = ()
    environment: Mapping[str, str]
    ends_with_parent: bool = True

    @property
    def bound_agent(self) -> tuple[str, ...]:
        """The agent's command, with an option to end with its parent if requested."""
        more = ("--die-with-parent",) if self.ends_with_parent else ()
        return (*self.agent, *more)


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """A command that starts the agents of some hosts, and ends when they do."""

    hosts: tuple[str, ...]
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A method to start agents.

    Attributes:
        commands: Function that returns the commands for a request.
        shares_token: Whether one command starts several agents, which then share a
            token.
        reaches: Addresses at which agents reach the controller. If None, the addresses
            of the interfaces through which the controller reaches the hosts.
        tells_address: Whether agents get the controller's address from the launcher.
    """

    commands: Callable[[LaunchRequest], list[LaunchCommand]]
    shares_token: bool
    reaches: tuple[str, ...] | None = None
    tells_address: bool = False


def _local(request: LaunchRequest) -> list[LaunchCommand]:
    """Start all agents on this machine, for ports in separate namespaces."""
    return [LaunchCommand((name,), request.bound_agent) for name in request.hosts]


def _ssh(request: LaunchRequest) -> list[LaunchCommand]:
    """Start each agent with the system's ssh and the user's configuration.

    Agents share no connection, because a shared connection would outlive its client. An
    agent ends with its connection, because it is the only process of the session.
    """
    own = {
        "BatchMode": "yes",
        "ConnectTimeout": "10",
        "ControlPath": "none",
        "ServerAliveInterval": "5",
        "ServerAliveCountMax": "3",
    }
    options = [word for key, value in own.items() for word in ("-o", f"{key}={value}")]
    remote = shlex.join(["exec", *request.bound_agent])
    return [
        LaunchCommand(
            (name,),
            # The user's options come first, because ssh takes the first value.
            ("ssh", "-T", *request.options, *options, "--", address, remote),
        )
        for name, address in request.hosts.items()
    ]


def _slurm(request: LaunchRequest) -> list[LaunchCommand]:
    """Start all agents with one srun inside an allocation.

    srun passes its standard input to all tasks. Without ``--cpus-per-task``, each task
    would get one CPU of its node.

    Raises:
        ConfigError: If this process is not in a Slurm job.
    """
    environment = request.environment
    if "SLURM_JOB_ID" not in environment:
        raise ConfigError(
            "--launch slurm",
            "this process is not part of a Slurm job",
            "run it inside salloc or sbatch, e.g. salloc --nodes=4 chakram run ...",
        )
    count = len(request.hosts)
    cpus = environment.get("SLURM_CPUS_ON_NODE")
    return [
        LaunchCommand(
            tuple(request.hosts),
            (
                *("srun", f"--nodes={count}", f"--ntasks={count}"),
                *("--ntasks-per-node=1", f"--nodelist={','.join(request.hosts)}"),
                *("--overlap", "--cpu-bind=none", "--mem=0", "--kill-on-bad-exit=0"),
                *((f"--cpus-per-task={cpus}",) if cpus else ()),
                *request.options,
                *request.agent,
            ),
        )
    ]


def _mpi(request: LaunchRequest) -> list[LaunchCommand]:
    """Start all agents with one mpirun of Open MPI.

    The daemons of Open MPI end their processes when mpirun ends. Agents end with their
    daemon.
    """
    hosts = ",".join(f"{address}:1" for address in request.hosts.values())
    return [
        LaunchCommand(
            tuple(request.hosts),
            (
                *("mpirun", "--host", hosts, "--map-by", "ppr:1:node"),
                *("--bind-to", "none", "--stdin", "all"),
                *request.options,
                *request.bound_agent,
            ),
        )
    ]


LAUNCHERS: dict[str, Launcher] = {
    "local": Launcher(commands=_local, shares_token=False, reaches=("127.0.0.1",)),
    "ssh": Launcher(commands=_ssh, shares_token=False, tells_address=True),
    "slurm": Launcher(commands=_slurm, shares_token=True, tells_address=True),
    "mpi": Launcher(commands=_mpi, shares_token=True),
}
"""All launchers, by the value of ``--launch``."""


def launcher(name: str) -> Launcher:
    """Return the launcher called *name*.

    Raises:
        ConfigError: If there is no such launcher.
    """
    found = LAUNCHERS.get(name)
    if found is None:
        raise ConfigError(
            f"--launch {name}", "is not a launcher", f"one of: {', '.join(LAUNCHERS)}"
        )
    return found
