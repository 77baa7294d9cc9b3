"""Conversion of trace sets to binary files or to chakra_jsonizer's JSON format.

Any readable format can be converted. Records are converted one by one, so files can be
larger than memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from chakram.chakra.et_codec import metadata_json, node_json
from chakram.chakra.read.eras import FirstRecord, classify_first_record
from chakram.chakra.read.framing import frame
from chakram.chakra.read.reader import records_of
from chakram.chakra.read.schema_check import SchemaCheck
from chakram.chakra.sets.find_files import FoundSet, find_trace_set
from chakram.chakra.sets.trace_set import group_file_bytes
from chakram.chakra.write.compatibility import RecordCompatibility
from chakram.chakra.write.new_set import (
    GROUP_FILE,
    new_trace_set,
    refuse_folder_of,
)
from chakram.foundation.errors import UnsupportedTrace


class TraceForm(StrEnum):
    """Output formats. The values are file name extensions."""

    BINARY = "et"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The written files, with sentences about the conversion.

    ``lost`` describes lost data. ``notes`` describes incompatibilities with other
    readers.
    """

    written: tuple[Path, ...]
    lost: tuple[str, ...]
    notes: tuple[str, ...] = ()


def convert_trace_set(
    path: str | Path,
    folder: Path,
    *,
    form: TraceForm,
    compress: bool | None = None,
    force: bool = False,
    on_rank: Callable[[int, int], None] | None = None,
) -> Converted:
    """Write a trace set in another format, with its group file.

    Converting binary to JSON and back gives the same records, except for fields that
    the schema does not define. The result lists those fields, and everything in other
    JSON formats that has no place in the schema.

    Args:
        path: The set, in any readable format.
        folder: The target folder.
        form: The output format.
        compress: Whether to gzip all files. None means to gzip the files that are
            gzipped in the original set.
        force: Replace existing files.
        on_rank: Called with (ranks written, total ranks) after every file.

    Raises:
        TraceError: If the set is not found or is not a trace set.
        RunDirectoryError: If the files cannot be written or already exist, or if
            *folder* contains the set itself.
    """
    lost: Counter[str] = Counter()
    elsewhere = RecordCompatibility()
    with find_trace_set(path) as found:
        refuse_folder_of(found.place, folder)
        prefix = found.prefix.rpartition("/")[2]
        with new_trace_set(folder, prefix=prefix, force=force) as new:
            for done, (rank, name) in enumerate(found.files.items(), start=1):
                gzipped = name.endswith(".gz") if compress is None else compress
                target = f"{prefix}.{rank}.{form}{'.gz' if gzipped else ''}"
                with new.open(target) as file:
                    for piece in _pieces(found, name, form, lost, elsewhere):
                        file.write(piece)
                if on_rank is not None:
                    on_rank(done, len(found.files))
            groups = group_file_bytes(found)
            if groups is not None:
                with new.open(GROUP_FILE) as file:
                    file.write(groups)
            written = tuple(new.written())
    return Converted(
        written=written,
        lost=tuple(f"{count} times {what}" for what, count in sorted(lost.items())),
        notes=tuple(elsewhere.sentences()),
    )


def _pieces(
    found: FoundSet,
    name: str,
    form: TraceForm,
    lost: Counter[str],
    elsewhere: RecordCompatibility,
) -> Iterator[bytes]:
    """Yield the bytes of one rank's file in another format."""
    source = f"{found.store.place}/{name}"
    schema = SchemaCheck(source)
    with found.store.open(name) as stream:
        records = records_of(stream, source=source, lost=lost)
        for number, (offset, body) in enumerate(records):
            if form is TraceForm.BINARY:
                if number or classify_first_record(body) is FirstRecord.NODE:
                    elsewhere.add(body)
                yield frame(body)
                continue
            where = f"{source}: offset {offset}"
            to_json = node_json
            if number == 0:
                match classify_first_record(body):
                    case FirstRecord.METADATA:
                        schema.take_metadata(offset, body)
                        to_json = metadata_json
                    case FirstRecord.NODE:
                        # The JSON format always begins with metadata.
                        lost[
                            "an empty metadata record was added to a file without "
                            "metadata"
                        ] += 1
                        yield b"{}"
                    case FirstRecord.NEITHER:
                        raise UnsupportedTrace(
                            where,
                            "this is not a Chakra trace",
                            "check that the file is complete",
                        )
            if to_json is node_json:
                schema.take_node(offset, body)
            text, unknown = to_json(body, where)
            for field in unknown:
                lost[f"{field}, which is not in the schema"] += 1
            yield text.encode()
    schema.finish()
