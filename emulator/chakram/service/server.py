"""The process of a service, which starts and ends all its parts."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import signal
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from chakram.foundation.errors import ConfigError, PortInUse, RunDirectoryError
from chakram.foundation.ip_addresses import is_loopback
from chakram.foundation.open_file_limit import allow_descriptors
from chakram.foundation.write_errors import explained_writes
from chakram.service.access import Tokens
from chakram.service.application import Application
from chakram.service.connections import Connection, limit_tls
from chakram.service.job_queue import JOBS, JobQueue
from chakram.service.otg_engine import OtgEngine
from chakram.service.otg_server import open_grpc
from chakram.service.request_guard import Door
from chakram.service.run_store import RunStore
from chakram.service.submissions import FABRICS, fabric_names

DATABASE = "service.sqlite"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SHUTDOWN_S = 3
_DESCRIPTORS = 4096
"""Number of connections that may be open in addition to the files of runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Settings of a service.

    Attributes:
        folder: Folder for the runs of the service.
        resources: Folder of resources.
        listen: ``address:port``.
        names: Additional host names of the service.
        tokens: The token file, or None.
        cert: Certificate of the service, or None.
        key: Private key of the certificate, or None.
        client_ca: Authority that signs client certificates, or None if clients need no
            certificate.
        parallel: Number of runs at the same time.
        keep: Number of finished runs to keep.
        longest_s: Maximum duration of a run.
        metrics: Address at which runs serve metrics, or None.
        launching: Options that runs on fabrics of the service use to launch agents.
        otg: Name of the fabric that OTG clients drive, or None.
        otg_grpc: Address at which to serve OTG over gRPC, or None.
    """

    folder: Path
    resources: Path
    listen: str
    names: tuple[str, ...] = ()
    tokens: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    parallel: int = 1
    keep: int = 200
    longest_s: float = 86_400.0
    metrics: str | None = None
    launching: tuple[str, ...] = ()
    otg: str | None = None
    otg_grpc: str | None = None

    @property
    def host(self) -> str:
        """The address to listen on."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port to listen on."""
        return int(self.listen.rpartition(":")[2])

    def check(self) -> None:
        """Check that the settings are consistent, and that clients are authenticated.

        Raises:
            ConfigError: If the settings conflict, or clients are not authenticated.
        """
        if self.longest_s <= 0:
            raise ConfigError("--longest", "is not above 0 s", "e.g. --longest 24h")
        if not self.resources.is_dir():
            where = f"--resources {self.resources}"
            raise ConfigError(where, "is not a folder", "create it")
        for path in (self.cert, self.key, self.client_ca):
            if path is not None and not path.is_file():
                raise ConfigError(str(path), "is not a file", "is the path right?")
        if self.metrics is not None and self.parallel > 1:
            found = "needs --parallel 1, because all runs use this address"
            raise ConfigError("--metrics", found)
        if (self.cert is None) != (self.key is None):
            raise ConfigError("--cert", "needs --key, and --key needs --cert")
        if self.client_ca is not None and self.cert is None:
            raise ConfigError("--client-ca", "needs --cert and --key")
        if self.otg_grpc is not None and self.otg is None:
            raise ConfigError("--otg-grpc", "needs --otg", "name a fabric")
        if self.otg_grpc is not None and not is_loopback(self.otg_grpc):
            raise ConfigError(
                f"--otg-grpc {self.otg_grpc}",
                "other machines can reach it, and OTG over gRPC does not check users",
                "listen on 127.0.0.1",
            )
        if is_loopback(self.listen):
            return
        if self.cert is None:
            raise ConfigError(
                f"--listen {self.listen}",
                "other machines can reach it, but there is no --cert",
                "give --cert and --key, or listen on 127.0.0.1",
            )
        if self.tokens is None and self.client_ca is None:
            raise ConfigError(
                f"--listen {self.listen}",
                "other machines can reach it, but any client may use it",
                "give --tokens or --client-ca, or listen on 127.0.0.1",
            )


async def serve(settings: ServiceSettings, ready: Callable[[str], None]) -> None:
    """Serve until the process is interrupted.

    Args:
        settings: Settings of the service.
        ready: Function that prints the addresses once the service answers.

    Raises:
        ConfigError: If the settings contradict one another.
        PortInUse: If the address is taken.
        RunDirectoryError: If the folder cannot be used, or another service uses it.
    """
    settings.check()
    tokens = None if settings.tokens is None else Tokens(settings.tokens)
    allow_descriptors(_DESCRIPTORS)
    async with contextlib.AsyncExitStack() as stack:
        _lock(settings.folder, stack)
        store = RunStore(settings.folder / DATABASE)
        stack.callback(store.close)
        resources = settings.resources.absolute()
        queue = JobQueue(
            store,
            settings.folder.absolute(),
            resources,
            parallel=settings.parallel,
            keep=settings.keep,
            longest_s=settings.longest_s,
            metrics=settings.metrics,
            launching=settings.launching,
        )
        names = {settings.host, *settings.names}
        if is_loopback(settings.listen):
            names |= {*_LOOPBACK}
        door = Door(
            tokens=tokens,
            hosts=frozenset(name.lower() for name in names),
            is_encrypted=settings.cert is not None,
        )
        engine = None
        if settings.otg is not None:
            if settings.otg not in fabric_names(resources):
                raise ConfigError(
                    f"--otg {settings.otg}",
                    "is not a fabric of the service",
                    f"add {FABRICS}/{settings.otg}.yaml to --resources",
                )
            engine = OtgEngine(queue, resources, settings.otg)
            engine.ports()  # to find mistakes in the fabric's file now
        application = Application(queue, resources, door, engine)
        server = uvicorn.Server(_config(settings, application))
        if engine is not None:
            watch = asyncio.create_task(engine.give_up_when_idle(), name="idle")
            stack.push_async_callback(asyncio.wait, [watch])
            stack.callback(watch.cancel)
        if engine is not None and settings.otg_grpc is not None:
            grpc_server, address = await open_grpc(engine, settings.otg_grpc)
            stack.push_async_callback(grpc_server.stop, 0)
            ready(f"serving OTG through gRPC at {address}")
        await _serve(server, queue, settings, ready)


async def _serve(
    server: uvicorn.Server,
    queue: JobQueue,
    settings: ServiceSettings,
    ready: Callable[[str], None],
) -> None:
    # After its shutdown, the server raises the signal again.
    signal.signal(signal.SIGTERM, server.handle_exit)
    worker = asyncio.create_task(queue.work(), name="queue")
    if settings.cert is not None:
        limit_tls(asyncio.get_running_loop())
    serving = asyncio.create_task(_answer_requests(server), name="server")
    try:
        # The server has no event that reports its start.
        while not server.started and not serving.done():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        if server.started:
            sockets = [each for part in server.servers for each in part.sockets]
            port = sockets[0].getsockname()[1]
            scheme = "http" if settings.cert is None else "https"
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            address = f"{scheme}://{host}:{port}"
            ready(f"serving at {address} (Ctrl-C ends it, and the runs in progress)")
        await asyncio.wait({worker, serving}, return_when=asyncio.FIRST_COMPLETED)
        if not worker.done():
            await serving
            if not server.started:
                raise PortInUse(
                    f"--listen {settings.listen}",
                    "is not available",
                    "choose another address or port",
                )
        else:
            server.should_exit = True
            await serving
            worker.result()
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def _answer_requests(server: uvicorn.Server) -> None:
    # If SystemExit left a task, it would end the event loop.
    with contextlib.suppress(SystemExit):
        await server.serve()


def _config(settings: ServiceSettings, application: Application) -> uvicorn.Config:
    return uvicorn.Config(
        application.app(),
        host=settings.host,
        port=settings.port,
        loop="asyncio",
        http=Connection,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=400,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        ssl_certfile=settings.cert,
        ssl_keyfile=settings.key,
        ssl_ca_certs=settings.client_ca,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.client_ca else ssl.CERT_NONE,
    )


def _lock(folder: Path, stack: contextlib.AsyncExitStack) -> None:
    """Create the folder of a service, and lock it against other services."""
    with explained_writes(folder):
        (folder / JOBS).mkdir(parents=True, exist_ok=True)
        file = stack.enter_context((folder / "lock").open("w"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found, hint = "is used by another service", "choose another --folder"
            raise RunDirectoryError(str(folder), found, hint) from None
