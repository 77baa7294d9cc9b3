"""Reader of one switch's facts, clock and counters."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from contextlib import aclosing, suppress
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

import grpc

from chakram.foundation.errors import FabricError
from chakram.telemetry.counter_history import CounterHistory
from chakram.telemetry.device_clock import DeviceClock, Exchange
from chakram.telemetry.gnmi_messages import (
    encode_path,
    encoding_of,
    pb,
    pb_grpc,
    prefix_of,
    require_gnmi,
    subscription,
    updates,
)
from chakram.telemetry.mapping import (
    ALL_CLASSES,
    Elements,
    PathMatcher,
    Reading,
    path_of_port,
    split_path,
)
from chakram.telemetry.silent_ports import PortReports

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from chakram.telemetry.mapping import TelemetryMapping
    from chakram.telemetry.targets import Target


log = logging.getLogger(__name__)

GAP_INTERVALS = 3
"""Number of intervals without a sample after which there is a gap, and a stream
restarts."""

_CALL_S = 5.0
_LATEST_NS = 1 << 62
_FACT_CHARACTERS = 1 << 16
_FACT_DEPTH = 32
_FIRST_SAMPLES_S = 15.0
_CLOCK_REQUESTS = 8
_LEAST_STALL_S = 2.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_MESSAGE_BYTES = 16 << 20
_MOST_EXAMPLES = 3
_STATES_S = 60.0
"""Time without a change of state after which a reader asks for the states again.

Otherwise, a connection that broke when the switch restarted would stay open. Servers
also end connections that carry nothing but keepalives.
"""
_NO_GET = frozenset(
    {
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
    }
)
"""Status codes of a failed Get request after which a subscription can still succeed."""

_REFUSALS = {
    grpc.StatusCode.UNAUTHENTICATED: "refuses the user or certificate",
    grpc.StatusCode.PERMISSION_DENIED: "refuses the user or certificate",
    grpc.StatusCode.UNIMPLEMENTED: "does not support this request",
    grpc.StatusCode.INVALID_ARGUMENT: "refuses the subscription",
    grpc.StatusCode.NOT_FOUND: "does not have these paths",
    grpc.StatusCode.DEADLINE_EXCEEDED: "does not answer in time",
}


class SwitchReader:
    """Reader of one switch for the duration of a run.

    Args:
        target: Switch to read.

    Attributes:
        target: Switch to read.
        history: Counters of the switch.
        clock: Clock of the switch.
        facts: Facts that the switch reports, by path.
        ignored: Number of values that could not be used.
        examples: Descriptions of the first ignored values.
        restarts: Number of restarts of the stream of samples.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        interval_ns = target.sampled_ns
        self.history = CounterHistory(
            target.ports.values(),
            bits=target.mapping.bits,
            spacing_ns=interval_ns // 2,
            gap_ns=GAP_INTERVALS * interval_ns,
            are_cleared=target.mapping.watermarks == "since_last",
        )
        self.clock = DeviceClock()
        self.facts: dict[str, Any] = {}
        self.ignored = 0
        self.examples: list[str] = []
        self.restarts = 0
        self._matcher = PathMatcher(
            target.mapping.counters, strip_modules=target.mapping.strip_modules
        )
        self._ports = frozenset(target.ports.values())
        self._reports = PortReports(
            interval_ns=interval_ns,
            class_refresh_ns=target.mapping.class_refresh_ns or 0,
        )
        self._channel: grpc.aio.Channel | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._arrived = asyncio.Event()
        self._refused: grpc.aio.AioRpcError | None = None

    @property
    def where(self) -> str:
        """Name of the switch for errors."""
        return f"telemetry of {self.target.switch}"

    async def start(self) -> None:
        """Connect, read the facts of the switch, and begin to sample.

        Raises:
            ConfigError: If a package is missing.
            FabricError: If the switch does not answer, or refuses a request.
        """
        if self.target.address is None:
            # The switch sends OTLP, in which times are times of day.
            self.clock.assumed_ns = time_ns() - monotonic_ns()
            await self._first_samples()
            return
        require_gnmi()
        self._channel = _open_channel(self.target)
        stub = pb_grpc.gNMIStub(self._channel)
        try:
            await stub.Capabilities(pb.CapabilityRequest(), **self._how())
            await self._read_facts(stub)
            await self.measure_clock()
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from error
        self._tasks.append(asyncio.create_task(self._sample(stub)))
        if self.target.mapping.state is not None:
            self._tasks.append(asyncio.create_task(self._follow_states()))
        await self._first_samples()

    async def measure_clock(self) -> None:
        """Request the time of the switch several times in a row."""
        if self._channel is None:
            return
        stub = pb_grpc.gNMIStub(self._channel)
        mapping = self.target.mapping
        port = next(iter(self.target.ports.values()))
        places = [(path_of_port(mapping.subscribe[0], port), mapping.target)]
        if mapping.facts:
            fact = mapping.facts[0]
            places.insert(0, (split_path(fact.path), fact.target))
        for place in places:
            try:
                exchanges = await self._exchanges(stub, _get(mapping, *place))
            except grpc.aio.AioRpcError as error:
                # Many switches that stream in the PROTO encoding do not answer requests
                # in it.
                if place is places[-1] and error.code() not in _NO_GET:
                    raise
                log.info("no time at %s: %s", place[0], error.code().name)
                continue
            if exchanges:
                self.clock.add(exchanges)
                return
        if not self.clock.best:
            # In this case, samples get their arrival times.
            self.clock.advances = False

    async def _exchanges(self, stub: Any, request: Any) -> list[Exchange]:
        """Return the times of several consecutive requests."""
        exchanges = []
        for _ in range(_CLOCK_REQUESTS):
            sent_ns = monotonic_ns()
            answer = await stub.Get(request, **self._how())
            received_ns = monotonic_ns()
            for notification in answer.notification[:1]:
                device_ns = notification.timestamp
                exchanges.append(Exchange(sent_ns, device_ns, received_ns))
        return exchanges

    def take(
        self,
        at_ns: int,
        found: Iterable[Reading | str],
        *,
        arrived_ns: int | None = None,
    ) -> None:
        """Record readings with their time on the device's clock.

        Args:
            at_ns: Time of the readings. If 0 or less, unknown.
            found: Readings, and texts about values that could not be read.
            arrived_ns: See ``CounterHistory.add``.
        """
        readings = []
        for each in found:
            if isinstance(each, Reading):
                readings.append(each)
            else:
                self.ignored += 1
                if len(self.examples) < _MOST_EXAMPLES:
                    self.examples.append(each[:200])
        if not readings:
            return
        self.history.add(self._time_of(at_ns), readings, arrived_ns=arrived_ns)
        reported = {
            (each.port, each.traffic_class == ALL_CLASSES)
            for each in readings
            if each.port in self._ports
        }
        self._reports.add(reported, monotonic_ns())
        self._arrived.set()

    def _time_of(self, at_ns: int) -> int:
        """Return a time of the device, or the arrival time if the clock is unusable."""
        if not 0 < at_ns < _LATEST_NS or not self.clock.advances:
            return self.clock.to_device(monotonic_ns())
        return at_ns

    async def close(self) -> None:
        """Stop reading. A second call has no effect."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._channel is not None:
            await self._channel.close(None)
            self._channel = None

    # ---- gNMI ------------------------------------------------------------------------

    def _how(self) -> dict[str, Any]:
        """Return the arguments that all short calls share."""
        return {"timeout": _CALL_S, "metadata": self._metadata()}

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        given = self.target.credentials
        return tuple(
            (name, value)
            for name, value in (
                ("username", given.username),
                ("password", given.password),
            )
            if value is not None
        )

    async def _read_facts(self, stub: Any) -> None:
        mapping = self.target.mapping
        for fact in mapping.facts:
            request = _get(mapping, split_path(fact.path), fact.target)
            try:
                answer = await stub.Get(request, **self._how())
            except grpc.aio.AioRpcError as error:
                log.info("no facts path=%s code=%s", fact.path, error.code().name)
                continue
            for notification in answer.notification:
                for elements, value in updates(notification):
                    if value is not None and not isinstance(value, ValueError):
                        name = "/".join(elements) or fact.path
                        self.facts[name] = _plain(value)

    async def _first_samples(self) -> None:
        """Wait until every port has been reported.

        Raises:
            FabricError: If the subscription is refused, or ports are missing.
        """
        limit_s = _FIRST_SAMPLES_S + self.target.sampled_ns * 1e-9
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while not self.history.is_complete(0):
                    self._arrived.clear()
                    await self._arrived.wait()
                    if self._refused is not None:
                        raise self._failure(self._refused)
                return
        missing = self.history.unseen()
        raise FabricError(
            self.where,
            f"{self.target.address or 'it'} sent no counters of "
            + ", ".join(missing[:5])
            + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            + f" within {limit_s:.0f} s",
            "are fabric.telemetry's ports and mapping those of this switch?",
        )

    async def _sample(self, stub: Any) -> None:
        """Follow the counters, and subscribe again when the stream ends or stalls."""
        target = self.target
        interval_ns = target.sampled_ns
        request = subscription(
            target.mapping,
            target.mapping.target,
            (
                path_of_port(path, port)
                for port in target.ports.values()
                for path in target.mapping.subscribe
            ),
            mode=pb.SAMPLE,
            sample_interval=interval_ns,
        )
        stall_s = max(_LEAST_STALL_S, GAP_INTERVALS * interval_ns * 1e-9)
        pause_s = _FIRST_PAUSE_S
        while True:
            self._reports.begin(monotonic_ns())
            try:
                async with aclosing(self._stream(stub, request, stall_s)) as stream:
                    async for response in stream:
                        pause_s = _FIRST_PAUSE_S
                        if response.HasField("update"):
                            self._take_notification(response.update)
                        if self._reports.has_silent(monotonic_ns()):
                            log.info("port is silent switch=%s", target.switch)
                            break
            except grpc.aio.AioRpcError as error:
                log.info("stream ended switch=%s %s", target.switch, error.code().name)
                if error.code() in _REFUSALS:
                    self._refused = error
                    self._arrived.set()
            except TimeoutError:
                log.info("stream stalled switch=%s", target.switch)
            self.restarts += 1
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)

    async def _stream(self, stub: Any, request: Any, stall_s: float) -> Any:
        """Yield the responses to a subscription.

        Raises:
            TimeoutError: If there is no response for *stall_s*.
        """

        async def requests() -> Any:
            yield request
            await asyncio.Event().wait()  # if the requests ended, the stream would end

        call = stub.Subscribe(requests(), metadata=self._metadata())
        try:
            while True:
                async with asyncio.timeout(stall_s):
                    response = await call.read()
                if not isinstance(response, pb.SubscribeResponse):  # end of stream
                    return
                yield response
        finally:
            call.cancel()

    def _take_notification(self, notification: Any) -> None:
        found: list[Reading | str] = []
        for elements, value in updates(notification):
            if isinstance(value, ValueError):
                found.append(f"{'/'.join(elements)}: {value}")
            else:
                found += self._matcher.readings(elements, value)
        arrived_ns = self.clock.to_device(monotonic_ns())
        self.take(notification.timestamp, found, arrived_ns=arrived_ns)

    async def _follow_states(self) -> None:
        """Follow the states of ports that the switch reports.

        This subscription has its own connection, because SONiC ends a subscription if
        there is another one on the same connection.
        """
        async with _open_channel(self.target) as channel:
            await self._follow_states_through(pb_grpc.gNMIStub(channel))

    async def _follow_states_through(self, stub: Any) -> None:
        target, state = self.target, self.target.mapping.state
        assert state is not None
        matcher = PathMatcher(
            {state.subscribe: "state"}, strip_modules=target.mapping.strip_modules
        )
        paths = [path_of_port(state.subscribe, port) for port in target.ports.values()]
        pause_s = _FIRST_PAUSE_S
        request = subscription(target.mapping, state.target, paths, mode=pb.ON_CHANGE)
        while True:
            try:
                async with aclosing(self._stream(stub, request, _STATES_S)) as stream:
                    async for response in stream:
                        pause_s = _FIRST_PAUSE_S
                        self._take_states(response.update, matcher, state.down)
            except TimeoutError:
                continue
            except grpc.aio.AioRpcError as error:
                log.info("states ended switch=%s %s", target.switch, error.code().name)
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)

    def _take_states(
        self, notification: Any, matcher: PathMatcher, down: Collection[str]
    ) -> None:
        at_ns = self._time_of(notification.timestamp)
        for elements, value in updates(notification):
            for leaf, content in matcher.leaves(elements, value):
                found = matcher.find(leaf)
                if found is not None and isinstance(content, str):
                    is_down = content in down
                    self.history.set_state(at_ns, found[0], is_down=is_down)

    def _failure(self, error: grpc.aio.AioRpcError) -> FabricError:
        code, text = error.code(), (error.details() or "").strip()
        address = self.target.address
        if code in _REFUSALS:
            found = f"{address} {_REFUSALS[code]} ({text or code.name})"
            hint = "see fabric.telemetry: credentials, mapping and interval"
        else:
            found = f"cannot reach {address} ({text or code.name})"
            hint = "is its gNMI server on, and are tls and the address right?"
        return FabricError(self.where, found, hint)


def _plain(value: object) -> object:
    """Return a fact without characters that UTF-8 cannot encode."""
    if _is_deeper(value, _FACT_DEPTH):
        return "nested too deeply"
    text = json.dumps(value)[:_FACT_CHARACTERS]
    try:
        return json.loads(re.sub(r"\\ud[89a-f][0-9a-f]{2}", "?", text))
    except ValueError:
        return f"{text}..."


def _is_deeper(value: object, depth: int) -> bool:
    """Return whether objects and lists are nested more than *depth* times."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return not depth or any(_is_deeper(each, depth - 1) for each in inner)


def _get(mapping: TelemetryMapping, path: Elements, target: str | None) -> Any:
    """Return a request for the values at a path."""
    return pb.GetRequest(
        prefix=prefix_of(target),
        path=[encode_path(path)],
        encoding=encoding_of(mapping),
    )


def _open_channel(target: Target) -> grpc.aio.Channel:
    """Return a channel with its own connection to the gNMI server of a switch.

    Raises:
        FabricError: If a certificate cannot be read.
    """
    given = target.credentials
    options: list[tuple[str, str | int]] = [
        ("grpc.max_receive_message_length", _MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.enable_http_proxy", 0),
        # Without this option, channels to the same address share a connection.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if given.server_name is not None:
        options.append(("grpc.ssl_target_name_override", given.server_name))
    address = target.address or ""
    if given.ca is None:
        return grpc.aio.insecure_channel(address, options)
    try:
        certificates = [
            None if path is None else path.read_bytes()
            for path in (given.ca, given.key, given.cert)
        ]
    except OSError as error:
        raise FabricError(
            f"telemetry of {target.switch}",
            f"{error.filename} cannot be read: {error.strerror}",
            "is the path right?",
        ) from error
    credentials = grpc.ssl_channel_credentials(*certificates)
    return grpc.aio.secure_channel(address, credentials, options)
