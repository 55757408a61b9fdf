"""The work of a claim from a shell: its workspace, and its check at the end."""

from __future__ import annotations

from swarm.errors import SwarmError
from swarm.landing.claimed import Caller, WorkRefused
from swarm.landing.context import NONE, WORKTREE, work_context
from swarm.locks.companions import held_slots, slot_variables
from swarm.queue.queue import Claim, TaskQueue
from swarm.stores.default import default_store
from swarm.stores.file import state_dir
from swarm.terminal.text import foreign_name, shown
from swarm.workers.command import task_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def caller(queue: TaskQueue, worker: str, *, mode: str = "", force: bool = False) -> Caller:
    """Return this shell as the caller that ends a claim."""

    def environment(task: str, token: int) -> Mapping[str, str]:
        attempt = {"SWARM_ATTEMPT": str(queue.get(task).attempts)}
        attempt |= slot_variables(held_slots(default_store(), task))
        # a check of the user's own shell may use the store as the shell does
        return {**task_environment(task, worker, token, store_for_agent=True), **attempt}

    return Caller(
        default_store(),
        queue,
        work_context(mode),
        worker,
        state_dir.given().path,
        environment,
        force=force,
    )


def make_workspace(queue: TaskQueue, worker: str, claim: Claim) -> str:
    """Make the workspace of a claim, and return its directory. If that fails, release the
    claim and raise the error.
    """
    try:
        ready = caller(queue, worker, mode=_mode())
    except SwarmError as error:
        queue.release(claim.task.id, worker, claim.token, str(error))
        raise
    return ready.make_workspace(claim).directory


def saved_work(queue: TaskQueue, worker: str, task: str, token: int | None) -> str:
    """Save the work of a claim that ends as failed or released. Return its commit, "" if
    there is none, or if it cannot be saved now.
    """
    try:
        return caller(queue, worker).saved_work(task, token)
    except SwarmError:
        return ""  # the workspace stays, and the next attempt saves it


def refusal_text(error: WorkRefused) -> str:
    """Return what a user reads about refused work."""
    lines = [f"Not done: {foreign_name(error.task_id)}. Its claim goes on.\n"]
    lines += [f"  | {shown(line)}\n" for line in error.last_lines]
    return "".join(lines)


def _mode() -> str:
    found = work_context()
    if found.workspaces is None and found.repository is None:
        raise SwarmError(
            "a workspace needs a project in a git checkout. Make one: git init, then swarm init"
        )
    return WORKTREE if found.mode == NONE else found.mode
