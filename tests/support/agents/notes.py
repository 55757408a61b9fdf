"""Agents that note when they are at work, and what their notes prove.

All hosts share one file. Each note is one appended line with a reading of
CLOCK_MONOTONIC, which is the same on all of them. An agent notes that it is at work
every few milliseconds. So the last note of a killed agent shows when it was still at
work.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

# Arguments: the file of notes, the seconds to work (or the file to wait for), the
# behaviour.
AGENT = """
import os, select, signal, sys, time
notes = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(what):
    who = os.uname().nodename, os.environ["SWARM_TASK_ID"], os.environ["SWARM_TOKEN"]
    os.write(notes, " ".join((what, *who, repr(time.monotonic()))).encode() + b"\\n")
if "stubborn" in sys.argv[3:]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
note("begin")
begun = time.monotonic()
while not (os.path.exists(sys.argv[2]) if sys.argv[2].startswith("/") else time.monotonic() - begun > float(sys.argv[2])):
    select.select([], [], [], 0.02)
    note("work")
    if "talkative" in sys.argv[3:]:
        print("[WAIT] for an answer", flush=True)
note("end")
"""


@dataclass(frozen=True)
class Spell:
    """The work of one agent on a task.

    `ended` says whether the agent ended by itself.
    """

    host: str
    task: str
    token: int
    first: float
    last: float
    ended: bool


def agent(notes: Path, until: float | Path, *behaviour: str) -> list[str]:
    """Return the command line of an agent."""
    return [sys.executable, "-I", "-S", "-c", AGENT, str(notes), str(until), *behaviour]


def spells(notes: Path) -> list[Spell]:
    """Return all of them, in the order of their beginnings."""
    found: dict[tuple[str, int], Spell] = {}
    for line in notes.read_text().splitlines() if notes.exists() else ():
        what, host, task, token, at = line.split()
        first = found[task, int(token)].first if (task, int(token)) in found else float(at)
        found[task, int(token)] = Spell(host, task, int(token), first, float(at), what == "end")
    return sorted(found.values(), key=lambda spell: spell.first)


def assert_one_at_a_time(notes: Path) -> None:
    """Assert that no two agents worked on a task at once, and that later ones had
    larger tokens.
    """
    last: dict[str, Spell] = {}
    for spell in spells(notes):
        before = last.get(spell.task)
        if before is not None:
            assert before.last < spell.first, f"two at a time: {before} and {spell}"
            assert before.token < spell.token
        last[spell.task] = spell
