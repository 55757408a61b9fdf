"""`swarm reserve`: files that are one worker's to change."""

from __future__ import annotations

import os

from swarm import settings
from swarm.agents import identity
from swarm.cli.arguments import Call, Command
from swarm.errors import BadInput, LockHeld
from swarm.formats import json_codec
from swarm.inputs import check_name, parse_token, parse_ttl
from swarm.locks.path_pattern import checked_pattern, names_of, project_root
from swarm.locks.reservations import Reservation, Reservations
from swarm.queue.queue import TaskQueue
from swarm.stores.default import default_store
from swarm.system import process
from swarm.terminal import output
from swarm.terminal.text import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def reserve(call: Call) -> int:
    asked = [option for option in ("--list", "--check", "--release") if option in call.options]
    if len(asked) > 1:
        raise BadInput(f"{asked[0]} and {asked[1]} cannot be had at once.")
    if asked in (["--list"], ["--check"]) and call.positional:
        raise BadInput(f"{asked[0]} takes no patterns.")
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
        raise BadInput("reserve needs a pattern, such as 'src/api/**'; or --list, --check PATH or --release.")
    return _reserve(call, reservations, patterns)


def _reserve(call: Call, reservations: Reservations, patterns: list[str]) -> int:
    """All patterns or none."""
    worker = identity.whoami(call.options.get("--worker"))
    task, token = _task(call, worker)
    ttl = parse_ttl(call.options["--ttl"], "--ttl") if "--ttl" in call.options else settings.lock_ttl()
    agent = identity.find()
    before = {each.pattern for each in reservations.all() if each.worker == worker}
    made: list[Reservation] = []
    try:
        for pattern in sorted(patterns):  # in one order for all: two who want the same files would refuse each other
            if task:
                made.append(reservations.reserve_for_task(pattern, worker, task, token))
            else:
                made.append(reservations.reserve(pattern, worker, ttl, process.identity(agent.pid) if agent.pid else None))
    except BaseException as error:
        for each in made:
            if each.pattern not in before:
                reservations.release(worker, each.pattern)
        if isinstance(error, LockHeld) and call.json:
            refusal = {
                "reserved": False,
                "must_stop": True,
                "pattern": error.task_id,
                "held_by": error.holder,
                "reason": str(error),
            }
            _json(call, {**refusal, "next": "Do not change these files. Work on others, or wait until they are free."})
            output.error(str(error))
            return error.exit_code
        raise
    made.sort(key=lambda each: patterns.index(each.pattern))
    if not _json(call, {"reserved": True, "reservations": [each.fields() for each in made]}):
        ends = f", or until {agent.name} ends" if agent.name else ""
        for each in made:
            until = f"until {task} is done or given back" if task else f"until {each.expires_at}{ends}"
            output.out(f"Reserved: {shown(each.pattern)} for {shown(worker)} {shown(until)}\n")
    return 0


def _release(call: Call, reservations: Reservations, patterns: list[str]) -> int:
    worker = identity.whoami(call.options.get("--worker"))
    gone = [each for pattern in patterns for each in reservations.release(worker, pattern)]
    if not patterns:
        gone = reservations.release(worker)
    if not _json(call, {"released": [each.fields() for each in gone]}):
        output.out("".join(f"Released: {shown(each.pattern)}\n" for each in gone) or f"{shown(worker)} has reserved nothing\n")
    return 0


def _list(call: Call, reservations: Reservations) -> int:
    found = reservations.all()
    if not _json(call, {"reservations": [each.fields() for each in found]}):
        for each in found:
            until = f"for {each.task_id}" if each.task_id else f"until {each.expires_at}"
            output.out(f"{shown(each.pattern)}: {shown(each.worker)} since {each.since}, {shown(until)}\n")
        if not found:
            output.out("No reservations\n")
    return 0


def _check(call: Call, reservations: Reservations) -> int:
    here, path = os.getcwd(), call.options["--check"]
    if not path:
        raise BadInput("--check needs the path of a file.")
    worker = identity.whoami(call.options.get("--worker"))
    for name in names_of(path, project_root(here), here):
        held = reservations.held_by_others(name, worker)
        if held is not None:
            about = f", who works on {held.task_id}" if held.task_id else ""
            text = f"{path} is reserved (as {held.pattern}) by {held.worker}{about}. Do not change it."
            _json(call, {"free": False, "must_stop": True, "path": path, "reservation": held.fields(), "reason": text})
            output.error(text)
            return 1
    if not _json(call, {"free": True, "must_stop": False, "path": path, "reservation": None}):
        output.out(f"{shown(path)} is yours to change\n")
    return 0


def _task(call: Call, worker: str) -> tuple[str, int | None]:
    """The task that it is for, "" for none: the one that was named, or that this process works on, or the only one of the
    worker's."""
    task = call.options.get("--task") or settings.task()
    if task:
        token = settings.token_for(task)
        return check_name(task, "task_id"), parse_token(token) if token else None
    if "--ttl" in call.options:
        return "", None
    mine = [each for each in TaskQueue().tasks("running") if each.worker == worker]
    if len(mine) > 1:
        names = ", ".join(each.id for each in mine)
        raise BadInput(f"{worker} has {len(mine)} tasks: {names}. Say with --task which of them it is for.")
    return (mine[0].id, mine[0].token) if mine else ("", None)


def _json(call: Call, fields: dict[str, Any]) -> bool:
    if call.json:
        output.out(json_codec.dumps({"schema_version": 1, **fields}) + "\n")
    return call.json


COMMAND = Command(
    "[PATTERN]… [--worker W] [--task T] [--ttl S] [--release] [--list] [--check PATH]",
    "Reserves files for a worker: others are refused, and swarm hook keeps their agents from editing them. All patterns\n"
    "or none. Exit 1: somebody else has reserved one of these files.\n"
    "\n"
    "In a pattern ** is any number of directories, * any text in a name, ? one character; a directory stands for all in it.\n"
    "Put it in quotes. Patterns are kept as paths from the project's root (where .git is): agents in other checkouts mean\n"
    "the same.\n"
    "\n"
    "  --task T       for as long as the worker has this task; default: the one it has, if it has one\n"
    "  --ttl S        without a task: for S seconds (AI_SWARM_LOCK_TTL, else 300), or until the agent ends\n"
    "  --release      gives these patterns back, or all that the worker has\n"
    "  --list         what is reserved, and by whom\n"
    "  --check PATH   whether the worker may change a file: exit 0, or 1 if it is another's\n"
    "  --worker W     default: SWARM_WORKER, else the agent that runs this",
    "swarm reserve 'src/api/**' --worker worker-1",
    reserve,
    "--worker= --task= --ttl= --release --list --check=",
)
