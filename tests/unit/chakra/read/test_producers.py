"""Recognition of the tool that wrote a trace."""

from __future__ import annotations

import pytest

from tests.trace_bytes import collective, metadata, node, read


@pytest.mark.parametrize(
    ("records", "producer"),
    [
        ([metadata(schema="1.0.1"), node(1)], "PyTorch converter"),
        ([metadata(schema="1.1.1-chakra.0.0.4"), node(1)], "PyTorch converter"),
        ([metadata(input_file="MICRO\n1")], "text converter"),
        ([metadata(input_file="<algo name=")], "MSCCL converter"),
        ([metadata(input_file="x", collective="allreduce")], "MSCCL converter"),
        ([metadata(producer="x" * 99)], "x" * 80),
        ([metadata(), node(1, name="COMP_NODE")], "Chakra generator"),
        ([metadata("1.0.0"), collective(1, name="ALL_TO_ALL")], "Chakra generator"),
        ([metadata(), collective(1, name="all_gather_4npus_1MB")], "ASTRA-sim example"),
        (
            [metadata(), node(1), node(2, name="send_dp0", ctrl_deps=[1])],
            "DeepFlow",
        ),
        ([metadata(), node(1), node(2, name="send_dp0", data_deps=[1])], "unknown"),
        ([metadata(), node(1, name="COMP_NODE"), node(2, name="mine")], "unknown"),
        ([metadata(tool="x"), node(1, name="COMP_NODE")], "unknown"),
        ([metadata()], "unknown"),
        ([node(1, num_ops=5), node(2)], "unknown"),
    ],
)
def test_producer_is_recognized_by_its_marks(
    records: list[bytes], producer: str
) -> None:
    assert read(*records).producer == producer
