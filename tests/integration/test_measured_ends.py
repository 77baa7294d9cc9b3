"""Measurements of RDMA NICs between two hosts: what both ends tell each other.

The devices move bytes in this process; tests/soak has two guests with Soft-RoCE.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import count
from typing import Any

import pytest

from chakram.cli import main
from chakram.foundation.errors import PeerError
from chakram.rdma import benchmark_ends, nic_benchmark, nic_device
from chakram.rdma.benchmark_ends import RemoteReceiver, Trial, serve
from tests.rdma_devices import FABRIC, Device, nic_of, replace_binding

TRIALS = (Trial(64, 1, 1), Trial(4096, 8, 32))
Served = tuple[int, Future[dict[str, int]]]


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_binding(monkeypatch)
    counts = count()
    monkeypatch.setattr(
        benchmark_ends, "read_counters", lambda *_: {"rcvd_pkts": next(counts)}
    )
    monkeypatch.setattr(benchmark_ends, "_PERFTEST", "a program that is missing")
    monkeypatch.setattr(nic_device, "open_device", Device)
    monkeypatch.setattr(nic_device, "find_nic", nic_of)
    monkeypatch.setattr(nic_benchmark, "_TRIALS", TRIALS)


@pytest.fixture
def served(devices: None) -> Iterator[Served]:
    """Serve one measurement, and yield its port and its counters."""
    device = Device("mlx5_1")
    with ThreadPoolExecutor(1) as pool, socket.create_server(("127.0.0.1", 0)) as here:
        yield (
            here.getsockname()[1],
            pool.submit(serve, device, nic_of(device, "198.18.0.2"), here),
        )
    device.close()


def test_messages_go_to_the_other_end(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    port, counters = served
    words = ("--nic", "mlx5_0", "--peer", f"127.0.0.1:{port}", "--duration", "0.05")
    assert main(["doctor", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["peer"]["name"] == "mlx5_1 (198.18.0.2)"
    assert found["peer"]["counters"] == {"packets_rx": 1}
    assert counters.result(10) == {"packets_rx": 2}
    assert [
        (each["size_bytes"], each["queue_pairs"], each["list_length"])
        for each in found["trials"]
    ] == [tuple(trial) for trial in TRIALS]
    assert all(each["messages"] > 0 for each in found["trials"])
    senders = [pair for pair in FABRIC.pairs.values() if pair.lists]
    assert {pair.settings["remote_gid"] for pair in senders} == {"198.18.0.2"}
    # Each end has as many queue pairs as the other.
    assert len(FABRIC.pairs) == 2 * len(senders) == 18


def test_table_names_the_other_end(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--nic", "mlx5_0", "--peer", f"127.0.0.1:{served[0]}", "--duration", "0.1")
    assert main(["doctor", *words]) == 0
    told = capsys.readouterr().out
    assert "The other end is mlx5_1 (198.18.0.2) of 127.0.0.1." in told
    assert "Counters of the other end: packets_rx 1" in told


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense",
        b"[1]",
        b"{}",
        b'{"request": "hello", "protocol": "chakram.nic-measurement/9"}',
        b'{"request": "open", "trial": [64, 1], "sender": {}}',
        b'{"request": "open", "trial": [64, 1, 1], "sender": {}}',
        b'{"request": "open", "trial": [99999999999, 1, 1], "sender": {}}',
        b'{"request": "perftest", "trial": [64, 100000, 1]}',
        b'{"request": "open", "trial": [64, 1, 1], "sender": {"gid": "198.18.0.1",'
        b' "path_mtu": 1024, "qpns": [-1], "memory": 0, "key": 0}}',
    ],
)
def test_strange_requests_are_answered_and_open_nothing(
    served: Served, request_: bytes
) -> None:
    port, counters = served
    with socket.create_connection(("127.0.0.1", port), 10) as own:
        own.sendall(request_ + b"\n")
        answer = json.loads(own.makefile("rb").readline())
    assert answer == {
        "error": "the request is unknown: use the same version at both ends"
    }
    counters.result(10)
    assert not FABRIC.pairs


def test_refusal_of_the_other_device_is_told(served: Served) -> None:
    sender = Device("mlx5_0")
    with closing(RemoteReceiver("127.0.0.1", served[0])) as receiver:
        end = benchmark_ends.End(sender, nic_of(sender, None), TRIALS[0], depth=1)
        FABRIC.refusal = OSError(12, "Cannot allocate memory")
        with pytest.raises(PeerError, match=r"mlx5_1: .*Cannot allocate memory"):
            receiver.open(TRIALS[0], end.address)


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-OpenSSH\r\n", b'{"name": 1', b"[]\n"]
)
def test_what_is_no_other_end_is_told(answer: bytes) -> None:
    with ThreadPoolExecutor(1) as pool, socket.create_server(("127.0.0.1", 0)) as here:

        def say() -> None:
            with here.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(answer)

        said = pool.submit(say)
        with pytest.raises(PeerError, match="is not chakram doctor --listen"):
            RemoteReceiver("127.0.0.1", here.getsockname()[1])
        said.result(10)


def test_absent_end_is_told(capsys: pytest.CaptureFixture[str], devices: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as here:
        port = here.getsockname()[1]
    assert main(["doctor", "--nic", "mlx5_0", "--peer", f"127.0.0.1:{port}"]) == 4
    told = capsys.readouterr().err
    assert "Connection refused" in told
    assert "start chakram doctor --nic DEVICE --listen ADDRESS:PORT there" in told
