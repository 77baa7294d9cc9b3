"""Reader for Kineto profiles, which contain the times of a host trace's nodes.

A host trace has no times. The profile of the same run has timed events. The event of a
CPU operation carries the record function id that the host trace calls ``rf_id``. The
event of a kernel carries the "External id" of the operation that launched it.

The self time of an operation is its duration without the events nested in it on the
same thread. If there are kernels, only kernels count as computation, because the host
runs ahead of the device. NCCL kernels never count as computation. Coalesced transfers
start after their operations, so any operation may seem to launch them.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from chakram.chakra.read.groups import RECORD
from chakram.chakra.read.json_scan import JsonScanner
from chakram.chakra.read.kernel_order import NCCL_KERNEL
from chakram.chakra.read.pytorch.host_trace_nodes import C10D, LABELS
from chakram.foundation.errors import GarbageTrace, TraceError

_OPERATION: Final = "cpu_op"
_MARKS: Final = ("user_annotation", _OPERATION)
_KERNELS: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_HINT: Final = "check that this is the profile of the same run"
_MOST_NS: Final = 2**62
EVENT_LIMIT: Final = 20_000_000


class Span(NamedTuple):
    """A time interval, in nanoseconds since the first event of the profile."""

    start_ns: int
    duration_ns: int

    @property
    def end_ns(self) -> int:
        """The end of the interval."""
        return self.start_ns + self.duration_ns


@dataclass(slots=True)
class Profile:
    """The times in a profile of one rank, by ``rf_id``.

    Attributes:
        source: Name of the file.
        own: Start and self time of each CPU operation.
        kernels: First start and total duration of the kernels that an operation
            launched, by stream.
        threads: Thread of each operation or label.
        spans: Start and whole duration of each operation or label.
        names: Name of each operation or label.
        process: The process id, or None if no event states it.
        has_ids: Whether any event has a record function id.
        kernels_ns: Total duration of all kernels.
        stray_kernels: Number of kernels that no known operation launched, such as
            kernels of CUDA graphs.
        stray_ns: Total duration of these kernels.
    """

    source: str
    own: dict[int, Span] = field(default_factory=dict)
    kernels: dict[int, dict[int, Span]] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)
    spans: dict[int, Span] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    process: int | None = None
    has_ids: bool = False
    kernels_ns: int = 0
    stray_kernels: int = 0
    stray_ns: int = 0


class _Kernel(NamedTuple):
    """A kernel, with the external id of the operation that launched it."""

    external: int | None
    stream: int
    start_ns: int
    duration_ns: int
    transfers: bool


class _Events:
    """Columns of the relevant events. Times are in ns of the profile's clock."""

    def __init__(self) -> None:
        self.starts = array("q")
        self.durations = array("q")
        self.threads = array("q")
        self.functions = array("q")
        self.names: list[str] = []
        self.process: int | None = None
        self.is_operation = bytearray()


def read_profile(chunks: Iterable[bytes], source: str) -> Profile:
    """Return the profile of one rank.

    Raises:
        TraceError: If the file is not a profile or has too many events.
    """
    events = _Events()
    function_of: dict[int, int] = {}
    kernels: list[_Kernel] = []
    for number, (offset, event) in enumerate(
        # Profilers write some argument names twice. The last value counts.
        JsonScanner(chunks, source=source, last_wins=True).elements("traceEvents")
    ):
        where = f"{source}: offset {offset}"
        if number == EVENT_LIMIT:
            raise TraceError(
                where, f"has more than {number} events", "profile fewer steps"
            )
        if not isinstance(event, dict):
            raise GarbageTrace(where, "is not an event but another JSON value", _HINT)
        if event.get("ph") != "X":
            continue
        category = event.get("cat")
        if category in _MARKS:
            _take_mark(events, function_of, event, where)
        elif category in _KERNELS:
            external = _argument(event, "External id")
            stream = _argument(event, "stream")
            kernels.append(
                _Kernel(
                    external,
                    stream or 0,
                    _time_ns(event, "ts", where),
                    _time_ns(event, "dur", where),
                    NCCL_KERNEL.search(str(event.get("name"))) is not None,
                )
            )
    return _profile(source, events, function_of, kernels)


def _take_mark(
    events: _Events, function_of: dict[int, int], event: Mapping[str, Any], where: str
) -> None:
    # Old PyTorch versions write 0 in place of these ids.
    function = _argument(event, "Record function id") or None
    external = _argument(event, "External id")
    if function is not None and external is not None:
        function_of[external] = function
    events.starts.append(_time_ns(event, "ts", where))
    events.durations.append(_time_ns(event, "dur", where))
    thread = event.get("tid")
    if not isinstance(thread, int) or not 0 <= thread < _MOST_NS:
        thread = -1
    events.threads.append(thread)
    events.functions.append(-1 if function is None else function)
    # There are few distinct names, so share their strings.
    events.names.append(sys.intern(str(event.get("name", ""))))
    process = event.get("pid")
    if events.process is None and isinstance(process, int):
        events.process = process
    events.is_operation.append(event.get("cat") == _OPERATION)


def _profile(
    source: str,
    events: _Events,
    function_of: Mapping[int, int],
    kernels: list[_Kernel],
) -> Profile:
    profile = Profile(source=source, process=events.process)
    begin_ns = min((*events.starts, *(each.start_ns for each in kernels)), default=0)
    own_ns = _own_times(events)
    for index, function in enumerate(events.functions):
        if function < 0:
            continue
        profile.has_ids = True
        start_ns = events.starts[index] - begin_ns
        profile.threads[function] = events.threads[index]
        profile.names[function] = events.names[index]
        profile.spans[function] = Span(start_ns, events.durations[index])
        if events.is_operation[index]:
            profile.own[function] = Span(start_ns, own_ns[index])
    for external, stream, start_ns, duration_ns, transfers in kernels:
        launched_by = None if external is None else function_of.get(external)
        name = "" if launched_by is None else profile.names[launched_by]
        if transfers and name != RECORD and not name.startswith((C10D, *LABELS)):
            continue
        profile.kernels_ns += duration_ns
        if launched_by is None:
            profile.stray_kernels += 1
            profile.stray_ns += duration_ns
            continue
        streams = profile.kernels.setdefault(launched_by, {})
        before = streams.get(stream, Span(start_ns - begin_ns, 0))
        streams[stream] = Span(
            min(before.start_ns, start_ns - begin_ns),
            min(before.duration_ns + duration_ns, _MOST_NS),
        )
    return profile


def _own_times(events: _Events) -> array[int]:
    """Return the self times: durations without nested events on the same thread."""
    own_ns = array("q", events.durations)
    order = sorted(
        range(len(own_ns)),
        key=lambda i: (events.threads[i], events.starts[i], -events.durations[i]),
    )
    open_events: list[int] = []
    for index in order:
        start_ns = events.starts[index]
        while open_events and (
            events.threads[open_events[-1]] != events.threads[index]
            or events.starts[open_events[-1]] + events.durations[open_events[-1]]
            <= start_ns
        ):
            open_events.pop()
        if open_events:
            around = open_events[-1]
            own_ns[around] = max(0, own_ns[around] - events.durations[index])
        open_events.append(index)
    return own_ns


def _argument(event: Mapping[str, Any], key: str) -> int | None:
    arguments = event.get("args")
    value = arguments.get(key) if isinstance(arguments, dict) else None
    return value if type(value) is int and 0 <= value < _MOST_NS else None


def _time_ns(event: Mapping[str, Any], key: str, where: str) -> int:
    """Return a time in ns. Kineto writes microseconds with a fraction."""
    value = event.get(key, 0)
    if not isinstance(value, int | float) or not 0 <= value < _MOST_NS // 1_000:
        raise GarbageTrace(where, f"its {key} is {value!r:.40}, not a time", _HINT)
    return round(value * 1_000)
