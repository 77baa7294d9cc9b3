r"""Text of others as people see it: characters that act on a reader become visible.

Names come from traces, experiments, agents and runs that others made.  A control
character, a terminal's escape sequence or a mark that turns the direction of text could
hide or forge what is printed, and XML does not allow it.  Each becomes the escape that
JSON and Python write for it, such as ``\u001b``.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import TextIO, cast

_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"  # directions, invisible ones
    "\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"  # what is no character
    "\U000e0000-\U000e0fff"  # tags
)
_ACTING = re.compile(f"[{_HIDDEN}]")
_BREAKING = re.compile(f"[\t\n{_HIDDEN}]")
_TICKS = re.compile("`+")


def plain(text: str) -> str:
    """Return a text of any lines in which no character acts on its reader."""
    return _ACTING.sub(_escaped, text)


def one_line(text: str) -> str:
    """Return a text as ``plain`` does, with escapes for tabs and newlines, too."""
    return _BREAKING.sub(_escaped, text)


def code_span(text: str) -> str:
    """Return a text as a code span of Markdown, in a table's cell, too.

    Nothing in it is markup, a link or a mention.
    """
    if not text:
        return ""
    ticks = "`" * (1 + max(map(len, _TICKS.findall(text)), default=0))
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{ticks}{pad}{one_line(text)}{pad}{ticks}".replace("|", "\\|")


def code_block(text: str) -> str:
    """Return a text of several lines as a code block of Markdown."""
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    return f"{fence}text\n{plain(text)}\n{fence}"


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


class _PlainStream:
    """A text stream whose text is ``plain``.

    Args:
        stream: Takes what is written; also directly, by libraries that style text.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(plain(text))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.rich_proxied_file, name)


@contextlib.contextmanager
def plain_output() -> Iterator[None]:
    """Let all that is printed meanwhile be ``plain``, on both streams."""
    with (
        contextlib.redirect_stdout(cast("TextIO", _PlainStream(sys.stdout))),
        contextlib.redirect_stderr(cast("TextIO", _PlainStream(sys.stderr))),
    ):
        yield
