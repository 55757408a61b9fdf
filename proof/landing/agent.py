"""A scripted agent, run by a real worker: `python -I -S agent.py TASK TOKEN ATTEMPT NOTES
SEED`, in its workspace.

Before anything else it writes a unique line into a file of its own and, once that is on
disk, notes the line outside the repository. The checker looks for every noted line.
Then it enters its task in a file that all tasks share, so that tasks conflict. Some
attempts leave a red tree, some fail, some commit and some do not. The choice follows
from seed, task and token; a seed that begins with `calm` has no failures. As long as the
file `hold-TASK` is among the notes, the agent waits after its first line. It imports as
little as possible, since it starts thousands of times.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import zlib

LEDGERS = 6  # files that all tasks share
NUMBERED = 6  # one task of this many takes a number that no other task may have
CALM_AFTER = 5  # attempts; later attempts do their best, so that every run ends
_MARKS = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")


class Choice:
    """Numbers that follow from a text, so that a run can be made again."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._drawn = 0

    def below(self, limit: int) -> int:
        self._drawn += 1
        return zlib.crc32(f"{self._text} {self._drawn}".encode()) % limit


def main() -> int:
    task, token, attempt, notes, seed = sys.argv[1:6]
    choice = Choice(f"{seed} {task} {token}")
    calm = int(attempt) > CALM_AFTER or seed.startswith("calm")
    note_attempt(task, token, notes)
    while os.path.exists(f"{notes}/hold-{task}"):
        sleep(0.01)
    pause(choice)
    if not calm and choice.below(16) == 0:
        sys.exit(f"{task} {token} fails on purpose")  # failures that are alike close a gate
    resolve_conflicts()
    enter(task, token, _round(notes, task))
    if zlib.crc32(task.encode()) % NUMBERED == 0:
        take_number(task)
    pause(choice)
    broken = f"broken/{task}"
    if os.path.exists(broken):
        os.unlink(broken)
    mode = choice.below(6)
    if mode == 0:
        git("add", "-A")
    elif mode == 1:
        commit(task, "work")
    elif mode == 2:
        write(broken, "half done\n")
        commit(task, "half of the work")
        pause(choice)
        os.unlink(broken)
        commit(task, "the other half")
    elif mode == 3:
        git("add", "-A")  # a carried conflict is not resolved for git before this
        git("checkout", "-q", "--detach")
        commit(task, "work on no branch")
    if not calm and choice.below(10) == 0:
        write(broken, "not done\n")
    pause(choice)
    return 0


def note_attempt(task: str, token: str, notes: str) -> None:
    """Write a line that no other attempt writes, then note it outside."""
    line = f"{task} {token} {os.urandom(6).hex()}\n"
    write(f"work/{task}.{token}", line)
    _append(f"{notes}/attempts", line)


def resolve_conflicts() -> None:
    """Keep both sides of every conflict in the shared files."""
    for name in sorted(os.listdir("ledger")):
        path = f"ledger/{name}"
        lines = _lines(path)
        kept = [line for line in lines if not line.startswith(_MARKS)]
        if kept != lines:
            write(path, "".join(dict.fromkeys(kept)))


def enter(task: str, token: str, round_: str) -> None:
    """Enter the task at the end of one shared file. Remove what an earlier attempt at
    the same round has entered.
    """
    own = f"{task} {round_} "
    for name in sorted(os.listdir("ledger")):
        path = f"ledger/{name}"
        lines = _lines(path)
        kept = [line for line in lines if not line.startswith(own)]
        if kept != lines:
            write(path, "".join(kept))
    # two attempts at one task do not conflict with each other: landing both must show
    path = f"ledger/{(zlib.crc32(task.encode()) + int(token)) % LEDGERS}"
    write(path, "".join([*_lines(path), f"{own}{token}\n"]))


def take_number(task: str) -> None:
    """Take the number after the highest. Two tasks that do so at the same time merge
    without a conflict, and the result is red.
    """
    others = [_lines(f"numbers/{name}") for name in os.listdir("numbers") if name != task]
    taken = [int(lines[0]) for lines in others if lines and lines[0].strip().isdigit()]
    write(f"numbers/{task}", f"{1 + max(taken, default=0)}\n")


def commit(task: str, subject: str) -> None:
    git("add", "-A")
    git("commit", "-q", "--allow-empty", "-m", f"{task}: {subject}")


def git(*words: str) -> None:
    """Run git, without the wrapper that a worker may have in its PATH."""
    path = [part for part in os.environ["PATH"].split(":") if not part.endswith("/wrapped")]
    settings = ("user.name=agent", "user.email=a@example.org", "core.hooksPath=/dev/null")
    options = [word for setting in (*settings, "gc.auto=0") for word in ("-c", setting)]
    subprocess.run(
        ["git", *options, *words],
        env={**os.environ, "PATH": ":".join(path)},
        check=True,
    )


def pause(choice: Choice) -> None:
    sleep(choice.below(4) * 0.01)


def sleep(seconds: float) -> None:
    """Sleep, also under libfaketime, where time.sleep fails."""
    select.select([], [], [], seconds)


def write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _append(path: str, line: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, line.encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readlines()
    except FileNotFoundError:
        return []


def _round(notes: str, task: str) -> str:
    return "".join(_lines(f"{notes}/rounds/{task}")).strip() or "1"


if __name__ == "__main__":
    sys.exit(main())
