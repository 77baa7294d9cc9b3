"""The nccl-tests programs, with their collectives and size rounding."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from chakram.collectives.ops import CollectiveOp, nccl_size_bytes
from chakram.foundation.errors import ConfigError
from chakram.foundation.units import parse_size

if TYPE_CHECKING:
    from chakram.console.nccl_tests_rows import BenchSize


_MOST_SIZES = 1000
VECTOR_BYTES = 16
"""nccl-tests rounds the buffer of a rank down to a multiple of this size."""

ELEMENT_BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "int", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}
REDUCTIONS = ("sum", "prod", "min", "max", "avg", "mulsum")


class _Program(NamedTuple):
    """An nccl-tests program, with its algorithm if the program implies one."""

    op: CollectiveOp
    algorithm: str | None = None


PROGRAMS = {
    "all_reduce_perf": _Program(CollectiveOp.ALL_REDUCE),
    "all_gather_perf": _Program(CollectiveOp.ALL_GATHER),
    "reduce_scatter_perf": _Program(CollectiveOp.REDUCE_SCATTER),
    "alltoall_perf": _Program(CollectiveOp.ALL_TO_ALL),
    "alltoallv_perf": _Program(CollectiveOp.ALL_TO_ALL),
    "sendrecv_perf": _Program(CollectiveOp.SEND_RECV),
    "broadcast_perf": _Program(CollectiveOp.BROADCAST),
    "reduce_perf": _Program(CollectiveOp.REDUCE),
    "gather_perf": _Program(CollectiveOp.GATHER),
    "scatter_perf": _Program(CollectiveOp.SCATTER),
    "hypercube_perf": _Program(CollectiveOp.ALL_GATHER, "recursive_doubling"),
}
REDUCING = ("all_reduce_perf", "reduce_perf", "reduce_scatter_perf")
ROOTED = ("broadcast_perf", "reduce_perf", "gather_perf", "scatter_perf")
UNEVEN = "alltoallv_perf"
_WHOLE = ("all_reduce_perf", "broadcast_perf", "reduce_perf", "sendrecv_perf")
"""Programs that do not divide the buffer among the ranks."""

IGNORED = {
    "p": "there are no communicators to create",
    "C": "collectives have no separate CPU time",
    "G": "there are no CUDA graphs",
    "R": "there are no buffers to register",
    "u": "buffers have no addresses",
    "M": "there is no device memory",
    "D": "there is no device",
    "y": "there are no device streams",
}
"""Options without effect here, with the reasons."""


def bytes_of(option: str, text: str) -> int:
    """Parse a size in the notation of nccl-tests, where a plain number is in bytes."""
    plain = text.strip()
    where = f"{option} {text}"
    if plain.isdecimal() and len(plain) < 20:
        return int(plain)
    return parse_size(plain, where=where)


def sizes_of(least: int, most: int, step: int, factor: int) -> Iterator[int]:
    """Yield the sizes that -b, -e, -i and -f select."""
    if most < least:
        raise ConfigError(
            f"-b {least} -e {most}", "the largest size is below the smallest", None
        )
    if (factor > 1 and not least) or (factor <= 1 and not step and most > least):
        raise ConfigError(
            "-b 0" if factor > 1 else "-i 0", "sizes would never grow", "e.g. -b 8 -f 2"
        )
    size = least
    for _ in range(_MOST_SIZES):
        yield size
        size = size * factor if factor > 1 else size + step
        if size > most or most == least:
            return
    raise ConfigError(
        f"-b {least} -e {most}", f"give more than {_MOST_SIZES} sizes",
        "use a larger -i, or -f 2",
    )  # fmt: skip


def rounded(asked: int, test: str, nranks: int, element: int) -> BenchSize:
    """Return a size as nccl-tests rounds it: to whole elements of all ranks."""
    from chakram.console.nccl_tests_rows import BenchSize

    count = asked // element
    if test in _WHOLE:
        size = count * element
        return BenchSize(
            size_bytes=size,
            count=count,
            input_bytes=size,
            record_bytes=size,
        )
    # Each rank's part starts at a multiple of the vector size.
    count = count // nranks // (vector := max(1, VECTOR_BYTES // element)) * vector
    share = count * element
    op = PROGRAMS[test].op
    gathers = op in (CollectiveOp.ALL_GATHER, CollectiveOp.GATHER)
    input_bytes = share if gathers else share * nranks
    whole = nccl_size_bytes(op, input_bytes=input_bytes, nranks=nranks)
    return BenchSize(
        size_bytes=share * (nranks - 1) if test == "hypercube_perf" else whole,
        count=count,
        input_bytes=input_bytes,
        record_bytes=whole,
    )


def matrix_file() -> Path:
    """Return alltoallv_perf's matrix file, from nccl-tests' environment variable."""
    text = os.environ.get("ALLTOALLV_MATRIX_FILE")
    if not text:
        raise ConfigError(
            UNEVEN,
            "has no matrix",
            "set ALLTOALLV_MATRIX_FILE to a file with a row per sender and the bytes "
            "for each receiver",
        )
    return Path(text).resolve()


def uneven_size(asked: int, path: Path, nranks: int, element: int) -> BenchSize:
    """Return the size for a traffic matrix: the bytes that the busiest rank moves.

    Raises:
        ConfigError: If this size is larger than the requested size.
    """
    from chakram.console.nccl_tests_rows import BenchSize
    from chakram.synth.recorded_splits import read_splits

    (matrix,) = read_splits(path, nranks=nranks, token_bytes=1)
    sent = [sum(row) for row in matrix]
    size = max(*sent, *(sum(column) for column in zip(*matrix, strict=True)))
    if asked < size:
        raise ConfigError(
            f"-e {asked}", f"is less than the {size} bytes of one rank in {path}",
            f"e.g. -b {size} -e {size}",
        )  # fmt: skip
    share = size // nranks // VECTOR_BYTES * VECTOR_BYTES
    return BenchSize(
        size_bytes=size,
        count=share // element,
        input_bytes=size,
        record_bytes=-(-sum(sent) // nranks),
    )
