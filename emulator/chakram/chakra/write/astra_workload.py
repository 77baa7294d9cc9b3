"""Export of a job as an ASTRA-sim workload: one execution trace per NPU.

The export uses programs instead of the original traces, so that it matches a run. The
programs include ``size_scale``, computation times and the order of collectives. Row r
of a rank's program becomes node r + 1. Node 0 delays the start of a job that starts
late.

ASTRA-sim has four collectives and four algorithms. Every other collective is expanded
into sends and receives, followed by an empty computation (which takes 1 ns in
ASTRA-sim). ASTRA-sim sends only one such message per rank at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from chakram.chakra.et_codec import (
    SCHEMA_VERSION,
    CollectiveType,
    Metadata,
    NodeType,
    add_type_prefix,
    encode_metadata,
    encode_node,
)
from chakram.chakra.read.framing import frame
from chakram.chakra.write.astra_collective import ASTRA_KEYS, TAG_LIMIT
from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.groups import ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import (
    Algorithm,
    LocalTransfer,
    RankSchedule,
    rank_schedule,
    transfer_bytes,
)
from chakram.collectives.uneven_messages import (
    splits_bytes,
    uneven_message_bytes,
    uneven_share,
)
from chakram.foundation.errors import ScheduleError
from chakram.program.operations import (
    CollectiveOperation,
    ComputeOperation,
    Operation,
    RankProgram,
    SendOperation,
)
from chakram.trace.node import CPU_STREAM

ASTRA_ALGORITHMS: Final = {
    "ring": "ring",
    "direct": "direct",
    "halving_doubling": "halvingDoubling",
    "binary_tree": "doubleBinaryTree",
}
"""ASTRA-sim's names for Chakram's algorithms."""

_Instance = tuple[str, str, int]
"""Job and group of a collective, and its number within the group."""


@dataclass(slots=True, kw_only=True)
class AstraWorkload:
    """The traces of all NPUs, and the matching system settings.

    Args:
        npus: Number of NPUs.
        programs: The program of each NPU. NPUs without a program do nothing.
        skipped: Names of operations to leave out. No other operation may wait for them.
        starts_ns: Start time of each job, in nanoseconds, by name.

    Attributes:
        implementations: The algorithm to select in ASTRA-sim for each collective.
        groups: Group numbers from 1, by the ranks of the group. The group of all NPUs
            in order has no number.
        as_messages: Number of collective nodes that are expanded into messages.

    Raises:
        ScheduleError: If there are more messages than tags.
    """

    npus: int
    programs: Mapping[int, RankProgram]
    skipped: frozenset[str] = frozenset()
    starts_ns: Mapping[str, int] = field(default_factory=dict)
    implementations: dict[CollectiveOp, str] = field(init=False, default_factory=dict)
    groups: dict[tuple[int, ...], int] = field(init=False, default_factory=dict)
    as_messages: int = field(init=False, default=0)
    _npu_of: dict[tuple[str, int], int] = field(init=False)
    _tags: dict[_Instance, tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self._npu_of = {
            (each.job, each.rank): npu for npu, each in self.programs.items()
        }
        spans: dict[_Instance, tuple[int, int]] = {}
        first_tag = 0
        for program in self.programs.values():
            for each in program.operations:
                if isinstance(each, CollectiveOperation):
                    self._note(program, each, spans)
                elif not isinstance(each, ComputeOperation):
                    first_tag = max(first_tag, each.number + 1)
        self._tags = {}
        for key, (channels, messages) in spans.items():
            self._tags[key] = first_tag, messages
            first_tag += channels * messages
        if first_tag >= TAG_LIMIT:
            raise ScheduleError(
                "messages of collectives",
                "exceed the number of tags",
                "use algorithms with fewer messages, e.g. ring without chunks",
            )

    def _note(
        self,
        program: RankProgram,
        each: CollectiveOperation,
        spans: dict[_Instance, tuple[int, int]],
    ) -> None:
        if each.name in self.skipped:
            return
        ranks = self._ranks(program, each)
        if self._is_native(each, ranks):
            if ranks != tuple(range(self.npus)):
                self.groups.setdefault(ranks, len(self.groups) + 1)
            return
        self.as_messages += 1
        key = (program.job, each.group, each.number)
        channels, messages = spans.get(key, (1, 1))
        for transfer in _share(_algorithm(program, each), program, each).sends:
            channels = max(channels, transfer.channel + 1)
            messages = max(messages, transfer.message + 1)
        spans[key] = channels, messages

    def _is_native(self, each: CollectiveOperation, ranks: tuple[int, ...]) -> bool:
        """Return whether ASTRA-sim supports the collective natively.

        ASTRA-sim has one algorithm setting per operation. The first collective of an
        operation determines the setting.
        """
        name = ASTRA_ALGORITHMS.get(each.algorithm)
        if name is None or each.op not in ASTRA_KEYS or not each.input_bytes:
            return False
        # ASTRA-sim's trees always span all NPUs.
        if each.algorithm == "binary_tree" and len(ranks) < self.npus:
            return False
        return self.implementations.setdefault(each.op, name) == name

    def _ranks(
        self, program: RankProgram, each: CollectiveOperation
    ) -> tuple[int, ...]:
        ranks = _group(program, each).ranks
        return tuple(self._npu_of[program.job, rank] for rank in ranks)

    def records(self, npu: int) -> Iterator[bytes]:
        """Yield the records of one NPU's file."""
        yield frame(
            encode_metadata(
                Metadata(
                    version=SCHEMA_VERSION,
                    attributes={"producer": "chakram export astra-sim"},
                )
            )
        )
        program = self.programs.get(npu)
        if program is None:
            # An NPU without any node would never finish.
            yield _node(0, "nothing to do", NodeType.COMP, (), _COMPUTES)
            return
        first: tuple[int, ...] = ()
        if start_ns := self.starts_ns.get(program.job, 0):
            first = (0,)
            duration_us = round(start_ns / 1000)
            yield _node(0, "start", NodeType.COMP, (), _COMPUTES, duration_us)
        operations = program.operations
        inner = len(operations) + 1
        last_of: dict[str, int] = {}
        for row, each in enumerate(operations):
            if each.name in self.skipped:
                continue
            after = [place + 1 for place in each.dependencies] or list(first)
            if isinstance(each, CollectiveOperation):
                # A group's collectives run one at a time in a fixed order. Add this
                # order to the dependencies.
                if each.group in last_of:
                    after.append(last_of[each.group] + 1)
                last_of[each.group] = row
                ranks = self._ranks(program, each)
                if not self._is_native(each, ranks):
                    nodes, inner = self._messages(program, each, after, inner, row + 1)
                    yield from nodes
                    continue
            yield self._plain(program, each, row + 1, sorted({*after}))

    def _plain(
        self, program: RankProgram, each: Operation, node: int, after: Sequence[int]
    ) -> bytes:
        """Return the record of an operation that becomes a single node."""
        if isinstance(each, ComputeOperation):
            attributes = {**_COMPUTES, "is_cpu_op": each.stream == CPU_STREAM}
            duration_us = round(each.duration_ns / 1000)
            return _node(node, each.name, NodeType.COMP, after, attributes, duration_us)
        if isinstance(each, CollectiveOperation):
            group = self.groups.get(self._ranks(program, each))
            attributes = {
                "comm_type": int(CollectiveType[each.op.name]),
                "comm_size": each.input_bytes,
                **({} if group is None else {"pg_name": str(group)}),
                "is_cpu_op": False,
            }
            return _node(node, each.name, NodeType.COMM_COLL, after, attributes)
        sends = isinstance(each, SendOperation)
        peer = self._npu_of[program.job, each.peer]
        size_bytes = max(1, each.size_bytes)
        return _message(node, each.name, after, sends, peer, size_bytes, each.number)

    def _messages(
        self,
        program: RankProgram,
        each: CollectiveOperation,
        after: Sequence[int],
        first: int,
        node: int,
    ) -> tuple[list[bytes], int]:
        """Return the message nodes of a collective, and the next free node id.

        Args:
            program: The program of the rank.
            each: The collective to expand.
            after: The nodes that the collective waits for.
            first: The first free node id.
            node: The id of the node that completes the collective.
        """
        how, ranks = _algorithm(program, each), self._ranks(program, each)
        share = _share(how, program, each)
        base, messages = self._tags[program.job, each.group, each.number]

        position = _group(program, each).position(program.rank)

        def size_bytes(transfer: LocalTransfer, *, sends: bool) -> int:
            if each.op is CollectiveOp.BARRIER:
                return 1
            if each.splits is None:
                return transfer_bytes(
                    how, transfer, nranks=len(ranks), input_bytes=each.input_bytes
                )
            src, dst = (position, transfer.peer)[:: 1 if sends else -1]
            known = splits_bytes(how, each.splits, each.passed_bytes, position=position)
            return uneven_message_bytes(
                how, transfer, src=src, dst=dst, pair_bytes=known
            )

        order = sorted(
            [(one.step, 0, place) for place, one in enumerate(share.sends)]
            + [(one.step, 1, place) for place, one in enumerate(share.receives)]
        )
        done: dict[int, int] = {}
        nodes: list[bytes] = []
        for step, receives, place in order:
            transfer = (share.receives if receives else share.sends)[place]
            size = size_bytes(transfer, sends=not receives)
            if not size:
                continue  # the peer omits the empty message too
            waits = [done[need] for need in transfer.needs if need in done]
            nodes.append(
                _message(
                    first,
                    f"{each.name} {step}",
                    sorted(waits or after),
                    not receives,
                    ranks[transfer.peer],
                    size,
                    base + transfer.channel * messages + transfer.message,
                )
            )
            if receives:
                done[place] = first
            first += 1
        ends = range(first - len(nodes), first)
        nodes.append(_node(node, each.name, NodeType.COMP, [*ends] or after, _COMPUTES))
        return nodes, first


_COMPUTES: Final[Mapping[str, Any]] = {
    "num_ops": 0,
    "tensor_size": 0,
    "is_cpu_op": False,
}


def _group(program: RankProgram, each: CollectiveOperation) -> ProcessGroup:
    return next(group for group in program.groups if group.name == each.group)


def _algorithm(program: RankProgram, each: CollectiveOperation) -> Algorithm:
    return algorithm_of(
        each.op,
        each.algorithm,
        nranks=len(_group(program, each).ranks),
        root=each.root,
        listed=program.algorithms,
    )


def _share(
    how: Algorithm, program: RankProgram, each: CollectiveOperation
) -> RankSchedule:
    group = _group(program, each)
    position = group.position(program.rank)
    if each.splits is not None:
        return uneven_share(how, each.splits, position=position)
    return rank_schedule(
        how, position=position, nranks=len(group.ranks), root=each.root
    )


def _message(
    node: int,
    name: str,
    after: Sequence[int],
    sends: bool,
    peer: int,
    size_bytes: int,
    tag: int,
) -> bytes:
    kind = NodeType.COMM_SEND if sends else NodeType.COMM_RECV
    attributes = {
        "comm_size": size_bytes,
        "comm_dst" if sends else "comm_src": peer,
        "comm_tag": tag,
        "is_cpu_op": False,
    }
    return _node(node, name, kind, after, attributes)


def _node(
    node: int,
    name: str,
    kind: NodeType,
    after: Sequence[int],
    attributes: Mapping[str, Any],
    duration_us: int = 0,
) -> bytes:
    return frame(
        encode_node(
            node_id=node,
            name=add_type_prefix(name, kind),
            node_type=kind,
            data_deps=after,
            duration_micros=duration_us,
            attributes=attributes,
        )
    )
