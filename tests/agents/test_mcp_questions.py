"""The tools ask, answer and questions: two agents on two servers, and a person."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from swarm.agents.session import AgentSession
from swarm.agents.tools import AgentTools
from swarm.queue.queue import TaskQueue
from swarm.stores.contract import Store
from tests.support.agents.mcp_client import Wire

TEXT = "Which database?"


@pytest.fixture
def queue(isolated_swarm_dir: Path) -> TaskQueue:
    made = TaskQueue()
    made.add("a", "x")
    return made


def answer_soon(queue: TaskQueue, text: str) -> threading.Thread:
    def answer() -> None:
        while not (found := queue.questions()):
            time.sleep(0.01)
        queue.answer(found[0].id, text, "ann")

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_an_agent_asks_and_reads_the_answer_of_a_person(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    with Wire(isolated_swarm_dir, "w") as agent:
        agent.call("claim")
        thread = answer_soon(queue, "2")
        found = agent.call("ask", text=TEXT, options=["mysql", "sqlite"])
        thread.join()
        assert (found["answered"], found["answer"]) == (True, "sqlite")
        assert (found["answered_by"], found["answered_as"]) == ("ann", "person")
        assert not found["must_stop"] and agent.call("done", task="a")["ended"]


def test_a_call_that_waits_too_long_can_be_repeated(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    with Wire(isolated_swarm_dir, "w") as agent:
        agent.call("claim")
        first = agent.call("ask", text=TEXT, wait=0)
        assert (first["answered"], first["waiting"], first["question"]) == (False, True, "q1")
        assert queue.get("a").state == "asking"
        queue.answer("q1", "sqlite", "ann")
        assert agent.call("ask", text=TEXT, wait=0)["answer"] == "sqlite"
        assert agent.call("ask", text=TEXT, wait=0)["question"] == "q2", "the answer was taken"


def test_the_same_question_with_other_settings_is_refused(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    with Wire(isolated_swarm_dir, "w") as agent:
        agent.call("claim")
        agent.call("ask", text=TEXT, wait=0)
        arguments = {"text": TEXT, "wait": 0, "person": True}
        result = agent.request("tools/call", name="ask", arguments=arguments)["result"]
        assert result["isError"] and "other settings (needs)" in result["content"][0]["text"]
        assert queue.questions()[0].needs == "anyone"


def test_a_supervising_agent_answers_where_the_question_allows_it(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    with Wire(isolated_swarm_dir, "w") as agent, Wire(isolated_swarm_dir, "boss") as boss:
        agent.call("claim")
        agent.call("ask", text=TEXT, wait=0)
        agent.call("ask", text="Delete it?", person=True, wait=0)
        seen = boss.call("questions")
        assert [row["text"] for row in seen["questions"]] == [f"«{TEXT}»", "«Delete it?»"]
        assert [row["may_answer"] for row in seen["questions"]] == [True, False]
        assert not any(row["may_answer"] for row in agent.call("questions")["questions"])
        assert not agent.call("answer", question="q1", text="me")["answered"], "its own question"
        assert boss.call("answer", question="q1", text="sqlite")["answered"]
        refused = boss.call("answer", question="q2", text="yes")
        assert not refused["answered"] and "person" in refused["reason"]
        assert not boss.call("answer", question="q1", text="no")["answered"], "the second answer"
        found = agent.call("ask", text=TEXT, wait=0)
        assert (found["answer"], found["answered_as"]) == ("sqlite", "agent")
        assert "not a person" in found["next"]


def test_the_agent_of_a_worker_asks_about_its_assigned_task(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    token = queue.claim("w", "a").token
    names = {"SWARM_TASK_ID": "a", "SWARM_TOKEN": str(token), "SWARM_WORKER": "w"}
    with Wire(isolated_swarm_dir, "", env=names) as agent:
        agent.call("ask", text=TEXT, wait=0)
        queue.answer("a", "sqlite", "ann")
        assert agent.call("ask", text=TEXT, wait=0)["answer"] == "sqlite"
        queue.cancel("a", "ann")
        late = agent.call("ask", text="And now?", wait=0)
        assert late["must_stop"] and not late["answered"]


def test_a_parked_task_comes_with_its_question_and_the_answer(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.park("a", "w", queue.claim("w", "a").token, TEXT)
    queue.answer("a", "sqlite", "ann")
    with Wire(isolated_swarm_dir, "next") as agent:
        assert agent.call("claim")["previous"]["answers"] == [
            {"question": f"«{TEXT}»", "answer": "«sqlite»", "answered_as": "person"}
        ]


def test_an_agent_without_the_task_cannot_ask(queue: TaskQueue, isolated_swarm_dir: Path) -> None:
    with Wire(isolated_swarm_dir, "w") as agent:
        refused = agent.call("ask", text=TEXT, task="a", wait=0)
        assert not refused["answered"] and "not claimed" in refused["reason"]
        assert queue.questions() == []


def test_an_answer_that_the_client_did_not_take_is_given_again(store: Store) -> None:
    queue = TaskQueue(store)
    queue.add("a", "x")
    session = AgentSession(store, "w", 60)
    tools = AgentTools(session)

    def ask() -> dict[str, Any]:
        return tools.ask(lambda: False, TEXT, wait=0)

    try:
        session.claim("a")
        assert ask()["waiting"]
        queue.answer("q1", "sqlite", "ann")
        tools.undo(ask())
        assert ask()["answer"] == "sqlite"
        assert ask()["question"] == "q2"
    finally:
        session.close()
