"""Permission requests and questions of an agent, asked and answered through its hook."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.agents.hook_event import parse
from swarm.agents.hook_request import call_key, tool_call
from swarm.agents.hook_state import HookState
from swarm.locks.table import LockTable
from swarm.project.creation import make_state_dir, plan
from swarm.queue.questions.question import AGENT, Question
from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.file.store import FileStore
from swarm.stores.registry import open_store
from tests.conftest import ROOT
from tests.support.at_a_terminal import wait_until

BASH = {"tool_name": "Bash", "tool_input": {"command": "make deploy", "description": "go live"}}
ASK = {
    "tool_name": "AskUserQuestion",
    "tool_input": {
        "questions": [
            {
                "question": "Which database?",
                "header": "DB",
                "multiSelect": False,
                "options": [
                    {"label": "sqlite", "description": "one file"},
                    {"label": "my\nsql", "description": "a server"},
                ],
            },
            {"question": "Which port?", "header": "Port", "options": [], "multiSelect": False},
        ]
    },
}
HEADLESS = {"CLAUDE_CODE_ENTRYPOINT": "sdk-cli"}

# A hook whose signal comes while Python runs a finalizer, which loses every exception.
_DEAF = """
import contextlib, runpy
from swarm.agents.held_hook import HeldHook
end = HeldHook._end
def lost(self, number, frame):
    with contextlib.suppress(BaseException):
        end(self, number, frame)
HeldHook._end = lost
runpy.run_module("swarm", run_name="__main__")
"""


class Agent:
    """An agent with a task, and the hooks that it starts."""

    def __init__(self, root: Path, state: Path) -> None:
        self.root = root
        self.state = state
        self.store = FileStore(str(state))
        self.queue = TaskQueue(self.store)
        self.started: list[subprocess.Popen[str]] = []

    def claim(self, task: str = "login", ttl: float = 300) -> int:
        self.queue.add(task, f"do {task}")
        return self.queue.claim("me", task, ttl=ttl).token

    def policy(self, text: str) -> None:
        (self.root / "swarm.toml").write_text(f"[policy]\n{text}\n")

    def start(
        self,
        event: str,
        fields: dict[str, Any],
        env: dict[str, str] | None = None,
        program: tuple[str, ...] = ("-m", "swarm", "hook"),
    ) -> subprocess.Popen[str]:
        hook = subprocess.Popen(
            [sys.executable, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.root,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "SWARM_STATE_DIR": str(self.state),
                "SWARM_WORKER": "me",
                **(env or {}),
            },
        )
        self.started.append(hook)
        assert hook.stdin
        hook.stdin.write(json.dumps({"hook_event_name": event, "cwd": str(self.root), **fields}))
        hook.stdin.close()
        hook.stdin = None
        return hook

    def run(
        self, event: str, fields: dict[str, Any] | None = None, env: dict[str, str] | None = None
    ) -> Any:
        """Run a hook to its end, and return its answer, None if it has none."""
        return self.end(self.start(event, fields or {}, env))

    def end(self, hook: subprocess.Popen[str]) -> Any:
        out, err = hook.communicate(timeout=60)
        assert (hook.returncode, err) == (0, "")
        return json.loads(out).get("hookSpecificOutput") if out else None

    def asked(self, count: int = 1) -> list[Question]:
        wait_until(lambda: len(self.queue.questions()) == count)
        return self.queue.questions()

    def states(self, task: str = "login") -> list[str]:
        return [record["state"] for _, record in StatusLog(self.store).query(task)]


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    root = tmp_path / "project"
    root.mkdir()
    make_state_dir(plan(str(root)))
    monkeypatch.delenv("AI_SWARM_DIR", raising=False)
    monkeypatch.setenv("SWARM_STATE_DIR", str(root / ".swarm"))
    made = Agent(root, root / ".swarm")
    yield made
    for hook in made.started:
        if hook.poll() is None:
            hook.kill()
        hook.communicate()


def answer(agent: Agent, question: str, text: str) -> None:
    """Answer as a person does, in a process of its own."""
    script = (
        "import sys; from swarm.queue.queue import TaskQueue\n"
        "TaskQueue().answer(*sys.argv[1:], 'ann')"
    )
    subprocess.run(
        [sys.executable, "-c", script, question, text],
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SWARM_STATE_DIR": str(agent.state)},
    )


class TestPermission:
    def test_a_person_is_asked_with_the_words_of_the_call(self, agent: Agent) -> None:
        token = agent.claim()
        agent.start("PermissionRequest", BASH)
        (question,) = agent.asked()
        assert question.text == "May I use Bash? make deploy"
        assert (question.task_id, question.token, question.worker) == ("login", token, "me")
        assert (question.kind, question.needs) == ("permission", "person")
        assert question.options == ("allow", "deny")
        assert agent.queue.get("login").state == "asking"
        with pytest.raises(Exception, match="person"):
            agent.queue.answer(question.id, "allow", "supervisor", AGENT)

    @pytest.mark.parametrize("words", ["allow", "1", "yes", "OK"])
    def test_allow_lets_the_agent_go_on(self, agent: Agent, words: str) -> None:
        agent.claim()
        hook = agent.start("PermissionRequest", BASH)
        answer(agent, agent.asked()[0].id, words)
        assert agent.end(hook) == {
            "hookEventName": "PermissionRequest",
            "decision": {"behavior": "allow"},
        }
        assert agent.queue.get("login").state == "running"
        assert agent.states()[:2] == ["START", "WAIT"]
        assert sorted(agent.states()[2:]) == ["SKIP", "START"]  # of two processes

    @pytest.mark.parametrize("words", ["deny", "2", "no", "no, use make stage", "not on a Friday"])
    def test_a_word_for_no_or_a_reason_refuses_the_call_and_reaches_the_agent(
        self, agent: Agent, words: str
    ) -> None:
        agent.claim()
        hook = agent.start("PermissionRequest", BASH)
        answer(agent, agent.asked()[0].id, words)
        decision = agent.end(hook)["decision"]
        assert decision["behavior"] == "deny"
        assert decision["message"].startswith("A person does not allow it (ann)")
        assert words in ("deny", "2", "no") or words in decision["message"]

    def test_the_assigned_task_is_the_one_that_asks(self, agent: Agent) -> None:
        token = agent.claim()
        agent.claim("other")
        env = {"SWARM_TASK_ID": "login", "SWARM_TOKEN": str(token)}
        agent.start("PermissionRequest", BASH, env)
        assert agent.asked()[0].task_id == "login"

    def test_two_long_commands_are_two_questions(self, agent: Agent) -> None:
        agent.claim()
        for end in ("a", "b"):
            given = {"command": "x" * 20_000 + end}
            agent.start("PermissionRequest", {"tool_name": "Bash", "tool_input": given})
        first, second = agent.asked(2)
        assert "20001 characters in all" in first.text and first.text != second.text

    def test_an_agent_without_a_task_is_left_to_its_own_prompt(self, agent: Agent) -> None:
        agent.policy('allow = ["Bash"]')
        assert agent.run("PermissionRequest", BASH) is None
        assert agent.run("PermissionRequest", BASH, HEADLESS) is None
        assert agent.queue.questions() == []

    def test_an_answer_that_no_hook_took_does_not_count_for_the_next_call(
        self, agent: Agent
    ) -> None:
        agent.claim()
        first = agent.start("PermissionRequest", BASH)
        (question,) = agent.asked()
        first.kill()
        first.communicate()
        answer(agent, question.id, "allow")
        second = agent.start("PermissionRequest", BASH)
        answer(agent, agent.asked()[0].id, "deny")
        assert agent.end(second)["decision"]["behavior"] == "deny"

    def test_two_calls_that_look_alike_are_two_questions(self, agent: Agent) -> None:
        agent.claim()
        hooks = {}
        for content in ("good", "bad"):
            given = {"file_path": "a.py", "content": content}
            fields = {"tool_name": "Write", "tool_input": given}
            hooks[content] = agent.start("PermissionRequest", fields)
            agent.asked(len(hooks))
        good, bad = agent.asked(2)
        assert good.text == "May I use Write? a.py" and bad.text.startswith(good.text)
        answer(agent, bad.id, "deny")
        answer(agent, good.id, "allow")
        for content, verdict in {"good": "allow", "bad": "deny"}.items():
            assert agent.end(hooks[content])["decision"]["behavior"] == verdict


class TestQuestions:
    def test_the_answers_become_the_input_of_the_tool(self, agent: Agent) -> None:
        agent.claim()
        hook = agent.start("PermissionRequest", ASK)
        database, port = agent.asked(2)
        assert (database.text, database.options) == ("Which database?", ("sqlite", "my sql"))
        assert (database.kind, database.needs, database.is_free) == ("question", "anyone", True)
        answer(agent, port.id, "8080, if it is free")
        answer(agent, database.id, "2")
        assert agent.end(hook)["decision"] == {
            "behavior": "allow",
            "updatedInput": {
                **ASK["tool_input"],  # type: ignore[dict-item]
                "answers": {"Which database?": "my\nsql", "Which port?": "8080, if it is free"},
            },
        }
        assert agent.queue.get("login").state == "running"

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("1,2", "sqlite, my\nsql"),
            (" 2 , SQLite ,", "my\nsql, sqlite"),
            ("my sql", "my\nsql"),
            ("2", "my\nsql"),
            ("1,1,sqlite", "sqlite"),
            ("1, and redis", "sqlite, and redis"),
            ("red, blue", "red, blue"),
            ("4", "red, blue"),
            ("3,4", "3 or more, red, blue"),
            ("1,9", "sqlite, 9"),
            (",", ","),
        ],
    )
    def test_several_options_are_chosen_by_numbers_and_words(
        self, agent: Agent, words: str, expected: str
    ) -> None:
        labels = ("sqlite", "my\nsql", "3 or more", "red, blue")
        options = [{"label": label, "description": ""} for label in labels]
        question = {"question": "Which?", "header": "x", "multiSelect": True, "options": options}
        fields = {"tool_name": "AskUserQuestion", "tool_input": {"questions": [question]}}
        agent.claim()
        hook = agent.start("PermissionRequest", fields)
        (asked,) = agent.asked()
        assert asked.text.startswith("Which?") and "several" in asked.text
        answer(agent, asked.id, words)
        decision = agent.end(hook)["decision"]
        assert decision["updatedInput"]["answers"] == {"Which?": expected}

    def test_a_comma_is_no_choice_if_one_option_is_asked_for(self, agent: Agent) -> None:
        agent.claim()
        hook = agent.start("PermissionRequest", ASK)
        database, port = agent.asked(2)
        assert database.text == "Which database?"
        answer(agent, database.id, "1,2")
        answer(agent, port.id, "1")
        answers = agent.end(hook)["decision"]["updatedInput"]["answers"]
        assert answers == {"Which database?": "1,2", "Which port?": "1"}

    def test_a_rule_that_allows_the_tool_answers_no_question(self, agent: Agent) -> None:
        agent.claim()
        agent.policy('allow = ["*"]')
        agent.start("PermissionRequest", ASK)
        agent.asked(2)


class TestAnsweredElsewhere:
    def test_the_question_is_withdrawn_if_the_agent_ends_the_hook(self, agent: Agent) -> None:
        agent.claim()
        hook = agent.start("PermissionRequest", BASH)
        agent.asked()
        hook.send_signal(signal.SIGTERM)
        out, _ = hook.communicate(timeout=60)
        assert (out, hook.returncode) == ("", 1)
        assert agent.queue.questions() == [] and HookState("me").asks == []
        assert agent.queue.get("login").state == "running"

    def test_the_question_is_withdrawn_if_the_exception_of_the_signal_is_lost(
        self, agent: Agent
    ) -> None:
        agent.claim()
        hook = agent.start("PermissionRequest", BASH, program=("-c", _DEAF, "hook"))
        agent.asked()
        hook.send_signal(signal.SIGTERM)
        out, _ = hook.communicate(timeout=60)
        assert (out, hook.returncode) == ("", 1)
        assert agent.queue.questions() == []

    @pytest.mark.parametrize("event", ["PostToolUse", "PostToolUseFailure"])
    def test_the_end_of_the_tool_withdraws_the_question_and_ends_the_hook(
        self, agent: Agent, event: str
    ) -> None:
        agent.claim()
        hook = agent.start("PermissionRequest", BASH)
        agent.asked()
        same = {"tool_name": "Bash", "tool_input": {"command": "make deploy"}}
        assert agent.run(event, same) is None
        assert agent.queue.questions() == []
        assert agent.end(hook) is None

    def test_the_end_of_another_tool_withdraws_nothing(self, agent: Agent) -> None:
        agent.claim()
        hook = agent.start("PermissionRequest", BASH)
        agent.asked()
        agent.run("PostToolUse", {"tool_name": "Bash", "tool_input": {"command": "ls"}})
        answer(agent, agent.asked()[0].id, "allow")
        assert agent.end(hook)["decision"]["behavior"] == "allow"

    @pytest.mark.parametrize("event", ["UserPromptSubmit", "Stop", "StopFailure"])
    def test_the_end_of_a_turn_withdraws_what_a_killed_hook_has_asked(
        self, agent: Agent, event: str
    ) -> None:
        agent.claim()
        hook = agent.start("PermissionRequest", BASH)
        agent.asked()
        hook.kill()
        hook.communicate()
        agent.run(event)
        assert agent.queue.questions() == [] and HookState("me").asks == []

    def test_an_answered_question_is_no_permission_for_a_later_call(self, agent: Agent) -> None:
        agent.claim()
        for words in ("allow", "deny"):
            hook = agent.start("PermissionRequest", BASH)
            answer(agent, agent.asked()[0].id, words)
            assert agent.end(hook)["decision"]["behavior"] == words

    def test_the_hook_of_a_dead_agent_withdraws_its_question(self, agent: Agent) -> None:
        """The agent here is a process that starts the hook and is killed."""
        agent.claim()
        event = json.dumps({"hook_event_name": "PermissionRequest", "cwd": str(agent.root), **BASH})
        script = (
            "import subprocess, sys, time\n"
            "hook = subprocess.Popen([sys.executable, '-m', 'swarm', 'hook'], stdin=-1)\n"
            "hook.stdin.write(sys.argv[1].encode()); hook.stdin.close(); time.sleep(600)\n"
        )
        parent = subprocess.Popen(
            [sys.executable, "-c", script, event],
            cwd=agent.root,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SWARM_WORKER": "me"},
        )
        try:
            agent.asked()
        finally:
            parent.kill()
            parent.wait()
        agent.asked(0)


class TestTime:
    def test_the_lease_is_renewed_while_the_hook_waits(self, agent: Agent) -> None:
        agent.claim(ttl=2)
        hook = agent.start("PermissionRequest", BASH)
        (question,) = agent.asked()
        until = time.monotonic() + 4
        while time.monotonic() < until:
            assert LockTable(agent.store).status("login").is_held
            time.sleep(0.1)
        answer(agent, question.id, "allow")
        assert agent.end(hook)["decision"] == {"behavior": "allow"}

    def test_an_agent_without_a_terminal_is_refused_and_told_to_end_with_a_question(
        self, agent: Agent
    ) -> None:
        agent.claim()
        agent.policy("wait = 1")
        decision = agent.run("PermissionRequest", BASH, HEADLESS)["decision"]
        assert decision["behavior"] == "deny" and "[WAIT]" in decision["message"]
        assert agent.queue.questions() == [] and agent.queue.get("login").state == "running"

    def test_codex_shows_its_own_prompt_after_the_time(self, agent: Agent) -> None:
        agent.claim()
        agent.policy("wait = 1")
        assert agent.run("PermissionRequest", {**BASH, "turn_id": "t"}) is None
        assert agent.queue.questions() == []
        assert agent.states()[-1] == "WAIT"  # a person must look at the agent's prompt

    def test_without_a_wait_no_question_is_asked(self, agent: Agent) -> None:
        agent.claim()
        agent.policy("wait = 0")
        assert agent.run("PermissionRequest", BASH, HEADLESS) is None
        assert agent.states() == ["START"]

    def test_an_agent_that_has_lost_its_task_must_stop(self, agent: Agent) -> None:
        agent.claim()
        hook = agent.start("PermissionRequest", BASH)
        agent.asked()
        LockTable(agent.store).break_lock("login")
        agent.queue.claim("other", "login")
        decision = agent.end(hook)["decision"]
        assert decision["behavior"] == "deny" and "must_stop" in decision["message"]


class TestPolicy:
    def records(self, agent: Agent) -> list[dict[str, Any]]:
        return [record for _, record in StatusLog(agent.store).query("login")][1:]

    def test_a_rule_decides_at_once_and_the_log_names_it(self, agent: Agent) -> None:
        token = agent.claim()
        agent.policy('allow = ["Bash(make *)"]\ndeny = ["Bash(make deploy)"]')
        denied = agent.run("PermissionRequest", BASH)["decision"]
        assert denied["behavior"] == "deny" and "Bash(make deploy)" in denied["message"]
        given = {"tool_name": "Bash", "tool_input": {"command": "make test"}}
        for env in ({}, HEADLESS):
            allowed = agent.run("PermissionRequest", given, env)["decision"]
            assert allowed == {"behavior": "allow"}
        first, second, _ = self.records(agent)
        assert first["meta"] == {
            "policy": "deny",
            "rule": "Bash(make deploy)",
            "tool": "Bash",
            "token": token,
        }
        assert second["state"] == "SKIP" and "make test" in second["message"]
        assert agent.queue.get("login").state == "running"

    @pytest.mark.parametrize("command", ["make test; rm -rf x", "make test\nrm x", "X=1 make test"])
    def test_more_than_the_rule_means_is_asked(self, agent: Agent, command: str) -> None:
        agent.claim()
        agent.policy('allow = ["Bash(make *)"]')
        agent.start("PermissionRequest", {"tool_name": "Bash", "tool_input": {"command": command}})
        assert agent.asked()[0].text == f"May I use Bash? {command}"

    def test_an_ask_rule_wins_over_an_allow_rule(self, agent: Agent) -> None:
        agent.claim()
        agent.policy('allow = ["Bash"]\nask = ["Bash(make deploy)"]')
        agent.start("PermissionRequest", BASH)
        agent.asked()

    @pytest.mark.parametrize(
        ("text", "fact"),
        [
            ('allow = ["Bash"]\nallowed = []', "line 3"),
            ('allow = ["Bash"]\ndeny = ["rm *"]', "line 3"),
            ('allow = ["Bash"]\ndeny = [', "swarm.toml"),
            ('allow = ["Bash"]\n[other]\nkey = 1', "line 3"),
            ('allow = ["Bash"]\nwait = -1', "line 3"),
        ],
    )
    @pytest.mark.parametrize("env", [{}, HEADLESS], ids=["terminal", "headless"])
    def test_an_invalid_file_allows_nothing_and_the_question_says_so(
        self, agent: Agent, text: str, fact: str, env: dict[str, str]
    ) -> None:
        agent.claim()
        agent.policy(text)
        agent.start("PermissionRequest", BASH, env)
        (question,) = agent.asked()
        assert question.text.startswith("May I use Bash? make deploy (No rule of the policy counts")
        assert "swarm.toml" in question.text and fact in question.text
        assert fact in question.about["policy"]

    def test_an_unreadable_file_allows_nothing(self, agent: Agent) -> None:
        agent.claim()
        (agent.root / "swarm.toml").write_bytes(b"\xff[policy]")
        agent.start("PermissionRequest", BASH)
        assert "swarm.toml" in agent.asked()[0].text

    def test_the_policy_of_a_worktree_does_not_count(self, agent: Agent) -> None:
        """An agent can write the swarm.toml of its workspace."""
        agent.claim()
        (agent.root / "work").mkdir()
        (agent.root / "work/swarm.toml").write_text('[policy]\nallow = ["Bash"]\n')
        agent.start("PermissionRequest", {**BASH, "cwd": str(agent.root / "work")})
        agent.asked()

    def test_a_path_is_compared_after_its_links(self, agent: Agent) -> None:
        (agent.root / ".git").mkdir()
        (agent.root / "src").mkdir()
        (agent.root / "src/link").symlink_to("/etc")
        for path, names in {
            "src/a.py": ("src/a.py",),
            "src/../b.py": ("b.py",),
            "src/link/passwd": ("/etc/passwd",),
            str(agent.root / "src/a.py"): ("src/a.py",),
        }.items():
            assert tool_call(event(agent, "Edit", {"file_path": path})).names == names

    @pytest.mark.parametrize(
        ("tool", "given", "commands", "names"),
        [
            ("Bash", {"command": "ls"}, ("ls",), ()),
            ("Bash", {"command": ["ls", "-l"]}, ("ls -l",), ()),
            ("WebFetch", {"url": "https://x.example/a"}, (), ("https://x.example/a",)),
            ("mcp__x__y", {"z": 1}, (), ()),
            ("Bash", {"command": 7}, (), ()),
        ],
    )
    def test_the_parts_of_a_call(
        self, agent: Agent, tool: str, given: Any, commands: Any, names: Any
    ) -> None:
        found = tool_call(event(agent, tool, given))
        assert (found.tool, found.commands, found.names) == (tool, commands, names)


def event(agent: Agent, tool: str, given: Any) -> Any:
    fields = {"tool_name": tool, "tool_input": given, "cwd": str(agent.root)}
    return parse(json.dumps({"hook_event_name": "PermissionRequest", **fields}))


def test_a_call_has_the_same_name_before_and_after_it(agent: Agent) -> None:
    questions = ASK["tool_input"]
    assert isinstance(questions, dict)
    after = {**questions, "answers": {"Which port?": "1"}, "annotations": {}}
    tool = "AskUserQuestion"
    assert call_key(event(agent, tool, questions)) == call_key(event(agent, tool, after))
    one, other = ({"command": "a", "description": x} for x in "xy")
    assert call_key(event(agent, "Bash", one)) == call_key(event(agent, "Bash", other))
    assert call_key(event(agent, "Bash", {"command": "b"})) != call_key(event(agent, "Bash", one))


def test_questions_are_asked_on_a_server(agent: Agent, redis: Any) -> None:
    url = redis.url("questions")
    store = open_store(url)
    queue = TaskQueue(store)
    queue.add("login", "x")
    queue.claim("me", "login")
    hook = agent.start("PermissionRequest", BASH, {"SWARM_STORE": url})
    wait_until(lambda: bool(queue.questions()))
    queue.answer("login", "allow", "ann")
    assert agent.end(hook)["decision"] == {"behavior": "allow"}
    assert queue.get("login").state == "running"
    store.close()
