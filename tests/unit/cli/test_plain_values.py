"""Values of parameters that verbs convert without Typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from chakram.cli.common.parameter_conversion import convert_plain_values


def converted(*words: str, plain: bool = True) -> list[Any]:
    """Return the values that a verb gets from words of a command line."""
    got: list[Any] = []
    app = typer.Typer(add_completion=False)

    @app.command()
    def verb(
        path: Path,
        more: Annotated[list[Path] | None, typer.Argument()] = None,
        name: Annotated[str | None, typer.Option()] = None,
        many: Annotated[list[str] | None, typer.Option()] = None,
        number: Annotated[int, typer.Option(min=0, max=9)] = 3,
        seconds: Annotated[float, typer.Option(min=0)] = 1.5,
        real: Annotated[Path | None, typer.Option(exists=True)] = None,
        flag: Annotated[bool, typer.Option("--flag")] = False,
    ) -> None:
        got.extend((path, more, name, many, number, seconds, real, flag))

    command = typer.main.get_command(app)
    if plain:
        convert_plain_values(command)
    command(args=list(words), standalone_mode=False)
    return got


@pytest.mark.parametrize(
    "words",
    [
        ["a"],
        ["a", "b", "c", "--flag"],
        ["", "--name", "", "--many", "x", "--many", "y"],
        ["/", "--number", "9", "--seconds", "2"],
        [".", "--real", "."],
    ],
    ids=repr,
)
def test_values_are_those_of_typer(words: list[str]) -> None:
    assert repr(converted(*words)) == repr(converted(*words, plain=False))


@pytest.mark.parametrize(
    "words",
    [
        ["a", "--number", "x"],
        ["a", "--number", "10"],
        ["a", "--seconds", "-1"],
        ["a", "--real", "missing"],
        [],
    ],
    ids=repr,
)
def test_invalid_values_are_refused_as_by_typer(words: list[str]) -> None:
    errors = []
    for plain in (True, False):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - Typer's own types
            converted(*words, plain=plain)
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]
