"""Warnings about settings that may have unexpected effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from chakram.config.experiment import load_experiment
from chakram.preparation.resolved_run import load_run

if TYPE_CHECKING:
    from pathlib import Path


def warnings(folder: Path, *faults: dict[str, Any], dilation: int = 1) -> list[str]:
    document = {
        "version": 1,
        "name": "some",
        "jobs": [
            {
                "name": "a",
                "trace": {
                    "synth": "collectives",
                    "ranks": 4,
                    "streams": [{"op": "all_reduce", "size": "64KiB"}],
                },
            }
        ],
        "fabric": {
            "kind": "namespaces",
            "topology": {"single_switch": {"hosts": 4}},
            "links": {"host": {"rate": "1Gbit"}},
            "dilation": dilation,
        },
        "faults": {"links": list(faults)},
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_run(load_experiment(path)).warnings()


def test_a_degraded_link_that_is_no_slower_is_warned_about(tmp_path: Path) -> None:
    slower, equal, faster = (
        {"kind": "degrade", "link": f"h{at}-s0", "rate": rate}
        for at, rate in enumerate(("100Mbit", "1Gbit", "5Gbit"))
    )
    for dilation in (1, 10):
        found = warnings(tmp_path, slower, equal, faster, dilation=dilation)
        told = [each for each in found if "changes nothing" in each]
        assert [each.partition(":")[0] for each in told] == [
            "faults.links[1]",
            "faults.links[2]",
        ]
