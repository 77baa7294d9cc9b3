"""Every real trace set that is a job completes in virtual time, with exact bytes.

What has to be sent is counted here from the records of the files, by another way than
the product reads them, and with closed forms: with the algorithms named here an
all-gather of shards of S bytes moves n (n - 1) S in all, an all-reduce 2 (n - 1) S, and
the others (n - 1) S.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from chakram.chakra import et_pb2
from chakram.chakra.finding import find_trace_set
from chakram.chakra.framing import read_records
from tests.e2e.accounts import check_complete
from tests.e2e.runs import completed, star, write_experiment

ALGORITHMS = {
    "all_reduce": "halving_doubling",
    "all_gather": "ring",
    "reduce_scatter": "ring",
    "all_to_all": "direct",
    "broadcast": "tree",
}
COLLECTIVES = {
    0: "all_reduce",
    2: "all_gather",
    5: "broadcast",
    6: "all_to_all",
    7: "reduce_scatter",
    9: "barrier",
}
WORDS = {"ALL_REDUCE": 0, "ALL_GATHER": 2, "ALL_TO_ALL": 6, "REDUCE_SCATTER": 7}
TYPES = {"comm_send_node": 5, "comm_recv_node": 6, "coll_comm_node": 7, "comp_node": 4}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A set: its ranks, what one unit of a size is worth, and how much is replayed."""

    path: str
    ranks: int
    scale: str = "1"
    unit: int = 1


def _stage(name: str, ranks: int, scale: str = "1/65536") -> Case:
    return Case(path=f"stage/{name}", ranks=ranks, scale=scale, unit=2)


CASES = [
    *(
        Case(path=f"astra_sim_microbenchmarks/{op}/{ranks}npus_1MB", ranks=ranks)
        for op in ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
        for ranks in (4, 8, 16)
    ),
    *(
        Case(path=f"chakra_generator_1.0.0_4r/generator_4r.tar.gz/{op}", ranks=4)
        for op in (
            "ALL_GATHER",
            "ALL_REDUCE",
            "ALL_TO_ALL",
            "BARRIER",
            "BROADCAST",
            "REDUCE_SCATTER",
        )
    ),
    Case(path="astra_sim_custom_collective_ring8", ranks=8),
    Case(path="text_converter_8r/DLRM_HybridParallel", ranks=8),
    Case(path="text_converter_8r/MLP_HybridParallel_Data_Model", ranks=8),
    Case(path="text_converter_8r/Resnet50_DataParallel.tar.gz", ranks=8, scale="1/64"),
    Case(
        path="astra_sim_2023_resnet50_dp64/resnet50_dp64.tar.gz",
        ranks=64,
        scale="1/4096",
    ),
    Case(
        path="deepflow_llm_graph_16r/llm_graph_16r.tar.gz",
        ranks=16,
        scale="1/16777216",
    ),
    _stage("dense_llama_fsdp8_8r", 8),
    _stage("dense_llama_legacyattr_tp2_dp2_4r", 4),
    _stage("dense_llama_tp4_pp2_dp2_16r.tar.gz", 16),
    _stage("moe_mixtral_ep4_fsdp2_tp1_8r", 8),
    _stage("moe_mixtral_ep4_tp2_8r", 8),
    _stage("moe_mixtral_ep4_tp2_pp2_16r.tar.gz", 16),
    _stage("moe_mixtral_ep8_tp2_16r.tar.gz", 16),
    _stage("moe_mixtral_ep8_tp2_pp2_32r.tar.gz", 32),
    _stage("moe_mixtral_ep8_tp2_pp2_dp2_64r.tar.gz", 64),
    _stage("moe_mixtral_32layers_ep8_pp4_32r.tar.gz", 32),
    Case(
        path="json_variants/stage_json_backend_pp2_dp2_4r",
        ranks=4,
        scale="1/1024",
        unit=2,
    ),
    Case(path="json_variants/chakra_jsonizer/all_to_all_4npus", ranks=4),
    Case(path="edge_synthetic/p2p_no_src_on_send", ranks=2),
]


def nodes_of(data: bytes, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number of the type and attributes of every node of a file."""
    if name.endswith(".et"):
        for _, body in read_records([data], source=name):
            node = et_pb2.Node()
            # Metadata is no node, or one of type 0 without attributes.
            with contextlib.suppress(DecodeError):
                node.ParseFromString(body)
            values = {}
            for attribute in node.attr:
                arm = attribute.WhichOneof("value")
                if arm and not arm.endswith("_list"):
                    values[attribute.name] = getattr(attribute, arm)
            yield int(node.type), values
    elif b'"nodes"' in data[:20]:
        for node in json.loads(data)["nodes"]:
            yield (
                TYPES[node["node_type"]],
                {
                    **node,
                    "comm_type": WORDS.get(node.get("comm_type"), -1),
                },
            )
    else:
        decoder, text = json.JSONDecoder(), data.decode()
        _, at = decoder.raw_decode(text)
        node, _ = decoder.raw_decode(text, at)
        assert node["type"] == "COMM_COLL_NODE"
        values = {each["name"]: each.get("int64Val") for each in node["attr"]}
        yield 7, {name: int(value) for name, value in values.items() if value}


def work_of(path: Path, unit: int) -> Iterator[tuple[str, str, int]]:
    """Yield collective or message, group and size in bytes of all ranks' nodes."""
    with find_trace_set(path) as found:
        for rank, name in found.files.items():
            with found.store.open(name) as stream:
                data = stream.read(2**30)
            for node_type, values in nodes_of(data, name):
                group = str(values.get("pg_name", values.get("comm_group", "")))
                if node_type == 7:
                    what = COLLECTIVES[values["comm_type"]]
                    yield what, group, values.get("comm_size", 0) * unit
                elif node_type == 5:
                    yield "send", str(rank), values["comm_size"] * unit


def groups_of(path: Path, ranks: int) -> dict[str, int]:
    """Return the number of ranks of every group."""
    with find_trace_set(path) as found:
        if found.group_file is not None:
            with found.store.open(found.group_file) as stream:
                text = stream.read(2**24)
        elif found.group_path is not None:
            text = found.group_path.read_bytes()
        else:
            text = b"{}"
    return {"": ranks, **{name: len(of) for name, of in json.loads(text).items()}}


def expected_bytes(path: Path, case: Case) -> int:
    """Return what all ranks together have to send, by closed forms."""
    sizes = groups_of(path, case.ranks)
    total = 0
    counts = Counter(work_of(path, case.unit))
    for (what, group, size_bytes), count in counts.items():
        scaled = round_scaled(size_bytes, Fraction(case.scale))
        if what == "send":
            total += count * scaled
            continue
        n = sizes[group]
        # Each of n members has the node.
        assert count % n == 0
        moved = {
            "all_reduce": 2 * (n - 1),
            "all_gather": n * (n - 1),
            "reduce_scatter": n - 1,
            "all_to_all": n - 1,
            "broadcast": n - 1,
            "barrier": 0,
        }[what]
        total += count // n * moved * scaled
    return total


def round_scaled(size_bytes: int, scale: Fraction) -> int:
    """Return a size as an experiment with that scale has it: rounded up."""
    return math.ceil(size_bytes * scale)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.path)
def test_a_job_completes_and_every_byte_is_sent(
    tmp_path: Path, chakram_data: Path, case: Case
) -> None:
    path = chakram_data / "traces" / case.path
    job = {
        "name": "job",
        "trace": {"path": str(path), "bytes_per_element": case.unit},
        "compute": {"from": "none"},
        "size_scale": case.scale,
    }
    experiment = write_experiment(
        tmp_path,
        [job],
        star(case.ranks, rate="100Gbit"),
        collectives=ALGORITHMS,
    )

    results = completed(experiment, verb="simulate").results

    check_complete(results, ranks=case.ranks)
    flows = results.table("flows", "collective", "bytes").to_pylist()
    carried = sum(row["bytes"] for row in flows if row["collective"] != "barrier")
    assert carried == expected_bytes(path, case)
