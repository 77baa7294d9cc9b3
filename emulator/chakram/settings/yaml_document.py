"""Reader for untrusted YAML files, with size limits, plain data and line numbers.

Scalars follow YAML 1.2: ``off`` and ``no`` are text, and ``22:30`` is not a number. A
duplicate key in a mapping is a mistake and does not overwrite the first value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import ValidationError

from chakram.foundation.bounded_reading import read_bounded
from chakram.foundation.errors import ConfigError
from chakram.settings.located_errors import Mistake, from_validation, report

if TYPE_CHECKING:
    from chakram.settings.field_types import Model

SIZE_LIMIT_BYTES = 1 << 20
NODE_LIMIT = 100_000
"""Limit on the nodes of a document after its aliases are expanded. A few lines of
nested aliases could otherwise expand to billions of nodes."""

LIST_FACTOR = 32
"""Factor of both limits for files that list the hosts of a cluster."""

DEPTH_LIMIT = 50
_EXPERIMENT = "see configs/quickstart.yaml"

_LINE_BREAK = re.compile("[\n\r\x85\u2028\u2029]")

_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufffe\uffff]")
"""Characters of JSON strings that YAML does not allow, or takes for line breaks."""

Location = tuple[str | int, ...]
"""Keys and indices from the top of the document to a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A YAML document as plain data.

    Attributes:
        data: The top-level mapping.
        lines: Line number of every key and list item, from 1.
        options: Text of the option that set a value, by location.
        mistakes: Duplicate keys and similar mistakes.
    """

    data: dict[str, Any]
    lines: dict[Location, int] = field(default_factory=dict)
    options: dict[Location, str] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def put(self, location: Location, option: str) -> None:
        """Record that *option* set *location*; drop older entries at and below it."""
        depth = len(location)
        for known in [each for each in self.options if each[:depth] == location]:
            del self.options[known]
        self.mistakes[:] = [
            each for each in self.mistakes if each.location[:depth] != location
        ]
        self.options[location] = option

    def copy(self) -> Document:
        """Return a copy that can be changed independently."""
        return Document(
            data=deepcopy(self.data),
            lines=self.lines,
            options=dict(self.options),
            mistakes=list(self.mistakes),
        )

    def option(self, location: Location) -> tuple[Location, str] | None:
        """Return the option that set *location*, and the location that it set."""
        for length in range(len(location), 0, -1):
            option = self.options.get(location[:length])
            if option is not None:
                return location[:length], option
        return None

    def line(self, location: Location) -> int | None:
        """Return the line of *location*, or of the nearest known location above it."""
        for length in range(len(location), 0, -1):
            line = self.lines.get(location[:length])
            if line is not None:
                return line
        return None


class _Loader(yaml.SafeLoader):
    """YAML loader that resolves scalars as YAML 1.2 does."""


_FastLoader: type[yaml.SafeLoader] = type(
    "_FastLoader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {}
)
"""The same loader with libyaml, if PyYAML includes it.

It is ten times as fast, but its errors differ.
"""

_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, Callable[[str], Any]] = {
    f"{_TAG}int": int,
    f"{_TAG}float": float,
    f"{_TAG}bool": lambda text: text.lower() == "true",
    f"{_TAG}null": lambda _: None,
    f"{_TAG}str": str,
}
_Loader.yaml_implicit_resolvers = _FastLoader.yaml_implicit_resolvers = {}
for _kind, _pattern in (
    ("bool", r"(true|True|TRUE|false|False|FALSE)\Z"),
    ("null", r"(~|null|Null|NULL|)\Z"),
    ("int", r"[-+]?[0-9]{1,30}\Z"),
    (
        "float",
        r"[-+]?([0-9]{1,30}\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]{1,3})?\Z",
    ),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(_pattern), None)


def read_document(
    path: Path, *, factor: int = 1, hint: str | None = _EXPERIMENT
) -> Document:
    """Read the document in the file at *path*.

    Args:
        path: Path of the file.
        factor: Factor of the limits.
        hint: Hint to an example of the file, for errors.

    Raises:
        ConfigError: If the file cannot be read, is too large or is not a YAML mapping.
    """
    text = read_bounded(
        path,
        limit_bytes=factor * SIZE_LIMIT_BYTES,
        error=ConfigError,
        size_hint="is this the right file?",
    )
    limit = factor * NODE_LIMIT
    return parse_document(text, source=str(path), node_limit=limit, hint=hint)


def parse_document(
    text: bytes,
    *,
    source: str,
    node_limit: int = NODE_LIMIT,
    hint: str | None = _EXPERIMENT,
) -> Document:
    """Parse *text* as a document. Errors contain its name *source* and the *hint*.

    Raises:
        ConfigError: If *text* is not exactly one YAML mapping.
    """
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise ConfigError(
            f"{source}:{line}", "is not UTF-8 text", "is this the right file?"
        ) from error
    try:
        root = _root(decoded)
        if root is None:
            raise ConfigError(source, "is empty", hint)
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(
                f"{source}:{root.start_mark.line + 1}",
                "is not a mapping of keys to values",
                hint,
            )
        reader = _NodeReader(source, node_limit)
        data = reader.read(root, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(
            f"{source}:{mark.line + 1}" if mark else source,
            f"is not YAML: {error.problem or error.context}",
            "check the indentation and the quotes there",
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(
            source,
            "contains characters that YAML does not allow",
            "save it as plain text",
        ) from error
    except RecursionError as error:
        raise ConfigError(
            source, "is nested too deeply", f"use at most {DEPTH_LIMIT} levels"
        ) from error
    return Document(data=data, lines=reader.lines, mistakes=reader.mistakes)


def _root(text: str) -> yaml.Node | None:
    """Return the top-level node of *text*."""
    try:
        return _FastLoader(text).get_single_node()
    except yaml.YAMLError:
        # The errors of this loader are the same on all machines.
        return _Loader(text).get_single_node()


def option_text(path: str, value: str) -> str:
    """Return ``--set path=value``, as a user writes it."""
    return f"--set {path}={value}"


def recorded_changes(changes: Mapping[str, str]) -> str:
    """Return comments that record overrides at the top of an experiment file.

    Each comment is one line with an option that sets the same value again.
    """
    return "".join(
        f"# {option_text(path, _one_line(path, value))}\n"
        for path, value in changes.items()
    )


def _one_line(path: str, value: str) -> str:
    if not _LINE_BREAK.search(value):
        return value
    return json_as_yaml(_parsed(value, option_text(path, value)))


def json_as_yaml(
    value: object,
    *,
    indent: int | None = None,
    default: Callable[[Any], object] | None = None,
) -> str:
    """Return *value* as JSON that is also YAML. Arguments are those of ``json.dumps``.

    YAML would not combine the two escapes that JSON uses for characters above U+FFFF.
    """
    text = json.dumps(value, indent=indent, default=default, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _parsed(value: str, where: str) -> Any:
    """Return the value of an option as data; *where* is its name in errors."""
    try:
        document = parse_document(f"value: {value}".encode(), source=where)
    except ConfigError as error:
        # An option has no line numbers to report.
        raise ConfigError(where, error.found, "put it in quotes") from error
    if len(document.data) > 1:
        raise ConfigError(where, "is more than one value", "put it in quotes")
    for mistake in document.mistakes:
        raise ConfigError(where, mistake.found, mistake.hint)
    return document.data["value"]


def override(
    document: Document, path: str, value: str, *, option: str | None = None
) -> None:
    """Set *path* of *document* to *value*, parsed as YAML.

    Args:
        document: Document to change.
        path: Keys and indices, e.g. ``iterations.measured`` or ``jobs.0.size_scale``.
        value: Value as written in a file, e.g. ``3`` or ``[bound, simulate]``.
        option: Command-line option for error messages. None means ``--set``.

    Raises:
        ConfigError: If the path is invalid or the value is not YAML.
    """
    where = option or option_text(path, value)
    parsed = _parsed(value, where)
    parts: list[str | int] = [
        int(part) if re.fullmatch("[0-9]{1,6}", part) else part
        for part in re.sub(r"\[([0-9]{1,6})\]", r".\1", path).split(".")
    ]
    here: Any = document.data
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if isinstance(here, dict) and isinstance(part, int) and str(part) in here:
            # Keys may be numbers, such as those of process groups.
            part = parts[number] = str(part)
        if isinstance(here, dict) and isinstance(part, str) and part:
            # A key that the user sets may be missing from the file.
            if not last and not isinstance(here.get(part), dict | list):
                here[part] = {}
                document.put(tuple(parts[: number + 1]), where)
        elif not (isinstance(here, list) and isinstance(part, int)):
            raise ConfigError(
                where, f"{path!r} is not a valid path", "e.g. iterations.warmup"
            )
        elif part >= len(here):
            raise ConfigError(
                where, f"there is no entry {part}", f"the list has {len(here)} entries"
            )
        if last:
            here[part] = parsed
            document.put(tuple(parts), where)
        else:
            here = here[part]


class _NodeReader:
    """Converter from the nodes of a document to data; records their line numbers."""

    def __init__(self, source: str, node_limit: int) -> None:
        self._source = source
        self._node_limit = node_limit
        self._nodes = 0
        self.lines: dict[Location, int] = {}
        self.mistakes: list[Mistake] = []

    def read(self, node: yaml.Node, location: Location) -> Any:
        self._nodes += 1
        line = node.start_mark.line + 1
        # A node that contains an alias to itself appears infinitely deep.
        if self._nodes > self._node_limit or len(location) > DEPTH_LIMIT:
            raise ConfigError(
                f"{self._source}:{line}",
                "is too large or nested too deeply after its aliases are resolved",
                f"use at most {self._node_limit} values on {DEPTH_LIMIT} levels",
            )
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.lines[(*location, index)] = item.start_mark.line + 1
                items.append(self.read(item, (*location, index)))
            return items
        if node.tag in _SCALARS:
            return _SCALARS[node.tag](node.value)
        self.mistakes.append(
            Mistake(
                location,
                f"the YAML tag {node.tag!r} is not supported",
                "use plain text, numbers, lists and mappings",
            )
        )
        return None

    def _read_mapping(
        self, node: yaml.MappingNode, location: Location
    ) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(
                    f"{self._source}:{line}",
                    "a key is not plain text",
                    "write key: value",
                )
            key = str(key_node.value)
            where = (*location, key)
            if key in mapping:
                self.mistakes.append(
                    Mistake(
                        where,
                        f"is already set on line {self.lines[where]}",
                        "remove one of the two",
                        line=line,
                    )
                )
                continue
            self.lines[where] = line
            mapping[key] = self.read(value_node, where)
        return mapping


M = TypeVar("M", bound="Model")


def read_model(
    path: Path,
    model: type[M],
    *,
    context: dict[str, Any] | None = None,
    check: Callable[[M], Iterable[Mistake]] = lambda _: (),
    factor: int = 1,
) -> M:
    """Read the file at *path* as *model*.

    Args:
        path: Path of the file.
        model: The model of the file's top level.
        context: Context of the validation.
        check: Function that returns additional mistakes of a valid model.
        factor: Factor of the limits of the file.

    Raises:
        ConfigError: If the file is invalid. The error lists every mistake with its
            line, problem and hint.
    """
    document = read_document(path, factor=factor, hint=None)
    mistakes = list(document.mistakes)
    found: M | None = None
    try:
        found = model.model_validate(document.data, context=context)
        mistakes += check(found)
    except ValidationError as error:
        mistakes += from_validation(error, model=model, data=document.data)
    if mistakes or found is None:
        raise report(str(path), mistakes, document.line)
    return found
