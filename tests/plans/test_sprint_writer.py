"""The one writer of `sprint-status.yaml`: what changes, what stays, and who may write."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.errors import BadInput, StoreError
from swarm.plans import replacing, sprint_writer
from swarm.plans.status_file import StatusFile
from swarm.plans.stories import STATES
from swarm.sprint.mutex import SprintMutex
from tests.support.processes import fork, race

TEXT = (
    "# generated: today\n\n# notes\r\nproject: x  # y\n\ndevelopment_status:\n"
    "  epic-1: backlog    # the first\n  1-1-a: backlog\r\n  1-2-b: 'ready-for-dev' # quoted\n"
    '  1-3-c: "backlog"\n  1-4-d:\n\n  # done soon\n  epic-1-retrospective: optional\n'
    "other:\n  1-1-a: backlog\n- x"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "sprint-status.yaml").write_bytes(TEXT.encode())
    return tmp_path


def change(project: Path, statuses: Mapping[str, str], session: str = "") -> dict[str, object]:
    return sprint_writer.change(
        SprintMutex(project),
        str(project / "sprint-status.yaml"),
        lambda file: sprint_writer.checked(file, statuses),
        session,
    )


def content(project: Path) -> str:
    return (project / "sprint-status.yaml").read_bytes().decode()


class TestText:
    def test_only_the_value_changes(self) -> None:
        changed = StatusFile(TEXT, "f").changed(
            {"1-1-a": "done", "1-2-b": "review", "1-3-c": "done", "1-4-d": "in-progress"}
        )
        assert changed == TEXT.replace("  1-1-a: backlog\r", "  1-1-a: done\r").replace(
            "'ready-for-dev'", "'review'"
        ).replace('"backlog"', '"done"').replace("1-4-d:", "1-4-d: in-progress")

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["", "  # c", "\n", "\n  # backlog\n"]),
                st.sampled_from(["backlog", "'done'", '"review"', "in progress", ""]),
            ),
            min_size=1,
            max_size=6,
        ),
        st.data(),
    )
    @settings(deadline=None)
    def test_other_readers_see_the_changed_value_and_no_other_change(
        self, lines: list[tuple[str, str]], data: st.DataObject
    ) -> None:
        text = "a: b\ndevelopment_status:\n" + "".join(
            f"  1-{number}-x: {value}{comment}\n" for number, (comment, value) in enumerate(lines)
        )
        key = data.draw(st.sampled_from([f"1-{number}-x" for number in range(len(lines))]))
        status = data.draw(st.sampled_from(STATES["story"]))
        before = yaml.safe_load(text)["development_status"]
        changed = StatusFile(text, "f").changed({key: status})
        assert yaml.safe_load(changed)["development_status"] == before | {key: status}
        entries = StatusFile(text, "f").entries
        assert {name: entry.status or None for name, entry in entries.items()} == before

    def test_a_value_that_is_not_plain_is_not_changed(self) -> None:
        file = StatusFile("development_status:\n  1-1-a: &x backlog\n", "f")
        with pytest.raises(BadInput, match="f, line 2: 1-1-a has no plain status"):
            file.changed({"1-1-a": "done"})


class TestChange:
    def test_a_change_keeps_everything_else_and_leaves_no_file(self, project: Path) -> None:
        (project / "sprint-status.yaml").chmod(0o640)
        answer = change(project, {"1-1": "in-progress", "1.2": "done"})
        assert answer["status"] == "written"
        assert answer["changed"] == {
            "1-1-a": ("backlog", "in-progress"),
            "1-2-b": ("ready-for-dev", "done"),
        }
        expected = TEXT.replace("  1-1-a: backlog\r", "  1-1-a: in-progress\r")
        assert content(project) == expected.replace("'ready-for-dev'", "'done'")
        assert os.listdir(project) == ["sprint-status.yaml"]
        assert (project / "sprint-status.yaml").stat().st_mode & 0o777 == 0o640
        assert change(project, {"1-1-a": "in-progress"})["status"] == "unchanged"

    def test_bytes_that_are_not_utf_8_stay(self, project: Path) -> None:
        path = project / "sprint-status.yaml"
        path.write_bytes(b"# \xff\ndevelopment_status:\n  1-1-a: backlog # \xfe\n")
        change(project, {"1-1-a": "done"})
        assert path.read_bytes() == b"# \xff\ndevelopment_status:\n  1-1-a: done # \xfe\n"

    def test_the_target_of_a_symbolic_link_changes_and_the_link_stays(self, project: Path) -> None:
        (project / "real").mkdir()
        os.rename(project / "sprint-status.yaml", project / "real/status.yaml")
        os.symlink("real/status.yaml", project / "sprint-status.yaml")
        change(project, {"1-1-a": "done"})
        assert (project / "sprint-status.yaml").is_symlink()
        assert "1-1-a: done" in (project / "real/status.yaml").read_text()

    @pytest.mark.parametrize(
        ("statuses", "why"),
        [
            ({"1-9": "done"}, "is not in development_status"),
            ({"1-1-a": "finished"}, "use one of backlog drafted"),
            ({"epic-1": "review"}, "use one of backlog contexted in-progress done"),
            ({"epic-1-retrospective": "review"}, "use one of optional"),
        ],
    )
    def test_an_unknown_story_or_state_changes_nothing(
        self, statuses: dict[str, str], why: str, project: Path
    ) -> None:
        with pytest.raises(BadInput, match=why):
            change(project, {"1-2-b": "done", **statuses})
        assert content(project) == TEXT and os.listdir(project) == ["sprint-status.yaml"]

    def test_a_file_that_cannot_be_changed_is_an_error_and_the_mutex_is_free(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*args: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(replacing, "_write_new", fail)
        with pytest.raises(StoreError, match=r"cannot be changed: No space left"):
            change(project, {"1-1-a": "done"})
        assert content(project) == TEXT and os.listdir(project) == ["sprint-status.yaml"]


class TestMutex:
    def test_the_sprint_of_another_session_keeps_the_writer_out(self, project: Path) -> None:
        sprint = subprocess.Popen(["sleep", "60"])
        try:
            SprintMutex(project).acquire("other", "epic1", pid=sprint.pid)
            answer = change(project, {"1-1-a": "done"})
            assert answer["status"] == "blocked" and "session: other" in str(answer["message"])
            assert change(project, {"1-1-a": "done"}, "mine")["status"] == "blocked"
            assert content(project) == TEXT
            assert change(project, {"1-1-a": "done"}, "other")["status"] == "written"
            assert SprintMutex(project).check()["status"] == "blocked"
        finally:
            sprint.kill()
            sprint.wait()

    def test_a_process_of_the_sprint_may_write(self, project: Path) -> None:
        SprintMutex(project).acquire("mine", "epic1")
        pid = fork(lambda: change(project, {"1-1-a": "done"}))
        os.waitpid(pid, 0)
        assert "1-1-a: done" in content(project)
        assert SprintMutex(project).check()["status"] == "blocked"

    def test_a_lock_of_a_sprint_that_ended_is_not_overwritten(self, project: Path) -> None:
        pid = fork(lambda: SprintMutex(project).acquire("gone", "epic1"))
        os.waitpid(pid, 0)
        answer = change(project, {"1-1-a": "done"})
        assert answer["status"] == "blocked"
        assert "swarm sprint release" in str(answer["message"]) and content(project) == TEXT

    def test_a_writer_that_was_killed_keeps_no_other_out(self, project: Path) -> None:
        mutex = SprintMutex(project)
        pid = fork(lambda: mutex.acquire("swarm sprint status 1", "sprint-status.yaml"))
        os.waitpid(pid, 0)
        assert change(project, {"1-1-a": "done"})["status"] == "written"
        assert mutex.check()["status"] == "clean"


class TestEditsMeanwhile:
    """A person edits the file while swarm changes it: both edits are in the file."""

    def edit_during(
        self, project: Path, monkeypatch: pytest.MonkeyPatch, step: str, edit: object
    ) -> None:
        real = getattr(replacing, step)
        edits = [edit]

        def then(*args: object) -> object:
            if edits:
                edits.pop()()  # type: ignore[operator]
            return real(*args)

        monkeypatch.setattr(replacing, step, then)

    @pytest.mark.parametrize("step", ["_write_new", "_swapped"])
    @pytest.mark.parametrize("how", ["rename", "in place"])
    def test_an_edit_between_any_two_steps_is_kept(
        self, step: str, how: str, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = project / "sprint-status.yaml"

        def edit() -> None:
            new = path.read_bytes().replace(b"# notes", b"# a note of a person")
            if how == "in place":
                path.write_bytes(new)
                return
            (project / "new").write_bytes(new)
            os.rename(project / "new", path)

        self.edit_during(project, monkeypatch, step, edit)
        assert change(project, {"1-1-a": "done"})["status"] == "written"
        assert "a note of a person" in content(project) and "1-1-a: done" in content(project)
        assert os.listdir(project) == ["sprint-status.yaml"]

    def test_without_an_exchange_an_edit_before_the_rename_is_kept(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = project / "sprint-status.yaml"

        def edit() -> None:
            path.write_bytes(path.read_bytes().replace(b"# notes", b"# a note of a person"))

        monkeypatch.setattr(replacing, "_swapped", lambda one, other: False)
        self.edit_during(project, monkeypatch, "_write_new", edit)
        assert change(project, {"1-1-a": "done"})["status"] == "written"
        assert "a note of a person" in content(project) and "1-1-a: done" in content(project)

    def test_an_editor_that_still_writes_is_waited_for(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = project / "sprint-status.yaml"
        file = path.open("r+b")
        failed = threading.Event()
        real = replacing.replace

        def replace(*args: bytes) -> bool:
            done = real(*args)  # type: ignore[arg-type]
            if not done and not failed.is_set():
                failed.set()
                file.seek(0)
                file.write(content(project).replace("# notes", "# a not").encode())
                file.close()
            return done

        monkeypatch.setattr(replacing, "replace", replace)
        change(project, {"1-1-a": "done"})
        assert failed.is_set()
        assert "# a not" in content(project) and "1-1-a: done" in content(project)

    def test_many_writers_and_a_person_lose_no_edit(self, tmp_path: Path) -> None:
        path = tmp_path / "sprint-status.yaml"
        rounds, writers = 15, 4
        path.write_text(
            "# edits: 0\ndevelopment_status:\n"
            + "".join(f"  {me}-{n}-x: backlog\n" for me in range(writers) for n in range(rounds))
        )

        def person(count: int) -> None:
            """Edit as a careful program does: by comparing and a rename."""
            for number in range(count):
                while True:
                    old = path.read_bytes()
                    new = old.replace(b"# edits: %d\n" % number, b"# edits: %d\n" % (number + 1))
                    if replacing.replace(str(path), old, new):
                        break

        def write(me: int, number: int) -> bool:
            if me == writers:
                if number == 0:
                    person(rounds * 2)
                return True
            return change(tmp_path, {f"{me}-{number}-x": "done"})["status"] == "written"

        results = race(writers + 1, rounds, write)
        assert all(len(winners) == writers + 1 for winners in results)
        assert path.read_text().count(": done") == rounds * writers
        assert f"# edits: {rounds * 2}\n" in path.read_text()
        assert os.listdir(tmp_path) == ["sprint-status.yaml"]


class TestKilled:
    STEPS = ("_write_new", "_exchange", "_is_open", "_remove", "_sync")

    @pytest.mark.parametrize("step", STEPS)
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_writer_that_is_killed_leaves_the_old_or_the_new_file(
        self, step: str, when: str, project: Path
    ) -> None:
        program = (
            "import os, signal, sys\n"
            "from swarm.plans import replacing, sprint_writer\n"
            "from swarm.sprint.mutex import SprintMutex\n"
            f"real = replacing.{step}\n"
            "def killed(*args):\n"
            f"    if {when == 'after'}: real(*args)\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            f"replacing.{step} = killed\n"
            "sprint_writer.change(SprintMutex(sys.argv[1]), sys.argv[1] + '/sprint-status.yaml', "
            "lambda file: {'1-1-a': 'done'})\n"
        )
        done = subprocess.run([sys.executable, "-c", program, str(project)], check=False)
        assert done.returncode == -9
        new = TEXT.replace("  1-1-a: backlog\r", "  1-1-a: done\r")
        assert content(project) in (TEXT, new)
        assert change(project, {"1-1-a": "done"})["status"] in ("written", "unchanged")
        assert content(project) == new

    def test_the_file_of_a_killed_writer_is_removed_later(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pid = fork(lambda: None)
        os.waitpid(pid, 0)
        left = project / f".sprint-status.yaml.{pid}.swarm"
        left.write_text("x")
        change(project, {"1-1-a": "done"})
        assert left.exists()
        monkeypatch.setattr(replacing, "_MIN_AGE", -1)
        own = project / f".sprint-status.yaml.{os.getpid()}.swarm"
        change(project, {"1-1-a": "review"})
        assert not left.exists() and not own.exists()


class TestFromQueue:
    def moved(self, text: str, tasks: dict[str, str]) -> tuple[dict[str, str], list[str]]:
        return sprint_writer.from_queue(StatusFile("development_status:\n" + text, "f"), tasks)

    def test_the_states_of_tasks_become_states_of_stories(self) -> None:
        lines = "".join(f"  1-{n}-x: backlog\n" for n in range(8))
        states = [
            "ready",
            "waiting",
            "running",
            "asking",
            "submitted",
            "done",
            "failed",
            "cancelled",
        ]
        found, notes = self.moved(
            "  epic-1: backlog\n" + lines,
            {f"1-{n}-x": state for n, state in enumerate(states)},
        )
        assert found == {
            "1-2-x": "in-progress",
            "1-3-x": "in-progress",
            "1-4-x": "review",
            "1-5-x": "done",
            "epic-1": "in-progress",
        }
        assert [note.partition(":")[0] for note in notes] == ["1-6-x", "1-7-x"]

    def test_a_state_moves_only_forward(self) -> None:
        found, notes = self.moved("  epic-1: done\n  1-1-x: done\n", {"1-1-x": "running"})
        assert found == {} and "its status is done already" in notes[0]

    def test_a_task_is_found_by_the_number_of_its_story(self) -> None:
        text = "  1-1-short: backlog\n  1-2-y: backlog\n"
        tasks = {"1-1-a-longer-title": "done", "1-2-a": "done", "1-2-b": "done", "x": "done"}
        found, notes = self.moved(text, tasks)
        assert found == {"1-1-short": "done"} and "2 tasks have its number" in notes[0]


def test_the_file_is_found_where_bmad_puts_it(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Name the file with --file"):
        sprint_writer.find(str(tmp_path))
    for place in ("docs/sprint-status.yaml", "sprint-status.yaml"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(TEXT)
        if place.startswith("docs"):
            assert sprint_writer.find(str(tmp_path)) == f"{tmp_path}/{place}"
    with pytest.raises(BadInput, match=r"docs/sprint-status\.yaml and sprint-status\.yaml"):
        sprint_writer.find(str(tmp_path))
    with pytest.raises(BadInput, match="there is no file"):
        sprint_writer.load(sprint_writer.find(str(tmp_path), "x.yaml"))
