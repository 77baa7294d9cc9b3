"""``chakram dcqcn``: show a DCQCN profile with the parameter names of a vendor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Column

from chakram.cli.common.escaping_console import Console, Table
from chakram.cli.common.options import Json, print_json
from chakram.foundation.errors import ConfigError
from chakram.foundation.units import format_rate, parse_rate

if TYPE_CHECKING:
    from chakram.roce.congestion.profiles.vendors import Vendors
    from chakram.settings.located_errors import Mistake


Profile = Annotated[
    str,
    typer.Argument(
        help="Profile: dcqcn-nvidia, dcqcn-paper, dcqcn-intel or dcqcn-hpcc-ns3."
    ),
]
Rate = Annotated[str, typer.Option(help="Line rate of a port.")]
ScaledFrom = Annotated[
    str | None,
    typer.Option(
        help="Line rate for which the profile is defined, e.g. 40Gbit. The profile's "
        "rates are scaled to --rate.",
    ),
]
Override = Annotated[
    list[str] | None,
    typer.Option("--set", help="Set a knob, e.g. min_rate=0.5%. Can be repeated."),
]
Vendor = Annotated[
    list[str] | None,
    typer.Option(
        help="Set a knob by its vendor name, e.g. rpg_ai_rate=10. Can be repeated.",
    ),
]
Names = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="Vendor names to show: nvidia, mlx5, intel, hpcc-ns3, otg or keysight. "
        "Default: the names of the profile's vendor.",
    ),
]

_NAME = "dcqcn"
_UNWRAPPED = 1_000

_UNITS = {
    "intel": "rates in Mbit/s, increases (MSS) in thousandths of the line rate, times "
    "in us",
    "otg": "rates in % of the line rate, times in us",
    "keysight": "rates in Mbit/s, times in us, the byte counter in 64 bytes",
}
_USUAL_UNITS = "rates in Mbit/s, times in us"


def dcqcn(
    profile: Profile = "dcqcn-nvidia",
    rate: Rate = "100Gbit",
    scaled_from: ScaledFrom = None,
    overrides: Override = None,
    vendor: Vendor = None,
    names: Names = None,
    as_json: Json = False,
) -> None:
    """Show a DCQCN profile with the vendor names of its knobs.

    Rates are also shown as shares of the line rate.
    """
    from pydantic import ValidationError

    from chakram.config import congestion
    from chakram.config.vendor_names import to_vendor
    from chakram.roce.congestion.dcqcn import Dcqcn
    from chakram.settings.located_errors import from_validation

    line_rate_bps = parse_rate(rate, where="--rate")
    known = Dcqcn.profiles.names
    vendors = Dcqcn.profiles.vendors
    if profile not in known:
        raise ConfigError(
            "profile", f"there is no profile {profile!r}", f"one of {', '.join(known)}"
        )
    if names is None:
        names = next(
            (each for each in vendors.sets if profile == f"dcqcn-{each}"), "nvidia"
        )
    if names not in vendors.sets:
        raise ConfigError(
            "--as", f"there is no vendor {names!r}", f"one of {', '.join(vendors.sets)}"
        )
    given = {
        "profile": profile,
        "scaled_from": scaled_from,
        "overrides": _pairs("--set", overrides),
        "vendor": _pairs("--vendor", vendor),
    }
    model: Any = congestion.settings_model(_NAME)
    try:
        settings = model.model_validate(given)
    except ValidationError as error:
        mistakes = from_validation(error, model=model, data=given)
        raise _told(mistakes, profile) from None
    described = settings.describe()
    mistakes = congestion.congestion_mistakes(_NAME, settings, line_rate_bps)
    if mistakes:
        raise _told(mistakes, profile)
    parameters = congestion.congestion_arguments(_NAME, settings, line_rate_bps)
    values = congestion.knobs_of(_NAME, parameters).model_dump(mode="json")
    shares = congestion.knobs_of(_NAME, parameters, in_percent=True).model_dump(
        mode="json"
    )
    named: dict[str, dict[str, Any]] = {
        each: to_vendor(vendors, parameters, each) for each in vendors.sets
    }
    if as_json:
        print_json(
            "dcqcn",
            {
                "profile": described,
                "line_rate_bps": line_rate_bps,
                "knobs": values,
                "in_percent": shares,
                "vendors": named,
                "sources": list(congestion.load_profile(_NAME, profile).sources),
            },
        )
        return
    _show(
        f"{described}, line rate {format_rate(line_rate_bps)}",
        vendors,
        names,
        named[names],
        values,
        shares,
        sources=congestion.load_profile(_NAME, profile).sources,
    )


def _show(
    title: str,
    vendors: Vendors,
    names: str,
    named: Mapping[str, Any],
    values: Mapping[str, Any],
    shares: Mapping[str, Any],
    *,
    sources: Sequence[str],
) -> None:
    """Print the parameters of a profile in a table, with the names of one vendor."""
    from chakram.config.congestion import value_text
    from chakram.config.vendor_names import knob_named

    console = Console(highlight=False)
    if not console.is_terminal:
        # Do not wrap output for files and other programs, so that names can be copied.
        console = Console(highlight=False, width=_UNWRAPPED)
    console.print(title)
    table = Table(
        # Fold long names rather than truncate them.
        Column("knob", overflow="fold"),
        "value",
        "of the line",
        Column(names, overflow="fold"),
        Column("", justify="right", no_wrap=True),
        box=SIMPLE,
        pad_edge=False,
    )
    spelled = {
        knob_named(vendors, name): (name, number) for name, number in named.items()
    }
    for knob, value in values.items():
        share = shares[knob] if shares[knob] != value else ""
        name, number = spelled.get(knob, ("", ""))
        shown = "-" if number is None else str(number).removesuffix(".0")
        table.add_row(knob, value_text(value), share, name, shown)
    console.print(table)
    console.print(f"units of {names}: {_UNITS.get(names, _USUAL_UNITS)}")
    if None in named.values():
        console.print("- means that the value is too small for these units")
    for source in sources:
        console.print(f"- {source}")


def _told(mistakes: list[Mistake], profile: str) -> ConfigError:
    """Return one error that lists all *mistakes*, each with the option at fault."""
    from chakram.settings.located_errors import report

    places = [
        replace(each, location=_on_the_command_line(each.location, profile))
        for each in mistakes
    ]
    return report("chakram dcqcn", places, lambda _: None)


def _on_the_command_line(
    location: tuple[str | int, ...], profile: str
) -> tuple[str | int, ...]:
    """Return the option that set a value at this place in the settings."""
    if location == ("profile",):
        return (f"profile {profile}",)
    if location[:1] == ("scaled_from",):
        return ("--scaled-from",)
    option = {"overrides": "--set", "vendor": "--vendor"}.get(str(location[0]))
    if option is None or len(location) < 2:
        return location if option is None else (option,)
    return (f"{option} {location[1]}", *location[2:])


def _pairs(option: str, given: list[str] | None) -> dict[str, Any]:
    """Return the values of options of the format name=value, parsed as in a file."""
    from chakram.settings.yaml_document import parse_document

    pairs = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(option, f"{text!r} has no value", "e.g. min_rate=0.5%")
        read = parse_document(f"value: {value}".encode(), source=f"{option} {text}")
        pairs[name.strip()] = read.data["value"]
    return pairs
