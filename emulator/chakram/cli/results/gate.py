"""``chakram gate``: check results against the rules in a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.common.options import Json, print_json
from chakram.foundation.errors import EnvironmentProblem, GateFailed, InputError
from chakram.foundation.write_errors import explained_writes

if TYPE_CHECKING:
    from chakram.analysis.gate import Faults, Verdict


def gate(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="Run directory, or a file with the output of `show --json`.",
        ),
    ],
    rules: Annotated[Path, typer.Argument(metavar="RULES.yaml", help="Rules file.")],
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Baseline run, instead of the run in the rules file."
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit XML to this file.")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a Markdown summary to this file."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a run against rules, for use in CI.

    The exit code is 6 if a rule is violated or cannot be checked.
    """
    from chakram.analysis import gate as gates

    judgment = gates.judge(
        gates.read_rules(rules), run, baseline, faults=_faults, source=rules
    )
    verdicts = judgment.verdicts
    name = f"chakram gate {rules.name}"
    if junit is not None:
        _write(junit, gates.junit(judgment, name=name))
    if markdown is not None:
        _write(markdown, gates.markdown(judgment, name=name))
    failed = [each for each in verdicts if each.holds is not True]
    if as_json:
        print_json(
            "gate",
            {
                "passed": not failed,
                "verdicts": [asdict(each) for each in verdicts],
                "comparison": list(judgment.comparison),
            },
        )
    else:
        for each in verdicts:
            print(_line(each))
        for sentence in judgment.comparison:
            print(sentence)
        kept = len(verdicts) - len(failed)
        print(
            f"{'FAILED' if failed else 'passed'}: {kept} of {len(verdicts)} checks hold"
        )
    if failed:
        raise typer.Exit(GateFailed.exit_code)


def _faults(run: Path) -> Faults:
    """Return the confirmed faults of a run, as ``chakram why`` finds them."""
    from chakram.analysis.run_causes import why_of
    from chakram.analysis.run_conclusion import generator_doubt
    from chakram.diagnosis.verification import verify
    from chakram.run_directory.reader import open_run

    results = open_run(run)
    try:
        why = why_of(results)
        verified = verify(results, why)
    except InputError as error:
        return None, str(error)
    if verified.verdict is None:
        return None, verified.reason
    faults = [
        f"{each.suspect.cause} at {each.suspect.place}"
        for each in verified.verdict.faults
    ]
    if results.incomplete and not faults:
        return None, f"{results.incomplete}: the cause of this end is not tested"
    doubt = None if faults else generator_doubt(why)
    return (faults, None) if doubt is None else (None, doubt)


def _line(verdict: Verdict) -> str:
    mark = {True: "ok     ", False: "FAILED ", None: "UNKNOWN"}[verdict.holds]
    of = f" [{verdict.subject}]" if verdict.subject else ""
    values = f"  ({verdict.values})" if verdict.values else ""
    return f"{mark} {verdict.rule}{of}{values}"


def _write(path: Path, text: str) -> None:
    with explained_writes(path, EnvironmentProblem, "does its folder exist?"):
        path.write_text(text, encoding="utf-8")
