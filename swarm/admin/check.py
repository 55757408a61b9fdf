"""The result of one check of `swarm doctor`."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARNING, FAULT = "ok", "warning", "fault"


@dataclass(frozen=True)
class Check:
    """The result of one check. `state` is ok, warning or fault.

    A fault prevents work, or has lost work. A warning reports a risk. `fix` is the
    command that helps, "" if no command is needed.
    """

    name: str
    state: str
    text: str
    fix: str = ""
