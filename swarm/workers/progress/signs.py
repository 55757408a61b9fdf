"""Look for signs of work of a silent attempt, and for reasons to be silent.

An attempt whose output is silent may still work:

    its processes use CPU time, as a build without output does
    a file of its workspace has changed; `.git` does not count
    its task has a new status record
    a hook of its agent has run

An attempt that waits does not work, and is not stalled:

    its claim has an open question, or has ended
    it has asked for a person: its latest status record is WAIT or HELP
    a process of it waits, in `swarm wait` for example; see `locks.waits`

A look costs some system calls for each process and each file, and reads the store.
`watch` takes it only when the output is silent.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from swarm.errors import NoTask, StoreError
from swarm.formats import json_codec
from swarm.locks import waits
from swarm.locks.heartbeat import memory_of
from swarm.queue.queue import Claim, TaskQueue
from swarm.status.events import is_informational, is_stuck
from swarm.status.log import StatusLog
from swarm.stores.cache import FileCache
from swarm.system import cpu_time
from swarm.system.clock import from_iso

_MAX_FILES = 50_000  # of a workspace
_MAX_SECONDS = 2.0  # for a look at a workspace
_WAITS = ("WAIT", "HELP")


@dataclass(frozen=True)
class Look:
    """What a look has found.

    `at` is when it began, by the monotonic clock. `waits` is why the attempt may be
    silent, "" if it may not. `age` is how many seconds ago the latest sign was, and
    `sign` names it. `cpu` is the CPU time of its processes, None if it is unknown.
    """

    at: float
    waits: str = ""
    age: float = math.inf
    sign: str = ""
    cpu: float | None = None

    def with_sign(self, age: float, sign: str) -> Look:
        """Return this look with one more sign, if the sign is later than the others."""
        return replace(self, age=max(0.0, age), sign=sign) if age < self.age else self


class Signs:
    """Looks at one attempt, whose process leads the group `group`.

    `workspace` is its own directory, "" if it has none. `wait_file` is that of
    `locks.waits`.
    """

    def __init__(
        self,
        log: StatusLog,
        claim: Claim,
        *,
        group: int,
        workspace: str,
        wait_file: str,
    ) -> None:
        # not that of the attempt, which must not wait for a look at a store that hangs
        self._queue = TaskQueue(log.store)
        self._log = log
        self._claim = claim
        self._group = group
        self._workspace = workspace
        self._wait_file = wait_file

    def glance(self) -> Look:
        """Return only the CPU time, with which a later look compares."""
        look, used = Look(time.monotonic()), cpu_time.of_tree(self._group)
        if used is None:
            return look
        look = replace(look, cpu=used.seconds)
        return look.with_sign(0.0, "its processes run") if used.is_running else look

    def look(self) -> Look:
        """Return all that can be found. Raise StoreError if the store cannot be read."""
        look = self.glance()
        if why := self._reason_to_wait():
            return replace(look, waits=why)
        now = time.time()
        record = latest_record(self._log, self._claim.task.id)
        if waits_for_a_person(record, self._claim.token):
            return replace(look, waits="it waits for a person")
        written = from_iso(str(record.get("timestamp", ""))) or 0.0
        if not is_stuck(record, self._claim.token):
            look = look.with_sign(now - written, f"the status record {record.get('state')}")
        look = look.with_sign(now - self._last_hook(), "a hook of the agent")
        if self._workspace:
            changed = newest(self._workspace)
            name = os.path.relpath(changed.path, self._workspace)
            look = look.with_sign(now - changed.at, f"a change of {name}")
        return look

    def _reason_to_wait(self) -> str:
        claim = self._claim
        try:
            task = self._queue.get(claim.task.id)
        except NoTask:
            return "its task was removed"
        if not task.is_claimed or task.token != claim.token:
            return "its claim has ended"
        for question in self._queue.questions():
            if (question.task_id, question.token) == (claim.task.id, claim.token):
                return f"it waits for the answer to {question.id}"
        what = waits.reason(self._wait_file)
        return f"it waits for {what}" if what else ""

    def _last_hook(self) -> float:
        """Return when a hook of the agent last sent heartbeats, 0 if that is unknown."""
        try:
            data = FileCache.given().get(memory_of(self._claim.worker))
            return float(json_codec.loads(data or b"{}").get("at", 0))
        except (StoreError, ValueError, TypeError, AttributeError):
            return 0.0


def latest_record(log: StatusLog, task: str) -> Mapping[str, Any]:
    """Return the latest status record that is not informational, {} if there is none."""
    latest: Mapping[str, Any] = {}
    for _, record in log.query(task):
        if not is_informational(record):
            latest = record
    return latest


def waits_for_a_person(record: Mapping[str, Any], token: int) -> bool:
    """Return whether a record asks for a person, and is not about a stuck attempt."""
    return record.get("state") in _WAITS and not is_stuck(record, token)


@dataclass(frozen=True)
class Changed:
    """A file or directory, and when it was changed, by the Unix clock."""

    path: str
    at: float


def newest(directory: str) -> Changed:
    """Return the file or directory that was changed last, without `.git`.

    Look at the upper directories first, and give up after some files or seconds.
    """
    found, left = Changed(directory, 0.0), deque([directory])
    deadline, files = time.monotonic() + _MAX_SECONDS, 0
    while left and files < _MAX_FILES and time.monotonic() < deadline:
        try:
            with os.scandir(left.popleft()) as entries:
                for entry in entries:
                    if entry.name == ".git":
                        continue
                    files += 1
                    changed = entry.stat(follow_symlinks=False).st_mtime
                    if changed > found.at:
                        found = Changed(entry.path, changed)
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
        except OSError:
            continue  # the agent has removed it
    return found
