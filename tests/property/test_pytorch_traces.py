"""Laws of reading PyTorch host traces: any file is read or raises our errors."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chakram.chakra.read.pytorch.kineto import read_profile
from chakram.chakra.read.reader_options import ReadOptions
from chakram.foundation.errors import TraceError
from tests.trace_bytes import read_stream
from tests.unit.chakra.read.pytorch.hosts import (
    all_reduce,
    all_to_all,
    event,
    groups,
    kernel,
    node,
    record,
    tensor,
    text,
    wait,
)

GROUPS = groups(
    {"pg_name": "0", "ranks": [], "group_size": 4, "backend_id": 64},
    {"pg_name": "7", "ranks": [0, 2], "group_size": 2},
)
WHOLE = [
    GROUPS,
    all_to_all(5, 10, 6, [4, 1, 0, 0], [0, 0, 1, 2]),
    all_reduce(6, 4, is_async=True),
    record(7, "allreduce", [tensor(4)], parent=6, behind=[0, 1, 4, True]),
    record(8, "send", [tensor(4)], group=("7", "pp"), rank=1),
    record(13, "recv", [tensor(4)], rank=1),
    record(14, "broadcast", [tensor(4)], rank=1),
    wait(9, 1),
    record(10, "all_to_allv", tensor(4), old=True, group=64, in_splits=[1, 1, 1, 1]),
    record(11, "scatter", [], received=[tensor(3)], dtype="Float", in_msg_nelems=3),
    node(12, "gloo:all_reduce", [tensor(1)], ["Tensor(float)"]),
]

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
)
values = st.one_of(
    leaves,
    st.lists(leaves, max_size=3),
    st.just({"name": "rf_id", "value": []}),
    st.just([[[]], {}]),
)


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """Return the paths to everything inside a JSON value."""
    found = [path] if path else []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return found
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


PLACES = places(WHOLE)


def outcome(content: bytes) -> None:
    try:
        trace = read_stream(
            io.BytesIO(content),
            rank=0,
            source="host.0.json",
            options=ReadOptions(unnamed_groups={"any": "7"}),
        ).trace
    except TraceError:
        return
    order = trace.graph.topological_order()
    assert len(order) == len(trace.graph)


@given(st.sampled_from(PLACES), values)
def test_a_damaged_node_is_refused_or_read(place: tuple, value: Any) -> None:
    rows = json.loads(json.dumps(WHOLE))
    inside = rows
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    outcome(text(*rows))


@given(st.integers(0, len(text(*WHOLE))), st.binary(max_size=3))
def test_damaged_bytes_are_refused_or_read(at: int, inserted: bytes) -> None:
    whole = text(*WHOLE)
    outcome(whole[:at] + inserted + whole[at + len(inserted) :])
    outcome(whole[:at])


EVENTS = [event(1, 0, 9), event(2, 3, 4), kernel(1, 5, 50, stream=7)]
EVENT_PLACES = places(EVENTS)


@given(
    st.lists(
        st.builds(
            event, st.integers(0, 9), st.integers(0, 99), st.integers(0, 99),
            thread=st.integers(0, 2),
        ),
        max_size=8,
    )
)  # fmt: skip
def test_self_times_sum_to_at_most_the_total(
    events: list[Any],
) -> None:
    content = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    found = read_profile([content], "device.0.json")
    for function, span in found.own.items():
        assert 0 <= span.duration_ns <= found.spans[function].duration_ns
        assert span.start_ns >= 0


@given(st.sampled_from(EVENT_PLACES), values)
def test_a_damaged_event_is_refused_or_read(place: tuple, value: Any) -> None:
    events = json.loads(json.dumps(EVENTS))
    inside = events
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    content = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    with contextlib.suppress(TraceError):
        read_profile([content], "device.0.json")


@given(
    st.lists(
        st.tuples(st.sampled_from(["sync", "async", "wait"]), st.integers(0, 3)),
        max_size=12,
    )
)
def test_order_with_any_host_waits_has_no_cycle_and_keeps_ids(
    steps: list[tuple[str, int]],
) -> None:
    rows = []
    for node_id, (what, sequence) in enumerate(steps, start=10):
        if what == "wait":
            rows.append(wait(node_id, sequence))
        else:
            rows.append(
                record(
                    node_id, "allreduce", [tensor(1)], sequence=sequence,
                    behind=[0, 1, 4, what == "async"],
                )
            )  # fmt: skip
    trace = read_stream(
        io.BytesIO(text(GROUPS, *rows)), rank=0, source="host.0.json"
    ).trace
    found = list(trace.graph.nodes())
    ids = [each.node_id for each in found]
    assert ids == sorted(ids)
    for each in found:
        assert all(position < each.position for position in each.dependencies)
    # What follows a transfer that is not asynchronous waits for it.
    last_sync = None
    ancestors: list[set[int]] = []
    kinds = dict(enumerate((what for what, _ in steps), start=10))
    for each in found:
        before = set[int]().union(*({p} | ancestors[p] for p in each.dependencies))
        ancestors.append(before)
        if kinds[each.node_id] != "wait":
            assert last_sync is None or last_sync in before
        if kinds[each.node_id] == "sync":
            last_sync = each.position
