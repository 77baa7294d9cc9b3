"""``chakram export``: results and experiments as other programs read them.

A module per kind.
"""

from __future__ import annotations

import typer

from chakram.cli.export.astra_sim import astra_sim
from chakram.cli.export.nccl_tests import nccl_tests
from chakram.cli.export.ns3 import fct, pfc, qlen
from chakram.cli.export.openmetrics import openmetrics
from chakram.cli.export.tables import links, p2p

__all__ = ["app"]

app = typer.Typer(
    name="export",
    help="Write results and experiments as other programs read them.",
    no_args_is_help=True,
)
app.command()(astra_sim)
app.command()(fct)
app.command()(pfc)
app.command()(qlen)
app.command()(p2p)
app.command()(links)
app.command()(nccl_tests)
app.command()(openmetrics)
