"""Who a process is, and when it is provably gone; whatever cannot be looked up counts as alive."""

from __future__ import annotations

import ctypes
import errno
import os
import posix
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import StoreError
from swarm.system import process
from tests.conftest import open_descriptors
from tests.support.processes import fork

BOOT, TIME_NS = process.boot_id(), process.namespace("time")


def stamped(pid: int = 0) -> dict[str, object]:
    """An identity as it stands in a lock: beside the stamp of a clock."""
    return {**process.identity(pid), "boot": BOOT, "time_ns": TIME_NS}


@pytest.fixture
def child() -> Iterator[int]:
    """A process that lives until the test ends."""
    pid = fork(time.sleep, 60)
    yield pid
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def die(pid: int) -> None:
    """Ends it, and reaps it not."""
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def raising(error: OSError) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def failing(number: int) -> Callable[[str], str]:
    def fail(path: str) -> str:
        raise OSError(number, os.strerror(number), path)

    return fail


class TestIdentity:
    def test_an_identity_names_host_machine_namespace_pid_and_start(self, child: int) -> None:
        mine, other = process.identity(), process.identity(child)
        for who, pid in ((mine, os.getpid()), (other, child)):
            machine = Path("/etc/machine-id")
            assert who["host"] == os.uname().nodename
            assert who["machine"] == (machine.read_text().strip() if machine.exists() else "")
            assert who["pid_ns"] == os.readlink("/proc/self/ns/pid")
            assert who["pid"] == pid
            assert who["start"] == int(
                Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
            )

    def test_a_name_of_strange_characters_does_not_confuse_it(self) -> None:
        comm = Path("/proc/self/comm")
        before, start = comm.read_bytes(), process.identity()["start"]
        try:
            comm.write_bytes(b"a ) \xff (c")
            assert process.identity()["start"] == start
        finally:
            comm.write_bytes(before)

    def test_looking_leaves_nothing_open(self) -> None:
        before = open_descriptors()
        process.identity()
        assert open_descriptors() == before

    def test_the_start_of_a_missing_process_is_unknown(self, child: int) -> None:
        end(child)
        assert process.identity(child)["start"] == 0

    def test_the_boot_has_a_name(self) -> None:
        assert process.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def test_names_that_the_system_does_not_have_are_empty(self) -> None:
        assert (
            process.namespace("nonsense") == ""
            and process._read("/nonsense") == ""
            and process._read("/") == ""
        )

    @pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM])
    def test_the_boot_id_is_empty_on_a_system_that_has_none(
        self, number: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_load", failing(number))
        assert process.boot_id() == ""

    def test_a_boot_id_that_cannot_be_read_now_is_an_error_and_not_an_empty_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer is cached: an empty one would turn boot checks off for the life of
        the process.
        """
        monkeypatch.setattr(process, "_load", failing(errno.EMFILE))
        with pytest.raises(StoreError) as refused:
            process.boot_id()
        for fact in ("boot", "/proc/sys/kernel/random/boot_id", "Too many open files", "ulimit -n"):
            assert fact in str(refused.value)


class TestGone:
    def test_a_living_process_is_not(self, child: int) -> None:
        assert not process.has_ended(stamped(), BOOT, TIME_NS)
        assert not process.has_ended(stamped(child), BOOT, TIME_NS)

    def test_a_process_that_ended_is(self, child: int) -> None:
        who = stamped(child)
        end(child)
        assert process.has_ended(who, BOOT, TIME_NS)

    def test_a_dead_process_that_was_not_reaped_has_ended(self, child: int) -> None:
        who = stamped(child)
        os.kill(child, signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert process.has_ended(who, BOOT, TIME_NS)

    @pytest.mark.parametrize(
        ("state", "threads", "gone"),
        [("Z", 1, True), ("X", 1, True), ("Z", 2, False), ("S", 1, False)],
    )
    def test_a_process_with_a_living_thread_has_not_ended(
        self, state: str, threads: int, gone: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        who = stamped()
        stat = process._stat("self")
        monkeypatch.setattr(
            process, "_stat", lambda pid: [state, *stat[1:17], str(threads), *stat[18:]]
        )
        assert process.has_ended(who, BOOT, TIME_NS) is gone

    def test_a_process_whose_pid_was_reused_has_ended(self, child: int) -> None:
        assert process.has_ended({**stamped(child), "start": 1}, BOOT, TIME_NS)

    def test_but_start_times_of_another_time_namespace_prove_nothing(self, child: int) -> None:
        assert not process.has_ended(
            {**stamped(child), "start": 1, "time_ns": "time:[1]"}, BOOT, TIME_NS
        )

    @pytest.mark.parametrize("start", [0, None, ""])
    def test_a_start_time_of_zero_proves_nothing(self, start: object, child: int) -> None:
        assert process.has_ended({**stamped(child), "start": start}, BOOT, TIME_NS) is False

    def test_a_process_from_before_a_restart_has_ended(
        self, child: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_machine", lambda: "this machine")
        who = {**stamped(child), "boot": "an earlier boot"}
        assert process.has_ended(who, BOOT, TIME_NS) is True
        assert process.has_ended({**who, "machine": "another"}, BOOT, TIME_NS) is False
        assert process.has_ended({**who, "host": "another"}, BOOT, TIME_NS) is False
        for what_is_no_boot in ("", None, 5, 1.5, True):
            assert process.has_ended({**who, "boot": what_is_no_boot}, BOOT, TIME_NS) is False
        monkeypatch.setattr(process, "_machine", lambda: "")
        assert process.has_ended({**who, "machine": ""}, BOOT, TIME_NS) is False

    def test_a_process_of_another_pid_namespace_counts_as_alive(self, child: int) -> None:
        who = {**stamped(child), "pid_ns": "pid:[1]"}
        end(child)
        assert not process.has_ended(who, BOOT, TIME_NS)

    def test_without_a_boot_nothing_is_proven(self, child: int) -> None:
        who = {**stamped(child), "boot": ""}
        end(child)
        for boot in ("", BOOT):
            assert process.has_ended(who, boot, TIME_NS) is False

    @pytest.mark.parametrize("pid", [None, "1", True, 0, -1, 1.5, 10**30])
    def test_a_number_that_is_no_pid_has_not_ended(self, pid: Any) -> None:
        assert process.has_ended({**stamped(), "pid": pid}, BOOT, TIME_NS) is False

    def test_pid_one_is_a_process_like_any_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # whatever a mutant would send to it
        monkeypatch.setattr(posix, "kill", lambda pid, number: None)
        assert not process.has_ended(stamped(1), BOOT, TIME_NS)
        assert process.has_ended({**stamped(1), "start": 10**9}, BOOT, TIME_NS)

    def test_asking_does_nothing_to_the_process(
        self, child: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sent: list[tuple[int, int]] = []
        monkeypatch.setattr(posix, "kill", lambda pid, number: sent.append((pid, number)))
        assert not process.has_ended(stamped(child), BOOT, TIME_NS)
        monkeypatch.undo()
        assert sent == [(child, 0)]

    def test_a_process_of_another_user_is_alive(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def denied(pid: int, number: int) -> None:
            raise PermissionError

        who = stamped()
        monkeypatch.setattr(posix, "kill", denied)
        assert not process.has_ended(who, BOOT, TIME_NS)

    def test_a_proc_of_another_namespace_is_not_believed(
        self, child: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        who = {**stamped(child), "start": 1}
        real = os.readlink
        monkeypatch.setattr(
            posix, "readlink", lambda path: "1" if path == "/proc/self" else real(path)
        )
        assert process.has_ended(who, BOOT, TIME_NS) is False
        monkeypatch.setattr(
            posix, "readlink", lambda path: real("/nonsense" if path == "/proc/self" else path)
        )
        assert process.has_ended(who, BOOT, TIME_NS) is False
        assert process.identity(child)["start"] == 0


class TestGroup:
    """A process is gone only once the group that works for it is empty."""

    @pytest.fixture
    def group(self) -> Iterator[int]:
        """A process group of one process."""
        pid = fork(_lead_a_group)
        wait_until(lambda: os.getpgid(pid) == pid)
        yield pid
        try:
            end(pid)
        except (ProcessLookupError, ChildProcessError):
            pass

    def test_a_group_is_left_while_one_of_it_lives(self, group: int) -> None:
        assert not process.group_has_ended(group)
        end(group)
        assert process.group_has_ended(group)

    def test_a_group_with_a_dead_leader_is_not_empty(self, group: int) -> None:
        member = fork(time.sleep, 60)
        try:
            os.setpgid(member, group)
            end(group)
            assert not process.group_has_ended(group)
        finally:
            end(member)
        assert process.group_has_ended(group)

    def test_a_group_of_dead_processes_is_empty(self, group: int) -> None:
        member = fork(time.sleep, 60)
        try:
            os.setpgid(member, group)
            die(group)
            os.killpg(group, 0)  # so much for asking with a signal
            assert not process.group_has_ended(group), "one of two lives"
            die(member)
            assert process.group_has_ended(group)
        finally:
            os.waitpid(member, 0)

    def test_a_group_with_a_process_whose_first_thread_has_ended_is_not_empty(self) -> None:
        ready, report = os.pipe()
        pid = fork(_lead_a_group_without_a_first_thread, report)
        os.close(report)
        try:
            assert os.read(ready, 1) == b"1"
            wait_until(lambda: process._stat(str(pid))[0] == "Z")
            assert not process.group_has_ended(pid)
        finally:
            os.close(ready)
            end(pid)

    @pytest.mark.parametrize("group", [None, "1", True, 0, -1, 1.5, 10**30, 2**31])
    def test_a_number_that_is_no_group_proves_nothing(self, group: Any) -> None:
        assert process.group_has_ended(group) is False

    def test_a_group_of_another_user_is_left(
        self, group: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(posix, "killpg", raising(PermissionError()))
        assert not process.group_has_ended(group)
        die(group)
        assert process.group_has_ended(group), "as /proc tells"

    def test_a_group_that_cannot_be_looked_up_is_not_empty(
        self, group: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        end(group)
        monkeypatch.setattr(posix, "killpg", raising(OSError(errno.EIO, os.strerror(errno.EIO))))
        assert not process.group_has_ended(group)

    def test_a_proc_that_hides_processes_proves_nothing(
        self, group: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        die(group)
        mounts = tmp_path / "mounts"
        mounts.write_text(
            "/dev/vda / ext4 rw 0 0\n" * 200 + "proc /proc proc rw,relatime,hidepid=invisible 0 0\n"
        )
        monkeypatch.setattr("builtins.open", lambda path, **how: mounts.open(**how))
        assert not process.group_has_ended(group)
        mounts.write_bytes(b"/dev/vdb /mnt/\xff ext4 rw 0 0\nproc /proc proc rw,relatime 0 0\n")
        assert process.group_has_ended(group)

    def test_nor_does_one_of_another_namespace(
        self, group: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        die(group)
        real = os.readlink
        monkeypatch.setattr(
            posix, "readlink", lambda path: "1" if path == "/proc/self" else real(path)
        )
        assert not process.group_has_ended(group)

    def test_a_group_whose_processes_cannot_be_read_is_not_empty(
        self, group: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        die(group)
        monkeypatch.setattr(process, "_load", failing(errno.EACCES))
        assert not process.group_has_ended(group)

    def test_a_group_that_changes_during_the_look_is_not_empty(
        self, group: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        die(group)
        found = iter([["1"], ["1", "2"]])
        monkeypatch.setattr(process, "_all_dead", lambda group: next(found))
        assert not process.group_has_ended(group)

    def test_nor_one_in_which_a_dead_process_takes_the_place_of_another(
        self, group: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was forked while we looked, and has ended: so may the next one live."""
        member = fork(time.sleep, 60)
        try:
            os.setpgid(member, group)
            die(group)
            die(member)
            looks = iter([[str(group)], [str(member)]])
            monkeypatch.setattr(posix, "listdir", lambda path: next(looks))
            assert not process.group_has_ended(group)
        finally:
            os.waitpid(member, 0)

    def test_a_process_that_ends_during_the_look_proves_nothing_about_its_group(
        self, group: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reaped = fork(time.sleep, 60)
        end(reaped)
        monkeypatch.setattr(posix, "listdir", lambda path: ["self", str(reaped), str(group)])
        assert not process.group_has_ended(group)
        die(group)
        assert process.group_has_ended(group)

    def test_asking_for_a_group_does_nothing_to_it(
        self, group: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[int, int]] = []
        monkeypatch.setattr(posix, "killpg", lambda *args: asked.append(args))
        assert not process.group_has_ended(group)
        assert asked == [(group, 0)]

    def test_a_process_has_ended_once_its_group_has(self, child: int, group: int) -> None:
        who = {**stamped(child), "group": group}
        assert not process.has_ended(who, BOOT, TIME_NS)
        end(child)
        assert not process.has_ended(who, BOOT, TIME_NS)
        assert process.probe(who, BOOT, TIME_NS) == "gone", "of the process itself"
        end(group)
        assert process.has_ended(who, BOOT, TIME_NS)

    def test_a_living_process_has_not_ended_with_its_group(self, child: int, group: int) -> None:
        who = {**stamped(child), "group": group}
        end(group)
        assert not process.has_ended(who, BOOT, TIME_NS)

    def test_an_invalid_group_proves_nothing(self, child: int) -> None:
        who = stamped(child)
        end(child)
        for nonsense in (None, 0, "x", True):
            assert not process.has_ended({**who, "group": nonsense}, BOOT, TIME_NS)

    def test_no_group_survives_a_restart(
        self, child: int, group: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_machine", lambda: "this machine")
        assert process.has_ended(
            {**stamped(child), "boot": "an earlier boot", "group": group}, BOOT, TIME_NS
        )

    def test_asking_leaves_nothing_open(self, group: int) -> None:
        die(group)
        before = open_descriptors()
        assert process.group_has_ended(group)
        assert open_descriptors() == before


class TestProbe:
    """What has become of a process, in a word."""

    def test_a_living_process_is_alive(self, child: int) -> None:
        for pid in (0, child):
            assert process.probe(stamped(pid), BOOT, TIME_NS) == "alive"

    def test_a_process_that_ended_is_gone(self, child: int) -> None:
        who = stamped(child)
        end(child)
        assert process.probe(who, BOOT, TIME_NS) == "gone"

    def test_a_dead_process_that_was_not_reaped_is_gone(self, child: int) -> None:
        who = stamped(child)
        os.kill(child, signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert process.probe(who, BOOT, TIME_NS) == "gone"
        assert process.probe({**who, "start": 1}, BOOT, TIME_NS) == "gone", (
            "whichever process it was"
        )

    def test_a_process_whose_first_thread_has_ended_is_alive(self) -> None:
        ready, report = os.pipe()
        pid = fork(_end_the_first_thread, report)
        os.close(report)
        try:
            assert os.read(ready, 1) == b"1"
            deadline = time.monotonic() + 10
            while (stat := process._stat(str(pid)))[0] != "Z" and time.monotonic() < deadline:
                time.sleep(0.005)
            assert (stat[0], int(stat[17])) == ("Z", 2)
            assert process.probe(stamped(pid), BOOT, TIME_NS) == "alive"
            assert process.probe({**stamped(pid), "start": 1}, BOOT, TIME_NS) == "reused"
        finally:
            os.close(ready)
            end(pid)

    def test_a_pid_with_another_start_time_was_reused(self, child: int) -> None:
        start = process.identity(child)["start"]
        assert isinstance(start, int)
        for other in (1, start - 1, start + 1):
            assert process.probe({**stamped(child), "start": other}, BOOT, TIME_NS) == "reused"

    def test_an_unknown_start_time_proves_nothing(self, child: int) -> None:
        for start in (0, -1, None, "", "1", 1.5, [1]):
            assert process.probe({**stamped(child), "start": start}, BOOT, TIME_NS) == "alive"
        assert process.probe({"pid": child, "time_ns": TIME_NS}, BOOT, TIME_NS) == "alive"

    def test_nor_does_one_of_another_time_namespace(self, child: int) -> None:
        who = {**stamped(child), "start": 1}
        assert process.probe(who, BOOT, "time:[1]") == "alive"
        assert process.probe({**who, "time_ns": "time:[1]"}, BOOT, TIME_NS) == "alive"
        assert process.probe({**who, "time_ns": None}, BOOT, TIME_NS) == "alive"

    def test_a_pid_alone_is_of_here_and_now(self, child: int) -> None:
        for boot in (BOOT, ""):
            assert process.probe({"pid": child}, boot, TIME_NS) == "alive"
        end(child)
        for boot in (BOOT, ""):
            assert process.probe({"pid": child}, boot, TIME_NS) == "gone"

    def test_a_start_time_beside_a_pid_shows_whether_the_pid_was_reused(self, child: int) -> None:
        assert (
            process.probe({"pid": child, "start": 1, "time_ns": TIME_NS}, "", TIME_NS) == "reused"
        )

    def test_a_process_of_an_earlier_boot_of_this_machine_was_restarted(
        self, child: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_machine", lambda: "this machine")
        who = {**stamped(child), "boot": "an earlier boot"}
        assert process.probe(who, BOOT, TIME_NS) == "restarted"
        assert process.probe({**who, "pid_ns": "pid:[1]"}, BOOT, TIME_NS) == "restarted", (
            "in whatever namespace it was"
        )
        assert process.probe({**who, "machine": "another"}, BOOT, TIME_NS) == "elsewhere"
        assert process.probe({**who, "host": "another"}, BOOT, TIME_NS) == "elsewhere"
        for missing in ("machine", "host"):
            assert (
                process.probe({key: who[key] for key in who if key != missing}, BOOT, TIME_NS)
                == "elsewhere"
            )
        assert process.probe(who, "", TIME_NS) == "elsewhere", (
            "without a boot of our own, which of the two is the earlier?"
        )

    def test_machines_without_a_name_are_not_the_same_one(
        self, child: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_machine", lambda: "")
        assert (
            process.probe({**stamped(child), "boot": "another boot"}, BOOT, TIME_NS) == "elsewhere"
        )

    def test_another_pid_namespace_is_elsewhere(self, child: int) -> None:
        for boot in (BOOT, "", None):
            who = {**stamped(child), "boot": boot}
            assert process.probe(who, BOOT, TIME_NS) == "alive"
            assert process.probe({**who, "pid_ns": "pid:[1]"}, BOOT, TIME_NS) == "elsewhere"
            assert process.probe({**who, "pid_ns": ""}, BOOT, TIME_NS) == "elsewhere"

    def test_an_identity_with_a_boot_and_without_a_pid_namespace_is_elsewhere(
        self, child: int
    ) -> None:
        assert process.probe({"pid": child, "boot": BOOT}, BOOT, TIME_NS) == "elsewhere"

    def test_another_host_is_elsewhere_where_no_boot_is_named(self, child: int) -> None:
        here = os.uname().nodename
        assert process.probe({"pid": child, "host": "another"}, BOOT, TIME_NS) == "elsewhere"
        assert process.probe({"pid": child, "host": here}, BOOT, TIME_NS) == "alive"
        assert (
            process.probe({**stamped(child), "boot": "", "host": "another"}, BOOT, TIME_NS)
            == "elsewhere"
        )

    def test_a_host_of_the_same_boot_has_only_got_another_name(self, child: int) -> None:
        who = {**stamped(child), "host": "another"}
        assert process.probe(who, BOOT, TIME_NS) == "alive"
        end(child)
        assert process.probe(who, BOOT, TIME_NS) == "gone"

    def test_a_process_that_may_not_be_signalled_is_looked_at_all_the_same(
        self, child: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def denied(pid: int, number: int) -> None:
            raise PermissionError

        monkeypatch.setattr(posix, "kill", denied)
        assert process.probe(stamped(child), BOOT, TIME_NS) == "alive"
        assert process.probe({**stamped(child), "start": 1}, BOOT, TIME_NS) == "reused"
        monkeypatch.undo()

    def test_a_process_that_cannot_be_looked_up_is_unknown(
        self, child: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for pid in (2**31, 2**40, 10**30):
            assert process.probe({"pid": pid}, BOOT, TIME_NS) == "unknown"

        def broken(pid: int, number: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(posix, "kill", broken)
        assert process.probe(stamped(child), BOOT, TIME_NS) == "unknown"
        monkeypatch.undo()

    def test_without_proc_only_the_signal_counts(
        self, child: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_stat", lambda pid: [])
        assert process.probe({**stamped(child), "start": 1}, BOOT, TIME_NS) == "alive"
        end(child)
        assert process.probe({**stamped(child), "start": 1}, BOOT, TIME_NS) == "gone"

    def test_looking_sends_no_signal_and_leaves_nothing_open(
        self, child: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = open_descriptors()
        sent: list[tuple[int, int]] = []
        monkeypatch.setattr(posix, "kill", lambda pid, number: sent.append((pid, number)))
        process.probe(stamped(child), BOOT, TIME_NS)
        monkeypatch.undo()
        assert sent == [(child, 0)]
        assert open_descriptors() == before

    def test_a_process_elsewhere_is_not_looked_up(
        self, child: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sent: list[int] = []
        monkeypatch.setattr(posix, "kill", lambda pid, number: sent.append(pid))
        for change in ({"boot": "another"}, {"pid_ns": "pid:[1]"}, {"boot": "", "host": "another"}):
            process.probe({**stamped(child), **change}, BOOT, TIME_NS)
        monkeypatch.undo()
        assert sent == []


def _end_the_first_thread(report: int) -> None:
    """Leaves a process whose first thread is dead while another goes on."""
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    os.write(report, b"1")
    ctypes.CDLL(None).pthread_exit(None)


def _lead_a_group() -> None:
    os.setpgid(0, 0)
    time.sleep(60)


def _lead_a_group_without_a_first_thread(report: int) -> None:
    os.setpgid(0, 0)
    _end_the_first_thread(report)


class TestThisProcess:
    def test_its_age_is_the_time_since_it_started(self) -> None:
        def report() -> float:
            time.sleep(0.2)
            return process.age()

        assert 0.2 <= float(fork_and_report(report)) < 30

    def test_without_proc_its_age_is_unknown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process, "_read", lambda path: "")
        assert process.age() == 0.0

    @pytest.mark.parametrize(("before", "least", "most"), [(7.5, 7.5, 60.0), (-1e6, 0.0, 0.0)])
    def test_an_age_counts_from_the_start_and_is_never_negative(
        self, before: float, least: float, most: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ticks = os.sysconf("SC_CLK_TCK")
        start = int((time.clock_gettime(time.CLOCK_BOOTTIME) - before) * ticks)
        fields = {"self": ["S"] + ["0"] * 18 + [str(start)]}
        monkeypatch.setattr(process, "_stat", fields.__getitem__)
        assert least <= process.age() <= most

    def test_one_thread_is_told_from_two(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert fork_and_report(process.has_one_thread) == "True"
        for threads, alone in ((1, True), (2, False)):
            fields = {"self": ["S"] + ["0"] * 16 + [str(threads)]}
            monkeypatch.setattr(process, "_stat", fields.__getitem__)
            assert process.has_one_thread() is alone

    def test_without_proc_the_threads_of_python_are_counted(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_stat", lambda pid: [])
        for threads, alone in ((1, True), (2, False)):
            monkeypatch.setattr(threading, "active_count", lambda count=threads: count)
            assert process.has_one_thread() is alone

    def test_the_stat_of_a_process_is_read_only_where_proc_is_ours(
        self, child: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert process.stat_text(child).startswith(f"{child} (")
        monkeypatch.setattr(process, "_proc_is_ours", lambda: False)
        assert process.stat_text(child) == ""

    def test_a_process_may_have_any_name(self) -> None:
        def report() -> list[str]:
            Path("/proc/self/comm").write_bytes(b") S 1 (\xff)")
            return process._stat("self")[:2]

        assert fork_and_report(report) == repr(["R", str(os.getpid())])


def fork_and_report(work: Callable[[], object]) -> str:
    """Call `work` in a forked child, and return its result as text."""
    read, write = os.pipe()
    pid = fork(lambda: os.write(write, str(work()).encode()))
    os.close(write)
    try:
        with open(read) as answer:
            return answer.read()
    finally:
        os.waitpid(pid, 0)
