"""One open stream of server-sent events: what the feed says, to one page, for as long as that reads."""

from __future__ import annotations

import asyncio

from swarm.web.feed import Feed
from swarm.web.guard import Message, Receive, Scope, Send

LIMIT = 256  # streams
_PING = 15.0  # seconds of silence after which a page wants to know that the line still stands; see SILENT in app.js
_PATIENCE = 20.0  # seconds in which a page must have read what it was sent


class EventStream:
    """An ASGI answer. `after` is the event that the page has seen last; of one that is not known any more it is told so, and
    of "" it gets what comes from now on."""

    def __init__(self, feed: Feed, after: str) -> None:
        self._feed = feed
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send(_body(b"", more=False))
            return
        self._feed.clients += 1
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            await self._pass_on(send, gone)
            await send(_body(b"", more=False))
        except (TimeoutError, OSError):
            pass  # it does not read, or is not there any more
        finally:
            gone.cancel()
            self._feed.clients -= 1

    async def _pass_on(self, send: Send, gone: asyncio.Future[None]) -> None:
        feed = self._feed
        data = b"retry: 1500\n\n"
        number = feed.newest() if not self._after else feed.number_of(self._after)
        if number is None:
            data, number = data + feed.reset(), feed.newest()
        while not (feed.stopped or gone.done()):
            more, number = feed.after(number)
            if data + more:
                await asyncio.wait_for(send(_body(data + more)), _PATIENCE)
                data = b""
                continue
            news = asyncio.ensure_future(feed.changed())
            await asyncio.wait({news, gone}, timeout=_PING, return_when=asyncio.FIRST_COMPLETED)
            if not news.done():
                data = b"event: here\ndata: {}\n\n"
            news.cancel()


def _body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
