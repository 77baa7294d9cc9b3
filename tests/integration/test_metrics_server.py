"""Metrics over HTTP on loopback."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from concurrent.futures import Future
from contextlib import ExitStack

import pytest

from chakram.foundation.errors import ConfigError, EnvironmentProblem, PortInUse
from chakram.metrics.exporter import (
    MOST_CONNECTIONS,
    MetricsServer,
    open_listener,
)
from chakram.metrics.state import MetricsState
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture
def server() -> MetricsServer:
    return MetricsServer(MetricsState("r1"), open_listener("127.0.0.1:0"))


def fetch(url: str, accept: str = "text/plain") -> tuple[str, str]:
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_metrics_are_served_as_text_and_as_openmetrics(server: MetricsServer) -> None:
    with server:
        kind, text = fetch(server.url)
        assert kind.startswith("text/plain")
        assert 'chakram_run_state{run_id="r1",state="preparing"} 1.0\n' in text
        kind, text = fetch(server.url, "application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")


def test_other_paths_point_to_the_metrics(server: MetricsServer) -> None:
    with server:
        root = server.url.removesuffix("metrics")
        assert "/metrics" in fetch(root)[1]
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            fetch(f"{root}secret")
        caught.value.close()


def test_silent_client_does_not_delay_others(server: MetricsServer) -> None:
    with server:
        address = server.url.split("/")[2].split(":")
        with socket.create_connection(
            (address[0], int(address[1])), timeout=PATIENCE_S
        ):
            assert "chakram_run_state" in fetch(server.url)[1]


def test_silent_clients_do_not_use_up_threads_and_descriptors(
    server: MetricsServer,
) -> None:
    with server, ExitStack() as silent:
        host, _, port = server.url.split("/")[2].rpartition(":")

        def connect() -> socket.socket:
            return silent.enter_context(
                socket.create_connection((host, int(port)), timeout=PATIENCE_S)
            )

        kept = [connect() for _ in range(MOST_CONNECTIONS)]
        assert connect().recv(1) == b""
        for one in kept:
            one.close()
        wait_until(lambda: _is_served(server.url), "room for a client")


def _is_served(url: str) -> bool:
    try:
        return "chakram_run_state" in fetch(url)[1]
    except OSError:  # sent away
        return False


def test_a_server_that_never_started_can_be_closed(server: MetricsServer) -> None:
    server.close()


def waiting(server: MetricsServer, timeout_s: float) -> Future[bool]:
    """Wait for the last scrape in a separate thread."""
    future: Future[bool] = Future()

    def wait() -> None:
        future.set_result(server.wait_for_last_scrape(timeout_s))

    threading.Thread(target=wait, daemon=True).start()
    return future


def test_final_values_are_served_until_scraped(server: MetricsServer) -> None:
    with server:
        fetch(server.url)
        waited = waiting(server, PATIENCE_S)
        wait_until(lambda: has_taken_the_end(server, waited), "the last scrape")
        assert waited.result(PATIENCE_S)


def has_taken_the_end(server: MetricsServer, waited: Future[bool]) -> bool:
    """Scrape; return whether this ended the wait."""
    fetch(server.url)
    return waited.done()


def test_server_does_not_wait_without_any_scrape(server: MetricsServer) -> None:
    with server:
        fetch(server.url.removesuffix("metrics"))
        assert not server.wait_for_last_scrape(PATIENCE_S)


def test_wait_for_a_last_scrape_is_bounded(
    server: MetricsServer,
) -> None:
    with server:
        fetch(server.url)
        assert not server.wait_for_last_scrape(0.0)


def test_wait_for_a_scrape_can_be_interrupted(server: MetricsServer) -> None:
    with server:
        fetch(server.url)
        waited = waiting(server, PATIENCE_S)
        server.stop_waiting()
        assert waited.result(PATIENCE_S)


def test_port_in_use_is_reported_before_the_run_starts() -> None:
    with open_listener("127.0.0.1:0") as first:
        port = first.getsockname()[1]
        with pytest.raises(PortInUse) as caught:
            open_listener(f"127.0.0.1:{port}")
    assert str(caught.value) == (
        f"metrics.listen 127.0.0.1:{port}: another program uses this address (stop it, "
        "choose another port, or disable metrics)"
    )
    assert caught.value.exit_code == 3


def test_ipv6_is_served_too() -> None:
    try:
        listener = open_listener("[::1]:0")
    except EnvironmentProblem as error:
        pytest.skip(f"no IPv6 on loopback: {error}")
    with MetricsServer(MetricsState("r1"), listener) as server:
        assert server.url.startswith("http://[::1]:")
        assert "chakram_run_state" in fetch(server.url)[1]


@pytest.mark.parametrize("listen", ["9464", "127.0.0.1:", "127.0.0.1:http", "h:65536"])
def test_invalid_address_is_refused(listen: str) -> None:
    with pytest.raises(ConfigError, match="not an address with a port"):
        open_listener(listen)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(EnvironmentProblem, match=r"192\.0\.2\.1:9464: cannot listen"):
        open_listener("192.0.2.1:9464")
