"""The words about a pause: a closed gate that stops every claim, of all tasks or of those
with a label (`queue.gates`).

Every program and every agent reads the same facts: by whom, why, since when, until when,
and the command that ends the pause. The reason is the text of a user or an agent.
"""

from __future__ import annotations

from swarm.errors import NoTask
from swarm.queue.gates import Gate
from swarm.terminal.text import duration, foreign, foreign_name, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# For an agent whose claim was refused.
ADVICE = (
    "Stop: do not work on any task now, and do not claim again and again: every claim is "
    "refused until the pause ends. Say so to your user, and end your turn. Do not end the "
    "pause yourself, unless your user tells you to."
)


def refusal(gate: Gate, now: float) -> NoTask:
    """Return the error for a claim that a pause stops."""
    return NoTask("gate", sentence(gate, now), ready_in=gate.seconds_left(now), paused=facts(gate))


def sentence(gate: Gate, now: float) -> str:
    """Return what is paused, by whom, why and until when, and how to resume."""
    left = gate.seconds_left(now)
    until = "until a user resumes it"
    if left is not None:
        until = f"until {gate.until} (in {duration(left)}), or until a user resumes it"
    return (
        f"{subject(gate)} paused by {foreign_name(gate.worker or '?')} since {gate.since}, "
        f"{until}. Reason: {foreign(gate.reason) if gate.reason else 'none was given'}. "
        f"To resume: {resume_command(gate)}"
    )


def summary(gate: Gate, not_ended: int = 0) -> str:
    """Return what is paused, by whom, why and until when, without an age. `not_ended` is
    the number of halted attempts that have not ended.
    """
    until = f"until {gate.until}" if gate.until else "until a user resumes it"
    text = f"{subject(gate)} paused by {foreign_name(gate.worker or '?')}, {until}"
    if gate.reason:
        text += f": {foreign(gate.reason)}"
    if not_ended:
        are = "attempts have" if not_ended > 1 else "attempt has"
        text += f". {not_ended} halted {are} not ended yet"
    return text


def subject(gate: Gate) -> str:
    """Return the paused tasks as the beginning of a sentence."""
    return (
        f"the tasks with the label {foreign_name(gate.label)} are"
        if gate.label
        else ("all tasks are")
    )


def resume_command(gate: Gate) -> str:
    return f"swarm resume --label {quoted(gate.label)}" if gate.label else "swarm resume"


def facts(gate: Gate) -> dict[str, Any]:
    """Return a pause as a dict for JSON."""
    return {
        "label": gate.label or None,
        "by": gate.worker,
        "why": gate.reason or None,
        "since": gate.since,
        "until": gate.until or None,
        "resume": resume_command(gate),
    }
