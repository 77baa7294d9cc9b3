"""TLS of a service."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from pathlib import Path

import pytest

from chakram.control.certificates import make_certificates
from chakram.service import connections
from tests.service_client import served
from tests.waiting import PATIENCE_S


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    make_certificates(tmp_path / "lab", {"h1": ["127.0.0.1"]})
    return tmp_path / "lab"


def test_service_with_a_certificate_answers(certificates: Path, tmp_path: Path) -> None:
    files = "--cert", certificates / "h1.pem", "--key", certificates / "h1.key"
    with served(tmp_path, *map(str, files)) as service:
        context = ssl.create_default_context(cafile=certificates / "ca.pem")
        client = http.client.HTTPSConnection(
            service.address.removeprefix("https://"),
            timeout=PATIENCE_S,
            context=context,
        )
        # A second request uses the same connection.
        for _ in range(2):
            client.request("GET", "/login")
            answer = client.getresponse()
            assert answer.status == 200
            assert b"<html" in answer.read()
        client.close()


@pytest.mark.asyncio
async def test_client_that_begins_no_handshake_is_disconnected(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "h1.pem", certificates / "h1.key")
    monkeypatch.setattr(connections, "REQUEST_S", 0.1)
    loop = asyncio.get_running_loop()
    connections.limit_tls(loop)
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=context)
    async with server:
        address = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(*address)
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
        writer.close()
