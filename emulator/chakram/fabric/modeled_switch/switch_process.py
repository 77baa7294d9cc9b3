"""The process that runs every modeled switch of a lab.

``python -m chakram.fabric.modeled_switch.switch_process SOCKET NAMESPACE`` takes two
file descriptors: a control socket, and the namespace with the ports. It reads a
``LabSpec`` from the socket. It answers with an empty object once it forwards packets,
or with an error. It then answers each further request: with counters, with samples, or
with an acknowledgment of link faults. The process ends with the lab's holder.

The process polls without pause while frames arrive, because waking up takes 30 to 60
us. After 300 us without frames it sleeps. It wakes when a frame arrives, or 60 us
before the next event is due.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from collections.abc import Mapping
from time import monotonic_ns, process_time_ns
from typing import Any

from chakram.fabric.core_assignment import forwarding_cores
from chakram.fabric.labs import link_counters as counters
from chakram.fabric.labs.enter_namespace import enter_namespace
from chakram.fabric.labs.holder_protocol import encode_error, receive_line
from chakram.fabric.labs.lab_spec import LabSpec, decode_spec
from chakram.fabric.modeled_switch.frame_io import SocketFrames, open_frames
from chakram.fabric.modeled_switch.live_switch import LiveSwitch
from chakram.fabric.process_control import die_with_parent
from chakram.foundation.errors import ChakramError
from chakram.predict.simulator.samples import LinkSampler
from chakram.predict.simulator.switch_fabric import SwitchFabric
from chakram.switch.ecmp import KernelPaths
from chakram.switch.faults import LinkFault
from chakram.switch.telemetry_counters import UP, drops
from chakram.topology.addressing import plan_addresses
from chakram.topology.topology import Topology

_SPIN_NS = 300_000
_WAKE_MARGIN_NS = 60_000
_CONTROL_NS = 2_000_000
_LONGEST_SLEEP_NS = 10**9
_ETHERNET_BYTES = 14
_MEMORY_BYTES = 1 << 29
_MOST_PLACES = 1 << 16
_SPARE_PLACES = 16
_NUMBERS_PER_ANSWER = 200_000


class LabSwitches:
    """The modeled switches of a lab, with open ports.

    Attributes:
        live: The modeled switches.
        frames: Frame input and output of the ports.
    """

    def __init__(self, spec: LabSpec) -> None:
        """Open the ports, which must be in the namespace of this thread.

        Raises:
            FabricError: If the ports cannot be opened, or a switch has too little
                memory.
        """
        topology = spec.topology
        self._topology = topology
        self._fabric = SwitchFabric(topology, spec.profile, ecn=True, seed=spec.seed)
        frame_bytes = spec.mtu + _ETHERNET_BYTES
        places = min(_MOST_PLACES, _MEMORY_BYTES // frame_bytes)
        interfaces = spec.model_interfaces()
        self.frames: SocketFrames = open_frames(
            [interfaces[host] for host in topology.hosts],
            frame_bytes=frame_bytes,
            places=places + _SPARE_PLACES,
        )
        self._sampler = LinkSampler(self._fabric.model)
        addresses = plan_addresses(topology, spec.addressing)
        self.live = LiveSwitch(
            fabric=self._fabric,
            frames=self.frames,
            host_ports=[self._fabric.host_port(host) for host in topology.hosts],
            host_nodes=[self._fabric.node(host) for host in topology.hosts],
            macs=[
                int(addresses.host(host).mac.replace(":", ""), 16)
                for host in topology.hosts
            ],
            ecmp=KernelPaths(seed=spec.seed),
            places=places,
        )

    def counters(self) -> dict[str, Any]:
        """Return the counters by link, by port and in total, as plain data."""
        self.frames.count_lost()
        live = self.live
        late_ns, live.late_ns = live.late_ns, 0
        return lab_counters(self._fabric, self._topology, live.now_ns) | {
            "process": {
                "received": live.received,
                "delivered": live.delivered,
                "unknown": live.unknown,
                "lost": self.frames.lost,
                "refused": self.frames.refused,
                "late_ns": late_ns,
                "cpu_ns": process_time_ns(),
            }
        }

    def serve(self, control: socket.socket) -> None:
        """Forward packets and answer requests until the peer closes *control*."""
        live, receiver = self.live, self.frames.receiver
        control.setblocking(False)
        active_ns = asked_ns = monotonic_ns()
        while True:
            now_ns = monotonic_ns()
            if live.round(now_ns):
                active_ns = now_ns
                self._sampler.turn(now_ns)
            if now_ns - asked_ns >= _CONTROL_NS:
                asked_ns = now_ns
                if not self._answer(control):
                    return
            if now_ns - active_ns < _SPIN_NS:
                continue
            due_ns = min(live.next_ns() - _WAKE_MARGIN_NS, now_ns + _LONGEST_SLEEP_NS)
            now_ns = monotonic_ns()
            if due_ns > now_ns:
                select.select([receiver, control], [], [], (due_ns - now_ns) / 1e9)
                asked_ns = 0

    def _answer(self, control: socket.socket) -> bool:
        """Answer a pending request. Return False if the peer has disconnected."""
        try:
            if not control.recv(1, socket.MSG_PEEK):
                return False
        except BlockingIOError:
            return True
        control.setblocking(True)
        request = json.loads(receive_line(control))
        control.sendall(json.dumps(self._answer_to(request)).encode() + b"\n")
        control.setblocking(False)
        return True

    def _answer_to(self, request: Mapping[str, Any]) -> dict[str, Any]:
        sampler = self._sampler
        match request["request"]:
            case counters.FAULTS_REQUEST:
                self.live.disturb([LinkFault(**each) for each in request["faults"]])
                return {}
            case counters.BIN_REQUEST:
                sampler.begin(request["bin_ns"], monotonic_ns())
                return {}
            case counters.SAMPLES_REQUEST:
                sampler.end(monotonic_ns())
                rows = sampler.rows[:_NUMBERS_PER_ANSWER].tolist()
                del sampler.rows[:_NUMBERS_PER_ANSWER]
                return {"rows": rows}
        return self.counters()


def lab_counters(
    fabric: SwitchFabric, topology: Topology, now_ns: int
) -> dict[str, Any]:
    """Return the counters of a model's ports, as fields of ``LabCounters``."""
    counted = {
        end: port.counted(now_ns) | {UP: [int(port.is_up)]}
        for number, end in enumerate(fabric.ends)
        for port in (fabric.model.port(number),)
    }
    links = {}
    for link in topology.links:
        near, far = counted[link.a], counted[link.b]
        links[link.name] = {
            f"{way}_{what}": value
            for way, ends in (("tx", (near, far)), ("rx", (far, near)))
            for what, value in _of_link(*ends).items()
        }
    return {
        "links": links,
        "ports": {str(end): values for end, values in counted.items()},
    }


def _of_link(
    near: Mapping[str, list[int]], far: Mapping[str, list[int]]
) -> dict[str, int]:
    """Return the counters of one direction of a link, from *near* to *far*."""
    return {
        "bytes": sum(near["sent_bytes"]),
        "packets": sum(near["sent_packets"]),
        "drops": drops(near, at_ingress=False) + drops(far, at_ingress=True),
    }


def main(arguments: list[str]) -> int:
    """Run the switches of one lab, and return the exit status."""
    with socket.socket(fileno=int(arguments[0])) as inherited:
        # In a large lab, the inherited descriptor has too high a number for select.
        control = inherited.dup()
    parent = os.getppid()
    die_with_parent(parent)
    try:
        spec = decode_spec(receive_line(control).decode())
        enter_namespace(int(arguments[1]))
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, forwarding_cores(cores) or cores)
        switches = LabSwitches(spec)
    except ChakramError as error:
        control.sendall(encode_error(error).encode() + b"\n")
        return error.exit_code
    control.sendall(b"{}\n")
    switches.serve(control)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
