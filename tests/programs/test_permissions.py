"""Permissions and questions of the real programs, answered through swarm."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swarm.queue.questions.question import Question
from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.file.store import FileStore
from tests.support.at_a_terminal import wait_until
from tests.support.model_server import Script, Server
from tests.support.programs.agents import CLAUDE, Desk
from tests.support.programs.model_apis import Call, Say
from tests.support.programs.tasks import add, task, worker

PROMPT = "Please look."
Tmux = Callable[..., str]
ASK = Call(
    "AskUserQuestion",
    {
        "questions": [
            {
                "question": "Which database?",
                "header": "DB",
                "multiSelect": False,
                "options": [
                    {"label": "sqlite", "description": "one file"},
                    {"label": "mysql", "description": "a server"},
                ],
            }
        ]
    },
)


@pytest.fixture
def queue(desk: Desk, project: None) -> TaskQueue:
    """The queue of a project that both programs trust, with swarm set up for them."""
    (desk.home / ".claude.json").write_text(
        json.dumps(
            {
                "hasCompletedOnboarding": True,
                "customApiKeyResponses": {"approved": ["sk-test"]},
                "projects": {
                    str(desk.work): {
                        "hasTrustDialogAccepted": True,
                        "enabledMcpjsonServers": ["swarm"],
                    }
                },
            }
        )
    )
    with (desk.home / ".codex/config.toml").open("a") as file:
        file.write(f'[projects."{desk.work}"]\ntrust_level = "trusted"\n')
        file.write('[notice.model_migrations]\n"gpt-5.5" = "gpt-6-sol"\n')
    (desk.home / ".profile").write_text(f"PATH={desk.environment['PATH']}\n")
    for program in ("claude", "codex"):
        desk.run("swarm", "setup", program, "--yes")
    return TaskQueue(FileStore(str(desk.work / ".swarm")))


def asked(queue: TaskQueue) -> Question:
    wait_until(lambda: len(queue.questions()) == 1)
    return queue.questions()[0]


def records(queue: TaskQueue, desk: Desk) -> list[str]:
    log = StatusLog(FileStore(str(desk.work / ".swarm")))
    return [str(record.get("reason", "")) for _, record in log.query("t1")]


class TestHeadlessClaude:
    @pytest.mark.parametrize("words", ["allow", "no, use a branch"])
    def test_the_agent_of_a_worker_does_what_a_person_allows(
        self, desk: Desk, model: Server, queue: TaskQueue, words: str
    ) -> None:
        effect = desk.directory / "effect"
        model.scripts.append(Script([Say("", (CLAUDE.shell(f"touch {effect}"),)), Say("Done.")]))
        desk.commit()
        add(desk, "--max-attempts", "1")
        with worker(desk, CLAUDE) as process:
            question = asked(queue)
            assert question.text == f"May I use Bash? touch {effect}"
            assert queue.get("t1").state == "asking" and not effect.exists()
            queue.answer(question.id, words, "ann")
            assert process.wait(60) == 0
        assert effect.exists() == (words == "allow")
        assert task(desk)["state"] == "done"  # a person's no is no fault of the attempt
        if words != "allow":
            assert words in model.turns[-1].tool_results[-1]

    def test_the_policy_decides_first_and_the_log_names_the_rule(
        self, desk: Desk, model: Server, queue: TaskQueue
    ) -> None:
        effects = [desk.directory / name for name in ("one", "two")]
        (desk.work / "swarm.toml").write_text(
            f'[policy]\nallow = ["Bash(touch {desk.directory}/*)"]\nwait = 1\n'
        )
        commands = (f"touch {effects[0]}", f"touch {effects[0]}; touch {effects[1]}")
        turns = [Say("", (CLAUDE.shell(command),)) for command in commands]
        model.scripts.append(Script([*turns, Say("Done.")]))
        desk.commit()
        add(desk, "--max-attempts", "1")
        with worker(desk, CLAUDE) as process:
            process.wait(60)
        assert [path.exists() for path in effects] == [True, False]
        assert "[WAIT]" in model.turns[-1].tool_results[-1]
        assert any("policy allows Bash" in reason for reason in records(queue, desk))
        assert queue.questions() == []


@pytest.fixture
def tmux(desk: Desk, queue: TaskQueue) -> Iterator[Tmux]:
    """A tmux server of its own, for one agent that has the task t1."""
    desk.environment |= {"TERM": "xterm-256color", "SWARM_WORKER": "me"}
    add(desk)
    queue.claim("me", "t1")

    def run(*command: str) -> str:
        return desk.run("tmux", "-S", str(desk.directory / "tmux"), *command).stdout

    run("new-session", "-d", "-x", "120", "-y", "40", "sleep 600")
    yield run
    run("kill-server")


def start_claude(tmux: Tmux) -> None:
    tmux("respawn-pane", "-k", "claude", "--permission-mode", "default")
    wait_until(lambda: "❯" in tmux("capture-pane", "-p"))
    tmux("send-keys", PROMPT)
    wait_until(lambda: PROMPT in tmux("capture-pane", "-p"))
    tmux("send-keys", "Enter")


class TestInteractiveClaude:
    def test_the_answer_to_a_question_reaches_the_model(
        self, model: Server, queue: TaskQueue, tmux: Tmux
    ) -> None:
        model.scripts.append(Script([Say("", (ASK,)), Say("Done.")]))
        start_claude(tmux)
        question = asked(queue)
        assert (question.text, question.options) == ("Which database?", ("sqlite", "mysql"))
        queue.answer(question.id, "postgres, please", "ann")
        wait_until(lambda: len(model.turns) == 2)
        assert '"Which database?"="postgres, please"' in model.turns[-1].tool_results[-1]
        wait_until(lambda: queue.get("t1").state == "running")

    @pytest.mark.parametrize("words", ["allow", "deny"])
    def test_a_person_decides_about_a_command(
        self, desk: Desk, model: Server, queue: TaskQueue, tmux: Tmux, words: str
    ) -> None:
        model.scripts.append(Script([Say("", (CLAUDE.shell("touch effect"),)), Say("Done.")]))
        start_claude(tmux)
        question = asked(queue)
        wait_until(lambda: "Do you want to proceed?" in tmux("capture-pane", "-p"))
        queue.answer(question.id, words, "ann")
        wait_until(lambda: len(model.turns) == 2)
        assert (desk.work / "effect").exists() == (words == "allow")
        wait_until(lambda: queue.get("t1").state == "running")

    def test_an_answer_in_the_pane_withdraws_the_question(
        self, desk: Desk, model: Server, queue: TaskQueue, tmux: Tmux
    ) -> None:
        model.scripts.append(Script([Say("", (CLAUDE.shell("touch effect"),)), Say("Done.")]))
        start_claude(tmux)
        asked(queue)
        wait_until(lambda: "❯ 1. Yes" in tmux("capture-pane", "-p"))

        def is_answered() -> bool:
            if "Do you want to proceed?" not in tmux("capture-pane", "-p"):
                return True
            tmux("send-keys", "Enter")  # again: the prompt ignores an early key
            return False

        wait_until(is_answered)
        wait_until(lambda: not queue.questions())
        assert queue.get("t1").state == "running"
        assert (desk.work / "effect").exists()


class TestInteractiveCodex:
    @pytest.mark.parametrize("words", ["allow", "deny"])
    def test_a_person_decides_about_a_command_outside_of_the_sandbox(
        self, desk: Desk, model: Server, queue: TaskQueue, tmux: Tmux, words: str
    ) -> None:
        effect = desk.directory / "effect"
        escalated = {"sandbox_permissions": "require_escalated", "justification": "for the test"}
        call = Call("exec_command", {"cmd": f"touch {effect}", **escalated})
        model.scripts.append(Script([Say("", (call,)), Say("Done.")], prompt=PROMPT))
        tmux(
            *("respawn-pane", "-k", "codex", "--dangerously-bypass-hook-trust"),
            *("--ask-for-approval", "on-request", "--sandbox", "workspace-write", PROMPT),
        )
        question = asked(queue)
        assert question.text == f"May I use Bash? touch {effect}"
        wait_until(lambda: "A person decides: swarm questions" in tmux("capture-pane", "-p"))
        queue.answer(question.id, words, "ann")
        wait_until(lambda: any(turn.tool_results for turn in model.turns))
        assert effect.exists() == (words == "allow")
        if words == "deny":
            assert "A person does not allow it" in model.turns[-1].tool_results[-1]
        wait_until(lambda: queue.get("t1").state == "running")


def test_the_hooks_of_setup_wait_for_a_person(desk: Desk, queue: TaskQueue) -> None:
    for path in (".claude/settings.json", ".codex/hooks.json"):
        hooks = json.loads((Path(desk.work) / path).read_text())["hooks"]
        assert hooks["PermissionRequest"][0]["hooks"][0]["timeout"] == 3600
