"""What the real programs printed, recorded with Claude Code 2.1.326 and Codex 0.169.0.

`output/AGENT/NAME.out` is the standard output of one run, `NAME.err` its standard error
if there was any. The first line of Claude Code was shortened, and its last line lost
some figures that no reader uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from swarm.presets.contract import Reader, Report, Request
from swarm.presets.registry import find

OUTPUT = Path(__file__).parent / "output"


@dataclass(frozen=True)
class Table:
    """A table [agents.NAME] of swarm.toml."""

    command: str
    resume: str = ""
    output: str = "text"
    limit: str = ""


class Config:
    """A swarm.toml with these agents."""

    def __init__(self, **agents: Table) -> None:
        self.agents = agents


def reader(agent: str, request: Request | None = None) -> Reader:
    return find(agent, Config()).reader(request)


def lines_of(agent: str, name: str) -> tuple[list[str], list[str]]:
    """Return the lines of standard output and of standard error."""
    out, err = OUTPUT / agent / f"{name}.out", OUTPUT / agent / f"{name}.err"
    return out.read_text().splitlines(), err.read_text().splitlines() if err.exists() else []


def read(
    agent: str, name: str, exit_code: int, request: Request | None = None
) -> tuple[list[str], Report]:
    """Read a recorded run, and return the readable lines and the report."""
    used = reader(agent, request)
    out, err = lines_of(agent, name)
    shown = [line for text in err for line in used.feed_error(text)]
    shown += [line for text in out for line in used.feed(text)]
    return shown, used.report(exit_code)
