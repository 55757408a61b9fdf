"""The checker of landings sees every broken promise: histories made by hand with real
git, each with one fault.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from proof.landing import checker
from proof.landing.belongings import USER_CHANGED, belongings, changed
from proof.landing.checker import Evidence
from tests.support.projects import environment, git

HEAD = "refs/heads/main"


class ByHand:
    """A repository in which tasks land as swarm lands them, without swarm."""

    def __init__(self, directory: Path) -> None:
        self.repository = directory / "repository"
        self.notes = directory / "notes"
        self.notes.mkdir()
        self.repository.mkdir()
        git(self.repository, "init", "-q", "-b", "main")
        for name in ("ledger/0", "ledger/1", "ledger/2", "person"):
            self.write(name, "the beginning\n")
        git(self.repository, "add", "-A")
        git(self.repository, "commit", "-q", "-m", "the beginning")
        git(self.repository, "branch", "another")

    @property
    def tip(self) -> str:
        return git(self.repository, "rev-parse", HEAD).strip()

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.repository, [self.repository], self.notes)

    def violations(self) -> list[str]:
        return checker.check(self.evidence)

    def write(self, name: str, text: str, *, append: bool = False) -> None:
        path = self.repository / name
        path.parent.mkdir(exist_ok=True)
        before = path.read_text() if append and path.exists() else ""
        path.write_text(before + text)

    def attempt(self, task: str, token: int) -> str:
        """Note an attempt, save its work, and return the commit."""
        line = f"{task} {token} {token:x}"
        self.write(f"work/{task}.{token}", f"{line}\n")
        self.note("attempts", line)
        commit = self.commit(f"{task}: work")
        git(self.repository, "update-ref", f"refs/swarm/work/{task}/{token}", commit)
        return commit

    def note(self, name: str, line: str) -> None:
        with (self.notes / name).open("a") as notes:
            notes.write(f"{line}\n")

    def commit(self, subject: str) -> str:
        """Commit all files on the tip, and move no branch."""
        git(self.repository, "add", "-A")
        tree = git(self.repository, "write-tree").strip()
        return git(self.repository, "commit-tree", "-p", self.tip, "-m", subject, tree).strip()

    def land(
        self,
        task: str,
        token: int,
        *,
        round_: int = 1,
        before: tuple[int, ...] = (),
        file: int = 0,
        fence: int | None = None,
        record: bool = True,
    ) -> str:
        """Enter a task in a shared file, and move the branch and the refs."""
        self.attempt(task, token)
        self.write(f"ledger/{file}", f"{task} {round_} {token}\n", append=True)
        commit = self.commit(f"{task}: landed")
        git(self.repository, "update-ref", "-m", f"land {task}", HEAD, commit)
        if record:
            self.record(task, token, commit, before)
            self.fence(task, token if fence is None else fence)
        return commit

    def record(self, task: str, token: int, commit: str, before: tuple[int, ...] = ()) -> None:
        said = json.dumps({"task": task, "token": token, "branch": "main", "before": before})
        tag = (
            f"object {commit}\ntype commit\ntag {task}\ntagger t <t@t> 1700000000 +0000\n\n{said}\n"
        )
        git(self.repository, "update-ref", f"refs/swarm/landed/main/{task}", self.put("tag", tag))

    def fence(self, task: str, token: int) -> None:
        git(
            self.repository,
            "update-ref",
            f"refs/swarm/fence/task/{task}",
            self.put("blob", f"{token}\n"),
        )

    def put(self, kind: str, text: str) -> str:
        return subprocess.run(
            ["git", "hash-object", "-t", kind, "-w", "--stdin"],
            cwd=self.repository,
            env=environment(),
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    def commit_as_person(self, line: str) -> None:
        self.write("person", f"{line}\n", append=True)
        git(self.repository, "commit", "-q", "-m", line, "--", "person")
        self.note("person", line)

    def reset(self, commit: str) -> None:
        """Move branch and files back, without a trace in the notes."""
        git(self.repository, "reset", "-q", "--hard", commit)


@pytest.fixture
def by_hand(tmp_path: Path) -> ByHand:
    return ByHand(tmp_path)


def only(violations: list[str], sign: str) -> bool:
    """Whether there are violations, all of one kind."""
    return bool(violations) and all(text.startswith(sign) for text in violations)


def test_a_good_history_has_no_violation(by_hand: ByHand) -> None:
    by_hand.land("a", 3)
    by_hand.commit_as_person("person 1")
    by_hand.land("b", 1, file=1)
    by_hand.attempt("c", 1)
    by_hand.land("a", 7, round_=2, before=(3,))
    assert by_hand.violations() == []
    assert [tip.why for tip in checker.tips(by_hand.repository, "main")][1:] == [
        "land a",
        "commit: person 1",
        "land b",
        "land a",
    ]


def test_a_task_that_landed_in_two_files_is_seen(by_hand: ByHand) -> None:
    by_hand.land("a", 3)
    by_hand.land("a", 5, before=(3,), file=1)
    found = by_hand.violations()
    assert only(found, checker.LANDED_TWICE) and "3 and 5" in found[0]


def test_the_same_change_twice_in_one_file_is_seen(by_hand: ByHand) -> None:
    by_hand.land("a", 3)
    by_hand.write("ledger/0", "a 1 3\n", append=True)
    git(by_hand.repository, "commit", "-qam", "the same again")
    assert only(by_hand.violations(), checker.LANDED_TWICE)


def test_a_landing_with_a_lower_token_is_seen(by_hand: ByHand) -> None:
    by_hand.land("a", 5)
    by_hand.land("a", 3, round_=2, before=(5,), fence=5)
    assert only(by_hand.violations(), checker.OLD_TOKEN)


def test_a_landing_behind_the_fence_of_its_task_is_seen(by_hand: ByHand) -> None:
    by_hand.land("a", 5, fence=4)
    assert only(by_hand.violations(), checker.OLD_TOKEN)


def test_a_landing_that_the_branch_lost_is_seen(by_hand: ByHand) -> None:
    before = by_hand.tip
    by_hand.land("a", 3)
    by_hand.reset(before)
    by_hand.land("b", 4)
    found = by_hand.violations()
    assert any(text.startswith(checker.LOST_LANDING) for text in found)
    assert any(text.startswith(checker.LOST_TIP) for text in found)


def test_a_commit_that_takes_a_landing_back_is_seen(by_hand: ByHand) -> None:
    """A user who commits with the index from before a landing does this."""
    by_hand.land("a", 3)
    by_hand.write("ledger/0", "the beginning\n")
    git(by_hand.repository, "commit", "-qam", "back")
    assert only(by_hand.violations(), checker.LOST_LANDING)


def test_a_landing_without_its_ref_is_seen(by_hand: ByHand) -> None:
    by_hand.land("a", 3, record=False)
    assert only(by_hand.violations(), checker.NO_RECORD)


def test_a_ref_without_its_landing_is_seen(by_hand: ByHand) -> None:
    by_hand.attempt("a", 3)
    by_hand.record("a", 3, by_hand.tip)
    by_hand.fence("a", 3)
    assert only(by_hand.violations(), checker.LOST_LANDING)


def test_a_commit_of_the_person_that_is_gone_is_seen(by_hand: ByHand) -> None:
    before = by_hand.tip
    by_hand.commit_as_person("person 1")
    by_hand.reset(before)
    by_hand.land("a", 3)
    assert only(by_hand.violations(), checker.LOST_TIP)


def test_a_line_of_the_person_that_is_overwritten_is_seen(by_hand: ByHand) -> None:
    by_hand.commit_as_person("person 1")
    by_hand.write("person", "the beginning\n")
    git(by_hand.repository, "commit", "-qam", "back")
    assert only(by_hand.violations(), checker.LOST_TIP)


def test_a_red_tree_is_seen_even_if_the_next_is_green(by_hand: ByHand) -> None:
    by_hand.write("broken/a", "half\n")
    by_hand.land("a", 3)
    (by_hand.repository / "broken" / "a").unlink()
    by_hand.land("b", 4)
    found = by_hand.violations()
    assert only(found, checker.RED) and len(found) == 1


@pytest.mark.parametrize(
    "fault", ["<<<<<<< ours\n", "numbers"], ids=["conflict markers", "a number taken twice"]
)
def test_a_tree_is_red_for_each_reason(by_hand: ByHand, fault: str) -> None:
    if fault == "numbers":
        by_hand.write("numbers/a", "1\n")
        by_hand.write("numbers/b", "1\n")
    else:
        by_hand.write("ledger/1", fault, append=True)
    by_hand.land("a", 3)
    assert only(by_hand.violations(), checker.RED)


def test_work_that_no_ref_reaches_is_seen(by_hand: ByHand) -> None:
    by_hand.attempt("a", 3)
    git(by_hand.repository, "update-ref", "-d", "refs/swarm/work/a/3")
    (by_hand.repository / "work" / "a.3").unlink()
    found = by_hand.violations()
    assert only(found, checker.LOST_WORK) and "a 3" in found[0]
    assert checker.unsaved(by_hand.evidence) == 1


def test_work_in_a_workspace_on_disk_is_not_lost(by_hand: ByHand) -> None:
    by_hand.attempt("a", 3)
    git(by_hand.repository, "update-ref", "-d", "refs/swarm/work/a/3")
    kept = by_hand.repository / ".swarm" / "work" / "a.3" / "work"
    kept.mkdir(parents=True)
    (by_hand.repository / "work" / "a.3").rename(kept / "a.3")
    assert by_hand.violations() == []
    assert checker.unsaved(by_hand.evidence) == 1


def test_an_entry_of_the_reflog_that_git_did_not_complete_is_no_tip(by_hand: ByHand) -> None:
    """Git writes the reflog before it moves the ref. If it is killed in between, the
    next entry goes on from the older tip.
    """
    before = by_hand.tip
    by_hand.land("a", 3)
    by_hand.reset(before)
    log = by_hand.repository / ".git" / "logs" / "refs" / "heads" / "main"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:2]))  # without the reset
    git(by_hand.repository, "update-ref", "-d", "refs/swarm/landed/main/a")
    assert len(checker.tips(by_hand.repository, "main")) == 1
    assert by_hand.violations() == []


@pytest.mark.parametrize(
    "damage",
    [
        ("config", "user.name", "swarm"),
        ("branch", "-f", "another", "main"),
        ("branch", "new"),
        ("tag", "v2"),
        ("add", "dirty"),
        ("stash", "drop", "-q"),
        ("checkout", "-q", "another"),
        ("reset", "-q"),
    ],
    ids=" ".join,
)
def test_a_change_of_something_of_the_users_is_seen(
    by_hand: ByHand, damage: tuple[str, ...]
) -> None:
    repository = by_hand.repository
    by_hand.write("ledger/2", "stashed\n", append=True)
    git(repository, "stash", "-q")
    by_hand.land("a", 3)
    by_hand.write("dirty", "dirty\n")
    by_hand.write("staged", "staged\n")
    git(repository, "add", "staged")
    before = belongings(repository)
    by_hand_tip = by_hand.tip
    assert changed(repository, before, belongings(repository)) == []
    git(repository, *damage)
    assert only(changed(repository, before, belongings(repository)), USER_CHANGED)
    assert by_hand.tip == by_hand_tip


@pytest.mark.parametrize("name", ["dirty", ".git/hooks/pre-commit", ".git/info/exclude"])
def test_a_changed_file_of_the_users_is_seen(by_hand: ByHand, name: str) -> None:
    by_hand.write("dirty", "dirty\n")
    before = belongings(by_hand.repository)
    by_hand.write(name, "another text\n")
    assert only(
        changed(by_hand.repository, before, belongings(by_hand.repository)),
        USER_CHANGED,
    )
