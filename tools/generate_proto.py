"""Generate the Python code of every .proto of the project, beside it.

Run it after a change of a .proto (``make proto``); the outcome is committed, so that
an installation needs no compiler of protocols.  A test generates into a temporary
folder and compares.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOT = ROOT / "emulator"


def proto_files() -> list[Path]:
    """Return every .proto below the source root, relative to it."""
    return sorted(
        path.relative_to(SOURCE_ROOT) for path in SOURCE_ROOT.rglob("*.proto")
    )


def generate(proto: Path, out: Path) -> None:
    """Generate messages, their types and, where it has services, their stubs.

    Raises:
        RuntimeError: If the compiler refuses the file; it has said why on stderr.
    """
    # protoc looks for its plugins on PATH; they stand beside this interpreter.
    scripts = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([scripts, os.environ.get("PATH", "")])
    outputs = [f"--python_out={out}", f"--mypy_out=quiet:{out}"]
    if "\nservice " in (SOURCE_ROOT / proto).read_text():
        outputs += [f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}"]
    well_known = files("grpc_tools") / "_proto"
    if protoc.main(
        ["protoc", f"-I{SOURCE_ROOT}", f"-I{well_known}", *outputs, str(proto)]
    ):
        raise RuntimeError(f"protoc refused {proto}")


def main() -> None:
    """Generate all of them, into the source tree or into ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=SOURCE_ROOT)
    out = parser.parse_args().out
    for proto in proto_files():
        generate(proto, out)


if __name__ == "__main__":
    main()
