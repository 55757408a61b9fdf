"""Check a repository in which tasks have landed, from the repository alone.

`check` reads refs, the branch and its reflog, and what agents and the person noted
outside. Nothing that swarm says is believed. It returns the broken promises, each as one
sentence that begins with one of the texts below.

A *tip* is a commit at which the branch has been. The reflog has the tips, and it is
complete: each entry names the tip before it. A *landing* is a step from one tip to the
next that enters a task in a shared file (`agent`). Git writes the reflog before it moves
the ref, so an entry that no later entry continues may never have been a tip.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from proof.landing.agent import LEDGERS
from proof.landing.objects import contents_of, git_dir, object_names
from tests.support.projects import environment, git

LANDED_TWICE = "landed twice"
OLD_TOKEN = "landed with an old token"
LOST_LANDING = "a landing is gone"
LOST_TIP = "a commit is gone from the branch"
RED = "a red tree landed"
LOST_WORK = "the work of an attempt is gone"
NO_RECORD = "a landing without its ref"
# a full disk may leave a torn line
_REFLOG = re.compile(r"([0-9a-f]{40}) ([0-9a-f]{40}) [^\t]*\t(.*)")
_CHECK = Path(__file__).with_name("tree_check.py")
_LANDED, _WORK, _FENCE = "refs/swarm/landed", "refs/swarm/work", "refs/swarm/fence"


class Entry(NamedTuple):
    """A line of a shared file: a task was entered by an attempt."""

    task: str
    round: int  # 1, and one more after each `swarm task reopen`
    token: int


class Tip(NamedTuple):
    """A commit at which the branch has been, and what moved it there."""

    commit: str
    why: str


@dataclass(frozen=True)
class Evidence:
    """Where the evidence of one run is.

    `authority` is the repository whose branch counts: the bare one, if there is one.
    `repositories` are all that have workspaces and saved work.
    """

    authority: Path
    repositories: Sequence[Path]
    notes: Path
    branch: str = "main"


def check(evidence: Evidence) -> list[str]:
    """Return every broken promise, except those about the user's files (`belongings`)."""
    found = tips(evidence.authority, evidence.branch)
    return [
        *lost_tips(evidence, found),
        *wrong_landings(evidence, found),
        *wrong_refs(evidence, found[-1]),
        *red_trees(evidence.authority, evidence.branch, found),
        *lost_work(evidence),
    ]


def tips(repository: Path, branch: str) -> list[Tip]:
    """Return every commit at which the branch has been, oldest first."""
    shown = git(repository, "rev-parse", "--git-path", f"logs/refs/heads/{branch}").strip()
    log = (repository / shown).read_text(encoding="utf-8", errors="replace")
    entries = [match.groups() for match in map(_REFLOG.match, log.splitlines()) if match]
    now = git(repository, "rev-parse", f"refs/heads/{branch}").strip()
    found: list[Tip] = []
    following = [old for old, _, _ in entries[1:]] + [now]
    for (_, new, why), continued in zip(entries, following, strict=True):
        if new == continued:
            found.append(Tip(new, why))
    if not found or found[-1].commit != now:
        found.append(Tip(now, "now"))
    return found


def lost_tips(evidence: Evidence, found: Sequence[Tip]) -> Iterator[str]:
    """Find commits that were the branch's tip, or the person's, and are not in it now."""
    now = found[-1].commit
    inside = set(git(evidence.authority, "rev-list", now).split())
    for tip in found:
        if tip.commit not in inside:
            yield f"{LOST_TIP}: {tip.commit} was the tip ({tip.why})"
    subjects = git(evidence.authority, "log", "--format=%s", now).splitlines()
    present = git(evidence.authority, "show", f"{now}:person").splitlines()
    for line in _noted(evidence.notes / "person"):
        if subjects.count(line) != 1:
            yield f"{LOST_TIP}: {subjects.count(line)} commits of the person's {line!r}"
        if line not in present:
            yield f"{LOST_TIP}: the file of the person lacks {line!r}"


def entries_of(repository: Path, commits: Sequence[str]) -> list[Counter[Entry]]:
    """Return the entries in the shared files of each commit, and how often each is there."""
    names = [f"{commit}:ledger/{number}" for commit in commits for number in range(LEDGERS)]
    found: list[Counter[Entry]] = [Counter() for _ in commits]
    for at, content in enumerate(contents_of(repository, names)):
        for line in content.decode(errors="replace").splitlines():
            words = line.split()
            if len(words) == 3 and words[1].isdigit() and words[2].isdigit():
                found[at // LEDGERS][Entry(words[0], int(words[1]), int(words[2]))] += 1
    return found


def wrong_landings(evidence: Evidence, found: Sequence[Tip]) -> Iterator[str]:
    """Follow the entries of every task from tip to tip."""
    tokens: dict[str, list[int]] = {}
    rounds: dict[tuple[str, int], Entry] = {}
    before: Counter[Entry] = Counter()
    after = entries_of(evidence.authority, [tip.commit for tip in found])
    for tip, entries in zip(found, after, strict=True):
        for gone in sorted(before.keys() - entries.keys()):
            yield f"{LOST_LANDING}: {tip.commit} ({tip.why}) removes {' '.join(map(str, gone))}"
        for entry in sorted(entries.keys() - before.keys()):
            earlier = rounds.setdefault((entry.task, entry.round), entry)
            if earlier != entry:
                yield (
                    f"{LANDED_TWICE}: {entry.task}, with the tokens {earlier.token} and "
                    f"{entry.token}, the second at {tip.commit}"
                )
            highest = max(tokens.get(entry.task, [0]))
            if entry.token <= highest:
                yield (
                    f"{OLD_TOKEN}: {entry.task}, with {entry.token} after {highest} at {tip.commit}"
                )
            tokens.setdefault(entry.task, []).append(entry.token)
        before = entries
    for entry, count in before.items():
        if count > 1:
            yield f"{LANDED_TWICE}: {entry} is in the branch {count} times"


def landed_refs(repository: Path, branch: str) -> dict[str, dict[str, Any]]:
    """Return what the landed refs of a branch say, by ref; `commit` is the commit that
    the tag names.
    """
    listed = git(
        repository,
        "for-each-ref",
        "--format=%(refname) %(objecttype) %(objectname) %(*objectname)",
        f"{_LANDED}/{branch}/",
    )
    found = {}
    for line in listed.splitlines():
        ref, kind, name, commit = line.split(" ")
        text = git(repository, "cat-file", "-p", name).partition("\n\n")[2] if kind == "tag" else ""
        try:
            said = json.loads(text)
        except ValueError:
            said = {}
        found[ref] = {**said, "commit": commit or name}
    return found


def wrong_refs(evidence: Evidence, tip: Tip) -> Iterator[str]:
    """Compare the landed refs and fences with the branch."""
    entries: dict[str, list[Entry]] = {}
    for entry in sorted(entries_of(evidence.authority, [tip.commit])[0]):
        entries.setdefault(entry.task, []).append(entry)
    inside = set(git(evidence.authority, "rev-list", tip.commit).split())
    said = landed_refs(evidence.authority, evidence.branch)
    fences = _fences(evidence.authority)
    for ref, landing in said.items():
        task, token = str(landing.get("task", "")), landing.get("token", 0)
        if landing["commit"] not in inside:
            yield f"{LOST_LANDING}: {ref} names {landing['commit']}, which is not in the branch"
        landed = [entry.token for entry in entries.get(task, [])]
        if token not in landed:
            yield f"{LOST_LANDING}: {ref} says token {token}, and the branch has {landed}"
        earlier = list(landing.get("before", []))
        if sorted({*earlier, token}) != [*earlier, token]:
            yield f"{OLD_TOKEN}: {ref} says {token} after {earlier}"
        if fences.get(ref.rpartition("/")[2], 0) < token:
            yield f"{OLD_TOKEN}: {ref} says {token}, and the fence of the task is lower"
    recorded = {(str(one.get("task", "")), one.get("token", 0)) for one in said.values()}
    for task, landed_entries in entries.items():
        if (task, landed_entries[-1].token) not in recorded:
            yield f"{NO_RECORD}: {task} with token {landed_entries[-1].token} is in the branch"


def _fences(repository: Path) -> dict[str, int]:
    """Return the fences of tasks, by the last part of the ref."""
    listed = git(
        repository, "for-each-ref", "--format=%(refname) %(objectname)", f"{_FENCE}/task/"
    ).split()
    contents = contents_of(repository, listed[1::2])
    return {
        ref.rpartition("/")[2]: int(content.split()[0])
        for ref, content in zip(listed[::2], contents, strict=True)
    }


def red_trees(repository: Path, branch: str, found: Sequence[Tip]) -> Iterator[str]:
    """Run the check on the tree of every tip and of every commit on the branch, each
    tree once.
    """
    first_parents = git(repository, "rev-list", "--first-parent", f"refs/heads/{branch}").split()
    commits = [*dict.fromkeys([*(tip.commit for tip in found), *reversed(first_parents)])]
    names = [line for commit in commits for line in (f"{commit}^{{tree}}",)]
    trees: dict[str, str] = {}
    for commit, tree in zip(commits, object_names(repository, names), strict=True):
        trees.setdefault(tree, commit)
    with tempfile.TemporaryDirectory(prefix="swarm-export-") as export:
        for tree, commit in trees.items():
            _check_out(repository, tree, Path(export))
            done = subprocess.run(
                [sys.executable, "-I", "-S", str(_CHECK)],
                cwd=f"{export}/files",
                capture_output=True,
                text=True,
            )
            if done.returncode:
                yield f"{RED}: {commit}: {done.stdout.strip().splitlines()[:1]}{done.stderr}"


def _check_out(repository: Path, tree: str, export: Path) -> None:
    """Change the exported files into those of a tree."""
    (export / "files").mkdir(exist_ok=True)
    subprocess.run(
        ["git", "read-tree", "--reset", "-u", tree],
        cwd=repository,
        env=environment(
            GIT_INDEX_FILE=str(export / "index"),
            GIT_WORK_TREE=str(export / "files"),
            GIT_DIR=git_dir(repository),
        ),
        check=True,
    )


def lost_work(evidence: Evidence) -> Iterator[str]:
    """Look for the line of every attempt: in the saved work, in the branch, or in a
    workspace that is still there.
    """
    kept: set[str] = set()
    for repository in {*evidence.repositories, evidence.authority}:
        kept |= _lines_in_commits(repository, evidence.branch)
        kept |= _lines_on_disk(repository)
    for line in _noted(evidence.notes / "attempts"):
        if line not in kept:
            yield f"{LOST_WORK}: {line}"


def _lines_in_commits(repository: Path, branch: str) -> set[str]:
    listed = git(repository, "rev-list", "--objects", f"--glob={_WORK}", f"refs/heads/{branch}")
    blobs = [
        line.split(" ", 1)[0]
        for line in listed.splitlines()
        if line.partition(" ")[2].startswith("work/")
    ]
    contents = b"\n".join(contents_of(repository, blobs))
    return set(contents.decode(errors="replace").splitlines())


def _lines_on_disk(repository: Path) -> set[str]:
    return {
        line
        for file in repository.glob(".swarm/work/*/work/*")
        for line in file.read_text(errors="replace").splitlines()
    }


def unsaved(evidence: Evidence) -> int:
    """Return how many attempts have their work in a workspace and nowhere else."""
    saved: set[str] = set()
    for repository in {*evidence.repositories, evidence.authority}:
        saved |= _lines_in_commits(repository, evidence.branch)
    return sum(line not in saved for line in _noted(evidence.notes / "attempts"))


def _noted(path: Path) -> list[str]:
    """Return the whole lines of a file of notes."""
    text = path.read_text() if path.exists() else ""
    return text.split("\n")[:-1]
