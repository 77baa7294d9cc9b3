"""The fast decoder of plain nodes equals the decoding as messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chakram.chakra.et_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node
from chakram.chakra.read.framing import frame
from chakram.chakra.read.reader_options import DependencyPolicy, ReadOptions
from tests.full_decoder import outcome, read_fast, read_fully

OPTIONS = st.builds(
    ReadOptions,
    bytes_per_element=st.sampled_from([None, 1, 2, 2**62]),
    dependencies=st.sampled_from(DependencyPolicy),
    drop_missing_dependencies=st.booleans(),
    duration_unit_ns=st.sampled_from([1, 1_000]),
    record_limit_bytes=st.sampled_from([40, 10_000]),
    node_limit=st.sampled_from([2, 10_000]),
    dimensions=st.sampled_from([(), (2, 4), (1, 2, 1)]),
)
# What counts, what does not, and neighbors of both.
NAMES = st.sampled_from(
    [
        "comm_type",
        "comm_size",
        "comm_src",
        "comm_dst",
        "comm_tag",
        "comm_group",
        "pg_name",
        "ranks",
        "root",
        "in_split_sizes",
        "out_split_sizes",
        "is_cpu_op",
        "num_ops",
        "tensor_size",
        "stream",
        "group_size",
        "group_count",
        "involved_dim",
        "label_duration_micros",
        "num_opt",
        "comm_sizf",
        "op_type",
        "inputs",
        "x",
    ]
)
TEXTS = st.sampled_from(
    [
        "",
        "0",
        "1",
        "04.0",
        "tp",
        "\u00e9",
        "x" * 130,
        "COMP_NODE: a",
        "COMM_COLL_NODE: ",
        "record_param_comms",
    ]
)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(0, 9)
UINT64 = st.integers(0, 2**64 - 1)


def _attribute(name: str, arm: str, value: object) -> AttributeProto:
    message = AttributeProto(name=name)
    if arm.endswith("_list"):
        getattr(message, arm).SetInParent()
        getattr(message, arm).values.extend(value)
    else:
        setattr(message, arm, value)
    return message


VALUES: dict[str, st.SearchStrategy[object]] = {
    "double": st.floats(),
    "float": st.floats(width=32),
    "int32": INT32,
    "int64": st.one_of(SMALL, INT64),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.one_of(SMALL, UINT64),
    "sint32": INT32,
    "sint64": INT64,
    "fixed32": st.integers(0, 2**32 - 1),
    "fixed64": UINT64,
    "sfixed32": INT32,
    "sfixed64": INT64,
    "bool": st.booleans(),
    "string": TEXTS,
    "bytes": st.binary(max_size=4),
}
ATTRIBUTE = st.one_of(
    # Mostly as producers write them, or hardly a node would be plain.
    *[st.builds(AttributeProto, name=NAMES, int64_val=SMALL)] * 8,
    *[st.builds(AttributeProto, name=NAMES, int32_val=SMALL)] * 4,
    *[st.builds(AttributeProto, name=st.just("pg_name"), string_val=TEXTS)] * 4,
    *[
        st.builds(
            _attribute,
            st.just("involved_dim"),
            st.just("bool_list"),
            st.lists(st.sampled_from([True, True, True, False]), max_size=4),
        )
    ]
    * 3,
    st.builds(AttributeProto, name=NAMES),
    *(
        st.builds(_attribute, NAMES, st.just(f"{arm}_val"), values)
        for arm, values in VALUES.items()
    ),
    *(
        st.builds(
            _attribute, NAMES, st.just(f"{arm}_list"), st.lists(values, max_size=3)
        )
        for arm, values in VALUES.items()
    ),
)
IDS = st.lists(st.one_of(SMALL, UINT64), max_size=4)
VALUES_OF_INPUTS = st.one_of(TEXTS, st.just("[[], 1, '3', 0, 'x', [], [], 0, 1, 4]"))
IO = st.builds(IOInfo, values=VALUES_OF_INPUTS, shapes=TEXTS, types=TEXTS)
NODES = st.builds(
    Node,
    id=st.one_of(st.integers(0, 20), UINT64),
    name=TEXTS,
    type=st.one_of(st.sampled_from([2, 3, 4, 5, 6, 7, 7]), st.integers(0, 11)),
    ctrl_deps=IDS,
    data_deps=IDS,
    start_time_micros=st.one_of(SMALL, UINT64),
    duration_micros=st.one_of(SMALL, UINT64),
    inputs=st.one_of(st.none(), IO),
    outputs=st.one_of(st.none(), IO),
    attr=st.one_of(
        st.lists(ATTRIBUTE, max_size=6, unique_by=lambda each: each.name),
        st.lists(ATTRIBUTE, max_size=6),
    ),
)
# What no writer writes, but protobuf reads: repeated fields, unknown ones, groups.
ODD_BYTES = st.sampled_from(
    [
        b"",
        b"\x08\x00",
        b"\x08\x05",
        b"\x88\x80\x00\x05",
        b"\x18\x04",
        b"\x18\x84\x80\x80\x80\x80\x01",
        b"\x20\x03",
        b"\x28\x03",
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x12\x01a",
        b"\x12\x01\xff",
        b"\x15abcd",
        b"\x5a\x00",
        b"\x60\x01",
        b"\x6b\x6c",
        b"\x42\x02\x0a\x00",
        b"\x42\x02\x08\x01",
        b"\x52\x00",
        b"\x52\x0b\x0a\x07num_ops\x48\x05",
        b"\x52\x0d\x0a\x07num_ops\x48\x05\x48\x06",
        b"\x52\x0d\x48\x05\x0a\x07num_ops\x12\x00",
        b"\x52\x04\xfa\x01\x01a",
        b"\x52\x05\x22\x03\x0a\x01a",
        b"\x52\x06\x52\x04\x0a\x02\x80\x01",
        b"\x52\x05\x52\x03\x0a\x01\x80",
        b"\x52\x04\x52\x02\x08\x05",
        b"\x52\x03\x92\x02\x00",
        # Truth values in two runs, one by one, as numbers above 1, of a length that
        # takes two bytes.
        b"\x52\x17\x0a\x0cinvolved_dim\xe2\x01\x06\x0a\x01\x01\x0a\x01\x01",
        b"\x52\x13\x0a\x0cinvolved_dim\xe2\x01\x02\x08\x01",
        b"\x52\x14\x0a\x0cinvolved_dim\xe2\x01\x03\x0a\x01\x03",
        b"\x52\x15\x0a\x0cinvolved_dim\xe2\x01\x04\x0a\x81\x00\x01",
        b"\x52\x13\x0a\x0cinvolved_dim\xe2\x01\x02\x0a\x00",
    ]
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Draw a node, mostly as a writer makes it, seldom damaged."""
    body = draw(NODES).SerializeToString()
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        body += draw(ODD_BYTES)
    if body and draw(st.sampled_from([False] * 7 + [True])):
        at = draw(st.integers(0, len(body) - 1))
        body = body[:at] + draw(st.binary(max_size=2)) + body[at + 1 :]
    return body


METADATA = st.sampled_from(
    [
        GlobalMetadata(version="1.0.0"),
        GlobalMetadata(version="1.0.0"),
        # Of PyTorch's converter, which loses the order of kernels.
        GlobalMetadata(
            attr=[AttributeProto(name="schema", string_val="1.1.1-chakra.0.0.4")]
        ),
    ]
)


@given(
    nodes=st.lists(bodies(), max_size=6),
    metadata=METADATA,
    cut=st.sampled_from([0, 0, 0, 1, 3]),
    chunk_bytes=st.sampled_from([1, 7, 64, 2**18]),
    has_metadata=st.sampled_from([True, True, True, False]),
    options=OPTIONS,
)
def test_fast_decoder_equals_the_full_one(
    nodes: list[bytes],
    metadata: GlobalMetadata,
    cut: int,
    chunk_bytes: int,
    has_metadata: bool,
    options: ReadOptions,
) -> None:
    first = [metadata.SerializeToString()] * has_metadata
    data = b"".join(map(frame, [*first, *nodes]))
    data = data[: len(data) - cut]
    assert outcome(
        lambda: read_fast(data, rank=1, options=options, chunk_bytes=chunk_bytes)[0]
    ) == outcome(lambda: read_fully(data, rank=1, options=options))


PLAIN_VALUES = st.integers(0, 2**31)


@given(
    kind=st.sampled_from([0, 2, 3, 4, 5, 6, 7]),
    arm=st.sampled_from(["int64_val", "uint64_val", "uint32_val"]),
    numbers=st.lists(PLAIN_VALUES, min_size=5, max_size=5),
    group=st.sampled_from(["", "7", "tp"]),
    metadata=METADATA,
)
def test_traces_of_producers_use_the_fast_decoder(
    kind: int, arm: str, numbers: list[int], group: str, metadata: GlobalMetadata
) -> None:
    names = ["comm_size", "num_ops", "tensor_size", "comm_tag", "stream"]
    attributes = [
        AttributeProto(name=name, **{arm: number})
        for name, number in zip(names, numbers, strict=True)
    ]
    attributes += [
        AttributeProto(name="comm_type", int64_val=6),
        AttributeProto(name="comm_src", int32_val=1 if kind == 5 else 2),
        AttributeProto(name="comm_dst", int32_val=2 if kind == 5 else 1),
        AttributeProto(name="is_cpu_op", int32_val=0),
        AttributeProto(name="pg_name", string_val=group),
    ]
    inputs = _attribute("inputs", "string_list", ["a", "16", "b", "8"])
    node = Node(id=3, name="n", type=kind, attr=[*attributes, inputs])  # type: ignore[arg-type] # a number of the enum
    data = frame(metadata.SerializeToString()) + frame(node.SerializeToString())
    trace, full_decodes = read_fast(data, rank=1, options=ReadOptions())
    assert (len(trace.graph), full_decodes) == (1, 1)
