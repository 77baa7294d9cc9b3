"""Processes of launched runs killed at random moments: silence, no agents, results."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from chakram.fabric.labs.enter_namespace import run_in_namespace
from tests.e2e.test_launched_agents import EXPERIMENT
from tests.host_lab import AGENT, HostLab, ssh_lab
from tests.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

KILLS = int(os.environ.get("CHAKRAM_KILLS", "30"))
SEED = int(os.environ.get("CHAKRAM_SEED", "1"))
SILENT_S, LEASE_S = 2.0, 5.0
_MARGIN_S = 3.0
"""What it may take on a busy machine to see that something has ended."""

VICTIMS = {
    "ssh": ("controller", "agent", "ssh ", "sshd"),
    "slurm": ("controller", "agent", "srun", "slurmd", "slurmstepd"),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostLab]:
    with ssh_lab(tmp_path_factory.mktemp("lab")) as made:
        yield made


def sent_bytes() -> int:
    for line in Path("/proc/thread-self/net/dev").read_text("ascii").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "eth1":
            return int(numbers.split()[8])
    raise LookupError("eth1")


def are_silent(lab: HostLab) -> bool:
    def total() -> int:
        places = [f"/run/netns/ck-{name}" for name in lab.hosts]
        return sum(run_in_namespace(place, sent_bytes) for place in places)

    before = total()
    time.sleep(0.1)
    return total() - before < 10_000


def processes_of(lab: HostLab, name: str) -> list[int]:
    """Return the processes in the lab's namespaces whose command has this name."""
    nodes = {
        Path(f"/run/netns/ck-{each}").stat().st_ino for each in ("ctl", *lab.hosts)
    }
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_text().replace("\0", " ")
            inode = (path / "ns/net").stat().st_ino
        except OSError:
            continue
        program = Path(words.partition(" ")[0].rstrip(":") or "x").name
        if inode in nodes and program == name.strip():
            found.append(int(path.name))
    return found


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", VICTIMS)
def test_a_killed_process_leaves_silence_and_results(
    lab: HostLab, tmp_path: Path, kind: str
) -> None:
    rng = random.Random(f"{SEED} {kind}")
    environment = lab.start_slurm() if kind == "slurm" else {}
    launch = ["--launch", kind, "--agent", AGENT, "--lease", f"{LEASE_S:g}s"]
    if kind == "ssh":
        launch += [f"--launcher-option={each}" for each in lab.ssh_options]
    allocate = ["salloc", "--quiet", "--nodes=4"] if kind == "slurm" else []
    lab.write_inventory(tmp_path)
    path = tmp_path / "experiment.yaml"
    path.write_text(
        yaml.safe_dump(EXPERIMENT | {"iterations": {"warmup": 0, "measured": 10_000}})
    )
    for number in range(KILLS // len(VICTIMS)):
        victim = rng.choice(VICTIMS[kind])
        runs = tmp_path / f"runs{number}"
        command = [*allocate, sys.executable, "-m", "chakram", "run", str(path)]
        command += ["--runs", str(runs), *launch]
        earlier = set(processes_of(lab, victim))
        with (tmp_path / f"{number}.log").open("w") as log:
            process = subprocess.Popen(
                lab.at("ctl", *command),
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=os.environ | environment,
            )
        wait_until(lambda: len(lab.agents()) >= 4, "four agents")
        wait_until(lambda runs=runs: any(runs.rglob("*.parquet")), "records")
        time.sleep(rng.uniform(0, 3))
        told = f"{kind} {number}: {victim}"
        if victim == "agent":
            pids = rng.sample(lab.agents(), 1)
        elif victim == "controller":
            pids = controllers(lab)
        else:
            # The sshd that listens stays, so that the next run can start.
            pids = [
                each
                for each in processes_of(lab, victim)
                if each not in earlier or victim == "slurmd"
            ]
            # srun has a helper process.
            pids = pids if victim == "srun" else rng.sample(pids, 1)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        if victim in ("slurmd", "slurmstepd"):
            # The agents do not need them, and the run goes on.
            time.sleep(1)
            assert not are_silent(lab), told
            for pid in controllers(lab):
                os.kill(pid, signal.SIGINT)
            for name in {*lab.hosts} - running_slurmd(lab):
                conf = environment["SLURM_CONF"]
                lab.start(name, "slurmd", "-N", name, "-D", "-f", conf, log="again.log")
        killed_s = time.monotonic()
        wait_until(
            lambda: are_silent(lab), f"{told}: silence", timeout_s=SILENT_S + _MARGIN_S
        )
        wait_until(
            lambda: lab.agents() == [],
            f"{told}: no agent",
            timeout_s=LEASE_S + SILENT_S + _MARGIN_S,
        )
        process.wait(PATIENCE_S)
        sys.stdout.write(f"{told}: gone in {time.monotonic() - killed_s:.1f} s\n")
        (run,) = runs.iterdir()
        shown = lab.chakram("show", str(run), expected=None)
        assert "Traceback" not in shown.stderr
        text = (tmp_path / f"{number}.log").read_text()
        if victim in ("agent", "ssh ", "sshd", "srun"):
            assert "error: " in text, told
            assert "agent " in text.partition("error: ")[2], text
        if kind == "slurm":
            lab.run("scancel", "--me", expected=None, environment=environment)
            lab.wait_for_idle_nodes(environment)


def arguments_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def controllers(lab: HostLab) -> list[int]:
    """Return the processes of ``chakram run``."""
    python = Path(sys.executable).name
    return [
        pid
        for pid in processes_of(lab, python)
        if arguments_of(pid)[1:4] == ["-m", "chakram", "run"]
    ]


def running_slurmd(lab: HostLab) -> set[str]:
    """Return the hosts whose slurmd runs."""
    found = (arguments_of(pid) for pid in processes_of(lab, "slurmd"))
    return {words[words.index("-N") + 1] for words in found if "-N" in words}
