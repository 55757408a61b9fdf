"""Recognise the errors by which an agent says that it cannot work now.

Only texts that the agent's program itself reports as its error belong here. The words
of a model, of a test or of a file are no evidence of a limit.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from swarm.presets.contract import LOGIN, MODEL, OVERLOAD, RATE, USAGE, Limit
from swarm.presets.reset_time import reset_time
from swarm.terminal.text import shorten, shown

MAX_TEXT = 300  # characters of a limit's text
_LONGEST = 400 * 86400.0  # seconds
_MAX_ERROR = 4000  # characters of an error that are searched
_OTHER_MODEL = "Choose a model that exists: --model, or model in swarm.toml."

# The first kind that fits counts. All of these are from the programs' sources or output.
_KINDS = (
    (
        USAGE,
        re.compile(
            r"(?<!not your )usage limit|(?:hit|reached|exceeded) your\b[\w\s-]{0,40}\blimit|"
            r"limit reached|out of (?:extra )?(?:usage|credits)|credit balance is too low|"
            r"spend cap|quota (?:exceeded|exhausted)|exceeded your current quota|"
            r"exhausted your (?:capacity|daily quota)|insufficient_quota|usage_limit|"
            r"usage_not_included|to use codex with your chatgpt plan|"
            r"billing[_ ]hard[_ ]limit|billing_not_active|account is not active|"
            r"QUOTA_EXHAUSTED|TerminalQuotaError",
            re.IGNORECASE,
        ),
    ),
    (
        LOGIN,
        re.compile(
            r"not logged in|please run /login|log ?in again|logged out|sign ?in again|"
            r"invalid (?:x-)?api[- ]key|invalid bearer|api key (?:not valid|is invalid)|"
            r"failed to authenticate|authentication[_ ](?:error|failed)|"
            r"(?:oauth|access|refresh) token\b[^.]{0,40}\b(?:expired|revoked|invalid)|"
            r"(?:session|login|credentials?) (?:has |have )?expired|"
            r"\b401\b|unauthorized|missing environment variable: .*key|"
            r"disabled organization|organization (?:has been|is) disabled|"
            r"must specify the \w+ environment variable|"
            r"FatalAuthenticationError|set an auth method",
            re.IGNORECASE,
        ),
    ),
    (
        MODEL,
        re.compile(
            r"model_not_found|ModelNotFoundError|issue with the selected model|"
            r"\bmodels?\b[^.]{0,80} (?:does not exist|is not found for API version)|"
            r"\bmodel not found\b|model is not supported when using codex",
            re.IGNORECASE,
        ),
    ),
    (
        OVERLOAD,
        re.compile(
            r"\b529\b|\boverloaded|at capacity|high demand|\b503\b|service unavailable|"
            r"temporarily unavailable",
            re.IGNORECASE,
        ),
    ),
    (
        RATE,
        re.compile(
            r"\b429\b|too many requests|rate[- _]?limit|RESOURCE_EXHAUSTED|"
            r"temporarily limiting requests|RetryableQuotaError",
            re.IGNORECASE,
        ),
    ),
)

# With these, Claude Code and Codex end if their output is plain text.
_SENTENCES = re.compile(
    r"(?:ERROR: |Error: )?(?:You[’']ve hit your [\w -]{0,40}limit|"
    r"Claude (?:AI )?usage limit reached|"
    r"Credit balance is too low|Not logged in · |Invalid API key · |Failed to authenticate|"
    r"exceeded retry limit, last status: 429|Quota exceeded\. )"
)


def limit_in(error: str, now: float, *, status: int | None = None) -> Limit | None:
    """Return the limit that an agent's error describes, None if it describes none.

    `status` is the HTTP status of the failed request, if the agent names it. `now` is
    the present time in seconds of the Unix clock.
    """
    error = error[:_MAX_ERROR]
    kind = next((kind for kind, pattern in _KINDS if pattern.search(error)), _by_status(status))
    return limit(kind, error, now) if kind else None


def with_cure(found: Limit | None, error: str, login: str) -> Limit | None:
    """Return a limit whose text is the error and its cure, if a user must do something.

    `login` says how to log in.
    """
    cure = {LOGIN: login, MODEL: _OTHER_MODEL}.get(found.kind, "") if found else ""
    if found is None or not cure:
        return found
    line = shorten(shown(" ".join(error.split())), MAX_TEXT - len(cure) - 2)
    stop = "" if line.endswith((".", "!", "?", "…")) else "."
    return replace(found, text=f"{line}{stop} {cure}")


def limit_in_last_line(line: str, now: float) -> Limit | None:
    """Return the limit in the last line of an agent that prints plain text.

    Only the fixed sentences of known programs count: any program may print about limits.
    """
    return limit_in(line, now) if _SENTENCES.match(line) else None


def limit(kind: str, text: str, now: float, until: float | None = None) -> Limit:
    """Return a limit of this kind. If `until` is None, the text may name the time."""
    line = shorten(shown(" ".join(text.split())), MAX_TEXT)
    if until is not None:
        return Limit(kind, _credible(until, now), line)
    found = reset_time(text[:_MAX_ERROR], now)
    if found is None:
        return Limit(kind, None, line)
    if found.unknown_zone:
        line += (
            f" (this machine has no data about the zone {shown(found.unknown_zone)}, so swarm "
            f"took its own zone; install tzdata)"
        )
    return Limit(kind, _credible(found.at, now), line)


def _credible(until: float, now: float) -> float | None:
    """Return a time, None if it is no time at which a limit could end.

    Infinity means until a user opens the gate.
    """
    return until if until == math.inf or until <= now + _LONGEST else None


def _by_status(status: int | None) -> str:
    return {401: LOGIN, 429: RATE, 503: OVERLOAD, 529: OVERLOAD}.get(status or 0, "")
