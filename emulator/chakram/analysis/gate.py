"""Checks of results against a file of rules, for CI.

Names in a condition are keys of the document that ``chakram show --json`` prints.  With
``each``, they are keys of the members of one list in the document.  ``baseline`` is the
same part of the baseline's document.  ``slower`` is the relative increase of a time
over the baseline.  It is 0 if the difference is not significant
(``chakram.analysis.comparison``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree as Xml

from pydantic import Field

from chakram.analysis.comparison import Comparison, compare, sentences
from chakram.analysis.comparison_inputs import read_side
from chakram.analysis.rule_expressions import Compared, Expression
from chakram.collectives.ops import CollectiveOp
from chakram.console.summary_document import check_run_document, summary_document
from chakram.foundation.bounded_reading import parse_json, read_bounded
from chakram.foundation.errors import ConfigError, ResultsError
from chakram.foundation.text_escaping import code_block, code_span, one_line, plain
from chakram.foundation.units import about_size, format_rate, format_time
from chakram.run_directory.reader import open_run
from chakram.settings.field_types import Model
from chakram.settings.located_errors import Mistake, report
from chakram.settings.yaml_document import read_document, read_model
from chakram.summary.result_warnings import incomplete
from chakram.summary.run_summary import COMPLETE

_MOST_BYTES = 1 << 26
_SHOWN, _MEMBERS = 6, 3

NO_FAULT = "no confirmed fault"
"""Condition that holds if ``chakram why`` confirms no fault in the run."""

_SAME = {
    "results": ("job", "collective", "algorithm", "nranks", "size", "root"),
    "iterations": ("job",),
    "ranks": ("job", "rank"),
    "links": ("link", "direction"),
}
"""Keys that identify the matching member of the baseline, by list of the document."""


_OF_DATA = frozenset(
    {"alg_bw", "bus_bw", "bound_ns", "bound_share", "alone_share", "deviation"}
)
"""Keys without a value for barriers, which move no data."""

Faults = tuple[Sequence[str] | None, str | None]
"""Descriptions of confirmed faults, or None and the reason why no fault was tested."""


class Rule(Model):
    """A condition that results must meet."""

    check: str = Field(min_length=1)
    """Condition that must hold."""
    name: str | None = Field(default=None, max_length=200)
    """Name in reports.  Default: the condition."""
    each: Literal["results", "iterations", "ranks", "links"] | None = None
    """List of the document whose members must each meet the condition."""
    where: str | None = None
    """Condition that selects members.  Default: all members."""


class Rules(Model):
    """The content of a rules file."""

    version: Literal[1]
    """Version of the file format."""
    baseline: Path | None = None
    """Results to compare with.  The path is relative to the rules file."""
    rules: tuple[Rule, ...] = Field(min_length=1, max_length=1000)
    """Rules that must hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Outcome of one rule for one subject.

    Attributes:
        rule: Name of the rule.
        subject: Member of the list that the rule was applied to.  Empty for the whole
            run.
        holds: Whether the rule holds, or None if a required value is unknown.
        values: The values that the rule used, as text.
    """

    rule: str
    subject: str
    holds: bool | None
    values: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """Outcome of all rules.

    Attributes:
        verdicts: Outcomes of the rules, one for each rule and subject.
        comparison: Notes on incomplete runs, then the differences from the baseline,
            as sentences.
    """

    verdicts: tuple[Verdict, ...]
    comparison: tuple[str, ...] = ()


def read_rules(path: Path) -> Rules:
    """Read a rules file.

    Raises:
        ConfigError: If the file is invalid.  The error shows the line of every mistake,
            and a hint.
    """
    rules = read_model(path, Rules)
    if rules.baseline is not None:
        return rules.model_copy(update={"baseline": path.parent / rules.baseline})
    return rules


def read_results(path: Path) -> dict[str, Any]:
    """Return the document of a run directory, or of a file printed by ``--json``.

    Raises:
        ChakramError: If the path is neither a run directory nor such a file.
    """
    if path.is_dir():
        return summary_document(open_run(path).summary())
    data = read_bounded(
        path,
        limit_bytes=_MOST_BYTES,
        error=ResultsError,
        size_hint="name a results file",
    )
    hint = "name a run directory, or a file that `chakram show --json` has printed"
    document = parse_json(data, str(path), error=ResultsError, hint=hint)
    if not isinstance(document, dict) or not str(document.get("schema")).startswith(
        "chakram.run/"
    ):
        raise ResultsError(str(path), "is not the JSON output of a run", hint)
    check_run_document(document, str(path))
    return document


def judge(
    rules: Rules,
    path: Path,
    baseline: Path | None,
    *,
    source: Path,
    faults: Callable[[Path], Faults] | None = None,
) -> Judgment:
    """Apply every rule to a run and compare the run with its baseline.

    Args:
        rules: The rules.
        path: The run directory, or its JSON.
        baseline: Run directory or JSON of the baseline. None means the baseline in the
            rules file.
        source: The rules file. Errors refer to lines of this file.
        faults: Function that tests a run directory for faults.  Only rules whose
            condition is ``NO_FAULT`` call it.

    Raises:
        ChakramError: If a file is invalid, or a rule uses an unknown name.
    """
    document = json.loads(json.dumps(read_results(path)))
    told = _incomplete("the run", document)
    before: dict[str, Any] | None = None
    comparison: Comparison | None = None
    if (baseline := baseline or rules.baseline) is not None:
        before = read_results(baseline)
        told += _incomplete("the baseline", before)
        comparison = compare(read_side(baseline), read_side(path))
    verdicts: list[Verdict] = []
    mistakes: list[Mistake] = []
    for place, rule in enumerate(rules.rules):
        try:
            if rule.check.strip() == NO_FAULT:
                verdicts.append(_without_fault(rule, path, faults))
            else:
                verdicts += _judged(rule, _subjects(rule, document, before, comparison))
        except ConfigError as error:
            mistakes += [
                Mistake(("rules", place, error.where), error.found, error.hint)
            ]
    if mistakes:
        # A pipe cannot be read again.
        line_of = read_document(source).line if source.is_file() else lambda _: None
        raise report(str(source), mistakes, line_of)
    if comparison is not None:
        told += (
            "A is the baseline, B the run. " + sentences(comparison)[0],
            *sentences(comparison)[1:],
            *(note for note in comparison.b.notes if note not in told),
        )
    return Judgment(verdicts=tuple(verdicts), comparison=told)


def _judged(
    rule: Rule, subjects: Iterator[tuple[str, dict[str, Any]]]
) -> list[Verdict]:
    """Apply a rule to its subjects."""
    check = Expression(rule.check, where="check")
    which = rule.where and Expression(rule.where, where="where")
    verdicts: list[Verdict] = []
    for subject, names in subjects:
        if which and not which.value(names, {}):
            continue
        used: dict[str, Any] = {}
        value = check.value(names, used)
        if isinstance(value, list):
            raise ConfigError(
                "check",
                f"{rule.check!r} yields a list of truth values",
                "use all(...) or any(...)",
            )
        holds = None if value is None else bool(value)
        if holds is None and _does_not_apply(rule, names, used):
            continue
        verdicts.append(_verdict(rule, subject, holds, _values(used, holds)))
    if not verdicts and rule.each is not None:
        # Without any subject, only a rule with `or nothing` holds.
        nothing = f"there are no {rule.each}"
        nothing += f" where {rule.where}" if rule.where else ""
        holds = True if check.or_nothing else None
        verdicts.append(_verdict(rule, "", holds, nothing))
    return verdicts


def _does_not_apply(
    rule: Rule, names: Mapping[str, Any], used: Mapping[str, Any]
) -> bool:
    """Return whether a rule needs a value that no barrier has, e.g. a bandwidth."""
    unknown = {name.rpartition(".")[2] for name, each in used.items() if each is None}
    is_barrier = rule.each == "results" and names["collective"] == CollectiveOp.BARRIER
    return is_barrier and bool(unknown) and unknown <= _OF_DATA


def _without_fault(
    rule: Rule,
    path: Path,
    faults: Callable[[Path], Faults] | None,
) -> Verdict:
    if rule.each is not None or rule.where is not None:
        raise ConfigError(
            "check", f"{NO_FAULT!r} applies to the whole run", "remove each and where"
        )
    found, reason = None, "its causes were not tested"
    if not path.is_dir():
        reason = "causes can be tested in a run directory, but not in its JSON output"
    elif faults is not None:
        found, untested = faults(path)
        reason = untested or reason
    holds = None if found is None else not found
    return _verdict(rule, "", holds, reason if found is None else ", ".join(found))


def _verdict(rule: Rule, subject: str, holds: bool | None, values: str) -> Verdict:
    called = rule.name or rule.check
    return Verdict(rule=called, subject=subject, holds=holds, values=values)


def _incomplete(which: str, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note if a run is incomplete, else an empty tuple."""
    facts = document["run"]
    found = incomplete(facts.get("status", COMPLETE), facts.get("reason"))
    gone = [
        f"{which}: {each}"
        for each in facts.get("banners", ())
        if each.startswith("FILES ARE MISSING")
    ]
    if found is None:
        return tuple(gone)
    note = f"{which} is incomplete, so only its complete data is judged: {found}"
    return (note, *gone)


def _subjects(
    rule: Rule,
    document: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    comparison: Comparison | None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each subject of a rule, with the names that its condition can use."""
    if rule.each is None:
        names = dict(document)
        if before is not None:
            names |= {"baseline": before, "slower": _slower(comparison, "iteration")}
        yield "", names
        return
    keys = _SAME[rule.each]
    for member in document[rule.each]:
        names = dict(member)
        if before is not None:
            same = [
                each
                for each in before[rule.each]
                if all(each.get(key) == member.get(key) for key in keys)
            ]
            names["baseline"] = same[0] if same else None
            names["slower"] = _slower(comparison, *_compared(rule.each, member))
        yield _called(rule.each, member), names


def _compared(each: str, member: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key in a comparison that corresponds to a member of a list."""
    if each == "results":
        kind = member["collective"], member["nranks"], member["size"]
        return "size", *kind, member["job"]
    return "iteration", *([member["job"]] if "job" in member else [])


def _slower(comparison: Comparison | None, *key: Any) -> float | None:
    """Return the significant slowdown as a share, or None if it is unknown."""
    if comparison is None:
        return None
    # Without several jobs, collectives by size are compared without their job.
    found = [
        each
        for each in comparison.levels.get(key[0], ())
        if each.key[: len(key)] == key[: len(each.key)]
    ]
    if not found or any(each.significant is None for each in found):
        return None
    return max(0.0, *(each.change or 0.0 for each in found if each.significant), 0.0)


def _called(each: str, member: Mapping[str, Any]) -> str:
    match each:
        case "results":
            what = f"{member['collective']} of {about_size(member['size'])}"
            return f"{member['job']}: {what}, {member['nranks']} ranks"
        case "iterations":
            return f"iterations of {member['job']}"
        case "ranks":
            return f"{member['job']}: rank {member['rank']}"
        case _:
            return f"{member['link']} {member['direction']}"


def _values(used: Mapping[str, Any], holds: bool | None) -> str:
    def text(name: str, value: Any) -> str:
        if not isinstance(value, list):
            return _in_units(name, value)
        if holds or not isinstance(value, Compared) or not value.violating:
            return f"a list of {len(value)}"
        bad = [_in_units(name, each) for each in value.violating]
        more = f" and {len(bad) - _MEMBERS} more" if len(bad) > _MEMBERS else ""
        return f"{' '.join(bad[:_MEMBERS])}{more} (of {len(value)})"

    listed = [
        f"{name} = {text(name, value)}" for name, value in list(used.items())[:_SHOWN]
    ]
    return ", ".join(listed)


def _in_units(name: str, value: Any) -> str:
    """Return a value with the unit that the last key of its name implies."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "not known" if value is None else str(value)
    match name.rpartition(".")[2].partition("[")[0]:
        case "slower":
            return f"{100 * value:.1f} %"
        case key if key.endswith("_ns"):
            return format_time(value)
        case "time":  # in us, as in nccl-tests
            return format_time(1000 * value)
        case key if key.endswith("_bps"):
            return format_rate(value)
        case key if key in ("size", "bytes") or key.endswith("_bytes"):
            return about_size(int(value))
        case "alg_bw" | "bus_bw" | "average_bus_bandwidth":
            return f"{value:.6g} GB/s"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def junit(judgment: Judgment, *, name: str) -> str:
    """Return a judgment as JUnit XML, with one test case per verdict."""
    verdicts = judgment.verdicts
    failed = sum(each.holds is not True for each in verdicts)
    suite = Xml.Element(
        "testsuite",
        name=one_line(name),
        tests=str(len(verdicts)),
        failures=str(failed),
        errors="0",
        skipped="0",
    )
    for each in verdicts:
        title = f"{each.rule}: {each.subject}" if each.subject else each.rule
        case = Xml.SubElement(
            suite, "testcase", classname=one_line(name), name=one_line(title)
        )
        if each.holds is not True:
            message = "does not hold" if each.holds is False else "cannot be judged"
            failure = Xml.SubElement(
                case, "failure", message=one_line(f"{message}: {each.values}")
            )
            failure.text = plain("\n".join((each.values, *judgment.comparison)))
        else:
            Xml.SubElement(case, "system-out").text = plain(each.values)
    Xml.indent(suite)
    return Xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def markdown(judgment: Judgment, *, name: str) -> str:
    """Return a judgment as Markdown, with failed rules first."""
    verdicts = judgment.verdicts
    failed = [each for each in verdicts if each.holds is not True]
    kept = len(verdicts) - len(failed)
    told = [code_block("\n".join(judgment.comparison)), ""]
    lines = [
        f"## {code_span(name)}: {'FAILED' if failed else 'passed'}",
        "",
        f"{kept} of {len(verdicts)} conditions hold.",
        "",
        *(told if judgment.comparison else ()),
        "| | rule | of | values |",
        "|---|---|---|---|",
    ]
    for each in [*failed, *(each for each in verdicts if each.holds)]:
        mark = {True: "ok", None: "**unknown**", False: "**FAILED**"}[each.holds]
        cells = map(code_span, (each.rule, each.subject, each.values))
        lines.append(f"| {' | '.join((mark, *cells))} |")
    return "\n".join(lines) + "\n"
