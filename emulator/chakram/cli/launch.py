"""``chakram launch``: print launcher commands and deployment files."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from chakram.cli.common import options
from chakram.cli.common.dataclass_options import with_options
from chakram.cli.common.launch_options import Launching

app = typer.Typer(
    name="launch",
    help="Print launcher commands and deployment files.",
    no_args_is_help=True,
)

_TEST_NET = ("198.18.0.0/15",)
_PortIn = Annotated[
    list[str],
    typer.Option(
        metavar="PREFIX",
        help="Choose ports with an address in this prefix. Can be repeated.",
    ),
]


@app.command()
@with_options("launching", Launching, "launch", "listen", "tolerate")
def show(
    kind: Annotated[str, typer.Argument(help="Launcher: local, ssh, slurm or mpi.")],
    hosts: Annotated[
        str,
        typer.Argument(
            metavar="HOSTS", help="Host list, or any file that hosts find accepts."
        ),
    ],
    *,
    launching: Launching,
    as_json: options.Json = False,
) -> None:
    """Print the commands that start the agents on hosts.

    A run gives each command a token on its standard input.
    """
    from chakram.cli.hosts import login_addresses
    from chakram.launch.launched_agents import agent_command
    from chakram.launch.launchers import LaunchRequest, launcher

    chosen = replace(launching, launch=kind).options()
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
    port_in: _PortIn,
    directive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTION",
            help="Additional sbatch option, e.g. --directive=--partition=gpu. Can be "
            "repeated.",
        ),
    ] = None,
) -> None:
    """Print a Slurm batch script that runs an experiment.

    Submit it: chakram launch sbatch ... | sbatch
    """
    from chakram.launch.deployment_files import batch_script

    options.prefixes_of("--port-in", port_in)
    print(
        batch_script(
            str(experiment),
            nodes=nodes,
            port_in=port_in,
            directives=directive or (),
        ),
        end="",
    )


_Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PREFIX",
        help="Prefix that the agent may send to. Can be repeated. Default: "
        "198.18.0.0/15.",
    ),
]
_MaxRate = Annotated[
    str | None, typer.Option(metavar="RATE", help="Limit on the total send rate.")
]
_ListenAt = Annotated[
    str, typer.Option(metavar="ADDRESS:PORT", help="Address that the agent listens on.")
]


def _unit(listen: str, allow: list[str] | None, max_rate: str | None) -> str:
    """Return the systemd unit of an agent. Refuse invalid options."""
    from chakram.foundation.units import parse_rate
    from chakram.launch.deployment_files import systemd_unit

    options.prefixes_of("--allow", allow or ())
    if max_rate is not None:
        parse_rate(max_rate, where="--max-rate")
    return systemd_unit(listen=listen, allow=allow or _TEST_NET, max_rate=max_rate)


@app.command()
def systemd(
    listen: _ListenAt = "0.0.0.0:7411",
    allow: _Allow = None,
    max_rate: _MaxRate = None,
) -> None:
    """Print a systemd unit that runs the agent as a service."""
    print(_unit(listen, allow, max_rate), end="")


@app.command()
def ansible(
    listen: _ListenAt = "0.0.0.0:7411",
    allow: _Allow = None,
    max_rate: _MaxRate = None,
) -> None:
    """Print an Ansible playbook that installs the agent as a service."""
    from chakram.launch.deployment_files import ansible_playbook

    print(ansible_playbook(_unit(listen, allow, max_rate)), end="")


@app.command()
def kubernetes(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT.yaml", help="Path of the experiment file on the volume."
        ),
    ],
    nodes: Annotated[int, typer.Option(min=1, max=65536, help="Number of nodes.")],
    image: Annotated[str, typer.Option(help="Container image with Chakram.")],
    claim: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Persistent volume claim that contains the experiment and receives "
            "its results.",
        ),
    ],
    port_in: _PortIn,
) -> None:
    """Print Kubernetes manifests: an Indexed Job of agents, and the controller."""
    from chakram.launch.deployment_files import kubernetes_manifests

    options.prefixes_of("--port-in", port_in)
    manifests = kubernetes_manifests(
        experiment, nodes=nodes, image=image, claim=claim, port_in=port_in
    )
    print(manifests, end="")
