"""Configurations of the Open Traffic Generator become experiments, or are refused."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest

from chakram.service.otg_config import OtgPlan, OtgProblem, convert_config

PORTS = {f"h{number}": f"198.18.0.{number + 1}" for number in range(4)}


def config(*flows: tuple[str, int, int], rate: float = 100) -> dict[str, Any]:
    """Return a configuration with flows between ports, as (name, from, to)."""
    return {
        "ports": [
            {"name": f"p{number}", "location": f"h{number}"} for number in range(4)
        ],
        "devices": [
            {
                "name": f"d{number}",
                "ethernets": [
                    {
                        "name": f"e{number}",
                        "mac": f"02:00:00:00:00:0{number}",
                        "connection": {
                            "choice": "port_name",
                            "port_name": f"p{number}",
                        },
                        "ipv4_addresses": [
                            {
                                "name": f"ip{number}",
                                "address": f"198.18.0.{number + 1}",
                                "gateway": "198.18.0.254",
                            }
                        ],
                    }
                ],
                "rocev2": {
                    "ipv4_interfaces": [
                        {
                            "ipv4_name": f"ip{number}",
                            "ib_mtu": 1024,
                            "peers": [
                                {
                                    "name": f"peer{number}",
                                    "destination_ip_address": "198.18.0.1",
                                    "qps": [
                                        {"qp_name": f"q{number}.{peer}"}
                                        for peer in range(4)
                                    ],
                                }
                            ],
                        }
                    ]
                },
            }
            for number in range(4)
        ],
        "stateful_flows": {
            "choice": "rocev2",
            "rocev2": [
                {
                    "tx_ports": [
                        {
                            "port_name": f"p{first}",
                            "transmit_type": {
                                "choice": "target_line_rate",
                                "target_line_rate": {
                                    "value": str(rate),
                                    "flows": [
                                        {
                                            "name": name,
                                            "tx_endpoint": f"q{first}.{last}",
                                            "rx_endpoint": f"q{last}.{first}",
                                            "message_size": 64,
                                            "message_size_unit": "kb",
                                        }
                                    ],
                                },
                            },
                        }
                        for name, first, last in flows
                    ]
                }
            ],
        },
    }


def plan(**changes: Any) -> OtgPlan:
    return convert_config({**config(("f", 1, 0)), **changes}, PORTS)


def test_a_flow_becomes_a_job() -> None:
    found = plan()
    (flow,) = found.flows
    assert (flow.port_tx, flow.port_rx, flow.message_bytes) == ("p1", "p0", 64_000)
    assert found.peers == {
        "ipv4": {
            f"peer{number}": [f"q{number}.{peer}" for peer in range(4)]
            for number in range(4)
        },
        "ipv6": {},
    }
    assert flow.queue_pairs == ("q1.0", "q0.1")
    experiment = found.experiment("rack7")
    (job,) = experiment["jobs"]
    assert job["placement"] == {"ports": ["h1", "h0"]}
    assert job["trace"]["size"] == "64000B"
    assert experiment["fabric"] == "rack7"
    assert experiment["transport"] == {
        "path_mtu": 1024,
        "verb": "write",
        "congestion_control": {"fixed_rate": {"rate": "100%"}},
    }


def test_flows_of_a_port_share_its_rate() -> None:
    whole = config(("a", 1, 0), ("b", 2, 0), rate=50)
    flows = whole["stateful_flows"]["rocev2"][0]["tx_ports"]
    rates = [each["transmit_type"]["target_line_rate"]["flows"] for each in flows]
    for number, listed in enumerate(rates):
        second = copy.deepcopy(listed[0])
        second["name"] = f"more {number}"
        second["tx_endpoint"] = f"q{number + 1}.1"
        listed.append(second)
    found = convert_config(whole, PORTS)
    assert found.transport["congestion_control"] == {"fixed_rate": {"rate": "25%"}}
    assert [flow.job for flow in found.flows] == ["f0", "f1", "f2", "f3"]


def options(settings: dict[str, Any], ports: int = 4) -> dict[str, Any]:
    return {
        "per_port_options": [
            {
                "port_name": f"p{number}",
                "protocols": [{"choice": "rocev2", "rocev2": settings}],
            }
            for number in range(ports)
        ]
    }


def test_settings_of_dcqcn_are_taken_one_to_one() -> None:
    settings = {
        "dcqcn_settings": {
            "enable_dcqcn": True,
            "alpha_g": "1019",
            "initial_alpha": 1023,
            "additive_increment_rate": 5.0,
        },
        "cnp": {"choice": "ip_dscp", "ip_dscp": {"value": 46}, "cnp_delay_timer": 55},
    }
    found = plan(options=options(settings))
    assert found.transport["congestion_control"] == {
        "dcqcn": {
            "vendor": {
                "alpha_g": 1019,
                "initial_alpha": 1023,
                "additive_increment_rate": 5.0,
                "cnp_delay_timer": 55,
            }
        }
    }
    assert found.transport["dscp"] == {"cnp": 46}
    clamped = plan(options=options({"dcqcn_settings": {"clamp_target_rate": True}}))
    vendor = clamped.transport["congestion_control"]["dcqcn"]["vendor"]
    assert vendor == {"clamp_target_rate": True}
    off = plan(options=options({"dcqcn_settings": {"enable_dcqcn": False}}))
    assert "fixed_rate" in off.transport["congestion_control"]


def test_dcqcn_sets_the_rates_of_ports() -> None:
    whole = config(("a", 1, 0), ("b", 2, 0)) | {
        "options": options({"dcqcn_settings": {}})
    }
    first, second = whole["stateful_flows"]["rocev2"][0]["tx_ports"]
    rate = first["transmit_type"]["target_line_rate"]
    flow = second["transmit_type"]["target_line_rate"]["flows"][0]
    more = {**flow, "name": "c", "tx_endpoint": "q2.1"}
    second["transmit_type"]["target_line_rate"]["flows"].append(more)
    # One flow of the first port, and two of the second
    found = convert_config(whole, PORTS)
    assert found.transport["congestion_control"] == {"dcqcn": {}}
    rate["value"] = 50
    with pytest.raises(OtgProblem) as caught:
        convert_config(whole, PORTS)
    assert caught.value.status == 501
    (error,) = caught.value.errors
    place = "tx_ports[0].transmit_type.target_line_rate.value"
    assert f"{place}: must be 100 with DCQCN" in error


def test_settings_of_links_are_left_to_the_fabric() -> None:
    whole = config(("f", 1, 0)) | {"layer1": [{"name": "l", "speed": "speed_100_gbps"}]}
    found = convert_config(whole, PORTS)
    assert found.warnings == ["layer1 has no effect here"]


def test_priorities_and_marks_of_queue_pairs() -> None:
    whole = config(("f", 1, 0), ("g", 2, 0))
    for dscp, device in enumerate(whole["devices"], start=20):
        for pair in device["rocev2"]["ipv4_interfaces"][0]["peers"][0]["qps"]:
            settings = {"dscp": dscp, "ecn": "ect_1", "source_qp_number": 77}
            pair["connection_type"] = {
                "choice": "reliable_connection",
                "reliable_connection": settings,
            }
    found = convert_config(whole, PORTS)
    first, second = found.flows
    # That of the queue pair that sends.
    assert (first.dscp, second.dscp) == (21, 22)
    assert found.experiment("lab")["transport"]["class_of"] == [
        {"job": first.job, "dscp": 21},
        {"job": second.job, "dscp": 22},
    ]
    assert found.transport["ecn"] == "ect1"
    assert found.warnings == ["source_qp_number is chosen by the engine"]


def at(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return a function that sets a value deep in a configuration."""

    def change(whole: Any) -> None:
        for key in path[:-1]:
            whole = whole[key]
        whole[path[-1]] = value

    return change


def two_flows(whole: Any, second: str) -> list[dict[str, Any]]:
    """Return the flow of a configuration, and another from a queue pair."""
    for key in FLOW:
        whole = whole[key]
    return [whole, {**whole, "name": "second", "tx_endpoint": second}]


RATE = (
    *("stateful_flows", "rocev2", 0, "tx_ports", 0),
    *("transmit_type", "target_line_rate"),
)
FLOW = (*RATE, "flows", 0)
ETHERNET = ("devices", 1, "ethernets", 0)
INTERFACE = ("devices", 1, "rocev2", "ipv4_interfaces", 0)

WRONG: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (at("ports", value={}), "ports: is not a list"),
    (at("ports", 0, value=5), "ports[0]: is not an object"),
    (at("ports", 0, value={}), "ports[0].name: is missing"),
    (at("ports", 0, "name", value=7), "ports[0].name: is not a text"),
    (
        at("ports", 0, "name", value="p1"),
        "ports[1].name: p1 is also the name of ports[0]",
    ),
    (at("ports", 0, "location", value="h9"), "ports[0].location: h9 is not a port of"),
    (at("ports", 0, "location", value="h1"), "ports[1].location: h1 is used twice"),
    (at("devices", value="x"), "devices: is not a list"),
    (at(*ETHERNET, "connection", value=None), "ethernets[0].connection: is missing"),
    (at(*ETHERNET, "connection", "port_name", value="p9"), "port_name: p9 is unknown"),
    (at(*ETHERNET, "name", value="d0"), "name: d0 is also the name of devices[0]"),
    (at(*INTERFACE, "ipv4_name", value="ip9"), "ipv4_name: ip9 is unknown"),
    (at(*INTERFACE, "ib_mtu", value=True), "ib_mtu: is not a number"),
    (at(*INTERFACE, "ib_mtu", value=10_000), "ib_mtu: is not 256 to 9216"),
    (at(*INTERFACE, "peers", 0, "name", value=""), "peers[0].name: is not a text"),
    (
        at(*INTERFACE, "peers", 0, "destination_ip_address", value=None),
        "destination_ip_address: is not a text",
    ),
    (at(*INTERFACE, "peers", 0, "qps", value=3), "peers[0].qps: is not a list"),
    (at(*INTERFACE, "peers", 0, "qps", 0, "qp_name", value="q0.0"), "q0.0 is also the"),
    (at(*RATE, "value", value=0), "target_line_rate.value: is not 1 to 100"),
    (at(*RATE, "value", value=[]), "target_line_rate.value: is not a number"),
    (at(*RATE[:-1], value={}), "transmit_type.target_line_rate: is missing"),
    (at(*RATE[:-2], "port_name", value="p9"), "tx_ports[0].port_name: p9 is unknown"),
    (
        at(*FLOW, "tx_endpoint", value="q9"),
        "flows[0].tx_endpoint: q9 is not a queue pair",
    ),
    (at(*FLOW, "tx_endpoint", value="q2.0"), "flows[0].tx_endpoint: is not at port p1"),
    (
        at(*FLOW, "rx_endpoint", value="q1.3"),
        "flows[0].rx_endpoint: is at the same port",
    ),
    (
        at(*FLOW, "rx_endpoint", value="q2.1"),
        "flows[0].rx_endpoint: is not at the destination of q1.0, 198.18.0.1",
    ),
    (
        lambda whole: at(*RATE, "flows", value=two_flows(whole, "q1.0"))(whole),
        "flows[1].tx_endpoint: is also that of stateful_flows.rocev2[0].tx_ports[0]",
    ),
    (at(*FLOW, "rx_endpoint", value=None), "no queue pair is opposite to q1.0"),
    (at(*FLOW, "rx_endpoint", value=7), "flows[0].rx_endpoint: is not a text"),
    (at(*FLOW, "message_size", value=-1), "flows[0].message_size: is not 1 to"),
    (at(*FLOW, "message_size", value=1.5), "message_size: is not a whole number"),
    (at(*FLOW, "message_size", value=1 << 31), "flows[0].message_size: is above 2 GiB"),
    (at(*FLOW, "name", value=""), "flows[0].name: is not a text"),
    (at(*FLOW, "message_size", value="9" * 5000), "message_size: is not a number"),
    (
        at("options", value=options({"dcqcn_settings": {"alpha_g": "9" * 5000}})),
        "dcqcn_settings.alpha_g: is not a number",
    ),
    (
        at("options", value=options({"dcqcn_settings": {"initial_alpha": math.nan}})),
        "dcqcn_settings.initial_alpha: is not a number",
    ),
    (
        at("options", value={"per_port_options": [{"port_name": "p9"}]}),
        "options.per_port_options[0].port_name: p9 is unknown",
    ),
]


@pytest.mark.parametrize(("change", "words"), WRONG, ids=[each[1] for each in WRONG])
def test_mistakes_are_told_with_their_place(
    change: Callable[[dict[str, Any]], None], words: str
) -> None:
    whole = config(("f", 1, 0))
    change(whole)
    with pytest.raises(OtgProblem) as caught:
        convert_config(whole, PORTS)
    assert caught.value.status == 400
    assert any(words in error for error in caught.value.errors), caught.value.errors


UNABLE: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (at("flows", value=[{"name": "x"}]), "flows: is not supported"),
    (at("lags", value=[{"name": "x"}]), "lags: is not supported"),
    (at("devices", 0, "bgp", value={"router_id": "1"}), "devices[0].bgp: is not"),
    (at(*ETHERNET, "vlans", value=[{"id": 1}]), "ethernets[0].vlans: is not supported"),
    (
        at(*ETHERNET, "connection", "choice", value="lag_name"),
        "connection.choice: lag_name is not supported, only port_name",
    ),
    (at(*FLOW, "rocev2_verb", value={"choice": "read"}), "read is not supported"),
    (at(*INTERFACE, "ib_mtu", value=2048), "all interfaces must have the same"),
    (
        at("options", value=options({"dcqcn_settings": {"alpha_g": 1}}, ports=1)),
        "",
    ),
]


@pytest.mark.parametrize(("change", "words"), UNABLE, ids=[each[1] for each in UNABLE])
def test_what_is_not_supported_is_told(
    change: Callable[[dict[str, Any]], None], words: str
) -> None:
    whole = config(("f", 1, 0))
    change(whole)
    if not words:
        # One port only, so there is nothing that differs.
        assert convert_config(whole, PORTS).flows
        return
    with pytest.raises(OtgProblem) as caught:
        convert_config(whole, PORTS)
    assert caught.value.status == 501
    assert any(words in error for error in caught.value.errors), caught.value.errors


def test_ports_with_different_settings_are_not_supported() -> None:
    both = options({"dcqcn_settings": {"alpha_g": 1}}, ports=1)["per_port_options"]
    both += options({"dcqcn_settings": {"alpha_g": 2}}, ports=2)["per_port_options"][1:]
    with pytest.raises(OtgProblem, match="must be the same for all ports"):
        plan(options={"per_port_options": both})
    whole = config(("a", 1, 0), ("b", 2, 0), rate=100)
    flows = whole["stateful_flows"]["rocev2"][0]["tx_ports"]
    flows[0]["transmit_type"]["target_line_rate"]["value"] = 50
    with pytest.raises(OtgProblem, match="target_line_rate: must be the same"):
        convert_config(whole, PORTS)


def test_scripts_for_other_generators_are_understood() -> None:
    """They give addresses and MTUs of their own, and leave the receiver out."""
    whole = config(("q1.0", 1, 0))  # named like its queue pair
    for number, device in enumerate(whole["devices"]):
        ethernet = device["ethernets"][0]["ipv4_addresses"][0]
        ethernet["address"] = f"10.1.1.{number}"
        interface = device["rocev2"]["ipv4_interfaces"][0]
        interface["ib_mtu"] = 1027
        interface["peers"][0]["destination_ip_address"] = [f"10.1.1.{1 - number % 2}"]
    flow: Any = whole
    for key in FLOW:
        flow = flow[key]
    del flow["rx_endpoint"]
    flow["rocev2_verb"] = {
        "choice": "send_with_immediate",
        "send_with_immediate": {"immediate_data": "bb"},
    }
    found = convert_config(whole, PORTS)
    (made,) = found.flows
    assert (made.port_tx, made.port_rx, made.verb) == ("p1", "p0", "send")
    assert found.transport["path_mtu"] == 1024
    assert "the path MTU is 1024, the largest up to 1027" in found.warnings
    assert "port p1 keeps its address 198.18.0.2" in found.warnings


@pytest.mark.parametrize("whole", [None, [], "x", 5])
def test_a_configuration_is_an_object(whole: Any) -> None:
    with pytest.raises(OtgProblem) as caught:
        convert_config(whole, PORTS)
    assert caught.value.status == 400
    assert caught.value.errors == ["config: is not an object"]
