"""Settings of RDMA NICs, from a folder like sysfs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.rdma.nic_settings import gids_of, nic_settings

if TYPE_CHECKING:
    from pathlib import Path

import pytest


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """Return the folders of a ConnectX with DCQCN on priority 3."""
    pci = tmp_path / "pci" / "0000:3b:00.0"
    pci.mkdir(parents=True)
    (tmp_path / "drivers" / "mlx5_core").mkdir(parents=True)
    (pci / "driver").symlink_to(tmp_path / "drivers" / "mlx5_core")
    device = tmp_path / "infiniband" / "mlx5_0"
    port = device / "ports" / "1"
    write(
        port,
        gids__0="fe80:0000:0000:0000:0ac0:ebff:fe00:0001",
        gids__1="0000:0000:0000:0000:0000:ffff:c612:0101",
        gids__2="0000:0000:0000:0000:0000:0000:0000:0000",
        gids__10="0000:0000:0000:0000:0000:ffff:c612:0102",
        gid_attrs__types__0="RoCE v2",
        gid_attrs__types__1="IB/RoCE v1",
        gid_attrs__types__10="RoCE v2",
        gid_attrs__ndevs__1="ens1f0np0",
    )
    (device / "device").symlink_to(pci)
    write(device, tc__1__traffic_class="Global tclass=106")
    net = tmp_path / "net"
    write(
        net / "ens1f0np0",
        mtu="4200",
        ecn__roce_np__enable__2="0",
        ecn__roce_np__enable__3="1",
        ecn__roce_np__cnp_dscp="48",
        ecn__roce_rp__rpg_threshold="1",
    )
    debug = tmp_path / "mlx5"
    write(debug / pci.name / "cc_params", rp_clamp_tgt_rate="1")
    return {"sysfs": tmp_path / "infiniband", "net": net, "debug": debug}


def test_settings_of_a_connectx_are_read(places: dict[str, Path]) -> None:
    def output(command: list[str]) -> bytes:
        assert command == ["dcb", "-j", "pfc", "show", "dev", "ens1f0np0"]
        return b'{"prio_pfc": [false, false, false, true, false, false, false, false]}'

    found = nic_settings("mlx5_0", 1, output=output, **places)
    assert found.pop("memlock")
    assert found == {
        "driver": "mlx5_core",
        "interface": "ens1f0np0",
        "default_traffic_class": "Global tclass=106",
        "mtu": "4200",
        "pfc": "3",
        "np.enable": "0 1",
        "np.cnp_dscp": "48",
        "rp.rpg_threshold": "1",
        "cc.rp_clamp_tgt_rate": "1",
    }


def test_settings_that_cannot_be_read_are_absent(places: dict[str, Path]) -> None:
    assert set(nic_settings("mlx5_9", 0, **places)) == {"memlock"}
    for shown in (b"", b"[]", b'{"prio_pfc": 3}'):
        found = nic_settings("mlx5_0", 1, output=lambda _, out=shown: out, **places)
        assert "pfc" not in found


def test_gids_are_listed_by_index_without_empty_ones(places: dict[str, Path]) -> None:
    found = gids_of("mlx5_0", places["sysfs"])
    assert [(index, kind, interface) for index, _, kind, interface in found] == [
        (0, "RoCE v2", ""),
        (1, "IB/RoCE v1", "ens1f0np0"),
        (10, "RoCE v2", ""),
    ]
    assert [address for _, address, _, _ in found] == [
        "fe80::ac0:ebff:fe00:1",
        "198.18.1.1",
        "198.18.1.2",
    ]
    assert gids_of("mlx5_9", places["sysfs"]) == []
