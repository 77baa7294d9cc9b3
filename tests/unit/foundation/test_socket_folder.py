"""Temporary folders for Unix sockets."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

from chakram.foundation.errors import EnvironmentProblem
from chakram.foundation.socket_folder import socket_folder

if TYPE_CHECKING:
    from pathlib import Path


LIMIT_BYTES = 108
"""Size of ``sun_path`` in Linux, which includes a NUL character."""


@pytest.mark.parametrize("name", ["short", 100 * "x"])
def test_a_socket_fits_into_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    parent = tmp_path / name
    parent.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(parent))
    with socket_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert len(str(folder / "longest-name-of-them")) < LIMIT_BYTES
    assert not folder.exists()


def test_a_folder_that_cannot_be_created_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path)[:20] + "/absent")
    with pytest.raises(EnvironmentProblem, match="No such file"), socket_folder():
        pass
