"""Decide how an attempt ended, from its exit code and from what the agent reported.

    the worker was stopped             released: the attempt does not count
    a user halted it                   the same; a question that its agent holds is parked
    it took too long                   failed
    it was ended because it was stuck  failed
    the agent met a limit              limited: the attempt does not count, the gate closes
    its last word is a question        asked: the attempt does not count, the task is parked
    a tool call was denied             failed, even if the agent says that it is done
    exit code 0, no error reported     done
    anything else                      failed

An agent that was denied a tool call has not done what it wanted to do. It may have found
another way, but only a person can tell. So the attempt fails, and its reason names the
tool call and the setting that allows it. An agent that asks after a denial waits for the
person in any case.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from swarm.presets.contract import EXIT_75, TEMPORARY_FAILURE, Limit, Report
from swarm.presets.limits import limit as make_limit
from swarm.presets.limits import limit_in_last_line
from swarm.presets.readable import last_words
from swarm.status.events import DENIED
from swarm.terminal.text import shorten
from swarm.workers.last_word import Asked

DONE, FAILED, STOPPED, LOST, LIMITED = "done", "failed", "stopped", "lost", "limited"
ASKED = "asked"
SUBMITTED = "submitted"  # done, as far as the worker is concerned
WORKER_STOPPED = "the worker was stopped"

APPROVED, REJECTED = "APPROVED", "REJECTED"
_DECORATION = re.compile(r"^[*_`>#\s]+|[*_`\s.]+$")  # as models write Markdown
_MAX_REASON = 500  # characters
_MAX_FEEDBACK = 4000  # characters
_SIGNALS = {signal.SIGKILL: "perhaps memory ran out"}


@dataclass(frozen=True)
class Ended:
    """The end of a process.

    `why_stopped` is the reason of an `interrupted` process, `timed_out` the timeout in
    seconds if it is the reason of the end. `given_up`: it was ended because it was stuck;
    `stuck` says how, also if it was only interrupted.
    `last_lines` are of its output. `now` is the present time in seconds of the Unix clock.
    """

    exit_code: int
    last_lines: tuple[str, ...] = ()
    timed_out: float | None = None
    interrupted: bool = False
    why_stopped: str = WORKER_STOPPED
    given_up: bool = False
    stuck: str = ""
    now: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """How an attempt ended: DONE, FAILED, STOPPED, LIMITED or ASKED; see `settlement` for
    what becomes of it.

    `reason` is the result or the reason, in one line that a person can act on.
    `feedback` is for the next attempt. `final`: another attempt would end alike.
    `is_of_work`: the agent ended well, but its work did not pass. `counts` is False if
    the attempt does not count, and the next one begins without its work. `question` is
    that of ASKED.
    """

    outcome: str
    reason: str
    feedback: str = ""
    limit: Limit | None = None
    final: bool = False
    is_of_work: bool = False
    counts: bool = True
    question: Asked | None = None


def judge(
    ended: Ended, report: Report, *, has_agent: bool, question: Asked | None = None
) -> Verdict:
    """Return how an attempt ended. `has_agent`: the process was an agent, and not the
    task's own command. `question` is the agent's last word, if it may ask.
    """
    if ended.interrupted:
        return Verdict(STOPPED, ended.why_stopped)  # even if the exit code is 0
    feedback = _feedback(ended, report)
    if ended.timed_out is not None:
        return Verdict(FAILED, f"timed out after {ended.timed_out:g} seconds", feedback)
    if ended.given_up:
        return Verdict(FAILED, ended.stuck, feedback)
    is_error = ended.exit_code != 0 or bool(report.error)
    found = report.limit or _limit_of_text(ended, has_agent=has_agent)
    if is_error and found is not None:
        return Verdict(LIMITED, found.text, limit=found)
    if not is_error and question is not None:
        return asked(question)
    if report.denials:
        return Verdict(FAILED, _denied(report), feedback)
    if not is_error:
        return Verdict(DONE, report.result)
    if ended.stuck:
        return Verdict(FAILED, f"interrupted, because it {ended.stuck}", feedback)
    return Verdict(FAILED, _why(ended, report.error), feedback)


def asked(question: Asked) -> Verdict:
    """Return the verdict of an attempt that ended with a question."""
    return Verdict(ASKED, question.text, question=question)


def review_verdict(result: str) -> Verdict:
    """Return how a review ended, from the last line of the reviewer's final message.

    `APPROVED` is done. `REJECTED: why` is a final failure: the review has its answer.
    Any other last line means that the attempt at a review failed, also a question: a
    reviewer that needs to know more rejects the work, and says what is missing.
    """
    lines = [line.strip() for line in result.splitlines() if line.strip()]
    last = _DECORATION.sub("", lines[-1]) if lines else ""
    if last == APPROVED:
        return Verdict(DONE, shorten(" ".join([APPROVED, *lines[:-1]]), _MAX_REASON))
    word, _, why = last.partition(":")
    if word == REJECTED and why.strip():
        return Verdict(
            FAILED, shorten(last, _MAX_REASON), "\n".join(lines)[-_MAX_FEEDBACK:], final=True
        )
    return Verdict(
        FAILED,
        f"the review has no verdict: its last line must be {APPROVED} or {REJECTED}: and why",
        "\n".join(lines)[-_MAX_FEEDBACK:],
    )


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
