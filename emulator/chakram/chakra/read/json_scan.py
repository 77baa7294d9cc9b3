"""Incremental JSON parser for elements of a long array, or for consecutive objects.

The standard library decodes one value at a time. This module finds where the next value
starts. Memory usage depends on the longest element instead of the file size. Every
element has an offset for errors and warnings. The length of an element is limited, and
the interpreter's recursion limit bounds its depth.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from chakram.foundation.errors import GarbageTrace, OversizedRecord, TruncatedTrace

DEFAULT_ELEMENT_LIMIT: Final = 4 * 2**20
"""Maximum number of characters of one element.

The longest known node has 30,000 characters. In the worst case, four million brackets,
the decoded element needs 25 times as much memory as its text.
"""

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
_ESCAPED_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
_ORDER_MARK: Final = "\ufeff"
_SHOWN: Final = 20
_NUMBER_LOOK: Final = 3


def whole_text(text: str) -> str:
    r"""Return a string with U+FFFD in place of each unpaired surrogate.

    JSON can spell half a surrogate pair (``"\ud800"``), which UTF-8 cannot encode.
    Chakram could not send such a string to an agent, save it or print it.
    """
    return _HALF_PAIR.sub("\ufffd", text)


class _RepeatedMember(Exception):
    """Error for an object that has a member twice, with different values."""


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object from its members. A repeated member must have equal values."""
    members = dict(pairs)
    if len(members) != len(pairs):
        for name, value in pairs:
            if members[name] != value:
                raise _RepeatedMember(
                    f"the member {name!r:.40} occurs twice in an object: {value!r:.40} "
                    f"and {members[name]!r:.40}"
                )
    return members


def _without_half_pairs(value: Any) -> Any:
    """Return a decoded value with unpaired surrogates replaced in all strings."""
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
    """Incremental reader for JSON in chunks of bytes, element by element.

    Args:
        chunks: The bytes of the file.
        source: Name of the file, for error messages.
        limit: Maximum number of characters of one element.
        last_wins: Whether the last value of a repeated member counts. Otherwise, the
            scanner refuses an object that repeats a member with different values.

    Attributes:
        members: The other members of the object that contains the array, if they are
            strings or numbers.
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
        # The file offset, in bytes, of the first character of the text.
        self._offset = 0

    def values(self) -> Iterator[tuple[int, Any]]:
        """Yield ``(offset, value)`` of consecutive values.

        Raises:
            TraceError: If the text is not JSON, is truncated, or has a value that is
                too long.
        """
        while self._peek():
            yield self._value()

    def elements(self, key: str) -> Iterator[tuple[int, Any]]:
        """Yield ``(offset, value)`` for each element of the array *key* of one object.

        The other members of the object are skipped, except those in ``members``.

        Raises:
            TraceError: As for ``values``, or if there is no such array.
        """
        found = False
        for _ in self._items("{", "}"):
            offset, name = self._value()
            if not isinstance(name, str):
                raise self._garbage(offset, "the name of a member is not a string")
            self._take(":")
            if name == key and found:
                raise self._garbage(offset, f"{key!r} occurs twice")
            if name == key and self._peek() == "[":
                found = True
                for _ in self._items("[", "]"):
                    yield self._value()
            else:
                _, value = self._value()
                if isinstance(value, str | int | float):
                    self.members[name] = value
        if self._peek():
            raise self._garbage(
                self._here(), "there is more text after the end of the object"
            )
        if not found:
            raise self._garbage(self._offset, f"there is no array {key!r}")

    def _items(self, opening: str, closing: str) -> Iterator[None]:
        """Consume the punctuation of an array or object, and yield before each item."""
        self._take(opening)
        if self._peek() == closing:
            self._take(closing)
            return
        yield
        while self._take(",", closing) == ",":
            yield

    def _value(self) -> tuple[int, Any]:
        """Return the offset of the next value, and the value."""
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
            except _RepeatedMember as error:
                raise self._garbage(self._here(), str(error)) from None
            except ValueError as error:
                if self._more():
                    continue
                raise self._undecoded(error) from error
            # A number at the end of the text may be incomplete, as in "4." or "4e+".
            if end > len(self._text) - _NUMBER_LOOK and self._more():
                continue
            if end - self._position > self._limit:
                raise self._oversized()
            offset = self._here()
            self._position = end
            return offset, value

    def _take(self, *wanted: str) -> str:
        """Consume and return one of the *wanted* characters."""
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
        """Return the next non-space character, or an empty string at the end."""
        while True:
            space = _SPACE.match(self._text, self._position)
            if space is not None:
                self._position = space.end()
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Read more text, at least doubling the unread part. Return False at EOF."""
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
                    self._here(), f"the text is not UTF-8: {error.reason}"
                ) from error
            parts.append(part)
            added += len(part)
        if added:
            is_start = not self._text and not self._offset
            self._offset = self._here()
            self._text = "".join((self._text[self._position :], *parts))
            # Some editors and shells write a byte order mark.
            self._position = int(is_start and self._text.startswith(_ORDER_MARK))
        return added > 0

    def _here(self) -> int:
        """Return the file offset of the next character."""
        if not self._position:
            return self._offset
        if self._text.isascii():
            return self._offset + self._position
        return self._offset + len(self._text[: self._position].encode())

    def _undecoded(self, error: ValueError) -> Exception:
        """Return the error for an undecodable value, which is truncated or garbage."""
        # The decoder reports an unterminated string at its start, and other truncated
        # values at the end of the text.
        if isinstance(error, json.JSONDecodeError):
            early = error.pos >= len(self._text.rstrip())
            if early or error.msg.startswith("Unterminated string"):
                return self._truncated()
            reason = error.msg[:1].lower() + error.msg[1:]
            self._position = error.pos
        else:
            reason = "a number has too many digits"
        return self._garbage(self._here(), f"the text is not JSON: {reason}")

    def _truncated(self) -> TruncatedTrace:
        return TruncatedTrace(
            f"{self._source}: offset {self._here()}",
            "the file ends inside a JSON value",
            "fetch the file again: the producer or a copy was interrupted",
        )

    def _oversized(self) -> OversizedRecord:
        return OversizedRecord(
            f"{self._source}: offset {self._here()}",
            f"a JSON value has more than {self._limit} characters",
            "check that this is a Chakra trace",
        )

    def _garbage(self, offset: int, found: str) -> GarbageTrace:
        return GarbageTrace(
            f"{self._source}: offset {offset}",
            found,
            "check that this is a Chakra trace",
        )
