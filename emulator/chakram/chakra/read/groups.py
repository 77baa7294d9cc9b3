"""Process groups as traces spell them: a JSON file beside, a node inside, an attribute.

A name that is a number may be written ``4`` or ``4.0``; both are ``4`` here.  Group
``0``, or no name, stands for all ranks, unless a group file defines a ``0``: the
reference simulator ignores such a definition, but producers that write one mean it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from chakram.chakra.read.json_scan import whole_text
from chakram.collectives.groups import WORLD
from chakram.foundation.errors import TraceError

if TYPE_CHECKING:
    from chakram.chakra.et_codec import AttributeValue

_DECIMAL = re.compile(r"[0-9]+(\.0*)?")
_INIT_NODE = "process_group:init"
RECORD = "record_param_comms"
"""Name of the node in which a backend of PyTorch states what it was asked for."""

_MOST_RANKS = 1 << 20
GROUPS_ATTRIBUTE = "process_groups"
"""Attribute of the metadata that carries the process groups of traces of Chakram."""

_INIT_TEXT_LIMIT = 4 * 2**20
_INIT_HINT = "PyTorch writes a list with one JSON text there"

_NO_LITERAL = (ValueError, SyntaxError, RecursionError, MemoryError)
_NO_PURPOSES = ("undefined", "default_pg")
_LONGEST_PURPOSE = 60

ALL_RANKS_NAMES = frozenset({"", "0"})
"""Names that stand for all ranks where no group file defines them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialGroup:
    """One group of a ``process_group:init`` node.

    No ranks stand for all of the job.  ``pointer`` is what operations of schema 1.0.2
    name it by, ``purpose`` what it is for, in the words of who made it, and
    ``least_ranks`` how many ranks a job with this group has at least.
    """

    name: str
    ranks: tuple[int, ...]
    size: int
    pointer: int | None
    purpose: str
    least_ranks: int = field(init=False)

    def __post_init__(self) -> None:
        least = max(self.size, max(self.ranks, default=-1) + 1)
        object.__setattr__(self, "least_ranks", least)


def normal_name(name: str) -> str:
    """Return a group's name with a number in its shortest form: ``04.0`` is ``4``."""
    name = whole_text(name).strip()
    if _DECIMAL.fullmatch(name):
        return name.partition(".")[0].lstrip("0") or "0"
    return name


def parse_group_file(text: bytes, source: str) -> dict[str, tuple[int, ...]]:
    """Return the groups of a ``comm_group.json``: ids to lists of global ranks.

    Raises:
        TraceError: If it is not one object of lists of distinct ranks.
    """
    hint = 'e.g. {"1": [0, 1], "2": [2, 3]}'
    try:
        pairs = json.loads(text, object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        raise TraceError(source, f"is not JSON: {error}", hint) from error
    # Objects come as tuples of pairs, which shows a key that stands twice.
    if not isinstance(pairs, tuple):
        raise TraceError(source, "is not one JSON object", hint)
    groups: dict[str, tuple[int, ...]] = {}
    for key, ranks in pairs:
        name = normal_name(key)
        if name in groups:
            raise TraceError(source, f"defines group {name!r} twice", hint)
        if name == WORLD:
            raise TraceError(
                source,
                f"defines the group {WORLD!r}",
                "that name is all ranks; rename it",
            )
        groups[name] = _ranks(ranks, f"{source}: group {name!r}")
        if not groups[name]:
            raise TraceError(f"{source}: group {name!r}", "has no ranks", hint)
    return groups


def is_process_group_init(name: str) -> bool:
    """Say whether a metadata node of this name carries PyTorch's process groups."""
    return _INIT_NODE in name


def process_groups_of_init(values: str, where: str) -> list[InitialGroup]:
    """Return the groups of PyTorch's ``process_group:init`` node.

    Args:
        values: Its ``inputs.values``: the text of a Python list whose one element is a
            JSON text, a list of groups.
        where: Place of the node.

    Returns:
        The groups in the order of their making; the default one, ``0``, is all ranks.

    Raises:
        TraceError: If the text is something else.
    """
    if len(values) > _INIT_TEXT_LIMIT:
        raise TraceError(where, f"holds {len(values)} characters of groups", _INIT_HINT)
    try:
        # literal_eval builds plain values only; nothing of the text is executed.
        outer = ast.literal_eval(values)
        text = outer[0]
    except (TypeError, LookupError, *_NO_LITERAL) as error:
        raise _unread_groups(where) from error
    return initial_groups(text, where)


def initial_groups(text: object, where: str) -> list[InitialGroup]:
    """Return the groups of PyTorch's JSON text, or of ``groups_text``, in their order.

    Raises:
        TraceError: If the text is something else.
    """
    if not isinstance(text, str) or len(text) > _INIT_TEXT_LIMIT:
        raise _unread_groups(where)
    with suppress(TraceError):  # told again below, with its place
        return list(_same_groups(text))
    return _read_groups(text, where)


# All ranks of a job bring the same text, and thousands of ranks thousands of members.
@lru_cache(maxsize=4)
def _same_groups(text: str) -> tuple[InitialGroup, ...]:
    return tuple(_read_groups(text, ""))


def _read_groups(text: str, where: str) -> list[InitialGroup]:
    try:
        entries = [
            (normal_name(str(entry["pg_name"])), entry["ranks"], entry)
            for entry in json.loads(text)
        ]
        numbers = [
            (
                entry.get("group_size", len(ranks)),
                entry.get("backend_id"),
                entry.get("pg_desc"),
            )
            for _, ranks, entry in entries
        ]
    except (
        ValueError,
        TypeError,
        LookupError,
        RecursionError,
        AttributeError,
    ) as error:
        raise _unread_groups(where) from error
    groups: list[InitialGroup] = []
    for (name, ranks, _), (size, pointer, purpose) in zip(
        entries, numbers, strict=True
    ):
        members = _ranks(ranks, f"{where}: group {name!r}")
        if type(size) is not int or not 0 <= size < 2**31:
            raise TraceError(f"{where}: group {name!r}", f"has {size!r:.40} ranks")
        groups.append(
            InitialGroup(
                name=name,
                ranks=members,
                size=len(members) or size,
                pointer=pointer if type(pointer) is int else None,
                purpose=_purpose(purpose),
            )
        )
    return groups


def group_of_record(values: str) -> InitialGroup | None:
    """Return the group that a ``record_param_comms`` states; None if it states none.

    Chakra's converter leaves such nodes as computations.  No name stands for one that
    means nothing outside of its process.

    Args:
        values: Its ``inputs.values``, the text of a Python list: behind tensors the
            number of the operation, group, rank and name of the operation; splits, and
            first rank, distance and number of the members.
    """
    if len(values) > _INIT_TEXT_LIMIT:
        return None
    try:
        # literal_eval builds plain values only; nothing of the text is executed.
        parts = ast.literal_eval(values)
    except _NO_LITERAL:
        return None
    if not isinstance(parts, list):
        return None
    texts = [place for place, each in enumerate(parts) if isinstance(each, str)]
    if not texts or texts[-1] < 3:
        return None
    group = parts[texts[-1] - 2]
    if isinstance(group, list | tuple) and group:  # name and description
        group = group[0]
    ranks, size = even_ranks(parts[texts[-1] + 3 : texts[-1] + 6])
    if not size:
        return None
    name = normal_name(group) if isinstance(group, str) else ""
    return InitialGroup(name=name, ranks=ranks, size=size, pointer=None, purpose="")


def even_ranks(stated: Sequence[Any]) -> tuple[tuple[int, ...], int]:
    """Return the members of a group and their number, by first, distance and number.

    Of members that are not evenly apart the distance is -1, and only the number is
    known; what means nothing gives none, and 0.
    """
    numbers = [each for each in stated if type(each) is int]
    if len(numbers) != 3:
        return (), 0
    first, step, count = numbers
    if first < 0 or not 1 <= count <= _MOST_RANKS:
        return (), 0
    ranks = range(first, first + step * count, step) if step > 0 else ()
    return tuple(ranks), count


def _purpose(text: object) -> str:
    """Return what a group is for, nothing where nobody has said it."""
    if not isinstance(text, str) or text in _NO_PURPOSES:
        return ""
    return whole_text(text[:_LONGEST_PURPOSE])


def groups_text(groups: Iterable[tuple[str, str, Sequence[int]]]) -> str:
    """Return what ``initial_groups`` reads.

    Args:
        groups: Name, purpose and ranks of each.
    """
    return _groups_text(
        tuple((name, purpose, tuple(ranks)) for name, purpose, ranks in groups)
    )


# All ranks of a group write the same: a text of the last few serves thousands.
@lru_cache(maxsize=4)
def _groups_text(groups: tuple[tuple[str, str, tuple[int, ...]], ...]) -> str:
    entries = [
        {
            "pg_name": name,
            "pg_desc": purpose,
            "backend_config": "",
            "ranks": ranks,
            "group_size": len(ranks),
            "group_count": 1,
        }
        for name, purpose, ranks in groups
    ]
    return json.dumps(entries)


def _unread_groups(where: str) -> TraceError:
    return TraceError(where, "its process groups cannot be read", _INIT_HINT)


def inline_group(
    name: str, ranks: AttributeValue, where: str
) -> tuple[str, tuple[int, ...]]:
    """Return name and ranks of a group that a node spells out in its own attributes.

    Such names are those of a dimension ("tp"): ranks of different groups share them.
    So the ranks become part of the name.
    """
    members = _ranks(ranks, f"{where}: attribute ranks")
    return ranks_name(name or "group", members), members


def ranks_name(name: str, ranks: Sequence[int]) -> str:
    """Return the name of a group that shares its own with groups of other ranks."""
    return f"{name}[{_brief(ranks)}]"


def _ranks(value: Any, where: str) -> tuple[int, ...]:
    # Every one of a thousand ranks lists them all, so no step may be one of ours.
    if (
        not isinstance(value, list | tuple)
        or not {*map(type, value)} <= {int}
        or (value and not 0 <= min(value) <= max(value) < 2**31)
    ):
        raise TraceError(where, "is not a list of ranks", "e.g. [0, 1, 2, 3]")
    if len(set(value)) != len(value):
        raise TraceError(where, "names a rank twice", "e.g. [0, 1, 2, 3]")
    return tuple(value)


def _brief(ranks: Sequence[int]) -> str:
    """Return ranks as text, equal distances as in a Python slice: ``0:8:2``."""
    if len(ranks) > 2:
        step = ranks[1] - ranks[0]
        if step > 0 and list(ranks) == list(range(ranks[0], ranks[-1] + 1, step)):
            return f"{ranks[0]}:{ranks[-1] + 1}:{step}"
    return ",".join(map(str, ranks))


def encode_group_file(groups: Mapping[str, Sequence[int]]) -> bytes:
    """Return the text of a ``comm_group.json``.

    Raises:
        ValueError: If a name is not a number above 0, which the reference reader wants.
    """
    for name in groups:
        if not name.isdecimal() or int(name) < 1:
            raise ValueError(f"the name of a group is {name!r}, not a number above 0")
    lines = [f'  "{name}": {list(ranks)}' for name, ranks in groups.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()
