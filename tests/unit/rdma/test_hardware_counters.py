"""Counters of RDMA devices under one vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest

from chakram.foundation import ethtool
from chakram.rdma.hardware_counters import counted, read_counters


def device(folder: Path, **counters: int | str) -> Path:
    """Return a folder like sysfs.  The first counter is that of the port."""
    for place, (name, value) in enumerate(counters.items()):
        kind = "hw_counters" if place else "counters"
        path = folder / "mlx5_0" / "ports" / "1" / kind / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return folder


def test_counters_of_port_and_driver_are_read(tmp_path: Path) -> None:
    sysfs = device(tmp_path, port_xmit_data=5, np_cnp_sent=7, lifespan=10, bad="x")
    assert read_counters("mlx5_0", sysfs=sysfs) == {
        "port_xmit_data": 5,
        "np_cnp_sent": 7,
    }
    assert read_counters("mlx5_1", sysfs=sysfs) == {}


def test_counters_of_all_drivers_have_one_name() -> None:
    for names in (("np_cnp_sent",), ("cnpSent",)):
        before = dict.fromkeys(names, 5)
        assert counted(before, dict.fromkeys(names, 9)) == {"cnp_tx": 4}


def test_addends_are_all_needed() -> None:
    one = {"rp_cnp_handled": 3}
    assert counted({"rp_cnp_handled": 0}, one) == {}
    both = {**one, "rp_cnp_ignored": 4}
    assert counted(dict.fromkeys(both, 0), both) == {"cnp_rx": 7}


def test_absent_counters_are_absent_and_not_zero() -> None:
    assert counted({}, {}) == {}
    assert counted({"out_of_sequence": 1}, {"out_of_sequence": 1}) == {
        "frame_sequence_error": 0
    }


def test_counters_of_32_bits_may_wrap() -> None:
    before, after = {"packet_seq_err": 2**32 - 3}, {"packet_seq_err": 4}
    assert counted(before, after) == {"nak_rx": 7}


@pytest.mark.parametrize("before", [1000, 2**32 + 5])
def test_counters_that_were_reset_are_absent(before: int) -> None:
    """A driver that was loaded again begins at 0."""
    assert counted({"packet_seq_err": before}, {"packet_seq_err": 4}) == {}
    both = {"rx_prio3_pause": before, "rx_prio4_pause": 0}
    assert counted(both, dict.fromkeys(both, 4)) == {}


def test_words_of_the_port_are_four_bytes() -> None:
    words = {"port_xmit_data": 10}
    assert counted({"port_xmit_data": 0}, words) == {"bytes_tx": 40}
    both = {**words, "tx_bytes": 41}
    assert counted(dict.fromkeys(both, 0), both) == {"bytes_tx": 41}


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [
        # mlx5 has the counters of the priorities that have PFC.
        (
            {"rx_prio3_pause": 5, "rx_prio4_pause": 2, "rx_prio3_pause_duration": 99}
            | {"tx_prio3_pause": 1, "rx_discards_phy": 4, "rx_prio3_discards": 4},
            {"pfc_rx": 7, "pfc_tx": 1, "discards_rx": 4},
        ),
        (
            {f"rx_pfc_ena_frames_pri{n}": n for n in range(8)}
            | {"rx_total_discard_pkts": 0, "tx_total_discard_pkts": 3},
            {"pfc_rx": 28, "discards_rx": 0, "discards_tx": 3},
        ),
        (
            {"rx_priority_3_xon.nic": 1, "rx_priority_3_xoff.nic": 2}
            | {"tx_priority_0_xoff.nic": 0, "rx_dropped.nic": 6},
            {"pfc_rx": 3, "pfc_tx": 0, "discards_rx": 6},
        ),
    ],
    ids=["mlx5", "bnxt", "ice"],
)
def test_pauses_and_discards_are_those_of_the_interface(
    statistics: dict[str, int],
    expected: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {"eth0": {**dict.fromkeys(statistics, 10), "rx_bytes": 1}}
    monkeypatch.setattr(ethtool, "statistics", lambda name: told[name])
    before = read_counters("mlx5_0", "eth0", tmp_path)
    assert set(before) < set(told["eth0"])
    told["eth0"] = {name: 10 + value for name, value in statistics.items()}
    assert counted(before, read_counters("mlx5_0", "eth0", tmp_path)) == expected
