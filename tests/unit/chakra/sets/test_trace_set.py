"""Finding and reading the traces of all ranks."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
from pathlib import Path

import pytest

from chakram.chakra.et_pb2 import IOInfo, Node
from chakram.chakra.read.framing import frame
from chakram.chakra.sets import trace_set
from chakram.chakra.sets.trace_set import load_replicated, load_trace_set
from chakram.chakra.trace_warning import WarningKind
from chakram.collectives.groups import WORLD, ProcessGroup
from chakram.foundation.errors import TraceError
from chakram.trace.replication import Replication
from tests.trace_bytes import collective, metadata, node

FILE = metadata() + node(1) + collective(2, data_deps=[1])


def write_set(folder: Path, prefix: str = "w", ranks: int = 2) -> Path:
    folder.mkdir(exist_ok=True)
    for rank in range(ranks):
        (folder / f"{prefix}.{rank}.et").write_bytes(FILE)
    return folder


def write_archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    "written", ["", "w", "w.", "w.*.et", "w.%d.et", "w.{rank}.et", "w*", "w.1.et"]
)
def test_set_is_found_by_folder_prefix_or_file(tmp_path: Path, written: str) -> None:
    write_set(tmp_path)
    got = load_trace_set(tmp_path / written)
    assert (list(got.graphs), got.nranks) == ([0, 1], 2)
    assert got.name == f"{tmp_path}/w"
    assert [graph.rank for graph in got.graphs.values()] == [0, 1]


@pytest.mark.parametrize("written", ["w[1]", "w[1].0.et", ""])
def test_brackets_in_a_name_are_no_pattern(tmp_path: Path, written: str) -> None:
    write_set(tmp_path, "w[1]")
    assert load_trace_set(tmp_path / written).name == f"{tmp_path}/w[1]"


def test_ten_ranks_and_more_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    got = load_trace_set(write_set(tmp_path, ranks=12))
    assert list(got.graphs) == list(range(12))


def test_an_archive_is_read_in_place(tmp_path: Path) -> None:
    path = write_archive(
        tmp_path / "set.tar.gz",
        {
            "a/w.0.et": FILE,
            "a/w.1.et": gzip.compress(FILE),
            "a/._w.0.et": b"junk of macOS",
            "a/comm_group.json": b'{"1": [0, 1]}',
            "b/other.0.et": FILE,
        },
    )
    got = load_trace_set(path / "w")
    assert got.nranks == 2
    assert got.groups["1"].ranks == (0, 1)
    assert load_trace_set(path, prefix="a/w").digest == got.digest
    assert [p.name for p in tmp_path.iterdir()] == ["set.tar.gz"]


def test_names_and_links_in_an_archive_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "set.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("../../evil.0.et", "/etc/evil2.0.et"):
            member = tarfile.TarInfo(name)
            member.size = len(FILE)
            archive.addfile(member, io.BytesIO(FILE))
        link = tarfile.TarInfo("link.0.et")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(TraceError, match="contains 2 trace sets"):
        load_trace_set(path)
    assert load_trace_set(path / "evil").nranks == 1
    with pytest.raises(TraceError, match="contains no trace set 'link'"):
        load_trace_set(path / "link")


def test_digest_depends_on_the_contents(tmp_path: Path) -> None:
    plain = load_trace_set(write_set(tmp_path / "plain"))
    zipped = tmp_path / "zipped"
    zipped.mkdir()
    for rank in range(2):
        (zipped / f"other.{rank}.et.gz").write_bytes(gzip.compress(FILE))
    archive = write_archive(tmp_path / "a.tar.gz", {"w.1.et": FILE, "w.0.et": FILE})
    assert load_trace_set(zipped).digest == plain.digest
    assert load_trace_set(archive).digest == plain.digest
    (tmp_path / "plain" / "comm_group.json").write_text('{"1": [0]}')
    assert load_trace_set(tmp_path / "plain").digest != plain.digest
    (tmp_path / "plain" / "comm_group.json").unlink()
    (tmp_path / "plain" / "w.1.et").write_bytes(FILE + node(3))
    assert load_trace_set(tmp_path / "plain").digest != plain.digest


def test_digest_of_a_replica_depends_on_its_group_file(tmp_path: Path) -> None:
    def digest() -> str:
        return load_replicated(tmp_path, Replication(nranks=4)).digest

    write_set(tmp_path)
    plain = digest()
    (tmp_path / "comm_group.json").write_text('{"1": [0, 1]}')
    with_pairs = digest()
    (tmp_path / "comm_group.json").write_text('{"1": [0]}')
    assert len({plain, with_pairs, digest()}) == 3


def test_progress_is_reported_after_every_rank(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    load_trace_set(write_set(tmp_path), on_rank=lambda *done: told.append(done))
    assert told == [(1, 2), (2, 2)]


# What is not found


def refused(path: Path, found: str, **options: str) -> None:
    with pytest.raises(TraceError, match=found):
        load_trace_set(path, **options)  # type: ignore[arg-type] # any of its arguments


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    write_set(tmp_path, ranks=9)
    (tmp_path / "w.3.et").unlink()
    refused(tmp_path, r"has files up to rank 8, but none for rank 3 \(add a file")
    for rank in (0, 1, 2, 4, 5, 6):
        (tmp_path / f"w.{rank}.et").unlink()
    refused(tmp_path, "none for rank 0, 1, 2, 3, 4 and others")


def test_a_rank_number_without_end_is_no_endless_search(tmp_path: Path) -> None:
    (tmp_path / "w.999999999.et").write_bytes(FILE)
    refused(tmp_path, "none for rank 0, 1, 2, 3, 4 and others")


def test_a_rank_has_one_file(tmp_path: Path) -> None:
    write_set(tmp_path)
    (tmp_path / "w.1.et.gz").write_bytes(gzip.compress(FILE))
    refused(tmp_path, "rank 1 has two files: w.1.et and w.1.et.gz")


def test_several_sets_in_a_folder_are_refused(tmp_path: Path) -> None:
    write_set(tmp_path, "a")
    write_set(tmp_path, "b")
    refused(tmp_path, f"contains 2 trace sets: a, b .*e.g. {tmp_path}/a")
    assert load_trace_set(tmp_path, prefix="b").name == f"{tmp_path}/b"
    (tmp_path / "c.txt").write_text("notes")
    refused(tmp_path / "c", "contains no trace set 'c' .it contains a, b")


def test_missing_path_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_set(tmp_path / "sub", "a")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    where = re.escape(f"{tmp_path}")
    refused(
        tmp_path / "c", f"{where}/c: does not exist .{where} contains notes.txt, sub/"
    )
    refused(tmp_path / "c" / "d", f"c/d: does not exist .{where} contains notes.txt")
    refused(tmp_path / "sub" / "w.*.et", "does not exist .*sub contains a.0.et, a.1.et")
    refused(tmp_path / "notes.txt" / "w", "does not exist .*notes.txt is not a folder")
    refused(tmp_path, f"it contains notes.txt, sub/; name the .* e.g. {where}/sub")
    monkeypatch.chdir(tmp_path)
    refused(
        Path("c"),
        f"^c: does not exist .its absolute path is {where}/c; {where} contains",
    )


def test_a_path_that_may_not_be_read_is_one_sentence(tmp_path: Path) -> None:
    # Root may read all: a name that is too long fails the same way for everybody.
    refused(tmp_path / ("x" * 300), "cannot be accessed: File name too long .check the")


def test_folder_without_traces_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "contains no files named .*it contains nothing")
    refused(tmp_path / "no" / "where", "no/where: does not exist")
    (tmp_path / "notes.txt").write_text("x")
    refused(tmp_path, "contains no files named .*it contains notes.txt")
    refused(tmp_path / "notes.txt", "is not named <prefix>.<rank>.et or")


FEEDER = '{"workload_graph": [{"Id": 1, "NodeType": 4}]}'


def test_a_lone_json_trace_may_have_any_number(tmp_path: Path) -> None:
    (tmp_path / "1.0.2-chakra.0.0.4.json").write_text(FEEDER)
    assert list(load_trace_set(tmp_path).graphs) == [0]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("resnet_2gpu_et.json.gz", gzip.compress(FEEDER.encode(), mtime=0)),
        ("resnet.json", FEEDER.encode()),
        ("llama.et", metadata() + node(1)),
        ("llama.et.gz", gzip.compress(metadata() + node(1), mtime=0)),
    ],
)
def test_a_lone_trace_may_have_any_name(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    (tmp_path / "comm_group.json").write_text('{"1": [0]}')
    (tmp_path / "notes.json").write_text("[]")
    for path in (tmp_path, tmp_path / name):
        traces = load_trace_set(path)
        assert [len(graph) for graph in traces.graphs.values()] == [1]
        assert traces.groups["1"].ranks == (0,)
    made = load_replicated(tmp_path / name, Replication(nranks=3), rank=0)
    assert made.nranks == 3


def test_two_lone_traces_are_no_set(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(FEEDER)
    refused(tmp_path, "contains no files named .*it contains a.json, b.json")
    assert len(load_trace_set(tmp_path / "b.json").graphs[0]) == 1


@pytest.mark.parametrize("name", ["w.0.json", "w_0.json"])
def test_json_traces_are_found_like_binary_ones(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FEEDER)
    for path in (tmp_path, tmp_path / name, tmp_path / "w.*.json", tmp_path / "w"):
        traces = load_trace_set(path)
        assert len(traces.graphs[0]) == 1
        assert traces.producer == "feeder JSON"


def test_json_next_to_binary_traces_is_read_if_named(tmp_path: Path) -> None:
    (tmp_path / "w.0.et").write_bytes(metadata() + node(1) + node(2))
    (tmp_path / "w.0.json").write_text(FEEDER)
    (tmp_path / "topology_8.json").write_text("{}")
    for path, nodes in (("", 2), ("w", 2), ("w.0.et", 2), ("w.0.json", 1)):
        assert len(load_trace_set(tmp_path / path).graphs[0]) == nodes


def test_a_profile_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text('{"traceEvents": []}')
    for path in (tmp_path, tmp_path / "profile.json"):
        refused(path, "this is a Kineto profile")


def test_a_lone_group_file_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "comm_group.json").write_text('{"1": [0]}')
    refused(tmp_path, "contains no files named")


@pytest.mark.parametrize("length", [5, 60, 150])
def test_a_damaged_archive_is_refused(tmp_path: Path, length: int) -> None:
    # Digits of a hash do not compress, so that the cut falls into the traces.
    text = "".join(hashlib.sha256(bytes([i])).hexdigest() for i in range(9))
    path = write_archive(tmp_path / "set.tar.gz", {"w.0.et": node(1, name=text)})
    path.write_bytes(path.read_bytes()[:length])
    refused(path, "cannot be read|the file ends")


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "w.0.et").mkdir()
    refused(tmp_path, "contains no files named")


# Groups


def with_groups(folder: Path, name: str, text: str = '{"1": [1, 0]}') -> Path:
    write_set(folder)
    (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    "name", ["comm_group.json", "comm_groups.json", "w.comm_group.json", "w.json"]
)
def test_group_file_is_found_next_to_the_traces(tmp_path: Path, name: str) -> None:
    got = load_trace_set(with_groups(tmp_path, name))
    assert got.groups["1"] == ProcessGroup(name="1", ranks=(1, 0))
    assert got.groups[WORLD].ranks == (0, 1)


@pytest.mark.parametrize(
    "name", ["set.comm_group.json", "w.comm_group.json", "comm_group.json"]
)
def test_group_file_is_found_next_to_an_archive(tmp_path: Path, name: str) -> None:
    path = write_archive(tmp_path / "set.tar.gz", {"w.0.et": FILE})
    (tmp_path / name).write_text('{"1": [0]}')
    assert load_trace_set(path).groups["1"].ranks == (0,)


def test_group_file_is_found_next_to_an_archive_of_one_odd_name(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "set.tar.gz", {"odd.et": FILE})
    (tmp_path / "comm_group.json").write_text('{"1": [0]}')
    assert load_trace_set(path).groups["1"].ranks == (0,)


@pytest.mark.parametrize("name", ["w.comm_group.json", "comm_groups.json"])
def test_group_file_is_found_in_inputs_next_to_the_folder(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_set(tmp_path / "traces")
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / name).write_text('{"1": [1, 0]}')
    assert load_trace_set(folder).groups["1"].ranks == (1, 0)
    monkeypatch.chdir(folder)
    assert load_trace_set("w").groups["1"].ranks == (1, 0)
    # One beside the traces goes before it.
    with_groups(folder, "comm_group.json", '{"1": [0]}')
    assert load_trace_set(folder).groups["1"].ranks == (0,)


def test_two_group_files_must_agree(tmp_path: Path) -> None:
    folder = with_groups(tmp_path, "comm_group.json")
    with_groups(folder, "comm_groups.json", '{"1": [1,0]}')
    assert load_trace_set(folder).groups["1"].ranks == (1, 0)
    with_groups(folder, "comm_groups.json", '{"1": [0, 1]}')
    refused(folder, "two group files that differ: .*--comm-groups")
    named = load_trace_set(folder, comm_groups=folder / "comm_groups.json")
    assert named.groups["1"].ranks == (0, 1)
    inputs = with_groups(tmp_path / "inputs", "comm_group.json")
    with_groups(inputs, "comm_groups.json", '{"1": [0, 1]}')
    refused(write_set(tmp_path / "bare"), "differ: .*inputs/comm_group.json and .*")
    # That of a set by its own name goes before those of all sets of the folder.
    with_groups(folder, "w.comm_group.json", '{"1": [0]}')
    assert load_trace_set(folder).groups["1"].ranks == (0,)


def test_explicit_group_file_overrides_a_neighboring_one(tmp_path: Path) -> None:
    folder = with_groups(tmp_path / "set", "comm_group.json")
    given = tmp_path / "given.json"
    given.write_text('{"7": [0]}')
    assert set(load_trace_set(folder, comm_groups=given).groups) == {"7", WORLD}
    refused(folder, "cannot be read: No such", comm_groups=str(tmp_path / "none"))


def test_a_wrong_group_file_is_refused(tmp_path: Path) -> None:
    refused(with_groups(tmp_path, "comm_group.json", "{"), "is not JSON")


def test_a_group_file_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_set, "_GROUP_FILE_LIMIT_BYTES", 10)
    refused(with_groups(tmp_path, "comm_group.json"), "is longer than 10B")


def test_group_0_of_a_group_file_is_used(tmp_path: Path) -> None:
    data = metadata() + collective(1, pg_name="0.0")
    (tmp_path / "w.0.et").write_bytes(data)
    assert load_trace_set(tmp_path).graphs[0].group(0) is None
    (tmp_path / "comm_group.json").write_text('{"0": [0]}')
    got = load_trace_set(tmp_path)
    assert got.graphs[0].group(0) == "0"
    assert got.groups["0"].ranks == (0,)


def init_node(groups: str) -> bytes:
    message = Node(
        id=9,
        name="## process_group:init ##",
        type=1,  # type: ignore[arg-type] # a number of the enum
        inputs=IOInfo(values=f"['{groups}']"),
    )
    return frame(message.SerializeToString())


def test_groups_of_the_traces_are_merged(tmp_path: Path) -> None:
    for rank, groups in enumerate(
        (
            '[{"pg_name": "1", "ranks": [0]}, {"pg_name": "3", "ranks": []}]',
            '[{"pg_name": "2", "ranks": [1]}, {"pg_name": "3", "ranks": [0, 1]}]',
        )
    ):
        (tmp_path / f"w.{rank}.et").write_bytes(metadata() + init_node(groups))
    got = load_trace_set(tmp_path).groups
    assert {name: group.ranks for name, group in got.items()} == {
        "1": (0,),
        "2": (1,),
        "3": (0, 1),
        WORLD: (0, 1),
    }


def test_a_smaller_group_of_the_name_of_all_ranks_is_refused(tmp_path: Path) -> None:
    def write(ranks: list[int]) -> None:
        groups = f'[{{"pg_name": "world", "ranks": {ranks}}}]'
        for rank in range(3):
            data = metadata() + (init_node(groups) if rank else b"")
            (tmp_path / f"w.{rank}.et").write_bytes(data)

    write([0, 1, 2, 3])
    assert load_trace_set(tmp_path).groups[WORLD].ranks == (0, 1, 2)
    write([1, 2])
    refused(tmp_path, r"w\.1\.et: defines the group 'world' of the ranks 1, 2 \(rename")


def test_replicated_trace_warns_of_groups_that_its_file_overrides(
    tmp_path: Path,
) -> None:
    data = metadata() + init_node('[{"pg_name": "1", "ranks": [0]}]')
    (tmp_path / "w.0.et").write_bytes(data)
    (tmp_path / "comm_group.json").write_text('{"1": [0, 1]}')
    (warning,) = load_replicated(tmp_path, Replication(nranks=2)).warnings
    assert (warning.kind, warning.rank) == (WarningKind.GROUP_DIFFERS, 0)
    assert "gives group '1' the ranks 0; the group file" in warning.found


def test_contradictory_groups_of_ranks_are_refused(tmp_path: Path) -> None:
    for rank in range(2):
        groups = f'[{{"pg_name": "1", "ranks": [{rank}]}}]'
        (tmp_path / f"w.{rank}.et").write_bytes(metadata() + init_node(groups))
    refused(
        tmp_path, r"group '1' has the ranks \[1\] in the trace of rank 1, but \[0\] in"
    )
    (tmp_path / "comm_group.json").write_text('{"1": [0, 1]}')
    got = load_trace_set(tmp_path)
    assert got.groups["1"].ranks == (0, 1)
    assert [(each.kind, each.rank, each.found) for each in got.warnings] == [
        (
            WarningKind.GROUP_DIFFERS,
            rank,
            f"gives group '1' the ranks {rank}; the group file takes precedence: 0, 1",
        )
        for rank in range(2)
    ]


# Where traces come from


@pytest.mark.parametrize(
    ("record", "producer", "schema"),
    [
        (metadata(), "unknown", "0.0.4"),
        (metadata(""), "unknown", "not stated"),
        (b"", "unknown", "not stated"),
        (
            metadata("", schema="symbolic_tensor_network"),
            "STAGE",
            "symbolic_tensor_network",
        ),
        (
            metadata("", schema="1.1.1-chakra.0.0.4", pid=1),
            "PyTorch converter",
            "1.1.1-chakra.0.0.4",
        ),
        (metadata("", schema="1.0.1"), "PyTorch converter", "1.0.1"),
        (
            metadata("", schema="1.0.2-chakra.0.0.4", input_file="x", collective="a"),
            "MSCCL converter",
            "1.0.2-chakra.0.0.4",
        ),
        (
            metadata("", schema="1.0.2-chakra.0.0.4", input_file="x"),
            "text converter",
            "1.0.2-chakra.0.0.4",
        ),
        (metadata("1.0.0", producer="a tool"), "a tool", "1.0.0"),
    ],
)
def test_producer_is_recognized_by_its_marks(
    tmp_path: Path, record: bytes, producer: str, schema: str
) -> None:
    (tmp_path / "w.0.et").write_bytes(record + node(1, num_ops=1))
    got = load_trace_set(tmp_path, bytes_per_element=1)
    assert (got.producer, got.schema) == (producer, schema)


def test_corrections_of_all_ranks_are_reported(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"w.{rank}.et").write_bytes(node(1, num_ops=1))
    assert [w.rank for w in load_trace_set(tmp_path).warnings] == [0, 1]
