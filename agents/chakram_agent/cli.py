"""The ``chakram-agent`` command."""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import chakram
from chakram.control.tls_files import TlsFiles
from chakram.fabric.labs.lab_files import prepare_root, state_root
from chakram.fabric.process_control import die_with_parent, set_niceness
from chakram.foundation.errors import ChakramError, ConfigError, PrivilegeError
from chakram.foundation.ip_addresses import has_port
from chakram.foundation.text_escaping import plain_output
from chakram.foundation.units import parse_rate, parse_time
from chakram_agent.fork_server import ForkServer, fork_server
from chakram_agent.send_limits import DEFAULT_ALLOW, Policy, parse_prefix
from chakram_agent.serve_options import ServeOptions
from chakram_agent.state import QUIET_LEASE_NS, TRAFFIC_LEASE_NS

if TYPE_CHECKING:
    from chakram.control.call_home.token_file import TokenFile


log = logging.getLogger(__name__)

_NICE_TIMEOUT_S = 5.0
_NICE_PAUSE_S = 0.1

HOME_LEASE_NS = 600 * 10**9
"""Time without a controller after which a launched agent ends itself."""


def default_listen() -> str:
    """Return the default listen address, a Unix socket that only its owner can use."""
    return f"unix:{state_root()}/agent.sock"


_EXAMPLES = """\
examples:
  chakram-agent serve
  chakram-agent serve --listen unix:/run/chakram/agent.sock
  chakram-agent serve --listen 192.0.2.11:7411 --allow 198.18.0.0/15 --max-rate 25G \\
      --tls-ca certs/ca.pem --tls-cert certs/h1.pem --tls-key certs/h1.key
  chakram-agent serve --token-file token.json --allow 198.18.0.0/15
"""


def parser() -> argparse.ArgumentParser:
    """Return the argument parser of the command."""
    top = argparse.ArgumentParser(
        prog="chakram-agent",
        description="Replays the ranks that a chakram controller places on this host.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=chakram.__version__)
    verbs = top.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser(
        "serve",
        help="wait for a controller and run its plans",
        description=(
            "Wait for a controller and run its plans. Prints a line 'ready ADDRESS' "
            "once controllers can connect."
        ),
        epilog="A client that can connect to an agent controls it, with the agent's\n"
        "rights. Therefore, the agent listens on a Unix socket that only its owner\n"
        f"can open, or on TCP with certificates on both sides.\n\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_options(verb.add_argument)
    return top


def _add_options(add: Callable[..., object]) -> None:
    add(
        "--listen",
        metavar="ADDRESS",
        help="listen address: unix:/path, or host:port with certificates (default "
        f"{default_listen()})",
    )
    add(
        "--token-file",
        metavar="FILE",
        help="connect to the controller with this token instead of listening; - reads "
        "the token from standard input",
    )
    add(
        "--controller",
        action="append",
        metavar="HOST:PORT",
        help="address of the controller; may be repeated (default: the "
        "addresses in the token file)",
    )
    add(
        "--name",
        help="name of this host in the inventory (default: the name in the token "
        "file, or the host name)",
    )
    add(
        "--tls-ca",
        type=Path,
        metavar="FILE",
        help="CA certificate to verify controllers with",
    )
    add("--tls-cert", type=Path, metavar="FILE", help="certificate of this agent")
    add("--tls-key", type=Path, metavar="FILE", help="private key of the certificate")
    add(
        "--insecure",
        action="store_true",
        help="listen on a loopback address without certificates; every local user can "
        "then control the agent",
    )
    add(
        "--allow",
        action="append",
        metavar="PREFIX",
        help="send only to addresses in this prefix; may be repeated (default "
        f"{', '.join(DEFAULT_ALLOW)})",
    )
    add("--max-rate", metavar="RATE", help="limit the total send rate, e.g. 10Gbit")
    add(
        "--metrics",
        metavar="HOST:PORT",
        help="serve Prometheus metrics at this address",
    )
    add(
        "--pin", action="store_true", help="pin each data-plane process to its own core"
    )
    add(
        "--nice",
        type=int,
        choices=range(-20, 20),
        metavar="N",
        help="niceness of the agent, its data-plane processes and the session that it "
        "leads, if any, from -20 to 19; below 0, they take precedence over other "
        "processes of this host, including a controller with a higher niceness "
        "(default: inherited)",
    )
    add(
        "--die-with-parent",
        action="store_true",
        help="end when the program that started this one ends; tolerate longer silence "
        "from the controller",
    )
    add(
        "--lease",
        metavar="TIME",
        help="end after this time without a controller, e.g. 10min, so that a launcher "
        "that was killed leaves no agent behind (default: wait forever; with "
        "--token-file, 10min)",
    )
    add("--verbose", action="store_true", help="log sessions and phases")


def serve_options(arguments: argparse.Namespace) -> ServeOptions:
    """Return the options that the parsed arguments specify.

    Raises:
        ConfigError: If the arguments are invalid or contradict each other.
    """
    files = (arguments.tls_ca, arguments.tls_cert, arguments.tls_key)
    if any(files) and not all(files):
        raise ConfigError(
            "--tls-ca, --tls-cert, --tls-key",
            "only some of them are given",
            "give all three or none",
        )
    listen: str = arguments.listen or default_listen()
    if not listen.startswith("unix:") and not has_port(listen):
        raise ConfigError(
            "--listen", f"{listen!r} is not an address", "use unix:/path or host:port"
        )
    if all(files) and listen.startswith("unix:"):
        raise ConfigError(
            f"--listen {listen}",
            "certificates are for TCP; file permissions protect a Unix socket",
            "use --listen HOST:PORT, or remove the certificates",
        )
    if all(files) and arguments.insecure:
        raise ConfigError(
            "--insecure", "cannot be combined with certificates", "remove one of them"
        )
    home = _token_of(arguments)
    lease_ns = None if home is None else HOME_LEASE_NS
    if arguments.lease is not None:
        lease_ns = parse_time(arguments.lease, where="--lease")
        if lease_ns <= 0:
            raise ConfigError("--lease", "must be longer than 0", "e.g. 10min")
    return ServeOptions(
        listen=listen,
        tls=TlsFiles(ca=files[0], cert=files[1], key=files[2]) if all(files) else None,
        home=home,
        insecure=arguments.insecure,
        pin=arguments.pin,
        # A longer lease is safe if the agent dies with the controller, which is on the
        # same host. A longer lease is also necessary: on a lab's host, shards and
        # switches may use all cores and delay the controller's heartbeats.
        traffic_lease_ns=(
            QUIET_LEASE_NS
            if arguments.die_with_parent and home is None
            else TRAFFIC_LEASE_NS
        ),
        idle_lease_ns=lease_ns,
        policy=Policy(
            allow=tuple(
                parse_prefix(text, where="--allow")
                for text in arguments.allow or DEFAULT_ALLOW
            ),
            max_rate_bps=(
                None
                if arguments.max_rate is None
                else parse_rate(arguments.max_rate, where="--max-rate")
            ),
        ),
    )


def _token_of(arguments: argparse.Namespace) -> TokenFile | None:
    """Return the token file as changed by other options, or None if there is no file.

    Raises:
        ConfigError: If options contradict each other, or the token file is invalid.
    """
    file = arguments.token_file
    if file is None:
        for option in ("controller", "name"):
            if getattr(arguments, option) is not None:
                raise ConfigError(
                    f"--{option}", "has no effect without --token-file", "give both"
                )
        return None
    for option in ("listen", "tls_ca", "tls_cert", "tls_key"):
        if getattr(arguments, option) is not None:
            raise ConfigError(
                f"--{option.replace('_', '-')}",
                "cannot be combined with --token-file: the agent does not listen",
                "remove one of them",
            )
    # Import on demand, because only a launched agent has a token.
    from chakram.control.call_home.token_file import (
        MAX_TOKEN_FILE_BYTES,
        parse_token_file,
    )

    where = f"--token-file {file}"
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_TOKEN_FILE_BYTES)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(MAX_TOKEN_FILE_BYTES)
    except OSError as error:
        raise ConfigError(where, f"cannot be read ({error.strerror})") from error
    token = parse_token_file(data, where)
    if arguments.name:
        token = replace(token, name=arguments.name)
    for each in arguments.controller or ():
        if not has_port(each):
            raise ConfigError(
                f"--controller {each}", "is not an address", "use HOST:PORT"
            )
    if arguments.controller:
        controllers = tuple(arguments.controller)
        token = replace(token, controllers=controllers, launcher_port=0)
    return token


def apply_niceness(nice: int) -> None:
    """Set the niceness of the agent, its process session and its data-plane processes.

    The data-plane processes inherit the niceness, so they never take precedence over
    the agent. Otherwise, they could occupy all cores and delay heartbeats.

    Raises:
        PrivilegeError: If this user may not set that niceness.
    """
    ends_s = time.monotonic() + _NICE_TIMEOUT_S
    while True:
        try:
            set_niceness(os.getpid(), nice)
        except BlockingIOError:
            # Unless the user is root, the kernel accepts one change of a session's
            # niceness per 0.1 s.
            if time.monotonic() > ends_s:
                log.warning("--nice: the niceness of the session was not set")
                return
            time.sleep(_NICE_PAUSE_S * random.uniform(0.5, 1))
        except PermissionError:
            raise PrivilegeError(
                f"--nice {nice}",
                "this user may not raise the priority of processes",
                "run as root, or remove the option",
            ) from None
        else:
            return


async def run(
    options: ServeOptions, metrics: str | None, fork_server: ForkServer
) -> None:
    """Serve until SIGTERM or SIGINT arrives.

    Raises:
        ConfigError: If *metrics* is not a valid address.
        EnvironmentProblem: If the metrics endpoint cannot listen at this address.
    """
    import asyncio

    from chakram_agent.grpc_server import serve

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def ready(address: str) -> None:
        # The parent process reads this line, possibly through a pipe.
        print(f"ready {address}", flush=True)

    with ExitStack() as stack:
        served = None
        if metrics is not None:
            # Import on demand, because only an agent that serves metrics needs it.
            from chakram_agent.metrics_endpoint import AgentMetrics

            served = AgentMetrics(metrics)
            served.server.start()
            stack.callback(served.server.close)
        await serve(
            options, ready=ready, stop=stop, metrics=served, fork_server=fork_server
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    with plain_output():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    parsed = parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO if parsed.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        if parsed.die_with_parent:
            die_with_parent(os.getppid(), signal_number=signal.SIGTERM)
        options = serve_options(parsed)
        if parsed.nice is not None:
            apply_niceness(parsed.nice)
        if parsed.listen is None and options.home is None:
            prepare_root(state_root())
        server = fork_server()
        # Import after the fork. Shards do not need ``asyncio``, and a fork breaks gRPC.
        import asyncio

        with suppress(KeyboardInterrupt):
            asyncio.run(run(options, parsed.metrics, server))
    except ChakramError as error:
        print(f"chakram-agent: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
