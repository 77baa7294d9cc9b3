"""The two interfaces of the OTG engine: REST and gRPC, for snappi clients."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import grpc

import chakram
from chakram.foundation.errors import ChakramError, ConfigError, PortInUse
from chakram.service.otg_config import OtgProblem
from chakram.service.otg_engine import API_VERSION, OtgEngine

MISSING = ConfigError(
    "--otg-grpc",
    "the Python package with the OTG messages is not installed",
    'install it: pip install "chakram[otg]"',
)

_MESSAGE_BYTES = 16 << 20

Call = Callable[[OtgEngine, Any], Awaitable[Any]]


async def _version(_engine: OtgEngine, _: Any) -> Any:
    return {
        "api_spec_version": API_VERSION,
        "sdk_version": "",
        "app_version": f"chakram {chakram.__version__}",
    }


def _refuse(what: str) -> Call:
    async def refuse(_engine: OtgEngine, _document: Any) -> Any:
        raise OtgProblem(501, [f"{what}: is not supported"])

    return refuse


REST: dict[tuple[str, str], Call] = {
    ("POST", "/config"): OtgEngine.set_config,
    ("GET", "/config"): OtgEngine.get_config,
    ("PATCH", "/config"): _refuse("UpdateConfig"),
    ("POST", "/control/state"): OtgEngine.control,
    ("POST", "/control/action"): _refuse("SetControlAction"),
    ("POST", "/monitor/metrics"): OtgEngine.metrics,
    ("POST", "/monitor/states"): OtgEngine.states,
    ("POST", "/monitor/capture"): _refuse("GetCapture"),
    ("GET", "/capabilities/version"): _version,
}
"""Engine calls, by HTTP method and path."""

CHANGING = frozenset(("/config", "/control/state"))
"""Paths at which POST requires the role ``run``."""


async def answer(
    engine: OtgEngine, call: Call, document: Any
) -> tuple[int, dict[str, Any]]:
    """Return the status and the document of the answer to a call."""
    try:
        return 200, await call(engine, document)
    except OtgProblem as problem:
        return problem.status, failure(problem.status, problem.errors)
    except ChakramError as error:
        status = 400 if isinstance(error, ConfigError) else 500
        return status, failure(status, [str(error)])


def failure(status: int, errors: list[str]) -> dict[str, Any]:
    """Return the document that reports an error."""
    kind = "internal" if status == 500 else "validation"
    return {"code": status, "kind": kind, "errors": errors}


# ---- gRPC ----------------------------------------------------------------------------


def _messages() -> tuple[Any, Any]:
    """Return the modules with the messages and the service from the package snappi.

    The package itself is not imported, because its client has 218,000 lines.

    Raises:
        ConfigError: If the modules are not installed.
    """
    package = find_spec("snappi")
    if package is None:
        raise MISSING
    before = sys.path
    # The second module imports the first one by its short name.
    sys.path = [*(package.submodule_search_locations or ()), *before]
    try:
        return import_module("otg_pb2"), import_module("otg_pb2_grpc")
    except (ImportError, OSError, RuntimeError, TypeError) as error:
        raise MISSING from error
    finally:
        sys.path = before


_CODES = {400: grpc.StatusCode.INVALID_ARGUMENT, 501: grpc.StatusCode.UNIMPLEMENTED}
_GRPC: dict[str, tuple[Call, str, str]] = {
    "SetConfig": (OtgEngine.set_config, "config", "warning"),
    "GetConfig": (OtgEngine.get_config, "", "config"),
    "SetControlState": (OtgEngine.control, "control_state", "warning"),
    "GetMetrics": (OtgEngine.metrics, "metrics_request", "metrics_response"),
    "GetStates": (OtgEngine.states, "states_request", "states_response"),
    "GetVersion": (_version, "", "version"),
}
"""Engine calls by gRPC method, with the fields of the request and the response."""


class OtgServicer:
    """The gRPC service.

    Args:
        engine: Engine that executes the calls.
        messages: Module of the messages.
    """

    def __init__(self, engine: OtgEngine, messages: Any) -> None:
        self._engine = engine
        self._pb = messages

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        call, asked, answered = _GRPC.get(name, (_refuse(name), "", ""))

        async def reply(request: Any, context: Any) -> Any:
            from google.protobuf import json_format

            document = None
            if asked:
                document = json_format.MessageToDict(
                    getattr(request, asked), preserving_proto_field_name=True
                )
            status, found = await answer(self._engine, call, document)
            if status != 200:
                code = _CODES.get(status, grpc.StatusCode.INTERNAL)
                await context.abort(code, json.dumps(found))
            # REST may have configured collectives, which the gRPC messages cannot
            # express.
            return json_format.ParseDict(
                {answered: found},
                getattr(self._pb, f"{name}Response")(),
                ignore_unknown_fields=True,
            )

        return reply


async def open_grpc(engine: OtgEngine, address: str) -> tuple[grpc.aio.Server, str]:
    """Serve gRPC without encryption, and return the server and its address.

    Raises:
        ConfigError: If the messages are not installed.
        PortInUse: If the address is taken.
    """
    messages, services = _messages()
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", _MESSAGE_BYTES),
            ("grpc.so_reuseport", 0),
        ]
    )
    services.add_OpenapiServicer_to_server(OtgServicer(engine, messages), server)
    try:
        port = server.add_insecure_port(address)
        await server.start()
    except (RuntimeError, OSError) as error:
        raise PortInUse(f"--otg-grpc {address}", str(error)) from error
    return server, f"{address.rpartition(':')[0]}:{port}"
