"""``chakram trace``: inspect, check, convert, cut and synthesize traces."""

from __future__ import annotations

import typer

from chakram.cli.trace.convert import app as convert_app
from chakram.cli.trace.cut import cut
from chakram.cli.trace.lint import lint
from chakram.cli.trace.show import show
from chakram.cli.trace.synth import app as synth_app

app = typer.Typer(
    name="trace",
    help="Inspect, check, convert, cut and synthesize Chakra traces.",
    no_args_is_help=True,
)
app.command()(show)
app.command()(lint)
app.command()(cut)
app.add_typer(convert_app)
app.add_typer(synth_app)
