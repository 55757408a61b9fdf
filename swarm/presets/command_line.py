"""The command line of an agent that a user writes: `--exec`, or `command` in swarm.toml.

swarm splits the command line into words first, and then fills in the placeholders. No
shell reads the result: nothing in a prompt can become another word or another command.
A prompt cannot become an option either: where a word begins with a placeholder and its
text with a dash, "Task: " stands before it.
"""

from __future__ import annotations

import os
import re
import shlex

from swarm.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from swarm.presets.contract import Request

PROMPT = "{prompt}"
_TEXTS = (PROMPT, "{task_id}", "{worker}", "{session}")  # the others are numbers
_PLACEHOLDERS = re.compile(r"\{(prompt|task_id|worker|token|attempt|session)\}")
_VARIABLES = {PROMPT: "SWARM_PROMPT", "{worker}": "SWARM_WORKER", "{task_id}": "SWARM_TASK_ID"}
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


def split(agent: str | Sequence[str], what: str = "--exec") -> list[str]:
    """Split an agent's command line into words. `what` names it in messages.

    Raise BadInput if it is invalid, or if a shell would read a prompt or a name.
    """
    try:
        words = shlex.split(agent) if isinstance(agent, str) else list(agent)
    except ValueError as error:
        is_quote = "quotation" in str(error)
        problem = "a quote that is not closed" if is_quote else "a backslash at its end"
        raise BadInput(f"the agent's command line ({what}) has {problem}: {agent}") from None
    if not words or not words[0]:
        raise BadInput(
            f"the agent's command line ({what}) is empty. Give one, such as 'my-agent run'."
        )
    for word in _code(words):
        if found := next((text for text in _TEXTS if text in word), ""):
            variable = _VARIABLES.get(found)
            instead = (
                f'Read the prompt from standard input, or write "${variable}" there.'
                if variable
                else "Give it as a word of its own."
            )
            raise BadInput(
                f"the agent's command line ({what}) has {found} where a program reads it as code, "
                f"so its text could become a command. {instead}"
            )
    return words


def refuse_words(request: Request, agent: str, *options: str) -> None:
    """Raise BadInput if a further word for an agent is one of these options: they change
    the output, which swarm then could not read.
    """
    for word in request.extra:
        if word.split("=", 1)[0] in options:
            raise BadInput(
                f"{word[:60]!r} after -- changes the output of {agent}, which swarm must read. "
                f"Leave it out. For plain text, use: --exec '{agent} …'"
            )


def fill(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return the words with each placeholder replaced by its value.

    A placeholder without a value stays.
    """

    def filled(word: str) -> str:
        text = _PLACEHOLDERS.sub(lambda match: values.get(match[1], match[0]), word)
        could_be_option = text.startswith("-") and not word.startswith("-")
        return f"{_HARMLESS}{text}" if could_be_option else text

    return [filled(word) for word in words]


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
