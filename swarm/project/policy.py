"""The policy of a project: which tool calls of its agents need no person.

A rule is `TOOL`, for every call of a tool, or `TOOL(PATTERN)`. The pattern is compared
with the command of a call, or with its path or address. `*` stands for any text, also
with spaces and slashes. Every other character stands for itself.

    deny     wins over ask, and ask over allow
    ask      a person decides, although an allow rule fits, too
    allow    fits only a call of which each part fits

An agent may write any command, so an allow rule with `*` never fits a command that a
shell could read as more than one: with an operator, a substitution, a redirection, an
escape, or a character that is not printable. A deny or ask rule fits also if one part of
such a command fits.

While there is a deny or ask rule for the tool, no allow rule but the exact text of a
command fits a command that is not plain, or that has the words of such a rule. So a
person is asked. It is no sandbox: a script can hide what it does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from swarm.project.keys import key
from swarm.project.shell_words import (
    OPERATORS,
    forms,
    glob,
    is_one_command,
    mentions,
    names_its_program,
)

ALLOW, DENY, ASK = "allow", "deny", "ask"
# Begins what an agent reads if a person has refused a call, as no agent can write it.
REFUSED_BY_A_PERSON = "A person does not allow it"
MAX_WAIT = 3500.0  # seconds; the hook of an agent gets an hour, also for its start

_RULE = re.compile(r"([A-Za-z0-9_.*-]+)(?:\((.+)\))?")


class Rule(NamedTuple):
    """A rule as it is written. `pattern` is None if the rule has none."""

    text: str
    tool: str
    pattern: str | None

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Return the rule in a text. Raise ValueError if it is none."""
        found = _RULE.fullmatch(text)
        if found is None:
            raise ValueError(f"has {text[:60]!a}, but a rule is TOOL or TOOL(PATTERN)")
        return cls(text, found[1], found[2])


def _rules(allow: bool) -> Callable[[list[object]], None]:
    """Return the check of a list of rules."""

    def check(values: list[object]) -> None:
        for value in values:
            if not isinstance(value, str):
                raise ValueError('must be a list of rules in quotes, such as ["Bash(make test)"]')
            if not value.isprintable():
                raise ValueError(f"has {value[:60]!a}, but a rule has only printable characters")
            pattern = Rule.parse(value).pattern or ""
            if pattern.endswith(":*"):
                raise ValueError(
                    f"has {value[:60]!a}: write a space for the colon, as in Bash(git status *)"
                )
            if allow and "*" in pattern and any(sign in pattern for sign in OPERATORS):
                raise ValueError(
                    f"has {value[:60]!a}, which would fit no command: a rule with * allows one "
                    "plain command, without operators of a shell"
                )

    return check


def _check_wait(value: float) -> None:
    if not 0 <= value <= MAX_WAIT:
        raise ValueError(f"must be a number of seconds from 0 to {MAX_WAIT:g}")


class ToolCall(NamedTuple):
    """A call for which an agent needs a permission.

    `commands` are texts for a shell. `names` are the paths or addresses of the call;
    `other_names` are further names of the same files, under which a rule may forbid them.
    """

    tool: str
    commands: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    other_names: tuple[str, ...] = ()


class Decision(NamedTuple):
    """The decision about a call, and the rule that made it."""

    verdict: str
    rule: str


@dataclass(frozen=True)
class Policy:
    """The table `[policy]` of `swarm.toml`."""

    allow: Sequence[str] = key(
        list,
        (),
        "tool calls for which no person is asked",
        '["Bash(make test)", "WebFetch(https://docs.python.org/*)"]',
        _rules(allow=True),
    )
    deny: Sequence[str] = key(
        list,
        (),
        "tool calls that are refused without a question; deny wins over ask and allow",
        '["Bash(git push *)"]',
        _rules(allow=False),
    )
    ask: Sequence[str] = key(
        list,
        (),
        "tool calls about which a person decides, although an allow rule fits",
        '["Bash(make deploy*)"]',
        _rules(allow=False),
    )
    wait: float = key(
        float,
        600.0,
        "the seconds for which an agent waits that shows no prompt of its own meanwhile",
        "60",
        _check_wait,
    )

    def decide(self, call: ToolCall) -> Decision | None:
        """Return the decision about a call, None if no rule fits."""
        guards = []
        for verdict, rules in ((DENY, self.deny), (ASK, self.ask)):
            for rule in _rules_for(call, rules):
                if _may_fit(rule, call):
                    return Decision(verdict, rule.text)
                guards.append(rule.pattern or "")
        is_clear = _is_clear_of(guards, call)
        for rule in _rules_for(call, self.allow):
            if _surely_fits(rule, call) and (is_clear or _is_exact(rule)):
                return Decision(ALLOW, rule.text)
        return None


def _rules_for(call: ToolCall, rules: Sequence[str]) -> list[Rule]:
    return [rule for rule in map(Rule.parse, rules) if glob(rule.tool, call.tool)]


def _is_exact(rule: Rule) -> bool:
    return rule.pattern is not None and "*" not in rule.pattern


def _surely_fits(rule: Rule, call: ToolCall) -> bool:
    """Return whether a rule fits each part of a call. A pattern needs such parts."""
    pattern = rule.pattern
    if pattern is None:
        return True
    return (
        bool(call.commands or call.names)
        and all(_fits_command(pattern, each) for each in call.commands)
        and all(glob(pattern, each) and each.isprintable() for each in call.names)
    )


def _fits_command(pattern: str, command: str) -> bool:
    if "*" not in pattern:
        return command == pattern
    return glob(pattern, command) and is_one_command(command)


def _may_fit(rule: Rule, call: ToolCall) -> bool:
    """Return whether a rule fits a part of a call. `X *` fits also `X` alone."""
    pattern = rule.pattern
    if pattern is None:
        return True
    texts = [form for command in call.commands for form in forms(command)]
    bare = pattern.removesuffix(" *")
    return any(glob(pattern, each) or glob(bare, each) for each in texts) or any(
        glob(pattern, each) for each in (*call.names, *call.other_names)
    )


def _is_clear_of(patterns: Sequence[str], call: ToolCall) -> bool:
    """Return whether a call surely does nothing that a deny or ask rule may mean."""
    if not patterns:
        return True
    return bool(call.commands or call.names) and all(
        is_one_command(each)
        and names_its_program(each)
        and not any(mentions(each, pattern) for pattern in patterns)
        for each in call.commands
    )
