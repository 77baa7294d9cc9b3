"""What a shard does with a plan of probes instead of ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from chakram.control.event_codec import encode_progress, encode_rows
from chakram.control.events import Progress
from chakram.control.protocol_messages import pb
from chakram.errors import ConfigError, PeerError
from chakram.fabric.netns import in_namespace
from chakram_agent.dataplane.port import PortOptions
from chakram_agent.dataplane.probe_port import ProbePort
from chakram_agent.dataplane.routes import check_route
from chakram_agent.prober import Prober

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan, PortPlan
    from chakram_agent.pipe import ShardPipe
    from chakram_agent.policy import Policy


_REPORT_NS = 100_000_000
_LONGEST_WAIT_NS = 20_000_000
_BUFFER_BYTES = 1 << 20


def open_prober(plan: AgentPlan, policy: Policy) -> Prober:
    """Open the ports of a plan of probes, each in its network namespace.

    Raises:
        ChakramError: If a port cannot be opened, or a destination is not allowed or
            would be reached through ``lo``.
    """
    ports: dict[int, ProbePort] = {}
    try:
        for port in plan.ports:
            ports[port.number] = _open(port, plan, policy)
    except BaseException:
        for opened in ports.values():
            opened.close()
        raise
    return Prober(plan, ports)


def _open(port: PortPlan, plan: AgentPlan, policy: Policy) -> ProbePort:
    probes = plan.probes
    where = f"port {port.number} ({port.host})"
    if not port.open.startswith("udp:") or probes is None:
        raise ConfigError(
            where, f"{port.open!r} cannot send probes", "ports of kind udp: can"
        )
    place = (
        nullcontext() if port.netns is None else in_namespace(port.netns, may_stay=True)
    )
    with place:
        for target in probes.targets:
            if target.source != port.number:
                continue
            policy.check_destination(target.address, where=where)
            if target.address not in plan.peers:
                raise PeerError(where, f"{target.address} is not a member of the plan")
            check_route(target.address, source=port.address)
        return ProbePort(
            port.interface,
            PortOptions(
                address=port.address,
                udp_port=port.udp_port,
                destinations=(),
                source_ports=probes.source_ports,
                data_tos=0,
                control_tos=0,
                cnp_tos=0,
                buffer_bytes=_BUFFER_BYTES,
            ),
        )


def probe(
    prober: Prober,
    pipe: ShardPipe,
    next_command: Callable[[], pb.ShardCommand | None],
    *,
    arm_lease: Callable[[], None],
    check_lease: Callable[[int], None],
) -> bool:
    """Send and receive until the agent says stop; tell whether it did.

    Raises:
        PeerError: If the agent says something else.
        RunFailed: If it gives no sign of life any more.
    """
    prober.watch(pipe.fileno())
    armed = finished = False
    next_report_ns = 0
    while not pipe.closed:
        now_ns = time.monotonic_ns()
        check_lease(now_ns)
        prober.turn(now_ns)
        while (command := next_command()) is not None:
            match command.WhichOneof("command"):
                case "arm":
                    prober.arm(command.arm.start_ns)
                    arm_lease()
                    armed = True
                case "stop":
                    prober.receive_all()
                    _report(prober, pipe, now_ns, finished=False, is_over=True)
                    return True
                case kind:
                    raise PeerError("agent", f"said {kind} to a shard that probes")
        pipe.flush()
        if armed and now_ns >= next_report_ns:
            next_report_ns = now_ns + _REPORT_NS
            # What other agents send later than this one counts, too.
            has_ended = not finished and prober.finished(now_ns)
            _report(prober, pipe, now_ns, finished=has_ended, is_over=finished)
            finished = finished or has_ended
        prober.wait(_LONGEST_WAIT_NS)
    return False


def _report(
    prober: Prober, pipe: ShardPipe, now_ns: int, *, finished: bool, is_over: bool
) -> None:
    rows = prober.take_rows()
    if len(rows):
        pipe.send(pb.ShardReport(records=encode_rows(rows)).SerializeToString())
    if is_over:
        return
    progress = Progress(
        time_ns=now_ns, counter=prober.packets, iterations=(), waiting_for=()
    )
    pipe.send(pb.ShardReport(progress=encode_progress(progress)).SerializeToString())
    if finished:
        pipe.send(pb.ShardReport(finished=pb.ShardFinished()).SerializeToString())
