"""RDMA devices: address, rate, and what is said where libibverbs is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chakram.cli import main
from chakram.foundation.errors import ConfigError
from chakram.rdma.nic_benchmark import NicRate, average_bps
from chakram.rdma.nic_device import find_nic

GIDS = {0: "fe80::1", 1: "198.18.0.1", 2: "198.18.0.1", 3: "2001:2::1"}
REPORT = """
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             392.20             391.83             0.747356
"""


def device(*, is_ethernet: bool = True, is_active: bool = True) -> Any:
    return SimpleNamespace(
        name="mlx5_0",
        gids=lambda: GIDS,
        is_ethernet=is_ethernet,
        is_active=is_active,
        path_mtu=4096,
        firmware="28.39.1002",
    )


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Return a folder like sysfs, in which the first two GIDs are of RoCE v1."""
    port = tmp_path / "mlx5_0" / "ports" / "1"
    types = port / "gid_attrs" / "types"
    types.mkdir(parents=True)
    for index, kind in enumerate(("RoCE v2", "IB/RoCE v1", "RoCE v2", "RoCE v2")):
        (types / str(index)).write_text(f"{kind}\n")
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    return tmp_path


def test_first_global_address_of_roce_v2_is_chosen(sysfs: Path) -> None:
    nic = find_nic(device(), None, sysfs)
    assert (nic.gid_index, nic.address) == (2, "198.18.0.1")
    assert nic.rate_bps == 400 * 10**9


def test_address_may_be_given(sysfs: Path) -> None:
    assert find_nic(device(), "2001:2::1", sysfs).gid_index == 3
    assert find_nic(device(), "2001:2:0::1", sysfs).gid_index == 3
    with pytest.raises(ConfigError, match=r"no GID of type RoCE v2 for 198\.18\.0\.9"):
        find_nic(device(), "198.18.0.9", sysfs)


def test_other_devices_and_addresses_are_refused(sysfs: Path) -> None:
    with pytest.raises(ConfigError, match="is InfiniBand"):
        find_nic(device(is_ethernet=False), None, sysfs)
    with pytest.raises(ConfigError, match="its port is not active"):
        find_nic(device(is_active=False), None, sysfs)
    with pytest.raises(ConfigError, match="'mlx5' is not an IP address"):
        find_nic(device(), "mlx5", sysfs)


def test_device_without_rate_has_none(sysfs: Path) -> None:
    (sysfs / "mlx5_0" / "ports" / "1" / "rate").unlink()
    assert find_nic(device(), None, sysfs).rate_bps is None


def test_report_of_perftest_has_the_average() -> None:
    assert average_bps(REPORT.splitlines()) == pytest.approx(391.83e9)
    assert average_bps(["Couldn't listen to port 18515"]) is None


def test_rates_count_completed_messages() -> None:
    rate = NicRate(
        size_bytes=1000,
        queue_pairs=1,
        list_length=4,
        messages=50,
        time_ns=10**6,
        post_ns=1,
    )
    assert rate.messages_per_s == pytest.approx(50_000)
    assert rate.bits_per_s == pytest.approx(4e8)


def test_missing_library_is_told_with_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = cast("Any", None)
    monkeypatch.setitem(sys.modules, "chakram.rdma.libibverbs", missing)
    assert main(["doctor", "--nic", "mlx5_0"]) == 3
    told = capsys.readouterr().err
    assert "RDMA device mlx5_0: libibverbs cannot be used" in told
    assert "install libibverbs1 and ibverbs-providers" in told


def test_unknown_device_is_told_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("chakram.rdma.libibverbs")
    assert main(["doctor", "--nic", "mlx5_9"]) == 2
    assert "does not exist (devices of this host: none)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [["--address", "198.18.0.1"], ["--duration", "2"], ["--listen", "127.0.0.1:1"]],
)
def test_options_of_a_device_need_one(
    option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *option]) == 2
    assert "need --nic DEVICE" in capsys.readouterr().err
