"""Sets of host traces: location of profiles, and consistency of ranks."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path

import pytest

from chakram.chakra.et_codec import NodeType, encode_node
from chakram.chakra.lint.lint_trace_set import lint_trace_set
from chakram.chakra.lint.replay_blockers import (
    ProblemKind,
    check_trace_set,
    require_replayable,
)
from chakram.chakra.read.framing import frame
from chakram.chakra.read.reader import records_of
from chakram.chakra.sets.trace_set import load_replicated, load_trace_set
from chakram.chakra.summary.traffic import measure_traffic
from chakram.chakra.trace_warning import WarningKind
from chakram.chakra.write.message_list import p2p_csv
from chakram.foundation.errors import MatchingError, TraceError, UnsupportedTrace
from chakram.program.job_check import check_job
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.trace.replication import Replication
from tests.made_graphs import job, label
from tests.trace_bytes import metadata
from tests.unit.chakra.read.pytorch.hosts import (
    all_to_all,
    event,
    groups,
    node,
    record,
    text,
)

MATRIX = ((1, 2, 3), (0, 5, 6), (7, 0, 9))
"""Elements of four bytes from rank to rank."""

WORLD = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 3}


def host(rank: int, matrix: tuple[tuple[int, ...], ...] = MATRIX) -> bytes:
    column = [row[rank] for row in matrix]
    return text(
        groups(WORLD),
        node(4, "aten::mm", rf_id=40),
        all_to_all(5, sum(matrix[rank]), sum(column), matrix[rank], column),
    )


def profile(rank: int) -> bytes:
    events = [event(40, 100, 10 + rank), event(50, 200, 1)]
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()


def write_hosts(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for rank in range(3):
        (folder / f"host_{rank}.json").write_bytes(host(rank))
    return folder


def write_profiles(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    for rank in range(3):
        (folder / f"{name}_{rank}.json").write_bytes(profile(rank))
    return folder


def durations(path: Path, kineto: Path | None = None) -> list[int]:
    traces = load_trace_set(path, kineto=kineto)
    return [graph.node(0).duration_ns for graph in traces.graphs.values()]


TIMES = [10_000, 11_000, 12_000]


@pytest.mark.parametrize("name", ["kineto", "device", "kineto_rank"])
def test_profiles_are_found_in_the_folder_of_the_traces(
    tmp_path: Path, name: str
) -> None:
    write_hosts(tmp_path / "traces")
    assert durations(write_profiles(tmp_path / "traces", name)) == TIMES


def test_profiles_are_found_in_a_neighboring_folder(tmp_path: Path) -> None:
    write_profiles(tmp_path / "kineto_json", "device")
    assert durations(write_hosts(tmp_path / "host")) == TIMES


def test_profiles_are_found_in_a_neighboring_archive(tmp_path: Path) -> None:
    folder = write_profiles(tmp_path / "profiles", "device")
    with tarfile.open(tmp_path / "kineto.tar.gz", "w:gz") as archive:
        archive.add(folder, "profiles")
    assert durations(write_hosts(tmp_path / "host")) == TIMES


def test_profiles_can_be_named(tmp_path: Path) -> None:
    profiles = write_profiles(tmp_path / "somewhere", "run7")
    assert durations(write_hosts(tmp_path / "host"), profiles) == TIMES


def _unnumbered(folder: Path, *, stated: bool, name: str) -> Path:
    """Write profiles as PyTorch's handler for TensorBoard names them."""
    folder.mkdir(exist_ok=True)
    for rank in range(3):
        held = json.loads(profile(rank))
        if stated:
            info = {"backend": "nccl", "rank": rank, "world_size": 3}
            held = {"schemaVersion": 1, "distributedInfo": info, **held}
        # Ascending names do not have ascending ranks.
        path = folder / name.format(rank=rank, other=7 - rank)
        path.write_bytes(gzip.compress(json.dumps(held).encode()))
    return folder


@pytest.mark.parametrize(
    ("stated", "name"),
    [
        (False, "worker{rank}_step_12.169{other}.pt.trace.json.gz"),
        (True, "host_{other}.169{rank}0.pt.trace.json.gz"),
        (True, "run-{other}.pt.trace.json.gz"),
    ],
)
def test_profiles_are_recognized_by_their_content(
    tmp_path: Path, stated: bool, name: str
) -> None:
    beside = _unnumbered(tmp_path / "kineto", stated=stated, name=name)
    assert durations(write_hosts(tmp_path / "host")) == TIMES
    given = beside.rename(tmp_path / "elsewhere")
    assert durations(tmp_path / "host", given) == TIMES
    same = _unnumbered(tmp_path / "host", stated=stated, name=name)
    assert durations(same) == TIMES


def test_single_profile_belongs_to_a_single_rank(tmp_path: Path) -> None:
    (tmp_path / "resnet_et.json").write_bytes(host(0))
    (tmp_path / "run.pt.trace.json").write_bytes(profile(0))
    assert durations(tmp_path) == TIMES[:1]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    named = (tmp_path / "run.pt.trace.json").rename(elsewhere / "run.json")
    assert durations(tmp_path, named) == TIMES[:1]


def foreign(number: int = 0, process: int = 7) -> bytes:
    held = json.dumps({"traceEvents": [event(40, 100, 10, process=process)]})
    return held.encode() + b" " * number


@pytest.mark.parametrize(
    ("neighbors", "found"),
    [
        ({"b.pt.trace.json": foreign()}, "b.pt.trace.json is the profile of process 7"),
        ({"kineto_b_0.json": foreign()}, "of process 7"),
        ({"kineto_5.json": foreign(), "kineto_6.json": foreign()}, "none for rank 0"),
        ({"b.json": foreign(), "c.json": foreign()}, "of an unknown rank"),
        ({"gpu0.b.json": foreign(), "gpu0.c.json": foreign()}, "has two profiles"),
        ({"b.json": b'{"traceEvents": [3]}'}, "is not an event"),
        (
            {"b.json": json.dumps({"traceEvents": [event(40, 1, 1, name="x")]})},
            "is 'aten::mm' in the trace, but 'x' in the profile",
        ),
    ],
)
def test_profiles_of_neighbors_do_not_stop_a_lone_trace(
    tmp_path: Path, neighbors: dict[str, bytes | str], found: str
) -> None:
    (tmp_path / "resnet_et.json").write_bytes(host(0))
    for name, content in neighbors.items():
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
    traces = load_trace_set(tmp_path / "resnet_et.json")
    assert [each.kind for each in traces.warnings] == ["no-times", "profile-left-out"]
    assert found in traces.warnings[1].found
    lint = lint_trace_set(tmp_path / "resnet_et.json")
    assert "profile-left-out" in {each.rule for each in lint.findings}
    given = tmp_path / next(iter(neighbors))
    with pytest.raises(TraceError):  # what is named has to fit
        load_trace_set(tmp_path / "resnet_et.json", kineto=given)


def test_the_only_recorded_rank_may_be_any(tmp_path: Path) -> None:
    (tmp_path / "host_2.json").write_bytes(host(2))
    (tmp_path / "kineto_2.json").write_bytes(profile(2))
    for path in (tmp_path, tmp_path / "host_2.json"):
        made = load_replicated(path, Replication(nranks=3), rank=2)
        assert made.name.endswith("host.2")
        assert [graph.node(0).duration_ns for graph in made.graphs.values()] == [
            12_000
        ] * 3
        recorded = load_trace_set(path).graphs[0].splits(1)
        replayed = made.graphs[2].splits(1)
        assert recorded is not None
        assert replayed is not None
        assert replayed.sent_bytes == recorded.sent_bytes
        with pytest.raises(TraceError, match=r"no file for rank 1 .*for rank 2"):
            load_replicated(path, Replication(nranks=3), rank=1)
        # Without a rank, the number may be a version. The profile belongs to it anyway.
        assert durations(path) == [12_000]


def test_profiles_of_another_set_are_left_out_for_all_ranks(tmp_path: Path) -> None:
    path = write_hosts(tmp_path)
    for rank in range(3):
        (path / f"kineto_{rank}.json").write_bytes(foreign())
    traces = load_trace_set(path)
    kinds = [each.kind for each in traces.warnings]
    assert kinds.count(WarningKind.NO_TIMES) == 3
    assert kinds.count(WarningKind.PROFILE_LEFT_OUT) == 1
    # Where the first one fits, the others were mixed up.
    (path / "kineto_0.json").write_bytes(profile(0))
    with pytest.raises(TraceError, match="of process 7"):
        load_trace_set(path)


def test_a_single_gpu_that_does_not_communicate_is_no_broken_trace(
    tmp_path: Path,
) -> None:
    def remedies() -> dict[str, str]:
        found = lint_trace_set(tmp_path / "et.json").findings
        return {each.rule: each.remedy for each in found}

    (tmp_path / "et.json").write_bytes(text(node(4, "aten::mm", rf_id=40)))
    assert remedies()["no-nodes"] == "give the profile of the run: --kineto"
    (tmp_path / "run.json").write_bytes(profile(0))
    assert remedies() == {}
    held = json.dumps({"traceEvents": [event(0, 1, 1)]})
    (tmp_path / "run.json").write_text(held)
    assert remedies()["no-times"] == "record the profile with PyTorch 2.1 or later"
    assert "kineto" not in remedies()["no-nodes"]
    (tmp_path / "et.json").write_bytes(text())
    assert remedies()["no-nodes"] == "check that its producer was not interrupted"


def test_profiles_with_unknown_ranks_are_refused(tmp_path: Path) -> None:
    path = write_hosts(tmp_path)
    (tmp_path / "run-a.pt.trace.json").write_bytes(profile(0))
    with pytest.raises(TraceError, match=r"run-a.*of an unknown rank"):
        load_trace_set(path)
    (tmp_path / "run-a.pt.trace.json").rename(tmp_path / "worker0.1.pt.trace.json")
    (tmp_path / "worker0.2.pt.trace.json").write_bytes(profile(0))
    with pytest.raises(TraceError, match=r"rank 0 has two profiles: worker0\.1"):
        load_trace_set(path)


def test_digest_depends_on_profiles(
    tmp_path: Path,
) -> None:
    path = write_hosts(tmp_path / "host")
    before = load_trace_set(path)
    assert {warning.kind for warning in before.warnings} == {WarningKind.NO_TIMES}
    write_profiles(tmp_path / "kineto", "device")
    assert load_trace_set(path).digest != before.digest


def test_a_rank_without_profile_is_refused(tmp_path: Path) -> None:
    profiles = write_profiles(tmp_path / "kineto", "device")
    (profiles / "device_2.json").unlink()
    with pytest.raises(TraceError, match="contains profiles, but none for rank 2"):
        load_trace_set(write_hosts(tmp_path / "host"))


def test_host_traces_given_for_profiles_are_refused(tmp_path: Path) -> None:
    path = write_hosts(tmp_path / "host")
    with pytest.raises(UnsupportedTrace, match="not a Kineto profile"):
        load_trace_set(path, kineto=path)


def test_other_traces_ignore_neighboring_profiles(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "t.0.json").write_text('{"version": "0.0.4"}{"id": "1", "name": "n"}')
    (tmp_path / "kineto").mkdir()
    assert len(load_trace_set(folder).graphs[0]) == 1
    with pytest.raises(TraceError, match="contains no files"):
        load_trace_set(write_hosts(tmp_path / "host"))


def test_profiles_for_other_traces_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.0.json").write_text('{"version": "0.0.4"}{"id": "1", "name": "n"}')
    profiles = write_profiles(tmp_path / "profiles", "device")
    with pytest.raises(TraceError, match="does not use profiles"):
        load_trace_set(tmp_path / "t.0.json", kineto=profiles)


def test_one_rank_with_its_profile_represents_all(tmp_path: Path) -> None:
    folder = write_profiles(write_hosts(tmp_path / "host"), "device")
    traces = load_replicated(folder, Replication(nranks=6), rank=2)
    assert [graph.node(0).duration_ns for graph in traces.graphs.values()] == (
        [12_000] * 6
    )
    programs = lower_job("j", traces.graphs, traces.groups, LoweringOptions()).programs
    assert check_job(programs) == []


def test_traffic_and_lists_of_messages_have_the_recorded_splits(
    tmp_path: Path,
) -> None:
    traces = load_trace_set(write_hosts(tmp_path / "host"))
    wanted = {
        (src, dst): 4 * part
        for src, row in enumerate(MATRIX)
        for dst, part in enumerate(row)
        if src != dst and part
    }
    traffic = measure_traffic(traces.graphs, traces.groups)
    assert traffic.matrix is not None
    assert {
        (src, dst): nbytes
        for src in range(3)
        for dst, nbytes in enumerate(traffic.row(src))
        if nbytes
    } == wanted
    lines = [line.decode().split(",") for line in p2p_csv(traces.graphs, traces.groups)]
    assert {(int(a), int(b)): int(c) for _, a, b, c, *_ in lines[1:]} == wanted


def test_mismatched_ranks_are_refused_with_both_locations(tmp_path: Path) -> None:
    folder = write_hosts(tmp_path / "host")
    other = ((1, 2, 3), (0, 5, 6), (7, 1, 9))
    (folder / "host_2.json").write_bytes(host(2, other))
    traces = load_trace_set(folder)
    with pytest.raises(MatchingError) as caught:
        lower_job("j", traces.graphs, traces.groups, LoweringOptions())
    assert "host_2.json" in str(caught.value)
    assert "host_1.json" in str(caught.value)
    assert "sends 4 bytes to rank 1, but rank 1 expects 0 from rank 2" in str(
        caught.value
    )


def test_empty_records_are_not_written(tmp_path: Path) -> None:
    path = write_hosts(tmp_path / "host") / "host_0.json"
    with (
        path.open("rb") as file,
        pytest.raises(UnsupportedTrace, match="no records that can be copied"),
    ):
        next(iter(records_of(file, source="host_0.json")))


def test_communication_that_a_converter_lost_is_a_problem() -> None:
    lost = {**label(1), "name": "c10d::allreduce_"}
    (problem,) = check_trace_set(job([lost], [label(1)]), {})
    assert problem.kind is ProblemKind.LOST_COMMUNICATION
    assert "host traces" in problem.hint
    assert not check_trace_set(job([label(1)]), {})


def _problems(path: Path) -> list[str]:
    traces = load_trace_set(path)
    found = check_trace_set(traces.graphs, traces.groups, traces.least_ranks)
    return [f"{problem.kind} {problem.found}" for problem in found]


@pytest.mark.parametrize(
    "stated",
    [
        groups({**WORLD, "group_size": 8}),
        groups(WORLD, {"pg_name": "9", "ranks": [1, 7]}),
        record(5, "wait", None, behind=(0, 1, 8)),
        # Not evenly apart: of such a group only its size is stated.
        record(5, "wait", None, behind=(2, -1, 8)),
        record(5, "wait", None, global_rank_start=1, global_rank_stride=3, pg_size=3),
    ],
)
def test_host_trace_reveals_missing_ranks(
    tmp_path: Path, stated: dict[str, object]
) -> None:
    rows = [stated] if "init" in stated["name"] else [groups(WORLD), stated]
    for rank in range(3):
        (tmp_path / f"h_{rank}.json").write_bytes(text(*rows if rank else ()))
    assert _problems(tmp_path) == [
        "missing-ranks states that the job had 8 ranks, but the set has files of 3"
    ]
    traces = load_trace_set(tmp_path)
    with pytest.raises(TraceError, match=r"h_1\.json: .*replicate"):
        require_replayable(traces.graphs, traces.groups, traces.least_ranks)


def test_converted_trace_reveals_missing_ranks(
    tmp_path: Path,
) -> None:
    for size, found in ((2, []), (5, ["missing-ranks"])):
        values = repr([json.dumps([{"pg_name": "0", "ranks": [], "group_size": size}])])
        record = encode_node(
            node_id=1,
            name="## process_group:init ##",
            node_type=NodeType.METADATA,
            attributes={},
            input_values=values,
        )
        for rank in range(2):
            (tmp_path / f"w.{rank}.et").write_bytes(metadata() + frame(record))
        assert [problem.split()[0] for problem in _problems(tmp_path)] == found


def test_complete_set_has_no_missing_ranks(tmp_path: Path) -> None:
    assert _problems(write_hosts(tmp_path)) == []


def test_representative_rank_has_no_missing_ranks(tmp_path: Path) -> None:
    stated = groups({**WORLD, "group_size": 8})
    (tmp_path / "h_0.json").write_bytes(text(stated))
    made = load_replicated(tmp_path, Replication(nranks=16))
    require_replayable(made.graphs, made.groups, made.least_ranks)
