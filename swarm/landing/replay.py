"""Put the work of an attempt on top of a branch, as a new commit.

`rebase`: all changes of the work become one commit on the tip. So each commit of the
branch was checked, also if the agent committed half-finished work on its way, or an
earlier attempt was killed. The agent's own commits stay below refs/swarm/work.
`merge`: a merge commit whose first parent is the tip, and whose second is the work.

Work that already stands on the tip as one commit lands as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swarm.errors import GitError
from swarm.landing.workspace import LanderWorkspace
from swarm.terminal.text import shorten
from swarm.workspaces.repository import Repository

MERGE = "merge"
TRAILER = "Swarm-Task"
_MAX_FILES = 50  # conflicting files that are named
_MAX_HUNKS = 6000  # characters of conflicting hunks in a feedback
_MAX_SUBJECTS = 20
_FORMAT = "%m%x00%H%x00%P%x00%T%x00%an%x00%ae%x00%ad%x00%B%x00%x01"


@dataclass(frozen=True)
class Work:
    """Saved work that is to land: its commit, where it began, and its task."""

    task: str
    token: int
    commit: str
    base: str


@dataclass(frozen=True)
class Replayed:
    """The result: a commit on the tip, or conflicts.

    `commit` is the tip itself if the work changes nothing. `text` is what git wrote
    about the conflicts, with the conflicting hunks.
    """

    commit: str = ""
    tree: str = ""
    conflicts: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class _Commit:
    name: str
    parents: Sequence[str]
    tree: str
    author: dict[str, str]
    message: str

    @property
    def subject(self) -> str:
        return self.message.partition("\n")[0]


@dataclass(frozen=True)
class _History:
    """The commits of the work, the last one first, and where it began."""

    commits: list[_Commit]
    bases: list[str]


def replay(
    repository: Repository, workspace: LanderWorkspace, work: Work, tip: str, by: str
) -> Replayed:
    """Return the work on top of `tip`. Raise GitError if git fails."""
    found = _history(repository, work, tip)
    if not found.commits:  # the branch contains it
        return Replayed(tip, _tree(repository, tip))
    bases, commits = found.bases, found.commits
    if by == MERGE:
        return _merged(repository, workspace, work, tip, bases, commits)
    message = _message(work, commits)
    is_one = len(commits) == 1 and list(commits[0].parents) == bases
    if is_one and message == commits[0].message:
        picked = work.commit
    elif len(bases) == 1:
        picked = _commit(repository, commits[0], bases, message)
    else:
        return _squashed(repository, workspace, work, tip, commits[0], message)
    if bases == [tip]:
        return _unless_empty(repository, picked, commits[0].tree, tip)
    workspace.checkout(tip)
    workspace.changed()
    words = ("cherry-pick", "--allow-empty", "--keep-redundant-commits", "--allow-empty-message")
    result = workspace.git(*words, picked, check=False)
    if result.code:
        return _conflicts(workspace, words, result.out + result.err)
    return _result(repository, workspace, tip)


def _merged(
    repository: Repository,
    workspace: LanderWorkspace,
    work: Work,
    tip: str,
    bases: list[str],
    commits: list[_Commit],
) -> Replayed:
    subject = commits[0].subject.removeprefix(f"{work.task}: ")
    line = shorten(" ".join(f"Merge {work.task}: {subject}".split()), 200)
    message = _with_trailer(line, work.task)
    if bases == [tip]:
        made = _commit(repository, commits[0], [tip, work.commit], message)
        return _unless_empty(repository, made, commits[0].tree, tip)
    workspace.checkout(tip)
    workspace.changed()
    words = ("merge", "--no-ff", "--no-edit", "--no-verify", "--no-log", "--no-signoff")
    result = workspace.git(*words, "-m", message, work.commit, check=False)
    if result.code:
        return _conflicts(workspace, words, result.out + result.err)
    return _result(repository, workspace, tip)


def _squashed(
    repository: Repository,
    workspace: LanderWorkspace,
    work: Work,
    tip: str,
    last: _Commit,
    message: str,
) -> Replayed:
    """Replay work that has merged the branch more than once, crosswise."""
    workspace.checkout(tip)
    workspace.changed()
    words = ("merge", "--squash", "--no-commit")
    result = workspace.git(*words, work.commit, check=False)
    if result.code:
        return _conflicts(workspace, words, result.out + result.err)
    tree = workspace.git("write-tree").line
    made = _commit(repository, last, [tip], message, tree=tree)
    workspace.git("reset", "--quiet", "--hard", made)
    workspace.changed(made)
    return _unless_empty(repository, made, tree, tip)


def _history(repository: Repository, work: Work, tip: str) -> _History:
    """Return the commits of the work, and the commits from which work and branch have
    gone apart.

    If the branch was rewritten and does not contain the base any more, the work still
    is only what came after its base.
    """
    commits, bases = _log(repository, work.commit, [tip])
    if len(bases) > 1:  # the work has merged the branch
        bases = repository.git("merge-base", "--all", tip, work.commit, check=False).out.split()
    base = work.base
    if not commits or not base or base in bases or repository.is_ancestor(base, tip):
        return _History(commits, bases)
    if not repository.is_ancestor(base, work.commit):
        return _History(commits, bases)
    return _History(_log(repository, work.commit, [tip, base])[0], [base])


def _log(
    repository: Repository, commit: str, without: list[str]
) -> tuple[list[_Commit], list[str]]:
    """Return the commits that are in `commit` and not in `without`, the last one first.
    Return also the commits in `without` on which they stand.
    """
    words = ("log", f"--format={_FORMAT}", "--boundary", "--topo-order", "--date=raw")
    out = repository.git(*words, "--no-show-signature", commit, "--not", *without, "--").out
    found, bases = [], []
    for entry in out.split("\0\x01\n"):
        if not entry:
            continue
        mark, name, parents, tree, author, email, date, message = entry.split("\0", 7)
        if mark == "-":
            bases.append(name)
            continue
        who = {
            "GIT_AUTHOR_NAME": author or "swarm",
            "GIT_AUTHOR_EMAIL": email or "swarm@localhost",
            "GIT_AUTHOR_DATE": date,
        }
        found.append(_Commit(name, parents.split(), tree, who, message))
    return found, bases


def _message(work: Work, commits: list[_Commit]) -> str:
    """Return the message of the commit that lands."""
    message = commits[0].message
    own = [each.subject for each in commits if len(each.parents) < 2]
    subjects = list(dict.fromkeys(each for each in own if each != commits[0].subject))
    if subjects:
        lines = [f"* {shorten(each, 200)}" for each in reversed(subjects[:_MAX_SUBJECTS])]
        message = f"{commits[0].subject}\n\n" + "\n".join(lines) + "\n"
    return _with_trailer(message, work.task)


def _with_trailer(message: str, task: str) -> str:
    """Return a message with the trailer of the task, which it may have already."""
    value = " ".join(task.split())
    if f"{TRAILER}: {value}" in message.splitlines():
        return message
    body = message.rstrip("\n") or value
    last = body.rpartition("\n\n")[2] if "\n\n" in body else ""
    follows = last.startswith(f"{TRAILER}: ")
    return f"{body}\n{'' if follows else chr(10)}{TRAILER}: {value}\n"


def _commit(
    repository: Repository, last: _Commit, parents: Sequence[str], message: str, *, tree: str = ""
) -> str:
    words = [word for parent in parents for word in ("-p", parent)]
    environment = {**repository.identity(), **last.author}
    made = repository.git(
        "commit-tree", tree or last.tree, *words, "-F", "-", stdin=message, environment=environment
    )
    return made.line


def _result(repository: Repository, workspace: LanderWorkspace, tip: str) -> Replayed:
    words = workspace.git("rev-parse", "HEAD", "HEAD^{tree}", f"{tip}^{{tree}}").out.split()
    commit, tree, old_tree = words
    workspace.changed(commit)
    return Replayed(tip if tree == old_tree else commit, tree)


def _unless_empty(repository: Repository, commit: str, tree: str, tip: str) -> Replayed:
    return Replayed(tip if tree == _tree(repository, tip) else commit, tree)


def _tree(repository: Repository, commit: str) -> str:
    return repository.git("rev-parse", f"{commit}^{{tree}}").line


def _conflicts(workspace: LanderWorkspace, words: Sequence[str], text: str) -> Replayed:
    """Return the conflicts in the worktree. Raise GitError if there are none."""
    out = workspace.git("ls-files", "--unmerged", "-z").out
    paths = dict.fromkeys(entry.partition("\t")[2] for entry in out.split("\0") if entry)
    if not paths:
        raise GitError(f"git {words[0]}", shorten(" ".join(text.split()), 1000))
    kinds = [line for line in text.splitlines() if line.startswith("CONFLICT")]
    show = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--diff-filter=U")
    hunks = workspace.git(*show, check=False).out
    return Replayed(
        conflicts=tuple(paths)[:_MAX_FILES],
        text="\n".join([*kinds[:_MAX_FILES], "", shorten(hunks, _MAX_HUNKS)]),
    )
