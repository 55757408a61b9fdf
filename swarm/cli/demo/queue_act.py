"""The first act of the demo: three workers share a dozen tasks, one of them is killed,
and nothing is lost or done twice.

The queue, the workers, the SIGKILL and the live view are real. The agent is a small
script that pretends to think. The summary is counted from the log and from the files
that the agents wrote.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any

from swarm.cli.demo.act import WORKERS, Act, write
from swarm.cli.demo.screen import Check, DemoScreen
from swarm.queue.events import LOG, parse_event
from swarm.queue.task import TaskSpec
from swarm.status import events

VICTIM = "payments"  # the first worker on this task is killed
ASKS = "drop-old-table"  # the agent of this task asks the user
_ANSWER_AFTER = 1.5  # seconds that the user seems to think

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


class QueueAct(Act):
    """The first act."""

    opening = f"{len(TASKS)} tasks, {WORKERS} workers. Each task is to be done once."

    def __init__(self, root: str, screen: DemoScreen) -> None:
        super().__init__(f"{root}/state", f"{root}/work", screen)
        self._root = root
        self._victim = ""
        self._asked_at = 0.0

    def prepare(self) -> None:
        os.mkdir(self.directory)
        write(f"{self._root}/agent.sh", AGENT)
        self.queue.add_all(TASKS)
        self.start_workers("sh ../agent.sh")

    def on_record(self, record: dict[str, Any]) -> None:
        if not self._victim and (record["state"], record["task_id"]) == ("START", VICTIM):
            time.sleep(0.5)  # by then its agent is at work
            self._victim = record["worker"]
            self.workers[self._victim].kill()
            self.workers[self._victim].wait()
            self.screen.note(
                f"{self._victim} is killed with SIGKILL in the middle of {VICTIM}", bad=True
            )
        if record["state"] == "WAIT":
            self._asked_at = time.monotonic()

    def on_pause(self) -> None:
        if self._asked_at and time.monotonic() - self._asked_at > _ANSWER_AFTER:
            self._asked_at = 0.0
            write(f"{self.directory}/answer", "")
            self.screen.note("the user sees the question, and answers")

    def checks(self) -> list[Check]:
        counts = self.queue.counts()
        lines = {task.id: _lines(f"{self.directory}/done.{task.id}") for task in TASKS}
        once = sum(len(found) == 1 for found in lines.values())
        logged = sum(self._own_states(task.id).count("DONE") == 1 for task in TASKS)
        begun, done = self._positions("claim"), self._positions("done")
        in_order = all(
            done.get(name, math.inf) < begun.get(task.id, -1)
            for task in TASKS
            for name in task.after
        )
        left = self.store.keys("locks")
        return [
            Check(
                f"{once} of {len(TASKS)} tasks were done exactly once, and {logged} of "
                f"{len(TASKS)} were logged as done once",
                once == logged == len(TASKS),
            ),
            Check(
                f"the queue agrees: "
                f"{', '.join(f'{count} {state}' for state, count in counts.items())}",
                counts == {"done": len(TASKS)},
            ),
            self._check_takeover(),
            Check("no task started before the tasks that it waits for were done", in_order),
            Check(
                f"the agent of {ASKS} asked the user, and the board showed it",
                "WAIT" in [record["state"] for record in self.records],
            ),
            Check(f"{len(left) or 'no'} lock{'s' * (len(left) != 1)} left behind", not left),
        ]

    def _check_takeover(self) -> Check:
        starts = [
            record
            for record in self.records
            if (record["state"], record["task_id"]) == ("START", VICTIM)
        ]
        if not self._victim or len(starts) != 2:
            return Check(f"{VICTIM} was taken over from a worker that was killed", False)
        (first, second), heir = (record["meta"]["token"] for record in starts), starts[1]["worker"]
        text = (
            f"{self._victim} was killed; {heir} took over {VICTIM} (token {first}, then {second})"
        )
        return Check(text, heir != self._victim and second > first)

    def _own_states(self, task: str) -> list[str]:
        """Return the states that swarm itself logged for a task, without the states
        that its agent printed.
        """
        mine = [record for record in self.records if record["task_id"] == task]
        return [record["state"] for record in mine if not events.is_from_agent(record)]

    def _positions(self, op: str) -> dict[str, int]:
        """Return, for each task, the position of its first event `op` in the queue's
        log.

        The status log may be behind the queue's log.
        """
        lines, _ = self.store.read_log(LOG, "", 1 << 20)
        events = [(at, parse_event(line)) for at, line in enumerate(lines)]
        return {event["id"]: at for at, event in reversed(events) if event["op"] == op}


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []
