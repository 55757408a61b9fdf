"""The store on Redis and Valkey: lost answers, late requests, servers in trouble,
logins and settings.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from swarm.admin.server_checks import check_server
from swarm.errors import BadInput, StoreError
from swarm.stores import redis as redis_store
from swarm.stores.address import Address
from swarm.stores.contract import Store
from swarm.stores.redis import RedisStore
from swarm.stores.registry import open_store
from swarm.testing import CHECKS, tokens_advance_and_never_decrease
from tests.conftest import ROOT
from tests.support.processes import fork
from tests.support.servers.proxy import Proxy, certificate
from tests.support.servers.server import running
from tests.support.servers.valkey import ValkeyServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with running(ValkeyServer(tmp_path_factory.mktemp("valkey"))) as server:
        yield server


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"t{abs(hash(request.node.nodeid))}"


@pytest.fixture
def store(server: ValkeyServer, name: str) -> Iterator[RedisStore]:
    store = RedisStore(Address(server.url(name)))
    yield store
    store.close()


def command(server: ValkeyServer, *words: str) -> bytes:
    """Return the answer to a command, without a client library."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(
            b"*%d\r\n" % len(words)
            + b"".join(b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in words)
        )
        return connection.recv(1 << 16)


def lines(store: Store) -> list[bytes]:
    return store.read_log("status")[0]


class TestLostAnswers:
    """The server makes a change, and its answer is lost or late."""

    @pytest.fixture
    def proxy(self, server: ValkeyServer) -> Iterator[Proxy]:
        with Proxy(server.port) as proxy:
            yield proxy

    @pytest.fixture
    def far(self, proxy: Proxy, name: str) -> Iterator[RedisStore]:
        store = RedisStore(Address(f"redis://127.0.0.1:{proxy.port}/0?swarm={name}&timeout=3"))
        store.read("locks/warm")
        yield store
        store.close()

    def test_a_line_whose_answer_is_lost_is_appended_once(
        self, proxy: Proxy, far: RedisStore, store: RedisStore
    ) -> None:
        far.append("status", b"before")  # from now on the server knows the script
        proxy.losing = 1
        cursor = far.append("status", b"once")
        far.append("status", b"after")
        assert proxy.lost == 1
        assert lines(store) == [b"before", b"once", b"after"]
        assert store.read_log("status", cursor)[0] == [b"after"]

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            (lambda store: store.create("locks/new", b"1"), True),
            (lambda store: store.create("locks/there", b"1"), False),
            (lambda store: store.replace("locks/there", b"old", b"new"), True),
            (lambda store: store.replace("locks/there", b"other", b"new"), False),
            (lambda store: store.remove("locks/there", b"old"), True),
            (lambda store: store.remove("locks/there", b"other"), False),
        ],
    )
    def test_the_outcome_of_a_change_whose_answer_is_lost_is_found_out(
        self, change: Callable[[Store], bool], expected: bool, proxy: Proxy, far: RedisStore
    ) -> None:
        far.create("locks/there", b"old")
        proxy.losing = 2
        assert change(far) is expected
        assert proxy.lost == 2

    def test_a_token_is_never_returned_twice_after_a_lost_answer(
        self, proxy: Proxy, far: RedisStore
    ) -> None:
        first = far.next_token("locks/a")
        proxy.losing = 1
        assert far.next_token("locks/a") > first

    def test_a_change_that_arrives_late_does_nothing(
        self, proxy: Proxy, far: RedisStore, store: RedisStore
    ) -> None:
        """A lock is acquired at the second attempt and released.

        Then the first attempt arrives: it must not leave a lock.
        """
        proxy.holding = True
        threading.Timer(0.3, setattr, (proxy, "holding", False)).start()
        assert far.create("locks/a", b"mine")
        assert far.remove("locks/a", b"mine")
        assert len(proxy.let_through()) >= 1
        assert store.read("locks/a") is None

    def test_a_line_that_arrives_late_is_not_written(
        self, proxy: Proxy, far: RedisStore, store: RedisStore
    ) -> None:
        proxy.holding = True
        threading.Timer(0.3, setattr, (proxy, "holding", False)).start()
        far.append("status", b"once")
        assert len(proxy.let_through()) >= 1
        assert lines(store) == [b"once"]

    def test_an_abandoned_change_that_arrives_late_does_nothing(
        self, proxy: Proxy, far: RedisStore, store: RedisStore
    ) -> None:
        proxy.holding = True
        with pytest.raises(
            StoreError, match="the server may have made it: check before you repeat it"
        ):
            far.create("locks/a", b"mine")
        proxy.holding = False
        assert not far.remove("locks/a", b"mine"), "there is none yet"
        proxy.let_through()
        assert store.read("locks/a") is None


class TestTrouble:
    def test_a_server_that_is_down_is_an_error_within_the_timeout(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        begun = time.monotonic()
        with pytest.raises(
            StoreError, match=r"cannot be reached: .*refused.*tried for 0.5 seconds"
        ) as caught:
            open_store(f"redis://127.0.0.1:{port}/0?timeout=0.5").read("locks/a")
        assert time.monotonic() - begun < 5
        assert caught.value.exit_code == 3

    def test_a_silent_server_is_an_error_within_the_timeout(
        self, server: ValkeyServer, name: str
    ) -> None:
        store = RedisStore(Address(server.url(name, timeout="0.6")))
        store.read("locks/a")
        server.pause()
        try:
            begun = time.monotonic()
            for verb in (
                lambda: store.read("locks/a"),
                lambda: store.append("status", b"x"),
                store.clock.now,
            ):
                with pytest.raises(StoreError, match="cannot be reached"):
                    verb()
            assert time.monotonic() - begun < 10
        finally:
            server.resume()
        assert store.read("locks/a") is None, "it goes on by itself"
        store.close()

    def test_confirmed_changes_survive_a_killed_server(self, tmp_path: Path) -> None:
        with running(ValkeyServer(tmp_path)) as server:
            store = RedisStore(Address(server.url()))
            for number in range(50):
                store.append("status", b"%d" % number)
                store.create(f"locks/{number}", b"x")
            token = store.next_token("locks/a")
            cursor = store.tail("status", 0)[1]
            server.kill()
            starter = threading.Timer(0.3, server.start)
            starter.start()
            after = store.append("status", b"after")
            starter.join()
            assert lines(store) == [*(b"%d" % number for number in range(50)), b"after"]
            assert len(store.keys("locks")) == 50
            assert store.next_token("locks/a") > token
            assert store.read_log("status", cursor) == ([b"after"], after)
            store.close()

    def test_a_connected_store_notices_that_the_server_was_emptied(
        self, server: ValkeyServer, store: RedisStore, name: str
    ) -> None:
        before = store.append("status", b"old")
        command(server, "DEL", f"{{{name}}}:meta", f"{{{name}}}:log:status")
        after = store.append("status", b"new")
        assert not store.continues(before, after)
        found, cursor = store.read_log("status", before)
        assert found == [b"new"] and not store.continues(before, cursor)

    def test_a_write_to_a_replica_is_refused(
        self, server: ValkeyServer, tmp_path: Path, name: str
    ) -> None:
        options = ("--replicaof", f"127.0.0.1 {server.port}")
        with running(ValkeyServer(tmp_path, options=options)) as replica:
            store = RedisStore(Address(replica.url(name, timeout="0.5")))
            with pytest.raises(StoreError, match="read only replica"):
                store.create("locks/a", b"x")

    def test_an_invalid_address_is_refused_without_its_secret(self) -> None:
        for url in (
            "redis://:geheim@h:port/0",
            "redis://h/0?socket_timeout=geheim",
            "redis://u:ge/heim@h/0",
            "redis://h/0?geheim=1",
        ):
            with pytest.raises((BadInput, StoreError)) as caught:
                open_store(url).read("locks/a")
            assert ":geheim@" not in str(caught.value) and "ge/heim" not in str(caught.value)


SECRET = "p@ss/w:ö?d"
QUOTED = "p%40ss%2Fw%3A%C3%B6%3Fd"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    directory = tmp_path_factory.mktemp("guarded")
    with running(ValkeyServer(directory, safe=False, options=("--requirepass", SECRET))) as server:
        yield server


class TestSecrets:
    def test_the_password_may_be_in_the_address(self, guarded: ValkeyServer) -> None:
        store = open_store(guarded.url().replace("redis://", f"redis://:{QUOTED}@"))
        assert store.create("locks/url", b"x")
        assert "p@ss" not in store.where("locks/url") and QUOTED not in store.where("locks/url")

    def test_the_password_may_be_in_rediscli_auth(
        self, guarded: ValkeyServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REDISCLI_AUTH", SECRET)
        assert open_store(guarded.url()).create("locks/variable", b"x")

    def test_a_wrong_password_is_refused_at_once_and_not_shown(self, guarded: ValkeyServer) -> None:
        begun = time.monotonic()
        with pytest.raises(StoreError, match=r"refuses: .*Check user and password") as caught:
            open_store(guarded.url().replace("redis://", "redis://:wrong-secret@")).read("locks/a")
        assert "wrong-secret" not in str(caught.value)
        assert time.monotonic() - begun < 5, "it is not tried again"

    def test_a_missing_password_is_refused(self, guarded: ValkeyServer) -> None:
        with pytest.raises(StoreError, match="REDISCLI_AUTH"):
            open_store(guarded.url()).read("locks/a")


class TestDoctor:
    @pytest.mark.parametrize(
        ("setting", "value", "state", "text"),
        [
            ("appendonly", "no", "warning", "append-only file"),
            ("appendfsync", "everysec", "warning", "append-only file is synced everysec"),
            ("maxmemory-policy", "allkeys-lru", "fault", "also locks"),
            ("maxmemory-policy", "volatile-ttl", "warning", "sessions"),
            ("maxmemory", "100kb", "fault", "memory of the server is full"),
        ],
    )
    def test_the_doctor_reports_an_unsafe_setting_with_the_command_that_fixes_it(
        self, setting: str, value: str, state: str, text: str, tmp_path: Path
    ) -> None:
        with running(ValkeyServer(tmp_path)) as server:
            store = RedisStore(Address(server.url()))
            assert {check.state for check in check_server(store)} == {"ok"}
            command(server, "CONFIG", "SET", setting, value)
            (concern,) = [check for check in check_server(store) if check.state != "ok"]
            assert concern.state == state and text in concern.text
            subject, name, safe = re.fullmatch(
                r"redis-cli (CONFIG SET) (\S+) (\S+).*", concern.fix
            ).groups()  # type: ignore[union-attr]
            command(server, *subject.split(), name, safe)
            assert {check.state for check in check_server(store)} == {"ok"}
            store.close()

    def test_the_doctor_warns_if_the_settings_cannot_be_read(
        self, server: ValkeyServer, name: str
    ) -> None:
        command(server, "ACL", "SETUSER", "plain", "on", ">pw", "+@all", "-config", "~*", "&*")
        store = RedisStore(Address(server.url(name).replace("redis://", "redis://plain:pw@")))
        assert any("settings cannot be read" in check.text for check in check_server(store))
        store.close()

    def test_the_documented_rights_are_enough_and_none_is_too_much(self, tmp_path: Path) -> None:
        document = (ROOT / "docs" / "reference" / "stores.md").read_text()
        (shown,) = re.findall(r"^ACL SETUSER swarm on (.*?)```", document, re.DOTALL | re.MULTILINE)
        rights = shown.split()
        granted = {right[1:] for right in rights if right[0] == "+"}
        with running(ValkeyServer(tmp_path)) as server:
            command(server, "ACL", "SETUSER", "swarm", "on", *rights)
            login = f"redis://swarm:PASSWORD@127.0.0.1:{server.port}/1"
            command(server, "CONFIG", "RESETSTAT")
            for check in CHECKS:
                if check is not tokens_advance_and_never_decrease:  # what `swarm migrate` uses
                    store = RedisStore(Address(login))
                    check(store)
                    store.close()
                    command(server, "FLUSHALL")
            store = RedisStore(Address(login))
            store.advance_tokens("locks", 7)
            store.clock.now()
            denied = command(server, "ACL", "LOG")  # redis-py 7.2 tells its name, in vain
            assert denied == b"*0\r\n" or (denied.startswith(b"*1") and b"setinfo" in denied)
            found = command(server, "INFO", "commandstats").decode()
            used = set(re.findall(r"^cmdstat_(\w+):", found, re.MULTILINE))
            assert granted <= used, "a right that swarm does not use"
            states = [check.state for check in check_server(store)]
            assert states == ["warning"], "its settings cannot be read"
            with pytest.raises(StoreError, match="permission"):
                RedisStore(Address(f"{login}?swarm=other")).read("locks/a")
            store.close()


def test_redis_over_a_unix_socket(server: ValkeyServer, name: str) -> None:
    store = open_store(f"redis+unix://{server.socket}?swarm={name}")
    assert store.create("locks/a", b"x")
    store.close()


def test_redis_over_tls(server: ValkeyServer, tmp_path: Path, name: str) -> None:
    """The server of the wheel has no TLS: a proxy in front of it has, as in many data centres."""
    path = certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(path)
    with Proxy(server.port, tls) as proxy:
        url = f"rediss://127.0.0.1:{proxy.port}/0?swarm={name}"
        assert open_store(f"{url}&ssl_ca_certs={path}").create("locks/a", b"x")
        with pytest.raises(StoreError, match="certificate verify failed"):
            open_store(f"{url}&timeout=0.5").read("locks/a")


class TestSchema:
    def test_ten_processes_create_one_namespace(
        self, server: ValkeyServer, name: str, tmp_path: Path
    ) -> None:
        begin = tmp_path / "begin"

        def make() -> None:
            while not begin.exists():
                pass
            store = open_store(server.url(name))
            store.append("status", store.append("status", b"x").partition(".")[0].encode())

        children = [fork(make) for _ in range(10)]
        begin.touch()
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 10
        store = open_store(server.url(name))
        assert len({line for line in lines(store) if line != b"x"}) == 1, "all see the same one"

    @pytest.mark.parametrize(("layout", "age"), [(1, "older"), (3, "newer")])
    def test_a_namespace_of_another_layout_is_refused(
        self, layout: int, age: str, server: ValkeyServer, store: RedisStore, name: str
    ) -> None:
        command(
            server, "HSET", f"{{{name}}}:meta", "version", str(layout), "incarnation", "01234567"
        )
        with pytest.raises(
            StoreError, match=rf"by an? {age} swarm \(layout {layout}; this swarm uses layout 2\)"
        ):
            store.read("locks/a")

    @pytest.mark.parametrize(
        "words", [("SET", "x"), ("HSET", "name", "value"), ("HSET", "version", "one")]
    )
    def test_a_foreign_namespace_is_refused_and_left_alone(
        self, words: tuple[str, ...], server: ValkeyServer, store: RedisStore, name: str
    ) -> None:
        verb, *rest = words
        command(server, verb, f"{{{name}}}:meta", *rest)
        with pytest.raises(StoreError, match=r"not created by swarm.*another name"):
            store.append("status", b"x")
        assert command(server, "EXISTS", f"{{{name}}}:log:status") == b":0\r\n"

    def test_redis_namespaces_are_separate(
        self, server: ValkeyServer, store: RedisStore, name: str
    ) -> None:
        other = open_store(server.url(f"{name}b"))
        assert store.create("locks/a", b"1") and other.create("locks/a", b"2")
        store.append("status", b"mine")
        assert lines(other) == [] and other.keys("locks") == ["locks/a"]


def test_a_waiter_is_woken_and_does_not_poll(store: RedisStore) -> None:
    for _ in range(3):
        cursor = store.tail("status", 0)[1]
        threading.Timer(0.1, store.append, ("status", b"news")).start()
        begun = time.monotonic()
        assert store.wait("status", cursor, 30)
        assert 0.05 < time.monotonic() - begun < 0.7
    store.create("locks/a", b"one")
    for old, new in ((b"one", b"two"), (b"two", b"three")):
        threading.Timer(0.1, store.replace, ("locks/a", old, new)).start()
        begun = time.monotonic()
        store.watch("locks/a", old, 30)
        assert 0.05 < time.monotonic() - begun < 0.7


def test_a_watch_leaves_its_connections_usable(server: ValkeyServer, store: RedisStore) -> None:
    """Also after more notifications than were waited for: none is mistaken for the
    answer to the next command.
    """

    def dialled() -> int:
        return int(
            command(server, "INFO", "stats").partition(b"total_connections_received:")[2].split()[0]
        )

    store.create("locks/a", b"0")
    store.watch("locks/a", b"another", 30)  # from here on there are two connections
    before = dialled()
    for number in range(20):
        old, new = b"%d" % number, b"%d" % (number + 1)
        changing = threading.Thread(target=flicker, args=(server, store.address.swarm, old, new))
        changing.start()
        store.watch("locks/a", old, 30)
        changing.join()
        assert store.read("locks/a") == new and store.next_token("locks/a") == number + 1
        assert store.append("status", new) and lines(store)[-1] == new
    assert dialled() - before == 20 + 1  # those of the others, and of asking


def flicker(server: ValkeyServer, namespace: str, old: bytes, new: bytes) -> None:
    """Change a lock in steps, each of which sends a notification."""
    other = open_store(server.url(namespace))
    other.read("locks/a")
    for step in (b"x", b"y", new):
        assert other.replace("locks/a", old, step)
        old = step
    other.close()


def test_a_forked_child_has_connections_of_its_own(store: RedisStore) -> None:
    store.append("status", b"parent")

    def work() -> None:
        for number in range(20):
            store.append("status", b"child %d" % number)

    child = fork(work)
    for number in range(20):
        store.append("status", b"parent %d" % number)
    assert os.waitpid(child, 0)[1] == 0
    assert len(lines(store)) == 41 and len(set(lines(store))) == 41


def test_a_missing_client_is_an_error_with_the_install_command(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['redis'] = None; from swarm.stores.registry import "
        "open_store; open_store('redis://h/0')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "-m pip install 'swarm-coordination[redis]'" in done.stderr


class TestPrivateParts:
    """The socket of a connection is private to redis-py."""

    def test_the_private_socket_of_redis_py_is_found_and_reset(self, server: ValkeyServer) -> None:
        connection = connected(server)
        assert isinstance(connection._sock, socket.socket)
        with connection._sock.dup() as same:
            redis_store._abort(connection)
            assert struct.unpack("ii", same.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)) == (
                1,
                0,
            )

    def test_a_connection_without_the_private_socket_is_closed(self, server: ValkeyServer) -> None:
        connection = connected(server)
        redis_store._abort(SimpleNamespace(disconnect=connection.disconnect))
        assert connection._sock is None


def connected(server: ValkeyServer) -> Any:
    kind: Any = redis.Connection  # its methods have no types
    connection = kind(port=server.port)
    connection.connect()
    return connection
