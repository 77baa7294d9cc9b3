"""Kernel types from names of compute nodes."""

from __future__ import annotations

import pytest

from chakram.chakra.summary.kernel_classes import KernelClass, kernel_class


@pytest.mark.parametrize(
    ("name", "op_type", "kernel"),
    [
        ("mb0.mha.qkv@0_COMP", "M", KernelClass.GEMM),
        ("mb0.mha_res.y@0_COMP", "A", KernelClass.ELEMENTWISE),
        ("mb0.input_norm.y@0_COMP", "E", KernelClass.ELEMENTWISE),
        ("mb0.moe.y2@0_COMP", "E2", KernelClass.ELEMENTWISE),
        ("mb0.mha.q@0_COMP", "SLICE", KernelClass.OTHER),
        ("aten::mm", "R", KernelClass.OTHER),
        ("mb0.mha.attn_kernel.dk@0_COMP", "SLICE", KernelClass.ATTENTION),
        ("mb0.mha.attn_kernel.qkv@0_COMP", "CUSTOM", KernelClass.ATTENTION),
        ("in_emb.dw@1_COMP", "CUSTOM", KernelClass.OTHER),
        ("aten::mm", "unknown", KernelClass.GEMM),
    ],
)
def test_a_stated_operator_counts_before_the_name(
    name: str, op_type: str, kernel: KernelClass
) -> None:
    assert kernel_class(name, op_type) is kernel


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("aten::mm", KernelClass.GEMM),
        ("aten::addmm(7)", KernelClass.GEMM),
        ("aten::linear", KernelClass.OTHER),
        ("ampere_fp16_s16816gemm_fp16_128x64", KernelClass.GEMM),
        ("aten::convolution_backward(346)", KernelClass.GEMM),
        ("void flash::flash_fwd_kernel<...>", KernelClass.ATTENTION),
        ("layer0.forward.attention", KernelClass.ATTENTION),
        ("mb0.transformer.0.post_attn_norm.y@0_COMP", KernelClass.OTHER),
        ("self_attention_norm", KernelClass.OTHER),
        ("aten::add_(170)", KernelClass.ELEMENTWISE),
        ("aten::threshold_backward", KernelClass.ELEMENTWISE),
        ("void at::native::vectorized_elementwise_kernel<4>", KernelClass.ELEMENTWISE),
        ("aten::address", KernelClass.OTHER),
        ("mb0.layer0.forward.expert", KernelClass.GEMM),
        ("request1.step0.layer31.ffn", KernelClass.GEMM),
        ("layer2.backward.attention.project", KernelClass.GEMM),
        ("layer2.backward.attention.scores", KernelClass.ATTENTION),
        ("mb1.output.forward", KernelClass.GEMM),
        ("mb1.embedding.forward", KernelClass.OTHER),
        ("optimizer", KernelClass.ELEMENTWISE),
        ("some.expert", KernelClass.OTHER),
        ("mb0.mha.qkv@0_COMP", KernelClass.OTHER),
        ("mb0.mha.attn_kernel.dq@0_COMP", KernelClass.ATTENTION),
        ("", KernelClass.OTHER),
    ],
)
def test_names_determine_the_kernel_type(name: str, kernel: KernelClass) -> None:
    assert kernel_class(name) is kernel
