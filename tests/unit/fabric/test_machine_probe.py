"""Properties of the machine, read from copies of kernel folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chakram.fabric.machine_probe import probe_steering

if TYPE_CHECKING:
    from pathlib import Path


def add_device(root: Path, name: str, *, bus: str, driver: str, gids: str) -> None:
    """Create the sysfs files of an RDMA device on one port."""
    types = root / "class" / name / "ports" / "1" / "gid_attrs" / "types"
    types.mkdir(parents=True)
    (types / "0").write_text(f"{gids}\n", encoding="ascii")
    # What an unused GID has cannot be read.
    (types / "1").mkdir()
    place = root / "bus" / bus
    place.mkdir(parents=True)
    (root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
    (place / "driver").symlink_to(root / "drivers" / driver)
    (root / "class" / name / "device").symlink_to(place)


@pytest.mark.parametrize(
    ("driver", "gids", "takes_it"),
    [
        ("mlx5_core", "RoCE v2", True),
        ("mlx5_core", "IB/RoCE v1", False),
        ("irdma", "RoCE v2", False),
    ],
)
def test_nics_that_occupy_the_roce_port_are_named(
    tmp_path: Path, driver: str, gids: str, takes_it: bool
) -> None:
    add_device(tmp_path, "mlx5_0", bus="0000:c1:00.0", driver=driver, gids=gids)

    probe = probe_steering(tmp_path / "class")

    assert probe.ok is not takes_it
    if takes_it:
        assert probe.reason.startswith("mlx5_0: RoCE is enabled")
        assert "devlink dev param set pci/0000:c1:00.0 name enable_roce" in probe.reason


def test_roce_port_is_free_without_rdma_devices(tmp_path: Path) -> None:
    assert probe_steering(tmp_path / "nothing").ok
