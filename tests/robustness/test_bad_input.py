"""Bad input is refused with exit 2, one line that names the rule, and nothing written.

Good output goes to the right stream.
"""

from __future__ import annotations

import json
import math
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from swarm import StatusBroadcaster, TaskLockManager
from swarm.cli.lock import COMMANDS as LOCK_COMMANDS
from swarm.cli.log import COMMANDS as LOG_COMMANDS
from tests.conftest import ROOT, Run, script_environment
from tests.support.locales import latin_1

pytestmark = pytest.mark.usefixtures("isolated_swarm_dir")  # never the machine's own /tmp/ai_swarm

LOCK = str(ROOT / "scripts" / "swarm_lock.sh")
LOG = str(ROOT / "scripts" / "swarm_status_log.sh")

# Invalid names, each with a word of the rule that the message must have.
BAD_NAMES = {
    "empty": ("", "empty"),
    "parent": ("../x", "slash"),
    "slash": ("a/b", "slash"),
    "backslash": ("a\\b", "slash"),
    "300 characters": ("x" * 300, "200"),
    "201 bytes": ("x" * 201, "200"),
    "201 bytes in 67 characters": ("任" * 67, "200"),
    "newline": ("a\nb", "control"),
    "only a newline": ("\n", "control"),
    "tab": ("a\tb", "control"),
    "escape": ("a\x1b[31mb", "control"),
    "delete": ("a\x7f", "control"),
    "next line U+0085": ("a\u0085b", "control"),
    "line separator U+2028": ("a\u2028b", "control"),
    "paragraph separator U+2029": ("a\u2029b", "control"),
    "dot": (".", "dot"),
    "hidden": (".x", "dot"),
    "dash": ("-x", "dash"),
    "invalid UTF-8": (os.fsdecode(b"a\xff\xfeb"), "UTF-8"),
    "half a character": (os.fsdecode("任".encode()[:2]), "UTF-8"),
}
ONLY_IN_PYTHON = {
    "NUL": ("a\0b", "control"),
    "lone surrogate": ("a\ud800b", "UTF-8"),
    "None": (None, "text"),
    "number": (5, "text"),
    "bytes": (b"task", "text"),
    "list": (["task"], "text"),
    "path": (Path("task"), "text"),
}
GOOD_NAMES = [
    "🐝",
    "a b",
    " ",
    "任务-1",
    'it\'s "quoted"',
    "~",
    "%41",
    "*",
    "?",
    "$(touch x)",
    "a;b&c|d",
    "x.",
    "a..b",
    "a~b~0",
    "a.lock",
    "x" * 200,
    "任" * 66 + "ab",
    "e\u0301",
]

BAD_TTLS = [
    "",
    "0",
    "-1",
    "1.5",
    "abc",
    "315360001",
    "+5",
    " 5",
    "5 ",
    "1e3",
    "1_000",
    "0x10",
    "nan",
    "٣",
    "５",
    "9" * 30,
    "9" * 5000,
    "0" * 11 + "1" + "9" * 11,
    "0" * 11 + "1" + "0" * 5000,
]

# Wrong usage of each command: the script, its arguments, and the facts of the message.
BAD_CALLS: list[tuple[str, list[str], str]] = [
    (LOCK, ["frobnicate"], "frobnicate"),
    (LOCK, ["Acquire", "t", "w"], "Acquire"),
    (LOCK, ["acquire"], "Usage: swarm lock acquire TASK WORKER"),
    (LOCK, ["acquire", "t"], "needs WORKER"),
    (LOCK, ["acquire", "t", "w", "5", "x"], "too many"),
    (LOCK, ["acquire", "t", "w", "--ttl", "5"], "--ttl"),
    (LOCK, ["acquire", "t", "w", "--wait"], "--wait"),
    (LOCK, ["acquire", "t", "w", "--wait", "abc"], "--wait"),
    (LOCK, ["acquire", "t", "w", "--wait", "-1"], "--wait"),
    (LOCK, ["acquire", "t", "w", "--wait=nan"], "--wait"),
    (LOCK, ["acquire", "t", "w", "--wait=inf"], "--wait"),
    (LOCK, ["acquire", "t", "w", "--wait="], "--wait"),
    (LOCK, ["acquire", "t", "w", "--wait", "9" * 5000], "--wait"),
    (LOCK, ["release", "t"], "needs WORKER"),
    (LOCK, ["release", "t", "w", "x"], "too many"),
    (LOCK, ["release", "t", "w", "--token", "abc"], "--token"),
    (LOCK, ["release", "t", "w", "--token", "-1"], "--token"),
    (LOCK, ["release", "t", "w", "--token", "1.5"], "--token"),
    (LOCK, ["release", "t", "w", "--token", ""], "--token"),
    (LOCK, ["release", "t", "w", "--token", "٣"], "--token"),
    (LOCK, ["release", "t", "w", "--token", "9" * 5000], "--token"),
    (LOCK, ["release", "t", "w", "--token"], "--token"),
    (LOCK, ["heartbeat", "t"], "needs WORKER"),
    (LOCK, ["heartbeat", "t", "w", "--token", "x"], "--token"),
    (LOCK, ["check"], "needs TASK"),
    (LOCK, ["check", "a", "b"], "too many"),
    (LOCK, ["list", "x"], "too many"),
    (LOCK, ["list", "--all"], "--all"),
    (LOCK, ["release-all"], "SWARM_WORKER"),
    (LOCK, ["release-all", "a", "b"], "too many"),
    (LOCK, ["break", "t"], "--yes"),
    (LOCK, ["break", "t", "--yes=no"], "--yes"),
    (LOCK, ["why"], "needs TASK"),
    (LOG, ["frobnicate"], "frobnicate"),
    (LOG, ["append"], "Usage: swarm log append TYPE WORKER TASK"),
    (LOG, ["append", "START", "w"], "needs TASK"),
    (LOG, ["append", "START", "w", "t", "reason", "x"], "too many"),
    (LOG, ["append", "start", "w", "t"], "START DONE WAIT ERROR HELP SKIP"),
    (LOG, ["append", "Start", "w", "t"], "START DONE WAIT ERROR HELP SKIP"),
    (LOG, ["append", "PROGRESS", "w", "t"], "START DONE WAIT ERROR HELP SKIP"),
    (LOG, ["append", "", "w", "t"], "START DONE WAIT ERROR HELP SKIP"),
    (LOG, ["append", "START ", "w", "t"], "START DONE WAIT ERROR HELP SKIP"),
    (LOG, ["append", "START", "w", "t", "--meta"], "--meta"),
    (LOG, ["append", "START", "w", "t", "--meta", ""], "JSON"),
    (LOG, ["append", "START", "w", "t", "--meta", "{"], "JSON"),
    (LOG, ["append", "START", "w", "t", "--meta", "{'a': 1}"], "JSON"),
    (LOG, ["append", "START", "w", "t", "--meta", "{} {}"], "JSON"),
    (LOG, ["append", "START", "w", "t", "--meta", "[]"], "object"),
    (LOG, ["append", "START", "w", "t", "--meta", "1"], "object"),
    (LOG, ["append", "START", "w", "t", "--meta", "null"], "object"),
    (LOG, ["append", "START", "w", "t", "--meta", '"text"'], "object"),
    (LOG, ["append", "START", "w", "t", "--meta", '{"a": NaN}'], "JSON"),
    (LOG, ["append", "START", "w", "t", "--meta", '{"a": -Infinity}'], "JSON"),
    (LOG, ["append", "START", "w", "t", "--meta", '{"a": 1e999}'], "JSON"),
    (LOG, ["append", "START", "w", "t", "--meta", '{"a": ' + "9" * 5000 + "}"], "JSON"),
    (LOG, ["append", "START", "w", "t", "--meta", '{"a":' * 20_000 + "1" + "}" * 20_000], "nested"),
    (LOG, ["append", "START", "w", "t", "--metadata", "{}"], "--metadata"),
    (LOG, ["tail", "-5"], "-5"),
    (LOG, ["tail", "abc"], "abc"),
    (LOG, ["tail", "1.5"], "whole number"),
    (LOG, ["tail", ""], "whole number"),
    (LOG, ["tail", "٣"], "whole number"),
    (LOG, ["tail", str(10**12)], "whole number"),
    (LOG, ["tail", "9" * 5000], "whole number"),
    (LOG, ["tail", "1", "2"], "too many"),
    (LOG, ["query"], "needs TASK"),
    (LOG, ["query", "a", "b"], "too many"),
    (LOG, ["follow", "x"], "too many"),
    (LOG, ["follow", "--since"], "--since"),
    (LOG, ["follow", "--since", "rubbish"], "cursor"),
    (LOG, ["follow", "--since", "1"], "cursor"),
    (LOG, ["follow", "--since", "-1:0"], "cursor"),
    (LOG, ["follow", "--since", "1:٣"], "cursor"),
    (LOG, ["follow", "--since", "1:" + "9" * 5000], "cursor"),
    (LOG, ["follow", "--type", "start"], "START DONE WAIT ERROR HELP SKIP"),
    (LOG, ["follow", "--task", "../x"], "slash"),
    (LOG, ["follow", "--cursor=1:2"], "--cursor"),
    (LOG, ["validate", "x"], "too many"),
    (LOG, ["rotate", "x"], "too many"),
]


def expect_refusal(done: subprocess.CompletedProcess[str], state: Path, rule: str) -> None:
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert rule in done.stderr
    assert done.stderr.count("\n") == 1, "one line"
    assert not state.exists(), "nothing written"


def called(bad: tuple[str, list[str], str]) -> str:
    return shlex.join(
        [
            Path(bad[0]).stem.removeprefix("swarm_"),
            *(arg if len(arg) < 40 else arg[:20] + "…" for arg in bad[1]),
        ]
    )


def run(script: str, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    settings = {
        "capture_output": True,
        "text": True,
        "timeout": 20,
        "env": script_environment(),
        **options,
    }
    done: subprocess.CompletedProcess[str] = subprocess.run([script, *args], **settings)
    return done


class TestNames:
    @pytest.mark.parametrize("kind", BAD_NAMES)
    def test_writing_commands_refuse_an_invalid_name(
        self, kind: str, lock: Run, log: Run, isolated_swarm_dir: Path
    ) -> None:
        name, rule = BAD_NAMES[kind]
        expect_refusal(lock("acquire", name, "w"), isolated_swarm_dir, rule)
        expect_refusal(lock("acquire", "t", name, "60"), isolated_swarm_dir, rule)
        expect_refusal(log("append", "START", name, "t"), isolated_swarm_dir, rule)
        expect_refusal(log("append", "START", "w", name), isolated_swarm_dir, rule)

    @pytest.mark.parametrize(
        "call",
        [
            [LOCK, "release", "NAME", "w"],
            [LOCK, "release", "t", "NAME"],
            [LOCK, "heartbeat", "NAME", "w"],
            [LOCK, "heartbeat", "t", "NAME"],
            [LOCK, "check", "NAME"],
            [LOCK, "why", "NAME"],
            [LOCK, "break", "NAME", "--yes"],
            [LOCK, "release-all", "NAME"],
            [LOG, "query", "NAME"],
            [LOG, "follow", "--task", "NAME"],
            [LOG, "follow", "--task=NAME"],
        ],
        ids=lambda call: " ".join(call[1:]),
    )
    def test_every_command_refuses_an_invalid_name_in_every_position(
        self, call: list[str], isolated_swarm_dir: Path
    ) -> None:
        for name, rule in (("../x", "slash"), ("a\nb", "control"), (os.fsdecode(b"\xff"), "UTF-8")):
            expect_refusal(
                run(*(word.replace("NAME", name) for word in call)), isolated_swarm_dir, rule
            )

    def test_a_name_that_looks_like_an_option_is_refused_after_two_dashes(
        self, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        expect_refusal(lock("acquire", "--", "--task", "w"), isolated_swarm_dir, "dash")

    def test_an_invalid_worker_in_the_environment_is_refused(
        self, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        expect_refusal(
            lock("release-all", env=script_environment(SWARM_WORKER="../x")),
            isolated_swarm_dir,
            "slash",
        )

    def test_release_all_of_an_empty_name_does_not_fall_back_to_the_environment(
        self, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        lock("acquire", "t", "w")
        done = lock("release-all", "", env=script_environment(SWARM_WORKER="w"))
        assert (done.returncode, done.stdout) == (2, "")
        assert (isolated_swarm_dir / "locks" / "t.lock").exists()

    @pytest.mark.parametrize("kind", [*BAD_NAMES, *ONLY_IN_PYTHON])
    def test_an_invalid_name_is_a_value_error_in_python(
        self, kind: str, isolated_swarm_dir: Path
    ) -> None:
        name: Any
        name, rule = {**BAD_NAMES, **ONLY_IN_PYTHON}[kind]
        for made in (TaskLockManager, StatusBroadcaster):
            with pytest.raises(ValueError, match=rule):
                made(name)
        assert not isolated_swarm_dir.exists()
        locks, log = TaskLockManager("w"), StatusBroadcaster("w")
        calls: list[Callable[[Any], object]] = [
            locks.acquire_lock,
            locks.release_lock,
            locks.update_heartbeat,
            locks.is_locked,
            locks.get_lock_info,
            locks.hold,
            locks._get_lock_path,
            log.broadcast_start,
            log.query,
        ]
        for call in calls:
            with pytest.raises(ValueError, match=rule):
                call(name)
        assert [path.name for path in isolated_swarm_dir.rglob("*")] == ["locks"]

    def test_readers_in_python_refuse_names_that_could_never_match(
        self, isolated_swarm_dir: Path
    ) -> None:
        log = StatusBroadcaster("w")
        with pytest.raises(ValueError, match="slash"):
            list(log.follow(task_id="../x", timeout=0.01))
        with pytest.raises(ValueError, match="START"):
            list(log.follow(state="start", timeout=0.01))
        with pytest.raises(ValueError, match="cursor"):
            list(log.follow(since="rubbish", timeout=0.01))

    @pytest.mark.parametrize("name", GOOD_NAMES)
    def test_any_other_name_is_accepted_and_shown_unchanged(
        self, name: str, lock: Run, log: Run, isolated_swarm_dir: Path
    ) -> None:
        assert lock("acquire", name, name, "60").stdout.startswith(f"Lock acquired: {name}\n")
        assert os.listdir(isolated_swarm_dir / "locks") == [f"{name}.lock"]
        assert lock("list").stdout.startswith(f"{name}: Active (worker: {name}, ")
        assert TaskLockManager(name).is_locked(name)
        assert lock("release", name, name).returncode == 0
        appended = log("append", "START", name, name)
        assert (json.loads(appended.stdout)["worker"], json.loads(appended.stdout)["task_id"]) == (
            name,
            name,
        )
        assert log("query", name).stdout == appended.stdout


class TestTtl:
    @pytest.mark.parametrize("ttl", BAD_TTLS, ids=lambda ttl: repr(ttl[:24]))
    def test_the_script_refuses_an_invalid_ttl(
        self, ttl: str, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        expect_refusal(lock("acquire", "t", "w", ttl), isolated_swarm_dir, "TTL_SECONDS")

    @pytest.mark.parametrize("ttl", ["1", "315360000", "060"])
    def test_the_smallest_and_largest_ttl_are_accepted(
        self, ttl: str, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        assert lock("acquire", "t", "w", ttl).returncode == 0
        assert json.loads((isolated_swarm_dir / "locks" / "t.lock").read_text())["ttl"] == int(ttl)

    @pytest.mark.parametrize(
        "ttl",
        [0, -1, 1.5, 0.5, 315_360_001, 10**400, math.nan, math.inf, True, "60", "abc", b"5", [60]],
        ids=repr,
    )
    def test_an_invalid_ttl_is_a_value_error_in_python(
        self, ttl: Any, isolated_swarm_dir: Path
    ) -> None:
        locks = TaskLockManager("w")
        with pytest.raises(ValueError, match="ttl"):
            locks.acquire_lock("t", ttl=ttl)
        assert os.listdir(isolated_swarm_dir / "locks") == []

    @pytest.mark.parametrize("ttl", [0, -1, 315_360_001, math.nan, math.inf, True, "60"], ids=repr)
    def test_hold_refuses_an_invalid_ttl(self, ttl: Any, isolated_swarm_dir: Path) -> None:
        with pytest.raises(ValueError, match="ttl"), TaskLockManager("w").hold("t", ttl=ttl):
            pass
        assert os.listdir(isolated_swarm_dir / "locks") == []

    def test_hold_accepts_fractions_of_seconds_as_ttl(self, isolated_swarm_dir: Path) -> None:
        locks = TaskLockManager("w")
        with locks.hold("t", ttl=1.5):
            info = locks.get_lock_info("t")
            assert info is not None
            assert info.ttl == 1.5

    @pytest.mark.parametrize("wait", [math.nan, "5"], ids=repr)
    def test_hold_refuses_an_invalid_wait(self, wait: Any, isolated_swarm_dir: Path) -> None:
        with (
            pytest.raises(ValueError, match="wait"),
            TaskLockManager("w").hold("t", ttl=60, wait=wait),
        ):
            pass

    @pytest.mark.parametrize(
        "ttl", [ttl for ttl in BAD_TTLS if ttl], ids=lambda ttl: repr(ttl[:24])
    )
    def test_an_invalid_default_ttl_is_named(
        self, ttl: str, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        locks = TaskLockManager("w")
        monkeypatch.setenv("AI_SWARM_LOCK_TTL", ttl)
        with pytest.raises(ValueError, match="AI_SWARM_LOCK_TTL"):
            locks.acquire_lock("t")
        with pytest.raises(ValueError, match="AI_SWARM_LOCK_TTL"):
            locks.hold("t")
        assert os.listdir(isolated_swarm_dir / "locks") == []
        assert locks.acquire_lock("t", ttl=60), "a ttl that was given does not need the default"

    def test_the_default_ttl_does_not_reach_the_script(
        self, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        assert (
            lock(
                "acquire", "t", "w", env=script_environment(AI_SWARM_LOCK_TTL="rubbish")
            ).returncode
            == 0
        )
        assert json.loads((isolated_swarm_dir / "locks" / "t.lock").read_text())["ttl"] is None

    def test_an_empty_default_ttl_counts_as_unset(
        self, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AI_SWARM_LOCK_TTL", "")
        locks = TaskLockManager("w")
        assert locks.acquire_lock("t")
        info = locks.get_lock_info("t")
        assert info is not None
        assert info.ttl == 300

    @pytest.mark.parametrize(
        "size",
        ["abc", "0", "-1", "1.5", " 5", "1k", "٣", "9" * 5000],
        ids=lambda size: repr(size[:24]),
    )
    def test_an_invalid_log_size_is_named(
        self, size: str, log: Run, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SWARM_LOG_MAX_BYTES", size)
        expect_refusal(
            log("append", "START", "w", "t", env=script_environment()),
            isolated_swarm_dir,
            "SWARM_LOG_MAX_BYTES",
        )
        with pytest.raises(ValueError, match="SWARM_LOG_MAX_BYTES"):
            StatusBroadcaster("w").broadcast_start("t")
        assert not (isolated_swarm_dir / "status.log").exists()


class TestCalls:
    @pytest.mark.parametrize("bad", BAD_CALLS, ids=called)
    def test_a_malformed_command_is_refused(
        self, bad: tuple[str, list[str], str], isolated_swarm_dir: Path
    ) -> None:
        script, args, rule = bad
        expect_refusal(run(script, *args), isolated_swarm_dir, rule)

    @pytest.mark.parametrize("bad", BAD_CALLS, ids=called)
    def test_a_malformed_command_with_json_answers_with_one_object(
        self, bad: tuple[str, list[str], str], isolated_swarm_dir: Path
    ) -> None:
        script, args, _ = bad
        done = run(script, *args, "--json")
        assert done.returncode == 2
        assert done.stdout.count("\n") == 1
        answer = json.loads(done.stdout)
        assert (answer["schema_version"], answer["exit_code"]) == (1, 2)
        assert done.stderr == f"Error: {answer['error']}\n"
        assert not isolated_swarm_dir.exists()

    @pytest.mark.parametrize(
        "args",
        [
            ("acquire", "t", "w"),
            ("release", "t", "w"),
            ("heartbeat", "t", "w"),
            ("check", "t"),
            ("list",),
            ("why", "t"),
            ("release-all", "w"),
        ],
        ids=" ".join,
    )
    @pytest.mark.parametrize("held_by", ["no worker", "w", "another"])
    def test_every_json_answer_is_one_object(
        self, args: tuple[str, ...], held_by: str, lock: Run
    ) -> None:
        if held_by != "no worker":
            lock("acquire", "t", held_by)
        answer = json.loads(lock(*args, "--json").stdout)
        assert answer["schema_version"] == 1

    def test_an_unknown_option_that_is_not_utf_8_gives_a_readable_message(
        self, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        expect_refusal(lock("list", os.fsdecode(b"--\xff")), isolated_swarm_dir, "no option")

    @pytest.mark.parametrize(
        "meta",
        [[], "x", 5, {1: 2}, {"a": math.nan}, {"a": math.inf}, {"a": {1}}, {"a": b"x"}],
        ids=repr,
    )
    def test_meta_that_is_not_a_json_object_is_a_value_error_in_python(
        self, meta: Any, isolated_swarm_dir: Path
    ) -> None:
        with pytest.raises(ValueError, match="JSON"):
            StatusBroadcaster("w").broadcast_start("t", meta=meta)
        assert not (isolated_swarm_dir / "status.log").exists()

    @pytest.mark.parametrize("state", ["start", "PROGRESS", "", None, 5], ids=repr)
    def test_an_unknown_state_is_a_value_error_in_python(
        self, state: Any, isolated_swarm_dir: Path
    ) -> None:
        with pytest.raises(ValueError, match="START DONE WAIT ERROR HELP SKIP"):
            StatusBroadcaster("w").broadcast(state, "t")
        assert not (isolated_swarm_dir / "status.log").exists()

    @pytest.mark.parametrize("count", [-5, 1.5, "10", None, True], ids=repr)
    def test_an_invalid_count_is_a_value_error_in_python(
        self, count: Any, isolated_swarm_dir: Path
    ) -> None:
        with pytest.raises(ValueError, match="count"):
            StatusBroadcaster("w").tail(count)

    def test_after_two_dashes_everything_is_text(self, log: Run, isolated_swarm_dir: Path) -> None:
        for reason in ("--help", "--json", "-h", "--meta"):
            done = log("append", "HELP", "w", "t", "--", reason)
            assert done.returncode == 0
            assert json.loads(done.stdout)["reason"] == reason


class TestWhereStateIs:
    @pytest.mark.parametrize("script", [LOCK, LOG])
    def test_two_different_state_directories_are_refused_and_both_named(
        self, script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = tmp_path / "one", tmp_path / "other"
        monkeypatch.setenv("SWARM_STATE_DIR", str(one))
        monkeypatch.setenv("AI_SWARM_DIR", str(other))
        done = run(
            script, *(["acquire", "t", "w"] if script == LOCK else ["append", "START", "w", "t"])
        )
        expect_refusal(done, one, str(one))
        expect_refusal(done, other, str(other))
        for make in (TaskLockManager, StatusBroadcaster):
            with pytest.raises(ValueError, match="two state directories") as caught:
                make("w")
            assert str(one) in str(caught.value)
            assert str(other) in str(caught.value)
        assert os.listdir(tmp_path) == []

    def test_one_state_directory_in_two_spellings_is_accepted(
        self, lock: Run, isolated_swarm_dir: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "link").symlink_to(isolated_swarm_dir)
        spellings = [
            f"{isolated_swarm_dir}/",
            f"{tmp_path}/./swarm",
            f"{tmp_path}/x/../swarm",
            str(tmp_path / "link"),
            "swarm",
        ]
        for number, spelling in enumerate(spellings):
            done = lock(
                "acquire",
                f"t{number}",
                "w",
                env=script_environment(SWARM_STATE_DIR=spelling),
                cwd=tmp_path,
            )
            assert (done.returncode, done.stderr) == (0, "")
        assert len(os.listdir(isolated_swarm_dir / "locks")) == len(spellings)

    @pytest.mark.parametrize("empty", ["SWARM_STATE_DIR", "AI_SWARM_DIR"])
    def test_an_empty_variable_counts_as_unset(
        self, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = {"SWARM_STATE_DIR": "AI_SWARM_DIR", "AI_SWARM_DIR": "SWARM_STATE_DIR"}[empty]
        monkeypatch.setenv(empty, "")
        monkeypatch.setenv(other, str(tmp_path / "here"))
        assert run(LOCK, "acquire", "t", "w").returncode == 0
        assert (tmp_path / "here" / "locks" / "t.lock").exists()

    def test_a_relative_state_directory_below_a_removed_one_is_explained(
        self, tmp_path: Path
    ) -> None:
        gone = tmp_path / "gone"
        gone.mkdir()
        command = (
            f"cd {shlex.quote(str(gone))} && rmdir {shlex.quote(str(gone))} && exec "
            f"{shlex.quote(LOCK)} check t"
        )
        done = run("bash", "-c", command, env=script_environment(AI_SWARM_DIR="state"))
        assert done.returncode == 3
        assert "standard input" not in done.stderr, "it is not standard input that is missing"


class TestForeignFiles:
    @pytest.mark.parametrize(
        "ttl",
        ["1e300", "1" + "0" * 400, "-1e300", '"1e300"', "1e15", '"NaN"', "[]", "true"],
        ids=lambda ttl: ttl[:12],
    )
    def test_an_absurd_ttl_in_a_lock_file_is_no_crash(
        self, ttl: str, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        path = isolated_swarm_dir / "locks" / "t.lock"
        path.parent.mkdir(parents=True)
        for args in (
            ("check", "t"),
            ("list",),
            ("why", "t"),
            ("acquire", "t", "v", "60"),
            ("heartbeat", "t", "w"),
            ("release", "t", "w"),
        ):
            path.write_text(
                '{"task_id": "t", "worker": "w", "acquired_at": "2026-02-02T10:30:00Z", '
                f'"ttl": {ttl}}}'
            )
            done = lock(*args)
            assert "Traceback" not in done.stderr
            assert done.returncode in ((0, 1) if args[0] == "acquire" else (0,))


class TestHelp:
    @pytest.mark.parametrize("group", ["lock", "log"])
    def test_without_arguments_usage_is_on_stdout_and_exit_2(
        self, group: str, isolated_swarm_dir: Path
    ) -> None:
        script = LOCK if group == "lock" else LOG
        for command in ([script], [sys.executable, "-m", "swarm", group]):
            done = run(*command, cwd=ROOT)
            assert (done.returncode, done.stderr) == (2, "")
            assert done.stdout.startswith("Usage: ")
            assert "Examples:" in done.stdout
        assert not isolated_swarm_dir.exists()

    @pytest.mark.parametrize(
        ("script", "command"),
        [(LOCK, name) for name in LOCK_COMMANDS] + [(LOG, name) for name in LOG_COMMANDS],
    )
    def test_every_command_has_a_help(
        self, script: str, command: str, isolated_swarm_dir: Path
    ) -> None:
        done = run(script, command, "--help")
        assert (done.returncode, done.stderr) == (0, "")
        group = "lock" if script == LOCK else "log"
        assert done.stdout.startswith(f"Usage: swarm {group} {command}")
        assert f"\nExample:\n  swarm {group} {command}" in done.stdout
        assert not isolated_swarm_dir.exists()

    @pytest.mark.parametrize("script", [LOCK, LOG])
    def test_help_names_every_command(self, script: str) -> None:
        done = run(script, "--help")
        assert done.returncode == 0
        for command in LOCK_COMMANDS if script == LOCK else LOG_COMMANDS:
            assert f"\n  {command} " in done.stdout or f"\n  {command}\n" in done.stdout

    def test_the_commands_are_those_of_the_specification(self) -> None:
        assert list(LOCK_COMMANDS) == [
            "acquire",
            "release",
            "heartbeat",
            "check",
            "list",
            "release-all",
            "break",
            "why",
        ]
        assert list(LOG_COMMANDS) == ["append", "tail", "query", "follow", "validate", "rotate"]


class TestOutput:
    @pytest.fixture
    def long(self, isolated_swarm_dir: Path) -> Path:
        """A state directory with more locks and records than a pipe holds."""
        locks = isolated_swarm_dir / "locks"
        locks.mkdir(parents=True)
        for number in range(1200):
            (locks / f"{number:04d}{'x' * 100}.lock").write_text('{"worker": "w"}')
        line = (
            json.dumps({"type": "START", "worker": "w", "task_id": "t", "reason": "x" * 200}) + "\n"
        )
        (isolated_swarm_dir / "status.log").write_text(line * 2000)
        return isolated_swarm_dir

    @pytest.mark.parametrize(
        "command",
        [
            f"{LOCK} list",
            f"{LOCK} list --json",
            f"{LOG} tail 2000",
            f"{LOG} query t",
            f"{LOG} follow --since 0:0",
            f"{LOG} validate",
        ],
        ids=lambda command: Path(command).name,
    )
    def test_a_closed_pipe_ends_a_command_quietly(self, command: str, long: Path) -> None:
        done = run(
            "bash",
            "-c",
            f'{command} | head -c 20 >/dev/null; echo "${{PIPESTATUS[0]}}"',
            timeout=20,
        )
        assert done.stderr == ""
        assert done.stdout.strip() in ("0", "141")

    @pytest.mark.parametrize(
        "command",
        [
            f"{LOCK} --help",
            f"{LOCK} list",
            f"{LOG} tail",
            f"{LOG} append START w t",
            f"{LOCK} check t --json",
        ],
    )
    def test_output_that_cannot_be_written_is_exit_3(
        self, command: str, isolated_swarm_dir: Path
    ) -> None:
        StatusBroadcaster("w").broadcast_start("t")
        done = run("bash", "-c", f"{command} >/dev/full")
        assert done.returncode == 3
        assert done.stderr.startswith("Error: ")
        assert "No space left" in done.stderr
        assert done.stderr.count("\n") == 1

    @pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
    def test_a_closed_stream_does_not_send_output_into_the_log(
        self, closed: str, isolated_swarm_dir: Path
    ) -> None:
        run("bash", "-c", f"{LOG} append START w t {closed}")
        assert (isolated_swarm_dir / "status.log").read_text().count("\n") == 1

    @pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8", "no_SUCH.locale", "ISO-8859-1"])
    def test_text_is_utf_8_under_any_locale(
        self, locale: str, lock: Run, log: Run, isolated_swarm_dir: Path, tmp_path: Path
    ) -> None:
        env = script_environment(
            **(latin_1(tmp_path) if locale == "ISO-8859-1" else {"LC_ALL": locale})
        )
        done = lock("acquire", "任务-é", "工人", env=env, encoding="utf-8")
        assert done.stdout.startswith("Lock acquired: 任务-é\n"), done.stderr
        assert (
            json.loads((isolated_swarm_dir / "locks" / "任务-é.lock").read_text())["worker"]
            == "工人"
        )
        assert lock("list", env=env, encoding="utf-8").stdout.startswith(
            "任务-é: Active (worker: 工人, "
        )
        appended = log(
            "append", "WAIT", "工人", "任务-é", "需要人工", env=env, encoding="utf-8"
        ).stdout
        assert '"reason": "需要人工"' in appended
        assert log("query", "任务-é", env=env, encoding="utf-8").stdout == appended
        refused = lock("release", "任务-é", "别人", env=env, encoding="utf-8")
        assert refused.returncode == 1
        assert "工人" in refused.stderr

    def test_colour_is_for_terminals_only(self, lock: Run) -> None:
        lock("acquire", "t", "w")
        assert "\x1b" not in lock("list").stdout
        assert "\x1b[" in on_a_terminal(LOCK, "list", TERM="xterm")
        assert on_a_terminal(LOCK, "list", TERM="xterm", NO_COLOR="1").startswith(
            "t: Active (worker: w, "
        )
        assert "\x1b[" in on_a_terminal(LOCK, "list", TERM="xterm", NO_COLOR=""), (
            "an empty NO_COLOR counts as unset"
        )

    def test_an_error_is_coloured_for_terminals_only(self, lock: Run) -> None:
        assert lock("check").stderr.startswith("Error: ")
        assert on_a_terminal(LOCK, "check", TERM="xterm").startswith("\x1b[31mError:\x1b[0m ")
        assert on_a_terminal(LOCK, "check", TERM="xterm", NO_COLOR="1").startswith("Error: ")


class TestInterrupt:
    def test_an_interrupt_ends_follow_cleanly(self, isolated_swarm_dir: Path) -> None:
        StatusBroadcaster("w").broadcast_start("t")
        with started(LOG, "follow", "--since", "0:0") as follower:
            assert follower.stdout is not None
            assert json.loads(follower.stdout.readline())["task_id"] == "t"
            expect_clean_interrupt(follower)

    def test_an_interrupt_ends_follow_of_an_empty_log_and_creates_nothing(
        self, isolated_swarm_dir: Path
    ) -> None:
        with started(LOG, "follow") as follower:
            time.sleep(0.3)
            assert follower.poll() is None
            expect_clean_interrupt(follower)
        assert not isolated_swarm_dir.exists()

    def test_an_interrupted_acquire_leaves_no_lock_and_no_scratch_directory(
        self, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        lock("acquire", "t", "w")
        before = (isolated_swarm_dir / "locks" / "t.lock").read_bytes()
        with started(LOCK, "acquire", "t", "waiter", "--wait", "60") as waiter:
            wait_until(lambda: watches(waiter.pid))
            expect_clean_interrupt(waiter)
        assert (isolated_swarm_dir / "locks" / "t.lock").read_bytes() == before
        assert os.listdir(isolated_swarm_dir / ".locks" / "scratch") == []
        assert os.listdir(isolated_swarm_dir / ".locks" / "intents") == []
        assert lock("release", "t", "w").returncode == 0
        assert lock("list").stdout == "No locks\n"

    def test_an_interrupt_during_imports_is_clean(
        self, isolated_swarm_dir: Path, tmp_path: Path
    ) -> None:
        hook = tmp_path / "hook.py"
        hook.write_text(
            "import os, signal, sys\n"
            "def interrupt(event, args):\n"
            "    if event == 'import' and args[0] == 'swarm.cli.main':\n"
            "        os.kill(os.getpid(), signal.SIGINT)\n"
            "sys.addaudithook(interrupt)\n"
            "program = sys.argv.pop(1)\n"
            "exec(program)\n"
        )
        python = tmp_path / "python"
        skip_options = 'while [ "${1#-}" != "$1" ]; do shift; done'
        start = f"exec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(hook))}"
        python.write_text(f'#!/bin/sh\n{skip_options}\n{start} "$@"\n')
        python.chmod(0o755)
        done = run(
            "env",
            "--default-signal=INT",
            LOCK,
            "acquire",
            "t",
            "w",
            env=script_environment(SWARM_PYTHON=str(python)),
        )
        assert done.returncode in (130, -signal.SIGINT)
        assert "Traceback" not in done.stderr
        assert not isolated_swarm_dir.exists()


def on_a_terminal(*command: str, **environment: str) -> str:
    """Return the output of a command on a terminal."""
    master, slave = pty.openpty()
    try:
        with subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=script_environment(**environment)
        ) as process:
            os.close(slave)
            shown = b""
            while select.select([master], [], [], 20)[0]:
                try:
                    block = os.read(master, 65536)
                except OSError:  # the other end is closed
                    break
                if not block:
                    break
                shown += block
            process.wait(20)
    finally:
        os.close(master)
    return shown.decode()


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command that gets SIGINT, even where the caller of the tests ignores it."""
    process = subprocess.Popen(
        ["env", "--default-signal=INT", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=script_environment(),
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def expect_clean_interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert (out, err.strip()) == ("", "")


def watches(pid: int) -> bool:
    """Return whether a process waits for changes in a directory."""
    links = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(fd))
        except OSError:
            continue
    return "anon_inode:inotify" in links


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
