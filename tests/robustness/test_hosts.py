"""Several hosts and one server: clocks that are minutes apart, cables that break, a
server that stalls and dies.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents.notes import Spell, agent, assert_one_at_a_time, spells
from tests.support.disks import needs_root
from tests.support.hosts import (
    Done,
    Elsewhere,
    Host,
    Hosts,
    Process,
    end,
    send,
    three_hosts,
    wait_until_gone,
)
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.server import Server, running, wait_until
from tests.support.servers.valkey import ValkeyServer

SERVERS: dict[str, Callable[[Path, Elsewhere], Server]] = {
    "redis": lambda directory, there: ValkeyServer(directory, host=there.host, prefix=there.prefix),
    "postgres": lambda _, there: PostgresServer(host=there.host, prefix=there.prefix),
    "etcd": lambda directory, there: EtcdServer(directory, host=there.host, prefix=there.prefix),
}

pytestmark = needs_root

# Hold a task from Python, and note it as an agent does until `on_lost` is called. Also
# call `check` again and again, as a program does before a step that cannot be undone,
# and note when it raises.
HOLDER = """
import os, sys, threading, time
from swarm import TaskLockManager
from swarm.errors import LockLost
notes = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
lost = threading.Event()
with TaskLockManager(sys.argv[3]).hold(sys.argv[2], ttl=float(sys.argv[4]), wait=60, on_lost=lambda _: lost.set()) as lease:
    def note(what, task):
        os.write(notes, f"{what} {os.uname().nodename} {task} {lease.token} {time.monotonic()!r}\\n".encode())
    def keep_asking():
        try:
            while True:
                note("work", sys.argv[2] + "-asked")
                lease.check()
        except LockLost:
            note("end", sys.argv[2] + "-asked")
    asking = threading.Thread(target=keep_asking, daemon=True)
    asking.start()
    while not lost.wait(0.02) and not os.path.exists(sys.argv[5]):
        note("work", sys.argv[2])
    if lost.is_set():
        asking.join()
"""


class Swarm:
    """A store of its own on the server, and swarm on any of the hosts."""

    def __init__(self, hosts: Hosts, server: Server, directory: Path) -> None:
        self.hosts = hosts
        self.server = server
        self.notes = directory / "notes"
        self._directory = directory
        self._namespace = f"t{uuid.uuid4().hex}"
        self._started: list[Process] = []

    def run(self, host: Host, *args: str, timeout: str = "10") -> Done:
        return host.run(sys.executable, "-m", "swarm", *args, env=self.environment(host, timeout))

    def ask(self, host: Host, *args: str) -> Any:
        """Return the JSON answer of a command."""
        done = self.run(host, *args, "--json")
        assert done.returncode == 0, (args, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def start(self, host: Host, *args: str, timeout: str = "5", program: str = "") -> Process:
        """Start `swarm ARGS`, or a program that uses it.

        A silent store is given up later than a lease lasts.
        """
        command = [sys.executable, *(["-c", program] if program else ["-m", "swarm"]), *args]
        process = host.start(
            *command, env=self.environment(host, timeout), output=self.output(host)
        )
        self._started.append(process)
        return process

    def environment(self, host: Host, timeout: str) -> dict[str, str]:
        """Return the environment with the store and the seconds after which a silent
        store is given up.
        """
        url = self.server.url(self._namespace, timeout=timeout)
        return {"SWARM_STORE": url, "SWARM_STATE_DIR": str(self._directory / host.name)}

    def output(self, host: Host) -> Path:
        return self._directory / f"{host.name}.output"

    def add(self, **tasks: list[str]) -> None:
        lines = [
            json.dumps({"id": name, "command": command, "max_attempts": 100})
            for name, command in tasks.items()
        ]
        path = self._directory / "tasks"
        path.write_text("\n".join(lines))
        assert len(self.ask(self.hosts.right, "task", "import", str(path))["added"]) == len(tasks)

    def states(self) -> Counter[str]:
        return Counter(
            task["state"] for task in self.ask(self.hosts.right, "task", "list")["tasks"]
        )

    def records(self, state: str) -> list[str]:
        """Return the tasks of all records of a state in their order, without an agent's
        own records.
        """
        lines = [
            json.loads(line)
            for line in self.run(self.hosts.right, "log", "tail", "100000").stdout.splitlines()
        ]
        return [
            record["task_id"]
            for record in lines
            if record["state"] == state and "from" not in record.get("meta", {})
        ]

    def spells(self, task: str = "") -> list[Spell]:
        return [spell for spell in spells(self.notes) if task in ("", spell.task)]

    def close(self) -> None:
        for host in self.hosts.all:
            host.heal()
        for process in self._started:
            end(process)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with three_hosts(tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, hosts: Hosts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with running(
        SERVERS[request.param](tmp_path_factory.mktemp("server"), hosts.for_server)
    ) as made:
        yield made


@pytest.fixture
def swarm(hosts: Hosts, server: Server, tmp_path: Path) -> Iterator[Swarm]:
    made = Swarm(hosts, server, tmp_path)
    yield made
    made.close()


def test_the_simulated_hosts_are_separate(hosts: Hosts) -> None:
    """Without this the tests below would prove nothing."""
    program = (
        "import os, time; from swarm.system import process; from swarm.system.clock import Clock; "
        "print(time.time(), time.monotonic(), Clock().steady(), os.uname().nodename, "
        "*Clock().identity(), process.namespace('pid'), process._machine())"
    )
    lines = [host.run(sys.executable, "-c", program, env={}).stdout.split() for host in hosts.all]
    here = time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)
    off = [
        [float(reading) - now for reading, now in zip(readings, here, strict=False)]
        for readings in lines
    ]
    assert [wall for wall, _, _ in off] == [
        pytest.approx(minutes * 60, abs=10) for minutes in (0, 7, -7)
    ]
    assert [monotonic for _, monotonic, _ in off] == [pytest.approx(0, abs=10)] * 3
    assert all(steady > 900 for _, _, steady in off)
    for identities in zip(*(fields[3:] for fields in lines), strict=True):
        assert len(set(identities)) == 3


def test_a_queue_is_drained_by_hosts_whose_clocks_are_minutes_apart(swarm: Swarm) -> None:
    ttl, tasks = 3, [f"task-{number:02d}" for number in range(18)]
    swarm.add(**{name: agent(swarm.notes, 0.1) for name in tasks})
    begun = time.monotonic()
    held = swarm.ask(swarm.hosts.behind, "lock", "acquire", "held", "holder", str(ttl))
    released = time.monotonic()
    for host in swarm.hosts.all:
        seen = swarm.ask(host, "lock", "check", "held")
        if time.monotonic() - begun < ttl:  # otherwise it may be over; on a busy machine it is
            assert (seen["status"], seen["lock"]["token"]) == ("Active", held["lock"]["token"])
            # some servers know the time only to a second or two
            assert 0 < seen["seconds_left"] < ttl + 5
    taking = swarm.start(swarm.hosts.ahead, "lock", "acquire", "held", "successor", "--wait", "20")
    workers = [
        swarm.start(host, "worker", "--id", host.name, "--until-empty", "--ttl", "3")
        for host in swarm.hosts.all
    ]
    assert taking.wait(30) == 0
    assert ttl <= time.monotonic() - begun and time.monotonic() - released < ttl + 10
    taken = swarm.ask(swarm.hosts.right, "lock", "check", "held")["lock"]
    assert taken["worker"] == "successor" and taken["token"] > held["lock"]["token"]
    assert [worker.wait(30) for worker in workers] == [0, 0, 0]
    assert_one_at_a_time(swarm.notes)
    assert sorted(spell.task for spell in swarm.spells()) == tasks
    assert all(spell.ended for spell in swarm.spells())
    assert {spell.host for spell in swarm.spells()} == {"right", "ahead", "behind"}
    assert sorted(swarm.records("DONE")) == tasks
    assert swarm.states() == {"done": len(tasks)}


def test_a_disconnected_host_stops_before_a_takeover_and_recovers_when_healed(swarm: Swarm) -> None:
    """All workers have the same name: only the token tells them apart."""
    cut_off, others, finish = (
        swarm.hosts.ahead,
        (swarm.hosts.behind, swarm.hosts.right),
        swarm.notes.with_name("finish"),
    )
    tasks = {"quiet", "stubborn", "talkative"}
    everything = {*tasks, "build", "deploy", "deploy-asked"}
    swarm.add(**{name: agent(swarm.notes, finish, name) for name in tasks})
    worker = ("worker", "--id", "same", "--ttl", "4")
    build = (
        "run",
        "build",
        "--worker",
        "same",
        "--ttl",
        "4",
        "--wait",
        "60",
        "--",
        *agent(swarm.notes, finish, "stubborn"),
    )
    deploy = (str(swarm.notes), "deploy", "same", "4", str(finish))
    for _ in tasks:
        swarm.start(cut_off, *worker)
    builder = swarm.start(cut_off, *build)
    swarm.start(cut_off, *deploy, program=HOLDER)
    wait_until(lambda: {spell.task for spell in swarm.spells()} == everything, "not all have begun")
    swarm.start(others[0], *build)
    swarm.start(others[0], *deploy, program=HOLDER)
    for number in range(len(tasks)):
        swarm.start(others[number % 2], *worker)
    time.sleep(1)
    late = {spell.task: str(spell.token) for spell in swarm.spells()}

    cut_off.cut_off()
    send(builder, signal.SIGUSR1)  # makes it look at its lease, without an answer
    check_that_commands_give_up(swarm, cut_off, late)
    wait_until(lambda: len(swarm.spells()) == 2 * len(everything), "not all were taken over")
    for task in everything:
        first, second = swarm.spells(task)
        assert first.host == cut_off.name != second.host
        assert first.last < second.first, f"{task}: two at a time"
    cut_off.heal()

    for task in ("quiet", "deploy"):
        assert (
            swarm.run(cut_off, "lock", "heartbeat", task, "same", "--token", late[task]).returncode
            == 4
        )
        assert (
            swarm.run(cut_off, "lock", "release", task, "same", "--token", late[task]).returncode
            == 1
        )
    refused = swarm.run(
        cut_off, "task", "done", "quiet", "too late", "--worker", "same", "--token", late["quiet"]
    )
    assert refused.returncode == 4 and f"token {late['quiet']}" in refused.stderr
    assert builder.wait(20) == 4
    swarm.add(further=agent(swarm.notes, 0.1))  # the others are still busy
    wait_until(lambda: any(spell.ended for spell in swarm.spells("further")), "it does not go on")
    assert swarm.spells("further")[0].host == cut_off.name
    finish.touch()
    wait_until(lambda: swarm.states() == {"done": len(tasks) + 1}, "not all are done")
    assert_one_at_a_time(swarm.notes)
    assert sorted(swarm.records("DONE")) == sorted([*tasks, "build", "further"])
    lines = swarm.output(cut_off).read_text().splitlines()
    assert sum("✘ lost" in line for line in lines) == len(tasks), lines
    assert len(lines) < 20, lines


def check_that_commands_give_up(swarm: Swarm, host: Host, tokens: Mapping[str, str]) -> None:
    before = host.processes()
    begun = time.monotonic()
    given = [
        ("lock", "acquire", "free", "worker"),
        ("lock", "release", "deploy", "same", "--token", tokens["deploy"]),
        ("task", "done", "quiet", "--worker", "same", "--token", tokens["quiet"]),
        ("log", "append", "WAIT", "worker", "free"),
        ("run", "free", "--", "true"),
        ("worker", "--id", "another"),
    ]
    started = [
        host.start(sys.executable, "-m", "swarm", *args, env=swarm.environment(host, "1"))
        for args in given
    ]
    for args, process in zip(given, started, strict=True):
        try:
            out, err = process.communicate(timeout=20)
        finally:
            end(process)
        assert (process.returncode, out) == (3, ""), (args, err)
        assert (
            err.startswith("Error: ") and "cannot be reached" in err and len(err.splitlines()) == 1
        ), (args, err)
    assert time.monotonic() - begun < 15
    assert not wait_until_gone(host, before)


def test_hosts_recover_after_the_network_was_cut_and_the_server_died(swarm: Swarm) -> None:
    ttl, tasks = 2, [f"task-{number:02d}" for number in range(24)]
    swarm.add(**{name: agent(swarm.notes, 0.3) for name in tasks})
    workers = [
        swarm.start(host, "worker", "--id", host.name, "--until-empty", "--ttl", str(ttl))
        for host in swarm.hosts.all
    ]

    def wait_for_work() -> None:
        since = time.monotonic()
        wait_until(lambda: any(spell.first > since for spell in swarm.spells()), "no agent works")

    wait_until(
        lambda: {spell.host for spell in swarm.spells()} == {"right", "ahead", "behind"},
        "not all have begun",
    )
    for host in swarm.hosts.all:
        host.cut_off()
    time.sleep(ttl + 0.5)
    for host in swarm.hosts.all:
        host.heal()
    wait_for_work()
    swarm.server.pause()
    time.sleep(ttl + 0.5)
    swarm.server.resume()
    wait_for_work()
    swarm.server.kill()
    time.sleep(0.5)
    swarm.server.start()

    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert_one_at_a_time(swarm.notes)
    assert swarm.states() == {"done": len(tasks)}
    assert sorted(swarm.records("DONE")) == tasks
    assert {spell.task for spell in swarm.spells() if spell.ended} == set(tasks)
    for host in swarm.hosts.all:
        lines = swarm.output(host).read_text()
        assert lines.count("! trouble") <= 3, lines
