"""A worker of swarm that breaks one rule of landing, or none, and that can be stopped
just before it moves the branch: `python faulty_worker.py FAULT DIRECTORY worker …`. The
fault `SLEEPER` breaks no rule: it is stopped just before its agent starts.

With a DIRECTORY other than `-`, the process says so in the file `reached` there and
stops itself, once. The file `moved` there then tells whether the branch was moved.
Everything else is swarm's own code.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

NO_FAULT = "none"
NO_LOCK = "without the lock and the fence"
NO_COMPARISON = "without comparing"
SLEEPER = "asleep before its agent"


def break_rule(fault: str) -> None:
    """Replace the rule by its faulty form, in this process."""
    from swarm.landing.target import LocalTarget, Move

    if fault in (NO_FAULT, SLEEPER):
        return
    transaction = LocalTarget.lines

    def lines(self: LocalTarget, move: Move) -> list[str]:
        made = transaction(self, move)
        if fault == NO_LOCK:
            return [line for line in made if "/fence/" not in line]
        return [" ".join(line.split()[:3]) for line in made if line.startswith("update ")]

    LocalTarget.lines = lines  # type: ignore[method-assign]
    if fault == NO_LOCK:
        _give_lock_to_all()


def _give_lock_to_all() -> None:
    """Give every process a lock of its own for the branch."""
    from swarm.landing import lander

    lander.NAMESPACE = f"landing-{os.getpid()}"


def stop_before_move(directory: Path) -> None:
    """Stop this process before its first landing."""
    from swarm.landing.target import LocalTarget, Move

    move_branch = LocalTarget.move

    def move(self: LocalTarget, move: Move) -> bool:
        if (directory / "reached").exists():
            return move_branch(self, move)
        (directory / "reached").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
        moved = move_branch(self, move)
        (directory / "moved").write_text(str(moved))
        return moved

    LocalTarget.move = move  # type: ignore[method-assign]


def stop_before_agent(directory: Path) -> None:
    """Stop this process before its first agent starts."""
    from swarm.system.child import GatedProcess

    execute = GatedProcess.exec

    def stopped(self: GatedProcess, *args: Any, **options: Any) -> None:
        if not (directory / "reached").exists():
            (directory / "reached").touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        execute(self, *args, **options)

    GatedProcess.exec = stopped  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
    from swarm.cli.main import main

    break_rule(sys.argv[1])
    if sys.argv[2] != "-":
        stop = stop_before_agent if sys.argv[1] == SLEEPER else stop_before_move
        stop(Path(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
