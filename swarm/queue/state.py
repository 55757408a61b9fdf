"""The state of the queue: the rules by which events change it.

    add      a new task                    a known id changes nothing
    claim    ready -> running              with a larger token than any before, after
                                           all its dependencies are done
             running -> running            the worker of the last claim is dead: the
                                           lock was free
             running -> failed             the same, but the attempts are used up
    done     running -> done               only with the token of the claim
    submit   running -> submitted          the same: its work waits for its review or its
                                           landing, and no worker holds it
    landed   submitted -> done             only with the token of the submission
             ready, failed, cancelled      the same, after the submission was sent back or
               -> done                     cancelled, while no later claim has changed the
                                           task: the branch has the work
             running -> done               with an earlier token, and the token of the
                                           claim in `claim`: its worker found the work in
                                           the branch
             done -> done                  its work, which did not wait, landed later
    return   submitted -> ready, failed    only with the token of the submission; failed if
                                           the attempt was the last, unless it is uncounted
    fail     running -> ready, failed      the same; failed if the failure is final, or
                                           the attempt is the last
    release  running -> ready              the same; the attempt does not count
    void     running -> ready              the same: the worker was never told that it has
                                           the task
             failed -> ready               of a claim that others took over: it does not
                                           count as an attempt any more, so that attempts
                                           are left
    retry    failed, cancelled -> ready    its count of attempts starts again at 0
    reopen   done -> ready                 the same; tasks after it that are not done wait
                                           again when they are ready
    ask      running -> running            only with the token of the claim: the task is
                                           asking until the answer comes, and its worker
                                           holds it (hold)
             running -> asking             the same, if no worker holds it any more (park);
                                           the attempt does not count; the questions that
                                           its agent held are parked as they are, also one
                                           with the same text
             running -> ready              the same, if all of them have their answers
    answer   running -> running            of an open question of the last claim, from a
                                           source that the question accepts: the first
                                           answer counts
             asking -> asking              the same, of a parked question, while another
                                           one waits for its answer
             asking -> ready               the same, of the last parked question
    dismiss  running -> running            its agent has the answer, or needs none any more
    cancel   ready, running, asking, submitted -> cancelled
    edit     ready, failed, cancelled: other fields, and no other state
    remove   done, failed, cancelled       tasks are forgotten, unless a task that has not
                                           ended comes after them; with `open` also ready
                                           tasks
    close    a gate                        no claim behind it changes anything
             running -> running            with `halt`, of a pause: its attempt must end, and
                                           counts only if it is done or submitted
    open     a gate                        claims change the state again

A task with `every` recurs. Its claim names the rule, and the time of the next run. Each
event that would make it done or failed makes it ready again at this time: its count of
attempts starts again at 0. So no process is needed between two runs, and none computes a
time again. Tasks after it begin when its first run is done. No claim counts before
`not_before`, the time of the run. The run that a claim has begun has no time any more: a
clock that is set back delays no retry.

An attempt counts if its worker was told that it has the task. A process can sleep past
its lease at any moment, also just before it writes its claim: then others take over
from a claim of which no worker was told. The process finds its lease over, writes
`void`, and the attempt does not count, whichever line came first. A process that is
killed before it can write `void` uses an attempt up: no log tells it from a worker that
was told. An attempt that was halted does not count either, however it ends without a
result: its worker fails, releases or dies.

A question ends with its claim, unless the claim ended with a question: then all its
questions are parked. Permissions that the agent held end in any case, because their tool
calls are over. So an answer never reaches another attempt than the one that asked, or its
continuation.

No work lands twice, and none with a lower token than work that landed before. Only a
landing makes a submitted task done, so tasks after it begin when the branch has its work.

An event that does not fit changes nothing. So a worker that lost its lease cannot
finish a task, however late its event is and whatever the worker checked before. All
processes that have read the log equally far have the same state. Only a task's lock
says whether its worker is alive.
"""

from __future__ import annotations

import heapq
import sys

from swarm.inputs import check_name
from swarm.queue.accepted import ALL, Accepted
from swarm.queue.dependencies import Dependencies
from swarm.queue.events import (
    ASKING,
    CANCELLED,
    DONE,
    ENDED,
    FAILED,
    READY,
    RUNNING,
    SUBMITTED,
    parse_event,
)
from swarm.queue.fields.edited import edited
from swarm.queue.gates import EVERYONE, Gates, gate_of_label, is_pause
from swarm.queue.previous import Previous, of
from swarm.queue.questions.question import MAX_OPEN, QUESTION, SOURCES, question_in_log
from swarm.queue.ready import ReadyTasks
from swarm.queue.retention.documents import EVENTS, task_document, task_in
from swarm.queue.snapshot import encode_column, expand, pack, unpack
from swarm.queue.submission import Landed, submission_in_log
from swarm.queue.task import DEFAULT_MAX_ATTEMPTS
from swarm.queue.task_state import COLUMNS, TaskState
from swarm.system.clock import from_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from typing import Any

    from swarm.queue.questions.question import Question

EDITED_IN = (READY, FAILED, CANCELLED)  # also while it waits
_MOVING = frozenset(("priority", "after", "labels", "not_before", "every"))
_SOME = 100
_UNKNOWN_TIME = "1970-01-01T00:00:00.000Z"
_DIED = "its worker {worker} was gone"
_UNNAMED = "a user"  # that halted, if the event does not name it


class QueueState:
    """The state of the queue after the lines that were read. `damaged` is the number of
    invalid lines.
    """

    VERSION = 9

    def __init__(self) -> None:
        self.entries: dict[str, TaskState] = {}
        self.running: dict[str, TaskState] = {}
        self.submitted: dict[str, TaskState] = {}  # in the order of their submission
        self.asking: dict[str, TaskState] = {}  # with questions, in the order of the first
        self.questions = 0  # that were ever asked
        self.damaged = 0
        self.changes = 0  # events that changed something since the log was folded
        self.folded: dict[str, Any] = {}  # the last line of the last fold, see `folded_log`
        self.gates = Gates()
        self._ready = ReadyTasks()
        self._label_sets: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._delayed: list[tuple[float, str]] = []  # when, which
        self._early: list[tuple[float, str]] = []  # the same, of tasks before their time
        self.dependencies = Dependencies(self.entries)
        self._events = {
            "claim": self._claim,
            "done": self._done,
            "submit": self._submit,
            "landed": self._landed,
            "return": self._return,
            "fail": self._fail,
            "release": self._release,
            "void": self._void,
            "retry": self._retry,
            "reopen": self._reopen,
            "ask": self._ask,
            "answer": self._answer,
            "dismiss": self._dismiss,
            "cancel": self._cancel,
            "edit": self._edit,
        }
        self._other_events = {
            "remove": self._remove,
            "close": self._close,
            "open": self.gates.open,
            "fold": lambda record: False,
            "folded": self._folded,
        }

    def __len__(self) -> int:
        return len(self.entries)

    def apply(self, line: bytes) -> bool:
        try:
            record = parse_event(line)
            op = record["op"]
            if op == "add":
                changed = self._add(record, line)
            elif op in self._other_events:
                changed = self._other_events[op](record)
            else:
                entry = self.entries.get(record["id"])
                changed = self._events[op](entry, record) if entry else False
            self.changes += changed
            return changed
        except (ValueError, KeyError, TypeError, OverflowError):
            self.damaged += bool(line.strip())
            return False

    def advance(self, now: float) -> None:
        """Make the tasks ready whose time has come."""
        while self._early and self._early[0][0] <= now:
            _, name = heapq.heappop(self._early)
            entry = self.entries.get(name)
            if entry is None or not entry.is_early or entry.opens_at() > now:
                continue  # its time has changed
            entry.is_early = False
            if entry.shown_state == READY:
                self._ready.add(entry)

    def counts(self) -> dict[str, int]:
        """Return the number of tasks in each state."""
        found: dict[str, int] = {}
        for entry in self.entries.values():
            state = entry.shown_state
            found[state] = found.get(state, 0) + 1
        return found

    def best(
        self, now: float, skip: Container[str], among: int, accepted: Accepted = ALL
    ) -> list[TaskState]:
        """Return the next ready tasks: at most `among` tasks, all of the same priority.

        `skip` has the ids of tasks to leave out.
        """
        self.advance(now)
        while self._delayed and self._is_due(*self._delayed[0], now):
            moment, name = heapq.heappop(self._delayed)
            entry = self.entries[name]
            # Otherwise the delay belongs to an earlier attempt.
            if entry.shown_state == READY and moment == entry.due():
                self._ready.add(entry)

        def fits(entry: TaskState) -> bool:
            is_early = bool(entry.not_before) and entry.opens_at() > now  # set back again
            return entry.id not in skip and not is_early and accepted.fits(entry)

        found: list[TaskState] = self._ready.best(fits, among, accepted.fits_labels)
        return found

    def is_finished(self, accepted: Accepted = ALL, dead: Container[str] = ()) -> bool:
        """Return whether no task is running, submitted or ready, now or after its delay.

        If True, each open task waits for an answer, or for a task that asks, has failed,
        was cancelled or is missing.
        A task that waits for its time does not count: it may be years away.
        Only ready tasks in `accepted` count. Running tasks in `dead` do not count.
        """
        delayed = [
            entry
            for _, name in self._delayed
            if (entry := self.entries[name]).state == READY and not entry.is_early
        ]
        if self.submitted or any(name not in dead for name in self.running):
            return False
        if self.next_default() is not None:
            return False
        if any(map(accepted.fits, delayed)):
            return False
        return not self._ready.best(accepted.fits, 1, accepted.fits_labels)

    def left_by(self, accepted: Accepted) -> list[TaskState]:
        """Return some of the ready tasks that a worker does not accept."""
        found: list[TaskState] = self._ready.best(lambda entry: not accepted.fits(entry), _SOME)
        return found

    def halted(self) -> list[TaskState]:
        """Return the running tasks whose attempts must end."""
        return [entry for entry in self.running.values() if entry.halted]

    def under(self, gate: str) -> list[TaskState]:
        """Return the running tasks that this pause is for."""
        return [
            entry
            for entry in self.running.values()
            if gate == EVERYONE or gate in map(gate_of_label, entry.labels)
        ]

    def next_due(self) -> float | None:
        """Return the time at which the next delayed task is ready again, at which a task
        may begin, or at which the next default answer counts. Return None if there is
        none of them.
        """
        delayed = self._delayed[0][0] if self._delayed else None
        moments = [delayed, self.next_opening(), self.next_default()]
        return min((moment for moment in moments if moment is not None), default=None)

    def next_opening(self) -> float | None:
        """Return the next time at which a task that waits for its time may begin."""
        while self._early:
            moment, name = self._early[0]
            entry = self.entries.get(name)
            if entry and entry.is_early and entry.state == READY and entry.opens_at() == moment:
                return moment
            heapq.heappop(self._early)
        return None

    def open_questions(self) -> list[Question]:
        """Return the questions that wait for an answer, the oldest first."""
        found = [each for entry in self.asking.values() for each in entry.asked() if each.is_open]
        return sorted(found, key=lambda each: int(each.id[1:]))

    def next_default(self) -> float | None:
        """Return the time at which the next default answer counts, None without one."""
        if not self.asking:
            return None
        moments = [from_iso(each.due) for each in self.open_questions() if each.due]
        return min((moment for moment in moments if moment is not None), default=None)

    def blocked(self) -> dict[str, str]:
        """Return each task that waits for a failed, cancelled or missing task. With
        each task, return the task that it waits for.
        """
        return self.dependencies.blocked()

    # Snapshots ------------------------------------------------------------------------

    def dump(self) -> Any:
        entries = list(self.entries.values())
        texts = (
            pack([entry.id.encode() for entry in entries]),
            pack([entry.line for entry in entries]),
        )
        return [
            len(entries),
            *texts,
            *(encode_column([getattr(entry, name) for entry in entries]) for name in COLUMNS),
            list(self.submitted),
            [self.questions, self.changes, self.folded],
            self.gates.dump(),
        ]

    def load(self, data: Any) -> None:
        count, names, texts, *columns, submitted, (questions, changes, self.folded), gates = data
        self.questions, self.changes = int(questions), int(changes)
        self.gates.load(gates)
        ids, lines = [line.decode() for line in unpack(names)], unpack(texts)
        values = [expand(values, count) for values in columns]
        self.entries.update(zip(ids, map(TaskState, ids, lines, *values), strict=True))
        if (
            not count == len(ids) == len(self.entries)
            or next(lines, None) is not None
            or len(values) != len(COLUMNS)
        ):
            raise ValueError
        for entry in self.entries.values():
            entry.labels = self._shared(entry.labels)
            if entry.state == RUNNING:
                self.running[entry.id] = entry
            if entry.questions:
                self.asking[entry.id] = entry
            if entry.after and entry.state != DONE:
                self.dependencies.link(entry)
            if entry.state == READY:
                self._make_ready(entry)
        waiting = [entry.id for entry in self.entries.values() if entry.state == SUBMITTED]
        if sorted(waiting) != sorted(submitted):
            raise ValueError
        self.submitted.update((name, self.entries[name]) for name in submitted)

    # Folds ----------------------------------------------------------------------------

    def kept(self) -> Iterator[dict[str, Any]]:
        """Yield the whole state as JSON objects with named fields."""
        yield {
            "kept": "queue",
            "questions": self.questions,
            "damaged": self.damaged,
            "gates": self.gates.kept(),
            "ready": [entry.id for entry in self._ready.in_order()],
            "running": list(self.running),
            "submitted": list(self.submitted),
            "asking": list(self.asking),
            "dependents": self.dependencies.kept(),
        }
        for entry in self.entries.values():
            yield task_document(entry, new_entry)

    def restore(self, documents: Iterator[dict[str, Any]]) -> None:
        """Set the state of a new object to the state that `kept` returned."""
        head = next(documents)
        self.questions, self.damaged = head["questions"], head["damaged"]
        self.gates.restore(head["gates"])
        for document in documents:
            if EVENTS in document:
                continue
            entry = task_in(document, new_entry)
            entry.labels = self._shared(entry.labels)
            self.entries[entry.id] = entry
        for known, names in (
            (self.running, head["running"]),
            (self.submitted, head["submitted"]),
            (self.asking, head["asking"]),
        ):
            known.update((name, self.entries[name]) for name in names)
        self.dependencies.restore(head["dependents"])
        for name in head["ready"]:
            self._ready.add(self.entries[name])
        for entry in self.entries.values():
            if entry.state == READY and entry.next is None:
                self._make_ready(entry)

    def _folded(self, record: dict[str, Any]) -> bool:
        self.folded, self.changes = record, -1  # this event counts
        return True

    # The events -----------------------------------------------------------------------

    def _add(self, record: dict[str, Any], line: bytes) -> bool:
        task_id, after = check_name(record["id"], "id"), record.get("after", ())
        if (
            task_id in self.entries
            or task_id in after
            or self.dependencies.makes_cycle(task_id, after)
        ):
            return False
        if not all(isinstance(name, str) for name in after):
            raise TypeError
        entry = new_entry(record, line)
        entry.labels = self._shared(entry.labels)
        self.entries[task_id] = entry
        self.dependencies.add(entry)
        self._make_ready(entry)
        return True

    def _edit(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if entry.state not in EDITED_IN:
            return False
        fields = record["fields"]
        line, changed = edited(entry.line, fields)
        after, opens = tuple(changed.get("after", ())), _moment(record.get("next", ""))
        if not all(isinstance(name, str) for name in (*after, *changed.get("labels", ()))):
            raise TypeError
        if not ("prompt" in changed or "command" in changed):
            return False
        if "after" in fields and self.dependencies.makes_cycle_by_edit(entry.id, after):
            return False
        moves = not _MOVING.isdisjoint(fields)
        if moves:
            self._ready.discard(entry)  # its priority and labels must not change in the list
        entry.line = line
        _set_fields(entry, changed)
        entry.labels = self._shared(entry.labels)
        if "after" in fields:
            self.dependencies.replace(entry, after)
        if "every" in fields or "not_before" in fields:
            entry.not_before, entry.upcoming, entry.delay = opens, "", 0.0
        if moves and entry.state == READY:
            self._make_ready(entry)
        return True

    def _claim(self, entry: TaskState, record: dict[str, Any]) -> bool:
        token, is_ready = record["token"], entry.state == READY and not entry.open_dependencies
        if token <= entry.token or not (is_ready or entry.state == RUNNING):
            return False
        took_over = entry.state == RUNNING
        gives_up = took_over and entry.is_last_attempt
        if not gives_up and (
            self.gates.against(entry.id, record, entry.labels) or not _is_in_time(entry, record)
        ):
            return False
        if entry.every and record.get("every") == entry.every:
            entry.upcoming = max(entry.upcoming, _moment(record.get("next", "")))
        before, entry.token = entry.token, token
        if took_over and entry.halted:
            entry.attempts -= 1
        elif took_over:
            entry.lapsed = (*entry.lapsed, before)
        if took_over:
            died = _DIED.format(worker=entry.worker)
            self._remember(
                entry, of(entry.last_attempt).after_failure({"reason": died}, entry.by_agent)
            )
            if gives_up:
                self._end(
                    entry, FAILED, record, f"{died}, at the last of {entry.attempts} attempts"
                )
                return False
        self._ready.discard(entry)
        self.running[entry.id] = entry
        entry.attempts += 1
        entry.worker = sys.intern(record.get("worker", ""))
        entry.by_agent = sys.intern(record.get("agent", ""))
        entry.ended_by = ""
        entry.submission = ()
        entry.not_before, entry.is_early = "", False
        self._forget_questions(entry)
        self._move(entry, RUNNING, record)
        return True

    def _done(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if not self._fits(entry, record):
            return False
        entry.ended_by = "done"
        entry.lapsed = ()
        self._remember(entry, of(entry.last_attempt).after_done(record, entry.by_agent))
        self.gates.succeed(entry.by_agent)
        self._finish(entry, record)
        return True

    def _submit(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if not self._fits(entry, record):
            return False
        submission = submission_in_log(record)
        entry.ended_by = "submit"
        entry.submission = submission.columns
        self._remember(entry, of(entry.last_attempt).after_submit(record, entry.by_agent))
        self.gates.succeed(entry.by_agent)
        self._end(entry, SUBMITTED, record)
        self.submitted[entry.id] = entry
        return True

    def _landed(self, entry: TaskState, record: dict[str, Any]) -> bool:
        token, claim = record["token"], record.get("claim")
        is_submitted = bool(entry.submission) and token == entry.submission[0]
        is_found = entry.state == RUNNING and claim == entry.token and token < entry.token
        has_run = entry.state == READY and entry.last_run == DONE and entry.ended_by == "done"
        is_late = (entry.state == DONE or has_run) and token == entry.token
        if token <= entry.landed_token or not (is_submitted or is_found or is_late):
            return False
        landed = Landed(token, record.get("branch", ""), record.get("commit", ""))
        entry.landed = landed.columns
        if has_run and is_late:
            return True
        self._remember(entry, of(entry.last_attempt).after_landing())
        if is_late:
            return True
        entry.ended_by = "landed" if is_submitted else ""
        entry.lapsed = ()
        result = entry.submission[-1] if is_submitted else ""
        entry.submission = ()
        self._ready.discard(entry)
        self._finish(entry, record, result)
        return True

    def _return(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if entry.state != SUBMITTED or record["token"] != entry.token:
            return False
        delay = float(record.get("delay", 0))
        entry.ended_by = "return"
        self._remember(entry, of(entry.last_attempt).after_return(record))
        if record.get("uncounted"):
            entry.attempts -= 1
            self._back(entry, record, delay=delay)
        elif entry.is_last_attempt:
            self._end(entry, FAILED, record)
        else:
            self._back(entry, record, delay=delay)
        return True

    def _fail(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if not self._fits(entry, record):
            return False
        delay = float(record.get("delay", 0))
        entry.ended_by = "fail"
        self._remember(entry, of(entry.last_attempt).after_failure(record, entry.by_agent))
        if record.get("final"):
            entry.lapsed = ()  # no attempt that does not count makes the task ready again
        if record.get("final") or entry.is_last_attempt:
            self._end(entry, FAILED, record)
        else:
            entry.attempts -= bool(entry.halted)
            self._back(entry, record, delay=delay)
        return True

    def _release(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if not self._fits(entry, record):
            return False
        entry.ended_by = "release"
        self._remember(entry, of(entry.last_attempt).after_release(record, entry.by_agent))
        entry.attempts -= 1
        self._back(entry, record, first=True)
        return True

    def _void(self, entry: TaskState, record: dict[str, Any]) -> bool:
        token = record["token"]
        if self._fits(entry, record):
            entry.attempts -= 1
            self._back(entry, record, first=True)
        elif token in entry.lapsed:
            entry.lapsed = tuple(other for other in entry.lapsed if other != token)
            entry.attempts -= 1
            if entry.state == FAILED:
                self._back(entry, record, first=True)
        elif entry.state == READY and token > entry.token:
            entry.token = token  # its claim may still come, from a server that was slow
        else:
            return False
        return True

    def _retry(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if entry.state not in (FAILED, CANCELLED):
            return False
        entry.attempts = 0
        entry.lapsed = ()
        if record.get("note"):
            self._remember(entry, of(entry.last_attempt).replace(note=record["note"]))
        self._back(entry, record)
        return True

    def _reopen(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if entry.state != DONE:
            return False
        entry.attempts = 0
        entry.ended_by = entry.done_at = ""
        self._remember(entry, of(entry.last_attempt).reopened(record, entry.reason))
        for dependent in self.dependencies.reopen(entry):
            self._ready.discard(dependent)
        self._back(entry, record)
        return True

    def _ask(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if not self._fits(entry, record):
            return False
        question = question_in_log(record, f"q{self.questions + 1}")
        asked = entry.asked()
        known = next((each for each in asked if each.text == question.text), None)
        if question.is_parked:
            self._park(entry, record, () if known else (question,))
        elif known or len(asked) >= MAX_OPEN:
            return False  # if it is known, its agent waits again for the same answer
        else:
            entry.questions = (*entry.questions, question.columns)
            self.asking[entry.id] = entry
        self.questions += known is None
        return True

    def _park(self, entry: TaskState, record: dict[str, Any], added: tuple[Question, ...]) -> None:
        """End a claim with the questions that its agent held, and with those in `added`."""
        text = record["text"]
        held = [each for each in entry.asked() if each.kind == QUESTION or each.text == text]
        entry.ended_by = "ask"
        entry.attempts -= 1
        self._remember(entry, of(entry.last_attempt).after_release(record, entry.by_agent))
        self._end(entry, ASKING, record, text)
        entry.questions = tuple(each.replace(is_parked=True).columns for each in (*held, *added))
        self.asking[entry.id] = entry
        self._resume(entry, record)

    def _resume(self, entry: TaskState, record: dict[str, Any]) -> None:
        """Make a parked task ready if all its questions have their answers."""
        if entry.is_asking:
            return
        for each in entry.asked():
            self._remember(entry, of(entry.last_attempt).after_answer(each))
        self._back(entry, record, first=True)

    def _answer(self, entry: TaskState, record: dict[str, Any]) -> bool:
        source, asked = record["source"], entry.asked()
        found = next((each for each in asked if each.id == record["question"]), None)
        if found is None or not found.is_open or source not in SOURCES:
            return False
        if not found.accepts(source):
            return False
        answered = found.replace(
            answer=record["answer"],
            answered_by=record.get("worker", ""),
            answered_as=source,
            answered_at=record.get("at", ""),
        )
        entry.questions = tuple((answered if each is found else each).columns for each in asked)
        if found.is_parked:
            self._resume(entry, record)
        return True

    def _dismiss(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if not self._fits(entry, record):
            return False
        left = tuple(each.columns for each in entry.asked() if each.id != record["question"])
        if len(left) == len(entry.questions):
            return False
        entry.questions = left
        if not left:
            self._forget_questions(entry)
        return True

    def _cancel(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if entry.state in ENDED:
            return False
        entry.lapsed = ()
        self._ready.discard(entry)
        self._end(entry, CANCELLED, record)
        return True

    def _remove(self, record: dict[str, Any]) -> bool:
        found = self.removable(record["ids"], is_open=record.get("open", False))
        for entry in found:
            self.dependencies.forget(entry)
            self._ready.discard(entry)
            self.gates.forget(entry.id)
        names = {entry.id for entry in found}
        for name in names:
            del self.entries[name]
        self._delayed = [each for each in self._delayed if each[1] not in names]
        heapq.heapify(self._delayed)
        self.dependencies.forgotten()
        return bool(found)

    def removable(self, names: Iterable[str], *, is_open: bool = False) -> list[TaskState]:
        """Return which of these tasks can be removed: those that have ended, and with
        `is_open` ready tasks, after which no other open task comes.
        """
        states = (*ENDED, READY) if is_open else ENDED
        found = {
            name: entry
            for name in names
            if (entry := self.entries.get(name)) is not None and entry.state in states
        }
        after = self.dependencies.open_after(found)
        while blocked := [
            name for name in found if any(each.id not in found for each in after.get(name, ()))
        ]:
            for name in blocked:
                del found[name]
        return list(found.values())

    def _close(self, record: dict[str, Any]) -> bool:
        changed, name = self.gates.close(record), record["gate"]
        if not record.get("halt") or not is_pause(name):
            return changed
        halted = [entry for entry in self.under(name) if not entry.halted]
        for entry in halted:
            entry.halted = sys.intern(record.get("worker", "") or _UNNAMED)
        return changed or bool(halted)

    # Parts of the events --------------------------------------------------------------

    def _fits(self, entry: TaskState, record: dict[str, Any]) -> bool:
        return entry.state == RUNNING and bool(record["token"] == entry.token)

    def _finish(self, entry: TaskState, record: dict[str, Any], result: str = "") -> None:
        """Make a task done, and the tasks ready that waited only for it."""
        self._end(entry, DONE, record, result)
        for dependent in (*self.dependencies.done(entry), entry):
            if dependent.state == READY:  # the task itself if it recurs
                self._make_ready(dependent)

    def _end(self, entry: TaskState, state: str, record: dict[str, Any], reason: str = "") -> None:
        self.running.pop(entry.id, None)
        self.submitted.pop(entry.id, None)
        self._forget_questions(entry)
        self._move(entry, state, record, reason)
        if entry.every and state in (DONE, FAILED):
            self._recur(entry, state)

    def _recur(self, entry: TaskState, ended: str) -> None:
        """Make a task ready for its next run."""
        if ended == DONE:
            entry.done_at = entry.changed_at or _UNKNOWN_TIME
        entry.last_run = ended
        entry.state, entry.attempts, entry.lapsed, entry.delay = READY, 0, (), 0.0
        entry.not_before, entry.upcoming = entry.upcoming or entry.not_before, ""
        self._remember(entry, of(entry.last_attempt).recurred(failed=ended == FAILED))
        self._make_ready(entry)

    def _back(
        self, entry: TaskState, record: dict[str, Any], *, delay: float = 0.0, first: bool = False
    ) -> None:
        self.running.pop(entry.id, None)
        self.submitted.pop(entry.id, None)
        self._forget_questions(entry)
        self._move(entry, READY, record)
        entry.delay = delay
        self._make_ready(entry, first=first)

    def _forget_questions(self, entry: TaskState) -> None:
        entry.questions = ()
        self.asking.pop(entry.id, None)

    def _move(self, entry: TaskState, state: str, record: dict[str, Any], reason: str = "") -> None:
        entry.state = state
        entry.halted = ""
        entry.changed_at = record.get("at", "")
        entry.reason = reason or record.get("reason", "")

    def _shared(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        return self._label_sets.setdefault(labels, labels)

    def _remember(self, entry: TaskState, previous: Previous) -> None:
        entry.last_attempt = previous.columns

    def _make_ready(self, entry: TaskState, *, first: bool = False) -> None:
        entry.is_early = bool(entry.not_before)
        if entry.open_dependencies:
            return
        if entry.is_early:
            heapq.heappush(self._early, (entry.opens_at(), entry.id))
        elif entry.delay > 0:
            heapq.heappush(self._delayed, (entry.due(), entry.id))
        else:
            self._ready.add(entry, first=first)

    def _is_due(self, moment: float, task_id: str, now: float) -> bool:
        """Return whether a delay is over, even if the clock was set back.

        No task waits longer than its delay.
        """
        entry = self.entries[task_id]
        return now >= moment or now < moment - entry.delay


def _moment(text: str) -> str:
    """Return a time that an event carries. Raise ValueError if it is none."""
    if text and from_iso(text) is None:
        raise ValueError
    return text


def _is_in_time(entry: TaskState, record: dict[str, Any]) -> bool:
    """Return whether a claim comes at the time of the task, and names its next run.

    A claim of a task that has another rule meanwhile has computed another time.
    """
    if not (entry.not_before or entry.every):
        return True
    at = from_iso(record.get("at"))
    if at is None or at < entry.opens_at():
        return False
    return not entry.every or (
        record.get("every") == entry.every and (from_iso(record.get("next")) or 0.0) > at
    )


def new_entry(record: dict[str, Any], line: bytes) -> TaskState:
    """Return the task that an event `add` adds."""
    entry = TaskState(record["id"], line, False, 0, tuple(record.get("after", ())), 0)
    _set_fields(entry, record)
    entry.not_before = _moment(record.get("next") or record.get("not_before", ""))
    return entry


def _set_fields(entry: TaskState, record: dict[str, Any]) -> None:
    """Set the fields by which the queue decides, except `after` and the times."""
    entry.has_command = "command" in record
    entry.priority = record.get("priority", 0)
    entry.max_attempts = record.get("max_attempts", DEFAULT_MAX_ATTEMPTS)
    entry.agent = sys.intern(record.get("agent", ""))
    entry.labels = tuple(map(sys.intern, record.get("labels", ())))
    entry.every = sys.intern(record.get("every", ""))
