"""Two guests with a Soft-RoCE device each, between which packets are routed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import chakram
from tests.interop.softroce.machine import LIMIT_S, Machine
from tests.interop.softroce.nic_hosts import nic_hosts
from tests.interop.softroce.test_verbs_runs import bytes_of_pairs, check_blanks, job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.softroce.nic_hosts import NicHosts

pytestmark = [pytest.mark.timeout(LIMIT_S), pytest.mark.soak]

ROOT = Path(__file__).resolve().parents[3]
PORT = 18515


@pytest.fixture(scope="module")
def hosts(
    machine: Machine, second_machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NicHosts]:
    """Return two hosts, one in each guest."""
    folder = tmp_path_factory.mktemp("two")
    with nic_hosts([machine, second_machine], folder, 2) as started:
        yield started


@pytest.mark.parametrize("version", [4, 6])
def test_doctor_measures_between_two_devices(
    machine: Machine, second_machine: Machine, version: int
) -> None:
    command = f"cd {ROOT}; {sys.executable} -m chakram doctor --nic rxe0"
    there = second_machine.guest
    second_machine.execute(
        f"{command} --address {there[version]} --listen {there[4]}:{PORT} "
        ">/tmp/served 2>&1 & until grep -q ready /tmp/served; do sleep 0.5; done"
    )
    found = json.loads(
        machine.execute(
            f"{command} --address {machine.guest[version]} --peer {there[4]}:{PORT} "
            "--duration 0.5 --json 2>/dev/null"
        )
    )
    assert found["peer"]["name"] == f"rxe0 ({there[version]})"
    sent = sum(each["messages"] for each in found["trials"])
    assert found["peer"]["counters"]["packets_rx"] > sent
    assert found["counters"]["packets_tx"] > sent
    for each in found["trials"]:
        if each["perftest_bps"] and each["size_bytes"] >= 65_536:
            assert each["bits_per_s"] > 0.5 * each["perftest_bps"]
    assert "Counters: " in second_machine.execute("cat /tmp/served")


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("verb", ["write", "send"])
def test_runs_between_two_devices(hosts: NicHosts, version: int, verb: str) -> None:
    before = hosts.objects()
    experiment = hosts.experiment(
        version=version,
        jobs=[
            job(
                {"op": "all_reduce", "size": "1MiB", "count": 4},
                {"op": "all_to_all", "size": "2000001B", "count": 2},
                ordering="serial",
                ranks=2,
            )
        ],
    )
    experiment["transport"] |= {"verb": verb, "credits": 2}
    experiment["fabric"] |= {
        "topology": {"single_switch": {"hosts": 2}},
        "links": {"host": {"rate": "1Gbit"}},
    }
    done = hosts.run(experiment)
    assert done.returncode == 0, done.stdout
    assert "Out of bounds values : 0 OK" in done.stdout
    results = chakram.open_run(max((hosts.folder / "runs").iterdir()))
    expected = chakram.simulate(experiment, runs=hosts.folder / "simulated")
    assert bytes_of_pairs(results) == bytes_of_pairs(expected)
    check_blanks(results, with_wrong=True)
    assert hosts.objects() == before
