"""Fast import of pyarrow, for verbs that do not need numpy."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

_MODULES = ("pyarrow.compute", "pyarrow.parquet", "pyarrow.acero")
_LEFT_OUT = (
    *("numpy", "cloudpickle", "dateutil", "pyarrow.dataset"),
    *("pyarrow._azurefs", "pyarrow._gcsfs", "pyarrow._hdfs", "pyarrow._s3fs"),
)
"""Modules that pyarrow imports if they exist. They convert arrays to and from numpy,
pickle functions, and support intervals of months, folders of files, and files of cloud
providers. The import of numpy takes as long as that of pyarrow itself. The pyarrow
modules in this list take a third of that time."""
_FIRST_WITHOUT_NUMPY = 18
"""First major version of pyarrow that does not require numpy."""


def import_arrow_only() -> None:
    """Import pyarrow without optional modules, unless it is already imported.

    Afterward, pyarrow cannot convert to numpy. So this function has no effect in a
    process that does not end after the verb.
    """
    if not _ends_after_verb() or "pyarrow" in sys.modules:
        return
    if _version() < _FIRST_WITHOUT_NUMPY:
        return
    left_out = [name for name in _LEFT_OUT if name not in sys.modules]
    for name in left_out:
        sys.modules[name] = None  # type: ignore[assignment] # the import then fails
    try:
        for name in _MODULES:
            import_module(name)
    finally:
        for name in left_out:
            del sys.modules[name]


def _ends_after_verb() -> bool:
    """Return whether this process ends after the verb, as the command does."""
    mains = map(sys.modules.get, ("chakram.__main__", "__main__"))
    return any(getattr(each, "ends_after_verb", False) for each in mains)


def _version() -> int:
    """Return the major version of pyarrow without importing it, or 0 if unknown."""
    found = find_spec("pyarrow")
    try:
        file = Path(str(found and found.origin)).with_name("_generated_version.py")
        match = re.search(r"^[_a-z]* *=.*'(\d+)\.", file.read_text("utf-8"), re.M)
    except OSError:
        return 0
    return 0 if match is None else int(match[1])
