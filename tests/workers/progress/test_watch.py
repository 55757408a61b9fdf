"""An attempt that is stuck is told once, with evidence, and what follows is a choice.

The agents are real processes that wait at a named pipe: they use no CPU time, and go on
when the test says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from swarm.board.viewer import Viewer
from swarm.locks import waits
from swarm.presets.contract import Request
from swarm.presets.registry import find
from swarm.queue.queue import Claim, TaskQueue
from swarm.status import events
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from swarm.workers.command import task_environment
from swarm.workers.launch import PresetAgent
from swarm.workers.progress.signs import Look, Signs
from swarm.workers.progress.watch import MIN_CPU_SHARE, Silence
from swarm.workers.worker import SmartWorker
from tests.presets.recorded import Config, Table
from tests.support.agents.shop import Shop
from tests.support.at_a_terminal import wait_until
from tests.support.projects import MAIN, git

AFTER = 100.0


class TestSilence:
    """With a clock that the test moves."""

    @pytest.fixture
    def silence(self) -> Silence:
        return Silence(AFTER, 0.0)

    def test_a_silent_attempt_is_stalled_when_the_time_is_over(self, silence: Silence) -> None:
        silence.take(Look(50.0, cpu=1.0))
        silence.take(Look(99.0, cpu=1.0))
        assert not silence.is_stalled
        silence.take(Look(100.0, cpu=1.0))
        assert silence.is_stalled

    def test_a_look_is_due_only_after_half_of_the_time_without_output(
        self, silence: Silence
    ) -> None:
        for now in range(0, 1000, 10):
            silence.note(float(now))
            assert not silence.is_due(now + 49.0)
        assert silence.is_due(990.0 + 50.0) and not silence.is_long(990.0 + 50.0)
        silence.begin_look(1040.0)
        assert not silence.is_due(1089.0)
        assert silence.is_due(1090.0) and silence.is_long(1090.0)

    def test_a_stalled_attempt_is_looked_at_again(self) -> None:
        silence = Silence(10_000.0, 0.0)
        silence.take(Look(9000.0, cpu=1.0))
        silence.take(Look(10_000.0, cpu=1.0))
        silence.begin_look(10_000.0)
        assert silence.is_stalled and silence.is_due(10_060.0)

    def test_cpu_time_is_a_sign_of_work(self, silence: Silence) -> None:
        silence.take(Look(50.0, cpu=1.0))
        silence.take(Look(100.0, cpu=1.0 + 50 * MIN_CPU_SHARE))
        assert not silence.is_stalled and silence.last == 100.0

    def test_the_cpu_time_of_an_agent_that_only_waits_is_none(self, silence: Silence) -> None:
        silence.take(Look(50.0, cpu=1.0))
        silence.take(Look(100.0, cpu=1.0 + 49 * MIN_CPU_SHARE))
        assert silence.is_stalled

    def test_cpu_time_from_before_the_silence_does_not_count(self, silence: Silence) -> None:
        silence.take(Look(50.0, cpu=1.0))
        silence.note(60.0)
        silence.take(Look(160.0, cpu=90.0))
        assert not silence.is_stalled and silence.last == 60.0
        silence.take(Look(161.0, cpu=90.0))
        assert silence.is_stalled

    @pytest.mark.parametrize(
        "look",
        [Look(100.0, waits="it waits", cpu=1.0), Look(100.0, age=0.0, sign="a change", cpu=1.0)],
    )
    def test_a_reason_to_wait_and_a_sign_are_no_stall(self, silence: Silence, look: Look) -> None:
        silence.take(Look(50.0, cpu=1.0))
        silence.take(look)
        assert not silence.is_stalled and silence.last == 100.0

    def test_a_sign_counts_from_its_own_time(self, silence: Silence) -> None:
        silence.take(Look(50.0, cpu=1.0))
        silence.take(Look(100.0, age=30.0, sign="a change of a.py", cpu=1.0))
        assert (silence.last, silence.sign) == (70.0, "a change of a.py")

    def test_output_during_a_look_is_newer_than_the_look(self, silence: Silence) -> None:
        silence.take(Look(50.0, cpu=1.0))
        silence.note(101.0)
        silence.take(Look(100.0, waits="it waits", cpu=1.0))
        assert (silence.last, silence.sign) == (101.0, "")

    def test_without_cpu_times_the_other_signs_decide(self, silence: Silence) -> None:
        silence.take(Look(100.0))
        assert silence.is_stalled

    def test_output_ends_a_stall(self, silence: Silence) -> None:
        silence.take(Look(100.0))
        silence.note(130.0)
        assert not silence.is_stalled

    def test_0_seconds_turn_it_off(self) -> None:
        assert not Silence(0.0, 0.0).is_due(1e9)


class Pipe:
    """A named pipe. An agent that reads from it, once, goes on after `open`."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path

    def open(self) -> None:
        self.path.write_text("go\n")


@pytest.fixture
def pipe(tmp_path: Path) -> Pipe:
    return Pipe(tmp_path / "pipe")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Look]:
    """What the looks of workers in this process find."""
    found: list[Look] = []

    def kept(look: Callable[[Signs], Look]) -> Callable[[Signs], Look]:
        def keep(signs: Signs) -> Look:
            found.append(look(signs))
            return found[-1]

        return keep

    monkeypatch.setattr(Signs, "look", kept(Signs.look))
    return found


@contextmanager
def working(worker: SmartWorker, claim: Claim | None = None) -> Iterator[None]:
    """The worker works in a thread: on this claim, or on all tasks. It is stopped at the
    end, if it has not ended.
    """
    work = (
        (lambda: worker.run(until_empty=True)) if claim is None else (lambda: worker.work_on(claim))
    )
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(60)
        assert not thread.is_alive()


def records(store: Store, task: str, state: str = "") -> list[dict[str, Any]]:
    found = [record for _, record in StatusLog(store).query(task)]
    return [record for record in found if state in ("", record["state"])]


def is_told(store: Store, count: int = 1) -> bool:
    return len(records(store, "a", "HELP")) == count


class TestStalls:
    @pytest.fixture
    def store(self, live_store: Store, isolated_swarm_dir: Path) -> Store:
        return live_store

    def test_a_stall_is_told_once_until_the_attempt_goes_on(
        self, store: Store, pipe: Pipe, looks: list[Look], tmp_path: Path
    ) -> None:
        queue, other = TaskQueue(store), Pipe(tmp_path / "other")
        queue.add("a", command=f"echo begins; read x <{pipe.path}; echo back; read x <{other.path}")
        with working(SmartWorker("w", store=store, stalled_after=0.4)):
            wait_until(lambda: is_told(store))
            seen = len(looks)
            wait_until(lambda: len(looks) >= seen + 2)
            assert is_told(store)
            (told,) = records(store, "a", "HELP")
            assert told["message"].startswith("stalled: no sign of work for ")
            assert told["message"].endswith('; last: "begins"')
            assert told["meta"]["token"] == 1
            evidence = told["meta"]["stalled"]
            assert evidence["last"] == "begins" and evidence["seconds"] >= 0.4
            assert evidence["last_at"] < told["timestamp"]
            problems = [(each.kind, each.text) for each in Viewer(store).look().problems]
            assert problems[0] == ("waiting", told["message"])
            pipe.open()
            wait_until(lambda: len(records(store, "a", "START")) == 2)
            assert records(store, "a", "START")[-1]["message"] == "goes on"
            wait_until(lambda: is_told(store, 2))
            assert records(store, "a", "HELP")[-1]["meta"]["stalled"]["last"] == "back"
            other.open()
            wait_until(lambda: queue.get("a").state == "done")


class TestNoFalseAlarm:
    @pytest.fixture
    def store(self, isolated_swarm_dir: Path) -> Store:
        return FileStore(str(isolated_swarm_dir))

    @pytest.fixture
    def worker(self, store: Store, pipe: Pipe) -> SmartWorker:
        """A worker for the task `a`, whose agent waits for the pipe."""
        TaskQueue(store).add("a", command=f"read x <{pipe.path}")
        return SmartWorker("w", store=store, stalled_after=0.4)

    def test_an_attempt_with_an_open_question_is_not_stalled(
        self, store: Store, worker: SmartWorker, pipe: Pipe, looks: list[Look]
    ) -> None:
        claim = worker.queue.claim("w", bound=True)
        worker.queue.ask("a", "w", claim.token, "Which database?")
        with working(worker, claim):
            wait_until(lambda: len(looks) >= 3)
            assert looks[-1].waits.startswith("it waits for the answer to q")
            assert is_told(store, 0)
            pipe.open()

    def test_an_attempt_that_asked_for_a_person_keeps_its_own_words(
        self, store: Store, worker: SmartWorker, pipe: Pipe, looks: list[Look]
    ) -> None:
        claim = worker.queue.claim("w", bound=True)
        StatusLog(store).append("HELP", "w", "a", "no licence", events.from_agent(claim.token))
        with working(worker, claim):
            wait_until(lambda: len(looks) >= 3)
            assert [each["message"] for each in records(store, "a", "HELP")] == ["no licence"]
            pipe.open()

    @pytest.mark.parametrize(
        "words", [("wait", "b"), ("lock", "acquire", "b", "other", "--wait", "600")]
    )
    def test_an_attempt_that_waits_in_swarm_is_not_stalled(
        self,
        store: Store,
        worker: SmartWorker,
        pipe: Pipe,
        looks: list[Look],
        words: tuple[str, ...],
        isolated_swarm_dir: Path,
    ) -> None:
        queue = worker.queue
        claim = queue.claim("w", bound=True)
        queue.add("b", "later")
        held = queue.claim("holder", "b")
        environment = task_environment("a", "w", claim.token)
        file = waits.path_in(str(isolated_swarm_dir / "results"), "a", claim.token)
        command = [sys.executable, "-P", str(MAIN), *words]
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as waiting:
            wait_until(lambda: waits.reason(file))
            with working(worker, claim):
                wait_until(lambda: len(looks) >= 3)
                assert is_told(store, 0)
                queue.done("b", "holder", held.token)
                assert waiting.wait(60) == 0
                wait_until(lambda: is_told(store))
                pipe.open()
        assert not Path(file).exists()

    def test_processes_that_run_without_output_are_no_stall(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        glances: list[Look] = []
        glance = Signs.glance

        def keep(signs: Signs) -> Look:
            glances.append(glance(signs))
            return glances[-1]

        monkeypatch.setattr(Signs, "glance", keep)
        queue = TaskQueue(store)
        queue.add("a", command="while :; do :; done")
        with working(SmartWorker("w", store=store, stalled_after=0.4)):
            wait_until(lambda: len(glances) >= 5)
            assert [each.sign for each in glances[-3:]] == ["its processes run"] * 3
            assert is_told(store, 0)

    def test_a_check_that_the_agent_runs_is_no_stall(
        self, tmp_path: Path, pipe: Pipe, looks: list[Look], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop = Shop(tmp_path)
        shop.configure(f'check = "read x <{pipe.path}"\n', land="")
        monkeypatch.setenv("SWARM_STATE_DIR", str(shop.root / ".swarm"))
        monkeypatch.setenv("NOTES", str(shop.notes))
        shop.add("a", f"echo new >new.txt; {sys.executable} -P {MAIN} task done a")
        with working(SmartWorker("w", shop.agent, backoff=0, stalled_after=2.0)):
            wait_until(lambda: "it waits for the check of a" in [each.waits for each in looks])
            pipe.open()
            wait_until(lambda: shop.task("a")["state"] == "done")

    def test_a_change_in_the_workspace_is_no_stall(
        self, tmp_path: Path, pipe: Pipe, looks: list[Look], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop = Shop(tmp_path)
        shop.configure(land="")
        monkeypatch.setenv("SWARM_STATE_DIR", str(shop.root / ".swarm"))
        monkeypatch.setenv("NOTES", str(shop.notes))
        shop.add("a", f"read x <{pipe.path}")
        with working(SmartWorker("w", shop.agent, backoff=0, stalled_after=2.0)):
            wait_until(shop.workspaces)
            path = Path(shop.workspaces()[0], "new.txt")

            def is_seen() -> bool:
                path.write_text("new\n")
                return "a change of new.txt" in [each.sign for each in looks]

            wait_until(is_seen)
            pipe.open()


class TestPolicies:
    """The project chooses what follows. A second attempt has the work of the first."""

    # It prints what Claude Code prints: the work of a session comes to the next attempt.
    SCRIPT = """
    if [ "$SWARM_ATTEMPT" = 2 ]; then
        cp new.txt $NOTES/seen
        echo '{"type": "result", "subtype": "success", "result": "ok", "session_id": "s1"}'
        exit 0
    fi
    echo '{"type": "system", "subtype": "init", "session_id": "s1"}'
    echo new >new.txt
    echo $$ >$NOTES/pid
    echo 'it hangs'
    read x <$NOTES/pipe
    """

    @pytest.fixture
    def shop(self, tmp_path: Path) -> Shop:
        shop = Shop(tmp_path)
        os.mkfifo(shop.notes / "pipe")
        return shop

    def work(self, shop: Shop, progress: str, *options: str) -> None:
        shop.configure(
            f'[agents.mine]\ncommand = "{shop.agent}"\noutput = "claude"\n[progress]\n{progress}'
        )
        shop.add("a", self.SCRIPT)
        shop.work("--agent", "mine", "--grace", "1", *options, agent=False)

    @pytest.mark.parametrize("policy", ["interrupt", "retry"])
    def test_the_agent_is_ended_and_the_next_attempt_knows_why(
        self, shop: Shop, policy: str
    ) -> None:
        self.work(shop, f'stalled_after = 2\non_stall = "{policy}"\n')
        assert not Path("/proc", shop.note("pid")).exists()
        told, failed = shop.record("a", "HELP"), shop.record("a", "ERROR")
        assert told["message"].startswith("stalled: ") and "stalled" in told["meta"]
        why = told["message"]
        reason = f"interrupted, because it {why}" if policy == "interrupt" else why
        assert failed["message"] == reason
        assert failed["meta"]["exit_code"] == (130 if policy == "interrupt" else 143)
        assert why in shop.note("prompt.2")
        assert shop.note("seen") == "new"
        assert git(shop.root, "show", "main:new.txt") == "new\n"
        assert shop.task("a")["state"] == "done"

    def test_an_agent_that_takes_an_interrupt_well_goes_on(self, shop: Shop) -> None:
        shop.configure('[progress]\nstalled_after = 2\non_stall = "interrupt"\n')
        program = (
            "import signal, pathlib\n"
            "def stop(*_): raise KeyboardInterrupt\n"
            "signal.signal(signal.SIGINT, stop)\n"
            "try: signal.pause()\n"
            "except KeyboardInterrupt: pathlib.Path('new.txt').write_text('new')\n"
        )
        (shop.notes / "agent.py").write_text(program)
        shop.add("a", f"exec {sys.executable} $NOTES/agent.py")
        shop.work()
        task = shop.task("a")
        assert (task["state"], task["attempts"]) == ("done", 1)
        assert git(shop.root, "show", "main:new.txt") == "new"

    def test_the_option_of_the_worker_comes_first(self, shop: Shop) -> None:
        self.work(shop, 'stalled_after = 0\non_stall = "retry"\n', "--stalled-after", "2")
        assert shop.record("a", "ERROR")["message"].startswith("stalled: ")


CLAUDE = """\
import json, sys
def call(command):
    part = {"type": "tool_use", "id": "x", "name": "Bash", "input": {"command": command}}
    print(json.dumps({"type": "assistant", "message": {"id": "m", "content": [part]}}), flush=True)
pipes = iter(PIPES)
def pause():
    open(next(pipes)).read()
sys.stdin.read()
"""


class TestLoops:
    @pytest.fixture
    def shop(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
        shop = Shop(tmp_path)
        monkeypatch.setenv("SWARM_STATE_DIR", str(shop.root / ".swarm"))
        return shop

    def worker(self, shop: Shop, script: str, *pipes: Pipe) -> SmartWorker:
        """A worker whose agent prints what Claude Code prints."""
        program = shop.notes / "agent.py"
        paths = [str(pipe.path) for pipe in pipes]
        program.write_text(CLAUDE.replace("PIPES", repr(paths)) + script)
        table = Table(command=f"{sys.executable} {program}", output="claude")
        agent = PresetAgent(find("mine", Config(mine=table)), Request(""))
        return SmartWorker("w", agent, backoff=0)

    def test_a_loop_is_told_once_until_other_calls_follow(self, shop: Shop, pipe: Pipe) -> None:
        script = (
            "for _ in range(8): call('make test')\npause()\n"
            "for _ in range(5): call('make test')\ncall('git diff')\npause()\n"
        )
        shop.add("a", "")
        other = Pipe(shop.notes / "other")
        worker = self.worker(shop, script, pipe, other)
        store = FileStore(str(shop.root / ".swarm"))
        with working(worker):
            wait_until(lambda: is_told(store))
            (told,) = records(store, "a", "HELP")
            assert told["message"] == 'loops: the same tool call 8 times in a row: "$ make test"'
            evidence = {"call": "$ make test", "count": 8, "of": 8}
            assert told["meta"] == {"loops": evidence, "token": 1}
            pipe.open()
            wait_until(lambda: len(records(store, "a", "START")) == 2)
            assert is_told(store)
            other.open()

    def test_a_loop_may_end_the_attempt(self, shop: Shop, pipe: Pipe) -> None:
        shop.configure('[progress]\nloop_calls = 4\non_loop = "retry"\n')
        shop.add("a", "", "--max-attempts", "1")
        script = "for _ in range(4): call('make test')\npause()\n"
        with working(self.worker(shop, script, pipe)):
            wait_until(lambda: shop.task("a")["state"] == "failed")
        reason = 'loops: the same tool call 4 times in a row: "$ make test"'
        assert shop.task("a")["reason"] == reason

    def test_the_same_red_check_in_a_row_is_a_loop(self, shop: Shop) -> None:
        shop.configure('check = "echo 1 failed in 0.$SWARM_TOKEN s; exit 3"\n')
        shop.add("a", "date +%N >new.txt", "--max-attempts", "4")
        shop.work()
        history = shop.json("task", "show", "a")["history"]
        counts = [each["meta"]["loops"]["count"] for each in history if each["state"] == "HELP"]
        assert counts == [3, 4]
        assert "in a row" not in shop.note("prompt.3")
        assert "(the same in 3 attempts in a row)" in shop.note("prompt.4")
        assert "(the same in 4 attempts in a row)" in shop.task("a")["reason"]


def test_the_status_command_and_the_worker_show_a_stall(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.configure("[progress]\nstalled_after = 2\n")
    first, second = Pipe(shop.notes / "first"), Pipe(shop.notes / "second")
    shop.add("a", f"echo 'I think.'; read x <{first.path}; echo on; read x <{second.path}")
    with shop.worker() as worker:
        wait_until(lambda: "stalled: no sign of work for" in shop.swarm("status"))
        assert json.loads(shop.swarm("status", "--json"))["problems"][0]["kind"] == "waiting"
        wait_until(lambda: "! stuck    a  stalled: no sign" in shop.note("worker-1"))
        first.open()
        wait_until(lambda: "▶ goes on  a" in shop.note("worker-1"))
        second.open()
        assert worker.wait(60) == 0
