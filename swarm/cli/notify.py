"""`swarm notify`: tell people about questions, failures and other events."""

from __future__ import annotations

import signal
import sys
import threading

from swarm import settings
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput, StoreError
from swarm.inputs import parse_wait
from swarm.notify.channel import (
    AGAIN_RULE,
    CHANNEL_KINDS,
    DESKTOP,
    JSON,
    MIN_AGAIN,
    NTFY,
    Channel,
    Undelivered,
    checked,
)
from swarm.notify.channel import COMMAND as PROGRAM  # COMMAND would be taken for a command
from swarm.notify.channels import (
    add_channel,
    all_channels,
    invalid_channels,
    remove_channel,
    stored_channels,
)
from swarm.notify.delivery import missing_for
from swarm.notify.event import KINDS, TEST, USUAL, Event, event_id
from swarm.notify.mailbox import Mailbox, decode
from swarm.notify.notifier import Quarters, notifier_for
from swarm.notify.sender import mailbox_key
from swarm.project.config import Config, load
from swarm.queue.events import nonce
from swarm.stores.contract import Store
from swarm.stores.default import default_store
from swarm.system.clock import to_iso
from swarm.terminal import output
from swarm.terminal.text import foreign_name, quoted, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

_MAX_SECRET = 4096  # bytes


def add(call: Call) -> int:
    _refuse_agent("add a channel")
    kind, target = call.get(0), call.get(1)
    store = default_store()
    channel = checked(
        Channel(
            call.options.get("--name", kind),
            kind,
            url=_line_of("-", "the URL") if target == "-" else target,
            url_env=call.options.get("--url-env", ""),
            secret=_secret(call),
            secret_env=call.options.get("--secret-env", ""),
            command=tuple(call.command_line),
            format=call.options.get("--format", JSON),
            on=_names(call, "--on") or USUAL,
            always=_names(call, "--always"),
            quiet=call.options.get("--quiet", ""),
            again=_again(call.options.get("--again", "0")),
            allow_http="--allow-http" in call.options,
            added_at=to_iso(store.clock.now()),
        )
    )
    if channel.name in load().notify:
        raise BadInput(f"swarm.toml has a channel {foreign_name(channel.name)}. Choose a --name.")
    add_channel(store, channel)
    if channel.needs_consent:
        Quarters(store).consent.allow([channel])  # the user has just typed it
    missing = missing_for(channel)
    row = {**channel.public(), "problem": missing or None}
    if not call.answer({"added": True, "channel": row}):
        output.out(
            f"Channel added: {_line(channel)}\nTest it: swarm notify test {quoted(channel.name)}\n"
        )
    if missing:
        output.err(f"Warning: {_absence(missing)}. Other machines may send to the channel.\n")
    return 0


def list_channels(call: Call) -> int:
    store = default_store()
    quarters = Quarters(store)
    consent, config = quarters.consent, load()
    wrong = invalid_channels(config)
    found = [
        (channel, _mailbox(store, channel), consent.allows(channel), missing_for(channel))
        for channel in all_channels(store, config)
    ]
    rows: list[dict[str, Any]] = [
        {**channel.public(), "allowed": allowed, "problem": missing or None, **_state(box)}
        for channel, box, allowed, missing in found
    ]
    rows += [
        {"name": name, "from": "swarm.toml", "allowed": False, "problem": error}
        for name, error in wrong.items()
    ]
    if call.answer({"channels": rows}):
        return 0
    if not rows:
        output.out("No channels. Add one: swarm notify add ntfy https://ntfy.sh/TOPIC\n")
    for channel, box, allowed, missing in found:
        output.out(f"{_line(channel)}\n")
        if not allowed:
            output.out(
                f"  not allowed on this machine. Read it, then: swarm notify allow "
                f"{quoted(channel.name)}\n"
            )
        if missing:
            output.out(f"  {_absence(missing)}\n")
        output.out("".join(f"  {line}\n" for line in _story(box)))
    for name, error in wrong.items():
        output.out(f"{foreign_name(name)}  not valid: {shown(error)}\n")
    return 0


def test(call: Call) -> int:
    store = default_store()
    quarters, now = Quarters(store), store.clock.now()
    consent = quarters.consent
    config = load()
    wrong = {} if call.get(0) else invalid_channels(config)
    found = all_channels(store, config)
    chosen = found if wrong else _chosen(call, found, config)
    results: list[dict[str, Any]] = []
    for channel in chosen:
        error = ""
        event = Event(
            event_id(TEST, nonce().encode()), TEST, to_iso(now), "A test of swarm", "It works."
        )
        try:
            if not consent.allows(channel):
                raise Undelivered("it is not allowed on this machine. See: swarm notify list")
            quarters.delivery.deliver(channel, event, now)
        except Undelivered as undelivered:
            error = str(undelivered)
        results.append({"name": channel.name, "sent": not error, "error": error or None})
        if not call.json:
            what = f"failed: {shown(error)}" if error else "sent"
            output.out(f"{foreign_name(channel.name)}: {what}\n")
    for name, error in wrong.items():
        results.append({"name": name, "sent": False, "error": error})
        if not call.json:
            output.out(f"{foreign_name(name)}: failed: {shown(error)}\n")
    call.answer({"channels": results})
    if all(each["sent"] for each in results):
        return 0
    failed = [each["name"] for each in results if not each["sent"]]
    output.error(f"no test reached {', '.join(map(foreign_name, failed))}.")
    return 1


def remove(call: Call) -> int:
    _refuse_agent("remove a channel")
    store, name = default_store(), call.get(0)
    is_stored = any(each.name == name for each in stored_channels(store))
    if not is_stored and name in load().notify:
        raise BadInput(
            f"{foreign_name(name)} is a channel of swarm.toml. Remove [notify.{name}] there."
        )
    channel = remove_channel(store, name)
    _forget(store, name)
    if not call.answer({"removed": True, "name": name}):
        output.out(f"Channel removed: {_line(channel)}\n")
    return 0


def allow(call: Call) -> int:
    _refuse_agent("allow a channel")
    store = default_store()
    config = load()
    found = [each for each in all_channels(store, config) if each.needs_consent]
    chosen = _chosen(call, found, config)
    Quarters(store).consent.allow(chosen)
    if not call.answer({"allowed": [each.name for each in chosen]}):
        for channel in chosen:
            words = " ".join(map(quoted, channel.command))
            what = f"runs: {shown(words)}" if words else f"sends to {channel.target}"
            output.out(f"Allowed on this machine: {foreign_name(channel.name)} {what}\n")
    return 0


def run(call: Call) -> int:
    store = default_store()
    ended = threading.Event()

    def stop(number: int, _: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    config = load()
    all_channels(store, config)  # a store or a file that cannot be used ends the command here
    for error in invalid_channels(config).values():
        output.err(f"Warning: {shown(error)}\n")

    def report(channel: str, what: str, text: str) -> None:
        if not call.json:
            output.out(f"{foreign_name(channel)}: {what}: {shown(text)}\n")

    if not call.json:
        output.err("Notifications are sent until Ctrl-C ends it.\n")
    with notifier_for(store, "notify", report):
        while not ended.wait(3600.0):
            pass
    call.answer({"ended": True})
    return 0


def _refuse_agent(what: str) -> None:
    if settings.assigned_task() is not None:
        raise BadInput(f"the agent of a task cannot {what}: a person does it in a terminal.")


def _names(call: Call, option: str) -> tuple[str, ...]:
    words = ",".join(call.every(option)).split(",")
    names = [word.strip() for word in words if word.strip()]
    return tuple(KINDS) if names == ["all"] else tuple(dict.fromkeys(names))


def _again(text: str) -> float:
    try:
        seconds = parse_wait(text, "--again")
    except BadInput:
        seconds = -1.0
    if seconds and seconds < MIN_AGAIN:
        raise BadInput(f"--again is {text[:40]!r}, but must be {AGAIN_RULE}.")
    return seconds


def _secret(call: Call) -> str:
    path = call.options.get("--secret-file")
    return "" if path is None else _line_of(path, "the secret")


def _line_of(path: str, what: str) -> str:
    """Return the first line of a file, or of standard input for "-"."""
    try:
        if path == "-":
            line = sys.stdin.readline(_MAX_SECRET)
        else:
            with open(path, encoding="utf-8") as file:
                line = file.readline(_MAX_SECRET)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise BadInput(f"{what} cannot be read from {path[:80]!r}: {why}.") from None
    if not line.strip():
        raise BadInput(f"{what} is empty in {path[:80]!r}.")
    return line.strip()


def _absence(missing: str) -> str:
    return f"not on this machine: {shown(missing)}"


def _chosen(call: Call, channels: list[Channel], config: Config) -> list[Channel]:
    """Return the channel that the call names, else all. Raise BadInput without any."""
    name = call.get(0)
    found = [each for each in channels if name in ("", each.name)]
    if not found and name in (wrong := invalid_channels(config)):
        raise BadInput(wrong[name])
    if not found:
        about = f"channel {foreign_name(name)}" if name else "channel"
        raise BadInput(f"there is no such {about}. See: swarm notify list")
    return found


def _mailbox(store: Store, channel: Channel) -> Mailbox:
    data = store.read(mailbox_key(channel.name))
    try:
        return decode(data) if data is not None else Mailbox()
    except (ValueError, TypeError, KeyError):
        return Mailbox()


def _forget(store: Store, name: str) -> None:
    """Remove the mailbox of a channel. Its sender finds it gone, and ends."""
    while (data := store.read(mailbox_key(name))) is not None:
        try:
            if store.remove(mailbox_key(name), data):
                return
        except StoreError:
            return  # it stays for a channel of the same name, and does no harm


def _state(box: Mailbox) -> dict[str, Any]:
    return {
        "sent": box.sent,
        "waiting": len(box.waiting),
        "dropped": box.dropped,
        "last_sent": box.sent_at or None,
        "failing": bool(box.error),
        "last_error": box.error or None,
        "last_failure": box.error_at or None,
    }


def _story(box: Mailbox) -> list[str]:
    last = f", the last at {shown(box.sent_at)}" if box.sent_at else ""
    lines = [f"{box.sent} sent{last}; {len(box.waiting)} wait"]
    if box.dropped:
        lines[0] += f"; {box.dropped} dropped"
    if box.error:
        lines.append(f"failing since its last try at {shown(box.error_at)}: {shown(box.error)}")
    return lines


def _line(channel: Channel) -> str:
    parts = [f"{foreign_name(channel.name)}  {channel.kind} {channel.target}", ",".join(channel.on)]
    if channel.quiet:
        parts.append(f"quiet {shown(channel.quiet)}")
    if channel.always:
        parts.append(f"always {','.join(channel.always)}")
    if channel.again:
        parts.append(f"again after {channel.again:g} s")
    return "  ".join(parts)


_TARGETS = {
    NTFY: "the URL of a topic, such as https://ntfy.sh/TOPIC, for a phone",
    "webhook": "a URL that gets each event as JSON, or as Slack reads it (--format slack)",
    DESKTOP: "this desktop, by notify-send or osascript",
    PROGRAM: "a program after --, with the event as JSON on standard input",
}
COMMANDS = {
    "add": Command(
        add,
        "Add a channel to which notifications go.",
        "swarm notify add ntfy https://ntfy.sh/my-secret-topic --quiet 22:00-07:00",
        positional=("KIND",),
        optional=("URL",),
        command_line="optional",
        options=(
            Option("--name", "NAME", "the name of the channel; default: its kind"),
            Option("--on", "EVENTS", "the events, with commas; all for all; default: see below"),
            Option("--quiet", "HOURS", "send nothing in these hours, such as 22:00-07:00"),
            Option("--always", "EVENTS", "events that are sent also in quiet hours"),
            Option(
                "--again", "S", "send a question again that is open after S seconds, 60 or more"
            ),
            Option("--format", "F", "what a webhook gets: json (default) or slack"),
            Option("--url-env", "NAME", "the variable that has the URL: SWARM_NOTIFY_…"),
            Option("--secret-env", "NAME", "the variable that has the secret: SWARM_NOTIFY_…"),
            Option("--secret-file", "FILE", "read the secret from a file; - for standard input"),
            Option("--allow-http", text="allow a URL without encryption"),
        ),
        details=(
            f"KIND is {', '.join(CHANNEL_KINDS[:-1])} or {CHANNEL_KINDS[-1]}:",
            _TARGETS,
            (
                "URL is - to read it from standard input. The secret signs the requests of a "
                "webhook, and is the access token of ntfy."
            ),
        ),
        notes=(
            f"The events; the default is all but {', '.join(sorted({*KINDS} - {*USUAL}))}:",
            {name: kind.text for name, kind in KINDS.items()},
            (
                "Workers, swarm web and swarm notify run send notifications: one process at a time "
                "for each channel, on all machines together."
            ),
        ),
    ),
    "list": Command(
        list_channels,
        "List the channels, without their secrets, with the last success and failure.",
        "swarm notify list",
    ),
    "test": Command(
        test,
        "Send a test to a channel now, or to all channels.",
        "swarm notify test ntfy",
        optional=("NAME",),
        exit_codes="1 if a test did not arrive",
    ),
    "remove": Command(
        remove,
        "Remove a channel.",
        "swarm notify remove ntfy",
        positional=("NAME",),
    ),
    "allow": Command(
        allow,
        "Allow channels of swarm.toml, and commands, on this machine.",
        "swarm notify allow",
        optional=("NAME",),
        details=(
            (
                "swarm.toml comes with a repository. Its channels would run commands here, or send "
                "the texts of tasks away. So a user allows them, once for each change: swarm "
                "notify list shows them."
            ),
        ),
    ),
    "run": Command(
        run,
        "Send notifications until Ctrl-C, without a worker or a page.",
        "swarm notify run",
    ),
}
