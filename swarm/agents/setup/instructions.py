"""The texts that tell an agent about swarm: the instructions and the skill."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

SKILL_MARK = "source: swarm-coordination"  # in the frontmatter of swarm's own skill
_INSTRUCTIONS = """\
## Working in a swarm

Several agents work here at the same time. `swarm` prevents conflicts between them.
Run `{prime}` first: it prints your worker name, your task, who else works on what, and
the commands to use. If a worker started you for one task, do only this task: the worker
claims and ends it. If an answer says `must_stop`, stop at once: the task is not yours,
and you must write nothing for it.
"""


def instructions(command: Sequence[str]) -> str:
    """Return the instructions that every agent reads."""
    return _INSTRUCTIONS.format(prime=shlex.join([*command, "prime"]))


def skill_text() -> str:
    """Return the text of the skill that is part of swarm."""
    path = os.path.join(
        os.path.dirname(os.path.dirname(__file__)), "plugin", "skills", "swarm", "SKILL.md"
    )
    with open(path, encoding="utf-8") as file:
        return file.read()
