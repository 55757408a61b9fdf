"""What the status log amounts to, whatever it holds, in whatever pieces it was read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.status import block_parser, plain_records, summary
from swarm.status.log import LOG, STATES, StatusLog
from swarm.status.reader import StatusReader
from swarm.status.summary import LastMessage, StatusSummary
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from swarm.stores.memory import MemoryStore

AT = "2026-02-02T10:30:10.123Z"


def line(
    state: str, task: str = "t", worker: str = "w", text: str = "", meta: Any = None, **more: Any
) -> bytes:
    record = {"timestamp": AT, "type": state, "state": state, "worker": worker, "task_id": task}
    if text:
        record |= {"reason": text, "message": text}
    if meta is not None:
        record["meta"] = meta
    return json.dumps(record | more, ensure_ascii=False).encode()


def folded(*lines: bytes) -> StatusSummary:
    made = StatusSummary()
    for one in lines:
        made.apply(one)
    return made


class TestOpenTasks:
    @pytest.mark.parametrize("state", ["WAIT", "HELP"])
    def test_a_task_whose_latest_record_is_wait_or_help_is_waiting(self, state: str) -> None:
        seen = folded(line("START"), line(state, text="which one?"))
        assert seen.waiting == {"t": LastMessage(state, "w", "t", AT, "which one?")}
        assert not seen.started

    @pytest.mark.parametrize("state", ["START", "DONE", "SKIP"])
    @pytest.mark.parametrize("before", ["WAIT", "HELP", "ERROR"])
    def test_a_start_a_done_and_a_skip_end_what_was_open(self, before: str, state: str) -> None:
        seen = folded(line(before), line(state))
        assert not seen.waiting and not seen.errors
        assert ("t" in seen.started) == (state == "START")

    @pytest.mark.parametrize("state", ["START", "DONE", "SKIP"])
    def test_records_from_an_agents_output_do_not_end_a_task(self, state: str) -> None:
        seen = folded(line("WAIT"), line(state, meta={"from": "output"}))
        assert "t" in seen.waiting
        assert seen.states[state] == 1

    @pytest.mark.parametrize("state", ["WAIT", "HELP"])
    def test_an_agent_that_prints_that_it_waits_does_wait(self, state: str) -> None:
        assert "t" in folded(line(state, meta={"from": "output"})).waiting

    @pytest.mark.parametrize(
        "meta", [{"held_by": "w"}, {"refused": "done"}, {"lost": True}, {"lost": 1}]
    )
    def test_the_skip_of_a_bystander_ends_nothing(self, meta: dict[str, Any]) -> None:
        assert "t" in folded(line("HELP"), line("SKIP", worker="other", meta=meta)).waiting

    def test_an_error_takes_the_place_of_the_waiting_and_the_other_way_round(self) -> None:
        assert folded(line("WAIT"), line("ERROR")).errors.keys() == {"t"}
        assert folded(line("ERROR"), line("WAIT")).waiting.keys() == {"t"}

    def test_tasks_do_not_touch_each_other(self) -> None:
        seen = folded(line("WAIT", "a"), line("ERROR", "b"), line("START", "c"), line("DONE", "d"))
        assert (list(seen.waiting), list(seen.errors), list(seen.started)) == (["a"], ["b"], ["c"])

    def test_of_each_worker_the_latest_is_known(self) -> None:
        seen = folded(
            line("START", "a", "w1"),
            line("DONE", "a", "w1"),
            line("WAIT", "b", "w2"),
            line("START", "c", "w1"),
        )
        assert list(seen.workers.items()) == [
            ("w2", LastMessage("WAIT", "w2", "b", AT, "")),
            ("w1", LastMessage("START", "w1", "c", AT, "")),
        ]


class TestBounds:
    def test_too_many_open_tasks_drop_and_count_the_oldest(self) -> None:
        with mock.patch.object(summary, "LIMIT", 3):
            seen = folded(*(line("WAIT", f"t{n}", f"w{n}") for n in range(5)))
        assert list(seen.waiting) == ["t2", "t3", "t4"]
        assert list(seen.workers) == ["w2", "w3", "w4"]
        assert seen.dropped == 2

    def test_only_the_beginning_of_a_long_text_is_stored(self) -> None:
        assert (
            folded(line("WAIT", text="x" * 1_000_000)).waiting["t"].text == "x" * summary.TEXT_LIMIT
        )


class TestAnyLine:
    ABSURD = (
        b"",
        b"   ",
        b"no json",
        b"\xff\xfe",
        b"[1, 2]",
        b"17",
        b"null",
        b"{}",
        b'{"task_id": 5, "state": "WAIT"}',
        b'{"task_id": ["a"], "state": "WAIT"}',
        b'{"task_id": "t", "state": ["WAIT"]}',
        b'{"task_id": "t", "state": {"a": 1}}',
        b'{"task_id": "t", "state": null}',
        b'{"task_id": "t", "state": "wait"}',
        b'{"task_id": "", "state": "WAIT"}',
        b"[" * 100_000,
        b'{"timestamp": "\xff", "type": "WAIT", "state": "WAIT", "worker": "w", "task_id": "t"}',
    )

    @pytest.mark.parametrize("absurd", ABSURD, ids=range(len(ABSURD)))
    def test_an_invalid_record_opens_no_task(self, absurd: bytes) -> None:
        seen = folded(absurd)
        assert not seen.waiting and not seen.errors and not seen.started
        assert seen.damaged == (
            absurd in (b"no json", b"\xff\xfe", b"[1, 2]", b"17", b"null", b"[" * 100_000)
            or b"\xff" in absurd
        )

    def test_every_json_object_counts_as_a_record_and_a_blank_line_as_nothing(self) -> None:
        seen = folded(b"{}", b'{"a": 1}', b"", b"  ", line("DONE"))
        assert (seen.records, seen.damaged) == (3, 0)

    @pytest.mark.parametrize(
        "other",
        [
            b'{"task_id": "t", "state": "WAIT"}',
            (
                b'{"task_id": "t", "type": "WAIT", "worker_id": 7, "message": {"a": 1}, '
                b'"timestamp": '
                b'12, "meta": "x"}'
            ),
            b'{"type":"WAIT","task_id":"\\u0074","timestamp":"2026-02-02 10:30"}',
            b'{"type":"WAIT","task_id":"t","meta":[1],"reason":null}',
        ],
    )
    def test_a_record_of_another_program_counts(self, other: bytes) -> None:
        assert folded(other).waiting.keys() == {"t"}

    def test_a_lone_surrogate_in_a_record_can_be_saved(self) -> None:
        seen = folded(
            b'{"task_id": "\\ud800", "state": "WAIT", "worker": "\\udfff", "reason": "\\ud800"}'
        )
        assert len(seen.waiting) == 1
        json.dumps(seen.dump(), ensure_ascii=False).encode()


texts = st.text(max_size=6) | st.sampled_from(
    ["中文 🙂", 'a "quoted" one', "back\\slash", "\x1b[31m", "line\nbreak"]
)
names = st.sampled_from(["a", "b", "c", "任务", 'x"y', "d e"])
metas = st.none() | st.dictionaries(
    st.sampled_from(["from", "token", "held_by", "refused", "lost", "attempt"]),
    st.sampled_from(["output", "x", 1, 17, 0, -3, 1.5, True, None, {"from": "output"}]),
    max_size=3,
)
records = st.builds(line, st.sampled_from(STATES), names, names, texts, metas)
strange = st.builds(
    lambda state, task, more: json.dumps({"state": state, "task_id": task, **more}).encode(),
    st.sampled_from([*STATES, "MAYBE", 3, None]),
    names | st.none() | st.integers(),
    st.dictionaries(
        st.sampled_from(["worker", "meta", "timestamp", "type", "message"]),
        st.none() | texts | st.integers(),
        max_size=3,
    ),
)
torn = st.builds(lambda whole, size: whole[:size], records, st.integers(0, 60))
plain_lines = st.lists(
    st.builds(
        line, st.sampled_from(STATES), names, names, texts, st.none() | st.just({"token": 17})
    ),
    min_size=10,
    max_size=60,
)
lines = st.lists(
    records
    | strange
    | torn
    | st.sampled_from(TestAnyLine.ABSURD).filter(lambda one: b"\n" not in one),
    max_size=40,
)


def in_blocks(*blocks: Sequence[bytes]) -> StatusSummary:
    """The state of lines that came in blocks."""
    made = StatusSummary()
    with mock.patch.object(block_parser, "_FAST_PATH_BYTES", -1):
        for block in (b"".join(one + b"\n" for one in each) for each in blocks):
            made.apply_block(block)
    return made


def known(seen: StatusSummary) -> tuple[object, ...]:
    return seen.dump(), *map(list, (seen.started, seen.waiting, seen.errors, seen.workers))


def cut(given_lines: list[bytes], places: list[int]) -> list[list[bytes]]:
    ends = sorted({0, len(given_lines), *(min(place, len(given_lines)) for place in places)})
    return [given_lines[begin:end] for begin, end in pairwise(ends)]


@pytest.mark.parametrize("limit", [1, 3, 6, summary.LIMIT])
@given(given_lines=lines | plain_lines, places=st.lists(st.integers(0, 40), max_size=4))
def test_a_log_read_in_blocks_has_the_state_of_its_lines(
    limit: int, given_lines: list[bytes], places: list[int]
) -> None:
    with mock.patch.object(summary, "LIMIT", limit):
        assert known(in_blocks(*cut(given_lines, places))) == known(folded(*given_lines))


@pytest.mark.parametrize("size", [3, 4, 5])
def test_a_block_with_too_many_open_tasks_drops_and_counts_the_oldest(size: int) -> None:
    given_lines = [line("WAIT", f"t{number}") for number in range(size)]
    with mock.patch.object(summary, "LIMIT", 3):
        seen = in_blocks(given_lines)
    assert (len(seen.waiting), seen.dropped) == (3, size - 3)


PLAIN = line("WAIT", text="why", meta={"token": 17, "attempt": 1})


@pytest.mark.parametrize(
    "beside",
    [[], [line("START", "other", meta={"token": 1})], [line("START", text='"')]],
    ids=range(3),
)
@pytest.mark.parametrize(
    ("was", "now"),
    [
        (b"17", b"017"),
        (b"17", b"-17"),
        (b"17", b"1.5"),
        (b"1}}", b"1, }}"),
        (b"1}}", b"1"),
        (b"1}}", b"1}} x"),
        (b"1}}", b"1}}{}"),
        (b'{"token": 17, "attempt": 1}', b"{,}"),
        (b'{"token": 17, "attempt": 1}', b"{}"),
        (b'"state": "WAIT"', b'"state": "DONE"'),
        (b'"type": "WAIT", "state": "WAIT"', b'"type": "MAYBE", "state": "MAYBE"'),
        (b'"type": "WAIT", "state": "WAIT"', b'"type": "SKIP", "state": "SKIP"'),
        (b'"message": "why"', b'"message": "how"'),
        (b'"token": 17', b'"token": 17, "from": "output"'),
        (b'"token"', b'"lost"'),
        (b'"w"', b'"w", "task_id": "other"'),
        (b'"why"', b'"wh\ty"'),
        (b'"w"', b'"w\xff"'),
        (b'"w"', b'"w\\u0041"'),
        (b'"t"', b'"\\t"'),
        (b'"w"', b'"w\nx"'),
        (b'"t"', b'"t\n"'),
        (b"2026-02", b"\n"),
        (b'"token"', b'"to\nken"'),
        (b'"w"', b'""'),
        (b'"t"', b'""'),
        (b'"t"', b'"' + b"t" * 801 + b'"'),
        (b'"w"', b'"' + b"w" * 801 + b'"'),
        (b'{"timestamp"', b'x{"timestamp"'),
        (b'{"timestamp"', b' {"timestamp"'),
        (b'{"timestamp"', b'\xef\xbb\xbf{"timestamp"'),
        (b"2026", b"2" * 2026),
    ],
)
def test_the_fast_path_reads_an_almost_plain_record_like_the_parser(
    was: bytes, now: bytes, beside: list[bytes]
) -> None:
    assert was in PLAIN and re.fullmatch(plain_records._ALL_PLAIN, PLAIN.decode() + "\n")
    given_lines = [
        line("HELP"),
        *beside,
        *PLAIN.replace(was, now, 1).split(b"\n"),
        line("DONE", "last"),
    ]
    for one in (given_lines, [one.replace(b"WAIT", b"SKIP") for one in given_lines]):
        assert known(in_blocks(one)) == known(folded(*one))


def test_most_records_of_swarm_are_read_without_parsing() -> None:
    """Otherwise the tests above would compare the same thing with itself."""
    store = MemoryStore()
    log = StatusLog(store)
    for state in STATES:
        log.append(state, "worker-1", "任务-1", "all tests pass", {"token": 17, "attempt": 2})
        log.append(state, "worker-1", "t")
    block = b"".join(one + b"\n" for one in store.read_log(LOG)[0])
    with mock.patch.object(
        block_parser, "parse_record", side_effect=AssertionError("it was parsed")
    ):
        assert in_blocks(block.splitlines()).records == 2 * len(STATES)


@given(lines, st.lists(st.integers(0, 40), max_size=4), st.booleans())
def test_a_snapshot_and_the_lines_after_it_give_the_whole_state(
    given_lines: list[bytes], cuts: list[int], small: bool
) -> None:
    store = MemoryStore()
    with (
        mock.patch("swarm.status.reader.StatusReader.SNAPSHOT_EVERY", 1),
        mock.patch.object(summary, "LIMIT", 2 if small else summary.LIMIT),
    ):
        for number, one in enumerate(given_lines):
            if number in cuts:
                StatusReader(store).read()
            store.append(LOG, one)
        fold = StatusReader(store)
        fold.read()
        expected = folded(*given_lines)
    assert fold.state.dump() == expected.dump()
    assert list(fold.state.waiting) == list(expected.waiting)
    assert list(fold.state.workers) == list(expected.workers)


class TestSaved:
    DAMAGES: tuple[Callable[[bytes], bytes], ...] = (
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"[]",
        lambda data: b"\xff",
        lambda data: data.replace(b'"version": 2', b'"version": 1').replace(b'"WAIT"', b'"HELP"'),
        lambda data: data.replace(b'"WAIT"', b"7", 1),
        lambda data: data.replace(b'"WAIT", ', b"", 1),
        lambda data: data.replace(b'"SKIP": 0', b'"SKIP": "0"'),
        lambda data: data.replace(b'"SKIP": 0', b'"OTHER": 0'),
        lambda data: json.dumps({**json.loads(data), "cursor": "none"}).encode(),
        lambda data: json.dumps({**json.loads(data), "cursor": None}).encode(),
        lambda data: json.dumps({**json.loads(data), "state": [[], [], []]}).encode(),
    )

    def saved(self, store: Store) -> StatusReader:
        for number in range(2500):
            store.append(LOG, line("WAIT" if number % 100 == 0 else "DONE", f"t{number}"))
        fold = StatusReader(store)
        fold.read()
        assert store.cache_get(LOG)
        return fold

    def test_a_second_process_does_not_read_the_log_again(self, store: Store) -> None:
        first = self.saved(store)
        again = mock.Mock(side_effect=AssertionError("it was read again"))
        with mock.patch.multiple(StatusSummary, apply=again, apply_block=again):
            second = StatusReader(store)
            second.read()
        assert second.state.dump() == first.state.dump()
        assert len(second.state.waiting) == 25

    def test_a_damaged_old_or_foreign_snapshot_changes_nothing(self, store: Store) -> None:
        first = self.saved(store)
        data = store.cache_get(LOG)
        assert data is not None
        for damage in self.DAMAGES:
            assert damage(data) != data
            store.cache_put(LOG, damage(data))
            second = StatusReader(store)
            second.read()
            assert second.state.dump() == first.state.dump(), damage(data)[:200]

    def test_a_replaced_status_log_is_read_from_its_beginning(self, tmp_path: Path) -> None:
        store = FileStore(str(tmp_path / "s"))
        self.saved(store)
        (tmp_path / "s" / "status.log").write_bytes(line("HELP", "new", "somebody else") + b"\n")
        again = StatusReader(store)
        again.read()
        assert list(again.state.waiting) == ["new"]
        assert again.state.records == 1
