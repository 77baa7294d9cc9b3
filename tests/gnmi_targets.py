"""A gNMI server that behaves as a test wants, with SONiC's paths."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
from gnmi_pb import gnmi_pb2, gnmi_pb2_grpc

from chakram.telemetry.gnmi_messages import decode_path, encode_path
from chakram.telemetry.mapping import TelemetryMapping, read_mapping
from chakram.telemetry.targets import Credentials, Target

PORTS = ("Ethernet0", "Ethernet4")
SAI_PORT, SAI_QUEUE = "SAI_PORT_STAT_", "SAI_QUEUE_STAT_"

pb: Any = gnmi_pb2


class ScriptedSwitch:
    """A switch whose counters and faults a test sets.

    Attributes:
        counts: Leaves of ports and queues, by object name.
        ahead_ns: How far its clock is ahead of this machine's.
        is_silent: Whether it keeps streams open but sends nothing.
        fact: Answer to requests for values, as JSON.
        starved: Ports that it reports only when a subscription begins.
        refusal: Code to refuse subscriptions with.
        refusal_of_values: Code to refuse requests for values with.
        down: Ports that are down.
        tells_changes: Whether subscriptions to states tell more than the first ones.
        gives_changes: Whether the time of each value is that of its last change.
        wraps_states: Whether a state is a JSON object with the name of its leaf.
        streams: Number of subscriptions to counters so far.
        replaced: Number of streams that ended because of a later subscription on
            their connection, as SONiC's server does.
        metadata: Metadata of the last call.
        extra: Returns further updates of a notification.
    """

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, Any]] = {}
        for port in PORTS:
            self.counts[port] = {
                f"{SAI_PORT}{name}": 0
                for name in (
                    *("IF_IN_OCTETS", "IF_IN_UCAST_PKTS", "IF_IN_DISCARDS"),
                    *("IF_OUT_OCTETS", "IF_OUT_UCAST_PKTS", "IF_OUT_DISCARDS"),
                    *("PFC_3_RX_PKTS", "PFC_3_TX_PKTS"),
                )
            }
            self.counts[f"{port}:3"] = {
                f"{SAI_QUEUE}{name}": 0
                for name in ("PACKETS", "BYTES", "WRED_ECN_MARKED_PACKETS")
            }
        self.ahead_ns = 0
        self.frozen_ns: int | None = None
        self.is_silent = False
        self.starved: set[str] = set()
        self.fact = b'{"hwsku": "scripted", "os": "SONiC"}'
        self.refusal: grpc.StatusCode | None = None
        self.refusal_of_values: grpc.StatusCode | None = None
        self.down: set[str] = set()
        self.tells_changes = True
        self.gives_changes = False
        self.wraps_states = False
        self._changed_ns: dict[str, int] = {}
        self._built_ns = time.time_ns() - 3600 * 10**9
        self.streams = self.replaced = 0
        self._latest: dict[str, object] = {}
        self.metadata: dict[str, str] = {}
        self.extra: Callable[[], list[Any]] = list
        self.updates_at_once = 1

    def add(self, name: str, **counts: int) -> None:
        """Raise counters of a port (``Ethernet0``) or queue (``Ethernet0:3``)."""
        prefix = SAI_QUEUE if ":" in name else SAI_PORT
        for leaf, count in counts.items():
            self.counts[name][prefix + leaf] += count
            self._changed_ns[f"{name} {prefix}{leaf}"] = self.now_ns()

    def now_ns(self) -> int:
        """Return the time of its clock."""
        if self.frozen_ns is not None:
            return self.frozen_ns
        return time.time_ns() + self.ahead_ns

    # ---- the service -----------------------------------------------------------------

    async def Capabilities(self, _: Any, context: Any) -> Any:
        self.metadata = dict(context.invocation_metadata())
        return pb.CapabilityResponse(gNMI_version="0.10.0")

    async def Get(self, request: Any, context: Any) -> Any:
        if self.refusal_of_values is not None:
            await context.abort(self.refusal_of_values, "not in this encoding")
        response = pb.GetResponse()
        for path in request.path:
            made = response.notification.add(timestamp=self.now_ns())
            update = made.update.add(path=path)
            update.val.json_ietf_val = self.fact
        return response

    async def Set(self, _: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no")

    async def Subscribe(self, requests: Any, context: Any) -> Any:
        first = await anext(requests, None)
        if first is None:  # the client has left
            return
        asked = first.subscribe
        this = self._latest[context.peer()] = object()
        if asked.subscription[0].mode == pb.ON_CHANGE:
            responses = self._states(asked)
        else:
            self.streams += 1
            responses = self._counters(asked, context)
        async with aclosing(responses):
            async for response in responses:
                if self._latest[context.peer()] is not this:
                    self.replaced += 1
                    return
                yield response

    async def _counters(self, asked: Any, context: Any) -> AsyncGenerator[Any, None]:
        if self.refusal is not None:
            await context.abort(self.refusal, "not for you")
        is_first = True
        while True:
            if not self.is_silent:
                for _ in range(self.updates_at_once):
                    for each in asked.subscription:
                        port = decode_path(each.path)[1]
                        if port in self.starved and not is_first:
                            continue
                        for made in self._samples(each.path):
                            yield pb.SubscribeResponse(update=made)
            is_first = False
            await asyncio.sleep(asked.subscription[0].sample_interval * 1e-9)

    async def _states(self, asked: Any) -> AsyncGenerator[Any, None]:
        told: set[str] | None = None
        while True:
            if told is None or (told != self.down and self.tells_changes):
                told = set(self.down)
                for each in asked.subscription:
                    port = decode_path(each.path)[1]
                    made = pb.Notification(timestamp=self.now_ns())
                    state = "down" if port in told else "up"
                    value = made.update.add(path=each.path).val
                    if self.wraps_states:
                        wrapped = {"netdev_oper_status": state}
                        value.json_ietf_val = json.dumps(wrapped).encode()
                    else:
                        value.string_val = state
                    yield pb.SubscribeResponse(update=made)
            await asyncio.sleep(0.01)

    def _samples(self, path: Any) -> list[Any]:
        elements = decode_path(path)
        values: Any = self.counts.get(elements[1], {})
        if elements[-1] == "Queues":
            values = {
                name: queue
                for name, queue in self.counts.items()
                if name.startswith(f"{elements[1]}:")
            }
        if not self.gives_changes:
            return [self._notification(path, values, self.now_ns())]
        leaves = [
            (f"{elements[1]} {leaf}", {leaf: value})
            for leaf, value in values.items()
            if not isinstance(value, dict)
        ] + [
            (f"{name} {leaf}", {name: {leaf: value}})
            for name, own in values.items()
            if isinstance(own, dict)
            for leaf, value in own.items()
        ]
        return [
            self._notification(path, own, self._changed_ns.get(name, self._built_ns))
            for name, own in leaves
        ]

    def _notification(self, path: Any, values: Any, time_ns: int) -> Any:
        made = pb.Notification(timestamp=time_ns)
        made.prefix.target = "COUNTERS_DB"
        made.update.add(path=path).val.json_ietf_val = json.dumps(values).encode()
        made.update.extend(self.extra())
        return made


def update(path: str, value: Any) -> Any:
    """Return an update with a JSON value, which may be bytes."""
    made = pb.Update(path=encode_path(path.split("/")))
    made.val.json_ietf_val = (
        value if isinstance(value, bytes) else json.dumps(value).encode()
    )
    return made


@asynccontextmanager
async def serving(
    switch: ScriptedSwitch, address: str = "127.0.0.1:0", credentials: Any = None
) -> AsyncIterator[str]:
    """Serve a switch, and yield its address."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    gnmi_pb2_grpc.add_gNMIServicer_to_server(switch, server)
    port = (
        server.add_insecure_port(address)
        if credentials is None
        else server.add_secure_port(address, credentials)
    )
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def quick_mapping(**changes: Any) -> TelemetryMapping:
    """Return SONiC's mapping for a switch whose counters are never old."""
    return read_mapping("sonic").model_copy(
        update={
            "refresh_ns": 0,
            "class_refresh_ns": 0,
            "least_interval_ns": 0,
            **changes,
        }
    )


def target_at(address: str | None, **changes: Any) -> Target:
    """Return the scripted switch as switch s0 of a star of two hosts."""
    return Target(
        **{
            "switch": "s0",
            "address": address,
            "mapping_name": "sonic",
            "mapping": quick_mapping(),
            "ports": {"s0:h0": "Ethernet0", "s0:h1": "Ethernet4"},
            "interval_ns": 20_000_000,
            "credentials": Credentials(),
            **changes,
        }
    )
