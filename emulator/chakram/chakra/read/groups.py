"""Process groups of traces, defined in a JSON file, a dedicated node or attributes.

A numeric name may be written ``4`` or ``4.0``. Both are normalized to ``4``. Group
``0`` or an empty name means all ranks, unless a group file defines group ``0``. The
reference simulator ignores such a definition, but producers that write one rely on it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from chakram.chakra.read.json_scan import whole_text
from chakram.collectives.groups import WORLD
from chakram.foundation.errors import TraceError

if TYPE_CHECKING:
    from chakram.chakra.et_codec import AttributeValue

_DECIMAL = re.compile(r"[0-9]+(\.0*)?")
_INIT_NODE = "process_group:init"
RECORD = "record_param_comms"
"""Name of the node in which a PyTorch backend records the arguments of a transfer."""

_MOST_RANKS = 1 << 20
GROUPS_ATTRIBUTE = "process_groups"
"""Metadata attribute with the process groups, in traces that Chakram wrote."""

_INIT_TEXT_LIMIT = 4 * 2**20
_INIT_HINT = "use a list with one JSON text, as PyTorch writes it"

_RANKS_KEY = '"ranks": ['
_SHORT_LIST = 32
"""Lists of ranks with up to this many characters are too short to cache."""

_LONG_LIST = 1 << 20
"""Lists with this many characters or more are too long to cache.

A list of 65,536 ranks has about half as many characters.
"""

_LONGEST_BRIEF = 256
"""Maximum number of characters for the list of ranks in a group name."""

_NO_LITERAL = (ValueError, SyntaxError, RecursionError, MemoryError)
_NO_PURPOSES = ("undefined", "default_pg")
_LONGEST_PURPOSE = 60

ALL_RANKS_NAMES = frozenset({"", "0"})
"""Names that mean all ranks, unless a group file defines them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialGroup:
    """A process group that a PyTorch node or Chakram's metadata describes.

    Attributes:
        name: Normalized name of the group.
        ranks: The members. Empty means all ranks of the job, or unknown members (see
            ``even_ranks``).
        size: Number of members.
        pointer: The value that identifies the group in operations of schema 1.0.2.
        purpose: The purpose, as described by the creator of the group.
        least_ranks: Minimum number of ranks in a job with this group.
    """

    name: str
    ranks: tuple[int, ...]
    size: int
    pointer: int | None
    purpose: str
    least_ranks: int = 0

    def __post_init__(self) -> None:
        if not self.least_ranks:
            least = max(self.size, max(self.ranks, default=-1) + 1)
            object.__setattr__(self, "least_ranks", least)


def normal_name(name: str) -> str:
    """Return a group's name with numbers in their shortest form.

    For example, ``04.0`` becomes ``4``.
    """
    name = whole_text(name).strip()
    if _DECIMAL.fullmatch(name):
        return name.partition(".")[0].lstrip("0") or "0"
    return name


def parse_group_file(text: bytes, source: str) -> dict[str, tuple[int, ...]]:
    """Return the groups of a ``comm_group.json``: ids mapped to lists of global ranks.

    Raises:
        TraceError: If the content is not one object of lists of distinct ranks.
    """
    hint = 'e.g. {"1": [0, 1], "2": [2, 3]}'
    try:
        pairs = json.loads(text, object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        raise TraceError(source, f"is not JSON: {error}", hint) from error
    # Objects are parsed as tuples of pairs, which reveals duplicate keys.
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
                "rename it: this name is reserved for the group of all ranks",
            )
        groups[name] = _ranks(ranks, f"{source}: group {name!r}")
        if not groups[name]:
            raise TraceError(f"{source}: group {name!r}", "has no ranks", hint)
    return groups


def is_process_group_init(name: str) -> bool:
    """Return whether a metadata node of this name contains PyTorch's process groups."""
    return _INIT_NODE in name


def process_groups_of_init(values: str, where: str) -> list[InitialGroup]:
    """Return the groups of PyTorch's ``process_group:init`` node.

    Args:
        values: The ``inputs.values`` of the node: the text of a Python list with one
            element. The element is a JSON document with a list of groups.
        where: Location of the node.

    Returns:
        The groups in the order of their creation. The default group, ``0``, contains
        all ranks.

    Raises:
        TraceError: If the value has another format.
    """
    if len(values) > _INIT_TEXT_LIMIT:
        raise TraceError(where, f"has {len(values)} characters of groups", _INIT_HINT)
    try:
        # literal_eval builds only plain values and executes no code.
        outer = ast.literal_eval(values)
        text = outer[0]
    except (TypeError, LookupError, *_NO_LITERAL) as error:
        raise _unread_groups(where) from error
    return initial_groups(text, where)


def initial_groups(text: object, where: str) -> list[InitialGroup]:
    """Return the groups in JSON from PyTorch or from ``groups_text``, in order.

    Raises:
        TraceError: If the value has another format.
    """
    if not isinstance(text, str) or len(text) > _INIT_TEXT_LIMIT:
        raise _unread_groups(where)
    with suppress(TraceError):  # raised again below, with its location
        return list(_same_groups(text))
    return _read_groups(text, where)


# All ranks of a job have the same text, with thousands of members in large jobs.
@lru_cache(maxsize=4)
def _same_groups(text: str) -> tuple[InitialGroup, ...]:
    return tuple(_read_groups(text, ""))


def _read_groups(text: str, where: str) -> list[InitialGroup]:
    short, lists = _set_aside(text)
    try:
        entries = []
        for entry in json.loads(short):
            ranks = entry["ranks"]
            if isinstance(ranks, dict):
                ranks = lists.pop(ranks[""])
            entries.append((normal_name(str(entry["pg_name"])), ranks, entry))
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
        place = f"{where}: group {name!r}"
        least = 0
        if isinstance(ranks, _RankList):
            members, least = ranks
        else:
            members = _ranks(ranks, place)
        if type(size) is not int or not 0 <= size < 2**31:
            raise TraceError(
                place, f"has {size!r:.40} ranks", "use a whole number (group_size)"
            )
        groups.append(
            InitialGroup(
                name=name,
                ranks=members,
                size=len(members) or size,
                pointer=pointer if type(pointer) is int else None,
                purpose=_purpose(purpose),
                least_ranks=least and max(least, len(members) or size),
            )
        )
    return groups


class _RankList(NamedTuple):
    """The members of a group, and the minimum number of ranks in the job."""

    members: tuple[int, ...]
    least_ranks: int


def _set_aside(text: str) -> tuple[str, dict[int, _RankList]]:
    """Return JSON text without the lists of ranks to cache, and the removed lists.

    A list is replaced by an object with its number under an empty key. Thousands of
    traces repeat the same lists of thousands of ranks, so each is parsed only once.
    """
    lists: dict[int, _RankList] = {}
    parts, done = [], 0
    while (begin := text.find(_RANKS_KEY, done)) >= 0:
        begin += len(_RANKS_KEY) - 1
        end = text.find("]", begin) + 1
        if not end:
            break
        parts.append(text[done:begin])
        is_cached = _SHORT_LIST < end - begin < _LONG_LIST
        found = _rank_list(text[begin:end]) if is_cached else None
        if found is None:
            parts.append(text[begin:end])
        else:
            parts.append(f'{{"": {len(lists)}}}')
            lists[len(lists)] = found
        done = end
    return "".join((*parts, text[done:])), lists


@lru_cache(maxsize=256)
def _rank_list(text: str) -> _RankList | None:
    """Return the ranks in a list, or None if the list is empty or invalid.

    The caller leaves such a list in the JSON text, so that ``_read_groups`` checks it.
    """
    try:
        members = _ranks(json.loads(text), "")
    except (ValueError, RecursionError, TraceError):
        return None
    return _RankList(members, max(members) + 1) if members else None


def group_of_record(values: str) -> InitialGroup | None:
    """Return the group that a ``record_param_comms`` node states, or None.

    Chakra's converter leaves such nodes as computations. The name of the group is empty
    if the node identifies the group by a value that is valid only within its process.

    Args:
        values: The ``inputs.values`` of the node, the text of a Python list. The list
            contains the tensors, then the sequence number, group, rank and name of the
            operation. The two splits follow, then the first rank, stride and number of
            the members.
    """
    if len(values) > _INIT_TEXT_LIMIT:
        return None
    try:
        # literal_eval builds only plain values and executes no code.
        parts = ast.literal_eval(values)
    except _NO_LITERAL:
        return None
    if not isinstance(parts, list):
        return None
    texts = [place for place, each in enumerate(parts) if isinstance(each, str)]
    if not texts or texts[-1] < 3:
        return None
    group = parts[texts[-1] - 2]
    if isinstance(group, list | tuple) and group:  # [name, description]
        group = group[0]
    ranks, size = even_ranks(parts[texts[-1] + 3 : texts[-1] + 6])
    if not size:
        return None
    name = normal_name(group) if isinstance(group, str) else ""
    return InitialGroup(name=name, ranks=ranks, size=size, pointer=None, purpose="")


def even_ranks(stated: Sequence[Any]) -> tuple[tuple[int, ...], int]:
    """Return a group's members and size, given its first rank, stride and size.

    If the members are not evenly spaced, the stride is -1 and only the size is known.
    Invalid values give no members and size 0.
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
    """Return the purpose of a group, or an empty string if none is stated."""
    if not isinstance(text, str) or text in _NO_PURPOSES:
        return ""
    return whole_text(text[:_LONGEST_PURPOSE])


def groups_text(groups: Iterable[tuple[str, str, Sequence[int]]]) -> str:
    """Return groups as a string that ``initial_groups`` parses.

    Args:
        groups: Name, purpose and ranks of each group.
    """
    texts = (
        _group_text(name, purpose, tuple(ranks)) for name, purpose, ranks in groups
    )
    return f"[{', '.join(texts)}]"


# All ranks of a group write the same text, so a small cache serves thousands of ranks.
@lru_cache(maxsize=256)
def _group_text(name: str, purpose: str, ranks: tuple[int, ...]) -> str:
    return json.dumps(
        {
            "pg_name": name,
            "pg_desc": purpose,
            "backend_config": "",
            "ranks": ranks,
            "group_size": len(ranks),
            "group_count": 1,
        }
    )


def _unread_groups(where: str) -> TraceError:
    return TraceError(where, "its process groups are not readable", _INIT_HINT)


def inline_group(
    name: str, ranks: AttributeValue, where: str
) -> tuple[str, tuple[int, ...]]:
    """Return the name and ranks of a group that is defined in a node's attributes.

    The stored name is that of a dimension ("tp"), and groups with different ranks share
    it. Therefore the ranks become part of the returned name.
    """
    members = _ranks(ranks, f"{where}: attribute ranks")
    return ranks_name(name or "group", members), members


def ranks_name(name: str, ranks: Sequence[int]) -> str:
    """Append the group's ranks to its name, to distinguish groups with equal names."""
    return f"{name}[{_brief(ranks)}]"


def _ranks(value: Any, where: str) -> tuple[int, ...]:
    # Each of a thousand ranks lists all ranks, so avoid loops in Python here.
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
    """Return a short text that identifies these ranks.

    Evenly spaced ranks look like a Python slice: ``0:8:2``. Long lists are abbreviated,
    because names have a limited length.
    """
    if len(ranks) > 2:
        step = ranks[1] - ranks[0]
        if step > 0 and list(ranks) == list(range(ranks[0], ranks[-1] + 1, step)):
            return f"{ranks[0]}:{ranks[-1] + 1}:{step}"
    text = ",".join(map(str, ranks))
    if len(text) <= _LONGEST_BRIEF:
        return text
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    return f"{ranks[0]},{ranks[1]},...,{ranks[-1]}#{digest}"


def encode_group_file(groups: Mapping[str, Sequence[int]]) -> bytes:
    """Return the content of a ``comm_group.json``.

    Raises:
        ValueError: If a name is not a positive number. The reference reader accepts no
            other names.
    """
    for name in groups:
        if not name.isdecimal() or int(name) < 1:
            raise ValueError(f"the name of a group is {name!r}, not a number above 0")
    lines = [f'  "{name}": {list(ranks)}' for name, ranks in groups.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()
