"""What a compute node computes, by its operator or its name: the columns of a table.

The Chakra paper counts computation as GeMM, attention, element-wise and others (its
Table 5).  STAGE states operators (``op_type``), which count first; its names are those
of tensors, and only those of attention tell more.  Elsewhere names tell it, more or
less: PyTorch's are those of operators (``aten::addmm``) and of CUDA kernels
(``sm80_xmma_gemm...``).  Of nested operators only the innermost counts:
``aten::linear`` is a wrapper round ``aten::addmm``, hence among the others.  Chakram's
own are those of parts of a layer; each counts as what takes most of its time: of an
expert, its matrix products.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache


class KernelClass(StrEnum):
    """Kinds of computation, in the order of the table."""

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
"""What ``chakram.synth`` calls its nodes."""

_OP_TYPES = {
    "M": KernelClass.GEMM,
    "A": KernelClass.ELEMENTWISE,
    "E": KernelClass.ELEMENTWISE,
    "E2": KernelClass.ELEMENTWISE,
    "B": KernelClass.OTHER,
    "R": KernelClass.OTHER,
    "SLICE": KernelClass.OTHER,
}
"""STAGE's operators (``symbolic_tensor_graph/ops``): products, sums, functions of one
and of two elements; and what moves elements: broadcasts, reshapes and slices."""

_COUNTER = re.compile(r"\(\d+\)$")
"""Some converters number the calls of an operator: ``aten::mul(322)``."""


@lru_cache(maxsize=65536)
def kernel_class(name: str, op_type: str = "") -> KernelClass:
    """Return what kind of computation a node is.

    Args:
        name: Its name.
        op_type: The operator that it states; empty: none.
    """
    plain = _COUNTER.sub("", name.lower())
    # STAGE's attention is made of several operators.
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
