"""The status log: what is written, what is refused, and what its readers skip, on every store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swarm.errors import BadInput, Unreachable
from swarm.status import log as status_log
from swarm.status.log import STATES, StatusLog, parse_record
from swarm.stores.contract import Store
from swarm.stores.memory import MemoryStore
from swarm.system.clock import to_iso
from tests.conftest import HandClock


class Text(str):
    """Text that is more than text, as members of enumerations are."""

    __slots__ = ()


@pytest.fixture
def status(store: Store) -> StatusLog:
    return StatusLog(store)


def tasks(found: list[bytes]) -> list[str]:
    return [json.loads(line)["task_id"] for line in found]


class TestWriting:
    def test_a_record_says_everything_in_both_vocabularies(self, status: StatusLog) -> None:
        line = status.append("DONE", "w", "t", "because", {"retry_count": 1})
        assert list(json.loads(line).items()) == [
            ("timestamp", "2026-02-02T02:40:00.000Z"),
            ("type", "DONE"),
            ("state", "DONE"),
            ("worker", "w"),
            ("task_id", "t"),
            ("reason", "because"),
            ("message", "because"),
            ("meta", {"retry_count": 1}),
        ]
        assert status.store.tail("status", 1)[0] == [line]

    def test_a_record_leaves_out_empty_fields(self, status: StatusLog) -> None:
        assert list(json.loads(status.append("DONE", "w", "t"))) == [
            "timestamp",
            "type",
            "state",
            "worker",
            "task_id",
        ]
        assert json.loads(status.append("DONE", "w", "t", meta={}))["meta"] == {}

    @pytest.mark.parametrize(
        "text",
        ["", "plain", 'a "word" \\ b', "two\nlines\u2028\x7f", "größe 🐝", "\ud800", Text("sub")],
        ids=ascii,
    )
    @pytest.mark.parametrize("meta", [None, {}, {"pair": (1, 2.5), "text": Text("x")}])
    def test_add_returns_the_record_as_readers_get_it(
        self, text: str, meta: dict[str, Any] | None, status: StatusLog
    ) -> None:
        line, record = status.add("HELP", "w", 'the "task"', text, meta)
        ((stands, read),) = status.read()[0]
        assert (line, list(record.items())) == (stands, list(read.items()))
        assert {type(value) for value in record.values()} <= {str, dict}

    def test_each_record_has_its_own_moment(self, clock: HandClock) -> None:
        status = StatusLog(MemoryStore(clock=clock))
        for moment in (
            1_770_000_000.0,
            1_770_000_000.0004,
            1_770_000_000.9999996,
            1_770_000_001.25,
            1_770_000_000.5,
        ):
            clock.jump(moment - clock.now())
            assert json.loads(status.append("DONE", "w", "t"))["timestamp"] == to_iso(clock.now())

    def test_the_cache_of_valid_names_is_bounded(self) -> None:
        status = StatusLog(MemoryStore())
        for number in range(status_log._MAX_CACHED_NAMES + 10):
            assert json.loads(status.append("DONE", "w", f"t{number}"))["task_id"] == f"t{number}"
        assert len(status._names) <= status_log._MAX_CACHED_NAMES

    @pytest.mark.parametrize("name", ["", "a/b", 5, None, ["t"], b"t"])
    def test_a_bad_name_is_refused_also_after_good_ones(self, name: Any, status: StatusLog) -> None:
        status.append("DONE", "5", "t")
        with pytest.raises(BadInput, match="task_id"):
            status.append("DONE", "5", name)
        assert len(status.tail(10)) == 1

    @pytest.mark.parametrize("state", STATES)
    def test_every_state_is_taken(self, state: str, status: StatusLog) -> None:
        assert json.loads(status.append(state, "w", "t"))["state"] == state

    @pytest.mark.parametrize(
        ("call", "expected"),
        [
            (
                ("done", "w", "t"),
                r"^'done' is not a status: use one of START DONE WAIT ERROR HELP SKIP\.$",
            ),
            (("x" * 50, "w", "t"), r"^'x{40}' is not a status"),
            (("DONE", "w/", "t"), r"^worker .*w/"),
            (("DONE", "w", "t/"), r"^task_id .*t/"),
            (
                ("DONE", "w", "t", "", [1]),
                r'^meta must be a JSON object, such as \{"retry_count": 1\}\.$',
            ),
            (("DONE", "w", "t", "", "x"), "^meta must be"),
        ],
    )
    def test_an_invalid_record_names_the_fault_and_is_not_written(
        self, call: tuple[Any, ...], expected: str, status: StatusLog
    ) -> None:
        with pytest.raises(BadInput, match=expected):
            status.append(*call)
        assert status.tail(10) == []

    def test_a_record_may_be_as_long_as_the_rule_says_and_no_longer(
        self, status: StatusLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rest = len(status.append("DONE", "w", "t", meta={"x": ""}))
        monkeypatch.setattr(status_log, "MAX_RECORD_BYTES", 1000)
        assert len(status.append("DONE", "w", "t", meta={"x": "y" * (1000 - rest)})) == 1000
        with pytest.raises(
            BadInput,
            match=r"^the record has 1001 bytes, at most 1000 are allowed\. Put the text in a file",
        ):
            status.append("DONE", "w", "t", meta={"x": "y" * (1001 - rest)})
        assert len(status.tail(10)) == 2


# five lines, three of which are damaged and two merely empty
DAMAGE = [b'{"torn', b"", b"[1]", b"  ", b"not json"]


class TestReading:
    @pytest.fixture
    def damaged(self, status: StatusLog) -> StatusLog:
        """Three records, with damage before, between and behind them."""
        for number in range(3):
            for line in DAMAGE:
                status.store.append("status", line)
            status.append("DONE", "w", f"t{number}")
        for line in DAMAGE:
            status.store.append("status", line)
        return status

    @pytest.mark.parametrize("count", range(5))
    def test_tail_gives_that_many_records_although_lines_are_damaged(
        self, count: int, damaged: StatusLog
    ) -> None:
        assert (
            tasks(damaged.tail(count)) == [f"t{number}" for number in range(3)][max(0, 3 - count) :]
        )

    def test_tail_leaves_out_records_that_are_too_large_together_and_says_so(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = StatusLog(store)
        lines = [log.append("WAIT", "w", "t", "x" * 1000) for _ in range(10)]
        assert (log.tail(10), log.cut) == (lines, False)
        monkeypatch.setattr(status_log, "MAX_TAIL", 5000)
        assert (log.tail(10), log.cut) == (lines[-3:], True)
        assert (log.tail(2), log.cut) == (lines[-2:], False)

    def test_each_tail_counts_the_damage_it_saw_anew(self, damaged: StatusLog) -> None:
        for _ in range(2):
            damaged.tail(100)
            assert damaged.damaged == 4 * 3
        damaged.tail(0)
        assert damaged.damaged == 0

    def test_tail_asks_for_more_only_while_there_may_be_more(
        self, status: StatusLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []
        real = type(status.store).tail

        def counting(self: Store, name: str, count: int, limit: int) -> Any:
            asked.append(count)
            return real(self, name, count, limit)

        for number in range(20):
            status.append("DONE", "w", f"t{number}")
        monkeypatch.setattr(type(status.store), "tail", counting)
        assert len(status.tail(5)) == 5 and asked == [5]
        for line in DAMAGE:
            status.store.append("status", line)
        assert tasks(status.tail(5)) == [f"t{number}" for number in range(15, 20)] and asked == [
            5,
            5,
            10,
        ]
        assert len(status.tail(100)) == 20 and asked == [5, 5, 10, 100]

    def test_reading_goes_on_behind_damage(self, damaged: StatusLog) -> None:
        found, cursor = damaged.read()
        assert [record["task_id"] for _, record in found] == [
            "t0",
            "t1",
            "t2",
        ] and damaged.damaged == 12
        assert damaged.read(cursor) == ([], cursor)
        damaged.append("DONE", "w", "t3")
        assert [
            (json.loads(line), record["task_id"]) for line, record in damaged.read(cursor)[0]
        ] == [(json.loads(damaged.tail(1)[0]), "t3")]

    def test_one_record_at_a_time(self, damaged: StatusLog) -> None:
        seen, cursor = [], ""
        for _ in range(3):
            found, cursor = damaged.read(cursor, one=True)
            seen += [record["task_id"] for _, record in found]
            assert len(found) == 1
        assert seen == ["t0", "t1", "t2"]
        assert damaged.read(cursor, one=True)[0] == []

    def test_many_are_read_at_once(self, status: StatusLog) -> None:
        for number in range(300):
            status.append("DONE", "w", f"t{number}", "x" * 1000)
        assert len(status.read()[0]) == 300

    def test_a_query_gives_the_records_of_one_task_and_no_others(self, damaged: StatusLog) -> None:
        damaged.append("DONE", "w", "other", "t1", {"task_id": "t1"})
        damaged.append("ERROR", "w", "t1")
        damaged.store.append("status", b'{"task_id": "t1"')
        damaged.store.append("status", b'{"task_id": "\\u00741"}')
        damaged.damaged = 0
        found = list(damaged.query("t1"))
        assert [record.get("state") for _, record in found] == ["DONE", "ERROR", None]
        assert found[1][0] == damaged.tail(2)[0] and damaged.damaged == 1

    def test_a_query_reads_to_the_end_of_a_long_log(self, status: StatusLog) -> None:
        for number in range(60):
            status.append("DONE", "w", "t" if number % 10 == 0 else "other", "x" * 60_000)
        assert len(list(status.query("t"))) == 6

    def test_the_end_is_behind_the_last_line(self, status: StatusLog) -> None:
        begin = status.end()
        status.append("DONE", "w", "t")
        assert status.read(begin)[0] and status.read(status.end())[0] == []


class Unsteady(MemoryStore):
    """A store whose server is away for its first reads."""

    def __init__(self, clock: HandClock, failures: int) -> None:
        super().__init__(clock=clock)
        self.failures = failures

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> Any:
        if self.failures:
            self.failures -= 1
            raise Unreachable("the server is away")
        return super().read_log(log, cursor, limit)


class TestFollowing:
    def test_a_follower_goes_on_when_the_server_is_back(self, clock: HandClock) -> None:
        store = Unsteady(clock, failures=2)
        log = StatusLog(store)
        log.append("DONE", "w", "t")
        away: list[Unreachable] = []
        found = [record["task_id"] for _, record, _ in log.follow("", silence=0, away=away.append)]
        assert found == ["t"]
        assert [str(error) for error in away] == ["the server is away"] * 2

    def test_a_follower_that_nothing_tells_of_the_server_ends(self, clock: HandClock) -> None:
        with pytest.raises(Unreachable):
            next(StatusLog(Unsteady(clock, failures=1)).follow("", silence=0))

    def test_from_now_on_or_since_a_cursor(self, status: StatusLog) -> None:
        status.append("DONE", "w", "before")
        middle = status.end()
        status.append("START", "w", "a")
        status.append("DONE", "w", "b")
        assert list(status.follow(silence=0.0)) == []
        assert [record["task_id"] for _, record, _ in status.follow(middle, silence=0.0)] == [
            "a",
            "b",
        ]
        assert [record["task_id"] for _, record, _ in status.follow("", silence=0.0)] == [
            "before",
            "a",
            "b",
        ]

    def test_each_record_comes_with_the_cursor_behind_it(self, status: StatusLog) -> None:
        for task in "abc":
            status.append("DONE", "w", task)
        for number, (line, record, cursor) in enumerate(list(status.follow("", silence=0.0))):
            assert json.loads(line)["task_id"] == record["task_id"] == "abc"[number]
            assert tasks([line for line, _ in status.read(cursor)[0]]) == list("abc"[number + 1 :])

    def test_follow_yields_only_the_task_and_state_asked_for(self, status: StatusLog) -> None:
        for state, task in (("START", "a"), ("DONE", "a"), ("DONE", "b")):
            status.append(state, "w", task)

        def seen(**filters: Any) -> list[tuple[str, str]]:
            return [
                (record["state"], record["task_id"])
                for _, record, _ in status.follow("", silence=0.0, **filters)
            ]

        assert seen(task="a") == [("START", "a"), ("DONE", "a")]
        assert seen(state="DONE") == [("DONE", "a"), ("DONE", "b")]
        assert seen(task="a", state="DONE") == [("DONE", "a")]
        assert seen(task="c") == []

    @pytest.mark.parametrize("silence", [None, 7.0])
    def test_it_waits_and_ends_only_after_the_silence_asked_for(
        self, silence: float | None, clock: HandClock
    ) -> None:
        waits: list[tuple[str, float]] = []

        class Waiting(MemoryStore):
            def wait(self, log: str, cursor: str, timeout: float) -> bool:
                waits.append((log, timeout))
                if len(waits) == 2:
                    StatusLog(self).append("DONE", "w", "late")
                    return True
                return len(waits) > 20

        following = StatusLog(Waiting(clock=clock)).follow(silence=silence)
        if silence is None:
            assert next(following)[1]["task_id"] == "late"
            assert waits == [("status", 3600.0)] * 2
        else:
            assert list(following) == [] and waits == [("status", 7.0)]


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b'{"type": "DONE"}', {"type": "DONE", "state": "DONE"}),
        (b'{"state": "DONE"}', {"type": "DONE", "state": "DONE"}),
        (b'{"type": "A", "state": "B"}', {"type": "A", "state": "B"}),
        (b'{"reason": "r"}', {"reason": "r", "message": "r"}),
        (b'{"message": "r"}', {"reason": "r", "message": "r"}),
        (b'{"x": 1}', {"x": 1}),
        (b"[]", None),
        (b"", None),
        (b"{", None),
        (b"12", None),
    ],
)
def test_a_line_is_read_in_both_vocabularies(line: bytes, record: dict[str, Any] | None) -> None:
    assert parse_record(line) == record
