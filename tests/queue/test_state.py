"""The state of the queue is the same for all who have read equally far, from any
snapshot; and it keeps its promises, whatever is written.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.formats import json_codec
from swarm.queue import task_state
from swarm.queue.previous import Previous
from swarm.queue.snapshot import encode_column, expand, pack, unpack
from swarm.queue.state import QueueState
from swarm.queue.task import Task, TaskSpec
from swarm.stores.log_fold import LogFold
from swarm.stores.memory import MemoryStore
from swarm.system.clock import from_iso

NAMES = ["a", "b", "c", "d"]


def events() -> st.SearchStrategy[dict[str, Any]]:
    """What workers might write, also late, twice, in a wrong order, and about tasks
    that are not there.
    """
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
            "op": st.sampled_from(
                [
                    *("claim", "claim", "done", "fail", "release", "void"),
                    *("submit", "submit", "landed", "return"),
                ]
            ),
            "id": names,
            "worker": st.sampled_from(["w1", "w2"]),
            "token": st.integers(1, 5),
            "final": st.booleans(),
            "delay": st.sampled_from([0, 0, 5]),
            "at": st.just("2026-02-02T10:30:00.000Z"),
            "agent": st.sampled_from(["", "claude"]),
            "gates": st.integers(0, 2),
            "feedback": st.sampled_from(["", "E"]),
            "session": st.sampled_from(["", "s"]),
            "work": st.sampled_from(["c0de", "c0ffee"]),
            "claim": st.integers(1, 5),
        }
    )
    gate = st.fixed_dictionaries(
        {
            "op": st.sampled_from(["close", "close", "open"]),
            "gate": st.sampled_from(["claude", "*", "task:a"]),
            "at": st.just("2026-02-02T10:29:00.000Z"),
        },
        optional={"until": st.sampled_from([f"2026-02-02T10:3{n}:00.000Z" for n in (0, 1)])},
    )
    other = st.fixed_dictionaries(
        {
            "op": st.sampled_from(["retry", "cancel", "reopen"]),
            "id": names,
            "at": st.just("2026-02-02T10:30:00.000Z"),
            "note": st.sampled_from(["", "n"]),
        }
    )
    return st.one_of(add, with_token, with_token, with_token, other, gate)


def more_events() -> st.SearchStrategy[dict[str, Any]]:
    """Also questions, pauses, edited and removed tasks, and lines that nobody can read."""
    names, at = st.sampled_from(NAMES), st.just("2026-02-02T10:30:00.000Z")
    question = st.fixed_dictionaries(
        {
            "op": st.sampled_from(["ask", "ask", "answer", "dismiss"]),
            "id": names,
            "token": st.integers(1, 5),
            "question": st.sampled_from(["q1", "q2"]),
            "text": st.sampled_from(["one?", "two?"]),
            "park": st.booleans(),
            "answer": st.just("yes"),
            "source": st.just("person"),
            "at": at,
        }
    )
    remove = st.fixed_dictionaries(
        {
            "op": st.just("remove"),
            "ids": st.lists(names, max_size=3),
            "open": st.booleans(),
        }
    )
    edit = st.fixed_dictionaries(
        {
            "op": st.just("edit"),
            "id": names,
            "fields": st.fixed_dictionaries(
                {},
                optional={
                    "priority": st.integers(-1, 1),
                    "after": st.lists(names, max_size=2, unique=True),
                    "not_before": st.just("2026-02-02T11:00:00.000Z"),
                    "labels": st.lists(st.sampled_from(["ui", "web"]), unique=True),
                },
            ),
            "next": st.sampled_from(["", "2026-02-02T11:00:00.000Z"]),
            "at": at,
        }
    )
    gate = st.fixed_dictionaries(
        {
            "op": st.sampled_from(["close", "close", "open"]),
            "gate": st.sampled_from(["*", "label:ui", "claude"]),
            "halt": st.booleans(),
            "worker": st.just("ana"),
            "at": at,
        }
    )
    damaged = st.just({"op": "fly"})
    return st.one_of(events(), events(), events(), question, remove, edit, gate, damaged)


def seen(queue: QueueState) -> Any:
    """Return everything that users of the state can see."""
    order = [entry.id for entry in queue.best(1e10, (), 100)]
    known = json.loads(json.dumps(queue.dump()))
    return (
        known,
        sorted(queue.running),
        list(queue.submitted),
        queue.counts(),
        queue.blocked(),
        queue.is_finished(),
        sorted(order),
    )


def apply(queue: QueueState, op: str, **fields: object) -> bool:
    return queue.apply(json.dumps({"op": op, "id": "a", **fields}).encode())


def in_state(state: str) -> QueueState:
    """A queue with one task that may be tried twice, and was claimed with token 5
    unless it is new.
    """
    queue = QueueState()
    assert apply(queue, "add", prompt="x", max_attempts=2)
    if state != "new":
        assert apply(queue, "claim", token=5, worker="w")
    if state in ("done", "failed", "cancelled", "ready"):
        op = {"done": "done", "failed": "fail", "cancelled": "cancel", "ready": "release"}[state]
        assert apply(queue, op, token=5, final=True)
    if state in ("submitted", "returned", "withdrawn", "landed"):
        assert apply(queue, "submit", token=5, work="c0de", branch="main")
        end = {"returned": "return", "withdrawn": "cancel", "landed": "landed"}.get(state)
        assert end is None or apply(queue, end, token=5)
    shown = {"new": "ready", "returned": "ready", "withdrawn": "cancelled", "landed": "done"}
    assert queue.entries["a"].state == shown.get(state, state)
    return queue


IN_STATES = [
    "new",
    "ready",
    "running",
    "submitted",
    "returned",
    "withdrawn",
    "landed",
    "done",
    "failed",
    "cancelled",
]


@pytest.mark.parametrize(
    ("op", "changes"),
    [
        ({"op": "add", "prompt": "y"}, {}),
        (
            {"op": "claim", "token": 6},
            dict.fromkeys(("new", "ready", "running", "returned"), "running"),
        ),
        ({"op": "claim", "token": 5}, {"new": "running"}),
        ({"op": "claim", "token": 0}, {}),
        ({"op": "done", "token": 5}, {"running": "done"}),
        ({"op": "done", "token": 4}, {}),
        ({"op": "done", "token": 6}, {}),
        ({"op": "fail", "token": 5}, {"running": "ready"}),
        ({"op": "fail", "token": 4}, {}),
        ({"op": "fail", "token": 5, "final": True}, {"running": "failed"}),
        ({"op": "release", "token": 5}, {"running": "ready"}),
        ({"op": "release", "token": 4}, {}),
        ({"op": "void", "token": 5}, {"running": "ready", "new": "ready"}),
        ({"op": "void", "token": 4}, {"new": "ready"}),
        ({"op": "void", "token": 6}, {"new": "ready", "ready": "ready", "returned": "ready"}),
        ({"op": "submit", "token": 5, "work": "c0de"}, {"running": "submitted"}),
        ({"op": "submit", "token": 4, "work": "c0de"}, {}),
        (
            {"op": "landed", "token": 5},
            dict.fromkeys(("submitted", "returned", "withdrawn", "done"), "done"),
        ),
        ({"op": "landed", "token": 4}, {}),
        ({"op": "landed", "token": 6}, {}),
        ({"op": "landed", "token": 4, "claim": 5}, {"running": "done"}),
        ({"op": "landed", "token": 4, "claim": 4}, {}),
        (
            {"op": "landed", "token": 5, "claim": 5},
            dict.fromkeys(("submitted", "returned", "withdrawn", "done"), "done"),
        ),
        ({"op": "return", "token": 5}, {"submitted": "ready"}),
        ({"op": "return", "token": 4}, {}),
        ({"op": "return", "token": 6}, {}),
        ({"op": "retry"}, {"failed": "ready", "cancelled": "ready", "withdrawn": "ready"}),
        ({"op": "reopen"}, {"done": "ready", "landed": "ready"}),
        (
            {"op": "cancel"},
            dict.fromkeys(("new", "ready", "running", "submitted", "returned"), "cancelled"),
        ),
        ({"op": "fly"}, {}),
        ({"op": "open", "gate": "claude"}, {}),
    ],
)
@pytest.mark.parametrize("state", IN_STATES)
def test_an_event_changes_what_the_rules_say_and_nothing_else(
    op: dict[str, Any], changes: dict[str, str], state: str
) -> None:
    queue = in_state(state)
    before = queue.dump()
    assert apply(queue, **op) == (state in changes)
    if state in changes:
        assert queue.entries["a"].state == changes[state]
    else:
        assert queue.dump() == before
    assert set(queue.running) == ({"a"} if queue.entries["a"].state == "running" else set())
    assert set(queue.submitted) == ({"a"} if queue.entries["a"].state == "submitted" else set())
    assert bool(queue.best(0.0, (), 1)) == (queue.entries["a"].state == "ready")


def test_an_event_without_optional_fields_is_valid() -> None:
    queue = QueueState()
    assert apply(queue, "add", prompt="x")
    entry = queue.entries["a"]
    assert entry.task() == Task(
        TaskSpec("a", "x"), "ready", 0, "", None, since="", reason="", ready_at="", added_at=""
    )
    assert (entry.priority, entry.max_attempts, entry.has_command) == (0, 3, False)
    assert apply(queue, "claim", token=5)
    assert entry.task() == Task(
        TaskSpec("a", "x"), "running", 1, "", 5, since="", reason="", ready_at="", added_at=""
    )
    assert apply(queue, "add", id="b", command="make", at="then")
    assert queue.entries["b"].has_command is True and queue.entries["b"].since == "then"
    assert apply(queue, "claim", id="b", token=1, worker="w", at="now")
    assert apply(queue, "fail", id="b", token=1, reason="boom", at="later")
    assert queue.entries["b"].task() == Task(
        TaskSpec("b", command="make"),
        "ready",
        1,
        "w",
        1,
        "later",
        "boom",
        "",
        "then",
        Previous("boom"),
    )


def test_a_release_does_not_count_as_an_attempt_and_a_retry_resets_them() -> None:
    queue = in_state("running")
    entry = queue.entries["a"]
    assert entry.attempts == 1 and apply(queue, "release", token=5) and entry.attempts == 0
    assert apply(queue, "claim", token=6) and apply(queue, "fail", token=6) and entry.attempts == 1
    assert apply(queue, "claim", token=7) and entry.attempts == 2
    assert not apply(queue, "claim", token=8, worker="v")  # its worker has died at the last attempt
    assert (entry.state, entry.token, entry.attempts) == ("failed", 8, 2)
    assert entry.reason == "its worker  was gone, at the last of 2 attempts"
    assert apply(queue, "retry") and entry.attempts == 0
    assert (
        not apply(queue, "claim", token=8)
        and apply(queue, "claim", token=9)
        and entry.attempts == 1
    )


@pytest.mark.parametrize("op", ["done", "fail", "release"])
def test_how_its_worker_ended_the_last_claim_is_known_until_the_next(op: str) -> None:
    assert in_state("new").entries["a"].ended_by == ""
    queue = in_state("running")
    entry = queue.entries["a"]
    assert entry.ended_by == ""
    assert apply(queue, op, token=5) and entry.ended_by == op
    if op != "done":
        assert apply(queue, "claim", token=6) and entry.ended_by == ""


def test_invalid_lines_are_counted_and_empty_ones_are_not() -> None:
    queue = in_state("new")
    for line in (
        b"",
        b" \n",
        b"{",
        b"[]",
        b'{"op": "add"}',
        b'{"op": "claim", "id": "a"}',
        b"\xff",
    ):
        assert queue.apply(line) is False
    assert apply(queue, "claim", token=1, id="unknown") is False
    assert queue.damaged == 5


@pytest.mark.parametrize("short", [number for number in range(32) if number != 30])
def test_an_incomplete_snapshot_is_not_loaded(short: int) -> None:
    queue = in_state("running")
    assert queue.apply(
        b'{"op": "add", "id": "b c", "prompt": "x", "command": "true", "priority": 1, "after": '
        b'["a"]}'
    )
    queue.entries["b c"].delay = 1.5
    assert queue.apply(b'{"op": "add", "id": "c", "prompt": "x"}')
    assert apply(queue, "claim", id="c", token=1)
    assert apply(queue, "submit", id="c", token=1, work="c0de", checked={"command": "make"})
    data = json.loads(json.dumps(queue.dump()))
    fresh = QueueState()
    fresh.load(data)
    assert (
        fresh.dump() == data
        and list(fresh.entries) == ["a", "b c", "c"]
        and fresh.running == {"a": fresh.entries["a"]}
        and fresh.submitted == {"c": fresh.entries["c"]}
        and fresh.entries["c"].task() == queue.entries["c"].task()
    )
    assert len(data) == 32
    if short == 0:
        data[0] -= 1
    elif short < 3:
        data[short] = pack(list(unpack(data[short]))[:-1])
    elif isinstance(data[short], list):
        data[short] = []
    else:
        first, second, third = expand(data[short], 3)
        # Two values that are equal would be a complete column.
        data[short] = encode_column([first, second] if first != second else [second, third])
    with pytest.raises(ValueError):  # noqa: PT011  (only the fold sees it)
        QueueState().load(data)


@pytest.mark.parametrize("more", range(4))
def test_a_snapshot_with_too_many_values_is_not_loaded(more: int) -> None:
    queue = in_state("running")
    data = json.loads(json.dumps(queue.dump()))
    if more == 0:
        data[0] += 1
    elif more < 3:
        data[more] = pack([*unpack(data[more]), b"x"])
    else:
        data.append([0])
    with pytest.raises((ValueError, TypeError)):
        QueueState().load(data)


def test_a_snapshot_with_two_tasks_of_one_name_is_not_loaded() -> None:
    queue = in_state("running")
    apply(queue, "add", id="b")
    data = queue.dump()
    data[1] = pack([b"a", b"a"])
    with pytest.raises(ValueError):  # noqa: PT011
        QueueState().load(data)


def test_a_snapshot_of_many_tasks_is_much_smaller_than_their_lines() -> None:
    queue = QueueState()
    for number in range(10_000):
        line = json_codec.dumps(
            {
                "op": "add",
                "at": "2026-02-02T10:30:00.000Z",
                "id": f"t{number}",
                "prompt": f"do {number}\u2028",
            }
        )
        assert queue.apply(line.encode())
    assert apply(queue, "claim", id="t7", token=5, worker="w", at="2026-02-02T11:00:00.000Z")
    saved = json.dumps(queue.dump())
    assert len(saved) < sum(len(entry.line) for entry in queue.entries.values()) / 4
    fresh = QueueState()
    fresh.load(json.loads(saved))
    assert [entry.task() for entry in fresh.entries.values()] == [
        entry.task() for entry in queue.entries.values()
    ]
    assert seen(fresh) == seen(queue)


def test_the_time_of_a_new_task_is_read_from_its_line() -> None:
    queue = QueueState()
    moments = [
        "2026-02-02T10:30:00.000Z",
        "2026-02-02T10:30:00Z",
        "2026-02-02T10:30+0000",
        "2026-02-02T10:30:00.000000Z",
        "now",
        None,
    ]
    for number, moment in enumerate(moments):
        assert apply(queue, "add", id=str(number), **({} if moment is None else {"at": moment}))
        line = json_codec.dumps({"op": "add", "at": moment or "", "id": f"own {number}"}).encode()
        assert queue.apply(line)
    for number, moment in enumerate(moments):
        for name in (str(number), f"own {number}"):
            entry = queue.entries[name]
            assert entry.since == entry.task().since == entry.task().added_at == (moment or "")


def test_the_time_of_a_line_that_swarm_wrote_is_read_without_parsing_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = QueueState()
    assert queue.apply(b'{"op": "add", "at": "2026-02-02T10:30:00.000Z", "id": "a"}')
    assert queue.apply(rb'{"op": "add", "at": "2026-02-02T10:30:0\u005a", "id": "b"}')
    assert queue.entries["b"].since == "2026-02-02T10:30:0Z"
    monkeypatch.setattr(task_state, "parse_event", None)
    assert queue.entries["a"].since == "2026-02-02T10:30:00.000Z"


def test_a_task_may_be_made_from_an_earlier_one() -> None:
    queue = in_state("running")
    before = queue.entries["a"].task()
    assert apply(queue, "done", token=5)
    task = queue.entries["a"].task(before)
    assert task == queue.entries["a"].task() and task.spec is before.spec


def test_a_delayed_task_that_is_cancelled_is_no_longer_waited_for() -> None:
    queue = in_state("running")
    at = "2026-02-02T10:30:00.000Z"
    assert queue.next_due() is None
    assert apply(queue, "fail", token=5, delay=30, at=at)
    assert queue.next_due() == from_iso("2026-02-02T10:30:30.000Z") and not queue.is_finished()
    assert apply(queue, "cancel")
    assert queue.is_finished()
    assert apply(queue, "retry", at=at)
    assert not queue.is_finished() and [entry.id for entry in queue.best(0.0, (), 1)] == ["a"]


def test_a_task_that_failed_at_no_known_time_waits_no_longer_than_its_delay() -> None:
    queue = in_state("running")
    assert apply(queue, "fail", token=5, delay=30, at="yesterday")
    assert queue.next_due() == 30.0
    assert [entry.id for entry in queue.best(1e9, (), 1)] == ["a"]


def test_a_delay_that_is_over_changes_no_snapshot_since_no_line_says_so() -> None:
    queue, fresh = in_state("running"), QueueState()
    assert apply(queue, "fail", token=5, delay=30, at="2026-02-02T10:30:00.000Z")
    before = queue.dump()
    assert queue.best(1e10, (), 1) and queue.next_due() is None
    assert queue.dump() == before
    fresh.load(before)
    assert [entry.id for entry in fresh.best(1e10, (), 1)] == ["a"]
    assert [entry.id for entry in fresh.best(0.0, (), 1)] == ["a"]


def test_a_delay_that_no_number_can_hold_changes_nothing() -> None:
    queue = in_state("running")
    before = queue.dump()
    assert not apply(queue, "fail", token=5, delay=10**400)
    assert queue.dump() == before and queue.damaged == 1


@pytest.mark.parametrize("attempts", [1, 2, 3])
@pytest.mark.parametrize("late", [False, True])
def test_a_claim_of_which_its_worker_was_never_told_is_no_attempt(
    attempts: int, late: bool
) -> None:
    """Also if the claim of the next worker came before it was voided."""
    queue = QueueState()
    assert apply(queue, "add", prompt="x", max_attempts=attempts)
    assert apply(queue, "claim", token=1, worker="asleep")
    taken = apply(queue, "claim", token=2, worker="v") if late else None
    assert apply(queue, "void", token=1)
    entry = queue.entries["a"]
    if attempts > 1 and late:
        assert taken and (entry.state, entry.attempts, entry.worker) == ("running", 1, "v")
    else:
        assert not taken and (entry.state, entry.attempts) == ("ready", 0)
        assert [ready.id for ready in queue.best(0.0, (), 1)] == ["a"]
    assert not apply(queue, "void", token=1), "it is void once"
    assert not apply(queue, "done", token=1) and not apply(queue, "claim", token=1)
    assert queue.damaged == 0


@pytest.mark.parametrize("late", [False, True])
def test_a_task_whose_claim_was_voided_comes_before_its_equals(late: bool) -> None:
    queue = in_state("running")
    assert apply(queue, "add", id="b", prompt="x")
    if late:
        assert apply(queue, "claim", token=6, worker="v") and apply(queue, "fail", token=6)
    assert apply(queue, "void", token=5)
    assert [entry.id for entry in queue.best(0.0, (), 2)] == ["a", "b"]


def test_a_task_that_failed_only_by_attempts_that_do_not_count_is_ready_again() -> None:
    queue = in_state("running")  # by token 5, the first of two attempts
    assert apply(queue, "claim", token=6, worker="v") and apply(queue, "fail", token=6)
    entry = queue.entries["a"]
    assert (entry.state, entry.attempts) == ("failed", 2)
    assert apply(queue, "void", token=5)
    assert (entry.state, entry.attempts) == ("ready", 1)


@pytest.mark.parametrize(
    ("end", "final", "retried"),
    [
        ("fail", True, False),
        ("fail", False, True),
        ("cancel", False, False),
        ("cancel", False, True),
        ("done", False, False),
    ],
)
def test_a_late_void_changes_no_decision_that_does_not_rest_on_attempts(
    end: str, final: bool, retried: bool
) -> None:
    queue = in_state("running")
    assert apply(queue, "claim", token=6, worker="v")
    assert apply(queue, end, token=6, final=final)
    assert not retried or apply(queue, "retry")
    before = queue.dump()
    assert not apply(queue, "void", token=5) and queue.dump() == before
    assert queue.damaged == 0


def test_an_event_without_a_time_does_not_take_the_time_of_the_add() -> None:
    queue = QueueState()
    assert apply(queue, "add", prompt="x", at="2026-02-02T10:30:00.000Z")
    assert queue.entries["a"].since == "2026-02-02T10:30:00.000Z"
    assert apply(queue, "claim", token=1) and queue.entries["a"].since == ""


def test_a_cancelled_task_is_not_blocked_by_a_task_that_failed() -> None:
    queue = in_state("failed")
    assert apply(queue, "add", id="b", prompt="x", after=["a"])
    assert queue.blocked() == {"b": "a"}
    assert apply(queue, "cancel", id="b")
    assert queue.blocked() == {}


def test_a_claim_that_arrives_after_it_was_voided_is_refused() -> None:
    queue = in_state("new")
    assert apply(queue, "void", token=7)
    assert not apply(queue, "claim", token=7, worker="w")
    assert apply(queue, "claim", token=8, worker="w")


@given(st.lists(events(), max_size=40), st.data())
def test_the_state_is_the_same_from_any_snapshot(
    records: list[dict[str, Any]], data: st.DataObject
) -> None:
    lines = [json.dumps(record).encode() for record in records]
    whole = QueueState()
    taken = [whole.apply(line) for line in lines]
    cut = data.draw(st.integers(0, len(lines)))
    first, second = QueueState(), QueueState()
    for line in lines[:cut]:
        first.apply(line)
    second.load(json.loads(json.dumps(first.dump())))
    assert [second.apply(line) for line in lines[cut:]] == taken[cut:]
    assert seen(second) == seen(whole)


@given(st.lists(events(), max_size=60))
def test_whatever_is_written_a_task_is_done_at_most_once_and_by_its_last_claim(
    records: list[dict[str, Any]],
) -> None:
    queue = QueueState()
    claimed: dict[str, int] = {}
    done: set[str] = set()
    after: dict[str, list[str]] = {}
    for record in records:
        task = record.get("id", "")
        known = queue.entries.get(task)
        was_running = known is not None and known.state == "running"
        taken = queue.apply(json.dumps(record).encode())
        if not taken or not task:
            continue
        assert task not in done or record["op"] == "reopen", "what is done stays done"
        done.discard(task)
        if record["op"] == "add":
            assert task not in after
            after[task] = record["after"]
        if record["op"] == "claim":
            assert record["token"] > claimed.get(task, 0)
            assert was_running or all(name in done for name in after[task])
            assert not queue.gates.against(task, record)
            claimed[task] = record["token"]
            assert queue.entries[task].attempts <= queue.entries[task].max_attempts
        if record["op"] in ("done", "fail", "release"):
            assert record["token"] == claimed[task]
        if record["op"] == "done":
            done.add(task)
        assert 0 <= queue.entries[task].attempts >= len(queue.entries[task].lapsed)
    ready = {entry.id for entry in queue.best(1e10, (), 100)}
    top = max((queue.entries[name].priority for name in ready), default=0)
    expected = {
        entry.id
        for entry in queue.entries.values()
        if entry.shown_state == "ready" and entry.priority == top
    }
    assert ready == expected
    assert all(queue.entries[name].shown_state == "waiting" for name in queue.blocked())
    stuck = {
        entry.id for entry in queue.entries.values() if entry.shown_state == "waiting"
    } - queue.blocked().keys()
    assert not stuck or not queue.is_finished(), (
        "what waits, and is not blocked, waits for something that can still be done"
    )


@given(st.lists(events(), max_size=30), st.lists(st.integers(0, 30), max_size=5))
def test_append_returns_whether_its_line_changed_the_queue(
    records: list[dict[str, Any]], looks: list[int]
) -> None:
    store = MemoryStore()
    mine, control = LogFold(store, "tasks", QueueState), QueueState()
    for at, record in enumerate(records):
        line = json.dumps({**record, "at": f"2026-02-02T10:30:{at:02d}.000Z"}).encode()
        expected = control.apply(line)
        if at in looks:
            store.append("tasks", line)  # by another process
        else:
            assert mine.append(line) == expected
    mine.read()
    assert seen(mine.state) == seen(control)


def everything(queue: QueueState) -> Any:
    """Return all that users of the state can see, with the order of ready tasks."""
    queue.advance(1e10)
    order = [entry.id for entry in queue.best(1e10, (), 100)]
    return seen(queue), order, queue.damaged, list(queue.asking), list(queue.running)


@given(st.lists(more_events(), max_size=40), st.data())
def test_the_fold_of_a_fold_and_the_rest_is_the_fold_of_the_whole_log(
    history: list[dict[str, Any]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(history)))
    whole, folded = QueueState(), QueueState()
    for record in history[:cut]:
        whole.apply(json.dumps(record).encode())
    folded.restore(iter(json.loads(json.dumps(list(whole.kept())))))
    folded.changes = whole.changes  # the last line of a fold sets it
    assert everything(folded) == everything(whole)
    for record in history[cut:]:
        line = json.dumps(record).encode()
        assert folded.apply(line) == whole.apply(line)
        assert everything(folded) == everything(whole)


@given(st.lists(more_events(), max_size=40), st.data())
def test_a_snapshot_and_the_whole_log_agree_after_tasks_were_removed(
    history: list[dict[str, Any]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(history)))
    whole, loaded = QueueState(), QueueState()
    for record in history[:cut]:
        whole.apply(json.dumps(record).encode())
    loaded.load(json.loads(json.dumps(whole.dump())))
    for record in history[cut:]:
        line = json.dumps(record).encode()
        assert loaded.apply(line) == whole.apply(line)
        assert seen(loaded) == seen(whole)
