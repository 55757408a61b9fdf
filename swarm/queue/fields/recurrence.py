"""When a task recurs: the field `every`, and the field `not_before`.

A rule is an interval such as `30m`, or a cron expression with a time zone:

    30s 30m 2h 1d 1w                   so long after the last run has begun
    0 3 * * * Europe/Berlin            five fields of cron, and a zone
    @daily Europe/Berlin               @hourly @daily @weekly @monthly @yearly

A rule without a zone gets the zone of this machine when its task is added, so that all
machines agree. The process that claims a task computes the next time, and writes it into
the claim. So all readers of the log agree, whatever data of zones their machines have.
"""

from __future__ import annotations

from swarm import settings
from swarm.errors import BadInput
from swarm.inputs import MAX_TTL, seconds_in
from swarm.system.clock import from_iso, to_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.queue.fields.cron import Cron

_MAX_RULE = 200  # characters
_LAST = 221_845_392_000.0  # 9000-01-01: far later moments have no text
_LOCAL_ZONE = "/etc/localtime"
_UTC = ("UTC", "UTC0", "Etc/UTC", "UCT", "Etc/UCT", "Zulu", "Etc/Zulu")


def check_every(text: str, what: str) -> str:
    """Return a rule with single spaces. Raise BadInput, or NoZone, if it is invalid."""
    if len(text) > _MAX_RULE or not text.isprintable():
        raise BadInput(f"{what} is too long, or has control characters.")
    rule = " ".join(text.split())
    seconds = seconds_in(rule)
    if seconds is not None:
        if not 1 <= seconds <= MAX_TTL:
            raise BadInput(f"{what} is {rule!r}, but must be a second to ten years.")
        return rule
    try:
        _cron(rule, "UTC")
    except BadInput as error:
        raise BadInput(
            f"{what} is {rule[:60]!r}: {error} Give an interval such as 30m, @daily, or five "
            "fields of cron such as '0 3 * * * Europe/Berlin'."
        ) from None
    return rule


def in_zone(rule: str, known: str = "") -> str:
    """Return a rule with its zone: without one, that of the rule that the task has had,
    else that of this machine.
    """
    if not rule or seconds_in(rule) is not None or _split(rule)[1]:
        return rule
    zone = "" if seconds_in(known) is not None else _split(known)[1]
    return f"{rule} {zone or _local_zone()}"


def next_time(rule: str, after: float) -> float:
    """Return the first time of a rule after a moment, in whole milliseconds.

    Raise NoZone if this machine lacks the data of the zone.
    """
    seconds = seconds_in(rule)
    if seconds is not None:
        return min(after + seconds, _LAST)
    return _cron(rule, "UTC").after(after)


def first_time(rule: str, not_before: str, at: str) -> str:
    """Return the time of a new task's first run as text, "" if it may begin at once."""
    if not rule or seconds_in(rule) is not None:
        return not_before
    start = (from_iso(not_before) or 0.0) - 0.001  # also at this very moment
    return to_iso(next_time(rule, max(start, from_iso(at) or 0.0)))


def next_run(rule: str, at: str) -> dict[str, str]:
    """Return the fields of a claim that name the rule of its task, and the next run."""
    if not rule:
        return {}
    return {"every": rule, "next": to_iso(next_time(rule, from_iso(at) or 0.0))}


def check_moment(text: str, what: str) -> str:
    """Return a time as swarm writes it. Raise BadInput if the text is no time."""
    moment = from_iso(text)
    if moment is None or not 0 <= moment < _LAST:
        raise BadInput(
            f"{what} is {text[:40]!r}, but must be a time such as 2026-02-02T15:00:00Z. On the "
            "command line also a duration from now, such as 2h."
        )
    return to_iso(moment)


def _cron(rule: str, default: str) -> Cron:
    from swarm.queue.fields.cron import ALIASES, Cron, zone_named

    words, zone = _split(rule)
    return Cron(ALIASES.get(words.lower(), words), zone_named(zone or default))


def _split(rule: str) -> tuple[str, str]:
    """Return the expression and the zone, "" if it has none."""
    words = rule.split()
    count = 1 if words[:1] and words[0].startswith("@") else 5
    if len(words) > count + 1:
        raise BadInput("it has too many words.")
    return " ".join(words[:count]), "".join(words[count:])


def _local_zone() -> str:
    """Return the name of this machine's time zone. Raise BadInput if it is unknown."""
    from os.path import exists, realpath

    from swarm.queue.fields.cron import NoZone, zone_named

    named = settings.time_zone()
    if not named and not exists(_LOCAL_ZONE):
        return "UTC"
    path = named or realpath(_LOCAL_ZONE)
    name = path.partition("zoneinfo/")[2] or named
    if name in _UTC:
        return "UTC"
    try:
        zone_named(name)
    except (BadInput, NoZone):
        raise BadInput(
            "the time zone of this machine has no name that swarm finds. Write the zone behind "
            "the expression, such as '0 3 * * * Europe/Berlin', or '0 3 * * * UTC'."
        ) from None
    return name
