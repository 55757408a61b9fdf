"""`swarm web`: show the swarm as a live page in the browser."""

from __future__ import annotations

import os
import secrets
import select
import sys

from swarm import settings
from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput, StoreError
from swarm.inputs import whole
from swarm.notify.notifier import notifier_for
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import shown

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
        raise BadInput(
            "--as names the user of actions, but this page allows no actions. Add --allow-actions."
        )
    store = default_store()
    more = tuple(call.every("--allow-host"))
    if "--no-token" in call.options and ("--allow-actions" in call.options or more):
        raise BadInput(
            "--no-token lets every user of this machine look. It cannot be combined with "
            "--allow-actions or --allow-host."
        )
    actions = (
        Actions(store, whoami(call.options.get("--as"), fallback="user", option="--as"))
        if "--allow-actions" in call.options
        else None
    )
    chosen = _token()
    with server.bind(host, port) as listening:
        address, port = listening.getsockname()[:2]
        if "--no-token" in call.options and not server.is_loopback(address):
            raise BadInput(
                f"--no-token is for this machine only, but other machines reach {host[:80]}."
            )
        token = "" if "--no-token" in call.options else chosen
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, host)
        url = f"http://{authority(shown, port)}/" + (f"?token={token}" if token else "")

        far = "" if server.is_loopback(address) else server.address_for_others(address)
        phone = f"http://{authority(far, port)}/?token={token}" if far else ""

        def up() -> None:
            if call.answer({"url": url, "phone_url": phone or None}):
                return
            output.out(f"{url}\n")
            if phone:
                _show_phone(phone)
            acts = (
                f"Anyone with this address may act, logged as {actions.person} (web)."
                if actions
                else "The page is read-only."
            )
            output.err(f"{acts} Ctrl-C ends it.\n")

        policy = server.AccessPolicy(host, address, port, token, more)
        with notifier_for(store, "web"):
            server.serve(store, listening, policy, actions, up, _report)
    return 0


def _show_phone(url: str) -> None:
    """Print the address for a phone on the same network, as text and as a QR code."""
    from swarm.terminal.qr_code import drawn

    if os.isatty(2) and settings.terminal_draws():
        try:
            # White on black, whatever the colours of the terminal are.
            output.err("".join(f"\x1b[97;40m{line}\x1b[0m\n" for line in drawn(url)))
        except BadInput:
            pass  # a long token of the user: the address is enough
    output.err(
        f"On a phone in the same network: {url}\nThe network can read this connection: it has no "
        "TLS.\n"
    )


def _report(text: str) -> None:
    """Print trouble of the server, unless standard error is full: it must go on."""
    if select.select([], [2], [], 0)[1]:
        output.err(f"Warning: {shown(text)[:1000]}\n")


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
        Option("--port", "N", f"listen on this port; 0 picks a free port; default {_PORT}"),
        Option(
            "--host",
            "ADDRESS",
            "listen on this address; default 127.0.0.1, which only this machine reaches; 0.0.0.0 "
            "also prints a link and a QR code for a phone",
        ),
        Option(
            "--allow-host",
            "NAME[:PORT]",
            "also accept requests for this host name, for a proxy or a tunnel",
            repeated=True,
        ),
        Option("--no-token", text="let every user of this machine look, without a token"),
        Option(
            "--allow-actions",
            text="let the page answer questions, release locks, and retry and cancel tasks",
        ),
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
            "The page shows questions of agents, tasks that wait for a user, workers, tasks with "
            "their history, locks, the log and a timeline. The command prints the "
            "address to open. Ctrl-C ends the command (exit 0). The command needs the extra web."
        ),
    ),
    notes=(
        (
            "The address contains a token, without which the page shows nothing. "
            "SWARM_WEB_TOKEN sets it. docs/reference/web.md describes the page, its API "
            "and /metrics."
        ),
    ),
)
