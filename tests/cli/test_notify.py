"""`swarm notify`: channels are added, shown without secrets, tested and removed; workers,
pages and `swarm notify run` send.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.notify.channels import stored_channels
from swarm.notify.mailbox import decode
from swarm.notify.sender import mailbox_key
from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.file.store import FileStore
from tests.notify.receiver import Receiver, receiving
from tests.support.command_line import run
from tests.support.projects import MAIN, environment, project, swarm_in

SECRET = "t0p-secret-token"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture
def state(isolated_swarm_dir: Path) -> Path:
    return isolated_swarm_dir


def run_in(directory: Path, *args: str, **changes: str) -> None:
    done = swarm_in(directory, *args, **changes)
    assert done.returncode == 0, done.stderr


def start(directory: Path, *args: str, **changes: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", str(MAIN), *args],
        cwd=directory,
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class TestChannels:
    def test_a_channel_is_added_listed_tested_and_removed(
        self, state: Path, receiver: Receiver
    ) -> None:
        added = run("notify", "add", "webhook", receiver.url(), "--on", "questions,failures")
        assert added.code == 0 and b"swarm notify test webhook" in added.out
        (row,) = run("notify", "list", "--json").json["channels"]
        assert (row["name"], row["kind"], row["on"]) == (
            "webhook",
            "webhook",
            ["questions", "failures"],
        )
        assert run("notify", "test", "--json").json["channels"] == [
            {"name": "webhook", "sent": True, "error": None}
        ]
        assert receiver.kinds() == ["test"]
        receiver.answer = 404
        failed = run("notify", "test", "webhook")
        assert failed.code == 1 and b"HTTP 404" in failed.out
        assert run("notify", "remove", "webhook").code == 0
        assert run("notify", "list", "--json").json["channels"] == []
        assert run("notify", "remove", "webhook").code == 2
        assert run("notify", "test").code == 2

    def test_no_secret_is_shown_or_logged(
        self, state: Path, receiver: Receiver, tmp_path: Path
    ) -> None:
        receiver.answer, receiver.reason = 500, f"no /services/{SECRET}"
        receiver.body = f"Cannot POST /services/{SECRET}".encode()
        key = tmp_path / "key"
        key.write_text(f"{SECRET}\n")
        path = f"/services/{SECRET}"
        outputs = [
            run("notify", "add", "webhook", receiver.url(path), "--secret-file", str(key)),
            run(
                *("notify", "add", "ntfy", receiver.url(path), "--secret-file", str(key)),
                "--json",
            ),
            run("notify", "add", "command", "--", "false", SECRET),
            run("notify", "add", "webhook", receiver.url(path)),
            run("notify", "list"),
            run("notify", "list", "--json"),
            run("notify", "test"),
            run("doctor"),
            run("status", "--json"),
            run("notify", "remove", "webhook"),
        ]
        assert b"***" in outputs[4].out
        for each in outputs:
            assert SECRET.encode() not in each.out + each.err
        for log in ("status", "tasks"):
            assert SECRET.encode() not in b"".join(FileStore(str(state)).read_log(log)[0])

    @pytest.mark.parametrize(
        "words",
        [
            ["pigeon", "https://example.org/"],
            ["webhook"],
            ["webhook", "http://example.org/"],
            ["webhook", "https://u:p@example.org/"],
            ["ntfy", "https://example.org/", "--format", "slack"],
            ["desktop", "https://example.org/"],
            ["command"],
            ["webhook", "https://example.org/", "--on", "everything"],
            ["webhook", "https://example.org/", "--quiet", "night"],
            ["webhook", "https://example.org/", "--again", "1"],
            ["webhook", "https://example.org/", "--again", "nan"],
            ["webhook", "https://example.org/", "--secret-env", "PATH"],
            ["webhook", "https://example.org/", "--secret-file", "/no/such/file"],
            ["webhook", "https://example.org/", "--name", "a b"],
            ["webhook", "https://example.org/", "--", "true"],
        ],
    )
    def test_a_wrong_channel_is_refused_and_not_stored(self, state: Path, words: list[str]) -> None:
        answer = run("notify", "add", *words)
        assert answer.code == 2 and answer.err.startswith(b"Error: ")
        assert stored_channels(FileStore(str(state))) == []

    @pytest.mark.parametrize("text", ["1", "59.9", "nan", "soon", "9" * 19])
    def test_again_has_one_rule(self, state: Path, text: str) -> None:
        answer = run("notify", "add", "desktop", "--again", text)
        assert answer.code == 2 and b"seconds from 60 to" in answer.err
        assert f"--again is {text!r}".encode() in answer.err

    def test_a_name_that_looks_like_an_option_is_refused(self, state: Path) -> None:
        for words in (["--name", "-x"], ["--name=-x"]):
            assert run("notify", "add", "desktop", *words).code == 2
        assert stored_channels(FileStore(str(state))) == []

    def test_a_name_is_used_once(self, state: Path) -> None:
        assert run("notify", "add", "desktop").code == 0
        again = run("notify", "add", "desktop")
        assert again.code == 2 and b"swarm notify remove desktop" in again.err
        assert run("notify", "add", "desktop", "--name", "other").code == 0

    def test_a_variable_that_is_not_set_is_told(self, state: Path, receiver: Receiver) -> None:
        told = b"not on this machine: SWARM_NOTIFY_UNSET is not set"
        words = ("notify", "add", "webhook", receiver.url(), "--secret-env", "SWARM_NOTIFY_UNSET")
        added = run(*words)
        assert added.code == 0 and told in added.err
        assert told in run("notify", "list").out
        (row,) = run("notify", "list", "--json").json["channels"]
        assert row["problem"] == "SWARM_NOTIFY_UNSET is not set"
        assert b"SWARM_NOTIFY_UNSET is not set" in run("notify", "test").out
        assert receiver.requests == []

    def test_the_agent_of_a_task_cannot_add_allow_or_remove_a_channel(
        self, state: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert run("notify", "add", "desktop").code == 0
        monkeypatch.setenv("SWARM_TASK_ID", "a")
        monkeypatch.setenv("SWARM_TOKEN", "1")
        assert run("notify", "add", "command", "--", "true").code == 2
        assert run("notify", "allow").code == 2
        refused = run("notify", "remove", "desktop")
        assert refused.code == 2 and b"a person does it in a terminal" in refused.err
        assert [each.name for each in stored_channels(FileStore(str(state)))] == ["desktop"]


class TestSharedChannels:
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return project(tmp_path / "shop")

    def test_a_cloned_repository_runs_no_command_before_a_user_allows_it(
        self, place: Path, tmp_path: Path
    ) -> None:
        table = '[notify.mine]\nkind = "command"\ncommand = ["touch", "../{}"]\n'
        (place / "swarm.toml").write_text(table.format("ran"))
        refused = swarm_in(place, "notify", "test")
        assert refused.returncode == 1 and "not allowed" in refused.stdout
        assert "swarm notify allow mine" in swarm_in(place, "notify", "list").stdout
        run_in(place, "task", "add", "a", "--", "true")
        run_in(place, "worker", "--id", "1", "--until-empty")
        assert not (tmp_path / "ran").exists()
        allowed = swarm_in(place, "notify", "allow")
        assert allowed.returncode == 0 and "touch ../ran" in allowed.stdout.replace("'", "")
        assert swarm_in(place, "notify", "test").returncode == 0
        assert (tmp_path / "ran").exists()
        (place / "swarm.toml").write_text(table.format("changed"))
        assert swarm_in(place, "notify", "test").returncode == 1
        assert not (tmp_path / "changed").exists()

    def test_a_repository_sends_no_texts_away_before_a_user_allows_it(
        self, place: Path, receiver: Receiver
    ) -> None:
        table = f'[notify.theirs]\nkind = "webhook"\nurl = "{receiver.url()}"\n'
        (place / "swarm.toml").write_text(table)
        assert swarm_in(place, "notify", "test").returncode == 1
        run_in(place, "task", "add", "a", "--max-attempts", "1", "--", "false")
        run_in(place, "worker", "--id", "1", "--until-empty")
        assert receiver.requests == []
        assert swarm_in(place, "notify", "allow", "theirs").returncode == 0
        run_in(place, "task", "add", "b", "--", "true")
        run_in(place, "worker", "--id", "1", "--until-empty")
        assert receiver.kinds() == ["failures", "finished", "finished"]
        assert receiver.requests[0].json["swarm"] == "shop"

    def test_a_command_of_the_store_runs_only_where_a_user_allowed_it(self, tmp_path: Path) -> None:
        shared = str(tmp_path / "shared")
        here, there = str(tmp_path / "here"), str(tmp_path / "there")
        ran = tmp_path / "ran"
        add = ("notify", "add", "command", "--", "touch", str(ran))
        assert swarm_in(tmp_path, *add, SWARM_STORE=shared, SWARM_STATE_DIR=here).returncode == 0
        other = swarm_in(tmp_path, "notify", "test", SWARM_STORE=shared, SWARM_STATE_DIR=there)
        assert other.returncode == 1 and not ran.exists()
        own = swarm_in(tmp_path, "notify", "test", SWARM_STORE=shared, SWARM_STATE_DIR=here)
        assert own.returncode == 0 and ran.exists()

    def test_a_wrong_table_is_told_with_its_file(self, place: Path) -> None:
        (place / "swarm.toml").write_text('[notify.x]\nkind = "pigeon"\n')
        answer = swarm_in(place, "notify", "list")
        assert answer.returncode == 2 and "swarm.toml, line" in answer.stderr

    def test_an_invalid_channel_of_the_file_does_not_stop_the_others(
        self, place: Path, receiver: Receiver
    ) -> None:
        (place / "swarm.toml").write_text(
            f'[notify.good]\nkind = "webhook"\nurl = "{receiver.url()}"\n'
            '[notify.bad]\nkind = "ntfy"\nurl = "http://example.org/topic"\n'
        )
        run_in(place, "notify", "add", "webhook", receiver.url(), "--name", "mine")
        run_in(place, "notify", "allow", "good")
        run_in(place, "notify", "test", "good")
        listed = swarm_in(place, "notify", "list")
        assert listed.returncode == 0 and "[notify.bad] in swarm.toml" in listed.stdout
        rows = json.loads(swarm_in(place, "notify", "list", "--json").stdout)["channels"]
        assert [row["name"] for row in rows] == ["good", "mine", "bad"]
        assert [bool(row["problem"]) for row in rows] == [False, False, True]
        for command in (["test", "bad"], ["allow", "bad"], ["remove", "bad"]):
            answer = swarm_in(place, "notify", *command)
            assert answer.returncode == 2 and "[notify.bad]" in answer.stderr, command
        taken = swarm_in(place, "notify", "add", "desktop", "--name", "bad")
        assert taken.returncode == 2
        every = swarm_in(place, "notify", "test")
        assert every.returncode == 1 and "good: sent" in every.stdout
        assert "bad: failed: [notify.bad] in swarm.toml" in every.stdout
        run_in(place, "task", "add", "a", "--max-attempts", "1", "--", "false")
        run_in(place, "worker", "--id", "1", "--until-empty")
        assert receiver.kinds().count("failures") == 2

    def test_the_doctor_and_run_tell_an_invalid_channel(self, place: Path) -> None:
        (place / "swarm.toml").write_text('[notify.bad]\nkind = "webhook"\n')
        found = swarm_in(place, "doctor")
        assert "[notify.bad] in swarm.toml needs one address" in found.stdout
        assert found.returncode == 1 and "swarm.toml is valid" not in found.stdout
        child = start(place, "notify", "run")
        assert child.stderr is not None
        assert "[notify.bad] in swarm.toml" in child.stderr.readline()
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
        assert child.returncode == 0

    def test_store_and_file_cannot_use_the_same_name(self, place: Path) -> None:
        (place / "swarm.toml").write_text('[notify.x]\nkind = "desktop"\n')
        assert swarm_in(place, "notify", "add", "desktop", "--name", "x").returncode == 2
        assert swarm_in(place, "notify", "remove", "x").returncode == 2


class TestSenders:
    def test_a_worker_sends_what_happened_before_it_ends(
        self, tmp_path: Path, receiver: Receiver
    ) -> None:
        place = {"SWARM_STATE_DIR": str(tmp_path / "state")}
        run_in(tmp_path, "notify", "add", "webhook", receiver.url(), **place)
        swarm_in(tmp_path, "task", "add", "a", "--max-attempts", "1", "--", "false", **place)
        done = swarm_in(tmp_path, "worker", "--id", "1", "--until-empty", **place)
        assert done.returncode == 0
        assert receiver.kinds() == ["failures", "finished"]
        rows = json.loads(swarm_in(tmp_path, "notify", "list", "--json", **place).stdout)
        assert rows["channels"][0]["sent"] == 2 and rows["channels"][0]["last_sent"]

    @pytest.mark.parametrize("until_empty", [True, False])
    def test_a_worker_ends_promptly_while_a_webhook_hangs(
        self, until_empty: bool, tmp_path: Path, receiver: Receiver
    ) -> None:
        receiver.answer = 0
        place = {"SWARM_STATE_DIR": str(tmp_path / "state")}
        run_in(tmp_path, "notify", "add", "webhook", receiver.url(), **place)
        run_in(tmp_path, "task", "add", "a", "--max-attempts", "1", "--", "false", **place)
        words = ["--until-empty"] if until_empty else []
        child = start(tmp_path, "worker", "--id", "1", *words, **place)
        receiver.wait_for(1)
        begun = time.monotonic()
        if not until_empty:
            child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
        assert child.returncode == (0 if until_empty else 143)
        assert time.monotonic() - begun < 8, "a request may take 20 seconds"
        box = decode(FileStore(place["SWARM_STATE_DIR"]).read(mailbox_key("webhook")) or b"")
        assert box.waiting, "the next sender sends it"

    def test_notify_run_sends_until_it_is_stopped(self, tmp_path: Path, receiver: Receiver) -> None:
        path = tmp_path / "state"
        place = {"SWARM_STATE_DIR": str(path)}
        run_in(tmp_path, "notify", "add", "webhook", receiver.url(), **place)
        child = start(tmp_path, "notify", "run", **place)
        store = FileStore(str(path))
        queue = TaskQueue(store)
        queue.add("a", "x")
        claim = queue.claim("w")
        queue.ask("a", "w", claim.token, "Which database?")
        receiver.wait_for(1)
        StatusLog(store).append("HELP", "w", "b", "help", {"stalled": "no output for 600 s"})
        receiver.wait_for(2)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
        assert child.returncode == 0 and out.count("webhook: sent") == 2
        assert receiver.kinds() == ["questions", "stalls"]
        assert receiver.requests[0].json["facts"]["question"] == "q1"

    def test_the_page_sends_notifications(self, tmp_path: Path, receiver: Receiver) -> None:
        path = tmp_path / "state"
        place = {"SWARM_STATE_DIR": str(path)}
        run_in(tmp_path, "notify", "add", "webhook", receiver.url(), **place)
        child = start(tmp_path, "web", "--port", "0", **place)
        try:
            StatusLog(FileStore(str(path))).append("WAIT", "w", "a", "look here")
            assert receiver.wait_for(1)[0].json["text"] == "look here"
        finally:
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=60)
        assert child.returncode == 0

    def test_an_agent_does_not_get_the_secrets(self, tmp_path: Path) -> None:
        place = {"SWARM_STATE_DIR": str(tmp_path / "state"), "SWARM_NOTIFY_KEY": SECRET}
        words = ("--", "sh", "-c", f"env > {tmp_path}/env")
        run_in(tmp_path, "task", "add", "a", *words, **place)
        assert swarm_in(tmp_path, "worker", "--id", "1", "--until-empty", **place).returncode == 0
        text = (tmp_path / "env").read_text()
        assert SECRET not in text and os.environ["PATH"] in text
