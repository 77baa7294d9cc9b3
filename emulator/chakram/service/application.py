"""The web application of a service: API, pages and access checks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

import chakram
from chakram.foundation.errors import ChakramError, ConfigError, InputError
from chakram.foundation.text_escaping import plain
from chakram.service.access import COOKIE, LOCAL, READ, RUN, User
from chakram.service.api_models import MOST_TEXT, RunRequest, TagsRequest, openapi
from chakram.service.job_queue import JobQueue
from chakram.service.otg_engine import OtgEngine
from chakram.service.otg_server import CHANGING, REST, answer, failure
from chakram.service.pages import Pages
from chakram.service.request_guard import Door, Guard
from chakram.service.result_views import COMPARISONS, HTML, VIEWS, Renderer, View
from chakram.service.run_store import STATES, StoredRun
from chakram.service.submissions import Submission, check_submission, fabric_names

API = "/api/v1"
_BODY_BYTES = 2 * MOST_TEXT
_MOST_RUNS, _ON_PAGE = 200, 50
_OUTPUT_BYTES = 8 << 20
# Reports contain their own scripts, and load nothing from other places.
_REPORT_POLICY = "sandbox allow-scripts allow-popups; default-src 'self' data: blob: "
_REPORT_POLICY += "'unsafe-inline' 'unsafe-eval'"

Handler = Callable[[Request], Awaitable[Response]]


class HttpProblem(ChakramError):
    """An answer that reports an error.

    Args:
        status: Status code.
        where: Place of the error.
        found: The problem.
        hint: The remedy.
    """

    def __init__(
        self, status: int, where: str, found: str, hint: str | None = None
    ) -> None:
        super().__init__(where, found, hint)
        self.status = status


@dataclass(slots=True, eq=False)
class Application:
    """Handlers of all requests.

    Attributes:
        queue: The queue of runs.
        resources: Folder of resources.
        door: Access rules.
        engine: The engine for OTG clients, or None.
    """

    queue: JobQueue
    resources: Path
    door: Door
    engine: OtgEngine | None = None
    _renderer: Renderer = field(default_factory=Renderer)
    _pages: Pages = field(init=False)

    def __post_init__(self) -> None:
        self._pages = Pages(self.queue, self.resources)

    def app(self) -> Guard:
        """Return the application for a server."""
        routes = [
            *(self._otg_route(self.engine, *key) for key in REST if self.engine),
            self._at(f"{API}/openapi.json", self.openapi, role=None),
            self._at(f"{API}/version", self.version, role=None),
            self._at(f"{API}/runs", self.runs),
            self._at(f"{API}/runs", self.submit, "POST", role=RUN),
            self._at(f"{API}/check", self.check, "POST", role=RUN),
            self._at(f"{API}/fabrics", self.fabrics),
            self._at(f"{API}/compare", self.compare),
            self._at(f"{API}/runs/{{id}}", self.run),
            self._at(f"{API}/runs/{{id}}", self.cancel, "DELETE", role=RUN),
            self._at(f"{API}/runs/{{id}}", self.change_tags, "PATCH", role=RUN),
            self._at(f"{API}/runs/{{id}}/events", self.events),
            self._at(f"{API}/runs/{{id}}/output", self.output),
            self._at(f"{API}/runs/{{id}}/experiment", self.experiment),
            self._at(f"{API}/runs/{{id}}/views/{{view}}", self.view),
            self._at("/login", self.login_page, role=None),
            self._at("/login", self.login, "POST", role=None),
            self._at("/static/{name}", self.static, role=None),
            self._at("/", self.home),
            self._at("/new", self.new_page, role=RUN),
            self._at("/new", self.new, "POST", role=RUN),
            self._at("/runs/{id}", self.run_page),
            self._at("/runs/{id}", self.act_on_run, "POST", role=RUN),
            self._at("/compare", self.compare_page),
        ]
        handlers: Any = {HTTPException: self._unrouted}
        return Guard(Starlette(routes=routes, exception_handlers=handlers), self.door)

    def user_of(self, request: Request) -> User | None:
        """Return the user of a request, or None."""
        tokens = self.door.tokens
        if tokens is None:
            return LOCAL
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            token = request.cookies.get(COOKIE, "")
        return tokens.find(token.strip()) if token else None

    def _at(
        self, path: str, handler: Handler, method: str = "GET", role: str | None = READ
    ) -> Route:
        """Return the route of a handler. If *role* is None, requests need no user."""
        is_page = not path.startswith(API)

        async def reply(request: Request) -> Response:
            try:
                if role is not None:
                    request.state.user = self._user_with(role, request)
                return await handler(request)
            except HttpProblem as problem:
                if is_page and problem.status == 401:
                    return RedirectResponse("/login", 303)
                return self._failed(is_page, problem.status, problem, problem.hint)
            except ChakramError as error:
                status = 422 if isinstance(error, InputError) else 503
                return self._failed(is_page, status, error, error.hint or "")

        return Route(path, reply, methods=[method])

    def _user_with(self, role: str, request: Request) -> User:
        user = self.user_of(request)
        if user is None:
            hint = "send Authorization: Bearer"
            raise HttpProblem(401, "token", "is missing or wrong", hint)
        if role == RUN and not user.may_run:
            raise HttpProblem(403, "role", f"{user.name} may only read")
        return user

    def _otg_route(self, engine: OtgEngine, method: str, path: str) -> Route:
        call = REST[method, path]

        async def reply(request: Request) -> Response:
            user = self.user_of(request)
            if user is None:
                return JSONResponse(failure(401, ["token: is missing or wrong"]), 401)
            if path in CHANGING and method == "POST" and not user.may_run:
                return JSONResponse(failure(403, [f"{user.name} may only read"]), 403)
            document = None
            if method == "POST":
                try:
                    document = await _json(request)
                except HttpProblem as problem:
                    return JSONResponse(failure(400, [str(problem)]), 400)
            status, found = await answer(engine, call, document)
            return JSONResponse(found, status)

        return Route(path, reply, methods=[method])

    async def _unrouted(self, request: Request, error: HTTPException) -> Response:
        """Answer a request for an unknown path, or a request with a wrong method."""
        path = request.url.path
        found = "has no such method" if error.status_code == 405 else "does not exist"
        problem = HttpProblem(error.status_code, path[:200], found)
        is_page = not path.startswith(API)
        answer = self._failed(is_page, error.status_code, problem, None)
        answer.headers.update(error.headers or {})
        return answer

    def _failed(
        self, is_page: bool, status: int, error: ChakramError, hint: str | None
    ) -> Response:
        if is_page:
            return self._pages.page("problem", "Problem", status=status, error=error)
        document = {"where": error.where, "found": error.found, "hint": hint}
        return JSONResponse({"error": document}, status)

    # ---- the API ---------------------------------------------------------------------

    async def openapi(self, _request: Request) -> Response:
        """Describe the API."""
        return JSONResponse(openapi(chakram.__version__, [*VIEWS], [*COMPARISONS]))

    async def version(self, _request: Request) -> Response:
        """Return the version of Chakram."""
        return JSONResponse({"version": chakram.__version__, "api": 1})

    async def runs(self, request: Request) -> Response:
        """List runs."""
        limit = _whole(request, "limit", _ON_PAGE, most=_MOST_RUNS)
        found, following = self._search(request, limit)
        runs = [run.document() for run in found]
        return JSONResponse({"runs": runs, "next": following})

    async def submit(self, request: Request) -> Response:
        """Queue an experiment."""
        wanted = _model(RunRequest, await _json(request))
        run = await self._submit(request.state.user, wanted)
        location = {"Location": f"{API}/runs/{run.id}"}
        return JSONResponse(run.document(), 201, headers=location)

    async def check(self, request: Request) -> Response:
        """Check an experiment."""
        wanted = _model(RunRequest, await _json(request))
        await self._checked(wanted)
        return Response(status_code=204)

    async def fabrics(self, _request: Request) -> Response:
        """List the fabrics that experiments can name."""
        in_use = self.queue.reservations() | self.queue.locks()
        return JSONResponse({"fabrics": fabric_names(self.resources), "in_use": in_use})

    async def run(self, request: Request) -> Response:
        """Describe a run."""
        return JSONResponse(self._find(request).document())

    async def cancel(self, request: Request) -> Response:
        """Cancel a run."""
        run = self._find(request)
        if not self.queue.cancel(run, request.state.user.name):
            raise HttpProblem(409, run.id, f"has ended already ({run.state})")
        return JSONResponse(self._find(request).document(), 202)

    async def change_tags(self, request: Request) -> Response:
        """Change the tags of a run."""
        run = self._find(request)
        wanted = _model(TagsRequest, await _json(request))
        self.queue.store.change(run.id, tags=wanted.tags)
        return JSONResponse(self._find(request).document())

    async def events(self, request: Request) -> Response:
        """Stream the events of a run."""
        run = self._find(request)
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isdecimal() and len(last) < 10 else -1

        async def stream() -> AsyncIterator[str]:
            try:
                async for event in self.queue.follow(run.id, after):
                    data = json.dumps(event.data)
                    number = f"id: {event.number}\n" if event.number >= 0 else ""
                    yield f"{number}event: {event.kind}\ndata: {data}\n\n"
            except ChakramError as error:
                yield f"event: problem\ndata: {json.dumps(str(error))}\n\n"
                return
            yield "event: end\ndata: null\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def output(self, request: Request) -> Response:
        """Return the output of a run so far."""
        path = self.queue.output_of(self._find(request).id)
        return PlainTextResponse(_text_of(path))

    async def experiment(self, request: Request) -> Response:
        """Return the experiment of a run."""
        return PlainTextResponse(self._find(request).experiment)

    async def view(self, request: Request) -> Response:
        """Return a result of a run."""
        run = self._find(request)
        name = request.path_params["view"]
        if name not in VIEWS:
            raise HttpProblem(404, name, "is not a view", f"use {', '.join(VIEWS)}")
        made = await self._renderer.make(
            VIEWS[name], [self._results_of(run)], self.queue.folder_of(run.id)
        )
        return _result(VIEWS[name], made)

    async def compare(self, request: Request) -> Response:
        """Compare two runs."""
        view, made = await self._comparison(request)
        return _result(view, made)

    # ---- pages -----------------------------------------------------------------------

    async def static(self, request: Request) -> Response:
        """Return the script of the pages."""
        if request.path_params["name"] != "live.js":
            raise HttpProblem(404, "page", "does not exist")
        text = (files("chakram.service") / "live.js.j2").read_text("utf-8")
        return Response(text, media_type="text/javascript")

    async def login_page(self, _request: Request) -> Response:
        """Ask for a token."""
        return self._pages.page("login", "Log in", problem="")

    async def login(self, request: Request) -> Response:
        """Store the token in a cookie."""
        token = (await _form(request)).get("token", "").strip()
        tokens = self.door.tokens
        answer = RedirectResponse("/", 303)
        if tokens is None:
            return answer
        if tokens.find(token) is None:
            found = "This token is not known."
            return self._pages.page("login", "Log in", status=401, problem=found)
        answer.set_cookie(
            COOKIE,
            token,
            httponly=True,
            samesite="strict",
            secure=self.door.is_encrypted,
            max_age=30 * 86_400,
        )
        return answer

    async def home(self, request: Request) -> Response:
        """Show the queue and the runs."""
        found, following = self._search(request, _ON_PAGE)
        user, query = request.state.user, request.query_params
        return self._pages.home(user, found, query, following)

    async def new_page(self, request: Request) -> Response:
        """Show the form for a new experiment."""
        return self._pages.new(request.state.user, request.query_params)

    async def new(self, request: Request) -> Response:
        """Queue the experiment of the form, or show its mistakes."""
        form = await _form(request)
        user = request.state.user
        again = self.queue.store.find(form.get("again", ""))
        asked = {
            "experiment": form.get("experiment", ""),
            "verb": form.get("verb", "run"),
            "tags": form.get("tags", "").split(),
            "set": {} if again is None else self.queue.changes_of(again.id),
        }
        try:
            wanted = _model(RunRequest, asked)
            if form.get("action") == "check":
                await self._checked(wanted)
                return self._pages.new(user, form, note="It is valid.")
            run = await self._submit(user, wanted)
        except (ConfigError, HttpProblem) as error:
            return self._pages.new(user, form, problem=str(error))
        return RedirectResponse(f"/runs/{run.id}", 303)

    async def run_page(self, request: Request) -> Response:
        """Show a run."""
        run = self._find(request)
        output = _text_of(self.queue.output_of(run.id))
        baseline = self.queue.store.last_good(run)
        return self._pages.run(request.state.user, run, output, baseline)

    async def act_on_run(self, request: Request) -> Response:
        """Cancel a run, or change its tags."""
        run = self._find(request)
        form = await _form(request)
        if form.get("action") == "cancel":
            self.queue.cancel(run, request.state.user.name)
        elif form.get("action") == "tag":
            wanted = _model(TagsRequest, {"tags": form.get("tags", "").split()})
            self.queue.store.change(run.id, tags=wanted.tags)
        return RedirectResponse(f"/runs/{run.id}", 303)

    async def compare_page(self, request: Request) -> Response:
        """Show a comparison."""
        first, second = self._pair(request)
        _, made = await self._comparison(request)
        return self._pages.page(
            "comparison",
            "Comparison",
            user=request.state.user,
            first=first,
            second=second,
            output=plain(made.decode("utf-8", "replace")),
        )

    # ---- helpers ---------------------------------------------------------------------

    def _search(
        self, request: Request, limit: int
    ) -> tuple[list[StoredRun], int | None]:
        """Return the runs that match, and ``before`` for the next page, if any."""
        given = request.query_params
        states = [each for each in given.getlist("state") if each]
        if not set(states) <= set(STATES):
            raise HttpProblem(422, "state", "is unknown", f"use {', '.join(STATES)}")
        found = self.queue.store.search(
            states=states,
            text=given.get("text", "")[:256],
            tag=given.get("tag", "")[:64],
            owner=given.get("owner", "")[:64],
            before=_whole(request, "before", 0, most=1 << 53) or None,
            limit=limit + 1,
        )
        following = found[limit - 1].number if len(found) > limit else None
        return [self.queue.explained(run) for run in found[:limit]], following

    async def _checked(self, wanted: RunRequest) -> Submission:
        check = partial(check_submission, verb=wanted.verb, changes=wanted.set)
        return await asyncio.to_thread(check, wanted.experiment, self.resources)

    async def _submit(self, user: User, wanted: RunRequest) -> StoredRun:
        submission = await self._checked(wanted)
        return self.queue.submit(submission, owner=user.name, tags=wanted.tags)

    def _find(self, request: Request, name: str | None = None) -> StoredRun:
        run_id = request.path_params["id"] if name is None else name
        run = self.queue.store.find(run_id[:128])
        if run is None:
            raise HttpProblem(404, "run", "does not exist", f"see {API}/runs")
        return self.queue.explained(run)

    def _results_of(self, run: StoredRun) -> Path:
        if run.directory is None:
            raise HttpProblem(409, run.id, f"has no results ({run.state})")
        return run.directory

    def _pair(self, request: Request) -> tuple[StoredRun, StoredRun]:
        given = request.query_params
        if "b" not in given:
            raise HttpProblem(422, "b", "is missing", "name the run to compare")
        second = self._find(request, given["b"])
        if given.get("a"):
            return self._find(request, given["a"]), second
        first = self.queue.store.last_good(second)
        if first is None:
            found = "has no earlier good run of its experiment"
            raise HttpProblem(409, second.id, found, "name a")
        return first, second

    async def _comparison(self, request: Request) -> tuple[View, bytes]:
        name = request.query_params.get("format", "text")
        if name not in COMPARISONS:
            raise HttpProblem(422, "format", f"use {', '.join(COMPARISONS)}")
        pair = self._pair(request)
        runs = [self._results_of(run) for run in pair]
        folder = self.queue.folder_of(pair[1].id)
        view = COMPARISONS[name]
        return view, await self._renderer.make(view, runs, folder)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES:
            raise HttpProblem(413, "request", f"is longer than {_BODY_BYTES} bytes")
    return bytes(body)


async def _json(request: Request) -> Any:
    body = await _body(request)
    try:
        found = json.loads(body)
        # Python also parses NaN and unpaired surrogates, which no answer can contain.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise HttpProblem(400, "request", "is not JSON") from None
    return found


async def _form(request: Request) -> dict[str, str]:
    text = (await _body(request)).decode("utf-8", "replace")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=64)
    except ValueError:
        raise HttpProblem(400, "request", "is not a form") from None
    return dict(pairs)


def _model(kind: type[BaseModel], data: Any) -> Any:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "request"
        raise HttpProblem(422, place[:200], first["msg"]) from None


def _whole(request: Request, name: str, default: int, *, most: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 17):
        raise HttpProblem(422, name, "is not a whole number")
    return max(1, min(most, int(text)))


def _text_of(path: Path) -> str:
    """Return the end of a file, or an empty string if the file cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _OUTPUT_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _result(view: View, made: bytes) -> Response:
    headers = {}
    if view.media_type == HTML:
        headers["Content-Security-Policy"] = _REPORT_POLICY
    elif view.out:
        headers["Content-Disposition"] = 'attachment; filename="timeline.json.gz"'
    return Response(made, media_type=view.media_type, headers=headers)
