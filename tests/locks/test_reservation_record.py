"""The record of a reservation: the fields, and which records are invalid."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from swarm.locks.reservation_record import ASKING, HELD, Terms, decode
from swarm.system import process
from tests.conftest import HandClock


def test_a_record_that_was_encoded_is_decoded_to_the_same_fields(clock: HandClock) -> None:
    for terms in (
        Terms("src/api", "w", task="t", token=7),
        Terms("src/*.py", "w", ttl=60, process=process.identity()),
    ):
        for phase in (ASKING, HELD):
            record = terms.record(phase, "abc", clock)
            read = decode(record.encode(), terms.pattern)
            assert read is not None and read.encode() == record.encode()
            assert (read.pattern, read.phase, read.worker, read.request) == (
                terms.pattern,
                phase,
                "w",
                "abc",
            )
            assert (read.task, read.token, read.lease.ttl) == (terms.task, terms.token, terms.ttl)
            assert read.lease.is_bound == bool(terms.process)


def test_a_record_cannot_be_assigned_to(clock: HandClock) -> None:
    record = Terms("src", "w", ttl=60).record(ASKING, "abc", clock)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.phase = HELD  # type: ignore[misc]


def test_a_refreshed_record_differs_only_in_its_lease(clock: HandClock) -> None:
    record = Terms("src", "w", ttl=60).record(HELD, "abc", clock)
    clock.pass_time(5)
    refreshed = record.refreshed(clock)
    assert dataclasses.replace(refreshed, lease=record.lease) == record
    assert refreshed.lease.acquired_at == record.lease.acquired_at
    assert refreshed.lease.expires_at > record.lease.expires_at


def test_a_lease_begins_now_and_may_have_been_reserved_earlier(clock: HandClock) -> None:
    record = Terms("src", "w", ttl=60).record(HELD, "abc", clock, since="2026-01-01T00:00:00.000Z")
    assert record.lease.acquired_at == "2026-01-01T00:00:00.000Z" < record.lease.heartbeat_at


@pytest.mark.parametrize(
    "changes",
    [
        {"pattern": "docs"},
        {"pattern": None},
        {"phase": "reserved"},
        {"phase": None},
        {"phase": ["held"]},
        {"task": None},
        {"token": "7"},
        {"token": True},
        {"token": 7.0},
        {"request": None},
        {"lease": None},
        {"lease": {}},
        {"lease": []},
        {"lease": {"worker": ""}},
    ],
)
def test_a_record_with_an_invalid_field_is_invalid(
    changes: dict[str, Any], clock: HandClock
) -> None:
    fields = json.loads(Terms("src", "w", ttl=60).record(HELD, "abc", clock).encode())
    assert decode(json.dumps(fields).encode(), "src") is not None
    assert decode(json.dumps(fields | changes).encode(), "src") is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"7"])
def test_a_record_that_is_no_json_object_is_invalid(data: bytes) -> None:
    assert decode(data, "src") is None
