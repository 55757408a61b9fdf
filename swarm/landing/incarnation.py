"""Tell a task from an earlier task of the same name.

A user may remove a state directory, and begin again with the same names. Tokens then
begin at 1 again, but the repository remembers the tokens and landings of the earlier
task. `refs/swarm/task/TASK` has the time at which the task was added. The first attempt
at a later task removes the fence and the landed ref of the earlier one. Its commits stay.
"""

from __future__ import annotations

from swarm.errors import LockLost
from swarm.landing.target import Target
from swarm.queue.queue import Task
from swarm.terminal.text import foreign_name
from swarm.workspaces.refs import landed_ref, task_fence, task_ref


def begin(target: Target, task: Task, branch: str) -> None:
    """Make the refs of a task those of this task. `branch` is where it lands, "" for none.

    Raise LockLost if a task of this name was added later, by another swarm.
    """
    ref, added = task_ref(task.id), f"{task.added_at}\n"
    while True:
        known, text = target.read(ref)
        if text == added:
            return
        if text > added:
            raise LockLost(
                task.id,
                f"{foreign_name(task.id)} was added at {task.added_at}, but the repository knows a "
                f"task of this name that was added later, at {text.strip()}. Two swarms share this "
                "repository: give their tasks different names.",
            )
        names = [task_fence(task.id), *([landed_ref(branch, task.id)] if branch else [])]
        changes = {name: ("", old) for name in names if (old := target.read(name)[0])}
        if target.change({ref: (target.write(added), known), **changes}):
            return
