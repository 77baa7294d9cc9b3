"""Judges results by the rules of a file, for a CI.

Names in a condition are the keys of the document that ``chakram show --json`` prints:
of the whole document, or of each member of one of its lists where the rule says
``each``.  ``baseline`` is the same of the baseline, and ``slower`` the share by which a
time is longer than the baseline's where that is significant
(``chakram.analysis.comparison``), else 0.
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
from chakram.analysis.rule_expressions import Expression
from chakram.console.summary_document import check_run_document, summary_document
from chakram.foundation.bounded_reading import parse_json, read_bounded
from chakram.foundation.errors import ConfigError, ResultsError
from chakram.foundation.text_escaping import code_block, code_span, one_line, plain
from chakram.foundation.units import about_size
from chakram.run_directory.reader import open_run
from chakram.settings.quantities import Model
from chakram.settings.yaml_document import read_model
from chakram.summary.banners import incomplete
from chakram.summary.run_summary import COMPLETE

_MOST_BYTES = 1 << 26
_SHOWN = 6

NO_FAULT = "no confirmed fault"
"""The condition that ``chakram why`` confirms no fault in the run."""

_SAME = {
    "results": ("job", "collective", "algorithm", "nranks", "size", "root"),
    "iterations": ("job",),
    "ranks": ("job", "rank"),
    "links": ("link", "direction"),
}
"""By list, what tells which member of the baseline's list is meant."""


Faults = tuple[Sequence[str] | None, str | None]
"""Confirmed faults in words, None if they could not be tested, and why not."""


class Rule(Model):
    """A condition that results must fulfil."""

    check: str = Field(min_length=1)
    """What must hold."""
    name: str | None = Field(default=None, max_length=200)
    """What it is called in reports; without it the condition."""
    each: Literal["results", "iterations", "ranks", "links"] | None = None
    """Whether it must hold for each member of a list of the document."""
    where: str | None = None
    """Which members it is about; all without it."""


class Rules(Model):
    """The rules of a file."""

    version: Literal[1]
    """Version of this form of file."""
    baseline: Path | None = None
    """What results are compared with; relative to the file."""
    rules: tuple[Rule, ...] = Field(min_length=1, max_length=1000)
    """What must hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of one rule for one subject.

    Attributes:
        rule: Its name.
        subject: What it was about; empty: the run.
        holds: Whether it does; None: a value that decides it is not known.
        values: What was looked at, in words.
    """

    rule: str
    subject: str
    holds: bool | None
    values: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What came of all rules.

    Attributes:
        verdicts: Of each rule and subject.
        comparison: How the run differs from its baseline, in sentences, and what a
            reader must know of either first; empty without a baseline.
    """

    verdicts: tuple[Verdict, ...]
    comparison: tuple[str, ...] = ()


def read_rules(path: Path) -> Rules:
    """Return the rules in a file.

    Raises:
        ConfigError: With every mistake, its line and what to do.
    """
    rules = read_model(path, Rules)
    if rules.baseline is not None:
        return rules.model_copy(update={"baseline": path.parent / rules.baseline})
    return rules


def read_results(path: Path) -> dict[str, Any]:
    """Return the document of a run directory, or of what ``--json`` printed.

    Raises:
        ChakramError: If it is neither.
    """
    if path.is_dir():
        return summary_document(open_run(path).summary())
    data = read_bounded(
        path, limit_bytes=_MOST_BYTES, error=ResultsError, size_hint="is it a result?"
    )
    hint = "name a run directory, or a file that `chakram show --json` has printed"
    document = parse_json(data, str(path), error=ResultsError, hint=hint)
    if not isinstance(document, dict) or not str(document.get("schema")).startswith(
        "chakram.run/"
    ):
        raise ResultsError(str(path), "is not the JSON of a run", hint)
    check_run_document(document, str(path))
    return document


def judge(
    rules: Rules,
    path: Path,
    baseline: Path | None,
    *,
    faults: Callable[[Path], Faults] | None = None,
) -> Judgement:
    """Return what comes of every rule, and how the run differs from its baseline.

    Args:
        rules: The rules.
        path: The run, or its JSON.
        baseline: Likewise of what it is compared with; None: that of the rules.
        faults: Tests a run directory for faults, for rules that ask for that.

    Raises:
        ChakramError: If a file is wrong, or a rule asks for what is not there.
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
    for place, rule in enumerate(rules.rules):
        where = f"rules[{place}]"
        if rule.check.strip() == NO_FAULT:
            verdicts.append(_without_fault(rule, where, path, faults))
            continue
        check = Expression(rule.check, where=f"{where}.check")
        which = rule.where and Expression(rule.where, where=f"{where}.where")
        found = 0
        for subject, names in _subjects(rule, document, before, comparison):
            if which and not which.value(names, {}):
                continue
            found += 1
            used: dict[str, Any] = {}
            value = check.value(names, used)
            if isinstance(value, list):
                raise ConfigError(
                    f"{where}.check",
                    f"{rule.check!r} is a truth for each member of a list",
                    "say all(...) or any(...)",
                )
            holds = None if value is None else bool(value)
            verdicts.append(_verdict(rule, subject, holds, _values(used)))
        if not found and rule.each is not None:
            # A rule about nothing does not hold, unless it says so.
            nothing = f"there are no {rule.each}"
            nothing += f" where {rule.where}" if rule.where else ""
            holds = True if check.or_nothing else None
            verdicts.append(_verdict(rule, "", holds, nothing))
    if comparison is not None:
        told += (
            "A is the baseline, B the run. " + sentences(comparison)[0],
            *sentences(comparison)[1:],
            *(note for note in comparison.b.notes if note not in told),
        )
    return Judgement(verdicts=tuple(verdicts), comparison=told)


def _without_fault(
    rule: Rule,
    where: str,
    path: Path,
    faults: Callable[[Path], Faults] | None,
) -> Verdict:
    if rule.each is not None or rule.where is not None:
        raise ConfigError(
            where, f"{NO_FAULT!r} is about the run", "remove each and where"
        )
    found, reason = None, "its causes were not tested"
    if not path.is_dir():
        reason = "causes are tested in run directories, not in their JSON"
    elif faults is not None:
        found, untested = faults(path)
        reason = untested or reason
    holds = None if found is None else not found
    return _verdict(rule, "", holds, reason if found is None else ", ".join(found))


def _verdict(rule: Rule, subject: str, holds: bool | None, values: str) -> Verdict:
    called = rule.name or rule.check
    return Verdict(rule=called, subject=subject, holds=holds, values=values)


def _incomplete(which: str, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence about a run that is not complete; nothing of others."""
    facts = document["run"]
    found = incomplete(facts.get("status", COMPLETE), facts.get("reason"))
    if found is None:
        return ()
    return (f"{which} is incomplete and judged by what is complete: {found}",)


def _subjects(
    rule: Rule,
    document: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    comparison: Comparison | None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a rule is about, and what names mean there."""
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
    """Return the key of a comparison that stands for a member of a list."""
    if each == "results":
        return "size", member["collective"], member["nranks"], member["size"]
    return "iteration", *([member["job"]] if each == "iterations" else [])


def _slower(comparison: Comparison | None, *key: Any) -> float | None:
    """Return by what share it is significantly slower; None: nobody can tell."""
    if comparison is None:
        return None
    found = [
        each
        for each in comparison.levels.get(key[0], ())
        if each.key[: len(key)] == key
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


def _values(used: Mapping[str, Any]) -> str:
    def text(name: str, value: Any) -> str:
        if name == "slower" and isinstance(value, float):
            return f"{100 * value:.1f} %"
        if isinstance(value, float):
            return f"{value:.6g}"
        if isinstance(value, list):
            return f"a list of {len(value)}"
        return "not known" if value is None else str(value)

    listed = [
        f"{name} = {text(name, value)}" for name, value in list(used.items())[:_SHOWN]
    ]
    return ", ".join(listed)


def junit(judgement: Judgement, *, name: str) -> str:
    """Return a judgement as JUnit XML: a test case for each verdict."""
    verdicts = judgement.verdicts
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
            failure.text = plain("\n".join((each.values, *judgement.comparison)))
        else:
            Xml.SubElement(case, "system-out").text = plain(each.values)
    Xml.indent(suite)
    return Xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def markdown(judgement: Judgement, *, name: str) -> str:
    """Return a judgement as Markdown: what does not hold stands on top."""
    verdicts = judgement.verdicts
    failed = [each for each in verdicts if each.holds is not True]
    kept = len(verdicts) - len(failed)
    told = [code_block("\n".join(judgement.comparison)), ""]
    lines = [
        f"## {code_span(name)}: {'FAILED' if failed else 'passed'}",
        "",
        f"{kept} of {len(verdicts)} conditions hold.",
        "",
        *(told if judgement.comparison else ()),
        "| | rule | of | values |",
        "|---|---|---|---|",
    ]
    for each in [*failed, *(each for each in verdicts if each.holds)]:
        mark = {True: "ok", None: "**unknown**", False: "**FAILED**"}[each.holds]
        cells = map(code_span, (each.rule, each.subject, each.values))
        lines.append(f"| {' | '.join((mark, *cells))} |")
    return "\n".join(lines) + "\n"
