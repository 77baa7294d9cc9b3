from __future__ import annotations

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from chakram.control.call_errors import explain, may_pass


def failed(code: grpc.StatusCode, details: str | None) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(), details=details)


@pytest.mark.parametrize("details", [None, "connection refused"])
def test_connection_to_a_missing_agent_is_retried(details: str | None) -> None:
    assert may_pass(failed(grpc.StatusCode.UNAVAILABLE, details))


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Ssl handshake failed"),
        (grpc.StatusCode.UNAVAILABLE, "Hostname Verification Check failed."),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "connection refused"),
    ],
)
def test_permanent_errors_are_not_retried(code: grpc.StatusCode, details: str) -> None:
    assert not may_pass(failed(code, details))


CERTS = " --tls-ca FILE --tls-cert FILE --tls-key FILE"


@pytest.mark.parametrize(
    ("code", "details", "found", "hint"),
    [
        (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            None,
            "it does not answer in time",
            "is its host overloaded or suspended?",
        ),
        (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "9 against 4",
            "a message is too long (9 against 4)",
            "spread the ranks over more agents",
        ),
        (
            grpc.StatusCode.INTERNAL,
            "",
            "the connection was lost",
            "see the agent's log; an overloaded host misses heartbeats",
        ),
        (
            grpc.StatusCode.UNIMPLEMENTED,
            "no such method",
            "the call failed: UNIMPLEMENTED (no such method)",
            None,
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "x: CERTIFICATE_VERIFY_FAILED: y",
            "its certificate is not trusted for this address",
            "create one with the same CA: chakram certs --out DIR --agent NAME=ADDRESS",
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "Hostname Verification Check failed.",
            "its certificate is not trusted for this address",
            "create one with the same CA: chakram certs --out DIR --agent NAME=ADDRESS",
        ),
        (
            grpc.StatusCode.UNAUTHENTICATED,
            "call host does not match SSL server name",
            "its certificate is not trusted for this address",
            "create one with the same CA: chakram certs --out DIR --agent NAME=ADDRESS",
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "failed to connect: Ssl handshake failed: wrong version",
            "the TLS handshake failed (wrong version)",
            "does the agent run with --tls-ca, --tls-cert and --tls-key?",
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "a: b: name does not resolve",
            "it cannot be reached (name does not resolve)",
            None,
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "no route",
            "it cannot be reached (no route)",
            None,
        ),
        (grpc.StatusCode.UNAVAILABLE, "odd: ", "it cannot be reached (odd: )", None),
    ],
)
def test_failed_call_is_reported_with_a_remedy(
    code: grpc.StatusCode, details: str | None, found: str, hint: str | None
) -> None:
    for tls in (False, True):
        error = failed(code, details)
        assert explain(error, target="h1:7411", tls=tls) == (found, hint)


@pytest.mark.parametrize("details", ["Connection refused", "No such file", "ENOENT"])
@pytest.mark.parametrize(
    ("target", "tls", "options"),
    [
        ("h1:7411", True, CERTS),
        ("h1:7411", False, " --insecure"),
        ("unix:/run/agent", True, CERTS),
        # File permissions determine who may use a socket.
        ("unix:/run/agent", False, ""),
    ],
)
def test_error_shows_the_command_that_starts_an_agent(
    details: str, target: str, tls: bool, options: str
) -> None:
    error = failed(grpc.StatusCode.UNAVAILABLE, details)

    assert explain(error, target=target, tls=tls) == (
        "no agent listens at this address",
        f"start it: chakram-agent serve --listen {target}{options}",
    )


@pytest.mark.parametrize(
    "details", ["Socket closed", "recvmsg: Connection reset by peer", "Broken pipe"]
)
def test_closed_connection_is_attributed_to_certificates(details: str) -> None:
    error = failed(grpc.StatusCode.UNAVAILABLE, details)

    assert explain(error, target="h1:7411", tls=True) == (
        "it closed the connection, probably because it does not accept the "
        "controller's certificate",
        "use a controller certificate that the agent's CA has signed",
    )
    assert explain(error, target="h1:7411", tls=False) == (
        "the connection was lost",
        "the agent has ended, or it requires certificates",
    )
