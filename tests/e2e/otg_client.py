"""Scripts of a snappi user. They run with snappi's own packages, without Chakram's.

``python otg_client.py LOCATION TRANSPORT SCRIPT`` prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys
import time

import snappi

HOSTS = 5


def config(api, flows, *, rate=100, dcqcn=False):
    made = api.config()
    for number in range(HOSTS):
        made.ports.add(name=f"p{number}", location=f"h{number}")
        device = made.devices.add(name=f"d{number}")
        ethernet = device.ethernets.add(
            name=f"e{number}", mac=f"02:00:00:00:00:0{number}"
        )
        ethernet.connection.port_name = f"p{number}"
        ethernet.ipv4_addresses.add(
            name=f"ip{number}",
            address=f"198.18.0.{number + 1}",
            gateway="198.18.0.254",
            prefix=24,
        )
        interface = device.rocev2.ipv4_interfaces.add(
            ipv4_name=f"ip{number}", ib_mtu=4096
        )
        peer = interface.peers.add(
            name=f"peer{number}", destination_ip_address="198.18.0.1"
        )
        for other in range(HOSTS):
            pair = peer.qps.add(qp_name=f"q{number}.{other}")
            pair.connection_type.reliable_connection.dscp = 10 + number
    group = made.stateful_flows.rocev2.add()
    for name, first, last in flows:
        port = group.tx_ports.add(port_name=f"p{first}")
        line = port.transmit_type.target_line_rate
        line.value = rate
        flow = line.flows.add(
            name=name,
            tx_endpoint=f"q{first}.{last}",
            rx_endpoint=f"q{last}.{first}",
        )
        flow.message_size = 64
        flow.message_size_unit = flow.KB
    if dcqcn:
        for number in range(HOSTS):
            options = made.options.per_port_options.add(port_name=f"p{number}")
            protocol = options.protocols.add()
            protocol.choice = protocol.ROCEV2
            protocol.rocev2.dcqcn_settings.enable_dcqcn = True
            protocol.rocev2.dcqcn_settings.alpha_g = 1019
    return made


def transmit(api, word, *names):
    state = api.control_state()
    state.traffic.flow_transmit.state = word
    if names:
        state.traffic.flow_transmit.flow_names = list(names)
    api.set_control_state(state)


def states_of(api):
    request = api.metrics_request()
    request.flow.flow_names = []
    found = api.get_metrics(request).flow_metrics
    return {each.name: each.transmit for each in found}


def flows_of(api):
    request = api.metrics_request()
    request.rocev2_flow.choice = "per_qp"
    found = api.get_metrics(request).rocev2_flow_per_qp_metrics
    return [each.serialize("dict") for each in found]


def ports_of(api):
    request = api.metrics_request()
    request.port.port_names = ["p0", "p1"]
    return [each.serialize("dict") for each in api.get_metrics(request).port_metrics]


def count(flows, name):
    """Return the smallest count of all flows."""
    return min(int(each.get(name, 0)) for each in flows)


def until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it never came")


def at_a_rate(api):
    wanted = config(api, [("f1", 1, 0)], rate=50)
    api.set_config(wanted)
    back = api.get_config().serialize("dict")
    request = api.states_request()
    request.ipv4_neighbors.ethernet_names = ["e1"]
    neighbors = api.get_states(request).ipv4_neighbors
    transmit(api, "start")
    until(lambda: count(flows_of(api), "data_frames_rx") > 300)
    running = ports_of(api)
    transmit(api, "stop")
    return {
        "same": back == wanted.serialize("dict"),
        "neighbors": [each.serialize("dict") for each in neighbors],
        "running": running,
        "flows": flows_of(api),
        "ports": ports_of(api),
    }


def incast(api):
    flows = [(f"i{number}", number, 0) for number in range(1, HOSTS)]
    api.set_config(config(api, flows, dcqcn=True))
    transmit(api, "start")
    until(lambda: count(flows_of(api), "cnp_rx") > 0)
    transmit(api, "stop")
    return {"flows": flows_of(api)}


def again(api):
    api.set_config(config(api, [("a", 1, 0), ("b", 2, 0)], rate=20))
    found = []
    state = api.control_state()
    state.protocol.all.state = state.protocol.all.START
    api.set_control_state(state)
    for _ in range(2):
        transmit(api, "start")
        until(lambda: count(flows_of(api), "data_frames_tx") > 0)
        transmit(api, "stop")
        request = api.metrics_request()
        request.rocev2_ipv4.choice = "per_peer"
        peers = api.get_metrics(request).rocev2_ipv4_per_peer_metrics
        found.append([flows_of(api), [each.serialize("dict") for each in peers]])
    errors = []
    wrong = api.config()
    wrong.ports.add(name="p0", location="nowhere")
    try:
        api.set_config(wrong)
    except Exception as error:
        errors.append(str(error))
    try:
        transmit(api, "pause")
    except Exception as error:
        errors.append(str(error))
    api.set_config(api.config())
    return {"turns": found, "errors": errors}


def in_turns(api):
    api.set_config(config(api, [("a", 1, 0), ("b", 2, 0)], rate=20))
    found = []

    def note():
        found.append({"flows": flows_of(api), "states": states_of(api)})

    def grown(place, count):
        before = int(flows_of(api)[place].get("data_frames_rx", 0))
        until(
            lambda: int(flows_of(api)[place].get("data_frames_rx", 0)) > before + count
        )

    transmit(api, "start", "a")
    grown(0, 100)
    note()
    transmit(api, "start", "b")
    grown(1, 100)
    note()
    transmit(api, "stop", "a")
    note()
    grown(1, 200)
    note()
    transmit(api, "start", "a")
    grown(0, 100)
    note()
    transmit(api, "stop", "b")
    note()
    transmit(api, "stop")
    note()
    return {"turns": found}


def main() -> None:
    location, transport, name = sys.argv[1:]
    how = {"transport": transport} if transport == "grpc" else {}
    api = snappi.api(location=location, **how)
    print(json.dumps(globals()[name](api)))


main()
