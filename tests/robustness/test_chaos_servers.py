"""The proof with real processes on each server, in its short form: the server is
stopped, killed and restarted.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from proof import server_chaos
from proof.crew import Crew
from proof.history import check, check_readers
from proof.report import Report, Row
from proof.server_controls import CONTROLS, Control, controls_of
from proof.worker import Plan, is_unreachable
from swarm.errors import StoreError
from swarm.status.log import LOG
from swarm.stores.registry import open_store
from tests.support.histories import kinds, noted
from tests.support.servers.server import running
from tests.support.servers.valkey import ValkeyServer

pytestmark = [
    pytest.mark.timeout(400),  # the short form of a server takes half a minute on an idle machine
    pytest.mark.skipif(
        sys.platform != "linux", reason="libfaketime and the stamps of leases are Linux's"
    ),
]
ROWS: dict[str, dict[str, Row]] = {}  # by server, and by their subject


def rows(server: str) -> dict[str, Row]:
    if server not in ROWS:
        report = Report(quiet=True)
        server_chaos.prove(server, report, short=True)
        ROWS[server] = {row.what: row for row in report.rows}
    return ROWS[server]


@pytest.mark.parametrize("server", server_chaos.SERVERS)
def test_workers_and_a_server_killed_and_stopped_break_no_promise(server: str) -> None:
    row = next(row for what, row in rows(server).items() if what.startswith("16 workers"))
    assert row.held, row.figures
    numbers = {
        what: int(number.replace(",", ""))
        for number, what in re.findall(r"([\d,]+) ([a-z ]+)", row.figures)
    }
    assert numbers["acquisitions"] >= server_chaos.SERVERS[server].short
    assert (
        min(
            numbers[what] for what in ("appends", "kills", "stops", "server pauses", "server kills")
        )
        > 0
    )


@pytest.mark.parametrize(
    ("server", "control"),
    [(server, control) for server in server_chaos.SERVERS for control in controls_of(server)],
)
def test_every_server_control_is_caught(server: str, control: Control) -> None:
    row = rows(server)[f"control: {control.name}"]
    assert row.held, row.figures


def test_every_promise_has_a_control() -> None:
    signs = {
        "two holders at once",
        "tokens out of order",
        "a lost update",
        "the log holds records of",
        "the log lacks",
    }
    assert {control.sign for control in CONTROLS if not control.server} == {
        *signs,
        "readers disagree",
    }


class TestUnknownOutcomes:
    def record(self, number: int) -> bytes:
        return f'{{"worker": "a", "meta": {{"number": {number}}}}}'.encode()

    def test_an_append_that_raised_may_be_in_the_log_or_not(self, tmp_path: Path) -> None:
        history = noted(tmp_path, a="appended 1; unknown append 2; appended 3")
        assert (
            check(history, {}, map(self.record, (1, 3)))
            == check(history, {}, map(self.record, (1, 2, 3)))
            == []
        )
        assert history.unknown == {"append": 1}

    @pytest.mark.parametrize(
        ("there", "sign"),
        [((1, 2, 2, 3), "twice"), ((1, 3, 2), "out of order"), ((1, 2), "the log lacks")],
    )
    def test_an_append_that_raised_is_there_at_most_once_and_excuses_no_other(
        self, there: tuple[int, ...], sign: str, tmp_path: Path
    ) -> None:
        history = noted(tmp_path, a="appended 1; unknown append 2; appended 3")
        found = check(history, {}, map(self.record, there))
        assert len(found) == 1 and sign in found[0]

    def test_a_record_that_was_never_written_is_found(self, tmp_path: Path) -> None:
        history = noted(tmp_path, a="unknown append 1")
        assert check(history, {}, map(self.record, (1, 2))) == [], (
            "it was killed before it could note that"
        )
        found = check(history, {}, map(self.record, (1, 3)))
        assert found == ["the log holds records of a that it has not written yet, such as 3"]

    def test_a_lock_with_unknown_outcome_excuses_no_other(self, tmp_path: Path) -> None:
        notes = {
            "a": "held t 1 0 1 5 False; unknown heartbeat t 1",
            "b": "unknown acquire t",
            "c": "held t 2 1 4.9 9 False",
        }
        assert kinds(check(noted(tmp_path, **notes), {}, [])) == ["two holders at once"]

    def test_a_release_that_raised_ends_the_hold_when_it_was_called(self, tmp_path: Path) -> None:
        notes = {
            "a": "held t 1 0 1 5 False; free t 1 2; unknown release t 1",
            "b": "held t 2 1 2.1 9 False",
        }
        assert check(noted(tmp_path, **notes), {}, []) == []

    def test_only_an_unreachable_server_is_an_excuse(self, tmp_path: Path) -> None:
        store = open_store("redis://127.0.0.1:1/0?timeout=0.1")
        with pytest.raises(StoreError) as away:
            store.read("locks/t")
        assert is_unreachable(away.value)
        assert not is_unreachable(StoreError("the server refuses: no"))


class TestReaders:
    LOG = (b"1", b"2", b"3")

    @pytest.mark.parametrize(
        ("read", "what"),
        [
            ((b"1", b"3"), "lacks 1 lines, first at line 2"),
            (
                (b"1", b"2", b"2", b"3"),
                "has 1 lines that the log has not, or fewer times, first at line 3",
            ),
            ((b"1", b"3", b"2"), "has another order, first at line 2"),
            ((b"1", b"2"), "lacks 1 lines, first at line 3"),
        ],
    )
    def test_a_reader_that_read_something_else_is_found(
        self, read: tuple[bytes, ...], what: str
    ) -> None:
        assert check_readers(self.LOG, {"f": read, "g": self.LOG}) == [
            f"readers disagree: f {what}"
        ]


class TestServer:
    def test_a_server_that_ends_by_itself_fails_the_run(self, tmp_path: Path) -> None:
        with running(ValkeyServer(tmp_path / "server")) as server:
            crew = Crew(Plan(str(tmp_path / "run"), 1, ("t",), server=server.url()), server)
            with crew:
                crew.look()
                assert crew.failed == []
                server._process.kill()  # type: ignore[union-attr]
                server._process.wait()  # type: ignore[union-attr]
                crew.look()
            assert crew.failed == ["the server ended by itself"]

    def test_a_replaced_follower_continues_after_the_last_noted_cursor(
        self, tmp_path: Path
    ) -> None:
        with running(ValkeyServer(tmp_path / "server")) as server:
            store = open_store(server.url())
            crew = Crew(Plan(str(tmp_path / "run"), 1, ("t",), server=server.url()), server)
            notes = crew.plan.followed / "f"
            with crew:
                for number in range(3):
                    store.append(LOG, b"line %d" % number)
                    crew.follow("f")
                    while not notes.exists() or notes.read_text().count("\n") <= number:
                        crew.look()
                        assert crew.failed == []
                    crew.kill(next(iter(crew._workers)))
                    with notes.open("a") as torn:
                        torn.write("torn")
            assert [len(line.split()) for line in notes.read_text().splitlines()[:-1]] == [2, 2, 2]
            assert crew.examine()[1] == []
            notes.write_text("\n".join(notes.read_text().splitlines()[1:]))
            assert kinds(crew.examine()[1]) == ["readers disagree"]
            store.close()
