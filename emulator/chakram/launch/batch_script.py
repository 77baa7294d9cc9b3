"""A batch script of Slurm that finds ports, runs an experiment and ends its agents.

This module does no I/O.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from chakram.foundation.errors import ConfigError


def batch_script(
    experiment: str,
    *,
    nodes: int,
    port_in: Sequence[str],
    directives: Sequence[str] = (),
    program: str = "chakram",
) -> str:
    """Return a script for ``sbatch``, whose batch step runs the controller.

    Args:
        experiment: Name of the experiment file.
        nodes: Number of nodes.
        port_in: Prefixes that choose the ports.
        directives: Further options of sbatch, e.g. ``--partition=gpu``.
        program: Command of the controller.

    Raises:
        ConfigError: If a directive is not an option, or contains a line break.
    """
    for each in directives:
        if not each.startswith("-") or "\n" in each:
            raise ConfigError(
                f"--directive {each!r}",
                "is not an option of sbatch",
                "e.g. --time=10",
            )
    lines = [f"--nodes={nodes}", "--ntasks-per-node=1", *directives]
    ports = " ".join(f"--port-in {shlex.quote(each)}" for each in port_in)
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {each}" for each in lines),
            "set -euo pipefail",
            "",
            "# Slurm gives each job its own list of nodes.",
            "inventory=hosts-$SLURM_JOB_ID.yaml",
            f'{program} hosts find "$SLURM_JOB_NODELIST" --launch slurm {ports} \\',
            '    > "$inventory"',
            f"{program} run {shlex.quote(experiment)} --launch slurm \\",
            '    --hosts "$inventory" --report',
            "",
        ]
    )
