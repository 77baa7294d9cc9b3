"""Conversion of plain parameter values without pydantic.

Newer versions of Typer convert the value of every parameter with pydantic. Importing
pydantic takes longer than importing Typer, and most values are strings and paths.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_origin


def convert_plain_values(command: Any) -> None:
    """Let the parameters of a command and its verbs convert plain values themselves.

    This function changes nothing in versions of Typer that do not use pydantic.
    """
    of_typer = command.get_params

    def get_params(context: Any) -> list[Any]:
        found: list[Any] = of_typer(context)
        for each in found:
            own = getattr(each, "get_runtime_param", None)
            if own is not None and "get_runtime_param" not in vars(each):
                converter = _PlainFirst(own)
                each.get_runtime_param = lambda found=converter: found
        return found

    command.get_params = get_params
    for verb in getattr(command, "commands", {}).values():
        convert_plain_values(verb)


class _PlainFirst:
    """Converter of a parameter's values, in place of Typer's ``RuntimeParam``."""

    def __init__(self, of_typer: Callable[[], Any]) -> None:
        self._of_typer = of_typer

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the converted value, or raise Typer's error."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        described = param.type_descriptor
        try:
            return _plain(value, described.annotation, described.parameter_info)
        except LookupError:
            return self._of_typer().coerce(value, param=param, ctx=ctx)


def _plain(value: Any, kind: Any, info: Any) -> Any:
    """Return a value of type *kind*, or raise LookupError if Typer has to convert it.

    Args:
        value: The value from the command line, or the default.
        kind: The type of the parameter.
        info: Typer's description of the parameter.
    """
    if info.parser is None:
        if get_origin(kind) is list and isinstance(value, list | tuple):
            (item,) = get_args(kind)
            return [_plain(each, item, info) for each in value]
        if kind is str and type(value) is str:
            return value
        if kind in (int, float) and type(value) is kind and _is_within(value, info):
            return value
        if kind is Path and isinstance(value, str | Path) and not _is_checked(info):
            path = Path(value)
            if os.access(path, os.R_OK) or not os.path.exists(path):
                return path
    raise LookupError(kind)


def _is_checked(info: Any) -> bool:
    """Return whether Typer checks a path for more than readability."""
    unusual = info.exists, info.writable, info.resolve_path, info.allow_dash
    return any(unusual) or not (info.file_okay and info.dir_okay and info.readable)


def _is_within(value: float, info: Any) -> bool:
    least, most = info.min, info.max
    return (least is None or least <= value) and (most is None or value <= most)
