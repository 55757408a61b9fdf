"""A branch that lives on a remote: every landing is one atomic push.

The remote is the authority. A push names for each ref the value that it expects
(`--force-with-lease`), and the remote compares again while it holds its locks. git sends
no ref that does not change, so a landing also changes both fences: `TOKEN` becomes
`TOKEN NUMBER`. The user's own branches are not moved: the next `git pull` gets them.
"""

from __future__ import annotations

from collections.abc import Mapping

from swarm.errors import BadInput, LockLost
from swarm.landing.target import (
    Landing,
    Move,
    View,
    counted,
    fence_token,
    landing_in,
    read_objects,
)
from swarm.terminal.text import quoted
from swarm.workspaces.refs import HEADS, branch_fence, component, landed_ref, task_fence, work_ref
from swarm.workspaces.repository import Repository, failure

# What `git push` says if a ref of the remote has another value than expected.
_OTHER_VALUE = (
    "stale info",
    "fetch first",
    "but expected",
    "reference already exists",
    "failed to update ref",
    "cannot lock ref",
    "remote ref updated since checkout",
)


class RemoteTarget:
    """A branch of a remote."""

    def __init__(self, repository: Repository, remote: str) -> None:
        self.remote = remote
        self._repository = repository

    def look(self, branch: str, task: str = "", work: str = "") -> View:
        names = [HEADS + branch, branch_fence(branch)]
        if task:
            names += [landed_ref(branch, task), task_fence(task)]
        refs = self._list(names)
        self._fetch(refs)
        landed = None
        if task and (tag := refs.get(landed_ref(branch, task))):
            landed = landing_in(read_objects(self._repository, [tag])[tag])
        has_work = bool(work) and self._repository.has(work)
        return View(refs.get(HEADS + branch, ""), landed, refs, has_work)

    def tip(self, branch: str) -> str:
        if found := self.look(branch).tip:
            return found
        named, remote = quoted(branch), quoted(self.remote)
        raise BadInput(
            f"the remote {remote} has no branch {named}. "
            f"Push it with: git push {remote} {named}; or name another one as `land` in swarm.toml."
        )

    def fence_task(self, task: str, token: int) -> None:
        self._raise_fence(task_fence(task), token, task)

    def fence_branch(self, branch: str, token: int) -> None:
        self._raise_fence(branch_fence(branch), token, branch)

    def branch_token(self, branch: str) -> int:
        ref = branch_fence(branch)
        return self._token(self._list([ref]).get(ref, ""), ref)

    def landed(self, branch: str, task: str) -> Landing | None:
        return counted(self._repository, self.look(branch, task))

    def move(self, move: Move) -> bool:
        task, branch = task_fence(move.task), branch_fence(move.branch)
        refs = self._list([task, branch])
        for ref, token in ((task, move.token), (branch, move.lander)):
            if self._token(refs.get(ref, ""), ref) != token:
                return False
        changes = {
            ref: (self._next_fence(refs[ref], token), refs[ref])
            for ref, token in ((task, move.token), (branch, move.lander))
        }
        changes[landed_ref(move.branch, move.task)] = (move.tag, move.replaced)
        changes[HEADS + move.branch] = (move.new, move.old)
        return self._push(changes)

    def read(self, ref: str) -> tuple[str, str]:
        name = self._list([ref]).get(ref, "")
        if not name:
            return "", ""
        self._fetch({ref: name})
        return name, read_objects(self._repository, [name])[name].text

    def write(self, text: str) -> str:
        return self._repository.write_blob(text)

    def change(self, changes: Mapping[str, tuple[str, str]]) -> bool:
        return self._push(dict(changes))

    def record(self, branch: str, task: str, tag: str, replaced: str) -> bool:
        """Write only the landed ref: a forge has merged the work."""
        return self._push({landed_ref(branch, task): (tag, replaced)})

    def has_work(self, task: str, token: int, commit: str) -> bool:
        if self._repository.has(commit):
            return True
        ref = work_ref(task, token)
        found = self._list([ref])
        if not found:
            return False
        self._fetch(found)
        return self._repository.has(commit)

    def find_work(self, task: str, commit: str) -> bool:
        if self._repository.has(commit):
            return True
        every = f"{work_ref(task, 0).rpartition('/')[0]}/*"
        out = self._repository.git("ls-remote", "--quiet", self.remote, every).out
        pairs = (line.partition("\t") for line in out.splitlines())
        self._fetch({name: value for value, _, name in pairs if value == commit})
        return self._repository.has(commit)

    def publish_work(self, task: str, token: int) -> None:
        ref = work_ref(task, token)
        self._repository.git("push", "--quiet", "--force", self.remote, f"{ref}:{ref}", hooks=False)

    def publish_branch(self, commit: str, branch: str) -> None:
        """Push a commit as a branch of the remote, with the user's hooks."""
        self._repository.git(
            "push", "--quiet", "--force", self.remote, f"{commit}:{branch}", hooks=True
        )

    # Internals ------------------------------------------------------------------------

    def _list(self, names: list[str]) -> dict[str, str]:
        """Return the hash of each ref of the remote that exists."""
        out = self._repository.git("ls-remote", "--quiet", self.remote, *names).out
        pairs = (line.partition("\t") for line in out.splitlines())
        return {name: value for value, _, name in pairs if name in names}

    def _fetch(self, refs: dict[str, str]) -> None:
        """Get the objects of refs that this repository does not have.

        They stay reachable by refs below refs/swarm/remote. Another process that fetches
        at the same moment may change such a ref first; the objects are here all the same.
        The user's refs below refs/remotes stay as they are.
        """
        asked = "".join(f"{value}\n" for value in refs.values())
        out = self._repository.git("cat-file", "--batch-check", stdin=asked).out
        missing = {line.split()[0] for line in out.splitlines() if line.endswith(" missing")}
        wanted = [name for name, value in refs.items() if value in missing]
        if not wanted:
            return
        into = f"refs/swarm/remote/{component(self.remote)}/"
        specs = [f"+{name}:{into}{name.removeprefix('refs/')}" for name in wanted]
        words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
        result = self._repository.git(*words, "--refmap=", self.remote, *specs, check=False)
        if result.code and "cannot lock ref" not in result.err:
            raise failure(words, result)

    def _raise_fence(self, ref: str, token: int, name: str) -> None:
        blob = self._repository.write_blob(f"{token}\n")
        while True:
            old = self._list([ref]).get(ref, "")
            passed = self._token(old, ref)
            if passed > token:
                raise LockLost(
                    name,
                    f"token {token} of {quoted(name)} is too old: token {passed} has passed the "
                    f"fence {ref} of {quoted(self.remote)}. Stop the work.",
                )
            if passed == token or self._push({ref: (blob, old)}):
                return

    def _token(self, blob: str, ref: str) -> int:
        if not blob:
            return 0
        self._fetch({ref: blob})
        return fence_token(self._repository.read_blob(blob) or "")

    def _next_fence(self, blob: str, token: int) -> str:
        """Store the next text of a fence with the same token."""
        words = (self._repository.read_blob(blob) or "").split()
        number = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        return self._repository.write_blob(f"{token} {number + 1}\n")

    def _push(self, changes: dict[str, tuple[str, str]]) -> bool:
        """Change refs of the remote, all or none. Each has its new and its old value.

        Return False if a ref has another value than expected. Raise GitError if the
        remote cannot be reached, or refuses the push for another reason.
        """
        changed = {ref: pair for ref, pair in changes.items() if pair[0] != pair[1]}
        leases = [f"--force-with-lease={ref}:{old}" for ref, (_, old) in changed.items()]
        specs = [f"{new}:{ref}" for ref, (new, _) in changed.items()]
        words = ("push", "--atomic", "--porcelain", *leases, self.remote, *specs)
        result = self._repository.git(*words, hooks=True, check=False)
        if result.code == 0:
            return True
        answer = result.out + result.err
        if any(text in answer for text in _OTHER_VALUE):
            return False
        raise failure(("push", self.remote), result)
