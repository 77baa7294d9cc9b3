"""Replacement of host names, addresses, user names and a home folder in text.

The same name always has the same replacement, so that a reader can follow which host
sent to which address. Loopback and unspecified addresses are kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from ipaddress import ip_address

_MAC = re.compile(
    r"(?<![\w:.-])(?:[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}"
    r"|[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4})(?![\w:-])",
    re.IGNORECASE,
)
_ADDRESS = re.compile(
    r"(?<![\w:.])(?:[0-9a-f]{0,4}:[0-9a-f:]*:[0-9a-f:]*)?(?:\d+(?:\.\d+){3})?(?!\w|\.\d)",
    re.IGNORECASE,
)
_USER = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\+Users\\+)([^/\\\s:\"',;]+)")
_COMMON = frozenset({"localhost", "root", "user", "none", "unknown"})
"""Names that do not identify a host or a person."""


class Redactor:
    """Replacer of the names in one text.

    Args:
        text: The text. No replacement equals a word in the text.
        hosts: Host names. The short form of a name is also replaced, e.g. ``node7`` for
            ``node7.example.com``.
        users: User names. Names of home folders in the text are added.
        home: Home folder of this user.

    Attributes:
        counts: Number of replaced names, by kind.
    """

    def __init__(
        self, text: str, *, hosts: Iterable[str], users: Iterable[str], home: str
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._labels: dict[tuple[str, str], str] = {}
        self._words = set(re.findall(r"[a-z]+\d+", text))
        self._home = re.compile(re.escape(home.rstrip("/\\")) + r"(?![\w.-])")
        known = {each.lower() for each in hosts if not _is_address(each)}
        known |= {name.partition(".")[0] for name in known}
        people = {each.lower() for each in (*users, *_USER.findall(text))}
        kinds = dict.fromkeys(people, "user") | dict.fromkeys(known, "h")
        self._kinds = {
            name: kind
            for name, kind in kinds.items()
            if len(name) > 1 and name not in _COMMON and not name.isdigit()
        }
        # Match the longest names first, e.g. node7.example.com before node7.
        listed = sorted(self._kinds, key=lambda name: (-len(name), name))
        self._names = re.compile(
            rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, listed))})(?![A-Za-z0-9])",
            re.IGNORECASE,
        )

    def redact(self, text: str) -> str:
        """Return *text* without the names."""
        if len(self._home.pattern) > len(r"(?![\w.-])"):
            text = self._home.sub("~", text)
        text = _MAC.sub(lambda match: self._label("mac", match[0]), text)
        text = _ADDRESS.sub(self._address, text)
        if self._kinds:
            text = self._names.sub(self._name, text)
        return text

    def _name(self, match: re.Match[str]) -> str:
        kind = self._kinds[match[0].lower()]
        name = match[0].partition(".")[0] if kind == "h" else match[0]
        return self._label(kind, name)

    def _address(self, match: re.Match[str]) -> str:
        # A colon after an address, as in "2001:db8::1: refused", does not belong to it.
        word = match[0]
        while word.endswith(":") and not _is_address(word):
            word = word[:-1]
        if not _is_address(word):
            return match[0]
        address = ip_address(word)
        if address.is_loopback or address.is_unspecified:
            return match[0]
        return self._label("addr", str(address)) + match[0][len(word) :]

    def _label(self, kind: str, name: str) -> str:
        """Return the replacement of a name, e.g. ``addr1``."""
        key = kind, name.lower()
        while key not in self._labels:
            self.counts[kind] += 1
            label = f"{kind}{self.counts[kind]}"
            if label not in self._words:
                self._labels[key] = label
        return self._labels[key]


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
