"""Classification of compute nodes by operator or name, for the columns of a table.

The Chakra paper (Table 5) divides computation into GeMM, attention, element-wise and
others. The class of a node comes from these sources:

* STAGE states the operator of a node (``op_type``), which takes precedence. STAGE names
  nodes after tensors. These names matter only for attention.
* PyTorch names nodes after operators (``aten::addmm``) and CUDA kernels
  (``sm80_xmma_gemm...``). Only the innermost of nested operators counts. For example,
  ``aten::linear`` wraps ``aten::addmm`` and is therefore in the class ``other``.
* Chakram names nodes after parts of a layer. Each node has the class of the computation
  that takes most of its time. For an expert, this is matrix multiplication.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache


class KernelClass(StrEnum):
    """Classes of computation, in the order of the table."""

    GEMM = "gemm"
    ATTENTION = "attention"
    ELEMENTWISE = "elementwise"
    OTHER = "other"


_ATTENTION = re.compile(
    r"flash|fmha|attn_kernel|scaled_dot_product|sdpa|(?<![a-z])attention(?![a-z_])"
)
_GEMM = re.compile(
    r"gemm|cutlass|cublas|scudnn|wgrad|dgrad"
    r"|(^|::)_?(mm|addmm|bmm|baddbmm|addbmm|scaled_mm|convolution\w*|conv\dd)$"
)
_ELEMENTWISE = re.compile(
    r"elementwise|(^|::)_?(add|sub|mul|div|neg|abs|exp|log|pow|sqrt|rsqrt|square"
    r"|reciprocal|addcmul|addcdiv|lerp|where|relu|relu6|gelu|silu|sigmoid|tanh"
    r"|leaky_relu|hardtanh|threshold|clamp|clamp_min|clamp_max|maximum|minimum"
    r"|dropout|native_dropout|masked_fill|fill|zero|copy|eq|ne|lt|le|gt|ge"
    r"|logical_\w+|bitwise_\w+)(_backward)?_?$"
)
_OWN_GEMM = re.compile(
    r"(^|\.)layer\d+\.((forward|backward)\.)?"
    r"(gate|expert|shared|ffn|attention\.(project|output))$"
    r"|(^|\.)output\.(forward|backward)$"
)
_OWN_ELEMENTWISE = re.compile(r"^optimizer$")
"""Pattern of the element-wise nodes that ``chakram.synth`` creates."""

_OP_TYPES = {
    "M": KernelClass.GEMM,
    "A": KernelClass.ELEMENTWISE,
    "E": KernelClass.ELEMENTWISE,
    "E2": KernelClass.ELEMENTWISE,
    "B": KernelClass.OTHER,
    "R": KernelClass.OTHER,
    "SLICE": KernelClass.OTHER,
}
"""STAGE's operators (``symbolic_tensor_graph/ops``).

In order: products, sums, functions of one element, functions of two elements,
broadcasts, reshapes and slices.
"""

_COUNTER = re.compile(r"\(\d+\)$")
"""Call number that some converters append to an operator: ``aten::mul(322)``."""


@lru_cache(maxsize=65536)
def kernel_class(name: str, op_type: str = "") -> KernelClass:
    """Return the class of a compute node.

    Args:
        name: The name of the node.
        op_type: The operator that the node states, or empty.
    """
    plain = _COUNTER.sub("", name.lower())
    # STAGE composes attention from several operators, so the node's name determines the
    # class.
    if op_type in _OP_TYPES and not _ATTENTION.search(plain):
        return _OP_TYPES[op_type]
    if _OWN_GEMM.search(plain):
        return KernelClass.GEMM
    if _ATTENTION.search(plain):
        return KernelClass.ATTENTION
    if _GEMM.search(plain):
        return KernelClass.GEMM
    if _ELEMENTWISE.search(plain) or _OWN_ELEMENTWISE.search(plain):
        return KernelClass.ELEMENTWISE
    return KernelClass.OTHER
