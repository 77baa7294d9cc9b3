"""Explanations of failed gRPC calls to an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from grpc.aio import AioRpcError


_UNTRUSTED = (
    "certificate_verify_failed",
    "hostname verification",
    "does not match ssl server name",
    "peer certificate",
)
"""Phrases in gRPC's errors about rejected certificates. Versions before 1.66 use the
last phrase."""


def may_pass(error: AioRpcError) -> bool:
    """Return whether a retry may help, because the agent may be starting."""
    text = (error.details() or "").lower()
    return error.code() is grpc.StatusCode.UNAVAILABLE and not any(
        clause in text for clause in ("handshake", *_UNTRUSTED)
    )


def explain(error: AioRpcError, *, target: str, tls: bool) -> tuple[str, str | None]:
    """Return an explanation of a failed call to *target*, and a hint."""
    code, text = error.code(), error.details() or ""
    lowered = text.lower()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "it does not answer in time", "is its host overloaded or suspended?"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return f"a message is too long ({text})", "spread the ranks over more agents"
    if code is grpc.StatusCode.INTERNAL:
        # gRPC reports INTERNAL when an agent ends, or ends a session, during a write.
        return (
            "the connection was lost",
            "see the agent's log; an overloaded host misses heartbeats",
        )
    # If the name in the target is not in the certificate, the code is UNAUTHENTICATED.
    if any(clause in lowered for clause in _UNTRUSTED):
        return (
            "its certificate is not trusted for this address",
            "create one with the same CA: chakram certs --out DIR --agent NAME=ADDRESS",
        )
    if code is not grpc.StatusCode.UNAVAILABLE:
        return f"the call failed: {code.name} ({text})", None
    if "handshake failed" in lowered:
        return (
            f"the TLS handshake failed ({_last_clause(text)})",
            "does the agent run with --tls-ca, --tls-cert and --tls-key?",
        )
    if "refused" in lowered or "no such file" in lowered or "enoent" in lowered:
        return (
            "no agent listens at this address",
            f"start it: chakram-agent serve --listen {target}"
            + _who_may_connect(target, tls=tls),
        )
    if "socket closed" in lowered or "reset" in lowered or "broken pipe" in lowered:
        if tls:
            return (
                "it closed the connection, probably because it does not accept the "
                "controller's certificate",
                "use a controller certificate that the agent's CA has signed",
            )
        return (
            "the connection was lost",
            "the agent has ended, or it requires certificates",
        )
    return f"it cannot be reached ({_last_clause(text)})", None


def _who_may_connect(target: str, *, tls: bool) -> str:
    """Return the options that an agent needs to listen at *target*."""
    if tls:
        return " --tls-ca FILE --tls-cert FILE --tls-key FILE"
    return "" if target.startswith("unix:") else " --insecure"


def _last_clause(text: str) -> str:
    """Return the last clause of gRPC's long chain of causes."""
    return text.rpartition(": ")[2].strip() or text
