"""The command that a worker runs for a task: the task's own command, or the worker's
agent with the prompt filled in.

An agent is a command line with the placeholders `{prompt}`, `{task_id}`, `{worker}`,
`{token}` and `{attempt}`; see `swarm.presets.command_line`.

Whatever the locale, the command gets the text of the queue as UTF-8. The prompt
arrives once: on standard input, or where the command line has `{prompt}`. SWARM_PROMPT
has it in both cases, without the record of the attempt before (see `feedback`).
"""

from __future__ import annotations

import os

from swarm.errors import BadInput
from swarm.locks.companions import SLOT_VARIABLE, slot_variables
from swarm.presets.command_line import PROMPT, fill, split
from swarm.stores.file import state_dir
from swarm.stores.file.syscalls import file_name as utf8
from swarm.stores.secrets import agent_environment
from swarm.workers.feedback import answer_variables, last_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from swarm.queue.queue import Claim

__all__ = [
    "environment_for",
    "filled",
    "own_words",
    "split",
    "stdin_for",
    "task_environment",
]

_MAX_WORD = 128 * 1024 - 1  # bytes; Linux takes no longer word of a command, and no longer variable
_OF_AN_ATTEMPT = (
    "SWARM_PROMPT",
    "SWARM_LAST_FAILURE",
    "SWARM_QUESTION",
    "SWARM_ANSWER",
    "SWARM_ANSWER_FROM",
    "SWARM_AGENT",
)


def own_words(claim: Claim) -> list[str]:
    """Return the words of a task's own command. Raise BadInput if it is too long."""
    given = claim.task.spec.command or ()
    return _checked(
        [utf8(word) for word in given]
        if isinstance(given, tuple)
        else ["/bin/sh", "-c", utf8(given)]
    )


def filled(claim: Claim, agent: Sequence[str], prompt: str) -> list[str]:
    """Return the words of an agent's command line, with the prompt and the facts of a
    claim filled in. Raise BadInput if a word is too long.
    """
    values = {
        "prompt": utf8(prompt),
        "task_id": utf8(claim.task.id),
        "worker": utf8(claim.worker),
        "token": str(claim.token),
        "attempt": str(claim.task.attempts),
    }
    return _checked(fill(agent, values))


def stdin_for(agent: Sequence[str], prompt: str) -> bytes:
    """Return the standard input of an agent.

    It is the prompt, unless the prompt is in the command line of the agent.
    """
    return b"" if any(PROMPT in word for word in agent) else prompt.encode()


def environment_for(
    claim: Claim,
    *,
    agent: str = "",
    store_for_agent: bool = False,
    variables: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment of a task's command. `agent` is the agent's name.
    `variables` name the worker's store.

    A prompt that is too long for an environment variable is only on standard input.
    """
    environment = task_environment(
        claim.task.id,
        claim.worker,
        claim.token,
        store_for_agent=store_for_agent,
        variables=variables,
    )
    environment["SWARM_ATTEMPT"] = str(claim.task.attempts)
    for name in (
        *_OF_AN_ATTEMPT,
        *(each for each in environment if each.startswith(SLOT_VARIABLE)),
    ):
        environment.pop(name, None)  # set by a worker that started this worker
    environment |= slot_variables(claim.slots)
    if agent:
        environment["SWARM_AGENT"] = agent
    if failure := last_failure(claim.previous):
        environment["SWARM_LAST_FAILURE"] = utf8(failure)
    for name, value in answer_variables(claim.previous).items():
        environment[name] = utf8(value)
    prompt = claim.task.spec.prompt
    if prompt and len(prompt.encode()) + len("SWARM_PROMPT=") <= _MAX_WORD:
        environment["SWARM_PROMPT"] = utf8(prompt)
    return environment


def task_environment(
    task: str,
    worker: str,
    token: int,
    *,
    store_for_agent: bool = False,
    variables: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return this process's environment with task, worker, token and state directory.

    `store_for_agent`: with the password of the store. `variables` name a store that the
    environment does not name, see `DefaultStore.variables`.
    """
    directory = (variables or {}).get("SWARM_STATE_DIR") or state_dir.named().path
    names = {
        "SWARM_TASK_ID": utf8(task),
        "SWARM_WORKER": utf8(worker),
        "SWARM_TOKEN": str(token),
    }
    return {
        **agent_environment(store_for_agent=store_for_agent, variables=variables),
        **names,
        "SWARM_STATE_DIR": directory,
        "AI_SWARM_DIR": directory,
    }


def _checked(words: list[str]) -> list[str]:
    if any(len(os.fsencode(word)) > _MAX_WORD for word in words):
        raise BadInput(
            "the prompt is too long for a command line. Leave {prompt} out: then the prompt is on "
            "standard input."
        )
    return words
