"""The gNMI server of modeled switches answers as its specification says."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("gnmi_pb")

from chakram.fabric.modeled_switch.gnmi_server import (
    as_json,
    notification,
    select,
)
from chakram.switch.telemetry_counters import switch_tree
from chakram.telemetry.gnmi_messages import pb, updates
from tests.unit.fabric.live_frames import incast_counters

TREE = switch_tree(
    {
        name.partition(":")[2]: counted
        for name, counted in incast_counters(steps=60).ports.items()
        if name.startswith("s0:")
    }
)
PORTS = len(TREE["interfaces"])


def chosen(*elements: str) -> list[tuple[str, ...]]:
    return [path for path, _ in select(TREE, elements)]


@pytest.mark.parametrize("element", ["interface", "interface[name=*]", "*"])
def test_an_entry_without_its_key_is_every_entry(element: str) -> None:
    found = chosen("interfaces", element, "state", "counters")
    assert len(found) == PORTS > 1
    assert ("interfaces", "interface[name=h0]", "state", "counters") in found


def test_a_key_selects_one_entry() -> None:
    assert len(chosen("interfaces", "interface[name=h0]")) == 1
    assert chosen("interfaces", "interf") == []


def test_the_empty_path_is_everything() -> None:
    ((path, content),) = select(TREE, ())
    assert path == ()
    assert set(as_json(content)) == {"COUNTERS", "PORT_TABLE", "interfaces", "qos"}


@pytest.mark.parametrize(("encoding", "kind"), [("JSON", int), ("JSON_IETF", str)])
def test_numbers_of_64_bits_are_text_in_json_ietf(encoding: str, kind: type) -> None:
    found = list(select(TREE, ("interfaces", "interface[name=h0]", "state")))
    made = notification(5, found, "", pb.Encoding.Value(encoding))
    ((_, value),) = updates(made)
    counters: Any = value
    assert {type(each) for each in counters["counters"].values()} == {kind}
    assert counters["oper-status"] == "UP"
    assert json.loads(json.dumps(counters)) == counters
