"""Recorded splits of all-to-alls."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from chakram.foundation.errors import TraceError
from chakram.synth.recorded_splits import read_splits
from chakram.synth.settings.training import MoeTrace
from chakram.synth.synthesize import synthesize, write_synthesis


def read(path: Path, text: str, **settings: int) -> tuple[object, ...]:
    path.write_text(text, encoding="utf-8")
    return read_splits(path, **{"nranks": 2, "token_bytes": 10, **settings})


def test_json_has_tokens_or_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    dispatches = '"dispatches": [[[3, 1], [2, 0]], [[0, 0], [1, 1]]]'
    first, second = ((30, 10), (20, 0)), ((0, 0), (10, 10))
    assert read(path, f"{{{dispatches}}}") == (first, second)
    text = f'{{"unit": "bytes", {dispatches}}}'
    assert read(path, text)[0] == ((3, 1), (2, 0))


def test_bins_of_experts_are_added_up(tmp_path: Path) -> None:
    text = '{"dispatches": [[[1, 2, 5, 0], [0, 0, 0, 4]]]}'
    assert read(tmp_path / "x.json", text) == (((30, 50), (0, 40)),)


def test_csv_has_a_line_per_dispatch_and_source(tmp_path: Path) -> None:
    text = "dispatch,source,e0,e1\n1,0,5,6\n0,1,3,4\n0,0,1,2\n1,1,7,8\n"
    assert read(tmp_path / "x.csv", text) == (
        ((10, 20), (30, 40)),
        ((50, 60), (70, 80)),
    )


def test_a_matrix_has_bytes(tmp_path: Path) -> None:
    assert read(tmp_path / "x.txt", "0 16\n\n32  0\n") == (((0, 16), (32, 0)),)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("x.json", "[", "is not JSON"),
        ("x.json", "[]", "has no list of dispatches"),
        ("x.json", '{"dispatches": [], "unit": "x"}', "unit is 'x'"),
        ("x.json", '{"dispatches": []}', "has no dispatch"),
        ("x.json", '{"dispatches": [[1]]}', "dispatch 0: is not a list of rows"),
        ("x.json", '{"dispatches": [[[1, 2]]]}', "1 sources, but a group has 2 ranks"),
        ("x.json", '{"dispatches": [[[1], [2]]]}', "has 1 counts for 2 ranks"),
        ("x.json", '{"dispatches": [[[-1, 2], [1, 1]]]}', "-1 is not a count"),
        ("x.json", '{"dispatches": [[[true, 2], [1, 1]]]}', "True is not a count"),
        ("x.json", '{"dispatches": [[[1e3, 2], [1, 1]]]}', "1000.0 is not a count"),
        ("x.json", f'{{"dispatches": [[[{2**60}, 0], [1, 1]]]}}', "is too large"),
        ("x.csv", "0,0,1,x\n", "x.csv:1: 'x' is not a count"),
        ("x.csv", "0,0\n", "has 2 numbers"),
        ("x.csv", "0,0,1,1\n0,0,1,1\n", "source 0 of dispatch 0 occurs twice"),
        ("x.csv", "0,1,1,1\n0,2,1,1\n", "has the sources [1, 2]"),
        ("x.txt", "1 2\n3 -4\n", "x.txt:2: '-4' is not a count"),
        ("x.txt", "", "has 0 sources"),
    ],
)
def test_invalid_record_is_refused(
    tmp_path: Path, name: str, text: str, found: str
) -> None:
    with pytest.raises(TraceError) as raised:
        read(tmp_path / name, text)
    assert found in str(raised.value)


def test_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read_splits(tmp_path / "none.json", nranks=2, token_bytes=1)
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="is not text"):
        read_splits(tmp_path / "x.json", nranks=2, token_bytes=1)


def write_moe(folder: Path, **parameters: object) -> None:
    trace = MoeTrace.model_validate({"synth": "moe", "ep": 2, "dp": 1, **parameters})
    made = synthesize(trace)
    write_synthesis(folder, made)


def test_splits_of_a_trace_set_give_its_dispatches_once(tmp_path: Path) -> None:
    # Forward and backward of three layers are twelve all-to-alls, three of them
    # dispatches of forward.
    routing = {"law": "log_normal", "seed": 3}
    write_moe(tmp_path / "a", layers=3, experts=4, routing=routing)
    recorded = read_splits(tmp_path / "a", nranks=2, token_bytes=1)
    assert len(set(recorded)) == len(recorded) == 3
    # A trace that replays them has the same.
    again = {"law": "recorded", "splits": str(tmp_path / "a")}
    write_moe(tmp_path / "b", layers=3, experts=4, routing=again)
    assert read_splits(tmp_path / "b", nranks=2, token_bytes=1) == recorded


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tgz", "tar.bz2", "tar.xz"])
def test_splits_are_read_from_all_archives_of_traces(
    tmp_path: Path, suffix: str
) -> None:
    write_moe(tmp_path / "a", layers=1, routing={"law": "log_normal"})
    compression = suffix.rpartition(".")[2].replace("tgz", "gz").replace("tar", "")
    with tarfile.open(tmp_path / f"a.{suffix}", f"w:{compression}") as archive:
        archive.add(tmp_path / "a", "a")
    recorded = read_splits(tmp_path / f"a.{suffix}", nranks=2, token_bytes=1)
    assert recorded == read_splits(tmp_path / "a", nranks=2, token_bytes=1)


def test_a_trace_set_without_such_splits_is_refused(tmp_path: Path) -> None:
    write_moe(tmp_path / "even", layers=1)
    with pytest.raises(TraceError, match="no all-to-all with splits between 2 ranks"):
        read_splits(tmp_path / "even", nranks=2, token_bytes=1)
    write_moe(
        tmp_path / "hot", layers=1, routing={"law": "zero_rank", "target": 1}, experts=4
    )
    with pytest.raises(TraceError, match="it has all-to-alls between 2"):
        read_splits(tmp_path / "hot", nranks=4, token_bytes=1)


@pytest.mark.parametrize(
    ("archive", "nranks", "skew"),
    [
        ("pytorch_moe_gloo_8r/host_et_json.tar.gz", 4, 1.3),
        ("pytorch_dlrm_nccl_8r/dlrm_pytorch_et.tar.gz", 8, 3.0),
    ],
)
def test_splits_of_real_runs_are_read(
    chakram_data: Path, archive: str, nranks: int, skew: float
) -> None:
    recorded = read_splits(
        chakram_data / "traces" / archive, nranks=nranks, token_bytes=1
    )
    worst = 0.0
    for matrix in recorded:
        received = [sum(column) for column in zip(*matrix, strict=True)]
        worst = max(worst, max(received) * nranks / sum(received))
    assert worst > skew
