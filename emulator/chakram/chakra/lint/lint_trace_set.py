"""All findings about a trace set as one list, for ``chakram trace lint``.

A file that cannot be read is a finding too. In that case, the other files of the set
are only checked for read errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chakram.chakra.lint.replay_blockers import check_across_ranks, check_trace_set
from chakram.chakra.lint.rule_table import RULES, Severity
from chakram.chakra.lint.traffic_warnings import warnings_of
from chakram.chakra.read.reader import settle
from chakram.chakra.read.reader_options import CORRECTIONS, ReadOptions
from chakram.chakra.sets.find_files import find_trace_set
from chakram.chakra.sets.profiles import Profiles, open_rank
from chakram.chakra.sets.trace_set import TraceSet, load_trace_set
from chakram.chakra.trace_warning import WarningKind
from chakram.foundation.errors import (
    GarbageTrace,
    OversizedRecord,
    TraceError,
    TruncatedTrace,
    UnknownDimensions,
    UnsupportedTrace,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from chakram.chakra.trace_warning import TraceWarning


ERROR_RULES: Final[Mapping[type, str]] = {
    TruncatedTrace: "truncated",
    OversizedRecord: "oversized-record",
    GarbageTrace: "garbage",
    UnsupportedTrace: "unsupported-form",
    UnknownDimensions: "unknown-dimensions",
    TraceError: "unreadable",
}
"""Rule name by error class, for errors that stop the reading of a file.

The most specific class of an error determines the rule.
"""

NOTE_RULE: Final = "collective-order"
"""Rule name for notes on how collectives were matched across ranks."""

# Locations have the format FILE: offset N: rank N node N 'NAME'. The reader of host
# traces omits the rank. Some locations end after the offset.
_PLACE = re.compile(r": offset (\d+)(?:: (?:rank (\d+) )?node (\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A violation of a rule.

    Attributes:
        rule: Name of the rule.
        severity: Whether it is a problem, a warning or a correction.
        rank: The rank, or None if the finding is not about a single rank.
        node: Id of the node, or None if the finding is not about a node.
        offset: Byte offset in the (decompressed) file, or None.
        where: The location, as text.
        found: Description of the finding.
        remedy: What to do.
        count: Number of findings of this kind in this rank. This finding is the first.
    """

    rule: str
    severity: Severity
    rank: int | None
    node: int | None
    offset: int | None
    where: str
    found: str
    remedy: str
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """The findings about a trace set.

    ``ranks`` and ``nodes`` are 0 if the set could not be read.
    """

    name: str
    ranks: int
    nodes: int
    findings: tuple[Finding, ...]

    def of(self, *severities: Severity) -> list[Finding]:
        """Return the findings with any of the given severities."""
        return [each for each in self.findings if each.severity in severities]


def lint_trace_set(
    path: str | Path,
    *,
    comm_groups: str | Path | None = None,
    kineto: str | Path | None = None,
    options: ReadOptions | None = None,
    on_rank: Callable[[int, int], None] | None = None,
    workers: Executor | None = None,
) -> LintReport:
    """Return all findings about a trace set.

    Args:
        path: Folder, archive, prefix, pattern or file that names the set.
        comm_groups: The group file, if it is not next to the traces.
        kineto: The profiles, if they are not next to the traces.
        options: Reader options. Data dependencies on missing nodes are problems, unless
            ``drop_missing_dependencies`` is set.
        on_rank: Called with (ranks read, total ranks) after every file.
        workers: Processes that read files in parallel. If None, this process reads
            them.
    """
    options = options or ReadOptions()
    # Drop missing dependencies while reading. Otherwise the first one would hide all
    # other findings.
    reading = replace(options, drop_missing_dependencies=True)
    try:
        traces = load_trace_set(
            path,
            comm_groups=comm_groups,
            kineto=kineto,
            options=reading,
            on_rank=on_rank,
            workers=workers,
        )
    except TraceError as error:
        findings = _unreadable(path, kineto, error, reading)
        return LintReport(name=str(path), ranks=0, nodes=0, findings=tuple(findings))
    missing = Severity.PROBLEM
    if options.drop_missing_dependencies:
        missing = Severity.WARNING
    return LintReport(
        name=traces.name,
        ranks=traces.nranks,
        nodes=sum(map(len, traces.graphs.values())),
        findings=tuple(_findings(traces, missing)),
    )


def _findings(traces: TraceSet, missing: Severity) -> list[Finding]:
    findings = [_of_reading(warning, missing) for warning in traces.warnings]
    problems = check_trace_set(traces.graphs, traces.groups, traces.least_ranks)
    notes: tuple[str, ...] = ()
    if not problems:
        problems, notes = check_across_ranks(traces.graphs, traces.groups)
    for note in notes:
        where, _, found = note.partition(": ")
        findings.append(_finding(NOTE_RULE, where, found))
    findings += map(_of_remark, problems)
    if any(each.severity is Severity.PROBLEM for each in findings):
        # Omit warnings: they concern replay results, but this set cannot be replayed.
        return findings
    return [*findings, *map(_of_remark, warnings_of(traces))]


def _of_reading(warning: TraceWarning, missing: Severity) -> Finding:
    severity = Severity.WARNING
    if warning.kind in CORRECTIONS:
        severity = Severity.CORRECTION
    elif warning.kind is WarningKind.MISSING_DATA_DEPENDENCY:
        severity = missing
    if severity is Severity.PROBLEM:
        warning = replace(warning, found=warning.found.removesuffix("; dropped"))
    return _of_remark(warning, severity)


def _of_remark(remark: TraceWarning, severity: Severity | None = None) -> Finding:
    return _finding(
        remark.kind,
        remark.where,
        remark.found,
        rank=remark.rank,
        remedy=remark.hint,
        severity=severity,
        count=remark.count,
    )


def _unreadable(
    path: str | Path,
    kineto: str | Path | None,
    error: TraceError,
    options: ReadOptions,
) -> list[Finding]:
    """Return findings for *error* and for the read errors of other files."""
    found = {error.where: _of_error(error)}
    try:
        with (
            find_trace_set(path) as files,
            Profiles(files, Path(kineto) if kineto else None) as profiles,
        ):
            options = replace(options, nranks=len(files.files))
            for rank in files.files:
                try:
                    opened = open_rank(files, rank, profiles, options=options)
                    # Skip a trace whose groups can only be inferred together with other
                    # ranks.
                    if opened.unnamed is None:
                        settle({rank: opened})
                except TraceError as other:
                    found[other.where] = _of_error(other, rank=rank)
    except TraceError as other:
        found.setdefault(other.where, _of_error(other))
    return list(found.values())


def _of_error(error: TraceError, rank: int | None = None) -> Finding:
    rule = next(ERROR_RULES[kind] for kind in type(error).mro() if kind in ERROR_RULES)
    return _finding(rule, error.where, error.found, rank=rank, remedy=error.hint)


def _finding(
    rule: str,
    where: str,
    found: str,
    *,
    rank: int | None = None,
    remedy: str | None = None,
    severity: Severity | None = None,
    count: int = 1,
) -> Finding:
    """Return a finding. Its location is parsed from *where*, or else from *found*."""
    place = _PLACE.search(where) or _PLACE.search(found)
    offset, its_rank, node = (
        (None, None, None) if place is None else map(_number, place.groups())
    )
    return Finding(
        rule=str(rule),
        severity=severity or RULES[rule].severity,
        rank=its_rank if rank is None else rank,
        node=node,
        offset=offset,
        where=where,
        found=found,
        remedy=remedy or RULES[rule].remedy,
        count=count,
    )


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)
