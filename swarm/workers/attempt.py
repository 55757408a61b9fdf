"""One attempt at a task: the command runs in a process group of its own, its lease is kept alive, its output is read along.

It ends when the command does, when its time is up, when the lease is lost or when somebody stops it. In every case nobody of its
group is left before the task goes to anybody else; somebody who cannot be ended is waited for, as long as the lease lasts. What
it means for the task is settled in the queue, with the token; while the store cannot be used, that is tried again and again.
"""

from __future__ import annotations

import errno
import math
import os
import select
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from swarm.errors import BadInput, CannotRun, LockLost, NoTask, StoreError
from swarm.locks.lease import Lease
from swarm.queue.queue import Claim, Task, TaskQueue
from swarm.status.log import StatusLog
from swarm.system.child import GatedProcess
from swarm.system.inotify import watch_files
from swarm.workers import command as agent_command
from swarm.workers.output import AgentOutput, marker

DONE, FAILED, STOPPED, LOST = "done", "failed", "stopped", "lost"

_TOLD_TO_STOP = "its worker was told to stop"
_LAST_LINES = 10
_MAX_MARKERS = 1000  # of one attempt; an agent that prints more is not talking to anybody
_GLANCE = 0.1  # seconds between looks where the system cannot tell
_AGAIN = 1.0  # seconds before what could not be done is tried again


class Attempt:
    """One attempt. `outcome` is what became of it, in a word of those above, `reason` in words for people."""

    def __init__(
        self,
        queue: TaskQueue,
        log: StatusLog,
        claim: Claim,
        *,
        agent: Sequence[str],
        results: str,
        timeout: float | None,
        grace: float,
        delay: float,
        on_line: Callable[[str], object] | None = None,
    ) -> None:
        self.claim = claim
        self.outcome = ""
        self.reason = ""
        self._queue = queue
        self._log = log
        self._agent = agent
        self._results = results
        self._timeout = claim.task.spec.timeout or timeout
        self._grace = grace
        self._delay = delay
        self._on_line = on_line
        self._markers = 0
        self._teller = _Teller(self._log_marker)
        self._lease: Lease | None = None
        self._lost: LockLost | None = None
        self._stops = 0
        self._timed_out = self._interrupted = False
        self._guard = threading.RLock()  # one that a signal's handler may take again
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    def stop(self) -> None:
        """Ends it, and gives the task back; a second time: without patience. From any thread, or a signal's handler."""
        self._stops += 1
        self._nudge()

    def run(self) -> Task:
        """Makes the attempt, and settles it; the task as it stands then. Raises StoreError where it could not be settled. What is
        the worker's fault and not the task's, the task is given back for: CannotRun, or StoreError for its output."""
        try:
            if self._stops:
                return self._give_back(_TOLD_TO_STOP)
            return self._run()
        except (CannotRun, StoreError) as error:
            self._give_back_if_possible(str(error))
            raise
        finally:
            self._teller.finish(lambda: True)
            with self._guard:
                os.close(self._woken)
                os.close(self._wake)
                self._wake = -1

    def _run(self) -> Task:
        try:
            command = agent_command.command_for(self.claim, self._agent)
        except BadInput as error:
            return self._fail(str(error), final=True)
        output = AgentOutput(self._results, self.claim.task.id, self.claim.token)
        try:
            return self._supervise(self._make_child(output), command, output)
        finally:
            output.close()

    # While it runs -------------------------------------------------------------------------------------------------

    def _make_child(self, output: AgentOutput) -> GatedProcess:
        try:
            with tempfile.TemporaryFile() as stdin:
                stdin.write((self.claim.task.spec.prompt or "").encode())
                stdin.seek(0)
                return GatedProcess(
                    group=True, die_with_parent=True, stdin=stdin.fileno(), stdout=output.stdout, stderr=output.stderr
                )
        except OSError as error:
            raise StoreError(f"the prompt cannot be written to a temporary file: {error.strerror}. Free some space.") from error

    def _supervise(self, child: GatedProcess, command: list[str], output: AgentOutput) -> Task:
        """Runs the command to its end, ends who is left of its group, and settles it."""
        begun = time.monotonic()
        try:
            with self._queue.keep(self.claim, group=child.pid, on_lost=self._on_lost) as self._lease:
                if self._lease.seconds_left <= 0:
                    raise LockLost(self.claim.task.id, f"The lease of {self.claim.task.id} was over before the work began.")
                try:
                    child.exec(command, agent_command.environment_for(self.claim))
                except CannotRun as error:
                    if not self._is_the_tasks_fault(error):
                        raise
                    return self._fail(str(error), exit_code=error.exit_code)
                code = self._wait(child, output)
                self._end_the_rest(child)
                self._read_the_rest(output)
                return self._settle_patiently(code, output, time.monotonic() - begun)
        except LockLost as lost:
            child.end(self._patience(), self._at_most)
            return self._note_loss(lost)
        except BaseException:
            child.end(0.0)  # nobody works on while nobody watches
            raise
        finally:
            child.discard()

    def _is_the_tasks_fault(self, error: CannotRun) -> bool:
        """An agent that cannot be run would fail at every task; unless it is the task that makes it so."""
        return bool(self.claim.task.spec.command) or error.number == errno.E2BIG or "{" in self._agent[0]

    def _wait(self, child: GatedProcess, output: AgentOutput) -> int:
        deadline = time.monotonic() + self._timeout if self._timeout else None
        kill_at: float | None = None
        ended, changed = _descriptor_of(child.pid), watch_files(output.paths)
        can_tell = ended >= 0 and changed >= 0
        awaited = select.poll()  # not select, which knows only the first 1024 descriptors
        for fd in (self._woken, ended, changed):
            if fd >= 0:
                awaited.register(fd, select.POLLIN)
        try:
            while True:
                behind = self._read(output)
                code = child.poll()
                if code is not None:
                    return code
                now = time.monotonic()
                if not self._must_end() and deadline is not None and now >= deadline:
                    self._timed_out = True
                if self._must_end() and kill_at is None:
                    kill_at = now + self._patience()
                    self._interrupted = bool(self._stops)
                    child.send(signal.SIGTERM)
                    child.send(signal.SIGCONT)  # who is stopped does not hear the first
                if kill_at is not None and self._lost:
                    kill_at = min(kill_at, now + self._at_most())
                if kill_at is not None and (now >= kill_at or self._stops > 1):
                    child.send(signal.SIGKILL)
                    kill_at = now + 1.0
                until = [moment - now for moment in (kill_at or deadline,) if moment is not None]
                pause = 0.0 if behind else max(0.0, min([*until, 3600.0 if can_tell else _GLANCE]))
                for fd, _ in awaited.poll(pause * 1000):
                    if fd != ended:
                        _drain(fd)
        finally:
            for fd in (ended, changed):
                if fd >= 0:
                    os.close(fd)

    def _must_end(self) -> bool:
        return bool(self._lost or self._stops or self._timed_out)

    def _patience(self) -> float:
        return 0.0 if self._stops > 1 else self._grace

    def _at_most(self) -> float:
        """How long the agent may still take to end, once the lease is lost: it has ended before others may take over."""
        return math.inf if self._lost is None or self._lease is None else self._lease.seconds_to_stop

    def _end_the_rest(self, child: GatedProcess) -> None:
        """Whoever cannot be ended, such as another user's process, is waited for while the claim lasts."""
        while not child.end(self._patience(), self._at_most) and not self._lost and self._stops < 2:
            self._rest(_AGAIN)
        if not child.is_over():
            raise LockLost(self.claim.task.id, f"Some processes of group {child.pid} cannot be ended, and work on.")

    def _read_the_rest(self, output: AgentOutput) -> None:
        output.skip_to_the_end()
        while self._read(output, ended=True):
            pass
        self._teller.finish(lambda: self._lost is not None or self._stops > 1)

    def _read(self, output: AgentOutput, *, ended: bool = False) -> bool:
        """Reads a piece of the output; whether there is more."""
        lines, behind = output.read(only_markers=self._on_line is None, ended=ended)
        for line in lines:
            if self._on_line is not None:
                self._on_line(line)
            found = marker(line)
            if found and self._markers < _MAX_MARKERS:
                self._markers += 1
                state, text = found
                if self._markers == _MAX_MARKERS:
                    text += " (further markers of this attempt are not logged)"
                self._teller.tell(state, text)
        return behind

    def _rest(self, seconds: float) -> None:
        """Waits, unless somebody nudges."""
        awaited = select.poll()
        awaited.register(self._woken, select.POLLIN)
        if awaited.poll(seconds * 1000):
            _drain(self._woken)

    def _log_marker(self, state: str, text: str) -> None:
        if self._lost is not None:
            return
        self._log.append(state, self.claim.worker, self.claim.task.id, text, {"from": "output", "token": self.claim.token})

    def _on_lost(self, lost: LockLost) -> None:
        self._lost = lost
        self._nudge()

    def _nudge(self) -> None:
        with self._guard:
            if self._wake >= 0:
                try:
                    os.write(self._wake, b".")
                except BlockingIOError:
                    pass  # it is full, so it wakes

    # When it has ended -----------------------------------------------------------------------------------------------

    def _settle_patiently(self, code: int, output: AgentOutput, seconds: float) -> Task:
        """What was done is not thrown away because it cannot be written down at once."""
        while True:
            try:
                return self._settle(code, output, seconds)
            except StoreError:
                if self._lost or self._stops > 1:
                    raise
                self._rest(_AGAIN)

    def _settle(self, code: int, output: AgentOutput, seconds: float) -> Task:
        about: dict[str, Any] = {"exit_code": code, "seconds": round(seconds, 3), "output": output.names()}
        if self._lost is not None:
            return self._note_loss(self._lost)
        if self._timed_out:
            return self._fail(f"timed out after {self._timeout:g} seconds", last_lines=output.last_lines(_LAST_LINES), **about)
        if self._interrupted:
            return self._give_back(_TOLD_TO_STOP)  # whatever its exit code: it was not let finish
        if code == 0:
            return self._end(DONE, output.result(), partial(self._queue.done, result=output.result(), **about))
        number = code - 128
        known = code > 128 and number in signal.valid_signals()
        reason = f"ended by {signal.Signals(number).name}" if known else f"exit code {code}"
        return self._fail(reason, last_lines=output.last_lines(_LAST_LINES), **about)

    def _note_loss(self, lost: LockLost) -> Task:
        self.outcome, self.reason = LOST, str(lost)
        claim = self.claim
        about = {"lost": True, "token": claim.token}
        try:
            self._log.append("SKIP", claim.worker, claim.task.id, f"its lease was lost: {lost}", about)
        except StoreError:  # which most likely is why it was lost
            return claim.task
        return self._known_task()

    def _give_back(self, reason: str) -> Task:
        return self._end(STOPPED, reason, partial(self._queue.release, reason=reason))

    def _fail(self, reason: str, *, final: bool = False, **meta: Any) -> Task:
        return self._end(FAILED, reason, partial(self._queue.fail, reason=reason, delay=self._delay, final=final, **meta))

    def _end(self, outcome: str, reason: str, tell: Callable[[str, str, int], Task]) -> Task:
        """Tells the queue, which may know better."""
        try:
            task = tell(self.claim.task.id, self.claim.worker, self.claim.token)
            self.outcome, self.reason = outcome, reason
            return task
        except LockLost as lost:  # the queue has logged it
            self.outcome, self.reason = LOST, str(lost)
            return self._known_task()

    def _known_task(self) -> Task:
        try:
            return self._queue.get(self.claim.task.id)
        except NoTask:  # the whole queue was removed
            return self.claim.task

    def _give_back_if_possible(self, reason: str) -> None:
        try:
            self._give_back(reason)
        except StoreError:
            pass  # then it comes back when its lease ends


class _Teller:
    """Logs what the agent says, in a thread of its own: a store that does not answer keeps nobody from ending the agent in time.
    What cannot be logged is tried again while the agent works, and once more when it has ended."""

    def __init__(self, log: Callable[[str, str], None]) -> None:
        self._log = log
        self._untold: deque[tuple[str, str]] = deque()
        self._changed = threading.Condition()
        self._ending = False
        self._thread: threading.Thread | None = None

    def tell(self, state: str, text: str) -> None:
        with self._changed:
            self._untold.append((state, text))
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="what the agent says", daemon=True)
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the main thread
            try:
                self._thread.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def finish(self, give_up: Callable[[], bool]) -> None:
        """Returns when all is logged, or cannot be, or when it is given up."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        while self._thread is not None and self._thread.is_alive() and not give_up():
            self._thread.join(_GLANCE)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._untold or self._ending)
                if not self._untold:
                    return
                last_try = self._ending
            try:
                self._log(*self._untold[0])
                self._untold.popleft()
            except StoreError:
                if last_try:
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._ending, _AGAIN)


def _descriptor_of(pid: int) -> int:
    """A descriptor that can be read when the process has ended, -1 where there is no such thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _drain(fd: int) -> None:
    try:
        os.read(fd, 65536)
    except BlockingIOError:
        pass
