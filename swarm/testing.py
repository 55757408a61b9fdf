"""Checks of the store contract, as plain functions.

Run the checks against your own driver.

    from swarm.testing import CHECKS
    for check in CHECKS:
        check(make_store())        # a new, empty store each time; raises AssertionError

The checks name no driver and need no test framework. A check sleeps only while a record
is busy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from swarm.errors import LogTrimmed
from swarm.stores.busy import retry_while_busy
from swarm.stores.contract import Store
from swarm.system.clock import Clock

_MANY_LINES = 300
_BUSY_TIMEOUT = 30.0  # seconds for which a thread retries a change


def create_only_if_absent(store: Store) -> None:
    assert store.read("locks/a") is None
    assert store.create("locks/a", b"one")
    assert not store.create("locks/a", b"two")
    assert store.read("locks/a") == b"one"


def replace_only_what_was_compared(store: Store) -> None:
    store.create("locks/a", b"one")
    assert not store.replace("locks/a", b"other", b"two")
    assert store.read("locks/a") == b"one"
    assert store.replace("locks/a", b"one", b"two")
    assert store.read("locks/a") == b"two"
    assert not store.replace("locks/a", b"one", b"three")
    assert not store.replace("locks/absent", b"one", b"two")
    assert store.read("locks/absent") is None


def remove_only_what_was_compared(store: Store) -> None:
    store.create("locks/a", b"one")
    assert not store.remove("locks/a", b"other")
    assert store.read("locks/a") == b"one"
    assert store.remove("locks/a", b"one")
    assert store.read("locks/a") is None
    assert not store.remove("locks/a", b"one")
    assert store.create("locks/a", b"two")


def names_of_every_kind_are_distinct(store: Store) -> None:
    names = [
        "a",
        "A",
        "a~b",
        "a b",
        "任务-1",
        "a'b\"",
        "x" * 200,
        "*",
        "%41",
        "🐝",
        "a.lock",
        "a~0123456789abcdef0123456789abcdef~0",
    ]
    for number, name in enumerate(names):
        assert store.create(f"locks/{name}", b"%d" % number)
    for number, name in enumerate(names):
        assert store.read(f"locks/{name}") == b"%d" % number
        assert store.replace(f"locks/{name}", b"%d" % number, b"new %d" % number)
    assert store.keys("locks") == sorted(f"locks/{name}" for name in names)
    for number, name in enumerate(names):
        assert store.remove(f"locks/{name}", b"new %d" % number)
    assert store.keys("locks") == []


def keys_come_in_order_and_in_pages(store: Store) -> None:
    for name in ("c", "a", "b"):
        store.create(f"locks/{name}", b"x")
    assert store.keys("locks") == ["locks/a", "locks/b", "locks/c"]
    assert store.keys("locks", after="locks/a", limit=1) == ["locks/b"]
    assert store.keys("nothing") == []


def records_may_be_large_and_binary(store: Store) -> None:
    data = bytes(range(256)) * 4096
    assert store.create("locks/a", data)
    assert store.read("locks/a") == data
    assert store.replace("locks/a", data, data[::-1])
    assert store.read("locks/a") == data[::-1]


def tokens_grow(store: Store) -> None:
    tokens = [store.next_token("locks/a") for _ in range(5)]
    assert tokens == sorted(set(tokens)) and tokens[0] > 0
    assert store.token_bound("locks/a") == tokens[-1]
    store.create("locks/a", b"x")
    store.remove("locks/a", b"x")
    assert store.next_token("locks/a") > tokens[-1]


def tokens_advance_and_never_decrease(store: Store) -> None:
    assert store.highest_token("locks") == 0
    token = store.next_token("locks/a")
    assert store.highest_token("locks") >= token
    for number in (5, 10**9 + 7, 3 * 10**15, 12):
        before = store.highest_token("locks")
        store.advance_tokens("locks", number)
        for name in ("a", f"new {number}"):
            assert store.next_token(f"locks/{name}") > max(number, before if name == "a" else 0)
        assert store.highest_token("locks") >= store.token_bound("locks/a") > max(number, token)
    store.advance_tokens("locks", 9 * 10**15)
    assert store.highest_token("locks") >= 9 * 10**15, "the bound includes an advance"
    first, second = store.next_token("locks/a"), store.next_token("locks/a")
    assert first < second == store.token_bound("locks/a")


def one_of_many_threads_creates(store: Store) -> None:
    for round_ in range(20):
        key = f"locks/{round_}"

        def create(me: int, key: str = key) -> bool:
            return store.create(key, b"%d" % me)

        won = _in_threads(8, create)
        assert sum(won) == 1, f"{sum(won)} threads created the same record"


def one_of_many_threads_replaces(store: Store) -> None:
    store.create("locks/a", b"start")
    now = b"start"
    for round_ in range(20):
        old, data = now, b"%d by %%d" % round_

        def replace(me: int, old: bytes = old, data: bytes = data) -> bool:
            # Threads that meet may all raise Busy, so each retries.
            return retry_while_busy(
                Clock(), _BUSY_TIMEOUT, store.replace, "locks/a", old, data % me
            )

        won = _in_threads(8, replace)
        assert sum(won) == 1, f"{sum(won)} threads replaced the same record"
        after = store.read("locks/a")
        assert after == data % won.index(True)
        now = after


def tokens_are_unique_among_threads(store: Store) -> None:
    tokens: list[int] = []

    def take(_: int) -> bool:
        tokens.extend(store.next_token("locks/a") for _ in range(50))
        return True

    _in_threads(8, take)
    assert len(tokens) == len(set(tokens)) == 400
    assert store.token_bound("locks/a") == max(tokens)


def a_log_returns_whole_lines_in_order(store: Store) -> None:
    assert store.read_log("status")[0] == []
    assert store.tail("status", 3)[0] == []
    lines = [b"%d " % number + b"x" * (number * 7919 % 5000) for number in range(200)]
    for line in lines:
        store.append("status", line)
    assert _read_all(store) == lines
    assert store.tail("status", 3)[0] == lines[-3:]
    assert store.tail("status", 1000)[0] == lines
    assert store.tail("status", 0)[0] == []
    for limit in (1, 5_000, 50_000, 10**9):
        found = store.tail("status", 100, limit)[0]
        assert found == lines[len(lines) - len(found) :]
        assert sum(map(len, found[1:])) < limit, "as few lines as have so many bytes"
        assert len(found) == 100 or sum(map(len, found)) >= limit


def a_cursor_reads_the_lines_after_it(store: Store) -> None:
    cursors = [store.append("status", b"%d" % number) for number in range(10)]
    for number, cursor in enumerate(cursors):
        assert _read_all(store, cursor) == [b"%d" % later for later in range(number + 1, 10)]
        one, after = store.read_log("status", cursor, 0)
        assert one == [b"%d" % (number + 1)][: 9 - number]
        assert after == cursors[min(number + 1, 9)]
    assert store.tail("status", 2)[1] == cursors[-1]


def rotation_changes_nothing_for_readers(store: Store) -> None:
    lines = []
    cursors = []
    for number in range(30):
        lines.append(b"%d" % number)
        cursors.append(store.append("status", lines[-1]))
        if number % 7 == 0:
            store.rotate("status")
    assert _read_all(store) == lines
    assert store.tail("status", 20)[0] == lines[-20:]
    assert store.tail("status", 20, 15)[0] == lines[-8:]
    for number, cursor in enumerate(cursors):
        assert _read_all(store, cursor) == lines[number + 1 :]


def waiting_ends_with_a_new_line_or_the_timeout(store: Store) -> None:
    cursor = store.tail("status", 0)[1]
    assert not store.wait("status", cursor, 0.0)
    store.append("status", b"news")
    assert store.wait("status", cursor, 0.0)
    later = store.tail("status", 0)[1]
    threading.Timer(0.05, store.append, ("status", b"more")).start()
    assert store.wait("status", later, 30.0)


def watching_ends_with_a_change(store: Store) -> None:
    store.create("locks/a", b"one")
    store.watch("locks/a", b"another", 30.0)
    threading.Timer(0.05, store.remove, ("locks/a", b"one")).start()
    while store.read("locks/a") == b"one":
        store.watch("locks/a", b"one", 30.0)
    assert store.read("locks/a") is None


def each_line_and_record_has_a_location(store: Store) -> None:
    for number in range(3):
        store.append("status", b"%d" % number)
    found = list(store.numbered("status"))
    assert [line for _, line, _ in found] == [b"0", b"1", b"2"]
    assert all(whole for _, _, whole in found)
    assert len({location for location, _, _ in found}) == 3
    assert "a" in store.where("locks/a")


def a_closed_store_may_be_used_again(store: Store) -> None:
    store.create("locks/a", b"one")
    store.close()
    assert store.replace("locks/a", b"one", b"two")
    store.append("status", b"line")
    store.close()
    assert _read_all(store) == [b"line"]


def a_read_continues_where_the_last_one_ended(store: Store) -> None:
    for number in range(3):
        store.append("status", b"%d" % number)
    _, first = store.read_log("status", "", 0)
    lines, last = store.read_log("status", first)
    assert lines == [b"1", b"2"]
    assert (
        store.continues("", first) and store.continues(first, last) and store.continues(last, last)
    )
    assert not store.continues(last, first)


def blocks_hold_the_lines_of_the_log(store: Store) -> None:
    lines = [b"%d " % number + b"x" * (number * 7919 % 5000) for number in range(200)]
    cursors = [store.append("status", line) for line in lines]
    blocks = store.blocks("status", cursors[2])
    if blocks is None:
        return
    found, cursor = b"", cursors[2]
    for block, after in blocks:
        assert block.endswith(b"\n") and store.continues(cursor, after)
        found, cursor = found + block, after
    assert found == b"".join(line + b"\n" for line in lines[3:])
    assert store.read_log("status", cursor)[0] == []


def logs_are_separate(store: Store) -> None:
    store.append("status", b"one")
    store.append("tasks", b"two")
    assert store.read_log("status")[0] == [b"one"] and store.read_log("tasks")[0] == [b"two"]


def a_search_finds_the_lines_with_a_text(store: Store) -> None:
    assert list(store.search("status", b"x")) == []
    for line in (b"one x", b"two", b"x \\u0078 x", b"three \\", b"\\u", b""):
        store.append("status", line)
    store.append("tasks", b"x")
    store.rotate("status")
    store.append("status", b"four x")
    assert list(store.search("status", b"x", b"\\u")) == [
        b"one x",
        b"x \\u0078 x",
        b"\\u",
        b"four x",
    ]
    assert list(store.search("status", b"two")) == [b"two"]


def a_trim_forgets_only_lines_before_the_cursor(store: Store) -> None:
    store.trim("tasks", "")
    assert not store.is_trimmed("tasks") and store.read_log("tasks")[0] == []
    cursors = [store.append("tasks", b"%d" % number) for number in range(6)]
    store.rotate("tasks")
    cursors += [store.append("tasks", b"%d" % number) for number in range(6, 12)]
    store.append("status", b"other")
    store.trim("tasks", cursors[6])
    assert store.is_trimmed("tasks") and not store.is_trimmed("status")
    left = [b"%d" % number for number in range(6, 12)]
    assert _read_all(store, log="tasks") == left and store.tail("tasks", 20)[0] == left
    assert [line for _, line, _ in store.numbered("tasks")] == left
    assert list(store.search("tasks", b"1", b"5", b"6")) == [b"6", b"10", b"11"]
    for cursor, lines in ((cursors[5], left), (cursors[6], left[1:]), (cursors[11], [])):
        found, after = store.read_log("tasks", cursor)
        assert found == lines and store.continues(cursor, after)
    for cursor in (cursors[0], cursors[4]):
        assert _is_trimmed_after(store, "tasks", cursor)
        assert store.wait("tasks", cursor, 5.0)
    store.trim("tasks", cursors[0])  # these lines are forgotten already
    after = store.append("tasks", b"more")
    store.trim("tasks", after)
    assert _read_all(store, log="tasks")[-1] == b"more"
    assert _read_all(store) == [b"other"]


def a_reader_that_found_an_empty_log_learns_of_a_trim(store: Store) -> None:
    _, cursor = store.read_log("tasks")
    for number in range(3):
        after = store.append("tasks", b"%d" % number)
        store.rotate("tasks")
    after = store.append("tasks", b"last")
    store.trim("tasks", after)
    assert _read_all(store, log="tasks") == [b"last"]
    assert not cursor or _is_trimmed_after(store, "tasks", cursor)


def no_reader_misses_a_line_while_a_log_is_trimmed(store: Store) -> None:
    faults: list[str] = []
    done = threading.Event()

    def follow() -> None:
        cursor, last = "", -1
        try:
            while True:
                ended = done.is_set()
                begins, before = not cursor, last
                try:
                    lines, cursor = store.read_log("tasks", cursor, 200)
                except LogTrimmed:
                    cursor = ""
                    continue
                for number in map(int, lines):
                    if number != last + 1 and not (begins and number > before):
                        faults.append(f"{number} came after {last}")
                    last, begins = number, False
                if ended and not lines:
                    break
            if last != _MANY_LINES - 1:
                faults.append(f"the last line was {last}")
        except Exception as error:
            faults.append(repr(error))

    readers = [threading.Thread(target=follow) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(_MANY_LINES):
        cursor = store.append("tasks", b"%d" % number)
        if number % 10 == 0:
            store.rotate("tasks")
        if number % 10 == 3:
            store.trim("tasks", cursor)
    done.set()
    for reader in readers:
        reader.join()
    assert not faults, faults[:3]


def the_cache_returns_the_last_entry(store: Store) -> None:
    assert store.cache_get("tasks") is None
    for data in (b"one", b"x" * 1_000_000, b""):
        store.cache_put("tasks", data)
        assert store.cache_get("tasks") == data
    assert store.cache_get("status") is None


CHECKS: list[Callable[[Store], None]] = [
    create_only_if_absent,
    replace_only_what_was_compared,
    remove_only_what_was_compared,
    names_of_every_kind_are_distinct,
    keys_come_in_order_and_in_pages,
    records_may_be_large_and_binary,
    tokens_grow,
    tokens_advance_and_never_decrease,
    one_of_many_threads_creates,
    one_of_many_threads_replaces,
    tokens_are_unique_among_threads,
    a_log_returns_whole_lines_in_order,
    a_cursor_reads_the_lines_after_it,
    a_read_continues_where_the_last_one_ended,
    blocks_hold_the_lines_of_the_log,
    logs_are_separate,
    rotation_changes_nothing_for_readers,
    a_search_finds_the_lines_with_a_text,
    waiting_ends_with_a_new_line_or_the_timeout,
    watching_ends_with_a_change,
    each_line_and_record_has_a_location,
    a_trim_forgets_only_lines_before_the_cursor,
    a_reader_that_found_an_empty_log_learns_of_a_trim,
    no_reader_misses_a_line_while_a_log_is_trimmed,
    the_cache_returns_the_last_entry,
    a_closed_store_may_be_used_again,
]


def _is_trimmed_after(store: Store, log: str, cursor: str) -> bool:
    try:
        store.read_log(log, cursor)
    except LogTrimmed:
        return True
    return False


def _read_all(store: Store, cursor: str = "", log: str = "status") -> list[bytes]:
    found: list[bytes] = []
    while True:
        lines, cursor = store.read_log(log, cursor, 4096)
        if not lines:
            return found
        found += lines


def _in_threads(count: int, work: Callable[[int], bool]) -> list[bool]:
    """Run calls in threads that begin at the same moment, and return the results."""
    answers = [False] * count
    begin = threading.Barrier(count)

    def run(me: int) -> None:
        begin.wait()
        answers[me] = work(me)

    threads = [threading.Thread(target=run, args=(me,)) for me in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
