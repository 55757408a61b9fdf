"""What a lock file says and how it is judged, field by field: as swarm writes it, as
people edit it, when a lease ends.
"""

from __future__ import annotations

import json
import os
import pickle
from typing import Any

import pytest

from swarm.inputs import MAX_TTL
from swarm.locks.expiry import (
    EXPIRED,
    HELD,
    LockStatus,
    holder_gone,
    judge,
    new_lock,
    orphaned,
    refreshed,
    stamp_counts,
)
from swarm.locks.record import Lock, decode
from swarm.system import process
from swarm.system.clock import to_iso
from tests.conftest import HandClock


def read(**fields: Any) -> Lock:
    lock = decode(json.dumps({"worker": "w", **fields}).encode(), "t")
    assert lock is not None
    return lock


def left(lock: Lock | None, clock: HandClock) -> float | None:
    return judge(lock, clock, lambda: 0.0).seconds_left


class TestWriting:
    def test_a_record_has_the_fields_of_both_vocabularies(self, clock: HandClock) -> None:
        lock = new_lock("t", "w", 60, 7, clock)
        boot, time_ns = clock.identity()
        assert json.loads(lock.encode()) == {
            "task_id": "t",
            "worker": "w",
            "worker_id": "w",
            "acquired_at": to_iso(clock.now()),
            "heartbeat_at": to_iso(clock.now()),
            "ttl": 60,
            "expires_at": to_iso(clock.now() + 60),
            "token": 7,
            "holder": {
                "beat": 0,
                "boot": boot,
                "time_ns": time_ns,
                "at": clock.steady(),
                "worker": "w",
                "heartbeat_at": to_iso(clock.now()),
                "ttl": 60,
            },
        }
        assert lock.encode().endswith(b"}\n")

    def test_a_lock_without_end_token_and_holder_leaves_them_out(self) -> None:
        lock = Lock(
            task_id="t",
            worker="w",
            acquired_at="a",
            heartbeat_at="h",
            ttl=None,
            expires_at="",
            token=None,
            holder={},
        )
        assert list(lock.fields()) == [
            "task_id",
            "worker",
            "worker_id",
            "acquired_at",
            "heartbeat_at",
            "ttl",
            "expires_at",
        ]
        assert (lock.fields()["ttl"], lock.fields()["expires_at"]) == (None, "")

    def test_an_encoded_lock_is_decoded_to_the_same_fields(self, clock: HandClock) -> None:
        for ttl in (60, 1.5, None):
            lock = new_lock("t", "w", ttl, 7, clock, process.identity())
            again = decode(lock.encode(), "another name")
            assert again is not None and again.fields() == lock.fields()

    def test_another_token_changes_nothing_else(self, clock: HandClock) -> None:
        lock = new_lock("t", "w", 60, 7, clock, process.identity())
        assert lock.replace(token=8).fields() == {**lock.fields(), "token": 8}

    @pytest.mark.parametrize("name", Lock.__slots__)
    def test_a_field_of_a_lock_cannot_be_assigned_to_or_deleted(
        self, name: str, clock: HandClock
    ) -> None:
        lock = new_lock("t", "w", 60, 7, clock)
        before = lock.encode()
        with pytest.raises(AttributeError, match=name):
            setattr(lock, name, "x")
        with pytest.raises(AttributeError, match=name):
            delattr(lock, name)
        assert lock.encode() == before

    def test_a_copy_with_another_field_is_encoded_again(self, clock: HandClock) -> None:
        lock = new_lock("t", "w", 60, 7, clock)
        assert b'"token": 7' in lock.encode() and b'"token": 8' in lock.replace(token=8).encode()

    def test_a_lock_can_be_sent_to_another_process(self, clock: HandClock) -> None:
        lock = new_lock("t", "w", 60, 7, clock)
        before = lock.encode()
        copy = pickle.loads(pickle.dumps(lock))
        assert copy.encode() == before and copy.token == 7 and copy.holder == lock.holder


class TestReading:
    @pytest.mark.parametrize(
        "content", [b"", b"{", b"[]", b"null", b"{}", b'{"worker": 5}', b'{"worker": ""}', b"\xff"]
    )
    def test_a_record_without_a_worker_is_invalid(self, content: bytes) -> None:
        assert decode(content, "t") is None

    def test_missing_fields_have_defaults(self) -> None:
        lock = read()
        assert (lock.task_id, lock.worker, lock.acquired_at, lock.heartbeat_at) == (
            "t",
            "w",
            "",
            "",
        )
        assert (lock.ttl, lock.expires_at, lock.token, lock.holder) == (None, "", None, {})
        assert read(acquired_at="2026-01-01").heartbeat_at == "2026-01-01"

    def test_fields_that_are_there_count(self) -> None:
        lock = read(
            task_id="u",
            acquired_at="a",
            heartbeat_at="h",
            ttl=5,
            expires_at="e",
            token=3,
            holder={"x": 1},
        )
        assert (lock.task_id, lock.acquired_at, lock.heartbeat_at) == ("u", "a", "h")
        assert (lock.ttl, lock.expires_at, lock.token, lock.holder) == (5, "e", 3, {"x": 1})

    @pytest.mark.parametrize("nonsense", [5, True, None, [], {}])
    def test_a_text_field_that_is_no_text_counts_as_missing(self, nonsense: object) -> None:
        lock = read(
            task_id=nonsense, acquired_at=nonsense, heartbeat_at=nonsense, expires_at=nonsense
        )
        assert (lock.task_id, lock.acquired_at, lock.heartbeat_at, lock.expires_at) == (
            "t",
            "",
            "",
            "",
        )

    @pytest.mark.parametrize("nonsense", ["3", 3.0, True, None, [3]])
    def test_a_token_is_a_whole_number_or_none(self, nonsense: object) -> None:
        assert read(token=nonsense).token is None

    @pytest.mark.parametrize("nonsense", ["x", 3, None, []])
    def test_a_holder_is_an_object_or_empty(self, nonsense: object) -> None:
        assert read(holder=nonsense).holder == {}

    @pytest.mark.parametrize(
        "nonsense", [[1], {"deeper": 1}, float("inf"), float("-inf"), float("nan")]
    )
    def test_a_holder_with_values_that_swarm_never_writes_counts_as_empty(
        self, nonsense: object
    ) -> None:
        assert read(holder={"worker": "w", "at": nonsense}).holder == {}
        assert read(holder={"worker": "w", "at": 1.5, "ttl": None}).holder == {
            "worker": "w",
            "at": 1.5,
            "ttl": None,
        }

    @pytest.mark.parametrize(
        ("ttl", "meant"),
        [
            (60, 60),
            (1.5, 1.5),
            ("60", 60),
            (" 1.5 ", 1.5),
            (0, 0),
            (-5, -5),
            (-1e300, -1e12),
            (1e12 - 1, 1e12 - 1),
            (1e12, None),
            (float("inf"), None),
            (float("nan"), None),
            ("nan", None),
            ("soon", None),
            (True, None),
            (None, None),
            ([60], None),
        ],
    )
    def test_a_ttl_is_a_number_of_seconds_or_no_end(self, ttl: object, meant: float | None) -> None:
        assert read(ttl=ttl).ttl == meant

    @pytest.mark.parametrize(
        ("worker", "worker_id", "stamped", "whose"),
        [
            ("a", None, None, "a"),
            (None, "b", None, "b"),
            ("a", "a", "a", "a"),
            ("new", "old", "old", "new"),
            ("old", "new", "old", "new"),
            ("old", None, "old", "old"),
            (None, "old", "old", "old"),
            ("a", "b", None, "a"),
            (5, "b", None, "b"),
            ("a", 5, "a", "a"),
        ],
    )
    def test_of_two_worker_fields_the_edited_one_counts(
        self, worker: object, worker_id: object, stamped: object, whose: str
    ) -> None:
        lock = read(worker=worker, worker_id=worker_id, holder={"worker": stamped})
        assert lock.worker == whose


class TestJudging:
    @pytest.mark.parametrize("ttl", [60, 1.5])
    def test_a_lease_holds_to_its_very_end(self, ttl: float, clock: HandClock) -> None:
        lock = new_lock("t", "w", ttl, 1, clock)
        clock.pass_time(ttl)
        at_the_end = judge(lock, clock, lambda: 0.0)
        assert (at_the_end.is_held, at_the_end.seconds_left) == (True, 0)
        clock.pass_time(0.5)
        behind = judge(lock, clock, lambda: 0.0)
        assert (behind.is_held, behind.reason, behind.seconds_left) == (False, "", -0.5)

    def test_a_lock_without_an_end_is_held_for_ever(self, clock: HandClock) -> None:
        lock = new_lock("t", "w", None, 1, clock)
        clock.pass_time(1e9)
        status = judge(lock, clock, lambda: 0.0)
        assert (status.is_held, status.seconds_left, status.reason) == (True, None, "")

    @pytest.mark.parametrize(("age", "active"), [(0.0, True), (5.0, True), (5.5, False)])
    def test_an_invalid_record_counts_as_held_for_a_moment(
        self, age: float, active: bool, clock: HandClock
    ) -> None:
        status = judge(None, clock, lambda: age)
        assert (status.is_held, status.reason, status.seconds_left) == (
            active,
            "unreadable",
            5.0 - age,
        )

    def test_a_status_reads_as_a_person_would_say_it(self) -> None:
        assert [
            str(LockStatus(HELD)),
            str(LockStatus(EXPIRED)),
            str(LockStatus(EXPIRED, reason="holder gone")),
        ] == [
            "Active",
            "Expired",
            "Expired (holder gone)",
        ]
        assert (LockStatus(HELD).reason, LockStatus(HELD).seconds_left) == ("", None)

    def test_the_steady_clock_counts_if_the_stamp_fits(self, clock: HandClock) -> None:
        lock = new_lock("t", "w", 60, 1, clock)
        clock.pass_time(10)
        clock.jump(1000)
        assert left(lock, clock) == 50

    @pytest.mark.parametrize(
        "edited",
        [{"heartbeat_at": "2026-02-02T02:39:50Z"}, {"ttl": 50}, {"worker": "x", "worker_id": "x"}],
    )
    def test_the_wall_clock_counts_if_a_user_edited_the_record(
        self, edited: dict[str, Any], clock: HandClock
    ) -> None:
        record = {**new_lock("t", "w", 60, 1, clock).fields(), **edited}
        lock = decode(json.dumps(record).encode(), "t")
        assert lock is not None and not stamp_counts(lock)
        clock.jump(10)
        assert left(lock, clock) == (50 if "worker" in edited else 40)

    def test_the_ttl_counts_from_the_heartbeat_or_else_from_the_beginning(
        self, clock: HandClock
    ) -> None:
        now = clock.now()
        assert (
            left(read(acquired_at=to_iso(now - 50), heartbeat_at=to_iso(now - 20), ttl=60), clock)
            == 40
        )
        assert left(read(acquired_at=to_iso(now - 50), ttl=60), clock) == 10
        assert (
            left(read(acquired_at=to_iso(now - 50), heartbeat_at="yesterday", ttl=60), clock) == 10
        )

    def test_the_end_counts_where_there_is_no_ttl_or_no_beginning(self, clock: HandClock) -> None:
        ends = to_iso(clock.now() + 30)
        assert left(read(expires_at=ends), clock) == 30
        assert left(read(expires_at=ends, ttl=60), clock) == 30
        assert left(read(expires_at=ends, ttl=60, acquired_at=to_iso(clock.now())), clock) == 60
        assert left(read(ttl=60), clock) is None


class TestBelonging:
    def test_a_lock_is_held_by_one_worker_with_one_token(self, clock: HandClock) -> None:
        status = judge(new_lock("t", "w", 60, 7, clock), clock, lambda: 0.0)
        assert status.is_held_by("w", 7)
        assert not status.is_held_by("v", 7) and not status.is_held_by("w", 8)

    def test_an_expired_lock_is_held_by_no_worker(self, clock: HandClock) -> None:
        lock = new_lock("t", "w", 60, 7, clock)
        clock.pass_time(61)
        assert not judge(lock, clock, lambda: 0.0).is_held_by("w", 7)

    def test_an_unreadable_lock_is_held_by_no_known_worker(self, clock: HandClock) -> None:
        status = judge(None, clock, lambda: 0.0)
        assert status.is_held and not status.is_held_by("w", 7)


class TestHolder:
    @pytest.fixture
    def dead(self, clock: HandClock) -> Lock:
        """A lock bound to a process that has ended."""
        child = os.fork()
        if not child:
            os._exit(0)
        who = process.identity(child)
        os.waitpid(child, 0)
        return new_lock("t", "w", 60, 1, clock, who)

    def test_a_lock_is_over_when_its_process_is(self, dead: Lock, clock: HandClock) -> None:
        assert holder_gone(dead, clock)
        status = judge(dead, clock, lambda: 0.0)
        assert (status.is_held, status.reason, status.seconds_left) == (False, "holder gone", None)
        assert status.lock is dead

    def test_a_lock_of_a_living_process_is_not_over(self, clock: HandClock) -> None:
        assert not holder_gone(new_lock("t", "w", 60, 1, clock, process.identity()), clock)
        assert not holder_gone(new_lock("t", "w", 60, 1, clock), clock)

    def test_a_lock_that_was_edited_to_another_worker_is_not_over_with_the_process(
        self, dead: Lock, clock: HandClock
    ) -> None:
        lock = decode(json.dumps({**dead.fields(), "worker": "x", "worker_id": "x"}).encode(), "t")
        assert lock is not None and not holder_gone(lock, clock)
        assert judge(lock, clock, lambda: 0.0).is_held

    def test_a_restart_ends_a_lock_unless_machines_that_go_by_one_name_may_share_the_store(
        self, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_machine", lambda: "this machine")
        fields = new_lock("t", "w", 60, 1, clock, process.identity()).fields()
        lock = read(
            **{
                **fields,
                "holder": {
                    **fields["holder"],
                    "machine": "this machine",
                    "boot": "an earlier boot",
                },
            }
        )
        assert holder_gone(lock, clock)
        monkeypatch.setattr(clock, "of_one_machine", False)
        assert not holder_gone(lock, clock)

    def test_a_lock_is_not_over_while_a_process_of_its_group_is_left(
        self, dead: Lock, clock: HandClock
    ) -> None:
        lock = new_lock("t", "w", 60, 1, clock, {**dead.holder, "group": os.getpgid(0)})
        assert not holder_gone(lock, clock)
        status = judge(lock, clock, lambda: 0.0)
        assert (status.is_held, status.seconds_left) == (True, 60)
        assert refreshed(lock, clock).holder["group"] == os.getpgid(0), (
            "and its heartbeat goes on naming them"
        )
        all_ended = new_lock("t", "w", 60, 1, clock, {**dead.holder, "group": dead.holder["pid"]})
        assert str(judge(all_ended, clock, lambda: 0.0)) == "Expired (holder gone)"

    def test_a_lock_is_orphaned_while_only_the_group_of_its_process_is_left(
        self, dead: Lock, clock: HandClock
    ) -> None:
        left = new_lock("t", "w", 60, 1, clock, {**dead.holder, "group": os.getpgid(0)})
        assert orphaned(left, clock)
        assert not orphaned(
            new_lock("t", "w", 60, 1, clock, {**process.identity(), "group": os.getpgid(0)}), clock
        )
        assert not orphaned(
            new_lock("t", "w", 60, 1, clock, {**dead.holder, "group": dead.holder["pid"]}), clock
        )
        assert not orphaned(dead, clock) and not orphaned(new_lock("t", "w", 60, 1, clock), clock)
        handed_on = decode(
            json.dumps({**left.fields(), "worker": "x", "worker_id": "x"}).encode(), "t"
        )
        assert handed_on is not None and not orphaned(handed_on, clock)

    def test_a_heartbeat_names_a_group_only_beside_the_process_for_which_it_works(
        self, clock: HandClock
    ) -> None:
        bound = new_lock("t", "w", 60, 1, clock, process.identity())
        again = refreshed(bound, clock, 77)
        assert (again.holder["pid"], again.holder["group"]) == (os.getpid(), 77)
        assert refreshed(again, clock).holder["group"] == 77
        assert "group" not in refreshed(new_lock("t", "w", 60, 1, clock), clock, 77).holder

    def test_a_heartbeat_for_a_dead_process_binds_the_lock_to_no_process(
        self, dead: Lock, clock: HandClock
    ) -> None:
        lock = refreshed(dead, clock)
        assert "pid" not in lock.holder and judge(lock, clock, lambda: 0.0).is_held


class TestRefreshing:
    def test_a_heartbeat_changes_only_the_lease(self, clock: HandClock) -> None:
        lock = new_lock("t", "w", 60, 7, clock, process.identity())
        clock.pass_time(10)
        again = refreshed(lock, clock)
        moved = {"heartbeat_at": to_iso(clock.now()), "expires_at": to_iso(clock.now() + 60)}
        holder = {
            **lock.holder,
            "beat": 1,
            "at": clock.steady(),
            "heartbeat_at": to_iso(clock.now()),
        }
        assert again.fields() == {**lock.fields(), **moved, "holder": holder}
        assert left(again, clock) == 60
        assert refreshed(again, clock).holder["beat"] == 2

    def test_a_refreshed_lock_never_equals_the_one_before(self, clock: HandClock) -> None:
        """Although the clock stood still."""
        lock = new_lock("t", "w", 60, 7, clock)
        assert refreshed(lock, clock).encode() != lock.encode()

    @pytest.mark.parametrize(
        ("beat", "then"),
        [(0, 1), (5, 6), (-1, 1), (10**12 - 1, 10**12), (10**12, 1), ("x", 1), (None, 1)],
    )
    def test_heartbeats_are_counted_and_an_invalid_count_starts_again(
        self, beat: object, then: int, clock: HandClock
    ) -> None:
        assert refreshed(read(holder={"beat": beat}), clock).holder["beat"] == then

    def test_a_heartbeat_drops_the_process_of_a_stamp_that_does_not_fit(
        self, clock: HandClock
    ) -> None:
        lock = new_lock("t", "w", 60, 7, clock, process.identity())
        edited = decode(json.dumps({**lock.fields(), "ttl": 50}).encode(), "t")
        assert edited is not None
        again = refreshed(edited, clock)
        assert "pid" not in again.holder and "host" not in again.holder and again.ttl == 50
        assert stamp_counts(again)

    def test_a_heartbeat_drops_unknown_keys_of_the_holder(self, clock: HandClock) -> None:
        lock = new_lock("t", "w", 60, 7, clock, {**process.identity(), "note": "x"})
        assert "note" not in refreshed(lock, clock).holder
        assert {"host", "machine", "pid_ns", "pid", "start"} <= set(refreshed(lock, clock).holder)

    def test_a_lock_without_a_beginning_gets_one(self, clock: HandClock) -> None:
        assert refreshed(read(), clock).acquired_at == to_iso(clock.now())
        assert refreshed(read(acquired_at="2026-01-01"), clock).acquired_at == "2026-01-01"

    @pytest.mark.parametrize(
        ("fields", "ttl"),
        [
            ({}, None),
            ({"ttl": 60}, 60),
            ({"ttl": 0.1}, 1),
            ({"ttl": -5}, 1),
            ({"ttl": 1e11}, MAX_TTL),
            ({"ttl": 60, "expires_at": "2099-01-01"}, 60),
            ({"heartbeat_at": "2026-02-02T02:00:00Z", "expires_at": "2026-02-02T02:01:30.9Z"}, 90),
            ({"expires_at": "2026-02-02T02:40:30Z"}, 30),
            ({"heartbeat_at": "2026-02-02T02:00:00Z", "expires_at": "9999-12-31"}, MAX_TTL),
            ({"heartbeat_at": "2026-02-02T02:00:00Z", "expires_at": "2026-01-01"}, 1),
        ],
    )
    def test_a_lease_is_as_long_as_it_was_within_bounds(
        self, fields: dict[str, Any], ttl: float | None, clock: HandClock
    ) -> None:
        again = refreshed(read(**fields), clock)
        assert again.ttl == ttl
        assert again.expires_at == ("" if ttl is None else to_iso(clock.now() + ttl))
