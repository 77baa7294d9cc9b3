"""What failed gRPC calls to an agent mean, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from grpc.aio import AioRpcError


def may_pass(error: AioRpcError) -> bool:
    """Tell whether trying again may help: the agent may be about to start."""
    text = error.details() or ""
    final = ("handshake", "Hostname Verification")
    return error.code() is grpc.StatusCode.UNAVAILABLE and not any(
        clause in text for clause in final
    )


def explain(error: AioRpcError, *, target: str, tls: bool) -> tuple[str, str | None]:
    """Return what a failed call to *target* means, and what to do."""
    code, text = error.code(), error.details() or ""
    lowered = text.lower()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "it does not answer in time", "is its host overloaded or suspended?"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return f"a message is too long ({text})", "spread the ranks over more agents"
    if code is grpc.StatusCode.INTERNAL:
        # What gRPC says when an agent ends a session while we write to it.
        return (
            "the session broke off",
            "its own log says why; an overloaded host misses heartbeats",
        )
    if code is not grpc.StatusCode.UNAVAILABLE:
        return f"the call failed: {code.name} ({text})", None
    if "certificate_verify_failed" in lowered or "hostname verification" in lowered:
        return (
            "its certificate is not one that we trust for this address",
            "make it with the same CA: chakram certs --out DIR --agent NAME=ADDRESS",
        )
    if "handshake failed" in lowered:
        return (
            f"no TLS session could be agreed on ({_last_clause(text)})",
            "does the agent run with --tls-ca, --tls-cert and --tls-key?",
        )
    if "refused" in lowered or "no such file" in lowered or "enoent" in lowered:
        return (
            "nobody listens there",
            f"start it: chakram-agent serve --listen {target}"
            + _who_may_connect(target, tls=tls),
        )
    if "socket closed" in lowered or "reset" in lowered or "broken pipe" in lowered:
        if tls:
            return (
                "it closed the connection, as it does when it does not accept our "
                "certificate",
                "the controller's certificate must be signed by the agent's CA",
            )
        return (
            "the connection was lost",
            "the agent has ended, or it wants certificates",
        )
    return f"it cannot be reached ({_last_clause(text)})", None


def _who_may_connect(target: str, *, tls: bool) -> str:
    """Return the options without which an agent does not listen there."""
    if tls:
        return " --tls-ca FILE --tls-cert FILE --tls-key FILE"
    return "" if target.startswith("unix:") else " --insecure"


def _last_clause(text: str) -> str:
    """Return the end of gRPC's long chain of causes."""
    return text.rpartition(": ")[2].strip() or text
