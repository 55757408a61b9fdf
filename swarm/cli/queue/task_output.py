"""`swarm task output`: what the agent of a task prints."""

from __future__ import annotations

import time

from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput, NoTask
from swarm.inputs import check_name, parse_token
from swarm.queue.events import ENDED
from swarm.queue.queue import TaskQueue
from swarm.stores.file import state_dir
from swarm.stores.file.layout import RESULTS
from swarm.terminal import output as terminal
from swarm.terminal.output import paint
from swarm.terminal.text import foreign_name, shown
from swarm.workers.results import GrowingFile, ResultFile, files_of, readable

_POLL_INTERVAL = 0.3  # seconds


def run(call: Call) -> int:
    task_id = check_name(call.get(0), "TASK")
    queue = TaskQueue()
    queue.get(task_id)  # raises NoTask
    token = parse_token(call.options["--token"]) if "--token" in call.options else None
    is_raw, follows = "--raw" in call.options, "--follow" in call.options
    if follows and call.json:
        raise BadInput("--follow prints lines, and no JSON. Leave out --follow or --json.")
    if follows and is_raw:
        raise BadInput("--follow prints readable lines. Leave out --follow or --raw.")
    if follows:
        return _follow(queue, task_id, token)
    files = _files(task_id, token)
    if not files:
        at = f" with token {token}" if token is not None else ""
        raise NoTask(
            "unknown",
            f"there is no output of {foreign_name(task_id)}{at} on this machine. It is on the "
            f"machine of its worker, once an attempt has printed something.",
        )
    if call.json:
        return _answer(call, task_id, files)
    if is_raw:
        for file in files:
            _print_raw(file)
        return 0
    for file in readable(files):
        _print(GrowingFile(file.path).lines(ended=True))
    return 0


def _answer(call: Call, task_id: str, files: list[ResultFile]) -> int:
    lines = [line for file in readable(files) for line in GrowingFile(file.path).lines(ended=True)]
    fields = {"task": task_id, "token": files[0].token, "files": [file.path for file in files]}
    call.answer({**fields, "lines": lines})
    return 0


def _files(task_id: str, token: int | None) -> list[ResultFile]:
    """Return the files of the attempt with this token, or of the last attempt."""
    found = files_of(f"{state_dir.given().path}/{RESULTS}", task_id)
    wanted = token if token is not None or not found else found[-1].token
    return [file for file in found if file.token == wanted]


def _follow(queue: TaskQueue, task_id: str, token: int | None) -> int:
    """Print lines as they come, attempt after attempt, until the task has ended."""
    seen: dict[str, GrowingFile] = {}
    shown_token = token
    while True:
        task = queue.get(task_id)  # before the files: its last lines are in them then
        is_at_work = task.is_claimed and token in (None, task.token)
        files = _files(task_id, token)
        for file in readable(files):
            if file.path not in seen:
                seen[file.path] = GrowingFile(file.path)
                if shown_token not in (None, file.token):
                    terminal.out(paint(f"── token {file.token}", "dim") + "\n")
                shown_token = file.token
        for path, growing in seen.items():
            is_current = any(file.path == path for file in files)
            _print(growing.lines(ended=not (is_at_work and is_current)))
        if task.state in ENDED or (token is not None and not is_at_work):
            return 0
        time.sleep(_POLL_INTERVAL)


def _print(lines: list[str]) -> None:
    if lines:
        terminal.out("".join(f"{shown(line.expandtabs(4))}\n" for line in lines))


def _print_raw(file: ResultFile) -> None:
    growing = GrowingFile(file.path)
    if file.stream in ("out", "err"):
        while data := growing.read():
            terminal.record(data)


COMMAND = Command(
    run,
    "Print what the agent of a task says and does: its last attempt, as readable lines.",
    "swarm task output login --follow",
    positional=("TASK",),
    options=(
        Option("--follow", text="print new lines as they come, until the task has ended"),
        Option("--raw", text="print the agent's output as it is: standard output, then errors"),
        Option("--token", "N", "the attempt with this token; default: the last attempt"),
    ),
    details=(
        (
            "The output is in results/ of the state directory on the machine of the worker: "
            "TASK.TOKEN.out and .err as the agent wrote it, .txt as readable lines."
        ),
    ),
)
