"""Standard output and error that tolerate a closed pipe (``chakram ... | head``).

Without these streams, the next line that a verb prints to a closed pipe would raise
``BrokenPipeError``, and a run would end without results.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_READER_IS_GONE = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EIO})
"""Error numbers of writes to a closed pipe, connection or terminal (EIO)."""


class _Descriptor(io.FileIO):
    """File descriptor that drops output after its reader has closed it.

    Args:
        number: The descriptor, which stays open.
        drops_all: Whether to drop output after any error, e.g. on a full disk.
    """

    def __init__(self, number: int, *, drops_all: bool) -> None:
        super().__init__(number, "wb", closefd=False)
        self._drops_all = drops_all

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError as error:
            if self._drops_all or error.errno in _READER_IS_GONE:
                return memoryview(data).nbytes
            raise


def outlive_readers() -> None:
    """Make ``sys.stdout`` and ``sys.stderr`` tolerate a closed pipe.

    A failed write to standard error never ends the command.
    """
    sys.stdout = _outliving(sys.stdout, drops_all=False)
    sys.stderr = _outliving(sys.stderr, drops_all=True)


def _outliving(stream: TextIO | None, *, drops_all: bool) -> TextIO:
    """Return a tolerant stream for the same descriptor.

    *stream* is None if standard output or error was closed when the process started.
    """
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = _Descriptor(stream.fileno(), drops_all=drops_all)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        # Unbuffered output (python -u) is written line by line.
        line_buffering=stream.line_buffering or stream.write_through,
    )
