"""Meaning of the leaves in a switch's telemetry.

A mapping is a YAML file that names the counters of one network operating system. It
translates paths of gNMI, and metrics of OTLP, into readings of ports and classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from chakram.settings.field_types import Model, Time, problem
from chakram.settings.yaml_document import read_model

GAUGES = frozenset(("queue_bytes", "queue_max_bytes"))
"""Quantities that are states, not counts."""

COUNTERS = (
    "sent_bytes",
    "sent_packets",
    "received_bytes",
    "received_packets",
    "drops",
    "ingress_drops",
    "marked",
    "pauses_received",
    "pauses_sent",
    "paused_ns",
    *sorted(GAUGES),
)
"""Quantities that a mapping can name.

Bytes, packets, ``drops`` and ``marked`` belong to the egress of a port or queue, except
``received_*``. ``ingress_drops`` are drops on arrival. Pauses are PFC frames. A queue's
``queue_max_bytes`` is a watermark.
"""

BUILT_IN = ("sonic", "openconfig")
"""Names of the mappings that are included in Chakram."""

DESCRIBING = (
    *("mfg-name", "part-no", "hwsku", "platform", "asic_type", "os"),
    *("version", "software-version", "build_version", "profile"),
)
"""Names of facts that identify a switch."""

ALL_CLASSES = -1
"""Class of a counter of a whole port."""

_MOST_KNOWN = 100_000
_MOST_DEPTH = 16
_MOST_VALUE = 1 << 62
_MODULE = re.compile(r"^[A-Za-z_][\w.-]*:")
_PLACEHOLDER = re.compile(r"\{(port|class)\}")
_VALUES = {"port": "(?P<port>.+)", "class": "(?P<class>[0-7])"}
_KEY = re.compile(r"^([^\[]+)\[([^=\]]+)=")

Elements = tuple[str, ...]
"""Elements of a path. An element with a key is ``name[key=value]``."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A value of a counter.

    Attributes:
        port: The device's name of the port.
        traffic_class: Traffic class, or ``ALL_CLASSES``.
        counter: One of ``COUNTERS``.
        value: Value of the counter.
    """

    port: str
    traffic_class: int
    counter: str
    value: int


class StateSettings(Model):
    """Where a switch reports the state of a port."""

    target: str | None = None
    """Target of the path's prefix."""
    subscribe: str
    """Path of a port's state."""
    down: tuple[str, ...] = Field(min_length=1)
    """Values of ports that are down."""


class FactSettings(Model):
    """A path that describes the switch."""

    target: str | None = None
    """Target of the path's prefix."""
    path: str
    """Path of the values that describe the switch."""


def _checked(counters: Mapping[str, str]) -> Mapping[str, str]:
    for path, counter in counters.items():
        if counter not in COUNTERS:
            raise problem(
                f"{counter!r} of {path} is not a counter", f"use {', '.join(COUNTERS)}"
            )
        if "{port}" not in path:
            raise problem(f"{path} does not name its port", "use {port}")
    return counters


CounterNames = Annotated[Mapping[str, str], AfterValidator(_checked)]
"""Counters, by path of a leaf or by name of a metric."""


class OtlpMetrics(Model):
    """Names of the OTLP metrics of a switch."""

    object: str
    """Attribute that names the port or queue of a data point."""
    counters: CounterNames
    """Meaning of metrics, by name of the metric and value of the attribute."""


class TelemetryMapping(Model):
    """Contents of a mapping's YAML file."""

    version: Literal[1]
    """Version of the file format."""
    encoding: Literal["json", "json_ietf", "proto"] = "json_ietf"
    """Encoding of values to request."""
    target: str | None = None
    """Target in the prefix of all subscriptions to counters."""
    least_interval_ns: Time = Field(default=0, alias="least_interval")
    """The shortest interval that the switch accepts."""
    refresh_ns: Time = Field(default=0, alias="refresh")
    """Maximum age of a counter when the switch sends it."""
    class_refresh_ns: Time | None = Field(default=None, alias="class_refresh")
    """Maximum age of counters of classes. Default: refresh."""
    watermarks: Literal["cumulative", "since_last"] = "cumulative"
    """Meaning of a watermark: the maximum since it was cleared, or since it was last
    read."""
    octets_include_fcs: bool = True
    """Whether counts of bytes include the FCS of packets."""
    bits: Literal[32, 64] = 64
    """Width of counters in bits."""
    strip_modules: bool = False
    """Whether names in paths and JSON can begin with the name of a YANG module."""
    subscribe: tuple[str, ...] = Field(min_length=1, max_length=64)
    """Paths to subscribe to for every port."""
    counters: CounterNames = Field(min_length=1)
    """Meaning of leaves, by path. {port} and {class} are the parts that vary."""
    state: StateSettings | None = None
    """Where a switch reports the state of a port."""
    facts: tuple[FactSettings, ...] = ()
    """Paths to read once before a run. The answers for the first path also provide the
    clock."""
    otlp: OtlpMetrics | None = None
    """OTLP metrics that the switch sends."""

    @property
    def of_classes_ns(self) -> int:
        """How much older counters of classes can be than counters of ports."""
        if self.class_refresh_ns is None:
            return 0
        return max(0, self.class_refresh_ns - self.refresh_ns)


def read_mapping(name: str, base: Path | None = None) -> TelemetryMapping:
    """Return a mapping by its name, or from a file.

    Args:
        name: One of ``BUILT_IN``, or the path of a file.
        base: Folder at which a relative path begins.

    Raises:
        ConfigError: If the file cannot be read or is invalid.
    """
    if name in BUILT_IN:
        path = Path(str(files("chakram.telemetry") / "mappings" / f"{name}.yaml"))
    else:
        path = Path(name) if base is None else base / name
    return read_model(path, TelemetryMapping)


class PathMatcher:
    """Lookup of the counter that a path represents.

    Args:
        counters: Meaning of leaves, by path.
        strip_modules: See ``TelemetryMapping``.
    """

    def __init__(self, counters: Mapping[str, str], *, strip_modules: bool) -> None:
        self._strip_modules = strip_modules
        self._templates: dict[int, list[tuple[list[re.Pattern[str]], str]]] = {}
        self._keys: dict[str, set[str]] = {}
        self._known: dict[Elements, tuple[str, int, str] | None] = {}
        for path, counter in counters.items():
            elements = split_path(path)
            patterns = [_pattern(element) for element in elements]
            self._templates.setdefault(len(elements), []).append((patterns, counter))
            for element in elements:
                if keyed := _KEY.match(element):
                    self._keys.setdefault(keyed[1], set()).add(keyed[2])

    def find(self, elements: Elements) -> tuple[str, int, str] | None:
        """Return the port, class and counter of a leaf, or None if unknown."""
        if elements in self._known:
            return self._known[elements]
        found = self._match(elements)
        if len(self._known) < _MOST_KNOWN:
            self._known[elements] = found
        return found

    def readings(self, elements: Elements, value: object) -> Iterator[Reading | str]:
        """Yield the readings in a value, or a text about what is wrong with it.

        Args:
            elements: Path of the value.
            value: A number, text, or JSON objects and lists.
        """
        for leaf, content in self.leaves(elements, value):
            found = self.find(leaf)
            if found is None:
                continue
            number = _number(content)
            if number is None:
                yield f"{'/'.join(leaf)} is {content!r:.40}"
            else:
                yield Reading(*found, number)

    def leaves(
        self, elements: Elements, value: object
    ) -> Iterator[tuple[Elements, object]]:
        """Yield the path and content of each leaf in a value.

        The arguments are those of ``readings``. SONiC's translation library wraps the
        value of a path in an object with the last name of that path.
        """
        if self._strip_modules:
            elements = tuple(_MODULE.sub("", each) for each in elements)
        if isinstance(value, dict) and len(value) == 1 and elements:
            ((name, content),) = value.items()
            own = _MODULE.sub("", name) if self._strip_modules else name
            if own == elements[-1].partition("[")[0]:
                is_entry = isinstance(content, list) and len(content) == 1
                value = content[0] if is_entry else content
        yield from self._leaves(elements, value, 0)

    def _leaves(
        self, elements: Elements, value: object, depth: int
    ) -> Iterator[tuple[Elements, object]]:
        if depth > _MOST_DEPTH:
            return
        if isinstance(value, dict):
            for name, content in value.items():
                own = _MODULE.sub("", name) if self._strip_modules else name
                if isinstance(content, list):
                    for each in content:
                        key = self._key_of(own, each)
                        yield from self._leaves((*elements, key), each, depth + 1)
                else:
                    yield from self._leaves((*elements, own), content, depth + 1)
        else:
            yield elements, value

    def _key_of(self, name: str, entry: object) -> str:
        """Return the path element of a list entry, with the entry's key."""
        if isinstance(entry, dict):
            for key in self._keys.get(name, ()):
                if key in entry:
                    return f"{name}[{key}={entry[key]}]"
        return name

    def _match(self, elements: Elements) -> tuple[str, int, str] | None:
        for patterns, counter in self._templates.get(len(elements), ()):
            ports: set[str] = set()
            traffic_class = ALL_CLASSES
            for pattern, element in zip(patterns, elements, strict=True):
                found = pattern.fullmatch(element)
                if found is None:
                    break
                groups = found.groupdict()
                if "port" in groups:
                    ports.add(groups["port"])
                if "class" in groups:
                    traffic_class = int(groups["class"])
            else:
                if len(ports) == 1:
                    return ports.pop(), traffic_class, counter
        return None


def split_path(path: str) -> Elements:
    """Return the elements of a path. Slashes in brackets are not separators."""
    elements, depth, start = [], 0, 0
    for at, letter in enumerate(path):
        depth += (letter == "[") - (letter == "]")
        if letter == "/" and depth == 0:
            elements.append(path[start:at])
            start = at + 1
    elements.append(path[start:])
    return tuple(element for element in elements if element)


def path_of_port(path: str, port: str) -> Elements:
    """Return the elements of a mapping's path for one port."""
    return tuple(element.replace("{port}", port) for element in split_path(path))


def decode_json(data: bytes) -> object:
    """Return the content of a JSON value from a switch.

    Raises:
        ValueError: If the value is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def _pattern(element: str) -> re.Pattern[str]:
    parts: list[str] = []
    seen: set[str] = set()
    end = 0
    for found in _PLACEHOLDER.finditer(element):
        name = found[1]
        parts.append(re.escape(element[end : found.start()]))
        parts.append(f"(?P={name})" if name in seen else _VALUES[name])
        seen.add(name)
        end = found.end()
    return re.compile("".join(parts) + re.escape(element[end:]))


def _number(value: object) -> int | None:
    """Return *value* as a count, or None if it is not a count."""
    number: Any = value
    if isinstance(value, str):
        if not value.strip().isdecimal() or len(value) > 32:
            return None
        number = int(value)
    elif isinstance(value, float):
        if not value.is_integer():
            return None
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int):
        return None
    return number if 0 <= number < _MOST_VALUE else None


def names_of(facts: Mapping[str, Any], keys: Sequence[str]) -> dict[str, str]:
    """Return the values of *keys*, wherever they are in the facts of a switch."""
    found: dict[str, str] = {}
    waiting: list[object] = [facts]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            for key, value in each.items():
                own = _MODULE.sub("", key)
                if own in keys and isinstance(value, str | int):
                    found.setdefault(own, str(value))
                waiting.append(value)
        elif isinstance(each, list):
            waiting += each
    return found
