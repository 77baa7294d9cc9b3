"""The guide to counters: its patch adds a column and a metric."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from tests.patched import patch_of, patched_tree, python_of
from tests.udp_ports import free_udp_ports

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = "add-a-counter.md"

EXPERIMENT = """\
version: 1
name: repeated
jobs:
  - name: moe
    trace: {{synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}}
    compute: {{from: none}}
    size_scale: 1/64
iterations: {{warmup: 0, measured: 1}}
fabric: {{kind: loopback, rate: 100Mbit, udp_port: {udp_port}}}
faults: {{packets: [{{action: duplicate, nth: 1, every: 5}}]}}
runs: {runs}
"""


def test_a_counter_is_a_declaration_an_attribute_and_the_place_that_counts() -> None:
    files = re.findall(r"^\+\+\+ b/(\S+)$", patch_of(GUIDE), re.MULTILINE)
    assert len(files) == 3
    (of_catalog,) = (name for name in files if "/records/" in name)
    assert of_catalog == "emulator/chakram/records/counter_definitions.py"


def test_new_counter_is_a_column_and_a_metric(tmp_path: Path) -> None:
    tree = patched_tree(GUIDE, tmp_path / "tree", "tools")
    experiment = tmp_path / "experiment.yaml"
    runs = tmp_path / "runs"
    experiment.write_text(EXPERIMENT.format(udp_port=free_udp_ports(), runs=runs))
    python_of(tree, tmp_path, "-m", "chakram", "run", str(experiment))
    page = python_of(tree, tmp_path, str(tree / "tools/metrics_reference.py"))

    (table,) = runs.glob("*/queue_pairs.parquet")
    counted = pq.read_table(table, columns=["qpn", "repeats_rx"]).to_pydict()
    last = dict(zip(counted["qpn"], counted["repeats_rx"], strict=True))
    assert sum(last.values()) > 0
    assert pq.read_schema(table).names[-1] == "repeats_rx"
    assert "chakram_repeats_total" in page
