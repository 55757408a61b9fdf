"""`swarm worker`: run a worker that gives queued tasks to an agent."""

from __future__ import annotations

import os
import shutil
import signal
import time

from swarm import settings
from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput, SwarmError
from swarm.inputs import check_plain_name
from swarm.notify.notifier import notifier_for
from swarm.presets.registry import NAMES
from swarm.project.config import load
from swarm.project.keys import commands
from swarm.queue.queue import TaskQueue
from swarm.stores.default import default_store
from swarm.terminal import output as terminal
from swarm.terminal.output import paint
from swarm.terminal.text import shown
from swarm.workers import command
from swarm.workers.launch import CommandAgent, PresetAgent, preset_agent
from swarm.workers.presence import report_end
from swarm.workers.worker import BACKOFF, GRACE, SmartWorker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from swarm.project.config import Config
    from swarm.workers.launch import Agent

NO_AGENT = "none"  # for --agent, where swarm.toml names one
_STOP_TIMEOUT = 0.5  # seconds for notifications that are being sent
_PRESET_OPTIONS = ("--permissions", "--allow", "--model")

_MARKS = {
    "start": ("▶", "bold"),
    "done": ("✔", "green"),
    "submitted": ("⇢", "green"),
    "landed": ("✔", "green"),
    "sent back": ("✘", "red"),
    "failed": ("✘", "red"),
    "stopped": ("↩", "yellow"),
    "limited": ("⏸", "yellow"),
    "asked": ("?", "yellow"),
    "stuck": ("!", "yellow"),
    "goes on": ("▶", "bold"),
    "lost": ("✘", "red"),
    "waits": ("…", "yellow"),
    "trouble": ("!", "red"),
}


def run(call: Call) -> int:
    name = _name(call)
    config = load()
    try:
        agent = _agent(call, config)
    except BadInput as error:
        _report(name, error)
        raise
    budgets = {
        "--budget": cost(call.options.get("--budget"), "--budget", config.budget),
        "--task-budget": _task_budget(call, config),
    }
    _warn_of_budgets(agent, budgets)
    printer = _Printer(name, quiet="--quiet" in call.options or call.json, output=os.isatty(1))
    worker = SmartWorker(
        name,
        agent,
        allow_commands="--allow-commands" in call.options,
        labels=labels_of(call),
        store_for_agent="--store-for-agent" in call.options,
        budget=budgets["--budget"],
        task_budget=budgets["--task-budget"],
        workspace=call.options.get("--workspace", ""),
        ttl=call.ttl(),
        timeout=call.timeout(),
        grace=call.seconds("--grace", GRACE),
        backoff=call.seconds("--backoff", BACKOFF),
        stalled_after=call.seconds("--stalled-after", config.progress.stalled_after),
        on_event=printer.event,
        on_line=printer.line if printer.shows_output else None,
    )
    stopped_by = 0

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal stopped_by
        stopped_by = stopped_by or number
        worker.stop()
        if worker.idle:
            raise _Stopped  # only an exception ends the wait for a task

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # as nohup and a shell's & leave some of them
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    until_empty = "--until-empty" in call.options
    if not until_empty:
        worker.queue.counts()  # a store that cannot be used ends the command here
        printer.print(f"{name}: waiting for tasks until Ctrl-C ends it")
    with notifier_for(default_store(), name) as notifier:
        try:
            worker.run(until_empty=until_empty)
        except _Stopped:
            pass
        if stopped_by:
            notifier.end_timeout = _STOP_TIMEOUT
    tally = worker.tally
    ended = {"stopped_by": stopped_by or None, "questions": worker.open_questions}
    if not call.answer({"worker": name, **ended, **vars(tally)}):
        submitted = f"{tally.submitted} submitted, " if tally.submitted else ""
        asked = f", {tally.asked} asked" if tally.asked else ""
        printer.print(
            f"{name}: {tally.done} done, {submitted}{tally.failed} failed, {tally.released} "
            f"released, {tally.lost} lost{asked}"
        )
    return 128 + stopped_by if stopped_by else 0


class _Stopped(BaseException):
    pass


class _Printer:
    """Prints what the worker does, and on a terminal also the output of the agent."""

    def __init__(self, worker: str, *, quiet: bool, output: bool) -> None:
        self._worker = worker
        self._quiet = quiet
        self.shows_output = output and not quiet

    def event(self, what: str, task: str, text: str) -> None:
        mark, colour = _MARKS.get(what, ("…", "yellow"))
        about = f"{task}  {text}".strip()
        self.print(
            f"{time.strftime('%H:%M:%S')}  {self._worker}  "
            f"{paint(f'{mark} {what:7}', colour)}  "
            f"{shown(about)}"
        )

    def line(self, line: str) -> None:
        self.print(f"{paint('│', 'dim')} {shown(line.expandtabs(4))}")

    def print(self, text: str) -> None:
        if not self._quiet:
            try:
                terminal.out(text + "\n")
            except OSError:
                self._quiet = True  # no reader any more; the work goes on


def _name(call: Call) -> str:
    name = whoami(call.options.get("--id"), fallback=None, option="--id NAME")
    return f"worker-{name}" if name.isascii() and name.isdigit() else name


def _agent(call: Call, config: Config) -> Agent | None:
    """Return the agent that the options or swarm.toml name, None for no agent.

    Raise BadInput if its program does not exist. Without this check, the first task would
    fail.
    """
    given = [name for name in ("--exec", "--agent") if name in call.options]
    if len(given) > 1:
        raise BadInput("a worker has one agent. Leave out --exec or --agent.")
    if given == ["--exec"]:
        refuse = [name for name in _PRESET_OPTIONS if name in call.options]
        if refuse or call.command_line:
            what = refuse[0] if refuse else "words after --"
            raise BadInput(f"{what} belongs to --agent. Write it into the command of --exec.")
        return _command_agent(call.options["--exec"])
    name = call.options.get("--agent", config.agent)
    if name in ("", NO_AGENT):
        return None
    return preset_agent(
        name,
        permissions=call.options.get("--permissions", ""),
        allow=_allowed(call),
        model=call.options.get("--model", ""),
        extra=call.command_line,
        budget=_task_budget(call, config),
        config=config,
    )


def _allowed(call: Call) -> list[str]:
    found = call.every("--allow")
    try:
        commands(found)
    except ValueError as error:
        raise BadInput(f"--allow {error}.") from None
    return found


def _warn_of_budgets(agent: Agent | None, budgets: Mapping[str, float | None]) -> None:
    """Warn if the agent's cost is not known, so that a budget cannot act."""
    given = [name for name, value in budgets.items() if value is not None]
    if agent is None or not given or (isinstance(agent, PresetAgent) and agent.reports_cost):
        return
    terminal.err(
        f"swarm: warning: {agent.name} reports no cost in money, so {' and '.join(given)} cannot "
        f"stop it.\n"
    )


def _command_agent(agent: str) -> Agent:
    program, *words = command.split(agent)
    if "{" not in program and shutil.which(program) is None:
        raise BadInput(
            f"--exec names {program!r}, which cannot be run: it is not in PATH, or not executable."
        )
    if "/" in program and "{" not in program:
        program = os.path.abspath(program)  # an attempt works in another directory
    return CommandAgent([program, *words])


def _report(name: str, error: BadInput) -> None:
    """Report on the board that this worker cannot start, if no user reads its output."""
    if os.isatty(2) and not settings.in_pane():
        return
    try:
        store = default_store()
        if TaskQueue(store).counts():  # else there is nothing to do, and no view to look at
            report_end(store, name, "", str(error))
    except SwarmError:
        pass  # the error itself is printed


def labels_of(call: Call) -> list[str]:
    """Return the labels of a worker: --label may be repeated, or have several labels
    with commas. Raise BadInput if a label is invalid.
    """
    given = [label for text in call.every("--label") for label in text.split(",")]
    return [check_plain_name(label, "--label") for label in given]


def _task_budget(call: Call, config: Config) -> float | None:
    return cost(call.options.get("--task-budget"), "--task-budget", config.task_budget)


def cost(text: str | None, option: str, default: float | None) -> float | None:
    """Return the amount of money that an option names, `default` without the option."""
    if text is None:
        return default
    if not (text.isascii() and text.replace(".", "", 1).isdigit() and float(text) > 0):
        raise BadInput(f"{option} is {text[:40]!r}, but must be an amount of money, such as 5.00.")
    return float(text)


_ALLOW = Option(
    "--allow",
    "CMD",
    "let the agent run commands that begin with CMD, such as 'make test', under "
    "--permissions edit; '*' for every command; adds to allow in swarm.toml",
    repeated=True,
)
AGENT_OPTIONS = (
    Option(
        "--agent",
        "NAME",
        f"the agent: {' '.join(NAMES)}, or one of swarm.toml; {NO_AGENT} for none; default: "
        f"agent in swarm.toml",
    ),
    Option(
        "--permissions",
        "P",
        "what the agent may do: ask (what its own settings allow), edit (its task in its "
        "workspace) or full (everything); default: permissions in swarm.toml, else edit",
    ),
    Option("--model", "M", "the model for the agent; default: model in swarm.toml"),
    Option("--budget", "X", "pause when all tasks have cost X, as the agents count it"),
    Option("--task-budget", "X", "the same for each task"),
)
ALLOW_COMMANDS = Option(
    "--allow-commands",
    text="with an agent, also run tasks with a command of their own; default: leave them",
)
LABEL = Option(
    "--label",
    "LABEL",
    "claim only tasks with this label; repeated, or with commas: with one of them",
    repeated=True,
)
STORE_FOR_AGENT = Option(
    "--store-for-agent",
    text="give the agent the password of a server store; default: only the address",
)
WORKSPACE = Option(
    "--workspace",
    "MODE",
    "where the agent works: worktree (a git worktree for each attempt), copy or none; "
    "default: workspace in swarm.toml",
)
COMMAND = Command(
    run,
    "Run a worker that gives queued tasks to an agent, one after the other.",
    "swarm worker --id 1 --agent claude",
    command_line="optional",
    options=(
        Option(
            "--id",
            "N|NAME",
            "the name of the worker; a number N stands for worker-N; default: SWARM_WORKER",
        ),
        *AGENT_OPTIONS,
        _ALLOW,
        Option(
            "--exec",
            "CMD",
            (
                "the command line of any other agent; without an agent, only tasks with a command "
                "of their own are claimed"
            ),
        ),
        LABEL,
        ALLOW_COMMANDS,
        STORE_FOR_AGENT,
        WORKSPACE,
        Option(
            "--until-empty",
            text="end with exit code 0 when no task is left to do; default: wait for ever",
        ),
        Option(
            "--ttl",
            "S",
            "lease of a task in seconds; swarm renews it; default: AI_SWARM_LOCK_TTL, else 300",
        ),
        Option(
            "--timeout",
            "S",
            "an attempt that takes longer fails; the timeout of the task comes first, if it has "
            "one",
        ),
        Option(
            "--backoff",
            "S",
            f"seconds before the second attempt, doubled for each new attempt; default {BACKOFF:g}",
        ),
        Option(
            "--grace",
            "S",
            f"seconds between SIGTERM and SIGKILL when an agent must end; default {GRACE:g}",
        ),
        Option(
            "--stalled-after",
            "S",
            "tell after S seconds without a sign of work, 0 for never; default: [progress] in "
            "swarm.toml, else 900",
        ),
        Option("--quiet", text="print nothing but errors"),
    ),
    notes=(
        (
            "The agent gets the prompt on standard input. So no word of the prompt is taken for an "
            "option, and no shell runs it. "
            "In CMD, {prompt} {task_id} {worker} {token} {attempt} are filled in, without a shell. "
            "With {prompt}, standard input is empty, and other users can read the prompt (ps)."
        ),
        (
            "While the agent runs, its output goes to results/TASK.TOKEN.out and .err; see swarm "
            "task output. Lines that begin with [WAIT], [HELP], [SKIP], [ERROR] or [DONE] become "
            "status records. The exit code of the agent decides: 0 means done, 75 means that the "
            "agent cannot work now, any other code means a failed attempt. With --agent, an "
            "attempt with a denied tool call has failed too. Words after -- go to the agent."
        ),
        (
            "An agent that ends with exit code 0 and a last line [WAIT] QUESTION asks: its task "
            "waits for the answer without a worker, and the next attempt goes on with the answer. "
            "[WAIT] QUESTION [yes|no] has options."
        ),
        (
            "SIGTERM, SIGHUP and Ctrl-C end the agent and release its task. After a second signal "
            "the worker kills the agent at once, without --grace."
        ),
    ),
    exit_codes="128 + N if signal N stopped the worker",
)
