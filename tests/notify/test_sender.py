"""Each event reaches each channel once while its sender lives, and again after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import LockLost, StoreError
from swarm.locks.table import LockTable
from swarm.notify import sender as sending
from swarm.notify.channel import Channel
from swarm.notify.channels import add_channel, remove_channel, stored_channels
from swarm.notify.delivery import Deliver, Delivery
from swarm.notify.event import Event
from swarm.notify.feed import Feed
from swarm.notify.mailbox import Mailbox, decode
from swarm.notify.notifier import Notifier
from swarm.notify.sender import LOCKS, Sender, mailbox_key
from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.memory import MemoryStore
from swarm.stores.registry import open_store
from swarm.system.clock import to_iso
from tests.conftest import ROOT, script_environment, store_address
from tests.notify.receiver import Receiver, receiving
from tests.support.selection import SERVERS


def until(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.01)
    return found


def hook(receiver: Receiver, name: str = "hook", **changes: Any) -> Channel:
    return Channel(name, "webhook", url=receiver.url(), added_at=to_iso(time.time()), **changes)


def tell(store: Store, task: str) -> None:
    StatusLog(store).append("HELP", "w", task, "look here")


def mailbox(store: Store, name: str = "hook") -> Mailbox:
    data = store.read(mailbox_key(name))
    return decode(data) if data else Mailbox()


@contextmanager
def notifying(
    store: Store, deliver: Deliver | None = None, timeout: float = 3.0
) -> Iterator[Notifier]:
    made = Notifier(store, "w", deliver or Delivery("shop").deliver, lambda: stored_channels(store))
    made.end_timeout = timeout
    with made:
        yield made


@contextmanager
def process(address: str, name: str, ttl: float = 60.0) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.notify.sender_process", address, name, str(ttl)],
        cwd=ROOT,
        env=script_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        yield child
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


@pytest.fixture(params=["file", *SERVERS])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that processes can share."""
    return store_address(request, tmp_path)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_POLL_INTERVAL", 0.02)


class TestProcesses:
    def test_of_several_machines_one_sends_each_event(
        self, address: str, receiver: Receiver
    ) -> None:
        with ExitStack() as stack:
            store = open_store(address)
            stack.callback(store.close)
            add_channel(store, hook(receiver))
            for name in ("here", "there", "elsewhere"):
                stack.enter_context(process(address, name))
            for number in range(6):
                tell(store, f"t{number}")
            receiver.wait_for(6)
            until(lambda: mailbox(store).sent == 6)
            tell(store, "last")
            receiver.wait_for(7)
            tasks = [request.json["task"] for request in receiver.requests]
            assert tasks == [*(f"t{number}" for number in range(6)), "last"]

    def test_after_a_kill_between_sending_and_noting_the_same_id_is_sent_again(
        self, address: str, receiver: Receiver
    ) -> None:
        with ExitStack() as stack:
            store = open_store(address)
            stack.callback(store.close)
            add_channel(store, hook(receiver))
            first = stack.enter_context(process(address, "here"))
            tell(store, "before")
            receiver.wait_for(1)
            until(lambda: mailbox(store).sent == 1)

            def kill(request: object) -> None:
                receiver.before_answer = lambda request: None
                first.kill()
                first.wait()

            receiver.before_answer = kill
            tell(store, "a")
            receiver.wait_for(2)
            stack.enter_context(process(address, "there"))
            receiver.wait_for(3)
            tell(store, "b")
            receiver.wait_for(4)
            assert [request.json["task"] for request in receiver.requests] == [
                "before",
                "a",
                "a",
                "b",
            ]
            ids = receiver.ids()
            assert ids[1] == ids[2] and len(set(ids)) == 3

    def test_a_sender_that_slept_past_its_lease_cannot_note_any_more(
        self, address: str, receiver: Receiver
    ) -> None:
        with ExitStack() as stack:
            store = open_store(address)
            stack.callback(store.close)
            add_channel(store, hook(receiver))
            first = stack.enter_context(process(address, "here", 40.0))
            tell(store, "a")
            receiver.wait_for(1)
            until(lambda: mailbox(store).sent == 1)
            before = mailbox(store).token
            first.send_signal(signal.SIGSTOP)
            LockTable(store, LOCKS).break_lock("hook")
            stack.enter_context(process(address, "there"))
            until(lambda: mailbox(store).token > before)
            tell(store, "b")
            receiver.wait_for(2)
            first.send_signal(signal.SIGCONT)
            tell(store, "c")
            receiver.wait_for(3)
            until(lambda: mailbox(store).sent == 3)
            assert [request.json["task"] for request in receiver.requests] == ["a", "b", "c"]


class TestServerTrouble:
    def test_a_receiver_that_fails_and_comes_back_gets_the_event_with_its_id(
        self, live_store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("swarm.notify.mailbox._FIRST_PAUSE", 0.05)
        add_channel(live_store, hook(receiver))
        receiver.answer = 500
        with notifying(live_store):
            tell(live_store, "a")
            receiver.wait_for(3)
            until(lambda: "HTTP 500" in mailbox(live_store).error)
            receiver.answer = 200
            until(lambda: mailbox(live_store).sent == 1)
        assert len(set(receiver.ids())) == 1
        assert (mailbox(live_store).error, mailbox(live_store).waiting) == ("", [])

    def test_a_channel_that_hangs_delays_no_other_and_not_the_end(
        self, live_store: Store, receiver: Receiver
    ) -> None:
        receiver.answer = 0
        with receiving() as healthy:
            add_channel(live_store, hook(receiver, "hangs"))
            add_channel(live_store, hook(healthy, "works"))
            with notifying(live_store, timeout=0.5):
                for number in range(3):
                    tell(live_store, f"t{number}")
                receiver.wait_for(1)
                healthy.wait_for(3)
                begun = time.monotonic()
            assert time.monotonic() - begun < 5
            assert len(mailbox(live_store, "hangs").waiting) == 3
        receiver.ended.set()

    def test_the_last_event_is_sent_before_the_end(
        self, live_store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sending, "_POLL_INTERVAL", 600.0)
        add_channel(live_store, hook(receiver, on=("finished",)))
        queue = TaskQueue(live_store)
        queue.add("a", "x")
        with notifying(live_store, timeout=60.0):
            until(lambda: mailbox(live_store).seen)
            queue.done("a", "w", queue.claim("w").token)
        assert receiver.kinds() == ["finished"]
        assert mailbox(live_store).sent == 1


class Sent:
    """Delivers into a list, and can fail."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, channel: Channel, event: Event, now: float) -> None:
        self.events.append(event)


class TestLock:
    def test_while_one_sender_sends_no_other_does(
        self, live_store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sending, "_LOCK_RETRY", 0.01)
        channel = Channel("hook", "webhook", url="https://example.org/")
        sent, go_on, tries = Sent(), threading.Event(), Sent()

        def slowly(channel: Channel, event: Event, now: float) -> None:
            sent(channel, event, now)
            assert go_on.wait(60)

        senders = [
            Sender(live_store, channel, Feed(live_store), name, slowly)
            for name in ("here", "there")
        ]
        status = LockTable.status

        def count(table: LockTable, name: str) -> Any:
            tries.events += sent.events  # those after the first was sent
            return status(table, name)

        monkeypatch.setattr(LockTable, "status", count)
        threads = [threading.Thread(target=each.run) for each in senders]
        for thread in threads:
            thread.start()
        try:
            tell(live_store, "a")
            until(lambda: len(tries.events) > 5)  # the other has tried since
            assert len(sent.events) == 1
        finally:
            go_on.set()
            until(lambda: mailbox(live_store).sent == 1)
            for each in senders:
                each.stop.ask(10.0)
            for thread in threads:
                thread.join()
        assert len(sent.events) == 1


class TestStoreTrouble:
    def test_what_was_sent_is_noted_when_the_store_works_again(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sending, "_NOTE_RETRY", 0.01)
        store = MemoryStore()
        add_channel(store, hook(receiver))
        replace = store.replace
        refused: list[str] = []

        def fail_once_after_sending(key: str, old: bytes, new: bytes) -> bool:
            if receiver.requests and key.endswith(".mailbox") and len(refused) < 5:
                refused.append(key)
                raise StoreError("the disk is full")
            return replace(key, old, new)

        monkeypatch.setattr(store, "replace", fail_once_after_sending)
        with notifying(store):
            tell(store, "a")
            until(lambda: mailbox(store).sent == 1)
        assert len(refused) == 5 and len(receiver.requests) == 1

    def test_a_mailbox_with_a_later_token_is_left_alone(self, store: Store) -> None:
        channel = Channel("hook", "webhook", url="https://example.org/")
        box = Mailbox(token=10**9)
        assert store.create(mailbox_key("hook"), box.encode())
        sender = Sender(store, channel, Feed(store), "w", Sent())
        with pytest.raises(LockLost):
            sender._open(5)

    def test_a_damaged_mailbox_begins_again(self, store: Store) -> None:
        channel = Channel("hook", "webhook", url="https://example.org/")
        assert store.create(mailbox_key("hook"), b'{"version": 9}')
        box, is_first = Sender(store, channel, Feed(store), "w", Sent())._open(5)
        assert (box, is_first) == (Mailbox(token=5), True)
        assert mailbox(store) == box


class TestChannels:
    def test_channels_can_be_added_and_removed_while_a_notifier_runs(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("swarm.notify.notifier._RELOAD_INTERVAL", 0.05)
        store, sent = MemoryStore(), Sent()
        with notifying(store, sent):
            add_channel(store, hook(receiver))
            until(lambda: store.read(mailbox_key("hook")))
            tell(store, "a")
            until(lambda: len(sent.events) == 1)
            remove_channel(store, "hook")
            until(lambda: not LockTable(store, LOCKS).status("hook").is_held)
            tell(store, "b")
            add_channel(store, hook(receiver, on=("finished",)))
            until(lambda: LockTable(store, LOCKS).status("hook").is_held)
        assert [event.task for event in sent.events] == ["a"]

    def test_a_channel_is_added_though_the_store_could_not_confirm_it(self) -> None:
        class Contended(MemoryStore):
            def create(self, key: str, data: bytes) -> bool:
                """Let another process change the record before `create` confirms it."""
                if super().create(key, data):
                    add_channel(self, Channel("other", "desktop"))
                return False

        store = Contended()
        add_channel(store, Channel("own", "desktop"))
        assert {each.name for each in stored_channels(store)} == {"own", "other"}

    def test_many_threads_that_add_channels_lose_none(self, live_store: Store) -> None:
        def add(number: int) -> None:
            add_channel(live_store, Channel(f"c{number}", "desktop"))

        threads = [threading.Thread(target=add, args=[number]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {each.name for each in stored_channels(live_store)} == {
            f"c{number}" for number in range(8)
        }

    def test_a_channel_is_stored_and_read_again(self, store: Store) -> None:
        channel = Channel(
            "c",
            "webhook",
            url="https://example.org/x",
            secret="k",
            on=("questions", "held"),
            always=("questions",),
            quiet="22:00-07:00",
            again=600.0,
            added_at="2026-02-02T12:00:00.000Z",
        )
        add_channel(store, channel)
        assert stored_channels(store) == [channel]
        assert remove_channel(store, "c") == channel and stored_channels(store) == []


def test_a_killed_notifier_leaves_no_process(tmp_path: Path) -> None:
    """A command that a notifier runs dies with it."""
    address, marker = str(tmp_path / "swarm"), tmp_path / "pid"
    store = open_store(address)
    script = f"echo $$ > {marker}.new; mv {marker}.new {marker}; exec sleep 100"
    add_channel(store, Channel("c", "command", command=("sh", "-c", script)))
    with process(address, "here") as child:
        tell(store, "a")
        pid = int(until(lambda: marker.exists() and marker.read_text()))
        child.kill()
        child.wait()
        if sys.platform == "linux":
            until(lambda: not os.path.exists(f"/proc/{pid}"))
