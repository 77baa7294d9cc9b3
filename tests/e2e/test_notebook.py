"""The example notebook, as somebody who opens it would execute it."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support import REPO_ROOT

NOTEBOOK = REPO_ROOT / "docs/examples/incast.ipynb"


@pytest.mark.slow
def test_every_cell_of_the_example_does_what_it_says() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    # Outputs would be those of some machine on some day.
    assert not any(cell.get("outputs") for cell in notebook.cells)
    NotebookClient(
        notebook,
        timeout=60,
        kernel_name="python3",
        resources={"metadata": {"path": str(REPO_ROOT)}},
    ).execute()
    told = [
        "".join(
            output.get("text", "") or str(output.get("data", {}))
            for output in cell.outputs
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    assert "# Run complete." in told[0]
    assert "dropped: {" in told[2]
    assert " - " in told[3]
    assert "Iteration of incast takes" in told[4]
    assert "chakram run" in told[5]
