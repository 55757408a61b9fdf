"""The promises that must hold after every step, whatever the processes do.

- **Compared**: a change of the lock file affects exactly the record that was compared.
  There are two exceptions. A record that was just linked may be changed before its
  maker is told that it has the lock; then the maker must not be told so. A record that
  a person wrote or removed after the comparison may be changed.
- **One holder**: while a lease is not over and no person touched the record, the lock
  file says what its holder was told. So there is never a second holder.
- **Tokens grow**: a process that is told "acquired" has a larger token than all holders
  before it, in the order of their records.
- **True answers**: no process is told "held" or "lost" while its own record exists. No
  operation fails with an unexpected error.

The monitor sees only the changes of the lock file and the answers of operations, not
the code. Two terms are used below:

- A **grip** is the record that a process put into the lock file, and its phase.
- A **ghost** is all that the monitor remembers of the past, as a value. Each event
  gives a new ghost. (The code under test does not see the ghost: hence the name.)
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

FRESH, HELD, ENDED, LOST = "fresh", "held", "ended", "lost"
PERSON = -1

Grip = tuple[bytes, str] | None
"""A record and its phase.

FRESH: linked, and its maker has no answer yet. HELD: the maker was told that it has the
lock. ENDED: linked without an answer yet, and the lease is already over. LOST: linked
without an answer yet, and the record is gone.
"""


class Violation(Exception):
    """A promise is broken. The text names the promise and the process.

    `move` is the move that broke the promise, if it was a move.
    """

    move: tuple[int, int] | None = None


class Ghost(NamedTuple):
    """All that the monitor remembers of the past."""

    grips: tuple[Grip, ...]
    # processes that did not read the lock file since a person touched it
    unread: frozenset[int] = frozenset()
    by_person: bool = False  # the lock file is as a person left it
    orphan: bytes | None = None  # a record whose maker was killed before it had an answer
    # (process, token) of each acquisition in order; once a process was told its token,
    # PERSON replaces the process
    order: tuple[tuple[int, int], ...] = ()


def begin(processes: int) -> Ghost:
    return Ghost((None,) * processes)


def after_event(ghost: Ghost, event: tuple[Any, ...]) -> Ghost:
    """Return the ghost after a change, a read or the end of a lease."""
    kind, who, *rest = event
    if kind == "read":
        return ghost._replace(unread=ghost.unread - {who}) if who in ghost.unread else ghost
    if kind == "ended":
        return ghost._replace(
            grips=tuple(
                _when_over(grip) if grip and grip[0] == who else grip for grip in ghost.grips
            )
        )
    before, now, compared = rest
    if who == PERSON:
        grips = tuple(None if grip and grip[0] == before else grip for grip in ghost.grips)
        return ghost._replace(
            grips=grips, by_person=True, unread=frozenset(range(len(grips))), orphan=None
        )
    grips = _after_change(ghost, who, before, compared)
    order = ghost.order
    if now is not None:
        phase = FRESH if before is None and compared is None else HELD
        grips = (*grips[:who], (now, phase), *grips[who + 1 :])
        token = _token_of_acquisition(now)
        if token is not None:
            order = (*(entry for entry in order if entry[0] != who), (who, token))
    return Ghost(grips, order=order)


def _after_change(
    ghost: Ghost, who: int, before: bytes | None, compared: bytes | None
) -> tuple[Grip, ...]:
    """Return the grips after `who` has ended record `before`.

    Raise Violation if `who` must not end this record.
    """
    verified = (
        before == compared
        or before == ghost.orphan is not None
        or (ghost.by_person and who in ghost.unread)
    )
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
    return (
        (grip[0], ENDED)
        if grip and grip[1] in (FRESH, ENDED)
        else grip
        if grip and grip[1] == LOST
        else None
    )


def after_note(ghost: Ghost, who: int, note: tuple[Any, ...], record: bytes | None) -> Ghost:
    """Return the ghost after a process had an answer while the lock file was `record`."""
    kind, *rest = note
    grip = ghost.grips[who]
    if kind == "failed":
        raise Violation(f"w{who} failed with an unexpected error: {rest[0]}")
    if kind == "created" and rest[0]:
        if grip and grip[1] == LOST:
            raise Violation(f"w{who} was told that it has the lock, but its record is gone")
        return _with_grip(ghost, who, (grip[0], HELD) if grip and grip[1] == FRESH else None)
    if kind == "acquired":
        if grip and grip[0] != rest[0]:
            raise Violation(
                f"w{who} was told that it has the lock with another record than it wrote last"
            )
        return ghost._replace(order=_in_order(ghost.order, who, rest[1])) if ghost.order else ghost
    if kind == "collected":
        return ghost
    if kind == "kept":
        if grip and grip[0] != rest[0]:
            raise Violation(
                f"w{who} was told that it keeps the lock with another record than it wrote last"
            )
        return ghost
    if (
        grip
        and grip[0] == record
        and grip[1] in (FRESH, HELD)
        and kind in ("created", "refused", "lost", "released")
    ):
        answer = {"released": "that it released the lock", "lost": "that it has lost the lock"}.get(
            kind, "no"
        )
        raise Violation(f"w{who} was told {answer} while its own record stands")
    order = (
        tuple(entry for entry in ghost.order if entry[0] != who)
        if kind == "refused"
        else ghost.order
    )
    return _with_grip(ghost, who, None)._replace(order=order)


def after_death(ghost: Ghost, who: int, record: bytes | None) -> Ghost:
    """Return the ghost after a process was killed.

    A record that the process linked, but of which it was not told, is an orphan: the
    record belongs to no process.
    """
    grip = ghost.grips[who]
    orphan = grip[0] if grip and grip[1] in (FRESH, ENDED) and grip[0] == record else ghost.orphan
    order = tuple(entry for entry in ghost.order if entry[0] != who)
    return _with_grip(ghost, who, None)._replace(orphan=orphan, order=order)


def _with_grip(ghost: Ghost, who: int, grip: Grip) -> Ghost:
    return ghost._replace(grips=(*ghost.grips[:who], grip, *ghost.grips[who + 1 :]))


def _in_order(
    order: tuple[tuple[int, int], ...], who: int, token: int
) -> tuple[tuple[int, int], ...]:
    """Return the order once `who` was told its token.

    Of the first entries, whose processes were all told, only the last must be
    remembered.
    """
    if (who, token) not in order:
        raise Violation(f"w{who} was told token {token}, but never wrote it")
    own = order.index((who, token))
    for index, (other, its) in enumerate(order):
        if other == PERSON and (its >= token if index < own else its <= token):
            first, second = (its, token) if index < own else (token, its)
            raise Violation(f"tokens do not grow: {first}, then {second}")
    following = [*order[:own], (PERSON, token), *order[own + 1 :]]
    while len(following) > 1 and following[0][0] == following[1][0] == PERSON:
        del following[0]
    return tuple(following)


@cache
def _token_of_acquisition(record: bytes) -> int | None:
    """Return the token of a record that acquires the lock, None for a heartbeat."""
    fields = json.loads(record)
    return fields["token"] if fields["holder"]["beat"] == 0 else None
