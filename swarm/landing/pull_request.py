"""Leave the merge to a forge, and wait for it by a command of the user's.

The work is pushed as a branch of its own. The command asks the forge, and says by its
exit code what became of the work: 0 merged, 75 not yet, any other code rejected. It is
asked again after a while. It must be safe to run more than once for the same work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from swarm.landing.outcome import Blocked
from swarm.landing.remote import RemoteTarget
from swarm.queue.queue import Submission, Task
from swarm.terminal.text import foreign, foreign_name
from swarm.workspaces.check import CheckRun, run_check
from swarm.workspaces.refs import attempt_branch, short
from swarm.workspaces.rules import Rules

NOT_YET = 75  # EX_TEMPFAIL


def ask(
    target: RemoteTarget,
    task: Task,
    submission: Submission,
    rules: Rules,
    *,
    directory: str,
    environment: Mapping[str, str],
    output: str,
    must_end: Callable[[], str] = lambda: "",
) -> CheckRun:
    """Push the work and run the user's command. Return how the command ended: with 0 the
    forge has merged the work, with another code it is rejected.

    Raise Blocked if the work is not merged yet, GitError if the remote cannot be used.
    """
    branch = attempt_branch(task.id, submission.token)
    target.publish_branch(submission.work, branch)
    variables = {
        "SWARM_TASK_ID": task.id,
        "SWARM_TOKEN": str(submission.token),
        "SWARM_BRANCH": short(branch),
        "SWARM_LAND_BRANCH": submission.branch,
        "SWARM_COMMIT": submission.work,
        "SWARM_REMOTE": target.remote,
    }
    run = run_check(
        (rules.pr,),
        directory,
        {**environment, **variables},
        output=output,
        timeout=rules.check_timeout,
        must_end=must_end,
    )
    if run.exit_code == NOT_YET and not run.stopped:
        words = f": {foreign(run.last_lines[-1])}" if run.last_lines else ""
        raise Blocked(
            f"waits for the forge to merge {foreign_name(short(branch))}{words}", needs_user=False
        )
    return run
