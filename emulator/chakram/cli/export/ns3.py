"""``chakram export fct``, ``pfc`` and ``qlen``: a run in files of ns-3's RDMA model."""

from __future__ import annotations

from pathlib import Path

from chakram.cli.export.source import Force, Out, Source, results_of, write
from chakram.cli.options import Json, Overrides, Runs

__all__ = ["fct", "pfc", "qlen"]


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


def pfc(
    source: Source,
    out: Out = Path(),
    runs: Runs = None,
    overrides: Overrides = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write pfc.txt: when ports were paused and went on, from samples of links."""
    from chakram.observe.queue_exports import pause_events
    from chakram.results.readers.ns3 import pauses_text

    results = results_of(source, overrides, runs, quiet=as_json)
    text = pauses_text(pause_events(results))
    write(out, {"pfc.txt": text.encode()}, force=force, as_json=as_json)


def qlen(
    source: Source,
    out: Out = Path(),
    runs: Runs = None,
    overrides: Overrides = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write qlen.txt: the queues of switches at every sample of links."""
    from chakram.observe.queue_exports import queue_lengths
    from chakram.results.readers.ns3 import queue_lengths_text

    results = results_of(source, overrides, runs, quiet=as_json)
    text = queue_lengths_text(queue_lengths(results))
    write(out, {"qlen.txt": text.encode()}, force=force, as_json=as_json)
