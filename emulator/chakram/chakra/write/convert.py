"""Write trace sets in another form: binary, or the JSON of chakra_jsonizer.

Records are passed on one by one, in any form that is read, so that files larger than
memory are no problem.
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
from chakram.chakra.sets.find_files import FoundSet, find_trace_set
from chakram.chakra.sets.trace_set import group_file_bytes
from chakram.chakra.write.compatibility import RecordsElsewhere
from chakram.chakra.write.new_set import GROUP_FILE, new_trace_set
from chakram.foundation.errors import UnsupportedTrace


class TraceForm(StrEnum):
    """The forms that are written; the values end names of files."""

    BINARY = "et"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What was written, what was lost, and what others cannot read, in sentences."""

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
    """Write a trace set in another form, with its group file.

    Binary to JSON and back gives the same records, but for fields that the schema
    does not know; those are told.

    Args:
        path: The set, in any form that is read.
        folder: Where to.
        form: In which form.
        compress: Whether to gzip; None: the files that were.
        force: Replace files that are there.
        on_rank: Called with (ranks written, ranks in all) after every file.

    Raises:
        TraceError: If the set is not found, or is none.
        RunDirectoryError: If it cannot be written, or something is there already.
    """
    lost: Counter[str] = Counter()
    elsewhere = RecordsElsewhere()
    with find_trace_set(path) as found:
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
    elsewhere: RecordsElsewhere,
) -> Iterator[bytes]:
    """Yield the bytes of one rank's file in another form."""
    source = f"{found.store.place}/{name}"
    with found.store.open(name) as stream:
        for number, (offset, body) in enumerate(records_of(stream, source=source)):
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
                        to_json = metadata_json
                    case FirstRecord.NODE:
                        # The JSON form begins with metadata, always.
                        lost["a file without metadata got an empty record of it"] += 1
                        yield b"{}"
                    case FirstRecord.NEITHER:
                        raise UnsupportedTrace(where, "this is no Chakra trace")
            text, unknown = to_json(body, where)
            for field in unknown:
                lost[f"{field}, which the schema does not have"] += 1
            yield text.encode()
