"""Contents of each set of real traces, as counted by its author."""

from __future__ import annotations

from dataclasses import dataclass, field

from chakram.chakra.lint.replay_blockers import ProblemKind
from chakram.chakra.trace_warning import WarningKind
from chakram.trace.node import NO_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Contents of a set: number, smallest and largest size of its operations."""

    path: str
    ranks: int
    nodes: int
    comm: dict[str, tuple[int, int, int]]
    producer: str = "STAGE"
    warnings: frozenset[WarningKind] = frozenset()
    problems: frozenset[ProblemKind] = frozenset()
    groups: int = field(default=0)


def _micro(op: str, ranks: int) -> Expected:
    return Expected(
        path=f"astra_sim_microbenchmarks/{op}/{ranks}npus_1MB",
        ranks=ranks,
        nodes=ranks,
        comm={op: (ranks, 2**20, 2**20)},
        producer="ASTRA-sim example",
    )


def _generator(name: str, comm: dict[str, tuple[int, int, int]]) -> Expected:
    return Expected(
        path=f"chakra_generator_1.0.0_4r/generator_4r.tar.gz/{name}",
        ranks=4,
        nodes=4,
        comm=comm,
        producer="Chakra generator",
    )


def _symbolic(name: str, *, ranks: int, nodes: int, messages: int) -> Expected:
    return Expected(
        path=f"msccl_custom_symbolic/{name}",
        ranks=ranks,
        nodes=nodes,
        comm=dict.fromkeys(("send", "receive"), (messages, NO_SIZE, NO_SIZE)),
        producer="MSCCL converter",
        warnings=frozenset({WarningKind.NO_SIZE, WarningKind.COLLECTIVE_BODY}),
        problems=frozenset({ProblemKind.NO_SIZE}),
    )


SETS = [
    *(
        _micro(op, ranks)
        for op in ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
        for ranks in (4, 8, 16)
    ),
    *(
        _generator(op.upper(), {op: (4, size, size)})
        for op, size in (
            ("all_gather", 65_536),
            ("all_reduce", 65_536),
            ("all_to_all", 65_536),
            ("barrier", 0),
            ("broadcast", 65_536),
            ("reduce_scatter", 65_536),
        )
    ),
    Expected(
        path="astra_sim_custom_collective_ring8",
        ranks=8,
        nodes=280,
        comm={"send": (112, 131_072, 131_072), "receive": (112, 131_072, 131_072)},
        producer="MSCCL converter",
        warnings=frozenset({WarningKind.COLLECTIVE_BODY}),
    ),
    _symbolic("ring_allgather_8r", ranks=8, nodes=112, messages=56),
    _symbolic("ring_allreduce_4r", ranks=4, nodes=60, messages=24),
    _symbolic("ring_allreduce_8r", ranks=8, nodes=280, messages=112),
    Expected(
        path="chakra_tests/feeder_tests_trace.tar.gz",
        ranks=1,
        nodes=3_664,
        comm={
            "broadcast": (2, 424, 212_480),
            "all_reduce": (5, 8_196_000, 31_502_336),
        },
        producer="PyTorch converter",
        warnings=frozenset(
            {
                WarningKind.COLLECTIVE_LABEL,
                WarningKind.SELF_CONTROL_DEPENDENCY,
                WarningKind.MISSING_CONTROL_DEPENDENCY,
                WarningKind.UNORDERED_KERNELS,
            }
        ),
    ),
    Expected(
        path="text_converter_8r/DLRM_HybridParallel",
        ranks=8,
        nodes=256,
        comm={
            "all_to_all": (16, 98_304, 98_304),
            "all_reduce": (56, 13_312, 1_064_960),
        },
        producer="text converter",
    ),
    Expected(
        path="text_converter_8r/MLP_HybridParallel_Data_Model",
        ranks=8,
        nodes=280,
        comm={
            "all_gather": (48, 37_632, 147_456),
            "all_reduce": (88, 37_632, 147_456),
        },
        producer="text converter",
    ),
    Expected(
        path="text_converter_8r/Resnet50_DataParallel.tar.gz",
        ranks=8,
        nodes=1_720,
        comm={"all_reduce": (432, 16_384, 9_437_184)},
        producer="text converter",
    ),
    Expected(
        path="astra_sim_2023_resnet50_dp64/resnet50_dp64.tar.gz",
        ranks=64,
        nodes=13_760,
        comm={"all_reduce": (3_456, 16_384, 9_437_184)},
        producer="text converter",
        warnings=frozenset(
            {
                WarningKind.NO_METADATA,
                WarningKind.CONTROL_ONLY,
            }
        ),
    ),
    Expected(
        path="deepflow_llm_graph_16r/llm_graph_16r.tar.gz",
        ranks=16,
        nodes=6_432,
        comm={
            "all_reduce": (2_080, 4_202_692_608, 141_641_646_080),
            "send": (96, 137_438_953_472, 137_438_953_472),
            "receive": (96, 137_438_953_472, 137_438_953_472),
        },
        producer="DeepFlow",
        warnings=frozenset({WarningKind.CONTROL_ONLY}),
        groups=4,
    ),
    Expected(
        path="pytorch_moe_gloo_8r/converted_et.tar.gz",
        ranks=8,
        nodes=5_388,
        comm={},
        producer="PyTorch converter",
        warnings=frozenset({WarningKind.MISSING_CONTROL_DEPENDENCY}),
        problems=frozenset({ProblemKind.LOST_COMMUNICATION}),
        groups=6,
    ),
    Expected(
        path="pytorch_moe_gloo_8r/host_et_json.tar.gz",
        ranks=8,
        # Of 5,396: what took time in the profile beside it, and the communication.
        nodes=5_212,
        comm={
            "all_to_all": (8, 64, 64),
            "all_to_all_v": (32, 72_192, 174_336),
            "all_reduce": (96, 32, 32_768),
            "barrier": (8, 0, 0),
        },
        producer="PyTorch",
        warnings=frozenset({WarningKind.GROUP_INFERRED}),
        groups=6,
    ),
    Expected(
        path="pytorch_dlrm_nccl_8r/dlrm_pytorch_et.tar.gz",
        ranks=8,
        nodes=88,
        comm={
            "all_to_all": (8, 192, 192),
            "all_to_all_v": (32, 1_536, 24_576),
            "all_reduce": (24, 448, 1_576_964),
        },
        producer="PyTorch",
        # Gradients that DDP sums up: it waits for them without a record.
        warnings=frozenset(
            {
                WarningKind.GROUP_OF_POINTER,
                WarningKind.NO_TIMES,
                WarningKind.WAIT_UNKNOWN,
            }
        ),
    ),
    Expected(
        path="stage/dense_llama_fsdp8_8r",
        ranks=8,
        nodes=2_864,
        comm={
            "all_gather": (128, 22_151_168, 22_151_168),
            "reduce_scatter": (64, 177_209_344, 177_209_344),
            "all_reduce": (16, 131_072_000, 131_072_000),
        },
        groups=17,
    ),
    Expected(
        path="stage/dense_llama_legacyattr_tp2_dp2_4r",
        ranks=4,
        nodes=472,
        comm={
            "all_gather": (48, 4_194_304, 4_194_304),
            "reduce_scatter": (32, 8_388_608, 8_388_608),
            "all_reduce": (24, 88_604_672, 131_072_000),
        },
        groups=8,
    ),
    Expected(
        path="stage/moe_mixtral_ep4_fsdp2_tp1_8r",
        ranks=8,
        nodes=2_512,
        comm={
            "all_gather": (160, 2_048, 138_413_056),
            "all_to_all": (128, 4_194_304, 4_194_304),
            "reduce_scatter": (32, 276_826_112, 276_826_112),
            "all_reduce": (16, 131_072_000, 131_072_000),
        },
        groups=22,
    ),
    Expected(
        path="stage/moe_mixtral_ep4_tp2_8r",
        ranks=8,
        nodes=2_896,
        comm={
            "all_gather": (384, 2_048, 4_194_304),
            "reduce_scatter": (192, 524_288, 8_388_608),
            "all_to_all": (128, 2_097_152, 2_097_152),
            "all_reduce": (16, 131_072_000, 131_072_000),
        },
        groups=22,
    ),
    Expected(
        path="stage/dense_llama_tp4_pp2_dp2_16r.tar.gz",
        ranks=16,
        nodes=3_456,
        comm={
            "all_gather": (384, 2_097_152, 2_097_152),
            "reduce_scatter": (256, 8_388_608, 8_388_608),
            "all_reduce": (96, 44_302_336, 131_072_000),
            "send": (32, 2_097_152, 2_097_152),
            "receive": (32, 2_097_152, 2_097_152),
        },
        groups=28,
    ),
    Expected(
        path="stage/moe_mixtral_32layers_ep8_pp4_32r.tar.gz",
        ranks=32,
        nodes=118_560,
        comm={
            "all_gather": (6_144, 1_024, 2_097_152),
            "all_to_all": (8_192, 4_194_304, 4_194_304),
            "send": (384, 16_777_216, 16_777_216),
            "receive": (384, 16_777_216, 16_777_216),
        },
        groups=100,
    ),
    Expected(
        path="stage/moe_mixtral_ep4_tp2_pp2_16r.tar.gz",
        ranks=16,
        nodes=2_960,
        comm={
            "all_gather": (384, 2_048, 4_194_304),
            "reduce_scatter": (192, 524_288, 8_388_608),
            "all_to_all": (128, 2_097_152, 2_097_152),
            "send": (32, 4_194_304, 4_194_304),
            "all_reduce": (16, 131_072_000, 131_072_000),
            "receive": (32, 4_194_304, 4_194_304),
        },
        groups=44,
    ),
    Expected(
        path="stage/moe_mixtral_ep8_tp2_16r.tar.gz",
        ranks=16,
        nodes=4_704,
        comm={
            "all_gather": (576, 1_024, 4_194_304),
            "reduce_scatter": (256, 262_144, 8_388_608),
            "all_to_all": (256, 1_048_576, 1_048_576),
            "all_reduce": (32, 131_072_000, 131_072_000),
        },
        groups=42,
    ),
    Expected(
        path="stage/moe_mixtral_ep8_tp2_pp2_32r.tar.gz",
        ranks=32,
        nodes=4_832,
        comm={
            "all_gather": (576, 1_024, 4_194_304),
            "reduce_scatter": (256, 262_144, 8_388_608),
            "all_to_all": (256, 1_048_576, 1_048_576),
            "send": (64, 4_194_304, 4_194_304),
            "all_reduce": (32, 131_072_000, 131_072_000),
            "receive": (64, 4_194_304, 4_194_304),
        },
        groups=84,
    ),
    Expected(
        path="stage/moe_mixtral_ep8_tp2_pp2_dp2_64r.tar.gz",
        ranks=64,
        nodes=9_856,
        comm={
            "all_gather": (1_152, 1_024, 4_194_304),
            "reduce_scatter": (512, 262_144, 8_388_608),
            "all_to_all": (512, 1_048_576, 1_048_576),
            "send": (128, 4_194_304, 4_194_304),
            "all_reduce": (256, 79_692_800, 131_072_000),
            "receive": (128, 4_194_304, 4_194_304),
        },
        groups=136,
    ),
]
