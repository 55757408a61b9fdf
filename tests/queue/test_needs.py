"""Tasks that need slots and locks: a claim takes all of them or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.errors import BadInput, LockHeld, LockLost, NeedHeld, NoTask, WrongState
from swarm.locks.slots import Slots, SlotTable
from swarm.locks.table import LockTable
from swarm.project.creation import make_state_dir, plan
from swarm.queue import claim_report
from swarm.queue.queue import TaskQueue
from swarm.stores.contract import Store
from tests.conftest import HandClock


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that declares slots, which is the current one."""
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    make_state_dir(plan(str(root)))
    (root / "swarm.toml").write_text('[slots]\nbuild = 2\nport = "8000-8001"\n')
    return root


@pytest.fixture
def queue(store: Store, project: Path) -> TaskQueue:
    return TaskQueue(store)


def held(store: Store) -> list[str]:
    return [*LockTable(store).tasks(), *SlotTable(store).tasks()]


class TestClaiming:
    def test_a_claim_takes_all_and_its_end_frees_all(self, queue: TaskQueue, store: Store) -> None:
        queue.add("t", "x", slots={"build": 1, "port": 2}, locks=["migrations"])
        claim = queue.claim("w")
        assert claim.slots == {"build": ["1"], "port": ["8000", "8001"]}
        assert held(store) == ["migrations", "t", "build#1", "port#8000", "port#8001"]
        assert claim_report.fields(claim)["slots"] == claim.slots
        queue.done("t", "w", claim.token)
        assert held(store) == []

    @pytest.mark.parametrize("end", ["fail", "release"])
    def test_every_end_of_a_claim_frees_its_slots(
        self, queue: TaskQueue, store: Store, end: str
    ) -> None:
        queue.add("t", "x", slots=["build"])
        claim = queue.claim("w")
        getattr(queue, end)("t", "w", claim.token)
        assert held(store) == []

    def test_a_claim_that_cannot_take_all_takes_none(self, queue: TaskQueue, store: Store) -> None:
        queue.add("t", "x", slots={"build": 1, "port": 2}, locks=["migrations"])
        SlotTable(store).acquire_any(Slots("port", ("8001",)), "other", 60)
        with pytest.raises(NeedHeld) as refused:
            queue.claim("w", "t")
        assert dict(refused.value.holders) == {"port#8001": "other"}
        assert "t waits for a slot of port" in str(refused.value)
        fields = claim_report.refusal(refused.value, lambda seconds: "wait")
        assert (fields["why"], fields["held_by"]) == ("slots", {"port#8001": "other"})
        assert held(store) == ["port#8001"]
        assert queue.get("t").attempts == 0

    def test_another_task_is_claimed_while_a_slot_is_held(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        LockTable(store).acquire("migrations", "ada", 60)
        queue.add("t", "x", locks=["migrations"], priority=5)
        queue.add("u", "x")
        assert queue.claim("w").task.id == "u"
        with pytest.raises(NoTask) as refused:
            queue.claim("w2")
        assert refused.value.why == "busy" and refused.value.holders["migrations"] == "ada"
        assert "t waits for the lock migrations" in str(refused.value)
        LockTable(store).release("migrations", "ada")
        clock.pass_time(2)
        assert queue.claim("w2").task.id == "t"

    def test_a_named_task_that_is_held_says_so_and_not_that_a_slot_is(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("t", "x", slots={"build": 2})
        queue.claim("w")
        with pytest.raises(LockHeld) as refused:
            queue.claim("w2", "t")
        assert not isinstance(refused.value, NeedHeld) and refused.value.holder == "w"

    def test_slots_lapse_with_their_claim(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        queue.add("t", "x", slots={"build": 2})
        first = queue.claim("w", ttl=10)
        clock.pass_time(8)
        LockTable(store).heartbeat("t", "w", first.token)
        clock.pass_time(8)
        with pytest.raises(NoTask):
            queue.claim("w2")
        clock.pass_time(3)
        second = queue.claim("w2")
        assert second.slots == first.slots and second.task.attempts == 2
        queue.give_up(first)
        assert SlotTable(store).status("build#1").holder == "w2"

    def test_a_heartbeat_of_a_claim_whose_slot_was_broken_loses_it(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("t", "x", slots=["build"])
        claim = queue.claim("w")
        SlotTable(store).break_lock("build#1")
        with pytest.raises(LockLost), queue.keep(claim):
            pass

    def test_a_lost_claim_that_is_given_up_frees_its_slots(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("t", "x", slots=["build"])
        claim = queue.claim("w", bound=True)
        LockTable(store).break_lock("t")
        assert held(store) == ["build#1"], "its process may still use it"
        queue.give_up(claim)
        assert held(store) == []

    def test_an_undone_claim_frees_its_slots(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("t", "x", slots=["build"], locks=["m"])

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("swarm.queue.claims.Claims._check_lease", interrupt)
        with pytest.raises(KeyboardInterrupt):
            queue.claim("w")
        assert held(store) == []


class TestDeclaring:
    def test_a_task_whose_slots_are_not_declared_is_refused(
        self, queue: TaskQueue, store: Store
    ) -> None:
        for slots in ({"gpu": 1}, {"build": 3}):
            with pytest.raises(BadInput, match=r"swarm\.toml"):
                queue.add("t", "x", slots=slots)
        with pytest.raises(BadInput, match="its own lock"):
            queue.add("t", "x", locks=["t"])
        assert queue.tasks() == []

    def test_a_task_whose_slots_are_declared_no_more_is_a_clear_refusal(
        self, queue: TaskQueue, project: Path
    ) -> None:
        queue.add("t", "x", slots=["build"])
        (project / "swarm.toml").write_text("[slots]\nport = 1\n")
        with pytest.raises(WrongState, match="does not declare"):
            queue.claim("w", "t")
        with pytest.raises(NoTask, match="does not declare") as refused:
            queue.claim("w")
        assert refused.value.why == "finished"
        (project / "swarm.toml").write_text("[slots\n")
        with pytest.raises(WrongState, match=r"swarm\.toml, line 1"):
            queue.claim("w", "t")

    @pytest.mark.parametrize(
        "fields",
        [
            {"slots": {"build": 0}},
            {"slots": {"build": True}},
            {"slots": {"a b": 1}},
            {"slots": "build"},
            {"locks": "m"},
            {"locks": [""]},
            {"locks": ["a/b"]},
        ],
    )
    def test_invalid_needs_are_refused(self, queue: TaskQueue, fields: dict[str, object]) -> None:
        with pytest.raises(BadInput):
            queue.add("t", "x", **fields)  # type: ignore[arg-type]

    def test_the_queue_remembers_what_a_task_needs(self, queue: TaskQueue, store: Store) -> None:
        queue.add("t", "x", slots={"build": 2}, locks=["m"])
        spec = TaskQueue(store).get("t").spec
        assert (dict(spec.slots), spec.locks) == ({"build": 2}, ("m",))
