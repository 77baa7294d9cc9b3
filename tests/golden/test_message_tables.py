"""The tables of point-to-point messages, word for word.

The texts stand in ``messages/``.  ``CHAKRAM_UPDATE_GOLDEN=1`` writes them anew; read
the difference before you commit it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from chakram.console.message_tables import message_lines
from chakram.summary.message_summary import SentMessage
from chakram.summary.summarize_messages import summarize_messages
from tests.messages import JOB, message, transport

EXPECTED = Path(__file__).parent / "messages"

UPS = ("leaf0:up0", "spine0:down1"), ("leaf0:up1", "spine1:down1")


def incast(fan_in: int, repeats: int) -> list[SentMessage]:
    """Everybody posts within some us; the later ones wait a little longer."""
    return [
        message(
            src,
            0,
            repeat * 20_000 + src,
            fan_in * 1010 + 13 * src,
            fair_us=fan_in * 1010,
            retransmitted=src == fan_in,
            cnp=2 * src,
        )
        for repeat in range(repeats)
        for src in range(1, fan_in + 1)
    ]


def permutation() -> list[SentMessage]:
    """Ranks 0 to 3 send to 4 to 7; 0 and 1 come to one uplink, 2 takes turns."""
    return [
        message(
            src,
            4 + (src + repeat) % 4,
            repeat * 5000,
            1950 if src < 2 else 1020,
            fair_us=1015,
            path=UPS[src // 2 if src != 2 else repeat % 2],
        )
        for repeat in range(3)
        for src in range(4)
    ]


def one_to_all() -> list[SentMessage]:
    return [message(0, dst, dst, 3050, fair_us=3030) for dst in (1, 2, 3)]


def many() -> list[SentMessage]:
    """More receivers and pairs than are listed, and nobody knows a fair time."""
    return [message(src, src + 20, 0, 1000 + src) for src in range(20)]


def two_jobs() -> list[SentMessage]:
    second = [each._replace(job="other") for each in one_to_all()]
    return [*incast(2, 1), *second]


CASES = {
    "incast": incast(7, 5),
    "permutation": permutation(),
    "one_to_all": one_to_all(),
    "many": many(),
    "two_jobs": two_jobs(),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_tables_of_messages_are_as_agreed(name: str) -> None:
    ports = transport(40)
    known = {
        (job, rank): port
        for (_, rank), port in ports.ports.items()
        for job in (JOB, "other")
    }
    found = summarize_messages(
        CASES[name],
        replace(ports, ports=known),
        marked={(JOB, 1, 0): 12},
        drops={("h0", "down"): 3},
    )
    assert found is not None
    text = "\n".join(message_lines(found)) + "\n"
    path = EXPECTED / f"{name}.txt"
    if os.environ.get("CHAKRAM_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
