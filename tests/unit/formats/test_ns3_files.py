"""Files of ns-3's RDMA model."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.formats.ns3 import (
    FlowTime,
    PauseEvent,
    QueueLength,
    flow_times_text,
    pauses_text,
    queue_lengths_text,
    read_flow_times,
)
from chakram.foundation.errors import ResultsError
from tests.ns3_files import read_pauses, read_queue_lengths

LINE = b"0b000201 0b010501 10003 100 65536 18250 2710 2384\n"


def test_a_message_has_its_nodes_and_times() -> None:
    (flow,) = read_flow_times(b"\n" + LINE, "fct.txt")
    assert flow == FlowTime(2, 261, 10003, 100, 65536, 18250, 2710, 2384)
    assert flow.end_ns == 20960


def test_a_pause_names_node_and_interface() -> None:
    assert read_pauses(b"7 16 1 3 1\n9 16 0 3 0\n", "pfc.txt") == [
        PauseEvent(7, 16, True, 3, True),
        PauseEvent(9, 16, False, 3, False),
    ]
    assert read_pauses(b"", "pfc.txt") == []


QUEUES = b"time 600 16 j 9 3108 j 10 1036\ntime 600 17 j 10 4144\n"


def test_queues_belong_to_switches() -> None:
    found = read_queue_lengths(b"time 600 16 j 9 3108 j 10 1036 \n", "qlen.txt")
    assert found == [QueueLength(600, 16, 9, 3108), QueueLength(600, 16, 10, 1036)]
    assert queue_lengths_text(read_queue_lengths(QUEUES, "q")).encode() == QUEUES


@pytest.mark.parametrize(
    "line", [b"time 600 16 j 9", b"tim 6 16 j 9 1", b"time 6 16 k 9 1", b"time a 1"]
)
def test_invalid_queue_line_is_refused(line: bytes) -> None:
    with pytest.raises(ResultsError, match=r"qlen\.txt:1: "):
        read_queue_lengths(line, "qlen.txt")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"1 2 3", "fct.txt:1: has 3 fields, but fct.txt has 8"),
        (LINE.replace(b"0b000201", b"0b00020"), "is not an address of 8 digits"),
        (LINE.replace(b"18250", b"-1"), "start_ns '-1' is not a whole number"),
        (LINE.replace(b"10003", b"65536"), "a port is above 65535"),
        (LINE.replace(b"2384", b"2384.5"), "alone_ns '2384.5' is not a whole number"),
        (b"\x80", "is not UTF-8 text"),
    ],
)
def test_invalid_message_line_is_refused(line: bytes, said: str) -> None:
    with pytest.raises(ResultsError) as caught:
        read_flow_times(line, "fct.txt")
    assert said in str(caught.value)


@pytest.mark.parametrize("line", [b"1 2 3", b"1 2 2 3 1", b"1 2 1 3 2", b"a 2 1 3 1"])
def test_invalid_pause_line_is_refused(line: bytes) -> None:
    with pytest.raises(ResultsError):
        read_pauses(line, "pfc.txt")


@given(st.binary(max_size=200), st.integers(0, 60))
def test_any_bytes_are_read_or_refused(noise: bytes, place: int) -> None:
    for good, read in (
        (LINE, read_flow_times),
        (b"7 16 1 3 1\n", read_pauses),
        (QUEUES, read_queue_lengths),
    ):
        for data in (noise, good[:place] + noise + good[place:]):
            with suppress(ResultsError):
                read(data, "f")


@given(
    st.lists(
        st.builds(
            PauseEvent,
            st.integers(0, 2**63 - 1),
            st.integers(0, 2**16 - 1),
            st.booleans(),
            st.integers(0, 1000),
            st.booleans(),
        )
    )
)
def test_pauses_are_read_as_they_are_written(events: list[PauseEvent]) -> None:
    assert read_pauses(pauses_text(events).encode(), "pfc.txt") == events


def test_real_files_are_written_as_they_were(chakram_data: Path) -> None:
    folder = chakram_data / "reference" / "simulators" / "ns3"
    for path in sorted(folder.glob("*/fct.txt")):
        data = path.read_bytes()
        assert flow_times_text(read_flow_times(data, "f")).encode() == data
    paths = sorted(folder.glob("*/qlen.txt"))
    assert sum(path.stat().st_size for path in paths) > 50_000
    for path in paths:
        data = path.read_bytes()
        assert queue_lengths_text(read_queue_lengths(data, "f")).encode() == data


def test_real_files_are_read_whole(chakram_data: Path) -> None:
    folder = chakram_data / "reference" / "simulators" / "ns3"
    paths = sorted(folder.glob("*/fct.txt"))
    assert len(paths) >= 9
    for path in paths:
        data = path.read_bytes()
        flows = read_flow_times(data, str(path))
        assert len(flows) == data.count(b"\n")
        assert all(flow.src != flow.dst and flow.src < 16 for flow in flows)
    for path in folder.glob("*/pfc.txt"):
        read_pauses(path.read_bytes(), str(path))
