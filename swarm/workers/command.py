"""What is run for a task: its own command, or the worker's agent, told what to do.

An agent is a command line in which `{prompt}`, `{task_id}`, `{worker}`, `{token}` and `{attempt}` stand for what they say. It is
split into words once, before they are filled in, and no shell reads them: nothing in a prompt can become a word or a command of
its own. The prompt is also given in SWARM_PROMPT and on standard input.
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

_MAX_WORD = 128 * 1024 - 1  # bytes; what Linux takes as one word of a command or one variable
_PLACES = re.compile(r"\{(prompt|task_id|worker|token|attempt)\}")


def split(agent: str | Sequence[str]) -> list[str]:
    """An agent's command line as words. Raises BadInput."""
    try:
        words = shlex.split(agent) if isinstance(agent, str) else list(agent)
    except ValueError as error:
        raise BadInput(f"the agent {agent!r:.80} is not a command line: {error}.") from None
    if not words or not words[0]:
        raise BadInput("the agent is empty. Give a command line, such as 'claude -p {prompt}'.")
    return words


def command_for(claim: Claim, agent: Sequence[str]) -> list[str]:
    """The command for a claimed task. Raises BadInput if there is none, or if it is too long to be run."""
    spec = claim.task.spec
    if isinstance(spec.command, tuple):
        words = list(spec.command)
    elif spec.command:
        words = ["/bin/sh", "-c", spec.command]
    elif agent:
        words = _filled(claim, agent)
    else:
        raise BadInput(f"{spec.id} has a prompt and no command, and this worker has no agent. Start it with --exec.")
    if any(len(os.fsencode(word)) > _MAX_WORD for word in words):
        raise BadInput("the prompt is too long to be a word of a command. Leave {prompt} out: it is on standard input too.")
    return words


def environment_for(claim: Claim) -> dict[str, str]:
    """What the command finds in its environment; a prompt that is too long for it only stands on standard input."""
    environment = task_environment(claim.task.id, claim.worker, claim.token)
    environment["SWARM_ATTEMPT"] = str(claim.task.attempts)
    environment.pop("SWARM_PROMPT", None)  # of a worker that we run in
    prompt = claim.task.spec.prompt
    if prompt and len(prompt.encode()) + len("SWARM_PROMPT=") <= _MAX_WORD:
        environment["SWARM_PROMPT"] = prompt
    return environment


def task_environment(task: str, worker: str, token: int) -> dict[str, str]:
    """The environment of a command that works on a task: who it is, and this swarm, whatever its working directory."""
    place = settings.state_dir()[0]
    names = {"SWARM_TASK_ID": task, "SWARM_WORKER": worker, "SWARM_TOKEN": str(token)}
    return {**settings.environment(), **names, "SWARM_STATE_DIR": place, "AI_SWARM_DIR": place}


def _filled(claim: Claim, agent: Sequence[str]) -> list[str]:
    values = {
        "prompt": claim.task.spec.prompt or "",
        "task_id": claim.task.id,
        "worker": claim.worker,
        "token": str(claim.token),
        "attempt": str(claim.task.attempts),
    }
    return [_PLACES.sub(lambda match: values[match[1]], word) for word in agent]
