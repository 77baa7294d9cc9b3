"""Markers, guards and fixtures for all tests.

A test's folder is its marker, and decides what it may do: tests in ``unit`` and
``property`` may neither open connections nor sleep; tests that touch the system must
leave nothing behind.  What is marked ``bench`` or ``soak``, by its folder or by itself,
is off by default.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hypothesis
import pytest

from tests import simulation_bounds
from tests.command_server import forked_commands
from tests.documented import Place
from tests.leaks import Belongings
from tests.support import REPO_ROOT, examples, is_required

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TESTS = REPO_ROOT / "tests"
PURE = frozenset({"unit", "property"})
TOUCHING_THE_SYSTEM = frozenset({"integration", "netns", "e2e"})
OFF_BY_DEFAULT = frozenset({"bench", "soak"})
GUEST = "tests/interop/softroce"
"""Tests that share a guest, which takes a while to boot."""

FOLDERS = PURE | {"golden", "interop"} | TOUCHING_THE_SYSTEM | OFF_BY_DEFAULT

without_data = pytest.StashKey[int]()
LEFT_OUT = "tests without data"

# How fast a law is checked is up to the machine.
TIMELESS = hypothesis.settings(
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("dev", TIMELESS)
hypothesis.settings.register_profile(
    "ci",
    TIMELESS,
    # The same ones every time: more of them would find nothing the next time.
    derandomize=True,
    max_examples=min(40, TIMELESS.max_examples),
    print_blob=True,
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")

# As the command itself does: modules and tests stay, and to look for cycles among them
# took a good part of the time of all tests.
gc.set_threshold(100_000)

# What is printed must not depend on who watches: rich and typer look at these.
for variable in (
    *("TERMINAL_WIDTH", "TERM", "COLORTERM"),
    *("NO_COLOR", "FORCE_COLOR", "PY_COLORS", "CLICOLOR", "CLICOLOR_FORCE"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE", "GITHUB_ACTIONS"),
):
    os.environ.pop(variable, None)


def ignore_signal(number: int, frame: object) -> None:
    """Take a signal and do nothing."""


# In the background (``&``, ``nohup``), the shell ignores these signals for the tests.
# Programs that a test starts would inherit that. They do not inherit a handler.
for ignored in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, ignore_signal)


def folder_of(item: pytest.Item) -> str:
    """Return the folder below ``tests`` of *item*; empty if it is in none."""
    return item.path.relative_to(TESTS).parts[0] if TESTS in item.path.parents else ""


def data_folder() -> Path | None:
    """Return the folder of real traces and captures; None if it is missing."""
    path = REPO_ROOT / os.environ.get("CHAKRAM_DATA", REPO_ROOT.parent / "shared")
    return path if path.is_dir() else None


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Mark tests by folder; deselect those that are off or have no data here."""
    for item in items:
        if folder_of(item) in FOLDERS:
            item.add_marker(folder_of(item))
    markers = config.getoption("markexpr")
    off = [name for name in OFF_BY_DEFAULT if name not in markers]
    have_data = data_folder() is not None
    kept, deselected = [], []
    for item in items:
        if any(item.get_closest_marker(name) for name in off):
            deselected.append(item)
        elif not have_data and "chakram_data" in getattr(item, "fixturenames", ()):
            config.stash[without_data] = config.stash.get(without_data, 0) + 1
            deselected.append(item)
        else:
            kept.append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Check all simulations against their bounds; freeze earlier objects."""
    if session.items and not session.config.option.collectonly:
        simulation_bounds.install()
        gc.collect()
        gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the number of deselected tests to the process that prints the summary."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[LEFT_OUT] = session.config.stash.get(without_data, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Fetch the guest's kernel here, because workers may have no network."""
    if is_required("softroce") and any(map(GUEST.startswith, config.args)):
        # Elsewhere this file may stand without that folder.
        from tests.interop.softroce.kernel import fetch_kernel

        # Why it cannot be had, its tests will say.
        with suppress(RuntimeError):
            fetch_kernel()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give workers whole files, the last one from the back and others from the front.

    So runs in labs, which wait for their packets, are beside simulations, which keep a
    core busy. All that needs the guest is one file in this.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist import scheduler

    config.option.loadscopereorder = False
    files: Any = scheduler.LoadFileScheduling(config, log)
    file_of, assign = files._split_scope, files._assign_work_unit

    def from_both_ends(node: Any) -> None:
        if node is files.nodes[-1]:
            files.workqueue.move_to_end(next(reversed(files.workqueue)), last=False)
        assign(node)

    files._split_scope = lambda item: GUEST if item.startswith(GUEST) else file_of(item)
    files._assign_work_unit = from_both_ends
    return files


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receive the number of tests that a worker deselected; all collect every test."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[without_data] = output.get(LEFT_OUT, 0)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print how many tests were deselected because data is missing."""
    count = config.stash.get(without_data, 0)
    if count:
        terminalreporter.write_line(
            f"{count} tests deselected: they read real traces and captures, and "
            "CHAKRAM_DATA names no folder of them"
        )


@pytest.fixture(scope="module")
def frozen_again() -> Iterator[None]:
    """Freeze all objects again after a module whose tests unfreeze them."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def chakram_data() -> Path:
    """Return the folder of real traces and captures.

    It is ``$CHAKRAM_DATA``, by default ``shared`` beside the checkout. Tests that ask
    for it are deselected where it does not exist.
    """
    path = data_folder()
    assert path is not None
    return path


@pytest.fixture(scope="session")
def forked_chakram() -> Iterator[Path]:
    """Yield a replacement of ``chakram`` that starts faster."""
    with (
        tempfile.TemporaryDirectory(prefix="ck-") as folder,
        forked_commands(Path(folder)) as program,
    ):
        yield program


@pytest.fixture
def documented_place(forked_chakram: Path) -> Callable[[Path], Place]:
    """Return a function that prepares a folder to run documented commands."""
    return lambda folder: Place(folder, data_folder(), forked_chakram.parent)


@pytest.fixture(autouse=True)
def _unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give printed output the width that it has without a terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "25")


@pytest.fixture(autouse=True)
def _pure(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forbid connections and sleep in tests of pure code."""
    if folder_of(request.node) not in PURE:
        return

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        pytest.fail(
            f"tests in {', '.join(sorted(PURE))} neither connect sockets nor sleep"
        )

    # Socket pairs stay: asyncio wakes its loops through one.
    for name in ("bind", "connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(time, "sleep", refuse)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves processes, threads, descriptors or labs behind."""
    folder = folder_of(request.node)
    if folder not in TOUCHING_THE_SYSTEM:
        yield
        return
    before = Belongings.now()
    yield
    left = before.left_behind()
    if left:
        pytest.fail("left behind: " + "; ".join(left), pytrace=False)
