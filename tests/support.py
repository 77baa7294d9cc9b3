"""Helpers for tests of several folders."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from chakram.fabric.machine_probe import probe_kernel

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

_Case = TypeVar("_Case")

REPO_ROOT = Path(__file__).resolve().parents[1]


def is_required(feature: str) -> bool:
    """Return whether tests of a feature have to run: ``CHAKRAM_REQUIRE`` names it."""
    return feature in os.environ.get("CHAKRAM_REQUIRE", "").replace(",", " ").split()


def require(feature: str, reason: str | None) -> None:
    """Skip the running test if *feature* is missing, with the reason.

    ``CHAKRAM_REQUIRE=netns,tshark`` names the features that must be there: then the
    test fails instead, so that nothing is skipped unnoticed where it has to run.

    Args:
        feature: Short name, e.g. ``netns``, ``prometheus``, ``tshark``, ``compiler``.
        reason: Why it cannot be used, as a probe says it; None if it can.
    """
    __tracebackhide__ = True
    if reason is None:
        return
    if is_required(feature):
        pytest.fail(f"CHAKRAM_REQUIRE names {feature}, but: {reason}", pytrace=False)
    pytest.skip(f"{feature}: {reason}")


_ONCE_MORE = os.environ.get("CHAKRAM_COMPILED") == "off"
"""Whether plain modules do what was looked at compiled, and take much longer."""


def examples(count: int) -> int:
    """Return the number of examples of a law; fewer in the uncompiled repetition."""
    return count // 5 if _ONCE_MORE else count


def fewer(cases: list[_Case]) -> list[_Case]:
    """Return the cases of a test that takes long: the first one if it is again."""
    return cases[:1] if _ONCE_MORE else cases


def draws(count: int, *, in_soak: int) -> list[ParameterSet]:
    """Return the numbers of random draws of a test.

    Args:
        count: Number of draws in each check.
        in_soak: Number of draws in ``make soak`` beside these.
    """
    soak = pytest.mark.soak
    return [
        pytest.param(number, marks=soak if number >= count else ())
        for number in range(count + in_soak)
    ]


def missing_program(name: str) -> str | None:
    """Return why the program *name* cannot be run; None if it can."""
    return None if shutil.which(name) else f"the program {name} is not installed"


def why_no_torch() -> str | None:
    """Return why this Python cannot record a job of PyTorch; None if it can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed; its build for CPUs is enough"
    # An interrupted installation leaves a package that cannot be imported.
    importing = [sys.executable, "-c", "import torch.distributed"]
    done = subprocess.run(importing, capture_output=True, text=True)
    if done.returncode:
        return f"torch cannot be imported: {done.stderr.strip().rpartition(chr(10))[2]}"
    return None


def missing_root() -> str | None:
    """Return why this process may not administrate networks; None if it may."""
    return None if os.geteuid() == 0 else "this needs root"


def why_no_lab() -> str | None:
    """Return why no namespace lab can be built here; None if one can."""
    for probe in probe_kernel():
        if probe.needed and not probe.ok:
            return f"{probe.name}: {probe.reason}"
    return None
