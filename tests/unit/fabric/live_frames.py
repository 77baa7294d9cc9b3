"""Frames sent into modeled switches, and their output."""

from __future__ import annotations

from ipaddress import ip_address

from chakram.fabric.labs.link_counters import LabCounters, LinkCounters
from chakram.fabric.modeled_switch.frame_io import Frames
from chakram.fabric.modeled_switch.live_switch import LiveSwitch
from chakram.fabric.modeled_switch.switch_process import lab_counters
from chakram.predict.simulator.switch_fabric import SwitchFabric
from chakram.switch.ecmp import KernelPaths
from chakram.switch.profiles import Profile
from chakram.topology.addressing import plan_addresses
from chakram.topology.topology import EcnThresholds, Topology
from chakram.topology.topology_helpers import single_switch

RATE = 200 * 10**6
SIZE = 4154
ON_WIRE_NS = SIZE * 8 * 1000 // 200
"""What a packet of that size takes on a link of that rate."""
FRAME_BYTES = 4214
PLACES = 512
SEED = 7


class HandedFrames(Frames):
    """Frames that a test hands over, and takes back.

    Attributes:
        coming: What comes next: port, time and bytes of each.
        sent: What has left: port and bytes.
    """

    def __init__(self) -> None:
        super().__init__(frame_bytes=FRAME_BYTES, places=PLACES + 16)
        self.coming: list[tuple[int, int, bytes]] = []
        self.sent: list[tuple[int, bytes]] = []
        self._leaving: list[tuple[int, int, int]] = []

    def receive(self, place: int) -> bool:
        """Put the next frame into a place."""
        if not self.coming:
            return False
        self.port, self.time_ns, frame = self.coming.pop(0)
        self.length = len(frame) if len(frame) <= FRAME_BYTES else 0
        start = place * FRAME_BYTES
        view = memoryview(self.memory)
        view[start : start + self.length] = frame[: self.length]
        return True

    def send(self, place: int, length: int, port: int) -> None:
        """Record sent frames."""
        self._leaving.append((place, length, port))

    def flush(self) -> None:
        """Return and remove sent frames."""
        view = memoryview(self.memory)
        for place, length, port in self._leaving:
            start = place * FRAME_BYTES
            self.sent.append((port, bytes(view[start : start + length])))
        self._leaving.clear()


class LiveFabric:
    """Modeled switches between handed frames.

    Attributes:
        fabric: The model.
        frames: Those of its hosts.
        live: The switches.
        topology: Their topology.
    """

    def __init__(
        self,
        topology: Topology,
        profile: Profile | None = None,
        *,
        family: str = "ipv4",
    ) -> None:
        self.fabric = SwitchFabric(topology, profile or Profile(), ecn=True, seed=SEED)
        self.frames = HandedFrames()
        self.addresses = plan_addresses(topology, family)
        self.topology = topology
        self.hosts = topology.hosts
        self.live = LiveSwitch(
            fabric=self.fabric,
            frames=self.frames,
            host_ports=[self.fabric.host_port(host) for host in topology.hosts],
            host_nodes=[self.fabric.node(host) for host in topology.hosts],
            macs=[int(self._mac(host).hex(), 16) for host in topology.hosts],
            ecmp=KernelPaths(seed=SEED),
            places=PLACES,
        )

    def _mac(self, host: str) -> bytes:
        return bytes.fromhex(self.addresses.host(host).mac.replace(":", ""))

    def frame(
        self,
        source: int,
        destination: int,
        size_bytes: int,
        *,
        dscp: int = 26,
        ecn: int = 2,
        source_port: int = 50_000,
    ) -> bytes:
        """Return a UDP packet between hosts, whose UDP checksum is unfinished."""
        near, far = self.hosts[source], self.hosts[destination]
        addresses = [
            ip_address(self.addresses.host(each).address) for each in (near, far)
        ]
        udp = b"".join(
            each.to_bytes(2, "big") for each in (source_port, 4791, 0, 0xBEEF)
        )
        traffic_class = dscp << 2 | ecn
        if addresses[0].version == 4:
            length = (size_bytes - 14).to_bytes(2, "big")
            header = bytes([0x45, traffic_class]) + length + bytes.fromhex("00004000")
            header += bytes([64, 17, 0, 0]) + b"".join(
                each.packed for each in addresses
            )
            total = checksum(header)
            header = header[:10] + total.to_bytes(2, "big") + header[12:]
            kind = b"\x08\x00"
        else:
            header = (6 << 28 | traffic_class << 20).to_bytes(4, "big")
            header += (size_bytes - 54).to_bytes(2, "big") + bytes([17, 64])
            header += b"".join(each.packed for each in addresses)
            kind = b"\x86\xdd"
        start = self._mac(far) + self._mac(near) + kind + header + udp
        return start + bytes(n & 0xFF for n in range(size_bytes - len(start)))

    def hand(self, source: int, time_ns: int, frame: bytes) -> None:
        """Send a frame from a host at a time."""
        self.frames.coming.append((source, time_ns, frame))

    def take(self) -> list[tuple[int, bytes]]:
        """Return the frames sent since the last call."""
        sent = list(self.frames.sent)
        self.frames.sent.clear()
        return sent


def lossless(**more: object) -> Profile:
    """Return switches with little memory, which soon pause senders."""
    return Profile(name="sonic", buffer_bytes=800_000, mtu=SIZE, **more)  # type: ignore[arg-type] # any of its fields


def incast(lab: LiveFabric, *, steps: int) -> int:
    """Send from seven hosts to one at once; return the time."""
    now_ns = 0
    for _ in range(steps):
        for source in range(1, 8):
            lab.hand(source, now_ns, lab.frame(source, 0, SIZE))
        now_ns += ON_WIRE_NS
        lab.live.round(now_ns)
    now_ns += 10 * steps * ON_WIRE_NS
    lab.live.round(now_ns)
    return now_ns


def incast_counters(*, steps: int) -> LabCounters:
    """Return the counters of a lab that pauses and marks in an incast."""
    marks = EcnThresholds(kmin_bytes=20_000, kmax_bytes=80_000, probability=0.5)
    topology = single_switch(8, RATE, host_ecn=marks)
    lab = LiveFabric(topology, lossless())
    now_ns = incast(lab, steps=steps)
    fields = lab_counters(lab.fabric, topology, now_ns)
    return LabCounters(
        links={name: LinkCounters(**each) for name, each in fields["links"].items()},
        ports=fields["ports"],
        process={"lost": 1, "refused": 1, "late_ns": 1, "cpu_ns": 1},
    )


def checksum(header: bytes) -> int:
    """Return the checksum of an IPv4 header; 0 of one that has the right one."""
    total = sum(
        int.from_bytes(header[at : at + 2], "big") for at in range(0, len(header), 2)
    )
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
