"""The help of every verb ends with examples, and they are commands that parse."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer

from chakram.cli import command_line, main
from chakram.cli.common.help_examples import EXAMPLES
from chakram_agent.cli import parser as agent_parser
from tests.support import REPO_ROOT

ROOT: Any = typer.main.get_command(command_line())


def found(words: list[str]) -> tuple[Any, Any, list[str]]:
    """Return the command that the first of *words* name, its context, and the rest."""
    command, context = ROOT, ROOT.make_context("chakram", [], resilient_parsing=True)
    while words and hasattr(command, "get_command"):
        inner = command.get_command(context, words[0])
        if inner is None:
            break
        context = inner.context_class(inner, parent=context, info_name=words[0])
        command, words = inner, words[1:]
    return command, context, words


def verbs(command: Any = ROOT, name: str = "") -> list[str]:
    """Return the names of a command and of all that are below it."""
    _, context, _ = found(name.split())
    names = [name]
    if hasattr(command, "list_commands"):
        for each in command.list_commands(context):
            inner = f"{name} {each}".strip()
            names += verbs(found(inner.split())[0], inner)
    return names


def test_there_are_examples_of_every_verb() -> None:
    assert set(EXAMPLES) == set(verbs())


@pytest.mark.parametrize(
    ("verb", "option"),
    [*((verb, "-h") for verb in sorted(EXAMPLES)), ("run", "--help")],
)
def test_help_ends_with_examples(
    verb: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*verb.split(), option]) == 0
    told = capsys.readouterr().out
    lines = [line.strip() for line in told.partition("Examples:\n")[2].splitlines()]
    assert lines == [*EXAMPLES[verb]]


@pytest.mark.parametrize("verb", sorted(EXAMPLES))
def test_examples_are_what_the_verb_takes(verb: str) -> None:
    for example in EXAMPLES[verb]:
        words = shlex.split(re.split(r" [>|] ", example)[0])
        assert words[0] == "chakram"
        command, _, rest = found(words[1:])
        assert " ".join(words[1:]).startswith(verb)
        # Raises where an option or an argument is not known, or is missing.
        command.make_context(verb, rest)


_FILES = {
    "completion",
    "serve",  # until it is interrupted
    *(f"launch {kind}" for kind in ("ansible", "kubernetes", "sbatch", "systemd")),
}
"""Verbs that print a file of another program, so that JSON would be of no use."""


@pytest.mark.parametrize("verb", sorted({*EXAMPLES} - _FILES))
def test_every_verb_prints_json(verb: str) -> None:
    command, _, _ = found(verb.split())
    if not hasattr(command, "list_commands"):
        assert "--json" in {name for option in command.params for name in option.opts}


def test_the_reference_lists_the_verbs_that_take_wide() -> None:
    page = (REPO_ROOT / "docs/reference/command-line.md").read_text()
    (listed,) = re.findall(r"((?:`\w+`,?\s(?:and )?)+)omit columns", page)
    assert set(re.findall(r"`(\w+)`", listed)) == {
        verb
        for verb in EXAMPLES
        if "--wide"
        in {name for each in found(verb.split())[0].params for name in each.opts}
    }


def test_the_agent_s_help_ends_with_examples() -> None:
    assert "examples:\n  chakram-agent serve" in agent_parser().format_help()
