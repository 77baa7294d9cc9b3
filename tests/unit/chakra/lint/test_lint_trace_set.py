"""All findings about a trace set, including those that prevent reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chakram.chakra.et_codec import NodeType
from chakram.chakra.lint.computation_warnings import LintWarningKind
from chakram.chakra.lint.lint_trace_set import (
    ERROR_RULES,
    NOTE_RULE,
    Finding,
    LintReport,
    lint_trace_set,
)
from chakram.chakra.lint.replay_blockers import ProblemKind
from chakram.chakra.lint.rule_table import RULES, Severity
from chakram.chakra.read.framing import frame
from chakram.chakra.read.reader_options import CORRECTIONS, ReadOptions
from chakram.chakra.trace_warning import WarningKind
from tests.trace_bytes import collective, metadata, node
from tests.unit.chakra.read.pytorch.hosts import text

FIRST = node(1, duration_micros=7)
GOOD = metadata() + FIRST + collective(2, data_deps=[1])
START = len(metadata())


def lint(folder: Path, *ranks: bytes, **options: Any) -> LintReport:
    for rank, data in enumerate(ranks):
        (folder / f"w.{rank}.et").write_bytes(data)
    return lint_trace_set(folder, options=ReadOptions(**options))


def place(finding: Finding) -> tuple[str, int | None, int | None, int | None]:
    return finding.rule, finding.rank, finding.node, finding.offset


def message(node_id: int, *, src: int, dst: int, sends: bool, **fields: Any) -> bytes:
    kind = NodeType.COMM_SEND if sends else NodeType.COMM_RECV
    return node(node_id, kind, comm_src=src, comm_dst=dst, comm_size=8, **fields)


def test_every_finding_has_a_documented_rule() -> None:
    assert set(RULES) == {
        *ProblemKind,
        *WarningKind,
        *LintWarningKind,
        *ERROR_RULES.values(),
        NOTE_RULE,
    }
    for name, rule in RULES.items():
        assert rule.name == name
        assert (rule.severity is Severity.CORRECTION) == (name in CORRECTIONS)
        if name in set(ProblemKind):
            assert rule.severity is Severity.PROBLEM
        if name in set(LintWarningKind):
            assert rule.severity is Severity.WARNING


def test_valid_set_has_no_findings(tmp_path: Path) -> None:
    report = lint(tmp_path, GOOD, GOOD)
    assert (report.ranks, report.nodes, report.findings) == (2, 4, ())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (GOOD[:-5], ("truncated", 1, None, START + len(FIRST))),
        (GOOD + b"\xff\xff\xff\xff\x0f", ("oversized-record", 1, None, len(GOOD))),
        (GOOD + frame(b"\x12\x05"), ("garbage", 1, None, len(GOOD))),
        (frame(b"\x08\x00\x12\x04COMP\x18\x03"), ("unsupported-form", 1, None, 0)),
        (metadata() + node(1) * 2, ("unreadable", 1, 1, START + len(node(1)))),
    ],
)
def test_a_file_that_cannot_be_read_is_a_finding_of_its_rank(
    tmp_path: Path, data: bytes, expected: tuple[Any, ...]
) -> None:
    report = lint(tmp_path, GOOD, data)
    (finding,) = report.of(Severity.PROBLEM)
    assert place(finding) == expected
    assert (finding.remedy != "", report.ranks) == (True, 0)


def test_a_file_that_cannot_be_read_does_not_hide_another(tmp_path: Path) -> None:
    report = lint(tmp_path, GOOD[:-5], GOOD, GOOD + frame(b"\x12\x05"))
    assert [(each.rule, each.rank) for each in report.findings] == [
        ("truncated", 0),
        ("garbage", 2),
    ]


def test_a_node_of_a_host_trace_has_its_place(tmp_path: Path) -> None:
    (tmp_path / "host_0.json").write_bytes(text({"id": 5}))
    (finding,) = lint(tmp_path).findings
    assert (finding.rule, finding.rank, finding.node) == ("garbage", 0, 5)
    assert finding.offset is not None


def test_missing_set_is_a_finding(tmp_path: Path) -> None:
    (finding,) = lint(tmp_path).findings
    assert place(finding) == ("unreadable", None, None, None)


def test_all_missing_data_dependencies_are_problems(tmp_path: Path) -> None:
    waiting = collective(1, data_deps=[7, 8])
    before = node(0, duration_micros=7)
    ranks = [metadata() + waiting, metadata() + before + waiting]
    report = lint(tmp_path, *ranks)
    assert [place(each) for each in report.findings] == [
        ("missing-data-dependency", 0, 1, START),
        ("missing-data-dependency", 1, 1, START + len(before)),
    ]
    assert [each.count for each in report.of(Severity.PROBLEM)] == [2, 2]
    assert "dropped" not in report.findings[0].found
    meant = lint(tmp_path, *ranks, drop_missing_dependencies=True)
    assert len(meant.of(Severity.WARNING)) == 2
    assert not meant.of(Severity.PROBLEM)


def test_corrections_have_their_own_severity(tmp_path: Path) -> None:
    trace = metadata() + node(1) + node(2, data_deps=[1], ctrl_deps=[9])
    (finding,) = lint(tmp_path, trace).findings
    assert (finding.rule, finding.node) == ("missing-control-dependency", 2)
    assert finding.severity is Severity.CORRECTION


def test_a_mismatch_is_at_the_first_node_that_it_names(tmp_path: Path) -> None:
    other = metadata() + collective(3, comm_size=2048)
    (finding,) = lint(tmp_path, metadata() + collective(2), other).findings
    assert place(finding) == ("mismatch", 0, 2, START)
    assert finding.where == "process group 'world': collective 0"


def test_ranks_that_wait_for_one_another_are_a_deadlock(tmp_path: Path) -> None:
    ranks = [
        metadata()
        + message(1, src=1 - rank, dst=rank, sends=False)
        + message(2, src=rank, dst=1 - rank, sends=True, data_deps=[1])
        for rank in range(2)
    ]
    (finding,) = lint(tmp_path, *ranks).findings
    assert (finding.rule, finding.severity) == ("deadlock", Severity.PROBLEM)
    assert finding.node in {1, 2}
    assert finding.offset is not None


def test_groups_that_are_matched_by_name_are_a_warning_each(tmp_path: Path) -> None:
    def job(*sizes: int) -> bytes:
        records = (
            collective(k, name=f"of {size}", comm_size=size)
            for k, size in enumerate(sizes)
        )
        return metadata() + b"".join(records)

    (finding,) = lint(tmp_path, job(1, 2), job(2, 1)).findings
    assert (finding.rule, finding.severity) == (NOTE_RULE, Severity.WARNING)
    assert finding.where == "process group 'world'"


def test_replayable_set_can_have_warnings(tmp_path: Path) -> None:
    empty = metadata() + collective(2, comm_size=0)
    (first, second) = lint(tmp_path, empty, empty).findings
    assert place(first) == ("empty-collective", 0, 2, START)
    assert place(second) == ("empty-collective", 1, 2, START)
    assert {first.severity, second.severity} == {Severity.WARNING}
    assert first.remedy == RULES["empty-collective"].remedy


def test_set_with_problems_has_no_warnings(tmp_path: Path) -> None:
    report = lint(
        tmp_path, metadata() + collective(2, comm_size=0), metadata() + node(1)
    )
    assert [each.rule for each in report.findings] == ["mismatch"]


def test_sizes_that_stage_writes_as_elements_may_be_meant_as_bytes(
    tmp_path: Path,
) -> None:
    stage = metadata(schema="symbolic_tensor_network") + collective(2)
    for options in (
        {"bytes_per_element": 1},
        {"uncorrected": frozenset({WarningKind.ELEMENT_SIZES})},
    ):
        (finding, _) = lint(tmp_path, stage, stage, **options).findings
        assert place(finding)[:2] == ("elements-as-bytes", 0)
