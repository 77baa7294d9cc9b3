"""The example notebook, executed from the first cell to the last."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import REPO_ROOT

NOTEBOOK = "docs/examples/incast.ipynb"

# In a separate process, because nbclient leaves an event loop behind.
EXECUTE = f"""
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read({NOTEBOOK!r}, as_version=4)
nbformat.validate(notebook)
# Outputs would be those of some machine on some day.
assert not any(cell.get("outputs") for cell in notebook.cells)
NotebookClient(notebook, timeout=250, kernel_name="python3").execute()
print(nbformat.writes(notebook))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_cell_of_the_example_notebook_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE],
        cwd=REPO_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [
        "".join(
            "".join(output.get("text", "")) + str(output.get("data", ""))
            for output in cell["outputs"]
        )
        for cell in json.loads(done.stdout)["cells"]
        if cell["cell_type"] == "code"
    ]
    assert "# Run complete." in told[0]
    assert "dropped: {" in told[2]
    assert " - " in told[3]
    assert "Iteration of incast takes" in told[4]
    assert "chakram run" in told[5]
