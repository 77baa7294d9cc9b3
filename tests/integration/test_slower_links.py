"""A degraded link is found from the message times of two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.analysis.comparison_inputs import read_side
from chakram.analysis.slower_links import slower_links
from chakram.cli import main

if TYPE_CHECKING:
    from pathlib import Path

EXPERIMENT = """\
version: 1
name: small
jobs:
  - name: job
    trace: {synth: collectives, ranks: 4, streams: [{op: all_to_all, size: 64KiB}]}
iterations: {warmup: 0, measured: 3}
fabric:
  kind: namespaces
  topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}}
  links: {host: {rate: 100Mbit}, uplink: {rate: 400Mbit}}
predict: []
"""


def test_a_degraded_link_is_found_and_an_equal_run_has_none(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(EXPERIMENT)
    fault = "faults.links=[{kind: degrade, link: h3-leaf1, rate: 50Mbit}]"
    sides = []
    for name, options in (
        ("a", []),
        ("b", ["--set", fault]),
        ("c", ["--set", "seed=2"]),
    ):
        runs = tmp_path / name
        files = [str(tmp_path / "x.yaml"), "--runs", str(runs)]
        assert main(["simulate", *files, *options]) == 0
        sides.append(read_side(runs).fastest)
    before, after, again = sides
    found = slower_links(before, after)
    assert {each.place for each in found} == {
        "h3-leaf1 down or the host of rank 3",
        "h3-leaf1 up or the host of rank 3",
    }
    assert slower_links(before, again) == []
