"""Receiver of the OTLP metrics that switches send every few milliseconds.

Specification: opentelemetry-proto, MetricsService over gRPC. SONiC's high-frequency
telemetry sends gauges, whose attribute ``object_name`` is a port or queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from chakram.foundation.errors import ConfigError, FabricError
from chakram.telemetry.mapping import PathMatcher, Reading
from chakram.telemetry.sai_names import sai_name

if TYPE_CHECKING:
    from chakram.telemetry.mapping import OtlpMetrics
    from chakram.telemetry.switch_reader import SwitchReader
    from chakram.telemetry.targets import OtlpListener


_METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_MESSAGE_BYTES = 16 << 20
_MOST_CALLS = 64
_DELTA, _NO_VALUE = 1, 1  # AGGREGATION_TEMPORALITY_DELTA; a flag of DataPointFlags

_Found: TypeAlias = defaultdict[tuple[int, int], list[Reading | str]]
"""Readings, by number of the reader and time of the readings."""


class OtlpReceiver:
    """Receiver of metrics, which passes them to the readers of the switches.

    Args:
        listener: Address and certificates to listen with.
        readers: The readers of all switches.

    Attributes:
        strangers: Number of data points from switches that no target names.
        address: ``host:port`` at which the receiver listens.
    """

    def __init__(self, listener: OtlpListener, readers: Iterable[SwitchReader]) -> None:
        self.strangers = 0
        self.address = listener.address
        self._listener = listener
        self._readers = [
            (reader, metrics, _matcher(metrics))
            for reader in readers
            # A switch with an address is read through gNMI, so its metrics are not
            # needed.
            if (metrics := reader.target.mapping.otlp) is not None
            and reader.target.address is None
        ]
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Start listening.

        Raises:
            ConfigError: If a package is missing.
            FabricError: If the address cannot be used.
        """
        try:
            from opentelemetry.proto.collector.metrics.v1 import (
                metrics_service_pb2 as messages,
            )
        except ImportError as error:
            raise ConfigError(
                "fabric.telemetry.otlp",
                "the Python package opentelemetry-proto is not installed",
                'install it: pip install "chakram[telemetry]"',
            ) from error

        async def export(request: Any, _context: Any) -> Any:
            self.take(request)
            return messages.ExportMetricsServiceResponse()

        handler = grpc.unary_unary_rpc_method_handler(
            export,
            request_deserializer=messages.ExportMetricsServiceRequest.FromString,
            response_serializer=messages.ExportMetricsServiceResponse.SerializeToString,
        )
        service, method = _METHOD.strip("/").split("/")
        self._server = server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", _MESSAGE_BYTES),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=_MOST_CALLS,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        address = self._listener.address
        try:
            credentials = self._credentials()
            port = (
                server.add_insecure_port(address)
                if credentials is None
                else server.add_secure_port(address, credentials)
            )
            await server.start()
        except (RuntimeError, OSError) as error:
            raise FabricError(
                "fabric.telemetry.otlp", f"cannot listen on {address} ({error})"
            ) from error
        self.address = f"{address.rpartition(':')[0]}:{port}"

    async def close(self) -> None:
        """Stop listening. A second call has no effect."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def take(self, request: Any) -> None:
        """Record the data points of one request, in the order of their times.

        A request may contain several points of one metric before the points of the next
        metric.
        """
        found: _Found = defaultdict(list)
        for resource in request.resource_metrics:
            named = {_text(each.value) for each in resource.resource.attributes}
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self._find(metric, named, found)
        for (number, time_ns), readings in sorted(found.items(), key=itemgetter(0)):
            self._readers[number][0].take(time_ns, readings)

    def _find(self, metric: Any, named: set[str], found: _Found) -> None:
        kind = metric.WhichOneof("data")
        if kind not in ("gauge", "sum"):
            return
        if kind == "sum" and metric.sum.aggregation_temporality == _DELTA:
            return
        name = sai_name(metric.name).lower()
        for point in getattr(metric, kind).data_points:
            if point.flags & _NO_VALUE:
                continue
            attributes = {each.key: _text(each.value) for each in point.attributes}
            number = self._number_of(named | set(attributes.values()))
            if number is None:
                self.strangers += 1
                continue
            _, metrics, matcher = self._readers[number]
            place = attributes.get(metrics.object)
            if place is not None:
                value = point.as_int if point.HasField("as_int") else point.as_double
                readings = matcher.readings((name, place), value)
                found[number, point.time_unix_nano] += readings

    def _number_of(self, names: set[str]) -> int | None:
        """Return the number of the reader whose switch has one of these names."""
        for number, (reader, _, _) in enumerate(self._readers):
            device = reader.target.device
            if device in names or (device is None and len(self._readers) == 1):
                return number
        return None

    def _credentials(self) -> Any:
        given = self._listener
        if given.cert is None or given.key is None:
            return None
        ca = None if given.ca is None else given.ca.read_bytes()
        return grpc.ssl_server_credentials(
            [(given.key.read_bytes(), given.cert.read_bytes())],
            root_certificates=ca,
            require_client_auth=ca is not None,
        )


def _matcher(metrics: OtlpMetrics) -> PathMatcher:
    """Return a matcher for metrics that ignores the case of their names."""
    named = {}
    for path, counter in metrics.counters.items():
        name, slash, place = path.partition("/")
        named[name.lower() + slash + place] = counter
    return PathMatcher(named, strip_modules=False)


def _text(value: Any) -> str:
    """Return an attribute's value as text."""
    kind = value.WhichOneof("value")
    return str(getattr(value, kind)) if kind in ("string_value", "int_value") else ""
