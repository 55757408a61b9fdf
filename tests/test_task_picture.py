"""The picture of the queue is the same for everybody who has read as far, wherever they began; and breaks no promise, whatever is
written."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from swarm.digest import Digest
from swarm.store_memory import MemoryStore
from swarm.task_picture import TaskPicture

NAMES = ["a", "b", "c", "d"]


def events() -> st.SearchStrategy[dict[str, Any]]:
    """What workers might write, also late, twice, in a wrong order, and about tasks that are not there."""
    names = st.sampled_from(NAMES)
    add = st.fixed_dictionaries(
        {
            "op": st.just("add"),
            "id": names,
            "prompt": st.just("x"),
            "priority": st.integers(-1, 1),
            "after": st.lists(names, max_size=2, unique=True),
            "max_attempts": st.integers(1, 2),
        }
    )
    with_token = st.fixed_dictionaries(
        {
            "op": st.sampled_from(["claim", "claim", "done", "fail", "release"]),
            "id": names,
            "worker": st.sampled_from(["w1", "w2"]),
            "token": st.integers(1, 5),
            "final": st.booleans(),
            "delay": st.sampled_from([0, 0, 5]),
            "at": st.just("2026-02-02T10:30:00.000Z"),
        }
    )
    other = st.fixed_dictionaries(
        {"op": st.sampled_from(["retry", "cancel"]), "id": names, "at": st.just("2026-02-02T10:30:00.000Z")}
    )
    return st.one_of(add, with_token, with_token, with_token, other)


def seen(picture: TaskPicture) -> Any:
    """Everything that somebody who works with it can see."""
    order = [entry.id for entry in picture.best(1e10, (), 100)]
    known = json.loads(json.dumps(picture.dump()))
    return known, sorted(picture.running), picture.counts(), picture.blocked(), picture.is_finished(), sorted(order)


@given(st.lists(events(), max_size=40), st.data())
def test_it_does_not_matter_where_somebody_began_to_read(records: list[dict[str, Any]], data: st.DataObject) -> None:
    lines = [json.dumps(record).encode() for record in records]
    whole = TaskPicture()
    taken = [whole.fold(line) for line in lines]
    cut = data.draw(st.integers(0, len(lines)))
    first, second = TaskPicture(), TaskPicture()
    for line in lines[:cut]:
        first.fold(line)
    second.load(json.loads(json.dumps(first.dump())))
    assert [second.fold(line) for line in lines[cut:]] == taken[cut:]
    assert seen(second) == seen(whole)


@given(st.lists(events(), max_size=60))
def test_whatever_is_written_a_task_is_done_at_most_once_and_by_its_last_claim(records: list[dict[str, Any]]) -> None:
    picture = TaskPicture()
    claimed: dict[str, int] = {}
    done: set[str] = set()
    after: dict[str, list[str]] = {}
    for record in records:
        task = record["id"]
        taken = picture.fold(json.dumps(record).encode())
        if not taken:
            continue
        assert task not in done, "what is done stays done"
        if record["op"] == "add":
            assert task not in after
            after[task] = record["after"]
        if record["op"] == "claim":
            assert record["token"] > claimed.get(task, 0)
            assert all(name in done for name in after[task])
            claimed[task] = record["token"]
            assert picture.entries[task].attempts <= picture.entries[task].max_attempts
        if record["op"] in ("done", "fail", "release"):
            assert record["token"] == claimed[task]
        if record["op"] == "done":
            done.add(task)
    ready = {entry.id for entry in picture.best(1e10, (), 100)}
    top = max((picture.entries[name].priority for name in ready), default=0)
    expected = {entry.id for entry in picture.entries.values() if entry.shown_state == "ready" and entry.priority == top}
    assert ready == expected
    assert all(picture.entries[name].shown_state == "waiting" for name in picture.blocked())
    stuck = {entry.id for entry in picture.entries.values() if entry.shown_state == "waiting"} - picture.blocked().keys()
    assert not stuck or not picture.is_finished(), "what waits, and is not blocked, waits for something that can still be done"


@given(st.lists(events(), max_size=30), st.lists(st.integers(0, 30), max_size=5))
def test_a_digest_tells_of_its_own_line_whether_it_was_taken(records: list[dict[str, Any]], looks: list[int]) -> None:
    store = MemoryStore()
    mine, control = Digest(store, "tasks", TaskPicture), TaskPicture()
    for at, record in enumerate(records):
        line = json.dumps({**record, "at": f"2026-02-02T10:30:{at:02d}.000Z"}).encode()
        store.append("tasks", line)
        expected = control.fold(line)
        if at not in looks:
            assert mine.update(line) == expected
    mine.update()
    assert seen(mine.picture) == seen(control)
