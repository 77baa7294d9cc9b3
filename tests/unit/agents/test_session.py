from __future__ import annotations

import asyncio
from array import array

import pytest

from chakram.control.events import Finished, PhaseChanged, Progress, RecordBatch
from chakram.records.row_layout import ITERATION_FIELDS, RecordRows
from chakram_agent import agent as session_module
from chakram_agent.agent import Session


def progress(counter: int) -> Progress:
    return Progress(time_ns=0, counter=counter, iterations=())


def batch() -> RecordBatch:
    rows = RecordRows(iterations=array("q", bytes(8 * len(ITERATION_FIELDS))))
    return RecordBatch(time_ns=0, rows=rows)


def test_events_arrive_in_order_with_the_end_last() -> None:
    async def body() -> None:
        session = Session("s")
        session.put(PhaseChanged(time_ns=1, phase="DONE"))
        session.put(Finished(time_ns=2))
        session.end("over")
        assert [event.time_ns for event in await session.take()] == [1, 2]
        assert await session.take() == []
        assert session.ended == "over"

    asyncio.run(body())


def test_unread_progress_keeps_only_the_latest_value() -> None:
    async def body() -> None:
        session = Session("s")
        for event in (progress(1), progress(2), batch(), progress(3)):
            session.put(event)
        assert await session.take() == [progress(2), batch(), progress(3)]

    asyncio.run(body())


def test_a_reader_waits_for_events() -> None:
    async def body() -> None:
        session = Session("s")
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(session.take())
            await asyncio.sleep(0)
            session.put(Finished(time_ns=2))
        assert reader.result() == [Finished(time_ns=2)]

    asyncio.run(body())


def test_controller_that_reads_no_records_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body() -> None:
        monkeypatch.setattr(session_module, "MAX_QUEUED_ROWS", 2)
        session = Session("s")
        assert session.put(batch())
        assert session.put(batch())
        assert not session.put(batch())
        await session.take()
        assert session.put(batch())

    asyncio.run(body())
