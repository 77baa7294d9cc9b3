"""Every command that reads a run, on every type of incomplete run.

Types that resemble another one are tested by ``make soak``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from tempfile import mkdtemp
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from chakram.fabric.labs.lab_files import STATE_ROOT_VARIABLE
from chakram.run_directory.manifest import FAILED, KILLED, PARTIAL, RUNNING
from tests.e2e.processes import AGENT, SHARD, RunProcess
from tests.e2e.runs import moe, star, write_experiment
from tests.incomplete_runs import check_all
from tests.private_network import private_network
from tests.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHORT, LONG = "100ms", "900ms"
"""Of a computation: an iteration has six, and records are written every 2 s."""


def killed(run: RunProcess) -> None:
    run.wait_for_records()
    run.process.kill()


def killed_in_the_first_iteration(run: RunProcess) -> None:
    wait_until(lambda: any(run.runs.glob("*/flows/*.parquet")), "the first messages")
    run.process.kill()


def without_its_agent(run: RunProcess) -> None:
    run.wait_for_records()
    run.member(AGENT).signal(signal.SIGKILL)


def without_a_shard(run: RunProcess) -> None:
    run.wait_for_records()
    run.member(SHARD).signal(signal.SIGKILL)


def with_a_frozen_rank(run: RunProcess) -> None:
    run.wait_for_records()
    run.member(SHARD).signal(signal.SIGSTOP)


def interrupted(run: RunProcess) -> None:
    run.wait_for_records()
    os.killpg(run.process.pid, signal.SIGINT)


def interrupted_before_it_began(run: RunProcess) -> None:
    wait_until(lambda: "building the fabric" in run.errors, "its first phase")
    os.killpg(run.process.pid, signal.SIGINT)


def held(run: RunProcess) -> None:
    """Copy a running run directory, so that its contents do not change."""
    run.wait_for_records()
    run.process.send_signal(signal.SIGSTOP)


def of_itself(run: RunProcess) -> None:
    """End a run for its own reason."""


class Kind(NamedTuple):
    """A kind of incomplete run.

    Attributes:
        end: Ends the run, or waits for what ends it.
        status: How it has ended then.
        computation: How long each takes.
        sections: Further sections of the experiment.
        prefix: Of the command line.
        killed_at: Before which file is in its place the command is killed.
        verb: ``run``, or ``simulate``, which samples links too.
        at_once: Whether it ends before the next one starts, because it would begin.
        is_soak: Whether it resembles another kind.
    """

    end: Callable[[RunProcess], None]
    status: str
    computation: str = SHORT
    sections: Mapping[str, Any] = MappingProxyType({})
    prefix: tuple[str, ...] = ()
    killed_at: str = ""
    verb: str = "run"
    at_once: bool = False
    is_soak: bool = False


SMALL = moe(4) | {"compute": {"from": "trace"}, "size_scale": "1/64"}
TRACE = SMALL["trace"]
ENDLESS = {
    # With gaps, since many of these runs go on at the same time.
    "iterations": {"warmup": 0, "measured": 100_000, "sync": "gap", "gap": "20ms"}
}
TWO_SHARDS = {"agents": {"shards": 2}}
FEW = {"iterations": {"warmup": 1, "measured": 3}}
KINDS = {
    "interrupted before it began": Kind(
        interrupted_before_it_began, FAILED, at_once=True
    ),
    "killed": Kind(killed, KILLED),
    "killed in its first iteration": Kind(
        killed_in_the_first_iteration, KILLED, LONG, is_soak=True
    ),
    "killed as it ended": Kind(
        of_itself,
        KILLED,
        sections=FEW,
        killed_at="collectives.parquet",
        is_soak=True,
    ),
    "a simulation killed as it ended": Kind(
        of_itself,
        KILLED,
        sections=FEW,
        killed_at="collectives.parquet",
        verb="simulate",
    ),
    "without its agent": Kind(without_its_agent, PARTIAL, is_soak=True),
    "without a shard": Kind(
        without_a_shard, PARTIAL, sections=TWO_SHARDS, is_soak=True
    ),
    "a rank never ended": Kind(
        with_a_frozen_rank, PARTIAL, sections=TWO_SHARDS | {"hang_timeout": "1s"}
    ),
    "interrupted": Kind(interrupted, PARTIAL, is_soak=True),
    "aborted in its first iteration": Kind(
        of_itself, PARTIAL, LONG, {"stop_if": {"duration": "1500ms"}}, is_soak=True
    ),
    "disk full": Kind(of_itself, PARTIAL, "2ms", prefix=("prlimit", "--fsize=20000")),
    "running": Kind(held, RUNNING),
}


@pytest.fixture(scope="module")
def processes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, RunProcess]]:
    """Yield by kind of a test here a run that has ended so, all made at once."""
    tested = [
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
    ]
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv(STATE_ROOT_VARIABLE, mkdtemp(prefix="ck-"))
        found = {}
        for name in tested:
            kind = KINDS[name]
            experiment = write_experiment(
                tmp_path_factory.mktemp("run"),
                [SMALL | {"trace": TRACE | {"attention": kind.computation}}],
                star(4) if kind.verb == "simulate" else {"kind": "loopback"},
                **(ENDLESS | kind.sections),
            )
            with private_network():
                process = RunProcess(
                    experiment,
                    verb=kind.verb,
                    prefix=kind.prefix,
                    killed_at=kind.killed_at,
                )
            found[name] = stack.enter_context(process)
            if kind.at_once:
                kind.end(process)
        for name, process in found.items():
            if not KINDS[name].at_once:
                KINDS[name].end(process)
        for name, process in found.items():
            if KINDS[name].status != RUNNING:
                process.process.wait(PATIENCE_S)
        yield found


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.soak if kind.is_soak else ())
        for name, kind in KINDS.items()
    ],
)
def test_every_command_uses_complete_records_only(
    processes: dict[str, RunProcess], tmp_path: Path, name: str
) -> None:
    (run,) = processes[name].runs.iterdir()

    check_all(
        run,
        tmp_path / "out",
        status=KINDS[name].status,
        all_pages=name in ("killed", "a rank never ended"),
    )
