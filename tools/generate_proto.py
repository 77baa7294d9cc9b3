"""Generate the Python code of every .proto of the project, beside it.

Run it after a change of a .proto, or of what people may set (``make proto``): messages
of which each field is declared in Python (``chakram.foundation.declared_parameters``)
are written from there first. The outcome is committed, so that an installation needs no
compiler of protocols. A test generates into a temporary folder and compares.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

from chakram.foundation.declared_parameters import KnobField, knobs_of
from chakram.foundation.field_bounds import Within
from chakram.plan.packet_faults import PacketFault
from chakram.plan.transport import TransportPlan

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOT = ROOT / "emulator"


DECLARED = {"chakram/control/chakram.proto": (TransportPlan, PacketFault)}
"""Messages that follow from declarations, by the file that they are in."""

ROWS = {"congestion_parameters": "Parameter"}
"""Messages of the tuples that stand in repeated fields, by the name of the field."""


def proto_type(each: KnobField) -> str:
    """Return the type of a field in a message."""
    kind, within = each.declared.kind, each.declared.bound(Within)
    if each.name in ROWS:
        return f"repeated {ROWS[each.name]}"
    if kind is int:
        # As proto3 packs them, the two are alike for numbers that both have.
        name = "uint32" if within is None or within.most < 2**32 else "int64"
    else:
        name = {bool: "bool", float: "double"}.get(kind, "string")
    return f"optional {name}" if each.declared.may_be_none else name


def with_declared(proto: str, text: str) -> str:
    """Return the text of a .proto with its declared messages as they are now."""
    for kind in DECLARED.get(proto, ()):
        lines = [
            f"  {proto_type(each)} {each.name} = {each.knob.number};\n"
            for each in sorted(knobs_of(kind), key=lambda each: each.knob.number)
        ]
        before, head, after = text.partition(f"message {kind.__name__} {{\n")
        _, end, after = after.partition("}\n")
        if not end:
            raise ValueError(f"{proto}: there is no message {kind.__name__}")
        text = "".join([before, head, *lines, end, after])
    return text


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
        path = SOURCE_ROOT / proto
        text = path.read_text("utf-8")
        if (now := with_declared(str(proto), text)) != text:
            if out != SOURCE_ROOT:
                raise SystemExit(f"{proto} is not what is declared: run make proto")
            path.write_text(now, "utf-8")
        generate(proto, out)


if __name__ == "__main__":
    main()
