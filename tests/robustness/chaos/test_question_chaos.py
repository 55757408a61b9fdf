"""Questions under SIGKILL, on every store: exactly one answer counts, no answer reaches
another attempt, and parked questions outlive all processes.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarm.errors import LockLost, NoQuestion
from swarm.queue.events import LOG
from swarm.queue.queue import TaskQueue
from swarm.queue.state import QueueState
from swarm.stores.registry import open_store
from tests.conftest import ROOT, script_environment, store_address
from tests.support.selection import SERVERS

ROUNDS, RIVALS = 12, 5
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=["file", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_address(request, tmp_path)


@contextmanager
def queue_at(url: str) -> Iterator[TaskQueue]:
    store = open_store(url)
    try:
        yield TaskQueue(store)
    finally:
        store.close()


class Actor:
    """A process that does what it is told, a line at a time: see `question_actor`."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.agents.question_actor", url, name],
            cwd=ROOT,
            env=script_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.told() == "ready"

    def tell(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()

    def told(self) -> str:
        """Return the next line of the process, "" if it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def do(self, *words: str) -> str:
        self.tell(*words)
        return self.told()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def actors(url: str) -> Iterator[list[Actor]]:
    made: list[Actor] = []
    yield made
    for actor in made:
        actor.close()


def counted(url: str) -> dict[str, list[str]]:
    """Return the answers of each question that count, as the log says."""
    store, state, found = open_store(url), QueueState(), dict[str, list[str]]()
    try:
        for line in store.read_log(LOG, limit=1 << 30)[0]:
            record = json.loads(line)
            if state.apply(line) and record["op"] == "answer":
                found.setdefault(record["question"], []).append(record["worker"])
    finally:
        store.close()
    return found


@pytest.mark.parametrize("way", ["ask", "park"])
def test_of_answers_of_many_processes_exactly_one_counts_and_all_others_are_told(
    way: str, url: str, actors: list[Actor]
) -> None:
    with queue_at(url) as queue:
        actors += [Actor(url, f"p{number}") for number in range(RIVALS)]
        for number in range(ROUNDS):
            task = f"t{number}"
            queue.add(task, "x")
            claim = queue.claim("w", task, ttl=120)
            getattr(queue, way)(task, "w", claim.token, "Which?")
            (question,) = queue.questions()
            moment = str(time.monotonic() + 0.05)
            for actor in actors:
                actor.tell("answer", question.id, f"answer of {actor.name}", moment)
            told = {actor.name: actor.told() for actor in actors}
            winners = [name for name, words in told.items() if words == "counts"]
            assert len(winners) == 1 and set(told.values()) == {"counts", "refused"}, told
            assert counted(url)[question.id] == winners
            if way == "ask":
                (found,) = queue.get(task).questions
                assert found.answer == f"answer of {winners[0]}"
            else:
                previous = queue.claim("w", task, ttl=120).previous
                assert previous and previous.answers[-1][1] == f"answer of {winners[0]}"


def test_answerers_that_are_killed_leave_one_answer_or_none(url: str, actors: list[Actor]) -> None:
    chance = random.Random(3)
    with queue_at(url) as queue:
        for number in range(ROUNDS):
            task = f"t{number}"
            queue.add(task, "x")
            claim = queue.claim("w", task, ttl=120)
            question = queue.ask(task, "w", claim.token, "Which?")
            rivals = [Actor(url, f"{task}-{each}") for each in range(2)]
            actors += rivals
            for actor in rivals:
                actor.tell("answer", question.id, actor.name)
            chance.choice(rivals).kill()
            for actor in rivals:
                actor.close()
            try:
                queue.answer(question.id, "mine", "ann")
            except NoQuestion:
                pass
            names = counted(url)[question.id]
            assert len(names) == 1
            expected = "mine" if names == ["ann"] else names[0]
            assert queue.get(task).questions[0].answer == expected


def test_no_answer_reaches_the_attempt_after_a_killed_asker(url: str, actors: list[Actor]) -> None:
    with queue_at(url) as queue:
        for number in range(ROUNDS):
            task = f"t{number}"
            queue.add(task, "x", max_attempts=9)
            asker, answerer = Actor(url, f"w{number}"), Actor(url, f"p{number}")
            actors += [asker, answerer]
            token = int(asker.do("claim", task))
            assert asker.do("ask", task, str(token), "Which?") == f"q{number + 1}"
            asker.kill()
            late = number % 2 == 0
            if late:  # after the takeover, else at the same time
                claim = queue.claim("next", task, ttl=120, wait=60)
            answerer.tell("answer", f"q{number + 1}", "meant for another")
            if not late:
                claim = queue.claim("next", task, ttl=120, wait=60)
            assert answerer.told() == "refused"
            assert claim.token > token
            assert queue.get(task).questions == () and queue.get(task).state == "running"
            assert claim.previous is None or claim.previous.answers == ()
            with pytest.raises(LockLost):
                queue.ask(task, asker.name, token, "And now?")
            queue.done(task, "next", claim.token)
        assert counted(url) == {}


def test_parked_questions_outlive_all_processes(url: str, actors: list[Actor]) -> None:
    with queue_at(url) as queue:
        for number in range(3):
            queue.add(f"t{number}", "x")
        queue.add("after", "x", after=["t0"])
    for number in range(3):
        actor = Actor(url, f"w{number}")
        actors.append(actor)
        token = actor.do("claim", f"t{number}")
        assert actor.do("park", f"t{number}", token, f"Which {number}?") == "parked"
        actor.kill()
    with queue_at(url) as queue:  # a new process, as after a reboot
        found = queue.questions()
        assert [(each.id, each.text) for each in found] == [
            (f"q{number + 1}", f"Which {number}?") for number in range(3)
        ]
        assert queue.counts() == {"asking": 3, "waiting": 1}
        queue.answer("q1", "this one", "ann")
    with queue_at(url) as queue:
        claim = queue.claim("w", "t0", ttl=120)
        assert claim.previous and claim.previous.answers == (("Which 0?", "this one", "person"),)
        assert queue.get("after").state == "waiting"
