"""`swarm diff` and `swarm checkout`: look at a task's saved work, and get it back."""

from __future__ import annotations

import os
import sys

from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput
from swarm.inputs import check_name, parse_token
from swarm.landing.context import WorkContext, work_context
from swarm.terminal import output
from swarm.terminal.text import foreign_name, quoted, shown
from swarm.workspaces.refs import component
from swarm.workspaces.repository import Repository, failure
from swarm.workspaces.saved_work import SavedWork, saved_work
from swarm.workspaces.workspaces import Workspaces


def diff(call: Call) -> int:
    found, repository = _context()
    task = check_name(call.get(0), "task")
    token = _token(call)
    base, tree, seen = _live(found, task, token)
    if not tree:
        work = _newest(repository, task, token)
        base, tree, seen = work.base, work.commit, work.token
    if not base:
        base = repository.git("rev-parse", f"{tree}^").line
    words = ["--stat"] if "--stat" in call.options else []
    text = repository.git("diff", "--no-color", "--no-ext-diff", *words, base, tree).out
    fields = {"task": task, "token": seen, "base": base, "tree": tree, "diff": text}
    if not call.answer(fields):
        _print(text or f"{task} {seen} changed nothing\n")
    return 0


def checkout(call: Call) -> int:
    _, repository = _context()
    task = check_name(call.get(0), "task")
    work = _newest(repository, task, _token(call))
    default = f"{repository.root}-{component(task)}.{work.token}"
    path = os.path.abspath(call.get(1) or default)
    branch = call.options.get("--branch", "")
    on = ("-b", branch) if branch else ("--detach",)
    if branch.startswith("-"):
        raise BadInput(f"--branch is {branch[:40]!r}, but must be the name of a new branch.")
    words = ("--quiet", "--no-checkout", "--no-track", *on, path, work.commit)
    made = repository.add_worktree(*(word for word in words if branch or word != "--no-track"))
    if made.code:
        raise failure(("worktree", "add"), made)
    repository.git("reset", "--quiet", "--hard", cwd=path)
    fields = {"task": task, "token": work.token, "commit": work.commit, "path": path}
    if not call.answer({**fields, "branch": branch or None}):
        where = f"on the branch {branch}" if branch else "without a branch"
        output.out(
            f"The work of {foreign_name(task)} {work.token} is in {shown(quoted(path))}, {where}. "
            f"It is yours: remove it with git worktree remove\n"
        )
    return 0


def _context() -> tuple[WorkContext, Repository]:
    found = work_context()
    if found.repository is None:
        raise BadInput(
            "work is saved only in a project in a git checkout with workspaces, and this is none. "
            "See: swarm init"
        )
    return found, found.repository


def _token(call: Call) -> int:
    text = call.options.get("--token")
    return parse_token(text) if text is not None else 0


def _live(found: WorkContext, task: str, token: int) -> tuple[str, str, int]:
    """Return base, tree and token of the task's newest workspace, "" and 0 if it has
    none.
    """
    if not isinstance(found.workspaces, Workspaces):
        return "", "", 0
    tokens = [each.token for each in found.workspaces.list() if each.task == task]
    if token:
        tokens = [each for each in tokens if each == token]
    workspace = found.workspaces.find(task, max(tokens)) if tokens else None
    if workspace is None:
        return "", "", 0
    return workspace.base, found.workspaces.tree(workspace), workspace.token


def _newest(repository: Repository, task: str, token: int) -> SavedWork:
    """Return the last saved work of a task, or that of an attempt."""
    works = [work for work in saved_work(repository, task) if not work.older]
    if not works:
        raise BadInput(
            f"{task!r} has no saved work. See its attempts: swarm task show {quoted(task)}"
        )
    for work in works:
        if token in (0, work.token):
            return work
    tokens = " ".join(str(work.token) for work in works)
    raise BadInput(f"{task!r} has no saved work with token {token}, but with: {tokens}.")


def _print(text: str) -> None:
    """Print a diff: as it is for a program, and without control characters for a
    terminal, because an agent wrote it.
    """
    if sys.stdout.isatty():
        lines = text.split("\n")
        text = "\n".join("\t".join(map(shown, line.split("\t"))) for line in lines)
        output.out(text)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


_TOKEN = Option("--token", "N", "the attempt with this token; default: the last one")
COMMANDS = {
    "diff": Command(
        diff,
        "Show what an attempt at a task has changed.",
        "swarm diff login",
        positional=("TASK",),
        options=(_TOKEN, Option("--stat", text="show only how much changed in which files")),
        details=(
            (
                "Compare the saved work with the commit from which the attempt began. If an agent "
                "works at the task now, show its changes until now."
            ),
        ),
    ),
    "checkout": Command(
        checkout,
        "Get the saved work of a task back, as a git worktree of your own.",
        "swarm checkout login ../login",
        positional=("TASK",),
        optional=("DIR",),
        options=(_TOKEN, Option("--branch", "NAME", "make this branch for it; default: none")),
        details=("DIR is the new directory; default: beside the checkout, with the task's name.",),
    ),
}
