"""``chakram doctor``: checks of this machine and the privileges of its user."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.table import Table

from chakram.cli.common.console_styles import Console
from chakram.cli.common.options import Json, print_json
from chakram.foundation.errors import EnvironmentProblem
from chakram.foundation.platform_support import require_linux


def doctor(
    as_json: Json = False,
) -> None:
    """Check that this machine can run experiments.

    The exit code is 3 if this machine cannot build namespace labs.
    """
    require_linux("chakram doctor")
    from chakram.fabric.machine_probe import probe_all

    probes = probe_all()
    missing = [probe for probe in probes if probe.needed and not probe.ok]
    if as_json:
        print_json("doctor", {"probes": [asdict(probe) for probe in probes]})
    else:
        table = Table("probe", "", "finding")
        for probe in probes:
            mark = "ok" if probe.ok else "MISSING" if probe.needed else "-"
            table.add_row(probe.name, mark, probe.reason)
        Console().print(table)
        if missing:
            print(
                "this machine cannot build namespace labs; fabric kind loopback works"
            )
    if missing:
        raise typer.Exit(EnvironmentProblem.exit_code)
