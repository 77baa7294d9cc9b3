"""``chakram serve``: run the experiments of a team from a queue."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from chakram.cli.common.dataclass_options import with_options
from chakram.cli.common.launch_options import Launching
from chakram.foundation.coroutines import run_coroutine
from chakram.foundation.errors import ConfigError
from chakram.foundation.platform_support import require_linux

_MISSING = 'install what it needs: pip install "chakram[service]"'


@with_options("launching", Launching, "listen")
def serve(
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address and port to listen on.")
    ] = "127.0.0.1:8642",
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the runs of the service.")
    ] = Path("service"),
    resources: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of files for experiments.")
    ] = Path("resources"),
    name: Annotated[
        list[str] | None,
        typer.Option(help="Another host name of the service. Can be repeated."),
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with users and tokens.")
    ] = None,
    add_user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Add a user to --tokens, print the token, and exit."
        ),
    ] = None,
    role: Annotated[
        str, typer.Option(help="Role for --add-user: read or run.")
    ] = "run",
    cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TLS certificate of the service."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Private key for --cert.")
    ] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Accept only clients with a certificate from this authority.",
        ),
    ] = None,
    parallel: Annotated[
        int, typer.Option(min=1, max=64, help="Maximum number of parallel runs.")
    ] = 1,
    keep: Annotated[
        int, typer.Option(min=1, help="Number of finished runs to keep.")
    ] = 200,
    longest: Annotated[str, typer.Option(help="Maximum duration of a run.")] = "24h",
    metrics: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address where runs serve metrics."),
    ] = None,
    *,
    launching: Launching,
    otg: Annotated[
        str | None,
        typer.Option(
            metavar="FABRIC",
            help="Let Open Traffic Generator clients (snappi) drive this fabric from "
            "--resources.",
        ),
    ] = None,
    otg_grpc: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address to serve OTG over gRPC."),
    ] = None,
) -> None:
    """Run the experiments of a team: a queue, an API, web pages.

    Experiments may use only the files in --resources. The service accepts users of this
    machine, users with a token, and clients with a certificate.
    """
    require_linux("chakram serve")
    if add_user is not None:
        _add_user(tokens, add_user, role)
        return
    from chakram.foundation.units import parse_time
    from chakram.settings.addresses import check_listen_address

    server = _server()
    settings = server.ServiceSettings(
        folder=folder,
        resources=resources,
        listen=check_listen_address(listen, "--listen"),
        names=tuple(name or ()),
        tokens=tokens,
        cert=cert,
        key=key,
        client_ca=client_ca,
        parallel=parallel,
        keep=keep,
        longest_s=parse_time(longest, where="--longest") / 1e9,
        metrics=metrics and check_listen_address(metrics, "--metrics"),
        launching=launching.arguments(),
        otg=otg,
        otg_grpc=otg_grpc and check_listen_address(otg_grpc, "--otg-grpc"),
    )
    run_coroutine(server.serve(settings, print))


def _server() -> ModuleType:
    """Import and return the service module, which needs optional packages.

    Raises:
        ConfigError: If one of these packages is not installed.
    """
    try:
        from chakram.service import server
    except ModuleNotFoundError as error:
        found = f"{error.name} is not installed"
        raise ConfigError("chakram serve", found, _MISSING) from error
    return server


def _add_user(tokens: Path | None, name: str, role: str) -> None:
    """Add a user to the token file, and print the user's token."""
    from chakram.service.access import add_user

    if tokens is None:
        raise ConfigError("--add-user", "needs --tokens", "name a file")
    print(add_user(tokens, name, role))
