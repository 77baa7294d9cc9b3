"""The guide to counters: its patch counts, and what it counts is seen everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

GUIDE = "add-a-counter.md"

SEEN = """
import json
from chakram.observe.catalogue import BY_NAME
from chakram.observe.metrics_state import MetricsState
from chakram.observe.tables import QUEUE_PAIR_SCHEMA
from chakram.results.counters import COUNTER_NAMES, TOTAL_SLOTS, slot
from chakram.results.records import QUEUE_PAIR_FIELDS
from chakram.replay.samples import queue_pair_row
from chakram.testing.pair import Pair

def repeating(pair):
    pair.b.post_send(1, 40_000, pair.now_ns)
    pair.run()

print(json.dumps({
    "metric": BY_NAME["chakram_repeats_total"].help,
    "columns": QUEUE_PAIR_FIELDS[-1:] + tuple(QUEUE_PAIR_SCHEMA.names[-1:]),
    "slot": slot("repeats") < TOTAL_SLOTS,
}))
"""
