r"""Escape characters of untrusted text that could deceive a terminal or reader.

Names may come from untrusted traces, experiments, agents and runs. A control character,
a terminal escape sequence or a bidirectional text mark could hide or forge printed
text. XML does not allow control characters. Each such character is replaced with its
JSON and Python escape, such as ``\u001b``.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import TextIO, cast

_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 except tab and newline, DEL, C1
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"  # directions, invisible
    "\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"  # not characters
    "\U000e0000-\U000e0fff"  # tags
)
_ACTING = re.compile(f"[{_HIDDEN}]")
_BREAKING = re.compile(f"[\t\n{_HIDDEN}]")
_TICKS = re.compile("`+")


def plain(text: str) -> str:
    """Return multi-line text with unsafe characters escaped."""
    return _ACTING.sub(_escaped, text)


def one_line(text: str) -> str:
    """Return text escaped as by ``plain``, with tabs and newlines escaped as well."""
    return _BREAKING.sub(_escaped, text)


def to_file_name(text: str) -> str:
    """Return text with path separators encoded, which ``from_file_name`` decodes."""
    return text.replace("%", "%25").replace("/", "%2F")


def from_file_name(name: str) -> str:
    """Return the text whose ``to_file_name`` is *name*."""
    return name.replace("%2F", "/").replace("%25", "%")


def code_span(text: str) -> str:
    """Return text as a Markdown code span, which also works in a table cell.

    Nothing in the code span acts as markup, a link or a mention.
    """
    if not text:
        return ""
    ticks = "`" * (1 + max(map(len, _TICKS.findall(text)), default=0))
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{ticks}{pad}{one_line(text)}{pad}{ticks}".replace("|", "\\|")


def code_block(text: str) -> str:
    """Return multi-line text as a Markdown code block."""
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    return f"{fence}text\n{plain(text)}\n{fence}"


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


class _PlainStream:
    """A stream that escapes text with ``plain``.

    Args:
        stream: Stream that receives the text. Libraries that style text also write to
            it directly.
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
    """Escape everything printed in this context, on both output streams."""
    with (
        contextlib.redirect_stdout(cast("TextIO", _PlainStream(sys.stdout))),
        contextlib.redirect_stderr(cast("TextIO", _PlainStream(sys.stderr))),
    ):
        yield
