"""Client that runs experiments on a service and shows their results."""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

from chakram.foundation.errors import (
    AgentError,
    ConfigError,
    InputError,
    RunInterrupted,
)
from chakram.foundation.write_errors import explained_writes

TOKEN_VARIABLE = "CHAKRAM_TOKEN"
"""Environment variable with the token of the user."""

CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE = (
    "CHAKRAM_SERVER_CA",
    "CHAKRAM_CLIENT_CERT",
    "CHAKRAM_CLIENT_KEY",
)
"""Environment variables with the paths of certificates."""

VERBS = ("run", "simulate", "show", "report", "why", "compare", "runs", "cancel")
"""Verbs that a service supports."""

_API = "/api/v1"
_LIMIT_S = 180.0
_FOLLOW = "the run continues: see `runs` and `show {}`"
_OPTIONS = {
    "run": {"set", "tag", "detach"},
    "simulate": {"set", "tag", "detach"},
    "runs": {"state", "text", "json"},
    "show": {"json"},
    "why": {"json"},
    "report": {"out", "bmwg"},
    "compare": {"json"},
    "cancel": set[str](),
}
"""Options by verb."""
_USAGE = f"chakram --server URL {{{','.join(VERBS)}}} ..."


class Remote:
    """Client of a service.

    Args:
        address: URL of the service.
    """

    def __init__(self, address: str) -> None:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(
                f"--server {address}", "is not a URL", "e.g. http://127.0.0.1:8642"
            )
        self._address = f"{parts.scheme}://{parts.netloc}"
        self._context = None
        if parts.scheme == "https":
            self._context = _tls()

    def get(self, path: str, **query: str | None) -> bytes:
        """Return the body of the answer to a GET request."""
        with self._open("GET", path, query=query) as answer:
            return bytes(answer.read())

    def document(self, path: str, **query: str | None) -> Any:
        """Return the JSON document in the answer to a GET request."""
        return self._document(self.get(path, **query))

    def send(self, method: str, path: str, document: Any = None) -> Any:
        """Send a request with a document, and return the document in the answer."""
        with self._open(method, path, document=document) as answer:
            return self._document(answer.read())

    def _document(self, answer: bytes) -> Any:
        try:
            return json.loads(answer)
        except ValueError:
            raise AgentError(
                f"--server {self._address}",
                "does not answer like chakram serve",
                "is this its address?",
            ) from None

    def events(self, run_id: str) -> Iterator[tuple[str, Any]]:
        """Yield the kind and data of each event of a run until the run ends."""
        with self._open("GET", f"/runs/{run_id}/events", limit_s=86_400) as answer:
            kind = ""
            for raw in answer:
                name, _, value = (
                    raw.decode("utf-8", "replace").rstrip("\n").partition(": ")
                )
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)

    def _open(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str | None] | None = None,
        document: Any = None,
        limit_s: float = _LIMIT_S,
    ) -> IO[bytes]:
        given = {name: value for name, value in (query or {}).items() if value}
        url = self._address + _API + path
        if given:
            url += "?" + urllib.parse.urlencode(given)
        data = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(url, data=data, method=method)
        if token := os.environ.get(TOKEN_VARIABLE):
            request.add_header("Authorization", f"Bearer {token}")
        handlers: list[Any] = [urllib.request.ProxyHandler({})]
        if self._context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=self._context))
        opener = urllib.request.build_opener(*handlers)
        try:
            answer: IO[bytes] = opener.open(request, timeout=limit_s)
        except urllib.error.HTTPError as error:
            raise _failure(error) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise AgentError(
                f"--server {self._address}",
                f"does not answer ({reason})",
                "is chakram serve running there?",
            ) from error
        return answer


def _failure(error: urllib.error.HTTPError) -> Exception:
    try:
        found = json.loads(error.read())["error"]
        where, text, hint = found["where"], found["found"], found.get("hint")
    except (ValueError, KeyError, TypeError):
        where, text, hint = "service", f"answers {error.code}", None
    if error.code == 401:
        hint = f"set {TOKEN_VARIABLE} to your token"
    return InputError(str(where), str(text), hint or None)


def _tls() -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=os.environ.get(CA_VARIABLE))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(CA_VARIABLE, f"cannot be used ({error})") from error
    cert = os.environ.get(CERT_VARIABLE)
    if cert:
        try:
            context.load_cert_chain(cert, os.environ.get(KEY_VARIABLE))
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(CERT_VARIABLE, f"cannot be used ({error})") from error
    return context


def main(address: str, arguments: Sequence[str]) -> int:
    """Execute a verb on a service, and return the exit code.

    Raises:
        ChakramError: If the service refuses or does not answer.
    """
    remote = Remote(address)
    verb = arguments[0] if arguments else ""
    words, options = _parsed(arguments[1:])
    unknown = set(options) - _OPTIONS.get(verb, set(options))
    if unknown:
        raise ConfigError(
            f"--{min(unknown)}", f"is not an option of {verb} on a service", _USAGE
        )
    match verb, words:
        case ("run" | "simulate", [path]):
            return _run(remote, verb, Path(path), options)
        case "runs", []:
            return _list(remote, options)
        case "cancel", [run_id]:
            found = remote.send("DELETE", f"/runs/{_quoted(run_id)}")
            print(f"{found['id']}: {found['state']}")
            return 0
        case ("show" | "why", [run_id]):
            name = f"{verb}.json" if "json" in options else verb
            _write(remote.get(f"/runs/{_quoted(run_id)}/views/{name}"))
            return 0
        case "report", [run_id]:
            name = "bmwg" if "bmwg" in options else "report"
            made = remote.get(f"/runs/{_quoted(run_id)}/views/{name}")
            return _save(made, Path(_last(options, "out") or "report.html"))
        case "compare", ([_, second] | [second]):
            first = words[0] if len(words) > 1 else None
            style = "json" if "json" in options else "text"
            _write(remote.get("/compare", a=first, b=second, format=style))
            return 0
    raise ConfigError("--server", f"cannot do: {' '.join(arguments)}", _USAGE)


def _parsed(arguments: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the words, and the values of each option, empty if it has no value."""
    words: list[str] = []
    options: dict[str, list[str]] = {}
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--"):
            words.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        if not equals and name in ("set", "tag", "out", "state", "text"):
            value = waiting.pop(0) if waiting else ""
        options.setdefault(name, []).append(value)
    return words, options


def _run(remote: Remote, verb: str, path: Path, options: dict[str, list[str]]) -> int:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"cannot be read: {error}") from error
    changes = {}
    for each in options.get("set", ()):
        key, equals, value = each.partition("=")
        if not equals:
            raise ConfigError(f"--set {each}", "has no value", "e.g. seed=2")
        changes[key] = value
    tags = options.get("tag", [])
    wanted = {"experiment": text, "verb": verb, "set": changes, "tags": tags}
    run = remote.send("POST", "/runs", wanted)
    run_id = run["id"]
    print(f"run {run_id} is {run['state']}", file=sys.stderr, flush=True)
    if "detach" in options:
        print(run_id)
        return 0
    try:
        for kind, data in remote.events(run_id):
            if kind == "line":
                # Results are printed at the end.
                print(data, file=sys.stderr, flush=True)
            elif kind == "state" and data["state"] == "running":
                print(f"run {run_id} is running", file=sys.stderr, flush=True)
            elif kind == "problem":
                raise AgentError("--server", str(data), _FOLLOW.format(run_id))
    except (OSError, HTTPException) as error:
        raise AgentError(
            "--server", f"the connection broke ({error})", _FOLLOW.format(run_id)
        ) from error
    except KeyboardInterrupt:
        remote.send("DELETE", f"/runs/{run_id}")
        raise RunInterrupted("run", f"{run_id} was canceled") from None
    run = remote.document(f"/runs/{run_id}")
    if run["run_directory"] is not None:
        _write(remote.get(f"/runs/{run_id}/views/show"))
    if run["state"] == "done":
        return 0
    print(f"chakram: error: {run['state']}: {run['reason']}", file=sys.stderr)
    return int(run["exit_code"] or AgentError.exit_code)


def _list(remote: Remote, options: dict[str, list[str]]) -> int:
    found = remote.document(
        "/runs", state=_last(options, "state"), text=_last(options, "text")
    )
    if "json" in options:
        print(json.dumps(found, indent=2))
        return 0
    rows = [("run", "state", "owner", "name", "fabric", "tags")] + [
        (
            *(run["id"], run["state"], run["owner"], run["name"], run["fabric"]),
            " ".join(run["tags"]),
        )
        for run in found["runs"]
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    return 0


def _last(options: dict[str, list[str]], name: str) -> str | None:
    return options[name][-1] if options.get(name) else None


def _save(made: bytes, path: Path) -> int:
    with explained_writes(path, ConfigError):
        try:
            with path.open("xb") as file:
                file.write(made)
        except FileExistsError:
            raise ConfigError(
                str(path), "exists already", "choose another --out"
            ) from None
    print(f"wrote {path}")
    return 0


def _write(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()


def _quoted(run_id: str) -> str:
    return urllib.parse.quote(run_id, safe="")
