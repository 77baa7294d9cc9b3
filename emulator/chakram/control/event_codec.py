"""What agents tell, as messages and back.

Data-plane processes report with the same messages; nothing here needs gRPC.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

from chakram.control.events import (
    AgentDescription,
    AgentEvent,
    CountersSnapshot,
    Failed,
    Finished,
    LogLine,
    PhaseChanged,
    Progress,
    RecordBatch,
    ShardLoad,
)
from chakram.control.protocol_messages import pb
from chakram.errors import PeerError
from chakram.plan.probes import PROBE_FIELDS
from chakram.results.counters import TOTAL_SLOTS
from chakram.results.records import (
    FLOW_FIELDS,
    ITERATION_FIELDS,
    PORT_FIELDS,
    QUEUE_PAIR_FIELDS,
    SHARE_FIELDS,
    RecordRows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "decode_description",
    "decode_event",
    "decode_progress",
    "decode_rows",
    "encode_description",
    "encode_event",
    "encode_progress",
    "encode_rows",
    "pack_numbers",
    "unpack_numbers",
]

MAX_SENTENCES = 64
"""Of ``waiting_for``: more than anybody reads."""
MAX_SENTENCE = 2000


def pack_numbers(values: array[int]) -> bytes:
    """Return 64-bit integers as little-endian bytes."""
    if sys.byteorder == "big":
        values = array("q", values)
        values.byteswap()
    return values.tobytes()


def unpack_numbers(data: bytes, *, per_row: int, where: str) -> array[int]:
    """Return the integers that ``pack_numbers`` packed.

    Raises:
        PeerError: At *where*, if they are no whole rows of *per_row* integers.
    """
    if len(data) % (8 * per_row):
        raise PeerError(where, f"{len(data)} bytes are no rows of {per_row} integers")
    values = array("q")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def encode_rows(rows: RecordRows) -> pb.Records:
    """Return the message of a batch of rows."""
    return pb.Records(
        flows=pack_numbers(rows.flows),
        shares=pack_numbers(rows.shares),
        iterations=pack_numbers(rows.iterations),
        queue_pairs=pack_numbers(rows.queue_pairs),
        ports=pack_numbers(rows.ports),
        probes=pack_numbers(rows.probes),
    )


def decode_rows(message: pb.Records, *, where: str) -> RecordRows:
    """Return the rows of a message.

    Raises:
        PeerError: At *where*, if they are no whole rows.
    """
    return RecordRows(
        flows=unpack_numbers(message.flows, per_row=len(FLOW_FIELDS), where=where),
        shares=unpack_numbers(message.shares, per_row=len(SHARE_FIELDS), where=where),
        iterations=unpack_numbers(
            message.iterations, per_row=len(ITERATION_FIELDS), where=where
        ),
        queue_pairs=unpack_numbers(
            message.queue_pairs, per_row=len(QUEUE_PAIR_FIELDS), where=where
        ),
        ports=unpack_numbers(message.ports, per_row=len(PORT_FIELDS), where=where),
        probes=unpack_numbers(message.probes, per_row=len(PROBE_FIELDS), where=where),
    )


def encode_progress(progress: Progress) -> pb.Progress:
    """Return the message of a progress report."""
    return pb.Progress(
        counter=progress.counter,
        ranks=[
            pb.RankProgress(rank=rank, iterations=iterations)
            for rank, iterations in progress.iterations
        ],
        waiting_for=_sentences(progress.waiting_for),
        foreign=_sentences(progress.foreign),
    )


def decode_progress(message: pb.Progress, *, time_ns: int) -> Progress:
    """Return the progress report of a message."""
    return Progress(
        time_ns=time_ns,
        counter=message.counter,
        iterations=tuple((row.rank, row.iterations) for row in message.ranks),
        waiting_for=_sentences(message.waiting_for),
        foreign=_sentences(message.foreign),
    )


def encode_event(event: AgentEvent) -> pb.AgentEvent:
    """Return the message of an event."""
    message = pb.AgentEvent(time_ns=event.time_ns)
    match event:
        case PhaseChanged():
            message.phase_changed.phase = event.phase
        case Progress():
            message.progress.CopyFrom(encode_progress(event))
        case RecordBatch():
            message.records.CopyFrom(encode_rows(event.rows))
        case CountersSnapshot():
            message.counters.CopyFrom(
                pb.Counters(
                    values=pack_numbers(array("q", event.values)),
                    loads=[
                        pb.ShardLoad(
                            shard=load.shard,
                            wall_ns=load.wall_ns,
                            cpu_ns=load.cpu_ns,
                            max_lag_ns=load.max_lag_ns,
                            late_rounds=load.late_rounds,
                            rounds=load.rounds,
                            busy_ns=load.busy_ns,
                            measured_ns=load.measured_ns,
                            measured_busy_ns=load.measured_busy_ns,
                            queue_pairs=load.queue_pairs,
                            queue_pairs_limited=load.queue_pairs_limited,
                            queue_pairs_failed=load.queue_pairs_failed,
                        )
                        for load in event.loads
                    ],
                )
            )
        case LogLine():
            message.log.CopyFrom(pb.LogLine(level=event.level, text=event.text))
        case Finished():
            message.finished.SetInParent()
        case Failed():
            message.failed.CopyFrom(
                pb.Failed(
                    reason=event.reason, waiting_for=_sentences(event.waiting_for)
                )
            )
    return message


def decode_event(message: pb.AgentEvent, *, where: str) -> AgentEvent | None:
    """Return the event of a message; None if this version does not know its kind.

    Raises:
        PeerError: At *where*, if the message contradicts itself.
    """
    time_ns = message.time_ns
    match message.WhichOneof("event"):
        case "phase_changed":
            return PhaseChanged(time_ns=time_ns, phase=message.phase_changed.phase)
        case "progress":
            return decode_progress(message.progress, time_ns=time_ns)
        case "records":
            return RecordBatch(
                time_ns=time_ns, rows=decode_rows(message.records, where=where)
            )
        case "counters":
            return _counters(message.counters, time_ns=time_ns, where=where)
        case "log":
            return LogLine(
                time_ns=time_ns, level=message.log.level, text=message.log.text
            )
        case "finished":
            return Finished(time_ns=time_ns)
        case "failed":
            return Failed(
                time_ns=time_ns,
                reason=message.failed.reason,
                waiting_for=_sentences(message.failed.waiting_for),
            )
    return None


def _counters(message: pb.Counters, *, time_ns: int, where: str) -> CountersSnapshot:
    values = unpack_numbers(message.values, per_row=TOTAL_SLOTS, where=where)
    if len(values) != TOTAL_SLOTS:
        raise PeerError(where, f"{len(values)} counters instead of {TOTAL_SLOTS}")
    return CountersSnapshot(
        time_ns=time_ns,
        values=values,
        loads=tuple(
            ShardLoad(
                shard=load.shard,
                wall_ns=load.wall_ns,
                cpu_ns=load.cpu_ns,
                max_lag_ns=load.max_lag_ns,
                late_rounds=load.late_rounds,
                rounds=load.rounds,
                busy_ns=load.busy_ns,
                measured_ns=load.measured_ns,
                measured_busy_ns=load.measured_busy_ns,
                queue_pairs=load.queue_pairs,
                queue_pairs_limited=load.queue_pairs_limited,
                queue_pairs_failed=load.queue_pairs_failed,
            )
            for load in message.loads
        ),
    )


def encode_description(description: AgentDescription) -> pb.Description:
    """Return the message of a description."""
    return pb.Description(
        protocol=description.protocol,
        version=description.version,
        host=description.host,
        kernel=description.kernel,
        python=description.python,
        cores=description.cores,
        compiled=description.compiled,
        uncompiled_modules=description.uncompiled_modules,
        port_kinds=description.port_kinds,
        allow=description.allow,
        max_rate_bps=description.max_rate_bps,
        free_shards=description.free_shards,
        phase=description.phase,
        monotonic_ns=description.monotonic_ns,
        receive_buffer_bytes=description.receive_buffer_bytes,
        clock=description.clock,
    )


def decode_description(message: pb.Description) -> AgentDescription:
    """Return the description of a message."""
    return AgentDescription(
        protocol=message.protocol,
        version=message.version,
        host=message.host,
        kernel=message.kernel,
        python=message.python,
        cores=message.cores,
        compiled=message.compiled,
        uncompiled_modules=tuple(message.uncompiled_modules),
        port_kinds=tuple(message.port_kinds),
        allow=tuple(message.allow),
        max_rate_bps=(
            message.max_rate_bps if message.HasField("max_rate_bps") else None
        ),
        free_shards=message.free_shards,
        phase=message.phase,
        monotonic_ns=message.monotonic_ns,
        receive_buffer_bytes=(
            message.receive_buffer_bytes
            if message.HasField("receive_buffer_bytes")
            else None
        ),
        clock=message.clock,
    )


def _sentences(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(text[:MAX_SENTENCE] for text in texts[:MAX_SENTENCES])
