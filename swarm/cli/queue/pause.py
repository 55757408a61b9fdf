"""`swarm pause` and `swarm resume`: stop all claims, and let them go on."""

from __future__ import annotations

import time

from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command, Option
from swarm.cli.queue.gate import until_of
from swarm.errors import BadInput, StoreError
from swarm.inputs import check_plain_name
from swarm.queue.pauses import pausing
from swarm.queue.queue import TaskQueue
from swarm.terminal import output
from swarm.terminal.text import foreign_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from swarm.queue.pauses.halting import Running

_WAIT = 30.0  # seconds for which --halt waits by default
_LOOK_INTERVAL = 0.5  # seconds: no event reports the end of a process


def pause(call: Call) -> int:
    queue, halts = TaskQueue(), "--halt" in call.options
    if "--wait" in call.options and not halts:
        raise BadInput("--wait is for --halt, which waits for the end of the attempts.")
    wait = call.seconds("--wait", _WAIT)
    found = queue.pause(
        call.get(0),
        whoami(fallback="user"),
        label=_label(call),
        until=until_of(call),
        halt=halts,
    )
    if not call.json:
        text = pausing.sentence(found.gate, queue.now())
        before = "" if found.is_new else "It was paused already, and a pause is never shortened: "
        output.out(f"Paused. {before}{text[:1].upper() if not before else text[:1]}{text[1:]}\n")
    left = _await_end(queue, found.running, wait) if halts else list(found.running)
    ended = [each for each in found.running if each not in left]
    fields = {
        "paused": True,
        "new": found.is_new,
        **pausing.facts(found.gate),
        "halted": halts,
        "ended": [each._asdict() for each in ended],
        "running": [each._asdict() for each in left],
    }
    if not call.answer(fields):
        output.out(_report(ended, left, halts=halts))
    if not halts or not left:
        return 0
    output.error(f"{len(left)} of {len(found.running)} attempts have not ended yet.")
    return 1


def resume(call: Call) -> int:
    queue, label = TaskQueue(), _label(call)
    resumed = queue.resume(whoami(fallback="user"), label=label)
    left = [gate for gate in queue.gates() if gate.is_pause]
    fields = {"resumed": resumed, "label": label or None}
    if call.answer({**fields, "paused": [pausing.facts(gate) for gate in left]}):
        return 0
    what = f"the tasks with the label {label}" if label else "all tasks"
    text = f"Resumed: {what}\n" if resumed else f"Not paused: {what}\n"
    for gate in left:
        text += f"Still paused: {pausing.sentence(gate, queue.now())}\n"
    output.out(text)
    return 0


def _label(call: Call) -> str:
    """Return the label of --label, "" without the option."""
    if "--label" not in call.options:
        return ""
    return check_plain_name(call.options["--label"], "--label")


def _await_end(queue: TaskQueue, claims: Sequence[Running], wait: float) -> list[Running]:
    """Wait until the claims have ended. Return those that have not ended in time."""
    deadline = time.monotonic() + wait
    left = list(claims)
    while left:
        try:
            left = queue.not_ended(left)
        except StoreError:
            if time.monotonic() >= deadline:
                raise
        seconds = deadline - time.monotonic()
        if not left or seconds <= 0:
            break
        output.transient(f"{len(left)} of {len(claims)} attempts have not ended yet")
        time.sleep(min(seconds, _LOOK_INTERVAL))
    output.transient("")
    return left


def _report(ended: Sequence[Running], left: Sequence[Running], *, halts: bool) -> str:
    """Return lines about the attempts that ran."""
    text = "".join(f"  ended:   {_named(each)}\n" for each in ended)
    if not halts:
        goes_on = "".join(f"  goes on: {_named(each)}\n" for each in left)
        return goes_on + "To end them too: swarm pause --halt\n" * bool(left)
    if not ended and not left:
        return "No attempt ran.\n"
    text += "".join(f"  not yet: {_named(each)}\n" for each in left)
    if left:
        text += (
            "The attempts that have not ended are told to stop. A worker ends its agent within "
            "its --grace. An agent without a worker is told at its next heartbeat, hook or "
            "command; else its lease ends. To look again: swarm status\n"
        )
    return text


def _named(claim: Running) -> str:
    return f"{foreign_name(claim.task_id)} of {foreign_name(claim.worker)} (token {claim.token})"


_PAUSE_LABEL = Option("--label", "LABEL", "only the tasks with this label")
COMMANDS = {
    "pause": Command(
        pause,
        "Pause all tasks: when the command has returned, no claim succeeds, on any machine.",
        "swarm pause 'the account is used elsewhere' --for 2h",
        optional=("REASON",),
        options=(
            _PAUSE_LABEL,
            Option("--for", "TIME", "resume after this time, such as 90, 30m, 2h or 1d"),
            Option("--until", "TIME", "resume at this time, such as 2026-02-02T15:00:00Z"),
            Option("--halt", text="also end the agents that work, and release their tasks"),
            Option("--wait", "S", f"with --halt: wait up to S seconds; default {_WAIT:g}"),
        ),
        details=(
            (
                "Without --for or --until, the pause lasts until swarm resume. A pause is never "
                "made shorter; to do that, resume first. Tasks can be added meanwhile."
            ),
            (
                "Attempts that run go on, unless --halt ends them: their work is saved, they do "
                "not count, and their tasks are ready again. A question that an agent holds "
                "stays open without it."
            ),
        ),
        notes=(
            (
                "A pause stops claims of the queue's tasks. Locks (swarm lock, swarm run) go on, "
                "and finished work still lands."
            ),
        ),
        exit_codes="1 if --halt has not ended all attempts in time",
    ),
    "resume": Command(
        resume,
        "End a pause now: of all tasks, or with --label of the tasks with a label.",
        "swarm resume",
        options=(_PAUSE_LABEL,),
    ),
}
