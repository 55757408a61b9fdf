"""The checks give the verdicts of the schemas, and `swarm log validate` names each kind
of fault.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from swarm import TaskLockManager
from swarm.admin import validation
from swarm.queue.usage import Usage, UsageLog
from swarm.status.log import STATES
from swarm.stores.file.store import FileStore
from tests.conftest import Run
from tests.support.examples import INVALID, LOCK, RECORD, VALID
from tests.support.schemas import SCHEMAS

CHECKS = {"status-record": validation.check_record, "lock": validation.check_lock}


def cases(of: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, values in of.items() for value in values]


# Our checks and the schemas -----------------------------------------------------------

TEXTS = some.sampled_from(
    [*STATES, "", "start", "2026", "2026-02-02T10:30:00Z", "never", "٢٠٢٦", "\n2026"]
) | some.text(max_size=5)
NUMBERS = (
    some.sampled_from([0, 1, 1.0, 0.5, -1, 315360000, 315360000.5, 315360001, 10**400])
    | some.integers()
    | some.floats(allow_nan=False)
)
SCALARS = some.none() | some.booleans() | NUMBERS | TEXTS
VALUES = some.recursive(
    SCALARS,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def nearly(valid: dict[str, Any]) -> some.SearchStrategy[dict[str, Any]]:
    """The record with some keys left out, and some values replaced by anything."""
    return some.fixed_dictionaries(
        {}, optional={key: some.just(value) | VALUES for key, value in valid.items()}
    )


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def expect_agreement(name: str, value: object) -> bool:
    """Return whether the value is valid. Fail if our check and the library differ."""
    ours = not list(CHECKS[name](value))
    theirs = jsonschema.Draft202012Validator(SCHEMAS[name]).is_valid(value)
    assert ours == theirs, f"we say {ours}, jsonschema says {theirs}: {value!r}"
    return ours


@settings(max_examples=7 * settings().max_examples)
@given(nearly(RECORD) | VALUES)
@example({**RECORD, "timestamp": "٢٠٢٦"})
def test_a_status_record_is_judged_as_by_the_jsonschema_library(value: object) -> None:
    expect_agreement("status-record", value)


@settings(max_examples=7 * settings().max_examples)
@given(nearly(LOCK) | VALUES)
@example({**LOCK, "ttl": True})
def test_a_lock_file_is_judged_as_by_the_jsonschema_library(value: object) -> None:
    expect_agreement("lock", value)


@pytest.mark.parametrize(("name", "value"), cases(VALID))
def test_our_checks_and_the_schemas_accept_valid_examples(name: str, value: object) -> None:
    assert expect_agreement(name, value)


@pytest.mark.parametrize(("name", "value"), cases(INVALID))
def test_our_checks_and_the_schemas_refuse_invalid_examples(name: str, value: object) -> None:
    assert not expect_agreement(name, value)


@pytest.mark.parametrize(("name", "valid"), [("status-record", RECORD), ("lock", LOCK)])
def test_every_property_of_a_schema_is_checked(name: str, valid: dict[str, Any]) -> None:
    """A property that is added to a schema needs a check and a place in the example."""
    assert set(SCHEMAS[name]["properties"]) == set(valid)
    for key in valid:
        assert not expect_agreement(name, {**valid, key: ["nonsense"]})


# swarm log validate -------------------------------------------------------------------


def line(**changes: object) -> bytes:
    """A record as a line; None leaves a key out."""
    return (
        json.dumps(
            {key: value for key, value in {**RECORD, **changes}.items() if value is not None}
        ).encode()
        + b"\n"
    )


def lock_text(**changes: object) -> bytes:
    return (
        json.dumps(
            {key: value for key, value in {**LOCK, **changes}.items() if value is not None}
        ).encode()
        + b"\n"
    )


def test_what_swarm_writes_itself_is_valid(lock: Run, log: Run) -> None:
    lock("acquire", "task-001", "worker-0", "300")
    lock("acquire", "任务-1", "worker-0")
    lock("heartbeat", "task-001", "worker-0")
    log("append", "START", "worker-0", "task-001")
    log(
        "append",
        "WAIT",
        "worker-0",
        "任务-1",
        "line\nbreak \u2028 中文",
        "--meta",
        '{"a": [1, null]}',
    )
    log("rotate")
    lock("break", "任务-1", "--yes")
    with TaskLockManager("worker-1").hold("bound", ttl=1.5):
        done = log("validate")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "Everything is valid\n")


def test_nothing_there_is_valid_and_nothing_is_created(log: Run, isolated_swarm_dir: Path) -> None:
    done = log("validate")
    assert (done.returncode, done.stdout) == (0, "")
    assert not isolated_swarm_dir.exists()


def test_what_other_programs_may_write_is_valid(log: Run, isolated_swarm_dir: Path) -> None:
    (isolated_swarm_dir / "locks").mkdir(parents=True)
    for number, value in enumerate(VALID["lock"]):
        (isolated_swarm_dir / "locks" / f"t{number}.lock").write_text(
            json.dumps({**value, "task_id": f"t{number}"}, indent=2)
        )
    (isolated_swarm_dir / "status.log").write_text(
        "\n".join(map(json.dumps, VALID["status-record"])) + "\n\n \n"
    )
    done = log("validate")
    assert done.returncode == 0
    warnings = done.stdout.splitlines()
    assert len(warnings) == 2 and all("Warning: " in text for text in warnings)


def test_states_of_other_programs_are_warnings_with_their_first_place(
    log: Run, isolated_swarm_dir: Path
) -> None:
    isolated_swarm_dir.mkdir()
    path = isolated_swarm_dir / "status.log"
    others = ["ASSIGNED", "ASSIGNED", "start", "\x1b[31mred"]
    path.write_bytes(b"".join([line(), *(line(type=None, state=each) for each in others)]))
    done = log("validate")
    assert done.returncode == 0
    assert done.stderr == "Everything is valid, 3 warnings\n"
    first, second, third = done.stdout.splitlines()
    assert first.startswith(f"{path}:2: Warning: 2 records have the state 'ASSIGNED'")
    assert second.startswith(f"{path}:4: Warning: 1 record has the state 'start'")
    assert "\x1b" not in third
    answer = json.loads(log("validate", "--json").stdout)
    assert (answer["valid"], answer["faults"]) == (True, [])
    assert [each["place"] for each in answer["warnings"]] == [f"{path}:{n}" for n in (2, 4, 5)]


def test_a_flood_of_invented_states_is_a_short_report(log: Run, isolated_swarm_dir: Path) -> None:
    isolated_swarm_dir.mkdir()
    lines = [line(type=f"S{number}", state=None) for number in range(1000)]
    (isolated_swarm_dir / "status.log").write_bytes(b"".join(lines))
    done = log("validate")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 101
    assert "900 records have another state" in done.stdout


FAULTY_LINES = {
    "torn": (line()[:-20], "the last line is not complete"),
    "not terminated": (line()[:-1], "the last line is not complete"),
    "not JSON": (b"hello\n", "not JSON: not a JSON value"),
    "two values": (line()[:-1] + line(), "not JSON: something follows the JSON value"),
    "not UTF-8": (b'{"task_id": "\xff"}\n', "not JSON: "),
    "not an object": (b"[1]\n", "it is [1], but must be an object"),
    "type is no text": (line(type=1, state=None), "type is 1, but must be a string"),
    "empty state": (line(type=None, state=""), "state is '', but must be a string that is"),
    "no type": (line(type=None, state=None), "type or state is missing"),
    "type is not state": (
        line(type="DONE"),
        "type is 'DONE' but state is 'WAIT': they must be equal",
    ),
    "reason is not message": (
        line(reason="a"),
        "reason is 'a' but message is 'needs a person': they must be equal",
    ),
    "no task_id": (line(task_id=None), "task_id is missing"),
    "empty task_id": (line(task_id=""), "task_id is '', but must be a string that is not empty"),
    "no timestamp": (line(timestamp=None), "timestamp is missing"),
    "timestamp is no text": (
        line(timestamp=1770000000),
        "timestamp is 1770000000, but must be a time",
    ),
    "timestamp is no time": (
        line(timestamp="2026-02-30T00:00:00Z"),
        "timestamp is '2026-02-30T00:00:00Z', which is not an ISO 8601 time",
    ),
    "meta is a list": (line(meta=[1]), "meta is [1], but must be an object"),
    "NaN in meta": (line(meta={"x": float("nan")}), "not JSON: NaN is not JSON"),
}


@pytest.mark.parametrize("fault", FAULTY_LINES)
def test_a_fault_in_the_log_is_named_with_file_and_line(
    fault: str, log: Run, isolated_swarm_dir: Path
) -> None:
    bad, text = FAULTY_LINES[fault]
    isolated_swarm_dir.mkdir()
    path = isolated_swarm_dir / "status.log"
    path.write_bytes(line() + line() + bad)
    done = log("validate")
    assert done.returncode == 1
    (shown,) = done.stdout.splitlines()
    assert shown.startswith(f"{path}:3: ")
    assert text in shown
    assert done.stderr == "1 fault found\n"


def test_a_fault_in_the_usage_is_named_with_file_and_line(
    log: Run, isolated_swarm_dir: Path
) -> None:
    UsageLog(FileStore(str(isolated_swarm_dir))).add("a", 1, "w", Usage("claude", turns=1))
    assert log("validate").returncode == 0
    path = isolated_swarm_dir / ".usage" / "usage.log"
    with path.open("ab") as file:
        file.write(b'{"task": "a", "token": 2, "at": "2026-02-02", "usage": {"turns": -1}}\n')
    done = log("validate")
    assert done.returncode == 1 and done.stdout.startswith(f"{path}:2: not a report of usage: ")
    assert "turns is -1" in done.stdout


FAULTY_LOCKS = {
    "empty": (b"", "not JSON: not a JSON value"),
    "torn": (lock_text()[:-30], "not JSON: "),
    "not an object": (b'"worker-0"\n', "it is 'worker-0', but must be an object"),
    "no worker": (lock_text(worker=None, worker_id=None), "worker or worker_id is missing"),
    "empty worker": (
        lock_text(worker="", worker_id=""),
        "worker is '', but must be a string that is not empty",
    ),
    "two workers": (
        lock_text(worker="worker-9"),
        "worker is 'worker-9' but worker_id is 'worker-0': they must be equal",
    ),
    "no task_id": (lock_text(task_id=None), "task_id is missing"),
    "of another task": (
        lock_text(task_id="task-999"),
        "task_id is 'task-999', but the file is named after 'task-001'",
    ),
    "ttl of 0": (lock_text(ttl=0), "ttl is 0, but must be a number of seconds from 1 to 315360000"),
    "ttl too long": (
        lock_text(ttl=315360001),
        "ttl is 315360001, but must be a number of seconds from 1 to 315360000",
    ),
    "ttl as text": (lock_text(ttl="300"), "ttl is '300', but must be a number"),
    "expires_at is no time": (
        lock_text(expires_at="2026-13-01"),
        "expires_at is '2026-13-01', which is not an ISO 8601 time",
    ),
    "heartbeat_at is no time": (
        lock_text(heartbeat_at="soon"),
        "heartbeat_at is 'soon', but must be a time",
    ),
    "token of 0": (lock_text(token=0), "token is 0, but must be a whole number from 1 on"),
    "holder is text": (lock_text(holder="me"), "holder is 'me', but must be an object"),
}


@pytest.mark.parametrize("fault", FAULTY_LOCKS)
def test_a_fault_in_a_lock_is_named_with_its_file(
    fault: str, log: Run, isolated_swarm_dir: Path
) -> None:
    bad, text = FAULTY_LOCKS[fault]
    path = isolated_swarm_dir / "locks" / "task-001.lock"
    path.parent.mkdir(parents=True)
    path.write_bytes(bad)
    (path.parent / "task-002.lock").write_bytes(lock_text(task_id="task-002"))
    done = log("validate")
    assert done.returncode == 1
    shown = done.stdout.splitlines()
    assert shown and all(fault.startswith(f"{path}: ") for fault in shown)
    assert any(text in fault for fault in shown)


def test_a_lock_file_with_a_name_that_no_task_may_have_is_a_fault(
    log: Run, isolated_swarm_dir: Path
) -> None:
    path = isolated_swarm_dir / "locks" / "-x.lock"
    path.parent.mkdir(parents=True)
    path.write_bytes(lock_text(task_id="-x"))
    done = log("validate")
    assert (done.returncode, done.stdout.startswith(f"{path}: ")) == (1, True)


def test_a_fault_in_a_part_that_was_put_aside_is_found_too(
    log: Run, isolated_swarm_dir: Path
) -> None:
    isolated_swarm_dir.mkdir()
    (isolated_swarm_dir / "status.log").write_bytes(line() + line(type="DONE"))
    log("rotate")
    log("append", "START", "w", "t")
    done = log("validate")
    (part,) = isolated_swarm_dir.glob(".status/*/part")
    assert (done.returncode, done.stdout) == (
        1,
        f"{part}:2: type is 'DONE' but state is 'WAIT': they must be equal\n",
    )


def test_every_fault_is_told_not_only_the_first(log: Run, isolated_swarm_dir: Path) -> None:
    (isolated_swarm_dir / "locks").mkdir(parents=True)
    (isolated_swarm_dir / "status.log").write_bytes(
        b"x\n" + line() + line(task_id=None, timestamp=None) + line()[:-1]
    )
    (isolated_swarm_dir / "locks" / "task-001.lock").write_bytes(b"")
    done = log("validate")
    places = [
        each.partition(": ")[0].removeprefix(f"{isolated_swarm_dir}/")
        for each in done.stdout.splitlines()
    ]
    assert places == [
        "status.log:1",
        "status.log:3",
        "status.log:3",
        "status.log:4",
        "locks/task-001.lock",
    ]
    assert (done.returncode, done.stderr) == (1, "5 faults found\n")


def test_the_answer_for_a_program_is_one_object(log: Run, isolated_swarm_dir: Path) -> None:
    assert json.loads(log("validate", "--json").stdout) == {
        "schema_version": 1,
        "valid": True,
        "faults": [],
        "warnings": [],
    }
    isolated_swarm_dir.mkdir()
    path = isolated_swarm_dir / "status.log"
    path.write_bytes(line() + b"x\n")
    done = log("validate", "--json")
    faults = [{"place": f"{path}:2", "fault": "not JSON: not a JSON value"}]
    assert json.loads(done.stdout) == {
        "schema_version": 1,
        "valid": False,
        "faults": faults,
        "warnings": [],
    }
    assert (done.returncode, done.stderr) == (1, "")
