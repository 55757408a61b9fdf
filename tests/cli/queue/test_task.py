"""`swarm task`: the queue from a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from swarm.agents import identity
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.stores.file.store import FileStore
from tests.conftest import ROOT, script_environment
from tests.support.command_line import run


@pytest.fixture(autouse=True)
def place(isolated_swarm_dir: Path) -> Path:
    return isolated_swarm_dir


def task(*args: str) -> str:
    answer = run("task", *args)
    assert answer.code == 0, answer
    return answer.out.decode()


def test_how_work_is_checked_landed_and_reviewed_is_asked_for_when_a_task_is_added() -> None:
    checks = ("--check", "make lint", "--check", "make test")
    task("add", "a", "--prompt", "x", *checks, "--land", "main", "--review", "any")
    task("add", "b", "--prompt", "x", "--check", "", "--require-changes")
    a, b = (json.loads(task("show", name, "--json"))["task"] for name in ("a", "b"))
    assert (a["check"], a["land"], a["review"]) == (["make lint", "make test"], "main", "any")
    assert a["require_changes"] is None and b["require_changes"] is True
    assert b["check"] == [] and "check:       none" in task("show", "b")
    assert run("task", "add", "c", "--prompt", "x", "--land", "a b").code == 2


def test_submitted_work_is_listed_and_shown() -> None:
    task("add", "a", "--prompt", "x")
    task("add", "b", "--prompt", "x", "--after", "a")
    queue = TaskQueue()
    token = queue.claim("w", "a").token
    check = {"command": "make", "seconds": 2.0}
    queue.submit("a", "w", token, "did it", work="c0ffee" * 4, branch="main", check=check)
    (line,) = task("list", "--state", "submitted").splitlines()
    assert line.startswith("submitted  a ") and "waits to land on main, work c0ffeec0ffee)" in line
    shown = task("show", "a")
    assert "to land on:  main" in shown and "passed:      make (2.0 s)" in shown
    assert json.loads(task("show", "a", "--json"))["task"]["submission"]["work"] == "c0ffee" * 4
    refused = run("task", "claim", "b", "--worker", "w")
    assert refused.code == 1 and "waits for a" in refused.err.decode()
    waited = run("wait", "a", "--timeout", "0")
    assert waited.code == 1 and "waits to land on main" in waited.err.decode()
    queue.send_back("a", token, "lander", "conflict")
    assert "saved work:  c0ffeec0ffee" in task("show", "a")
    assert json.loads(task("show", "a", "--json"))["previous"]["work"] == "c0ffee" * 4
    queue.landed("a", token, "lander", commit="c0de", branch="main")
    assert "landed:      main c0de, token 1" in task("show", "a")
    assert task("list", "--state", "ready") == "ready      b\n"


def test_a_task_is_added_listed_claimed_and_done() -> None:
    assert task("add", "schema", "--prompt", "Write the schema") == "Task added: schema\n"
    added = task(
        "add",
        "login",
        "--prompt",
        "Fix it",
        "--priority",
        "5",
        "--after",
        "schema",
        "--timeout",
        "60",
        "--meta",
        '{"a": 1}',
    )
    assert added == "Task added: login (waits for schema)\n"
    assert task("add", "build", "--", "make", "all", "--fast") == "Task added: build\n"
    assert (
        task("list") == "ready      schema\nwaiting    login (waits for schema)\nready      build\n"
    )
    claimed = task("claim", "--worker", "w1")
    assert claimed.startswith(
        "Claimed: schema\n  worker:   w1\n  token:    1\n  attempt:  1 of 3\n"
    )
    assert "What to do:\n  Write the schema\n" in claimed
    assert "swarm task done schema --worker w1 --token 1 'what you did'" in claimed
    assert (
        task("done", "schema", "all well", "--worker", "w1", "--token", "1")
        == "Task done: schema\n"
    )
    shown = task("show", "login")
    assert shown.startswith(
        "login: ready\n  priority:    5\n  after:       schema\n  attempts:    0 of 3\n  "
        "timeout:     60 s\n"
    )
    assert "DONE   w1  all well" in task("show", "schema")
    assert "Command to run:\n  make all --fast\n" in task("claim", "build", "--worker", "w2")


def test_task_commands_answer_with_one_json_object() -> None:
    run("task", "add", "a", "--prompt", "x")
    claimed = run("task", "claim", "--worker", "w", "--json").json
    assert (claimed["claimed"], claimed["must_stop"], claimed["task_id"], claimed["token"]) == (
        True,
        False,
        "a",
        1,
    )
    listed = run("task", "list", "--json").json
    assert listed["counts"] == {"running": 1} and listed["tasks"][0]["worker"] == "w"
    shown = run("task", "show", "a", "--json").json
    assert (
        shown["task"]["state"] == "running"
        and shown["lock"]["token"] == 1
        and shown["history"][0]["state"] == "START"
    )
    assert run("task", "done", "a", "--worker", "w", "--json").json["task"]["state"] == "done"


def test_a_worker_that_gets_no_task_is_told_to_stop_and_why() -> None:
    empty = run("task", "claim", "--worker", "w", "--json")
    assert empty.code == 1
    assert empty.json == {
        "schema_version": 1,
        "claimed": False,
        "must_stop": True,
        "why": "empty",
        "reason": "the queue is empty: no task was ever added.",
        "held_by": {},
        "ready_in": None,
        "next": "Stop: do not work on any task. There is nothing to wait for.",
    }
    run("task", "add", "a", "--prompt", "x")
    run("task", "claim", "--worker", "w1")
    busy = run("task", "claim", "--worker", "w2")
    assert busy.code == 1 and b"Error: no task is free now" in busy.err
    assert busy.out.decode() == (
        "Not claimed.\n  a is held by w1\n"
        "Stop: do not work on any task now. To wait for one: swarm task claim --worker w2 --wait "
        "300\n"
    )
    held = run("task", "claim", "a", "--worker", "w2", "--json").json
    assert (held["why"], held["held_by"]) == ("held", {"a": "w1"})
    run("task", "done", "a", "--worker", "w1")
    assert run("task", "claim", "--worker", "w2", "--json").json["why"] == "finished"
    assert run("task", "claim", "nope", "--worker", "w2", "--json").json["why"] == "unknown"
    assert run("task", "claim", "a", "--worker", "w2", "--json").json["why"] == "state"


def test_the_reason_of_a_refused_claim_comes_before_the_advice() -> None:
    script = f"exec {sys.executable} {ROOT}/swarm/__main__.py task claim b --worker w 2>&1"
    done = subprocess.run(
        ["sh", "-c", script], env=script_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout.index("there is no task b") < done.stdout.index("Not claimed.")


def test_the_advice_of_a_refused_claim_names_the_task() -> None:
    run("task", "add", "a", "--prompt", "x")
    run("task", "claim", "a", "--worker", "w1")
    advice = run("task", "claim", "a", "--worker", "w2", "--json").json["next"]
    assert "do not work on a now" in advice and "any task" not in advice
    assert advice.endswith("swarm task claim a --worker w2 --wait 300")
    run("task", "done", "a", "--worker", "w1")
    over = run("task", "claim", "a", "--worker", "w2", "--json").json["next"]
    assert "do not work on a" in over and "--wait" not in over


def test_a_worker_without_a_claim_is_told_to_claim_first() -> None:
    run("task", "add", "a", "--prompt", "x")
    answer = run("task", "done", "a", "--worker", "w1")
    assert answer.code == 4 and b"w1 has no claim on a: the task is ready" in answer.err
    assert answer.err.endswith(b"Claim it first: swarm task claim a --worker w1\n")
    assert b"any more" not in answer.err, "it never had the task"


def test_a_wrong_token_of_the_right_worker_is_told_the_token_of_the_claim() -> None:
    run("task", "add", "a", "--prompt", "x")
    run("task", "claim", "a", "--worker", "w1")
    answer = run("task", "done", "a", "--worker", "w1", "--token", "7")
    assert answer.code == 4 and b"w1 has a with token 1, not with token 7" in answer.err
    assert b"older process of w1, stop" in answer.err and b"any more" not in answer.err


@pytest.mark.parametrize("command", ["done", "fail", "release"])
def test_a_worker_name_that_swarm_chose_is_explained(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SWARM_WORKER", raising=False)
    run("task", "add", "a", "--prompt", "x")
    chosen = run("task", command, "a")
    assert chosen.code == 4 and identity.whoami().encode() in chosen.err
    assert b"neither --worker nor SWARM_WORKER" in chosen.err
    assert b"SWARM_WORKER" not in run("task", command, "a", "--worker", "w").err
    monkeypatch.setenv("SWARM_WORKER", "w")
    assert b"SWARM_WORKER" not in run("task", command, "a").err


def test_a_task_cannot_come_after_itself() -> None:
    answer = run("task", "add", "b", "--after", "b", "--prompt", "x")
    assert answer.code == 2 and b"b cannot come after itself" in answer.err


def test_claim_with_wait_waits_for_a_task() -> None:
    run("task", "add", "a", "--prompt", "x")
    claim = TaskQueue().claim("w1")
    command = [
        sys.executable,
        str(ROOT / "swarm" / "__main__.py"),
        "task",
        "claim",
        "--worker",
        "w2",
        "--wait",
        "30",
        "--json",
    ]
    with subprocess.Popen(command, env=script_environment(), stdout=subprocess.PIPE) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=0.7)
        TaskQueue().release("a", "w1", claim.token)
        out, _ = waiting.communicate(timeout=20)
    assert json.loads(out)["task_id"] == "a"


def test_a_late_worker_is_refused_with_exit_code_4() -> None:
    run("task", "add", "a", "--prompt", "x")
    run("task", "claim", "--worker", "w1")
    LockTable(FileStore(os.environ["AI_SWARM_DIR"])).break_lock("a")
    run("task", "claim", "--worker", "w2")
    late = run("task", "done", "a", "--worker", "w1", "--token", "1", "--json")
    assert (
        late.code == 4
        and late.json["exit_code"] == 4
        and "Stop working on the task" in late.json["error"]
    )
    assert "DONE with token 1 was refused" in task("show", "a")
    assert (
        task("list")
        == f"running    a (worker: w2, since {TaskQueue().get('a').since}, attempt 2 of 3; "
        "before: its worker w1 was gone)\n"
    )


def test_task_fail_release_retry_and_cancel_change_the_state() -> None:
    run("task", "add", "a", "--prompt", "x", "--max-attempts", "2")
    run("task", "claim", "--worker", "w")
    assert (
        task("fail", "a", "boom", "--worker", "w")
        == "Attempt failed: a is ready again, 1 attempt left\n"
    )
    run("task", "claim", "--worker", "w")
    assert task("release", "a", "--worker", "w") == "Task released: a\n"
    run("task", "claim", "--worker", "w")
    assert (
        task("fail", "a", "boom again", "--worker", "w", "--final")
        == "Attempt failed: a is failed\n"
    )
    assert task("list", "--state", "failed") == "failed     a (boom again)\n"
    assert task("retry", "--failed") == "Task ready again: a\n"
    assert task("retry", "--failed") == "No failed tasks\n"
    assert task("cancel", "a", "not needed") == "Task cancelled: a\n"
    assert task("list") == "cancelled  a (not needed)\n"
    assert task("retry", "a") == "Task ready again: a\n"
    assert task("list", "--state", "done") == "No done tasks\n"


def test_task_cancel_says_which_worker_must_stop_first() -> None:
    run("task", "add", "a", "--prompt", "x")
    token = TaskQueue().claim("w").token
    lock = TaskQueue().holder("a")
    assert lock is not None
    for said in (task("cancel", "a"), task("retry", "a")):
        assert "w stops at its next heartbeat" in said and lock.expires_at in said
    assert b"no heartbeat counts, since the task was cancelled" in run("lock", "why", "a").out
    late = run("lock", "heartbeat", "a", "w")
    assert late.code == 4 and b"a was cancelled" in late.err
    assert run("task", "claim", "a", "--worker", "v").code == 1
    assert run("task", "done", "a", "--worker", "w", "--token", str(token)).code == 4
    assert run("task", "claim", "a", "--worker", "v").code == 0
    answer = run("task", "cancel", "a", "--json").json
    assert answer["cancelled"] and answer["is_stopping"]


def test_the_token_of_the_environment_counts_for_its_task_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run("task", "add", "a", "--prompt", "x")
    run("task", "claim", "--worker", "w1")
    monkeypatch.setenv("SWARM_WORKER", "w1")
    monkeypatch.setenv("SWARM_TASK_ID", "a")
    monkeypatch.setenv("SWARM_TOKEN", "0")
    assert run("task", "done", "a").code == 4
    monkeypatch.setenv("SWARM_TASK_ID", "another")
    assert run("task", "done", "a").code == 0


def test_an_invalid_token_of_the_environment_is_named_as_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run("task", "add", "a", "--prompt", "x")
    monkeypatch.setenv("SWARM_TASK_ID", "a")
    monkeypatch.setenv("SWARM_TOKEN", "x")
    answer = run("task", "done", "a", "--worker", "w")
    assert answer.code == 2 and answer.err.startswith(b"Error: SWARM_TOKEN is 'x'")


def test_tasks_are_imported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text('{"id": "a", "prompt": "x"}\n{"id": "b", "prompt": "x", "after": ["a"]}\n')
    assert task("import", str(file)) == "2 tasks added\n"
    file.write_text(file.read_text() + '{"id": "c", "prompt": "x"}\n')
    assert task("import", str(file)) == "1 task added, 2 tasks were there already\n"
    assert run("task", "import", str(file), "--json").json == {
        "schema_version": 1,
        "added": [],
        "known": ["a", "b", "c"],
        "format": "jsonl",
        "kept": [],
        "done": [],
        "notes": [],
    }
    file.write_text('{"id": "a", "prompt": "another"}\n{"id": "d", "prompt": "x"}\n')
    changed = run("task", "import", str(file))
    assert changed.code == 1 and b"the task a exists already, with other fields" in changed.err
    assert [task.id for task in TaskQueue().tasks()] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("args", "rule"),
    [
        (("add",), "needs TASK"),
        (("add", "a"), "--prompt TEXT or -- COMMAND"),
        (("add", "../x", "--prompt", "x"), "slash"),
        (("add", "a", "--prompt", "x", "--priority", "high"), "--priority is 'high'"),
        (("add", "a", "--prompt", "x", "--max-attempts", "0"), "from 1 to"),
        (("add", "a", "--prompt", "x", "--timeout", "-3"), "--timeout"),
        (("add", "a", "--prompt", "x", "--meta", "[1]"), "must be a JSON object"),
        (("add", "a", "--prompt", "x", "--meta", "{"), "is not JSON"),
        (("add", "a", "--prompt", "x", "--after", "b"), "there is no such task"),
        (("import", "/nowhere"), "there is no file /nowhere"),
        (("import", "/"), "is a directory"),
        (("list", "--state", "flying"), "not a state"),
        (("claim", "--worker", "w", "--ttl", "0"), "--ttl"),
        (("done", "a", "--worker", "w", "--token", "x"), "--token is 'x'"),
        (("retry",), "retry needs a task"),
        (("retry", "a", "--failed"), "--failed"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    place: Path, args: tuple[str, ...], rule: str
) -> None:
    answer = run("task", *args)
    assert answer.code == 2 and rule in answer.err.decode()
    assert not place.exists()


def test_a_claim_without_a_name_belongs_to_the_agent_running_the_command(place: Path) -> None:
    run("task", "add", "a", "--prompt", "x")
    assert run("task", "claim").code == 0
    assert TaskQueue().get("a").worker == identity.find().worker
    assert run("task", "done", "a").code == 0 and TaskQueue().get("a").state == "done"


def test_a_claim_asks_for_a_name_where_the_agent_is_unknown(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "find", lambda: identity.AgentProcess(0, ""))
    answer = run("task", "claim")
    assert answer.code == 2 and b"--worker NAME" in answer.err and not place.exists()


@pytest.mark.parametrize("command", ["show", "done", "fail", "release", "retry", "cancel"])
def test_an_unknown_task_is_exit_code_1(command: str) -> None:
    args = ("--worker", "w") if command in ("done", "fail", "release") else ()
    answer = run("task", command, "a", *args)
    assert answer.code == 1 and b"there is no task a." in answer.err


def test_task_add_reads_a_prompt_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [
        sys.executable,
        str(ROOT / "swarm" / "__main__.py"),
        "task",
        "add",
        "a",
        "--prompt",
        "-",
    ]
    subprocess.run(
        command,
        env=script_environment(),
        input="many\nlines\n",
        text=True,
        check=True,
        capture_output=True,
    )
    assert TaskQueue().get("a").spec.prompt == "many\nlines\n"


def test_text_written_by_agents_cannot_move_the_cursor() -> None:
    run("task", "add", "a", "--prompt", "\x1b[2Jgone\r\nforged: done")
    run("task", "claim", "--worker", "w")
    run("task", "fail", "a", "\x1b]0;title\x07\nrunning    b", "--worker", "w")
    for args in (("list",), ("show", "a"), ("claim", "--worker", "w")):
        out = run("task", *args).out.decode()
        assert "\x1b" not in out and "\r" not in out
        assert not any(line.startswith("running    b") for line in out.splitlines())


def test_a_ready_task_with_a_command_says_which_worker_it_needs(isolated_swarm_dir: Path) -> None:
    assert run("task", "add", "a", "--", "true").code == 0
    assert b"--allow-commands" in run("task", "show", "a").out
    assert run("task", "add", "b", "--prompt", "x").code == 0
    assert b"--allow-commands" not in run("task", "show", "b").out
