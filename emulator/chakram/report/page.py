"""HTML pages: sections of text, facts, tables and plots in one file.

The file contains Bokeh's JavaScript, so it opens without a network and does not depend
on later Bokeh versions. It also contains the numbers, as JSON in the element ``data``,
so that programs can read the same data as people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias

from bokeh.document import Document
from bokeh.embed import components
from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

import chakram
from chakram.foundation.text_escaping import plain
from chakram.report.blocks import Facts, Table

if TYPE_CHECKING:
    from bokeh.plotting import figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot and its caption."""

    figure: figure
    caption: str = ""


Block: TypeAlias = Facts | Table | Plot


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section: heading, text, observation point and blocks.

    A section without blocks is a single line that explains what is missing and why.
    """

    title: str
    text: str = ""
    observed: str = ""
    blocks: tuple[Block, ...] = ()


class Observed(str):
    """Observation point of a section's values; overrides the letters of ``section``."""


Parts: TypeAlias = Iterator[str | Block]
P = ParamSpec("P")

NO_FLOWS = "no flow of a measured iteration was recorded."
NO_BANDWIDTHS = "no collective with a bus bandwidth was measured."


def section(
    title: str, *letters: str
) -> Callable[[Callable[P, Parts]], Callable[P, Section]]:
    """Make a function that yields sentences and blocks return a section instead.

    Args:
        title: Heading of the section.
        letters: Letters of the observation points of its values. The method ``seen`` of
            the function's first argument converts them to text.
    """

    def decorate(parts: Callable[P, Parts]) -> Callable[P, Section]:
        @wraps(parts)
        def made(*args: P.args, **kwargs: P.kwargs) -> Section:
            source: Any = args[0]
            observed, texts, blocks = "", [], []
            for part in parts(*args, **kwargs):
                if isinstance(part, Observed):
                    observed = part
                elif isinstance(part, str):
                    texts.append(part)
                else:
                    blocks.append(part)
            if blocks and letters:
                observed = observed or source.seen(*letters)
            return Section(
                title=title,
                text=" ".join(filter(None, texts)),
                observed=observed,
                blocks=tuple(blocks),
            )

        return made

    return decorate


def render_page(
    *,
    title: str,
    lead: str,
    sections: Sequence[Section],
    document: Mapping[str, object],
    banners: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> str:
    """Return a page as HTML.

    Args:
        title: Title of the page.
        lead: Sentence below the title.
        sections: Sections in order.
        document: Numbers for programs; plain values only.
        banners: Warnings at the top of the page.
        notes: Notes for the whole page, in small print below the title.
    """
    blocks = [block for section in sections for block in section.blocks]
    figures = [block.figure for block in blocks if isinstance(block, Plot)]
    plots = {f"plot{number}": figure for number, figure in enumerate(figures, start=1)}
    script, divs = _embedded(plots) if plots else ("", {})
    names = {id(figure): name for name, figure in plots.items()}
    page: str = _template().render(
        title=title,
        lead=lead,
        banners=banners,
        notes=notes,
        sections=sections,
        version=chakram.__version__,
        bokeh=Markup(_bokeh()) if plots else "",
        script=Markup(_HIDDEN_IN_SCRIPT.sub(_shown, script)),
        div=lambda plot: Markup(divs[names[id(plot.figure)]]),
        kind=lambda block: type(block).__name__,
        letter=_letter,
        data=Markup(_for_script(document)),
    )
    return plain(page)


_HIDDEN_IN_SCRIPT = re.compile(r"(?<!\\)((?:\\{4})*)\\\\(u[0-9a-f]{4})")
"""A JSON escape in a JavaScript string, as Bokeh writes the texts of plots."""


def _shown(match: re.Match[str]) -> str:
    """Keep the escape of an unsafe character visible by escaping it again."""
    character = chr(int(match[2][1:], 16))
    is_half = "\ud800" <= character <= "\udfff"
    hidden = not is_half and plain(character) != character
    return rf"{match[1]}\\\\{match[2]}" if hidden else match[0]


def _letter(section: Section, block: Facts | Table, name: str) -> str:
    """Return the observation point of a named value, unless the name contains it."""
    if not name or re.search(r"\([a-z](, [a-z])*\)", name):
        return ""
    if block.observed is not None:
        return block.observed
    return section.observed.partition(",")[0]


def _embedded(plots: Mapping[str, figure]) -> tuple[str, Mapping[str, str]]:
    """Return the script that draws the plots, and their HTML elements by name."""
    document = Document()
    # Freeze the models: otherwise Bokeh walks through all of them after each addition.
    with document.models.freeze():
        for plot in plots.values():
            document.add_root(plot)
    script, divs = components(plots)
    return script, divs


def _for_script(document: Mapping[str, object]) -> str:
    """Return JSON whose strings cannot end the enclosing script element."""
    text = json.dumps(document, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@lru_cache(maxsize=1)
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("chakram.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")


@lru_cache(maxsize=1)
def _bokeh() -> str:
    """Return Bokeh's core as a script element; widgets and tables are not used."""
    script: str = Resources(mode="inline", components=["bokeh"]).render_js()
    return script
