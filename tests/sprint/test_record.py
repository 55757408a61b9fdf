"""What a sprint's lock file says, whatever stands in it, and whether its process is the
sprint that wrote it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as some

from swarm.errors import StoreError
from swarm.sprint.mutex import SprintMutex
from swarm.sprint.record import MAX_BYTES, Sprint, decode, new_sprint
from swarm.sprint.zombie import Verdict, judge
from swarm.system import process
from swarm.system.clock import Clock, to_iso
from tests.conftest import ROOT, HandClock, script_environment
from tests.support.damage import DATES, RAW, broken
from tests.support.disks import needs_root
from tests.support.examples import SPRINT_LOCK
from tests.support.processes import fork

MANY = settings(max_examples=5 * settings().max_examples)
HOUR, DAY = 3600.0, 86400.0
NOBODY = 65534
FIVE = {
    "pid": "12345",
    "session_id": '"s"',
    "started_at": '"2026-02-07T22:30:00Z"',
    "epic_spec": '"e"',
    "lock_version": "1",
}


def lines(fields: dict[str, str]) -> bytes:
    """A lock file, from its keys and the values as they are written."""
    return "".join(f"{key}: {value}\n" for key, value in fields.items()).encode()


def edited(data: bytes, **changes: object) -> bytes:
    """A lock file with the values of some keys replaced, or left out (None), with an editor."""
    fields = dict(line.split(": ", 1) for line in data.decode().splitlines())
    assert set(changes) <= set(fields)
    fields |= {
        key: f'"{value}"' if isinstance(value, str) else str(value)
        for key, value in changes.items()
    }
    return lines({key: value for key, value in fields.items() if changes.get(key, "") is not None})


def written(pid: int, clock: Clock) -> bytes:
    return new_sprint(pid, "s", "e", clock).encode()


def judged(data: bytes, clock: Clock) -> Verdict:
    sprint = decode(data)
    assert sprint is not None
    return judge(sprint, clock)


@pytest.fixture
def child() -> Iterator[int]:
    """A process that lives until the test ends."""
    pid = fork(time.sleep, 60)
    yield pid
    try:
        end(pid)
    except (ProcessLookupError, ChildProcessError):
        pass


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


class TestDecode:
    def test_the_example_of_the_workflow_is_read_with_its_comments(self) -> None:
        sprint = decode(SPRINT_LOCK.encode())
        assert sprint is not None
        assert (sprint.pid, sprint.session_id, sprint.epic_spec) == (
            12345,
            "sprint-2026-02-07-001",
            "epic5",
        )
        assert sprint.started_at == "2026-02-07T22:30:00Z"
        assert (sprint.who, sprint.stamp, sprint.lock_id) == ({"pid": 12345}, "", "")

    def test_the_five_keys_are_enough(self) -> None:
        sprint = decode(lines(FIVE))
        assert sprint is not None
        assert (sprint.pid, sprint.session_id, sprint.epic_spec, sprint.who) == (
            12345,
            "s",
            "e",
            {"pid": 12345},
        )

    @pytest.mark.parametrize(
        "data",
        [
            (
                b'{"pid": 12345, "session_id": "s", "started_at": "2026-02-07T22:30:00Z", '
                b'"epic_spec": "e", "lock_version": 1}'
            ),
            (
                b"---\npid: 12345\nsession_id: s\nstarted_at: 2026-02-07T22:30:00Z\nepic_spec: "
                b">-\n  "
                b"e\n...\n"
            ),
            (
                b"\xef\xbb\xbfpid: '12345'\r\nsession_id: 's'\r\nstarted_at: '2026-02-07 "
                b"22:30:00'\r\nepic_spec: e\r\n"
            ),
            (
                b"lock_version: 99\nepic_spec: e\nmore: [1]\nstarted_at: "
                b"2026-02-08T06:30+08:00\nsession_id: s\npid: 012345\n"
            ),
            (
                b"pid: 1\nsession_id: &s s\nstarted_at: 2026-02-07T22:30Z\nepic_spec: !t e\npid: "
                b"12345\n"
            ),
        ],
        ids=[
            "JSON",
            "a document",
            "CRLF",
            "another order, and more",
            "anchors, tags and a key twice",
        ],
    )
    def test_any_yaml_with_the_keys_is_read(self, data: bytes) -> None:
        sprint = decode(data)
        assert sprint is not None
        assert (sprint.pid, sprint.session_id, sprint.epic_spec) == (12345, "s", "e")
        now = datetime(2026, 2, 7, 23, 0, tzinfo=UTC).timestamp()
        assert judge(sprint, HandClock(now)).age_hours == pytest.approx(0.5)

    @pytest.mark.parametrize("key", ["pid", "session_id", "started_at", "epic_spec"])
    def test_each_of_four_keys_is_needed(self, key: str) -> None:
        assert decode(lines({name: value for name, value in FIVE.items() if name != key})) is None
        assert (
            decode(
                lines({key.upper() if name == key else name: value for name, value in FIVE.items()})
            )
            is None
        )

    def test_the_version_of_the_format_is_not_needed(self) -> None:
        assert (
            decode(lines({name: value for name, value in FIVE.items() if name != "lock_version"}))
            is not None
        )

    @pytest.mark.parametrize("wrong", ["[]", "[1]", "{}", "{a: 1}", "\n  - 1", "\n  a: 1"])
    @pytest.mark.parametrize("key", ["pid", "session_id", "started_at", "epic_spec"])
    def test_none_of_them_may_be_a_list_or_a_mapping(self, key: str, wrong: str) -> None:
        assert decode(lines({**FIVE, key: wrong})) is None

    @pytest.mark.parametrize(
        "key",
        [
            "lock_version",
            "host",
            "boot",
            "pid_ns",
            "time_ns",
            "start",
            "machine",
            "stamp",
            "lock_id",
        ],
    )
    def test_all_others_may(self, key: str) -> None:
        sprint = decode(lines({**FIVE, key: "[1]"}))
        assert sprint is not None
        assert (sprint.who, sprint.stamp, sprint.lock_id) == ({"pid": 12345}, "", "")

    @pytest.mark.parametrize(
        "wrong",
        [
            *(
                "",
                "0",
                "00",
                "-1",
                "+1",
                "1.0",
                "1.5",
                "0x10",
                "0o7",
                "1e3",
                "1_000",
                "1 2",
                "true",
                "yes",
                "null",
                "~",
                "nan",
            ),
            *(
                '" 1"',
                '"1 "',
                "'1\t'",
                '"1\\n"',
                '"\\u0661"',
                "\u0661",
                '"\\u00b2"',
                "9" * 19,
                "9" * 5000,
                "!!int 0",
            ),
        ],
    )
    def test_a_pid_is_a_whole_number_above_zero(self, wrong: str) -> None:
        assert decode(lines({**FIVE, "pid": wrong})) is None

    @pytest.mark.parametrize(
        ("written", "pid"), [("1", 1), ("  7  ", 7), ("'7'", 7), ("007", 7), ("9" * 18, 10**18 - 1)]
    )
    def test_every_yaml_form_of_the_lock_is_read(self, written: str, pid: int) -> None:
        sprint = decode(lines({**FIVE, "pid": written}))
        assert sprint is not None
        assert sprint.pid == pid and sprint.who == {"pid": pid}

    @pytest.mark.parametrize(
        "wrong",
        [
            "",
            "now",
            "yesterday",
            "1770000000",
            "2026-02-30",
            "2026-13-01",
            "22:30",
            "true",
            "~",
            "''",
        ],
    )
    def test_a_file_whose_started_at_is_no_time_is_invalid(self, wrong: str) -> None:
        assert decode(lines({**FIVE, "started_at": wrong})) is None

    @pytest.mark.parametrize(
        "data",
        [
            *(
                b"",
                b"\n",
                b"# a comment\n",
                b"\xef\xbb\xbf",
                b"\x00",
                b"\x00" * 4096,
                b"\xff\xfe\x00",
                b"\x7fELF\x02\x01\x00",
            ),
            *(
                b"12345",
                b"12345\n",
                b"- pid: 12345",
                b"[]",
                b"null",
                b"pid",
                b"pid: 12345",
                b"{",
                b"a: b: c",
                b"\t",
                b"<<< HEAD",
            ),
            lines(FIVE).replace(b'"e"', b'"\xff"'),
            lines(FIVE).replace(b'"e"', b'"\x00"'),
            lines(FIVE).replace(b'"e"', b'"e'),
            lines(FIVE).decode().encode("utf-16"),
            lines(FIVE)[:-40],
            lines(FIVE) + b"deep: " + b"[" * 30000,
            lines(FIVE) + b"deep: " + b"[" * 5000 + b"]" * 5000,
            lines(FIVE) + b"junk: " + b"x" * 10_000_000,
            b"x" * 10_000_000,
        ],
        ids=lambda data: repr(data[-30:]),
    )
    def test_an_invalid_lock_file_is_a_zombie(self, data: bytes, clock: HandClock) -> None:
        assert decode(data) is None
        verdict = judge(None, clock)
        assert verdict.is_zombie
        assert (verdict.pid_alive, verdict.age_hours) == (False, None)
        assert verdict.why == "the lock file is invalid"
        assert verdict.warning == "Lock file exists but has invalid format"

    def test_a_lock_file_has_at_most_64_kib(self) -> None:
        def of(size: int) -> bytes:
            return lines(FIVE).ljust(size - 1) + b"\n"

        assert MAX_BYTES == 65536
        assert decode(of(MAX_BYTES)) is not None
        assert decode(of(MAX_BYTES + 1)) is None

    def test_a_start_time_that_is_no_number_is_ignored(self) -> None:
        for start, known in (
            ("5", {"start": 5}),
            ("0", {"start": 0}),
            ("-5", {}),
            ("x", {}),
            ("9" * 19, {}),
            ('"7"', {"start": 7}),
        ):
            sprint = decode(lines({**FIVE, "start": start}))
            assert sprint is not None
            assert sprint.who == {"pid": 12345, **known}

    def test_a_file_that_needs_a_missing_yaml_reader_is_an_error(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "yaml", None)
        with pytest.raises(StoreError, match=r"Run: \S+ -m pip install PyYAML$"):
            decode(b"{pid: 1}")
        assert decode(lines(FIVE)) is not None
        assert decode(b"") is None and decode(b"\xff") is None and decode(b"\x00") is None


class TestEncode:
    def test_an_encoded_sprint_starts_with_the_five_keys_of_the_workflow(
        self, clock: HandClock
    ) -> None:
        data = new_sprint(os.getpid(), "sprint-001", "epic5", clock).encode()
        assert data.decode().splitlines()[:5] == [
            f"pid: {os.getpid()}",
            'session_id: "sprint-001"',
            'started_at: "2026-02-02T02:40:00Z"',
            'epic_spec: "epic5"',
            "lock_version: 1",
        ]

    def test_an_encoded_sprint_names_its_process_and_start(
        self, child: int, clock: HandClock
    ) -> None:
        found = yaml.safe_load(written(child, clock))
        boot, time_ns = clock.identity()
        assert {key: found[key] for key in process.identity(child)} == process.identity(child)
        assert (found["boot"], found["time_ns"]) == (boot, time_ns)
        assert found["stamp"] == "2026-02-02T02:40:00Z 5000.000"
        assert len(found["lock_id"]) == 16 and int(found["lock_id"], 16) >= 0

    def test_no_two_files_are_the_same(self, clock: HandClock) -> None:
        assert len({written(os.getpid(), clock) for _ in range(200)}) == 200

    def test_without_a_boot_id_there_is_no_stamp(
        self, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(clock, "identity", lambda: ("", ""))
        data = written(os.getpid(), clock)
        assert yaml.safe_load(data)["stamp"] == ""
        clock.pass_time(HOUR)
        assert judged(data, clock).age_hours == 1.0, "by the wall clock"


@MANY
@given(
    some.text(),
    some.text(),
    some.text(),
    some.dictionaries(some.sampled_from(["host", "machine", "boot"]), some.text()),
)
@example(
    "a\u2028b\x85c\x00\ufeff\ufffe", "\\ud83d\\", "'\"#: ", {"host": "\U0001f600", "boot": "no"}
)
def test_whatever_it_says_is_read_again(
    session: str, epic: str, lock_id: str, who: dict[str, object]
) -> None:
    began = "2026-02-07T22:30:00Z"
    sprint = Sprint(
        pid=7,
        session_id=session,
        started_at=began,
        epic_spec=epic,
        who={"pid": 7, **who, "start": 5},
        stamp="x y",
        lock_id=lock_id,
    )
    found = decode(sprint.encode())
    assert found is not None
    assert (found.pid, found.session_id, found.started_at, found.epic_spec) == (
        7,
        session,
        began,
        epic,
    )
    assert (found.who, found.stamp, found.lock_id) == (
        {"pid": 7, "start": 5, **who},
        "x y",
        lock_id,
    )


# Any file at all ----------------------------------------------------------------------


def makes_sense(data: bytes) -> bool:
    """Whether a file is a sprint's, read once more with other means."""
    try:
        found = yaml.load(data.decode(), Loader=yaml.BaseLoader) if len(data) <= MAX_BYTES else None
    except (yaml.YAMLError, ValueError, RecursionError):
        return False
    if not isinstance(found, dict) or not all(
        isinstance(found.get(key), str) for key in FIVE if key != "lock_version"
    ):
        return False
    pid = found["pid"]
    if not (pid.isascii() and pid.isdecimal() and len(pid) <= 18 and int(pid)):
        return False
    try:
        moment = datetime.fromisoformat(found["started_at"].strip().upper())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() is not None
    except (ValueError, OverflowError):
        return False


VALUES = (
    RAW
    | some.sampled_from([f'"{date}"' for date in DATES if date.isprintable()])
    | some.integers().map(str)
)
STAMPS = some.sampled_from(
    [
        "",
        "x",
        " ",
        "5.0",
        "²",
        "٣",
        ".",
        "1.2.3",
        "-1",
        "nan",
        "inf",
        "9" * 400,
        "1e5",
        "4000.0",
        "6000",
    ]
)


@some.composite
def files(draw: some.DrawFn) -> bytes:
    """A sprint's lock file, with values replaced, and keys left out and repeated."""
    fields = [
        line.split(": ", 1) for line in written(os.getpid(), HandClock()).decode().splitlines()
    ]
    for at in draw(some.lists(some.integers(0, len(fields) - 1), max_size=3)):
        fields[at][1] = draw(VALUES)
    if draw(some.booleans()):
        said = draw(
            some.sampled_from(
                ["2026-02-02T02:40:00Z", "2026-02-02T02:40:00Z", "2026-02-02T02:40:01Z"]
            )
        )
        fields.append(["stamp", f'"{said} {draw(STAMPS)}"'])
    kept = [field for field in fields if draw(some.integers(0, 20))]
    return "".join(f"{key}: {value}\n" for key, value in kept).encode(errors="surrogatepass")


@settings(max_examples=20 * settings().max_examples)
@given(
    broken(files())
    | some.binary()
    | some.text().map(lambda text: text.encode(errors="surrogatepass"))
)
def test_any_file_is_a_sprint_or_a_zombie_and_never_an_error(data: bytes) -> None:
    clock = HandClock()
    sprint = decode(data)
    verdict = judge(sprint, clock)
    assert (sprint is not None) is makes_sense(data)
    assert verdict.why
    if sprint is None:
        assert verdict.is_zombie and verdict.warning
    else:
        assert sprint.encode().decode(), "it can be written again"
        assert isinstance(verdict.age_hours, float)
        assert verdict.is_zombie is (verdict.pid_alive is False or verdict.age_hours > 24)


# Whether it is running ----------------------------------------------------------------


class TestItsProcess:
    def test_a_living_process_is_a_running_sprint(self, child: int, clock: HandClock) -> None:
        for pid in (child, os.getpid(), 1):
            verdict = judged(written(pid, clock), clock)
            assert (verdict.pid_alive, verdict.is_zombie, verdict.warning) == (True, False, "")
            assert verdict.why == "its process is running"

    def test_a_file_with_only_a_pid_is_judged_by_the_pid(
        self, child: int, clock: HandClock
    ) -> None:
        data = lines({**FIVE, "pid": str(child), "started_at": to_iso(clock.now())})
        assert judged(data, clock).pid_alive is True
        end(child)
        assert judged(data, clock).pid_alive is False

    def test_a_sprint_whose_process_has_ended_is_a_zombie(
        self, child: int, clock: HandClock
    ) -> None:
        data = written(child, clock)
        end(child)
        verdict = judged(data, clock)
        assert (verdict.pid_alive, verdict.is_zombie, verdict.warning) == (False, True, "")
        assert verdict.why == "its process is gone"

    def test_a_dead_process_that_was_not_reaped_is_a_zombie_sprint(
        self, child: int, clock: HandClock
    ) -> None:
        data = written(child, clock)
        os.kill(child, signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        os.kill(child, 0)  # the number is still taken
        assert judged(data, clock).pid_alive is False

    def test_a_reused_pid_is_not_the_sprint(self, child: int, clock: HandClock) -> None:
        data = written(child, clock)
        verdict = judged(edited(data, start=yaml.safe_load(data)["start"] - 1), clock)
        assert (verdict.pid_alive, verdict.is_zombie) == (False, True)
        assert verdict.why.startswith("its process is gone") and "PID" in verdict.why

    @needs_root
    def test_a_process_that_may_not_be_signalled_is_alive(self, clock: HandClock) -> None:
        data = written(os.getpid(), clock)
        root = os.getpid()
        assert judged(data, clock).pid_alive is True

        def judge_as_nobody() -> None:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            with pytest.raises(PermissionError):
                os.kill(root, 0)
            verdict = judged(data, clock)
            assert (verdict.pid_alive, verdict.is_zombie, verdict.warning) == (True, False, "")
            assert judged(edited(data, start=1), clock).pid_alive is False, (
                "what it may look at it does"
            )

        assert os.waitpid(fork(judge_as_nobody), 0)[1] == 0

    @pytest.mark.parametrize("pid", [2**31, 2**40, 10**18 - 1])
    def test_a_process_that_cannot_be_looked_up_is_a_zombie_with_a_warning(
        self, pid: int, clock: HandClock
    ) -> None:
        with pytest.raises(OverflowError):
            os.kill(pid, 0)
        verdict = judged(lines({**FIVE, "pid": str(pid), "started_at": to_iso(clock.now())}), clock)
        assert (verdict.pid_alive, verdict.is_zombie) == (False, True)
        assert verdict.why == "its process could not be looked up"
        assert verdict.warning == f"PID check failed for PID {pid}"

    def test_a_sprint_from_before_a_restart_is_a_zombie(
        self, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_machine", lambda: "this machine")
        verdict = judged(edited(written(os.getpid(), clock), boot="an earlier boot"), clock)
        assert (verdict.pid_alive, verdict.is_zombie) == (False, True)
        assert verdict.why == "its process is gone: the machine was restarted"


class TestElsewhere:
    """Where we cannot look, age alone decides."""

    WHY = "PID {} belongs to another host or pid namespace: age alone decides"
    APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c")
    WRITE = """
import os, sys
from swarm.system.clock import Clock
from swarm.sprint.record import new_sprint
sys.stdout.buffer.write(new_sprint(os.getpid(), "s", "e", Clock()).encode())
"""
    JUDGE = """
import sys
from swarm.system.clock import Clock
from swarm.sprint.record import decode
from swarm.sprint.zombie import judge
verdict = judge(decode(sys.stdin.buffer.read()), Clock())
print(verdict.pid_alive, verdict.is_zombie, verdict.why, sep="|", end="")
"""

    def apart(self, program: str, given: bytes = b"") -> bytes:
        """What a program says in a pid namespace of its own."""
        settings: dict[str, Any] = {
            "input": given,
            "capture_output": True,
            "timeout": 30,
            "cwd": ROOT,
            "env": script_environment(),
        }
        done = subprocess.run([*self.APART, program], **settings)
        assert done.returncode == 0, done.stderr
        return bytes(done.stdout)

    @needs_root
    def test_a_sprint_of_another_pid_namespace(self) -> None:
        data = self.apart(self.WRITE)
        assert data.startswith(b"pid: 1\n"), "a number that is another process's here"
        clock = HandClock(time.time(), Clock().steady())
        self.expect_age_to_decide(data, clock, 1)

    @needs_root
    def test_a_sprint_seen_from_another_pid_namespace(self, child: int) -> None:
        data = written(child, Clock())
        why = self.WHY.format(child)
        assert self.apart(self.JUDGE, data).decode() == f"None|False|{why}"
        end(child)
        assert self.apart(self.JUDGE, data).decode() == f"None|False|{why}", "it cannot know"
        old = edited(data, started_at=to_iso(time.time() - DAY - 60))
        assert (
            self.apart(self.JUDGE, old).decode()
            == f"None|True|{why}, and it is older than 24 hours"
        )

    @pytest.mark.parametrize(
        "changes",
        [{"machine": "another"}, {"host": "another"}, {"machine": "another", "host": "another"}],
    )
    def test_a_sprint_of_another_host(
        self, changes: dict[str, str], child: int, clock: HandClock
    ) -> None:
        data = edited(written(child, clock), boot="another", **changes)
        end(child)
        self.expect_age_to_decide(data, clock, child)

    def test_a_sprint_of_another_host_that_names_no_boot(
        self, child: int, clock: HandClock
    ) -> None:
        data = edited(written(child, clock), host="another", boot=None, pid_ns=None)
        end(child)
        self.expect_age_to_decide(data, clock, child)

    def expect_age_to_decide(self, data: bytes, clock: HandClock, pid: int) -> None:
        verdict = judged(data, clock)
        assert (verdict.pid_alive, verdict.is_zombie, verdict.warning) == (None, False, "")
        assert verdict.why == self.WHY.format(pid)
        clock.pass_time(DAY - 60)
        assert not judged(data, clock).is_zombie
        clock.pass_time(120)
        verdict = judged(data, clock)
        assert (verdict.pid_alive, verdict.is_zombie, verdict.warning) == (None, True, "")
        assert verdict.why == self.WHY.format(pid) + ", and it is older than 24 hours"


class TestItsAge:
    def test_after_24_hours_a_sprint_is_a_zombie_although_its_process_lives(
        self, clock: HandClock
    ) -> None:
        data = written(os.getpid(), clock)
        clock.pass_time(DAY)
        verdict = judged(data, clock)
        assert (verdict.age_hours, verdict.is_zombie, verdict.why) == (
            24.0,
            False,
            "its process is running",
        ), "exactly 24 is not"
        clock.pass_time(0.01)
        verdict = judged(data, clock)
        assert (verdict.pid_alive, verdict.is_zombie) == (True, True)
        assert verdict.why == "its process is running, and it is older than 24 hours"

    def test_without_a_stamp_the_wall_clock_gives_the_age(self, clock: HandClock) -> None:
        data = lines({**FIVE, "pid": str(os.getpid()), "started_at": "2026-02-01T02:40:00Z"})
        assert judged(data, clock).age_hours == 24.0
        assert not judged(data, clock).is_zombie
        clock.pass_time(1)
        assert judged(data, clock).is_zombie

    def test_the_first_second_of_all_counts_like_any_other(self) -> None:
        data = lines({**FIVE, "pid": str(os.getpid()), "started_at": "1970-01-01T00:00:00Z"})
        assert judged(data, HandClock(now=HOUR)).age_hours == 1.0

    def test_the_reason_for_a_gone_process_does_not_mention_age(
        self, child: int, clock: HandClock
    ) -> None:
        data = written(child, clock)
        end(child)
        clock.pass_time(2 * DAY)
        verdict = judged(data, clock)
        assert (verdict.age_hours, verdict.why) == (48.0, "its process is gone")

    def test_the_shown_age_is_rounded_and_the_judged_age_is_not(
        self, clock: HandClock, tmp_path: Path, child: int
    ) -> None:
        mutex = SprintMutex(tmp_path, clock=clock, ask=lambda question: False)
        assert mutex.acquire("s", "e", pid=child)["status"] == "acquired"
        clock.pass_time(24.04 * HOUR)
        answer = mutex.check()
        assert (answer["status"], answer["lock_info"]["age_hours"]) == ("zombie-detected", 24.0)

    @pytest.mark.parametrize("jump", [3 * DAY, -3 * DAY])
    def test_a_jump_of_the_wall_clock_changes_neither_age_nor_verdict(
        self, jump: float, clock: HandClock
    ) -> None:
        data = written(os.getpid(), clock)
        clock.pass_time(2 * HOUR)
        clock.jump(jump)
        verdict = judged(data, clock)
        assert (verdict.age_hours, verdict.is_zombie) == (2.0, False)
        clock.pass_time(23 * HOUR)
        assert judged(data, clock).is_zombie

    @pytest.mark.parametrize("jump", [3 * DAY, -3 * DAY])
    def test_a_file_without_a_stamp_has_only_the_wall_clock(
        self, jump: float, clock: HandClock
    ) -> None:
        data = edited(written(os.getpid(), clock), stamp=None)
        clock.jump(jump)
        verdict = judged(data, clock)
        assert (verdict.age_hours, verdict.is_zombie) == (jump / HOUR, jump > 0)

    def test_a_start_that_was_edited_counts(self, clock: HandClock) -> None:
        data = edited(written(os.getpid(), clock), started_at=to_iso(clock.now() - 25 * HOUR))
        verdict = judged(data, clock)
        assert (verdict.pid_alive, verdict.age_hours, verdict.is_zombie) == (True, 25.0, True)

    @pytest.mark.parametrize(
        "changes", [{"boot": None}, {"time_ns": None}, {"time_ns": "time:[1]"}, {"boot": "another"}]
    )
    def test_a_stamp_of_another_clock_does_not(
        self, changes: dict[str, Any], clock: HandClock
    ) -> None:
        data = edited(written(os.getpid(), clock), **changes)
        clock.jump(HOUR)
        assert judged(data, clock).age_hours == 1.0

    @pytest.mark.parametrize(
        "at",
        [
            "",
            ".",
            "x",
            "-5.0",
            "1.2.3",
            "nan",
            "inf",
            "²",
            "5000²",
            "9" * 400,
            "5000.1",
            " 5",
            "1e3",
        ],
    )
    def test_nor_does_a_stamp_that_no_clock_has_shown(self, at: str, clock: HandClock) -> None:
        data = edited(written(os.getpid(), clock), stamp=f"2026-02-02T02:40:00Z {at}")
        clock.jump(HOUR)
        assert judged(data, clock).age_hours == 1.0

    @pytest.mark.parametrize("at", ["1400", "1400.", "1400.000"])
    def test_a_stamp_is_a_number_of_seconds(self, at: str, clock: HandClock) -> None:
        data = edited(written(os.getpid(), clock), stamp=f"2026-02-02T02:40:00Z {at}")
        clock.jump(DAY)
        assert judged(data, clock).age_hours == 1.0

    @pytest.mark.parametrize(
        ("started_at", "age"),
        [
            ("2026-02-02T00:40:00Z", 2.0),
            ("2026-02-02T08:40:00+08:00", 2.0),
            ("2026-02-02T00:40:00", 2.0),
            ("2026-02-02 00:40", 2.0),
            ("2026-02-01", 26 + 2 / 3),
            ("2026-02-02T03:40:00Z", -1.0),
            ("9999-12-31T23:59:59Z", -69897861.33),
            ("0001-01-01T00:00:00Z", 17751554.67),
        ],
    )
    def test_any_time_is_an_age_and_one_to_come_is_below_zero(
        self, started_at: str, age: float, clock: HandClock
    ) -> None:
        verdict = judged(
            lines({**FIVE, "pid": str(os.getpid()), "started_at": f'"{started_at}"'}), clock
        )
        assert verdict.age_hours == pytest.approx(age)
        assert verdict.is_zombie is (age > 24)


@pytest.mark.parametrize(
    ("alive", "age", "zombie"),
    [
        *(
            (True, 24.0, False),
            (True, 24.000001, True),
            (True, -1.0, False),
            (True, None, False),
            (False, 0.0, True),
        ),
        *((False, None, True), (None, 24.0, False), (None, 25.0, True), (None, None, False)),
    ],
)
def test_a_zombie_has_no_process_or_is_older_than_24_hours(
    alive: bool | None, age: float | None, zombie: bool
) -> None:
    assert Verdict(alive, age, "").is_zombie is zombie


def test_a_new_sprint_equals_what_its_file_decodes_to() -> None:
    made = new_sprint(os.getppid(), "s", "e", Clock())
    read = decode(made.encode())
    assert read is not None
    assert [getattr(made, name) for name in Sprint.__slots__] == [
        getattr(read, name) for name in Sprint.__slots__
    ]
