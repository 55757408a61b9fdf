"""`swarm task`: the queue from a shell."""

from __future__ import annotations

from swarm import settings
from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command, parse_meta
from swarm.errors import BadInput, LockHeld, NoTask, StoreError, WrongState
from swarm.formats import json_codec
from swarm.inputs import MAX_RECORD_BYTES, parse_token, parse_ttl, parse_wait
from swarm.queue import claim_report
from swarm.queue.events import DEFAULT_MAX_ATTEMPTS, STATES
from swarm.queue.queue import Task, TaskQueue
from swarm.queue.waiting import claim_patiently
from swarm.terminal import output
from swarm.terminal.text import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COLOURS = {"running": "bold", "done": "green", "failed": "red", "cancelled": "dim", "waiting": "dim"}
_MAX_FILE = 1 << 30
_SHORT = 200  # characters of a reason in a list


def add(call: Call) -> int:
    prompt = call.options.get("--prompt")
    if prompt == "-":
        prompt = output.read_stdin(MAX_RECORD_BYTES)
    fields = {
        "prompt": prompt,
        "command": list(call.positional[1:]) or None,
        "priority": _whole(call, "--priority", 0),
        "after": call.every("--after"),
        "max_attempts": _whole(call, "--max-attempts", DEFAULT_MAX_ATTEMPTS),
        "timeout": _seconds(call, "--timeout"),
        "meta": parse_meta(call.options.get("--meta")),
    }
    task = TaskQueue().add(call.get(0), **fields)  # type: ignore[arg-type]
    if not _json(call, {"added": True, "task": task.fields()}):
        output.out(f"Task added: {task.id}{_waits(task)}\n")
    return 0


def import_file(call: Call) -> int:
    from swarm.queue.import_file import parse

    path = call.get(0)
    text = _read(path)
    specs = parse(text, "standard input" if path == "-" else path)
    added, known = TaskQueue().add_all(specs, lambda count: output.transient(f"{count} of {len(specs)} tasks added"))
    output.transient("")
    if not _json(call, {"added": added, "known": known}):
        was_there = f", {_count(len(known), 'task')} {'was' if len(known) == 1 else 'were'} there already" if known else ""
        output.out(f"{_count(len(added), 'task')} added{was_there}\n")
    return 0


def list_tasks(call: Call) -> int:
    state = call.options.get("--state")
    queue = TaskQueue()
    tasks = queue.tasks(state)
    blocked = queue.blocked()
    if call.json:
        rows = [{**task.fields(), "blocked_by": blocked.get(task.id)} for task in tasks]
        return _json(call, {"tasks": rows, "counts": queue.counts()}) and 0
    for task in tasks:
        mark = output.paint(f"{task.state:<9}", _COLOURS.get(task.state, "yellow"))
        output.out(f"{mark}  {shown(task.id)}{_about(task, blocked.get(task.id, ''))}\n")
    if not tasks:
        output.out(f"No tasks that are {state}\n" if state else "No tasks\n")
    return 0


def show(call: Call) -> int:
    from swarm.locks.table import LockTable
    from swarm.status.log import StatusLog
    from swarm.stores.default import default_store

    queue = TaskQueue()
    task = queue.get(call.get(0))
    store = default_store()
    history = [record for _, record in StatusLog(store).query(task.id)]
    if call.json:
        held = LockTable(store).status(task.id).lock
        lock = held.fields() if held else None
        blocked = queue.blocked().get(task.id)
        fields = {"task": task.fields(), "blocked_by": blocked, "lock": lock, "history": history}
        return _json(call, fields) and 0
    output.out(f"{shown(task.id)}: {task.state}{_about(task, queue.blocked().get(task.id, ''))}\n")
    rows = {
        "priority": str(task.spec.priority),
        "after": ", ".join(task.spec.after),
        "attempts": f"{task.attempts} of {task.spec.max_attempts}",
        "timeout": f"{task.spec.timeout:g} s" if task.spec.timeout else "",
        "added_at": task.added_at,
        "since": task.since,
        "meta": json_codec.dumps(task.spec.meta) if task.spec.meta else "",
        "command": claim_report.command_line(task),
    }
    output.out("".join(f"  {name + ':':<13}{shown(value)}\n" for name, value in rows.items() if value))
    if task.spec.prompt:
        output.out("\nPrompt:\n" + "".join(f"  {shown(line)}\n" for line in task.spec.prompt.splitlines()))
    if history:
        output.out("\nHistory:\n" + "".join(f"  {_told(record)}\n" for record in history))
    return 0


def claim(call: Call) -> int:
    queue, worker = TaskQueue(), _worker(call)
    task = call.positional[0] if call.positional else None
    ttl = parse_ttl(call.options["--ttl"], "--ttl") if "--ttl" in call.options else None
    try:
        claimed = claim_patiently(queue, lambda: queue.claim(worker, task, ttl=ttl), _seconds(call, "--wait") or 0.0)
    except (NoTask, LockHeld, WrongState) as error:
        fields = claim_report.refusal(error, claim_report.command_to_wait(worker))
        if not _json(call, fields):
            output.out(claim_report.refusal_text(fields))
        output.error(str(error))
        return error.exit_code
    try:
        if not _json(call, claim_report.fields(claimed)):
            output.out(claim_report.text(claimed))
    except BrokenPipeError:
        raise
    except OSError:
        queue.release(claimed.task.id, worker, claimed.token, "nobody could be told")
        raise
    return 0


def done(call: Call) -> int:
    task = TaskQueue().done(call.get(0), _worker(call), _token(call), _text(call, 1))
    if not _json(call, {"done": True, "task": task.fields()}):
        output.out(f"Task done: {task.id}\n")
    return 0


def fail(call: Call) -> int:
    delay = _seconds(call, "--delay") or 0.0
    final = "--final" in call.options
    task = TaskQueue().fail(call.get(0), _worker(call), _token(call), _text(call, 1), delay=delay, final=final)
    if not _json(call, {"failed": True, "task": task.fields()}):
        left = task.spec.max_attempts - task.attempts
        more = "failed" if task.state == "failed" else f"{task.state} again, {_count(left, 'attempt')} left"
        output.out(f"Attempt failed: {task.id} is {more}\n")
    return 0


def release(call: Call) -> int:
    task = TaskQueue().release(call.get(0), _worker(call), _token(call), _text(call, 1))
    if not _json(call, {"released": True, "task": task.fields()}):
        output.out(f"Task given back: {task.id}\n")
    return 0


def retry(call: Call) -> int:
    queue = TaskQueue()
    if "--failed" in call.options and call.positional:
        raise BadInput("retry takes a task or --failed, not both.")
    if "--failed" in call.options:
        names = [task.id for task in queue.tasks("failed")]
    elif call.positional:
        names = [call.get(0)]
    else:
        raise BadInput("retry needs a task, or --failed for all that failed.")
    tasks = [queue.retry(name, whoami(fallback="user")) for name in names]
    if not _json(call, {"retried": [task.fields() for task in tasks]}):
        output.out("".join(f"Task to be tried again: {shown(task.id)}\n" for task in tasks) or "No task has failed\n")
    return 0


def cancel(call: Call) -> int:
    task = TaskQueue().cancel(call.get(0), whoami(fallback="user"), _text(call, 1))
    if not _json(call, {"cancelled": True, "task": task.fields()}):
        output.out(f"Task cancelled: {task.id}\n")
    return 0


# Texts -------------------------------------------------------------------------------------------------------------


def _about(task: Task, blocked_by: str) -> str:
    if task.state == "running":
        return f" (worker: {shown(task.worker)}, since {task.since}, attempt {task.attempts} of {task.spec.max_attempts})"
    if blocked_by:
        return f" (blocked: comes after {shown(blocked_by)}, which will not be done)"
    if task.state == "waiting":
        return f" (after {shown(', '.join(task.spec.after))})"
    again = f"again at {task.ready_at}" if task.ready_at else ""
    said = [text for text in (shown(task.reason[:_SHORT]), again) if text]
    return f" ({'; '.join(said)})" if said else ""


def _waits(task: Task) -> str:
    return f" (it comes after {', '.join(task.spec.after)})" if task.state == "waiting" else ""


def _told(record: dict[str, Any]) -> str:
    said = f"  {record['reason']}" if record.get("reason") else ""
    return shown(f"{record.get('timestamp', '')}  {record.get('type', '')!s:5}  {record.get('worker', '')}{said}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


# What was given --------------------------------------------------------------------------------------------------


def _worker(call: Call) -> str:
    return whoami(call.options.get("--worker"))


def _token(call: Call) -> int | None:
    """The token that was given, or the one that whoever started us has for this very task."""
    text = call.options.get("--token", settings.token_for(call.get(0)))
    return parse_token(text) if text else None


def _text(call: Call, index: int) -> str:
    text = call.get(index)
    return output.read_stdin(MAX_RECORD_BYTES).removesuffix("\n") if text == "-" else text


def _whole(call: Call, option: str, default: int) -> int:
    text = call.options.get(option)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise BadInput(f"{option} is {text[:40]!r}, but must be a whole number.")
    return int(text)


def _seconds(call: Call, option: str) -> float | None:
    text = call.options.get(option)
    return None if text is None else parse_wait(text, option)


def _read(path: str) -> str:
    if path == "-":
        return output.read_stdin(_MAX_FILE)
    try:
        with open(path, "rb") as file:
            return file.read().decode()
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text.") from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a directory. Give a file of tasks.") from None
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}.") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from None


def _json(call: Call, fields: dict[str, Any]) -> bool:
    if call.json:
        output.out(json_codec.dumps({"schema_version": 1, **fields}) + "\n")
    return call.json


_MINE = "[--worker W] [--token N]"
COMMANDS = {
    "add": Command(
        "ID [--prompt TEXT] [--priority N] [--after ID]… [--max-attempts N] [--timeout S] [--meta JSON] [-- COMMAND…]",
        "Adds a task: a prompt for an agent (- is read from standard input), or a command of its own, or both.\n"
        "It is ready when every task that it comes --after is done; a higher priority goes first.\n"
        f"An attempt that fails is made again, up to --max-attempts ({DEFAULT_MAX_ATTEMPTS}) in all.",
        "swarm task add login --prompt 'Fix the login bug' --priority 5 --after schema",
        add,
        "--prompt= --priority= --after= --max-attempts= --timeout= --meta=",
    ),
    "import": Command(
        "FILE",
        "Adds the tasks in a file: JSON Lines, a JSON list or YAML; - is standard input.\n"
        "Tasks that are there already stay as they are, so it may be called again.\n"
        "Fields: id, prompt, command, priority, after, max_attempts, timeout, meta.",
        "swarm task import tasks.yaml",
        import_file,
    ),
    "list": Command(
        "[--state S]",
        f"Every task with its state: {' '.join(STATES)}.",
        "swarm task list --state failed",
        list_tasks,
        "--state=",
    ),
    "show": Command("TASK", "One task: what is asked for, its state, its history.", "swarm task show login", show),
    "claim": Command(
        "[TASK] [--worker W] [--ttl S] [--wait S]",
        "Takes the best ready task (or TASK) for a worker: locks it, logs START, prints what to do. Exit 1: none to be had.\n"
        "The lease lasts --ttl seconds (AI_SWARM_LOCK_TTL, else 300) and begins anew with each heartbeat.",
        "swarm task claim --worker worker-1",
        claim,
        "--worker= --ttl= --wait=",
    ),
    "done": Command(
        f"TASK [RESULT] {_MINE}",
        "The task is done. Exit 4: it is not this worker's any more, and nothing was changed.\n"
        "Without --token, the one in SWARM_TOKEN counts, or that of the worker's claim.",
        "swarm task done login 'all tests pass' --worker worker-1 --token 17",
        done,
        "--worker= --token=",
    ),
    "fail": Command(
        f"TASK [REASON] {_MINE} [--delay S] [--final]",
        "The attempt failed: the task is ready again after --delay seconds, or failed if that was its last attempt or --final.",
        "swarm task fail login 'no database' --worker worker-1 --token 17",
        fail,
        "--worker= --token= --delay= --final",
    ),
    "release": Command(
        f"TASK [REASON] {_MINE}",
        "Gives the task back unfinished; the attempt does not count.",
        "swarm task release login --worker worker-1 --token 17",
        release,
        "--worker= --token=",
    ),
    "retry": Command(
        "[TASK] [--failed]",
        "A failed or cancelled task is ready again (--failed: all that failed); its attempts begin anew.",
        "swarm task retry login",
        retry,
        "--failed",
    ),
    "cancel": Command(
        "TASK [REASON]",
        "The task is not to be done. A worker that is at it loses its lock, and stops at its next heartbeat.",
        "swarm task cancel login 'not needed any more'",
        cancel,
    ),
}
