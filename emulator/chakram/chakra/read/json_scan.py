"""JSON piece by piece: the elements of a long array, or objects one behind the other.

The standard library decodes one value at a time; what is added here is where the next
one starts.  So memory follows the longest element, not the file; every element has its
offset, for messages; and an element is bounded in length and, by the interpreter's
limit of recursion, in depth.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from chakram.foundation.errors import GarbageTrace, OversizedRecord, TruncatedTrace

DEFAULT_ELEMENT_LIMIT: Final = 4 * 2**20
"""Characters of one element.  The longest node met has 30,000; decoded, four million
brackets take 25 times their length."""

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
_ESCAPED_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
_SHOWN: Final = 20
_NUMBER_LOOK: Final = 3


def whole_text(text: str) -> str:
    r"""Return a text with U+FFFD for each half of a surrogate pair.

    JSON can spell half a pair (``"\ud800"``), for which UTF-8 has no bytes: such a
    name could not be sent to an agent, saved or printed.
    """
    return _HALF_PAIR.sub("\ufffd", text)


class _StandsTwice(Exception):
    """A member of an object stands twice in it, with different values."""


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, whose members may stand twice only with the same value."""
    members = dict(pairs)
    if len(members) != len(pairs):
        for name, value in pairs:
            if members[name] != value:
                raise _StandsTwice(
                    f"the member {name!r:.40} stands twice in an object: "
                    f"{value!r:.40} and {members[name]!r:.40}"
                )
    return members


def _without_half_pairs(value: Any) -> Any:
    """Return a decoded value with all of its texts whole."""
    match value:
        case str():
            return whole_text(value)
        case list():
            return [_without_half_pairs(each) for each in value]
        case dict():
            return {
                whole_text(key): _without_half_pairs(each)
                for key, each in value.items()
            }
    return value


class JsonScanner:
    """Reads JSON from chunks of bytes, element by element.

    Args:
        chunks: The bytes of the file.
        source: Name of the file, for messages.
        limit: Characters that one element may have.
        last_wins: Of a member that stands twice in an object the last one counts,
            instead of being refused.

    Attributes:
        members: What stood in the object beside the array: texts and numbers only.
    """

    def __init__(
        self,
        chunks: Iterable[bytes],
        *,
        source: str,
        limit: int = DEFAULT_ELEMENT_LIMIT,
        last_wins: bool = False,
    ) -> None:
        self._chunks = iter(chunks)
        self._source = source
        self._limit = limit
        self.members: dict[str, str | int | float] = {}
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._values = json.JSONDecoder(
            object_pairs_hook=None if last_wins else _unambiguous
        )
        self._text = ""
        self._position = 0
        self._ended = False
        # Of the first character in the text, in bytes of the file.
        self._offset = 0

    def values(self) -> Iterator[tuple[int, Any]]:
        """Yield ``(offset, value)`` of values that follow one another.

        Raises:
            TraceError: If that is not JSON, ends early or is too long.
        """
        while self._peek():
            yield self._value()

    def elements(self, key: str) -> Iterator[tuple[int, Any]]:
        """Yield the elements of the array that stands under *key* in one object.

        The other members of the object are passed over, but see ``members``.

        Raises:
            TraceError: As ``values`` does, or if there is no such array.
        """
        found = False
        self._take("{")
        if self._peek() == "}":
            self._take("}")
        else:
            while True:
                offset, name = self._value()
                if not isinstance(name, str):
                    raise self._garbage(offset, "the name of a member is no text")
                self._take(":")
                if name == key and found:
                    raise self._garbage(offset, f"{key!r} stands twice")
                if name == key and self._peek() == "[":
                    found = True
                    yield from self._array()
                else:
                    _, value = self._value()
                    if isinstance(value, str | int | float):
                        self.members[name] = value
                if self._take(",", "}") == "}":
                    break
        if self._peek():
            raise self._garbage(self._here(), "there is more behind the object's end")
        if not found:
            raise self._garbage(self._offset, f"there is no array {key!r}")

    def _array(self) -> Iterator[tuple[int, Any]]:
        self._take("[")
        if self._peek() == "]":
            self._take("]")
            return
        while True:
            yield self._value()
            if self._take(",", "]") == "]":
                return

    def _value(self) -> tuple[int, Any]:
        """Return the next value and its offset."""
        if not self._peek():
            raise self._truncated()
        while True:
            try:
                value, end = self._values.raw_decode(self._text, self._position)
                if _ESCAPED_HALF.search(self._text, self._position, end):
                    value = _without_half_pairs(value)
            except RecursionError:
                raise self._garbage(
                    self._here(), "arrays or objects are nested too deep"
                ) from None
            except _StandsTwice as error:
                raise self._garbage(self._here(), str(error)) from None
            except ValueError as error:
                if self._more():
                    continue
                raise self._undecoded(error) from error
            # A number at the end of the text may go on, also behind "4." or "4e+".
            if end > len(self._text) - _NUMBER_LOOK and self._more():
                continue
            if end - self._position > self._limit:
                raise self._oversized()
            offset = self._here()
            self._position = end
            return offset, value

    def _take(self, *wanted: str) -> str:
        """Pass over one of the *wanted* characters and return it."""
        found = self._peek()
        if found in wanted and found:
            self._position += 1
            return found
        if not found:
            raise self._truncated()
        shown = self._text[self._position : self._position + _SHOWN]
        raise self._garbage(
            self._here(), f"there is {shown!r}, not {' or '.join(map(repr, wanted))}"
        )

    def _peek(self) -> str:
        """Return the next character that is no space; none at the end."""
        while True:
            space = _SPACE.match(self._text, self._position)
            if space is not None:
                self._position = space.end()
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Add to the text as much again as lies ahead in it; False at the end."""
        ahead = len(self._text) - self._position
        if ahead > self._limit:
            raise self._oversized()
        parts: list[str] = []
        added = 0
        while not self._ended and added <= ahead:
            chunk = next(self._chunks, None)
            self._ended = chunk is None
            try:
                part = self._decoder.decode(chunk or b"", final=self._ended)
            except UnicodeDecodeError as error:
                raise self._garbage(
                    self._here(), f"it is not UTF-8: {error.reason}"
                ) from error
            parts.append(part)
            added += len(part)
        if added:
            self._offset = self._here()
            self._text = "".join((self._text[self._position :], *parts))
            self._position = 0
        return added > 0

    def _here(self) -> int:
        """Return the offset of the next character."""
        if not self._position:
            return self._offset
        if self._text.isascii():
            return self._offset + self._position
        return self._offset + len(self._text[: self._position].encode())

    def _undecoded(self, error: ValueError) -> Exception:
        """Return what a value that cannot be decoded is: cut off, or garbage."""
        # Texts are found open at their start, all else is missed where it should be.
        if isinstance(error, json.JSONDecodeError):
            early = error.pos >= len(self._text.rstrip())
            if early or error.msg.startswith("Unterminated string"):
                return self._truncated()
            reason = error.msg[:1].lower() + error.msg[1:]
            self._position = error.pos
        else:
            reason = "a number has too many digits"
        return self._garbage(self._here(), f"it is not JSON: {reason}")

    def _truncated(self) -> TruncatedTrace:
        return TruncatedTrace(
            f"{self._source}: offset {self._here()}",
            "the file ends inside a JSON value",
            "the producer or a copy was interrupted; fetch the file again",
        )

    def _oversized(self) -> OversizedRecord:
        return OversizedRecord(
            f"{self._source}: offset {self._here()}",
            f"a JSON value has more than {self._limit} characters",
            "most likely this is not a Chakra trace",
        )

    def _garbage(self, offset: int, found: str) -> GarbageTrace:
        return GarbageTrace(
            f"{self._source}: offset {offset}", found, "is this a Chakra trace?"
        )
