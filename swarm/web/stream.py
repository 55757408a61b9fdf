"""One open stream of server-sent events: the events of the feed, for one page."""

from __future__ import annotations

import asyncio

from swarm.web.feed import Feed
from swarm.web.guard import Message, Receive, Scope, Send

MAX_STREAMS = 256
# seconds without an event until a `ping`; app.js waits SILENCE_LIMIT for the ping
_PING_INTERVAL = 15.0
_SEND_TIMEOUT = 20.0  # seconds for a page to read what it was sent


class EventStream:
    """An ASGI response with the events after the event id `after`.

    With "", the stream has the events from now on. With an id that the feed has
    dropped, the stream begins with `reset`.
    """

    def __init__(self, feed: Feed, after: str) -> None:
        self._feed = feed
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send(_body(b"", more=False))
            return
        self._feed.clients += 1
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            await self._send_events(send, gone)
            await send(_body(b"", more=False))
        except (TimeoutError, OSError):
            pass  # the page does not read, or is gone
        finally:
            gone.cancel()
            self._feed.clients -= 1

    async def _send_events(self, send: Send, gone: asyncio.Future[None]) -> None:
        feed = self._feed
        data = b"retry: 1500\n\n"
        number = feed.newest() if not self._after else feed.number_of(self._after)
        if number is None:
            data, number = data + feed.reset(), feed.newest()
        while not (feed.stopped or gone.done()):
            more, number = feed.after(number)
            if data + more:
                await asyncio.wait_for(send(_body(data + more)), _SEND_TIMEOUT)
                data = b""
                continue
            news = asyncio.ensure_future(feed.changed())
            await asyncio.wait(
                {news, gone}, timeout=_PING_INTERVAL, return_when=asyncio.FIRST_COMPLETED
            )
            if not news.done():
                data = b"event: ping\ndata: {}\n\n"
            news.cancel()


def _body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
