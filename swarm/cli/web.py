"""`swarm web`: show the swarm as a live page in the browser."""

from __future__ import annotations

import secrets
import sys

from swarm import settings
from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput, StoreError
from swarm.inputs import whole
from swarm.stores.default import default_store
from swarm.terminal import output

_PORT = 8765
_MIN_TOKEN = 16  # characters of SWARM_WEB_TOKEN


def web(call: Call) -> int:
    host, port = (
        call.options.get("--host") or "127.0.0.1",
        whole(call.options.get("--port", str(_PORT)), "--port", 0, 65535),
    )
    try:
        from swarm.web import server
        from swarm.web.actions import Actions
        from swarm.web.guard import authority
    except ImportError as error:
        if (error.name or "").startswith("swarm"):
            raise
        raise StoreError(
            f"swarm web needs the package {error.name}. Run: {sys.executable} -m pip install "
            f"'swarm-coordination[web]'"
        ) from None
    if "--as" in call.options and "--allow-actions" not in call.options:
        raise BadInput("--as names who acts, but this page cannot act. Add --allow-actions.")
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
            if call.answer({"url": url}):
                return
            output.out(f"{url}\n")
            acts = (
                f"Anyone with this address may act, logged as {actions.person} (web)."
                if actions
                else "The page is read-only."
            )
            output.err(f"{acts} Ctrl-C ends it.\n")

        server.serve(
            store, listening, server.AccessPolicy(host, address, port, token, more), actions, up
        )
    return 0


def _token() -> str:
    chosen = settings.web_token()
    if not chosen:
        return secrets.token_urlsafe(24)
    if len(chosen) < _MIN_TOKEN or not all(
        sign.isascii() and (sign.isalnum() or sign in "-_.~") for sign in chosen
    ):
        raise BadInput(
            f"SWARM_WEB_TOKEN must have at least {_MIN_TOKEN} characters, of these: A-Z a-z "
            f"0-9 - "
            f"_ . ~"
        )
    return chosen


COMMAND = Command(
    web,
    "Show the swarm as a live page in the browser.",
    "swarm web --allow-actions",
    options=(
        Option("--port", "N", f"listen on this port; 0 picks a free one; default {_PORT}"),
        Option(
            "--host",
            "ADDRESS",
            "listen on this address; default 127.0.0.1, which only this machine reaches",
        ),
        Option(
            "--allow-host",
            "NAME[:PORT]",
            "accept this name of the server too, as behind a proxy or a tunnel",
            repeated=True,
        ),
        Option("--allow-actions", text="let the page release locks, and retry and cancel tasks"),
        Option(
            "--as",
            "NAME",
            (
                "the name under which these actions are logged; default: SWARM_WORKER, else your "
                "user name"
            ),
        ),
    ),
    details=(
        (
            "The page shows what waits for a user, who works on what, the tasks with their "
            "history, "
            "locks, the log and a timeline. The command prints the address to open. Ctrl-C ends it "
            "(exit 0). It needs the extra web."
        ),
    ),
    notes=(
        (
            "With another --host, with --allow-host or with --allow-actions, the address "
            "contains a "
            "token. SWARM_WEB_TOKEN sets it. docs/reference/web.md describes the page, its API "
            "and /metrics."
        ),
    ),
)
