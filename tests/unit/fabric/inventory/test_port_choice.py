"""Choice of ports by subnet or interface, and the inventory that is written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import pytest

from chakram.fabric.fabric_types.inventory_file import read_inventory
from chakram.fabric.inventory.port_choice import (
    FoundHost,
    PortChoice,
    Prefix,
    choose_ports,
    inventory_text,
)
from chakram.fabric.inventory.reported_interfaces import HostPort
from chakram.foundation.errors import ConfigError

TEST_NET = ip_network("198.18.0.0/15")


def port(
    name: str, *addresses: str, netns: str | None = None, is_up: bool = True
) -> HostPort:
    return HostPort(
        interface=name, netns=netns, addresses=addresses, mtu=9000, is_up=is_up
    )


PORTS = [
    replace(
        port("ens10f0np0", "198.18.10.1/24"), rate_bps=400 * 10**9, driver="mlx5_core"
    ),
    replace(port("ens2f0np0", "198.18.2.1/24"), numa_node=1, rdma_device="mlx5_0"),
    port("eno1", "192.0.2.1/24", "2001:db8::1/64"),
    port("ens1f0np0", "198.18.1.1/24", netns="/run/netns/port0"),
    port("ens3f0np0", is_up=False),
]


def chosen(
    *ports: HostPort,
    prefixes: Collection[Prefix] = (),
    interfaces: Collection[str] = (),
) -> list[tuple[str, str]]:
    choice = PortChoice(prefixes=prefixes, interfaces=interfaces)
    found = choose_ports("h1", ports or PORTS, choice)
    return [(each.interface, address) for each, address in found]


def test_ports_in_a_prefix_are_chosen_in_natural_order() -> None:
    assert chosen(prefixes=[TEST_NET]) == [
        ("ens2f0np0", "198.18.2.1/24"),
        ("ens10f0np0", "198.18.10.1/24"),
        ("ens1f0np0", "198.18.1.1/24"),
    ]


def test_interfaces_are_chosen_by_pattern() -> None:
    assert chosen(interfaces=["eno*", "ens2*"]) == [
        ("eno1", "192.0.2.1/24"),
        ("ens2f0np0", "198.18.2.1/24"),
    ]
    assert chosen(interfaces=["e*"], prefixes=[ip_network("2001:db8::/32")]) == [
        ("eno1", "2001:db8::1/64")
    ]


def test_a_host_without_such_ports_names_those_that_it_has() -> None:
    with pytest.raises(ConfigError) as caught:
        chosen(prefixes=[ip_network("203.0.113.0/24")])
    assert caught.value.where == "host h1"
    assert "eno1 (192.0.2.1/24 2001:db8::1/64)" in caught.value.found
    assert "ens3f0np0 (no address)" in caught.value.found


def test_a_chosen_port_that_is_down_is_refused() -> None:
    down = port("ens4", "198.18.4.1/24", is_up=False)
    with pytest.raises(ConfigError, match=r"ens4 \(198\.18\.4\.1/24\) is down"):
        chosen(down, prefixes=[TEST_NET])


def test_the_written_inventory_is_read_again(tmp_path: Path) -> None:
    choice = PortChoice(prefixes=[TEST_NET])
    host = FoundHost(
        name="h1", agent="192.0.2.1:7411", ports=choose_ports("h1", PORTS, choice)
    )
    text = inventory_text([host], allow=[TEST_NET], certificates="/etc/certs")
    assert "# 400Gbit/s, mlx5_core" in text or "# 400Gbit, mlx5_core" in text
    assert "# NUMA node 1, mlx5_0" in text
    (tmp_path / "hosts.yaml").write_text(text)
    inventory = read_inventory(tmp_path / "hosts.yaml")
    (read,) = inventory.hosts
    assert read.agent == "192.0.2.1:7411"
    assert [(each.open, str(each.address), each.mtu) for each in read.ports] == [
        (f"udp:{each.interface}", address, 9000) for each, address in host.ports
    ]
    assert [each.netns for each in read.ports] == [None, None, Path("/run/netns/port0")]
    on_nics = inventory_text([host], allow=[], certificates=None, on_nics=True)
    assert on_nics.count('open: "verbs:mlx5_0"') == 1
    assert on_nics.count('open: "udp:') == len(host.ports) - 1
    assert inventory.allow == (TEST_NET,)
    assert inventory.tls is not None
    assert inventory.tls.key == Path("/etc/certs/controller.key")
