"""A Parquet table that grows during a run and is readable at any time.

A Parquet file is readable only after it is closed, because its footer is written last.
A table therefore grows as a folder of small closed files such as
``flows/part-00000.parquet``. A rename puts each part in place. If a run is killed, only
rows that were not flushed are lost. At the end, the writer merges the parts into
``flows.parquet``, again with a rename, and removes the parts. A reader uses the merged
file if it exists, otherwise the parts.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_ROWS_PER_GROUP = 1 << 18


class PartedTable:
    """The writer of one table that grows in parts.

    Args:
        folder: The run directory.
        name: Name of the table.
        schema: Schema of all parts.
        metadata: Key-value pairs in every file.
        constants: Columns with the same value in all rows, by name. Appended tables do
            not contain them.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        schema: pa.Schema,
        metadata: Mapping[str, str],
        constants: Mapping[str, str],
    ) -> None:
        self._constants = constants
        self.rows = 0
        self._merged = folder / f"{name}.parquet"
        self._parts = folder / name
        self._count = 0
        self._metadata = {
            key.encode(): value.encode()
            for key, value in {**metadata, "chakram.table": name}.items()
        }
        self._schema = schema.with_metadata(self._metadata)

    def append(self, table: pa.Table) -> None:
        """Write one part, unless *table* is empty.

        Raises:
            OSError: If the part cannot be written.
        """
        if table.num_rows == 0:
            return
        rows = table.num_rows
        for name, text in self._constants.items():
            same = pa.DictionaryArray.from_arrays(
                pa.repeat(pa.scalar(0, pa.int32()), rows), [text]
            )
            table = table.append_column(name, same)
        self._parts.mkdir(exist_ok=True)
        part = self._parts / f"part-{self._count:05d}.parquet"
        with _new_file(part, self._schema) as writer:
            writer.write_table(
                table.select(self._schema.names).cast(self._schema),
                row_group_size=_ROWS_PER_GROUP,
            )
        self._count += 1
        self.rows += rows

    def merge(self, complete: Callable[[pa.Table], pa.Table] | None = None) -> None:
        """Merge all parts into one file.

        Args:
            complete: Function that adds columns to each part. If it is None and there
                is only one part, that part becomes the file.

        Raises:
            OSError: If the file cannot be written. The parts then remain.
        """
        parts = sorted(self._parts.glob("part-*.parquet"))
        if complete is None and len(parts) == 1:
            os.replace(parts[0], self._merged)
        else:
            self._merge(parts, complete or (lambda table: table))
        shutil.rmtree(self._parts, ignore_errors=True)

    def _merge(
        self, parts: Sequence[Path], complete: Callable[[pa.Table], pa.Table]
    ) -> None:
        empty = self._schema.empty_table()
        schema = complete(empty).schema.with_metadata(self._metadata)
        with _new_file(self._merged, schema) as writer:
            for part in parts:
                table = complete(_read(part))
                writer.write_table(table.cast(schema), row_group_size=_ROWS_PER_GROUP)


def read_table(
    folder: Path,
    name: str,
    *,
    column_names: list[str] | None = None,
    where: Mapping[str, object] | None = None,
) -> pa.Table | None:
    """Return a table of a run directory, or None if the run never started the table.

    Args:
        folder: The run directory.
        name: Name of the table.
        column_names: Names of the columns to read. None selects all columns.
        where: Column values that select rows. The other rows are never all in memory at
            once.

    Raises:
        OSError: If a file cannot be read.
        pa.ArrowException: If a file is damaged.
    """
    filters = [(column, "=", value) for column, value in (where or {}).items()] or None
    files = table_files(folder, name)
    if not files:
        return None
    return pa.concat_tables(_read(file, column_names, filters) for file in files)


def is_there(folder: Path, name: str) -> bool:
    """Return whether a run directory contains any file of a table."""
    merged = folder / f"{name}.parquet"
    return merged.exists() or any((folder / name).glob("part-*.parquet"))


def table_files(folder: Path, name: str) -> list[Path]:
    """Return the files of a table in a run directory: the merged file, or its parts.

    Raises:
        IsADirectoryError: If the merged file is a folder, because pyarrow would read
            all of its files.
    """
    merged = folder / f"{name}.parquet"
    if merged.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(merged))
    if merged.exists():
        return [merged]
    return sorted((folder / name).glob("part-*.parquet"))


def column_names(folder: Path, name: str) -> list[str]:
    """Return the columns of a table, some of which may be added at the end of a run.

    Raises:
        OSError: If a file cannot be read.
        pa.ArrowException: If a file is damaged.
    """
    for path in table_files(folder, name):
        with _opened(path) as file:
            return list(file.schema_arrow.names)
    return []


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except UnicodeEncodeError:
        found = "its path is not in UTF-8"
        raise OSError(errno.EILSEQ, found, str(path)) from None
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"a name of a column: {error}") from None


def _read(
    path: Path,
    names: list[str] | None = None,
    filters: list[tuple[str, str, object]] | None = None,
) -> pa.Table:
    """Read a Parquet file. This is faster than ``pq.read_table`` for small files."""
    with _opened(path) as file:
        there = file.schema_arrow.names
        asked = (*(names or ()), *(column for column, *_ in filters or ()))
        for name in asked:
            # Otherwise, Arrow silently omits missing columns, or raises an error with
            # too much detail.
            if there.count(name) != 1:
                often = "more than once" if name in there else "missing"
                raise pa.ArrowInvalid(f"column {name} is {often}")
        # Reading a small file with threads takes several times as long on a busy
        # machine.
        is_small = file.metadata.num_rows <= _ROWS_PER_GROUP
        if filters is None or is_small:
            some = None if names is None else [*dict.fromkeys(asked)]
            table = file.read(some, use_threads=not is_small)
            for column, _, value in filters or ():
                table = table.filter(pc.field(column) == value)
            return table if names is None else table.select(names)
    return pq.read_table(path, columns=names, partitioning=None, filters=filters)


@contextmanager
def _new_file(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Write a file atomically, and remove the partial file after a failure.

    On a full disk, the partial file would take the space that ``run.json`` needs.
    """
    temporary = path.with_suffix(".tmp")
    try:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            yield writer
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
