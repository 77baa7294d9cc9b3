"""Find words and sentences that plain technical English does not use.

The tool checks Markdown, docstrings, comments, help texts and messages of the paths
that ``[tool.prose]`` in ``pyproject.toml`` lists. Each pattern below has a replacement.
CONTRIBUTING.md explains the rules. The tool prints one line per finding. Its exit code
is 1 if there is any finding.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MAX_WORDS = 30
"""Longest sentence in words. The rule is 25. Names in backticks count as one word."""
MAX_COLUMNS = 120
"""Longest line of Markdown in columns, outside tables and code."""

REPLACEMENTS = {
    r"whoever|whomever": "you; a client; the sender",
    r"somebody|someone": "a user; another process; name it",
    r"nobody|no\s+one": "no host; no process; unknown",
    r"anew": "again",
    r"(?:acknowledge|judge)ments?|enrol(?:s|ments?)?": "acknowledgment; enroll",
    r"(?:model|cancel|label|travel|signal)l(?:ed|ing)": "modeled; canceled; labeled",
    r"(?:col|behavi|neighb|hon|fav|lab)ours?|cent(?:re|res|red)": "color; center",
    r"catalogues?|analogues?|artefacts?|grey|licence|defence": "catalog; gray; license",
    r"(?:after|to)wards|whilst|amongst|learnt|fulfil": "afterward; toward; while",
    r"(?<!-)\w+(?:[aei]l|[aog]n|[aeo]r|[aiey]t|[aiy]m)is(?:e[ds]?|ing|ations?)": "-ize",
    r"analys(?:e|ed|ing)": "analyze",
    r"once\s+more": "again",
    r"likewise": "repeat the meaning",
    r"(?:stands?|stood) (?:in|for|there|beside|behind|still)": "is in; represents",
    r"of (?:its|their|his) own": "own; separate; dedicated",
    r"(?:is|are|was|were|be|been) (?:told|said)": "is reported; the run prints",
    r"says? so": "reports it; warns",
    r"(?:said|told) by": "reported by; shown in",
    r"held (?:back|up)|holds (?:back|up)": "delayed; throttled; blocked",
    r"under\s+way": "in flight; running",
    r"made[- ]up": "synthetic; forged",
    r"in\s+turns": "alternating",
    r"to be\s+had": "available",
    r"lets? go": "releases",
    r"gives? back": "returns",
    r"tells? whether": "return whether",
    r"take\s+note": "record",
    r"as of (?=[a-z]*\d)": "like",
    r"by the hash's\s+doing": "because of the hash",
    r"kinds? of fabrics?": "fabric type",
    r"for\s+ever": "forever; without a limit",
    r"in\s+vain": "without effect",
}
"""Patterns of whole words, each with a suggested replacement."""

_PATTERNS = [
    (re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), instead)
    for pattern, instead in REPLACEMENTS.items()
]
_SENTENCE_END = re.compile(r"(?<=[.!?:;])[\"')\]]*\s+")
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Source|Note):", re.M)
_PROSE = re.compile(r"(?:[a-z]+,? ){2}[a-z]+")
"""Three words in sequence, which literals other than prose rarely have."""


class Text(NamedTuple):
    """A paragraph of prose, with the number of its first line."""

    line: int
    text: str
    counts_words: bool = True


def markdown(source: str) -> Iterator[Text]:
    """Yield the paragraphs, list items and table cells of a page without code."""
    fenced = False
    paragraph: list[str] = []
    begun = 0
    for number, line in enumerate([*source.splitlines(), ""], 1):
        stripped = line.strip()
        if stripped.startswith(("```", "~~~")):
            fenced = not fenced
            continue
        if fenced:
            continue
        is_table = stripped.startswith("|")
        if is_table:
            for cell in stripped.strip("|").split("|"):
                yield Text(number, cell.strip())
        starts = re.match(r"(?:[-*+]|\d+\.|#+|>)\s", stripped)
        if (not stripped or is_table or starts) and paragraph:
            yield Text(begun, " ".join(paragraph))
            paragraph = []
        if stripped and not is_table:
            if not paragraph:
                begun = number
            paragraph.append(re.sub(r"^(?:[-*+]|\d+\.|#+|>)\s+", "", stripped))


def long_lines(source: str) -> Iterator[int]:
    """Yield the numbers of lines that are too long, outside tables and code."""
    fenced = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.strip().startswith(("```", "~~~")):
            fenced = not fenced
        elif (
            not fenced
            # A link may be longer, because you cannot break it.
            and not line.strip().startswith(("|", "[", "![", "<"))
            and len(re.sub(r"\]\([^)]*\)", "]", line)) > MAX_COLUMNS
        ):
            yield number


def python(source: str) -> Iterator[Text]:
    """Yield docstrings, messages and comments of a module, by paragraph."""
    parts: set[ast.expr] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts.add(node.value)
            if isinstance(node.value.value, str):
                yield from _paragraphs(node.lineno, node.value.value)
        elif isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            text = "".join(
                str(each.value) if isinstance(each, ast.Constant) else "NAME"
                for each in node.values
            )
            yield from _message(node.lineno, text)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in parts
        ):
            yield from _message(node.lineno, node.value)
    begun, words, last = 0, [], -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("#:! ").strip()
        if re.match(r"(noqa|type:|fmt:|pragma|cython:)", text):
            continue
        if token.start[0] != last + 1:
            if words:
                yield Text(begun, " ".join(words))
            begun, words = token.start[0], []
        words.append(text)
        last = token.start[0]
    if words:
        yield Text(begun, " ".join(words))


def _message(line: int, text: str) -> Iterator[Text]:
    """Yield the paragraphs of a literal if it is prose."""
    if _PROSE.search(text):
        yield from _paragraphs(line, text)


def _paragraphs(line: int, text: str) -> Iterator[Text]:
    """Yield the paragraphs of a docstring, with each entry of a section separate."""
    block: list[str] = []
    begun = line
    literal = False
    for number, each in enumerate([*text.splitlines(), ""], line):
        stripped = each.strip()
        new = (
            not stripped
            or _SECTION.match(stripped)
            or re.match(r"(?:[-*]|\w[\w, *]*:)\s", stripped)
        )
        if new and block:
            joined = " ".join(block)
            # Skip tables, which have gaps between columns.
            if not (literal or any(re.search(r"\S {2,}\S", row) for row in block)):
                yield Text(begun, joined)
            literal = joined.endswith("::")
            block = []
        if stripped:
            if not block:
                begun = number
            block.append(re.sub(r"^\w[\w, *]*:\s", "", stripped))


def findings(path: Path) -> Iterator[str]:
    """Yield the findings of a file, each with its line."""
    source = path.read_text("utf-8")
    where = path.relative_to(ROOT)
    is_page = path.suffix == ".md"
    if is_page:
        for number in long_lines(source):
            yield f"{where}:{number}: line longer than {MAX_COLUMNS} columns"
    for line, text, _ in markdown(source) if is_page else python(source):
        plain = re.sub(r"``?[^`]*``?", "NAME", text)
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
        for pattern, instead in _PATTERNS:
            for found in pattern.finditer(plain):
                yield f"{where}:{line}: {found[0]!r}: write {instead}"
        for sentence in _SENTENCE_END.split(plain):
            words = re.findall(r"[\w'%.,/-]*\w", sentence)
            # A list of names in backticks is not a sentence.
            count = len(words) if words.count("NAME") < len(words) / 2 else 0
            if count > MAX_WORDS:
                start = " ".join(sentence.split()[:6])
                yield f"{where}:{line}: sentence of {count} words: {start!r} ..."


def files(paths: list[str]) -> Iterator[Path]:
    """Yield the tracked files with prose below *paths*, except generated files."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in listed.splitlines():
        if name.endswith((".md", ".py")) and "_pb2" not in name:
            yield ROOT / name


def main(paths: list[str]) -> int:
    """Print all findings and return the exit code."""
    if not paths:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
        paths = project["tool"]["prose"]["paths"]
    found = [each for path in files(paths) for each in findings(path)]
    for each in found:
        sys.stdout.write(f"{each}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
