"""Tensors and split sizes in the inputs and outputs of PyTorch's nodes.

A tensor is a list of six values:
``[tensor id, storage id, offset, elements, bytes per element, device]``. A list of
tensors is a list of such lists, possibly nested. The parallel list of types
distinguishes tensors from lists of numbers: ``Tensor(float)``,
``GenericList[Tensor(float)]``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from chakram.foundation.errors import TraceError

_MOST_BYTES = 2**50
_FIELDS: Final = 6
_HINT: Final = "check that PyTorch wrote the file and that it is complete"

DTYPE_BYTES: Final = {
    "bool": 1, "byte": 1, "char": 1, "uint8": 1, "int8": 1,
    "short": 2, "half": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "float16": 2,
    "int": 4, "float": 4, "int32": 4, "uint32": 4, "float32": 4, "complexhalf": 4,
    "long": 8, "double": 8, "int64": 8, "uint64": 8, "float64": 8, "complexfloat": 8,
    "complexdouble": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip
"""Bytes per element by lower-case type name, as in c10/core/ScalarType.h."""


class Tensor(NamedTuple):
    """The relevant values of a tensor."""

    elements: int
    element_bytes: int

    @property
    def size_bytes(self) -> int:
        """Size in bytes."""
        return self.elements * self.element_bytes


def is_tensors(type_name: Any) -> bool:
    """Return whether a value of this type is a tensor or a list of tensors."""
    text = str(type_name)
    while text.startswith("GenericList["):
        text = text.removeprefix("GenericList[")
    return text.startswith("Tensor")


def tensors(value: Any, where: str) -> list[Tensor]:
    """Return the tensors in a value, in order, with lists flattened.

    Raises:
        TraceError: If the value contains anything else. *where* is the error's
            location.
    """
    found: list[Tensor] = []
    pending = [value]
    while pending:
        each = pending.pop()
        if not isinstance(each, list):
            raise TraceError(where, f"{_shown(each)} is not a tensor", _HINT)
        if len(each) == _FIELDS and not isinstance(each[0], list):
            elements, size = each[3], each[4]
            if not _is_count(elements) or not _is_count(size):
                raise TraceError(where, f"{_shown(each)} is not a tensor", _HINT)
            if elements * size > _MOST_BYTES:
                raise TraceError(
                    where, f"has a tensor of {elements * size} bytes", _HINT
                )
            found.append(Tensor(elements, size))
        else:
            pending.extend(reversed(each))
    return found


def total_bytes(found: Sequence[Tensor], where: str) -> int:
    """Return the total bytes of all tensors.

    Raises:
        TraceError: If the total is implausibly large. *where* is the error's location.
    """
    return check_size(sum(each.size_bytes for each in found), where)


def check_size(size_bytes: int, where: str) -> int:
    """Return *size_bytes* if it is plausible.

    Raises:
        TraceError: If it is implausibly large. *where* is the error's location.
    """
    if size_bytes > _MOST_BYTES:
        raise TraceError(where, f"communicates {size_bytes} bytes", _HINT)
    return size_bytes


def split_sizes(value: Any, where: str) -> list[int]:
    """Return a list of split sizes from a list, or from a list written as a string.

    Raises:
        TraceError: If the value is neither of these. *where* is the error's location.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value) if value else []
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list) or not all(map(_is_count, value)):
        raise TraceError(where, "its split sizes are not a list of numbers", _HINT)
    return value


def split_bytes(
    splits: Sequence[int], buffer: Sequence[Tensor], where: str
) -> tuple[int, ...]:
    """Convert split sizes from rows of a buffer to bytes.

    Raises:
        TraceError: If the rows do not fit the buffer. *where* is the error's location.
    """
    elements = sum(each.elements for each in buffer)
    rows = sum(splits)
    if not rows:
        if elements:
            raise TraceError(
                where,
                f"its splits are all 0, but its buffer has {elements} elements",
                _HINT,
            )
        return (0,) * len(splits)
    if elements % rows:
        raise TraceError(
            where,
            f"its splits add up to {rows} rows, which do not divide {elements} "
            "elements",
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
