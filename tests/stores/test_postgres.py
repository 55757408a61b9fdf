"""The store on PostgreSQL, against a real server."""

from __future__ import annotations

import os
import re
import signal
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any

import psycopg
import pytest

from swarm.errors import BadInput, StoreError
from swarm.stores import postgres, postgres_connection
from swarm.stores.address import Address
from swarm.stores.contract import Store
from swarm.stores.postgres import PostgresStore
from swarm.stores.server.session_pool import ConnectionLost
from swarm.testing import CHECKS, one_of_many_threads_replaces
from tests.support.processes import fork, race
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.server import free_port

Connection = psycopg.Connection[tuple[Any, ...]]
_numbers = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    made = PostgresServer()
    try:
        made.start()
        yield made
    finally:
        made.remove()


@pytest.fixture
def namespace() -> str:
    return f"test_{next(_numbers)}"


@pytest.fixture
def store(server: PostgresServer, namespace: str) -> Iterator[PostgresStore]:
    made = PostgresStore(Address(server.url(namespace)))
    yield made
    made.close()


@pytest.fixture
def by_hand(server: PostgresServer) -> Iterator[Callable[[], Connection]]:
    """Return a function that connects to the server directly, without the store."""
    opened: list[Connection] = []

    def connect() -> Connection:
        opened.append(psycopg.connect(Address(server.url("x")).url("postgresql"), autocommit=True))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


Connect = Callable[[], Connection]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_store_keeps_the_contract(check: Callable[[Store], None], store: PostgresStore) -> None:
    check(store)


class TestMaking:
    def test_ten_processes_create_one_schema(
        self, server: PostgresServer, namespace: str, store: PostgresStore, by_hand: Connect
    ) -> None:
        def attempt(me: int, _: int) -> bool:
            own = PostgresStore(Address(server.url(namespace)))
            return own.create(f"locks/{me}", b"x")

        assert race(10, 1, attempt) == [list(range(10))]
        assert len(store.keys("locks")) == 10
        assert by_hand().execute(f"select count(*) from {namespace}.meta").fetchone() == (1,)

    def test_a_foreign_schema_is_refused_and_left_alone(
        self, namespace: str, store: PostgresStore, by_hand: Connect
    ) -> None:
        by_hand().execute(
            f"create schema {namespace}; create table {namespace}.accounts (owner text)"
        )
        with pytest.raises(
            StoreError, match=f"schema {namespace} on .* not created by swarm.*another name"
        ):
            store.read("locks/a")
        by_hand().execute(f"create table {namespace}.meta (version text, changed date)")
        with pytest.raises(StoreError, match="not created by swarm"):
            store.create("locks/a", b"x")
        found = (
            by_hand()
            .execute(
                "select relname from pg_class where relnamespace = %s::regnamespace", [namespace]
            )
            .fetchall()
        )
        assert {name for (name,) in found} == {"accounts", "meta"}

    def test_an_empty_schema_is_used(
        self, namespace: str, store: PostgresStore, by_hand: Connect
    ) -> None:
        by_hand().execute(f"create schema {namespace}")
        assert store.create("locks/a", b"x")

    @pytest.mark.parametrize(("layout", "age"), [(1, "older"), (7, "newer")])
    def test_a_schema_of_another_layout_is_refused(
        self,
        layout: int,
        age: str,
        server: PostgresServer,
        namespace: str,
        store: PostgresStore,
        by_hand: Connect,
    ) -> None:
        store.create("locks/a", b"x")
        by_hand().execute(f"update {namespace}.meta set version = {layout}")
        with pytest.raises(
            StoreError, match=rf"by an? {age} swarm \(layout {layout}; this swarm uses layout 2\)"
        ):
            PostgresStore(Address(server.url(namespace))).read("locks/a")

    def test_schemas_are_separate(
        self, server: PostgresServer, store: PostgresStore, namespace: str
    ) -> None:
        other = PostgresStore(Address(server.url(f"{namespace}_b")))
        store.create("locks/a", b"one")
        store.append("status", b"one")
        assert (
            other.read("locks/a") is None
            and other.keys("locks") == []
            and other.read_log("status")[0] == []
        )
        assert other.next_token("locks/a") == 1
        other.close()

    def test_a_user_who_may_not_create_a_schema_gets_the_statement_to_run(
        self, server: PostgresServer, namespace: str, by_hand: Connect
    ) -> None:
        by_hand().execute(f"create role {namespace}_guest login")
        guest = Address(server.socket_url(namespace).replace("swarm@", f"{namespace}_guest@"))
        with pytest.raises(
            StoreError,
            match=(
                f"refuses: permission denied.*CREATE SCHEMA {namespace} AUTHORIZATION "
                f'"{namespace}_guest"'
            ),
        ):
            PostgresStore(guest).read("locks/a")
        by_hand().execute(f"create schema {namespace} authorization {namespace}_guest")
        allowed = PostgresStore(guest)
        assert allowed.create("locks/a", b"x")
        allowed.close()


class TestCreatedAgain:
    def test_a_removed_schema_is_created_again(
        self, namespace: str, store: PostgresStore, by_hand: Connect
    ) -> None:
        before = store.append("status", b"old")
        by_hand().execute(f"drop schema {namespace} cascade")
        assert store.read("locks/a") is None
        assert store.create("locks/a", b"new")
        after = store.append("status", b"new")
        assert store.read_log("status", before) == ([b"new"], after)
        assert not store.continues(before, after)

    def test_a_change_is_not_made_in_another_incarnation(
        self, server: PostgresServer, namespace: str, store: PostgresStore, by_hand: Connect
    ) -> None:
        before = [store.append("status", b"%d" % number) for number in range(5)][-1]
        by_hand().execute(f"drop schema {namespace} cascade")
        other = PostgresStore(Address(server.url(namespace)))
        first = other.append("status", b"first")
        assert store.wait("status", before, 0)
        lines, cursor = store.read_log("status", before)  # on the old connection
        assert (lines, cursor) == ([b"first"], first)
        by_hand().execute(f"drop schema {namespace} cascade")
        other.close()
        first = other.append("status", b"second")
        assert store.append("status", b"third").partition(".")[0] == first.partition(".")[0]
        other.close()


class TestPrepared:
    """A statement that a connection sends often is prepared: the server parses it once."""

    def use(self, store: PostgresStore, times: int) -> None:
        for number in range(times):
            key = f"locks/{number}"
            token = store.next_token(key)
            assert token == store.token_bound(key) == store.highest_token("locks")
            assert (
                store.create(key, b"1") and store.read(key) == b"1" and store.keys("locks") == [key]
            )
            store.watch(key, b"1", 0.001)
            assert store.replace(key, b"1", b"2") and store.remove(key, b"2")
            before = store.tail("status", 1)[1]
            after = store.append("status", b"%d" % number)
            assert store.wait("status", before, 1) and store.read_log("status", before) == (
                [b"%d" % number],
                after,
            )

    def test_a_prepared_statement_does_not_outlive_its_schema(
        self, server: PostgresServer, namespace: str, store: PostgresStore, by_hand: Connect
    ) -> None:
        self.use(store, 12)
        assert store._ask("select count(*) > 5 from pg_prepared_statements") == [(True,)]
        other = PostgresStore(Address(server.url(namespace)))
        for _ in range(2):
            by_hand().execute(f"drop schema {namespace} cascade")
            other.read_log("status")
            self.use(store, 12)
        other.close()

    @pytest.mark.parametrize("analyzed", [True, False])
    def test_queries_use_the_index_without_statistics(
        self, namespace: str, store: PostgresStore, by_hand: Connect, analyzed: bool
    ) -> None:
        store.append("status", b"few")
        if analyzed:
            by_hand().execute(f"analyze {namespace}.lines")
        else:
            by_hand().execute(f"alter table {namespace}.lines set (autovacuum_enabled = false)")
            numbers = "generate_series(2, 20000) as number"
            by_hand().execute(
                f"insert into {namespace}.lines select 'status', number, 'x' from {numbers}"
            )
        page = (
            f"select ordinal, line from {namespace}.lines where log = %s and ordinal > 0 order "
            f"by ordinal limit 80"
        )
        plan = str(store._ask(f"explain {page}", "status"))
        assert "Index Scan using lines_pkey" in plan and "Sort" not in plan and "Bitmap" not in plan


class TestRequests:
    @pytest.fixture
    def append(self, namespace: str, store: PostgresStore) -> Callable[[Connection, int, str], str]:
        incarnation = store.append("status", b"before").partition(".")[0]

        def call(connection: Connection, number: int, line: str) -> str:
            query = f"select {namespace}.append(%s, 'session', %s, 'channel', 'status', %s)"
            found = connection.execute(query, [incarnation, number, line.encode()]).fetchone()
            assert found is not None
            return str(found[0])

        return call

    def test_a_request_that_is_sent_twice_is_carried_out_once(
        self, append: Callable[[Connection, int, str], str], store: PostgresStore, by_hand: Connect
    ) -> None:
        one, two = by_hand(), by_hand()
        assert append(one, 1, "a") == append(two, 1, "a") == append(one, 1, "a") == "2"
        assert append(two, 2, "b") == "3"
        append(one, 1, "late")
        assert store.read_log("status")[0] == [b"before", b"a", b"b"]

    @pytest.mark.parametrize("late", [3, 2, 1])
    def test_a_duplicate_waits_until_the_request_is_done_and_does_nothing(
        self,
        late: int,
        append: Callable[[Connection, int, str], str],
        store: PostgresStore,
        by_hand: Connect,
    ) -> None:
        one, two = by_hand(), by_hand()
        with ThreadPoolExecutor(1) as pool:
            with one.transaction():
                answer = append(one, 3, "a")
                duplicate = pool.submit(append, two, late, "duplicate")
                _until(lambda: _is_blocked(by_hand, two))
            assert duplicate.result(5) == answer
        assert store.read_log("status")[0] == [b"before", b"a"]

    def test_a_request_that_was_rolled_back_can_be_sent_again(
        self, append: Callable[[Connection, int, str], str], store: PostgresStore, by_hand: Connect
    ) -> None:
        one, two = by_hand(), by_hand()
        with ThreadPoolExecutor(1) as pool:
            with one.transaction(force_rollback=True):
                append(one, 1, "a")
                again = pool.submit(append, two, 1, "a")
                _until(lambda: _is_blocked(by_hand, two))
            assert again.result(5) == "2"
        assert store.read_log("status")[0] == [b"before", b"a"]

    def test_a_swap_that_is_sent_twice_is_carried_out_once(
        self, namespace: str, store: PostgresStore, by_hand: Connect
    ) -> None:
        incarnation = store.append("status", b"").partition(".")[0]
        call = (
            f"select {namespace}.swap('{incarnation}', 'session', %s, 'channel', 'locks/a', %s, %s)"
        )
        one, two = by_hand(), by_hand()
        assert one.execute(call, [1, None, b"x"]).fetchone() == ("1",)
        assert two.execute(call, [1, None, b"x"]).fetchone() == ("1",), "this request has made it"
        assert one.execute(call, [2, b"x", None]).fetchone() == ("1",)
        two.execute(call, [1, None, b"late"])
        assert store.read("locks/a") is None

    def test_a_request_whose_answer_is_lost_is_sent_again(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # no sweep, which would be counted
        monkeypatch.setattr("swarm.stores.postgres.random.random", lambda: 1.0)
        heard = postgres_connection.ask
        lost: list[str] = []

        def deaf(connection: Any, statement: str, *values: object) -> Any:
            answer = heard(connection, statement, *values)
            if re.search(r"\.\w+\(%s", statement) and len(lost) % 3 < 2:  # a function of swarm
                lost.append(statement)
                raise ConnectionLost("lost")
            lost.append("")
            return answer

        monkeypatch.setattr(postgres, "ask", deaf)
        assert store.create("locks/a", b"one"), (
            "a request that was carried out is answered, not refused"
        )
        for number in range(5):
            store.append("status", b"%d" % number)
        assert store.read_log("status")[0] == [b"%d" % number for number in range(5)]
        assert len([statement for statement in lost if statement]) == 12


class TestLateCommits:
    """A writer is slow between taking its number and the commit.

    Meanwhile another writer commits, and a reader reads.
    """

    def test_a_reader_never_skips_a_line(
        self, namespace: str, store: PostgresStore, by_hand: Connect
    ) -> None:
        cursor = store.append("status", b"first")
        _slow_down(by_hand(), f"{namespace}.lines")

        def read() -> list[bytes]:
            nonlocal cursor
            lines, cursor = store.read_log("status", cursor)
            return lines

        assert _read_while_writing(lambda line: store.append("status", line), read) == [
            b"slow",
            b"fast",
        ]

    def test_a_reader_would_skip_a_line_if_numbers_came_from_a_sequence(
        self, namespace: str, by_hand: Connect
    ) -> None:
        by_hand().execute(
            f"create schema {namespace}; create table {namespace}.lines (ordinal bigserial, "
            f"line "
            f"bytea)"
        )
        _slow_down(by_hand(), f"{namespace}.lines")
        reader, last = by_hand(), 0

        def append(line: bytes) -> None:
            by_hand().execute(f"insert into {namespace}.lines (line) values (%s)", [line])

        def read() -> list[bytes]:
            nonlocal last
            query = f"select ordinal, line from {namespace}.lines where ordinal > %s order by 1"
            found = reader.execute(query, [last]).fetchall()
            last = max((ordinal for ordinal, _ in found), default=last)
            return [line for _, line in found]

        assert _read_while_writing(append, read) == [b"fast"]


class TestRefusals:
    def test_a_wrong_password_is_refused_at_once_and_not_shown(
        self, server: PostgresServer, namespace: str
    ) -> None:
        url = server.url(namespace).replace(server.quoted_password, "hush%2Fhush")
        start = time.monotonic()
        with pytest.raises(
            StoreError, match=r"password authentication failed.*Check user, password"
        ) as refused:
            PostgresStore(Address(url)).read("locks/a")
        assert "hush" not in str(refused.value) and time.monotonic() - start < 8

    def test_the_password_may_come_from_the_environment(
        self, server: PostgresServer, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = server.url(namespace).replace(f":{server.quoted_password}", "")
        with pytest.raises(StoreError, match="no password supplied"):
            PostgresStore(Address(url)).read("locks/a")
        monkeypatch.setenv("PGPASSWORD", server.password)
        with _closing(PostgresStore(Address(url))) as made:
            assert made.create("locks/a", b"x")

    def test_a_missing_database_is_an_error_at_once(
        self, server: PostgresServer, namespace: str
    ) -> None:
        start = time.monotonic()
        with pytest.raises(StoreError, match='database "nowhere" does not exist'):
            PostgresStore(Address(server.url(namespace).replace("/postgres?", "/nowhere?"))).read(
                "locks/a"
            )
        assert time.monotonic() - start < 8, "the timeout is 10 seconds"

    def test_an_option_that_does_not_exist_is_bad_input(self) -> None:
        with pytest.raises(BadInput, match="colour"):
            PostgresStore(Address("postgres://host/db?colour=red"))


class TestSettings:
    def test_a_unix_socket_and_options_of_the_engine(
        self, server: PostgresServer, namespace: str
    ) -> None:
        url = server.socket_url(
            namespace, options="-c%20synchronous_commit%3Doff%20-c%20work_mem%3D5MB"
        )
        with _closing(PostgresStore(Address(url))) as made:
            assert made._ask(
                "select current_setting('synchronous_commit'), current_setting('work_mem')"
            ) == [("on", "5MB")]

    def test_a_stricter_synchronous_commit_stays(
        self, server: PostgresServer, namespace: str
    ) -> None:
        with _closing(
            PostgresStore(
                Address(server.url(namespace, options="-csynchronous_commit%3Dremote_write"))
            )
        ) as made:
            assert made._ask("select current_setting('synchronous_commit')") == [("remote_write",)]

    def test_a_change_waits_for_another_and_does_not_fail_where_transactions_are_serializable(
        self, server: PostgresServer, namespace: str
    ) -> None:
        url = server.url(namespace, options="-cdefault_transaction_isolation%3Dserializable")
        with _closing(PostgresStore(Address(url))) as made:
            one_of_many_threads_replaces(made)
            assert made._ask("select current_setting('transaction_isolation')") == [
                ("read committed",)
            ]

    def test_of_several_hosts_one_that_answers_is_enough(
        self, server: PostgresServer, namespace: str
    ) -> None:
        with _silent_port() as silent:
            hosts = f"127.0.0.1:{free_port()},127.0.0.1:{silent},127.0.0.1:{server.port}"
            url = server.url(namespace, timeout="1").replace(f"127.0.0.1:{server.port}", hosts)
            with _closing(PostgresStore(Address(url))) as made:
                assert made.create("locks/a", b"x")

    def test_of_several_hosts_a_writable_one_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def wanted(url: str) -> object:
            return PostgresStore(Address(url))._settings.get("target_session_attrs")

        assert wanted("postgresql://a,b/db") == "read-write"
        assert wanted("postgresql://a,b/db?target_session_attrs=any") == "any"
        assert wanted("postgresql://a/db") is wanted("postgresql:///db") is None
        monkeypatch.setenv("PGHOST", "a,b")
        assert wanted("postgresql:///db") == "read-write"
        monkeypatch.setenv("PGTARGETSESSIONATTRS", "primary")
        assert wanted("postgresql://a,b/db") is None, "the variable says it"

    def test_sessions_past_their_ttl_are_deleted(
        self,
        namespace: str,
        store: PostgresStore,
        by_hand: Connect,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        store.create("locks/a", b"x")
        old = "clock_timestamp() - interval '61 minutes'"
        by_hand().execute(
            f"insert into {namespace}.sessions select 'old' || n, 1, '', {old} from "
            f"generate_series(1, 100) n"
        )
        monkeypatch.setattr("swarm.stores.postgres.random.random", lambda: 0.0)
        store.close()
        store.read("locks/a")
        assert by_hand().execute(f"select count(*) from {namespace}.sessions").fetchone() == (1,)

    def test_the_clock_is_that_of_the_server(self, store: PostgresStore) -> None:
        before = time.time()
        assert before - 0.5 < store.clock.now() < time.time() + 0.5


class TestWaking:
    def test_a_new_line_wakes_a_waiter(self, store: PostgresStore) -> None:
        def late(number: int) -> float:
            cursor = store.tail("status", 0)[1]
            return _lateness(
                lambda: store.append("status", b"news"),
                lambda: store.wait("status", cursor, 20),
                0.02 * number,
            )

        latenesses = [late(number) for number in range(1, 8)]
        assert statistics.median(latenesses) < 0.1 and max(latenesses) < 0.5, (
            "looking again would take almost a second"
        )

    def test_a_change_wakes_a_watcher(self, store: PostgresStore) -> None:
        def late(number: int) -> float:
            now, then = b"%d" % number, b"%d" % (number + 1)
            return _lateness(
                lambda: store.replace("locks/a", now, then),
                lambda: store.watch("locks/a", now, 20),
                0.02 * number,
            )

        store.create("locks/a", b"1")
        latenesses = [late(number) for number in range(1, 8)]
        assert statistics.median(latenesses) < 0.1 and max(latenesses) < 0.5, (
            "looking again would take almost a second"
        )

    @pytest.mark.parametrize("when", ["after the answer", "with the answer"])
    def test_a_line_between_look_and_listen_is_not_missed(
        self,
        when: str,
        server: PostgresServer,
        namespace: str,
        store: PostgresStore,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        cursor = store.append("status", b"first")
        other = PostgresStore(Address(server.url(namespace)))
        look, looks = postgres_connection.ask, []

        def look_and_then_it_comes(connection: Any, statement: str, *values: object) -> Any:
            found = look(connection, statement, *values)
            if "case incarnation" in statement:
                looks.append(found)
                if len(looks) == 2:  # the first one is made before anybody listens
                    other.append("status", b"news")
                    if when == "with the answer":
                        connection.execute("select")
            return found

        monkeypatch.setattr(postgres, "ask", look_and_then_it_comes)
        start = time.monotonic()
        assert store.wait("status", cursor, 20)
        assert time.monotonic() - start < 10 and len(looks) == 3
        other.close()

    def test_a_line_without_a_notification_is_found_by_polling(
        self, namespace: str, store: PostgresStore, by_hand: Connect
    ) -> None:
        cursor = store.append("status", b"first")
        hand = by_hand()

        def unannounced() -> None:
            hand.execute(f"update {namespace}.logs set last = 2")

        assert 0.3 < _lateness(unannounced, lambda: store.wait("status", cursor, 20), 0.1) < 2

    def test_a_waiter_blocks_no_other_call_and_leaves_no_listener(
        self, store: PostgresStore
    ) -> None:
        with ThreadPoolExecutor(8) as pool:
            waiting = [pool.submit(store.wait, "status", "", 3) for _ in range(8)]
            start = time.monotonic()
            for number in range(10):
                store.create(f"locks/{number}", b"x")
            assert time.monotonic() - start < 2.5
            assert [future.result() for future in waiting] == [False] * 8
        for session in list(store._pool._idle):
            assert session.connection.execute("select pg_listening_channels()").fetchall() == []


class TestInterruptions:
    def test_an_interrupted_wait_breaks_nothing(self, store: PostgresStore) -> None:
        cursor = store.append("status", b"one")
        with pytest.raises(KeyboardInterrupt), _interrupt_after(0.1):
            store.wait("status", cursor, 30)
        assert store.read_log("status")[0] == [b"one"]

    def test_an_interrupted_change_breaks_nothing(
        self, namespace: str, store: PostgresStore, by_hand: Connect
    ) -> None:
        store.create("locks/a", b"one")
        with by_hand().transaction() as held:
            held.connection.execute(f"select from {namespace}.records for update")
            with pytest.raises(KeyboardInterrupt), _interrupt_after(0.1):
                store.replace("locks/a", b"one", b"two")
        assert store.read("locks/a") in (b"one", b"two")
        assert store.create("locks/b", b"one")

    def test_a_child_leaves_the_connections_of_its_parent_alone(self, store: PostgresStore) -> None:
        store.create("locks/a", b"one")
        backend = store._ask("select pg_backend_pid()")

        def child() -> None:
            assert store._ask("select pg_backend_pid()") != backend
            assert store.replace("locks/a", b"one", b"two")
            store.close()

        _, status = os.waitpid(fork(child), 0)
        assert status == 0
        assert store.read("locks/a") == b"two"
        assert store._ask("select pg_backend_pid()") == backend


class TestServerTrouble:
    def test_a_server_that_is_down_is_an_error_within_the_timeout(self) -> None:
        start = time.monotonic()
        with pytest.raises(
            StoreError, match=r"cannot be reached: .*Connection refused.*tried for 1 seconds"
        ):
            PostgresStore(
                Address(f"postgresql://swarm@127.0.0.1:{free_port()}/postgres?timeout=1")
            ).read("locks/a")
        assert time.monotonic() - start < 8

    def test_a_silent_server_is_an_error_within_the_timeout(
        self, server: PostgresServer, namespace: str
    ) -> None:
        used, fresh = (PostgresStore(Address(server.url(namespace, timeout="1"))) for _ in range(2))
        cursor = used.append("status", b"x")
        server.pause()
        try:
            calls: list[Callable[[], object]] = [
                lambda: used.append("status", b"y"),
                lambda: fresh.read("locks/a"),
                lambda: used.wait("status", cursor, 60),
            ]
            for call in calls:
                start = time.monotonic()
                with pytest.raises(StoreError, match="cannot be reached: no answer"):
                    call()
                assert time.monotonic() - start < 10
        finally:
            server.resume()
        assert used.create("locks/a", b"x") and fresh.read("locks/a") == b"x"
        used.close()
        fresh.close()

    def test_an_abandoned_change_is_not_made_later(
        self, server: PostgresServer, namespace: str, by_hand: Connect
    ) -> None:
        with _closing(PostgresStore(Address(server.url(namespace, timeout="1")))) as hurried:
            hurried.create("locks/a", b"one")
            with by_hand().transaction() as held:
                held.connection.execute(f"select from {namespace}.records for update")
                with pytest.raises(
                    StoreError,
                    match="cannot be reached: canceling statement due to statement timeout",
                ):
                    hurried.replace("locks/a", b"one", b"two")
            assert hurried.read("locks/a") == b"one"

    def test_a_terminated_connection_is_replaced(
        self, store: PostgresStore, by_hand: Connect
    ) -> None:
        store.create("locks/a", b"one")
        by_hand().execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = "
            "'swarm'"
        )
        assert store.replace("locks/a", b"one", b"two")

    def test_a_crash_loses_nothing_that_was_confirmed(
        self, server: PostgresServer, store: PostgresStore
    ) -> None:
        store.address.timeout = 60.0  # the server recovers slowly on a busy machine
        confirmed: list[bytes] = []
        ended = threading.Event()

        def write() -> None:
            for number in count():
                if ended.is_set():
                    return
                line = b"%d" % number
                store.append("status", line)
                confirmed.append(line)

        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write)
            _until(lambda: len(confirmed) > 50)
            server.kill()
            before = len(confirmed)
            server.start()
            _until(lambda: len(confirmed) > before + 20 or writer.done())
            ended.set()
            writer.result(10)
        assert store.read_log("status")[0] == confirmed, "each once, none lost, and in order"


def _slow_down(connection: Connection, table: str) -> None:
    """Make the insert of the line `slow` take a while, after it has its number."""
    connection.execute(
        f"create function {table}_wait() returns trigger language plpgsql as "
        "$$ begin if new.line = 'slow' then perform pg_sleep(1.5); end if; return new; end $$;"
        f"create trigger slow before insert on {table} for each row execute function {table}_wait()"
    )


def _read_while_writing(
    append: Callable[[bytes], object], read: Callable[[], list[bytes]]
) -> list[bytes]:
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(append, b"slow")
        time.sleep(0.5)  # less than `_slow_down` takes, also on a busy machine
        fast = pool.submit(append, b"fast")
        found = []
        while not (slow.done() and fast.done()):
            found += read()
        slow.result()
        fast.result()
        return found + read()


def _lateness(change: Callable[[], object], wait: Callable[[], object], after: float) -> float:
    """Return the seconds from a change, made `after` so many, to the end of a wait for it."""
    changed: list[float] = []

    def make_it() -> None:
        change()
        changed.append(time.monotonic())

    timer = threading.Timer(after, make_it)
    timer.start()
    wait()
    ended = time.monotonic()
    timer.join()
    return ended - changed[0]


def _is_blocked(by_hand: Connect, connection: Connection) -> bool:
    found = (
        by_hand().execute("select pg_blocking_pids(%s)", [connection.info.backend_pid]).fetchone()
    )
    return found is not None and bool(found[0])


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


@contextmanager
def _closing(store: PostgresStore) -> Iterator[PostgresStore]:
    yield store
    store.close()


@contextmanager
def _silent_port() -> Iterator[int]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@contextmanager
def _interrupt_after(seconds: float) -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    usual = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
