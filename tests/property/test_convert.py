"""Laws of converting traces."""

from __future__ import annotations

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakram.chakra.et_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node
from chakram.chakra.lint.replay_blockers import check_across_ranks, check_trace_set
from chakram.chakra.read.framing import frame
from chakram.chakra.sets.trace_set import load_trace_set
from chakram.chakra.summary.traffic import measure_traffic
from chakram.chakra.write.astra_collective import ASTRA_KEYS, astra_collective
from chakram.chakra.write.convert import TraceForm, convert_trace_set
from chakram.collectives.algorithms import algorithm, algorithm_names
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import transfer_bytes
from chakram.foundation.errors import ScheduleError

UINT64 = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ATTRIBUTE = st.one_of(
    st.builds(AttributeProto, name=TEXT, int64_val=st.integers(-(2**63), 2**63 - 1)),
    st.builds(AttributeProto, name=TEXT, fixed64_val=UINT64),
    st.builds(AttributeProto, name=TEXT, sint32_val=st.integers(-(2**31), 2**31 - 1)),
    st.builds(AttributeProto, name=TEXT, double_val=st.floats(allow_nan=False)),
    st.builds(
        AttributeProto, name=TEXT, float_val=st.floats(width=32, allow_nan=False)
    ),
    st.builds(AttributeProto, name=TEXT, bool_val=st.booleans(), doc_string=TEXT),
    st.builds(AttributeProto, name=TEXT, string_val=TEXT),
    st.builds(AttributeProto, name=TEXT, bytes_val=st.binary(max_size=9)),
    st.builds(
        AttributeProto,
        name=TEXT,
        uint64_list=st.builds(
            AttributeProto().uint64_list.__class__,
            values=st.lists(UINT64, max_size=3),
        ),
    ),
    st.builds(AttributeProto, name=TEXT),
)
INFO = st.builds(IOInfo, values=TEXT, shapes=TEXT, types=TEXT)
NODE = st.builds(
    Node,
    id=UINT64,
    name=TEXT,
    type=st.integers(0, 9),
    ctrl_deps=st.lists(UINT64, max_size=3),
    data_deps=st.lists(UINT64, max_size=3),
    start_time_micros=UINT64,
    duration_micros=UINT64,
    inputs=st.none() | INFO,
    outputs=st.none() | INFO,
    attr=st.lists(ATTRIBUTE, max_size=4),
)
# In an old schema, attributes were in the place of the version.
VERSION = TEXT.filter(lambda text: not text.startswith("\n"))
METADATA = st.builds(
    GlobalMetadata, version=VERSION, attr=st.lists(ATTRIBUTE, max_size=2)
)


@settings(max_examples=60)
@given(
    metadata=METADATA,
    nodes=st.lists(NODE, min_size=1, max_size=4),
    compress=st.booleans(),
)
def test_binary_to_json_and_back_is_the_same(
    metadata: GlobalMetadata, nodes: list[Node], compress: bool
) -> None:
    records = [
        frame(message.SerializeToString(deterministic=True))
        for message in (metadata, *nodes)
    ]
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "w.0.et").write_bytes(b"".join(records))
        convert_trace_set(
            folder / "w", folder / "json", form=TraceForm.JSON, compress=compress
        )
        convert_trace_set(
            folder / "json", folder / "et", form=TraceForm.BINARY, compress=False
        )
        assert (folder / "et" / "w.0.et").read_bytes() == b"".join(records)


ASTRA_ALGORITHMS = [(op, name) for op in ASTRA_KEYS for name in algorithm_names(op)]


@settings(max_examples=60)
@given(
    which=st.sampled_from(ASTRA_ALGORITHMS),
    nranks=st.integers(2, 12),
    input_bytes=st.integers(0, 10**7),
)
def test_custom_collective_sends_the_bytes_of_its_schedule(
    which: tuple[CollectiveOp, str], nranks: int, input_bytes: int
) -> None:
    op, name = which
    how = algorithm(op, name)
    with TemporaryDirectory() as folder:
        files = astra_collective(op, name, nranks=nranks, input_bytes=input_bytes)
        for position, records in enumerate(files):
            with (Path(folder) / f"w.{position}.et").open("wb") as file:
                file.writelines(records)
        traces = load_trace_set(folder)
    size_less = {"no-size", "empty-message"}
    problems = check_trace_set(traces.graphs, traces.groups)
    assert {problem.kind for problem in problems} <= size_less
    assert check_across_ranks(traces.graphs, traces.groups)[0] == []
    traffic = measure_traffic(traces.graphs, traces.groups)
    wanted = [[0] * nranks for _ in range(nranks)]
    for src in range(nranks):
        for transfer in how.sends(src, nranks=nranks, root=0):
            wanted[src][transfer.dst] += transfer_bytes(
                how, transfer, nranks=nranks, input_bytes=input_bytes
            )
    assert [list(traffic.row(rank)) for rank in range(nranks)] == wanted
    for rank, graph in traces.graphs.items():
        nodes = list(graph.nodes())
        # Ids ascend along dependencies, and no two messages of a pair share a tag.
        assert all(a < node.position for node in nodes for a in node.dependencies)
        keys = [
            (node.kind, node.peer, node.tag) for node in nodes if node.peer is not None
        ]
        assert len(keys) == len(set(keys)), rank


@pytest.mark.parametrize("op", sorted(set(CollectiveOp) - ASTRA_KEYS.keys()))
def test_collectives_that_astra_sim_does_not_simulate_are_refused(
    op: CollectiveOp,
) -> None:
    with pytest.raises(ScheduleError, match="is not supported by ASTRA-sim"):
        astra_collective(op, "auto", nranks=4, input_bytes=8)


def test_receives_that_add_up_are_followed_by_the_addition() -> None:
    files = astra_collective(
        CollectiveOp.ALL_REDUCE, "ring", nranks=4, input_bytes=4096
    )
    first = b"".join(next(iter(files)))
    # Of six receives of a ring all_reduce of four ranks, three are added up.
    assert first.count(b"_from3") == 6
    assert first.count(b"_add3") == 3
    pairs = itertools.pairwise([b"step0_to1", b"step0_from3", b"step0_add3"])
    assert all(first.index(a) < first.index(b) for a, b in pairs)
