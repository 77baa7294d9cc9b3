"""The client of a service, whose answers are made by tests."""

from __future__ import annotations

import io
import urllib.request
from typing import Any

import pytest

from chakram.cli.common import service_client
from chakram.foundation.errors import AgentError


@pytest.mark.parametrize("verb", ["runs", "cancel x"])
def test_another_web_server_is_no_service(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    def opened(_opener: Any, _request: Any, timeout: float) -> io.BytesIO:
        return io.BytesIO(b"<html>It works!</html>")

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", opened)
    with pytest.raises(AgentError, match="http://h: does not answer like chakram"):
        service_client.main("http://h/", verb.split())
