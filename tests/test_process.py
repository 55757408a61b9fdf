"""Who a process is, and when it is provably gone; whatever cannot be looked up counts as alive."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proof.processes import fork
from swarm import process
from swarm.errors import StoreError

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


def failing(number: int) -> Callable[[str], str]:
    def fail(path: str) -> str:
        raise OSError(number, os.strerror(number), path)

    return fail


class TestIdentity:
    def test_it_names_host_machine_namespace_pid_and_start(self, child: int) -> None:
        mine, other = process.identity(), process.identity(child)
        for who, pid in ((mine, os.getpid()), (other, child)):
            machine = Path("/etc/machine-id")
            assert who["host"] == os.uname().nodename
            assert who["machine"] == (machine.read_text().strip() if machine.exists() else "")
            assert who["pid_ns"] == os.readlink("/proc/self/ns/pid")
            assert who["pid"] == pid
            assert who["start"] == int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])

    def test_a_name_of_strange_characters_does_not_confuse_it(self) -> None:
        comm = Path("/proc/self/comm")
        before, start = comm.read_bytes(), process.identity()["start"]
        try:
            comm.write_bytes(b"a ) \xff (c")
            assert process.identity()["start"] == start
        finally:
            comm.write_bytes(before)

    def test_looking_leaves_nothing_open(self) -> None:
        before = len(os.listdir("/proc/self/fd"))
        process.identity()
        assert len(os.listdir("/proc/self/fd")) == before

    def test_of_a_process_that_is_not_there_the_start_is_not_known(self, child: int) -> None:
        end(child)
        assert process.identity(child)["start"] == 0

    def test_the_boot_has_a_name(self) -> None:
        assert process.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def test_where_the_system_does_not_tell_names_are_empty(self) -> None:
        assert process.namespace("nonsense") == "" and process._read("/nonsense") == "" and process._read("/") == ""

    @pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM])
    def test_where_the_system_does_not_tell_the_boot_has_no_name(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process, "_load", failing(number))
        assert process.boot_id() == ""

    def test_where_the_boot_cannot_be_asked_for_now_that_is_an_error_and_not_a_boot_without_a_name(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever is remembered as without a boot would be, for as long as the process lives."""
        monkeypatch.setattr(process, "_load", failing(errno.EMFILE))
        with pytest.raises(StoreError) as refused:
            process.boot_id()
        assert str(refused.value) == (
            "the identity of this boot cannot be read: /proc/sys/kernel/random/boot_id: Too many open files. "
            "Close some files, or raise the limit with ulimit -n."
        )


class TestGone:
    def test_a_living_process_is_not(self, child: int) -> None:
        assert not process.gone(stamped(), BOOT, TIME_NS)
        assert not process.gone(stamped(child), BOOT, TIME_NS)

    def test_a_process_that_ended_is(self, child: int) -> None:
        who = stamped(child)
        end(child)
        assert process.gone(who, BOOT, TIME_NS)

    def test_also_while_nobody_has_reaped_it(self, child: int) -> None:
        who = stamped(child)
        os.kill(child, signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert process.gone(who, BOOT, TIME_NS)

    @pytest.mark.parametrize(("state", "threads", "gone"), [("Z", 1, True), ("X", 1, True), ("Z", 2, False), ("S", 1, False)])
    def test_not_while_one_of_its_threads_goes_on(
        self, state: str, threads: int, gone: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        who = stamped()
        stat = process._stat("self")
        monkeypatch.setattr(process, "_stat", lambda pid: [state, *stat[1:17], str(threads), *stat[18:]])
        assert process.gone(who, BOOT, TIME_NS) is gone

    def test_another_process_under_its_number_is_not_it(self, child: int) -> None:
        assert process.gone({**stamped(child), "start": 1}, BOOT, TIME_NS)

    def test_but_start_times_of_another_time_namespace_prove_nothing(self, child: int) -> None:
        assert not process.gone({**stamped(child), "start": 1, "time_ns": "time:[1]"}, BOOT, TIME_NS)

    @pytest.mark.parametrize("start", [0, None, ""])
    def test_nor_does_a_start_time_that_nobody_knew(self, start: object, child: int) -> None:
        assert process.gone({**stamped(child), "start": start}, BOOT, TIME_NS) is False

    def test_nothing_survives_a_restart_of_the_same_machine(self, child: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process, "_machine", lambda: "this machine")
        who = {**stamped(child), "boot": "an earlier boot"}
        assert process.gone(who, BOOT, TIME_NS) is True
        assert process.gone({**who, "machine": "another"}, BOOT, TIME_NS) is False
        assert process.gone({**who, "host": "another"}, BOOT, TIME_NS) is False
        for what_is_no_boot in ("", None, 5, 1.5, True):
            assert process.gone({**who, "boot": what_is_no_boot}, BOOT, TIME_NS) is False
        monkeypatch.setattr(process, "_machine", lambda: "")
        assert process.gone({**who, "machine": ""}, BOOT, TIME_NS) is False

    def test_another_pid_namespace_cannot_be_looked_into(self, child: int) -> None:
        who = {**stamped(child), "pid_ns": "pid:[1]"}
        end(child)
        assert not process.gone(who, BOOT, TIME_NS)

    def test_without_a_boot_nothing_is_proven(self, child: int) -> None:
        who = {**stamped(child), "boot": ""}
        end(child)
        assert process.gone(who, "", TIME_NS) is False

    @pytest.mark.parametrize("pid", [None, "1", True, 0, -1, 1.5, 10**30])
    def test_what_is_no_pid_is_nobody_who_could_be_gone(self, pid: Any) -> None:
        assert process.gone({**stamped(), "pid": pid}, BOOT, TIME_NS) is False

    def test_pid_one_is_a_process_like_any_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "kill", lambda pid, number: None)  # whatever a mutant would send to it
        assert not process.gone(stamped(1), BOOT, TIME_NS)
        assert process.gone({**stamped(1), "start": 10**9}, BOOT, TIME_NS)

    def test_asking_does_nothing_to_the_process(self, child: int, monkeypatch: pytest.MonkeyPatch) -> None:
        sent: list[tuple[int, int]] = []
        monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
        assert not process.gone(stamped(child), BOOT, TIME_NS)
        monkeypatch.undo()
        assert sent == [(child, 0)]

    def test_a_process_of_another_user_is_alive(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def denied(pid: int, number: int) -> None:
            raise PermissionError

        who = stamped()
        monkeypatch.setattr(os, "kill", denied)
        assert not process.gone(who, BOOT, TIME_NS)

    def test_a_proc_of_another_namespace_is_not_believed(self, child: int, monkeypatch: pytest.MonkeyPatch) -> None:
        who = {**stamped(child), "start": 1}
        real = os.readlink
        monkeypatch.setattr(os, "readlink", lambda path: "1" if path == "/proc/self" else real(path))
        assert process.gone(who, BOOT, TIME_NS) is False
        monkeypatch.setattr(os, "readlink", lambda path: real("/nonsense" if path == "/proc/self" else path))
        assert process.gone(who, BOOT, TIME_NS) is False
        assert process.identity(child)["start"] == 0
