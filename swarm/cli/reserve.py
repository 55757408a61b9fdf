"""`swarm reserve`: reserve files for a worker, release, list and check reservations."""

from __future__ import annotations

import os

from swarm import settings
from swarm.agents import identity
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput, LockHeld
from swarm.inputs import check_name
from swarm.locks.path_pattern import checked_pattern, names_of, project_root
from swarm.locks.reservations import Reservation, Reservations, refusal
from swarm.queue.queue import TaskQueue
from swarm.stores.default import default_store
from swarm.system import process
from swarm.terminal import output
from swarm.terminal.text import foreign_name, shown


def reserve(call: Call) -> int:
    asked = [option for option in ("--list", "--check", "--release") if option in call.options]
    if len(asked) > 1:
        raise BadInput(f"{asked[0]} and {asked[1]} exclude each other. Give only one option.")
    if asked in (["--list"], ["--check"]) and call.positional:
        advice = f"Leave {call.get(0)[:40]!r} out, or leave {asked[0]} out to reserve it."
        raise BadInput(f"{asked[0]} takes no patterns. {advice}")
    reservations = Reservations(default_store())
    if asked == ["--list"]:
        return _list(call, reservations)
    if asked == ["--check"]:
        return _check(call, reservations)
    here = os.getcwd()
    root = project_root(here)
    patterns = [checked_pattern(text, root, here) for text in call.positional]
    if asked == ["--release"]:
        return _release(call, reservations, patterns)
    if not patterns:
        raise BadInput(
            "reserve needs a pattern, such as 'src/api/**', or one of --list, --check PATH and "
            "--release."
        )
    return _reserve(call, reservations, patterns)


def _reserve(call: Call, reservations: Reservations, patterns: list[str]) -> int:
    """Reserve all patterns. If another worker has reserved one of the patterns, reserve
    no pattern.
    """
    worker = identity.whoami(call.options.get("--worker"))
    task, token = _task(call, worker)
    ttl = call.ttl() or settings.lock_ttl()
    agent = identity.find()
    before = {each.pattern for each in reservations.all() if each.worker == worker}
    made: list[Reservation] = []
    try:
        # one order for all workers: two must not refuse each other
        for pattern in sorted(patterns):
            if task:
                made.append(reservations.reserve_for_task(pattern, worker, task, token))
            else:
                made.append(
                    reservations.reserve(
                        pattern, worker, ttl, process.identity(agent.pid) if agent.pid else None
                    )
                )
    except BaseException as error:
        for each in made:
            if each.pattern not in before:
                reservations.release(worker, each.pattern)
        if isinstance(error, LockHeld) and call.json:
            refusal = {
                "reserved": False,
                "must_stop": False,
                "pattern": error.task_id,
                "held_by": error.holder,
                "reason": str(error),
            }
            call.answer(
                {
                    **refusal,
                    "next": (
                        "Do not change these files. Work on others, or wait until they are free."
                    ),
                }
            )
            output.error(str(error))
            return error.exit_code
        raise
    made.sort(key=lambda each: patterns.index(each.pattern))
    if not call.answer({"reserved": True, "reservations": [each.fields() for each in made]}):
        ends = f", or until {agent.name} ends" if agent.name else ""
        for each in made:
            until = (
                f"until {task} is done or released" if task else f"until {each.expires_at}{ends}"
            )
            output.out(f"Reserved: {shown(each.pattern)} for {shown(worker)} {shown(until)}\n")
    return 0


def _release(call: Call, reservations: Reservations, patterns: list[str]) -> int:
    worker = identity.whoami(call.options.get("--worker"))
    gone = [each for pattern in patterns for each in reservations.release(worker, pattern)]
    if not patterns:
        gone = reservations.release(worker)
    if not call.answer({"released": [each.fields() for each in gone]}):
        output.out(
            "".join(f"Released: {shown(each.pattern)}\n" for each in gone)
            or f"{shown(worker)} has no reservations\n"
        )
    return 0


def _list(call: Call, reservations: Reservations) -> int:
    found = reservations.all()
    if not call.answer({"reservations": [each.fields() for each in found]}):
        for each in found:
            until = (
                f"for {foreign_name(each.task_id)}"
                if each.task_id
                else f"until {foreign_name(each.expires_at)}"
            )
            output.out(
                f"{foreign_name(each.pattern)}: {foreign_name(each.worker)} since "
                f"{foreign_name(each.since)}, {until}\n"
            )
        if not found:
            output.out("No reservations\n")
    return 0


def _check(call: Call, reservations: Reservations) -> int:
    here, path = os.getcwd(), call.options["--check"]
    if not path:
        raise BadInput("--check needs the path of a file.")
    worker = identity.whoami(call.options.get("--worker"))
    held = reservations.held_by_others(names_of(path, project_root(here), here), worker)
    if held is not None:
        why = refusal(path, held.pattern, held.worker, held.task_id)
        text = f"{why}. Do not change it."
        call.answer(
            {
                "free": False,
                "must_stop": False,
                "path": path,
                "reservation": held.fields(),
                "reason": text,
            }
        )
        output.error(text)
        return 1
    if not call.answer({"free": True, "must_stop": False, "path": path, "reservation": None}):
        output.out(f"{shown(worker)} may change {shown(path)}\n")
    return 0


def _task(call: Call, worker: str) -> tuple[str, int | None]:
    """Return the task of a reservation and its token, "" and None if there is no task.

    The task is the value of --task, else the assigned task, else the only task of the
    worker. Raise BadInput if the worker has several tasks.
    """
    task = call.options.get("--task") or settings.task()
    if task:
        named_by = "--task" if "--task" in call.options else "SWARM_TASK_ID"
        return check_name(task, named_by), settings.token_for(task)
    if "--ttl" in call.options:
        return "", None
    mine = TaskQueue().claimed_by(worker)
    if len(mine) > 1:
        names = ", ".join(each.id for each in mine)
        raise BadInput(
            f"{worker} has {len(mine)} tasks: {names}. Name one of these tasks with --task."
        )
    return (mine[0].id, mine[0].token) if mine else ("", None)


COMMAND = Command(
    reserve,
    "Reserve files for a worker so that other agents do not edit them.",
    "swarm reserve 'src/api/**' --worker worker-1",
    repeated="PATTERN",
    options=(
        Option(
            "--worker",
            "W",
            "the worker; default: SWARM_WORKER, else the agent that runs this command",
        ),
        Option(
            "--task",
            "TASK",
            "reserve until the worker ends this task; default: the only task of the worker",
        ),
        Option(
            "--ttl",
            "S",
            "without a task: for S seconds (AI_SWARM_LOCK_TTL, else 300), or until the agent ends",
        ),
        Option("--release", text="release the given patterns, or all patterns of the worker"),
        Option("--list", text="list all reservations"),
        Option(
            "--check",
            "PATH",
            "exit 0 if the worker may change this file, 1 if another worker has reserved the file",
        ),
    ),
    details=(
        (
            "If one pattern cannot be reserved, no pattern is reserved. Exit 1: another worker "
            "has reserved one of the files. swarm hook stops agents from editing files that "
            "another worker has reserved."
        ),
    ),
    notes=(
        (
            "In a pattern, ** stands for any directories, * for any text in a name, ? for one "
            "character. A directory stands for all files in it. Put patterns in quotes."
        ),
        (
            "A pattern is a path from the root of the project, where .git is. So a pattern "
            "means the same files in every checkout."
        ),
    ),
)
