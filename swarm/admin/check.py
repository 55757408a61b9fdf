"""The result of one check of `swarm doctor`."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARNING, FAULT = "ok", "warning", "fault"


@dataclass(frozen=True)
class Check:
    """One result. `state` is ok, warning or fault.

    A fault stands in the way of work, or has cost something already. A warning is worth
    knowing. `fix` is the command that helps, "" if none is needed.
    """

    name: str
    state: str
    text: str
    fix: str = ""
