"""Runs in running labs: matching fabrics, and one run at a time."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chakram.fabric.labs.lab import LabStatus
from chakram.fabric.labs.lab_files import (
    CONTROLLER,
    STATE_ROOT_VARIABLE,
    RegisteredProcess,
    register_process,
    registered_processes,
)
from chakram.fabric.labs.lab_spec import HostState, LabState
from chakram.fabric.labs.running_labs import check_lab, claimed, lab_differences
from chakram.foundation.errors import FabricError
from chakram.switch.profiles import Profile
from chakram.topology.topology import EcnThresholds, Topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos

GBIT = 10**9
STAR = single_switch(4, GBIT, host_queue_bytes=1 << 20)
CLOS = clos(2, 2, 2, GBIT, GBIT)


def lab(topology: Topology = STAR, *, address: str = "198.18.0.1") -> LabState:
    """Return the compared part of the state of a lab."""
    host = HostState(
        name="h0",
        netns="",
        netns_name=None,
        interface="eth0",
        address=address,
        prefix_length=24,
        mac="",
        mtu=4200,
        switch_interface="h0",
    )
    return LabState(
        name="lab1",
        holder_pid=1,
        holder_start_ticks=1,
        rootless=True,
        lifetime="up",
        forwarding="kernel",
        seed=1,
        mtu=4200,
        directory="",
        hosts=(host,),
        switches=(),
        notes=(),
        topology=topology,
    )


def differences(state: LabState, topology: Topology, **changes: Any) -> list[str]:
    wanted: dict[str, Any] = {
        "seed": 1,
        "addressing": "ipv4",
        "mtu": 4200,
        "capture_hosts": (),
        **changes,
    }
    return lab_differences(state, topology=topology, **wanted)


def test_the_same_fabric_does_not_differ() -> None:
    assert differences(lab(), STAR) == []
    assert differences(lab(CLOS), CLOS) == []
    check_lab(lab(), [])


def test_settings_of_simulations_may_differ() -> None:
    ecn = EcnThresholds(kmin_bytes=1, kmax_bytes=2, probability=0.5)
    other = replace(
        STAR,
        links=tuple(replace(link, delay_ns=7, ecn=ecn) for link in STAR.links),
    )
    assert differences(lab(), other) == []


def test_a_seed_matters_where_paths_are_chosen() -> None:
    assert differences(lab(STAR), STAR, seed=2) == []
    (found,) = differences(lab(CLOS), CLOS, seed=2)
    assert (
        found == "seed is 1, but 2 in the experiment: it determines the paths of flows"
    )


def test_a_seed_matters_where_modeled_switches_mark_packets() -> None:
    ecn = EcnThresholds(kmin_bytes=1, kmax_bytes=2, probability=0.5)
    marking = replace(STAR, links=tuple(replace(each, ecn=ecn) for each in STAR.links))
    assert differences(lab(marking), marking, seed=2) == []
    model = replace(lab(marking), forwarding="model", profile=Profile())
    changes = {"seed": 2, "forwarding": "model", "profile": Profile()}
    (found,) = differences(model, marking, **changes)
    assert found.endswith("it determines the marks of packets")
    plain = replace(lab(), forwarding="model", profile=Profile())
    assert differences(plain, STAR, **changes) == []


@pytest.mark.parametrize(
    ("state", "topology", "changes", "found"),
    [
        (
            lab(),
            single_switch(4, 2 * GBIT, host_queue_bytes=1 << 20),
            {},
            "h0-s0, h1-s0, h2-s0 and 1 more have 1Gbit/s with a queue of 1MiB, "
            "but 2Gbit/s with a queue of 1MiB in the experiment",
        ),
        (
            lab(),
            single_switch(4, GBIT + 10**6, host_queue_bytes=1 << 20),
            {},
            "h0-s0, h1-s0, h2-s0 and 1 more have 1Gbit/s with a queue of 1MiB, "
            "but 1.001Gbit/s with a queue of 1MiB in the experiment",
        ),
        (
            lab(),
            replace(
                STAR, links=(replace(STAR.links[0], rate_bps=None), *STAR.links[1:])
            ),
            {},
            "h0-s0 has 1Gbit/s with a queue of 1MiB, but no rate with a queue of 1MiB "
            "in the experiment",
        ),
        (
            lab(),
            single_switch(5, GBIT),
            {},
            "it has 4 hosts, 1 switches and 4 links, but the experiment has 5 hosts, "
            "1 switches and 5 links",
        ),
        (lab(), STAR, {"mtu": 1500}, "MTU is 4200, but 1500 in the experiment"),
        (
            lab(address="2001:2::1"),
            STAR,
            {},
            "addressing is ipv6, but ipv4 in the experiment",
        ),
        (
            lab(),
            STAR,
            {"capture_hosts": ("h0", "h1")},
            "capture is nowhere, but h0, h1 in the experiment",
        ),
        (
            replace(lab(), forwarding="model"),
            STAR,
            {},
            "forwarding is model, but kernel in the experiment",
        ),
        (
            replace(lab(), forwarding="model"),
            STAR,
            {"forwarding": "model", "profile": Profile(name="sonic")},
            "its switches have different settings",
        ),
        (
            replace(lab(), forwarding="model"),
            single_switch(4, GBIT, host_queue_bytes=1 << 20, host_delay_ns=7),
            {"forwarding": "model", "profile": Profile()},
            "its links have different delays or marks",
        ),
    ],
    ids=[
        *(
            "rates",
            "close rates",
            "one rate",
            "shape",
            "MTU",
            "family",
            "capture",
            "forwarding",
        ),
        *("profile", "delays"),
    ],
)
def test_differences_name_the_actual_and_the_requested_value(
    state: LabState, topology: Topology, changes: dict[str, Any], found: str
) -> None:
    assert differences(state, topology, **changes) == [found]
    with pytest.raises(
        FabricError, match="is up, but differs from the fabric"
    ) as caught:
        check_lab(state, [found])
    assert found in str(caught.value)
    assert "chakram fabric down lab1" in str(caught.value)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the directory of a lab called lab1, without a holder."""
    root = tmp_path / "labs"
    root.mkdir(mode=0o700)
    monkeypatch.setenv(STATE_ROOT_VARIABLE, str(root))
    for folder in ("pids", "sockets"):
        (root / "lab1" / folder).mkdir(parents=True)
    return root / "lab1"


def left(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*") if path.is_file()]


def test_lab_is_used_by_one_run_at_a_time(directory: Path) -> None:
    with claimed("lab1", os.getpid()):
        (process,) = registered_processes(directory)
        assert (process.pid, process.role) == (os.getpid(), CONTROLLER)
        with (
            pytest.raises(
                FabricError, match=rf"another run uses it \(process {os.getpid()}\)"
            ),
            claimed("lab1", os.getpid()),
        ):
            pytest.fail("two runs are in one lab")
        (directory / "sockets" / "agent.sock").touch()
    assert left(directory) == []
    with claimed("lab1", os.getpid()):
        pass


def test_next_run_removes_leftovers_of_a_killed_run(directory: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as agent:
        register_process("lab1", agent.pid, "agent")
        # Of a process that has ended, and a socket without an owner.
        (directory / "pids" / "1").write_text(
            '{"pid": 1, "start_ticks": -1, "role": "controller"}', encoding="utf-8"
        )
        (directory / "sockets" / "agent.sock").touch()
        with claimed("lab1", os.getpid()):
            assert agent.wait() < 0
            assert left(directory) == [str(os.getpid())]
    assert left(directory) == []


def test_running_lab_is_in_use_during_a_run() -> None:
    run = RegisteredProcess(pid=1, start_ticks=1, role=CONTROLLER)
    shell = replace(run, role="agent")
    for processes, in_use in (((), False), ((shell,), False), ((shell, run), True)):
        status = LabStatus(name="lab1", alive=True, state=lab(), processes=processes)
        assert status.in_use is in_use
