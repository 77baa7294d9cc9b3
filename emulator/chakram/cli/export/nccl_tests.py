"""``chakram export nccl-tests``: a run in the JSON of nccl-tests."""

from __future__ import annotations

import json
from pathlib import Path

import chakram
from chakram.cli.export.source import Force, Out, Source, results_of, write
from chakram.cli.options import Json, Overrides, Runs

__all__ = ["nccl_tests"]


def nccl_tests(
    source: Source,
    out: Out = Path(),
    runs: Runs = None,
    overrides: Overrides = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the collectives of a run as nccl-tests 2.19 does with -J, a file a test."""
    from chakram.observe.nccl_output import documents_of

    results = results_of(source, overrides, runs, quiet=as_json)
    documents, notes = documents_of(results, version=chakram.__version__)
    files = {
        f"{name}.json": (json.dumps(document, indent=2) + "\n").encode()
        for name, document in documents.items()
    }
    write(out, files, force=force, as_json=as_json, notes=notes)
