"""Files outside the packages: experiments, dashboards, rules and examples.

An installed package contains these files in its folder ``files``, under the same
relative paths as in a checkout (see setup.py). An editable install reads them from the
checkout.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from chakram.chakra.write.atomic_file import new_file, refuse_existing


def packaged(path: str) -> Path:
    """Return a file or folder by its path in a checkout, e.g. ``configs``."""
    package = Path(__file__).resolve().parents[2]
    installed = package / "files"
    return (installed if installed.is_dir() else package.parents[1]) / path


def files_below(path: str, out: Path) -> dict[Path, Path]:
    """Return the files in the folder *path*, each by its target path below *out*."""
    folder = packaged(path)
    return {
        out / source.relative_to(folder): source
        for source in sorted(folder.rglob("*"))
        if source.is_file() and "__pycache__" not in source.parts
    }


def copy_files(files: Mapping[Path, Path], *, force: bool) -> list[str]:
    """Copy sources to their targets, and return the paths of the targets.

    Args:
        files: Sources by target.
        force: Replace existing files.

    Raises:
        OutputExists: If a target already exists, in which case nothing is written,
            or if it cannot be written.
    """
    for target in files:
        refuse_existing(target, force=force)
    for target, source in files.items():
        with new_file(target, force=force) as file:
            file.write(source.read_bytes())
    return [str(target) for target in files]
