"""Mappings translate paths and values of switches into readings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chakram.foundation.errors import ConfigError
from chakram.telemetry.mapping import (
    ALL_CLASSES,
    BUILT_IN,
    COUNTERS,
    PathMatcher,
    Reading,
    path_of_port,
    read_mapping,
    split_path,
)

SONIC, OPENCONFIG = map(read_mapping, BUILT_IN)


def sonic(*elements: str, value: object) -> list[Reading | str]:
    matcher = PathMatcher(SONIC.counters, strip_modules=False)
    return list(matcher.readings(elements, value))


def openconfig(path: str, value: object) -> list[Reading | str]:
    matcher = PathMatcher(OPENCONFIG.counters, strip_modules=True)
    return list(matcher.readings(split_path(path), value))


def test_a_table_of_sonic_has_counters_of_ports_and_classes() -> None:
    leaves = {
        "SAI_PORT_STAT_IF_IN_OCTETS": "1234",
        "SAI_PORT_STAT_PFC_3_RX_PKTS": "5",
        "SAI_PORT_STAT_IF_IN_ERRORS": "9",  # has no meaning here
    }
    assert sonic("COUNTERS", "Ethernet1/1", value=leaves) == [
        Reading("Ethernet1/1", ALL_CLASSES, "received_bytes", 1234),
        Reading("Ethernet1/1", 3, "pauses_received", 5),
    ]


def test_a_queue_of_sonic_belongs_to_the_port_of_its_path() -> None:
    queues = {
        "Ethernet0:4": {"SAI_QUEUE_STAT_BYTES": "7"},
        "Ethernet8:4": {"SAI_QUEUE_STAT_BYTES": "8"},
    }
    found = sonic("COUNTERS", "Ethernet0", "Queues", value=queues)
    assert found == [Reading("Ethernet0", 4, "sent_bytes", 7)]


def test_lists_of_openconfig_are_told_apart_by_their_keys() -> None:
    path = "qos/interfaces/interface[interface-id=et-0/0/1]/output/queues"
    queues = {
        "openconfig-qos:queue": [
            {"name": "3", "state": {"transmit-octets": "11", "ecn-marked-pkts": 2}},
            {"name": "best effort", "state": {"transmit-octets": "12"}},
            {"state": {"transmit-octets": "13"}},
            "nothing",
        ]
    }
    assert openconfig(path, queues) == [
        Reading("et-0/0/1", 3, "sent_bytes", 11),
        Reading("et-0/0/1", 3, "marked", 2),
    ]


def test_a_leaf_may_come_alone() -> None:
    path = "interfaces/interface[name=Ethernet1]/state/counters/in-octets"
    found = openconfig(path, 17)
    assert found == [Reading("Ethernet1", ALL_CLASSES, "received_bytes", 17)]


@pytest.mark.parametrize(
    "module", ["openconfig-interfaces", "srl_nokia-interfaces", "Cisco-IOS-XR-infra"]
)
def test_paths_and_names_may_begin_with_modules(module: str) -> None:
    path = f"{module}:interfaces/{module}:interface[name=Ethernet1/1]/state"
    found = openconfig(path, {f"{module}:counters": {f"{module}:in-octets": "17"}})
    assert found == [Reading("Ethernet1/1", ALL_CLASSES, "received_bytes", 17)]


def test_a_value_may_be_wrapped_in_its_own_name() -> None:
    """SONiC's translation library answers in the form of RESTCONF."""
    path = "interfaces/interface[name=Ethernet0]/state/counters"
    expected = [Reading("Ethernet0", ALL_CLASSES, "received_bytes", 17)]
    wrapped = {"openconfig-interfaces:counters": {"in-octets": "17"}}
    assert openconfig(path, wrapped) == expected
    leaf = {"openconfig-interfaces:in-octets": "17"}
    assert openconfig(f"{path}/in-octets", leaf) == expected
    path = "qos/interfaces/interface[interface-id=Ethernet0]/output/queues"
    entry = {"queue": [{"name": "3", "state": {"transmit-octets": "8"}}]}
    expected = [Reading("Ethernet0", 3, "sent_bytes", 8)]
    assert openconfig(f"{path}/queue[name=3]", entry) == expected
    assert openconfig(path, entry) == expected


def test_a_port_may_be_named_twice_in_an_element() -> None:
    matcher = PathMatcher({"a/{port}:{port}:{class}": "drops"}, strip_modules=False)
    found = list(matcher.readings(("a", "e1:e1:3"), 5))
    assert found == [Reading("e1", 3, "drops", 5)]
    assert list(matcher.readings(("a", "e1:e2:3"), 5)) == []


@pytest.mark.parametrize("value", [0, "0", " 12 ", 3.0, (1 << 62) - 1])
def test_counts(value: Any) -> None:
    (found,) = sonic("COUNTERS", "p", "SAI_PORT_STAT_IF_OUT_OCTETS", value=value)
    assert found == Reading("p", ALL_CLASSES, "sent_bytes", int(value))


@pytest.mark.parametrize(
    "value", [-1, "-1", "", "many", "1x", 1.5, float("nan"), True, None, 1 << 62, []]
)
def test_what_is_not_a_count_is_told(value: Any) -> None:
    found = sonic("COUNTERS", "p", "SAI_PORT_STAT_IF_OUT_OCTETS", value=value)
    assert len(found) == 1
    assert isinstance(found[0], str)
    assert found[0].startswith("COUNTERS/p/SAI_PORT_STAT_IF_OUT_OCTETS is ")


def test_deep_objects_are_not_followed() -> None:
    value: Any = 1
    for _ in range(10_000):
        value = {"a": value}
    assert sonic("COUNTERS", "p", value=value) == []


def test_slashes_in_keys_do_not_separate() -> None:
    path = "interfaces/interface[name={port}]/state"
    expected = ("interfaces", "interface[name=et-0/0/1]", "state")
    assert path_of_port(path, "et-0/0/1") == expected
    assert split_path("/a/b[c=d/e][f=g]/h/") == ("a", "b[c=d/e][f=g]", "h")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('"a/{port}/b": bytes', "'bytes' of a/{port}/b is not a counter"),
        ('"a/b": drops', "a/b does not name its port"),
    ],
)
def test_mistakes_in_a_mapping_are_told(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "own.yaml"
    text = f'version: 1\nsubscribe: ["a/{{port}}"]\ncounters:\n  {line}\n'
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_mapping("own.yaml", tmp_path)
    assert words in str(caught.value)


def test_the_mappings_name_all_counters() -> None:
    mappings = (SONIC, OPENCONFIG)
    named = {counter for each in mappings for counter in each.counters.values()}
    assert named == set(COUNTERS)
