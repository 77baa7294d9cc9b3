from __future__ import annotations

from chakram.synth.expert_routing import apportion


def test_part_with_a_tiny_weight_gets_the_remainder() -> None:
    assert apportion(6, [1.0, 1e-30], cap=3) == [3, 3]
    assert apportion(3, [1.0, 1e-30], cap=3) == [3, 0]
