"""What is in figures and sections of pages, for tests that read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import GlyphRenderer, HoverTool

from chakram.report.blocks import Facts, Table
from chakram.report.page import Group, Plot, Section


def renderers(plot: Any, kind: type | None = None) -> list[Any]:
    """Return what is drawn, in its order, or only glyphs of a kind."""
    found = [each for each in plot.renderers if isinstance(each, GlyphRenderer)]
    return [each for each in found if kind is None or isinstance(each.glyph, kind)]


def data_of(plot: Any, kind: type | None = None) -> list[dict[str, Any]]:
    """Return the columns of what is drawn."""
    return [each.data_source.data for each in renderers(plot, kind)]


def tips_of(plot: Any) -> list[Any]:
    """Return what the pointer shows."""
    return [each.tooltips for each in plot.tools if isinstance(each, HoverTool)]


def laid_over(plot: Any, kind: type) -> list[Any]:
    """Return what of a kind lies over the plot, in its order."""
    return [each for each in plot.center if isinstance(each, kind)]


def legend_of(plot: Any) -> list[str]:
    """Return the names in the legend, in their order; none of one that is hidden."""
    return [
        item.label.value
        for legend in plot.legend
        if legend.visible
        for item in legend.items
    ]


def sections_of(groups: Sequence[Group | Section]) -> dict[str, Section]:
    """Return the sections of a page by title."""
    return {
        section.title: section
        for each in groups
        for section in (each.sections if isinstance(each, Group) else [each])
    }


def plots_in(section: Section) -> dict[str, Plot]:
    """Return the plots of a section by name."""
    return {
        str(block.figure.name): block
        for block in section.blocks
        if isinstance(block, Plot)
    }


def tables_in(section: Section) -> dict[str, Table]:
    """Return its tables by title."""
    return {each.title: each for each in section.blocks if isinstance(each, Table)}


def facts_in(section: Section) -> dict[str, str]:
    """Return its facts by name, of several of one name the last."""
    return {
        name: value
        for block in section.blocks
        if isinstance(block, Facts)
        for name, value in block.rows
    }
