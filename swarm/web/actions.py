"""The actions that a user may take from the page: answer a question, release a lock,
retry a task, cancel a task, open a gate to end a pause. swarm logs each action with the
name of the user, as for the same command in a shell. A lock is released only if it is
still the lock that the page showed. An answer counts as a person's: its request carries
the token of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from swarm.errors import BadInput, StoreError, WrongState
from swarm.formats import json_codec
from swarm.inputs import check_name
from swarm.locks.table import LockTable
from swarm.queue.questions.question import PERSON
from swarm.queue.queue import TaskQueue
from swarm.queue.task import TaskSpec
from swarm.status.events import log_break
from swarm.stores.contract import Store
from swarm.web.answers import (
    MAX_ANSWER,
    MAX_BY,
    MAX_REASON,
    MAX_WORKER,
    Add,
    Answer,
    Cancel,
    Done,
    Edit,
    Open,
    Release,
    Retry,
)

_RUN_BY_WORKERS = ("command", "check")


class Actions:
    """The actions of users on one store. Threads may share the object.

    `person` is the user's name in the log, unless a request has another name.
    """

    def __init__(self, store: Store, person: str) -> None:
        self.person = person
        self._who({})
        self._store = store
        self._queue = TaskQueue(store)

    def release(self, task: str, body: bytes) -> Done:
        """Release the lock that the page showed.

        Raise NotYours if the lock has changed since the page showed it.
        """
        fields = _fields(body, Release)
        worker, token = fields.get("worker"), fields.get("token")
        if not isinstance(worker, str) or len(worker) > MAX_WORKER:
            raise BadInput("worker must be the worker that the page showed for the lock, as text.")
        if isinstance(token, bool) or not isinstance(token, int | None) or "token" not in fields:
            raise BadInput(
                "token must be the token that the page showed for the lock, a whole number or null."
            )
        who = self._who(fields)
        lock = LockTable(self._store).break_lock(task, (worker, token))
        try:
            log_break(
                self._store,
                task,
                who,
                worker=lock.worker if lock else "",
                token=lock.token if lock else None,
            )
        except StoreError as error:
            raise StoreError(
                f"the lock of {task} was released, but the release could not be logged: {error}"
            ) from None
        return {"done": "released", "task_id": task, "by": who}

    def retry(self, task: str, body: bytes) -> Done:
        who = self._who(_fields(body, Retry))
        self._queue.retry(task, who)
        return {"done": "retried", "task_id": task, "by": who}

    def cancel(self, task: str, body: bytes) -> Done:
        fields = _fields(body, Cancel)
        reason = fields.get("reason", "")
        if not isinstance(reason, str) or len(reason) > MAX_REASON:
            raise BadInput(f"reason must be text of at most {MAX_REASON} characters.")
        who = self._who(fields)
        self._queue.cancel(task, who, reason)
        return {"done": "cancelled", "task_id": task, "by": who}

    def open(self, gate: str, body: bytes) -> Done:
        """Open a gate; that of a pause ends the pause."""
        who = self._who(_fields(body, Open))
        self._queue.open_gate(gate, who)
        return {"done": "opened", "task_id": "", "by": who}

    def add(self, body: bytes) -> Done:
        """Add a task. Without an id, one is made from its words."""
        fields = _fields(body, Add)
        who, given = self._who(fields), _object(fields)
        with _refusing(str(given.get("id", ""))[:MAX_WORKER]):
            _check_task_fields(given)
            task = self._queue.add(given.pop("id", None), **given)
        return {"done": "added", "task_id": task.id, "by": who}

    def edit(self, task: str, body: bytes) -> Done:
        fields = _fields(body, Edit)
        who, given = self._who(fields), _object(fields)
        with _refusing(task):
            _check_task_fields(given)
            self._queue.edit(task, who, given)
        return {"done": "edited", "task_id": task, "by": who}

    def answer(self, question: str, body: bytes) -> Done:
        """Answer a question. Raise NoQuestion if it is not open any more."""
        fields = _fields(body, Answer)
        text = fields.get("text")
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_ANSWER:
            raise BadInput(f"text must be the answer, of 1 to {MAX_ANSWER} characters.")
        if not _is_unicode(text):
            raise BadInput("text has half of a character (a lone surrogate). Send Unicode text.")
        who = self._who(fields)
        answered = self._queue.answer(question, text, who, PERSON)
        return {"done": "answered", "task_id": answered.task_id, "by": who}

    def _who(self, fields: Mapping[str, Any]) -> str:
        by = fields.get("by", "")
        if not isinstance(by, str) or len(by) > MAX_BY:
            raise BadInput(f"by must be a name of at most {MAX_BY} characters.")
        return check_name(f"{by or self.person} (web)", "by")


def _object(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a task in a body."""
    given = fields.get("fields")
    if not isinstance(given, dict):
        raise BadInput('fields must be an object with fields of a task, such as {"priority": 5}.')
    return dict(given)


def _check_task_fields(given: Mapping[str, Any]) -> None:
    unknown = [name for name in given if name not in TaskSpec.field_names()]
    if unknown:
        raise BadInput(f"a task has no field {unknown[0][:40]!r}.")
    runs = [name for name in _RUN_BY_WORKERS if given.get(name) is not None]
    if runs:
        raise BadInput(
            f"a page cannot set {runs[0]!r}, because workers run it. Use swarm task add or edit."
        )


@contextmanager
def _refusing(task: str) -> Iterator[None]:
    """Raise WrongState for BadInput: the body is well-formed, but the queue refuses it."""
    try:
        yield
    except BadInput as error:
        raise WrongState(task, str(error)) from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fields(body: bytes, shape: type) -> dict[str, Any]:
    """Return the fields of a request body.

    Raise BadInput for a field that `shape` does not declare.
    """
    known = shape.__annotations__
    try:
        fields = json_codec.loads(body, strict=True)
    except ValueError as error:
        raise BadInput(f"the body is not JSON ({error}). Send an object.") from None
    if not isinstance(fields, dict):
        raise BadInput("the body must be a JSON object.")
    if unknown := [name for name in fields if name not in known]:
        raise BadInput(
            f"the body has an unknown field {unknown[0][:40]!r}. The known fields are: "
            f"{' '.join(known)}."
        )
    return fields
