"""Experiments of an unprivileged user, on both local fabrics."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram.run_directory.reader import open_run
from tests.e2e.runs import fabric, moe, write_experiment
from tests.e2e.traffic_totals import check_complete
from tests.leaks import names_in
from tests.unprivileged_user import NOBODY, interpreter, python_path, run_as_nobody

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def python() -> str:
    return interpreter()


@pytest.fixture
def unprivileged_folder() -> Iterator[Path]:
    """Return a folder that belongs to an unprivileged user."""
    folder = Path(tempfile.mkdtemp(prefix="ck-"))
    (folder / "labs").mkdir(mode=0o700)
    for path in (folder, folder / "labs"):
        os.chown(path, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("kind", "jobs"),
    [
        ("namespaces", 2),
        pytest.param("loopback", 1, marks=pytest.mark.soak),
        pytest.param("namespaces", 1, marks=pytest.mark.soak),
        pytest.param("loopback", 2, marks=pytest.mark.soak),
    ],
    indirect=["kind"],
)
def test_a_run_needs_no_root(
    python: str, unprivileged_folder: Path, kind: str, jobs: int
) -> None:
    """Two jobs share ports, so these are divided among processes."""
    experiment = write_experiment(
        unprivileged_folder,
        [
            moe(2) | {"name": f"job{number}", "placement": {"ports": [0, 1]}}
            for number in range(jobs)
        ],
        fabric(kind, 2),
        agents={"shards": 2 * jobs},
    )

    status, output = run_as_nobody(
        [python, "-m", "chakram", "run", str(experiment)],
        PYTHONPATH=python_path(),
        CHAKRAM_STATE_DIR=str(unprivileged_folder / "labs"),
    )

    assert status == 0, output
    (directory,) = (unprivileged_folder / "runs").iterdir()
    assert directory.stat().st_uid == NOBODY
    results = open_run(directory)
    check_complete(results, ranks=2 * jobs)
    assert bool(results.links()) is (kind == "namespaces")
    assert names_in(str(unprivileged_folder / "labs")) <= {".lock"}
