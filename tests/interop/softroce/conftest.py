"""One guest for all tests here, and the requirements to start it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from inspect import signature
from pathlib import Path

import pytest

from tests.interop.softroce.disturbance import clean, redirect
from tests.interop.softroce.kernel import cached_kernel, fetch_kernel
from tests.interop.softroce.machine import GuestDied, Machine, why_no_machine
from tests.support import is_required, require

HERE = Path(__file__).parent
FEATURE = "softroce"

left_out = pytest.StashKey[str]()


def why_not() -> str | None:
    """Return why these tests cannot run here; None if they can."""
    reason = why_no_machine()
    if reason is None and cached_kernel() is None and not is_required(FEATURE):
        return "no kernel is cached (CHAKRAM_REQUIRE=softroce downloads one)"
    return reason


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Skip the tests without a guest, unless it is required."""
    own = [item for item in items if HERE in item.path.parents]
    if not own or is_required(FEATURE):
        return
    reason = why_not()
    if reason is None:
        return
    config.stash[left_out] = f"{len(own)} Soft-RoCE tests deselected: {reason}"
    config.hook.pytest_deselected(items=own)
    items[:] = [item for item in items if HERE not in item.path.parents]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the reason for skipping."""
    if left_out in config.stash:
        terminalreporter.write_line(config.stash[left_out])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Try again with another guest where the guest's kernel has panicked.

    Emulated kernels do that once in a while, in code that has nothing to do with what
    is tested; twice in the same test is a finding.
    """
    given = pyfuncitem.funcargs
    guest = given.get("disturbed", given.get("machine"))
    if not isinstance(guest, Machine):
        return None
    arguments = {name: given[name] for name in signature(pyfuncitem.obj).parameters}
    try:
        pyfuncitem.obj(**arguments)
    except GuestDied:
        if not guest.has_panicked():
            raise
        guest.restart()
        if "disturbed" in given:
            redirect(guest)
        pyfuncitem.obj(**arguments)
    return True


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Return a running guest, the same one for all tests."""
    require(FEATURE, why_not())
    folder = tmp_path_factory.mktemp("softroce")
    with closing(Machine(folder, fetch_kernel())) as started:
        try:
            started.boot()
        except GuestDied:
            if not started.has_panicked():
                raise
            started.restart()
        yield started


@pytest.fixture(scope="session")
def second_machine(
    machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """Return a second guest, to which the namespace of the first one has routes."""
    folder = tmp_path_factory.mktemp("second")
    with closing(Machine(folder, fetch_kernel(), beside=machine)) as started:
        started.boot()
        yield started


@pytest.fixture
def disturbed(machine: Machine) -> Iterator[Machine]:
    """Return the guest; its queueing disciplines are removed afterward."""
    redirect(machine)
    yield machine
    clean(machine)
