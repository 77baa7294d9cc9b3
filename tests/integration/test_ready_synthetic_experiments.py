"""The ready experiments with synthetic traces, simulated once each.

All but `external`, whose job is as large as its hosts are fast.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chakram.cli import main
from tests.support import REPO_ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("moe-hot-expert", {"all_reduce", "all_to_all_v"}),
        ("dense-3d", {"all_reduce", "all_gather", "reduce_scatter", "send_recv"}),
        ("kv-cache", {"all_reduce", "send_recv"}),
        ("moe-mix", {"all_reduce", "all_to_all"}),
        ("incast", {"send_recv"}),
        ("permutation", {"send_recv"}),
        ("dcqcn", {"all_reduce", "all_to_all"}),
        ("fat-tree", {"all_reduce"}),
        ("loopback", {"all_reduce"}),
        ("quickstart", {"all_reduce", "all_to_all"}),
        ("quickstart-small", {"all_reduce", "all_to_all"}),
        ("rail", {"all_reduce"}),
        ("single-switch", {"all_reduce"}),
        ("two-jobs", {"all_reduce"}),
    ],
)
def test_ready_experiment_with_a_synthetic_trace_can_be_simulated(
    name: str,
    ops: set[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = ["iterations.warmup=0", "iterations.measured=1", "predict=[bound]"]
    # Little is sent, for how long it takes is not looked at.
    jobs = (0, 1) if name == "two-jobs" else (0,)
    settings += [f"jobs[{job}].size_scale=1/16" for job in jobs]
    arguments = ["simulate", str(REPO_ROOT / f"configs/{name}.yaml"), "--json"]
    for each in settings:
        arguments += ["--set", each]
    code = main([*arguments, "--runs", str(tmp_path)])
    told = capsys.readouterr()
    assert code == 0, told.err
    document = json.loads(told.out)
    assert ops <= {row["collective"] for row in document["results"]}
