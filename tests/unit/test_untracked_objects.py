"""In the compiled form, the garbage collector does not track objects of messages."""

from __future__ import annotations

import gc

import pytest

from chakram._compiled import status
from chakram.replay.rank_progress import ActiveOperation, Flow
from chakram.roce.burst import Burst
from chakram.roce.events import MessageReceived, SendCompleted
from chakram.roce.message import Message


@pytest.mark.parametrize(
    "kind", [ActiveOperation, Burst, Flow, Message, MessageReceived, SendCompleted]
)
def test_collector_does_not_track_objects_of_messages(kind: type) -> None:
    assert gc.is_tracked(kind.__new__(kind)) is not status().is_compiled()
