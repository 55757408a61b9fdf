"""`swarm web`: the swarm as a live page in a browser."""

from __future__ import annotations

import secrets
import sys

from swarm import settings
from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command
from swarm.errors import BadInput, StoreError
from swarm.formats import json_codec
from swarm.stores.default import default_store
from swarm.terminal import output

_PORT = 8765
_SHORTEST = 16  # characters of a token that somebody chooses


def web(call: Call) -> int:
    host, port = call.options.get("--host") or "127.0.0.1", _port(call)
    try:
        from swarm.web import server
        from swarm.web.actions import Actions
        from swarm.web.guard import authority
    except ImportError as error:
        if (error.name or "").startswith("swarm"):
            raise
        raise StoreError(
            f"swarm web needs the package {error.name}. Run: {sys.executable} -m pip install 'swarm-coordination[web]'"
        ) from None
    if "--as" in call.options and "--allow-actions" not in call.options:
        raise BadInput("--as says who acts, but this page is only for looking. Add --allow-actions.")
    store = default_store()
    actions = (
        Actions(store, whoami(call.options.get("--as"), fallback="user", option="--as"))
        if "--allow-actions" in call.options
        else None
    )
    more = tuple(call.every("--allow-host"))
    chosen = _token()
    with server.bind(host, port) as listening:
        address, port = listening.getsockname()[:2]
        token = chosen if actions or more or not server.is_loopback(address) else ""
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, host)
        url = f"http://{authority(shown, port)}/" + (f"?token={token}" if token else "")

        def up() -> None:
            if call.json:
                output.out(json_codec.dumps({"schema_version": 1, "url": url}) + "\n")
                return
            output.out(f"{url}\n")
            acts = f"Whoever has this address may act, as {actions.person} (web)." if actions else "It is only for looking."
            output.err(f"{acts} Ctrl-C ends it.\n")

        server.serve(store, listening, server.AccessPolicy(host, address, port, token, more), actions, up)
    return 0


def _port(call: Call) -> int:
    text = call.options.get("--port", str(_PORT))
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise BadInput(f"--port is {text[:40]!r}, but must be a whole number from 0 to 65535.")
    return int(text)


def _token() -> str:
    chosen = settings.web_token()
    if not chosen:
        return secrets.token_urlsafe(24)
    if len(chosen) < _SHORTEST or not all(sign.isascii() and (sign.isalnum() or sign in "-_.~") for sign in chosen):
        raise BadInput(f"SWARM_WEB_TOKEN must have at least {_SHORTEST} characters, of these: A-Z a-z 0-9 - _ . ~")
    return chosen


COMMAND = Command(
    "[--port N] [--host ADDRESS] [--allow-host NAME[:PORT]]… [--allow-actions] [--as NAME]",
    "A live page: what waits for a person, who works on what, tasks with their history, locks, the log, a timeline.\n"
    "Prints the address to open. Ctrl-C ends it (exit 0). Needs the extra web.\n"
    "\n"
    f"  --port N              by default {_PORT}; 0 is any that is free\n"
    "  --host ADDRESS        by default 127.0.0.1, which only this machine reaches; with any other, the address carries a token\n"
    "  --allow-host NAME     another name by which it is reached, as behind a proxy or a tunnel; then there is a token too\n"
    "  --allow-actions       lets the page release locks, and retry and cancel tasks; then there is a token too\n"
    "  --as NAME             who is logged as having done that (SWARM_WORKER, else you)\n"
    "\n"
    "SWARM_WEB_TOKEN, if set, is the token. The page, its API and /metrics are described in docs/reference/web.md.",
    "swarm web --allow-actions",
    web,
    "--port= --host= --allow-host= --allow-actions --as=",
)
