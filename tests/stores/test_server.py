"""The shared parts of stores on servers: addresses, clocks, sessions, cursors, batches."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from swarm.errors import BadInput, StoreError
from swarm.locks.expiry import judge, new_lock
from swarm.stores.address import Address
from swarm.stores.server import cursors
from swarm.stores.server.batch_reader import BatchReader
from swarm.stores.server.clock import ServerClock
from swarm.stores.server.session_pool import ConnectionLost, Session, SessionPool
from swarm.system import process
from swarm.system.clock import Clock
from tests.conftest import HandClock
from tests.support.processes import fork


class TestAddress:
    def test_an_address_is_split_into_its_parts(self) -> None:
        address = Address(
            "postgresql://me:p%40ss@h1:1,h2/db?swarm=team_a&timeout=2.5&sslmode=require"
        )
        assert (address.scheme, address.user, address.password, address.path) == (
            "postgresql",
            "me",
            "p@ss",
            "/db",
        )
        assert (address.swarm, address.timeout, address.options) == (
            "team_a",
            2.5,
            {"sslmode": "require"},
        )
        assert address.hosts_and_ports(5432) == [("h1", 1), ("h2", 5432)]
        assert address.url("postgres") == "postgres://me:p%40ss@h1:1,h2/db?sslmode=require"
        assert address.shown == "postgresql://me@h1:1,h2/db?swarm=team_a&sslmode=require"

    def test_an_address_without_options_has_the_defaults(self) -> None:
        address = Address("redis://")
        assert (address.swarm, address.timeout, address.hosts_and_ports(6379)) == (
            "swarm",
            10.0,
            [("localhost", 6379)],
        )
        assert address.shown == "redis://" and not address.has_secret

    def test_a_host_may_be_an_ipv6_address(self) -> None:
        assert Address("etcd://[::1]:2379,[fe80::2]").hosts_and_ports(1) == [
            ("::1", 2379),
            ("fe80::2", 1),
        ]

    @pytest.mark.parametrize("hosts", ["h:0", "h:65536", "h:x", ":5", "h:²"])
    def test_an_invalid_port_is_refused(self, hosts: str) -> None:
        with pytest.raises(BadInput, match="is not a host and port"):
            Address(f"etcd://{hosts}").hosts_and_ports(2379)

    @pytest.mark.parametrize(
        "name", ["", "A", "1a", "pg_a", "a-b", "a/b", "a b", "a" * 41, "ä", "a\n"]
    )
    def test_a_namespace_that_is_invalid_on_some_server_is_refused(self, name: str) -> None:
        with pytest.raises(BadInput, match="name of a swarm"):
            Address(f"redis://h/0?swarm={name}")

    @pytest.mark.parametrize(
        "timeout", ["", "0", "-1", "nan", "inf", "1e3", "99999", "1.0000", "x"]
    )
    def test_an_invalid_timeout_is_refused(self, timeout: str) -> None:
        with pytest.raises(BadInput, match="timeout is"):
            Address(f"redis://h/0?timeout={timeout}")

    @pytest.mark.parametrize(
        "url", ["redis://u:pa/ss@h/0", "redis://u:pa#ss@h/0", "redis://u:pa?ss@h/0", "redis://u:p@"]
    )
    def test_a_password_that_was_not_quoted_is_refused_and_not_shown(self, url: str) -> None:
        with pytest.raises(BadInput) as caught:
            Address(url)
        assert "pa" not in str(caught.value).replace("password", "") and "ss@" not in str(
            caught.value
        )

    def test_secrets_are_removed_from_messages_of_servers(self) -> None:
        address = Address("postgresql://u:p%20%40x@h/db?sslpassword=key%2Fword&password=third")
        for text in ("bad: p @x", "bad: p%20%40x", "key/word is wrong", "third"):
            assert not any(
                secret in address.scrubbed(text)
                for secret in ("p @x", "p%20%40x", "key/word", "third")
            )
        assert address.has_secret

    def test_an_empty_or_short_secret_does_not_garble_messages(self) -> None:
        assert Address("redis://h/0?password=").scrubbed("cannot execute") == "cannot execute"
        assert not Address("redis://h/0?password=").has_secret
        assert Address("redis://:x@h/0").scrubbed("cannot execute x") == "cannot execute …"

    def test_the_shown_address_names_the_same_store(self) -> None:
        url = "postgresql://me@/db?swarm=a&host=/run/my%20sockets&port=5433"
        assert Address(Address(url).shown).url("x") == Address(url).url("x")
        assert "geheim" not in Address("redis://h/0?password=geheim&client_secret=geheim").shown


class TestClock:
    @pytest.fixture
    def hand(self) -> HandClock:
        return HandClock()

    def clock(
        self, hand: HandClock, answers: list[tuple[float, float]], took: float = 0.0
    ) -> ServerClock:
        def ask() -> tuple[float, float]:
            hand.pass_time(took)
            return answers.pop(0) if len(answers) > 1 else answers[0]

        clock = ServerClock(ask)
        clock.steady = hand.steady  # type: ignore[method-assign]
        return clock

    def test_the_server_clock_ignores_the_clock_of_this_machine(self, hand: HandClock) -> None:
        clock = self.clock(hand, [(1000.0, 1000.0)])
        assert clock.now() == clock.latest() == pytest.approx(1000)
        hand.pass_time(5)
        hand.jump(10_000)
        assert 1004.99 < clock.now() < 1005 < clock.latest() < 1005.01, (
            "the two clocks may run apart a little"
        )

    def test_a_slow_answer_widens_the_bounds_of_the_time(self, hand: HandClock) -> None:
        clock = self.clock(hand, [(1000.0, 1000.0)], took=3)
        assert clock.now() == pytest.approx(1000) and clock.latest() == pytest.approx(1003)

    def test_the_bounds_of_the_time_narrow_with_every_answer(self, hand: HandClock) -> None:
        clock = self.clock(hand, [(1000.0, 1001.0)])
        clock.now()
        hand.pass_time(0.7)
        clock.learn(hand.steady(), hand.steady(), 1001.0, 1002.0)
        assert clock.now() == pytest.approx(1001, abs=0.001) and clock.latest() == pytest.approx(
            1001.7, abs=0.001
        )

    def test_a_server_clock_that_was_set_is_followed(self, hand: HandClock) -> None:
        clock = self.clock(hand, [(1000.0, 1000.0)])
        clock.now()
        clock.learn(hand.steady(), hand.steady(), 500.0, 500.0)
        assert clock.now() == clock.latest() == pytest.approx(500)

    def test_the_server_is_asked_again_after_a_while_and_after_the_steady_clock_went_back(
        self, hand: HandClock
    ) -> None:
        clock = self.clock(hand, [(1000.0, 1000.0), (2000.0, 2000.0), (3000.0, 3000.0)])
        assert clock.now() == pytest.approx(1000)
        hand.pass_time(10.1)
        assert clock.now() == pytest.approx(2000)
        hand._steady -= 100
        assert clock.now() == pytest.approx(3000)

    @pytest.mark.parametrize("took", [0.0, 0.4, 2.0])
    def test_a_lease_never_ends_for_others_before_it_ends_for_its_holder(
        self, hand: HandClock, took: float
    ) -> None:
        """However long the answers took, on either side."""
        real = hand.steady

        def at_the_server() -> tuple[float, float]:
            hand.pass_time(took / 2)
            said = real() + 1_000_000
            hand.pass_time(took / 2)
            return said, said

        holder, other = (ServerClock(at_the_server) for _ in range(2))
        for clock, host in ((holder, "one"), (other, "two")):
            clock.steady = real  # type: ignore[method-assign]
            clock.identity = lambda host=host: (host, "")  # type: ignore[method-assign, misc]
        lock = new_lock("t", "w", 10, 1, holder)
        begun = lock.holder["at"]
        hand.pass_time(10 - (real() - begun) - 0.002)
        assert judge(lock, other, lambda: 0.0).is_held, "its holder still believes in it"

    @pytest.mark.parametrize("fraction", [0.0, 0.0001, 0.0005, 0.0009, 0.00099])
    def test_rounding_to_milliseconds_does_not_shorten_a_lease(
        self, fraction: float, hand: HandClock
    ) -> None:
        """A record tells whole milliseconds; the answer of a server next door takes less."""
        holder, other = (self.clock(hand, [(1000 + fraction, 1000 + fraction)]) for _ in range(2))
        for clock, host in ((holder, "one"), (other, "two")):
            clock.identity = lambda host=host: (host, "")  # type: ignore[method-assign, misc]
            clock.now()
        lock = new_lock("t", "w", 5, 1, holder)
        hand.pass_time(5 - 0.00001)
        assert judge(lock, other, lambda: 0.0).is_held, "its holder still believes in it"


class TestSessionPool:
    @pytest.fixture
    def connections(self) -> list[str]:
        return []

    def pool(self, connections: list[str], timeout: str = "0.3") -> SessionPool[str]:
        def connect(_: float) -> str:
            connections.append(f"open {len(connections)}")
            return connections[-1]

        def abort(connection: str) -> None:
            connections.append(f"closed {connection}")

        return SessionPool(Address(f"redis://h/0?timeout={timeout}"), connect, abort)

    def test_a_connection_is_used_again(self, connections: list[str]) -> None:
        pool = self.pool(connections)
        assert (
            pool.call(lambda session: session.connection)
            == pool.call(lambda session: session.connection)
            == "open 0"
        )
        assert connections == ["open 0"]

    def test_a_lost_connection_is_replaced_and_the_request_number_stays(
        self, connections: list[str]
    ) -> None:
        seen: list[tuple[str, str, int]] = []

        def work(session: Session[str]) -> str:
            seen.append((session.connection, session.name, session.request_number))
            if len(seen) < 3:
                raise ConnectionLost("cut")
            return "done"

        pool = self.pool(connections)
        assert pool.call(work) == "done"
        assert len({connection for connection, _, _ in seen}) == 3
        assert len({(session, number) for _, session, number in seen}) == 1
        pool.call(work)
        assert seen[-1][1] == seen[0][1] and seen[-1][2] == seen[0][2] + 1

    def test_a_call_ends_with_an_error_after_the_timeout(self, connections: list[str]) -> None:
        def work(_: Session[str]) -> None:
            raise ConnectionLost("cut\n  twice.")

        begun = time.monotonic()
        with pytest.raises(
            StoreError,
            match=r"redis://h/0 cannot be reached: cut twice\. .*0.3 seconds.*may have made it",
        ):
            self.pool(connections).call(work)
        assert 0.1 < time.monotonic() - begun < 5
        opened, closed = (
            sum(each.startswith(what) for each in connections) for what in ("open", "closed")
        )
        assert opened == closed > 2

    def test_an_unreachable_server_is_not_said_to_have_made_a_change(self) -> None:
        def connect(_: float) -> str:
            raise ConnectionLost("refused")

        with pytest.raises(StoreError, match="Is the server running") as caught:
            SessionPool(Address("redis://h/0?timeout=0.1"), connect, lambda connection: None).call(
                lambda session: None
            )
        assert "may have made it" not in str(caught.value)

    @pytest.mark.parametrize("error", [StoreError("no"), KeyboardInterrupt()])
    def test_any_other_error_closes_the_connection_and_the_session_goes_on(
        self, error: BaseException, connections: list[str]
    ) -> None:
        pool = self.pool(connections)
        session = pool.call(lambda session: session.name)

        def work(_: Session[str]) -> None:
            raise error

        with pytest.raises(type(error)):
            pool.call(work)
        assert connections == ["open 0", "closed open 0"]
        assert pool.call(lambda session: (session.name, session.request_number)) == (session, 3)

    def test_each_thread_has_a_session_of_its_own(self, connections: list[str]) -> None:
        pool = self.pool(connections, timeout="10")
        meet = threading.Barrier(4, timeout=10)
        sessions: list[str] = []

        def work(session: Session[str]) -> None:
            meet.wait()
            sessions.append(session.name)

        threads = [threading.Thread(target=pool.call, args=(work,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert len(set(sessions)) == 4

    def test_a_forked_child_opens_connections_of_its_own_and_closes_none_of_its_parent(
        self, connections: list[str], tmp_path: Path
    ) -> None:
        pool = self.pool(connections)
        session = pool.call(lambda session: session.name)

        def child() -> None:
            assert pool.call(lambda session: session.name) != session
            pool.close()
            assert connections == ["open 0", "open 1", "closed open 1"], connections

        assert os.waitpid(fork(child), 0)[1] == 0
        assert pool.call(lambda session: session.connection) == "open 0"

    def test_a_closed_pool_connects_again(self, connections: list[str]) -> None:
        pool = self.pool(connections)
        session = pool.call(lambda session: session.name)
        pool.close()
        assert pool.call(lambda session: (session.name, session.connection)) == (session, "open 2")

    def test_the_pause_between_attempts_grows(
        self, connections: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pauses: list[float] = []
        monkeypatch.setattr(time, "sleep", pauses.append)
        monkeypatch.setattr(time, "monotonic", lambda: sum(pauses))

        def work(_: Session[str]) -> None:
            raise ConnectionLost("cut")

        with pytest.raises(StoreError):
            self.pool(connections, timeout="3").call(work)
        assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5, 0.5]


class TestCursors:
    def test_a_cursor_is_parsed_as_it_was_formatted(self) -> None:
        for position in ((0,), (7,), (1700000000000, 3)):
            text = cursors.format_cursor("0123abcd", position)
            assert cursors.parse_cursor(text) == ("0123abcd", position)
        assert cursors.parse_cursor("") == ("", ())

    @pytest.mark.parametrize(
        "text",
        [
            "12",
            "0123abcd",
            "0123abcd.",
            "0123ABCD.1",
            "0123abcd.-1",
            "0123abcd.1-",
            "0123abcd.1 ",
            "1:0",
            "²",
        ],
    )
    def test_an_invalid_cursor_is_refused(self, text: str) -> None:
        with pytest.raises(BadInput, match="is not a cursor of this store"):
            cursors.parse_cursor(text)

    def test_a_read_does_not_continue_in_another_incarnation(self) -> None:
        assert cursors.continues("", "0123abcd.5")
        assert cursors.continues("0123abcd.5", "0123abcd.5") and cursors.continues(
            "0123abcd.9", "0123abcd.10"
        )
        assert not cursors.continues("0123abcd.10", "0123abcd.9")
        assert not cursors.continues("0123abcd.5", "1123abcd.6")

    @pytest.mark.parametrize("size", [1, 100, 5_000, 300_000])
    @pytest.mark.parametrize("limit", [0, 1, 1 << 20])
    def test_a_batch_holds_about_as_many_bytes_as_the_limit(self, size: int, limit: int) -> None:
        log = [b"%d " % number + b"x" * size for number in range(60)]
        asked: list[int] = []

        def fetch(after: cursors.Position, count: int) -> list[tuple[cursors.Position, bytes]]:
            asked.append(count)
            found: list[tuple[cursors.Position, bytes]] = [
                ((number + 1,), line) for number, line in enumerate(log)
            ]
            return found[after[0] : after[0] + count]

        reader = BatchReader()
        read: list[bytes] = []
        at: cursors.Position = (0,)
        while True:
            lines, at = reader.read("status", fetch, at, limit)
            if not lines:
                break
            assert sum(map(len, lines)) < max(limit, 1) + 2 * (size + 10) + limit
            assert limit or len(lines) == 1
            read += lines
        assert read == log and at == (60,)

    def test_the_first_batch_of_a_log_with_short_lines_is_larger(self) -> None:
        log: list[tuple[cursors.Position, bytes]] = [
            ((number,), b"short") for number in range(1, 10)
        ]
        asked: list[int] = []

        def fetch(after: cursors.Position, count: int) -> list[tuple[cursors.Position, bytes]]:
            asked.append(count)
            return log[after[0] : after[0] + count]

        reader = BatchReader()
        assert reader.read("a", fetch, (0,), 1 << 20)[1] == (9,)
        assert asked == [2, 8]
        log += [((number,), b"short") for number in range(10, 24)]
        assert reader.read("a", fetch, (9,), 1 << 20)[1] == (23,)
        assert asked == [2, 8, 16]
        assert len(reader.read("a", fetch, (0,), 0)[0]) == 1
        log.append(((24,), b"x" * 100_000))
        reader.read("a", fetch, (23,), 1 << 20)
        reader.read("a", fetch, (24,), 1 << 20)
        reader.read("b", fetch, (24,), 1 << 20)
        assert asked == [2, 8, 16, 1, 16, 2, 2]


def test_a_clone_of_this_machine_is_not_mistaken_for_a_reboot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Machines made from one image often have the same name and machine-id; their boots differ."""
    monkeypatch.setattr(process, "_machine", lambda: "cloned")
    server = ServerClock(lambda: (1000.0, 1000.0))
    server.identity = lambda: ("another boot", "")  # type: ignore[method-assign]
    lock = new_lock("t", "w", 60, 1, server, process.identity())
    for clock, active in ((ServerClock(lambda: (1001.0, 1001.0)), True), (Clock(), False)):
        clock.now = lambda: 1001.0  # type: ignore[method-assign]
        assert judge(lock, clock, lambda: 0.0).is_held is active
