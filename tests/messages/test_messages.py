"""Messages on every store: whom an address means, and that each is read once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from swarm.errors import BadInput, LockHeld, NoTask, NotSent
from swarm.locks.table import LockTable
from swarm.messages.inbox import NAMESPACE, RECEIVE_TTL, Inbox
from swarm.messages.message import LIFETIME, MAX_DELIVERIES, MAX_TEXT_BYTES, Message, Sender
from swarm.messages.outbox import Outbox
from swarm.messages.state import LOG, MAX_UNREAD, MessageState
from swarm.queue.questions.question import AGENT
from swarm.queue.queue import TaskQueue
from swarm.queue.task import TaskSpec
from swarm.stores.contract import Store
from swarm.stores.registry import open_store
from tests.conftest import ROOT, HandClock, script_environment, store_address
from tests.support.selection import SERVERS
from tests.support.servers.server import wait_until

ADA = Sender("ada", AGENT, {"pid": 1})


def tell(store: Store, to: str, text: str = "hello", **options: Any) -> Message:
    return Outbox(store).tell(to, text, ADA, **options).message


def read(store: Store, worker: str, characters: int | None = None) -> list[str]:
    """Read the inbox of a worker as a reader does, and return the texts."""
    received = Inbox(store, worker).receive(characters)
    if received is None:
        return []
    with received:
        received.confirm()
    return [message.text for message in received.messages]


def lines(store: Store) -> list[bytes]:
    return store.read_log(LOG)[0]


class TestAWorker:
    def test_reads_each_message_once_and_in_order(self, store: Store) -> None:
        assert [tell(store, "w", text).id for text in ("one", "two")] == ["m1", "m2"]
        assert read(store, "other") == []
        assert read(store, "w") == ["one", "two"]
        assert read(store, "w") == []
        tell(store, "worker:w", "three")
        assert read(store, "w") == ["three"]

    def test_gets_a_message_again_if_it_was_not_confirmed(self, store: Store) -> None:
        tell(store, "w")
        inbox = Inbox(store, "w")
        with inbox.receive() or pytest.fail("no message") as received:
            assert [message.id for message in received.messages] == ["m1"]
        assert [message.id for message in inbox.unread()] == ["m1"]
        assert read(store, "w") == ["hello"]

    def test_learns_who_sent_it_when(self, store: Store, clock: HandClock) -> None:
        tell(store, "w")
        (found,) = Inbox(store, "w").unread()
        assert found.sender == ADA
        assert found.at == clock.written(clock.now())

    def test_looks_without_reading(self, store: Store) -> None:
        tell(store, "w")
        inbox = Inbox(store, "w")
        assert len(inbox.unread()) == len(inbox.unread()) == len(inbox.all()) == 1
        assert read(store, "w") == ["hello"]
        assert inbox.unread() == [] and len(inbox.all()) == 1
        assert Inbox(store, "other").all() == []

    def test_takes_as_many_as_fit_and_at_least_one(self, store: Store) -> None:
        for text in ("a" * 50, "b" * 50, "c" * 50):
            tell(store, "w", text)
        received = Inbox(store, "w").receive(100)
        assert received is not None
        assert (len(received.messages), received.left) == (2, 1)
        received.confirm()
        assert read(store, "w", 10) == ["c" * 50]


class TestATask:
    @pytest.fixture
    def queue(self, store: Store) -> TaskQueue:
        made = TaskQueue(store)
        made.add("a", "x", labels=["ui"])
        made.add("b", "x", labels=["ui", "api"])
        made.add("c", "x")
        return made

    def test_passes_its_message_to_its_holder(self, store: Store, queue: TaskQueue) -> None:
        queue.claim("w", "a")
        tell(store, "task:a")
        assert read(store, "other") == []
        assert read(store, "w") == ["hello"]
        assert read(store, "w") == []

    def test_keeps_its_message_for_the_next_holder(self, store: Store, queue: TaskQueue) -> None:
        tell(store, "task:a")
        assert read(store, "w") == []
        first = queue.claim("v", "a")
        queue.release("a", "v", first.token)
        queue.claim("w", "a")
        assert read(store, "v") == []
        assert read(store, "w") == ["hello"]

    def test_has_no_holder_after_a_lease_ran_out(
        self, store: Store, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.claim("w", "a", ttl=30)
        tell(store, "task:a")
        clock.pass_time(31)
        assert read(store, "w") == []
        queue.claim("v", "a")
        assert read(store, "v") == ["hello"]

    def test_ends_a_message_to_its_attempt_with_the_attempt(
        self, store: Store, queue: TaskQueue
    ) -> None:
        first = queue.claim("w", "a")
        assert tell(store, "task:a", attempt=True).deliveries[0].token == first.token
        queue.release("a", "w", first.token)
        second = queue.claim("w", "a")
        assert read(store, "w") == []
        tell(store, "task:a", "again", attempt=True)
        assert read(store, "w") == ["again"]
        queue.done("a", "w", second.token)

    def test_that_has_ended_takes_no_message(self, store: Store, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        queue.done("a", "w", claim.token)
        queue.cancel("b", "w")
        for task, command in (("a", "reopen a"), ("b", "retry b")):
            with pytest.raises(NotSent, match=command):
                tell(store, f"task:{task}")
        with pytest.raises(NotSent, match="no attempt"):
            tell(store, "task:c", attempt=True)
        with pytest.raises(NoTask):
            tell(store, "task:unknown")
        assert lines(store) == []

    def test_may_be_a_lock_that_is_not_in_the_queue(self, store: Store) -> None:
        LockTable(store).acquire("build", "w", 60)
        tell(store, "task:build")
        assert read(store, "w") == ["hello"]

    def test_with_a_label_passes_it_to_its_holder(self, store: Store, queue: TaskQueue) -> None:
        queue.claim("w", "a")
        message = tell(store, "label:ui")
        assert [each.task for each in message.deliveries] == ["a", "b"]
        assert read(store, "w") == ["hello"]
        queue.claim("v", "b")
        assert read(store, "v") == ["hello"]
        assert read(store, "w") == []

    def test_a_holder_of_two_tasks_with_a_label_reads_it_once(
        self, store: Store, queue: TaskQueue
    ) -> None:
        queue.claim("w", "a")
        queue.claim("w", "b")
        tell(store, "label:ui")
        assert read(store, "w") == ["hello"]
        assert read(store, "w") == []

    def test_the_sender_and_ended_tasks_are_left_out_of_a_label(
        self, store: Store, queue: TaskQueue
    ) -> None:
        queue.cancel("a", "w")
        queue.claim("ada", "b")
        with pytest.raises(NotSent, match="no other task"):
            tell(store, "label:ui")
        with pytest.raises(NotSent, match="no task"):
            tell(store, "label:nope")


def test_all_reaches_each_other_worker_that_runs_or_holds_a_task(store: Store) -> None:
    with pytest.raises(NotSent):
        tell(store, "all")
    LockTable(store).acquire("x", "holder", 60)
    LockTable(store).acquire("y", "ada", 60)
    LockTable(store, "workers").acquire("runner#2", "runner", 60)
    message = tell(store, "all")
    assert [each.worker for each in message.deliveries] == ["holder", "runner"]
    assert [read(store, worker) for worker in ("holder", "runner", "ada", "later")] == [
        ["hello"],
        ["hello"],
        [],
        [],
    ]


def test_a_message_expires(store: Store, clock: HandClock) -> None:
    tell(store, "w", "short", lifetime=10)
    tell(store, "w", "long")
    clock.pass_time(11)
    assert read(store, "w") == ["long"]
    tell(store, "w", "late")
    clock.pass_time(LIFETIME + 1)
    assert read(store, "w") == []


@pytest.mark.parametrize(
    ("to", "text", "options"),
    [
        ("w", "", {}),
        ("w", " \n\x01\t", {}),
        ("w", "x" * (MAX_TEXT_BYTES + 1), {}),
        ("w", "\x01" * (MAX_TEXT_BYTES // 2), {}),
        ("w", "\ud800", {}),
        ("w", "x", {"lifetime": 0}),
        ("w", "x", {"lifetime": 1e9}),
        ("w", "x", {"attempt": True}),
        ("", "x", {}),
        ("task:", "x", {}),
        ("label:", "x", {}),
        ("worker:", "x", {}),
        ("a/b", "x", {}),
        ("w\n", "x", {}),
    ],
)
def test_invalid_messages_are_refused(
    to: str, text: str, options: dict[str, Any], store: Store
) -> None:
    with pytest.raises(BadInput):
        tell(store, to, text, **options)
    assert lines(store) == []


def test_a_text_of_the_greatest_size_arrives_whole(store: Store) -> None:
    tell(store, "w", "ü" * (MAX_TEXT_BYTES // 2))
    assert read(store, "w") == ["ü" * (MAX_TEXT_BYTES // 2)]


def test_unread_messages_at_one_address_are_bounded(store: Store, clock: HandClock) -> None:
    for _ in range(MAX_UNREAD):
        tell(store, "w", lifetime=60)
    with pytest.raises(NotSent, match="too many"):
        tell(store, "w")
    LockTable(store).acquire("x", "w", 3600)
    LockTable(store).acquire("y", "v", 3600)
    sent = Outbox(store).tell("all", "news", ADA)
    assert [each.worker for each in sent.left_out] == ["w"]
    assert read(store, "v") == ["news"]
    clock.pass_time(61)
    tell(store, "w", "after the others expired")
    assert read(store, "w") == ["after the others expired"]


def test_reading_makes_room(store: Store) -> None:
    for _ in range(MAX_UNREAD):
        tell(store, "w")
    assert len(read(store, "w")) == MAX_UNREAD
    assert tell(store, "w").id == f"m{MAX_UNREAD + 1}"


def test_recipients_of_one_message_are_bounded(store: Store) -> None:
    specs = [TaskSpec(f"t{n}", "x", labels=("many",)) for n in range(MAX_DELIVERIES + 1)]
    TaskQueue(store).add_all(specs)
    with pytest.raises(NotSent, match=str(MAX_DELIVERIES)):
        tell(store, "label:many")


class TestReaders:
    def test_one_reader_at_a_time_takes_messages(self, store: Store) -> None:
        tell(store, "w")
        first = Inbox(store, "w").receive()
        assert first is not None
        with pytest.raises(LockHeld, match="at this moment"):
            Inbox(store, "w").receive()
        tell(store, "v")
        assert read(store, "v") == ["hello"], "other workers do not wait"
        first.confirm()
        assert read(store, "w") == []

    def test_a_reader_that_stopped_for_too_long_blocks_no_other(
        self, store: Store, clock: HandClock
    ) -> None:
        tell(store, "w")
        first = Inbox(store, "w").receive()
        clock.pass_time(RECEIVE_TTL + 1)
        second = Inbox(store, "w").receive()
        assert first is not None and second is not None
        second.confirm()
        first.confirm()
        assert read(store, "w") == []
        assert list(LockTable(store, NAMESPACE).tasks()) == []

    def test_the_lock_is_free_after_each_reader(self, store: Store) -> None:
        tell(store, "w")
        assert read(store, "w") == ["hello"]
        assert read(store, "w") == []
        assert list(LockTable(store, NAMESPACE).tasks()) == []

    def test_nothing_is_asked_of_the_store_twice_while_no_message_comes(self, store: Store) -> None:
        inbox = Inbox(store, "w")
        assert not inbox.is_surely_empty()
        tell(store, "v")
        assert inbox.receive() is None
        assert Inbox(store, "w").is_surely_empty() == inbox.is_surely_empty() is True
        tell(store, "w")
        assert not inbox.is_surely_empty()
        assert read(store, "w") == ["hello"]

    def test_a_message_to_a_task_is_never_taken_for_an_empty_inbox(self, store: Store) -> None:
        TaskQueue(store).add("a", "x")
        tell(store, "task:a")
        inbox = Inbox(store, "w")
        assert inbox.receive() is None
        TaskQueue(store).claim("w", "a")
        assert not inbox.is_surely_empty()
        assert read(store, "w") == ["hello"]


def test_a_sender_sees_who_has_read_it(store: Store, clock: HandClock) -> None:
    outbox = Outbox(store)
    message = outbox.tell("w", "hello", ADA).message
    assert not outbox.wait(message, 0).is_read
    read(store, "w")
    found = outbox.wait(message, 5)
    assert found.is_read and found.deliveries[0].reader == "w"
    assert found.deliveries[0].read_at == clock.written(clock.now())


def test_a_waiting_sender_wakes_up_when_it_is_read(live_store: Store) -> None:
    outbox = Outbox(live_store)
    message = outbox.tell("w", "hello", ADA).message
    found: list[Message] = []
    thread = Thread(target=lambda: found.append(outbox.wait(message, 60)))
    thread.start()
    assert read(live_store, "w") == ["hello"]
    thread.join(30)
    assert found and found[0].is_read


def test_invalid_lines_change_nothing(store: Store) -> None:
    tell(store, "w")
    for line in (
        b"garbage",
        b"[]",
        b'{"op": "tell"}',
        b'{"op": "other"}',
        b'{"op": "tell", "at": "x", "until": "y", "to": "w", "from": "a", "text": "b", "for": []}',
        b'{"op": "read", "at": "x", "worker": "w", "read": [["m1", 7], ["m9", 0], ["m1", -1]]}',
        b'{"op": "read", "at": "x", "worker": "../w", "read": [["m1", 0]]}',
        b'{"op": "read", "at": "x", "worker": "w", "read": 5}',
    ):
        store.append(LOG, line)
    assert read(store, "w") == ["hello"]


def test_a_snapshot_holds_the_same_messages(store: Store, clock: HandClock) -> None:
    tell(store, "w", "one", lifetime=10)
    tell(store, "w", "two")
    read(store, "w", 1)
    whole, loaded = MessageState(), MessageState()
    for line in lines(store):
        whole.apply(line)
    loaded.load(whole.dump())
    assert loaded.dump() == whole.dump()
    clock.pass_time(11)
    last = Outbox(store).tell("w", "three", ADA).message
    line = lines(store)[-1]
    assert whole.apply(line) and loaded.apply(line)
    assert loaded.dump() == whole.dump()
    assert list(loaded.messages) == ["m2", last.id]


@pytest.fixture(params=["file", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_address(request, tmp_path)


def test_a_reader_that_was_killed_before_its_receipt_loses_nothing(url: str) -> None:
    store = open_store(url)
    tell(store, "w")
    program = (
        "import sys, time\n"
        "from swarm.messages.inbox import Inbox\n"
        "from swarm.stores.registry import open_store\n"
        "received = Inbox(open_store(sys.argv[1]), 'w').receive()\n"
        "print(received.messages[0].id, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, url],
        cwd=ROOT,
        env=script_environment(),
        stdout=subprocess.PIPE,
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"m1\n"
        with pytest.raises(LockHeld):
            Inbox(store, "w").receive()
        reader.send_signal(signal.SIGKILL)
    wait_until(lambda: read(store, "w") == ["hello"], "the message comes again")
    store.close()
