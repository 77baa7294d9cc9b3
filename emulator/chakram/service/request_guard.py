"""Checks of the host and origin of requests to a service, and response headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from chakram.service.access import Tokens

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Access rules of a service.

    Attributes:
        tokens: Tokens of users, or None if every client is ``LOCAL``.
        hosts: Names and addresses of the service.
        is_encrypted: Whether browsers use https.
    """

    tokens: Tokens | None
    hosts: frozenset[str]
    is_encrypted: bool = False


class Guard:
    """Wrapper that checks the host and origin of every request, and adds headers."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope["method"], Headers(scope=scope))
        if refusal is not None:
            document = {"error": {"where": "request", "found": refusal, "hint": None}}
            await JSONResponse(document, 403)(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("Content-Security-Policy", _POLICY)
            await send(message)

        await self._app(scope, receive, with_headers)

    def _refusal(self, method: str, headers: Mapping[str, str]) -> str | None:
        host = headers.get("host", "")
        if not is_own_host(host, self._door.hosts):
            return f"{host[:100]!r} is not a name of this service (--name adds one)"
        origin = headers.get("origin")
        is_safe = method in ("GET", "HEAD", "OPTIONS")
        if not is_safe and origin is not None and not is_own_origin(origin, host):
            return "it comes from another web site"
        return None


def is_own_host(host: str, allowed: frozenset[str]) -> bool:
    """Return whether a Host header names this service.

    Without this check, a web site could point its own name at this address and read the
    answers.

    Args:
        host: Value of the Host header.
        allowed: Names and addresses of the service, without port.
    """
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    return name.strip("[]").lower() in allowed


def is_own_origin(origin: str, host: str) -> bool:
    """Return whether a request that changes state came from a page of this service."""
    return origin.partition("://")[2] == host
