"""Commands, scripts and classes on every server: only SWARM_STORE differs from a state
directory.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from swarm import StatusBroadcaster, TaskLockManager
from swarm.errors import LockHeld
from swarm.locks.table import LockTable
from swarm.stores.address import Address
from tests.conftest import ROOT, script_environment
from tests.support.command_line import run
from tests.support.selection import SERVERS
from tests.support.servers.server import Server, running
from tests.support.servers.valkey import ValkeyServer


@pytest.fixture(params=SERVERS)
def url(
    request: pytest.FixtureRequest, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    server: Server = request.getfixturevalue(request.param)
    url = server.url(f"t{uuid.uuid4().hex}")
    monkeypatch.setenv("SWARM_STORE", url)
    return url


def swarm(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    return subprocess.run([sys.executable, "-m", "swarm", *args], **_options(options))


def script(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "scripts" / name), *args], **_options({"env": script_environment()})
    )


def _options(options: dict[str, Any]) -> dict[str, Any]:
    return {"capture_output": True, "text": True, "timeout": 60, "cwd": ROOT, **options}


def test_the_scripts_work_on_a_server(url: str) -> None:
    taken = script("swarm_lock.sh", "acquire", "task-001", "worker-0", "300")
    assert taken.returncode == 0 and "Lock acquired: task-001" in taken.stdout, taken.stderr
    assert "held by worker-0" in script("swarm_lock.sh", "acquire", "task-001", "worker-1").stderr
    assert (
        script(
            "swarm_status_log.sh", "append", "DONE", "worker-0", "task-001", "任务 is done"
        ).returncode
        == 0
    )
    found = json.loads(script("swarm_status_log.sh", "query", "task-001").stdout)
    assert (found["state"], found["reason"]) == ("DONE", "任务 is done")
    assert script("swarm_lock.sh", "release", "task-001", "worker-0").returncode == 0
    assert "No locks" in script("swarm_lock.sh", "list").stdout


def test_the_end_to_end_check_passes_on_a_server(url: str) -> None:
    done = script("swarm_e2e_test.sh")
    assert done.returncode == 0, done.stdout + done.stderr


def test_workers_do_the_tasks_of_a_queue_on_a_server(url: str, isolated_swarm_dir: Path) -> None:
    assert run("task", "add", "first", "--prompt", "one").code == 0
    assert run("task", "add", "second", "--prompt", "two", "--after", "first").code == 0
    assert run("task", "add", "bad", "--prompt", "three", "--max-attempts", "1").code == 0
    work = "case $SWARM_TASK_ID in bad) exit 3;; *) echo $SWARM_TOKEN $SWARM_STORE;; esac"
    both = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "swarm",
                "worker",
                "--id",
                number,
                "--until-empty",
                "--store-for-agent",
                "--exec",
                f"sh -c '{work}'",
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in "12"
    ]
    for worker in both:
        out, err = worker.communicate(timeout=60)
        assert worker.returncode in (0, 1), out + err
    board = run("status", "--json").json
    assert (board["queue"]["done"], board["queue"]["failed"]) == (2, 1)
    (result,) = (isolated_swarm_dir / "results").glob("second.*.out")
    assert result.read_text().split()[1] == url, "commands of an agent use the same store"
    assert (
        not (isolated_swarm_dir / "status.log").exists()
        and not (isolated_swarm_dir / "locks").exists()
    )


def test_an_agent_uses_the_store_without_its_password_or_is_told_that_it_cannot(
    url: str, isolated_swarm_dir: Path
) -> None:
    address = Address(url)
    assert run("task", "add", "one", "--prompt", "x", "--max-attempts", "1").code == 0
    agent = f"sh -c '{sys.executable} -m swarm status --json && env'"
    subprocess.run(
        [sys.executable, "-m", "swarm", "worker", "--id", "1", "--until-empty", "--exec", agent],
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    said = "".join(file.read_text() for file in (isolated_swarm_dir / "results").iterdir())
    assert not any(secret in said for secret in address.secrets)
    state = run("task", "show", "one", "--json").json["task"]["state"]
    assert state == ("failed" if address.has_secret else "done")
    assert ("--store-for-agent" in said) == address.has_secret


def test_swarm_run_holds_its_lock_and_ends_when_the_lock_is_broken(url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "swarm", "run", "build", "--ttl", "3", "--", "sleep", "60"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
    ) as running:
        _until(lambda: run("lock", "check", "build", "--json").json["locked"])
        assert swarm("run", "build", "--", "true").returncode == 1
        assert run("lock", "break", "build", "--yes").code == 0
        assert running.wait(30) == 4
    assert swarm("run", "build", "--", "sh", "-c", "exit 7").returncode == 7


def test_a_killed_holder_on_this_machine_is_noticed_at_once(url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "swarm", "run", "build", "--", "sleep", "60"], cwd=ROOT
    ) as running:
        _until(lambda: run("lock", "check", "build", "--json").json["locked"])
        running.send_signal(signal.SIGKILL)
        running.wait(30)
    _until(lambda: run("lock", "acquire", "build", "me", "5").code == 0)


def test_log_follow_and_wait_are_woken_by_changes(url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "swarm", "log", "follow"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        try:
            _until(
                lambda: (
                    run("log", "append", "WAIT", "w", "t", "hello").code == 0
                    and _readable(follower.stdout)
                )
            )
            assert json.loads(follower.stdout.readline())["reason"] == "hello"
        finally:
            follower.send_signal(signal.SIGINT)
            assert follower.wait(30) == 130
    run("task", "add", "t", "--prompt", "x")
    with subprocess.Popen(
        [sys.executable, "-m", "swarm", "wait", "t", "--timeout", "30"], cwd=ROOT
    ) as waiter:
        assert run("task", "claim", "t", "--worker", "w").code == 0
        assert run("task", "done", "t", "--worker", "w").code == 0
        assert waiter.wait(30) == 0


def test_follow_wait_and_status_continue_when_the_server_is_back(
    tmp_path: Path, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(ValkeyServer(tmp_path / "server")) as server, ExitStack() as files:
        monkeypatch.setenv("SWARM_STORE", server.url(timeout="0.4"))
        assert run("task", "add", "t", "--prompt", "x").code == 0
        commands = (
            ["log", "follow", "--since", ""],
            ["wait", "t", "--timeout", "60"],
            ["status", "--watch", "--json"],
        )
        watchers = [
            subprocess.Popen(
                [sys.executable, "-u", "-m", "swarm", *command],
                cwd=ROOT,
                text=True,
                stdout=subprocess.PIPE,
                stderr=(files.enter_context((tmp_path / command[0]).open("w"))),
            )
            for command in commands
        ]
        follower, waiter, status = watchers
        try:
            assert status.stdout is not None and follower.stdout is not None
            assert json.loads(status.stdout.readline())["queue"]["ready"] == 1
            server.kill()
            _until(
                lambda: all(
                    "cannot be reached" in (tmp_path / command[0]).read_text()
                    for command in commands
                )
            )
            time.sleep(0.5)
            server.start()
            assert run("task", "claim", "t", "--worker", "w").code == 0
            assert run("task", "done", "t", "--worker", "w").code == 0
            assert json.loads(follower.stdout.readline())["state"] == "START"
            assert waiter.wait(30) == 0
            _until(lambda: json.loads(status.stdout.readline())["queue"]["done"] == 1)
            for command in commands:
                assert (tmp_path / command[0]).read_text().count("Waiting for it") == 1, (
                    "the user is informed once"
                )
        finally:
            for watcher in watchers:
                watcher.send_signal(signal.SIGKILL)
                watcher.communicate(timeout=30)


def test_a_list_of_locks_stops_at_the_first_unreachable_answer(
    tmp_path: Path, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(ValkeyServer(tmp_path / "server", safe=False)) as server:
        monkeypatch.setenv("SWARM_STORE", server.url(timeout="0.4"))
        for number in range(20):
            assert run("lock", "acquire", f"t{number}", "w").code == 0
        tasks = LockTable.tasks

        def then_it_is_silent(table: LockTable) -> list[str]:
            found = list(tasks(table))
            server.pause()
            return found

        monkeypatch.setattr(LockTable, "tasks", then_it_is_silent)
        for command in (("lock", "list"), ("lock", "release-all", "w")):
            begun = time.monotonic()
            answer = run(*command)
            assert answer.code == 3 and b"cannot be reached" in answer.err
            assert time.monotonic() - begun < 7, "not 20 times the timeout"
            server.resume()


def test_the_classes_work_on_a_server(url: str) -> None:
    locks, log = TaskLockManager("worker-0"), StatusBroadcaster("worker-0")
    with locks.hold("task-001", ttl=60) as lease:
        log.broadcast_start("task-001")
        assert not TaskLockManager("worker-1").acquire_lock("task-001")
        with pytest.raises(LockHeld):
            TaskLockManager("worker-1").hold("task-001").start()
        lease.check()
        log.broadcast_done("task-001", meta={"token": lease.token})
    assert not locks.is_locked("task-001")
    assert [record["state"] for record in log.query("task-001")] == ["START", "DONE"]


def test_the_doctor_checks_the_server_and_shows_no_secret(url: str) -> None:
    run("log", "append", "START", "w", "t")
    answer = run("doctor", "--json").json
    stores = [check for check in answer["checks"] if check["name"] == "store"]
    assert "answers in" in stores[0]["text"] and len(stores) > 1, stores
    assert all(check["fix"] for check in answer["checks"] if check["state"] != "ok")
    assert ":s3cret" not in json.dumps(answer)


def test_a_log_on_a_server_is_validated_and_not_rotated(url: str) -> None:
    run("log", "append", "START", "w", "t")
    assert run("log", "validate").code == 0
    assert run("log", "rotate", "--json").json["rotated"] is False


def test_the_store_may_be_named_on_the_command_line(
    redis: Server, isolated_swarm_dir: Path, tmp_path: Path
) -> None:
    url = redis.url(f"t{uuid.uuid4().hex}")
    assert swarm("--store", url, "lock", "acquire", "a", "w").returncode == 0
    assert (
        swarm("lock", "check", "a", f"--store={url}", "--json").stdout.count('"locked": true') == 1
    )
    assert "No lock" in swarm("lock", "check", "a").stdout
    echoed = swarm("run", "b", "--store", url, "--", "sh", "-c", "echo $SWARM_STORE")
    assert echoed.stdout.strip() == url
    assert swarm("--store", str(tmp_path / "here"), "lock", "acquire", "c", "w").returncode == 0
    assert (tmp_path / "here" / "locks" / "c.lock").exists()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--store", "redis://:geheim@h/0", "lock", "list"), "PGPASSWORD, REDISCLI_AUTH"),
        (
            ("lock", "list", "--store", "postgresql://h/db?password=geheim"),
            "PGPASSWORD, REDISCLI_AUTH",
        ),
        (("lock", "list", "--store", "pigeon://coop"), "redis://…, postgresql://…, etcd://…"),
        (("lock", "list", "--store", "memory://"), "ends with each process"),
        (("lock", "list", "--store", "redis://h/0?swarm=../x"), "name of a swarm"),
        (("lock", "list", "--store", "redis://h/0?timeout=never"), "timeout is"),
        (("lock", "list", "--store", "redis://u:ge/heim@h/0"), "%2F"),
        (("--store",), "needs a value"),
        (("lock", "list", "--store", "postgresql:/u:geheim@h/db"), "redis://host/0"),
        (("lock", "list", "--store", "host=db password=geheim"), "redis://host/0"),
        (("lock", "list", "--store", "here"), "such as ./state"),
        (("lock", "list", "--store", "redis://h/abc"), "the number of a database"),
        (("lock", "list", "--store", "redis+unix://"), "the path of a socket is missing"),
        (("lock", "list", "--store", "postgresql://h:abc/db"), "is not a host and port"),
        (("lock", "list", "--store", "redis://h/0?swarm=a&swarm=b"), "twice"),
    ],
)
def test_an_invalid_address_is_exit_2(
    args: tuple[str, ...], text: str, isolated_swarm_dir: Path
) -> None:
    answer = run(*args)
    assert answer.code == 2 and text.encode() in answer.err, answer.err
    assert b"heim" not in answer.err


def test_an_unreachable_server_is_exit_3_with_the_reason(
    isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch, free_ports: dict[str, str]
) -> None:
    for url in free_ports.values():
        monkeypatch.setenv("SWARM_STORE", url)
        for args in (("lock", "acquire", "t", "w"), ("log", "tail"), ("task", "list"), ("status",)):
            begun = time.monotonic()
            answer = run(*args, "--json")
            assert answer.code == 3 and b"cannot be reached" in answer.err, (url, args, answer)
            assert answer.json["exit_code"] == 3
            assert time.monotonic() - begun < 10
            assert b"geheim" not in answer.err + answer.out


@pytest.fixture
def free_ports() -> dict[str, str]:
    """Addresses where no server listens."""
    from tests.support.servers.server import free_port

    return {
        "redis": f"redis://:geheim@127.0.0.1:{free_port()}/0?timeout=0.3",
        "postgres": f"postgresql://u:geheim@127.0.0.1:{free_port()}/db?timeout=0.3",
        "etcd": f"etcd://u:geheim@127.0.0.1:{free_port()}?timeout=0.3",
    }


def _readable(pipe: Any) -> bool:
    import select

    return bool(select.select([pipe], [], [], 0.3)[0])


def _until(what: Any) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)
