"""Files that are one worker's to change: no two workers ever have one in common."""

from __future__ import annotations

import contextlib
import inspect
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from swarm.agents import identity
from swarm.errors import LockHeld, LockLost, NotYours, StoreError, SwarmError
from swarm.locks import reservations
from swarm.locks.path_pattern import lock_name, overlap
from swarm.locks.reservation_record import Terms
from swarm.locks.reservations import Reservation, Reservations
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from swarm.system import process
from tests.conftest import ROOT, HandClock
from tests.support.command_line import run


def patterns(store: Store) -> list[str]:
    return [each.pattern for each in Reservations(store).all()]


class TestReserving:
    def test_another_worker_cannot_reserve_what_overlaps(self, store: Store) -> None:
        paths = Reservations(store)
        paths.reserve("src/api", "a", 60)
        for wanted in ("src/api", "src/api/users.py", "src", "**/*.py"):
            with pytest.raises(LockHeld, match=r"src/api.* by a") as held:
                paths.reserve(wanted, "b", 60)
            assert (held.value.task_id, held.value.holder) == ("src/api", "a")
        paths.reserve("docs", "b", 60)
        assert patterns(store) == ["docs", "src/api"], "a refused worker left nothing behind"

    def test_a_worker_may_reserve_within_what_it_has(self, store: Store) -> None:
        paths = Reservations(store)
        paths.reserve("src", "a", 60)
        paths.reserve("src/api", "a", 60)
        assert patterns(store) == ["src", "src/api"]

    def test_reserving_again_starts_the_lease_again(self, store: Store, clock: HandClock) -> None:
        paths = Reservations(store)
        paths.reserve("src", "a", 60)
        clock.pass_time(50)
        paths.reserve("src", "a", 60)
        clock.pass_time(50)
        assert paths.held_by_others(["src/x"], "b")
        clock.pass_time(11)
        assert paths.held_by_others(["src/x"], "b") is None

    def test_a_reservation_that_ran_out_cannot_come_back_once_another_worker_has_the_files(
        self, store: Store, clock: HandClock
    ) -> None:
        paths = Reservations(store)
        paths.reserve("src", "a", 60)
        clock.pass_time(61)
        paths.reserve("src/api", "b", 60)
        paths.refresh("a")  # too late
        assert patterns(store) == ["src/api"]
        with pytest.raises(LockHeld):
            paths.reserve("src", "a", 60)

    def test_a_reservation_ends_with_its_process(self, store: Store) -> None:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        paths = Reservations(store)
        paths.reserve("src", "a", 60, process.identity(child.pid))
        assert paths.held_by_others(["src/x"], "b")
        child.communicate()
        assert paths.held_by_others(["src/x"], "b") is None

    def test_only_its_worker_releases_a_reservation(self, store: Store) -> None:
        paths = Reservations(store)
        paths.reserve("src", "a", 60)
        paths.reserve("docs", "a", 60)
        with pytest.raises(NotYours, match="reserved by a"):
            paths.release("b", "src")
        with pytest.raises(NotYours, match="not reserved"):
            paths.release("b", "elsewhere")
        assert paths.release("b") == []
        assert [each.pattern for each in paths.release("a", "src")] == ["src"]
        assert [each.pattern for each in paths.release("a")] == ["docs"]
        assert patterns(store) == []

    @pytest.mark.parametrize("verb", ["create", "replace"])
    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    def test_a_request_that_is_interrupted_leaves_no_record(
        self, verb: str, after: bool, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = getattr(store, verb)

        def interrupted(*args: Any) -> bool:
            if after:
                real(*args)
            raise KeyboardInterrupt

        monkeypatch.setattr(store, verb, interrupted)
        with pytest.raises(KeyboardInterrupt):
            Reservations(store).reserve("src", "a", 60)
        assert store.keys("paths") == []

    def test_a_failed_second_request_keeps_the_reservation_that_the_worker_holds(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        paths = Reservations(store)
        paths.reserve("src", "a", 60)
        with monkeypatch.context() as patch:
            patch.setattr(
                store,
                "replace",
                lambda *args: (_ for _ in ()).throw(StoreError("the disk is full")),
            )
            with pytest.raises(StoreError):
                paths.reserve("src", "a", 90)
        assert patterns(store) == ["src"]

    def test_an_invalid_record_keeps_others_away_only_while_it_may_be_half_written(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reservations, "_RIVAL_TIMEOUT", 0.02)
        paths = Reservations(store)
        assert store.create(f"paths/{lock_name('src/api')}", b"{")
        age = 4.0
        monkeypatch.setattr(store, "age", lambda key: age)
        for wanted in ("src", "src/api"):
            with pytest.raises(LockHeld, match="unknown worker") as held:
                paths.reserve(wanted, "a", 60)
            assert (held.value.task_id, held.value.holder) == ("src/api", "")
        assert patterns(store) == []
        age = 6.0
        paths.reserve("src", "a", 60)
        assert store.keys("paths") == ["paths/src"]

    def test_a_task_lock_of_the_same_name_does_not_meet_a_reservation(self, store: Store) -> None:
        LockTable(store).acquire("src", "a", 60)
        Reservations(store).reserve("src", "b", 60)
        assert list(LockTable(store).tasks()) == ["src"]


class TestForATask:
    @pytest.fixture
    def queue(self, store: Store) -> TaskQueue:
        queue = TaskQueue(store)
        queue.add("t", "x")
        return queue

    @pytest.mark.parametrize("end", ["done", "fail", "release"])
    def test_a_reservation_for_a_task_ends_with_the_claim(
        self, store: Store, queue: TaskQueue, end: str
    ) -> None:
        claim = queue.claim("a")
        paths = Reservations(store)
        paths.reserve_for_task("src", "a", "t")
        assert [(each.task_id, each.token) for each in paths.all()] == [("t", claim.token)]
        getattr(queue, end)("t", "a", claim.token)
        assert patterns(store) == []
        paths.reserve("src/api", "b", 60)

    def test_a_reservation_for_a_task_lasts_as_long_as_the_claim_is_refreshed(
        self, store: Store, queue: TaskQueue, clock: HandClock
    ) -> None:
        claim = queue.claim("a", ttl=60)
        paths = Reservations(store)
        paths.reserve_for_task("src", "a", "t", claim.token)
        for _ in range(5):
            clock.pass_time(50)
            LockTable(store).heartbeat("t", "a", claim.token)
        assert paths.held_by_others(["src/x"], "b")
        clock.pass_time(61)
        assert paths.held_by_others(["src/x"], "b") is None

    def test_a_takeover_of_the_task_ends_its_reservations(
        self, store: Store, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.claim("a", ttl=60)
        paths = Reservations(store)
        paths.reserve_for_task("src", "a", "t")
        clock.pass_time(61)
        queue.claim("a", ttl=60)  # by the same name, but another claim
        assert patterns(store) == []

    def test_a_late_heartbeat_of_the_claim_does_not_restore_a_reservation_that_was_replaced(
        self, store: Store, queue: TaskQueue, clock: HandClock
    ) -> None:
        claim = queue.claim("a", ttl=60)
        paths = Reservations(store)
        paths.reserve_for_task("src", "a", "t")
        clock.pass_time(61)
        paths.reserve("src/api", "b", 60)
        LockTable(store).heartbeat("t", "a", claim.token)
        assert [(each.pattern, each.worker) for each in paths.all()] == [("src/api", "b")]

    def test_a_worker_without_the_task_cannot_reserve_for_it(
        self, store: Store, queue: TaskQueue
    ) -> None:
        with pytest.raises(LockLost, match="it is free"):
            Reservations(store).reserve_for_task("src", "a", "t")
        claim = queue.claim("b")
        with pytest.raises(LockLost, match="b holds it"):
            Reservations(store).reserve_for_task("src", "a", "t")
        with pytest.raises(LockLost):
            Reservations(store).reserve_for_task("src", "b", "t", claim.token + 1)


_RACER = """
import os, random, sys, time
from swarm.system import process
from swarm.errors import LockHeld
from swarm.locks.path_pattern import overlap
from swarm.locks.reservations import Reservations
from swarm.stores.file.store import FileStore
state, marks, me, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
files = ["a/1", "a/2", "b/1", "b/2"]
wanted = ["a", "b", "a/1", "*/1", "a/*", "**", "b/2"]
def after_marking(): pass
paths = Reservations(FileStore(state))
had, deadline = 0, time.monotonic() + 90
while had < rounds and time.monotonic() < deadline:
    pattern = random.choice(wanted)
    try:
        paths.reserve(pattern, me, 60, process.identity())
    except LockHeld:
        continue
    had += 1
    mine = [file.replace("/", "-") for file in files if overlap(pattern, file)]
    try:
        for file in mine:
            os.close(os.open(f"{marks}/{file}", os.O_CREAT | os.O_EXCL))  # fails if another has it
    finally:
        after_marking()
    for file in mine:
        os.unlink(f"{marks}/{file}")
    paths.release(me, pattern)
print(had)
"""


class LookThenWrite(Reservations):
    """The mistake that the protocol avoids: to look at the others first, and to write then."""

    def _reserve(self, terms: Terms) -> Reservation:
        self._check_others(terms.pattern, terms.worker)
        while not (entry := self._find_own(terms) or self._ask(terms)):
            pass
        return reservations._reservation(entry.record)


# Two racers look before one of them writes, and both mark the files before one of them
# removes its marks.
_CARELESS = f"""
from swarm.locks import reservations
from swarm.locks.reservation_record import Terms
from swarm.locks.reservations import Reservation, Reservations
{inspect.getsource(LookThenWrite)}
wanted = [["a", "a/*", "a/1", "*/1", "**"][int(me[1:])]]  # they overlap, and none is another

def meet(what):
    os.close(os.open(f"{{state}}-{{what}}-{{me}}", os.O_CREAT))
    beside = os.path.dirname(state)
    while sum(f"-{{what}}-" in name for name in os.listdir(beside)) < 2:
        time.sleep(0.001)

def after_marking():
    meet("marked")

class Careless(LookThenWrite):
    def _check_others(self, pattern, worker):
        super()._check_others(pattern, worker)
        meet("looked")

"""


@pytest.mark.parametrize(("kind", "holders"), [(LookThenWrite, 2), (Reservations, 1)])
@pytest.mark.parametrize(("first", "second"), [("b", "b/**/*.py"), ("b/**/*.py", "b")])
def test_two_workers_that_ask_at_once_never_both_hold_a_file_because_each_writes_before_it_looks(
    kind: type[Reservations],
    holders: int,
    first: str,
    second: str,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reservations, "_RIVAL_TIMEOUT", 0.02)
    one, other = kind(store), kind(store)
    granted: list[str] = []

    def look_and_be_overtaken(pattern: str, worker: str) -> None:
        kind._check_others(one, pattern, worker)
        with contextlib.suppress(LockHeld):
            granted.append(other.reserve(second, "second", 60).worker)

    one._check_others = look_and_be_overtaken  # type: ignore[method-assign]
    with contextlib.suppress(LockHeld):
        granted.append(one.reserve(first, "first", 60).worker)
    assert len(granted) == holders


class TestRaces:
    def race(self, tmp_path: Path, rounds: int, racer: str = _RACER) -> tuple[int, str]:
        """Let five have what they want so many times each; how often they had it, and
        what went wrong.
        """
        marks = tmp_path / "marks"
        marks.mkdir()
        command = [sys.executable, "-c", racer, str(tmp_path / "swarm"), str(marks)]
        racers = [
            subprocess.Popen(
                [*command, f"w{n}", str(rounds)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for n in range(5)
        ]
        ended = [each.communicate(timeout=100) for each in racers]
        return sum(int(out or 0) for out, _ in ended), "".join(err for _, err in ended)

    def test_no_file_ever_has_two_workers(self, tmp_path: Path) -> None:
        had, wrong = self.race(tmp_path, 8)
        assert not wrong and had == 40

    def test_the_race_shows_the_mistake_of_looking_before_writing(self, tmp_path: Path) -> None:
        careless = _RACER.replace("paths = Reservations", _CARELESS + "paths = Careless")
        assert "FileExistsError" in self.race(tmp_path, 1, careless)[1]

    def test_of_two_workers_that_ask_at_once_one_gets_the_files(self, tmp_path: Path) -> None:
        """Both have written before either looks: the one whose pattern comes first
        waits for the other to give way.
        """
        store = FileStore(str(tmp_path / "swarm"))
        one, other = Reservations(store), Reservations(store)
        looked: list[str] = []

        def check(pattern: str, worker: str) -> None:
            if not looked:
                looked.append(pattern)
                with pytest.raises(LockHeld):
                    other.reserve("b/**/*.py", "second", 60)
            Reservations._check_others(one, pattern, worker)

        one._check_others = check  # type: ignore[method-assign]
        one.reserve("b", "first", 60)
        assert [each.worker for each in Reservations(store).all()] == ["first"]

    def test_a_holder_that_reserves_again_does_not_lose_the_pattern_to_a_worker_that_asks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reservations, "_RIVAL_TIMEOUT", 100.0)
        store = FileStore(str(tmp_path / "swarm"))
        owner, other = Reservations(store), Reservations(store)
        owner.reserve("src", "owner", 60)

        def check(pattern: str, worker: str) -> None:
            owner.reserve("src", "owner", 60)
            assert owner.held_by_others(["src/x"], "owner") is None, (
                "nor is the owner kept from its files meanwhile"
            )
            Reservations._check_others(other, pattern, worker)

        other._check_others = check  # type: ignore[method-assign]
        begun = time.monotonic()
        with pytest.raises(LockHeld):
            other.reserve("**", "other", 60)
        assert time.monotonic() - begun < 60, "no worker is going to give way"
        assert [(each.pattern, each.worker) for each in owner.all()] == [("src", "owner")]

    def test_a_holder_that_changes_its_terms_holds_the_pattern_all_the_time(
        self, tmp_path: Path
    ) -> None:
        store = FileStore(str(tmp_path / "swarm"))
        paths = Reservations(store)
        paths.reserve("src", "a", 60)
        removed: list[str] = []
        store.remove = lambda key, old: bool(removed.append(key))  # type: ignore[method-assign, func-returns-value]
        assert paths.reserve("src", "a", 90).expires_at > paths.reserve("src", "a", 30).expires_at
        assert removed == []

    def test_a_worker_that_slept_until_another_had_the_files_is_refused(
        self, store: Store, clock: HandClock
    ) -> None:
        """It had looked already, but had not been told yet: meanwhile its lease ran out."""
        sleeper, other = Reservations(store), Reservations(store)

        def check(pattern: str, worker: str) -> None:
            Reservations._check_others(sleeper, pattern, worker)
            if not patterns(store):
                clock.pass_time(61)
                other.reserve("src/api", "other", 60)

        sleeper._check_others = check  # type: ignore[method-assign]
        with pytest.raises(LockHeld):
            sleeper.reserve("src", "sleeper", 60)
        assert patterns(store) == ["src/api"]

    def test_a_record_under_the_wrong_name_does_not_block_for_ever(self, tmp_path: Path) -> None:
        store = FileStore(str(tmp_path / "swarm"))
        paths = Reservations(store)
        paths.reserve("a", "me", 60)
        record = store.read("paths/a")
        assert record and store.create("paths/b", record)
        with pytest.raises(SwarmError):
            paths.reserve("b", "me", 90)

    def test_a_process_killed_while_it_asks_blocks_no_other_worker(self, tmp_path: Path) -> None:
        """It ends with the process: what it wrote without having looked is over with it."""
        dying = (
            "import os, sys\n"
            "from swarm.system import process\n"
            "from swarm.locks.reservations import Reservations\n"
            "from swarm.stores.file.store import FileStore\n"
            "paths = Reservations(FileStore(sys.argv[1]))\n"
            "paths._check_others = lambda name, worker: os.kill(os.getpid(), 9)\n"
            "paths.reserve('src', 'a', 600, process.identity())\n"
        )
        state = str(tmp_path / "swarm")
        assert subprocess.run([sys.executable, "-c", dying, state], cwd=ROOT).returncode == -9
        store = FileStore(state)
        assert store.keys("paths") == [f"paths/{lock_name('src')}"]
        Reservations(store).reserve("src/api", "b", 60)
        assert patterns(store) == ["src/api"]


def test_random_patterns_of_two_workers_never_overlap(store: Store) -> None:
    drawn = random.Random(7)
    paths = Reservations(store)
    for _ in range(40):
        pattern = "/".join(
            drawn.choice(["a", "b", "*", "a*", "**"]) for _ in range(drawn.randint(1, 3))
        )
        try:
            paths.reserve(pattern, drawn.choice("xyz"), 60)
        except LockHeld:
            if drawn.random() < 0.3:
                paths.release(drawn.choice("xyz"))
        found = paths.all()
        for one in found:
            for other in found:
                assert one.worker == other.worker or not overlap(one.pattern, other.pattern)


class TestCommand:
    @pytest.fixture(autouse=True)
    def project(
        self, isolated_swarm_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Path:
        project = tmp_path / "project"
        (project / "src").mkdir(parents=True)
        (project / ".git").mkdir()
        monkeypatch.chdir(project / "src")
        return project

    def test_reserve_is_for_the_task_that_the_worker_has(self) -> None:
        run("task", "add", "login", "--prompt", "x")
        run("task", "claim", "--worker", "a")
        answer = run("reserve", "api/**", "--worker", "a")
        assert answer.out == b"Reserved: src/api for a until login is done or released\n"
        refused = run("reserve", "*.py", "api/x.py", "--worker", "b", "--json")
        assert (
            refused.code == 1
            and refused.json["must_stop"] is False
            and refused.json["held_by"] == "a"
        )
        assert run("reserve", "--list").out.startswith(b"src/api: a since ")
        assert len(run("reserve", "--list", "--json").json["reservations"]) == 1, (
            "all patterns or none"
        )
        run("task", "done", "login", "--worker", "a")
        assert run("reserve", "--list").out == b"No reservations\n"

    def test_reserve_without_a_task_has_a_lease_and_ends_with_the_agent(self) -> None:
        answer = run("reserve", "api", "--worker", "a", "--ttl", "60", "--json").json
        assert answer["reserved"] is True and answer["reservations"][0]["task_id"] == ""
        assert run("reserve", "--check", "api/x.py", "--worker", "a").code == 0
        checked = run("reserve", "--check", "api/x.py", "--worker", "b", "--json")
        assert (
            checked.code == 1
            and checked.json["must_stop"] is False
            and checked.json["reservation"]["worker"] == "a"
        )
        assert run("reserve", "--release", "api", "--worker", "b").code == 1
        assert run("reserve", "--release", "--worker", "a").out == b"Released: src/api\n"
        assert run("reserve", "--release", "--worker", "a").out == b"a has no reservations\n"

    def test_reserve_asks_for_several_patterns_in_sorted_order(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of two who each had what the other wants next, both would be refused."""
        asked: list[str] = []
        original = Reservations.reserve

        def reserve(self: Reservations, pattern: str, *rest: Any) -> Reservation:
            asked.append(pattern)
            return original(self, pattern, *rest)

        monkeypatch.setattr(Reservations, "reserve", reserve)
        made = run("reserve", "c", "a", "b", "--worker", "w", "--ttl", "60", "--json").json[
            "reservations"
        ]
        assert asked == ["src/a", "src/b", "src/c"] and [each["pattern"] for each in made] == [
            "src/c",
            "src/a",
            "src/b",
        ]

    def test_reserve_of_a_worker_with_several_tasks_needs_the_task(self) -> None:
        for name in ("one", "two"):
            run("task", "add", name, "--prompt", "x")
            run("task", "claim", name, "--worker", "a")
        assert b"one, two" in run("reserve", "api", "--worker", "a").err
        assert run("reserve", "api", "--worker", "a", "--task", "two").code == 0
        assert run("reserve", "api", "--worker", "a", "--task", "three").code == 4

    @pytest.mark.parametrize(
        "args",
        [
            (),
            ("--list", "x"),
            ("--list", "--release"),
            ("",),
            ("a", "--ttl", "0"),
            ("--check", ""),
            ("a", "--worker", "../x"),
        ],
    )
    def test_wrong_usage_reserves_nothing(
        self, args: tuple[str, ...], isolated_swarm_dir: Path
    ) -> None:
        assert run("reserve", *args).code == 2
        assert not (isolated_swarm_dir / "paths").exists()

    def test_reserve_without_a_name_uses_the_agent_that_runs_it(self) -> None:
        reserved = run("reserve", "api", "--json").json["reservations"][0]
        assert reserved["worker"] == identity.find().worker
