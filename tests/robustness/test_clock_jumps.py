"""A wall clock that jumps neither frees a live lock nor keeps a dead one.

Clocks and pids of other namespaces prove nothing. With libfaketime 0.9.10, FAKETIME
moves CLOCK_MONOTONIC and CLOCK_BOOTTIME as well, unless FAKETIME_DONT_FAKE_MONOTONIC=1
is set. (Its older name, DONT_FAKE_MONOTONIC=1, does the same.) With it both are the
true ones and only the wall clock is false.
"""

from __future__ import annotations

import glob
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from swarm import TaskLockManager
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from swarm.system.clock import to_iso
from tests.conftest import ROOT, HandClock, Run, script_environment
from tests.support.disks import needs_root

DAY = 86_400.0
JUMPS = [DAY, -DAY, 2_000 * DAY, -2_000 * DAY]
LOCK = str(ROOT / "scripts" / "swarm_lock.sh")

pytestmark = pytest.mark.usefixtures("isolated_swarm_dir")  # never the machine's own /tmp/ai_swarm


HOLDER = """
import os, sys, time
from swarm import TaskLockManager
with TaskLockManager("holder").hold("t", ttl=float(sys.argv[1])) as lease:
    print(os.getpid(), lease.token, flush=True)
    time.sleep(300)
"""


def token(locks: TaskLockManager, task: str) -> int:
    found = locks.token(task)
    assert found is not None
    return found


class TestByHand:
    """The test moves the clock, on every store."""

    @pytest.mark.parametrize("jump", JUMPS)
    def test_a_jump_does_not_free_a_live_lock(
        self, jump: float, store: Store, clock: HandClock
    ) -> None:
        holder, other = TaskLockManager("holder", store), TaskLockManager("other", store)
        assert holder.acquire_lock("t", ttl=60)
        clock.jump(jump)
        clock.pass_time(59)
        assert holder.is_locked("t")
        assert not other.acquire_lock("t", ttl=60)
        assert holder.update_heartbeat("t")
        clock.jump(-2 * jump)
        clock.pass_time(59)
        assert not other.acquire_lock("t", ttl=60), (
            "also not after a heartbeat under the false time"
        )
        assert holder.release_lock("t")

    @pytest.mark.parametrize("jump", JUMPS)
    def test_a_jump_does_not_keep_a_dead_lock(
        self, jump: float, store: Store, clock: HandClock
    ) -> None:
        holder, other = TaskLockManager("holder", store), TaskLockManager("other", store)
        assert holder.acquire_lock("t", ttl=60)
        clock.jump(jump)
        clock.pass_time(61)
        assert not holder.is_locked("t")
        assert other.acquire_lock("t", ttl=60)
        assert not holder.update_heartbeat("t")
        assert not holder.release_lock("t")

    def test_a_lock_without_end_outlives_every_jump(
        self, tmp_path: Path, clock: HandClock, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        assert lock("acquire", "t", "w").returncode == 0
        store = FileStore(str(isolated_swarm_dir), clock=clock)
        for jump in JUMPS:
            clock.jump(jump)
            clock.pass_time(1e6)
            assert TaskLockManager("other", store).is_locked("t")
        store.close()

    def test_tokens_grow_over_jumps(self, store: Store, clock: HandClock) -> None:
        tokens = []
        for number, jump in enumerate([*JUMPS, *JUMPS]):
            worker = TaskLockManager(f"w{number}", store)
            assert worker.acquire_lock("t", ttl=60)
            tokens.append(token(worker, "t"))
            clock.jump(jump)
            if number % 2:
                assert worker.release_lock("t")
            else:
                clock.pass_time(61)
        assert tokens == sorted(set(tokens))

    def test_a_manager_judges_its_own_lock_without_the_wall_clock(
        self, store: Store, clock: HandClock
    ) -> None:
        locks = TaskLockManager("w", store)
        assert locks.acquire_lock("t", ttl=60)
        info = locks.get_lock_info("t")
        assert info is not None
        clock.jump(DAY)
        assert not locks.is_expired(info)
        clock.jump(-2 * DAY)
        clock.pass_time(61)
        assert locks.is_expired(info)


class TestEditedByHand:
    """The wall clock judges a file in which a person edited heartbeat_at or ttl."""

    @pytest.fixture
    def files(self, tmp_path: Path, clock: HandClock) -> Iterator[FileStore]:
        store = FileStore(str(tmp_path / "state"), clock=clock)
        assert TaskLockManager("w", store).acquire_lock("t", ttl=60)
        yield store
        store.close()

    def edit(self, store: FileStore, **changes: object) -> None:
        path = Path(store.root) / "locks" / "t.lock"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    def test_an_edited_heartbeat_is_judged_by_the_wall_clock(
        self, files: FileStore, clock: HandClock
    ) -> None:
        locks = TaskLockManager("other", files)
        self.edit(files, heartbeat_at=to_iso(clock.now() - 61))
        assert not locks.is_locked("t")
        self.edit(files, heartbeat_at=to_iso(clock.now() + 1000))
        clock.pass_time(1059)
        assert locks.is_locked("t")
        clock.jump(2)
        assert not locks.is_locked("t")
        assert locks.acquire_lock("t", ttl=60)

    def test_an_edited_ttl_is_judged_by_the_wall_clock(
        self, files: FileStore, clock: HandClock
    ) -> None:
        locks = TaskLockManager("other", files)
        self.edit(files, ttl=1000)
        clock.jump(999)
        assert locks.is_locked("t")
        clock.jump(2)
        assert not locks.is_locked("t")
        clock.jump(-2)
        assert locks.is_locked("t"), "the wall clock judges, also when it goes back"

    def test_an_edited_ttl_of_null_leaves_expires_at_as_the_only_end(
        self, files: FileStore, clock: HandClock
    ) -> None:
        locks = TaskLockManager("other", files)
        self.edit(files, ttl=None, expires_at=to_iso(clock.now() + 10))
        clock.jump(9)
        assert locks.is_locked("t")
        clock.jump(2)
        assert not locks.is_locked("t")
        self.edit(files, ttl=None, expires_at="")
        clock.pass_time(1e8)
        assert locks.is_locked("t")

    def test_an_edit_of_another_field_does_not_change_the_judgement(
        self, files: FileStore, clock: HandClock
    ) -> None:
        self.edit(files, note="please do not touch", acquired_at="2001-01-01T00:00:00Z")
        clock.jump(DAY)
        assert TaskLockManager("other", files).is_locked("t")

    def test_a_heartbeat_restores_the_holders_judgement_of_an_edited_lock(
        self, files: FileStore, clock: HandClock
    ) -> None:
        self.edit(files, ttl=100)
        owner = TaskLockManager("w", files)
        assert owner.update_heartbeat("t")
        clock.jump(DAY)
        clock.pass_time(99)
        assert owner.is_locked("t")
        clock.pass_time(2)
        assert not owner.is_locked("t")


class TestFakedTime:
    """The system's own clock is wrong, by libfaketime, for one of two real processes."""

    @pytest.fixture
    def at(self) -> Callable[[str], dict[str, str]]:
        """Return the environment of a process whose wall clock is off."""
        found = sorted(
            glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
            + glob.glob("/usr/lib*/faketime/libfaketime.so.1")
        )
        if sys.platform != "linux":
            pytest.skip("libfaketime is used on Linux")
        assert found, "install the package faketime"
        return lambda offset: script_environment(
            LD_PRELOAD=found[0], FAKETIME=offset, FAKETIME_DONT_FAKE_MONOTONIC="1"
        )

    def test_only_the_wall_clock_is_faked(self, at: Callable[[str], dict[str, str]]) -> None:
        """Without this the tests below would prove nothing."""
        program = (
            "import time; print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), "
            "time.monotonic())"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env=at("+2d"),
            timeout=20,
        )
        wall, boot, monotonic = map(float, done.stdout.split())
        assert wall - time.time() == pytest.approx(2 * DAY, abs=60)
        assert boot == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=60)
        assert monotonic == pytest.approx(time.monotonic(), abs=60)

    @pytest.mark.parametrize("offset", ["+2d", "-2d"])
    def test_a_live_lock_is_live_under_any_wall_clock(
        self, offset: str, lock: Run, at: Callable[[str], dict[str, str]]
    ) -> None:
        first = json.loads(lock("acquire", "t", "w", "30", "--json").stdout)["lock"]["token"]
        assert lock("check", "t", env=at(offset)).stdout.startswith("t: Active\n")
        assert lock("list", env=at(offset)).stdout.startswith("t: Active (")
        refused = lock("acquire", "t", "other", "30", env=at(offset))
        assert refused.returncode == 1
        assert "held by w" in refused.stderr
        assert lock("heartbeat", "t", "w", env=at(offset)).returncode == 0
        assert lock("acquire", "t", "other", "30").returncode == 1, (
            "a heartbeat under a false time counts as well"
        )
        assert lock("release", "t", "w", "--token", str(first)).returncode == 0

    @pytest.mark.parametrize("offset", ["+2d", "-2d"])
    def test_a_dead_lock_is_dead_under_any_wall_clock(
        self, offset: str, lock: Run, at: Callable[[str], dict[str, str]]
    ) -> None:
        first = json.loads(lock("acquire", "t", "w", "1", "--json").stdout)["lock"]["token"]
        time.sleep(1.05)
        assert lock("check", "t", env=at(offset)).stdout.startswith("t: Expired\n")
        taken = lock("acquire", "t", "other", "30", "--json", env=at(offset))
        assert taken.returncode == 0
        assert json.loads(taken.stdout)["lock"]["token"] > first
        assert lock("heartbeat", "t", "w").returncode == 4

    @pytest.mark.parametrize("offset", ["+2d", "-2d"])
    def test_a_lock_taken_under_a_false_clock_counts_under_the_true_one(
        self, offset: str, lock: Run, at: Callable[[str], dict[str, str]]
    ) -> None:
        assert lock("acquire", "long", "w", "30", env=at(offset)).returncode == 0
        assert lock("acquire", "short", "w", "1", env=at(offset)).returncode == 0
        assert lock("acquire", "long", "other").returncode == 1
        assert lock("acquire", "short", "other", "--wait", "10").returncode == 0
        assert lock("check", "long").stdout.startswith("long: Active\n")

    def test_tokens_grow_under_any_wall_clock(
        self, lock: Run, at: Callable[[str], dict[str, str]]
    ) -> None:
        tokens = []
        for offset in ("+2d", "-2d", "+0", "-3000d", "+3000d", "-2d"):
            done = lock("acquire", "t", "w", "60", "--json", env=at(offset))
            tokens.append(json.loads(done.stdout)["lock"]["token"])
            assert lock("release", "t", "w").returncode == 0
        assert tokens == sorted(set(tokens))

    def test_a_wait_lasts_as_long_as_asked_under_any_wall_clock(
        self, lock: Run, at: Callable[[str], dict[str, str]]
    ) -> None:
        lock("acquire", "t", "w")
        for offset in ("+2d", "-2d"):
            begun = time.monotonic()
            assert lock("acquire", "t", "other", "--wait", "0.5", env=at(offset)).returncode == 1
            assert 0.5 <= time.monotonic() - begun < 5


@needs_root
class TestTimeNamespaces:
    """CLOCK_BOOTTIME itself reads differently inside."""

    @pytest.fixture(params=["ahead", "behind"])
    def shifted(self, request: pytest.FixtureRequest) -> list[str]:
        """Return the command that runs another in a time namespace."""
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
        offset = 100_000 if request.param == "ahead" else -int(uptime * 0.9)
        return ["unshare", "--time", f"--boottime={offset}", "--fork"]

    def test_the_boot_clock_reads_differently_inside_a_time_namespace(
        self, shifted: list[str]
    ) -> None:
        """Without this the tests below would prove nothing."""
        program = "import time; print(time.clock_gettime(time.CLOCK_BOOTTIME))"
        inside = float(run([*shifted, sys.executable, "-c", program]).stdout)
        assert abs(inside - time.clock_gettime(time.CLOCK_BOOTTIME)) > 60

    def test_a_live_lock_counts_inside_and_outside_a_time_namespace(
        self, shifted: list[str], lock: Run
    ) -> None:
        assert run([*shifted, LOCK, "acquire", "inside", "w", "60"]).returncode == 0
        assert lock("acquire", "outside", "w", "60").returncode == 0
        for side in ([], shifted):
            for task in ("inside", "outside"):
                assert run([*side, LOCK, "check", task]).stdout.startswith(f"{task}: Active\n")
                assert run([*side, LOCK, "acquire", task, "other", "60"]).returncode == 1
        assert run([*shifted, LOCK, "heartbeat", "outside", "w"]).returncode == 0
        assert lock("heartbeat", "inside", "w").returncode == 0
        for side in ([], shifted):
            for task in ("inside", "outside"):
                assert run([*side, LOCK, "acquire", task, "other", "60"]).returncode == 1, (
                    "also after a heartbeat from the other side"
                )

    def test_a_short_lease_expires_inside_and_outside_a_time_namespace(
        self, shifted: list[str], lock: Run
    ) -> None:
        tokens = {}
        for task, side in (("inside", shifted), ("outside", [])):
            tokens[task] = json.loads(
                run([*side, LOCK, "acquire", task, "w", "1", "--json"]).stdout
            )["lock"]["token"]
        time.sleep(1.05)
        for side in ([], shifted):
            for task in ("inside", "outside"):
                assert run([*side, LOCK, "check", task]).stdout.startswith(f"{task}: Expired\n")
        assert (
            json.loads(lock("acquire", "inside", "v", "--json").stdout)["lock"]["token"]
            > tokens["inside"]
        )
        taken = run([*shifted, LOCK, "acquire", "outside", "v", "--json"])
        assert json.loads(taken.stdout)["lock"]["token"] > tokens["outside"]

    def test_a_holder_in_a_time_namespace_is_alive_for_others_until_killed(
        self, shifted: list[str], lock: Run
    ) -> None:
        with holding(shifted) as pid:
            assert lock("check", "t").stdout.startswith("t: Active\n")
            assert lock("acquire", "t", "other", "60").returncode == 1
            assert run([*shifted, LOCK, "acquire", "t", "other", "60"]).returncode == 1
            kill(pid)
            assert lock("check", "t").stdout.startswith("t: Expired (holder gone)\n")
            assert lock("acquire", "t", "other", "60").returncode == 0

    def test_a_holder_outside_is_alive_for_a_time_namespace_until_killed(
        self, shifted: list[str], lock: Run
    ) -> None:
        with holding([]) as pid:
            assert run([*shifted, LOCK, "check", "t"]).stdout.startswith("t: Active\n")
            assert run([*shifted, LOCK, "acquire", "t", "other", "60"]).returncode == 1
            kill(pid)
            assert run([*shifted, LOCK, "check", "t"]).stdout.startswith(
                "t: Expired (holder gone)\n"
            )
            assert run([*shifted, LOCK, "acquire", "t", "other", "60"]).returncode == 0

    def test_heartbeats_inside_a_time_namespace_keep_a_short_lease(
        self, shifted: list[str], lock: Run
    ) -> None:
        with holding(shifted, ttl=1):
            deadline = time.monotonic() + 2.2
            while time.monotonic() < deadline:
                assert lock("acquire", "t", "other", "60").returncode == 1


@needs_root
class TestPidNamespaces:
    """A pid means another process, or none, in another pid namespace."""

    APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

    def test_a_holder_in_a_pid_namespace_never_counts_as_gone_outside(self, lock: Run) -> None:
        with holding(self.APART) as pid:
            assert pid == 1, "the pid that it knows of itself"
            assert lock("check", "t").stdout.startswith("t: Active\n")
            assert lock("acquire", "t", "other").returncode == 1

    def test_a_holder_outside_never_counts_as_gone_in_a_pid_namespace(self) -> None:
        with holding([]) as pid:
            assert run([*self.APART, "sh", "-c", f"kill -0 {pid}"]).returncode != 0, (
                "the pid does not exist inside"
            )
            assert run([*self.APART, LOCK, "check", "t"]).stdout.startswith("t: Active\n")
            assert run([*self.APART, LOCK, "acquire", "t", "other"]).returncode == 1

    def test_equal_pids_of_two_pid_namespaces_are_not_confused(self) -> None:
        with holding(self.APART):
            program = (
                "import os, swarm; print(os.getpid(), "
                "swarm.TaskLockManager('other').acquire_lock('t'))"
            )
            done = run([*self.APART, sys.executable, "-c", program], cwd=ROOT)
            assert (done.stdout, done.stderr) == ("1 False\n", "")

    def test_the_lock_of_a_dead_holder_in_a_pid_namespace_ends_with_its_lease(
        self, lock: Run
    ) -> None:
        """No process outside can prove that the holder is gone."""
        with holding(self.APART, ttl=1):
            pass
        assert lock("check", "t").stdout.startswith("t: Active\n")
        assert lock("acquire", "t", "other", "--wait", "10").returncode == 0

    def test_a_proc_mount_of_another_pid_namespace_proves_nothing(self, tmp_path: Path) -> None:
        """`unshare --pid` without a /proc of its own: /proc/2 is another process than
        pid 2, and here a dead one.
        """
        holder = tmp_path / "holder.py"
        holder.write_text(HOLDER)
        driver = tmp_path / "driver.py"
        driver.write_text(
            "import subprocess, sys\n"
            "stranger = subprocess.Popen(['sleep', '300'])\n"
            "assert stranger.pid == 2\n"
            "inner = subprocess.Popen(['unshare', '--pid', '--fork', '--kill-child', 'sh', '-c', "
            "sys.argv[1]],\n"
            "                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n"
            "print((inner.stdout.readline() or 'nothing').split()[0])\n"
            "stranger.kill()\n"
            "inner.stdin.write('go\\n')\n"
            "inner.stdin.flush()\n"
            "print(inner.stdout.readline(), end='', flush=True)\n"
            "inner.kill()\n"
        )
        script = f"'{sys.executable}' '{holder}' 60 & read -r go; '{LOCK}' check t; kill $!; wait"
        done = run(
            [*self.APART, sys.executable, str(driver), script],
            env=script_environment(PYTHONPATH=str(ROOT)),
        )
        assert done.stdout.splitlines() == ["2", "t: Active"], done.stderr


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    settings = {
        "capture_output": True,
        "text": True,
        "timeout": 30,
        "env": script_environment(),
        **options,
    }
    done: subprocess.CompletedProcess[str] = subprocess.run(command, **settings)
    return done


@contextmanager
def holding(apart: list[str] | tuple[str, ...], ttl: float = 60) -> Iterator[int]:
    """Start a process that holds the task `t`, in namespaces of its own.

    Yield its pid as it knows it. Kill it at the end.
    """
    command = [*apart, sys.executable, "-c", HOLDER, str(ttl)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=script_environment()
    ) as process:
        assert process.stdout is not None
        pid = 0
        try:
            pid = int(process.stdout.readline().split()[0])
            yield pid
        finally:
            if apart and "--pid" not in apart and pid and Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)  # `unshare` is its parent and would leave it behind
            process.kill()


def kill(pid: int) -> None:
    """Kill a process and return when it has ended; a zombie has."""
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state in "ZX":
            return
        time.sleep(0.005)
    pytest.fail("it does not end")
