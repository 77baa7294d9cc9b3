"""Reader for one rank's trace, from a file or any stream of bytes.

Gzip compression is recognized by the first two bytes, and the format by the first
decompressed bytes. The file name does not matter. The error for an unreadable format
names that format.

Reader for PyTorch host traces that are linked with a profile.

``chakra_trace_link`` adds GPU kernels and all durations to a host trace.
``chakra_converter`` converts the result to Chakra nodes. This module reads linked
traces directly and creates the same records as the converter:

* CPU operations are computation. Each one waits for the previous one in a traversal of
  the caller tree, and for dependencies in other threads that the linker found.
* GPU operations (nodes with a ``cat``) wait for the operation that launched them. NCCL
  kernels are collectives or messages. Their size is the size of the input tensors,
  which the linker copied from the calling operation.
* The root of the tree is left out, as in the converter.

Unlike the converter, this module keeps the start times.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NoReturn, Protocol, TypeAlias

from chakram.chakra.et_codec import (
    AttributeValue,
    CollectiveType,
    Metadata,
    NodeType,
    encode_metadata,
)
from chakram.chakra.read.eras import SNIFF_BYTES, TEXT_LOOK, Form, recognise
from chakram.chakra.read.framing import read_records
from chakram.chakra.read.groups import RECORD, is_process_group_init
from chakram.chakra.read.json_records import (
    encode,
    feeder_records,
    jsonizer_records,
    members_of,
    stage_records,
)
from chakram.chakra.read.json_scan import JsonScanner
from chakram.chakra.read.pytorch.kineto import Profile, read_profile
from chakram.chakra.read.pytorch.reader import HostTrace
from chakram.chakra.read.pytorch.unnamed_groups import RankOperations, infer_groups
from chakram.chakra.read.rank_decoder import RankDecoder, RankTrace
from chakram.chakra.read.reader_options import ReadOptions
from chakram.foundation.errors import GarbageTrace, TruncatedTrace, UnsupportedTrace

_KERNELS: Final = ("ncclKernel", "ncclDevKernel")
_SEND_RECEIVE: Final = "SendRecv"
_MEANINGS: Final = (
    ("alltoall", (NodeType.COMM_COLL, CollectiveType.ALL_TO_ALL)),
    ("scatter", (NodeType.COMM_COLL, CollectiveType.SCATTER)),
    ("gather", (NodeType.COMM_COLL, CollectiveType.GATHER)),
    ("send", (NodeType.COMM_SEND, None)),
    ("recv", (NodeType.COMM_RECV, None)),
)
"""Words in a caller's name, ignoring case and underscores, and their meanings."""
_CALLERS_LOOK: Final = 3
_TENSOR_FIELDS: Final = 6
"""A tensor is [id, storage, offset, elements, bytes per element, device]."""
_MOST: Final = 2**62
_DEEPEST: Final = 8
"""Maximum nesting depth of tensor lists. Real traces have one or two levels."""


@dataclass(slots=True)
class _Node:
    """One node: the content of its record, and its place in the caller tree."""

    offset: int
    node_id: int
    parent: int
    name: str
    on_gpu: bool
    duration_us: int
    start_us: int
    attributes: dict[str, AttributeValue]
    input_values: str
    size_bytes: int
    after: int | None
    children: list[_Node] = field(default_factory=list)
    data: list[int] = field(default_factory=list)


def linked_records(chunks: Iterable[bytes], source: str) -> Iterator[tuple[int, bytes]]:
    """Yield ``(offset, record)`` of a linked trace.

    The order of nodes is known only at the end, so all nodes are held in memory,
    without their tensors.

    Raises:
        TraceError: At the first invalid node.
    """
    scanner = JsonScanner(chunks, source=source)
    nodes: dict[int, _Node] = {}
    for offset, raw in scanner.elements("nodes"):
        where = f"{source}: offset {offset}"
        node = _node(raw, offset, where)
        if nodes.setdefault(node.node_id, node) is not node:
            raise GarbageTrace(
                where,
                f"node id {node.node_id} occurs twice in the file",
                "use unique ids within each rank",
            )
    schema = scanner.members.get("schema", "")
    yield 0, encode_metadata(Metadata(attributes={"schema": str(schema)}))
    roots = [node for node in nodes.values() if node.parent not in nodes]
    roots += [node for node in nodes.values() if node.parent == node.node_id]
    for node in nodes.values():
        if node.parent in nodes and node.parent != node.node_id:
            nodes[node.parent].children.append(node)
    for root in roots:
        _order(root)
    dropped = {root.node_id for root in roots if root.parent == root.node_id}
    for node in nodes.values():
        if node.node_id not in dropped:
            yield node.offset, _record(node, nodes, dropped, source)


def _order(root: _Node) -> None:
    """Make each operation below *root* wait for the previous one.

    The order is that of a traversal of the caller tree by id.
    """
    stack = [root]
    last: _Node | None = None
    last_on_cpu: _Node | None = None
    while stack:
        node = stack.pop()
        before = last if node.on_gpu else last_on_cpu
        if before is not None:
            node.data.append(before.node_id)
        if node.after is not None:
            node.data.append(node.after)
        if node.on_gpu:
            last = last_on_cpu
        else:
            last = last_on_cpu = node
        stack.extend(sorted(node.children, key=lambda each: -each.node_id))


def _record(
    node: _Node, nodes: Mapping[int, _Node], dropped: set[int], source: str
) -> bytes:
    node_type = NodeType.COMP
    attributes = {"is_cpu_op": not node.on_gpu, **node.attributes}
    if not node.on_gpu and is_process_group_init(node.name):
        node_type = NodeType.METADATA
    elif node.on_gpu and any(name in node.name for name in _KERNELS):
        node_type = NodeType.COMM_COLL
        if _SEND_RECEIVE in node.name:
            node_type, comm_type = _send_receive(node, nodes)
            if comm_type is not None:
                attributes["comm_type"] = int(comm_type)
        attributes["comm_size"] = node.size_bytes
    return encode(
        f"{source}: offset {node.offset}",
        node_id=node.node_id,
        name=node.name,
        node_type=node_type,
        data_deps=[each for each in dict.fromkeys(node.data) if each not in dropped],
        ctrl_deps=[node.parent],
        start_time_micros=node.start_us,
        duration_micros=node.duration_us,
        attributes=attributes,
        input_values=node.input_values,
    )


def _send_receive(
    node: _Node, nodes: Mapping[int, _Node]
) -> tuple[NodeType, CollectiveType | None]:
    """Return the meaning of a send-receive kernel, derived from its callers' names."""
    caller: _Node | None = node
    for _ in range(_CALLERS_LOOK):
        caller = None if caller is None else nodes.get(caller.parent)
        words = "" if caller is None else caller.name.lower().replace("_", "")
        for word, meaning in _MEANINGS:
            if word in words:
                return meaning
    return NodeType.COMM_COLL, None


def _node(value: Any, offset: int, where: str) -> _Node:
    raw = members_of(value, where)
    inputs = raw.get("inputs")
    values = inputs.get("values") if isinstance(inputs, dict) else inputs
    name = raw.get("name")
    if not isinstance(name, str):
        raise GarbageTrace(
            where, "a node has no name", "fix the producer: it must write this field"
        )
    on_gpu = raw.get("cat") is not None
    attributes: dict[str, AttributeValue] = {}
    if isinstance(raw.get("pg_name"), str):
        attributes["pg_name"] = raw["pg_name"]
    if isinstance(raw.get("stream"), int):
        attributes["stream"] = raw["stream"]
    return _Node(
        offset=offset,
        node_id=_number(raw, "id", where),
        parent=_number(raw, "ctrl_deps" if "ctrl_deps" in raw else "parent", where),
        name=name,
        on_gpu=on_gpu,
        duration_us=_micros(raw.get("exclusive_dur"), where),
        start_us=_micros(raw.get("ts"), where),
        attributes=attributes,
        input_values=repr(values)
        if is_process_group_init(name) or name == RECORD
        else "",
        size_bytes=_tensor_bytes(values, where) if on_gpu else 0,
        after=raw["inter_thread_dep"]
        if isinstance(raw.get("inter_thread_dep"), int)
        else None,
    )


def _number(raw: Mapping[str, Any], key: str, where: str) -> int:
    value = raw.get(key)
    if isinstance(value, int) and 0 <= value < 2**64:
        return value
    raise GarbageTrace(
        where, f"{key} of a node is {value!r:.40}", "use the number of a node"
    )


def _micros(value: Any, where: str) -> int:
    """Return a fractional time as whole microseconds. A missing time is 0."""
    if value is None:
        return 0
    if isinstance(value, int | float) and 0 <= value < _MOST:
        return int(value)
    raise GarbageTrace(where, f"a time of a node is {value!r:.40}", "use microseconds")


def _tensor_bytes(values: Any, where: str, depth: int = 0) -> int:
    """Return the total bytes of all tensors in the inputs, including nested lists."""
    if not isinstance(values, list) or depth == _DEEPEST:
        return 0
    if _is_tensor(values):
        size_bytes: int = values[3] * values[4]
        if not 0 <= size_bytes < _MOST:
            raise GarbageTrace(
                where,
                f"a tensor has {size_bytes} bytes",
                "check the size: it exceeds any real buffer",
            )
        return size_bytes
    return sum(_tensor_bytes(value, where, depth + 1) for value in values)


def _is_tensor(values: Sequence[Any]) -> bool:
    return (
        len(values) == _TENSOR_FIELDS
        and all(isinstance(number, int) for number in values[:5])
        and isinstance(values[5], str)
    )


_CHUNK_BYTES = 256 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_CONVERT = (
    "convert it with chakra_converter, or use the .et file that its producer wrote"
)

_INSTEAD: Final[Mapping[Form, str]] = {
    Form.KINETO: (
        "use the host trace of the run; its profile is found next to it or named with "
        "kineto"
    ),
}
"""Hints for formats that cannot be read."""

RecordsOf: TypeAlias = "Callable[[Iterable[bytes], str], Iterator[tuple[int, bytes]]]"

JSON_RECORDS: Final[Mapping[Form, RecordsOf]] = {
    Form.JSONIZER: jsonizer_records,
    Form.FEEDER: feeder_records,
    Form.STAGE: stage_records,
    Form.PYTORCH_LINKED: linked_records,
}
"""Converters of the JSON formats to records, called with chunks and a file name."""


class ByteSource(Protocol):
    """A source of bytes, such as a file or a member of an archive."""

    def read(self, size: int, /) -> bytes:
        """Return at most *size* bytes, or no bytes at the end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTrace:
    """One rank's trace, and the SHA-256 of its (decompressed) bytes."""

    trace: RankTrace
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProfile:
    """One rank's profile, and the SHA-256 of its (decompressed) bytes."""

    profile: Profile
    sha256: str


def read_stream(
    stream: ByteSource,
    *,
    rank: int,
    source: str,
    options: ReadOptions | None = None,
    zero_is_a_group: bool = False,
    profile_of: Callable[[int], ReadProfile | None] | None = None,
) -> ReadTrace:
    """Return the trace of one rank from bytes, without the traces of other ranks.

    Args:
        stream: The bytes, gzipped or not.
        rank: The rank of the trace, which the file itself does not state.
        source: Name of the stream, for messages.
        options: Reader options.
        zero_is_a_group: Whether a group file defines a group ``0``.
        profile_of: Returns the profile of a rank. Only called for a PyTorch host trace.

    Raises:
        TraceError: If the trace cannot be read, or the group of an operation is
            unknown.
    """
    opened = open_stream(
        stream,
        rank=rank,
        source=source,
        options=options,
        zero_is_a_group=zero_is_a_group,
        profile_of=profile_of,
    )
    return settle({rank: opened})[rank]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTrace:
    """One rank's trace, as far as it can be read without the traces of other ranks.

    Attributes:
        unnamed: The operations whose process groups must be inferred from all ranks
            together. None: there are none.
        finish: Returns the trace, given the names of the groups of *unnamed*.
    """

    unnamed: RankOperations | None
    finish: Callable[[Sequence[str]], ReadTrace]


def open_stream(
    stream: ByteSource,
    *,
    rank: int,
    source: str,
    options: ReadOptions | None = None,
    zero_is_a_group: bool = False,
    profile_of: Callable[[int], ReadProfile | None] | None = None,
) -> OpenTrace:
    """Open the trace of one rank, for ``settle``. Arguments are as for ``read_stream``.

    Raises:
        TraceError: If the trace cannot be read.
    """
    options = options or ReadOptions()
    digest = hashlib.sha256()
    form, chunks = _recognised(_plain(_chunks(stream), source))
    if form is Form.PYTORCH_HOST:
        profile = None if profile_of is None else profile_of(rank)
        host = HostTrace(
            _hashed(chunks, digest),
            rank=rank,
            source=source,
            options=options,
            zero_is_a_group=zero_is_a_group,
            profile=None if profile is None else profile.profile,
        )
        if profile is not None:
            digest.update(profile.sha256.encode())
        return OpenTrace(
            unnamed=host.unnamed,
            finish=lambda names: ReadTrace(
                trace=host.finish(names), sha256=digest.hexdigest()
            ),
        )
    decoder = RankDecoder(
        rank=rank, source=source, options=options, zero_is_a_group=zero_is_a_group
    )
    records = _records(form, _hashed(chunks, digest), source, options, decoder)
    for offset, body in records:
        decoder.take(offset, body)
    read = ReadTrace(trace=decoder.finish(), sha256=digest.hexdigest())
    return OpenTrace(unnamed=None, finish=lambda _: read)


def settle(opened: Mapping[int, OpenTrace]) -> dict[int, ReadTrace]:
    """Return the traces of all ranks, after inferring unnamed groups across ranks.

    Raises:
        TraceError: If the ranks do not determine the group of an operation.
    """
    inferred = infer_groups(
        {
            rank: each.unnamed
            for rank, each in opened.items()
            if each.unnamed is not None
        }
    )
    return {rank: each.finish(inferred.get(rank, ())) for rank, each in opened.items()}


def records_of(
    stream: ByteSource, *, source: str, options: ReadOptions | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield ``(offset, record)`` of a file, to copy messages without decoding them.

    Files in JSON formats are converted to binary records.

    Raises:
        TraceError: At the first invalid byte.
    """
    options = options or ReadOptions()
    form, chunks = _recognised(_plain(_chunks(stream), source))
    if form is Form.PYTORCH_HOST:
        raise UnsupportedTrace(
            source,
            f"this is {form.value}, which has no records that can be copied",
            "use it without conversion: all other commands read it",
        )
    return _records(form, chunks, source, options)


def read_profile_stream(stream: ByteSource, source: str) -> ReadProfile:
    """Return the profile of one rank from a stream of bytes, gzipped or not.

    Raises:
        TraceError: If it is not a profile.
    """
    digest = hashlib.sha256()
    form, chunks = _recognised(_plain(_chunks(stream), source))
    if form is not Form.KINETO:
        raise UnsupportedTrace(
            source, f"this is {form.value}, not a Kineto profile", "see trace.kineto"
        )
    profile = read_profile(_hashed(chunks, digest), source)
    return ReadProfile(profile=profile, sha256=digest.hexdigest())


def form_of(stream: ByteSource, source: str) -> Form:
    """Return the format of a file.

    Raises:
        TraceError: If the file cannot be decompressed.
    """
    form, _ = _recognised(_plain(_chunks(stream), source))
    return form


def start_of(stream: ByteSource, source: str) -> tuple[Form, bytes]:
    """Return the format of a file, and its first decompressed bytes.

    Raises:
        TraceError: If the file cannot be decompressed.
    """
    form, chunks = _recognised(_plain(_chunks(stream), source))
    return form, next(chunks, b"")[:SNIFF_BYTES]


def refuse_form(form: Form, source: str) -> NoReturn:
    """Refuse a file in a format that cannot be read.

    Raises:
        UnsupportedTrace: Always.
    """
    hint = _INSTEAD.get(form, _CONVERT)
    raise UnsupportedTrace(
        source, f"this is {form.value}, which is not supported", hint
    )


def _records(
    form: Form,
    chunks: Iterable[bytes],
    source: str,
    options: ReadOptions,
    decoder: RankDecoder | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Return the records of a file, converted from any readable format.

    Records that *decoder* takes directly are not included.
    """
    if form is Form.BINARY:
        return read_records(
            chunks,
            source=source,
            limit_bytes=options.record_limit_bytes,
            take_first=None if decoder is None else decoder.take_plain,
        )
    if form not in JSON_RECORDS:
        refuse_form(form, source)
    return JSON_RECORDS[form](chunks, source)


def _chunks(stream: ByteSource) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def _hashed(chunks: Iterable[bytes], digest: hashlib._Hash) -> Iterator[bytes]:
    for chunk in chunks:
        digest.update(chunk)
        yield chunk


def _plain(chunks: Iterator[bytes], source: str) -> Iterator[bytes]:
    """Yield the chunks, decompressed if they are gzip, at most one chunk at a time."""
    first = b""
    for chunk in chunks:
        first += chunk
        if len(first) >= len(_GZIP_MAGIC):
            break
    if not first.startswith(_GZIP_MAGIC):
        if first:
            yield first
        yield from chunks
        return
    yield from _gunzip(first, chunks, source)


def _gunzip(first: bytes, chunks: Iterator[bytes], source: str) -> Iterator[bytes]:
    # A gzip file may have several members, and zeros as padding after the last one.
    member = zlib.decompressobj(wbits=31)
    pending = first
    try:
        while True:
            if member.eof:
                pending = pending.lstrip(b"\0")
                if pending:
                    member = zlib.decompressobj(wbits=31)
            elif pending:
                yield member.decompress(pending, _CHUNK_BYTES)
                pending = member.unconsumed_tail or member.unused_data
                continue
            if not pending:
                pending = next(chunks, b"")
                if not pending:
                    break
    except zlib.error as error:
        raise GarbageTrace(
            source, f"its gzip stream is damaged: {error}", "fetch the file again"
        ) from error
    if not member.eof:
        raise TruncatedTrace(
            source,
            "its gzip stream is truncated",
            "fetch the file again: a copy was interrupted",
        )


def _recognised(chunks: Iterator[bytes]) -> tuple[Form, Iterator[bytes]]:
    """Return the format of a file, detected from its start, and all its chunks."""
    taken: list[bytes] = []
    length, enough = 0, TEXT_LOOK
    for chunk in chunks:
        taken.append(chunk)
        length += len(chunk)
        if length >= enough:
            # A few bytes identify the binary format, so do not buffer more bytes.
            if enough == SNIFF_BYTES or recognise(b"".join(taken)) is Form.BINARY:
                break
            enough = SNIFF_BYTES
    start = b"".join(taken)
    return recognise(start), chain((start,) if start else (), chunks)
