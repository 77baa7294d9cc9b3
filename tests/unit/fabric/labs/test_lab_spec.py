from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from chakram.fabric.labs.lab_spec import (
    HostState,
    LabSpec,
    LabState,
    PortState,
    SwitchState,
    check_lab_name,
    decode_spec,
    decode_state,
    encode_spec,
    encode_state,
)
from chakram.foundation.errors import ConfigError, FabricError
from chakram.topology.topology import Topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos

SPEC = LabSpec(
    name="lab-1",
    topology=clos(2, 2, 2, 10**9, None, uplink_delay_ns=5, host_queue_bytes=10_000),
    seed=3,
    addressing="ipv6",
    mtu=4200,
    capture_hosts=("h0", "h3"),
    forwarding="kernel",
    lifetime="run",
    state_root="/run/chakram",
)
STATE = LabState(
    name="lab-1",
    holder_pid=17,
    holder_start_ticks=12345,
    rootless=True,
    lifetime="up",
    forwarding="kernel",
    seed=3,
    mtu=4200,
    directory="/run/chakram/lab-1",
    hosts=(
        HostState(
            name="h0",
            netns="/proc/17/fd/5",
            netns_name=None,
            interface="eth0",
            address="198.18.0.1",
            prefix_length=24,
            mac="02:ca:00:00:00:00",
            mtu=4200,
            switch_interface="h0",
        ),
    ),
    switches=(
        SwitchState(
            name="s0",
            netns="/proc/17/fd/6",
            netns_name="lab-1-s0",
            ports=(PortState(interface="h0", link="h0-s0"),),
        ),
    ),
    notes=("something is missing",),
    topology=single_switch(1, None),
)


def test_a_description_survives_json() -> None:
    assert decode_spec(encode_spec(SPEC)) == SPEC
    assert "\n" not in encode_spec(SPEC)


def test_a_state_survives_json() -> None:
    assert decode_state(encode_state(STATE)) == STATE
    assert "\n" not in encode_state(STATE)


@pytest.mark.parametrize("name", ["a", "lab-1", "9", "x" * 32, "a-"])
def test_names_of_labs(name: str) -> None:
    check_lab_name(name)


@pytest.mark.parametrize(
    "name", ["", "-a", "A", "a/b", "..", "a.b", "a b", "x" * 33, "a\n"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="a lab's name has 1 to 32"):
        check_lab_name(name)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"mtu": 575}, "mtu 575 is not between 576 and 65535"),
        ({"mtu": 65536}, "mtu 65536 is not between"),
        ({"capture_hosts": ("h4",)}, "there is no host 'h4' to capture at"),
        ({"forwarding": "magic"}, "unknown forwarding 'magic'.*kernel, model"),
        ({"lifetime": "ever"}, "unknown lifetime 'ever'.*run, up"),
        (
            {"topology": Topology(hosts=("h0",), switches=(), links=())},
            "host h0: has 0 links",
        ),
    ],
)
def test_an_impossible_lab_is_refused(changes: dict[str, Any], found: str) -> None:
    with pytest.raises(FabricError, match=found):
        replace(SPEC, **changes)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("[]", "it is not a JSON object"),
        ("{}", "a field is missing or has the wrong type"),
    ],
)
def test_invalid_description_is_refused(text: str, found: str) -> None:
    with pytest.raises(FabricError, match=f"lab description: {found}"):
        decode_spec(text)
    with pytest.raises(FabricError, match=f"lab state: {found}"):
        decode_state(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 7),
        ("seed", "1"),
        ("seed", True),
        ("mtu", None),
        ("capture_hosts", [1]),
        ("capture_hosts", None),
        ("topology", []),
        ("topology", {"hosts": ["h0"], "switches": ["s0"], "links": [{"a": 1}]}),
        ("topology", {"hosts": ["h0"], "switches": ["s0"], "links": [None]}),
    ],
)
def test_fields_of_a_wrong_type_are_refused(field: str, value: object) -> None:
    fields = json.loads(encode_spec(SPEC))
    fields[field] = value
    with pytest.raises(FabricError, match="lab description: a field is missing"):
        decode_spec(json.dumps(fields))


def test_hosts_are_found_by_name() -> None:
    assert STATE.host("h0") is STATE.hosts[0]
    with pytest.raises(FabricError, match="lab lab-1: there is no host 'h1'"):
        STATE.host("h1")
