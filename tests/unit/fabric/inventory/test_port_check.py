"""Comparison of the ports of an inventory with the interfaces of a host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chakram.fabric.fabric_types.inventory_file import read_inventory
from chakram.fabric.inventory.port_check import check_ports
from chakram.fabric.inventory.reported_interfaces import HostPort

if TYPE_CHECKING:
    from pathlib import Path

NIC = HostPort(
    interface="ens1f0",
    netns=None,
    addresses=("192.0.2.9/24", "198.18.1.1/24"),
    mtu=9000,
    is_up=True,
    rate_bps=100 * 10**9,
    rdma_device="mlx5_0",
)
BOND = replace(NIC, interface="bond0", rdma_device="")
OTHER = replace(NIC, interface="ens2f0", addresses=("198.18.2.1/24",))


def findings(folder: Path, opened: str, *found: HostPort, more: str = "") -> list[str]:
    file = folder / "hosts.yaml"
    file.write_text(
        "version: 1\nhosts:\n  - name: h1\n    ports:\n"
        f"      - {{open: {opened!r}, address: 198.18.1.1/24, mtu: 9000{more}}}\n"
    )
    inventory = read_inventory(file)
    return list(check_ports(inventory.hosts[0], found, inventory.defaults))


@pytest.mark.parametrize(
    ("opened", "found"),
    [
        ("udp:ens1f0", NIC),
        ("verbs:mlx5_0", NIC),
        ("verbs:mlx5_bond_0", BOND),
    ],
)
def test_interfaces_as_in_the_inventory_have_no_findings(
    tmp_path: Path, opened: str, found: HostPort
) -> None:
    assert findings(tmp_path, opened, OTHER, found) == []


@pytest.mark.parametrize(
    ("opened", "found", "expected"),
    [
        ("udp:ens9f0", NIC, "ens9f0: no such interface"),
        ("udp:ens1f0", replace(NIC, is_up=False), "is down, or has no carrier"),
        ("udp:ens2f0", OTHER, "does not have 198.18.1.1/24; it has 198.18.2.1/24"),
        ("udp:ens1f0", replace(NIC, mtu=1500), "has MTU 1500, the inventory 9000"),
        ("verbs:mlx5_9", NIC, "mlx5_9: no interface has this RDMA device"),
        ("verbs:mlx5_0", OTHER, "mlx5_0: does not have 198.18.1.1/24"),
        ("verbs:mlx5_0", replace(NIC, netns="/run/netns/p0"), "has this RDMA device"),
        ("verbs:mlx5_0", replace(NIC, mtu=1500), "mlx5_0: has MTU 1500"),
    ],
)
def test_differences_are_found(
    tmp_path: Path, opened: str, found: HostPort, expected: str
) -> None:
    (finding,) = findings(tmp_path, opened, found)
    assert expected in finding


def test_a_port_faster_than_its_interface_is_found(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, "udp:ens1f0", NIC, more=", rate: 400Gbit")
    assert "runs at 100 Gbit/s, less than the 400 Gbit/s" in finding
