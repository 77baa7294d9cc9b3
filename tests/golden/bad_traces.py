"""Broken trace sets, made by our own writer, for inputs that must be refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chakram.chakra.et_codec import Metadata, encode_metadata
from chakram.chakra.read.framing import frame
from chakram.chakra.write.writer import write_trace_set
from chakram.collectives.groups import ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind

PAIR = ProcessGroup(name="5", ranks=(0, 1))


@dataclass(frozen=True, kw_only=True)
class Step:
    """One node of a rank: an all-reduce of *size* in *group*, after *after*."""

    size: int = 4096
    group: str = PAIR.name
    after: tuple[int, ...] = ()


def graph_of(rank: int, *steps: Step) -> TraceGraph:
    builder = TraceGraphBuilder(rank=rank, source=f"rank {rank}")
    for node_id, step in enumerate(steps):
        builder.add(
            node_id=node_id,
            kind=NodeKind.COLLECTIVE,
            name=f"sum{node_id}",
            dependencies=step.after,
            op=CollectiveOp.ALL_REDUCE,
            comm_bytes=step.size,
            group=step.group,
        )
    return builder.build()


def write(folder: Path, *ranks: tuple[Step, ...]) -> None:
    write_trace_set(
        folder,
        prefix="job",
        graphs=[graph_of(rank, *steps) for rank, steps in enumerate(ranks)],
        groups=[PAIR],
        producer="test",
    )


def sound(folder: Path) -> None:
    write(folder, (Step(),), (Step(),))


def missing_rank_file(folder: Path) -> None:
    write(folder, *[(Step(),)] * 2, *[(Step(group="world"),)] * 2)
    (folder / "job.2.et").unlink()


def truncated_file(folder: Path) -> None:
    sound(folder)
    file = folder / "job.1.et"
    file.write_bytes(file.read_bytes()[:-7])


def garbage_file(folder: Path) -> None:
    sound(folder)
    (folder / "job.1.et").write_bytes(b"\x10not a trace, whatever its name says")


def empty_folder(folder: Path) -> None:
    folder.mkdir()


def unknown_group(folder: Path) -> None:
    write(folder, (Step(group="7"),), (Step(group="7"),))


def not_a_member(folder: Path) -> None:
    write(folder, (Step(),), (Step(),), (Step(),))


def cycle(folder: Path) -> None:
    write(folder, (Step(after=(1,)), Step(after=(0,))), (Step(), Step()))


def sizes_differ(folder: Path) -> None:
    write(folder, (Step(), Step(size=4096)), (Step(), Step(size=8192)))


def counts_differ(folder: Path) -> None:
    write(folder, (Step(), Step()), (Step(),))


def elements_without_a_size(folder: Path) -> None:
    sound(folder)
    header = frame(
        encode_metadata(
            Metadata(version="", attributes={"schema": "symbolic_tensor_network"})
        )
    )
    for rank in range(2):
        file = folder / f"job.{rank}.et"
        records = file.read_bytes()
        length = 1 + records[0]  # our own header is shorter than 128 bytes
        file.write_bytes(header + records[length:])


TRACES: dict[str, Callable[[Path], None]] = {
    "sound": sound,
    "missing-rank-file": missing_rank_file,
    "truncated-file": truncated_file,
    "garbage-file": garbage_file,
    "empty-folder": empty_folder,
    "unknown-group": unknown_group,
    "not-a-member": not_a_member,
    "cycle": cycle,
    "sizes-differ": sizes_differ,
    "counts-differ": counts_differ,
    "elements-without-a-size": elements_without_a_size,
}
