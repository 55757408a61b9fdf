"""Agents that note when they are at work, and what their notes prove: who worked on which task, from when until when.

Every note is one line, appended to one file that all hosts share, with a reading of CLOCK_MONOTONIC, which is the same for all of
them. An agent notes that it is at work every few milliseconds: the last note of one that was killed is when it was still at work.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

# Arguments: where to note, for how many seconds to work (or: until which file exists), how to behave.
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
    """One agent at work on a task. `ended`: by itself."""

    host: str
    task: str
    token: int
    first: float
    last: float
    ended: bool


def agent(notes: Path, until: float | Path, *behaviour: str) -> list[str]:
    """The command line of an agent."""
    return [sys.executable, "-I", "-S", "-c", AGENT, str(notes), str(until), *behaviour]


def spells(notes: Path) -> list[Spell]:
    """All of them, in the order of their beginnings."""
    found: dict[tuple[str, int], Spell] = {}
    for line in notes.read_text().splitlines() if notes.exists() else ():
        what, host, task, token, at = line.split()
        first = found[task, int(token)].first if (task, int(token)) in found else float(at)
        found[task, int(token)] = Spell(host, task, int(token), first, float(at), what == "end")
    return sorted(found.values(), key=lambda spell: spell.first)


def assert_one_at_a_time(notes: Path) -> None:
    """No two agents were at work on the same task at the same time, and whoever came later had the larger token."""
    last: dict[str, Spell] = {}
    for spell in spells(notes):
        before = last.get(spell.task)
        if before is not None:
            assert before.last < spell.first, f"two at a time: {before} and {spell}"
            assert before.token < spell.token
        last[spell.task] = spell
