"""Trace sets in other forms."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram.chakra.read.framing import frame
from chakram.chakra.write.convert import TraceForm, convert_trace_set
from chakram.foundation.errors import (
    OutputExists,
    TraceError,
    UnsupportedTrace,
)
from tests.trace_bytes import collective, metadata, node

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUPS = b'{"1": [0, 1]}'


def trace_set(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    return trace_set(
        tmp_path / "in",
        {
            "w.0.et": metadata(schema="s") + node(0) + collective(7, pg_name="1"),
            "w.1.et": metadata() + collective(2**63, data_deps=[1], comm_size=2**40),
            "comm_group.json": GROUPS,
        },
    )


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_binary_to_json_and_back_is_the_same(binary: Path, tmp_path: Path) -> None:
    to_json = convert_trace_set(binary, tmp_path / "json", form=TraceForm.JSON)
    assert to_json.lost == ()
    assert [path.name for path in to_json.written] == [
        "w.0.json",
        "w.1.json",
        "comm_group.json",
    ]
    convert_trace_set(tmp_path / "json", tmp_path / "et", form=TraceForm.BINARY)
    assert files(tmp_path / "et") == files(binary)


def test_json_is_one_object_per_message_with_long_numbers_as_text(
    binary: Path, tmp_path: Path
) -> None:
    convert_trace_set(binary, tmp_path / "json", form=TraceForm.JSON)
    text = (tmp_path / "json" / "w.1.json").read_text()
    first, second = text.split("}{")
    assert json.loads(first + "}") == {"version": "0.0.4"}
    got = json.loads("{" + second)
    assert (got["id"], got["type"]) == (str(2**63), "COMM_COLL_NODE")
    assert {"name": "comm_size", "uint64Val": str(2**40)} in got["attr"]


def test_compressed_files_stay_compressed_by_default(
    binary: Path, tmp_path: Path
) -> None:
    (binary / "w.1.et").unlink()
    original = (binary / "w.0.et").read_bytes()
    (binary / "w.0.et").rename(binary / "w.0.et.gz")
    (binary / "w.0.et.gz").write_bytes(gzip.compress(original))
    convert_trace_set(binary, tmp_path / "kept", form=TraceForm.BINARY)
    kept = (tmp_path / "kept" / "w.0.et.gz").read_bytes()
    assert gzip.decompress(kept) == original
    convert_trace_set(binary, tmp_path / "plain", form=TraceForm.BINARY, compress=False)
    assert (tmp_path / "plain" / "w.0.et").read_bytes() == original


def test_fields_outside_of_the_schema_are_reported(tmp_path: Path) -> None:
    # Field 11 of a node: a storage operation, of a newer schema.
    storage = b"\x0b" + node(1, 8)[1:] + b"\x5a\x00"
    storage = bytes([len(storage) - 1]) + storage[1:]
    path = trace_set(tmp_path / "in", {"w.0.et": metadata() + storage})
    got = convert_trace_set(path, tmp_path / "out", form=TraceForm.JSON)
    assert got.lost == ("1 times field 11, which is not in the schema",)
    # Binary to binary loses nothing.
    convert_trace_set(path, tmp_path / "same", form=TraceForm.BINARY)
    assert files(tmp_path / "same") == files(path)


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        (
            '{"version": "1", "x": 1}{"id": 1, "data_deps": [], "y": 1, '
            '"attr": [{"name": "a", "int64_val": 1, "z": 1}], "inputs": {"v": ""}}',
            [f"1 times member {x!r}, which is not in the schema" for x in "vxyz"],
        ),
        (
            '{"workload_graph": [{"Id": 1, "NodeType": 4, "comm_tag": null, "x": 1}]}',
            ["1 times member 'x', which is not converted"],
        ),
        (
            '{"nodes": [{"id": 1, "node_type": "comp_node", "inputs": []}]}',
            ["1 times member 'inputs', which is not converted"],
        ),
        (
            '{"schema": "1.1.1", "nodes": [{"id": 2, "ctrl_deps": 1, "name": "n", '
            '"inputs": {}, "exclusive_dur": 1}]}',
            ["1 times tensors and attributes of a node, which are not converted"],
        ),
    ],
)
def test_unknown_members_of_json_are_reported(
    tmp_path: Path, text: str, lost: list[str]
) -> None:
    path = trace_set(tmp_path / "in", {"w.0.json": text.encode()})
    made = convert_trace_set(path, tmp_path / "et", form=TraceForm.BINARY)
    assert list(made.lost) == lost


def test_a_file_without_metadata_gets_an_empty_record(tmp_path: Path) -> None:
    path = trace_set(tmp_path / "in", {"w.0.et": node(1, num_ops=2)})
    got = convert_trace_set(path, tmp_path / "json", form=TraceForm.JSON)
    assert got.lost == (
        "1 times an empty metadata record was added to a file without metadata",
    )
    convert_trace_set(tmp_path / "json", tmp_path / "et", form=TraceForm.BINARY)
    assert (tmp_path / "et" / "w.0.et").read_bytes() == b"\0" + node(1, num_ops=2)


def test_file_of_an_old_schema_is_not_converted_to_json(tmp_path: Path) -> None:
    # Without this refusal, empty metadata would make the types of nodes current.
    first, second = b"\x08\x00\x12\x01n\x18\x03", b"\x08\x01\x12\x01n\x18\x03"
    for name, records in (("old", (first, second)), ("unknown", (second,))):
        data = b"".join(map(frame, records))
        path = trace_set(tmp_path / name, {"w.0.et": data})
        with pytest.raises(UnsupportedTrace, match=r"to schema 0\.0\.4 or later"):
            convert_trace_set(path, tmp_path / "json", form=TraceForm.JSON)
        assert not (tmp_path / "json").exists()


def test_a_damaged_file_leaves_nothing_behind(binary: Path, tmp_path: Path) -> None:
    (binary / "w.1.et").write_bytes(metadata() + b"\x20abc")
    with pytest.raises(TraceError):
        convert_trace_set(binary, tmp_path / "out", form=TraceForm.JSON)
    assert not (tmp_path / "out").exists()


def test_set_is_replaced_only_on_request_and_as_a_whole(
    binary: Path, tmp_path: Path
) -> None:
    out = trace_set(
        tmp_path / "out", {"w.0.et": b"old", "w.5.et.gz": b"old", "other.0.et": b"-"}
    )
    with pytest.raises(OutputExists, match=r"contains w\.0\.et and 1 more"):
        convert_trace_set(binary, out, form=TraceForm.BINARY)
    assert (out / "w.0.et").read_bytes() == b"old"
    convert_trace_set(binary, out, form=TraceForm.BINARY, force=True)
    assert sorted(files(out)) == ["comm_group.json", "other.0.et", "w.0.et", "w.1.et"]
    assert (out / "w.0.et").read_bytes() == (binary / "w.0.et").read_bytes()


def test_set_does_not_replace_itself(binary: Path) -> None:
    before = files(binary)
    with pytest.raises(OutputExists, match="contains the set that is read"):
        convert_trace_set(binary, binary, form=TraceForm.JSON, force=True)
    assert files(binary) == before


def test_a_file_is_no_folder(binary: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputExists, match="is not a folder"):
        convert_trace_set(binary, tmp_path / "file", form=TraceForm.JSON)
