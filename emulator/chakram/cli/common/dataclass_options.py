"""Options of verbs, declared as the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any


def with_options(
    name: str, group: Callable[..., Any], *without: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace a parameter of a verb with the options that a dataclass declares.

    Args:
        name: The parameter, whose value is an instance of the dataclass.
        group: The dataclass. Each field is annotated like a parameter of a verb.
        without: Fields to omit, which keep their defaults.
    """
    options = [
        each
        for each in inspect.signature(group, eval_str=True).parameters.values()
        if each.name not in without
    ]

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        @wraps(verb)
        def command(**given: Any) -> None:
            fields = {each.name: given.pop(each.name) for each in options}
            verb(**{name: group(**fields)}, **given)

        parameters: list[inspect.Parameter] = []
        for each in inspect.signature(verb, eval_str=True).parameters.values():
            parameters += options if each.name == name else [each]
        declare_parameters(command, parameters)
        return command

    return decorate


def declare_parameters(
    verb: Callable[..., None], parameters: list[inspect.Parameter]
) -> None:
    """Declare the parameters of a verb with arbitrary keyword arguments to Typer."""
    named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    # Typer reads parameters from the signature, and their types from the annotations.
    vars(verb)["__signature__"] = inspect.Signature(named)
    verb.__annotations__ = {each.name: each.annotation for each in parameters}
