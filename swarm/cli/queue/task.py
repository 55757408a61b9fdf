"""`swarm task`: add tasks to the queue, claim them, finish them."""

from __future__ import annotations

from contextlib import contextmanager

from swarm import settings
from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command, Option, parse_meta
from swarm.cli.queue import clear, edit, plans, question_text, task_output, task_text
from swarm.errors import BadInput, LockHeld, LockLost, NoTask, WrongState
from swarm.inputs import MAX_RECORD_BYTES, check_name, parse_token, whole
from swarm.queue import claim_report
from swarm.queue.events import STATES
from swarm.queue.queue import TaskQueue
from swarm.queue.task import (
    AGENT,
    BRANCH,
    CHECKS,
    FLAG,
    LABELS,
    LOCKS,
    MOMENT,
    NAMES,
    OBJECT,
    RULE,
    SECONDS,
    SLOTS,
    TASK_FIELDS,
    TEXT,
    WHOLE,
)
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from swarm.queue.task import Kind, TaskField
    from swarm.queue.usage import UsageLog


def add(call: Call) -> int:
    prompt = call.options.get("--prompt")
    if prompt == "-":
        prompt = output.read_stdin(MAX_RECORD_BYTES)
    words = call.get(0).strip()
    task_id = None
    if prompt is None and not call.command_line:
        if not any(map(str.isspace, words)):
            raise BadInput(
                f"{shown(words) or 'TASK'} is one word, which is the id of the task. Say what to "
                f"do: --prompt TEXT or -- COMMAND, or several words in place of the id, such as "
                f"{_WORDS_EXAMPLE}"
            )
        prompt = words  # the id is made from them
    else:
        task_id = _task(call)
    given = given_fields(call) | {"prompt": prompt, "command": list(call.command_line)}
    task = TaskQueue().add(task_id, **given)
    if not call.answer({"added": True, "task": task.fields()}):
        output.out(f"Task added: {task.id}{task_text.waits(task)}\n")
    return 0


def given_fields(call: Call) -> dict[str, Any]:
    """Return the fields of a task that have an option, as far as the call has it."""
    return {
        field.name: _PARSERS[field.kind](call, field)
        for field in TASK_FIELDS
        if field.option in call.options
    }


def list_tasks(call: Call) -> int:
    state = call.options.get("--state")
    queue = TaskQueue()
    tasks = queue.tasks(state)
    blocked, costs = queue.blocked(), _usage().totals("task")
    if call.json:
        rows = [
            {
                **task.fields(),
                "blocked_by": blocked.get(task.id),
                "cost_usd": round(costs[task.id].cost_usd, 6) or None if task.id in costs else None,
            }
            for task in tasks
        ]
        return call.answer({"tasks": rows, "counts": queue.counts()}) and 0
    from swarm.cli.queue.task_gates import WaitingForGates  # claims do not need it

    gates = WaitingForGates(default_store(), queue.gates())
    for task in tasks:
        about = task_text.about(task, blocked.get(task.id, ""))
        cost = task_text.cost(costs.get(task.id))
        gate = gates.text(task)
        output.out(f"{task_text.mark(task)}  {shown(task.id)}{about}{gate}{cost}\n")
    if not tasks:
        output.out(f"No {state} tasks\n" if state else "No tasks\n")
    return 0


def show(call: Call) -> int:
    from dataclasses import asdict

    from swarm.locks.table import LockTable
    from swarm.status.log import StatusLog
    from swarm.stores.default import default_store

    queue = TaskQueue()
    task = queue.get(_task(call))
    store = default_store()
    history = [record for _, record in StatusLog(store).query(task.id)]
    usage = _usage().of_task(task.id)
    if call.json:
        held = LockTable(store).status(task.id).lock
        lock = held.fields() if held else None
        blocked = queue.blocked().get(task.id)
        fields = {
            "task": task.fields(),
            "previous": claim_report.previous_fields(task.previous),
            "usage": asdict(usage),
            "blocked_by": blocked,
            "lock": lock,
            "history": history,
        }
        return call.answer(fields) and 0
    output.out(
        f"{shown(task.id)}: {task.state}{task_text.about(task, queue.blocked().get(task.id, ''))}\n"
    )
    rows = (task_text.rows(task) | task_text.usage_rows(usage)).items()
    output.out("".join(f"  {name + ': ':<13}{shown(value)}\n" for name, value in rows if value))
    if task.spec.prompt:
        output.out(
            "\nPrompt:\n" + "".join(f"  {shown(line)}\n" for line in task.spec.prompt.splitlines())
        )
    if task.previous.feedback:
        lines = [f"  {shown(line)}\n" for line in task.previous.feedback.splitlines()]
        output.out("\nFeedback of the last attempt:\n" + "".join(lines))
    if task.questions:
        output.out("\nQuestions:\n" + "".join(map(question_text.short, task.questions)))
    if history:
        output.out(
            "\nHistory:\n" + "".join(f"  {task_text.history_line(record)}\n" for record in history)
        )
    return 0


def claim(call: Call) -> int:
    queue, worker = TaskQueue(), _worker(call)
    task = _task(call) if call.positional else None
    try:
        claimed = queue.claim(
            worker,
            task,
            ttl=call.ttl(),
            agent=call.options.get("--agent", ""),
            labels=call.every("--label"),
            wait=call.seconds("--wait", 0.0),
        )
    except (NoTask, LockHeld, WrongState) as error:
        output.error(str(error))
        fields = claim_report.refusal(error, claim_report.command_to_wait(worker, task))
        if not call.answer(fields):
            output.out(claim_report.refusal_text(fields))
        return error.exit_code
    workspace = ""
    if _WORKSPACE.name in call.options:
        from swarm.cli.queue import finishing  # most claims need no git

        workspace = finishing.make_workspace(queue, worker, claimed)
    try:
        if not call.answer(claim_report.fields(claimed, workspace)):
            output.out(claim_report.text(claimed, workspace))
    except BrokenPipeError:
        raise
    except OSError:
        queue.release(
            claimed.task.id, worker, claimed.token, "the caller could not read the answer"
        )
        raise
    return 0


def done(call: Call) -> int:
    from swarm.cli.queue import finishing
    from swarm.landing.claimed import WorkRefused

    queue, name, result = TaskQueue(), _task(call), _text(call, 1)
    try:
        with _explained_worker(call) as worker:
            caller = finishing.caller(queue, worker, force=_FORCE.name in call.options)
            task = caller.finish(name, _token(call), result)
    except WorkRefused as error:
        fields = {"done": False, "reason": str(error), "last_lines": error.last_lines}
        output.error(str(error))
        if not call.answer({**fields, "task": queue.get(name).fields()}):
            output.out(finishing.refusal_text(error))
        return error.exit_code
    if not call.answer({"done": task.is_done, "task": task.fields()}):
        output.out(task_text.ended(task))
    return 0


def fail(call: Call) -> int:
    delay = call.seconds("--delay", 0.0)
    final = "--final" in call.options
    queue, reason = TaskQueue(), _text(call, 1)
    with _explained_worker(call) as worker:
        task = queue.fail(
            _task(call),
            worker,
            _token(call),
            reason,
            delay=delay,
            final=final,
            work=_saved_work(call, queue, worker),
            force=_FORCE.name in call.options,
        )
    if not call.answer({"failed": True, "task": task.fields()}):
        left = task.spec.max_attempts - task.attempts
        more = (
            "failed"
            if task.state == "failed"
            else f"{task.state} again, {task_text.count(left, 'attempt')} left"
        )
        output.out(f"Attempt failed: {task.id} is {more}\n")
    return 0


def release(call: Call) -> int:
    queue, reason = TaskQueue(), _text(call, 1)
    with _explained_worker(call) as worker:
        task = queue.release(
            _task(call),
            worker,
            _token(call),
            reason,
            work=_saved_work(call, queue, worker),
            force=_FORCE.name in call.options,
        )
    if not call.answer({"released": True, "task": task.fields()}):
        output.out(f"Task released: {task.id}\n")
    return 0


def retry(call: Call) -> int:
    queue = TaskQueue()
    if "--failed" in call.options and call.positional:
        raise BadInput("retry takes either a task or --failed. Leave out the task or --failed.")
    if "--failed" in call.options:
        names = [task.id for task in queue.tasks("failed")]
    elif call.positional:
        names = [_task(call)]
    else:
        raise BadInput("retry needs a task, or --failed for all failed tasks.")
    note = call.options.get("--note", "")
    tasks = [queue.retry(name, whoami(fallback="user"), note) for name in names]
    if not call.answer({"retried": [task.fields() for task in tasks]}):
        for task in tasks:
            output.out(
                f"Task ready again: {shown(task.id)}\n{task_text.stopping(queue.holder(task.id))}"
            )
        if not tasks:
            output.out("No failed tasks\n")
    return 0


def reopen(call: Call) -> int:
    task = TaskQueue().reopen(_task(call), whoami(fallback="user"), call.options.get("--note", ""))
    if not call.answer({"reopened": True, "task": task.fields()}):
        output.out(f"Task {task.state} again: {shown(task.id)}{task_text.waits(task)}\n")
    return 0


def cancel(call: Call) -> int:
    queue = TaskQueue()
    task = queue.cancel(_task(call), whoami(fallback="user"), _text(call, 1))
    lock = queue.holder(task.id)
    is_stopping = lock is not None and bool(lock.must_stop)
    fields = {"cancelled": True, "task": task.fields(), "is_stopping": is_stopping}
    if not call.answer(fields):
        output.out(f"Task cancelled: {task.id}\n{task_text.stopping(lock)}")
    return 0


# Arguments ----------------------------------------------------------------------------


def _usage() -> UsageLog:
    from swarm.queue.usage import UsageLog
    from swarm.stores.default import default_store

    return UsageLog(default_store())


def _task(call: Call) -> str:
    return check_name(call.get(0), "TASK")


def _worker(call: Call) -> str:
    return whoami(call.options.get("--worker"))


@contextmanager
def _explained_worker(call: Call) -> Iterator[str]:
    """Provide the worker that ends its claim. If the end is refused and the user did
    not name the worker, say this in the error.
    """
    worker = _worker(call)
    try:
        yield worker
    except LockLost as lost:
        if "--worker" in call.options or settings.worker():
            raise
        raise LockLost(
            lost.task_id,
            f"neither --worker nor SWARM_WORKER names the worker, so swarm uses {worker}, the name "
            f"of the calling program. {lost}",
        ) from None


def _token(call: Call) -> int | None:
    """Return the token in --token, else the token in SWARM_TOKEN if this task is the
    assigned task, else None.
    """
    text = call.options.get("--token")
    return parse_token(text) if text else settings.token_for(_task(call))


def _saved_work(call: Call, queue: TaskQueue, worker: str) -> str:
    """Save the work of a claim that ends now, and return its commit."""
    from swarm.cli.queue import finishing

    return finishing.saved_work(queue, worker, _task(call), _token(call))


def _text(call: Call, index: int) -> str:
    text = call.get(index)
    return output.read_stdin(MAX_RECORD_BYTES).removesuffix("\n") if text == "-" else text


def _slots(texts: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        name, sign, count = text.partition("=")
        if name in found:
            raise BadInput(f"--slot names {name[:40]!r} twice. Give a number: {name[:40]}=2")
        found[name] = whole(count, "--slot", 1) if sign else 1
    return found


# of the options of `add`, by the kind of their field
_PARSERS: dict[Kind, Callable[[Call, TaskField], Any]] = {
    TEXT: lambda call, field: call.options[field.option],
    AGENT: lambda call, field: call.options[field.option],
    WHOLE: lambda call, field: whole(
        call.options[field.option], field.option, field.least, field.most
    ),
    SECONDS: lambda call, field: call.seconds(field.option, 0.0),
    NAMES: lambda call, field: call.every(field.option),
    LABELS: lambda call, field: call.every(field.option),
    LOCKS: lambda call, field: call.every(field.option),
    SLOTS: lambda call, field: _slots(call.every(field.option)),
    OBJECT: lambda call, field: parse_meta(call.options[field.option]),
    # '' alone: no check.
    CHECKS: lambda call, field: [] if (given := call.every(field.option)) == [""] else given,
    BRANCH: lambda call, field: call.options[field.option],
    FLAG: lambda call, field: True,
    MOMENT: lambda call, field: edit.moment(call.options[field.option]),
    RULE: lambda call, field: call.options[field.option],
}
_WORKER = Option(
    "--worker", "W", "the worker; default: SWARM_WORKER, else the agent that runs this command"
)
_TOKEN = Option(
    "--token", "N", "the claim's token; default: SWARM_TOKEN, else the token of the worker's claim"
)
_FORCE = Option(
    "--force", text="end the claim even if it belongs to another living process; this is logged"
)
_WORKSPACE = Option(
    "--workspace", text="make a git worktree for the attempt, and print its directory"
)
_NOTE = Option("--note", "TEXT", "words for the next attempts, such as what to do otherwise")
_WORDS_EXAMPLE = "swarm task add 'Fix the login bug'"
_FIELD_OPTIONS = tuple(
    Option(
        field.option,
        field.kind.metavar,
        field.about,
        repeated=field.kind in (NAMES, CHECKS, LABELS, SLOTS, LOCKS),
    )
    for field in TASK_FIELDS
    if field.option
)
COMMANDS = {
    "add": Command(
        add,
        "Add a task: a prompt for an agent, a command of its own, or both.",
        "swarm task add login --prompt 'Fix the login bug' --priority 5 --after schema",
        positional=("TASK",),
        options=_FIELD_OPTIONS,
        command_line="optional",
        details=(
            (
                "Without --prompt and COMMAND, TASK may be several words: they are the prompt, "
                f"and the id is made from them. {_WORDS_EXAMPLE}"
            ),
        ),
    ),
    "edit": edit.command(_FIELD_OPTIONS),
    "import": plans.IMPORT,
    "export": plans.EXPORT,
    "list": Command(
        list_tasks,
        "List all tasks with their states.",
        "swarm task list --state failed",
        options=(Option("--state", "STATE", f"only tasks in this state: {' '.join(STATES)}"),),
    ),
    "show": Command(
        show,
        "Show one task: its prompt, its state and its history.",
        "swarm task show login",
        positional=("TASK",),
    ),
    "output": task_output.COMMAND,
    "claim": Command(
        claim,
        "Claim TASK, or the ready task of the highest priority. Exit 1: no task can be claimed.",
        "swarm task claim --worker worker-1",
        optional=("TASK",),
        options=(
            _WORKER,
            Option("--agent", "AGENT", "also claim tasks for this agent, if its gate is open"),
            Option("--label", "LABEL", "only a task that has one of these labels", repeated=True),
            Option("--ttl", "S", "lease in seconds; default: AI_SWARM_LOCK_TTL, else 300"),
            Option("--wait", "S", "wait up to S seconds for a task; default: do not wait"),
            _WORKSPACE,
        ),
        details=(
            (
                "A claim locks the task, logs START and prints what to do. Renew the lease of "
                "the task with swarm lock heartbeat before the lease ends. Among tasks of equal "
                "priority, older tasks usually come first."
            ),
        ),
    ),
    "done": Command(
        done,
        "End a claimed task as done. Exit 4: the worker lost the task; nothing was changed.",
        "swarm task done login 'all tests pass' --worker worker-1 --token 17",
        positional=("TASK",),
        optional=("RESULT",),
        options=(_WORKER, _TOKEN, _FORCE),
        details=(
            (
                "The check of the task or the project runs first, in the workspace of the claim. "
                "Exit 1: the check failed, and the claim goes on. Work that lands on a branch is "
                "submitted: the task is done when it has landed."
            ),
            "If RESULT is -, it is read from standard input.",
        ),
    ),
    "fail": Command(
        fail,
        "End the attempt at a claimed task as failed. While attempts remain, the task is ready "
        "again.",
        "swarm task fail login 'no database' --worker worker-1 --token 17",
        positional=("TASK",),
        optional=("REASON",),
        options=(
            _WORKER,
            _TOKEN,
            Option("--delay", "S", "the task is ready again after S seconds; default: at once"),
            Option("--final", text="the task is failed, even if attempts remain"),
            _FORCE,
        ),
        details=(
            (
                "After its last attempt the task is failed (swarm task add --max-attempts). "
                "If REASON is -, it is read from standard input."
            ),
        ),
    ),
    "release": Command(
        release,
        "Release a claimed task without a result. The attempt does not count.",
        "swarm task release login --worker worker-1 --token 17",
        positional=("TASK",),
        optional=("REASON",),
        options=(_WORKER, _TOKEN, _FORCE),
        details=("If REASON is -, it is read from standard input.",),
    ),
    "retry": Command(
        retry,
        "Make a failed or cancelled task ready again. The number of attempts starts again at 0.",
        "swarm task retry login",
        optional=("TASK",),
        options=(
            Option("--failed", text="retry every task in the state failed, instead of TASK"),
            _NOTE,
        ),
    ),
    "reopen": Command(
        reopen,
        "Make a task that is done ready again. The number of attempts starts again at 0.",
        "swarm task reopen login --note 'The error page is missing'",
        positional=("TASK",),
        options=(_NOTE,),
        details=(
            (
                "Tasks that come after TASK wait for it again, unless they run or are done. Those "
                "that are done stay done: reopen them too if they must be done again."
            ),
        ),
    ),
    "cancel": Command(
        cancel,
        "Cancel a task. A worker that is at work on it is told to stop.",
        "swarm task cancel login 'not needed any more'",
        positional=("TASK",),
        optional=("REASON",),
        details=(
            (
                "The worker learns of it at its next heartbeat. The task's lock is free when the "
                "worker has stopped, or when its lease is over. A retry does not change that."
            ),
        ),
    ),
    **clear.COMMANDS,
}
