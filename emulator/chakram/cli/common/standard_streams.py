"""Standard output and error that outlive their readers, as in ``chakram ... | head``.

Without this, the next line that a verb prints raises ``BrokenPipeError`` in the middle
of its work: a run would end there, without results.
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
"""EIO: the terminal was closed."""


class _Descriptor(io.FileIO):
    """A descriptor that drops what its reader no longer takes.

    Args:
        number: The descriptor; it stays open.
        drops_all: Whether output is dropped after any error, e.g. on a full disk.
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
    """Replace ``sys.stdout`` and ``sys.stderr`` of this process.

    Standard error only accompanies the work, so no error of it ends the work.
    """
    sys.stdout = _outliving(sys.stdout, drops_all=False)
    sys.stderr = _outliving(sys.stderr, drops_all=True)


def _outliving(stream: TextIO | None, *, drops_all: bool) -> TextIO:
    """Return a stream to the same descriptor; None: it was closed from the start."""
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = _Descriptor(stream.fileno(), drops_all=drops_all)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        # Unbuffered output (python -u) is written by the line.
        line_buffering=stream.line_buffering or stream.write_through,
    )
