from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest

from chakram.control.dataclass_codec import Mapper
from chakram.control.protobuf_messages import pb
from chakram.foundation.field_bounds import AtMost, Clipped, Fault, Name, Within


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    reason: Name
    waiting_for: Annotated[tuple[str, ...], Clipped(2, 3)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    counter: Annotated[int, Within(1, 9)]
    iterations: Annotated[
        tuple[tuple[Annotated[int, Within(0, 5)], int], ...], AtMost(2)
    ] = ()

    def __post_init__(self) -> None:
        if self.counter == len(self.iterations):
            raise ValueError("as many as there are")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hinted:
    where: Name
    hint: str | None = None


TOLD = Mapper(Told, pb.Failed)
HINTED = Mapper(Hinted, pb.ErrorDetail, beyond=["kind", "found"])
NUMBERED = Mapper(Numbered, pb.Progress, beyond=["waiting_for", "foreign", "resting"])


def test_fields_go_by_their_names_and_rows_by_their_order() -> None:
    value = Numbered(counter=3, iterations=((1, 20), (2, 30)))
    message = NUMBERED.encode(value)
    assert message.counter == 3
    assert [(each.rank, each.iterations) for each in message.iterations] == [
        (1, 20),
        (2, 30),
    ]
    assert NUMBERED.decode(message) == value


@pytest.mark.parametrize("hint", [None, "", "try again"])
def test_none_is_omitted_from_the_message(hint: str | None) -> None:
    value = Hinted(where="w", hint=hint)
    message = HINTED.encode(value)
    assert message.HasField("hint") is (hint is not None)
    assert HINTED.decode(message) == value


def test_texts_are_shortened_by_both_sides() -> None:
    long = ("abcdef", "b", "c")
    message = TOLD.encode(Told(reason="r", waiting_for=long))
    assert list(message.waiting_for) == ["abc", "b"]
    came = TOLD.decode(pb.Failed(reason="r", waiting_for=long))
    assert came.waiting_for == ("abc", "b")


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (pb.Progress(), "counter: 0 is not in 1..9"),
        (
            pb.Progress(
                counter=1,
                iterations=[pb.RankProgress(rank=5), pb.RankProgress(rank=6)],
            ),
            "iterations[1].rank: 6 is not in 0..5",
        ),
        (
            pb.Progress(counter=1, iterations=[pb.RankProgress()] * 3),
            "iterations: 3 entries, but at most 2 are allowed",
        ),
        (
            pb.Progress(counter=1, iterations=[pb.RankProgress()]),
            "as many as there are",
        ),
    ],
)
def test_received_values_are_checked_against_field_bounds(
    message: pb.Progress, problem: str
) -> None:
    with pytest.raises(Fault) as caught:
        NUMBERED.decode(message)
    assert str(caught.value) == problem


def test_differences_between_data_and_message_must_be_declared() -> None:
    with pytest.raises(TypeError, match="Numbered and Progress differ in foreign"):
        Mapper(Numbered, pb.Progress, beyond=["waiting_for"])
    with pytest.raises(TypeError, match="Told and LogLine differ in level, reason"):
        Mapper(Told, pb.LogLine)
