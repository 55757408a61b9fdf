"""A question that its agent held becomes the one with which the agent ended."""

from __future__ import annotations

import json

import pytest

from swarm.errors import NoQuestion
from swarm.queue.questions.question import MAX_OPEN
from swarm.queue.queue import Claim, TaskQueue
from swarm.queue.state import QueueState
from swarm.status.log import StatusLog
from swarm.stores.contract import Store

TEXT = "Which database?"


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    made = TaskQueue(store)
    made.add("a", "x", max_attempts=1)
    return made


@pytest.fixture
def claim(queue: TaskQueue) -> Claim:
    return queue.claim("w", "a")


def test_a_held_question_keeps_its_id_and_its_fields_when_it_is_parked(
    queue: TaskQueue, claim: Claim
) -> None:
    held = queue.ask("a", "w", claim.token, TEXT, options=["x", "y"], needs="person")
    assert queue.park("a", "w", claim.token, TEXT).state == "asking"
    assert queue.questions() == [held.replace(is_parked=True)]
    queue.answer(held.id, "y", "ann")
    assert queue.get("a").previous.answers == ((TEXT, "y", "person"),)
    assert queue.ask("a", "w", queue.claim("w", "a").token, "Another?").id == "q2"


def test_an_answer_that_came_while_the_agent_ended_is_not_lost(
    queue: TaskQueue, claim: Claim
) -> None:
    held = queue.ask("a", "w", claim.token, TEXT)
    queue.answer(held.id, "sqlite", "ann")
    task = queue.park("a", "w", claim.token, TEXT, session="s-1")
    assert (task.state, task.attempts, queue.questions()) == ("ready", 0, [])
    again = queue.claim("w", "a")
    assert again.previous and again.previous.answers == ((TEXT, "sqlite", "person"),)
    assert again.previous.session == "s-1"


def test_a_claim_with_many_held_questions_can_be_parked(queue: TaskQueue, claim: Claim) -> None:
    for number in range(MAX_OPEN):
        queue.ask("a", "w", claim.token, f"number {number}?")
    queue.park("a", "w", claim.token, TEXT)
    assert len(queue.questions()) == MAX_OPEN + 1


def test_all_questions_that_an_agent_held_stay_open_when_it_ends(
    queue: TaskQueue, claim: Claim, store: Store
) -> None:
    for text in ("One?", "Two?", "Three?"):
        queue.ask("a", "w", claim.token, text)
    queue.answer("q1", "1", "ann")
    assert queue.park("a", "w", claim.token, "Two?").state == "asking"
    assert [(each.id, each.is_parked) for each in queue.questions()] == [("q2", True), ("q3", True)]
    *_, (_, last) = StatusLog(store).query("a")
    assert (last["state"], last["meta"]["question"]) == ("WAIT", "q2")
    queue.answer("q3", "3", "ann")
    assert queue.get("a").state == "asking" and queue.holder("a") is None
    with pytest.raises(NoQuestion, match="ann answered first"):
        queue.answer("q3", "4", "bob")
    queue.answer("q2", "2", "boss", "agent")
    again = queue.claim("w", "a")
    assert again.task.attempts == 1 and again.previous is not None
    assert again.previous.answers == (
        ("One?", "1", "person"),
        ("Two?", "2", "agent"),
        ("Three?", "3", "person"),
    )


def test_a_last_question_comes_beside_those_that_are_held(queue: TaskQueue, claim: Claim) -> None:
    queue.ask("a", "w", claim.token, "One?", options=["x", "y"])
    queue.park("a", "w", claim.token, TEXT)
    assert [each.text for each in queue.questions()] == ["One?", TEXT]
    queue.answer("q2", "sqlite", "ann")
    assert queue.answer("a", "y", "ann").id == "q1"
    assert queue.get("a").state == "ready"


def test_a_permission_that_is_held_ends_with_its_tool_call(queue: TaskQueue, claim: Claim) -> None:
    queue.ask("a", "w", claim.token, "May I?", options=["allow", "deny"], kind="permission")
    queue.park("a", "w", claim.token, TEXT)
    assert [each.text for each in queue.questions()] == [TEXT]


def test_the_next_attempt_gets_many_answers(queue: TaskQueue, claim: Claim) -> None:
    for number in range(20):
        queue.ask("a", "w", claim.token, f"number {number}?")
    queue.park("a", "w", claim.token, "number 19?")
    for question in queue.questions():
        queue.answer(question.id, "x", "ann")
    assert len(queue.get("a").previous.answers) == 20


def test_a_parked_question_survives_a_snapshot(queue: TaskQueue, claim: Claim) -> None:
    queue.ask("a", "w", claim.token, TEXT, options=["x", "y"])
    queue.park("a", "w", claim.token, TEXT)
    state, fresh = queue._log().state, QueueState()
    fresh.load(json.loads(json.dumps(state.dump())))
    assert fresh.open_questions() == state.open_questions() != []
