from __future__ import annotations

from chakram.synth.routing import apportion


def test_a_part_of_next_to_no_weight_takes_what_others_cannot() -> None:
    assert apportion(6, [1.0, 1e-30], cap=3) == [3, 3]
    assert apportion(3, [1.0, 1e-30], cap=3) == [3, 0]
