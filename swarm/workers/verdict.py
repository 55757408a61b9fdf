"""Decide how an attempt ended, from its exit code and from what the agent reported.

    the worker was stopped             released: the attempt does not count
    it took too long                   failed
    the agent met a limit              limited: the attempt does not count, the gate closes
    a tool call was denied             failed, even if the agent says that it is done
    exit code 0, no error reported     done
    anything else                      failed

An agent that was denied a tool call has not done what it wanted to do. It may have found
another way, but only a person can tell. So the attempt fails, and its reason names the
tool call and the setting that allows it.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from swarm.presets.contract import EXIT_75, TEMPORARY_FAILURE, Limit, Report
from swarm.presets.limits import limit as make_limit
from swarm.presets.limits import limit_in_last_line
from swarm.presets.readable import last_words
from swarm.status.events import DENIED
from swarm.terminal.text import shorten

DONE, FAILED, STOPPED, LOST, LIMITED = "done", "failed", "stopped", "lost", "limited"
WORKER_STOPPED = "the worker was stopped"

_MAX_REASON = 500  # characters
_MAX_FEEDBACK = 4000  # characters
_SIGNALS = {signal.SIGKILL: "perhaps memory ran out"}


@dataclass(frozen=True)
class Ended:
    """The end of a process.

    `timed_out` is the timeout in seconds if it is the reason of the end. `last_lines`
    are of its output. `now` is the present time in seconds of the Unix clock.
    """

    exit_code: int
    last_lines: tuple[str, ...] = ()
    timed_out: float | None = None
    interrupted: bool = False
    now: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """How an attempt ended: DONE, FAILED, STOPPED or LIMITED.

    `reason` is the result or the reason, in one line that a person can act on.
    `feedback` is for the next attempt. `final`: another attempt would end alike.
    """

    outcome: str
    reason: str
    feedback: str = ""
    limit: Limit | None = None
    final: bool = False


def judge(ended: Ended, report: Report, *, has_agent: bool) -> Verdict:
    """Return how an attempt ended. `has_agent`: the process was an agent, and not the
    task's own command.
    """
    if ended.interrupted:
        return Verdict(STOPPED, WORKER_STOPPED)  # even if the exit code is 0
    feedback = _feedback(ended, report)
    if ended.timed_out is not None:
        return Verdict(FAILED, f"timed out after {ended.timed_out:g} seconds", feedback)
    is_error = ended.exit_code != 0 or bool(report.error)
    found = report.limit or _limit_of_text(ended, has_agent=has_agent)
    if is_error and found is not None:
        return Verdict(LIMITED, found.text, limit=found)
    if report.denials:
        return Verdict(FAILED, _denied(report), feedback)
    if not is_error:
        return Verdict(DONE, report.result)
    return Verdict(FAILED, _why(ended, report.error), feedback)


def _why(ended: Ended, error: str) -> str:
    """Return the reason of a failure: what the agent calls its error, else the exit code
    or the signal with the last words.
    """
    number = ended.exit_code - 128
    if ended.exit_code > 128 and number in signal.valid_signals():
        hint = _SIGNALS.get(signal.Signals(number), "")
        return f"ended by {signal.Signals(number).name}" + (f", {hint}" if hint else "")
    if error:
        return shorten(error, _MAX_REASON)
    line = last_words(ended.last_lines)
    reason = f"exit code {ended.exit_code}"
    return f"{reason}: {line}" if line else reason


def _limit_of_text(ended: Ended, *, has_agent: bool) -> Limit | None:
    """Return the limit of an agent whose output swarm does not understand."""
    if not has_agent or ended.exit_code == 0:
        return None
    line = last_words(ended.last_lines)
    if ended.exit_code == TEMPORARY_FAILURE:
        return make_limit(EXIT_75, line or f"exit code {ended.exit_code}", ended.now)
    return limit_in_last_line(line, ended.now)


def _denied(report: Report) -> str:
    first = report.denials[0]
    more = len(report.denials) - 1
    others = f" and {more} more" if more else ""
    return shorten(f"{DENIED}{first.text}{others}. To allow it, {first.cure}.", _MAX_REASON)


def _feedback(ended: Ended, report: Report) -> str:
    denied = [f"{DENIED}{denial.text}" for denial in report.denials]
    text = "\n".join((*ended.last_lines, *denied))
    return text[-_MAX_FEEDBACK:]
