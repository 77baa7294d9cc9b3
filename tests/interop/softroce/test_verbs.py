"""Our binding of libibverbs, on the kernel's Soft-RoCE."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interop.softroce.machine import GUEST, LIMIT_S, Machine
from tests.support import require

pytestmark = [pytest.mark.timeout(LIMIT_S), pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]


def output(machine: Machine, *arguments: str) -> Any:
    """Return the JSON that the host's interpreter prints in the guest."""
    words = " ".join((sys.executable, *arguments))
    return json.loads(machine.execute(f"cd {ROOT}; {words}"))


@pytest.fixture(scope="module")
def found(machine: Machine) -> Any:
    """Return what the binding did in the guest."""
    return output(machine, str(Path(__file__).with_name("verbs_in_guest.py")))


def test_messages_arrive_whole_and_in_order(found: Any) -> None:
    sizes = found["sizes"]
    # The list has one completion, because only its last message is signaled.
    assert [row[:3] for row in found["sent"]] == [[len(sizes) - 1, 0, 0]]
    assert [[row[0], row[1], row[2], row[4]] for row in found["received"]] == [
        [100 + at, 0, 1, 1000 + at] for at in range(len(sizes))
    ]
    assert [row[3] for row in found["received"]] == sizes
    assert found["is_equal"]
    assert found["is_rest_untouched"]
    ((sent,), (received,)) = found["send"]
    assert sent[:3] == [5, 0, 0]
    assert received[:5] == [7, 0, 1, 3000, -1]


def test_receives_can_be_shared_and_memory_huge(found: Any) -> None:
    free, first, second, arrived, refused = found["shared"]
    assert free == "3"  # of 4
    assert [row[:4] for row in first] == [[40, 0, 1, 3]]
    # Both directions: one SEND was acknowledged, and one has arrived.
    assert sorted(row[:4] for row in second) == [[1, 0, 0, 3], [41, 0, 1, 4]]
    assert arrived == "data"
    assert refused == [f"ValueError: {n} receives do not fit" for n in (1, 65)]


def test_wrong_use_is_refused_and_nothing_leaks(found: Any) -> None:
    unknown, outside, many, receives, memory, rate = found["refused"]
    assert unknown == "LookupError: mlx5_9"
    assert outside == "ValueError: row 0 is outside the memory region"
    assert many == "ValueError: 3 integers are no list of work requests"
    assert receives == "ValueError: 65 receives do not fit"
    assert memory.startswith("OSError: [Errno 12] no memory of 35184372088832 B")
    assert found["rate_limits_kbps"] == [0, 0]
    assert rate == (
        "OSError: [Errno 95] the queue pair cannot be limited to 1000 kbit/s: "
        "Operation not supported"
    )
    assert found["closed"][:3] == 3 * ["ValueError: it is closed"]
    assert found["closed"][3].startswith("OSError: ")
    assert found["wrong_key"] == [
        [9, "remote access error"],
        [10, "Work Request Flushed Error"],
    ]
    before, after = found["leak"]
    assert before == after


@pytest.mark.soak  # tests/integration/test_measured_ends.py checks the rest of doctor
def test_doctor_measures_what_a_device_can_send(machine: Machine) -> None:
    # Another test measures with perftest beside it, which takes long.
    command = "-m chakram doctor --nic rxe0 --duration 0.05 --json 2>/dev/null"
    found = json.loads(
        machine.execute(f"cd {ROOT}; PATH=/nonexistent {sys.executable} {command}")
    )
    assert found["name"] == "rxe0"
    assert found["address"] == GUEST[4]
    assert found["path_mtu"] == 4096
    rates = {
        (each["size_bytes"], each["queue_pairs"], each["list_length"]): each
        for each in found["trials"]
    }
    # Emulation decides how fast they are, so only their counts are judged.
    for (_, _, list_length), each in rates.items():
        assert each["messages"] > 0
        assert each["messages"] % list_length == 0
        assert 0 < each["post_ns"] < each["time_ns"]
    assert {size for size, _, _ in rates} == {64, 4096, 65_536, 1 << 20}
    sent = sum(each["messages"] for each in found["trials"])
    assert found["counters"]["packets_tx"] > sent
    assert found["counters"]["retries_exceeded"] == 0


@pytest.mark.soak
def test_bandwidth_is_that_of_perftest(machine: Machine) -> None:
    is_missing = shutil.which("ib_write_bw") is None
    require("perftest", "perftest is not installed" if is_missing else None)
    found = output(
        machine, "-m chakram doctor --nic rxe0 --duration 1 --json 2>/dev/null"
    )
    ratios = {
        (each["queue_pairs"], each["list_length"]): each["bits_per_s"]
        / each["perftest_bps"]
        for each in found["trials"]
        if each["size_bytes"] == 65_536 and each["perftest_bps"]
    }
    assert len(ratios) == 3
    assert min(ratios.values()) > 0.9, ratios
