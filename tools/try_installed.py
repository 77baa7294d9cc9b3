"""Test an installed Chakram like a user, from a folder without a checkout.

The test imports every module and prints the help of every verb. It writes the data
files that a wheel contains. Then it simulates a ready experiment and runs it in a lab.
Use the Python interpreter of the environment under test, as root, and pass a name for
the lab that is not in use::

    /tmp/venv/bin/python tools/try_installed.py tried
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parents[1]
SCRIPTS = Path(sys.executable).parent
EXPERIMENT = "quickstart-small"
SHORT = ("--set", "iterations.warmup=0", "--set", "iterations.measured=1")

NEEDS_MORE = "chakram.pytest_plugin"
"""Module that the test skips, because its import needs pytest."""


OF_EXTRAS = ("starlette", "uvicorn")
"""Packages of extras. Modules that need a missing one cannot be imported."""


def main() -> None:
    """Test everything, and stop at the first failure."""
    import chakram

    place = Path(chakram.__file__).resolve()
    if place.is_relative_to(HERE) and not place.is_relative_to(SCRIPTS.parent):
        raise SystemExit(f"{place} is the checkout, not an installed package")
    for name in modules():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in OF_EXTRAS:
                raise
    for verb in verbs():
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            code = importlib.import_module("chakram.cli").main([*verb, "--help"])
        if code:
            raise SystemExit(f"chakram {' '.join(verb)} --help: exit code {code}")
    run("chakram-agent", "--help", quiet=True)
    run("chakram", "doctor")
    run("chakram", "init", EXPERIMENT)
    run("chakram", "init", "--examples", "examples")
    run("chakram", "dashboards", "export", "monitoring", quiet=True)
    run("chakram", "completion", "bash", quiet=True)
    run("chakram", "bug-report", "--yes", quiet=True)
    run("chakram", "simulate", f"{EXPERIMENT}.yaml", *SHORT, quiet=True)
    run("chakram", "run", f"{EXPERIMENT}.yaml", *SHORT, "--lab", sys.argv[1])


def modules() -> Iterator[str]:
    """Yield the names of all modules that a plain installation can import."""
    import chakram
    import chakram_agent

    for package in (chakram, chakram_agent):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.startswith(NEEDS_MORE) or found.name.endswith("__main__"):
                continue
            yield found.name


def verbs() -> Iterator[list[str]]:
    """Yield every verb as a list of words. The first list is empty."""
    from typer.main import get_command

    from chakram.cli import command_line

    waiting = [([], get_command(command_line()))]
    while waiting:
        words, command = waiting.pop()
        yield words
        for name, below in getattr(command, "commands", {}).items():
            waiting.append(([*words, name], below))


def run(*command: str, quiet: bool = False) -> None:
    """Run a command of the environment, and exit if it fails."""
    print("$", *command, flush=True)
    done = subprocess.run(
        [SCRIPTS / command[0], *command[1:]],
        stdout=subprocess.DEVNULL if quiet else None,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="chakram-installed-") as folder:
        os.chdir(folder)
        main()
