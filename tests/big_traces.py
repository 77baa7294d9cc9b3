"""Synthetic traces of any length in STAGE's format, and the cost of reading one."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from chakram.chakra.et_pb2 import AttributeProto, GlobalMetadata, Node
from chakram.chakra.read.framing import frame

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LAYERS = 80


class Usage(NamedTuple):
    """Usage of a process: its exit code, its peak in MiB, its time in seconds."""

    exit_code: int
    peak_mib: float
    processor_s: float


def write_big_trace(path: Path, nodes: int) -> None:
    """Write one rank's trace of about 300 bytes per node, every name another.

    One node in five is a collective.  Every second one stands before the one that it
    waits for, and their ids do not ascend: nothing is in order as it comes.
    """
    compute, collective = _compute_attributes(), _collective_attributes()
    with path.open("wb") as file:
        file.write(frame(GlobalMetadata(version="0.0.4").SerializeToString()))
        for pair in range(0, nodes, 2):
            for number in (pair + 1, pair):
                is_collective = number % 5 == 0
                node = Node(
                    id=number + 1,
                    name=f"mb{number}.transformer.{number % _LAYERS}.mha.qkv.y@0_COMP",
                    type=7 if is_collective else 4,  # type: ignore[arg-type] # a number of the enum
                    data_deps=[each for each in (number, number - 6) if each > 0],
                )
                file.write(
                    frame(
                        node.SerializeToString()
                        + (collective if is_collective else compute)
                    )
                )


def _compute_attributes() -> bytes:
    message = Node()
    message.attr.add(name="is_cpu_op", int32_val=0)
    message.attr.add(name="num_ops", int64_val=2**34)
    message.attr.add(name="tensor_size", uint64_val=2**22)
    message.attr.add(name="op_type", string_val="Einsum(bsd,de->bse)")
    for name in ("inputs", "outputs"):
        values: Sequence[str] = (f"transformer.mha.{name}@0", "8388608") * 2
        attribute = AttributeProto(name=name)
        attribute.string_list.values.extend(values)
        message.attr.append(attribute)
    return message.SerializeToString()


def _collective_attributes() -> bytes:
    message = Node()
    message.attr.add(name="is_cpu_op", int32_val=0)
    message.attr.add(name="comm_type", int64_val=0)
    message.attr.add(name="comm_size", int64_val=2**22)
    message.attr.add(name="pg_name", string_val="")
    return message.SerializeToString()


# The maximum resident size of a process includes that of its parent, and pytest is
# large. The high-water mark (VmHWM) does not include it.
_MEASURED = """
import sys
from chakram.__main__ import main
code = main()
with open("/proc/self/status") as status:
    peak = next(line for line in status if line.startswith("VmHWM"))
print(peak.split()[1], file=sys.stderr)
sys.exit(code)
"""


def usage_of(
    arguments: Sequence[str | Path], *, python: str | Path = sys.executable
) -> Usage:
    """Run chakram in a separate process and return its usage."""
    process = subprocess.Popen(
        [python, "-c", _MEASURED, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr as stderr:
        peak_kib = int(stderr.read().split()[-1])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Usage(process.returncode, peak_kib / 1024, used.ru_utime + used.ru_stime)
