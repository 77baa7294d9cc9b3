from __future__ import annotations

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from chakram.control.call_errors import may_pass


def failed(code: grpc.StatusCode, details: str | None) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(), details=details)


@pytest.mark.parametrize("details", [None, "connection refused"])
def test_an_agent_that_is_not_there_may_be_about_to_start(details: str | None) -> None:
    assert may_pass(failed(grpc.StatusCode.UNAVAILABLE, details))


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Ssl handshake failed"),
        (grpc.StatusCode.UNAVAILABLE, "Hostname Verification Check failed."),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "connection refused"),
    ],
)
def test_what_another_attempt_does_not_change_is_final(
    code: grpc.StatusCode, details: str
) -> None:
    assert not may_pass(failed(code, details))
