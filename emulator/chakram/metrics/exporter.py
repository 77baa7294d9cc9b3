"""HTTP server for the metrics of a run, for Prometheus.

``open_listener`` opens the socket before the run starts, so it reports at once if the
port is in use. If the controller enters another network namespace later, Prometheus can
still reach the socket. A custom collector renders values from a snapshot. The exporter
does not use the counters of prometheus_client.
"""

from __future__ import annotations

import errno
import json
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from typing import Any
from urllib.parse import parse_qsl

from prometheus_client import CollectorRegistry, metrics_core
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from chakram.foundation.errors import ConfigError, EnvironmentProblem, PortInUse
from chakram.metrics.catalog import COUNTER, HISTOGRAM, INFO, METRICS, Metric
from chakram.metrics.state import (
    HistogramValues,
    Labels,
    MetricsState,
    Snapshot,
)
from chakram.records.counter_slots import FCT_BUCKET_BOUNDS_NS

REQUEST_TIMEOUT_S = 5.0
"""Time after which the server closes a connection without a request."""

MOST_CONNECTIONS = 64
"""Limit on simultaneous connections. The server closes any further connection, because
each uses a thread and a file descriptor of the process that runs traffic."""

_OPENMETRICS = "application/openmetrics-text; version=1.0.0"

BOUNDS = (
    *(repr(bound_ns / 1e9) for bound_ns in FCT_BUCKET_BOUNDS_NS),
    "+Inf",
)


class SnapshotCollector(Collector):
    """Collector that returns the values of a state to prometheus_client.

    Args:
        state: State with the values.
        refresh: See ``MetricsServer``.
    """

    def __init__(
        self, state: MetricsState, refresh: Callable[[], None] | None = None
    ) -> None:
        self._state = state
        self._refresh = refresh

    def collect(self) -> Iterable[metrics_core.Metric]:
        """Return the metrics that have a value, in the order of the catalog."""
        if self._refresh is not None:
            self._refresh()
        snapshot = self._state.snapshot()
        for metric in METRICS:
            family = _family(metric, snapshot)
            if family is not None:
                yield family

    def describe(self) -> Iterable[metrics_core.Metric]:
        """Return nothing, because the names in the catalog are unique."""
        return ()


def exposition(state: MetricsState) -> str:
    """Return the metrics of *state* as OpenMetrics text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(state))
    encode, _ = choose_encoder(_OPENMETRICS)
    return encode(registry).decode()


def _family(metric: Metric, snapshot: Snapshot) -> metrics_core.Metric | None:
    if metric.kind == HISTOGRAM:
        observed = snapshot.histograms.get(metric.name)
        return _histogram(metric, observed) if observed else None
    values = snapshot.values.get(metric.name)
    if not values:
        return None
    if metric.kind == INFO:
        info = metrics_core.InfoMetricFamily(
            metric.name.removesuffix("_info"), metric.help
        )
        for labels in values:
            info.add_metric((), dict(zip(metric.label_names, labels, strict=True)))
        return info
    told = metric.name, metric.help
    family = (
        metrics_core.CounterMetricFamily(*told, labels=metric.label_names)
        if metric.kind == COUNTER
        else metrics_core.GaugeMetricFamily(*told, labels=metric.label_names)
    )
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _histogram(
    metric: Metric, observed: Mapping[Labels, HistogramValues]
) -> metrics_core.Metric:
    family = metrics_core.HistogramMetricFamily(
        metric.name, metric.help, labels=metric.label_names
    )
    for labels, found in observed.items():
        buckets = list(zip(BOUNDS, accumulate(found.counts), strict=True))
        family.add_metric(labels, buckets, sum_value=found.sum_seconds)
    return family


def open_listener(listen: str) -> socket.socket:
    """Return a listening TCP socket at *listen*, e.g. ``127.0.0.1:9464``.

    Port 0 selects any free port.

    Raises:
        ConfigError: If *listen* is not an address with a port.
        PortInUse: If another process listens at the address.
        EnvironmentProblem: If the address does not belong to this machine, or the
            process may not use it.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError("metrics.listen", f"{listen!r} is not an address with a port")
    try:
        found = socket.getaddrinfo(
            host.strip("[]") or None,
            int(port),
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # e.g. empty or long parts of a name
        raise EnvironmentProblem(
            f"metrics.listen {listen}",
            f"no address is known for the name: {error}",
            "use an address of this machine",
        ) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(16)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"metrics.listen {listen}",
                "another program uses this address",
                "stop it, choose another port, or disable metrics",
            ) from error
        raise EnvironmentProblem(
            f"metrics.listen {listen}",
            f"cannot listen: {error.strerror}",
            "choose an address of this machine",
        ) from error
    return listener


class MetricsServer:
    """Server for ``/metrics``, which uses separate threads until it is closed.

    Args:
        state: Metrics to serve.
        listener: Socket from ``open_listener``. The server closes it.
        pages: Functions that create JSON documents from query parameters, by path.
        refresh: Function that updates the state. The server calls it before every
            scrape.
    """

    def __init__(
        self,
        state: MetricsState,
        listener: socket.socket,
        pages: Mapping[str, Callable[[Mapping[str, str]], object]] | None = None,
        refresh: Callable[[], None] | None = None,
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(SnapshotCollector(state, refresh))
        self._server = _Server(listener, registry, pages or {})
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="metrics",
            daemon=True,
        )

    @property
    def url(self) -> str:
        """URL of the metrics, e.g. ``http://127.0.0.1:9464/metrics``."""
        host, port = self._server.socket.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{port}/metrics"

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def wait_for_last_scrape(self, timeout_s: float) -> bool:
        """Wait until a client has scraped the current values.

        A client that scrapes periodically gets the final values of a run only if the
        server is still running at the client's next scrape. If there was no scrape
        before, the method returns at once.

        Args:
            timeout_s: Longest time to wait.

        Returns:
            True if a client scraped the current values, or if ``stop_waiting`` ended
            the wait.
        """
        self._server.is_end.set()
        return self._server.was_scraped.is_set() and self._server.has_end.wait(
            timeout_s
        )

    def stop_waiting(self) -> None:
        """Make current and later calls of ``wait_for_last_scrape`` return at once."""
        self._server.has_end.set()

    def close(self) -> None:
        """Stop serving and close the socket."""
        self.stop_waiting()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> MetricsServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    """HTTP server on a socket that is already open.

    Attributes:
        registry: Registry of the metrics.
        documents: Functions that create JSON documents, by path.
        is_end: Set when the values are final.
        was_scraped: Set when a client has begun to read the values.
        has_end: Set when a client has read the final values, or the server need not
            wait for one.
    """

    daemon_threads = True
    block_on_close = True

    def __init__(
        self,
        listener: socket.socket,
        registry: CollectorRegistry,
        documents: Mapping[str, Callable[[Mapping[str, str]], object]],
    ) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.registry = registry
        self.documents = documents
        self.is_end = threading.Event()
        self.was_scraped = threading.Event()
        self.has_end = threading.Event()
        self.socket.close()
        self.socket = listener
        self.server_address = listener.getsockname()
        self._room = threading.Semaphore(MOST_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, or close the connection if there are too many."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # the thread did not start
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then let another connection take the place of this one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error of a client that disconnects early."""


class _Handler(BaseHTTPRequestHandler):
    """Handler that answers one request and closes the connection."""

    timeout = REQUEST_TIMEOUT_S
    server: _Server

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        server = self.server
        if path == "/metrics":
            is_get = self.command == "GET"
            if is_get:
                # Set this before the response, because the client may end the run once
                # it has read the response.
                server.was_scraped.set()
            is_end = is_get and server.is_end.is_set()
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, content_type, encode(server.registry))
            if is_end:
                server.has_end.set()
        elif path in server.documents:
            document = server.documents[path](dict(parse_qsl(query)))
            self._answer(200, "application/json", json.dumps(document).encode())
        elif path == "/":
            self._answer(200, "text/plain; charset=utf-8", f"See {self._all()}\n")
        else:
            here = f"Only {self._all()} is available\n"
            self._answer(404, "text/plain; charset=utf-8", here)

    do_HEAD = do_GET

    def _all(self) -> str:
        return " and ".join(("/metrics", *self.server.documents))

    def _answer(self, status: int, content_type: str, body: bytes | str) -> None:
        if isinstance(body, str):
            body = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing, because a line for each scrape would be of no use."""
