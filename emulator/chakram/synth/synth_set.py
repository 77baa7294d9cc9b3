"""Made-up trace sets, by way of the bytes that their files would hold."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from chakram.chakra.read.reader import read_stream
from chakram.chakra.sets.trace_set import TraceSet, assemble
from chakram.chakra.write.writer import encode_trace

if TYPE_CHECKING:
    from chakram.synth.program import Synthesis


def synthesized_trace_set(
    synthesis: Synthesis, *, on_rank: Callable[[int, int], None] | None = None
) -> TraceSet:
    """Return the trace set that ``chakram trace synth`` would have written.

    It goes through encoding and decoding, so that it is what its files would give: the
    same digest, the same offsets.

    Args:
        synthesis: What is made.
        on_rank: Called with (ranks made, ranks in all) after every rank.
    """
    traces = {}
    for rank, graph in enumerate(synthesis.graphs()):
        records = encode_trace(
            graph,
            producer=synthesis.producer,
            groups=synthesis.descriptions_of(rank),
        )
        traces[rank] = read_stream(
            io.BytesIO(b"".join(records)),
            rank=rank,
            source=f"synth:{synthesis.kind}.{rank}.et",
        )
        if on_rank is not None:
            on_rank(rank + 1, synthesis.nranks)
    return assemble(
        name=f"synth:{synthesis.kind}",
        traces=traces,
        file_groups={group.name: group.ranks for group in synthesis.groups},
    )
