"""Requests to the capture process, and its answers."""

from __future__ import annotations

import json

import pytest

from chakram.fabric.capture.capture_process import (
    CaptureRequest,
    CaptureResult,
    check_ready,
    decode_results,
    encode_request,
)
from chakram.fabric.labs.holder_protocol import encode_error
from chakram.foundation.errors import FabricError, PrivilegeError

RESULT = CaptureResult(host="h0", packets=7, dropped=0, is_full=False, failure=None)


def test_a_request_is_one_line() -> None:
    request = CaptureRequest(
        host="h0", netns="/proc/1/fd/2", interface="eth0", path="/runs/a\nb.pcap"
    )
    line = encode_request([request], limit_bytes=1000)
    assert line.count(b"\n") == 1
    fields = json.loads(line)
    assert fields["limit_bytes"] == 1000
    assert CaptureRequest(**fields["hosts"][0]) == request


def test_ready_message_of_the_process_is_accepted() -> None:
    check_ready(b'{"ready": true}\n')


@pytest.mark.parametrize("kind", [FabricError, PrivilegeError])
def test_refusal_of_the_process_is_raised(kind: type[FabricError]) -> None:
    error = kind("capture of host h0", "no memory", "free some")
    with pytest.raises(kind) as raised:
        check_ready(encode_error(error).encode())
    assert str(raised.value) == str(error)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"ready": false}', b"\xff"])
def test_other_output_is_not_accepted_as_ready(line: bytes) -> None:
    with pytest.raises(FabricError, match="its process sent an invalid answer"):
        check_ready(line)


def test_results_are_read() -> None:
    fields = {
        "host": "h0",
        "packets": 7,
        "dropped": 0,
        "is_full": False,
        "failure": None,
    }
    assert decode_results(json.dumps({"captures": [fields]}).encode()) == (RESULT,)
    assert decode_results(b'{"captures": []}') == ()


@pytest.mark.parametrize(
    "line", [b"", b"Traceback", b"[]", b'{"captures": 1}', b'{"captures": [{"a": 1}]}']
)
def test_other_output_is_not_accepted_as_results(line: bytes) -> None:
    with pytest.raises(FabricError, match="its process sent an invalid final report"):
        decode_results(line)
