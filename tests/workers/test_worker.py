"""A worker takes tasks, has an agent do them, and settles what became of them."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import BadInput, CannotRun, NoTask, StoreError
from swarm.locks.record import Lock
from swarm.locks.table import LockTable
from swarm.queue.queue import Task, TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from swarm.stores.memory import MemoryStore
from swarm.system.process import group_has_ended
from swarm.workers.attempt import Attempt
from swarm.workers.launch import CommandAgent
from swarm.workers.markers import marker
from swarm.workers.worker import SmartWorker
from tests.conftest import ROOT, script_environment
from tests.support.locales import latin_1


@pytest.fixture
def store(live_store: Store, isolated_swarm_dir: Path) -> Store:
    """Processes need real time."""
    return live_store


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    return TaskQueue(store)


@pytest.fixture
def results(isolated_swarm_dir: Path) -> Path:
    return isolated_swarm_dir / "results"


def work(store: Store, agent: str | list[str] | None = None, **options: Any) -> SmartWorker:
    worker = SmartWorker("worker-1", agent, store=store, **{"backoff": 0.0, **options})
    worker.run(until_empty=True)
    return worker


def records(store: Store, task: str) -> list[dict[str, Any]]:
    return [record for _, record in StatusLog(store).query(task)]


def until(what: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.01)
    return found


def fail_always(*args: Any, **options: Any) -> Any:
    raise StoreError("the server does not answer")


def group_of(lock: Path) -> int:
    """The process group that a lock names, 0 if it names none yet."""
    try:
        return int(json.loads(lock.read_text())["holder"].get("group", 0))
    except FileNotFoundError:
        return 0


class TestDoing:
    def test_a_task_is_done_by_the_agent_and_its_output_is_in_results(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        queue.add("a", "say hello")
        worker = work(store, ["sh", "-c", 'echo "prompt: $1"; echo noise >&2', "sh", "{prompt}"])
        assert worker.tally.done == 1
        assert (results / "a.1.out").read_text() == "prompt: say hello\n"
        assert (results / "a.1.err").read_text() == "noise\n"
        start, done = records(store, "a")
        assert (start["state"], done["state"], done["message"]) == (
            "START",
            "DONE",
            "prompt: say hello",
        )
        assert done["meta"] | {"seconds": 0} == {
            "token": 1,
            "attempt": 1,
            "exit_code": 0,
            "seconds": 0,
            "output": ["a.1.out", "a.1.err"],
            "agent": "sh",
            "process": done["meta"]["process"],
        }
        assert queue.get("a").state == "done" and not LockTable(store).status("a").exists

    @pytest.mark.parametrize(
        "prompt",
        [
            "it's",
            '"quoted" $HOME `id` $(id)',
            "a\nb\n",
            "; rm -rf /",
            "--help",
            "{task_id} {}",
            "任务 🐝",
            "%s\\n",
            " ",
        ],
    )
    def test_a_prompt_arrives_as_it_is(
        self, store: Store, queue: TaskQueue, results: Path, prompt: str
    ) -> None:
        """Inside a word of the command or on standard input, and in the environment."""
        queue.add("a", prompt)
        show = "import os, sys; print([sys.argv[1:], sys.stdin.read(), os.environ['SWARM_PROMPT']])"
        program = f'{sys.executable} -c "{show}" {{task_id}} {{worker}} {{attempt}}'
        work(store, f"{program} x={{prompt}}={{token}}")
        words = ["a", "worker-1", "1"]
        assert (results / "a.1.out").read_text() == f"{[[*words, f'x={prompt}=1'], '', prompt]}\n"
        queue.add("b", prompt)
        work(store, program)
        expected = [["b", "worker-1", "1"], prompt, prompt]
        assert (results / "b.1.out").read_text() == f"{expected}\n"

    def test_a_prompt_that_is_too_long_for_a_word_is_on_standard_input(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        queue.add("a", "x" * 1_000_000)
        worker = work(store, ["sh", "-c", 'wc -c; echo "${SWARM_PROMPT-none}"'])
        assert worker.tally.done == 1
        assert (results / "a.1.out").read_text().split() == ["1000000", "none"]
        queue.add("b", "x" * 1_000_000)
        assert work(store, ["echo", "{prompt}"]).tally.failed == 1
        assert queue.get("b").state == "failed" and "Leave {prompt} out" in queue.get("b").reason

    def test_a_task_with_a_command_runs_that_instead(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        queue.add("words", command=["printf", "%s|", "a b", "$HOME"])
        queue.add("shell", "the prompt", command='echo "$SWARM_PROMPT" | tr a-z A-Z')
        work(store, "false", allow_commands=True)
        assert (results / "words.1.out").read_text() == "a b|$HOME|"
        assert (results / "shell.1.out").read_text() == "THE PROMPT\n"

    def test_without_an_agent_only_tasks_with_a_command_are_taken(
        self, store: Store, queue: TaskQueue
    ) -> None:
        queue.add("a", "for an agent", priority=9)
        queue.add("b", command="true")
        queue.add("c", command="true", after=["a"])
        worker = work(store)
        assert worker.tally.done == 1
        assert [task.state for task in queue.tasks()] == ["ready", "done", "waiting"]

    @pytest.mark.parametrize("command", ["echo ran > here", ["touch", "here"]])
    def test_a_worker_for_an_agent_leaves_tasks_with_a_command(
        self,
        store: Store,
        queue: TaskQueue,
        tmp_path: Path,
        command: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        queue.add("innocent", command=command, priority=9)
        queue.add("both", "a prompt too", command=command)
        queue.add("later", "for the agent", after=["innocent"])
        queue.add("agents", "for the agent")
        said: list[tuple[str, str, str]] = []
        worker = work(store, "cat", on_event=lambda *event: said.append(event))
        assert worker.tally.done == 1
        assert [task.state for task in queue.tasks()] == ["ready", "ready", "waiting", "done"]
        assert not (tmp_path / "here").exists()
        ((_, _, why),) = [event for event in said if event[0] == "waits"]
        assert "--allow-commands" in why

    def test_a_command_that_a_worker_must_not_run_is_refused_even_if_claimed_for_it(
        self, store: Store, queue: TaskQueue
    ) -> None:
        queue.add("innocent", command="echo ran > here")
        claim = queue.claim("worker-1", bound=True)
        with pytest.raises(BadInput, match="command of its own"):
            SmartWorker("worker-1", "cat", store=store).work_on(claim)

    def test_a_task_with_a_command_that_died_is_not_taken_over_by_a_worker_for_an_agent(
        self, store: Store, queue: TaskQueue
    ) -> None:
        queue.add("innocent", command="true")
        queue.claim("dead")
        LockTable(store).break_lock("innocent")
        with pytest.raises(NoTask):
            queue.claim("worker-1", prompts_only=True)
        assert work(store, "cat").tally.done == 0, "it does not wait for another worker"
        assert work(store).tally.done == 1

    def test_the_command_knows_its_task_and_its_swarm(
        self,
        store: Store,
        queue: TaskQueue,
        results: Path,
        isolated_swarm_dir: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("SWARM_TOKEN", "99")  # of a worker that this one runs in
        monkeypatch.setenv("SWARM_PROMPT", "outer")
        names = ("TASK_ID", "WORKER", "TOKEN", "ATTEMPT", "STATE_DIR", "PROMPT")
        queue.add("a", command=f"echo $AI_SWARM_DIR {' '.join(f'$SWARM_{name}' for name in names)}")
        work(store)
        place = str(isolated_swarm_dir)
        assert (results / "a.1.out").read_text().split() == [
            place,
            "a",
            "worker-1",
            "1",
            "1",
            place,
        ]

    def test_marker_lines_become_records_and_decide_nothing(
        self, store: Store, queue: TaskQueue
    ) -> None:
        said = [
            "[WAIT] which database?",
            " [HELP]",
            "\x1b[31m[ERROR] no disk\x1b[0m",
            "[DONE] half of it",
            "[START] no",
            "x [WAIT] no",
            "[wait] no",
        ]
        lines = "\n".join(said)
        queue.add(
            "a",
            command=[
                "sh",
                "-c",
                f"printf '%s\\n' '{lines}' >&2; printf '[SKIP] no newline'; exit 3",
            ],
            max_attempts=1,
        )
        work(store)
        found = [(record["state"], record.get("message", "")) for record in records(store, "a")]
        markers = [
            ("WAIT", "which database?"),
            ("HELP", ""),
            ("ERROR", "no disk"),
            ("DONE", "half of it"),
        ]
        assert sorted(found[1:-1]) == sorted([*markers, ("SKIP", "no newline")])
        assert found[-1] == ("ERROR", "exit code 3: [wait] no")
        assert all(record["meta"]["from"] == "output" for record in records(store, "a")[1:-1])
        assert queue.get("a").state == "failed"

    def test_a_marker_is_logged_while_the_agent_works(
        self, store: Store, queue: TaskQueue, tmp_path: Path
    ) -> None:
        answer = tmp_path / "answer"
        os.mkfifo(answer)
        queue.add(
            "a", command=["sh", "-c", f'echo "[WAIT] may I?"; read reply <{answer}; echo "$reply"']
        )
        thread = threading.Thread(target=work, args=(store,))
        thread.start()
        try:
            until(lambda: [record for record in records(store, "a") if record["state"] == "WAIT"])
            assert queue.get("a").state == "running"
        finally:
            answer.write_text("yes\n")
            thread.join(timeout=20)
        assert records(store, "a")[-1]["message"] == "yes"

    def test_an_agent_that_floods_the_log_is_cut_off(self, store: Store, queue: TaskQueue) -> None:
        queue.add("a", command="yes '[WAIT] x' | head -n 3000")
        work(store)
        waits = [record for record in records(store, "a") if record["state"] == "WAIT"]
        assert len(waits) == 1000 and "not logged" in waits[-1]["message"]
        assert queue.get("a").state == "done"

    def test_markers_are_logged_at_the_end_if_no_thread_can_be_started(
        self, store: Store, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name == "markers":
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)
        queue.add("a", command="echo '[WAIT] one'; echo '[HELP] two'")
        assert work(store).tally.done == 1
        states = [record["state"] for record in records(store, "a")]
        assert states == ["START", "WAIT", "HELP", "DONE"]

    @pytest.mark.parametrize(
        "command",
        ["head -c 3000000 /dev/urandom", "head -c 3000000 /dev/zero", "printf 'a\\0b\\377\\r\\n'"],
    )
    def test_any_output_is_written_byte_by_byte(
        self, store: Store, queue: TaskQueue, results: Path, command: str
    ) -> None:
        queue.add("a", command=command)
        assert work(store).tally.done == 1
        written = (results / "a.1.out").stat().st_size
        assert written in (3000000, 6)
        assert json.dumps(records(store, "a"))


class TestAnyLocale:
    @pytest.mark.parametrize("encoding", ["utf-8", "iso8859-1", "ascii"])
    def test_a_command_gets_the_same_bytes_and_writes_to_the_same_files(
        self, encoding: str, tmp_path: Path, isolated_swarm_dir: Path
    ) -> None:
        program = """
import sys
from swarm import TaskQueue
from swarm.workers.worker import SmartWorker
assert sys.getfilesystemencoding() == sys.argv[1], sys.getfilesystemencoding()
TaskQueue().add("t\\u00e2che", command="echo \\u00e9t\\u00e9 $SWARM_TASK_ID; echo two >&2")
TaskQueue().add("\\u00e9cole", "\\u00e9t\\u00e9", after=["t\\u00e2che"])
agent = ["sh", "-c", 'echo "$SWARM_PROMPT $1"', "sh", "{prompt} {task_id}"]
SmartWorker("w", agent, allow_commands=True).run(until_empty=True)
"""
        locales = {
            "utf-8": {"PYTHONUTF8": "1"},
            "iso8859-1": latin_1(tmp_path),
            "ascii": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        }
        command = [sys.executable, "-c", program, encoding]
        done = subprocess.run(
            command,
            env={**script_environment(), **locales[encoding]},
            cwd=ROOT,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr.decode()
        results = isolated_swarm_dir / "results"
        assert {file.name: file.read_text() for file in results.iterdir()} == {
            "tâche.1.out": "été tâche\n",
            "tâche.1.err": "two\n",
            "école.1.out": "été été école\n",
        }
        last = records(FileStore(str(isolated_swarm_dir)), "tâche")[-1]
        assert last["meta"]["output"] == ["tâche.1.out", "tâche.1.err"]


class TestFailing:
    def test_a_failure_is_tried_again_and_tells_the_last_lines(
        self, store: Store, queue: TaskQueue
    ) -> None:
        queue.add("a", command="seq 30; echo ' oops' >&2; exit 7", max_attempts=2)
        assert work(store).tally.failed == 2
        states = [record["state"] for record in records(store, "a")]
        assert states == ["START", "ERROR", "START", "ERROR"]
        first, last = (record for record in records(store, "a") if record["state"] == "ERROR")
        assert first["message"] == "exit code 7: oops" and first["meta"]["attempts_left"] == 1
        assert last["meta"]["last_lines"] == [*map(str, range(21, 31)), " oops"]
        assert (last["meta"]["exit_code"], last["meta"]["attempts_left"]) == (7, 0)
        assert queue.get("a").state == "failed"

    def test_a_crash_is_named_by_its_signal(self, store: Store, queue: TaskQueue) -> None:
        queue.add("a", command="kill -SEGV $$", max_attempts=1)
        work(store)
        assert records(store, "a")[-1]["message"] == "ended by SIGSEGV"

    def test_the_pause_before_an_attempt_doubles(self, store: Store, queue: TaskQueue) -> None:
        queue.add("a", command="false", max_attempts=4)
        worker = SmartWorker("w", store=store, backoff=0.05)
        worker.run(until_empty=True)
        pauses = [
            record["meta"].get("retry_in")
            for record in records(store, "a")
            if record["state"] == "ERROR"
        ]
        assert pauses == [0.05, 0.1, 0.2, None]

    def test_a_command_that_cannot_be_run_is_the_tasks_fault(
        self, store: Store, queue: TaskQueue
    ) -> None:
        queue.add("a", command=["/nowhere/x"], max_attempts=1)
        assert work(store).tally.failed == 1
        assert records(store, "a")[-1]["message"].startswith(
            "cannot run /nowhere/x: No such file or directory. "
        )

    def test_an_agent_that_only_this_task_makes_impossible_is_the_tasks_fault(
        self, store: Store, queue: TaskQueue, tmp_path: Path
    ) -> None:
        (tmp_path / "there.sh").write_text("#!/bin/sh\n")
        (tmp_path / "there.sh").chmod(0o755)
        queue.add("missing", "x", max_attempts=1)
        queue.add("there", "x", max_attempts=1)
        assert vars(work(store, f"{tmp_path}/{{task_id}}.sh").tally) == {
            "done": 1,
            "submitted": 0,
            "failed": 1,
            "released": 0,
            "lost": 0,
            "asked": 0,
        }

    def test_an_agent_of_bytes_that_are_no_text_is_run(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        queue.add("a", "x")
        assert work(store, ["printf", "%s", os.fsdecode(b"\xff")]).tally.done == 1
        assert (results / "a.1.out").read_bytes() == b"\xff"

    def test_output_is_not_written_to_a_pipe(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        results.mkdir(parents=True)
        os.mkfifo(results / "a.1.out")
        queue.add("a", command="true")
        with pytest.raises(StoreError, match="is not a plain file"):
            SmartWorker("w", store=store).work_on(queue.claim("w"))

    def test_a_queue_that_its_agent_removes_is_lost_and_no_fault(
        self, isolated_swarm_dir: Path
    ) -> None:
        TaskQueue().add("a", command="rm -rf $SWARM_STATE_DIR; echo hi")
        worker = SmartWorker("w")
        worker.run(until_empty=True)
        assert worker.tally.lost == 1

    def test_an_agent_that_cannot_be_run_costs_no_attempt(
        self, store: Store, queue: TaskQueue
    ) -> None:
        queue.add("a", "x")
        with pytest.raises(CannotRun, match="/nowhere/agent"):
            work(store, "/nowhere/agent {prompt}")
        task = queue.get("a")
        assert (task.state, task.attempts) == ("ready", 0)
        assert not LockTable(store).status("a").exists

    def test_no_task_is_claimed_if_output_cannot_be_written(
        self, store: Store, queue: TaskQueue, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("")
        queue.add("a", command="true")
        with pytest.raises(StoreError, match="cannot write the agent's output"):
            work(store, results=str(tmp_path / "file" / "results"))
        assert records(store, "a") == []

    def test_output_that_cannot_be_written_costs_no_attempt(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        queue.add("a", command="true")
        results.mkdir(parents=True)
        (results / "a.1.err").symlink_to("/dev/null")
        with pytest.raises(StoreError, match=r"a\.1\.err"):
            SmartWorker("w", store=store).work_on(queue.claim("w"))
        assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)

    def test_an_attempt_that_takes_too_long_has_failed(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        queue.add("a", command="echo $$; sleep 60", max_attempts=1, timeout=0.3)
        begun = time.monotonic()
        work(store)
        assert time.monotonic() - begun < 15
        assert records(store, "a")[-1]["message"] == "timed out after 0.3 seconds"
        assert group_has_ended(int((results / "a.1.out").read_text()))

    def test_an_agent_that_ignores_sigterm_is_killed(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        queue.add("a", command="trap '' TERM; echo $$; while :; do sleep 0.1; done", max_attempts=1)
        work(store, timeout=0.3, grace=0.3)
        assert records(store, "a")[-1]["message"] == "timed out after 0.3 seconds"
        assert group_has_ended(int((results / "a.1.out").read_text()))

    def test_processes_that_an_agent_leaves_are_ended_before_its_task_is(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        queue.add("a", command="sleep 60 & echo $$")
        assert work(store).tally.done == 1
        assert group_has_ended(int((results / "a.1.out").read_text()))


class TestTroubleWithTheStore:
    def test_a_marker_that_cannot_be_logged_now_is_logged_later(
        self, store: Store, queue: TaskQueue, results: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append = StatusLog.append
        failed: list[str] = []

        def once(log: StatusLog, state: str, *args: Any) -> bytes:
            if state == "WAIT" and not failed:
                failed.append(state)
                raise StoreError("the disk is full")
            return append(log, state, *args)

        monkeypatch.setattr(StatusLog, "append", once)
        queue.add("a", command="echo '[WAIT] one'; sleep 0.3; echo '[HELP] two'")
        assert work(store).tally.done == 1
        assert [record["state"] for record in records(store, "a")] == [
            "START",
            "WAIT",
            "HELP",
            "DONE",
        ] and failed

    def test_an_agent_is_ended_when_its_worker_fails(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        queue.add("a", command="echo $$; sleep 60")
        worker = SmartWorker("w", store=store, on_line=lambda line: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            worker.run(until_empty=True)
        assert group_has_ended(int((results / "a.1.out").read_text()))

    def test_a_claim_whose_lease_cannot_be_renewed_is_released(
        self, store: Store, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", command="true")
        worker = SmartWorker("w", store=store)
        claim = worker.queue.claim("w", bound=True)

        def refuse(*_: Any, **__: Any) -> Any:
            raise StoreError("the disk is full")

        monkeypatch.setattr(LockTable, "heartbeat", refuse)
        with pytest.raises(StoreError, match="the disk is full"):
            worker.work_on(claim)
        assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)

    def test_a_late_stop_writes_to_no_other_file(
        self, store: Store, queue: TaskQueue, tmp_path: Path
    ) -> None:
        queue.add("a", command="true")
        attempt = Attempt(
            queue,
            StatusLog(store),
            queue.claim("w"),
            agent=CommandAgent(None),
            results=str(tmp_path / "results"),
            timeout=None,
            grace=1.0,
            delay=0.0,
            on_line=lambda line: None,
        )
        attempt.run()
        reused = [
            os.open(tmp_path / f"file-{number}", os.O_CREAT | os.O_RDWR) for number in range(20)
        ]
        attempt.stop()
        assert all(os.fstat(fd).st_size == 0 for fd in reused)
        for fd in reused:
            os.close(fd)

    def test_a_result_that_cannot_be_recorded_at_once_is_recorded_later(
        self, store: Store, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("swarm.workers.attempt._RETRY_INTERVAL", 0.05)
        queue.add("a", command="true", max_attempts=1)
        worker = SmartWorker("w", store=store)
        done, tries = worker.queue.done, []

        def refuse_twice(*args: Any, **meta: Any) -> Task:
            tries.append(args)
            if len(tries) < 3:
                raise StoreError("the disk is full")
            return done(*args, **meta)

        monkeypatch.setattr(worker.queue, "done", refuse_twice)
        assert worker.run(until_empty=True).done == 1 and len(tries) == 3
        assert queue.get("a").state == "done" and not LockTable(store).status("a").exists

    def test_a_prompt_that_cannot_be_written_costs_no_attempt(
        self, store: Store, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse() -> Any:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("tempfile.TemporaryFile", refuse)
        queue.add("a", command="true")
        worker = SmartWorker("w", store=store)
        with pytest.raises(StoreError, match=r"prompt.* temporary file: No space left"):
            worker.work_on(queue.claim("w"))
        assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)


class TestFlood:
    """An agent that writes faster than anybody reads. The store has no part in that."""

    @pytest.fixture
    def store(self, isolated_swarm_dir: Path) -> Store:
        return FileStore(str(isolated_swarm_dir))

    def test_a_flooding_agent_ends_when_its_time_is_up(
        self, store: Store, queue: TaskQueue
    ) -> None:
        queue.add("a", command="yes '' | head -c 40000000; sleep 60", max_attempts=1, timeout=0.5)
        assert work(store, on_line=lambda line: None).tally.failed == 1
        assert queue.get("a").reason == "timed out after 0.5 seconds"

    def test_a_flooding_agent_ends_when_its_worker_is_stopped(
        self, store: Store, queue: TaskQueue
    ) -> None:
        queue.add("a", command="yes '' | head -c 200000000; sleep 60")
        worker = SmartWorker("worker-1", store=store, on_line=lambda line: None)
        thread = threading.Thread(target=worker.run)
        thread.start()
        until(lambda: records(store, "a"))
        time.sleep(0.2)
        worker.stop()
        thread.join(timeout=30)
        assert not thread.is_alive() and worker.tally.released == 1

    @pytest.mark.parametrize(
        "text", ["[DONE] x" + " " * 100_000 + "y", "[" * 100_000, "[WAIT]" + "\t" * 60_000]
    )
    def test_no_line_takes_long_to_read(self, text: str) -> None:
        begun = time.process_time()
        marker(text)
        assert time.process_time() - begun < 5  # it took minutes

    def test_markers_behind_a_flood_are_found(self, store: Store, queue: TaskQueue) -> None:
        queue.add("a", command="yes 'no [marker]' | head -c 30000000; echo '[HELP] still there'")
        work(store)
        assert [record["state"] for record in records(store, "a")] == ["START", "HELP", "DONE"]


class TestLosing:
    def test_an_agent_whose_lease_is_lost_is_stopped(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        queue.add("a", command="echo $$; sleep 60")
        worker = SmartWorker("worker-1", store=store, ttl=1.5)
        thread = threading.Thread(target=worker.run)
        thread.start()
        until(lambda: (results / "a.1.out").exists() and (results / "a.1.out").read_text())
        LockTable(store).break_lock("a")
        held = LockTable(store).acquire("a", "ada", 300)
        until(lambda: worker.tally.lost)
        assert group_has_ended(int((results / "a.1.out").read_text()))
        worker.stop()
        thread.join(timeout=20)
        last = records(store, "a")[-1]
        assert last["state"] == "SKIP" and last["meta"] == {"lost": True, "token": 1}
        found = LockTable(store).status("a")
        assert found.lock is not None and found.lock.token == held.token

    @pytest.mark.parametrize(
        ("end", "outcome", "state"),
        [
            ("fail --final", "failed", "failed"),
            ("fail", "failed", "ready"),
            ("done", "done", "done"),
            ("release", "stopped", "ready"),
        ],
    )
    @pytest.mark.parametrize("code", [0, 1])
    def test_an_agent_that_ended_its_claim_itself_is_believed(
        self, isolated_swarm_dir: Path, end: str, outcome: str, state: str, code: int
    ) -> None:
        own = '--worker "$SWARM_WORKER" --token "$SWARM_TOKEN"'
        swarm = f"{sys.executable} {ROOT / 'swarm' / '__main__.py'}"
        queue = TaskQueue()
        queue.add("a", command=f"{swarm} task {end} a {own} 'Which colour?'; exit {code}")
        seen: list[tuple[str, str, str]] = []
        worker = SmartWorker("worker-1", on_event=lambda *event: seen.append(event))
        assert worker.work_on(queue.claim("worker-1", bound=True)) == outcome
        assert seen[-1] == (outcome, "a", "Which colour?")
        assert worker.tally.lost == 0
        assert queue.get("a").state == state
        logged = records(FileStore(os.environ["AI_SWARM_DIR"]), "a")
        assert not any("refused" in record["meta"] for record in logged)

    def test_an_agent_that_works_on_after_it_ended_its_claim_is_believed_too(
        self, isolated_swarm_dir: Path
    ) -> None:
        swarm = f"{sys.executable} {ROOT / 'swarm' / '__main__.py'}"
        own = '--worker "$SWARM_WORKER" --token "$SWARM_TOKEN"'
        queue = TaskQueue()
        queue.add("a", command=f"{swarm} task fail --final a {own} 'Which colour?'; sleep 60")
        worker = SmartWorker("worker-1", ttl=1)
        assert worker.work_on(queue.claim("worker-1", bound=True, ttl=1)) == "failed"
        assert worker.tally.lost == 0

    def test_an_agent_that_ignores_sigterm_has_ended_before_its_lease_is_over(
        self, store: Store, queue: TaskQueue, results: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", command="trap '' TERM; echo $$; while :; do sleep 0.02; done")
        worker = SmartWorker("worker-1", store=store, ttl=2, grace=60)
        thread = threading.Thread(target=worker.run)
        thread.start()
        until(lambda: (results / "a.1.out").exists() and (results / "a.1.out").read_text())
        monkeypatch.setattr(LockTable, "heartbeat", fail_always)
        until(lambda: (found := LockTable(store).status("a")) is None or not found.is_held)
        assert group_has_ended(int((results / "a.1.out").read_text()))
        worker.stop()
        thread.join(timeout=20)

    def test_a_loss_counts_also_if_it_cannot_be_logged(
        self, store: Store, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", command="sleep 60")
        claim = queue.claim("worker-1", ttl=1)
        heartbeat = LockTable.heartbeat
        calls: list[Any] = []

        def once(*args: Any, **options: Any) -> Lock:
            calls.append(args)
            if len(calls) == 1:
                return heartbeat(*args, **options)
            monkeypatch.setattr(StatusLog, "append", fail_always)
            raise StoreError("the server does not answer")

        monkeypatch.setattr(LockTable, "heartbeat", once)
        worker = SmartWorker("worker-1", store=store)
        assert worker.work_on(claim) == "lost"
        assert worker.tally.lost == 1

    def test_an_agent_is_stopped_even_while_its_markers_cannot_be_logged(
        self, store: Store, queue: TaskQueue, results: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append, silent, answer = StatusLog.append, threading.Event(), threading.Event()

        def never(log: StatusLog, state: str, *args: Any) -> bytes:
            if state == "WAIT":
                silent.set()
                answer.wait(30)
            return append(log, state, *args)

        monkeypatch.setattr(StatusLog, "append", never)
        queue.add("a", command="echo $$; echo '[WAIT] for an answer'; sleep 60")
        worker = SmartWorker("worker-1", store=store, ttl=1.5)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            assert silent.wait(20)
            LockTable(store).break_lock("a")
            LockTable(store).acquire("a", "ada", 300)
            until(lambda: group_has_ended(int((results / "a.1.out").read_text().split()[0])))
            assert not answer.is_set()
        finally:
            answer.set()
            worker.stop()
            thread.join(timeout=20)

    def test_no_agent_starts_if_the_lease_ended_during_its_first_heartbeat(
        self, store: Store, queue: TaskQueue, results: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        heartbeat = LockTable.heartbeat

        def slow(*args: Any, **options: Any) -> Lock:
            lock = heartbeat(*args, **options)
            time.sleep(1.1)
            return lock

        monkeypatch.setattr(LockTable, "heartbeat", slow)
        queue.add("a", command=["touch", str(results.with_name("begun"))])
        worker = SmartWorker("worker-1", store=store, ttl=1)
        assert worker.work_on(queue.claim("worker-1", ttl=1)) == "lost"
        assert not results.with_name("begun").exists()

    def test_a_cancelled_task_is_stopped(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        queue.add("a", command="echo $$; sleep 60")
        worker = SmartWorker("worker-1", store=store, ttl=1.5)
        thread = threading.Thread(target=worker.run, kwargs={"until_empty": True})
        thread.start()
        until(lambda: (results / "a.1.out").exists() and (results / "a.1.out").read_text())
        queue.cancel("a", "ada")
        thread.join(timeout=20)
        assert not thread.is_alive()
        assert queue.get("a").state == "cancelled" and worker.tally.lost == 1
        assert not LockTable(store).status("a").exists

    def test_a_task_that_is_cancelled_and_retried_never_has_two_agents(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        """The first agent takes its time to stop; the second worker asks all the while."""
        begun = results.with_name("begun")
        agent = f"trap 'sleep 1; exit' TERM; echo $$ >>{begun}; while :; do sleep 0.1; done"
        queue.add("a", command=agent)
        crew = [SmartWorker(f"worker-{number}", store=store, ttl=1.5) for number in (1, 2)]
        threads = [threading.Thread(target=worker.run) for worker in crew]
        try:
            threads[0].start()
            first = int(until(lambda: begun.exists() and begun.read_text()))
            queue.cancel("a", "ada")
            queue.retry("a", "ada")
            threads[1].start()
            while len(pids := begun.read_text().split()) < 2:
                time.sleep(0.002)
            assert group_has_ended(first), "the second agent began beside the first"
            assert queue.get("a").attempts == 1 and int(pids[0]) == first
        finally:
            for worker in crew:
                worker.stop()
            for thread in threads:
                thread.join(timeout=20)

    def test_the_lock_of_a_lost_task_stays_while_a_process_of_its_agent_runs(
        self, store: Store, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Such a process may be another user's, which the worker cannot end."""
        queue.add("a", command="sleep 60")
        worker = SmartWorker("worker-1", store=store, ttl=1.5)
        monkeypatch.setattr("swarm.system.child.GatedProcess.is_over", lambda child: False)
        monkeypatch.setattr("swarm.system.child.GatedProcess.end", lambda *_: False)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            until(lambda: records(store, "a"))  # the claim is complete
            queue.cancel("a", "ada")
            until(lambda: worker.tally.lost)
            assert LockTable(store).status("a").exists
        finally:
            worker.stop()
            thread.join(timeout=20)


class TestStopping:
    def test_stop_releases_the_task(self, store: Store, queue: TaskQueue) -> None:
        queue.add("a", command="sleep 60")
        worker = SmartWorker("worker-1", store=store)
        thread = threading.Thread(target=worker.run)
        thread.start()
        until(lambda: records(store, "a"))
        worker.stop()
        thread.join(timeout=20)
        assert not thread.is_alive() and worker.tally.released == 1
        assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)
        last = records(store, "a")[-1]
        assert last["state"] == "SKIP" and "the worker was stopped" in last["message"]

    def test_a_stopped_agent_has_not_finished_whatever_its_exit_code(
        self, store: Store, queue: TaskQueue, results: Path
    ) -> None:
        queue.add(
            "a", command="trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        )
        worker = SmartWorker("worker-1", store=store)
        thread = threading.Thread(target=worker.run)
        thread.start()
        until(lambda: (results / "a.1.out").exists() and (results / "a.1.out").read_text())
        worker.stop()
        thread.join(timeout=20)
        assert queue.get("a").state == "ready" and worker.tally.released == 1
        assert (results / "a.1.out").read_text() == "ready\nsaved\n"

    def test_an_idle_worker_stops_soon(self, store: Store) -> None:
        worker = SmartWorker("worker-1", store=store)
        thread = threading.Thread(target=worker.run)
        thread.start()
        until(lambda: worker.idle)
        worker.stop()
        thread.join(timeout=10)
        assert not thread.is_alive()

    def test_an_idle_worker_is_woken_by_a_new_task(
        self, store: Store, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By itself it would look again after ten minutes."""
        monkeypatch.setattr("swarm.workers.worker._IDLE_WAIT", 600.0)
        monkeypatch.setattr("swarm.stores.file.store._WATCH_RENEWAL", 600.0)
        queue.add("first", command="true")
        worker = SmartWorker("worker-1", store=store)
        thread = threading.Thread(target=worker.run)
        thread.start()
        until(lambda: worker.tally.done == 1 and worker.idle)
        queue.add("a", command="true")
        until(lambda: queue.get("a").state == "done")
        worker.stop()
        queue.add("b", command="true")  # nothing else wakes it now
        thread.join(timeout=20)
        assert not thread.is_alive() and queue.get("b").state == "ready"

    def test_a_store_that_cannot_be_used_later_is_waited_for(
        self, store: Store, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        events: list[tuple[str, str, str]] = []
        worker = SmartWorker("worker-1", store=store, on_event=lambda *event: events.append(event))
        monkeypatch.setattr("swarm.workers.worker._STORE_RETRY_INTERVAL", 0.05)
        thread = threading.Thread(target=worker.run)
        thread.start()
        until(lambda: worker.idle)
        claim = worker.queue.claim
        monkeypatch.setattr(
            worker.queue,
            "claim",
            lambda *_, **__: (_ for _ in ()).throw(StoreError("the disk is gone")),
        )
        until(lambda: events)
        monkeypatch.setattr(worker.queue, "claim", claim)
        queue.add("a", command="true")
        until(lambda: queue.get("a").state == "done")
        worker.stop()
        thread.join(timeout=10)
        assert [event for event in events if event[0] == "trouble"] == [
            ("trouble", "", "the disk is gone")
        ]

    def test_a_store_that_cannot_be_used_at_all_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreError):
            SmartWorker("w", store=FileStore(str(tmp_path / "file"))).run(until_empty=True)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"worker_id": "../x"}, "slash"),
        ({"agent": ""}, "--exec.* is empty"),
        ({"agent": "echo 'x"}, "--exec.* has a quote that is not closed"),
        ({"timeout": 0}, "more than 0"),
        ({"ttl": 0.5}, "from 1 to"),
        ({"grace": -1}, "0 or more"),
    ],
)
def test_an_invalid_option_of_a_worker_is_refused_at_once(
    options: dict[str, Any], rule: str
) -> None:
    with pytest.raises(BadInput, match=rule):
        SmartWorker(**{"worker_id": "w", **options}, store=MemoryStore())


class TestCommand:
    """`swarm worker`, as a process."""

    @pytest.fixture
    def start(self, isolated_swarm_dir: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
        started = []

        def begin(*args: str) -> subprocess.Popen[str]:
            command = [sys.executable, str(ROOT / "swarm" / "__main__.py"), "worker", *args]
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                command,
                env=script_environment(),
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                text=True,
            )
            started.append(process)
            return process

        yield begin
        for process in started:
            process.kill()
            process.communicate()

    def test_the_command_works_until_no_task_is_left(
        self, start: Callable[..., subprocess.Popen[str]], isolated_swarm_dir: Path
    ) -> None:
        queue = TaskQueue()
        queue.add("a", command="echo hello")
        queue.add("b", "x", max_attempts=1)
        out, err = start(
            "--id", "3", "--until-empty", "--allow-commands", "--exec", "sh -c 'exit 4'"
        ).communicate(timeout=30)
        assert err == ""
        events = [line.split(maxsplit=1)[1] for line in out.splitlines()]
        assert events == [
            "worker-3  ▶ start    a  attempt 1 of 3",
            "worker-3  ✔ done     a  hello",
            "worker-3  ▶ start    b  attempt 1 of 1",
            "worker-3  ✘ failed   b  exit code 4",
            "1 done, 1 failed, 0 released, 0 lost",
        ]
        assert queue.get("a").worker == "worker-3"

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_a_signal_to_the_command_releases_its_task(
        self, start: Callable[..., subprocess.Popen[str]], number: signal.Signals
    ) -> None:
        queue = TaskQueue()
        queue.add("a", command="sleep 60")
        worker = start("--id", "1", "--json")
        until(lambda: queue.get("a").state == "running")
        worker.send_signal(number)
        out, err = worker.communicate(timeout=30)
        assert (worker.returncode, err) == (128 + number, "")
        assert json.loads(out) == {
            "schema_version": 1,
            "worker": "worker-1",
            "stopped_by": int(number),
            "questions": 0,
            "done": 0,
            "submitted": 0,
            "failed": 0,
            "released": 1,
            "lost": 0,
            "asked": 0,
        }
        assert (
            queue.get("a").state == "ready"
            and not LockTable(FileStore(os.environ["AI_SWARM_DIR"])).status("a").exists
        )

    def test_a_second_signal_does_not_wait_for_the_agent(
        self, start: Callable[..., subprocess.Popen[str]], isolated_swarm_dir: Path
    ) -> None:
        queue = TaskQueue()
        queue.add("a", command="trap '' TERM; echo $$; while :; do sleep 0.1; done")
        worker = start("--id", "1", "--grace", "60")
        out = isolated_swarm_dir / "results" / "a.1.out"
        until(lambda: out.exists() and out.read_text())
        worker.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=20)
        assert worker.returncode == 143 and queue.get("a").state == "ready"
        assert group_has_ended(int(out.read_text()))

    def test_a_hangup_that_was_ignored_from_the_beginning_is_ignored(
        self, start: Callable[..., subprocess.Popen[str]], isolated_swarm_dir: Path
    ) -> None:
        """As nohup has it."""
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            worker = start("--id", "1")
        finally:
            signal.signal(signal.SIGHUP, before)
        queue = TaskQueue()
        queue.add("a", command="true")
        until(lambda: queue.get("a").state == "done")
        worker.send_signal(signal.SIGHUP)
        queue.add("b", command="true")
        until(lambda: queue.get("b").state == "done")
        assert worker.poll() is None

    def test_an_idle_worker_ends_at_once(
        self, start: Callable[..., subprocess.Popen[str]], isolated_swarm_dir: Path
    ) -> None:
        TaskQueue().add("a", command="true")
        worker = start("--id", "1")
        assert worker.stdout is not None
        assert "waiting for tasks until Ctrl-C" in worker.stdout.readline()
        assert "start" in worker.stdout.readline() and "done" in worker.stdout.readline()
        time.sleep(0.2)
        worker.send_signal(signal.SIGINT)
        assert worker.wait(timeout=10) == 130

    def test_an_agent_dies_with_its_worker_and_its_task_is_free_at_once(
        self, start: Callable[..., subprocess.Popen[str]], isolated_swarm_dir: Path
    ) -> None:
        queue = TaskQueue()
        queue.add("a", command=["sleep", "60"])
        worker = start("--id", "1")
        group = until(lambda: group_of(isolated_swarm_dir / "locks" / "a.lock"))
        worker.kill()
        worker.wait()
        until(lambda: group_has_ended(group), 5)
        assert queue.claim("worker-2").task.attempts == 2

    def test_a_task_stays_locked_while_a_process_of_its_agent_lives(
        self, start: Callable[..., subprocess.Popen[str]], isolated_swarm_dir: Path
    ) -> None:
        queue = TaskQueue()
        queue.add("a", command="sleep 60 & echo $!; wait")
        worker = start("--id", "1")
        out = isolated_swarm_dir / "results" / "a.1.out"
        until(lambda: out.exists() and out.read_text())
        worker.kill()
        worker.wait()
        survivor = int(out.read_text())
        os.kill(survivor, 0)
        assert queue.get("a").state == "running"
        os.kill(survivor, signal.SIGKILL)
        until(lambda: queue.get("a").state == "ready", 5)

    @pytest.mark.parametrize(
        ("args", "rule"),
        [
            ((), "which worker is this"),
            (("--id", "../x"), "slash"),
            (("--id", "1", "--exec", "/nowhere/agent {prompt}"), "cannot be run"),
            (("--id", "1", "--exec", "'"), "a quote that is not closed"),
            (("--id", "1", "--timeout", "0"), "more than 0"),
            (("--id", "1", "--ttl", "x"), "whole number"),
            (("--id", "1", "--until", "x"), "no option --until"),
        ],
    )
    def test_bad_input_is_refused(
        self,
        start: Callable[..., subprocess.Popen[str]],
        isolated_swarm_dir: Path,
        args: tuple[str, ...],
        rule: str,
    ) -> None:
        worker = start(*args)
        out, err = worker.communicate(timeout=20)
        assert worker.returncode == 2 and err.startswith("Error: ") and rule in err and out == ""
        assert not isolated_swarm_dir.exists()


def test_a_program_with_many_open_files_can_be_a_worker(isolated_swarm_dir: Path) -> None:
    """Descriptors of four digits, as in a server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= 2000, "this machine allows too few open files to try it"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        queue = TaskQueue()
        queue.add("a", command="echo x")
        assert SmartWorker("w").run(until_empty=True).done == 1
        assert queue.get("a").state == "done" and not queue.wait(0.01)
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
