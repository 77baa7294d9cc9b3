"""Building of labs: requests to each namespace, in order."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from chakram.fabric.labs import builder, built_lab
from chakram.fabric.labs.builder import build_lab
from chakram.fabric.labs.built_lab import BuiltLab
from chakram.fabric.labs.lab_spec import MODEL_SWITCH, LabSpec
from chakram.fabric.labs.namespaces import Namespace, Sysctl
from chakram.foundation.errors import FabricError
from chakram.topology.topology import Topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.unit.fabric.netlink_messages import (
    FakeNetlink,
    Message,
    attributes_of,
    decoded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


BRIDGE = 100
MBIT = 10**6


class Kernel:
    """Namespaces that record their requests.

    Attributes:
        settings: Of each namespace, as it was made.
        called: What was done in which namespace beside that, and how often it waited.
        closed: Whether its namespaces are gone.
    """

    def __init__(self) -> None:
        self.settings: dict[str, Sequence[Sysctl]] = {}
        self.netlinks: dict[str, FakeNetlink] = {}
        self.called: list[tuple[str, ...]] = []
        self.awaited: list[str] = []
        self.closed = False
        self.names: dict[int, str] = {}

    def make(
        self, settings: Mapping[str, Sequence[Sysctl]]
    ) -> tuple[dict[str, Namespace], list[str]]:
        self.settings = dict(settings)
        made: dict[str, Any] = {}
        for number, name in enumerate(settings):
            self.names[500 + number] = name
            self.netlinks[name] = FakeNetlink()
            made[name] = Namespace(
                name=name,
                descriptor=500 + number,
                netlink=self.netlinks[name],  # type: ignore[arg-type] # it notes requests
            )
        return made, ["a note of the kernel"]

    def run(self, descriptor: int, function: Callable[..., object], *args: Any) -> None:
        self.called.append((self.names[descriptor], function.__name__, *map(str, args)))

    def wait(self, switches: Iterable[Namespace]) -> None:
        self.awaited += [each.name for each in switches]

    def close(self, namespaces: Mapping[str, Namespace]) -> None:
        assert set(namespaces) == set(self.netlinks)
        self.closed = True

    def asked(self, name: str) -> list[Message]:
        return [decoded(each) for each in self.netlinks[name].requests]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    for name, stand_in in {
        "make_namespaces": made.make,
        "close_namespaces": made.close,
        "run_in_namespace": made.run,
        "wait_until_ready": made.wait,
        "require_ipv6": lambda: None,
    }.items():
        monkeypatch.setattr(builder, name, stand_in)
    monkeypatch.setattr(built_lab, "close_namespaces", made.close)
    return made


def spec(topology: Topology, **fields: Any) -> LabSpec:
    return replace(
        LabSpec(
            name="lab",
            topology=topology,
            seed=3,
            addressing="ipv4",
            mtu=4200,
            capture_hosts=(),
            forwarding="kernel",
            lifetime="run",
            state_root="/nowhere",
        ),
        **fields,
    )


TWO_LEAVES = clos(2, 1, 1, 100 * MBIT, 40 * MBIT)
"""h0 and h1, each below a leaf, and one spine."""


def links_of(messages: list[Message]) -> dict[str, tuple[int, int, str, int, int]]:
    """Return by name of the near end: its number, its bridge, and of the far end: name,
    number and namespace.
    """
    found = {}
    for message in messages:
        if message.kind == "NEWLINK" and 18 in message.attributes:
            info = attributes_of(message.attributes[18])
            if not info[1].startswith(b"veth"):
                continue
            peer = attributes_of(info[2])[1]
            far = attributes_of(peer[16:])
            master = message.attributes.get(10, bytes(4))
            found[message.attributes[3].rstrip(b"\0").decode()] = (
                message.fields["index"],
                *struct.unpack("=I", master),
                far[3].rstrip(b"\0").decode(),
                *struct.unpack_from("=i", peer, 4),
                *struct.unpack("=I", far[28]),
            )
    return found


def bridges_of(messages: list[Message]) -> list[tuple[int, int]]:
    """Return number and MTU of the bridges."""
    return [
        (message.fields["index"], *struct.unpack("=I", message.attributes[4]))
        for message in messages
        if message.kind == "NEWLINK"
        and 18 in message.attributes
        and attributes_of(message.attributes[18])[1].startswith(b"bridge")
    ]


def ports(lab: BuiltLab) -> dict[str, tuple[str, str, int]]:
    return {
        f"{end.node}:{end.port}": (port.namespace, port.interface, port.index)
        for end, port in lab.ports.items()
    }


def test_every_node_is_a_namespace_and_links_have_an_end_in_two(kernel: Kernel) -> None:
    lab = build_lab(spec(TWO_LEAVES))

    assert list(kernel.settings) == ["h0", "h1", "leaf0", "leaf1", "spine0"]
    h0, h1, _, _, spine0 = range(500, 505)
    # Hosts hang on bridges; the first number of a namespace is that of its bridge.
    found = {
        name: sorted(links_of(kernel.asked(name)).values()) for name in kernel.settings
    }
    assert found["h0"] == found["h1"] == []
    assert found["leaf0"] == [
        (101, BRIDGE, "eth0", 101, h0),
        (102, 0, "down0", 101, spine0),
    ]
    assert found["leaf1"] == [
        (101, BRIDGE, "eth0", 101, h1),
        (102, 0, "down1", 102, spine0),
    ]
    assert found["spine0"] == []
    assert bridges_of(kernel.asked("leaf0")) == [(BRIDGE, 4200)]
    assert bridges_of(kernel.asked("spine0")) == []
    assert ports(lab)["h1:eth0"] == ("h1", "eth0", 101)
    assert len(lab.ports) == 2 * len(TWO_LEAVES.links)
    assert lab.prefix_lengths == {
        host: lab.addresses.host(host).prefix_length for host in ("h0", "h1")
    }
    assert kernel.closed is False


def test_builder_waits_for_forwarding_switches_but_not_for_hosts(
    kernel: Kernel,
) -> None:
    build_lab(spec(TWO_LEAVES))

    assert [call[:2] for call in kernel.called] == [
        (name, "write_settings") for name in ("leaf0", "leaf1", "spine0")
    ]
    assert kernel.awaited == ["leaf0", "leaf1", "spine0"]


@pytest.mark.parametrize(
    ("addressing", "setting"),
    [("ipv4", "ipv4/ip_forward"), ("ipv6", "ipv6/conf/all/forwarding")],
)
def test_only_switches_route_and_no_router_advertisements_are_sent(
    kernel: Kernel, addressing: str, setting: str
) -> None:
    build_lab(spec(TWO_LEAVES, addressing=addressing))

    assert all(setting in call[-1] for call in kernel.called)
    up = {
        message.fields["flags"]
        for name in ("leaf0", "leaf1")
        for message in kernel.asked(name)
        if message.kind == "NEWLINK" and 18 in message.attributes
    }
    assert up == {1 if addressing == "ipv4" else 0x81}


def rates_of(messages: list[Message]) -> list[tuple[int, int]]:
    """Return number of the interface and bits per second of every class."""
    found = []
    for message in messages:
        if message.kind == "NEWTCLASS":
            (rate,) = struct.unpack_from(
                "=8xI", attributes_of(message.attributes[2])[1]
            )
            found.append((message.fields["index"], rate * 8))
    return found


def test_both_ends_of_every_link_have_its_rate(kernel: Kernel) -> None:
    build_lab(spec(TWO_LEAVES))

    assert rates_of(kernel.asked("h0")) == [(101, 100 * MBIT)]
    assert rates_of(kernel.asked("leaf0")) == [(101, 100 * MBIT), (102, 40 * MBIT)]
    assert rates_of(kernel.asked("spine0")) == [(101, 40 * MBIT), (102, 40 * MBIT)]


def test_links_without_a_rate_are_not_shaped(kernel: Kernel) -> None:
    build_lab(spec(clos(2, 1, 1, None, 40 * MBIT)))

    assert rates_of(kernel.asked("h0")) == []
    assert rates_of(kernel.asked("leaf0")) == [(102, 40 * MBIT)]


def steered(kernel: Kernel) -> set[str]:
    """Return the switches whose packets the kernel spreads over cores."""
    return {
        name
        for name, settings in kernel.settings.items()
        for each in settings
        if each.path == "core/rps_default_mask" and int(each.value.replace(",", ""), 16)
    }


def test_packets_are_spread_over_cores_where_no_path_is_chosen(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "forwarding_cores", lambda _: (1,))

    build_lab(spec(TWO_LEAVES))
    assert steered(kernel) == {"leaf0", "leaf1", "spine0"}
    # Of two spines, a leaf chooses one; a spine has but one way to each leaf.
    build_lab(spec(clos(2, 2, 1, MBIT, MBIT)))
    assert steered(kernel) == {"spine0", "spine1"}
    # Without a rate it would only cost latency.
    build_lab(spec(clos(2, 1, 1, None, None)))
    assert steered(kernel) == set()


def test_every_switch_has_its_own_hash_seed(kernel: Kernel) -> None:
    def seeds(seed: int) -> list[str]:
        build_lab(spec(TWO_LEAVES, seed=seed))
        return [
            each.value
            for name in ("leaf0", "leaf1", "spine0")
            for each in kernel.settings[name]
            if each.path.endswith("hash_seed")
        ]

    first, second = seeds(3), seeds(4)
    assert len({*first, *second}) == 6


def test_one_process_replaces_all_switches(kernel: Kernel) -> None:
    lab = build_lab(spec(TWO_LEAVES, forwarding="model"))

    assert list(kernel.settings) == ["h0", "h1", MODEL_SWITCH]
    switch = kernel.asked(MODEL_SWITCH)
    # Bare ports with the names of hosts, no bridge, no uplinks, no rates.
    assert links_of(switch) == {
        "h0": (101, 0, "eth0", 101, 500),
        "h1": (102, 0, "eth0", 101, 501),
    }
    assert bridges_of(switch) == []
    assert all(rates_of(kernel.asked(name)) == [] for name in kernel.settings)
    assert set(ports(lab).values()) == {
        *(("h0", "eth0", 101), ("switch", "h0", 101)),
        *(("h1", "eth0", 101), ("switch", "h1", 102)),
    }
    # Bursts would arrive whole there.
    assert [call[:2] for call in kernel.called] == [
        ("h0", "switch_off_udp_segmentation"),
        ("h1", "switch_off_udp_segmentation"),
    ]
    assert lab.notes == ("a note of the kernel",)
    assert kernel.awaited == [MODEL_SWITCH]


def test_modeled_switches_have_ports_for_hosts_of_any_name(kernel: Kernel) -> None:
    hosts = ("switch", "lo", "a-name-of-16-let", "port1", "a-name-of-15-le")
    lab = build_lab(spec(single_switch(5, MBIT, names=hosts), forwarding="model"))

    assert list(kernel.settings) == [*hosts, "switch-switch"]
    assert {
        host: lab.ports[lab_link.other_end(host)].interface
        for host in hosts
        for lab_link in [single_switch(5, MBIT, names=hosts).host_link(host)]
    } == {
        "switch": "switch",
        "lo": "port1-",
        "a-name-of-16-let": "port2",
        "port1": "port1",
        "a-name-of-15-le": "a-name-of-15-le",
    }
    assert set(links_of(kernel.asked("switch-switch"))) == {
        *("switch", "port1-", "port2", "port1", "a-name-of-15-le")
    }


def test_captured_host_and_its_switch_split_bursts(kernel: Kernel) -> None:
    lab = build_lab(spec(TWO_LEAVES, capture_hosts=("h1",)))

    cut = [call for call in kernel.called if call[1] == "switch_off_udp_segmentation"]
    host = TWO_LEAVES.host_link("h1")
    far = lab.ports[host.other_end("h1")]
    assert [(call[0], *call[2:]) for call in cut] == [
        ("h1", "h1", "eth0"),
        ("leaf1", "leaf1", far.interface),
    ]
    assert lab.notes == (
        "a note of the kernel",
        "packets to and from h1 are sent one at a time, so that they can be captured: "
        "this may reduce the rate",
    )


def test_missing_link_delays_of_kernel_switches_are_reported(kernel: Kernel) -> None:
    delayed = clos(2, 1, 1, MBIT, MBIT, uplink_delay_ns=1000)

    note = "link delays are not emulated"
    assert any(note in each for each in build_lab(spec(delayed)).notes)
    model = build_lab(spec(delayed, forwarding="model"))
    assert not any(note in each for each in model.notes)


def test_failed_build_leaves_nothing(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(switches: object) -> None:
        raise FabricError("lab", "never ready")

    monkeypatch.setattr(builder, "wait_until_ready", refuse)

    with pytest.raises(FabricError, match="never ready"):
        build_lab(spec(TWO_LEAVES))
    assert kernel.closed


def test_closed_lab_releases_everything(kernel: Kernel) -> None:
    build_lab(spec(TWO_LEAVES)).close()

    assert kernel.closed
