"""Groups of operations without a name are identified or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from chakram.chakra.read.groups import InitialGroup
from chakram.chakra.read.pytorch.unnamed_groups import (
    RankOperations,
    UnnamedOperation,
    infer_groups,
)
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.sets.trace_set import load_trace_set
from chakram.chakra.trace_warning import WarningKind
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import TraceError
from tests.support import REPO_ROOT
from tests.unit.chakra.read.pytorch.hosts import (
    all_reduce,
    all_to_all,
    groups,
    node,
    text,
)

RECORDED = REPO_ROOT / "tests/data/gloo_moe_6r.tar.xz"


def group(name: str, *ranks: int, size: int = 4, purpose: str = "") -> InitialGroup:
    """A group; without ranks it is that of all."""
    return InitialGroup(
        name=name, ranks=ranks, size=len(ranks) or size, pointer=None, purpose=purpose
    )


def operation(op: str = "all_reduce", size_bytes: int = 8, **known: object) -> object:
    fields: dict[str, object] = {
        "where": "w: node 9", "op": op, "size_bytes": size_bytes, "members": None,
        "splits": None, "position": None, "tag": 0, "thread": None,
    }  # fmt: skip
    # mypy sees no types in the values of a mixed dictionary.
    return UnnamedOperation(**(fields | known))  # type: ignore[arg-type]


def uneven(sent: Sequence[int], received: Sequence[int]) -> object:
    return operation(
        "all_to_all_v",
        sum(sent),
        members=len(sent),
        splits=Splits(tuple(sent), tuple(received)),
    )


def inferred(
    made: Mapping[int, Sequence[InitialGroup]], did: Mapping[int, Sequence[object]]
) -> dict[int, list[str]]:
    return infer_groups(
        {
            rank: RankOperations(
                rank=rank,
                groups=tuple(made[rank]),
                # What `operation` makes, which it calls an object.
                operations=tuple(did[rank]),  # type: ignore[arg-type]
            )
            for rank in did
        }
    )


WORLD = group("0")
PAIRS = {
    0: (WORLD, group("1", 0, 1)),
    1: (WORLD, group("1", 0, 1)),
    2: (WORLD, group("2", 2, 3)),
    3: (WORLD, group("2", 2, 3)),
}
GRID = {
    rank: (
        WORLD,
        group("r", *((0, 1) if rank < 2 else (2, 3))),
        group("c", *((0, 2) if rank % 2 == 0 else (1, 3))),
    )
    for rank in range(4)
}
"""Two by two ranks: each has a row and a column of two, too."""


def test_group_without_matching_operations_is_excluded() -> None:
    did = {rank: [operation()] if rank < 2 else [] for rank in range(4)}
    assert inferred(PAIRS, did) == {0: ["1"], 1: ["1"], 2: [], 3: []}


def test_number_of_members_identifies_a_group() -> None:
    gather = [operation("all_gather", members=4), operation("all_gather", members=2)]
    found = inferred(PAIRS, dict.fromkeys(range(4), gather))
    assert found == {0: ["0", "1"], 1: ["0", "1"], 2: ["0", "2"], 3: ["0", "2"]}


def test_matching_splits_identify_groups_of_one_size() -> None:
    # Ranks 0 and 1 exchange 5 and 6 bytes, 0 and 2 exchange 7 and 8.
    did = {
        0: [uneven((1, 5), (1, 6)), uneven((1, 7), (1, 8))],
        1: [uneven((6, 1), (5, 1))],
        2: [uneven((8, 1), (7, 1))],
        3: [],
    }
    assert inferred(GRID, did) == {0: ["r", "c"], 1: ["r"], 2: ["c"], 3: []}
    # A rank that was not recorded objects to nothing; what rank 0 says is enough.
    recorded = {rank: did[rank] for rank in range(3)}
    assert inferred(GRID, recorded) == {0: ["r", "c"], 1: ["r"], 2: ["c"]}


def test_all_to_all_without_splits_matches_even_splits() -> None:
    did = {
        0: [operation("all_to_all", 8)],
        1: [uneven((4, 4), (4, 4))],
        2: [],
        3: [],
    }
    assert inferred(PAIRS, did)[0] == ["1"]


def test_indivisible_rows_identify_a_group() -> None:
    did = {rank: [operation("all_to_all", 6)] for rank in range(4)}
    assert inferred(PAIRS, did)[3] == ["2"]


def test_position_of_its_peer_identifies_the_group_of_a_message() -> None:
    did: dict[int, list[object]] = {
        2: [operation("send", 3, position=1)],
        3: [operation("recv", 3, position=0)],
        0: [],
        1: [],
    }
    assert inferred(PAIRS, did)[2] == ["2"]


def test_threads_of_one_rank_identify_groups_of_another() -> None:
    small = operation(size_bytes=3)
    did = {
        0: [
            operation(thread=5),
            operation(size_bytes=3, thread=6),
            operation(size_bytes=3, thread=7),
        ],
        1: [operation(), small, small],
        2: [operation()],
        3: [operation()],
    }
    assert inferred(PAIRS, did) == {
        0: ["0", "1", "1"],
        1: ["0", "1", "1"],
        2: ["0"],
        3: ["0"],
    }


def test_ambiguous_operation_is_refused_with_the_group_names() -> None:
    made = {rank: (WORLD, group("1", 0, 1, purpose="experts")) for rank in range(2)} | {
        rank: PAIRS[rank] for rank in (2, 3)
    }
    rows = [operation(), operation(), operation("barrier", 0)]
    did = {0: rows, 1: rows, 2: rows, 3: rows}
    with pytest.raises(TraceError) as refused:
        inferred(made, did)
    assert str(refused.value) == (
        "w: node 9: is all_reduce and names no process group, like 1 more of its kind; "
        "it may belong to '0' (all ranks) or '1' (experts, ranks 0, 1) "
        "(use the profile of the run (kineto), whose threads may identify the group, "
        "or set the group: unnamed_group: {all_reduce: NAME, barrier: NAME}, by name "
        "or pg_desc)"
    )


def test_error_does_not_request_a_given_profile() -> None:
    made = {rank: (WORLD, group("1", 0, 1)) for rank in range(2)}
    rows = [operation(thread=5)]
    with pytest.raises(TraceError) as refused:
        inferred(made, {0: rows, 1: rows})
    assert str(refused.value).endswith(
        "(the threads of the profile do not identify the group; set the group: "
        "unnamed_group: {all_reduce: NAME}, by name or pg_desc)"
    )


def test_operation_that_fits_one_group_is_assigned_to_it() -> None:
    did = {0: [uneven((1, 5), (1, 6))], 1: [uneven((9, 1), (9, 1))], 2: [], 3: []}
    assert inferred(PAIRS, did)[0] == ["1"]


def test_operation_that_fits_no_group_is_refused_with_the_groups() -> None:
    did = {rank: [operation("all_gather", members=3)] for rank in range(4)}
    with pytest.raises(
        TraceError, match=r"all_gather of 3 ranks .* '0' .* none of them fits"
    ):
        inferred(PAIRS, did)


def write_set(folder: Path) -> Path:
    """Four ranks in two pairs: an all_reduce of all, and an uneven all_to_all."""
    world = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 4}
    for rank in range(4):
        pair = rank // 2
        mine = {
            "pg_name": str(pair + 1), "pg_desc": f"experts_{pair}",
            "ranks": [2 * pair, 2 * pair + 1], "group_size": 2,
        }  # fmt: skip
        content = text(
            groups(world, mine),
            node(4, "aten::mm"),
            all_to_all(5, 3, 4, (1, 2), (1, 3))
            if rank % 2 == 0
            else all_to_all(5, 7, 6, (3, 4), (2, 4)),
            all_reduce(6, 10),
        )
        (folder / f"host_{rank}.json").write_bytes(content)
    return folder


def named(path: Path, **unnamed_groups: str) -> list[list[str | None]]:
    traces = load_trace_set(path, options=ReadOptions(unnamed_groups=unnamed_groups))
    return [
        [node.group for node in graph.nodes() if node.op is not None]
        for graph in traces.graphs.values()
    ]


def test_a_group_is_stated_by_operation_by_name_or_by_purpose(tmp_path: Path) -> None:
    path = write_set(tmp_path)
    with pytest.raises(TraceError, match=r"node 6.* is all_reduce and names no"):
        named(path)
    by_rank: list[list[str | None]] = [["1", None], ["1", None], ["2", None]]
    assert named(path, all_reduce="0") == [*by_rank, ["2", None]]
    assert named(path, all_reduce="experts_*")[2] == ["2", "2"]
    assert named(path, any="experts_*")[0] == ["1", "1"]
    # What none of the rank's groups is called is its own name.
    assert named(path, all_reduce="9")[0] == ["1", "9"]


def test_profiles_identify_two_expert_groups_of_six_recorded_ranks() -> None:
    traces = load_trace_set(RECORDED)
    for rank, graph in traces.graphs.items():
        experts = "1" if rank % 2 == 0 else "2"
        found = [
            (str(each.op), each.group) for each in graph.nodes() if each.op is not None
        ]
        assert found == 2 * [
            ("all_to_all_v", experts),
            ("all_to_all_v", experts),
            ("all_reduce", None),
        ]
    by_kind = {each.kind: each for each in traces.warnings}
    # Each step reduces its gradient while the host goes on, and then stalls.
    assert by_kind[WarningKind.WAIT_INFERRED].count == 2
    warning = by_kind.pop(WarningKind.GROUP_INFERRED)
    assert by_kind.keys() == {WarningKind.WAIT_INFERRED}
    assert warning.count == 1
    assert warning.found == (
        "6 operations name no process group; their members and the other ranks and "
        "threads imply: 2 all_reduce in '0', 4 all_to_all_v in '2'"
    )
