"""The ``chakram-agent`` command."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import chakram
from chakram.control.service import TlsFiles
from chakram.fabric.child_processes import die_with_parent, set_niceness
from chakram.fabric.labs.lab_files import prepare_root, state_root
from chakram.foundation.errors import ChakramError, ConfigError, PrivilegeError
from chakram.foundation.text_escaping import plain_output
from chakram.foundation.units import parse_rate
from chakram_agent.grpc_server import ServeOptions, serve
from chakram_agent.send_limits import DEFAULT_ALLOW, Policy, parse_prefix
from chakram_agent.state import QUIET_LEASE_NS, TRAFFIC_LEASE_NS

if TYPE_CHECKING:
    from chakram_agent.metrics_endpoint import AgentMetrics


def default_listen() -> str:
    """Return where an agent listens that is not told: only its owner gets there."""
    return f"unix:{state_root()}/agent.sock"


_EXAMPLES = """\
examples:
  chakram-agent serve
  chakram-agent serve --listen unix:/run/chakram/agent.sock
  chakram-agent serve --listen 192.0.2.11:7411 --allow 198.18.0.0/15 --max-rate 25G \\
      --tls-ca certs/ca.pem --tls-cert certs/h1.pem --tls-key certs/h1.key
"""


def parser() -> argparse.ArgumentParser:
    """Return what the command understands."""
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
        help="wait for a controller and do what it says",
        description="Wait for a controller and do what it says. Prints a line "
        "'ready ADDRESS' once controllers can connect.",
        epilog="Whoever reaches an agent commands it, with the agent's rights. So it\n"
        "listens on a Unix socket that its owner alone may open, or on TCP with\n"
        f"certificates on both sides.\n\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.add_argument(
        "--listen",
        metavar="ADDRESS",
        help=f"unix:/path, or host:port with certificates (default {default_listen()})",
    )
    verb.add_argument("--tls-ca", type=Path, metavar="FILE", help="who signs")
    verb.add_argument("--tls-cert", type=Path, metavar="FILE", help="our certificate")
    verb.add_argument("--tls-key", type=Path, metavar="FILE", help="its key")
    verb.add_argument(
        "--insecure",
        action="store_true",
        help="listen on a loopback address without certificates: every local user can "
        "then command the agent",
    )
    verb.add_argument(
        "--allow",
        action="append",
        metavar="PREFIX",
        help="send to these addresses only; may be repeated "
        f"(default {', '.join(DEFAULT_ALLOW)})",
    )
    verb.add_argument(
        "--max-rate", metavar="RATE", help="never send more in all, e.g. 10Gbit"
    )
    verb.add_argument(
        "--metrics", metavar="HOST:PORT", help="serve metrics for Prometheus there"
    )
    verb.add_argument(
        "--pin",
        action="store_true",
        help="keep each data-plane process on a core of its own",
    )
    verb.add_argument(
        "--nice",
        type=int,
        choices=range(-20, 20),
        metavar="N",
        help="niceness of the agent, its data-plane processes and its session, if it "
        "leads one, -20 to 19; below 0 they go before everything else on this host, "
        "also before a controller that runs here with less (default: that of whoever "
        "starts the agent)",
    )
    verb.add_argument(
        "--die-with-parent",
        action="store_true",
        help="end with the program that started this one, which may then be silent for "
        "longer than other controllers",
    )
    verb.add_argument("--verbose", action="store_true", help="log what happens")
    return top


def serve_options(arguments: argparse.Namespace) -> ServeOptions:
    """Return what the arguments ask for.

    Raises:
        ConfigError: If they make no sense.
    """
    files = (arguments.tls_ca, arguments.tls_cert, arguments.tls_key)
    if any(files) and not all(files):
        raise ConfigError(
            "--tls-ca, --tls-cert, --tls-key",
            "only some of them are given",
            "all three or none",
        )
    listen: str = arguments.listen or default_listen()
    if not listen.startswith("unix:") and not listen.rpartition(":")[2].isdigit():
        raise ConfigError(
            "--listen", f"{listen!r} is no address", "unix:/path or host:port"
        )
    if all(files) and listen.startswith("unix:"):
        raise ConfigError(
            f"--listen {listen}",
            "certificates are for TCP: who may use a Unix socket says its file",
            "give --listen HOST:PORT, or no certificates",
        )
    if all(files) and arguments.insecure:
        raise ConfigError("--insecure", "certificates are given too", "leave it out")
    return ServeOptions(
        listen=listen,
        tls=TlsFiles(ca=files[0], cert=files[1], key=files[2]) if all(files) else None,
        insecure=arguments.insecure,
        pin=arguments.pin,
        # Who dies with the controller need not be afraid of outliving it; and a lab's
        # shards and switches may leave the controller beside them without a core.
        traffic_lease_ns=(
            QUIET_LEASE_NS if arguments.die_with_parent else TRAFFIC_LEASE_NS
        ),
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


def be_nice(nice: int) -> None:
    """Take a niceness, which data-plane processes inherit, for the own session, too.

    They never go before the agent: where they take all cores, its heartbeats would be
    late though nobody is gone.

    Raises:
        PrivilegeError: If this user may not have it.
    """
    try:
        set_niceness(os.getpid(), nice)
    except PermissionError:
        raise PrivilegeError(
            f"--nice {nice}",
            "this user may not go before others",
            "be root, or leave it out",
        ) from None


async def run(options: ServeOptions, metrics: str | None) -> None:
    """Serve until a signal says stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def ready(address: str) -> None:
        # Whoever started us reads this line, maybe through a pipe.
        print(f"ready {address}", flush=True)

    with metrics_at(metrics) as served:
        await serve(options, ready=ready, stop=stop, metrics=served)


@contextmanager
def metrics_at(listen: str | None) -> Iterator[AgentMetrics | None]:
    """Serve metrics while the body runs, if there is an address for them.

    Raises:
        ConfigError: If that is no address.
        EnvironmentProblem: If they cannot be served there.
    """
    if listen is None:
        yield None
        return
    # Only who serves metrics loads what that needs.
    from chakram_agent.metrics_endpoint import AgentMetrics

    metrics = AgentMetrics(listen)
    metrics.start()
    try:
        yield metrics
    finally:
        metrics.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
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
            be_nice(parsed.nice)
        if parsed.listen is None:
            prepare_root(state_root())
        with suppress(KeyboardInterrupt):
            asyncio.run(run(options, parsed.metrics))
    except ChakramError as error:
        print(f"chakram-agent: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
