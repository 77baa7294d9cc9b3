from __future__ import annotations

import time
from ipaddress import IPv4Network
from pathlib import Path

import pytest

import chakram
from chakram.control.call_home.token_file import TokenFile
from chakram.control.tls_files import TlsFiles
from chakram.fabric.labs.lab_files import STATE_ROOT_VARIABLE
from chakram.foundation.errors import ConfigError
from chakram_agent import cli
from chakram_agent.cli import main, parser, serve_options
from chakram_agent.send_limits import Policy
from chakram_agent.serve_options import ServeOptions
from chakram_agent.state import QUIET_LEASE_NS, TRAFFIC_LEASE_NS


def options(*arguments: str) -> ServeOptions:
    return serve_options(parser().parse_args(["serve", *arguments]))


def test_only_its_owner_can_connect_to_an_agent_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(STATE_ROOT_VARIABLE, "/run/own")
    assert options() == ServeOptions(
        listen="unix:/run/own/agent.sock", tls=None, policy=Policy()
    )


def test_agent_that_dies_with_the_controller_ignores_its_silence() -> None:
    assert options().traffic_lease_ns == TRAFFIC_LEASE_NS
    assert options("--die-with-parent").traffic_lease_ns == QUIET_LEASE_NS


def test_all_options_are_accepted() -> None:
    assert options(
        *("--listen", "0.0.0.0:7411"),
        *("--tls-ca", "ca.pem", "--tls-cert", "h1.pem", "--tls-key", "h1.key"),
        *("--allow", "198.18.0.0/16", "--allow", "192.0.2.0/24"),
        *("--max-rate", "10Gbit", "--lease", "10min"),
    ) == ServeOptions(
        listen="0.0.0.0:7411",
        tls=TlsFiles(ca=Path("ca.pem"), cert=Path("h1.pem"), key=Path("h1.key")),
        policy=Policy(
            allow=(IPv4Network("198.18.0.0/16"), IPv4Network("192.0.2.0/24")),
            max_rate_bps=10**10,
        ),
        idle_lease_ns=600 * 10**9,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tls-ca", "ca.pem"),
        ("--allow", "0.0.0.0/0"),
        ("--max-rate", "10"),
        ("--listen", "h1"),
        ("--listen", "192.0.2.11:99999"),
        ("--listen", "192.0.2.11:²"),
        ("--listen", "h1..example:7411"),
        ("--lease", "0s"),
        ("--lease", "10"),
        ("--tls-ca", "ca.pem", "--tls-cert", "h1.pem", "--tls-key", "h1.key"),
    ],
)
def test_contradictory_options_are_refused(arguments: tuple[str, str]) -> None:
    with pytest.raises(ConfigError):
        options(*arguments)


@pytest.mark.parametrize(
    ("address", "is_valid"),
    [
        ("192.0.2.11:7411", True),
        ("[2001:db8::1]:7411", True),
        ("h1.example.:65535", True),
        ("192.0.2.11", False),
        ("192.0.2.11:65536", False),
        ("192.0.2.11:²", False),
        ("h1..example:7411", False),
    ],
)
def test_the_address_of_a_controller_has_a_host_and_a_port(
    tmp_path: Path, address: str, is_valid: bool
) -> None:
    file = tmp_path / "token.json"
    file.write_bytes(TokenFile(token=b"", authority=b"", controllers=()).to_bytes())
    arguments = ("--token-file", str(file), "--controller", address)
    if is_valid:
        home = options(*arguments).home
        assert home is not None
        assert home.controllers == (address,)
    else:
        with pytest.raises(ConfigError, match="is not an address"):
            options(*arguments)


def test_error_prints_one_sentence_and_sets_the_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", "--max-rate", "10"]) == ConfigError.exit_code
    complaint = capsys.readouterr().err
    assert complaint == "chakram-agent: --max-rate: '10' has no unit (e.g. 400Gbit)\n"


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"{chakram.__version__}\n"


@pytest.mark.parametrize("refusals", [0, 2])
def test_the_kernel_may_delay_the_niceness_of_a_session(
    monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    calls: list[int] = []

    def set_niceness(_: int, niceness: int) -> None:
        calls.append(niceness)
        if len(calls) <= refusals:
            raise BlockingIOError

    monkeypatch.setattr(cli, "set_niceness", set_niceness)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    cli.apply_niceness(5)
    assert calls == [5] * (refusals + 1)


def test_a_session_without_a_niceness_is_no_reason_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def set_niceness(*_: int) -> None:
        raise BlockingIOError

    monkeypatch.setattr(cli, "set_niceness", set_niceness)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(cli, "_NICE_TIMEOUT_S", 0)
    cli.apply_niceness(5)
