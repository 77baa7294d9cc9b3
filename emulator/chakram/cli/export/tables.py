"""``chakram export p2p`` and ``links``: who sent whom how much, and over what."""

from __future__ import annotations

from pathlib import Path

from chakram.cli.export.source import Force, Out, Source, results_of, write
from chakram.cli.options import Json, Overrides, Runs

__all__ = ["links", "p2p"]


def p2p(
    source: Source,
    out: Out = Path(),
    runs: Runs = None,
    overrides: Overrides = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write p2p.csv: messages and bytes of every pair of ranks."""
    from chakram.observe.exports import pairs_csv

    results = results_of(source, overrides, runs, quiet=as_json)
    write(out, {"p2p.csv": pairs_csv(results)}, force=force, as_json=as_json)


def links(
    source: Source,
    out: Out = Path(),
    runs: Runs = None,
    overrides: Overrides = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write links.csv: what went through each direction of every link."""
    from chakram.observe.exports import links_csv

    results = results_of(source, overrides, runs, quiet=as_json)
    write(out, {"links.csv": links_csv(results)}, force=force, as_json=as_json)
