"""``chakram fabric``: build, inspect and remove labs."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chakram.cli.common.escaping_console import Console, Table
from chakram.cli.common.options import Force, Json, print_json
from chakram.foundation.coroutines import run_coroutine
from chakram.foundation.errors import ConfigError, NoLab
from chakram.foundation.grouping import grouped
from chakram.foundation.platform_support import require_linux
from chakram.foundation.units import format_rate, format_time

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.fabric.labs.lab import LabStatus
    from chakram.fabric.labs.lab_spec import LabState
    from chakram.topology.topology import Topology


app = typer.Typer(
    name="fabric",
    help="Build, inspect and remove namespace labs.",
    no_args_is_help=True,
)


@app.command()
def up(
    experiment: Annotated[
        Path, typer.Argument(help="Experiment file with the fabric to build.")
    ],
    lab: Annotated[
        str | None,
        typer.Option(help="Name of the lab, instead of the name in the experiment."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Build the fabric of an experiment and keep it running."""
    require_linux("chakram fabric up")
    from chakram.config.experiment import load_experiment

    settings = load_experiment(experiment)
    fabric = settings.fabric
    handle = run_coroutine(
        fabric.start_lab(lab or settings.lab_name, seed=settings.seed, lifetime="up")
    )
    if handle is None:
        raise ConfigError(
            f"{experiment}: fabric.kind",
            f"there is nothing to build for {fabric.kind!r}",
            "only kind: namespaces can be built",
        )
    if as_json:
        print_json("lab", _state_fields(handle.state))
    else:
        _print_state(handle.state)


@app.command()
def show(
    experiment: Annotated[Path, typer.Argument(help="Experiment file.")],
    as_infragraph: Annotated[
        bool, typer.Option("--infragraph", help="Print an InfraGraph document.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the fabric to this file: a self-contained .html, or .svg or "
            ".png (both need Chromium).",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show the hosts, switches and links of a fabric."""
    from chakram.config.experiment import load_experiment
    from chakram.console.summary_document import fabric_document
    from chakram.fabric.infragraph import to_infragraph
    from chakram.topology.drawing import terminal_lines

    settings = load_experiment(experiment)
    topology = settings.written.fabric.to_topology(settings.fabric.nports)
    if topology is None:
        raise ConfigError(
            f"{experiment}: fabric.topology",
            "is missing",
            "describe the fabric under test: topology and links",
        )
    if out is not None:
        _draw(topology, settings, out, force=force)
    if as_infragraph:
        _print_yaml(to_infragraph(topology, settings.name))
        return
    description = settings.written.fabric.describe()
    faults = grouped(
        (each.link, each.describe().removeprefix(f"link {each.link}").strip())
        for each in settings.written.faults.links
    )
    if as_json:
        document = fabric_document(topology, description, faults)
        written = None if out is None else str(out)
        print_json("fabric", {**document, "written": written})
        return
    print(description)
    if out is not None:
        print(f"wrote {out}")
        return
    print()
    for line in terminal_lines(topology, width=Console().width, lines=_has_braille()):
        print(line)
    print()
    table = Table()
    headings = ("link", "from", "to", "rate", "delay", *(["fault"] if faults else []))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for link in topology.links:
        table.add_row(
            link.name,
            str(link.a),
            str(link.b),
            "" if link.rate_bps is None else format_rate(link.rate_bps),
            format_time(link.delay_ns),
            *(["; ".join(faults.get(link.name, ()))] if faults else []),
        )
    Console().print(table)


def _print_yaml(document: dict[str, Any]) -> None:
    import yaml

    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=100)
    print(text, end="")


def _has_braille() -> bool:
    """Return whether the terminal can print braille patterns, which draw the links."""
    try:
        "\u28ff".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _draw(topology: Topology, settings: Experiment, out: Path, *, force: bool) -> None:
    from chakram.chakra.write.atomic_file import new_file, refuse_existing
    from chakram.report.chromium_figures import drawn_figures
    from chakram.report.topology_page import fabric_page

    kind = out.suffix.removeprefix(".")
    if kind not in ("html", "svg", "png"):
        raise ConfigError(f"--out {out}", "has no known suffix", ".html, .svg or .png")
    refuse_existing(out, force=force)
    description = settings.written.fabric.describe()
    page = fabric_page(topology, name=settings.name, description=description)
    drawn = page.encode()
    if kind != "html":
        figures = drawn_figures(page)
        if not figures:
            raise ConfigError(
                f"--out {out}", "there are too many links to draw", "--out FILE.html"
            )
        drawn = figures["topology"][kind]
    with new_file(out, force=force) as file:
        file.write(drawn)


@app.command()
def convert(
    document: Annotated[
        Path,
        typer.Argument(
            help="InfraGraph document (YAML, schema 3.1), or config_db.json of a SONiC "
            "switch."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Print the fabric section for an InfraGraph or SONiC file."""
    from chakram.fabric.infragraph import (
        SIZE_LIMIT_BYTES,
        graph_section,
        read_infragraph,
    )
    from chakram.foundation.bounded_reading import read_bounded
    from chakram.switch.sonic_config import (
        checked_tables,
        is_config_db,
        parse_config_db,
    )

    source = str(document)
    text = read_bounded(
        document,
        limit_bytes=SIZE_LIMIT_BYTES,
        error=ConfigError,
        size_hint="is this an InfraGraph document or a config_db.json?",
    )
    unused: tuple[str, ...] = ()
    if is_config_db(text):
        found = checked_tables(parse_config_db(text, where=source), where=source)
        unused = found.unused
        section: dict[str, Any] = {"switches": {"sonic": found.used}}
    else:
        topology = read_infragraph(text, source=source)
        section = {"kind": "namespaces", "topology": {"graph": graph_section(topology)}}
    if as_json:
        print_json("fabric-section", {"fabric": section, "unused": list(unused)})
        return
    for line in unused:
        print(f"# not used: {line}")
    _print_yaml({"fabric": section})


@app.command()
def down(
    lab: Annotated[str | None, typer.Argument(help="Name of the lab.")] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Remove all labs of this user that are not in use."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --all: also remove labs in use.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove a lab completely, even after a crash."""
    require_linux("chakram fabric down")
    from chakram.fabric.labs import lab as labs

    if (lab is None) != every:
        raise ConfigError(
            "chakram fabric down",
            "names both a lab and --all" if every else "names no lab",
            "give either the name of a lab or --all",
        )
    in_use: list[str] = []
    if every and not force:
        ended, in_use = run_coroutine(labs.down_unused())
    else:
        ended = run_coroutine(labs.down(lab))
    if lab is not None and not ended:
        known = ", ".join(each.name for each in labs.status()) or "none"
        raise NoLab(f"lab {lab}", "there is no such lab", f"existing labs: {known}")
    if as_json:
        print_json("labs-ended", {"ended": ended, "in_use": in_use})
        return
    if ended:
        print(f"removed: {', '.join(ended)}")
    elif not in_use:
        print("there are no labs to remove")
    if in_use:
        print(
            f"in use by runs, not removed: {', '.join(in_use)} "
            "(remove one: chakram fabric down NAME; all: --all --force)"
        )


@app.command()
def status(as_json: Json = False) -> None:
    """List the labs of this user, including leftovers."""
    require_linux("chakram fabric status")
    from chakram.fabric.labs import lab as labs

    found = labs.status()
    if as_json:
        print_json("labs", {"labs": [_status_fields(each) for each in found]})
        return
    if not found:
        print("there are no labs")
        return
    table = Table("lab", "state", "holder", "hosts", "switches", "processes")
    for each in found:
        state = each.state
        processes = ", ".join(f"{one.role} {one.pid}" for one in each.processes)
        table.add_row(
            each.name,
            _condition(each),
            str(state.holder_pid) if state else "",
            str(len(state.hosts)) if state else "",
            str(len(state.switches)) if state else "",
            processes,
        )
    Console().print(table)


def _condition(status: LabStatus) -> str:
    if not status.alive:
        return f"dead, remove it: chakram fabric down {status.name}"
    if status.state is None:
        return "being built"
    return "up, in use" if status.in_use else "up"


def _state_fields(state: LabState) -> dict[str, object]:
    from chakram.fabric.labs.lab_spec import encode_state

    fields: dict[str, object] = json.loads(encode_state(state))
    return fields


def _status_fields(status: LabStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "alive": status.alive,
        "state": None if status.state is None else _state_fields(status.state),
        "processes": [{"pid": one.pid, "role": one.role} for one in status.processes],
    }


def _print_state(state: LabState) -> None:
    table = Table("host", "address", "interface", "MAC", "network namespace")
    for host in state.hosts:
        table.add_row(
            host.name,
            f"{host.address}/{host.prefix_length}",
            host.interface,
            host.mac,
            host.netns_name or host.netns,
        )
    Console().print(table)
    first = state.hosts[0]
    enter = f"ip netns exec {first.netns_name}"
    if first.netns_name is None:
        own = f"{state.holder_pid} --netns {first.netns}"
        enter = f"{shlex.quote(sys.executable)} -m chakram.fabric.enter_lab {own} --"
    for note in state.notes:
        print(f"note: {note}")
    print(f"lab {state.name} is up; run a command on {first.name}: {enter} COMMAND")
    print(f"run an experiment in it: chakram run EXPERIMENT --lab {state.name}")
    print(f"remove it: chakram fabric down {state.name}")
