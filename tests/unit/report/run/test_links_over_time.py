"""What links did over time: series that add up to what samples say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chakram.cli import main
from chakram.report.run.data import TIME_BINS, RunData
from chakram.report.run.links_over_time import LinksOverTime, links_over_time
from chakram.run_directory.reader import open_run

EXPERIMENT = """\
version: 1
name: sampled
jobs:
  - {{name: in, trace: {{synth: incast, ranks: 4, fan_in: 3, receiver: 0, size: 2MiB}}}}
iterations: {{warmup: 0, measured: 2}}
fabric:
  kind: namespaces
  dilation: {dilation}
  topology: {{single_switch: {{hosts: 4}}}}
  links: {{host: {{rate: 40Gbit, delay: 1us}}}}
  switches: {{profile: sonic, buffer: 1MB}}
transport: {{window: 1MiB}}
records: {{sample_bin: {sample_bin}}}
"""


def simulated(folder: Path, dilation: int = 1, sample_bin: str = "5us") -> RunData:
    """Return the run of senders that are paused in front of one port."""
    path = folder / "sampled.yaml"
    path.write_text(EXPERIMENT.format(dilation=dilation, sample_bin=sample_bin))
    assert main(["simulate", str(path), "--runs", str(folder / "runs")]) == 0
    (run,) = (folder / "runs").iterdir()
    return RunData(open_run(run))


@pytest.mark.parametrize("dilation", [1, 100])
def test_series_add_up_to_what_links_have_counted(
    tmp_path: Path, dilation: int
) -> None:
    data = simulated(tmp_path, dilation)
    series = links_over_time(data)
    assert isinstance(series, LinksOverTime)
    assert series.paused.shape == (len(series.ports), TIME_BINS)
    links = {link.port: link for link in data.results.links()}
    for at, port in enumerate(series.ports):
        link = links[port]
        if series.classes[at] == 3:
            paused_ns = series.paused[at].sum() * series.bin_ns * dilation
            assert paused_ns == pytest.approx(link.paused_ns or 0, rel=0.01)
    assert series.paused.max() <= 1.0 + 1e-9
    to_receiver = series.ports.index("s0:h0")
    # The queue that pauses the senders is the one in front of the receiver.
    deepest = series.queue_max_bytes.max(axis=1)
    switch = [at for at, port in enumerate(series.ports) if port.startswith("s0:")]
    assert max(switch, key=lambda at: deepest[at]) == to_receiver
    assert series.paused[series.ports.index("h1:eth0")].max() > 0
    table = data.results.table("link_samples")
    assert deepest.max() == max(table["queue_max_bytes"].to_pylist())


def test_without_samples_that_is_said(tmp_path: Path) -> None:
    assert "its links were not sampled" in links_over_time(simulated(tmp_path, 1, "0s"))


def test_switches_that_count_no_marks_have_other_series(tmp_path: Path) -> None:
    data = simulated(tmp_path)
    expected = links_over_time(data)
    file = data.results.path / "link_samples.parquet"
    table = pq.read_table(file)
    at = table.column_names.index("marked")
    nulls = pa.nulls(table.num_rows, pa.int64())
    pq.write_table(table.set_column(at, table.field(at), nulls), file)
    found = links_over_time(RunData(open_run(data.results.path)))
    assert isinstance(expected, LinksOverTime)
    assert isinstance(found, LinksOverTime)
    assert found.queue_max_bytes.tolist() == expected.queue_max_bytes.tolist()
    assert found.paused.tolist() == expected.paused.tolist()
    assert "marked" not in found.counted
