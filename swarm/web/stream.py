"""One open stream of server-sent events: the events of the feed, for one page.

The number of streams is bounded. A new stream ends the oldest: its page comes back and
misses no event, while a client that never reads stays away.
"""

from __future__ import annotations

import asyncio
from typing import Any

from swarm.web.connections import max_streams
from swarm.web.feed import Feed
from swarm.web.guard import Message, Receive, Scope, Send

# seconds without an event until a `ping`; app.js waits SILENCE_LIMIT for the ping
_PING_INTERVAL = 15.0


class EventStream:
    """An ASGI response with the events after the event id `after`.

    If `after` is "", the stream has only new events. If the feed has dropped events
    after `after`, the stream begins with `reset`.
    """

    def __init__(self, feed: Feed, after: str) -> None:
        self._feed = feed
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"x-accel-buffering", b"no"),
        ]
        # Before the answer begins: its client expects all events from then on.
        number = self._feed.newest() if not self._after else self._feed.number_of(self._after)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send(_body(b"", more=False))
            return
        gone = asyncio.ensure_future(until_gone(receive))
        streams = self._feed.streams
        if len(streams) >= max_streams():
            streams.pop(next(iter(streams))).cancel()
        streams[self] = asyncio.ensure_future(self._send_events(number, send, gone))
        try:
            await streams[self]
            await send(_body(b"", more=False))
        except (OSError, asyncio.CancelledError):
            pass  # the page is gone, or a new stream has taken the place of this one
        finally:
            gone.cancel()
            streams.pop(self, None)

    async def _send_events(
        self, number: int | None, send: Send, gone: asyncio.Future[None]
    ) -> None:
        """Send the events after this number, after a `reset` if it is None."""
        feed = self._feed
        data = b"retry: 1500\n\n"
        if number is None:
            data, number = data + feed.reset(), feed.newest()
        while not (feed.stopped or gone.done()):
            more, number = feed.after(number)
            if data + more:
                await send(_body(data + more))
                data = b""
                continue
            news: asyncio.Future[object] = asyncio.ensure_future(feed.changed())
            either: set[asyncio.Future[Any]] = {news, gone}
            await asyncio.wait(either, timeout=_PING_INTERVAL, return_when=asyncio.FIRST_COMPLETED)
            if not news.done():
                data = b"event: ping\ndata: {}\n\n"
            news.cancel()


def _body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def until_gone(receive: Receive) -> None:
    """Wait until the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
