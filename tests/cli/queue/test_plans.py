"""`swarm task import` of plans, `swarm task export` and `swarm sprint status`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from swarm.queue.queue import TaskQueue
from swarm.sprint.mutex import SprintMutex
from tests.conftest import ROOT
from tests.support.command_line import run

PLAN = """\
# Plan
- [ ] a1: Schema (priority: 2)
- [x] a2: Old
- [ ] a3: API (after: a1, a2)
- plain
"""
STATUS = "development_status:\n  epic-1: backlog\n  1-1-a: backlog # first\n"


@pytest.fixture(autouse=True)
def place(isolated_swarm_dir: Path) -> Path:
    return isolated_swarm_dir


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "plan.md"
    file.write_text(PLAN)
    return file


def test_a_plan_is_imported_once_and_what_is_no_task_is_said(plan: Path) -> None:
    first = run("task", "import", str(plan))
    assert (first.code, first.out) == (0, b"2 tasks added, 1 done in the file\n")
    assert first.err.decode() == (
        f"Note: {plan}, line 5: not imported: a list item without [ ] is no task\n"
    )
    again = run("task", "import", str(plan), "--json").json
    assert again["added"] == [] and again["known"] == ["a1", "a3"] and again["done"] == ["a2"]
    assert again["format"] == "markdown"
    assert again["notes"][0] | {"text": ""} == {"file": str(plan), "line": 5, "text": ""}
    plan.write_text(PLAN.replace("- [ ] a1", "- [x] a1") + "- [ ] a4: New\n")
    assert run("task", "import", str(plan)).out.startswith(b"1 task added, 1 task was there")
    assert [task.id for task in TaskQueue().tasks()] == ["a1", "a3", "a4"]


def test_a_dry_run_shows_the_tasks_and_changes_nothing(plan: Path) -> None:
    TaskQueue().add("a1", "Schema", priority=2)
    dry = run("task", "import", str(plan), "--dry-run")
    assert dry.out.decode() == (
        "a3 (after a1)\n  API\n1 task would be added, 1 task was there already, "
        "1 done in the file. Nothing was changed.\n"
    )
    found = run("task", "import", str(plan), "--dry-run", "--json").json
    assert found["dry_run"] is True and found["added"] == []
    assert found["tasks"] == [
        {"id": "a1", "prompt": "Schema", "priority": 2, "line": 2, "is_new": False},
        {"id": "a3", "prompt": "API", "after": ["a1"], "line": 4, "is_new": True},
    ]
    assert [task.id for task in TaskQueue().tasks()] == ["a1"]


def test_a_plan_with_a_problem_adds_nothing_and_all_problems_are_said(plan: Path) -> None:
    plan.write_text(PLAN + "- [ ] a5: x (after: gone)\n- [ ] a6: x (priority: high)\n")
    refused = run("task", "import", str(plan))
    assert refused.code == 2 and refused.out == b""
    lines = refused.err.decode().splitlines()
    assert f"Error: {plan}, line 6: a5 comes after gone, but there is no such task" in lines[0]
    assert f"Error: {plan}, line 7 (a6): priority is 'high'" in lines[1]
    answer = run("task", "import", str(plan), "--json").json
    assert answer["exit_code"] == 2 and len(answer["problems"]) == 2 and answer["added"] == []
    assert TaskQueue().tasks() == []


def test_a_task_with_other_fields_is_refused_or_kept(plan: Path) -> None:
    TaskQueue().add("a1", "Another")
    refused = run("task", "import", str(plan))
    assert refused.code == 1 and b"with other fields (prompt, priority)" in refused.err
    kept = run("task", "import", str(plan), "--keep")
    assert kept.out == b"1 task added, 1 kept with other fields, 1 done in the file\n"
    assert TaskQueue().get("a1").spec.prompt == "Another"
    prefixed = run("task", "import", str(plan), "--prefix", "p-")
    assert prefixed.code == 0 and TaskQueue().get("p-a3").spec.after == ("p-a1",)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"- [ ] a\n- [ ] \xff\n", "is not UTF-8 text"),
        (b"- [ ] a1: x\0\n", "line 1 (a1): prompt contains a NUL character"),
    ],
)
@pytest.mark.parametrize("is_stdin", [False, True])
def test_a_file_that_is_no_text_is_refused(
    data: bytes, why: str, is_stdin: bool, plan: Path
) -> None:
    plan.write_bytes(data)
    call = [sys.executable, "-m", "swarm", "task", "import", "-" if is_stdin else str(plan)]
    done = subprocess.run(call, input=data, capture_output=True, check=False, cwd=ROOT)
    assert done.returncode == 2 and why in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_control_characters_of_a_plan_do_not_reach_the_terminal(plan: Path) -> None:
    plan.write_text("- [ ] a1: x\x1b[2J\n- plain\x1b[2J\n- [\x1b] y\n")
    dry = run("task", "import", str(plan), "--dry-run")
    assert dry.code == 0 and b"\x1b" not in dry.out + dry.err


def test_too_long_a_task_adds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    long = "x" * (16 << 20)
    file.write_text(
        '{"id": "a", "prompt": "x"}\n' + json.dumps({"id": "b", "command": long}) + "\n"
    )
    assert run("task", "import", str(file)).code == 2
    assert TaskQueue().tasks() == []


def test_an_export_is_imported_into_another_queue(plan: Path, tmp_path: Path) -> None:
    run("task", "import", str(plan))
    for form in ("jsonl", "json", "yaml", "markdown"):
        exported = tmp_path / f"export.{form.replace('markdown', 'md')}"
        exported.write_bytes(run("task", "export", "--format", form).out)
        again = run("task", "import", str(exported))
        assert again.out == b"0 tasks added, 2 tasks were there already\n", form
    assert run("task", "export", "--json").json["tasks"][1] == {
        "id": "a3",
        "prompt": "API",
        "after": ["a1"],
    }


def test_an_export_says_which_dependencies_it_leaves_out(plan: Path) -> None:
    run("task", "import", str(plan))
    claim = TaskQueue().claim("w", "a1")
    TaskQueue().done("a1", "w", claim.token)
    found = run("task", "export")
    assert found.out == b'{"id": "a3", "prompt": "API"}\n'
    assert b"1 dependency on tasks that are done was left out" in found.err
    everything = run("task", "export", "--state", "all", "--format", "markdown")
    assert everything.out.startswith(b"- [x] Schema (id: a1)") and everything.err == b""
    for args in (("--state", "flying"), ("--format", "toml"), ("--format", "yaml", "--json")):
        assert run("task", "export", *args).code == 2


class TestSprintStatus:
    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs/sprint-status.yaml").write_text(STATUS)
        return tmp_path

    def status(self, project: Path, *args: str) -> tuple[int, dict[str, object]]:
        answer = run("sprint", "status", "--project-root", str(project), *args)
        return answer.code, yaml.safe_load(answer.out)

    def test_without_options_the_states_are_printed(self, project: Path) -> None:
        code, found = self.status(project)
        assert code == 0 and found["status"] == "read"
        assert found["development_status"] == {"epic-1": "backlog", "1-1-a": "backlog"}
        as_json = run("sprint", "status", "--project-root", str(project), "--json").json
        assert as_json["development_status"] == found["development_status"]
        assert os.listdir(project) == ["docs"]

    def test_states_are_set(self, project: Path) -> None:
        code, found = self.status(project, "--set", "1-1=review", "--set", "epic-1 = in-progress")
        assert code == 0 and found["status"] == "written"
        assert found["changed"] == {
            "1-1-a": "backlog -> review",
            "epic-1": "backlog -> in-progress",
        }
        assert (project / "docs/sprint-status.yaml").read_text() == (
            "development_status:\n  epic-1: in-progress\n  1-1-a: review # first\n"
        )

    def test_the_states_of_imported_tasks_are_written_back(self, project: Path) -> None:
        file = str(project / "docs/sprint-status.yaml")
        assert run("task", "import", file).out == b"1 task added\n"
        assert self.status(project, "--from-queue")[1]["status"] == "unchanged"
        claim = TaskQueue().claim("w", "1-1-a")
        assert self.status(project, "--from-queue")[1]["changed"] == {
            "1-1-a": "backlog -> in-progress",
            "epic-1": "backlog -> in-progress",
        }
        TaskQueue().done("1-1-a", "w", claim.token)
        assert self.status(project, "--from-queue")[1]["changed"] == {
            "1-1-a": "in-progress -> done"
        }
        assert run("task", "import", file).out == b"0 tasks added, 1 done in the file\n"

    def test_the_sprint_of_another_session_refuses_the_change(self, project: Path) -> None:
        sprint = subprocess.Popen(["sleep", "60"])
        try:
            SprintMutex(project).acquire("other", "epic1", pid=sprint.pid)
            code, found = self.status(project, "--set", "1-1=done")
            assert code == 1 and found["status"] == "blocked" and found["mode"] == "status"
            assert (project / "docs/sprint-status.yaml").read_text() == STATUS
            assert self.status(project)[0] == 0
            assert self.status(project, "--set", "1-1=done", "--session-id", "other")[0] == 0
        finally:
            sprint.kill()
            sprint.wait()

    @pytest.mark.parametrize(
        "args",
        [
            ("--set", "1-1"),
            ("--set", "=done"),
            ("--set", "1-1=fine"),
            ("--set", "9-9=done"),
            ("--set", "1-1=done", "--set", "1-1=review"),
            ("--set", "1-1=done", "--session-id", " "),
            ("--file", "gone.yaml"),
            ("--file", "\0"),
        ],
    )
    def test_invalid_input_changes_nothing(self, args: tuple[str, ...], project: Path) -> None:
        code, found = self.status(project, *args)
        assert code == 2 and found["status"] == "failure"
        assert (project / "docs/sprint-status.yaml").read_text() == STATUS

    def test_a_file_that_is_no_sprint_status_is_refused(self, project: Path) -> None:
        (project / "docs/sprint-status.yaml").write_text("- a\n")
        assert self.status(project)[0] == 2
        assert run("sprint", "status", "--project-root", str(project), "--file", "docs").code == 3
