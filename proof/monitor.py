"""What must be true after every step, whatever the processes do.

- **Verified**: a change of the lock file hits the record that its maker has compared. There are two exceptions. One is
  allowed: a record that has just been linked, whose maker has not been told so yet; that maker then must not be told that it has
  it. One lies in the nature of things: what a person wrote, or removed, after the maker of the change had looked.
- **One holder**: while a lease has not run out and no person has touched the record, the lock file says what its holder was
  told. So there is never a second one.
- **Tokens grow**: whoever is told that it has the lock has a larger token than all who had it before, in the order in which
  their records appeared.
- **True answers**: nobody is told no, or that it has lost its lock, while its own record stands; nothing fails with an
  error that has no place there.

The monitor keeps what it must remember as a value, a `Ghost`, and works out a new one from each event. It sees what is told
and what happens to the lock file, and nothing of how the code does it.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

FRESH, HELD, ENDED, LOST = "fresh", "held", "ended", "lost"
PERSON = -1

Grip = tuple[bytes, str] | None
"""The record that a process has put there and how it stands: FRESH, linked and not told yet; HELD; ENDED, linked and not told
yet, and its lease is already over; LOST, linked, not told yet, and gone."""


class Violation(Exception):
    """A promise is broken; the text says which and by whom. `move` is the one that broke it, if it was one."""

    move: tuple[int, int] | None = None


class Ghost(NamedTuple):
    """What must be remembered of the past."""

    grips: tuple[Grip, ...]
    unread: frozenset[int] = frozenset()  # who has not looked since a person touched the lock file; empty once others have
    by_person: bool = False  # the lock file is as a person left it
    orphan: bytes | None = None  # a record linked by somebody who was killed before it was told
    order: tuple[tuple[int, int], ...] = ()  # process and token of those who took it, as they came; PERSON once it was told


def begin(processes: int) -> Ghost:
    return Ghost((None,) * processes)


def after_event(ghost: Ghost, event: tuple[Any, ...]) -> Ghost:
    """After something happened to the lock file."""
    kind, who, *rest = event
    if kind == "read":
        return ghost._replace(unread=ghost.unread - {who}) if who in ghost.unread else ghost
    if kind == "ended":
        return ghost._replace(grips=tuple(_when_over(grip) if grip and grip[0] == who else grip for grip in ghost.grips))
    before, now, compared = rest
    if who == PERSON:
        grips = tuple(None if grip and grip[0] == before else grip for grip in ghost.grips)
        return ghost._replace(grips=grips, by_person=True, unread=frozenset(range(len(grips))), orphan=None)
    grips = _after_change(ghost, who, before, compared)
    order = ghost.order
    if now is not None:
        phase = FRESH if before is None and compared is None else HELD
        grips = (*grips[:who], (now, phase), *grips[who + 1 :])
        token = _token_of_acquisition(now)
        if token is not None:
            order = (*(entry for entry in order if entry[0] != who), (who, token))
    return Ghost(grips, order=order)


def _after_change(ghost: Ghost, who: int, before: bytes | None, compared: bytes | None) -> tuple[Grip, ...]:
    """The grips after `who` has put an end to record `before`; raises if it must not have."""
    verified = before == compared or before == ghost.orphan is not None or (ghost.by_person and who in ghost.unread)
    grips = list(ghost.grips)
    for holder, grip in enumerate(grips):
        if grip is None or grip[0] != before:
            continue
        if holder == who:
            grips[holder] = None
        elif grip[1] in (FRESH, ENDED) and before != compared:
            grips[holder] = (grip[0], LOST)
            verified = True
        elif grip[1] in (FRESH, HELD):
            raise Violation(f"w{who} took the lock from w{holder}, whose lease had not run out")
    if not verified:
        what = "where there was none any more" if before is None else "that it had not compared"
        raise Violation(f"w{who} changed a record {what}")
    return tuple(grips)


def _when_over(grip: Grip) -> Grip:
    return (grip[0], ENDED) if grip and grip[1] in (FRESH, ENDED) else grip if grip and grip[1] == LOST else None


def after_note(ghost: Ghost, who: int, note: tuple[Any, ...], record: bytes | None) -> Ghost:
    """After a process was told something while the lock file said `record`."""
    kind, *rest = note
    grip = ghost.grips[who]
    if kind == "failed":
        raise Violation(f"w{who} was told of an error that has no place here: {rest[0]}")
    if kind == "created" and rest[0]:
        if grip and grip[1] == LOST:
            raise Violation(f"w{who} was told that it has the lock, but its record is gone")
        return _with_grip(ghost, who, (grip[0], HELD) if grip and grip[1] == FRESH else None)
    if kind == "acquired":
        if grip and grip[0] != rest[0]:
            raise Violation(f"w{who} was told that it has the lock with another record than it wrote last")
        return ghost._replace(order=_in_order(ghost.order, who, rest[1])) if ghost.order else ghost
    if kind == "swept":
        return ghost
    if kind == "kept":
        if grip and grip[0] != rest[0]:
            raise Violation(f"w{who} was told that it keeps the lock with another record than it wrote last")
        return ghost
    if grip and grip[0] == record and grip[1] in (FRESH, HELD) and kind in ("created", "refused", "lost", "released"):
        told = {"released": "that it gave the lock back", "lost": "that it has lost the lock"}.get(kind, "no")
        raise Violation(f"w{who} was told {told} while its own record stands")
    order = tuple(entry for entry in ghost.order if entry[0] != who) if kind == "refused" else ghost.order
    return _with_grip(ghost, who, None)._replace(order=order)


def after_death(ghost: Ghost, who: int, record: bytes | None) -> Ghost:
    """After a process was killed. A record that it had linked without being told so is nobody's."""
    grip = ghost.grips[who]
    orphan = grip[0] if grip and grip[1] in (FRESH, ENDED) and grip[0] == record else ghost.orphan
    order = tuple(entry for entry in ghost.order if entry[0] != who)
    return _with_grip(ghost, who, None)._replace(orphan=orphan, order=order)


def _with_grip(ghost: Ghost, who: int, grip: Grip) -> Ghost:
    return ghost._replace(grips=(*ghost.grips[:who], grip, *ghost.grips[who + 1 :]))


def _in_order(order: tuple[tuple[int, int], ...], who: int, token: int) -> tuple[tuple[int, int], ...]:
    """The order once `who` was told its token; of those told first only the last must be remembered."""
    if (who, token) not in order:
        raise Violation(f"w{who} was told token {token}, but never wrote it")
    place = order.index((who, token))
    for index, (other, its) in enumerate(order):
        if other == PERSON and (its >= token if index < place else its <= token):
            first, second = (its, token) if index < place else (token, its)
            raise Violation(f"tokens do not grow: {first}, then {second}")
    told = [*order[:place], (PERSON, token), *order[place + 1 :]]
    while len(told) > 1 and told[0][0] == told[1][0] == PERSON:
        del told[0]
    return tuple(told)


@cache
def _token_of_acquisition(record: bytes) -> int | None:
    """The token in a record that takes the lock, None for one that only keeps it."""
    fields = json.loads(record)
    return fields["token"] if fields["holder"]["beat"] == 0 else None
