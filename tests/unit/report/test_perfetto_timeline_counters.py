from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from chakram.report import perfetto_timeline


def test_a_counter_is_told_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    series = {"queue": ("bytes", np.array([0.0, 5.0, 5.0, 7.0]))}
    monkeypatch.setattr(perfetto_timeline, "_series", lambda data: series)
    data: Any = SimpleNamespace(bin_ns=1000)
    counts: Counter[str] = Counter()

    events = json.loads(f"[{','.join(perfetto_timeline._counters(data, counts))}]")

    assert [(round(each["ts"], 3), each["args"]["bytes"]) for each in events] == [
        (0, 0),
        (1, 5),
        (3, 7),
        (4, 0),
    ]
    assert counts["counters"] == 4
