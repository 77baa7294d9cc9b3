"""The key that lets queue pairs keep what comes out of order."""

from __future__ import annotations

import pytest

from chakram.config.experiment import parse_experiment
from chakram.foundation.errors import ConfigError
from chakram.preparation.plan_settings import transport_plan
from chakram.preparation.resolved_run import resolve
from tests.unit.config.texts import QUICKSTART

SPRAYED = """
version: 1
name: sprayed
jobs:
  - name: moe
    trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}
fabric:
  kind: namespaces
  switch: model
  switches: {balancing: random}
  topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}
  links: {host: {rate: 100Mbit}, uplink: {rate: 100Mbit}}
"""


def with_reordering(written: str) -> str:
    return QUICKSTART.replace("window: 64KiB", f"reordering: {written}")


@pytest.mark.parametrize(
    ("written", "packets"),
    [
        ("reject", 0),
        ("accept", 64),
        ("{accept: {}}", 64),
        ("{accept: {window: 7}}", 7),
    ],
)
def test_it_is_a_name_or_a_name_with_a_window(written: str, packets: int) -> None:
    experiment = parse_experiment(with_reordering(written))
    assert transport_plan(experiment).reordering_packets == packets


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("keep", "'keep' is not a reordering mode"),
        ("{accept: {window: 0}}", "transport.reordering.accept.window"),
        ("{accept: {window: 65537}}", "transport.reordering.accept.window"),
        ("7", "transport.reordering"),
    ],
)
def test_anything_else_is_refused(written: str, found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        parse_experiment(with_reordering(written))


@pytest.mark.parametrize(
    ("old", "new", "is_warned_of"),
    [
        ("", "", True),
        ("random", "adaptive", True),
        ("random", "hash", False),
        (
            "{clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}",
            "{single_switch: {hosts: 4}}",
            False,
        ),
        ("version: 1", "version: 1\ntransport: {reordering: accept}", False),
    ],
)
def test_spraying_is_warned_of_unless_it_is_accepted(
    old: str, new: str, is_warned_of: bool
) -> None:
    text = SPRAYED.replace(old, new) if old else SPRAYED
    warnings = resolve(parse_experiment(text)).warnings()
    found = [each for each in warnings if "fabric.switches.balancing" in each]
    assert len(found) == is_warned_of
    assert all("transport.reordering: accept" in each for each in found)
