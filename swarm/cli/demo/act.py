"""One act of the demo: workers that share a queue, in a directory of their own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from swarm.cli.demo.screen import Check, DemoScreen
from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.file.store import FileStore
from swarm.system.own_command import environment_with, swarm_command

WORKERS = 3
_TIMEOUT = 60.0  # seconds; an act that takes longer has failed
_TTL = 5  # seconds; a takeover waits for it only where a dead process cannot be seen


class Act:
    """Starts workers, shows what they log, and checks the result.

    A subclass fills the queue and starts workers in `prepare`, may act on what it sees,
    and checks the result in `checks`. `opening` is the first line of the act.
    """

    opening = ""

    def __init__(self, state_dir: str, directory: str, screen: DemoScreen) -> None:
        """`directory` is the working directory of the workers."""
        self.state_dir = state_dir
        self.directory = directory
        self.screen = screen
        self.store = FileStore(state_dir)
        self.queue = TaskQueue(self.store)
        self.records: list[dict[str, Any]] = []
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._log = StatusLog(self.store)

    def prepare(self) -> None:
        raise NotImplementedError

    def on_record(self, record: dict[str, Any]) -> None:
        """React to a status record."""

    def on_pause(self) -> None:
        """Act while there is nothing to read."""

    def checks(self) -> list[Check]:
        raise NotImplementedError

    def play(self) -> list[Check]:
        """Play the act until all workers have ended, and return its checks."""
        begun, cursor = time.monotonic(), ""
        self.prepare()
        with self.screen as screen:
            screen.note(self.opening)
            while time.monotonic() - begun < _TIMEOUT:
                ended = all(worker.poll() is not None for worker in self.workers.values())
                found, cursor = self._log.read(cursor)
                for _, record in found:
                    self.records.append(record)
                    screen.record(record)
                    self.on_record(record)
                self.on_pause()
                if ended and not found:
                    break
                screen.pause(cursor)
            screen.pause(cursor, last=True)
        return self.checks()

    def start_workers(self, agent: str, options: Sequence[str] = ()) -> None:
        for number in range(1, WORKERS + 1):
            worker = swarm_command(
                "worker", "--id", str(number), "--until-empty", "--quiet", "--grace", "1"
            )
            # A session of its own: Ctrl-C must reach only the demo, which then ends the
            # workers.
            self.workers[f"worker-{number}"] = subprocess.Popen(
                [*worker, "--ttl", str(_TTL), *options, "--exec", agent],
                env=environment_with(self.state_dir),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def clear_up(self) -> None:
        """End the workers."""
        for worker in self.workers.values():
            if worker.poll() is None:
                worker.terminate()  # ends its agent too
        for worker in self.workers.values():
            try:
                worker.wait(timeout=5)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()

    def states(self, task: str) -> list[str]:
        """Return the states in the records of a task."""
        return [record["state"] for record in self.records if record["task_id"] == task]


def write(path: str, text: str) -> None:
    """Write a file of the demo, and its directory."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
