"""Status records about prompts in panes.

    WAIT   a prompt that only a person answers, for each task that the agent holds
    SKIP   swarm has answered a prompt; the record only informs
    START  the prompt is gone, and the task goes on

An agent that holds no task gets records under the name `pane:AGENT`, which end with a
SKIP. The text of the prompt is quoted: it is data.
"""

from __future__ import annotations

from collections.abc import Mapping

from swarm.errors import StoreError
from swarm.locks.table import LockTable
from swarm.status.log import StatusLog
from swarm.status.reader import StatusReader
from swarm.stores.contract import Store
from swarm.terminal.text import foreign
from swarm.tmux.prompts import DANGER, ENTER_KEY, SPACE_KEY, Prompt

_PANE = "pane:"
_KEY_NAMES = {ENTER_KEY: "Enter", SPACE_KEY: "Space"}

Tasks = dict[str, int | None]
"""Tasks with the token of the lock that the agent holds; None for a pane."""


class PromptRecords:
    """Writes the records about prompts. The methods raise StoreError if they cannot."""

    def __init__(self, store: Store) -> None:
        self._log = StatusLog(store)
        self._locks = LockTable(store)
        self._store = store

    def answered(self, agent: str, prompt: Prompt) -> None:
        text = f"swarm typed {key_names(prompt.keys)} at the prompt {foreign(prompt.text)}"
        meta = {"prompt": prompt.kind, "typed": key_names(prompt.keys)}
        for task, token in self._tasks(agent).items():
            self._log.append("SKIP", agent, task, text, _with_token(meta, token))

    def waits(self, agent: str, prompt: Prompt, why: str) -> Tasks:
        """Log that the agent waits for a person. Return the tasks that wait."""
        dangerous = "a dangerous " if prompt.kind == DANGER else "a "
        text = (
            f"waits at {dangerous}prompt: {foreign(prompt.text)} (not answered: {why}). Answer in "
            f"the pane: swarm attach"
        )
        tasks = self._tasks(agent)
        for task, token in tasks.items():
            self._log.append("WAIT", agent, task, text, _with_token({"prompt": prompt.kind}, token))
        return tasks

    def over(self, agent: str, tasks: Tasks) -> None:
        """Log that the agent does not wait any more."""
        for task, token in tasks.items():
            if token is None:
                self._log.append("SKIP", agent, task, "the prompt is gone")
            elif self._locks.status(task).is_held_by(agent, token):
                self._log.append("START", agent, task, "goes on", {"token": token})

    def end_left_over(self) -> None:
        """End the waits of panes that an earlier process logged and did not end."""
        reader = StatusReader(self._store)
        reader.read()
        for task, last in list(reader.state.waiting.items()):
            if task == _PANE + last.worker:
                self.over(last.worker, {task: None})

    def _tasks(self, agent: str) -> Tasks:
        found: Tasks = {}
        for task in self._locks.tasks():
            try:
                status = self._locks.status(task)
            except StoreError:
                continue  # an unreadable lock must not hide the others
            if status.is_held and status.lock and status.lock.worker == agent:
                found[task] = status.lock.token or 0
        return found or {_PANE + agent: None}


def key_names(keys: str) -> str:
    """Return keys in words, such as "y Enter"."""
    word = keys.rstrip(ENTER_KEY + SPACE_KEY)
    return " ".join([*([word] if word else []), *(_KEY_NAMES[key] for key in keys[len(word) :])])


def _with_token(meta: Mapping[str, str], token: int | None) -> dict[str, str | int]:
    return {**meta, "token": token} if token else {**meta}
