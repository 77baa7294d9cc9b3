"""In which order a pipeline stage takes its micro batches."""

from __future__ import annotations

from typing import NamedTuple


class Turn(NamedTuple):
    """One micro batch going forward or backward through a stage."""

    forward: bool
    micro_batch: int


def one_forward_one_backward(
    *, stage: int, stages: int, micro_batches: int
) -> list[Turn]:
    """Return the order of a stage in the 1F1B schedule.

    As many micro batches go forward first as there are stages behind, then forward and
    backward take turns, so that a stage never holds more than ``stages - stage`` of
    them (PipeDream-Flush, arXiv:2006.09503; Megatron-LM, arXiv:2104.04473, section
    2.2).
    """
    ahead = min(stages - stage - 1, micro_batches)
    order = [Turn(True, number) for number in range(ahead)]
    for number in range(micro_batches - ahead):
        order += [Turn(True, ahead + number), Turn(False, number)]
    order += [
        Turn(False, number) for number in range(micro_batches - ahead, micro_batches)
    ]
    return order


def all_forward_all_backward(*, micro_batches: int) -> list[Turn]:
    """Return the order of every stage in GPipe's schedule (arXiv:1811.06965)."""
    return [
        Turn(forward, number)
        for forward in (True, False)
        for number in range(micro_batches)
    ]


def layers_of(*, stage: int, stages: int, layers: int) -> range:
    """Return the layers of a stage: shares that differ by one layer at most."""
    return range(stage * layers // stages, (stage + 1) * layers // stages)
