"""`swarm run` and `swarm worker` end their command when the lease ends, whatever fails."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager

import pytest

from tests.support.at_a_terminal import TIMEOUT, wait_until
from tests.support.wrapped_command import Place, is_alive, started

# The clock that counts suspended time is ahead by as many seconds as the file AHEAD says.
_SUSPENDED = """
import os
from swarm.system.clock import Clock
steady = Clock.steady
Clock.steady = lambda self: steady(self) + os.stat("AHEAD").st_size
"""
# Nothing that the timer should do is done: no heartbeat comes, and no loss is reported.
_NO_TIMER = """
from swarm.system.timer import Handle
Handle.make_call = lambda self, clock: clock() + 0.1
"""
_NO_MORE_THREADS = """
import os, threading
real_start = threading.Thread.start
def limited(self):
    if os.path.exists("LIMIT"):
        raise RuntimeError("can't start new thread")
    real_start(self)
threading.Thread.start = limited
"""
_BROKEN_CHECK = """
import os
from swarm.locks.lease import Lease
check = Lease.check
def broken(self):
    if os.path.exists("LIMIT"):
        raise RuntimeError("can't start new thread")
    check(self)
Lease.check = broken
"""


class Job:
    """A command for task t that writes its pids, under `swarm run` or `swarm worker`."""

    def __init__(self, kind: str, place: Place) -> None:
        self.kind = kind
        self.place = place
        self.ahead, self.limit = place.root / "ahead", place.root / "limit"
        self.ahead.touch()
        self._pid_file = place.root / "pid"

    def started(self, patch: str, ttl: float) -> AbstractContextManager[subprocess.Popen[str]]:
        patch = patch.replace("AHEAD", str(self.ahead)).replace("LIMIT", str(self.limit))
        swarm = [sys.executable, "-c", f"{patch}\nfrom swarm.cli.start import start\nstart()"]
        name = shlex.quote(str(self._pid_file))
        write_pids = f"echo $$ $! >{name}.new; mv {name}.new {name}"
        script = f"trap '' USR1; sleep 600 & {write_pids}; while :; do sleep 0.1; done"
        command = ["sh", "-c", script]
        if self.kind == "run":
            words = ["run", "t", "--ttl", str(ttl), "--grace", "1", "--", *command]
        else:
            added = self.place.call(
                [*swarm, "task", "add", "t", "--max-attempts", "1", "--", *command]
            )
            assert added.returncode == 0, added
            words = ["worker", "--id", "1", "--until-empty", "--ttl", str(ttl), "--grace", "1"]
        return started(*swarm, *words, env=self.place.env)

    @property
    def pids(self) -> list[int]:
        """Return the pid of the command, and that of a process in its group."""
        wait_until(self._pid_file.exists)
        return [*map(int, self._pid_file.read_text().split())]


@pytest.fixture(params=["run", "worker"])
def job(request: pytest.FixtureRequest, place: Place) -> Job:
    return Job(request.param, place)


def test_a_command_is_ended_at_once_after_the_machine_slept_past_its_lease(job: Job) -> None:
    with job.started(_SUSPENDED, ttl=300) as wrapper:
        pids = job.pids
        os.truncate(job.ahead, 1000)
        woken = time.monotonic()
        wait_until(lambda: not any(map(is_alive, pids)))
        assert time.monotonic() - woken < 6, "the next heartbeat comes after ten seconds"
        end(job, wrapper)


def test_a_command_is_ended_even_if_no_heartbeat_and_no_report_ever_comes(job: Job) -> None:
    with job.started(_NO_TIMER, ttl=3) as wrapper:
        pids = job.pids
        wait_until(lambda: not any(map(is_alive, pids)))
        end(job, wrapper)


def test_a_lease_is_refreshed_where_no_more_threads_can_be_started(job: Job) -> None:
    with job.started(_NO_MORE_THREADS, ttl=2) as wrapper:
        pids = job.pids
        job.limit.touch()
        wait_until(lambda: job.place.lock["holder"]["beat"] >= 4)
        assert all(map(is_alive, pids)) and wrapper.poll() is None
        job.limit.unlink()
        wrapper.terminate()
        wrapper.wait(TIMEOUT)


def test_an_exception_in_run_ends_the_command_before_its_task_is_free(place: Place) -> None:
    job = Job("run", place)
    with job.started(_BROKEN_CHECK, ttl=300) as wrapper:
        pids = job.pids
        job.limit.touch()
        wrapper.send_signal(signal.SIGUSR1)
        assert wrapper.wait(TIMEOUT) == 3
        assert not any(map(is_alive, pids))
        assert place.is_free


def end(job: Job, wrapper: subprocess.Popen[str]) -> None:
    """Wait for the wrapper, which may wait for another worker."""
    if job.kind == "run":
        assert wrapper.wait(TIMEOUT) == 4
    else:
        wrapper.terminate()
        wrapper.wait(TIMEOUT)


def test_the_lock_of_a_run_is_never_acquired_where_its_threads_cannot_be_started(
    place: Place,
) -> None:
    job = Job("run", place)
    job.limit.touch()
    with job.started(_NO_MORE_THREADS, ttl=300) as wrapper:
        out, err = wrapper.communicate(timeout=TIMEOUT)
    assert wrapper.returncode == 3 and "ulimit -u" in err, (out, err)
    assert place.is_free and not (place.state / "status.log").exists()
