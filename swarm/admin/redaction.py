"""Take secrets, and texts of people and agents, out of data that leaves the machine.

`Redaction.text` removes secrets that this process knows, and everything that looks like
one. No rule can find each secret in free text. Therefore `Redaction.record` also removes
all texts that swarm has not written itself, unless the user wants them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from swarm import settings
from swarm.stores.secrets import known_secrets, scrub

_HIDDEN = "…"
_MAX_NAME = 200  # characters of a name in a record
_MIN_SECRET = 6  # characters of the value of a variable that is hidden wherever it occurs
_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|api.?key|private.?key|access.?key|credential|auth|cookie|_key$",
    re.IGNORECASE,
)
# Up to the last @: a password may contain slashes and an @.
_URL = re.compile(
    r"""\b([a-z][a-z0-9+.-]*://)(?:[^\s"'<>]*@)?([^\s/?#"'<>\\]*)([^\s"'<>]*)""", re.IGNORECASE
)
_ASSIGNMENT = re.compile(
    r"""([\w.-]*(?:token|secret|passw|passphrase|api.?key|private.?key|access.?key|credential"""
    r"""|authorization|cookie)[\w.-]*["']?\s*[=:]\s*)(?!\d{1,9}\b)"""
    r"""("[^"]*"|'[^']*'|(?:(?:bearer|basic|token)\s+)?[^\s"',;]+)""",
    re.IGNORECASE,
)
_OPTION = re.compile(
    r"(--?[\w-]*(?:token|secret|passw|api-?key|credential)[\w-]*\s+)(?!\d{1,9}\b)\S+", re.IGNORECASE
)
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.+/=~-]{8,}", re.IGNORECASE)
_KNOWN_FORM = re.compile(
    r"\b(?:sk-|pk-|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|AKIA|ASIA|AIza|eyJ|tk_)[\w.-]{8,}"
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL
)
# The keys of records whose values are names, times and words of swarm.
_NAMES = frozenset(
    (
        *("timestamp", "at", "since", "until", "due", "generated_at", "asked_at", "cursor"),
        *("acquired_at", "heartbeat_at", "expires_at", "type", "state", "op", "status", "kind"),
        *("task_id", "task", "id", "after", "worker", "worker_id", "held_by", "agent", "review"),
        *("question", "needs", "source", "answered_as", "branch", "commit", "work", "base"),
        *("tree", "landed", "submitted", "returned", "project", "state_dir", "store", "event"),
    )
)


class Redaction:
    """What is removed for one answer. `with_texts` keeps the texts, without secrets."""

    def __init__(self, *, with_texts: bool = False) -> None:
        self.with_texts = with_texts
        self._secrets = _secrets(settings.environment())

    def text(self, text: str) -> str:
        """Return a text without secrets, and with addresses cut behind the host."""
        text = scrub(text, self._secrets)
        text = _PRIVATE_KEY.sub(_HIDDEN, text)
        text = _URL.sub(_address, text)
        text = _ASSIGNMENT.sub(rf"\g<1>{_HIDDEN}", text)
        text = _OPTION.sub(rf"\g<1>{_HIDDEN}", text)
        text = _BEARER.sub(rf"\g<1> {_HIDDEN}", text)
        return _KNOWN_FORM.sub(_HIDDEN, text)

    def data(self, value: Any) -> Any:
        """Return JSON data with `text` applied to each string in it."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): _HIDDEN if _is_secret(name, each) else self.data(each)
                for name, each in value.items()
            }
        return [self.data(each) for each in value] if isinstance(value, list | tuple) else value

    def record(self, value: Any, *, is_name: bool = False) -> Any:
        """Return a record of a log or of the board. Without texts, only numbers, names,
        times and words of swarm stay; `is_name` says that a string should be one.
        """
        if self.with_texts:
            return self.data(value)
        if isinstance(value, str):
            if is_name and _is_one_word(value):
                return self.text(value)
            return f"{_HIDDEN} ({len(value)} characters)" if value else ""
        if isinstance(value, Mapping):
            return {
                self.text(name) if _is_one_word(name) else _HIDDEN: _HIDDEN
                if _is_secret(name, each)
                else self.record(each, is_name=name in _NAMES)
                for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.record(each, is_name=is_name) for each in value]
        return value


def _is_one_word(text: str) -> bool:
    return len(text) <= _MAX_NAME and len(text.split()) <= 1


def _address(match: re.Match[str]) -> str:
    scheme, host, rest = match.groups()
    return f"{scheme}{host}" + (f"/{_HIDDEN}" if rest.strip("/.,;:)]") else rest)


def _is_secret(name: object, value: object) -> bool:
    """Return whether a field is a secret by its name. Fencing tokens are numbers."""
    if name in ("token", "current_token") and isinstance(value, int):
        return False
    if isinstance(value, bool | None) or str(name).endswith("_tokens"):
        return False
    return _SECRET_NAME.search(str(name)) is not None and not str(name).endswith("_env")


def _secrets(environment: Mapping[str, str]) -> Collection[str]:
    named = {
        value
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and len(value) >= _MIN_SECRET and not value.isdigit()
    }
    return sorted({*known_secrets(), *named}, key=len, reverse=True)
