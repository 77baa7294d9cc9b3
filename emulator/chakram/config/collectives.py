"""Algorithm choices for collectives, as written in an experiment file.

A choice is one of:

- a name: ``ring``, ``ring(channels=2)``
- a name with parameters: ``{ring: {channels: 2}}``
- a user algorithm: ``{msccl: ring8.xml}``
- a list of these, each with an upper limit on size or number of ranks
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import (
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)

from chakram.collectives import algorithms
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ConfigError, ScheduleError
from chakram.foundation.units import parse_size
from chakram.settings.field_types import CONFINED_TO, problem, resolved_path
from chakram.settings.located_errors import Mistake, suggest

_EXAMPLE = "e.g. ring, or {ring: {channels: 2}}"
_USERS = {
    "msccl": "ring8.xml",
    "mscclpp": "plan.json",
    "chakra": "ring8/custom",
    "python": "mine.py:my_ring",
}
"""Kinds of user algorithms, each with an example of a location."""

_USER_DESCRIPTIONS = {
    "msccl": "A user algorithm: an MSCCL XML file.",
    "mscclpp": "A user algorithm: an MSCCL++ JSON execution plan.",
    "chakra": (
        "A user algorithm: Chakra traces of its body, one for each position of the "
        "group; a folder, or folder/PREFIX."
    ),
    "python": (
        "A user algorithm: FILE.py:FUNCTION. The function runs with all rights of the "
        "user who runs chakram."
    ),
}

_FUNCTION = re.compile(r"(.+):([A-Za-z_][A-Za-z0-9_]*)")
_RULE_EXAMPLE = "e.g. {up_to: 64KiB, algorithm: tree}"
_RULE_KEYS = ("up_to", "up_to_ranks", "algorithm")
_MOST_RULES = 64


def _algorithm(value: object, info: ValidationInfo) -> str | algorithms.UserAlgorithm:
    """Return the name of an algorithm, or a user algorithm."""
    if isinstance(value, Mapping) and len(value) == 1:
        ((kind, place),) = value.items()
        if isinstance(kind, str) and kind in _USERS:
            return _user_algorithm(kind, place, info)
    return _name(value)


def _user_algorithm(
    kind: str, place: object, info: ValidationInfo
) -> algorithms.UserAlgorithm:
    example = f"e.g. {{{kind}: {_USERS[kind]}}}"
    if not isinstance(place, str) or not place or "\0" in place:
        raise problem(f"{_shown(place)} is not the location of an algorithm", example)
    function = None
    if kind == "python" and CONFINED_TO in (info.context or {}):
        raise problem(
            "is Python code, which a service does not run for clients",
            "use a built-in algorithm, or an MSCCL file",
        )
    if kind == "python":
        named = _FUNCTION.fullmatch(place)
        if named is None:
            raise problem(
                f"{_shown(place)} does not name a function in a file", example
            )
        place, function = named.groups()
    return algorithms.UserAlgorithm(
        kind=kind, path=str(resolved_path(place, info)), function=function
    )


def _name(value: object) -> str:
    """Return the name of an algorithm, from text or a mapping."""
    if isinstance(value, str) and value:
        return value
    if not isinstance(value, Mapping) or len(value) != 1:
        raise problem(f"{_shown(value)} is not an algorithm", _EXAMPLE)
    ((family, parameters),) = value.items()
    if not isinstance(family, str) or not isinstance(parameters, Mapping | None):
        raise problem(f"{_shown(value)} is not an algorithm", _EXAMPLE)
    inside = ",".join(
        f"{name}={_parameter(name, given)}"
        for name, given in (parameters or {}).items()
    )
    return f"{family}({inside})" if inside else family


def _parameter(name: object, value: object) -> str:
    """Return a parameter's value as written in the name of an algorithm.

    A list of positions is one order, joined with hyphens. A list of orders has one
    order for each channel, separated by slashes.
    """
    if isinstance(value, list) and value:
        if all(_is_whole(item) for item in value):
            return "-".join(map(str, value))
        return "/".join(_parameter(name, item) for item in value)
    if _is_whole(value) or (isinstance(value, str) and not set(value) & set("(),=")):
        return str(value)
    raise problem(f"{name}: {_shown(value)} is not a valid parameter value", _EXAMPLE)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _rule(value: object, info: ValidationInfo) -> algorithms.Rule:
    if not isinstance(value, Mapping) or "algorithm" not in value:
        raise problem(f"{_shown(value)} is not a rule", _RULE_EXAMPLE)
    for key in value:
        if key not in _RULE_KEYS:
            raise problem(f"{key!r} is not known", suggest(str(key), _RULE_KEYS))
    up_to = value.get("up_to")
    try:
        up_to_bytes = None if up_to is None else parse_size(str(up_to), where="up_to")
    except ConfigError as error:
        raise problem(f"up_to: {error.found}", error.hint or "") from None
    ranks = value.get("up_to_ranks")
    if ranks is not None and not (isinstance(ranks, int) and ranks > 1):
        raise problem(
            f"up_to_ranks: {_shown(ranks)} is not a number of ranks", "at least 2"
        )
    return algorithms.Rule(
        algorithm=_algorithm(value["algorithm"], info),
        up_to_bytes=up_to_bytes,
        up_to_ranks=ranks,
    )


def _choice(value: object, info: ValidationInfo) -> algorithms.Choice:
    if not isinstance(value, list):
        return _algorithm(value, info)
    if not 1 <= len(value) <= _MOST_RULES:
        raise problem(
            f"has {len(value)} rules", f"write 1 to {_MOST_RULES}; {_RULE_EXAMPLE}"
        )
    return tuple(_rule(each, info) for each in value)


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:60]


def _written(choice: algorithms.Choice) -> Any:
    """Return a choice as written in a file."""
    if not isinstance(choice, tuple):
        return _algorithm_written(choice)
    return [
        {
            key: given
            for key, given in (
                ("up_to", None if rule.up_to_bytes is None else f"{rule.up_to_bytes}B"),
                ("up_to_ranks", rule.up_to_ranks),
                ("algorithm", _algorithm_written(rule.algorithm)),
            )
            if given is not None
        }
        for rule in choice
    ]


def _algorithm_written(which: str | algorithms.UserAlgorithm) -> Any:
    if isinstance(which, str):
        return which
    inside = "" if which.function is None else f":{which.function}"
    return {which.kind: f"{which.path}{inside}"}


_NAME_SCHEMA = {
    "type": "string",
    "pattern": r"^[a-z][a-z0-9_]*(\([^()]+\))?$",
    "examples": ["ring", "ring(channels=2,chunks=4)"],
}


def _whole_schema(description: str, example: int) -> dict[str, Any]:
    return {
        "type": "integer",
        "minimum": 1,
        "description": description,
        "examples": [example],
    }


_ORDER_SCHEMA = {
    "description": (
        "Order of the positions around a ring; a list of orders has one for each "
        "channel."
    ),
    "examples": ["interleaved"],
    "anyOf": [
        {"enum": ["ascending", "descending", "interleaved"]},
        {"type": "array", "items": {"type": ["integer", "string", "array"]}},
        {"type": "string"},
    ],
}
_PARAMETERS_SCHEMA = {
    "type": ["object", "null"],
    "properties": {
        "channels": _whole_schema(
            "Number of parallel rings, each with its own queue pairs.", 2
        ),
        "chunks": _whole_schema(
            "Number of slices of the data of one step: one slice is forwarded while "
            "the next arrives.",
            4,
        ),
        "order": _ORDER_SCHEMA,
        "ranks_per_node": _whole_schema(
            "Number of positions of a group that form one node.", 8
        ),
    },
    "additionalProperties": False,
}
_ALGORITHM_SCHEMA = {
    "anyOf": [
        _NAME_SCHEMA,
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "properties": {
                kind: {
                    "type": "string",
                    "minLength": 1,
                    "description": _USER_DESCRIPTIONS[kind],
                    "examples": [example],
                }
                for kind, example in _USERS.items()
            },
            "additionalProperties": _PARAMETERS_SCHEMA,
        },
    ]
}
_RULES_SCHEMA = {
    "type": "array",
    "minItems": 1,
    "maxItems": _MOST_RULES,
    "items": {
        "type": "object",
        "properties": {
            "up_to": {
                "type": "string",
                "description": (
                    "Largest size that the rule applies to, as in nccl-tests, before "
                    "size_scale. Default: any size."
                ),
                "examples": ["64KiB"],
            },
            "up_to_ranks": {
                "type": "integer",
                "minimum": 2,
                "description": (
                    "Largest group that the rule applies to. Default: any group."
                ),
                "examples": [16],
            },
            "algorithm": {
                "description": (
                    "Algorithm of the rule: a name, a name with parameters, or a user "
                    "algorithm."
                ),
                "examples": ["tree"],
                **_ALGORITHM_SCHEMA,
            },
        },
        "required": ["algorithm"],
        "additionalProperties": False,
    },
}

AlgorithmChoice = Annotated[
    algorithms.Choice,
    PlainValidator(_choice),
    PlainSerializer(_written, when_used="json"),
    WithJsonSchema({"anyOf": [*_ALGORITHM_SCHEMA["anyOf"], _RULES_SCHEMA]}),
]
"""An algorithm, or rules by size and number of ranks; the first matching rule applies.

Sizes are counted as in nccl-tests, before ``size_scale`` is applied. If no rule
matches, ``auto`` applies.
"""


def check_collectives(
    collectives: Mapping[CollectiveOp, algorithms.Choice],
) -> Iterator[Mistake]:
    """Check that the algorithms exist, and that every rule can apply."""
    for op, choice in collectives.items():
        if op is CollectiveOp.SEND_RECV and not _is_direct(choice):
            yield Mistake(
                ("collectives", op.value),
                "a message between two ranks has no other algorithm than direct",
                "remove it",
            )
            continue
        yield from _check_user_names(op, choice)
        if isinstance(choice, str):
            yield from _check_name(op, choice, ())
        if not isinstance(choice, tuple):
            continue
        for index, rule in enumerate(choice):
            if isinstance(rule.algorithm, str):
                yield from _check_name(op, rule.algorithm, (index, "algorithm"))
            covering = [
                number for number in range(index) if choice[number].covers(rule)
            ]
            if covering:
                yield Mistake(
                    ("collectives", op.value, index),
                    "is never reached: the rule for "
                    f"{_shown_name(choice[covering[0]])} before it covers all of its "
                    "cases",
                    "put smaller sizes first",
                )


def _is_direct(choice: algorithms.Choice) -> bool:
    known = (algorithms.AUTO, *algorithms.algorithm_names(CollectiveOp.SEND_RECV))
    return all(each in known for each in algorithms.named_algorithms(choice))


def _shown_name(rule: algorithms.Rule) -> str:
    which = rule.algorithm
    return which if isinstance(which, str) else which.name


def _check_user_names(op: CollectiveOp, choice: algorithms.Choice) -> list[Mistake]:
    """Check that user algorithms have unique names. Records identify them by name."""
    paths: dict[str, set[str]] = {}
    for user in algorithms.user_algorithms(choice):
        paths.setdefault(user.name, set()).add(user.path)
    return [
        Mistake(
            ("collectives", op.value),
            f"{len(found)} different files are called {name}",
            "give each file a unique name",
        )
        for name, found in paths.items()
        if len(found) > 1
    ]


def _check_name(
    op: CollectiveOp, name: str, rest: tuple[str | int, ...]
) -> Iterator[Mistake]:
    location = ("collectives", op.value, *rest)
    family = name.partition("(")[0]
    known = [algorithms.AUTO, *algorithms.algorithm_names(op)]
    if family not in known and family not in algorithms.ALGORITHMS.own:
        known += (each.name for each in algorithms.ALGORITHMS.installed)
    if family not in known:
        yield Mistake(
            location,
            f"there is no algorithm {family[:60]!r} for {op.value}",
            suggest(family, known),
        )
        return
    if family == algorithms.AUTO and name != algorithms.AUTO:
        yield Mistake(location, "auto has no parameters", "write auto")
        return
    try:
        algorithms.algorithm(op, name)
    except ScheduleError as error:
        yield Mistake(location, error.found, error.hint)
