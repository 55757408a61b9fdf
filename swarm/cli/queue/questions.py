"""`swarm ask`, `swarm answer`, `swarm questions`: questions of agents, and answers."""

from __future__ import annotations

from swarm import settings
from swarm.agents import identity
from swarm.cli.arguments import Call, Command, Option
from swarm.cli.queue import question_text
from swarm.errors import BadInput, LockLost, NoQuestion, NoTask
from swarm.inputs import MAX_RECORD_BYTES, check_name, parse_token
from swarm.queue.questions.question import AGENT, ANYONE, PERSON
from swarm.queue.queue import TaskQueue
from swarm.system.family import Watched
from swarm.terminal import output
from swarm.terminal.text import foreign_name, quoted, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.queue.questions.question import Question


def ask(call: Call) -> int:
    queue, worker = TaskQueue(), identity.whoami(call.options.get("--worker"))
    task, text = _asked_task(call, queue, worker), _text(call.get(0))
    if "--withdraw" in call.options:
        return _withdraw(call, queue, task, worker, text)
    agent = Watched.starter()
    try:
        question = queue.ask(
            task,
            worker,
            _token(call, task),
            text,
            options=call.every("--option"),
            default=call.options.get("--default", ""),
            after=call.seconds("--after", 0.0) if "--after" in call.options else None,
            needs=PERSON if "--person" in call.options else ANYONE,
            free="--free" in call.options,
        )
        timeout = call.timeout()
        found = _await(queue, question, timeout, agent)
    except (LockLost, NoQuestion) as error:
        output.error(str(error))
        call.answer({"answered": False, "why": _why(error), "reason": str(error)})
        return error.exit_code
    if found.is_open:
        return _unanswered(call, found, timeout, is_orphan=agent.has_ended())
    return _deliver(call, queue, found, worker)


def answer(call: Call) -> int:
    queue = TaskQueue()
    name, text = _named(call, queue)
    source = identity.answer_source()
    worker = identity.whoami(
        call.options.get("--worker"), fallback="agent" if source == AGENT else "user"
    )
    try:
        found = queue.answer(name, text, worker, source)
    except NoQuestion as error:
        reason = f"{error}{_about_source(source, name, queue)}"
        output.error(reason)
        call.answer({"answered": False, "reason": reason})
        return error.exit_code
    if not call.answer({"answered": True, "question": found.fields()}):
        output.out(
            f"Answered as {_AS[source]}: {_then(queue, found)}.\n"
            f"{question_text.lines(found.answer)}"
        )
    return 0


def questions(call: Call) -> int:
    from swarm.stores.default import default_store

    found, now = TaskQueue().questions(), default_store().clock.now()
    rows = [
        {
            **each.fields(),
            "age": question_text.age(each, now),
            "command": question_text.command(each),
        }
        for each in found
    ]
    if not call.answer({"questions": rows}):
        texts = [question_text.whole(each, now) for each in found]
        output.out("\n".join(texts) if texts else "No questions\n")
    return 0


# Asking -------------------------------------------------------------------------------


def _await(queue: TaskQueue, question: Question, timeout: float | None, agent: Watched) -> Question:
    """Wait for the answer. Ctrl-C withdraws the question, since no process waits for the
    answer any more.
    """
    try:
        return queue.await_answer(
            question, timeout, stopped=agent.has_ended, away=output.warn_every_minute()
        )
    except KeyboardInterrupt:
        queue.dismiss(question, question.worker)
        output.err(f"\n{question.id} is withdrawn.")
        raise


def _deliver(call: Call, queue: TaskQueue, found: Question, worker: str) -> int:
    """Print an answer for the agent that asked."""
    output.err(f"Answered by {question_text.answerer(found)}.\n")
    fields = {"answered": True, "answer": found.answer, "answered_by": found.answered_by}
    fields |= {"answered_as": found.answered_as, "question": found.fields()}
    if not call.answer(fields):
        output.out("".join(f"{shown(line)}\n" for line in found.answer.splitlines()))
    queue.dismiss(found, worker)  # after the answer was printed: it reaches the agent, or stays
    return 0


def _unanswered(call: Call, question: Question, timeout: float | None, *, is_orphan: bool) -> int:
    why, reason = "timeout", f"The time of {timeout or 0:g} s is over."
    if is_orphan:
        why, reason = "orphan", "The agent that asked has ended."
    reason = (
        f"{reason} {question.id} stays open while the claim lasts. Run the same command again to "
        "wait for its answer. If you need none any more: swarm ask --withdraw, with the same text."
    )
    output.error(reason)
    call.answer({"answered": False, "why": why, "reason": reason, "question": question.fields()})
    return 1


def _withdraw(call: Call, queue: TaskQueue, task: str, worker: str, text: str) -> int:
    found = [each for each in queue.get(task).questions if each.text == text.strip()]
    if not found or found[0].worker != worker:
        raise NoQuestion(
            f"{foreign_name(worker)} asks no such question about {foreign_name(task)}. "
            "See: swarm questions"
        )
    if not found[0].is_open:
        output.err(f"{found[0].id} is not withdrawn: it was answered already. ")
        return _deliver(call, queue, found[0], worker)
    queue.dismiss(found[0], worker)
    if not call.answer({"withdrawn": True, "question": found[0].fields()}):
        output.out(f"Withdrawn: {found[0].id}\n")
    return 0


def _asked_task(call: Call, queue: TaskQueue, worker: str) -> str:
    """Return the task in --task, else the assigned task, else the only task of the
    worker.
    """
    if task := call.options.get("--task") or settings.task():
        return check_name(task, "--task")
    mine = queue.claimed_by(worker)
    if len(mine) == 1:
        return mine[0].id
    has = f"has {len(mine)} tasks" if mine else "has no task"
    raise BadInput(
        f"which task is the question about? {foreign_name(worker)} {has}. Give --task TASK, and "
        "--worker NAME if you claimed it under another name."
    )


def _token(call: Call, task: str) -> int | None:
    text = call.options.get("--token")
    return parse_token(text) if text else settings.token_for(task)


def _why(error: LockLost | NoQuestion) -> str:
    return "lost" if isinstance(error, LockLost) else "over"


# Answering ----------------------------------------------------------------------------


def _named(call: Call, queue: TaskQueue) -> tuple[str, str]:
    """Return the question that a call names, and the text of the answer."""
    if len(call.positional) == 2:
        return call.get(0), _text(call.get(1))
    if not call.positional:
        raise BadInput("answer needs TEXT. Usage: swarm answer [TASK|ID] TEXT")
    found, text = queue.questions(), call.get(0)
    if _is_name(text, queue):
        raise BadInput(f"the answer is missing. Usage: swarm answer {quoted(text)} TEXT")
    if len(found) == 1:
        return found[0].id, _text(text)
    if not found:
        raise NoQuestion("there is no open question. Your answer was not delivered.")
    ids = ", ".join(each.id for each in found)
    raise NoQuestion(
        f"{len(found)} questions are open: {ids}. Name one of them. See: swarm questions"
    )


def _then(queue: TaskQueue, question: Question) -> str:
    """Return what follows from an answer."""
    task = foreign_name(question.task_id)
    if not question.is_parked:
        return f"the answer is kept until the attempt at {task} takes it or ends"
    left = [each.id for each in queue.questions() if each.task_id == question.task_id]
    return f"{task} still asks {', '.join(left)}" if left else f"{task} is ready again"


def _is_name(text: str, queue: TaskQueue) -> bool:
    """Return whether a text looks like the id of a question, or is the id of a task."""
    if text[:1] == "q" and text[1:].isdecimal():
        return True
    try:
        return bool(queue.get(text))
    except (BadInput, NoTask):
        return False


def _about_source(source: str, name: str, queue: TaskQueue) -> str:
    """Return why this process may not answer, if that is the reason of a refusal."""
    is_refused = any(name in (each.id, each.task_id) for each in queue.questions())
    if source != AGENT or not is_refused:
        return ""
    from swarm.agents.person import why_agent

    return f" This process counts as an agent's, since {why_agent()}."


def _text(text: str) -> str:
    return output.read_stdin(MAX_RECORD_BYTES).removesuffix("\n") if text == "-" else text


_AS = {PERSON: "a person", AGENT: "an agent"}
COMMANDS = {
    "ask": Command(
        ask,
        "Ask a question about your task, wait for the answer, and print it.",
        "swarm ask 'Which database?' --option sqlite --option postgres",
        positional=("TEXT",),
        options=(
            Option("--option", "TEXT", "an answer to choose from", repeated=True),
            Option("--free", text="with --option: other words are an answer, too"),
            Option("--default", "TEXT", "the answer that counts if there is no other"),
            Option("--after", "S", "the default counts after S seconds"),
            Option("--person", text="only a person may answer, no agent"),
            Option("--task", "TASK", "default: SWARM_TASK_ID, else the worker's only task"),
            Option("--worker", "NAME", "default: SWARM_WORKER, else the calling program"),
            Option("--token", "N", "token of the claim; default: that of the last claim"),
            Option("--timeout", "S", "wait at most S seconds; default: without limit"),
            Option("--withdraw", text="withdraw this question instead"),
        ),
        details=(
            (
                "The task is asking until the answer comes, and stays yours: the lease is renewed "
                "meanwhile. The answer is printed as it is. With --json, the answer says who gave "
                "it. If TEXT is -, it is read from standard input."
            ),
        ),
        notes=(
            (
                "Exit 1: the time is over, or the attempt has ended without an answer. After the "
                "time the question stays open: run the same command again to wait on. Exit 4: "
                "the worker lost the task. Ctrl-C withdraws the question."
            ),
        ),
    ),
    "answer": Command(
        answer,
        "Answer a question. Only the first answer counts.",
        "swarm answer q7 sqlite",
        optional=("TASK|ID", "TEXT"),
        options=(Option("--worker", "NAME", "your name; default: SWARM_WORKER, else the user"),),
        details=(
            (
                "TEXT is one of the options, its number or its beginning, or free text if there "
                "are no options. With --free, other words count, so a beginning is no option. If "
                "an option is a number, only its words count. Without a name, TEXT answers the "
                "only open question. If TEXT is -, it is read from standard input."
            ),
            (
                "Exit 1: the answer does not count. The question was answered before, its attempt "
                "is over, or it needs a person and this process counts as an agent's. Exit 2: the "
                "text is missing, is no option, or fits several."
            ),
        ),
    ),
    "questions": Command(
        questions,
        "List the questions that wait for an answer, with the command that answers.",
        "swarm questions",
    ),
}
