"""``chakram export fct``: a run in the files of ns-3's RDMA model."""

from __future__ import annotations

from pathlib import Path

from chakram.cli.export.source import Force, Out, Source, results_of, write
from chakram.cli.options import Json, Overrides, Runs

__all__ = ["fct"]


def fct(
    source: Source,
    out: Out = Path(),
    runs: Runs = None,
    overrides: Overrides = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write fct.txt: every message, as ns-3's RDMA model (HPCC's) writes it."""
    from chakram.observe.exports import flow_times
    from chakram.results.readers.ns3 import flow_times_text

    results = results_of(source, overrides, runs, quiet=as_json)
    text = flow_times_text(flow_times(results))
    write(out, {"fct.txt": text.encode()}, force=force, as_json=as_json)
