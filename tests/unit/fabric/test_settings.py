"""Computed kernel settings: seeds, bursts, command lines, error texts."""

from __future__ import annotations

import json
import socket
import sys

import pytest

from chakram.fabric.enter_lab import enter_command, main
from chakram.fabric.fabric_types.loopback import LoopbackPort, loopback_ports
from chakram.fabric.labs.holder_protocol import encode_error, raise_error, receive_line
from chakram.fabric.labs.shaping import shape
from chakram.fabric.machine_probe import LAB_PROBES, Probe
from chakram.foundation.errors import ConfigError, FabricError, PrivilegeError
from chakram.plan.transport import TransportPlan
from chakram.topology.topology import HOST_BUCKET_NS, bucket_bytes


@pytest.mark.parametrize(
    ("rate_bps", "expected"),
    [(10**6, 15_000), (10**9, 25_000), (10**10, 250_000), (4 * 10**11, 10_000_000)],
)
def test_ports_save_15_kb_or_200_us(rate_bps: int, expected: int) -> None:
    assert bucket_bytes(rate_bps) == expected


def test_token_bucket_of_a_host_exceeds_the_catch_up_of_a_late_process() -> None:
    late_ns = TransportPlan().burst_bound_ns
    saved = bucket_bytes(10**9, bucket_ns=HOST_BUCKET_NS)
    assert saved == 250_000
    assert saved > 10**9 * late_ns // (8 * 10**9) + 65_535


def test_shaping_differs_only_in_the_interface_number() -> None:
    one = shape(7, rate_bps=10**9, limit_bytes=1000)
    other = shape(8, rate_bps=10**9, limit_bytes=1000)
    assert len(one) == 3
    for first, second in zip(one, other, strict=True):
        assert first.what == second.what
        assert first.data[20:24] == (7).to_bytes(4, sys.byteorder)
        assert first.data[:20] + second.data[20:24] + first.data[24:] == second.data


def test_errors_survive_the_connection_to_the_holder() -> None:
    for error in (
        FabricError("lab x", "it is odd", "mend it"),
        PrivilegeError("fabric", "not allowed"),
    ):
        with pytest.raises(type(error)) as back:
            raise_error(json.loads(encode_error(error)))
        assert str(back.value) == str(error)
    raise_error({})
    raise_error({"error": "text"})
    with pytest.raises(FabricError):
        raise_error({"error": {"kind": "SystemExit"}})


def test_line_may_arrive_in_pieces_or_end_early() -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(b'{"a":')
        far.sendall(b" 1}\n")
        assert receive_line(near) == b'{"a": 1}\n'
        far.sendall(b"half")
        far.shutdown(socket.SHUT_WR)
        assert receive_line(near) == b"half"


def test_command_that_enters_a_lab_is_shown() -> None:
    assert enter_command(17, ["ip", "a"])[1:] == [
        *("-P", "-m", "chakram.fabric.enter_lab", "17", "--", "ip", "a")
    ]
    assert enter_command(17, ["ip"], netns="/proc/17/fd/5")[4:] == [
        *("17", "--netns", "/proc/17/fd/5", "--", "ip")
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["17", "ip"],
        ["17", "--"],
        ["x", "--", "ip"],
        ["17", "--netns", "--", "ip"],
        ["17", "18", "--", "ip"],
    ],
)
def test_entering_without_holder_or_command_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ConfigError.exit_code
    assert "HOLDER_PID [--netns PATH] -- COMMAND" in capsys.readouterr().err


def test_entering_the_lab_of_a_dead_holder_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([str(2**22 + 1), "--", "true"]) == FabricError.exit_code
    assert "it does not run" in capsys.readouterr().err


def test_loopback_ports_are_named_as_hosts() -> None:
    assert loopback_ports(2, udp_port=4791) == (
        LoopbackPort(host="h0", address="127.18.0.1", udp_port=4791),
        LoopbackPort(host="h1", address="127.18.0.2", udp_port=4791),
    )


def test_loopback_ports_of_ipv6_count_up_their_udp_ports() -> None:
    assert loopback_ports(2, udp_port=4791, family="ipv6") == (
        LoopbackPort(host="h0", address="::1", udp_port=4791),
        LoopbackPort(host="h1", address="::1", udp_port=4792),
    )
    assert loopback_ports(2, udp_port=49150, family="ipv6")[-1].udp_port == 49151
    with pytest.raises(FabricError, match="ports from 49152 on belong to queue pairs"):
        loopback_ports(3, udp_port=49150, family="ipv6")


def test_probe_states_whether_labs_need_it() -> None:
    assert "htb" in LAB_PROBES
    assert not Probe(name="x", ok=True, reason="").needed
