"""What was planted in a lab is the first cause that ``why`` names, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planted import KINDS, check, clean, explained, planted

pytestmark = pytest.mark.usefixtures("netns")

SHORT = ("slow_compute", "pause")
"""Those of every check; the others are done likewise, and simulated in every check."""


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in SHORT else pytest.mark.soak)
        for kind in KINDS
    ],
)
@pytest.mark.parametrize(
    ("place", "seed"),
    [
        (1, 1),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in ((0, 1), (0, 2), (1, 2))
        ),
    ],
)
def test_a_planted_cause_is_named_first_with_its_place(
    tmp_path: Path, kind: str, place: int, seed: int
) -> None:
    what = planted(kind, tmp_path, place=place, seed=seed)
    check(what, explained(tmp_path, what))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_clean_run_names_no_cause(tmp_path: Path, seed: int) -> None:
    what = clean(0, seed)
    check(what, explained(tmp_path, what))
