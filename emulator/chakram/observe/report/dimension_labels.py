"""What the labels of parallel dimensions mean, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

_TENSOR = "tensor parallelism: each rank has a part of every matrix of a layer"
_CONTEXT = "context parallelism: each rank has a part of every sequence"
_EXPERT = "expert parallelism: each rank has some of a layer's experts"
_SHARDED = "sharded data parallelism: each rank stores a part of a copy of the model"
_EXPERT_DATA = "ranks with copies of the same experts, which sum up their gradients"
_DATA = "data parallelism: ranks with copies of the model, which sum up gradients"
_PIPELINE = "pipeline parallelism: each rank has some layers, one stage after the other"

_WORDS: Final[Mapping[str, str]] = {
    "tensor": _TENSOR,
    "tp": _TENSOR,
    "context": _CONTEXT,
    "cp": _CONTEXT,
    "expert": _EXPERT,
    "ep": _EXPERT,
    "expert data": _EXPERT_DATA,
    "expert dp": _EXPERT_DATA,
    "edp": _EXPERT_DATA,
    "sharded data": _SHARDED,
    "fsdp": _SHARDED,
    "data": _DATA,
    "dp": _DATA,
    "pipeline": _PIPELINE,
    "pp": _PIPELINE,
}
"""By label, in lower case."""

_LONGEST_FIRST: Final = sorted(_WORDS, key=len, reverse=True)
_LABEL: Final = re.compile(rf"(?<![a-z])({'|'.join(_LONGEST_FIRST)})(?![a-z])")


def dimension_words(names: Iterable[str]) -> str:
    """Return what the labels in some names mean; nothing where there are none.

    Args:
        names: Names of process groups, or what they are for: ``tp[0:8]``, ``expert``,
            ``TENSOR_MODEL_PARALLEL_GROUP``.
    """
    found = {
        label
        for name in names
        for label in _LABEL.findall(name.lower().replace("_", " "))
    }
    return "; ".join(
        f"{label}: {words}" for label, words in _WORDS.items() if label in found
    )
