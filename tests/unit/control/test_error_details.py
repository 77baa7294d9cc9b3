from __future__ import annotations

import inspect
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.control.error_details import decode_error, encode_error
from chakram.control.protobuf_messages import pb
from chakram.foundation import errors
from chakram.foundation.errors import AgentError, ChakramError, PlanError

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, ChakramError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("hint", [None, "", "do that"])
def test_an_error_arrives_as_the_same_error(
    kind: type[ChakramError], hint: str | None
) -> None:
    error = decode_error(encode_error(kind("here", "a fault", hint)), where="agent a")
    assert type(error) is kind
    assert error.args == ("agent a: here", "a fault", hint)
    assert error.exit_code == kind.exit_code


def test_unknown_error_type_is_an_agent_error() -> None:
    data = pb.ErrorDetail(kind="SystemExit", where="x", found="y").SerializeToString()
    error = decode_error(data, where="agent a")
    assert type(error) is AgentError
    assert str(error) == "agent a: x: y"


@given(st.binary(max_size=100))
def test_arbitrary_error_bytes_become_our_error(data: bytes) -> None:
    assert isinstance(decode_error(data, where="agent a"), ChakramError)


@pytest.mark.parametrize("text", ["x", "\u00fc", "\u20ac", "\U0001f600", "\udc80"])
def test_long_errors_fit_into_a_header(text: str) -> None:
    error = PlanError(text * 10**5, text * 10**5, text * 10**5)
    data = encode_error(error)
    assert len(b64encode(data)) < 6200
    found = decode_error(data, where="agent a")
    assert len(found.found) > 300
    assert set(found.found) <= {text, "?"}
