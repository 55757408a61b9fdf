"""The forms in which channels get an event, from a real server and real programs."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import sys
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import BadInput
from swarm.notify import post as posting
from swarm.notify import program
from swarm.notify.channel import Channel, Undelivered, checked
from swarm.notify.delivery import Delivery, missing_for
from swarm.notify.event import Event
from swarm.stores.secrets import agent_environment, known_secrets
from tests.notify.receiver import Receiver

EVENT = Event(
    "questions-0123",
    "questions",
    "2026-02-02T12:00:00.000Z",
    "api asks (q7)",
    "Which <!channel> database & why?",
    "api",
    "worker-1",
    {"question": "q7", "options": ["a", "b"]},
)
NOW = 1_770_000_000.0
SECRET = "s3cret-key"


def deliver(channel: Channel, event: Event = EVENT, directory: str = "") -> None:
    Delivery("shop", directory).deliver(checked(channel), event, NOW)


class TestWebhook:
    def test_the_event_comes_as_json_with_a_signature_over_time_and_body(
        self, receiver: Receiver
    ) -> None:
        deliver(Channel("c", "webhook", url=receiver.url("/h?x=1"), secret=SECRET))
        (got,) = receiver.requests
        assert got.path == "/h?x=1" and got.headers["Content-Type"] == "application/json"
        assert got.json == {
            "schema_version": 1,
            "id": "questions-0123",
            "kind": "questions",
            "priority": "high",
            "at": "2026-02-02T12:00:00.000Z",
            "swarm": "shop",
            "title": "api asks (q7)",
            "text": "Which <!channel> database & why?",
            "task": "api",
            "worker": "worker-1",
            "facts": {"question": "q7", "options": ["a", "b"]},
        }
        signed = got.headers["Swarm-Timestamp"].encode() + b"." + got.body
        digest = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
        assert got.headers["Swarm-Signature"] == f"v1={digest}"
        assert got.headers["Swarm-Timestamp"] == "1770000000"
        assert (got.headers["Swarm-Id"], got.headers["Swarm-Event"]) == (EVENT.id, "questions")

    def test_without_a_secret_there_is_no_signature(self, receiver: Receiver) -> None:
        deliver(Channel("c", "webhook", url=receiver.url()))
        assert receiver.requests[0].headers["Swarm-Signature"] is None

    def test_slack_gets_a_text_in_which_no_word_is_a_mention(self, receiver: Receiver) -> None:
        deliver(Channel("c", "webhook", url=receiver.url(), format="slack"))
        assert receiver.requests[0].json == {
            "text": "*[shop] api asks (q7)*\nWhich &lt;!channel&gt; database &amp; why?\n"
            "1. a\n2. b\nswarm answer q7 NUMBER"
        }

    def test_address_and_secret_may_be_in_variables(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        channel = Channel("c", "webhook", url_env="SWARM_NOTIFY_URL", secret_env="SWARM_NOTIFY_KEY")
        assert missing_for(channel) == "SWARM_NOTIFY_URL is not set"
        with pytest.raises(Undelivered, match="SWARM_NOTIFY_KEY is not set"):
            deliver(channel)
        monkeypatch.setenv("SWARM_NOTIFY_URL", receiver.url())
        monkeypatch.setenv("SWARM_NOTIFY_KEY", SECRET)
        assert missing_for(channel) == ""
        deliver(channel)
        assert receiver.requests[0].headers["Swarm-Signature"]

    def test_agents_get_no_variable_of_notifications(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SWARM_NOTIFY_KEY", SECRET)
        assert "SWARM_NOTIFY_KEY" not in agent_environment(store_for_agent=True)
        assert SECRET in known_secrets()


class TestTrouble:
    def test_an_error_of_the_server_is_told_without_secrets(self, receiver: Receiver) -> None:
        receiver.answer = 503
        receiver.body = f"no\x1b[2J {SECRET} at {receiver.url('/T000/B000/XXXX')}".encode()
        channel = Channel("c", "webhook", url=receiver.url("/T000/B000/XXXX"), secret=SECRET)
        with pytest.raises(Undelivered) as raised:
            deliver(channel)
        text = str(raised.value)
        assert "HTTP 503" in text and f"http://127.0.0.1:{receiver.port}/***" in text
        assert SECRET not in text and "XXXX" not in text and "\x1b" not in text

    @pytest.mark.parametrize("kind", ["ntfy", "webhook"])
    def test_a_server_that_repeats_parts_of_the_address_shows_none(
        self, kind: str, receiver: Receiver
    ) -> None:
        receiver.answer, receiver.reason = 404, "no /topicSECRET"
        receiver.body = b"Cannot POST /topicSECRET?token=QSECRET (top icSECRET)"
        with pytest.raises(Undelivered, match=r"HTTP 404 Not Found$") as raised:
            deliver(Channel("c", kind, url=receiver.url("/topicSECRET?token=QSECRET")))
        assert "SECRET" not in str(raised.value) and "Cannot" not in str(raised.value)

    def test_an_unknown_status_has_no_words(self, receiver: Receiver) -> None:
        receiver.answer, receiver.reason = 799, "SECRET"
        with pytest.raises(Undelivered, match=r"answers HTTP 799$"):
            deliver(Channel("c", "webhook", url=receiver.url()))

    def test_a_redirect_is_not_followed(self, receiver: Receiver) -> None:
        receiver.answer, receiver.headers = 307, {"Location": receiver.url("/other")}
        with pytest.raises(Undelivered, match="redirects"):
            deliver(Channel("c", "webhook", url=receiver.url(), secret=SECRET))
        assert [each.path for each in receiver.requests] == ["/hook"]

    def test_a_server_that_hangs_is_left(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(posting, "_QUIET", 0.2)
        receiver.answer = 0
        with pytest.raises(Undelivered, match="does not answer in time"):
            deliver(Channel("c", "webhook", url=receiver.url()))

    def test_a_server_that_answers_byte_by_byte_is_left(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(posting, "LIMIT", 0.5)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            child = os.fork()
            if not child:
                try:
                    wire = server.accept()[0]
                    wire.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                    while True:
                        wire.sendall(b"x")
                        time.sleep(0.05)
                finally:
                    os._exit(0)
            try:
                with pytest.raises(Undelivered):
                    deliver(Channel("c", "webhook", url=f"http://127.0.0.1:{port}/"))
            finally:
                os.kill(child, 9)
                os.waitpid(child, 0)

    def test_a_server_that_is_not_there_is_told(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        with pytest.raises(Undelivered, match="cannot be reached: Connection refused"):
            deliver(Channel("c", "webhook", url=f"http://127.0.0.1:{port}/secret"))

    @pytest.mark.parametrize(
        "url",
        [
            "ftp://example.org/",
            "example.org",
            "https://",
            "https://user:pass@example.org/",
            "http://example.org/",
            "https://example.org/ x",
            "https://example.org/\r\nHost: other",
            "https://example.org:99999999/",
            "https://exämple.org/",
            "https://[::1/secret",
        ],
    )
    def test_an_address_that_is_not_safe_is_refused_without_being_shown(self, url: str) -> None:
        with pytest.raises(BadInput) as raised:
            checked(Channel("c", "webhook", url=url))
        assert "pass" not in str(raised.value).replace("password", "")
        assert url.partition("://")[2][:9] not in str(raised.value) or len(url) < 12

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("example.org/x", "begins with https://"),
            ("https:///topic", "without a host"),
            ("https://:443/topic", "without a host"),
            ("https://[::1/topic", "invalid host"),
            ("https://exämple.org/", "host that is not ASCII"),
            ("https://example.org/töpic", "characters that are not ASCII"),
            ("https://example.org:x/", "invalid port"),
            ("https://example.org:65536/", "invalid port"),
            ("https://example.org:0/", "invalid port"),
            ("https://example.org/a b", "space"),
        ],
    )
    def test_the_reason_why_an_address_is_refused_is_told(self, url: str, reason: str) -> None:
        with pytest.raises(BadInput, match=reason):
            checked(Channel("c", "webhook", url=url))

    @pytest.mark.parametrize(
        ("name", "reason"),
        [("x" * 65, "too long: it has 65"), ("-x", "dash"), (".x", "dash"), ("a b", "spaces")],
    )
    def test_the_reason_why_a_name_is_refused_is_told(self, name: str, reason: str) -> None:
        with pytest.raises(BadInput, match=reason):
            checked(Channel(name, "desktop"))

    def test_another_server_needs_https_unless_the_user_allows_http(self) -> None:
        channel = Channel("c", "ntfy", url="http://nas.lan/topic", allow_http=True)
        assert checked(channel) is channel


class TestNtfy:
    def test_the_topic_gets_title_priority_tags_and_text(self, receiver: Receiver) -> None:
        deliver(Channel("c", "ntfy", url=receiver.url("/topic"), secret="tk_1"))
        (got,) = receiver.requests
        assert (got.path, got.body.decode()) == (
            "/topic",
            f"{EVENT.text}\n1. a\n2. b\nswarm answer q7 NUMBER",
        )
        names = ("Title", "Priority", "Tags", "Authorization")
        assert [got.headers[name] for name in names] == [
            "[shop] api asks (q7)",
            "4",
            "question",
            "Bearer tk_1",
        ]

    def test_a_question_without_options_is_answered_with_a_text(self, receiver: Receiver) -> None:
        question = Event("i", "questions", "", "api asks (q8)", "Why?", facts={"question": "q8"})
        deliver(Channel("c", "ntfy", url=receiver.url("/topic")), question)
        assert receiver.requests[0].body == b"Why?\nswarm answer q8 TEXT"

    def test_no_option_forges_a_line_and_many_are_counted(self, receiver: Receiver) -> None:
        options = ["a\nswarm answer q1 yes\x1b", "b" * 500, *"cdefghijk"]
        facts = {"question": "q8", "options": options}
        question = Event("i", "questions", "", "api asks (q8)", "Which?", facts=facts)
        deliver(Channel("c", "ntfy", url=receiver.url("/topic")), question)
        lines = receiver.requests[0].body.decode().split("\n")
        assert lines[:2] == ["Which?", "1. a swarm answer q1 yes\\x1b"] and len(lines[2]) < 100
        assert lines[-2:] == ["and 2 more: swarm questions", "swarm answer q8 NUMBER"]

    def test_a_title_cannot_bring_another_header(self, receiver: Receiver) -> None:
        evil = Event("i", "waits", "", "é\r\nAuthorization: x", "text")
        deliver(Channel("c", "ntfy", url=receiver.url("/topic")), evil)
        (got,) = receiver.requests
        assert got.headers["Authorization"] is None
        word = got.headers["Title"].removeprefix("=?UTF-8?B?").removesuffix("?=")
        assert b64decode(word).decode() == "[shop] é Authorization: x"


class TestPrograms:
    def run(self, tmp_path: Path, code: str, *words: str) -> Any:
        out = tmp_path / "out.json"
        script = f"import json, os, sys\nout = {str(out)!r}\n{code}"
        deliver(Channel("c", "command", command=(sys.executable, "-c", script, *words)))
        return json.loads(out.read_text())

    def test_a_command_gets_the_event_on_standard_input_and_a_short_text(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SWARM_WEB_TOKEN", "t" * 16)
        monkeypatch.setenv("SWARM_NOTIFY_KEY", SECRET)
        code = (
            "given = json.load(sys.stdin)\n"
            "json.dump([given, sys.argv[1:], dict(os.environ), os.getpgrp() == os.getpid()], "
            "open(out, 'w'))"
        )
        given, words, variables, leads_group = self.run(tmp_path, code, "$HOME; id", "-x")
        assert given["id"] == EVENT.id and given["schema_version"] == 1
        assert words == ["$HOME; id", "-x"] and leads_group
        assert variables["SWARM_NOTIFY_TEXT"] == f"[shop] {EVENT.title}: {EVENT.text}"
        assert not {"SWARM_WEB_TOKEN", "SWARM_NOTIFY_KEY"} & set(variables)

    def test_a_command_that_fails_or_is_missing_is_told(self) -> None:
        with pytest.raises(Undelivered, match="exit code 3"):
            deliver(Channel("c", "command", command=("sh", "-c", "exit 3")))
        with pytest.raises(Undelivered, match="No such file"):
            deliver(Channel("c", "command", command=("/no/such/program",)))

    def test_a_command_that_hangs_is_ended_with_its_children(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(program, "LIMIT", 1.0)
        pids = tmp_path / "pids"
        script = f"sleep 100 & echo $! > {pids}; echo $$ >> {pids}; trap '' TERM; wait; sleep 100"
        with pytest.raises(Undelivered, match="was ended"):
            deliver(Channel("c", "command", command=("sh", "-c", script)))
        for pid in map(int, pids.read_text().split()):
            assert not is_running(pid)

    def test_a_desktop_gets_words_and_no_markup_or_options(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        for name in ("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS"):
            monkeypatch.delenv(name, raising=False)
        channel = Channel("c", "desktop")
        tool = tmp_path / "notify-send"
        tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/said\n')
        tool.chmod(0o755)
        assert "no desktop" in missing_for(channel)
        monkeypatch.setenv("DISPLAY", ":0")
        assert missing_for(channel) == ""
        deliver(channel)
        said = (tmp_path / "said").read_text().splitlines()
        assert said[-3:] == [
            "--",
            "[shop] api asks (q7)",
            "Which &lt;!channel&gt; database &amp; why?",
        ]


def is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
