"""Bokeh checks the plots of all pages that these tests make."""

import pytest
from bokeh.document import Document

from chakram.report import page


@pytest.fixture(autouse=True)
def checked_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise an error for a plot with which Bokeh finds fault."""
    monkeypatch.setattr(page._Unchecked, "validate", Document.validate)
    monkeypatch.setenv("BOKEH_VALIDATION_LEVEL", "all")
