"""Tables of messages show as many columns as fit."""

from __future__ import annotations

import pytest

from chakram.console.message_tables import message_lines
from chakram.summary.summarize_messages import summarize_messages
from tests.golden.test_message_tables import incast
from tests.messages import message, transport


def heading(text: str, above: str) -> str:
    """Return the heading of the table that a sentence stands above."""
    lines = text.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith(above))
    return lines[at + 1]


def messages(width: int | None) -> str:
    found = summarize_messages(incast(3, 2), transport(4))
    assert found is not None
    return "\n".join(message_lines(found, width=width))


@pytest.mark.parametrize(
    "above",
    [
        "# Messages by receiver",
        "# Messages by pair",
    ],
)
def test_table_that_just_fits_is_not_shortened(above: str) -> None:
    whole = heading(messages(None), above)
    assert heading(messages(len(whole)), above) == whole
    cut = heading(messages(len(whole) - 1), above)
    assert len(cut) < len(whole)
    # The remaining columns keep their order.
    rest = iter(whole.split())
    assert all(word in rest for word in cut.split())


def test_ports_that_are_too_fast_in_both_directions_count_once() -> None:
    pairs = ((0, 1), (1, 0))
    both = [message(src, dst, 0, 500, fair_us=1000) for src, dst in pairs]
    found = summarize_messages(both, transport(2))
    assert found is not None
    *_, last = message_lines(found)
    assert last.startswith("# No %rate of 2 ports: ")
