"""Tests of labs, repeated by an unprivileged user."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unprivileged_user import NOBODY, interpreter, python_path, run_as_nobody

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
WITHOUT_ROOT = (
    "test_lab.py",
    "test_lab_lifetime.py",
    "test_link_faults.py",
    "test_lab_parts.py",
    "test_capture.py::test_both_directions_of_every_host_are_in_its_file",
    "test_capture.py::test_a_capture_ends_with_its_starter",
)


@pytest.fixture
def python() -> str:
    return interpreter()


@pytest.fixture
def unprivileged_root() -> Iterator[str]:
    """Return a directory for the labs of an unprivileged user."""
    root = tempfile.mkdtemp(prefix="ck-")
    os.chown(root, NOBODY, NOBODY)
    yield root
    shutil.rmtree(root)


SUITE_LIMIT_S = 900
"""For a minute of tests, on a machine that is busy."""


# Tests of code that differs without privileges: user namespaces, missing names of
# namespaces, and holders that end their processes. The soak tests run all others.
UNPRIVILEGED = (
    "single_switch_carries and ipv4",
    "is_counted_in_its_direction",
    "have_names_only_where",
    "temporary_entry_returns",
    "with_the_same_addresses",
    "running_lab_stays_until",
    "leftovers_of_a_killed_holder",
    "processes_of_the_lab_and_no_others",
    "starts_on_a_host",
    "goes_up_and_down",
    "holder_answers_nonsense",
    "capture_ends_with_its_starter",
)


@pytest.mark.slow
@pytest.mark.timeout(SUITE_LIMIT_S + 60)
@pytest.mark.parametrize(
    "chosen",
    [
        " or ".join(f"({each})" for each in UNPRIVILEGED),
        pytest.param("", marks=pytest.mark.soak),
    ],
    ids=["some", "all"],
)
def test_labs_hold_without_root(python: str, chosen: str) -> None:
    status, output = run_as_nobody(
        [
            *(python, "-m", "pytest"),
            *(str(HERE / test) for test in WITHOUT_ROOT),
            *("-q", "-x", "-p", "no:cacheprovider", "-k", chosen),
        ],
        PYTHONPATH=python_path(),
        timeout_s=SUITE_LIMIT_S,
        CHAKRAM_REQUIRE="netns",
        CHAKRAM_COMPILED="off",
    )
    assert status == 0, output


NO_USER_NAMESPACE = """
import asyncio, sys
from chakram.foundation.errors import ChakramError
from chakram.fabric.labs.lab import start_lab
from chakram.fabric.labs.enter_namespace import CLONE_NEWUSER, unshare
from tests.netns.labs import star
unshare(CLONE_NEWUSER)  # nobody is mapped in it, so it may not make further ones
try:
    asyncio.run(start_lab(star(2), lab_name="refused"))
except ChakramError as error:
    print(type(error).__name__, error.exit_code, error)
"""

NO_NET_NAMESPACES = """
import asyncio, pathlib, sys
from chakram.foundation.errors import ChakramError
from chakram.fabric.labs.lab import start_lab
from chakram.fabric.labs.user_namespace import enter_new_user_namespace
from tests.netns.labs import star
enter_new_user_namespace()
pathlib.Path("/proc/sys/user/max_net_namespaces").write_text("3")
try:
    asyncio.run(start_lab(star(8), lab_name="refused"))
except ChakramError as error:
    print(type(error).__name__, error.exit_code, error)
"""


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (NO_USER_NAMESPACE, "PrivilegeError 3 fabric: cannot create a user namespace"),
        (
            NO_NET_NAMESPACES,
            "FabricError 3 fabric: namespace 3 of 9: unshare: No space",
        ),
    ],
)
def test_missing_requirement_is_reported_in_one_sentence(
    python: str, unprivileged_root: str, script: str, found: str
) -> None:
    status, output = run_as_nobody(
        [python, "-c", script],
        PYTHONPATH=python_path(),
        CHAKRAM_COMPILED="off",
        CHAKRAM_STATE_DIR=unprivileged_root,
    )
    assert status == 0, output
    assert output.startswith(found), output
    assert len(output.splitlines()) == 1
    assert "(" in output  # what to do
