"""``chakram hosts``: find the hosts of a fabric and their ports."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.common import options
from chakram.foundation.errors import AgentError, ConfigError
from chakram.foundation.ip_addresses import socket_text

if TYPE_CHECKING:
    from chakram.control.service import TlsFiles
    from chakram.fabric.inventory.listed_hosts import ListedHost
    from chakram.fabric.inventory.port_choice import FoundHost, PortChoice, Prefix

app = typer.Typer(
    name="hosts", help="Hosts of real fabrics and their ports.", no_args_is_help=True
)

_AT_ONCE = 64
"""Agents that are asked at the same time."""

_CERTIFICATES = ("ca.pem", "controller.pem", "controller.key")


@app.command()
def find(
    hosts: Annotated[
        str,
        typer.Argument(
            metavar="HOSTS",
            help="Host list, e.g. gpu[001-064], or a file: hostfile of MPI, output of "
            "ansible-inventory --list, or system file of CloudAI (.toml).",
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
            help="Choose ports with such a name, e.g. 'ens*np0'. Can be repeated.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Group of the Ansible inventory, or partition of CloudAI."),
    ] = None,
    agent_port: Annotated[
        int, typer.Option(min=1, max=65535, help="TCP port that the agents listen on.")
    ] = 7411,
    certs: Annotated[
        Path | None,
        typer.Option(help="Folder with ca.pem, controller.pem and controller.key."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Ask the agents of hosts for their ports, and print an inventory file.

    Save the output as hosts.yaml, and name it in fabric.hosts or with --hosts.
    """
    from chakram.fabric.inventory.listed_hosts import listed_hosts
    from chakram.fabric.inventory.port_choice import PortChoice, inventory_text

    if not port_in and not interface:
        raise ConfigError(
            "chakram hosts find",
            "no port is chosen",
            "give --port-in PREFIX, e.g. --port-in 198.18.0.0/15, or --interface",
        )
    prefixes = [_prefix(each) for each in port_in or ()]
    choice = PortChoice(prefixes=prefixes, interfaces=interface or ())
    found = asyncio.run(
        _found(listed_hosts(hosts, group=group), agent_port, _tls(certs), choice)
    )
    if as_json:
        document = [
            {
                "name": host.name,
                "agent": host.agent,
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
            for host in found
        ]
        options.print_json("hosts", {"hosts": document})
        return
    folder = None if certs is None else str(certs.absolute())
    print(inventory_text(found, allow=prefixes, certificates=folder), end="")


def _prefix(text: str) -> Prefix:
    from pydantic_core import PydanticCustomError

    from chakram.settings.addresses import prefix

    try:
        return prefix(text)
    except PydanticCustomError as error:
        found = error.context or {}
        raise ConfigError("--port-in", found["found"], found["hint"]) from None


def _tls(folder: Path | None) -> TlsFiles | None:
    from chakram.control.service import TlsFiles

    if folder is None:
        return None
    ca, cert, key = (folder / name for name in _CERTIFICATES)
    return TlsFiles(ca=ca, cert=cert, key=key)


async def _found(
    hosts: list[ListedHost], agent_port: int, tls: TlsFiles | None, choice: PortChoice
) -> list[FoundHost]:
    """Return the hosts with their chosen ports.

    Raises:
        AgentError: If agents do not answer; it names all of them.
        ConfigError: If a host has no such port.
    """
    from chakram.control.client import AgentClient
    from chakram.fabric.inventory.port_choice import FoundHost, choose_ports

    gate = asyncio.Semaphore(_AT_ONCE)

    async def ask(host: ListedHost) -> FoundHost | AgentError:
        target = socket_text(host.address, agent_port)
        try:
            async with (
                gate,
                await AgentClient.connect(target, name=host.name, tls=tls) as client,
            ):
                ports = await client.list_ports()
        except AgentError as error:
            return error
        return FoundHost(
            name=host.name,
            agent=target,
            ports=choose_ports(host.name, ports, choice),
        )

    answers = await asyncio.gather(*map(ask, hosts))
    failures = [each for each in answers if isinstance(each, AgentError)]
    if failures:
        first = failures[0]
        more = f", and {len(failures) - 1} other agents" if failures[1:] else ""
        raise AgentError(
            f"{len(failures)} of {len(hosts)} hosts",
            f"do not answer: {first.where}: {first.found}{more}",
            first.hint,
        )
    return [each for each in answers if isinstance(each, FoundHost)]
