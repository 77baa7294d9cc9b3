"""Reader of configurations that collects all mistakes and their places."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

_MOST_DIGITS = 20
_LARGEST = 1e20


def numeral(value: Any) -> float | None:
    """Return a JSON value as a finite number, or None if it is not a number.

    Protobuf's JSON contains 64-bit numbers as text.
    """
    if isinstance(value, str) and value.isdecimal() and len(value) <= _MOST_DIGITS:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Python also accepts NaN and Infinity in JSON.
    return value if -_LARGEST < value < _LARGEST else None


class ConfigReader:
    """Reader of an object in a configuration. It collects the object's mistakes.

    Args:
        data: The object, as parsed JSON.
        path: Place of the object.
        wrong: Sentences about mistakes. The reader appends to this list.
        unable: Sentences about unsupported values. The reader appends to this list.
    """

    def __init__(self, data: Any, path: str, wrong: list[str], unable: list[str]):
        self.path = path
        self.wrong = wrong
        self.unable = unable
        if not isinstance(data, Mapping):
            self.wrong.append(f"{path or 'config'}: is not an object")
            data = {}
        self.data: Mapping[str, Any] = data
        self._known: set[str] = set()

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string, or an empty string after reporting an invalid value."""
        self._known.add(name)
        value = self.data.get(name, default)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]  # older clients send a single address as a list
        if not isinstance(value, str) or not value or len(value) > 255:
            problem = "is missing" if name not in self.data else "is not a text"
            self.note_wrong(name, problem)
            return ""
        return value

    def number(
        self, name: str, default: float | None, least: float, most: float
    ) -> float:
        """Return a number, or *least* after reporting that it is wrong."""
        self._known.add(name)
        value = numeral(self.data.get(name, default))
        if value is None:
            self.note_wrong(name, "is not a number")
            return least
        if not least <= value <= most:
            self.note_wrong(name, f"is not {least:g} to {most:g}")
            return least
        return value

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """Return a whole number, or *least* after reporting that it is wrong."""
        value = self.number(name, default, least, most)
        if value != int(value):
            self.note_wrong(name, "is not a whole number")
        return int(value)

    def choice(self, name: str, values: Collection[str], default: str | None) -> str:
        """Return one of *values*, or the first after reporting any other value."""
        self._known.add(name)
        value = self.data.get(name, default)
        if value is None:
            self.note_wrong(name, "is missing")
        elif not isinstance(value, str):
            self.note_wrong(name, "is not a text")
        elif value not in values:
            self.note_unable(
                name, f"{value:.40} is not supported, only {', '.join(values)}"
            )
        else:
            return value
        return next(iter(values))

    def one(self, name: str, *, is_required: bool = False) -> Iterator[ConfigReader]:
        """Yield a reader of the object at a key, if any, and then call its ``end``."""
        self._known.add(name)
        if self.data.get(name) is not None:
            yield from self._read(self.data[name], name)
        elif is_required:
            self.note_wrong(name, "is missing")

    def only(self, word: str) -> Iterator[ConfigReader]:
        """Check that the choice is *word*. Yield a reader of its object if present."""
        self.choice("choice", (word,), word)
        yield from self.one(word)

    def many(self, name: str) -> Iterator[ConfigReader]:
        """Yield a reader of each object in a list, and then call its ``end``."""
        self._known.add(name)
        value = self.data.get(name, [])
        if not isinstance(value, list):
            self.note_wrong(name, "is not a list")
            return
        for index, each in enumerate(value):
            yield from self._read(each, f"{name}[{index}]")

    def _read(self, data: Any, name: str) -> Iterator[ConfigReader]:
        reader = ConfigReader(data, self.at(name), self.wrong, self.unable)
        yield reader
        reader.end()

    def skip(self, *names: str) -> None:
        """Accept keys without effect."""
        self._known.update(names)

    def end(self) -> None:
        """Refuse all keys that were not read."""
        for name in self.data:
            if name not in self._known and self.data[name] not in (None, [], {}):
                self.unable.append(f"{self.at(str(name)[:60])}: is not supported")

    def note_wrong(self, name: str, found: str) -> None:
        """Report a mistake at a key."""
        self.wrong.append(f"{self.at(name)}: {found}")

    def note_unable(self, name: str, found: str = "is not supported") -> None:
        """Report that the value of a key is not supported."""
        self.unable.append(f"{self.at(name)}: {found}")

    def at(self, name: str) -> str:
        """Return the place of a key."""
        return f"{self.path}.{name}" if self.path else name
