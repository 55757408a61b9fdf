"""The page and its JSON API: the routes, the checks of parameters, the error answers.

Every answer has a maximal size. An error is `{"error": …, "exit_code": …}`. A call of
the store blocks its thread, so each call runs in a thread of its own. A request for the
latest snapshot is answered at once, without a call of the store.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swarm.errors import BadInput, NoTask, StoreError, SwarmError
from swarm.formats import json_codec
from swarm.inputs import check_name, whole
from swarm.queue.events import STATES
from swarm.queue.gating import check_gate
from swarm.queue.queue import TaskQueue
from swarm.status.log import STATES as TYPES
from swarm.stores.contract import Store
from swarm.system.background import BackgroundCall
from swarm.web import queries
from swarm.web.actions import Actions
from swarm.web.answers import Done, Health, Snapshot
from swarm.web.feed import Feed, require_board
from swarm.web.metrics import CONTENT_TYPE, exposition
from swarm.web.openapi import (
    ACTION_HEADER,
    MAX_LIMIT,
    MAX_PARAMETER,
    MAX_POSITION,
    description,
)
from swarm.web.payloads import board_fields
from swarm.web.queries import Stopped
from swarm.web.stream import EventStream, until_gone
from swarm.web.task_output import read_output

T = TypeVar("T")

_SCRIPTS = (
    "app",
    "board",
    "dialogs",
    "dom",
    "list",
    "log",
    "notify",
    "output",
    "questions",
    "still",
    "tasks",
    "theme",
    "timeline",
)
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in _SCRIPTS},
}
_MAX_THREADS = 2  # calls of the store at the same time: each may hold many MiB
_MAX_WAITING = 16  # requests that wait for such a call
_MAX_BODY = 64 << 10  # bytes: the longest answer fits, even with many escapes


class WebApp:
    """The application for one store. `actions` is None if the page is read-only."""

    def __init__(self, store: Store, feed: Feed, actions: Actions | None) -> None:
        self._store = store
        self._feed = feed
        self._actions = actions
        self._queue = TaskQueue(store)
        self._threads = asyncio.Semaphore(_MAX_THREADS)
        self._waiting = 0

    def application(self) -> Starlette:
        routes = [
            Route("/api/board", self._board),
            Route("/api/snapshot", self._snapshot),
            Route("/api/tasks", self._tasks, methods=["GET", "POST"]),
            Route("/api/tasks/{task}", self._task),
            Route("/api/tasks/{task}/output", self._output),
            Route("/api/log", self._log),
            Route("/api/events", self._events),
            Route("/api/locks/{task}/release", self._release, methods=["POST"]),
            Route("/api/tasks/{task}/retry", self._retry, methods=["POST"]),
            Route("/api/tasks/{task}/cancel", self._cancel, methods=["POST"]),
            Route("/api/gates/{gate}/open", self._open, methods=["POST"]),
            Route("/api/tasks/{task}/edit", self._edit, methods=["POST"]),
            Route("/api/questions/{question}/answer", self._answer, methods=["POST"]),
            Route("/openapi.json", self._openapi),
            Route("/metrics", self._metrics),
            Route("/healthz", self._health),
            *(Route(path, _file(*file)) for path, file in FILES.items()),
        ]
        handlers: Any = {SwarmError: _refused, HTTPException: _http_error, Exception: _fault}
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.router.redirect_slashes = False
        return app

    # Reading --------------------------------------------------------------------------

    async def _board(self, request: Request) -> Response:
        _only(request)
        return _json(board_fields(require_board(self._feed.snapshot)))

    async def _snapshot(self, request: Request) -> Response:
        _only(request)
        snapshot = self._feed.snapshot
        fields: Snapshot = {
            "schema_version": json_codec.SCHEMA_VERSION,
            "event_id": snapshot.event_id,
            "now": self._feed.now(),
            "store_error": snapshot.store_error,
            "actions": self._actions is not None,
            "person": self._actions.person if self._actions else None,
            "board": board_fields(require_board(snapshot)),
            "records": list(snapshot.records),
        }
        return _json(fields)

    async def _tasks(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._add(request)
        given = _only(request, "state", "q", "after", "limit")
        state, words, after = (
            _one_of(given, "state", STATES),
            _text(given, "q"),
            _text(given, "after"),
        )
        limit = _limit(given)
        snapshot = self._feed.snapshot
        require_board(snapshot)
        rows = snapshot.tasks or {}
        return _json(
            await self._thread(
                request,
                lambda _: queries.tasks(rows, state=state, words=words, after=after, limit=limit),
            )
        )

    async def _task(self, request: Request) -> Response:
        _only(request)
        name = _name(request)
        return _json(
            await self._thread(
                request, lambda stopped: queries.task(self._store, self._queue, name, stopped)
            )
        )

    async def _output(self, request: Request) -> Response:
        given = _only(request, "after")
        name, after = _name(request), whole(given.get("after", "0"), "after", 0, MAX_POSITION)
        return _json(
            await self._thread(
                request, lambda _: read_output(name, self._queue.get(name).token, after)
            )
        )

    async def _log(self, request: Request) -> Response:
        given = _only(request, "task", "type", "worker", "q", "after", "limit")
        wanted = {
            "task": _text(given, "task"),
            "kind": _one_of(given, "type", TYPES),
            "worker": _text(given, "worker"),
        }
        words, limit = _text(given, "q"), _limit(given)
        after = _text(given, "after") if "after" in given else None
        return _json(
            await self._thread(
                request,
                lambda stopped: queries.records(
                    self._store, stopped, after=after, limit=limit, words=words, **wanted
                ),
            )
        )

    async def _events(self, request: Request) -> Any:
        given = _only(request, "after")
        return EventStream(self._feed, request.headers.get("last-event-id", _text(given, "after")))

    async def _openapi(self, request: Request) -> Response:
        _only(request)
        return _json(description())

    async def _metrics(self, request: Request) -> Response:
        _only(request)
        return Response(exposition(self._feed), headers={"content-type": CONTENT_TYPE})

    async def _health(self, request: Request) -> Response:
        _only(request)
        # no reason: everybody may ask, and a reason names the store
        if not self._feed.is_healthy():
            raise StoreError("the store cannot be used. The page and /metrics say more.")
        healthy: Health = {"ok": True}
        return _json(healthy)

    # Actions --------------------------------------------------------------------------

    async def _release(self, request: Request) -> Response:
        return await self._act(request, lambda actions: actions.release)

    async def _retry(self, request: Request) -> Response:
        return await self._act(request, lambda actions: actions.retry)

    async def _add(self, request: Request) -> Response:
        def choose(actions: Actions) -> Callable[[str, bytes], Done]:
            return lambda _, body: actions.add(body)

        return await self._act(request, choose, lambda _: "")

    async def _edit(self, request: Request) -> Response:
        return await self._act(request, lambda actions: actions.edit)

    async def _cancel(self, request: Request) -> Response:
        return await self._act(request, lambda actions: actions.cancel)

    async def _open(self, request: Request) -> Response:
        return await self._act(request, lambda actions: actions.open, _gate)

    async def _answer(self, request: Request) -> Response:
        return await self._act(request, lambda actions: actions.answer, _question)

    async def _act(
        self,
        request: Request,
        choose: Callable[[Actions], Callable[[str, bytes], Done]],
        named: Callable[[Request], str] | None = None,
    ) -> Response:
        _only(request)
        actions = self._actions
        if actions is None:
            raise HTTPException(
                403, "This page may not act. To allow it, start it with: swarm web --allow-actions"
            )
        # no form and no page of another site can send it
        if request.headers.get(ACTION_HEADER) != "yes":
            raise HTTPException(403, f"An action must carry the header {ACTION_HEADER}: yes.")
        if (
            request.headers.get("content-type", "").partition(";")[0].strip().lower()
            != "application/json"
        ):
            raise HTTPException(415, "Send the body as application/json.")
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BODY:
                raise HTTPException(413, f"The body is larger than {_MAX_BODY} bytes.")
        name = (named or _name)(request)

        def act(_: Stopped) -> Done:
            self._feed.check_store()
            return choose(actions)(name, body)

        return _json(await self._thread(request, act))

    async def _thread(self, request: Request, work: Callable[[Stopped], T]) -> T:
        """Return the result of `work`, without blocking the event loop.

        The program can end while `work` still runs, since the store may never answer.
        `work` can ask whether the client has gone. Raise StoreError if too many
        requests wait, or if the client has gone.
        """
        if self._waiting >= _MAX_WAITING:
            raise StoreError("too many requests wait for the store. Try again in a moment.")
        gone = asyncio.ensure_future(until_gone(request.receive))
        try:
            self._waiting += 1
            try:
                await _first(self._threads.acquire(), gone)
            finally:
                self._waiting -= 1
            try:
                call = BackgroundCall(lambda: work(lambda: call.is_abandoned), "request")
                call.start()
                try:
                    await _first(call.wait_async(), gone)
                except BaseException:
                    call.abandon()
                    raise
                return call.result()
            finally:
                self._threads.release()
        finally:
            gone.cancel()


async def _first(awaited: Coroutine[Any, Any, object], gone: asyncio.Future[None]) -> None:
    """Wait for `awaited`. Raise StoreError if the client goes first."""
    task: asyncio.Future[Any] = asyncio.ensure_future(awaited)
    waited: set[asyncio.Future[Any]] = {task, gone}
    try:
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise StoreError("the client has gone.")
        task.result()
    finally:
        task.cancel()


def _json(value: object, status: int = 200) -> Response:
    body = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    return Response(body, status, {"content-type": "application/json"})


def _file(name: str, kind: str) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        with open(os.path.join(os.path.dirname(__file__), "static", name), "rb") as file:
            return Response(file.read(), headers={"content-type": kind})

    return answer


# Parameters ---------------------------------------------------------------------------


def _only(request: Request, *known: str) -> dict[str, str]:
    """Return the parameters of a request.

    Raise BadInput if a parameter is unknown or given twice.
    """
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    if len(given) < len(pairs):
        raise BadInput("a parameter is given twice.")
    if unknown := [name for name in given if name not in known]:
        raise BadInput(
            f"there is no parameter {unknown[0][:40]!r}. The parameters are: "
            f"{' '.join(known) or 'none'}."
        )
    return given


def _name(request: Request) -> str:
    """Return the task that the path of a request names. Raise NoTask if the name is
    invalid.
    """
    try:
        return check_name(request.path_params["task"], "task_id")
    except BadInput as error:
        raise NoTask("unknown", str(error)) from None


def _gate(request: Request) -> str:
    found: str = request.path_params["gate"]
    return check_gate(found)


def _question(request: Request) -> str:
    """Return the question of a request. Raise HTTPException if it is no id of one."""
    found: str = request.path_params["question"]
    if not (found[:1] == "q" and found[1:].isascii() and found[1:].isdigit() and len(found) < 20):
        raise HTTPException(404, "That is not the id of a question, such as q7.")
    return found


def _text(given: dict[str, str], name: str) -> str:
    text = given.get(name, "")
    if len(text) > MAX_PARAMETER:
        raise BadInput(f"{name} is longer than {MAX_PARAMETER} characters.")
    return text


def _one_of(given: dict[str, str], name: str, known: tuple[str, ...]) -> str:
    text = given.get(name)
    if text is not None and text not in known:
        raise BadInput(f"{name} must be one of {' '.join(known)}.")
    return text or ""


def _limit(given: dict[str, str]) -> int:
    return whole(given.get("limit", "200"), "limit", 1, MAX_LIMIT)


# Errors -------------------------------------------------------------------------------


async def _refused(request: Request, error: SwarmError) -> Response:
    status = 409
    if isinstance(error, BadInput):
        status = 400
    elif isinstance(error, StoreError):
        status = 503
    elif isinstance(error, NoTask):
        status = 404
    return _json({"error": str(error), "exit_code": error.exit_code}, status)


async def _http_error(request: Request, error: HTTPException) -> Response:
    answer = _json({"error": str(error.detail), "exit_code": 2}, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def _fault(request: Request, error: Exception) -> Response:
    return _json({"error": f"this is a fault in swarm: {error!r}", "exit_code": 3}, 500)
