"""Where a branch lives, and the one step that moves it.

A landing changes several refs at once: the branch, `refs/swarm/landed/BRANCH/TASK`, and
nothing at all if a higher token has passed the fence of the task or of the branch. So a
lander or an attempt that was overtaken cannot move a branch, whatever it believes.

`LocalTarget` is this repository: one `git update-ref --stdin` transaction. A crash inside
git can leave the first refs of a transaction changed and the others not. The landed ref
comes first, and a landing counts only if the branch contains its commit.

`RemoteTarget` in `landing.remote` is a remote: one atomic push.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from swarm.errors import GitError
from swarm.formats import json_codec
from swarm.workspaces.fence import fence_task, raise_fence
from swarm.workspaces.refs import HEADS, branch_fence, landed_ref, task_fence
from swarm.workspaces.repository import Repository
from swarm.workspaces.rules import Rules

_TAGGER = "swarm <swarm@localhost> 0 +0000"


@dataclass(frozen=True)
class Landing:
    """A landing, as `refs/swarm/landed/BRANCH/TASK` describes it."""

    commit: str
    token: int
    tag: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tokens_before(self) -> list[int]:
        """The tokens of all landings of this task on this branch, this one included."""
        earlier = self.facts.get("before")
        return [*(earlier if isinstance(earlier, list) else []), self.token]


@dataclass(frozen=True)
class View:
    """The refs about a task and a branch, read at one moment.

    `tip` is "" if there is no such branch. `refs` has the hash of each ref that exists.
    `has_work`: this repository has the commit that was asked for.
    """

    tip: str
    landed: Landing | None
    refs: Mapping[str, str]
    has_work: bool = False

    def is_fenced(self, task: str, token: int) -> bool:
        """Return whether the fence of the task is surely at this token."""
        return self.refs.get(task_fence(task)) == fence_blob(token, len(self.tip))


@dataclass(frozen=True)
class Move:
    """A landing to be made: the branch goes from `old` to `new`, if both tokens hold.

    `old` and `new` are equal if the work changes nothing. `replaced` is the tag of an
    earlier landing of the task, "" without one.
    """

    task: str
    token: int
    branch: str
    lander: int
    old: str
    new: str
    tag: str
    replaced: str = ""


class Target(Protocol):
    """The repository that decides where a branch is."""

    remote: str
    """The name of the remote, "" for this repository."""

    def look(self, branch: str, task: str = "", work: str = "") -> View:
        """Return the refs as they are now. This repository then has their objects.

        `work` is a commit that this repository may have.
        """
        ...

    def tip(self, branch: str) -> str:
        """Return the commit of a branch, which this repository then has.

        Raise BadInput if there is no such branch.
        """
        ...

    def fence_task(self, task: str, token: int) -> None:
        """Let no attempt with a lower token land. Raise LockLost if this one is lower."""
        ...

    def fence_branch(self, branch: str, token: int) -> None:
        """Let no lander with a lower token land. Raise LockLost if this one is lower."""
        ...

    def branch_token(self, branch: str) -> int:
        """Return the highest token of a lander of the branch, 0 if there was none."""
        ...

    def landed(self, branch: str, task: str) -> Landing | None:
        """Return the last landing of a task that the branch contains."""
        ...

    def move(self, move: Move) -> bool:
        """Make a landing. Return False, and change nothing, if a ref has another value
        than the landing expects.
        """
        ...

    def read(self, ref: str) -> tuple[str, str]:
        """Return the hash of a ref's object and its text, "" and "" if there is none."""
        ...

    def write(self, text: str) -> str:
        """Store a text as a blob in this repository, and return its hash."""
        ...

    def change(self, changes: Mapping[str, tuple[str, str]]) -> bool:
        """Change refs, all or none: each has its new and its old value, "" for no ref.

        Return False, and change nothing, if a ref has another value.
        """
        ...

    def has_work(self, task: str, token: int, commit: str) -> bool:
        """Return whether this repository has the work of an attempt; get it if it can."""
        ...

    def find_work(self, task: str, commit: str) -> bool:
        """The same for saved work of any attempt at a task."""
        ...

    def publish_work(self, task: str, token: int) -> None:
        """Let other machines have the saved work of an attempt."""
        ...


class LocalTarget:
    """A branch of this repository."""

    remote = ""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def look(self, branch: str, task: str = "", work: str = "") -> View:
        head, landed = HEADS + branch, landed_ref(branch, task)
        names = [head, *((landed, task_fence(task)) if task else ()), *((work,) if work else ())]
        found = read_objects(self._repository, names)
        return View(
            found[head].name if head in found else "",
            landing_in(found[landed]) if landed in found else None,
            {name: each.name for name, each in found.items()},
            bool(work) and work in found,
        )

    def tip(self, branch: str) -> str:
        return self._repository.tip(branch)

    def fence_task(self, task: str, token: int) -> None:
        fence_task(self._repository, task, token)

    def fence_branch(self, branch: str, token: int) -> None:
        raise_fence(self._repository, branch_fence(branch), token, branch)

    def branch_token(self, branch: str) -> int:
        text = self._repository.read_blob(branch_fence(branch))
        return fence_token(text or "")

    def landed(self, branch: str, task: str) -> Landing | None:
        return counted(self._repository, self.look(branch, task))

    def move(self, move: Move) -> bool:
        return self._repository.update_refs(self.lines(move))

    def read(self, ref: str) -> tuple[str, str]:
        found = read_objects(self._repository, [ref]).get(ref)
        return (found.name, found.text) if found else ("", "")

    def write(self, text: str) -> str:
        return self._repository.write_blob(text)

    def change(self, changes: Mapping[str, tuple[str, str]]) -> bool:
        lines = []
        for ref, (new, old) in changes.items():
            if new:
                lines.append(f"update {ref} {new} {old or '0' * len(new)}")
            elif old:
                lines.append(f"delete {ref} {old}")
        return self._repository.update_refs(lines)

    def lines(self, move: Move) -> list[str]:
        """Return the transaction of a landing. The order matters: see the module."""
        landed, branch = landed_ref(move.branch, move.task), HEADS + move.branch
        size = len(move.old)
        return [
            f"verify {task_fence(move.task)} {fence_blob(move.token, size)}",
            f"verify {branch_fence(move.branch)} {fence_blob(move.lander, size)}",
            f"update {landed} {move.tag} {move.replaced or '0' * size}",
            f"update {branch} {move.new} {move.old}"
            if move.new != move.old
            else f"verify {branch} {move.old}",
        ]

    def has_work(self, task: str, token: int, commit: str) -> bool:
        return self._repository.has(commit)

    def find_work(self, task: str, commit: str) -> bool:
        return self._repository.has(commit)

    def publish_work(self, task: str, token: int) -> None:
        """Do nothing: the work is in this repository."""


def target_for(repository: Repository, rules: Rules) -> Target:
    """Return where the branch of a task lives."""
    if rules.push:
        from swarm.landing.remote import RemoteTarget  # which imports this module

        return RemoteTarget(repository, rules.push)
    return LocalTarget(repository)


def counted(repository: Repository, view: View) -> Landing | None:
    """Return the landing in a view if the branch contains it.

    A crash inside git may have written the landed ref and not the branch.
    """
    landed = view.landed
    if landed is None or not view.tip:
        return None
    is_there = landed.commit == view.tip or repository.is_ancestor(landed.commit, view.tip)
    return landed if is_there else None


@dataclass(frozen=True)
class GitObject:
    """An object of git: its hash, type and text."""

    name: str
    kind: str
    text: str


def read_objects(repository: Repository, names: Sequence[str]) -> dict[str, GitObject]:
    """Return the object of each name that exists, with one call of git."""
    asked = "".join(f"{name}\n" for name in names)
    out = repository.git("cat-file", "--batch", stdin=asked).out
    data, found = out.encode("utf-8", "surrogateescape"), {}
    for name in names:
        head, _, data = data.partition(b"\n")
        words = head.decode("utf-8", "surrogateescape").rsplit(" ", 2)
        if len(words) != 3 or not words[2].isdigit():
            continue  # NAME missing
        size = int(words[2])
        text = data[:size].decode("utf-8", "surrogateescape")
        found[name] = GitObject(words[0], words[1], text)
        data = data[size + 1 :]
    return found


def landing_in(found: GitObject) -> Landing:
    """Return the landing that a tag object describes. Raise GitError if it is damaged."""
    head, _, message = found.text.partition("\n\n")
    fields = dict(line.partition(" ")[::2] for line in head.splitlines())
    try:
        facts = json_codec.loads(message)
        token = facts["token"]
        if found.kind != "tag" or not isinstance(token, int):
            raise ValueError
        return Landing(fields["object"], token, found.name, facts)
    except (ValueError, KeyError, TypeError):
        raise GitError(
            "git cat-file tag",
            f"the tag {found.name} below refs/swarm/landed is damaged: it names no landing.",
            "Restore the ref from another clone, or remove it with: git update-ref -d",
        ) from None


def write_tag(repository: Repository, commit: str, facts: Mapping[str, Any]) -> str:
    """Store a tag object about a landing, and return its hash."""
    text = (
        f"object {commit}\ntype commit\ntag swarm-landed\ntagger {_TAGGER}\n\n"
        f"{json_codec.dumps(dict(facts))}\n"
    )
    return repository.git("hash-object", "-t", "tag", "-w", "--stdin", stdin=text).line


def fence_blob(token: int, hash_length: int) -> str:
    """Return the hash of a fence's blob, as git computes it."""
    return blob_hash(f"{token}\n", hash_length)


def blob_hash(text: str, hash_length: int) -> str:
    import hashlib

    data = text.encode()
    kind = hashlib.sha256 if hash_length == 64 else hashlib.sha1  # git's own names of objects
    return kind(b"blob %d\0%b" % (len(data), data)).hexdigest()


def fence_token(text: str) -> int:
    """Return the token in the text of a fence, 0 for no text."""
    word = (text.split() or ["0"])[0]
    if not (word.isascii() and word.isdigit()):
        raise GitError("git cat-file blob", f"a fence is damaged: it is no token: {text[:40]!r}.")
    return int(word)
