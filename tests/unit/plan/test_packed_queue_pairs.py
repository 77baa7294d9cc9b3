"""Packed queue pairs are equal to those that are made at once."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from chakram.config.experiment import parse_experiment
from chakram.plan import queue_pairs
from chakram.plan.packed_queue_pairs import RankQueuePairs, peers_within_host
from chakram.plan.plan import Plan
from chakram.preparation.resolved_run import load_run

EXPERIMENT = """\
version: 1
name: packed
jobs:
  - name: moe
    trace: {{synth: moe, ranks: 16, ep: 4, dp: 2, pp: 2, layers: 2}}
    placement: {placement}
  - name: ring
    trace: {{synth: collectives, ranks: 4, streams: [{{op: all_reduce}}]}}
    size_scale: 1/4
fabric:
  kind: namespaces
  topology: {{single_switch: {{hosts: 20}}}}
transport: {transport}
"""


def plan_of(packed_from: int, monkeypatch: pytest.MonkeyPatch, **keys: Any) -> Plan:
    monkeypatch.setattr(queue_pairs, "PACKED_FROM", packed_from)
    keys = {"placement": "{}", "transport": "{}", **keys}
    return load_run(parse_experiment(EXPERIMENT.format(**keys))).expected_plan("r")


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"transport": "{queue_pairs: {count: 3}, credits: 2}"},
        {"transport": "{source_ports: [5000, 5001, 5002]}"},
        {"transport": "{class_of: [{collective: all_reduce, class: 4}]}"},
        {"placement": "{ranks_per_port: 4, same_host: skip, local_rate: 10Gbit}"},
    ],
)
def test_packed_queue_pairs_are_the_same(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = plan_of(1 << 30, monkeypatch, **keys)
    packed = plan_of(0, monkeypatch, **keys)
    for one, two in zip(plain.ranks(), packed.ranks(), strict=True):
        assert isinstance(one.queue_pairs, tuple)
        assert isinstance(two.queue_pairs, RankQueuePairs)
        assert two.queue_pairs == one.queue_pairs
        assert one == two
        assert hash(two.queue_pairs) == hash(one.queue_pairs)
        assert len(two.queue_pairs) == len(one.queue_pairs)
        assert two.queue_pairs[-1] == one.queue_pairs[-1]
        assert two.queue_pairs[1:3] == one.queue_pairs[1:3]
        assert pickle.loads(pickle.dumps(two.queue_pairs)) == one.queue_pairs
        assert peers_within_host(two.queue_pairs) == peers_within_host(one.queue_pairs)
    assert plain == packed
    assert packed.ranks()[0].queue_pairs != 5
