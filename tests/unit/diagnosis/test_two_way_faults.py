"""Only slow links are tried in both directions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from chakram.diagnosis.counterfactual import Assumption
from chakram.diagnosis.fault_proposals import Hypothesis
from chakram.diagnosis.fault_search import _Search


def test_a_pause_is_not_tried_in_both_directions() -> None:
    search: Any = _Search.__new__(_Search)
    search._counters = SimpleNamespace(other_end=lambda port: f"far of {port}")
    search._links = {"far of h0:eth0": SimpleNamespace(rate_bps=10**9, link="h0-s0")}
    tried: list[Hypothesis] = []
    search._fit_of = SimpleNamespace(fitted=lambda _, both: tried.append(both))
    storm = Assumption(kind="pause_storm", port="h0:eth0", classes=(3,))
    slow = Assumption(kind="degrade", port="h0:eth0", rate_bps=10**8)
    for assumed in (storm, slow):
        one_way = Hypothesis(cause="x", place="h0-s0 up", assumed=(assumed,))
        assert search._two_way(cast("Any", None), one_way, set()) is None
    (both,) = tried
    assert [each.port for each in both.assumed] == ["h0:eth0", "far of h0:eth0"]
    assert both.span is not None
    assert both.span[0] > 0
