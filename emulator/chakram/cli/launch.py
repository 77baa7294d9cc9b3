"""``chakram launch``: print what launchers would run."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from chakram.cli.common import options

app = typer.Typer(name="launch", help="What launchers would run.", no_args_is_help=True)


@app.command()
def show(
    kind: Annotated[str, typer.Argument(help="Launcher: local, ssh, slurm or mpi.")],
    hosts: Annotated[
        str,
        typer.Argument(
            metavar="HOSTS", help="Host list, inventory file, or a file as for find."
        ),
    ],
    agent: options.AgentCommand = None,
    launcher_option: options.LauncherOptions = None,
    lease: options.Lease = "10min",
    as_json: options.Json = False,
) -> None:
    """Print the commands that start the agents of hosts.

    A run gives each command a token on its standard input.
    """
    from chakram.cli.hosts import login_addresses
    from chakram.launch.launched_agents import agent_command
    from chakram.launch.launchers import LaunchRequest, launcher

    chosen = options.launch_options(
        kind, listen="", agent=agent, options=launcher_option, lease=lease
    )
    assert chosen is not None
    request = LaunchRequest(
        hosts=login_addresses(hosts, None),
        agent=agent_command(chosen, allow=()),
        options=chosen.options,
        environment=os.environ,
    )
    commands = launcher(kind).commands(request)
    if as_json:
        document = [
            {"hosts": each.hosts, "arguments": each.arguments} for each in commands
        ]
        options.print_json("launch", {"commands": document})
        return
    for each in commands:
        print(shlex.join(each.arguments))


@app.command()
def sbatch(
    experiment: Annotated[
        Path, typer.Argument(metavar="EXPERIMENT.yaml", help="Experiment file.")
    ],
    nodes: Annotated[int, typer.Option(min=1, max=65536, help="Number of nodes.")],
    port_in: Annotated[
        list[str],
        typer.Option(
            metavar="PREFIX",
            help="Choose ports with an address in this prefix. Can be repeated.",
        ),
    ],
    directive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTION",
            help="Further option of sbatch, e.g. --directive=--partition=gpu. Can be "
            "repeated.",
        ),
    ] = None,
) -> None:
    """Print a batch script of Slurm that runs an experiment.

    Submit it: chakram launch sbatch ... | sbatch
    """
    from chakram.launch.batch_script import batch_script

    print(
        batch_script(
            str(experiment),
            nodes=nodes,
            port_in=port_in,
            directives=directive or (),
        ),
        end="",
    )
