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
from swarm.stores.default import default_store
from swarm.terminal import output as terminal
from swarm.terminal.output import paint
from swarm.terminal.text import shown
from swarm.workers import command
from swarm.workers.presence import report_end
from swarm.workers.worker import BACKOFF, GRACE, SmartWorker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_MARKS = {
    "start": ("▶", "bold"),
    "done": ("✔", "green"),
    "failed": ("✘", "red"),
    "stopped": ("↩", "yellow"),
    "lost": ("✘", "red"),
    "waits": ("…", "yellow"),
    "trouble": ("!", "red"),
}


def run(call: Call) -> int:
    name = _name(call)
    agent = call.options.get("--exec")
    if agent is not None:
        try:
            _check_agent(agent)
        except BadInput as error:
            _report(name, agent, error)
            raise
    printer = _Printer(name, quiet="--quiet" in call.options or call.json, output=os.isatty(1))
    worker = SmartWorker(
        name,
        agent,
        allow_commands="--allow-commands" in call.options,
        store_for_agent="--store-for-agent" in call.options,
        ttl=call.ttl(),
        timeout=call.timeout(),
        grace=call.seconds("--grace", GRACE),
        backoff=call.seconds("--backoff", BACKOFF),
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
    try:
        worker.run(until_empty=until_empty)
    except _Stopped:
        pass
    tally = worker.tally
    if not call.answer({"worker": name, "stopped_by": stopped_by or None, **vars(tally)}):
        printer.print(
            f"{name}: {tally.done} done, {tally.failed} failed, {tally.released} released, "
            f"{tally.lost} lost"
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
        mark, colour = _MARKS[what]
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


def _check_agent(agent: str) -> None:
    """Raise BadInput if the agent's program does not exist.

    Without this check, the first task would fail.
    """
    program = command.split(agent)[0]
    if "{" not in program and shutil.which(program) is None:
        raise BadInput(
            f"--exec names {program!r}, which cannot be run: it is not in PATH, or not executable."
        )


def _report(name: str, agent: str, error: BadInput) -> None:
    """Report on the board that this worker cannot start, if no user reads its output."""
    if os.isatty(2) and not settings.in_pane():
        return
    program = os.path.basename(command.split(agent)[0])
    try:
        report_end(default_store(), name, program, str(error))
    except SwarmError:
        pass  # the error itself is printed


ALLOW_COMMANDS = Option(
    "--allow-commands",
    text="with --exec, also run tasks with a command of their own; default: leave them",
)
STORE_FOR_AGENT = Option(
    "--store-for-agent",
    text="give the agent the password of a server store; default: only the address",
)
COMMAND = Command(
    run,
    "Run a worker that gives queued tasks to an agent, one after the other.",
    "swarm worker --id 1 --exec 'claude -p'",
    options=(
        Option(
            "--id",
            "N|NAME",
            "the name of the worker; a number N stands for worker-N; default: SWARM_WORKER",
        ),
        Option(
            "--exec",
            "CMD",
            (
                "the command line of the agent; without it, only tasks with a command of their own "
                "are claimed"
            ),
        ),
        ALLOW_COMMANDS,
        STORE_FOR_AGENT,
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
        Option("--quiet", text="print nothing but errors"),
    ),
    notes=(
        (
            "The prompt is on standard input, where neither an option nor a shell can come of it. "
            "In CMD, {prompt} {task_id} {worker} {token} {attempt} are filled in, without a shell. "
            "With {prompt}, standard input is empty, and other users can read the prompt (ps)."
        ),
        (
            "While the agent runs, its output goes to results/TASK.TOKEN.out and .err. Lines "
            "that begin with [WAIT], [HELP], [SKIP], [ERROR] or [DONE] become status records. "
            "Only the exit code of the agent decides: 0 means done, any other code means a "
            "failed attempt."
        ),
        (
            "SIGTERM, SIGHUP and Ctrl-C end the agent and release its task. After a second signal "
            "the worker kills the agent at once, without --grace."
        ),
    ),
    exit_codes="128 + N if signal N stopped the worker",
)
