"""The store on etcd: contract, lost answers, late requests, members in trouble, logins
and settings.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from swarm.admin import server_checks
from swarm.admin.server_checks import check_server, reach_command
from swarm.errors import BadInput, StoreError
from swarm.stores import etcd
from swarm.stores.address import Address
from swarm.stores.contract import Store
from swarm.stores.etcd import EtcdStore
from swarm.stores.etcd_gateway import Connection, Gateway, Json, delete, entries, get, put
from swarm.stores.server import base
from swarm.stores.server.clock import ServerClock
from swarm.testing import CHECKS
from tests.conftest import HandClock
from tests.support.servers.etcd import EtcdCluster, EtcdServer
from tests.support.servers.server import free_port, running

VARIABLES = ("ETCDCTL_USER", "ETCDCTL_PASSWORD", "ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with running(EtcdServer(tmp_path_factory.mktemp("etcd"), safe=False)) as server:
        yield server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EtcdServer]:
    """A server for one test that stops, kills or configures it."""
    with running(EtcdServer(tmp_path)) as server:
        yield server


@pytest.fixture
def namespace() -> str:
    return f"test_{os.urandom(6).hex()}"


@pytest.fixture
def url(server: EtcdServer, namespace: str) -> str:
    return server.url(namespace)


Opened = Callable[[str], EtcdStore]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Return a function that opens a store, which is closed after the test."""
    stores: list[EtcdStore] = []

    def open_(url: str) -> EtcdStore:
        stores.append(EtcdStore(Address(url)))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


@pytest.fixture
def store(url: str, opened: Opened) -> EtcdStore:
    return opened(url)


@pytest.fixture(autouse=True)
def no_login_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def say(url: str, *requests: Json) -> list[Json]:
    """Return the answers of a server to requests that do not come from a store."""
    connection = Gateway(Address(url)).connect(10, lambda connection: None)
    try:
        return [connection.ask(request) for request in requests]
    finally:
        connection.abort()


def lines_of(store: Store, log: str = "status") -> list[bytes]:
    lines: list[bytes] = []
    cursor = ""
    while True:
        more, cursor = store.read_log(log, cursor, 4096)
        if not more:
            return lines
        lines += more


# The contract -------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_store_keeps_the_contract(check: Callable[[Store], None], store: EtcdStore) -> None:
    check(store)


def test_an_empty_record_is_a_record(store: EtcdStore) -> None:
    assert not store.replace("locks/a", b"", b"x")
    assert store.create("locks/a", b"") and not store.create("locks/a", b"x")
    assert store.read("locks/a") == b""
    assert (
        store.replace("locks/a", b"", b"x")
        and store.replace("locks/a", b"x", b"")
        and store.remove("locks/a", b"")
    )


def test_eight_writers_lose_nothing_and_all_readers_see_one_order(opened: Opened, url: str) -> None:
    followed: list[bytes] = []

    def follow() -> None:
        store, cursor = opened(url), ""
        while len(followed) < 160 and store.wait("status", cursor, 20):
            more, cursor = store.read_log("status", cursor)
            followed.extend(more)

    def write(me: int) -> None:
        store = opened(url)
        for number in range(20):
            store.append("status", b"%d %d" % (me, number))

    with ThreadPoolExecutor(9) as pool:
        follower = pool.submit(follow)
        list(pool.map(write, range(8)))
        follower.result()
    lines = lines_of(opened(url))
    assert sorted(lines) == sorted(
        b"%d %d" % (me, number) for me in range(8) for number in range(20)
    )
    assert followed == lines == opened(url).tail("status", 1000)[0]
    for me in range(8):
        assert [line for line in lines if line.startswith(b"%d " % me)] == [
            b"%d %d" % (me, number) for number in range(20)
        ]


def test_a_waiter_is_woken(
    opened: Opened, url: str, store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_MAX_WAIT", 60.0)
    store.address.timeout = 240.0  # so that no waiter polls within this test
    store.create("locks/a", b"one")
    other = opened(url)
    other.read("locks/a")
    changes: list[tuple[Callable[[], object], Callable[[], object]]] = [
        (lambda: other.append("status", b"news"), lambda: store.wait("status", "", 30)),
        (
            lambda: other.replace("locks/a", b"one", b"two"),
            lambda: store.watch("locks/a", b"one", 30),
        ),
    ]
    for change, wait in changes:
        changed = [0.0]

        def later(change: Callable[[], object] = change, changed: list[float] = changed) -> None:
            changed[0] = time.monotonic()
            change()

        timer = threading.Timer(0.3, later)
        timer.start()
        wait()
        assert 0 < time.monotonic() - changed[0] < 0.5
        timer.join()


def test_a_wait_ends_after_its_timeout(store: EtcdStore) -> None:
    began = time.monotonic()
    assert not store.wait("status", store.append("status", b"x"), 0.3)
    store.watch("locks/a", None, 0.3)
    assert 0.6 <= time.monotonic() - began < 10


def test_a_forked_child_uses_the_store_of_its_parent(store: EtcdStore) -> None:
    store.create("locks/a", b"parent")
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    child = fork.Process(target=lambda: answers.put(_replaced(store, b"parent", b"child")))
    child.start()
    assert answers.get(timeout=20)
    child.join()
    assert store.replace("locks/a", b"child", b"parent again")
    assert store.append("status", b"x")


def _replaced(store: EtcdStore, old: bytes, new: bytes) -> bool:
    return all(store.replace("locks/a", *pair) for pair in ((old, b"between"), (b"between", new)))


# The namespace ------------------------------------------------------------------------


def test_ten_processes_create_one_namespace(opened: Opened, url: str) -> None:
    fork = multiprocessing.get_context("fork")
    cursors, together = fork.Queue(), fork.Barrier(10)

    def begin(me: int) -> None:
        store = opened(url)
        together.wait()
        cursors.put(store.append("status", b"%d" % me))

    children = [fork.Process(target=begin, args=(me,)) for me in range(10)]
    for child in children:
        child.start()
    found = [cursors.get(timeout=20) for _ in children]
    for child in children:
        child.join()
    assert len({cursor.partition(".")[0] for cursor in found}) == 1
    assert sorted(lines_of(opened(url))) == [b"%d" % me for me in range(10)]


def test_a_namespace_that_another_process_creates_at_the_same_moment_is_used(
    opened: Opened, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = opened(url), opened(url)
    original = Connection.ask

    def overtaken(self: Connection, request: Json) -> Json:
        monkeypatch.setattr(Connection, "ask", original)
        answer = original(self, request)
        quick.create("locks/a", b"one")
        return answer

    monkeypatch.setattr(Connection, "ask", overtaken)
    assert slow.tail("status", 1)[1] == quick.tail("status", 1)[1]
    assert quick.replace("locks/a", b"one", b"two") and slow.replace("locks/a", b"two", b"three")


@pytest.mark.parametrize(
    "meta", [b"", b"hello", b"[1]", b'{"version": 2}', b'{"version": 2, "incarnation": "me"}']
)
def test_a_foreign_namespace_is_refused_and_left_alone(
    opened: Opened, url: str, namespace: str, meta: bytes
) -> None:
    say(url, put(f"{namespace}/meta", meta))
    with pytest.raises(StoreError, match=r"not created by swarm.*another name"):
        opened(url).create("locks/a", b"x")
    assert [entry.key for entry in entries(say(url, get(namespace, f"{namespace}0"))[0])] == [
        f"{namespace}/meta"
    ]


@pytest.mark.parametrize(("layout", "age"), [(1, "older"), (3, "newer")])
def test_a_namespace_of_another_layout_is_refused(
    layout: int, age: str, opened: Opened, url: str, namespace: str
) -> None:
    say(
        url,
        put(f"{namespace}/meta", b'{"version": %d, "incarnation": "0123abcd", "more": 1}' % layout),
    )
    with pytest.raises(
        StoreError, match=rf"by an? {age} swarm \(layout {layout}; this swarm uses layout 2\)"
    ):
        opened(url).read("locks/a")


def test_etcd_namespaces_are_separate(
    opened: Opened, server: EtcdServer, store: EtcdStore, namespace: str
) -> None:
    other = opened(server.url(f"{namespace}0"))
    for each, data in ((store, b"one"), (other, b"two")):
        assert each.create("locks/a", data)
        each.append("status", data)
    assert store.read("locks/a") == b"one" and store.keys("locks") == other.keys("locks") == [
        "locks/a"
    ]
    assert lines_of(store) == [b"one"] and lines_of(other) == [b"two"]


def test_a_removed_namespace_is_created_again(url: str, namespace: str, store: EtcdStore) -> None:
    store.create("locks/a", b"one")
    cursors = [store.append("status", b"%d" % number) for number in range(3)]
    say(url, delete(f"{namespace}/", f"{namespace}0"))
    assert store.create("locks/a", b"two")
    after = store.append("status", b"new")
    assert not store.continues(cursors[0], after)
    assert store.read_log("status", cursors[2]) == ([b"new"], after)


def test_a_reader_notices_that_the_namespace_was_created_again(
    opened: Opened, url: str, namespace: str
) -> None:
    reader = opened(url)
    for number in range(3):
        cursor = reader.append("status", b"%d" % number)
    waited: list[bool] = []
    waiter = threading.Thread(target=lambda: waited.append(opened(url).wait("status", cursor, 20)))
    waiter.start()
    time.sleep(0.2)
    say(url, delete(f"{namespace}/", f"{namespace}0"))
    after = opened(url).append("status", b"new")
    waiter.join()
    assert waited == [True]
    assert reader.read_log("status", cursor) == ([b"new"], after)
    say(url, delete(f"{namespace}/", f"{namespace}0"))
    newest = opened(url).append("status", b"newest")
    assert reader.tail("status", 5) == ([b"newest"], newest)
    say(url, delete(f"{namespace}/", f"{namespace}0"))
    assert reader.read_log("status", newest)[0] == [] and not reader.wait("status", newest, 0)


def test_the_first_change_after_a_removal_creates_the_namespace(
    opened: Opened, url: str, namespace: str
) -> None:
    changes: list[Callable[[EtcdStore], object]] = [
        lambda store: store.create("locks/a", b"one"),
        lambda store: store.append("status", b"one"),
    ]
    for change in changes:
        store = opened(url)
        store.read("locks/a")
        say(url, delete(f"{namespace}/", f"{namespace}0"))
        assert change(store)
        assert entries(say(url, get(f"{namespace}/meta"))[0])
        assert store.tail("status", 1)[1] == opened(url).tail("status", 1)[1]


def test_old_sessions_are_deleted_and_a_deleted_session_is_renewed(
    opened: Opened, url: str, namespace: str, store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("locks/a", b"one")
    sessions = f"{namespace}/session/", f"{namespace}/session0"
    (used,) = entries(say(url, get(*sessions))[0])
    say(url, put(f"{sessions[0]}00495000/x", b"1 1"))
    monkeypatch.setattr(etcd, "_CLEANUP_SHARE", 1.0)
    opened(url).read("locks/a")
    assert entries(say(url, get(*sessions))[0]) == [used]
    say(url, delete(*sessions))
    assert store.replace("locks/a", b"one", b"two") and store.remove("locks/a", b"two")


# What happens on the way --------------------------------------------------------------


class Road:
    """A proxy to a server that loses an answer or delays a request."""

    def __init__(self, server: EtcdServer) -> None:
        self._server = server.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.lose_answer = self.hold_request = False  # of the next change
        self.held: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def deliver(self) -> bytes:
        """Deliver the delayed request, and return its answer, for which no client waits."""
        with socket.create_connection(("127.0.0.1", self._server), 10) as there:
            there.sendall(self.held.pop(0))
            with there.makefile("rb") as answers:
                return _message(answers)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(here,), daemon=True).start()

    def _carry(self, here: socket.socket) -> None:
        there = socket.create_connection(("127.0.0.1", self._server), 10)
        with here, there, here.makefile("rb") as requests, there.makefile("rb") as answers:
            try:
                while request := _message(requests):
                    change = request.startswith(b"POST /v3/kv/txn ")
                    if change and self.hold_request:
                        self.hold_request = False
                        self.held.append(request)
                        return
                    there.sendall(request)
                    answer = _message(answers)
                    if change and self.lose_answer:
                        self.lose_answer = False
                        return
                    here.sendall(answer)
            except OSError:
                pass  # one side has closed the connection


def _message(stream: BinaryIO) -> bytes:
    """Return one request or answer of HTTP; b"" at the end."""
    head, length = b"", 0
    while line := stream.readline():
        head += line
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        if line == b"\r\n":
            return head + (_chunks(stream) if b"chunked" in head else stream.read(length))
    return b""


def _chunks(stream: BinaryIO) -> bytes:
    found = b""
    while True:
        line = stream.readline()
        found += line + stream.read(int(line, 16) + 2)
        if line == b"0\r\n":
            return found


@pytest.fixture
def road(server: EtcdServer) -> Iterator[Road]:
    made = Road(server)
    yield made
    made.close()


@pytest.fixture
def far(opened: Opened, road: Road, namespace: str) -> EtcdStore:
    """A store behind the proxy, which has been used once."""
    made = opened(f"etcd://127.0.0.1:{road.port}?swarm={namespace}")
    made.create("locks/other", b"x")
    made.append("status", b"first")
    return made


def test_a_change_whose_answer_is_lost_is_made_once_and_reported(
    far: EtcdStore, road: Road
) -> None:
    road.lose_answer = True
    assert far.create("locks/a", b"one") and not road.lose_answer
    road.lose_answer = True
    assert far.replace("locks/a", b"one", b"two") and not road.lose_answer
    road.lose_answer = True
    assert far.remove("locks/a", b"two") and not road.lose_answer
    road.lose_answer = True
    assert not far.remove("locks/a", b"two") and not road.lose_answer
    assert far.create("locks/a", b"three")


def test_a_long_record_whose_answer_is_lost_is_changed_once_and_reported(
    far: EtcdStore, road: Road
) -> None:
    data = [bytes([number]) * 1_000_000 for number in range(3)]
    road.lose_answer = True
    assert far.create("locks/a", data[0])
    road.lose_answer = True
    assert far.replace("locks/a", data[0], data[1])
    road.lose_answer = True
    assert not far.replace("locks/a", data[0], data[2])
    assert far.read("locks/a") == data[1]


def test_a_change_that_arrives_late_does_nothing(far: EtcdStore, road: Road) -> None:
    road.hold_request = True
    assert far.create("locks/a", b"one")  # sent again, after the connection was lost
    assert b'"succeeded":true' not in road.deliver()  # while it is the last request
    road.hold_request = True
    assert far.remove("locks/a", b"one")
    # the same bytes as before: only the request number differs
    assert far.create("locks/a", b"one")
    assert b'"succeeded":true' not in road.deliver()
    assert far.read("locks/a") == b"one"


def test_a_failed_change_that_arrives_late_does_nothing(
    far: EtcdStore, road: Road, store: EtcdStore
) -> None:
    store.create("locks/a", b"one")
    road.hold_request = True
    assert not far.create("locks/a", b"two")
    assert store.remove("locks/a", b"one")
    assert b'"succeeded":true' not in road.deliver()
    assert far.read("locks/a") is None


def test_the_first_change_of_a_session_that_arrives_late_does_nothing(
    opened: Opened, road: Road, namespace: str, server: EtcdServer
) -> None:
    opened(server.url(namespace)).read("locks/a")  # makes the namespace
    far = opened(f"etcd://127.0.0.1:{road.port}?swarm={namespace}")
    road.hold_request = True
    assert far.create("locks/a", b"one") and far.remove("locks/a", b"one")
    assert b'"succeeded":true' not in road.deliver()
    assert far.read("locks/a") is None


def test_an_abandoned_change_that_was_made_does_not_block_the_next_one(store: EtcdStore) -> None:
    store.create("locks/b", b"x")
    original = Connection.ask

    def interrupted(self: Connection, request: Json) -> Json:
        original(self, request)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.create("locks/a", b"one")
    assert not store.create("locks/a", b"two")
    assert store.remove("locks/a", b"one")


def test_a_line_whose_answer_is_lost_is_there_once(
    opened: Opened, far: EtcdStore, road: Road, url: str
) -> None:
    road.lose_answer = True
    cursor = far.append("status", b"second")
    assert not road.lose_answer and lines_of(far) == [b"first", b"second"]
    assert far.append("status", b"third") and far.read_log("status", cursor)[0] == [b"third"]
    opened(url).append("status", b"of another")
    road.lose_answer = True  # of a try that was too late
    far.append("status", b"fifth")
    assert lines_of(far) == [b"first", b"second", b"third", b"of another", b"fifth"]


def test_a_line_that_arrives_late_is_there_once(far: EtcdStore, road: Road, url: str) -> None:
    road.hold_request = True
    cursor = far.append("status", b"second")
    assert b'"succeeded":true' not in road.deliver()
    assert far.tail("status", 5) == ([b"first", b"second"], cursor)


def test_a_line_whose_answer_is_lost_is_found_before_later_lines(
    opened: Opened, far: EtcdStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Connection.ask
    lost: list[Json] = []

    def lose(self: Connection, request: Json) -> Json:
        answer = original(self, request)
        if "request_txn" in request and not lost:
            lost.append(answer)
            other.append("status", b"of another")
            raise self._lost("lost")
        return answer

    other = opened(url)
    other.tail("status", 1)
    monkeypatch.setattr(Connection, "ask", lose)
    cursor = far.append("status", b"second")
    assert lines_of(far) == [b"first", b"second", b"of another"]
    assert far.read_log("status", cursor)[0] == [b"of another"]


# What the members do ------------------------------------------------------------------


def test_a_server_that_is_down_is_an_error_within_the_timeout(
    opened: Opened, namespace: str
) -> None:
    store = opened(f"etcd://127.0.0.1:{free_port()}?swarm={namespace}&timeout=1")
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"cannot be reached: .*refused.*Is the server running"):
        store.create("locks/a", b"x")
    with pytest.raises(StoreError, match="cannot be reached"):
        store.clock.now()
    assert time.monotonic() - began < 4


def test_a_silent_server_is_an_error_within_the_timeout_and_used_when_it_is_back(
    opened: Opened, own_server: EtcdServer, namespace: str
) -> None:
    store = opened(own_server.url(namespace, timeout="1"))
    store.create("locks/a", b"one")
    cursor = store.append("status", b"one")
    own_server.pause()
    for verb in (lambda: store.read("locks/a"), lambda: store.wait("status", cursor, 30)):
        began = time.monotonic()
        with pytest.raises(StoreError, match=r"cannot be reached: .*timed out"):
            verb()
        assert time.monotonic() - began < 10
    own_server.resume()
    assert store.replace("locks/a", b"one", b"two")


def test_confirmed_changes_survive_a_killed_server(
    opened: Opened, own_server: EtcdServer, namespace: str
) -> None:
    store = opened(own_server.url(namespace, timeout="20"))
    token = 0
    for number in range(10):
        store.create(f"locks/{number}", b"%d" % number)
        store.append("status", b"%d" % number)
        token = store.next_token("locks/a")
    own_server.kill()
    threading.Timer(0.3, own_server.start, kwargs={"wait": False}).start()
    assert store.append("status", b"10")  # before it is back
    assert store.keys("locks") == [f"locks/{number}" for number in range(10)]
    assert lines_of(store) == [b"%d" % number for number in range(11)]
    assert store.token_bound("locks/a") == token < store.next_token("locks/a")


def test_another_member_is_used_if_one_is_down_or_silent(
    opened: Opened, server: EtcdServer, namespace: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = (
            f"127.0.0.1:{free_port()},127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{server.port}"
        )
        store = opened(f"etcd://{hosts}?swarm={namespace}&timeout=6")
        began = time.monotonic()
        assert store.create("locks/a", b"one")
        assert time.monotonic() - began < 5.5, "the timeout is 6 seconds"
        began = time.monotonic()
        store.close()
        assert store.remove("locks/a", b"one")
        assert time.monotonic() - began < 0.95  # beginning with the one that answered


def test_appends_continue_when_the_leader_is_killed(
    opened: Opened, tmp_path: Path, namespace: str
) -> None:
    cluster = EtcdCluster(tmp_path)
    confirmed: list[tuple[int, bytes]] = []
    stop = threading.Event()

    def write(me: int) -> None:
        store, number = opened(cluster.url(namespace, timeout="9")), 0
        while not stop.is_set():
            line = b"%d %d" % (me, number)
            cursor = store.append("status", line)
            confirmed.append((int(cursor.partition(".")[2]), line))
            store.create(f"locks/{me}-{number}", line)
            number += 1

    try:
        cluster.start()
        leader = cluster.leader()
        with ThreadPoolExecutor(3) as pool:
            writers = [pool.submit(write, me) for me in range(3)]
            try:
                _until(lambda: len(confirmed) > 30)
                leader.kill()
                before = len(confirmed)
                _until(lambda: len(confirmed) > before + 30)
            finally:
                stop.set()
            for writer in writers:
                writer.result()
        store = opened(cluster.url(namespace))  # not the one that was killed, in case that MAY_LOSE
        assert [line for _, line in sorted(confirmed)] == lines_of(store)
        assert len(set(confirmed)) == len(confirmed) == len(store.keys("locks"))
    finally:
        cluster.stop()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_record_that_is_too_large_is_refused_with_advice(store: EtcdStore) -> None:
    for size in (1_700_000, 3_000_000):
        began = time.monotonic()
        with pytest.raises(
            StoreError, match=r"refuses: .*larger than etcd takes.*--max-request-bytes"
        ):
            store.append("status", b"x" * size)
        with pytest.raises(StoreError, match="--max-request-bytes"):
            store.create("locks/a", b"x" * size)
        assert time.monotonic() - began < 5
    assert store.create("locks/a", b"x") and store.append("status", b"x")


def test_a_full_database_is_an_error_with_advice(
    opened: Opened, tmp_path: Path, namespace: str
) -> None:
    with running(EtcdServer(tmp_path, flags=["--quota-backend-bytes", "1000000"])) as server:
        store = opened(server.url(namespace))
        with pytest.raises(
            StoreError, match=r"database space exceeded.*alarm disarm.*--auto-compaction-retention"
        ):
            any(not store.append("status", b"x" * 200_000) for _ in range(20))
        assert len(lines_of(store)) > 1
        assert ("fault", "etcdctl alarm list") in [
            (check.state, check.fix) for check in check_server(store)
        ]


# The clock ----------------------------------------------------------------------------


def test_the_clock_is_that_of_the_server_and_becomes_more_exact(store: EtcdStore) -> None:
    def width() -> float:
        now, truth, latest = store.clock.now(), time.time(), store.clock.latest()
        assert now <= truth + 0.001 and truth <= latest + 0.001
        return latest - now

    assert width() < 1.5
    deadline = time.monotonic() + 1.1  # over a change of the second
    while time.monotonic() < deadline:
        store.read("locks/a")
        time.sleep(0.01)
    assert width() < 0.5


def test_the_clocks_of_two_servers_are_not_mixed() -> None:
    class Standing(ServerClock):
        def steady(self) -> float:
            return 100.0

    clock = Standing(lambda: (3.0, 4.0))
    clock.learn(100.0, 100.0, 2.5, 3.5)
    assert (clock.now(), clock.latest()) == (2.5, 3.5)
    clock.forget()
    assert (clock.now(), clock.latest()) == (3.0, 4.0)


def test_the_clock_is_forgotten_when_another_member_answers(
    opened: Opened, server: EtcdServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(f"etcd://127.0.0.1:{server.port},localhost:{server.port}?swarm={namespace}")
    forgotten: list[bool] = []
    store.read("locks/a")
    monkeypatch.setattr(store._server_clock, "forget", lambda: forgotten.append(True))
    store.read("locks/a")
    assert not forgotten
    store._gateway.avoid(0)
    store.close()
    store.read("locks/a")
    assert forgotten == [True]


def test_the_doctor_judges_the_version(
    server: EtcdServer, store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_checks, "_ETCD_LOSING", ())
    (good,) = check_server(store)
    assert good.state == "ok" and good.text.startswith("etcd 3.") and not good.fix
    monkeypatch.setattr(server_checks, "_ETCD_LOSING", (good.text.removeprefix("etcd "),))
    (bad,) = check_server(store)
    assert bad.state == "fault" and f"{good.text} may lose" in bad.text and bad.fix
    assert (
        reach_command(store.address)
        == f"etcdctl --endpoints=http://127.0.0.1:{server.port} endpoint health"
    )


def test_a_store_may_be_given_another_clock(url: str) -> None:
    clock = HandClock()
    assert EtcdStore(Address(url), clock=clock).clock is clock


# Who may ------------------------------------------------------------------------------


def test_etcd_with_user_and_password(
    opened: Opened, own_server: EtcdServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, wrong = "s3cret/:@", "wr0ng"
    own_server.control("user", "add", f"root:{secret}")
    own_server.control("user", "grant-role", "root", "root")
    own_server.control("user", "add", f"guest:{secret}")
    own_server.control("auth", "enable")
    host = f"127.0.0.1:{own_server.port}?swarm={namespace}"

    with pytest.raises(
        StoreError,
        match=r"user name is empty.*Check user, password and rights, also in ETCDCTL_USER",
    ):
        opened(f"etcd://{host}").read("locks/a")
    with pytest.raises(
        StoreError, match=r"invalid user ID or password.*Check user, password"
    ) as refused:
        opened(f"etcd://root:{wrong}@{host}").read("locks/a")
    assert wrong not in str(refused.value)
    with pytest.raises(StoreError, match=r"permission denied.*Check user, password and rights"):
        opened(f"etcd://guest:s3cret%2F%3A%40@{host}").read("locks/a")

    store = opened(f"etcd://root:s3cret%2F%3A%40@{host}")
    assert store.create("locks/a", b"one")
    threading.Timer(0.2, store.append, ("status", b"x")).start()
    assert store.wait("status", "", 10)
    own_server.stop()
    own_server.start()  # it knows no tokens any more
    assert store.replace("locks/a", b"one", b"two")
    store._gateway.token = "expired.1"
    store.watch("locks/a", b"two", 0.1)
    assert "s3cret" not in store.where("locks/a")

    for variables in (
        {"ETCDCTL_USER": f"root:{secret}"},
        {"ETCDCTL_USER": "root", "ETCDCTL_PASSWORD": secret},
    ):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            assert opened(f"etcd://{host}").read("locks/a") == b"two"
    monkeypatch.setenv("ETCDCTL_PASSWORD", wrong)
    with pytest.raises(StoreError, match="invalid user ID") as refused:
        opened(f"etcd://root@{host}").read("locks/a")
    assert wrong not in str(refused.value)


def test_a_login_is_ignored_if_the_server_has_no_users(
    opened: Opened, server: EtcdServer, namespace: str
) -> None:
    assert opened(f"etcd://me:secret@127.0.0.1:{server.port}?swarm={namespace}").create(
        "locks/a", b"one"
    )


def test_etcd_over_tls(
    opened: Opened, tmp_path: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
            ),
            *(
                "-subj",
                "/CN=test",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
                "-keyout",
                str(key),
                "-out",
                str(cert),
            ),
        ],
        check=True,
        capture_output=True,
    )
    with running(EtcdServer(tmp_path, certificate=(cert, key))) as server:
        store = opened(server.url(namespace, cacert=str(cert)))
        assert store.create("locks/a", b"one")
        threading.Timer(0.2, store.append, ("status", b"x")).start()
        assert store.wait("status", "", 10)
        with pytest.raises(
            StoreError, match=r"certificate of .* cannot be trusted: .*ETCDCTL_CACERT"
        ):
            opened(server.url(namespace)).read("locks/a")
        with pytest.raises(StoreError, match="write etcds://"):
            opened(f"etcd://127.0.0.1:{server.port}?swarm={namespace}&timeout=0.5").read("locks/a")
        monkeypatch.setenv("ETCDCTL_CACERT", str(cert))
        assert opened(server.url(namespace)).read("locks/a") == b"one"


def test_a_server_that_is_not_etcd_is_an_error_with_advice(opened: Opened, namespace: str) -> None:
    def answer() -> None:
        here, _ = listener.accept()
        with here, here.makefile("rb") as requests:
            _message(requests)
            here.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\nno page")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer).start()
        with pytest.raises(
            StoreError, match=r"refuses: HTTP 404, no page. It must be etcd 3.4 or newer"
        ):
            opened(f"etcd://127.0.0.1:{listener.getsockname()[1]}?swarm={namespace}").read(
                "locks/a"
            )


def test_an_address_with_unknown_options_is_refused(opened: Opened) -> None:
    for wrong in (
        "etcd://h/path",
        "etcd://h?colour=red",
        "etcds://h?cacert=/no/such/file",
        "etcd://h:port",
    ):
        with pytest.raises(BadInput):
            opened(wrong)


def test_a_read_is_never_sent_as_a_transaction(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old etcd crashes if a client disconnects during one (its issue 14110), and a
    full etcd refuses it.
    """
    store.next_token("locks/t")
    store.create("locks/t", b"x")
    store.append("status", b"line")
    asked: list[str] = []
    ask = Connection.ask

    def noted(self: Connection, request: Json) -> Json:
        asked.extend(request)
        return ask(self, request)

    monkeypatch.setattr(Connection, "ask", noted)
    found = (
        store.read("locks/t"),
        store.keys("locks"),
        store.token_bound("locks/t"),
        store.highest_token("locks"),
    )
    assert found == (b"x", ["locks/t"], 1, 1)
    assert (store.token_bound("locks/u"), store.highest_token("queue")) == (0, 0)
    assert (
        store.read_log("status")[0]
        == store.tail("status", 1)[0]
        == [line for _, line, _ in store.numbered("status")]
    )
    assert store.wait("status", "", 0)
    assert set(asked) == {"request_range"}
