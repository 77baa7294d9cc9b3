"""Warnings about a set in results: few sentences for any set."""

from __future__ import annotations

from chakram.chakra.lint.computation_warnings import LintWarningKind
from chakram.chakra.lint.rule_table import RULES
from chakram.chakra.lint.traffic_warnings import KINDS_LISTED, summarize_warnings
from chakram.chakra.trace_warning import TraceWarning


def warning(
    kind: LintWarningKind, rank: int | None = 0, count: int = 1
) -> TraceWarning:
    return TraceWarning(kind, rank, f"rank {rank}", "is odd", count)


def test_valid_set_has_no_warnings() -> None:
    assert summarize_warnings([]) == ()


def test_warnings_of_one_rule_form_one_sentence_with_a_remedy() -> None:
    kind = LintWarningKind.NOTHING_WAITS
    (sentence,) = summarize_warnings(
        [warning(kind, rank, count=3) for rank in range(4)]
    )

    assert sentence == (
        f"MISLEADING: rank 0: is odd ({RULES[kind].remedy}) "
        "[nothing-waits: 12 times in 4 ranks]"
    )


def test_warnings_about_times_come_first() -> None:
    sentences = summarize_warnings(
        [warning(kind, count=2) for kind in reversed(LintWarningKind)]
    )

    assert len(sentences) == KINDS_LISTED + 1
    for sentence, kind in zip(sentences, LintWarningKind, strict=False):
        assert f"[{kind}: 2 times]" in sentence
    for kind in list(LintWarningKind)[KINDS_LISTED:]:
        assert f"[{kind}: 2 times]" in sentences[-1]
    assert sentences[-1].endswith("; see chakram trace lint")
