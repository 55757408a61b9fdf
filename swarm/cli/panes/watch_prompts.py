"""`swarm watch-prompts`: answer prompts of interactive agents that have no hooks."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from swarm.cli.arguments import Call, Command, Option, print_json
from swarm.errors import AgentUnavailable, StoreError, SwarmError, TmuxSwarmError
from swarm.project.config import load
from swarm.stores.default import default_store
from swarm.system.job_control import exit_on_signals
from swarm.terminal import output
from swarm.terminal.text import foreign
from swarm.tmux.manager import TmuxSwarmManager
from swarm.tmux.prompt_records import PromptRecords
from swarm.tmux.prompt_watch import GONE, MODES, OFF, TYPED, Event, PromptWatch, Rules, rules_of

_INTERVAL = 1.0  # seconds between two looks


def watch_prompts(call: Call) -> int:
    manager = TmuxSwarmManager()
    rules = rules_of(load().prompts, call.options.get("--answer", ""))
    if not rules.answer:
        if not call.answer({"answer": []}):
            output.out(f"No prompts are answered: the mode is {OFF}.\n")
        return 0
    if not manager.agents():
        raise AgentUnavailable("no agent was started here. Start agents with: swarm up")
    with _alone(manager):
        exit_on_signals()
        _watch(call, manager, rules)
    return 0


def _watch(call: Call, manager: TmuxSwarmManager, rules: Rules) -> None:
    records = PromptRecords(default_store())
    watch = PromptWatch(manager, rules, records, lambda event: _report(call, event))
    if not call.json:
        how = "Dry run for" if rules.dry_run else "Answering"
        output.out(f"{how} the classes: {', '.join(sorted(rules.answer))}. Ctrl-C ends it.\n")
    warn = output.warn_every_minute()
    is_fresh = True
    try:
        while True:
            try:
                if is_fresh:
                    records.end_left_over()
                    is_fresh = False
                watch.look()
            except (StoreError, TmuxSwarmError) as error:
                warn(error)  # nothing is typed that cannot be logged
            time.sleep(_INTERVAL)
    finally:
        try:
            watch.end()
        except SwarmError:
            pass  # the next start ends the waits


def _report(call: Call, event: Event) -> None:
    if call.json:
        names = ("agent", "what", "kind", "text", "detail")
        print_json({name: getattr(event, name) for name in names})
        return
    words = {TYPED: f"typed {event.detail} at", GONE: "gone:"}
    what = words.get(event.what, f"a person must answer ({event.detail}):")
    at = time.strftime("%H:%M:%S")
    output.out(f"{at} {event.agent} {what} {foreign(event.text)} [{event.kind}]\n")


@contextmanager
def _alone(manager: TmuxSwarmManager) -> Iterator[None]:
    """Keep a second process from answering the same prompts."""
    path = f"{manager.socket}.prompts"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AgentUnavailable(
                "another process answers the prompts of this swarm already. To see it: swarm agents"
            ) from None
        yield
    finally:
        os.close(fd)


COMMAND = Command(
    watch_prompts,
    "Answer prompts in the panes of interactive agents that have no hooks of swarm.",
    "swarm watch-prompts --answer dry-run",
    options=(
        Option(
            "--answer",
            "MODE",
            f"one of {', '.join(MODES)}; default: as [prompts] in swarm.toml says, else off",
        ),
    ),
    details=(
        (
            "The last lines of a pane are matched against three classes: danger (never "
            "answered), confirm (yes or no), enter (press Enter to continue). swarm up "
            "--answer-prompts runs this command in a pane of its own."
        ),
        (
            "Each answer is in the status log, and each prompt that only a person answers is "
            "shown as a problem. Exit 1: no agent was started, or another process answers "
            "already."
        ),
    ),
    notes=("docs/reference/prompts.md has the classes, the settings and the limits.",),
)
