"""SIGTERM ends a large simulation within 2 s."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chakram.run_directory.reader import open_run

EXPERIMENT = """\
version: 1
name: large
jobs:
  - name: job
    trace: {{synth: collectives, ranks: {ranks}, streams: [{stream}]}}
    compute: {{from: none}}
collectives: {{all_reduce: ring}}
iterations: {{warmup: 0, measured: 1, sync: free}}
fabric:
  kind: namespaces
  topology: {topology}
  links: {{host: {{rate: 400Gbit}}, uplink: {{rate: 400Gbit}}}}
simulation: {simulation}
"""
LIMIT_S = 2.0
"""Processor time after the signal: others use the machine, too."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def used_s(pid: int) -> float:
    """Return the processor time of a running process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("ranks", "stream", "simulation"),
    [
        (16, "{op: all_reduce, size: 16GiB, count: 1}", "{cost_model: astra-sim-ns3}"),
        pytest.param(
            4096,
            "{op: all_reduce, size: 64MiB, count: 1}",
            "{level: packet}",
            marks=pytest.mark.soak,
        ),
    ],
    ids=["ns3", "packet"],
)
def test_sigterm_ends_a_large_simulation(
    ranks: int, stream: str, simulation: str, tmp_path: Path
) -> None:
    path = tmp_path / "large.yaml"
    clos = f"leaves: 8, spines: 8, hosts_per_leaf: {ranks // 8}"
    path.write_text(
        EXPERIMENT.format(
            ranks=ranks,
            stream=stream,
            simulation=simulation,
            topology=f"{{clos: {{{clos}}}}}",
        )
    )
    with subprocess.Popen(
        [sys.executable, "-m", "chakram", "simulate", path, "--runs", tmp_path],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            told = line = process.stderr.readline()
            while "iteration 0" not in line and "message 0" not in line:
                assert line, told
                line = process.stderr.readline()
                told += line
            begun_s = used_s(process.pid)
            while used_s(process.pid) < begun_s + 1:
                assert process.poll() is None, "it was too short"
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            before_s = used_s(process.pid)
            told = process.stderr.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            process.kill()
    assert process.returncode == 130, told
    assert "interrupted by SIGTERM" in told
    assert used.ru_utime + used.ru_stime - before_s < LIMIT_S
    (directory,) = tmp_path.glob("*-simulate")
    assert open_run(directory).manifest.status == "failed"
