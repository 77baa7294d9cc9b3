"""Errors state location, problem and remedy."""

from __future__ import annotations

import pytest

from chakram.foundation import errors


def test_an_error_reads_as_one_sentence() -> None:
    error = errors.TraceError("a.et: offset 3", "is empty", "make it again")
    assert str(error) == "a.et: offset 3: is empty (make it again)"
    assert (error.where, error.found, error.hint) == (
        "a.et: offset 3",
        "is empty",
        "make it again",
    )
    assert str(errors.TraceError("a.et", "is empty")) == "a.et: is empty"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UnexpectedEvent, 1),
        (errors.ConfigError, 2),
        (errors.TruncatedTrace, 2),
        (errors.MatchingError, 2),
        (errors.PrivilegeError, 3),
        (errors.PacketError, 4),
        (errors.AgentError, 4),
        (errors.RunFailed, 4),
        (errors.RunInterrupted, 130),
    ],
)
def test_exit_code_depends_on_the_error_type(
    error: type[errors.ChakramError], code: int
) -> None:
    assert error.exit_code == code
    assert issubclass(error, errors.ChakramError)
