"""The documents tell the truth: examples run, records are valid, tables match the code.

- A ```console block: lines that begin with `$ ` (and go on with `> `) are run by bash,
  what follows is what they must print. All blocks of a `##` section share one session.
  Times, durations, identities and the state directory may differ; `...` stands for
  anything, alone on a line for any lines.
- A ```python block is run by itself. What a line that begins with `print(` prints
  stands behind it as a comment.
- A ```sh or ```python block whose first line is `# file: NAME` is put there for the
  session of its section.
- A ```toml block is a swarm.toml.
- A ```json record or ```json lock block holds values of that schema.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bench import report
from swarm import errors
from swarm.admin import validation
from swarm.board import board as view
from swarm.board import text as board_text
from swarm.board.viewer import Viewer
from swarm.cli import lock as cli_lock
from swarm.cli import log as cli_log
from swarm.cli import run as cli_run
from swarm.cli.queue import questions, task
from swarm.locks.companions import slot_variables, text_of
from swarm.locks.lease import Lease
from swarm.locks.record import decode
from swarm.locks.table import LockTable
from swarm.project.config import Config, Hooks, OwnAgent, Progress, parse
from swarm.project.keys import REQUIRED, Key, keys_of
from swarm.project.notify_table import NotifyTable
from swarm.project.policy import Policy
from swarm.project.prompts import Prompts
from swarm.queue.events import STATES as TASK_STATES
from swarm.queue.questions.question import Question
from swarm.queue.queue import TaskQueue, TaskSpec
from swarm.status.log import STATES
from swarm.stores.default import default_store
from swarm.stores.location import Location
from swarm.stores.secrets import NOTIFY_PREFIX
from swarm.workers import command as agent_command
from tests.conftest import ROOT, Run, script_environment
from tests.support.documents import DOCUMENTS, Block, blocks, blurred, quoted, tables
from tests.support.model_server import Script, serving
from tests.support.programs.agents import CLAUDE, Desk
from tests.support.programs.model_apis import Say
from tests.support.schemas import SCHEMAS

EXECUTED = [
    "README.md",
    "docs/guide/getting-started.md",
    "docs/how-to/be-notified.md",
    "docs/reference/hooks.md",
    "docs/reference/notifications.md",
    "docs/reference/permissions.md",
    "docs/reference/plans.md",
    "docs/reference/projects.md",
    "docs/reference/queue.md",
    "docs/reference/questions.md",
    "docs/how-to/answer-questions.md",
    "docs/how-to/run-agents.md",
    "docs/how-to/set-up-agents.md",
    "docs/reference/sprint.md",
    "docs/STATUS_PROTO.md",
    "docs/reference/stores.md",
    "docs/reference/view.md",
]
MARK = "@@ the command has ended @@"


def found(kind: str) -> list[Block]:
    return [block for document in EXECUTED for block in blocks(document) if block.info == kind]


def as_pattern(expected: str) -> str:
    """A regular expression for what is expected, `...` standing for anything."""
    any_lines, anything = "(?:.*\n)*", ".*"
    return "".join(
        any_lines if line == "..." else re.escape(line).replace(re.escape("..."), anything) + "\n"
        for line in expected.splitlines()
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a directory that looks like a checkout to the examples."""
    place = tmp_path / "checkout"
    place.mkdir()
    for name in ("scripts", "swarm"):
        (place / name).symlink_to(ROOT / name)
    return place


def run(
    args: list[str], text: str, checkout: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environment = environment or script_environment(
        SWARM_STATE_DIR=str(checkout.parent / "state"),
        PYTHONDONTWRITEBYTECODE="1",
        LC_ALL="C.UTF-8",
    )
    return subprocess.run(
        args, input=text, cwd=checkout, env=environment, capture_output=True, text=True, timeout=100
    )


def project_of(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return an empty directory, and an environment with a command `swarm` and no state
    directory.
    """
    (folder / "bin").mkdir()
    command = folder / "bin" / "swarm"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P {ROOT}/swarm/__main__.py "$@"\n')
    command.chmod(0o755)
    (folder / "project").mkdir()
    environment = script_environment(LC_ALL="C.UTF-8", HOME=str(folder))
    environment["PATH"] = f"{command.parent}:{environment['PATH']}"
    for name in ("SWARM_STATE_DIR", "AI_SWARM_DIR"):
        environment.pop(name, None)
    return folder / "project", environment


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A project with the real claude, whose model does what the examples ask for."""
    hello = [write("hello.py", 'print("Hello, world!")'), Say("hello.py says hello.")]
    tests = [write("test_hello.py", "import hello"), Say("hello.py has a test.")]
    index = [write("index.html", "<p>"), Say("The pages are linked.")]
    # Claude Code also tells its model the last commits, which name the tasks before: the
    # last task comes first.
    scripts = [
        Script(tests, prompt="Write a test for it"),
        Script(hello, prompt="Write hello.py"),
        Script(index, prompt="Link the pages"),
    ]
    for number in range(1, 6):
        page = [write(f"page-{number}.html", "<p>"), Say(f"Page {number} is written.")]
        scripts.append(Script(page, prompt=f"Write page {number}"))
    with serving(*scripts) as model:
        yield Desk(tmp_path / "desk", model)


def write(path: str, line: str) -> Say:
    return Say("", (CLAUDE.write(path, f"{line}\n"),))


# The examples -------------------------------------------------------------------------

SESSIONS = sorted({(block.document, block.section) for block in found("console")})


def dialogue(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with its expected output."""
    steps: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], ""))
        elif line.startswith("> ") and not steps[-1][1]:
            steps[-1] = (f"{steps[-1][0]}\n{line[2:]}", "")
        else:
            assert steps, f"a console block begins with a command, not with {line!r}"
            steps[-1] = (steps[-1][0], steps[-1][1] + line + "\n")
    return steps


@pytest.mark.parametrize(
    ("document", "section"), SESSIONS, ids=[f"{name}: {section}" for name, section in SESSIONS]
)
def test_what_the_documents_show_is_what_the_commands_print(
    document: str, section: str, checkout: Path, request: pytest.FixtureRequest
) -> None:
    here = [block for block in blocks(document) if block.section == section]
    environment = None
    if any("swarm up --agent claude" in block.text for block in here if block.info == "console"):
        desk: Desk = request.getfixturevalue("desk")
        checkout, environment = desk.work, desk.environment
    elif any("$ swarm init" in block.text for block in here if block.info == "console"):
        checkout, environment = project_of(checkout.parent)
    for block in here:
        if named := re.match(r"# file: (\S+)\n", block.text):
            (checkout / named[1]).write_text(block.text)
    steps = [step for block in here if block.info == "console" for step in dialogue(block.text)]
    # The mark keeps $?, so that a document may show `echo $?`.
    ended = (
        f"ended() "
        f"{{ local code=$?; printf '%s\\n' {shlex.quote(MARK)}; return $code; }}\nexec 2>&1\n"
    )
    script = checkout.parent / "session.sh"
    script.write_text(ended + "".join(f"{command}\nended\n" for command, _ in steps))
    done = run(["bash", "--norc", str(script)], "", checkout, environment)
    printed = done.stdout.split(MARK + "\n")
    assert len(printed) == len(steps) + 1 and not printed[-1], done.stdout
    for (command, expected), output in zip(steps, printed, strict=False):
        wanted, got = blurred(expected), blurred(output, checkout.parent / "state")
        assert re.fullmatch(as_pattern(wanted), got), (
            f"$ {command}\nThe document says:\n{wanted}\nIt printed:\n{got}"
        )


def test_a_program_that_appends_as_documented_loses_no_record_to_a_rotation(checkout: Path) -> None:
    (text,) = (block.text for block in found("sh") if block.text.startswith("# file: record.sh\n"))
    opened = '  exec 3>>"$log"\n'
    assert opened in text
    rotate_once = (
        "  if [ ! -e rotated ]; then scripts/swarm_status_log.sh rotate && touch rotated; fi\n"
    )
    (checkout / "record.sh").write_text(text.replace(opened, opened + rotate_once))
    script = (
        "scripts/swarm_status_log.sh append START w before && sh record.sh DONE w mine && "
        "scripts/swarm_status_log.sh query mine"
    )
    done = run(["bash", "--norc"], script, checkout)
    assert (checkout / "rotated").exists()
    assert [json.loads(line)["type"] for line in done.stdout.splitlines() if '"mine"' in line] == [
        "DONE"
    ]


@pytest.mark.parametrize(
    "block", [block for block in found("python") if "# file:" not in block.text], ids=str
)
def test_what_the_python_examples_say_they_print_is_printed(block: Block, checkout: Path) -> None:
    expected = [
        comment for line in block.text.splitlines() if (comment := _printed(line)) is not None
    ]
    assert expected, "an example prints something, so that it can be compared"
    done = run([sys.executable, "-"], block.text, checkout)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == expected


def _printed(line: str) -> str | None:
    if not line.strip().startswith("print("):
        return None
    _, gap, comment = line.rpartition("  # ")
    assert gap, f"what does this print? {line}"
    return comment


@pytest.mark.parametrize("kind", ["record", "lock"])
def test_the_records_shown_are_valid(kind: str) -> None:
    schema = SCHEMAS[{"record": "status-record", "lock": "lock"}[kind]]
    shown = [value for block in found(f"json {kind}") for value in _values(block.text)]
    assert len(shown) >= 3
    for value in shown:
        jsonschema.Draft202012Validator(schema).validate(value)
        text = json.dumps(value, ensure_ascii=False).encode()
        assert (
            list(
                validation.record_faults(text)
                if kind == "record"
                else validation.lock_faults(text, value["task_id"])
            )
            == []
        )
        assert kind == "record" or decode(text, value["task_id"]) is not None


def _values(text: str) -> Iterator[Any]:
    while text := text.lstrip():
        value, end = json.JSONDecoder().raw_decode(text)
        yield value
        text = text[end:]


def test_every_block_of_a_known_language_is_looked_at() -> None:
    known = {"console", "python", "sh", "json record", "json lock", "toml", "js", ""}
    assert {block.info for document in DOCUMENTS for block in blocks(document)} <= known
    unnamed = [str(block) for block in found("sh") if not block.text.startswith("# file: ")]
    assert len(unnamed) == 1, (
        "only the two commands at the top of README.md stand in a block that is not run"
    )


@pytest.mark.parametrize("block", found("toml"), ids=str)
def test_a_swarm_toml_of_a_document_is_valid(block: Block) -> None:
    assert parse(block.text, str(block)) != Config()


# The two commands at the top ----------------------------------------------------------


def test_the_readme_opens_with_two_commands_that_exist() -> None:
    first = next(blocks("README.md"))
    commands = [line.partition("#")[0].split() for line in first.text.splitlines()]
    assert commands == [["python3", "-m", "swarm", "demo"], ["make", "test"]]
    assert re.search(r"^test:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-m", "swarm", "demo", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


# Complaints ---------------------------------------------------------------------------


def test_every_complaint_names_a_test_that_shows_what_is_done_about_it() -> None:
    text = (ROOT / "docs/how-to/troubleshooting.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:-1]
    assert len(sections) == 10
    assert all("*You:*" in section and "*Shown by:* `tests/" in section for section in sections)


# Tables and code ----------------------------------------------------------------------

COMMANDS = {
    **{f"swarm lock {name}": command for name, command in cli_lock.COMMANDS.items()},
    **{f"swarm log {name}": command for name, command in cli_log.COMMANDS.items()},
    "swarm run": cli_run.COMMAND,
}


def test_every_command_is_documented_with_its_usage_and_no_other() -> None:
    (table,) = tables("docs/STATUS_PROTO.md", "Commands")
    documented = {usage for row in table for usage in quoted(row[0])}
    assert documented - {"swarm demo"} == {
        " ".join([name, *command.usage]) for name, command in COMMANDS.items()
    }


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_that_is_mentioned_exists(document: str) -> None:
    text = (
        (ROOT / document)
        .read_text()
        .replace("swarm_lock.sh", "swarm lock")
        .replace("swarm_status_log.sh", "swarm log")
    )
    for group, name in re.findall(r"\bswarm (lock|log) ([a-z][a-z-]+)", text):
        assert f"swarm {group} {name}" in COMMANDS, f"{document} mentions swarm {group} {name}"


def test_every_environment_variable_is_documented_and_no_other() -> None:
    (rows,) = tables("README.md", "Where state lives")
    documented = {name for row in rows for name in quoted(row[0])}
    code = "".join(path.read_text() for path in (ROOT / "swarm").rglob("*.py"))
    scripts = "".join(
        path.read_text() for path in (ROOT / "scripts").glob("swarm_*.sh") if "e2e" not in path.name
    )
    read = set(re.findall(r'(?:environ(?:\.get\(|\[)|\bvariable\()"(\w+)"', code)) | set(
        re.findall(r"\$\{([A-Z_]+):-", scripts)
    )
    read |= set(re.findall(r'"(ETCDCTL_\w+)"', code))
    read |= set(re.findall(r'\bvariable="(\w+)"', code))  # of agents in `swarm setup`
    assert documented == read
    for document in DOCUMENTS:
        mentioned = set(re.findall(r"\b(?:AI_)?SWARM_[A-Z_]+", (ROOT / document).read_text()))
        users = {name for name in mentioned if name.startswith((NOTIFY_PREFIX, "SWARM_SLOT_"))}
        known = {*documented, *_found_by_agents(), *_found_by_a_forge(), *users}
        assert mentioned <= known, document


def _found_by_agents() -> list[str]:
    (rows,) = tables("docs/reference/queue.md", "What the agent finds")
    return [name for row in rows for name in quoted(row[0])]


def _found_by_a_forge() -> list[str]:
    (rows,) = tables("docs/reference/landing.md", "What the command finds")
    return [name for row in rows for name in quoted(row[0])]


def test_every_variable_that_an_agent_finds_is_documented_and_no_other(
    isolated_swarm_dir: Path,
) -> None:
    queue = TaskQueue()
    queue.add("a", "x")
    queue.fail("a", "w", queue.claim("w").token, "no disk")
    queue.park("a", "w", queue.claim("w").token, "Which disk?")
    queue.answer("a", "the other one", "ann")
    given = agent_command.environment_for(queue.claim("w"), agent="claude")
    given["SWARM_WORKSPACE"] = "of an attempt with a workspace"
    given |= slot_variables({"name": ["1"]})
    assert sorted(_found_by_agents()) == sorted(name for name in given if "SWARM" in name)


def test_every_field_and_every_state_of_a_task_is_documented_in_order() -> None:
    (fields,), (states,) = (
        tables("docs/reference/queue.md", "Tasks"),
        tables("docs/reference/queue.md", "States"),
    )
    assert [quoted(row[0])[0] for row in fields] == list(TaskSpec.field_names())
    assert [quoted(row[0])[0] for row in states] == list(TASK_STATES)


def test_every_setting_of_swarm_toml_is_documented_in_order() -> None:
    for table, record in zip(
        tables("docs/reference/projects.md", "swarm.toml"),
        (Config, Hooks, Policy, Prompts, Progress, OwnAgent, NotifyTable),
        strict=True,
    ):
        assert [(quoted(row[0])[0], row[1], row[2]) for row in table] == [
            (name, _default(key), key.text) for name, key in keys_of(record).items()
        ]


def _default(key: Key) -> str:
    if key.default is REQUIRED:
        return "required"
    return (
        "none"
        if key.default is None or key.kind is dict or key.table
        else f"`{json.dumps(key.default)}`"
    )


def test_the_keys_of_the_view_are_documented_in_order(isolated_swarm_dir: Path) -> None:
    (table,) = tables("docs/reference/view.md", "For programs")
    board = Viewer(default_store()).look()
    assert [quoted(row[0])[0] for row in table] == list(board.fields())
    for row, kind in (
        (2, Location),
        (3, view.QuestionRow),
        (4, view.Problem),
        (5, view.ActiveTask),
        (6, view.LockRow),
        (8, view.WorkerLastSeen),
    ):
        assert quoted(table[row][1]) == list(kind.field_names())


def test_every_kind_of_problem_is_documented_in_order() -> None:
    (table,) = tables("docs/reference/view.md", "One screen")
    assert [quoted(row[0])[0] for row in table] == [
        board_text._LABELS[kind][0] for kind in view.KINDS
    ]


def test_every_command_of_the_queue_is_documented() -> None:
    (table,) = tables("docs/reference/queue.md", "Claiming by hand, or by an agent with a shell")
    assert [quoted(row[0])[0] for row in table] == [f"swarm task {name}" for name in task.COMMANDS]


def test_every_command_about_questions_is_documented_with_its_usage() -> None:
    (table,) = tables("docs/reference/questions.md", "Questions")
    assert [quoted(row[0])[0].replace("\\|", "|") for row in table] == [
        " ".join([f"swarm {name}", *command.usage]) for name, command in questions.COMMANDS.items()
    ]


def test_every_field_of_a_question_is_documented_in_order() -> None:
    (table,) = tables("docs/reference/questions.md", "For programs")
    assert [quoted(row[0])[0] for row in table] == list(Question.field_names())


def test_every_exit_code_is_documented_and_no_other() -> None:
    (table,) = tables("docs/STATUS_PROTO.md", "Exit codes")
    assert [int(row[0]) for row in table] == sorted(
        {0, *(kind.exit_code for kind in _kinds(errors.SwarmError))}
    )


def _kinds(root: type[errors.SwarmError]) -> Iterator[type[errors.SwarmError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)


def test_every_state_is_documented_in_order() -> None:
    (table,) = tables("docs/STATUS_PROTO.md", "States")
    assert [quoted(row[0])[0] for row in table] == list(STATES)


def test_the_fields_of_a_record_are_documented_in_order(log: Run) -> None:
    (table,) = tables("docs/STATUS_PROTO.md", "Fields of a record")
    written = log("append", "WAIT", "w", "t", "why", "--meta", "{}").stdout
    assert [quoted(row[0])[0] for row in table] == list(json.loads(written))


def test_the_fields_of_a_lock_are_documented_in_order(lock: Run, isolated_swarm_dir: Path) -> None:
    lock("acquire", "t", "w", "60")
    (table,) = tables("docs/STATUS_PROTO.md", "Fields of a lock")
    assert [quoted(row[0])[0] for row in table] == list(
        json.loads((isolated_swarm_dir / "locks" / "t.lock").read_text())
    )


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no stamp")
def test_the_fields_of_the_holder_are_documented(isolated_swarm_dir: Path) -> None:
    (table,) = tables("docs/STATUS_PROTO.md", "Clocks and the holder key")
    locks = LockTable(default_store())
    needs = text_of([("locks", locks.acquire("other", "w", 60))])
    taken = locks.acquire("t", "w", 60, bound=True, group=os.getpid(), companions=needs)
    with Lease(locks, "t", "w", 60, taken=taken) as lease:
        locks.ask_to_stop("t", "w", lease.token, "cancelled")
        written = json.loads((isolated_swarm_dir / "locks" / "t.lock").read_text())["holder"]
    assert {quoted(row[0])[0] for row in table} == set(written)


ANSWERS: dict[str, list[tuple[str, ...]]] = {
    "swarm lock acquire": [("acquire", "t", "w")],
    "swarm lock release": [("acquire", "t", "w"), ("release", "t", "w")],
    "swarm lock heartbeat": [("acquire", "t", "w"), ("heartbeat", "t", "w")],
    "swarm lock check": [("check", "t")],
    "swarm lock list": [("list",)],
    "swarm lock release-all": [("release-all", "w")],
    "swarm lock break": [("acquire", "t", "w"), ("break", "t", "--yes")],
    "swarm lock why": [("why", "t")],
    "swarm log validate": [("validate",)],
    "swarm log rotate": [("rotate",)],
    "any, on an error": [("release", "t", "w")],
}


def _answer_rows() -> dict[str, str]:
    (table,) = tables("docs/STATUS_PROTO.md", "JSON output")
    return {row[0].strip("`"): row[1] for row in table}


def test_every_command_with_an_answer_of_its_own_is_in_the_json_table() -> None:
    records = {f"swarm log {name}" for name in ("append", "tail", "query", "follow")}
    assert (
        set(_answer_rows())
        == {*ANSWERS, "swarm run"}
        == set(COMMANDS) - records | {"any, on an error"}
    )


@pytest.mark.parametrize("command", ANSWERS)
def test_the_json_output_has_the_documented_keys(command: str, lock: Run, log: Run) -> None:
    group: Callable[..., subprocess.CompletedProcess[str]] = (
        log if command.startswith("swarm log") else lock
    )
    answer = ""
    for args in ANSWERS[command]:
        answer = group(*args, "--json").stdout
    named = quoted(re.split(r"[;:]", _answer_rows()[command])[0])
    assert list(json.loads(answer)) == ["schema_version", *named]


def test_the_json_output_of_a_held_lock_has_the_documented_keys(lock: Run) -> None:
    lock("acquire", "t", "w")
    named = quoted(_answer_rows()["swarm lock acquire"].partition(";")[2])
    assert list(json.loads(lock("acquire", "t", "v", "--json").stdout)) == [
        "schema_version",
        *named,
    ]


def test_the_json_output_of_a_run_that_found_it_held_has_the_documented_keys(lock: Run) -> None:
    lock("acquire", "t", "w")
    call = [sys.executable, "-m", "swarm", "run", "t", "--json", "--", "true"]
    done = subprocess.run(
        call, cwd=ROOT, env=script_environment(), capture_output=True, text=True, timeout=60
    )
    named = quoted(_answer_rows()["swarm run"].partition(";")[0])
    assert list(json.loads(done.stdout)) == ["schema_version", *named]


def test_the_figures_shown_are_those_that_were_measured() -> None:
    kept = json.loads(report.FIGURES.read_text(encoding="utf-8"))
    document = report.DOCUMENT.read_text(encoding="utf-8")
    assert report.rendered(document, kept) == document
    assert set(re.findall(r"<!-- begin: (\w+) ", document)) == {"goals", *kept}
