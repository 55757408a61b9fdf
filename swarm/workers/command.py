"""The command that a worker runs for a task: the task's own command, or the worker's
agent with the prompt filled in.

An agent is a command line with the placeholders `{prompt}`, `{task_id}`, `{worker}`,
`{token}` and `{attempt}`. swarm splits the command line into words first, and then
fills in the placeholders. No shell reads the result: nothing in a prompt can become
another word or another command. A prompt cannot become an option either: where a word
begins with `{prompt}` and the prompt with a dash, "Task: " stands before it.

Whatever the locale, the command gets the text of the queue as UTF-8. The prompt
arrives once: on standard input, or where the command line has `{prompt}`.
SWARM_PROMPT has it in both cases.
"""

from __future__ import annotations

import os
import re
import shlex

from swarm.errors import BadInput
from swarm.stores.file import state_dir
from swarm.stores.file.syscalls import file_name as utf8
from swarm.stores.secrets import agent_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from swarm.queue.queue import Claim

_MAX_WORD = 128 * 1024 - 1  # bytes; Linux takes no longer word of a command, and no longer variable
_PLACEHOLDERS = re.compile(r"\{(prompt|task_id|worker|token|attempt)\}")
_PROMPT = "{prompt}"
_TEXTS = (_PROMPT, "{task_id}", "{worker}")  # the others are numbers
# Programs that read a word as code, with the letters of the options before that word.
_USER_SHELLS = ("su", "runuser", "script")
_CODE_LETTERS = {
    **dict.fromkeys(("sh", "ash", "bash", "dash", "fish", "ksh", "mksh", "zsh"), "c"),
    **dict.fromkeys((*_USER_SHELLS, "python", "pypy"), "c"),
    **dict.fromkeys(("perl", "ruby"), "eE"),
    "node": "ep",
    "php": "r",
}
_CODE_OPTIONS = ("--command", "--session-command", "--eval", "--print")
_LETTERS_WITH_VALUE = "oOWX"  # such as -o pipefail
_REMOTE_SHELLS = ("ssh", "rsh")  # each joins all its words for a shell
_HARMLESS = "Task: "


def split(agent: str | Sequence[str]) -> list[str]:
    """Split an agent's command line into words.

    Raise BadInput if it is invalid, or if a shell would read a prompt or a name.
    """
    try:
        words = shlex.split(agent) if isinstance(agent, str) else list(agent)
    except ValueError as error:
        is_quote = "quotation" in str(error)
        problem = "a quote that is not closed" if is_quote else "a backslash at its end"
        raise BadInput(f"the agent's command line (--exec) has {problem}: {agent}") from None
    if not words or not words[0]:
        raise BadInput("the agent's command line (--exec) is empty. Give one, such as 'claude -p'.")
    for word in _code(words):
        if found := next((text for text in _TEXTS if text in word), ""):
            variable = {_PROMPT: "SWARM_PROMPT", "{worker}": "SWARM_WORKER"}.get(
                found, "SWARM_TASK_ID"
            )
            raise BadInput(
                f"the agent's command line (--exec) has {found} where a program reads it as code, "
                f"so its text could become a command. Read the prompt from standard input, or "
                f'write "${variable}" there.'
            )
    return words


def command_for(claim: Claim, agent: Sequence[str]) -> list[str]:
    """Return the command for a claimed task.

    Raise BadInput if the task has no command, or if its command is too long to be run.
    """
    spec = claim.task.spec
    if isinstance(spec.command, tuple):
        words = [utf8(word) for word in spec.command]
    elif spec.command:
        words = ["/bin/sh", "-c", utf8(spec.command)]
    elif agent:
        words = _filled(claim, agent)
    else:
        raise BadInput(
            f"{spec.id} has a prompt and no command, but this worker has no agent. Start the "
            f"worker with --exec."
        )
    if any(len(os.fsencode(word)) > _MAX_WORD for word in words):
        raise BadInput(
            "the prompt is too long for a command line. Leave {prompt} out: then the prompt is on "
            "standard input."
        )
    return words


def stdin_for(claim: Claim, agent: Sequence[str]) -> bytes:
    """Return the standard input of a task's command.

    It is the prompt, unless the prompt is in the command line of the agent.
    """
    spec = claim.task.spec
    is_in_words = not spec.command and any(_PROMPT in word for word in agent)
    return b"" if is_in_words else (spec.prompt or "").encode()


def environment_for(
    claim: Claim, *, store_for_agent: bool = False, variables: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of a task's command. `variables` name the worker's store.

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
    environment.pop("SWARM_PROMPT", None)  # set by a worker that started this worker
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


def _code(words: Sequence[str]) -> Iterator[str]:
    """Yield the words that a program of the command line would read as code.

    The first word is one of them: it names the program. Names may be in it.
    """
    yield words[0].replace("{task_id}", "").replace("{worker}", "")
    for at, word in enumerate(words):
        program = os.path.basename(word).rstrip("0123456789.")
        if program in _REMOTE_SHELLS:
            yield from words[at + 1 :]
        elif program in _CODE_LETTERS:
            yield from _code_of(program, iter(words[at + 1 :]))


def _code_of(program: str, words: Iterator[str]) -> Iterator[str]:
    for word in words:
        if not word.startswith(("-", "+")):
            if program in _USER_SHELLS:
                continue  # a user or a file, and options may follow
            return  # a script: the words behind it are the script's
        yield word
        is_long = word.startswith("--")
        if word in _CODE_OPTIONS or (not is_long and set(word) & set(_CODE_LETTERS[program])):
            yield next(words, "")
        elif not is_long and word[-1] in _LETTERS_WITH_VALUE:
            next(words, "")


def _filled(claim: Claim, agent: Sequence[str]) -> list[str]:
    values = {
        "prompt": utf8(claim.task.spec.prompt or ""),
        "task_id": utf8(claim.task.id),
        "worker": utf8(claim.worker),
        "token": str(claim.token),
        "attempt": str(claim.task.attempts),
    }

    def fill(word: str) -> str:
        filled = _PLACEHOLDERS.sub(lambda match: values[match[1]], word)
        could_be_option = filled.startswith("-") and not word.startswith("-")
        return f"{_HARMLESS}{filled}" if could_be_option else filled

    return [fill(word) for word in agent]
