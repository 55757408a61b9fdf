"""`swarm worker`: a worker in a terminal or a script."""

from __future__ import annotations

import os
import shutil
import signal
import time

from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command
from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.inputs import parse_ttl, parse_wait
from swarm.terminal import output as terminal
from swarm.terminal.output import paint
from swarm.terminal.text import shown
from swarm.workers import command
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
    "trouble": ("!", "red"),
}


def run(call: Call) -> int:
    name = _name(call)
    agent = call.options.get("--exec")
    if agent is not None:
        _check_agent(agent)
    told = _Told(name, quiet="--quiet" in call.options or call.json, output=os.isatty(1))
    worker = SmartWorker(
        name,
        agent,
        ttl=parse_ttl(call.options["--ttl"], "--ttl") if "--ttl" in call.options else None,
        timeout=parse_wait(call.options["--timeout"], "--timeout") if "--timeout" in call.options else None,
        grace=parse_wait(call.options.get("--grace", str(GRACE)), "--grace"),
        backoff=parse_wait(call.options.get("--backoff", str(BACKOFF)), "--backoff"),
        on_event=told.event,
        on_line=told.line if told.shows_output else None,
    )
    stopped_by = 0

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal stopped_by
        stopped_by = stopped_by or number
        worker.stop()
        if worker.idle:
            raise _Stopped  # it waits where only an exception wakes it

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup and a shell's & leave some of them
            signal.signal(number, stop)
    try:
        worker.run(until_empty="--until-empty" in call.options)
    except _Stopped:
        pass
    tally = worker.tally
    if call.json:
        terminal.out(
            json_codec.dumps({"schema_version": 1, "worker": name, "stopped_by": stopped_by or None, **vars(tally)}) + "\n"
        )
    else:
        told.say(f"{name}: {tally.done} done, {tally.failed} failed, {tally.given_back} given back, {tally.lost} lost")
    return 128 + stopped_by if stopped_by else 0


class _Stopped(BaseException):
    pass


class _Told:
    """What a person at the terminal is told; the agent's own output only where somebody can look at it."""

    def __init__(self, worker: str, *, quiet: bool, output: bool) -> None:
        self._worker = worker
        self._quiet = quiet
        self.shows_output = output and not quiet

    def event(self, what: str, task: str, text: str) -> None:
        mark, colour = _MARKS[what]
        about = f"{task}  {text}".strip()
        self.say(f"{time.strftime('%H:%M:%S')}  {self._worker}  {paint(f'{mark} {what:7}', colour)}  {shown(about)}")

    def line(self, line: str) -> None:
        self.say(f"{paint('│', 'dim')} {shown(line.expandtabs(4))}")

    def say(self, text: str) -> None:
        if not self._quiet:
            try:
                terminal.out(text + "\n")
            except OSError:
                self._quiet = True  # nobody listens any more; the work goes on


def _name(call: Call) -> str:
    name = whoami(call.options.get("--id"), fallback=None, option="--id")
    return f"worker-{name}" if name.isascii() and name.isdigit() else name


def _check_agent(agent: str) -> None:
    """An agent that is not there would be found out only with the first task."""
    program = command.split(agent)[0]
    if "{" not in program and shutil.which(program) is None:
        raise BadInput(f"--exec names {program!r}, which cannot be run: it is not in PATH, or not executable.")


COMMAND = Command(
    "[--id N] [--exec CMD] [--until-empty] [--ttl S] [--timeout S] [--backoff S] [--grace S] [--quiet]",
    "Takes tasks from the queue, one after the other, and has an agent do them: any command line. Ends when it is told to.\n"
    "\n"
    "  --id N          who it is; a number N stands for worker-N; default $SWARM_WORKER\n"
    "  --exec CMD      the agent. {prompt} {task_id} {worker} {token} {attempt} are filled in, without a shell; the prompt is "
    "also on standard input and in SWARM_PROMPT. Without it, only tasks with a command of their own are taken\n"
    "  --until-empty   end when nothing is left to do\n"
    "  --ttl S         the lease of a task, kept alive while it runs; default $AI_SWARM_LOCK_TTL, else 300 seconds\n"
    "  --timeout S     an attempt that takes longer has failed; a task's own timeout goes before\n"
    f"  --backoff S     seconds before the second attempt, doubled for each further one; default {BACKOFF:g}\n"
    f"  --grace S       seconds between SIGTERM and SIGKILL for what must end; default {GRACE:g}\n"
    "  --quiet         say nothing but errors\n"
    "\n"
    "What the agent writes goes to results/TASK.TOKEN.out and .err while it runs. Its lines [WAIT] …, [HELP] …, [SKIP] …, "
    "[ERROR] … and [DONE] … become status records. Its exit code alone decides: 0 is done, anything else a failed attempt.\n"
    "SIGTERM, SIGHUP or Ctrl-C end the agent and give its task back; a second one does so without waiting.",
    "swarm worker --id 1 --exec 'claude -p {prompt}'",
    run,
    "--id= --exec= --until-empty --ttl= --timeout= --backoff= --grace= --quiet",
    "0 when nothing is left to do; 128 + N if signal N has stopped it. If swarm itself answers, one of these",
)
