"""What stands in the inputs and outputs of PyTorch's nodes: tensors and split sizes.

A tensor is six values: ``[tensor id, storage id, offset, elements, bytes per element,
device]``; a list of tensors is a list of those, perhaps of lists again.  The parallel
list of types tells them from lists of numbers: ``Tensor(float)``,
``GenericList[Tensor(float)]``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from chakram.foundation.errors import TraceError

_MOST_BYTES = 2**50
_FIELDS: Final = 6
_HINT: Final = "is the file whole, and written by PyTorch?"

DTYPE_BYTES: Final = {
    "bool": 1, "byte": 1, "char": 1, "uint8": 1, "int8": 1,
    "short": 2, "half": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "float16": 2,
    "int": 4, "float": 4, "int32": 4, "uint32": 4, "float32": 4, "complexhalf": 4,
    "long": 8, "double": 8, "int64": 8, "uint64": 8, "float64": 8, "complexfloat": 8,
    "complexdouble": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip
"""Bytes of an element by its type in lower case, as in c10/core/ScalarType.h."""


class Tensor(NamedTuple):
    """What counts of a tensor here."""

    elements: int
    element_bytes: int

    @property
    def size_bytes(self) -> int:
        """Its elements in bytes."""
        return self.elements * self.element_bytes


def is_tensors(type_name: Any) -> bool:
    """Say whether a value of this type is a tensor or a list of them."""
    text = str(type_name)
    while text.startswith("GenericList["):
        text = text.removeprefix("GenericList[")
    return text.startswith("Tensor")


def tensors(value: Any, where: str) -> list[Tensor]:
    """Return the tensors in a value, in order, lists flattened.

    Raises:
        TraceError: At *where*, if it is made of something else.
    """
    found: list[Tensor] = []
    pending = [value]
    while pending:
        each = pending.pop()
        if not isinstance(each, list):
            raise TraceError(where, f"{_shown(each)} is no tensor", _HINT)
        if len(each) == _FIELDS and not isinstance(each[0], list):
            elements, size = each[3], each[4]
            if not _is_count(elements) or not _is_count(size):
                raise TraceError(where, f"{_shown(each)} is no tensor", _HINT)
            if elements * size > _MOST_BYTES:
                raise TraceError(
                    where, f"has a tensor of {elements * size} bytes", _HINT
                )
            found.append(Tensor(elements, size))
        else:
            pending.extend(reversed(each))
    return found


def total_bytes(found: Sequence[Tensor], where: str) -> int:
    """Return the bytes of all tensors together.

    Raises:
        TraceError: At *where*, if that is more than there can be.
    """
    return check_size(sum(each.size_bytes for each in found), where)


def check_size(size_bytes: int, where: str) -> int:
    """Return a size that may be.

    Raises:
        TraceError: At *where*, if it is more than there can be.
    """
    if size_bytes > _MOST_BYTES:
        raise TraceError(where, f"communicates {size_bytes} bytes", _HINT)
    return size_bytes


def split_sizes(value: Any, where: str) -> list[int]:
    """Return a list of split sizes: as a list, or as the text of one.

    Raises:
        TraceError: At *where*, if it is something else.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value) if value else []
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list) or not all(map(_is_count, value)):
        raise TraceError(where, "its split sizes are no list of numbers", _HINT)
    return value


def split_bytes(
    splits: Sequence[int], buffer: Sequence[Tensor], where: str
) -> tuple[int, ...]:
    """Return split sizes, which count rows of a buffer, in bytes.

    Raises:
        TraceError: At *where*, if the rows do not make up the buffer.
    """
    elements = sum(each.elements for each in buffer)
    rows = sum(splits)
    if not rows:
        if elements:
            raise TraceError(
                where,
                f"its splits are all 0, its buffer has {elements} elements",
                _HINT,
            )
        return (0,) * len(splits)
    if elements % rows:
        raise TraceError(
            where,
            f"its splits make {rows} rows, which do not divide {elements} elements",
            _HINT,
        )
    row_bytes = elements // rows * buffer[0].element_bytes if buffer else 0
    return tuple(rows * row_bytes for rows in splits)


def _is_count(value: Any) -> bool:
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and 0 <= value <= _MOST_BYTES
    )


def _shown(value: Any) -> str:
    return repr(value)[:60]
