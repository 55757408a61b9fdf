"""The command of a task: its own, or the worker's agent with the prompt filled in.

An agent is a command line with the placeholders `{prompt}`, `{task_id}`, `{worker}`,
`{token}` and `{attempt}`. swarm splits the command line into words first, and then
fills in the placeholders. No shell reads the result: nothing in a prompt can become
another word or another command. The prompt is also in SWARM_PROMPT and on standard
input.
"""

from __future__ import annotations

import os
import re
import shlex

from swarm import settings
from swarm.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from swarm.queue.queue import Claim

_MAX_WORD = 128 * 1024 - 1  # bytes; Linux takes no longer word of a command, and no longer variable
_PLACEHOLDERS = re.compile(r"\{(prompt|task_id|worker|token|attempt)\}")


def split(agent: str | Sequence[str]) -> list[str]:
    """Split an agent's command line into words. Raise BadInput if it is invalid."""
    try:
        words = shlex.split(agent) if isinstance(agent, str) else list(agent)
    except ValueError as error:
        is_quote = "quotation" in str(error)
        problem = "a quote that is not closed" if is_quote else "a backslash at its end"
        raise BadInput(f"the agent's command line (--exec) has {problem}: {agent}") from None
    if not words or not words[0]:
        raise BadInput(
            "the agent's command line (--exec) is empty. Give one, such as 'claude -p {prompt}'."
        )
    return words


def command_for(claim: Claim, agent: Sequence[str]) -> list[str]:
    """Return the command for a claimed task.

    Raise BadInput if the task has no command, or if its command is too long to be run.
    """
    spec = claim.task.spec
    if isinstance(spec.command, tuple):
        words = list(spec.command)
    elif spec.command:
        words = ["/bin/sh", "-c", spec.command]
    elif agent:
        words = _filled(claim, agent)
    else:
        raise BadInput(
            f"{spec.id} has a prompt and no command, but this worker has no agent. Start the "
            f"worker with --exec."
        )
    if any(len(os.fsencode(word)) > _MAX_WORD for word in words):
        raise BadInput(
            "the prompt is too long for a command line. Leave {prompt} out: the prompt is on "
            "standard input too."
        )
    return words


def environment_for(claim: Claim) -> dict[str, str]:
    """Return the environment of a task's command.

    A prompt that is too long for a variable is only on standard input.
    """
    environment = task_environment(claim.task.id, claim.worker, claim.token)
    environment["SWARM_ATTEMPT"] = str(claim.task.attempts)
    environment.pop("SWARM_PROMPT", None)  # set by a worker that started this worker
    prompt = claim.task.spec.prompt
    if prompt and len(prompt.encode()) + len("SWARM_PROMPT=") <= _MAX_WORD:
        environment["SWARM_PROMPT"] = prompt
    return environment


def task_environment(task: str, worker: str, token: int) -> dict[str, str]:
    """Return this process's environment with task, worker, token and state directory."""
    state_dir = settings.state_dir()[0]
    names = {"SWARM_TASK_ID": task, "SWARM_WORKER": worker, "SWARM_TOKEN": str(token)}
    return {
        **settings.environment(),
        **names,
        "SWARM_STATE_DIR": state_dir,
        "AI_SWARM_DIR": state_dir,
    }


def _filled(claim: Claim, agent: Sequence[str]) -> list[str]:
    values = {
        "prompt": claim.task.spec.prompt or "",
        "task_id": claim.task.id,
        "worker": claim.worker,
        "token": str(claim.token),
        "attempt": str(claim.task.attempts),
    }
    return [_PLACEHOLDERS.sub(lambda match: values[match[1]], word) for word in agent]
