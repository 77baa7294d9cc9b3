"""Some damaged inputs of every kind; `make soak` judges twenty thousand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.damaged_inputs import KINDS, fuzz, make_sound

if TYPE_CHECKING:
    from pathlib import Path

INPUTS = {"run": 8, "results": 12, "rules": 12, "suite": 4, "plan": 2}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    make_sound(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_inputs_are_read_or_refused(kind: str, sound: Path) -> None:
    inputs = INPUTS.get(kind, 8)
    judged = fuzz(sound, seed=1, inputs=inputs, kinds=[kind], most_bytes=None)
    assert judged.inputs == inputs
    assert judged.ends.total() >= inputs
