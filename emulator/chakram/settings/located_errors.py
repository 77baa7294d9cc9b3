"""Mistakes in an experiment file: collected, located and reported together."""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from chakram.foundation.errors import ConfigError
from chakram.settings.field_types import Shown

Location = tuple[str | int, ...]

_SHOWN = 50
"""Maximum number of mistakes in one report. An unrelated file could have thousands."""

_FOUND_LENGTH = 60

_LIMITS = ("ge", "gt", "le", "lt")
"""Pydantic's names for the limits of a number."""

# Chakram's wording of pydantic's error types: the problem and a hint.
_WORDS: dict[str, tuple[str, str]] = {
    "bool_type": ("{input} is not true or false", "write true or false"),
    "bool_parsing": ("{input} is not true or false", "write true or false"),
    "dict_type": ("{input} is not a mapping", "write key: value pairs below it"),
    "float_parsing": ("{input} is not a number", "e.g. 0.5"),
    "float_type": ("{input} is not a number", "e.g. 0.5"),
    "greater_than": ("{input} is too small", "must be greater than {gt}"),
    "greater_than_equal": ("{input} is too small", "must be at least {ge}"),
    "int_from_float": ("{input} is not a whole number", "e.g. 8"),
    "int_parsing": ("{input} is not a whole number", "e.g. 8"),
    "int_type": ("{input} is not a whole number", "e.g. 8"),
    "less_than": ("{input} is too large", "must be less than {lt}"),
    "less_than_equal": ("{input} is too large", "must be at most {le}"),
    "list_type": ("{input} is not a list", "e.g. [a, b]"),
    "tuple_type": ("{input} is not a list", "e.g. [a, b]"),
    "model_type": ("{input} is not a mapping", "write key: value pairs below it"),
    "model_attributes_type": (
        "{input} is not a mapping",
        "write key: value pairs below it",
    ),
    "string_type": ("{input} is not text", "put it in quotes"),
    "string_pattern_mismatch": (
        "{input} is not a name",
        "{characters} only, a letter or digit first",
    ),
    "finite_number": ("{input} is not a number", "e.g. 0.5"),
    "string_too_long": ("is too long", "at most {max_length} characters"),
    "too_short": ("is empty", "must have at least {min_length}"),
    "too_long": ("has {actual_length} entries", "at most {max_length}"),
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in an experiment file: location, problem and hint.

    ``line`` is None if the line of ``location`` applies.
    """

    location: Location
    found: str
    hint: str | None = None
    line: int | None = None

    @property
    def path(self) -> str:
        """The location in key notation, e.g. ``jobs[0].trace.ranks``."""
        return format_location(self.location)


def format_location(location: Location) -> str:
    """Return keys and indices in key notation, e.g. ``jobs[0].trace.ranks``."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def report(
    source: str,
    mistakes: Sequence[Mistake],
    line_of: Callable[[Location], int | None],
    option_of: Callable[[Mistake], tuple[Location, str] | None] = lambda _: None,
) -> ConfigError:
    """Return one error that reports all *mistakes* of the file *source*.

    A single mistake takes a single line. Several mistakes take one line each, below the
    file name. If a command-line option caused a mistake, the report shows the option
    instead of the file. ``option_of`` returns the option and the location that the
    option set.
    """
    # The same mistake may be found for a key and for its value.
    unique = {
        (each.path, each.found): (each, each.line or line_of(each.location))
        for each in mistakes
    }
    ordered = sorted(unique.values(), key=lambda entry: entry[1] or 0)
    if len(ordered) == 1:
        mistake, line = ordered[0]
        place = f"{source}:{line}" if line else source
        if (option := option_of(mistake)) is not None:
            return ConfigError(_place_in(option, mistake), mistake.found, mistake.hint)
        where = f"{place}: {mistake.path}" if mistake.path else place
        return ConfigError(where, mistake.found, mistake.hint)
    rows = []
    for mistake, line in ordered[:_SHOWN]:
        place = f"line {line}: " if line else ""
        path = f"{mistake.path}: " if mistake.path else ""
        hint = f" ({mistake.hint})" if mistake.hint else ""
        if (option := option_of(mistake)) is not None:
            place, path = "", f"{_place_in(option, mistake)}: "
        rows.append(f"\n  - {place}{path}{mistake.found}{hint}")
    if len(ordered) > _SHOWN:
        rows.append(f"\n  - and {len(ordered) - _SHOWN} more")
    return ConfigError(source, f"{len(ordered)} mistakes" + "".join(rows))


def _place_in(option: tuple[Location, str], mistake: Mistake) -> str:
    """Return the text that locates a mistake in an option."""
    location, text = option
    return text if mistake.location == location else f"{text}: {mistake.path}"


def from_validation(
    error: ValidationError, *, model: type[BaseModel], data: Any
) -> list[Mistake]:
    """Convert pydantic's errors in *data* to mistakes."""
    return [
        _translate(details, model, data)
        for details in error.errors()
        if not _follows_from_another(details)
    ]


def _follows_from_another(details: Any) -> bool:
    """Return whether a list is too short only because pydantic dropped bad items."""
    value = details["input"]
    return (
        details["type"] == "too_short"
        and isinstance(value, list)
        and len(value) >= details["ctx"]["min_length"]
    )


def _translate(details: Any, model: type[BaseModel], data: Any) -> Mistake:
    kind: str = details["type"]
    context: dict[str, Any] = details.get("ctx", {})
    location = _strip_tags(details["loc"], data, missing=kind == "missing")
    if kind == "extra_forbidden":
        key = str(location[-1])
        below = [
            f"{place}.{key}"
            for place in ([] if location[:-1] else _sections(model))
            if key in _known_keys(model, (place.removesuffix("[0]"), 0))
        ]
        hint = suggest(key, _known_keys(model, details["loc"][:-1]))
        if below and not hint.startswith("did you mean"):
            hint = f"did you mean {below[0]!r}?"
        return Mistake(location, "unknown key", hint)
    if kind == "missing":
        return Mistake(location, "is missing", "it has no default")
    if kind in ("literal_error", "enum"):
        options = [text.strip(" '") for text in _options(str(context["expected"]))]
        return Mistake(
            location,
            f"{_shown(details['input'])} is not known",
            suggest(str(details["input"]), options),
        )
    if kind == "kind":
        return _unknown_kind(
            location,
            details["input"],
            str(context["kinds"]),
            key=str(context.get("key", "kind")),
        )
    if kind in _WORDS:
        found, hint = _WORDS[kind]
        quantity = _quantity_at(model, details["loc"])
        words = {
            **{
                name: _in_units(value, quantity) if name in _LIMITS else value
                for name, value in context.items()
            },
            "input": _shown(_in_units(details["input"], quantity)),
            # Only the pattern of lab names excludes capital letters.
            "characters": "letters, digits, _, . and -"
            if "A-Z" in str(context.get("pattern"))
            else "lower-case letters, digits and -",
        }
        return Mistake(location, found.format(**words), hint.format(**words))
    return Mistake(location, str(details["msg"]), context.get("hint"))


def _unknown_kind(location: Location, section: Any, kinds: str, *, key: str) -> Mistake:
    if not isinstance(section, dict):
        found, hint = _WORDS["model_type"]
        return Mistake(location, found.format(input=_shown(section)), hint)
    where = (*location, key)
    if key not in section:
        return Mistake(where, "is missing", f"known: {kinds}")
    return Mistake(
        where,
        f"{_shown(section[key])} is not known",
        suggest(str(section[key]), kinds.split(", ")),
    )


def _options(expected: str) -> list[str]:
    return expected.replace(" or ", ", ").split(", ")


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "nothing"
    is_quoted = isinstance(value, str) and not isinstance(value, _Written)
    text = repr(value) if is_quoted else str(value)
    return text if len(text) <= _FOUND_LENGTH else f"{text[:_FOUND_LENGTH]}..."


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a hint: the closest of the *known* words, or all of them."""
    words = list(dict.fromkeys(known))
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(sorted(words))}" if words else "remove it"


def _strip_tags(loc: Sequence[Any], data: Any, *, missing: bool) -> Location:
    """Return *loc* without parts that pydantic adds: union tags and ``[key]``."""
    location: list[str | int] = []
    here = data
    for number, part in enumerate(loc):
        known = part in here if isinstance(here, dict) else False
        if isinstance(here, list) and isinstance(part, int):
            known = part < len(here)
        if known:
            here = here[part]
        elif not (missing and number == len(loc) - 1):
            continue
        location.append(part)
    return tuple(location)


def _quantity_at(model: type[BaseModel], loc: Sequence[Any]) -> Shown | None:
    """Return how to print the quantity at *loc*, or None if there is no quantity."""
    keys = [part for part in loc if not isinstance(part, int)]
    for candidate in _models_at(model, keys[:-1]) if keys else ():
        for name, field in candidate.model_fields.items():
            if keys[-1] in (name, field.alias):
                return _shown_of([*field.metadata, field.annotation])
    return None


def _shown_of(parts: Iterable[Any]) -> Shown | None:
    """Return the ``Shown`` in annotations and metadata, or None."""
    for part in parts:
        found = part if isinstance(part, Shown) else _shown_of(get_args(part))
        if found is not None:
            return found
    return None


def _in_units(value: Any, quantity: Shown | None) -> Any:
    """Return a number in the units of *quantity*, and any other value unchanged."""
    if quantity is None or isinstance(value, bool) or not isinstance(value, int):
        return value
    return _Written(quantity.write(value))


class _Written(str):
    """Text that is shown without quotes."""

    __slots__ = ()


def _sections(model: type[BaseModel]) -> list[str]:
    """Return the keys of a model's sections, with an index for lists of sections."""
    found = []
    for name, field in model.model_fields.items():
        place = field.alias or name
        is_list = get_origin(field.annotation) in (list, tuple)
        found.append(f"{place}[0]" if is_list else place)
    return found


def _known_keys(model: type[BaseModel], loc: Sequence[Any]) -> list[str]:
    """Return the keys of the model at *loc*."""
    return [
        field.alias or name
        for candidate in _models_at(model, loc)
        for name, field in candidate.model_fields.items()
    ]


def _models_at(model: type[BaseModel], loc: Sequence[Any]) -> list[type[BaseModel]]:
    """Return the models that are allowed at *loc*."""
    candidates = [model]
    for part in loc:
        if isinstance(part, int):
            continue
        if str(part).startswith("<"):
            candidates = [
                each for each in candidates if tag_of(each) == part
            ] or candidates
            continue
        candidates = [
            inner
            for candidate in candidates
            for inner in _models_below(candidate, part)
        ]
    return candidates


def _models_below(model: type[BaseModel], key: Any) -> list[type[BaseModel]]:
    """Return the models that are allowed at a key of *model*."""
    found = [
        inner
        for name, field in model.model_fields.items()
        if (field.alias or name) == key
        for inner in _models_in(field.annotation)
    ]
    # A model may accept sections that are not fields, such as sections of plug-ins.
    further = getattr(model, "further_section", None)
    if found or further is None:
        return found
    section = further(key)
    return [] if section is None else [section]


def tag_of(model: type[BaseModel]) -> str:
    """Return the tag that identifies *model* among the members of a union.

    Keys in files never begin with ``<``, which distinguishes them from tags.
    """
    return f"<{model.__name__}>"


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Annotated, Union, types.UnionType, tuple, list, dict):
        return [model for inner in get_args(annotation) for model in _models_in(inner)]
    return []
