"""``chakram hosts``: find, show and check the hosts of a fabric and their ports."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chakram.cli.common import options
from chakram.cli.common.dataclass_options import with_options
from chakram.cli.common.launch_options import LauncherOptions, Launching
from chakram.cli.common.progress import ProgressReporter
from chakram.foundation.coroutines import run_coroutine
from chakram.foundation.errors import AgentError, ConfigError
from chakram.foundation.ip_addresses import socket_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chakram.execution.host_survey import HostAnswer
    from chakram.fabric.fabric_types.base import AgentPlace
    from chakram.fabric.fabric_types.inventory_file import HostSettings
    from chakram.fabric.inventory.port_choice import FoundHost
    from chakram.fabric.inventory.third_party_inventories import ListedHost
    from chakram.launch.launched_agents import LaunchOptions

app = typer.Typer(
    name="hosts",
    help="Find, list and check real hosts; copy the agent to them.",
    no_args_is_help=True,
)

_Group = Annotated[
    str | None,
    typer.Option(
        help="Group in the Ansible inventory, or partition in the CloudAI system file."
    ),
]


@app.command()
@with_options("launching", Launching, "tolerate")
def find(
    hosts: Annotated[
        str,
        typer.Argument(
            metavar="HOSTS",
            help="Host list, e.g. gpu[001-064], or a file: an MPI hostfile, output of "
            "ansible-inventory --list, or a CloudAI system file (.toml).",
        ),
    ],
    port_in: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PREFIX",
            help="Choose ports with an address in this prefix. Can be repeated.",
        ),
    ] = None,
    interface: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Choose ports whose interface name matches this pattern, e.g. "
            "'ens*np0'. Can be repeated.",
        ),
    ] = None,
    group: _Group = None,
    agent_port: Annotated[
        int, typer.Option(min=1, max=65535, help="TCP port that the agents listen on.")
    ] = 7411,
    certs: Annotated[
        Path | None,
        typer.Option(help="Folder with ca.pem, controller.pem and controller.key."),
    ] = None,
    rdma: Annotated[
        bool,
        typer.Option("--rdma", help="Use RDMA devices for the ports that have them."),
    ] = False,
    *,
    launching: Launching,
    as_json: options.Json = False,
) -> None:
    """Ask the agents of hosts for their ports, and print an inventory file.

    Save the output as hosts.yaml, and name it in fabric.hosts or with --hosts.
    """
    from chakram.fabric.inventory.port_choice import (
        FoundHost,
        PortChoice,
        choose_ports,
        inventory_text,
    )
    from chakram.fabric.inventory.third_party_inventories import listed_hosts

    if not port_in and not interface:
        raise ConfigError(
            "chakram hosts find",
            "no port is chosen",
            "give --port-in PREFIX, e.g. --port-in 198.18.0.0/15, or --interface",
        )
    prefixes = options.prefixes_of("--port-in", port_in or ())
    choice = PortChoice(prefixes=prefixes, interfaces=interface or ())
    launch = launching.options()
    listed = listed_hosts(hosts, group=group)
    answers = _answers(_places(listed, agent_port, certs), launch)
    found = [
        FoundHost(
            name=host.name,
            ports=choose_ports(host.name, answers[host.name].ports, choice),
            agent=None if launch else socket_text(host.address, agent_port),
            login=host.address if launch and host.address != host.name else None,
        )
        for host in listed
    ]
    if as_json:
        options.print_json("hosts", {"hosts": [_document(host) for host in found]})
        return
    folder = None if certs is None else str(certs.absolute())
    text = inventory_text(found, allow=prefixes, certificates=folder, on_nics=rdma)
    print(text, end="")


def _document(host: FoundHost) -> dict[str, Any]:
    """Return the JSON object for a host that answered."""
    return {
        "name": host.name,
        "agent": host.agent,
        "login": host.login,
        "ports": [
            {
                "interface": port.interface,
                "netns": port.netns,
                "address": address,
                "mtu": port.mtu,
                "rate_bps": port.rate_bps,
                "driver": port.driver,
                "numa_node": port.numa_node,
                "rdma_device": port.rdma_device,
            }
            for port, address in host.ports
        ],
    }


def _places(
    hosts: list[ListedHost], agent_port: int, certificates: Path | None
) -> list[AgentPlace]:
    """Return where to reach the agents of listed hosts."""
    from chakram.fabric.fabric_types.base import AgentPlace, TlsSettings
    from chakram.fabric.inventory.port_choice import CERTIFICATES

    tls = None
    if certificates is not None:
        folder = certificates.absolute()
        files = {key: folder / name for key, name in CERTIFICATES.items()}
        tls = TlsSettings.model_construct(None, **files)
    return [
        AgentPlace(
            name=host.name,
            target=socket_text(host.address, agent_port),
            login=host.address,
            tls=tls,
        )
        for host in hosts
    ]


def _answers(
    places: list[AgentPlace], launch: LaunchOptions | None
) -> dict[str, HostAnswer]:
    """Return what the agents of all hosts report.

    Raises:
        AgentError: If agents do not answer. The error names the first agent and the
            number of others.
    """
    from chakram.execution.host_survey import survey

    with ProgressReporter() as progress:
        found = run_coroutine(survey(places, launch=launch, progress=progress))
    failures = [each for each in found.values() if isinstance(each, AgentError)]
    if failures:
        first = failures[0]
        more = f", and {len(failures) - 1} other agents" if failures[1:] else ""
        raise AgentError(
            f"{len(failures)} of {len(places)} hosts",
            f"do not answer: {first.where}: {first.found}{more}",
            first.hint,
        )
    return {
        name: each for name, each in found.items() if not isinstance(each, AgentError)
    }


InventoryPath = Annotated[
    Path, typer.Argument(metavar="HOSTS.yaml", help="Inventory file.")
]


@app.command()
def show(
    inventory: InventoryPath,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="PORT",
            help="Print a Prometheus target file (file_sd) for agents that serve "
            "metrics at this port.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the hosts and ports of an inventory file."""
    from chakram.fabric.fabric_types.inventory_file import read_inventory
    from chakram.foundation.units import format_rate

    found = read_inventory(inventory)
    if metrics_port is not None:
        print(json.dumps(list(_targets(found.hosts, metrics_port)), indent=1))
        return
    ports: list[dict[str, Any]] = [
        {
            "host": host.name,
            "agent": host.agent,
            "login": host.login,
            "open": port.open,
            "netns": None if port.netns is None else str(port.netns),
            "address": str(port.address),
            "mtu": port.mtu or found.defaults.mtu,
            "rate_bps": port.rate_bps or found.defaults.rate_bps,
        }
        for host in found.hosts
        for port in host.ports
    ]
    if as_json:
        options.print_json("inventory", {"ports": ports})
        return
    rows = [
        (
            each["host"],
            each["agent"] or f"launched at {each['login'] or each['host']}",
            each["open"],
            each["netns"] or "-",
            each["address"],
            str(each["mtu"]),
            "-" if each["rate_bps"] is None else format_rate(each["rate_bps"]),
        )
        for each in ports
    ]
    _print_table(("host", "agent", "port", "netns", "address", "MTU", "rate"), rows)


def _targets(hosts: Sequence[HostSettings], port: int) -> Iterator[dict[str, object]]:
    """Yield agents in the format of Prometheus target files (file_sd)."""
    for host in hosts:
        address = (host.login or host.name).rpartition("@")[2]
        if host.agent is not None:
            is_here = host.agent.startswith("unix:")
            address = "localhost" if is_here else host.agent.rpartition(":")[0]
        yield {
            "targets": [socket_text(address.strip("[]"), port)],
            "labels": {"chakram_host": host.name},
        }


@app.command()
@with_options("launching", Launching, "tolerate")
def check(
    inventory: InventoryPath,
    *,
    launching: Launching,
    as_json: options.Json = False,
) -> None:
    """Compare an inventory file with its hosts.

    The exit code is 5 if a host differs from the inventory.
    """
    from chakram.fabric.fabric_types.base import AgentPlace
    from chakram.fabric.fabric_types.inventory_file import read_inventory
    from chakram.fabric.inventory.port_check import check_ports
    from chakram.foundation.errors import PreflightFailed
    from chakram.foundation.units import format_time

    found = read_inventory(inventory)
    launch = launching.options()
    names = launch.allocated_hosts() if launch else None
    hosts = [host for host in found.hosts if names is None or host.name in names]
    if not hosts:
        raise ConfigError(
            str(inventory),
            "has no host of this allocation",
            "names must be those of squeue",
        )
    if left_out := [host.name for host in found.hosts if host not in hosts]:
        text = (
            f"left out, because they are not in the allocation: {', '.join(left_out)}"
        )
        print(text, file=sys.stderr)
    places = [
        AgentPlace(name=host.name, target=host.agent, login=host.login, tls=found.tls)
        for host in hosts
    ]
    answers = _answers(places, launch)
    findings = {
        host.name: list(check_ports(host, answers[host.name].ports, found.defaults))
        for host in hosts
    }
    for name, each in answers.items():
        if not each.description.compiled:
            findings[name].append("its agent is not compiled, and reaches a lower rate")
    if as_json:
        documents = [
            {
                "name": name,
                "version": each.description.version,
                "python": each.description.python,
                "kernel": each.description.kernel,
                "cores": each.description.cores,
                "clock_uncertainty_ns": each.clock.uncertainty_ns,
                "findings": findings[name],
            }
            for name, each in answers.items()
        ]
        options.print_json("hosts-checked", {"hosts": documents})
    else:
        rows = [
            (
                name,
                each.description.version,
                each.description.kernel,
                str(each.description.cores),
                format_time(each.clock.uncertainty_ns),
                "; ".join(findings[name]) or "as in the inventory",
            )
            for name, each in answers.items()
        ]
        _print_table(
            ("host", "chakram", "kernel", "cores", "clock known to", "ports"), rows
        )
    if any(findings.values()):
        raise typer.Exit(PreflightFailed.exit_code)


@app.command()
def push(
    hosts: Annotated[
        str | None,
        typer.Argument(
            metavar="HOSTS",
            help="Host list, e.g. gpu[001-064], or any file that hosts find accepts.",
        ),
    ] = None,
    launch: Annotated[
        str, typer.Option(metavar="KIND", help="Launcher: ssh, slurm or mpi.")
    ] = "ssh",
    launcher_option: LauncherOptions = None,
    python: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Archive of a relocatable CPython, for hosts without this version of "
            "Python.",
        ),
    ] = None,
    group: _Group = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.tar.gz",
            help="Write the agent bundle to this file instead of copying it.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Copy the agent of this installation to hosts, and test it there.

    Launched agents of this version then run from this copy.
    """
    import platform

    from chakram.launch.agent_bundle import make_bundle
    from chakram.launch.agent_installation import FOLDER, install

    if (hosts is None) == (save is None):
        raise ConfigError(
            "chakram hosts push",
            "needs hosts, or --save FILE",
            "e.g. chakram hosts push 'gpu[001-064]'",
        )
    places = {} if hosts is None else login_addresses(hosts, group)
    with ProgressReporter() as progress:
        progress.phase("making the bundle")
        bundle = make_bundle(python)
        if save is not None:
            try:
                save.write_bytes(bundle.data)
            except OSError as error:
                raise ConfigError(
                    f"--save {save}", f"cannot be written ({error.strerror})"
                ) from error
        ended = []
        if places:
            progress.phase(f"copying {bundle.folder} to {len(places)} hosts")
            ended = run_coroutine(
                install(
                    bundle,
                    places,
                    kind=launch,
                    machine=platform.machine(),
                    options=launcher_option or (),
                )
            )
    failed = [each for each in ended if each.status]
    if failed:
        first = failed[0]
        more = f", and {len(failed) - 1} other commands failed" if failed[1:] else ""
        raise AgentError(
            f"hosts {', '.join(first.hosts[:3])}",
            f"refused the bundle: exit status {first.status}: {first.last}{more}",
        )
    command = f"{FOLDER}/{bundle.command}"
    if as_json:
        options.print_json(
            "hosts-pushed",
            {
                "bundle": bundle.folder,
                "command": command,
                "unpacked_bytes": bundle.unpacked_bytes,
                "hosts": list(places),
            },
        )
        return
    if save is not None:
        print(f"wrote {save}: {bundle.folder}")
    else:
        print(f"{len(places)} hosts have {command} in their home directory")


def login_addresses(hosts: str, group: str | None) -> dict[str, str]:
    """Return the addresses at which launchers reach hosts of a list or inventory."""
    from chakram.fabric.fabric_types.inventory_file import read_inventory
    from chakram.fabric.inventory.third_party_inventories import listed_hosts

    if Path(hosts).suffix in (".yaml", ".yml"):
        found = read_inventory(Path(hosts)).hosts
        return {host.name: host.login or host.name for host in found}
    return {host.name: host.address for host in listed_hosts(hosts, group=group)}


def _print_table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from chakram.console.text_table import Column

    columns = [Column(heading=each) for each in headings]
    options.print_columns(columns, rows, width=options.output_width(wide=True))
