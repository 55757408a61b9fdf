"""`swarm demo`: three workers share a dozen tasks, one of them is killed, and nothing is lost or done twice.

Everything is real: processes, locks, the log, the SIGKILL. It happens in a throwaway directory, and the summary is
counted from the log and from what the workers wrote, not from what the demo believes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from swarm import jsontext, terminal
from swarm.errors import BadInput, LockHeld, LockLost
from swarm.status_broadcaster import StatusBroadcaster
from swarm.store_file import FileStore
from swarm.task_lock import TaskLockManager

WORKERS = 3
TASKS = [f"task-{number:02d}" for number in range(1, 13)]
VICTIM_TASK = TASKS[4]
_SHORT, _LONG = 0.5, 30.0  # seconds a task takes; the victim's never ends by itself
_LIMIT = 60.0
_MARKS = {"START": ("▶", "bold"), "DONE": ("✔", "green"), "SKIP": ("·", "dim"), "ERROR": ("✘", "red")}

USAGE = """\
Usage: swarm demo [--keep] [--json]

Shows locks and log at work: three worker processes share a dozen tasks; one is
killed with SIGKILL while it holds a lock; another takes its task over. Takes a
few seconds, needs no server, and leaves nothing behind (--keep: the directory).
--json prints only the summary, as one JSON object.

Example:
  python3 -m swarm demo
"""


def main(args: Sequence[str]) -> int:
    """Runs the demo; 0 if everything it promises was so."""
    if "--help" in args or "-h" in args:
        terminal.out(USAGE)
        return 0
    unknown = [arg for arg in args if arg not in ("--keep", "--json")]
    if unknown:
        raise BadInput(f"demo has no argument {unknown[0]!r}. See: swarm demo --help")
    home = tempfile.mkdtemp(prefix="swarm-demo-")
    children: dict[int, str] = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        checks = _play(home, children, _Screen(quiet="--json" in args))
        if "--json" in args:
            found = [{"check": text, "holds": holds} for text, holds in checks]
            terminal.out(jsontext.dumps({"schema_version": 1, "ok": all(holds for _, holds in checks), "checks": found}) + "\n")
        return 0 if all(holds for _, holds in checks) else 1
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not stop the clearing up
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if "--keep" in args:
            terminal.err(f"Look around: SWARM_STATE_DIR={home}\n")
        else:
            shutil.rmtree(home, ignore_errors=True)


def _play(home: str, children: dict[int, str], screen: _Screen) -> list[tuple[str, bool]]:
    store = FileStore(home)
    viewer = StatusBroadcaster("master", store=store)
    screen.say(f"{len(TASKS)} tasks, {WORKERS} workers, one lock a task. Each worker takes whatever is free.\n")
    begun = time.monotonic()
    for number in range(1, WORKERS + 1):
        children[_spawn(_work, home, f"worker-{number}")] = f"worker-{number}"
    victim = ""
    cursor = ""
    while time.monotonic() - begun < _LIMIT:
        records, cursor = viewer.read(cursor)
        for record in records:
            screen.record(record["state"], record["worker"], record["task_id"], record.get("message", ""))
            if not victim and (record["state"], record["task_id"]) == ("START", VICTIM_TASK):
                victim = record["worker"]
                _kill(children, victim)
                screen.note(f"{victim} is killed with SIGKILL while it holds {VICTIM_TASK}")
        _reap(children)
        if not records:
            if not children:
                break
            store.wait("status", cursor, 0.1)
    checks = _checks(home, viewer, victim)
    screen.summary(checks)
    return checks


def _work(home: str, worker: str) -> None:
    """What a worker does: take a free task that is not done, do it, say so; until everything is done."""
    store = FileStore(home)
    log = StatusBroadcaster(worker, store=store)
    locks = TaskLockManager(worker, store=store)
    while True:
        done = {record["task_id"] for task in TASKS for record in log.query(task) if record["state"] == "DONE"}
        if len(done) == len(TASKS):
            return
        for task in TASKS:
            if task in done:
                continue
            try:
                with locks.hold(task, ttl=30) as lease:
                    if any(record["state"] == "DONE" for record in log.query(task)):
                        continue
                    again = any(record["state"] == "START" for record in log.query(task))
                    log.broadcast_start(task, "taken over" if again else "", {"token": lease.token})
                    time.sleep(_LONG if task == VICTIM_TASK and not again else _SHORT)
                    lease.check()
                    _deliver(home, task, worker, lease.token)
                    log.broadcast_done(task, "", {"token": lease.token})
            except (LockHeld, LockLost):
                continue
        time.sleep(0.05)


def _deliver(home: str, task: str, worker: str, token: int) -> None:
    """The work's effect: a line a completion, so that one done twice would show."""
    os.makedirs(f"{home}/results", mode=0o700, exist_ok=True)
    fd = os.open(f"{home}/results/{task}", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    os.write(fd, f"{token} {worker}\n".encode())
    os.close(fd)


def _checks(home: str, viewer: StatusBroadcaster, victim: str) -> list[tuple[str, bool]]:
    """What the demo promised, and whether it was so."""
    counts = {task: _lines(f"{home}/results/{task}") for task in TASKS}
    once = sum(len(lines) == 1 for lines in counts.values())
    starts = [record for record in viewer.query(VICTIM_TASK) if record["state"] == "START"]
    recovered = [record for record in viewer.query(VICTIM_TASK) if record["state"] == "DONE"]
    checks = [
        (f"{once} of {len(TASKS)} tasks were completed exactly once", once == len(TASKS)),
        (f"{victim or 'a worker'} was killed while it held {VICTIM_TASK}", bool(victim)),
    ]
    if recovered and len(starts) == 2:
        first, second = (record["meta"]["token"] for record in starts)
        text = f"{recovered[0]['worker']} took it over and finished it (token {first}, then {second})"
        checks.append((text, recovered[0]["worker"] != victim and second > first))
    else:
        checks.append((f"{VICTIM_TASK} was taken over and finished", False))
    left = os.listdir(f"{home}/locks")
    checks.append((f"{len(left) or 'no'} lock{'s' * (len(left) != 1)} left behind", not left))
    return checks


class _Screen:
    """Prints what happens, with the time since the beginning."""

    def __init__(self, *, quiet: bool) -> None:
        self._begun = time.monotonic()
        self._quiet = quiet

    def record(self, state: str, worker: str, task: str, message: str) -> None:
        mark, colour = _MARKS.get(state, ("?", "dim"))
        told = f" ({message})" if message else ""
        self._timed(f"{worker}  {terminal.paint(f'{mark} {state:5}', colour)}  {task}{told}")

    def note(self, text: str) -> None:
        self._timed(terminal.paint(f"✘ {text}", "red"))

    def summary(self, checks: list[tuple[str, bool]]) -> None:
        self.say("")
        for text, holds in checks:
            self.say(f"  {terminal.paint('✔' if holds else '✘', 'green' if holds else 'red')} {text}")
        seconds = time.monotonic() - self._begun
        self.say(f"\n{seconds:.1f} seconds. Next: python3 -m swarm lock --help, python3 -m swarm log --help")

    def say(self, text: str) -> None:
        if not self._quiet:
            terminal.out(f"{text}\n")

    def _timed(self, text: str) -> None:
        self.say(f"{time.monotonic() - self._begun:5.1f} s  {text}")


def _spawn(work: Callable[..., None], *args: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    code = 1
    try:
        work(*args)
        code = 0
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)


def _kill(children: dict[int, str], worker: str) -> None:
    for pid, name in list(children.items()):
        if name == worker:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            del children[pid]


def _reap(children: dict[int, str]) -> None:
    for pid in list(children):
        if os.waitpid(pid, os.WNOHANG)[0]:
            del children[pid]


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []
