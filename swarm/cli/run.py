"""`swarm run`: run a command while holding a task's lock.

The lock is bound to this process and to the process group of the command. If this
process is killed, the task is free as soon as the group is empty; on Linux the command
dies with this process. swarm ends the processes that the command left in its process
group, then releases the lock. swarm does not end a process with a group or session of
its own, such as a daemon.
"""

from __future__ import annotations

import math
import os
import signal

from swarm import settings
from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command, Option
from swarm.cli.lock import SLOTS_OPTION, VALUES_OPTION, next_step
from swarm.cli.locks.slots import answer_held, wanted
from swarm.errors import CannotRun, LockHeld, LockLost, NeedHeld, StoreError
from swarm.inputs import check_name, whole
from swarm.locks.companions import slot_variables
from swarm.locks.lease import Lease
from swarm.locks.slots import Slots, SlotTable
from swarm.locks.table import LockTable
from swarm.status import events
from swarm.status.log import StatusLog
from swarm.stores import cleaners
from swarm.stores.default import default_store
from swarm.system import job_control
from swarm.system.child import GatedProcess
from swarm.system.job_control import GRACE, Foreground
from swarm.terminal import output
from swarm.workers.command import task_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def run(call: Call) -> int:
    task, worker = (
        check_name(call.get(0), "TASK"),
        whoami(call.options.get("--worker"), fallback="user", pid=os.getpid()),
    )
    ttl = call.ttl() or settings.lock_ttl()
    wait = call.seconds("--wait", 0.0)
    grace = call.seconds("--grace", GRACE)
    held_exit = whole(
        call.options.get("--held-exit", str(LockHeld.exit_code)), "--held-exit", 0, 255
    )
    slots = wanted(call, task)
    table = SlotTable(default_store()) if slots else LockTable(default_store())
    child = GatedProcess(group=True, die_with_parent=True)
    try:
        job_control.exit_on_signals()
        work = _Work(table, child, task, worker, ttl, wait, slots)
        work.store_for_agent = "--store-for-agent" in call.options
        code = work.run(call.command_line, grace)
    except LockHeld as held:
        StatusLog(table.store).append("SKIP", worker, task, str(held), events.held_by(held.holder))
        _report_held(call, table, held, next_step(task, wait))
        return held_exit
    finally:
        job_control.hold_signals()  # a signal must not interrupt the clean-up
        child.discard()
        table.store.close()
    work.foreground.end_as_it_did()
    return code


class _Work:
    """A command that runs with a lease.

    The start and the end of the command are written to the status log.
    """

    def __init__(
        self,
        table: LockTable,
        child: GatedProcess,
        task: str,
        worker: str,
        ttl: int,
        wait: float,
        slots: Slots | None,
    ) -> None:
        self.foreground = Foreground(child)
        self.store_for_agent = False
        self._child = child
        self._log = StatusLog(table.store)
        self._lease = Lease(
            table, task, worker, ttl, group=child.pid, wait=wait, on_lost=self._on_lost, slots=slots
        )
        self._lost: LockLost | None = None

    def run(self, command: Sequence[str], grace: float) -> int:
        """Run the command and return its exit code.

        Raise LockHeld, LockLost or CannotRun. If the store fails, raise StoreError,
        unless the command itself failed.
        """
        code: int | None = None
        try:
            with self._lease, cleaners.keep_away():
                job_control.hold_signals()
                self._record("START")
                code = self._run(command, grace)
                self._record_end(code)
        except StoreError as error:
            if not code and not self._lost:
                raise
            output.error(str(error))
        if self._lost is not None:
            what = "had ended by then" if code is not None else "was stopped"
            raise LockLost(self._lease.task_id, f"{self._lost} The command {what}.")
        return code or 0

    def _run(self, command: Sequence[str], grace: float) -> int | None:
        """Return the command's exit code. Return None if the command was stopped
        because the lease was lost.
        """
        try:
            environment = task_environment(
                self._lease.task_id,
                self._lease.worker,
                self._lease.token,
                store_for_agent=self.store_for_agent,
            )
            if self._lease.slot:
                environment |= slot_variables({self._lease.task_id: [self._lease.slot]})
            code = self.foreground.run(
                command,
                environment,
                must_stop=self._is_lost,
                is_late=lambda: self._lease.seconds_left <= 0,
                grace=grace,
                at_most=self._at_most,
            )
        except CannotRun as error:
            self._record("ERROR", str(error), exit_code=error.exit_code)
            raise
        if not self._child.is_over():
            self._lease.detach()
            output.error(
                f"some processes of group {self._child.pid} cannot be ended, for example "
                "because they belong to another user. "
                "The task stays locked until these processes have ended or the lease is over."
            )
        return code

    def _record_end(self, code: int | None) -> None:
        if code is None or self._is_lost():
            self._record(
                "SKIP",
                str(self._lost),
                **events.lost(**({} if code is None else {"exit_code": code})),
            )
        elif code == 0:
            self._record("DONE", exit_code=0)
        else:
            number = self._child.ended_by
            self._record(
                "ERROR",
                f"ended by {signal.Signals(number).name}" if number else f"exit code {code}",
                exit_code=code,
            )

    def _record(self, state: str, reason: str = "", **meta: object) -> None:
        lease = self._lease
        self._log.append(state, lease.worker, lease.key, reason, {**meta, "token": lease.token})

    def _is_lost(self) -> bool:
        try:
            self._lease.check()
        except LockLost:
            return True
        return False

    def _at_most(self) -> float:
        """Return how many seconds the command may take to end after the lease was lost.

        After these seconds other workers may take the task over.
        """
        return math.inf if self._lost is None else self._lease.seconds_to_stop

    def _on_lost(self, lost: LockLost) -> None:
        self._lost = lost
        job_control.wake()


def _report_held(call: Call, table: LockTable, held: LockHeld, advice: str) -> None:
    task = held.task_id
    if isinstance(held, NeedHeld):
        answer_held(call, held, advice)
        return
    if call.json:
        other = table.status(task).lock
        lock = other.fields() if other else None
        try:
            call.answer({"acquired": False, "task_id": task, "reason": str(held), "lock": lock})
        except BrokenPipeError:
            pass  # the exit code is the answer
    output.error(f"{held} {advice}")


COMMAND = Command(
    run,
    "Run a command while holding a task's lock.",
    "swarm run task-001 -- make test",
    positional=("TASK",),
    options=(
        Option("--worker", "W", "the worker; default: SWARM_WORKER, else USER@HOST-PID"),
        Option(
            "--ttl",
            "S",
            "lease in seconds; swarm renews it; default: AI_SWARM_LOCK_TTL, else 300",
        ),
        Option("--wait", "S", "wait up to S seconds for the lock; default: do not wait"),
        SLOTS_OPTION,
        VALUES_OPTION,
        Option("--held-exit", "N", "exit code if another worker holds the task; default 1"),
        Option("--grace", "S", f"seconds between SIGTERM and SIGKILL; default {GRACE:g}"),
        Option(
            "--store-for-agent",
            text="give the command the password of a server store; default: only the address",
        ),
    ),
    command_line="required",
    details=(
        (
            "The lock is released however the command ends. swarm writes START to the status "
            "log, then DONE or ERROR. If another worker holds the task, the command is not run "
            "and SKIP is logged."
        ),
    ),
    notes=(
        (
            "The command finds SWARM_TASK_ID, SWARM_WORKER, SWARM_TOKEN and SWARM_STATE_DIR in "
            "its environment, with --slots or --values also SWARM_SLOT. swarm passes signals on "
            "to the command."
        ),
        (
            "If the lease is lost, the command and its process group are ended: SIGTERM, then "
            "SIGKILL after --grace. If the store cannot be reached, the command is ended before "
            "the lease is over, even if --grace is longer than the time that is left."
        ),
        (
            "When the command has ended, swarm also ends the processes that the command left in "
            "its process group. A daemon in a session of its own goes on. If swarm run itself "
            "is killed, the command dies with it (on Linux), and the task is free once its "
            "process group is empty."
        ),
    ),
    exit_codes="that of the command, 128 + N if signal N ended it, 126 or 127 if it cannot be run",
)
