"""Generate the Python code of every .proto file, in the folder of that file.

Run ``make proto`` after you change a .proto file or the declared settings. The tool
first writes messages whose fields are declared in Python
(``chakram.foundation.declared_settings``) to the .proto file. The output is committed,
so that an installation needs no protocol compiler. A test generates the code into a
temporary folder and compares it with the committed code.

The tool removes lines that nothing needs.

The compiler runs in a separate environment (uv). Its version determines the oldest
protobuf and gRPC that run the output. You cannot install the compiler in the same
environment as newer versions of protobuf and gRPC.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from chakram.foundation.declared_settings import SettingField, settings_of
from chakram.foundation.field_bounds import Within
from chakram.plan.packet_faults import PacketFault
from chakram.plan.transport import TransportPlan

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOT = ROOT / "emulator"

COMPILER = "grpcio-tools==1.62.3"
"""The last compiler whose output runs with protobuf 4 and with all later versions.

Output of later compilers checks at import that protobuf is not older than the compiler,
and not two major versions newer."""

DECLARED = {"chakram/control/chakram.proto": (TransportPlan, PacketFault)}
"""Dataclasses that declare the fields of messages, by .proto file."""

OFFSETS = re.compile(r"  _globals\[.*\]\._serialized_(?:start|end)=\d+\n")
"""Lines of generated code with the place of each message in the descriptor.

Only copies of descriptors in protobuf without compiled code need them. They would
change with every edit of the .proto file."""

ROWS = {"congestion_parameters": "Parameter"}
"""Messages that represent the tuples in repeated fields, by field name."""


def proto_type(each: SettingField) -> str:
    """Return the protobuf type of a declared field."""
    kind, within = each.declared.kind, each.declared.bound(Within)
    if each.name in ROWS:
        return f"repeated {ROWS[each.name]}"
    if kind is int:
        # proto3 encodes both types in the same way, in the range that they share.
        name = "uint32" if within is None or within.most < 2**32 else "int64"
    else:
        name = {bool: "bool", float: "double"}.get(kind, "string")
    return f"optional {name}" if each.declared.may_be_none else name


def with_declared(proto: str, text: str) -> str:
    """Return the text of a .proto file with its declared messages updated."""
    for kind in DECLARED.get(proto, ()):
        lines = [
            f"  {proto_type(each)} {each.name} = {each.setting.number};\n"
            for each in sorted(settings_of(kind), key=lambda each: each.setting.number)
        ]
        before, head, after = text.partition(f"message {kind.__name__} {{\n")
        _, end, after = after.partition("}\n")
        if not end:
            raise ValueError(f"{proto}: there is no message {kind.__name__}")
        text = "".join([before, head, *lines, end, after])
    return text


def proto_files() -> list[Path]:
    """Return the paths of all .proto files, relative to the source root."""
    return sorted(
        path.relative_to(SOURCE_ROOT) for path in SOURCE_ROOT.rglob("*.proto")
    )


def run_compiler(*arguments: str, **options: Any) -> CompletedProcess[Any]:
    """Run the compiler in a separate environment, which uv downloads once."""
    offline = ("--offline",) if _is_fetched() else ()
    return _run_isolated(*offline, module=("grpc_tools.protoc", *arguments), **options)


@cache
def _is_fetched() -> bool:
    """Return whether the compiler runs without access to the package index."""
    fetched = _run_isolated(
        "--offline", module=("grpc_tools.protoc", "--version"), capture_output=True
    )
    return fetched.returncode == 0


def _run_isolated(
    *flags: str, module: tuple[str, ...], **options: Any
) -> CompletedProcess[Any]:
    # The compiler looks for its plugins on PATH. The plugins and uv are in the folder
    # of this Python interpreter.
    scripts = str(Path(sys.executable).parent)
    path = os.pathsep.join([scripts, os.environ.get("PATH", "")])
    environment = ("uv", "run", "-q", "--isolated", "--no-project", *flags)
    python = ("--python", sys.executable, "--with", COMPILER, "python")
    return subprocess.run(
        [*environment, *python, "-m", *module],
        env={**os.environ, "PATH": path},
        check=False,
        **options,
    )


def generate(proto: Path, out: Path) -> None:
    """Generate messages and type stubs from a .proto file.

    Raises:
        RuntimeError: If the compiler rejects the file. It prints the reason on stderr.
    """
    outputs = [f"--python_out={out}", f"--mypy_out=quiet:{out}"]
    if run_compiler(f"-I{SOURCE_ROOT}", *outputs, str(proto)).returncode:
        raise RuntimeError(f"protoc refused {proto}")
    code = out / proto.with_name(f"{proto.stem}_pb2.py")
    code.write_text(OFFSETS.sub("", code.read_text("utf-8")), "utf-8")


def main() -> None:
    """Generate all files, into the source tree or into ``--out``."""
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
