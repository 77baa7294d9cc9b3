"""Inventory files: hosts and ports for any number of experiments."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from chakram.cli import main
from chakram.config.experiment import load_experiment
from chakram.fabric.fabric_types.external import ExternalFabric
from chakram.fabric.fabric_types.inventory_file import read_inventory
from chakram.fabric.inventory.port_choice import FoundHost, inventory_text
from chakram.fabric.inventory.reported_interfaces import HostPort
from chakram.foundation.errors import ConfigError
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from pathlib import Path

EXPERIMENT = REPO_ROOT / "configs/external.yaml"
INVENTORY_KEYS = ("hosts", "defaults", "allow", "tls")


def split(folder: Path, **more: Any) -> Path:
    """Write the external experiment, and its inventory in another folder."""
    document = yaml.safe_load(EXPERIMENT.read_text())
    fabric = document["fabric"]
    inventory = {"version": 1, **{key: fabric.pop(key) for key in INVENTORY_KEYS}}
    (folder / "cluster").mkdir()
    (folder / "cluster/hosts.yaml").write_text(yaml.safe_dump(inventory))
    document["fabric"] = {**fabric, "hosts": "cluster/hosts.yaml", **more}
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def fabric_of(path: Path, **overrides: str) -> ExternalFabric:
    fabric = load_experiment(path, overrides=overrides).fabric
    assert isinstance(fabric, ExternalFabric)
    return fabric


def test_hosts_of_a_file_equal_hosts_in_the_experiment(tmp_path: Path) -> None:
    fabric, direct = fabric_of(split(tmp_path)), fabric_of(EXPERIMENT)
    assert fabric.planned_ports(8) == direct.planned_ports(8)
    assert fabric.allow == direct.allow
    assert fabric.agent_addresses() == direct.agent_addresses()
    assert fabric.tls is not None
    assert fabric.tls.ca == tmp_path / "cluster/certs/ca.pem", "relative to its file"


def test_the_experiment_replaces_settings_of_the_inventory(tmp_path: Path) -> None:
    path = split(tmp_path, defaults={"rate": "1Gbit", "mtu": 1500})
    assert fabric_of(path).port_rate_bps == 10**9
    assert fabric_of(path).smallest_mtu == 1500


def test_one_experiment_runs_on_another_inventory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = split(tmp_path)
    inventory = yaml.safe_load((tmp_path / "cluster/hosts.yaml").read_text())
    for host in inventory["hosts"]:
        host["name"] = f"other-{host['name']}"
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(inventory))
    verb = ["plan", str(path), "--json", "--hosts", str(tmp_path / "other.yaml")]
    assert main(verb) == 0
    assert "other-h3" in json.dumps(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("version", 2, "version"),
        ("hosts", [], "hosts"),
        ("hosts", [{"name": "h1", "agent": "192.0.2.1:7411"}], "hosts[0].ports"),
        ("fabric", {}, "fabric"),
        ("allow", ["198.18.0.1/15"], "allow[0]"),
    ],
)
def test_mistakes_are_named_in_the_inventory(
    tmp_path: Path, key: str, value: Any, found: str
) -> None:
    path = split(tmp_path)
    file = tmp_path / "cluster/hosts.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), key: value}))
    with pytest.raises(ConfigError) as caught:
        load_experiment(path)
    assert str(caught.value).startswith(f"{file}")
    assert found in str(caught.value)


HOSTS = """\
version: 1
hosts:
  - name: a
    agent: "192.0.2.1:7411"
    ports: [{open: "udp:e0", address: 198.18.0.1/24}]
  - name: b
    agent: "192.0.2.2:7411"
    ports: [{open: "udp:e0", address: 198.18.0.2/24}]
"""


@pytest.mark.parametrize(
    ("was", "now", "line", "found"),
    [
        ("name: b", "name: a", 6, "hosts[1].name: host 0 also has 'a'"),
        ("192.0.2.2", "192.0.2.1", 7, "hosts[1].agent: host 0 also has"),
        ("18.0.2", "18.0.1", 8, "198.18.0.1 is the address of a port of a"),
        ("198.18.0.2/24", "2001:2::2/64", 8, "2001:2::2 is an IPv6 address, but"),
    ],
)
def test_mistakes_among_hosts_are_placed_in_the_inventory(
    tmp_path: Path, was: str, now: str, line: int, found: str
) -> None:
    path = split(tmp_path)
    file = tmp_path / "cluster/hosts.yaml"
    file.write_text(HOSTS.replace(was, now))
    with pytest.raises(ConfigError) as caught:
        load_experiment(path)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert found in str(caught.value)


def test_an_inventory_of_a_thousand_hosts_with_eight_rails_is_fast(
    tmp_path: Path,
) -> None:
    lines = ["version: 1", "hosts:"]
    for host in range(1024):
        lines += [f"  - name: gpu{host:04}", "    ports:"]
        for rail in range(8):
            address = f"198.18.{host // 25}.{host % 25 * 10 + rail + 1}/15"
            lines.append(
                f'      - {{open: "udp:ens{rail}np0", address: {address}, mtu: 9000, '
                f"netns: /run/netns/port{rail}}}  # 400 Gbit/s, mlx5_core"
            )
    file = tmp_path / "hosts.yaml"
    file.write_text("\n".join(lines))
    begun_s = time.process_time()
    assert len(read_inventory(file).hosts) == 1024
    assert time.process_time() - begun_s < 3


@pytest.mark.slow
def test_an_inventory_as_hosts_find_prints_it_may_have_many_hosts(
    tmp_path: Path,
) -> None:
    def found(host: int) -> FoundHost:
        ports = []
        for rail in range(8):
            number = 8 * host + rail
            address = f"198.{18 + number // 60_000}.{number // 250 % 240}."
            address += f"{number % 250 + 1}/15"
            nic = HostPort(
                interface=f"ens{rail}f0np0",
                netns=f"/run/netns/port{rail}",
                addresses=(address,),
                mtu=9000,
                is_up=True,
                rate_bps=400 * 10**9,
                driver="mlx5_core",
                numa_node=rail // 4,
                rdma_device=f"mlx5_{rail}",
            )
            ports.append((nic, address))
        return FoundHost(name=f"gpu{host:04}", ports=ports)

    file = tmp_path / "hosts.yaml"
    hosts = [found(host) for host in range(2_500)]
    file.write_text(inventory_text(hosts, allow=(), certificates=None))
    assert len(read_inventory(file).hosts) == 2_500


def test_missing_inventory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        load_experiment(split(tmp_path, hosts="absent.yaml"))


def test_inventory_is_refused_where_no_host_is_external(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split(tmp_path)
    inventory = str(tmp_path / "cluster/hosts.yaml")
    verb = ["plan", str(REPO_ROOT / "configs/quickstart.yaml"), "--hosts", inventory]
    assert main(verb) == 2
    told = capsys.readouterr().err
    assert f"--hosts {inventory}: the fabric of " in told
    assert "is of kind namespaces, which has no hosts (use fabric.kind: ext" in told
