"""Made-up trace sets, by way of the bytes that their files would hold."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from chakram.chakra.reader import read_stream
from chakram.chakra.synth import synth_moe
from chakram.chakra.trace_set import TraceSet, assemble
from chakram.chakra.writer import encode_trace

if TYPE_CHECKING:
    from chakram.chakra.synth import MoeParameters

MOE_PRODUCER: Final = "chakram synth moe"
MOE_PREFIX: Final = "moe"


def synth_moe_trace_set(parameters: MoeParameters) -> TraceSet:
    """Return the trace set that ``chakram trace synth moe`` would have written.

    It goes through encoding and decoding, so that it is what its files would give: the
    same digest, the same offsets.
    """
    synthesized = synth_moe(parameters)
    traces = {
        rank: read_stream(
            io.BytesIO(b"".join(encode_trace(graph, producer=MOE_PRODUCER))),
            rank=rank,
            source=f"synth:{MOE_PREFIX}.{rank}.et",
        )
        for rank, graph in enumerate(synthesized.graphs)
    }
    return assemble(
        name=f"synth:{MOE_PREFIX}",
        traces=traces,
        file_groups={group.name: group.ranks for group in synthesized.groups},
    )
