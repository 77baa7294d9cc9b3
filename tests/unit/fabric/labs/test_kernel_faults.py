"""Link faults on kernel switches, as requests to namespaces."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from chakram.fabric.labs.builder import Port
from chakram.fabric.labs.built_lab import BuiltLab
from chakram.fabric.labs.kernel_faults import (
    KernelFaults,
    attach_drop_program,
    decode_faults,
)
from chakram.fabric.labs.lab_spec import LabSpec
from chakram.fabric.labs.namespaces import Namespace
from chakram.foundation.errors import FabricError
from chakram.switch.faults import LinkFault
from chakram.topology.addressing import plan_addresses
from tests.leaf_spines import clos
from tests.unit.fabric.netlink_messages import (
    CHANGE,
    MAKE,
    FakeNetlink,
    Message,
    attributes_of,
    decoded,
    fields_of,
)

if TYPE_CHECKING:
    from chakram.fabric.labs.netlink_requests import Request

INGRESS, ARRIVALS = 0xFFFFFFF1, 0xFFFF0000
ROOT, CLASS = 0xFFFFFFFF, 0x10001
MBIT = 10**6
SHOT, GO_ON = 2, 2**32 - 1
ALL_ARRIVES = [(6, 0, 0, GO_ON)]
NOTHING_ARRIVES = [(6, 0, 0, SHOT)]


def some_arrive(drawn: int) -> list[tuple[int, int, int, int]]:
    """Return what drops a packet whose random number of 32 bits is below *drawn*."""
    return [
        (0x20, 0, 0, 2**32 - 0x1000 + 56),
        (0x35, 1, 0, drawn),
        *NOTHING_ARRIVES,
        *ALL_ARRIVES,
    ]


def program_of(message: Message) -> list[tuple[int, ...]]:
    """Return the instructions of a filter that sees all arrivals."""
    assert (message.kind, message.flags) == (
        "NEWTFILTER",
        {"REQUEST", "ACK", "CREATE"},
    )
    assert message.fields["parent"] == ARRIVALS
    assert message.fields["handle"] == 1
    # The first priority, and all protocols in network byte order.
    assert message.fields["info"] == 1 << 16 | 0x0300
    assert message.attributes[1] == b"bpf\0"
    options = attributes_of(message.attributes[2])
    program = list(struct.iter_unpack("=HBBI", options[5]))
    assert options[4] == struct.pack("=H", len(program))
    # What it returns is what happens to the packet.
    assert options[8] == struct.pack("=I", 1)
    return program


class Lab:
    """A lab of two leaves, two spines and a host on each leaf, whose kernel is a fake.

    Its ports, by number: those of leaf0, leaf1, spine0 and spine1, then of the hosts.
    """

    def __init__(self, rate_bps: int | None = 100 * MBIT) -> None:
        topology = clos(2, 2, 1, rate_bps, rate_bps)
        self.nodes = (*topology.hosts, *topology.switches)
        self.netlinks = {node: FakeNetlink() for node in self.nodes}
        self.ends = [link.end_at(node) for node, link in topology.ends()]
        self.peers = [link.other_end(node) for node, link in topology.ends()]
        # Numbers of interfaces that no two ports share, so that mistakes are seen.
        self.index = {end: 200 + number for number, end in enumerate(self.ends)}
        self.addresses = plan_addresses(topology)
        self.topology = topology
        built = BuiltLab(
            namespaces={
                node: Namespace(name=node, descriptor=-1, netlink=netlink)  # type: ignore[arg-type] # it notes
                for node, netlink in self.netlinks.items()
            },
            ports={
                end: Port(namespace=end.node, interface=end.port, index=index)
                for end, index in self.index.items()
            },
            addresses=self.addresses,
            prefix_lengths={},
            notes=(),
        )
        spec = LabSpec(
            name="lab",
            topology=topology,
            seed=0,
            addressing="ipv4",
            mtu=1500,
            capture_hosts=(),
            forwarding="kernel",
            lifetime="run",
            state_root="/nowhere",
        )
        self.faults = KernelFaults(built, spec)

    def port(self, node: str, other: str) -> int:
        """Return the number of the port of a node on its link to another one."""
        return next(
            number
            for number, (end, peer) in enumerate(
                zip(self.ends, self.peers, strict=True)
            )
            if (end.node, peer.node) == (node, other)
        )

    def interface(self, node: str, other: str) -> int:
        return self.index[self.ends[self.port(node, other)]]

    def asked(self) -> dict[str, list[Request]]:
        """Return the requests since the last call, by node."""
        taken = {node: netlink.taken() for node, netlink in self.netlinks.items()}
        return {node: requests for node, requests in taken.items() if requests}

    def programs(self) -> dict[int, list[tuple[int, ...]]]:
        """Return the last filter of each interface, from all requests.

        Nothing else may have been.
        """
        found = {}
        for requests in self.asked().values():
            for message in map(decoded, requests):
                found[message.fields["index"]] = program_of(message)
        return found


def loss(port: int, probability: float, **times_ns: int) -> LinkFault:
    times: dict[str, Any] = {"at_ns": 0, "until_ns": 1000, **times_ns}
    return LinkFault(kind="loss", port=port, probability=probability, **times)


def test_arrivals_are_counted_by_a_filter_that_passes_everything() -> None:
    queue, program = map(decoded, attach_drop_program(7))

    assert (queue.kind, queue.flags) == ("NEWQDISC", MAKE)
    assert queue.fields == {"index": 7, "handle": ARRIVALS, "parent": INGRESS}
    assert queue.attributes[1].rstrip(b"\0") == b"ingress"
    assert program.fields["index"] == 7
    assert program_of(program) == ALL_ARRIVES


@pytest.mark.parametrize(
    ("probability", "program"),
    [
        (0.25, some_arrive(2**30)),
        (0.5, some_arrive(2**31)),
        (1e-9, some_arrive(4)),
        (1e-12, ALL_ARRIVES),
        (1.0, NOTHING_ARRIVES),
    ],
)
def test_loss_at_one_end_drops_packets_on_arrival(
    probability: float, program: list[tuple[int, ...]]
) -> None:
    lab = Lab()
    far = lab.interface("spine1", "leaf0")

    lab.faults.disturb([loss(lab.port("leaf0", "spine1"), probability)], 0)

    (requests,) = lab.asked().values()
    watched, *programs = map(decoded, requests)
    assert watched.kind == "NEWQDISC"
    assert {message.fields["index"] for message in programs} == {far}
    assert program_of(programs[-1]) == program
    lab.faults.advance(1000)
    assert lab.programs() == {far: ALL_ARRIVES}


def test_lost_and_corrupted_packets_do_not_arrive() -> None:
    lab = Lab()
    number = lab.port("h0", "leaf0")
    corruption = LinkFault(
        kind="corruption", port=number, at_ns=0, until_ns=500, probability=0.5
    )

    lab.faults.disturb([loss(number, 0.5), corruption], 0)

    last = lab.asked()["leaf0"][-1]
    assert program_of(decoded(last)) == some_arrive(3 * 2**30)
    lab.faults.advance(500)
    assert lab.programs() == {lab.interface("leaf0", "h0"): some_arrive(2**31)}
    # All of them end at once if they are called off, and nothing is in the way then.
    lab.faults.disturb([], 600)
    ended = lab.asked()
    assert set(ended) == {"leaf0"}
    program, removed = map(decoded, ended["leaf0"])
    assert program_of(program) == ALL_ARRIVES
    assert (removed.kind, removed.flags) == ("DELQDISC", CHANGE)
    assert removed.fields == {
        "index": lab.interface("leaf0", "h0"),
        "parent": INGRESS,
    }
    lab.faults.disturb([], 700)
    assert lab.asked() == {}


def test_arrival_filter_is_installed_once_and_again_after_removal() -> None:
    lab = Lab()
    number = lab.port("h0", "leaf0")

    def watched() -> int:
        return sum(
            decoded(each).kind == "NEWQDISC"
            for requests in lab.asked().values()
            for each in requests
        )

    lab.faults.disturb([loss(number, 0.5), loss(number, 0.25)], 0)
    assert watched() == 1
    lab.faults.disturb([loss(number, 0.125)], 0)
    assert watched() == 0
    lab.faults.disturb([], 1)
    lab.faults.disturb([loss(number, 0.5)], 1)
    assert watched() == 1


def gateway(lab: Lab, switch: str, other: str) -> bytes:
    """Return the address of a switch's neighbor on the link between them."""
    link = next(
        link
        for node, link in lab.topology.ends()
        if node == switch and link.other_end(node).node == other
    )
    routed = next(each for each in lab.addresses.routed_links if each.link == link.name)
    text = routed.a_address if link.a.node == other else routed.b_address
    return bytes(map(int, text.split(".")))


def routes(requests: list[Request]) -> list[dict[int, bytes]]:
    messages = [decoded(each) for each in requests]
    return [each.attributes for each in messages if each.kind == "NEWROUTE"]


def test_link_that_is_down_drops_both_directions_and_leaves_the_routes() -> None:
    lab = Lab()
    down = LinkFault(
        kind="down", port=lab.port("leaf0", "spine0"), at_ns=10, until_ns=20
    )
    lab.faults.disturb([down], 0)
    watched = lab.asked()
    near, far = lab.interface("leaf0", "spine0"), lab.interface("spine0", "leaf0")
    assert {node: fields_of(some, "index") for node, some in watched.items()} == {
        "leaf0": [("NEWQDISC", near), ("NEWTFILTER", near)],
        "spine0": [("NEWQDISC", far), ("NEWTFILTER", far)],
    }

    assert lab.faults.advance(9) == 1e-9
    assert lab.asked() == {}
    lab.faults.advance(10)

    began = lab.asked()
    assert set(began) == {"leaf0", "spine0"}
    assert program_of(decoded(began["leaf0"][0])) == NOTHING_ARRIVES
    assert program_of(decoded(began["spine0"][0])) == NOTHING_ARRIVES
    # To the hosts of the other leaf, there is one way left.
    (route,) = routes(began["leaf0"])
    assert route[5] == gateway(lab, "leaf0", "spine1")
    assert route[4] == struct.pack("=I", lab.interface("leaf0", "spine1"))
    # The spine has no other way to leaf0, and keeps the one it has.
    assert {route[5] for route in routes(began["spine0"])} == {
        gateway(lab, "spine0", "leaf0"),
        gateway(lab, "spine0", "leaf1"),
    }

    assert lab.faults.advance(20) is None
    ended = lab.asked()
    assert program_of(decoded(ended["leaf0"][0])) == ALL_ARRIVES
    assert program_of(decoded(ended["spine0"][0])) == ALL_ARRIVES
    (route,) = routes(ended["leaf0"])
    assert 9 in route  # over both again


def test_hosts_see_no_carrier_change_when_a_link_is_down() -> None:
    lab = Lab()
    number = lab.port("h0", "leaf0")

    lab.faults.disturb([LinkFault(kind="down", port=number, at_ns=0, until_ns=9)], 0)

    asked = lab.asked()
    assert routes(asked["h0"]) == []
    assert program_of(decoded(asked["h0"][-1])) == NOTHING_ARRIVES


def test_a_link_is_as_lossy_as_before_when_it_is_up_again() -> None:
    lab = Lab()
    number = lab.port("h0", "leaf0")
    down = LinkFault(kind="down", port=number, at_ns=10, until_ns=20)
    lab.faults.disturb([loss(number, 0.5), down], 0)
    lab.faults.advance(10)
    lab.asked()

    lab.faults.advance(20)

    ends = {
        node: [
            program_of(message)
            for message in map(decoded, requests)
            if message.kind == "NEWTFILTER"
        ]
        for node, requests in lab.asked().items()
    }
    assert ends["h0"] == [ALL_ARRIVES]
    assert set(map(tuple, ends["leaf0"])) == {tuple(some_arrive(2**31))}


def rate_of(message: Message) -> int:
    """Return the bits per second of an HTB class."""
    options = attributes_of(message.attributes[2])
    (rate,) = struct.unpack_from("=8xI", options[1])
    return int(rate) * 8


@pytest.mark.parametrize(("node", "other"), [("leaf0", "spine0"), ("h0", "leaf0")])
def test_a_degraded_link_has_another_rate_for_a_while(node: str, other: str) -> None:
    lab = Lab()
    number = lab.port(node, other)
    degrade = LinkFault(
        kind="degrade", port=number, at_ns=0, until_ns=50, rate_bps=10 * MBIT
    )

    lab.faults.disturb([degrade], 0)

    asked = lab.asked()
    assert set(asked) == {node}
    (request,) = asked[node]
    slower = decoded(request)
    assert (slower.kind, slower.fields["index"]) == (
        "NEWTCLASS",
        lab.interface(node, other),
    )
    assert "REPLACE" in slower.flags
    assert rate_of(slower) == 10 * MBIT
    lab.faults.advance(50)
    (request,) = lab.asked()[node]
    assert rate_of(decoded(request)) == 100 * MBIT


def test_a_link_without_a_rate_gets_one_and_loses_it_again() -> None:
    lab = Lab(rate_bps=None)
    number, index = lab.port("leaf0", "spine0"), lab.interface("leaf0", "spine0")
    degrade = LinkFault(
        kind="degrade", port=number, at_ns=0, until_ns=50, rate_bps=10 * MBIT
    )

    lab.faults.disturb([degrade], 0)

    assert fields_of(lab.asked()["leaf0"], "index") == [
        ("NEWQDISC", index),
        ("NEWTCLASS", index),
        ("NEWQDISC", index),
    ]
    lab.faults.advance(50)
    (removed,) = lab.asked()["leaf0"]
    assert fields_of([removed], "index", "parent") == [("DELQDISC", index, ROOT)]


def test_time_to_the_next_fault_change_is_in_seconds() -> None:
    lab = Lab()
    number = lab.port("h0", "leaf0")

    assert lab.faults.advance(0) is None
    lab.faults.disturb([loss(number, 0.5, at_ns=2 * 10**9, until_ns=5 * 10**9)], 0)
    assert lab.faults.advance(5 * 10**8) == 1.5
    assert lab.faults.advance(2 * 10**9) == 3.0
    assert lab.faults.advance(5 * 10**9) is None


def test_missing_kernel_feature_for_loss_is_reported() -> None:
    lab = Lab()
    lab.netlinks["leaf0"].refuse = FabricError("leaf0", "no such thing")

    with pytest.raises(
        FabricError, match=r"cannot drop packets: no such thing.*sch_ingress"
    ) as raised:
        lab.faults.disturb([loss(lab.port("h0", "leaf0"), 0.5)], 0)
    assert raised.value.where == "faults.links"


def test_kernel_switches_ignore_pauses() -> None:
    lab = Lab()
    storm = LinkFault(kind="pause_storm", port=0, at_ns=0, until_ns=9, classes=(3,))

    with pytest.raises(FabricError, match="do not support pauses"):
        lab.faults.disturb([storm], 0)


def test_faults_are_read_from_a_request() -> None:
    fault = {"kind": "degrade", "port": 3, "at_ns": 1, "until_ns": 9, "rate_bps": 8}

    assert decode_faults({"faults": [fault]}, "lab") == [
        LinkFault(kind="degrade", port=3, at_ns=1, until_ns=9, rate_bps=8)
    ]
    assert decode_faults({"faults": []}, "lab") == []


@pytest.mark.parametrize(
    "fields", [{}, {"faults": [{}]}, {"faults": [{"what": 1}]}, {"faults": 7}]
)
def test_a_request_that_names_no_faults_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FabricError, match="lab: these are not valid link faults"):
        decode_faults(fields, "lab")
