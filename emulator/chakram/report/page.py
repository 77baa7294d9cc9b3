"""HTML pages: an answer, then sections of text, facts, tables and plots, in one file.

The file contains Bokeh's JavaScript, compressed, so it opens without a network and does
not depend on later Bokeh versions. The element ``data`` contains the numbers of the
page as JSON, for programs.
"""

from __future__ import annotations

import base64
import gzip
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
from chakram.report.palette import variables

if TYPE_CHECKING:
    from bokeh.plotting import figure


OBSERVED = {
    "b": "counters of the device under test",
    "c": "the software of the endpoints",
    "m": "not observed, computed by a model",
    "f": "not observed, stated in the experiment",
    "v": "the simulated endpoints and switches, in virtual time",
}
"""Observation points: b and c of the BMWG drafts, and three that Chakram defines.

Point (a) of the drafts does not occur here. It is an instrument at the boundary of the
device under test.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot and its caption."""

    figure: figure
    caption: str = ""


Block: TypeAlias = Facts | Table | Plot


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section: heading, text, observation points and blocks.

    A section without blocks is a single line. It explains what is missing and why.
    """

    title: str
    text: str = ""
    observed: str = ""
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Sections below one heading, which you can expand and collapse."""

    title: str
    sections: Sequence[Section]
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """A key number at the top of a page, with its meaning.

    Attributes:
        value: The number as text, empty if it does not apply.
        label: Meaning of the number.
        why: Reason why the number does not apply.
    """

    value: str
    label: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A bar chart that shows, for each name, the bars of all series side by side.

    Attributes:
        title: Heading.
        series: Names of the series.
        rows: Names, each with the values of the series. None means unknown.
        text: Function that converts a value to text.
        note: Text below the bars.
        colors: Indices of the colors in the palette, which the series take in turn.
    """

    title: str
    series: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float | None]]]
    text: Callable[[float], str]
    note: str = ""
    colors: Sequence[int] = range(10)

    @property
    def highest(self) -> float:
        """The largest value, or 1 if all values are unknown or zero."""
        values = [value or 0 for _, values in self.rows for value in values]
        return max(values, default=0) or 1

    def color(self, number: int) -> int:
        """Return the index of the color of a series, by the number of the series."""
        return self.colors[number % len(self.colors)]

    @property
    def words(self) -> str:
        """The title and all values as text."""
        rows = (
            f"{name}: "
            + ", ".join(
                f"{what} {self.text(value)}"
                for what, value in zip(self.series, values, strict=True)
                if value is not None
            )
            for name, values in self.rows
        )
        return f"{self.title}. {'; '.join(rows)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The summary at the top of a page.

    Attributes:
        verdict: The main results in plain words.
        status: Status of the run, empty if it has none.
        tiles: Key numbers.
        bars: Bar chart, or None if there is nothing to draw.
        heading: Heading of *points*.
        points: Short statements, each with its details.
    """

    verdict: str
    status: str = ""
    tiles: Sequence[Tile] = ()
    bars: Bars | None = None
    heading: str = ""
    points: Sequence[tuple[str, str]] = ()


class Absent(Exception):
    """The run lacks the data of a section. The message explains why."""


class Observed(str):
    """Observation points of a section, instead of the *letters* of ``section``."""


Parts: TypeAlias = Iterator[str | Block]
P = ParamSpec("P")

NO_FLOWS = "no flow of a measured iteration was recorded."
NO_BANDWIDTHS = "no collective with a bus bandwidth was measured."


def section(
    title: str, *letters: str
) -> Callable[[Callable[P, Parts]], Callable[P, Section]]:
    """Return a decorator for functions that yield sentences and blocks.

    A decorated function returns a ``Section``. The original function raises ``Absent``
    if the section has no data.

    Args:
        title: Heading of the section. In lower case, it is also the section's ID.
        letters: Letters of the observation points of the section's values. The method
            ``seen`` of the function's first argument converts them to text.
    """

    def decorate(parts: Callable[P, Parts]) -> Callable[P, Section]:
        @wraps(parts)
        def made(*args: P.args, **kwargs: P.kwargs) -> Section:
            try:
                found = list(parts(*args, **kwargs))
            except Absent as reason:
                return Section(title=title, text=str(reason))
            texts = [each for each in found if isinstance(each, str)]
            points = [each for each in texts if isinstance(each, Observed)]
            blocks = tuple(each for each in found if not isinstance(each, str))
            if blocks and letters and not points:
                source: Any = args[0]
                points = [source.seen(*letters)]
            text = " ".join(
                each for each in texts if each and not isinstance(each, Observed)
            )
            return Section(
                title=title, text=text, observed="".join(points), blocks=blocks
            )

        return made

    return decorate


def render_page(
    *,
    title: str,
    lead: str,
    groups: Sequence[Group | Section],
    document: Mapping[str, object],
    answer: Answer | None = None,
    warnings: Sequence[str] = (),
    letters: str = "",
) -> str:
    """Return a page as HTML.

    Args:
        title: Title of the page.
        lead: Sentence below the title.
        groups: Groups of sections in order. A section outside a group becomes a group,
            which is open if the section has blocks.
        document: Numbers for programs, as plain values that JSON can represent.
        answer: Summary at the top of the page.
        warnings: Warnings, in a collapsed list below the answer.
        letters: Letters of ``OBSERVED`` that the legend at the end explains.
    """
    grouped = [
        each
        if isinstance(each, Group)
        else Group(each.title, (each,), bool(each.blocks))
        for each in groups
    ]
    blocks = [
        block for group in grouped for each in group.sections for block in each.blocks
    ]
    figures = [block.figure for block in blocks if isinstance(block, Plot)]
    plots = {f"plot{number}": figure for number, figure in enumerate(figures, start=1)}
    script, divs = _embedded(plots) if plots else ("", {})
    names = {id(figure): name for name, figure in plots.items()}
    page: str = _template().render(
        title=title,
        lead=lead,
        answer=answer,
        warnings=warnings,
        groups=grouped,
        observed={letter: OBSERVED[letter] for letter in letters},
        version=chakram.__version__,
        colors=Markup(variables()),
        bokeh=Markup(_bokeh()) if plots else "",
        script=Markup(_HIDDEN_IN_SCRIPT.sub(_shown, script)),
        div=lambda plot: Markup(divs[names[id(plot.figure)]]),
        kind=lambda block: type(block).__name__,
        marked=_marked,
        slug=lambda text: re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-"),
        data=Markup(_for_script(document)),
    )
    return plain(page)


_HIDDEN_IN_SCRIPT = re.compile(r"(?<!\\)((?:\\{4})*)\\\\(u[0-9a-f]{4})")
"""JSON escape in a JavaScript string, which is how Bokeh writes the texts of plots."""


def _shown(match: re.Match[str]) -> str:
    """Keep the escape of an unsafe character visible by escaping it again."""
    character = chr(int(match[2][1:], 16))
    is_half = "\ud800" <= character <= "\udfff"
    hidden = not is_half and plain(character) != character
    return rf"{match[1]}\\\\{match[2]}" if hidden else match[0]


_GZIP_LEVEL = 5
"""Compression level. A higher level takes twice as long and saves 1 % of the bytes."""

_MARK = re.compile(r"\(([bcmfv])\)")


def _marked(text: str) -> tuple[str, list[str]]:
    """Return a string without its observation points, and the letters of the points."""
    return re.sub(r" ?\([bcmfv]\),?", "", text).strip(), _MARK.findall(text)


class _Unchecked(Document):  # type: ignore[misc] # Bokeh has no types
    """Bokeh document without checks of its plots, which tests perform instead."""

    def validate(self) -> None:
        """Skip the check of the plots, which takes half as long as writing them."""


def _embedded(plots: Mapping[str, figure]) -> tuple[str, Mapping[str, str]]:
    """Return the script that draws the plots, and their HTML elements by name."""
    document = _Unchecked()
    # Freeze the models. Otherwise, Bokeh walks through all of them after each addition.
    with document.models.freeze():
        for plot in plots.values():
            document.add_root(plot)
    script, divs = components(plots, wrap_script=False)
    return script, divs


def _for_script(document: Mapping[str, object]) -> str:
    """Return JSON that is safe in a script element, because it contains no ``<``."""
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
    """Return Bokeh's core, compressed, without its widgets and tables."""
    (code,) = Resources(mode="inline", components=["bokeh"]).js_raw[:1]
    return base64.b64encode(gzip.compress(code.encode(), _GZIP_LEVEL, mtime=0)).decode()
