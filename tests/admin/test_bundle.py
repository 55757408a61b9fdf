"""`swarm doctor --bundle`: what the file has, and which secrets and texts it never has."""

from __future__ import annotations

import json
import os
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from swarm.admin import bundle
from swarm.admin.redaction import Redaction
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.status.log import LOG, StatusLog
from swarm.stores.file.store import FileStore
from tests.support.command_line import run
from tests.support.projects import project, swarm_in

PARTS = [
    "README.txt",
    "versions.json",
    "doctor.json",
    "board.json",
    "status.jsonl",
    "queue.jsonl",
    "settings.json",
    "sizes.json",
]
TEXT = "the words of a person"


def read(path: Path) -> dict[str, str]:
    """The parts of a bundle by name, without its folder."""
    with tarfile.open(path) as archive:
        found = {}
        for entry in archive:
            file = archive.extractfile(entry)
            assert file and entry.mode == 0o600
            found[entry.name.partition("/")[2]] = file.read().decode()
        return found


@pytest.fixture
def home(isolated_swarm_dir: Path) -> Path:
    """A swarm in which people and agents have said something everywhere."""
    store = FileStore(str(isolated_swarm_dir))
    queue = TaskQueue(store)
    queue.add("todo", TEXT, meta={"note": TEXT})
    token = queue.claim("w", "todo").token
    asked = queue.ask("todo", "w", token, TEXT, options=[TEXT, "no"], about={"command": TEXT})
    queue.answer(asked.id, TEXT, "ann")
    queue.ask("todo", "w", token, f"{TEXT} again")
    StatusLog(store).append("WAIT", "w", "other", TEXT, {"note": TEXT, "retry_count": 3})
    store.append(LOG, f'{{"state": "{TEXT}", "task_id": "{TEXT}"}}'.encode())
    store.append(LOG, TEXT.encode())
    LockTable(store).acquire("mine", "w", 300)
    results = isolated_swarm_dir / "results"
    results.mkdir(exist_ok=True)
    (results / f"todo.{token}.txt").write_text(f"{TEXT}\n")
    store.close()
    return isolated_swarm_dir


def make(tmp_path: Path, *options: str) -> dict[str, str]:
    path = tmp_path / "made.tar.gz"
    path.unlink(missing_ok=True)
    answer = run("doctor", "--bundle", str(path), *options)
    assert answer.code == 0, answer.err
    return read(path)


def test_a_bundle_has_all_parts_and_is_readable_by_its_owner_alone(
    home: Path, tmp_path: Path
) -> None:
    path = tmp_path / "b.tar.gz"
    old = os.umask(0)
    try:
        answer = run("doctor", "--bundle", str(path), "--json").json
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (answer["bundle"], answer["bytes"]) == (str(path), path.stat().st_size)
    assert [each["name"] for each in answer["files"]] == PARTS == list(read(path))
    parts = read(path)
    assert all(name in parts["README.txt"] for name in PARTS[1:])
    assert json.loads(parts["board.json"])["queue"]["asking"] == 1
    assert "log" in {check["name"] for check in json.loads(parts["doctor.json"])}
    assert json.loads(parts["sizes.json"])["folders"]["results"]["files"] == 1
    events = [json.loads(line) for line in parts["queue.jsonl"].splitlines()]
    assert [event["op"] for event in events][:2] == ["add", "claim"]
    assert events[1]["token"] == 1 and events[1]["worker"] == "w"


def test_texts_of_agents_and_users_are_in_it_only_if_the_user_wants_them(
    home: Path, tmp_path: Path
) -> None:
    without = make(tmp_path)
    assert [name for name, text in without.items() if TEXT in text] == []
    waits = [json.loads(line) for line in without["status.jsonl"].splitlines()]
    (wait,) = (each for each in waits if each.get("task_id") == "other")
    assert wait["reason"] == f"… ({len(TEXT)} characters)" and wait["meta"]["retry_count"] == 3
    assert waits[-1] == {"invalid_line": len(TEXT)}
    having = {name for name, text in make(tmp_path, "--with-texts").items() if TEXT in text}
    assert having == {"board.json", "status.jsonl", "queue.jsonl", "outputs/01.txt"}


SECRETS = {
    "SWARM_WEB_TOKEN": "page-token-of-this-test",
    "SWARM_NOTIFY_SLACK": "https://hooks.slack.example/services/T0/B0/hook-of-this-test",
    "ANTHROPIC_API_KEY": "key-of-this-test",
    "SOME_PASSWORD": "password/of@this test",
}
OTHERS = {
    "store-password": "postgres://me:store-password@db.example/swarm",
    "pass/with@more": "redis://:pass/with@more@db.example:6379/0",
    "in-a-path": "see https://ntfy.example/in-a-path",
    "in-a-query": "http://127.0.0.1:8765/?token=in-a-query",
    "sk-ant-abcdefgh12345": "use sk-ant-abcdefgh12345 now",
    "assigned-value": "DEPLOY_TOKEN=assigned-value make",
    "quoted value": "api_key: 'quoted value'",
    "header-value-1": "curl -H 'Authorization: Bearer header-value-1'",
    "option-value": "tool --password option-value",
    "MIIEow": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("options", [(), ("--with-texts",)])
def test_a_bundle_has_no_secret(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    store = FileStore(str(home))
    log, queue = StatusLog(store), TaskQueue(store)
    texts = [*(f"it is {value}." for value in SECRETS.values()), *OTHERS.values()]
    for at, text in enumerate(texts):
        log.append("WAIT", "w", f"t{at}", text, {"password": "in-meta", "pin_secret": 1234567})
        queue.add(f"t{at}", text)
    (home / "results" / "big.txt").write_text("\n".join(texts))
    whole = "".join(make(tmp_path, *options).values())
    assert [name for name, value in SECRETS.items() if value in whole] == []
    assert [secret for secret in OTHERS if secret in whole] == []
    assert "in-meta" not in whole and "1234567" not in whole
    assert '"SWARM_WEB_TOKEN"' in whole, "the names of variables are told"


def test_swarm_toml_is_in_it_without_channels_and_secrets(tmp_path: Path) -> None:
    directory = project(tmp_path / "project")
    (directory / "swarm.toml").write_text(
        'workers = 2\ncheck = "API_TOKEN=in-a-check make"\n[notify.phone]\nkind = "ntfy"\n'
        'url = "https://ntfy.example/topic-of-this-test"\n[notify.own]\nkind = "command"\n'
        'command = ["./tell.sh", "argument-of-this-test"]\n'
    )
    done = swarm_in(directory, "doctor", "--bundle", "b.tar.gz")
    assert done.returncode == 0, done.stderr
    found = json.loads(read(directory / "b.tar.gz")["settings.json"])["swarm.toml"]
    assert found["workers"] == 2 and found["check"] == "API_TOKEN=… make"
    assert found["notify"] == [{"kind": "ntfy"}, {"kind": "command"}]


def test_a_broken_swarm_has_a_bundle_too(
    isolated_swarm_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolated_swarm_dir.write_text("no directory")
    parts = make(tmp_path)
    assert "error" in json.loads(parts["board.json"])
    assert any(check["state"] == "fault" for check in json.loads(parts["doctor.json"]))
    isolated_swarm_dir.unlink()
    monkeypatch.setenv("SWARM_STORE", "redis://:the-password@127.0.0.1:1/0")
    whole = make(tmp_path)
    assert "error" in json.loads(whole["status.jsonl"])
    assert "the-password" not in "".join(whole.values())


class TestFile:
    def test_an_existing_file_is_never_overwritten(self, home: Path, tmp_path: Path) -> None:
        path = tmp_path / "kept"
        path.write_text("mine")
        answer = run("doctor", "--bundle", str(path))
        assert answer.code == 2 and b"exists already" in answer.err
        assert path.read_text() == "mine"
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "elsewhere")
        assert run("doctor", "--bundle", str(link)).code == 2
        assert not (tmp_path / "elsewhere").exists()

    def test_a_missing_directory_is_named(self, home: Path, tmp_path: Path) -> None:
        answer = run("doctor", "--bundle", str(tmp_path / "none" / "b"))
        assert answer.code == 2 and b"No such file or directory" in answer.err

    def test_a_failed_write_leaves_no_file(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(bundle, "_pack", full)
        answer = run("doctor", "--bundle", str(tmp_path / "b"))
        assert answer.code == 3 and b"No space left on device" in answer.err
        assert not (tmp_path / "b").exists()

    def test_options_of_the_bundle_need_the_bundle(self, home: Path) -> None:
        assert run("doctor", "--with-texts").code == 2
        assert run("doctor", "some-file").code == 2


@pytest.mark.parametrize(
    "text",
    [
        "the token 17 of worker-1 is over",
        "token: 17",
        "see https://example.org.",
        "swarm lock acquire task-001 worker-0 300",
        "1,200 input_tokens",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redaction().text(text) == text
