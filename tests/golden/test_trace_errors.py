"""What a user reads when a trace cannot be used, word for word.

The texts stand in ``trace_errors/<case>.txt``.  ``CHAKRAM_UPDATE_GOLDEN=1`` writes them
anew; read the difference before you commit it.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from chakram.chakra.et_codec import NodeType
from chakram.chakra.lint.replay_blockers import require_replayable
from chakram.chakra.read.framing import frame
from chakram.chakra.sets.trace_set import load_trace_set
from chakram.foundation.errors import ChakramError
from tests.trace_bytes import collective, metadata, node

EXPECTED = Path(__file__).parent / "trace_errors"
GOOD = metadata() + node(1) + collective(2, data_deps=[1])
ONE = "w.0.et"

CASES: dict[str, dict[str, bytes]] = {
    "truncated": {ONE: GOOD[:-5]},
    "truncated_length": {ONE: GOOD + b"\x80"},
    "truncated_gzip": {ONE: gzip.compress(GOOD, mtime=0)[:-9]},
    "damaged_gzip": {ONE: b"\x1f\x8b" + b"x" * 20},
    "oversized": {ONE: GOOD + b"\xff\xff\xff\xff\x0f"},
    "garbage_length": {ONE: GOOD + b"\xff" * 9},
    "garbage_start": {ONE: frame(b"\x0f")},
    "garbage_node": {ONE: GOOD + frame(b"\x12\x05")},
    "empty": {ONE: b""},
    "old_schema": {ONE: frame(b"\x08\x00\x12\x04COMP\x18\x03")},
    "feeder_json": {"w.0.json": b'{"workload_graph": [{"Id": 1}]}'},
    "jsonizer_json": {ONE: b'{"version": "0.0.4"}{"id": "n"}'},
    "stage_json": {"w.0.json": b'{"nodes": []}'},
    "truncated_json": {"w.0.json": b'{"workload_graph": [{"Id": 1, "Na'},
    "broken_json": {"w.0.json": b'{"workload_graph": [{"Id": 1 "Na": 2}]}'},
    "kineto_json": {"w.0.json": b'{"traceEvents": []}'},
    "other_json": {"w.0.json": b'[{"x": 1}]'},
    "stage_elements": {ONE: metadata("", schema="symbolic_tensor_network") + node(1)},
    "missing_rank": {"w.0.et": GOOD, "w.2.et": GOOD},
    "two_sets": {"a.0.et": GOOD, "b.0.et": GOOD},
    "no_traces": {"notes.txt": b"x"},
    "broken_archive": {"w.tar.gz": b"no archive"},
    "broken_groups": {ONE: GOOD, "comm_group.json": b'{"1": [0,'},
    "twice_in_group": {ONE: GOOD, "comm_group.json": b'{"1": [0, 0]}'},
    "no_comm_type": {ONE: metadata() + node(1, NodeType.COMM_COLL, comm_size=1)},
    "unknown_collective": {ONE: metadata() + collective(1, comm_type=12)},
    "negative_size": {ONE: metadata() + collective(1, comm_size=-1)},
    "size_as_text": {ONE: metadata() + collective(1, comm_size="big")},
    "some_dimensions": {ONE: metadata() + collective(1, involved_dim=(True, False))},
    "missing_dependency": {ONE: metadata() + collective(1, data_deps=[7])},
    "id_twice": {ONE: metadata() + node(1) + node(1)},
    "foreign_message": {
        ONE: metadata() + node(1, NodeType.COMM_SEND, comm_src=3, comm_dst=1)
    },
    "unknown_group": {ONE: metadata() + collective(1, pg_name="tp")},
    "not_a_member": {
        "w.0.et": metadata() + collective(1, pg_name="1"),
        "w.1.et": metadata(),
        "comm_group.json": b'{"1": [1]}',
    },
    "cycle": {ONE: metadata() + node(1, data_deps=[2]) + node(2, data_deps=[1])},
    "no_peer": {ONE: metadata() + node(1, NodeType.COMM_SEND, comm_size=4)},
}


def load_for_replay(path: str) -> None:
    traces = load_trace_set(path)
    require_replayable(traces.graphs, traces.groups)


@pytest.mark.parametrize("case", CASES)
def test_an_error_reads_as_agreed(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for name, data in CASES[case].items():
        (folder / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    names = list(CASES[case])
    path = f"set/{names[0]}" if names[0].endswith(".tar.gz") else "set"
    with pytest.raises(ChakramError) as caught:
        load_for_replay(path)
    assert caught.value.exit_code == 2
    text = f"{type(caught.value).__name__}\n{caught.value}\n"
    expected = EXPECTED / f"{case}.txt"
    if os.environ.get("CHAKRAM_UPDATE_GOLDEN"):
        expected.write_text(text)
    assert text == expected.read_text()


def test_every_agreed_text_has_its_case() -> None:
    assert {path.stem for path in EXPECTED.glob("*.txt")} == set(CASES)
