"""`swarm demo`: three workers share a dozen tasks, one of them is killed, and nothing
is lost or done twice.

The queue, the workers, the SIGKILL and the live view are real. The agent is a small
script that pretends to think. The demo runs in a throwaway directory. The summary of
the demo is counted from the log and from the files that the agents wrote.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from swarm.cli.arguments import Call, Command, Option
from swarm.cli.demo.page import DemoPage
from swarm.cli.demo.screen import DemoScreen, Silence, open_screen
from swarm.queue.events import LOG, parse_event
from swarm.queue.queue import TaskQueue
from swarm.queue.task import TaskSpec
from swarm.status import events
from swarm.status.log import StatusLog
from swarm.stores.file.store import FileStore
from swarm.system.own_command import environment_with, swarm_command
from swarm.terminal import output

WORKERS = 3
VICTIM = "payments"  # the first worker on this task is killed
ASKS = "drop-old-table"  # the agent of this task asks the user
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TIMEOUT = 60.0  # seconds; a demo that takes longer has failed
_ANSWER_AFTER = 1.5  # seconds that the user seems to think
_TTL = 5  # seconds; the takeover waits for it only where a dead process cannot be seen

TASKS = [
    TaskSpec("schema", "Design the tables", priority=9),
    TaskSpec("login", "Let people log in"),
    TaskSpec("payments", "Take payments", priority=5),
    TaskSpec("search", "Find things"),
    TaskSpec("emails", "Send a welcome mail"),
    TaskSpec("icons", "Draw six icons"),
    TaskSpec("import", "Import last year's data", after=("schema",)),
    TaskSpec("drop-old-table", "Drop the unused table", after=("schema",), priority=5),
    TaskSpec("api", "Serve it all", after=("login", "search")),
    TaskSpec("mobile", "Make it fit a phone", after=("icons",)),
    TaskSpec("docs", "Write the manual", after=("api",)),
    TaskSpec(
        "release", "Ship it", after=("payments", "docs", "mobile", "drop-old-table"), priority=9
    ),
]

# The agent. It gets its task as any agent does, and writes a line for each task that it
# has done.
AGENT = f"""\
cd "$SWARM_STATE_DIR/../work" || exit 1
case $SWARM_TASK_ID/$SWARM_ATTEMPT in
  {VICTIM}/1) exec sleep 600 ;;
  {ASKS}/*)
    echo "[WAIT] may I really drop it?"
    while [ ! -e answer ]; do sleep 0.1; done ;;
esac
sleep 0.6
echo "$SWARM_TOKEN $SWARM_WORKER" >>"done.$SWARM_TASK_ID"
echo "$SWARM_PROMPT: done"
"""


def demo(call: Call) -> int:
    """Run the demo. Return 0 if all checks at the end of the demo passed, else 1."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    # from here on there are files and processes to remove
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    root = tempfile.mkdtemp(prefix="swarm-demo-")
    screen = (
        Silence()
        if call.json
        else open_screen(FileStore(f"{root}/state"), plain="--plain" in call.options)
    )
    show = _Demo(root, screen)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if "--web" in call.options:
            show.show_page()
        checks = show.play()
        ok = all(holds for _, holds in checks)
        call.answer(
            {
                "ok": ok,
                "state_dir": f"{root}/state",
                "checks": [{"check": text, "holds": holds} for text, holds in checks],
            }
        )
        show.linger()
        return 0 if ok else 1
    finally:
        for number in _ENDING:  # a second signal must not interrupt the clean-up
            signal.signal(number, signal.SIG_IGN)
        show.clear_up()
        if "--keep" in call.options:
            output.err(f"To look around: export SWARM_STATE_DIR={root}/state\n")
        else:
            shutil.rmtree(root, ignore_errors=True)


class _Demo:
    """A run of the demo, in a directory of its own."""

    def __init__(self, root: str, screen: DemoScreen) -> None:
        self._root = root
        self._screen = screen
        self._store = FileStore(f"{root}/state")
        self._queue = TaskQueue(self._store)
        self._log = StatusLog(self._store)
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._records: list[dict[str, Any]] = []
        self._victim = ""
        self._asked_at = 0.0
        self._page: DemoPage | None = None

    def show_page(self) -> None:
        self._page = DemoPage(f"{self._root}/state")
        self._page.invite()

    def linger(self) -> None:
        if self._page:
            self._page.linger()

    def play(self) -> list[tuple[str, bool]]:
        os.mkdir(f"{self._root}/work")
        with open(f"{self._root}/agent.sh", "w", encoding="utf-8") as file:
            file.write(AGENT)
        begun = time.monotonic()
        with self._screen as screen:
            screen.note(f"{len(TASKS)} tasks, {WORKERS} workers. Each task is to be done once.")
            self._queue.add_all(TASKS)
            self._start_workers()
            cursor = ""
            while time.monotonic() - begun < _TIMEOUT:
                found, cursor = self._log.read(cursor)
                for _, record in found:
                    self._records.append(record)
                    screen.record(record)
                    self._act_on(record)
                self._answer_when_due()
                if not found and all(
                    worker.poll() is not None for worker in self._workers.values()
                ):
                    break
                screen.pause(cursor)
            screen.pause(cursor, last=True)
        checks = self._checks()
        self._screen.summary(checks, time.monotonic() - begun)
        return checks

    def clear_up(self) -> None:
        if self._page:
            self._page.close()
        for worker in self._workers.values():
            if worker.poll() is None:
                worker.terminate()  # ends its agent too
        for worker in self._workers.values():
            try:
                worker.wait(timeout=5)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()

    def _start_workers(self) -> None:
        environment = environment_with(f"{self._root}/state")
        for number in range(1, WORKERS + 1):
            worker = swarm_command(
                "worker", "--id", str(number), "--until-empty", "--quiet", "--grace", "1"
            )
            agent = ["--ttl", str(_TTL), "--exec", "sh ../agent.sh"]
            # A session of its own: Ctrl-C must reach only the demo, which then ends the
            # workers.
            self._workers[f"worker-{number}"] = subprocess.Popen(
                [*worker, *agent],
                env=environment,
                cwd=f"{self._root}/work",
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _act_on(self, record: dict[str, Any]) -> None:
        if not self._victim and (record["state"], record["task_id"]) == ("START", VICTIM):
            time.sleep(0.5)  # by then its agent is at work
            self._victim = record["worker"]
            self._workers[self._victim].kill()
            self._workers[self._victim].wait()
            self._screen.note(
                f"{self._victim} is killed with SIGKILL in the middle of {VICTIM}", bad=True
            )
        if record["state"] == "WAIT":
            self._asked_at = time.monotonic()

    def _answer_when_due(self) -> None:
        if self._asked_at and time.monotonic() - self._asked_at > _ANSWER_AFTER:
            self._asked_at = 0.0
            with open(f"{self._root}/work/answer", "w", encoding="utf-8"):
                pass
            self._screen.note("the user sees the question, and answers")

    # The summary ----------------------------------------------------------------------

    def _checks(self) -> list[tuple[str, bool]]:
        counts = self._queue.counts()
        lines = {task.id: _lines(f"{self._root}/work/done.{task.id}") for task in TASKS}
        once = sum(len(found) == 1 for found in lines.values())
        logged = sum(self._states(task.id).count("DONE") == 1 for task in TASKS)
        begun, done = self._positions("claim"), self._positions("done")
        in_order = all(
            done.get(name, math.inf) < begun.get(task.id, -1)
            for task in TASKS
            for name in task.after
        )
        left = self._store.keys("locks")
        return [
            (
                (
                    f"{once} of {len(TASKS)} tasks were done exactly once, and {logged} of "
                    f"{len(TASKS)} were logged as done once"
                ),
                once == logged == len(TASKS),
            ),
            (
                (
                    f"the queue agrees: "
                    f"{', '.join(f'{count} {state}' for state, count in counts.items())}"
                ),
                counts == {"done": len(TASKS)},
            ),
            self._check_takeover(),
            ("no task started before the tasks that it waits for were done", in_order),
            (
                f"the agent of {ASKS} asked the user, and the board showed it",
                "WAIT" in [r["state"] for r in self._records],
            ),
            (f"{len(left) or 'no'} lock{'s' * (len(left) != 1)} left behind", not left),
        ]

    def _check_takeover(self) -> tuple[str, bool]:
        starts = [
            record
            for record in self._records
            if (record["state"], record["task_id"]) == ("START", VICTIM)
        ]
        if not self._victim or len(starts) != 2:
            return f"{VICTIM} was taken over from a worker that was killed", False
        (first, second), heir = (record["meta"]["token"] for record in starts), starts[1]["worker"]
        text = (
            f"{self._victim} was killed; {heir} took over {VICTIM} (token {first}, then {second})"
        )
        return text, heir != self._victim and second > first

    def _states(self, task: str) -> list[str]:
        """Return the states that swarm itself logged for a task, without the states
        that its agent printed.
        """
        mine = [record for record in self._records if record["task_id"] == task]
        return [record["state"] for record in mine if not events.is_from_agent(record)]

    def _positions(self, op: str) -> dict[str, int]:
        """Return, for each task, the position of its first event `op` in the queue's
        log.

        The status log may be behind the queue's log.
        """
        lines, _ = self._store.read_log(LOG, "", 1 << 20)
        events = [(at, parse_event(line)) for at, line in enumerate(lines)]
        return {event["id"]: at for at, event in reversed(events) if event["op"] == op}


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


COMMANDS = {
    "demo": Command(
        demo,
        "Watch three workers share a dozen tasks while one worker is killed.",
        "python3 -m swarm demo",
        options=(
            Option(
                "--web",
                text=("also show the demo as a live page in the browser (needs the extra web)"),
            ),
            Option("--keep", text="do not remove the directory of the demo at the end"),
            Option("--plain", text="print a line for each event, also on a terminal"),
        ),
        details=(
            (
                "A worker is killed with SIGKILL in the middle of a task, and another worker "
                "takes the task over. An agent waits for a user. You see the live view during "
                "the whole demo. The demo takes about ten seconds, needs no server, and leaves "
                "no files behind."
            ),
        ),
    )
}
