"""Finish a task: look at the work, check it, save it, then submit it or end the task.

A worker, `swarm task done` and the MCP tool `done` finish a task in the same way:

    the workspace was removed       refused: only commits are left of the work
    conflict markers are left       refused, with the names of the files
    a repository is inside          refused: no commit can hold its files
    nothing changed                 refused if changes are required, else noted
    the check fails                 refused, with the last lines of its output
    the work lands or is reviewed   submitted: the task is done when it has landed
    otherwise                       done

The tree that counts is the tree that was tested. A check that changes files, as a
formatter does, runs once more on the changed files. Files that a check only adds, such
as reports, are no part of the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from swarm.landing.attempts import AttemptWorkspace, Running
from swarm.queue.queue import Task, TaskQueue
from swarm.terminal.text import shown
from swarm.workspaces.check import CheckRun, run_check
from swarm.workspaces.workspaces import Saved

CHANGED_NOTHING = "changed nothing"
_MAX_NAMES = 10
_RUNS = 2  # of a check that changes files


@dataclass(frozen=True)
class Finding:
    """What was found out about finished work.

    `refusal` is why it cannot count, "" if it can; `feedback` has the last lines of the
    check. `unresolved`: conflict markers are left. `stopped`: the check was ended early,
    because the attempt must end. `check` is the evidence of a green check. `changed` is
    None if it is not known.
    """

    refusal: str = ""
    feedback: str = ""
    unresolved: bool = False
    stopped: bool = False
    saved: Saved | None = None
    check: Mapping[str, Any] | None = None
    changed: bool | None = None

    def meta(self) -> dict[str, Any]:
        """Return what the record of the end says about the work."""
        found: dict[str, Any] = {}
        if self.check:
            found["check"] = dict(self.check)
        if self.changed is False:
            found["changed"] = False
        return found

    def result(self, text: str) -> str:
        """Return the result of the task with what was found."""
        if self.changed is not False:
            return text
        return f"{text} ({CHANGED_NOTHING})" if text.strip() else CHANGED_NOTHING


def examine(site: AttemptWorkspace, running: Running) -> Finding:
    """Look at finished work, check it and save it.

    Raise GitError if the work cannot be saved, StoreError if the output of the check
    cannot be written, CannotRun if no shell can be started.
    """
    if site.is_gone():
        return Finding("the workspace was removed during the attempt. Leave it where it is.")
    if files := site.conflicts():
        refusal = f"conflict markers are left in {_names(files)}. Resolve the conflicts."
        return Finding(refusal, unresolved=True)
    saved = site.save()
    if saved and saved.inside:
        return Finding(
            f"the work is not complete: {saved.inside}. No commit can hold its files. Remove its "
            "directory .git, or let git ignore it."
        )
    changed = saved.changed if saved else None
    if site.rules.require_changes and changed is False:
        return Finding(f"the attempt {CHANGED_NOTHING}, but this task requires changes.")
    if not site.rules.check:
        return Finding(saved=saved, changed=changed)
    return replace(_checked(site, running, saved), changed=changed)


def end(
    queue: TaskQueue,
    site: AttemptWorkspace,
    worker: str,
    finding: Finding,
    result: str = "",
    *,
    session: str = "",
    agent: str = "",
    force: bool = False,
    **meta: Any,
) -> Task:
    """Submit examined work, or end the task as done. Return the task.

    Raise the errors of `TaskQueue.done`, and GitError if other machines cannot get the
    work.
    """
    saved = finding.saved
    about: dict[str, Any] = {"session": session, "agent": agent, "force": force, **meta}
    # nothing can land of an attempt that changed nothing
    branch = site.lands if finding.changed else ""
    if saved is not None and saved.commit and (branch or site.rules.review):
        if branch:
            site.target.publish_work(site.task.id, site.token)
        return queue.submit(
            site.task.id,
            worker,
            site.token,
            finding.result(result),
            work=saved.commit,
            base=saved.base,
            tree=saved.tree,
            branch=branch,
            check=finding.check,
            review=site.rules.review,
            **about,
        )
    return queue.done(
        site.task.id, worker, site.token, finding.result(result), **about, **finding.meta()
    )


def _checked(site: AttemptWorkspace, running: Running, saved: Saved | None) -> Finding:
    """Run the check until it has left the files as they were."""
    changes: list[str] = []
    made: set[str] = set()  # files that the check itself has added
    for _ in range(_RUNS):
        run = run_check(
            site.rules.check,
            site.directory,
            {**running.environment, **site.variables()},
            output=running.output,
            timeout=site.rules.check_timeout,
            must_end=running.must_end,
            on_group=running.on_group,
            at_most=running.at_most,
        )
        if not run.ok:
            return _refused(run, saved, running)
        changed = _changes(site, saved)
        changes = sorted(changed.names - made)
        if not changes:
            tree = saved.tree if saved else ""
            return Finding(saved=saved, check=run.evidence(tree))
        made |= changed.added
        saved = site.save()
    return Finding(
        f"the check changes files each time it runs: {_names(changes)}. Let it leave them as they "
        "are, or let git ignore them.",
        saved=saved,
    )


def _refused(run: CheckRun, saved: Saved | None, running: Running) -> Finding:
    return Finding(
        run.reason,
        "\n".join(run.last_lines),
        stopped=bool(run.stopped) and bool(running.must_end()),
        saved=saved,
    )


@dataclass(frozen=True)
class _Changes:
    """The files of saved work that have changed or are gone, and files that are new."""

    names: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()


def _changes(site: AttemptWorkspace, saved: Saved | None) -> _Changes:
    """Return what has changed in the workspace since the work was saved."""
    workspaces, repository = site.context.workspaces, site.context.repository
    if saved is None or workspaces is None or repository is None or site.workspace is None:
        return _Changes()
    tree = workspaces.tree(site.workspace)
    if not tree or tree == saved.tree:
        return _Changes()
    words = ("diff-tree", "-r", "-z", "--no-renames", "--name-status", saved.tree, tree)
    found = repository.git(*words).out.split("\0")
    pairs = list(zip(found[::2], found[1::2], strict=False))
    return _Changes(
        frozenset(name for status, name in pairs if status != "A"),
        frozenset(name for status, name in pairs if status == "A"),
    )


def _names(files: list[str]) -> str:
    named = ", ".join(shown(name) for name in files[:_MAX_NAMES])
    return f"{named} and {len(files) - _MAX_NAMES} more" if len(files) > _MAX_NAMES else named
