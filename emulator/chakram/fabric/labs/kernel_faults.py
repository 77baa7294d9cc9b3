"""Link faults in a lab with kernel switches.

A short classic BPF program at the ingress of the receiving interface drops packets. At
that point, the packets have already been serialized, as in the switch model. The kernel
counts the drops. A burst is lost as a whole.

A link that is down loses all packets. The switches at its ends remove the link from
their routes if they have other paths. The interfaces of the link stay up, so that
addresses and neighbors remain and nothing changes for hosts. A degraded rate is set in
the HTB class that shapes the end of the link.

Netem could also drop packets, but few kernels have it, and it adds a queue.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST, rtnl
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from chakram.fabric.labs.built_lab import BuiltLab
from chakram.fabric.labs.lab_spec import LabSpec
from chakram.fabric.labs.netlink_requests import Request, create, remove_queue
from chakram.fabric.labs.node_configuration import NetworkRequests
from chakram.fabric.labs.shaping import ARRIVAL_HANDLE, reshape, shape_end, unshape
from chakram.foundation.errors import FabricError
from chakram.switch.fault_schedule import FaultSchedule
from chakram.switch.faults import LinkFault
from chakram.switch.port import NEVER
from chakram.topology.topology import Link, PortRef

_TC_H_INGRESS = 0xFFFF_FFF1
_FIRST_PRIORITY = 1 << 16
_ETH_P_ALL = 3
_TCA_KIND, _TCA_OPTIONS = 1, 2
_TCA_BPF_OPS_LEN, _TCA_BPF_OPS, _TCA_BPF_FLAGS = 4, 5, 8
_DIRECT_ACTION = 1
_SHOT, _GO_ON = 2, 0xFFFF_FFFF  # TC_ACT_SHOT, TC_ACT_UNSPEC
_LOAD_RANDOM = 0x20, 0, 0, 0xFFFF_F000 + 56  # BPF_LD | BPF_W | BPF_ABS, SKF_AD_RANDOM
_JUMP_IF_NOT_LESS = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN = 0x06
_DRAWS = 1 << 32


def decode_faults(fields: Mapping[str, Any], where: str) -> list[LinkFault]:
    """Return the faults in a request.

    Raises:
        FabricError: If the request contains no valid faults.
    """
    try:
        return [LinkFault(**each) for each in fields["faults"]]
    except (KeyError, TypeError, ValueError) as error:
        raise FabricError(where, f"these are not valid link faults ({error})") from None


def attach_drop_program(index: int) -> list[Request]:
    """Return the requests that attach a drop program to the ingress of an interface."""
    message = tcmsg()
    message["index"] = index
    message["handle"] = ARRIVAL_HANDLE
    message["parent"] = _TC_H_INGRESS
    message["attrs"] = [("TCA_KIND", "ingress")]
    queue = create(message, rtnl.RTM_NEWQDISC, "ingress queue discipline")
    return [queue, _drop_arrivals(index, 0.0)]


def _drop_arrivals(index: int, share: float) -> Request:
    """Return the request that makes the program drop a fraction of arriving packets."""
    drawn = round(share * _DRAWS)
    if drawn <= 0:
        program = [(_RETURN, 0, 0, _GO_ON)]
    elif drawn >= _DRAWS:
        program = [(_RETURN, 0, 0, _SHOT)]
    else:
        program = [
            _LOAD_RANDOM,
            (_JUMP_IF_NOT_LESS, 1, 0, drawn),
            (_RETURN, 0, 0, _SHOT),
            (_RETURN, 0, 0, _GO_ON),
        ]
    code = b"".join(struct.pack("=HBBI", *each) for each in program)
    options = (
        _attribute(_TCA_BPF_OPS_LEN, struct.pack("=H", len(program)))
        + _attribute(_TCA_BPF_OPS, code)
        + _attribute(_TCA_BPF_FLAGS, struct.pack("=I", _DIRECT_ACTION))
    )
    # struct tcmsg: family, the interface, handle, parent, priority and protocol (all).
    body = struct.pack("=B3xi", 0, index)
    body += struct.pack("=II", 1, ARRIVAL_HANDLE)
    body += struct.pack("=I", _FIRST_PRIORITY | socket.htons(_ETH_P_ALL))
    body += _attribute(_TCA_KIND, b"bpf\0") + _attribute(_TCA_OPTIONS, options)
    flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE
    # struct nlmsghdr. The socket fills in the sequence number.
    header = struct.pack("=IHHII", 16 + len(body), rtnl.RTM_NEWTFILTER, flags, 0, 0)
    return Request(header + body, "bpf filter of what arrives")


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


@dataclass(slots=True, kw_only=True)
class _Port:
    """One end of a link and its current faults: see ``FaultSchedule``.

    Attributes:
        lost: Fraction of the packets sent from this end that are lost.
    """

    end: PortRef
    link: Link
    peer: int
    rate_bps: int
    quanta_ns: int = NEVER
    lost: float = 0.0
    is_up: bool = True
    is_watched: bool = False


class _KernelLinks:
    """The links of a lab, whose ends are the numbered ports of ``FaultSchedule``."""

    def __init__(self, lab: BuiltLab, spec: LabSpec) -> None:
        self._lab = lab
        self._where = f"lab {spec.name}"
        self._hosts = frozenset(spec.topology.hosts)
        self._network = NetworkRequests(
            spec.topology,
            lab.addresses,
            {end: port.index for end, port in lab.ports.items()},
            is_model=False,
        )
        ends = spec.topology.ends()
        numbers = {link.end_at(node): at for at, (node, link) in enumerate(ends)}
        self._ports = [
            _Port(
                end=link.end_at(node),
                link=link,
                peer=numbers[link.other_end(node)],
                rate_bps=link.rate_bps or 0,
            )
            for node, link in ends
        ]

    def ports(self) -> Sequence[_Port]:
        return self._ports

    def port(self, number: int) -> _Port:
        return self._ports[number]

    def watch(self, faults: Iterable[LinkFault]) -> None:
        """Attach drop programs in advance, so that *faults* start on time.

        Raises:
            FabricError: If this kernel does not support drop programs.
        """
        for fault in faults:
            if fault.kind == "degrade":
                continue
            port = self._ports[fault.port]
            self._watch(self._ports[port.peer])
            if fault.kind in ("down", "flap"):
                self._watch(port)

    def _watch(self, port: _Port) -> None:
        if port.is_watched:
            return
        try:
            self._execute(port.end, attach_drop_program(self._index(port.end)))
        except FabricError as error:
            raise FabricError(
                "faults.links",
                f"this kernel cannot drop packets: {error.found}",
                "load its modules sch_ingress and cls_bpf, or use fabric.switch: model",
            ) from error
        port.is_watched = True

    def forget(self) -> None:
        """Remove the drop programs."""
        for port in self._ports:
            if port.is_watched:
                index = self._index(port.end)
                what = "ingress queue discipline"
                request = remove_queue(index, parent=_TC_H_INGRESS, what=what)
                self._execute(port.end, [request])
                port.is_watched = False

    def set_link(self, number: int, is_up: bool, now_ns: int) -> None:
        port = self._ports[number]
        if port.is_up == is_up:
            return
        peer = self._ports[port.peer]
        port.is_up = peer.is_up = is_up
        down = {each.link.name for each in self._ports if not each.is_up}
        for sender, receiver in ((port, peer), (peer, port)):
            self._decide(sender, receiver)
            if receiver.end.node not in self._hosts:
                routes = self._network.routes_of(receiver.end.node, without=down)
                self._execute(receiver.end, routes)

    def set_errors(self, number: int, *, loss: float, corruption: float) -> None:
        port = self._ports[number]
        if port.lost != loss + corruption:
            port.lost = loss + corruption
            self._decide(port, self._ports[port.peer])

    def set_rate(self, number: int, rate_bps: int, now_ns: int) -> None:
        port = self._ports[number]
        index, is_host = self._index(port.end), port.end.node in self._hosts
        if not rate_bps:
            requests = [unshape(index)]
        elif port.rate_bps:
            requests = [reshape(index, rate_bps=rate_bps, is_host=is_host)]
        else:
            requests = shape_end(index, port.link, rate_bps=rate_bps, is_host=is_host)
        self._execute(port.end, requests)
        port.rate_bps = rate_bps

    def pause(self, number: int, klass: int, duration_ns: int, now_ns: int) -> None:
        raise FabricError(
            self._where,
            "the kernel's switches do not support pauses",
            "use fabric.switch: model",
        )

    def _decide(self, sender: _Port, receiver: _Port) -> None:
        share = sender.lost if sender.is_up else 1.0
        request = _drop_arrivals(self._index(receiver.end), share)
        self._execute(receiver.end, [request])

    def _index(self, end: PortRef) -> int:
        return self._lab.ports[end].index

    def _execute(self, end: PortRef, requests: list[Request]) -> None:
        namespace = self._lab.ports[end].namespace
        self._lab.namespaces[namespace].netlink.execute(requests)


class KernelFaults:
    """Injector of scheduled faults into the links of a lab.

    Args:
        lab: Running lab.
        spec: Specification of the lab.
    """

    def __init__(self, lab: BuiltLab, spec: LabSpec) -> None:
        self._links = _KernelLinks(lab, spec)
        self._schedule = FaultSchedule(self._links)

    def disturb(self, faults: Sequence[LinkFault], now_ns: int) -> None:
        """Inject more faults. An empty sequence ends all faults.

        Raises:
            FabricError: If this kernel does not support the faults.
        """
        if faults:
            self._links.watch(faults)
            self._schedule.add(faults)
            self._schedule.advance(now_ns)
        else:
            self._schedule.end(now_ns)
            self._links.forget()

    def advance(self, now_ns: int) -> float | None:
        """Apply due faults, and return the seconds until the next change, or None.

        Raises:
            FabricError: If the kernel refuses a change.
        """
        self._schedule.advance(now_ns)
        next_ns = self._schedule.next_ns()
        return None if next_ns == NEVER else max(0, next_ns - now_ns) / 1e9
