"""A question of an attempt, and its answer.

A question belongs to a task and to the token of the claim that asked it. There are two
ways to wait for the answer. *Hold*: the agent lives on, and its claim too. *Park*: the
agent has ended, no worker holds the task, and the answer makes the task ready again.

`queue.state` decides which answer counts: the first one that the question accepts.
"""

from __future__ import annotations

from swarm.errors import BadInput
from swarm.formats.frozen_record import FrozenRecord
from swarm.inputs import check_wait
from swarm.system.clock import from_iso
from swarm.terminal.text import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

QUESTION, PERMISSION = "question", "permission"
KINDS = (QUESTION, PERMISSION)
ALLOW, DENY = "allow", "deny"  # the options of a permission
YES, NO = (ALLOW, "yes", "y", "ok"), (DENY, "no", "n")

# Who gave an answer. The caller of `answer` finds out which of them it is.
PERSON, AGENT, DEFAULT, POLICY = "person", "agent", "default", "policy"
SOURCES = (PERSON, AGENT, DEFAULT, POLICY)
ANYONE = "anyone"

MAX_TEXT_BYTES = 16 * 1024
MAX_OPTIONS = 20
MAX_OPEN = 50  # questions of one claim that wait at the same time
_MAX_OPTION_BYTES = 500
_SHORT = 20  # characters; a longer text is more than a word, in any language
_CLOCK_STEP = 0.01  # seconds; times in the log have milliseconds


class Question(FrozenRecord):
    """A question, and its answer once there is one."""

    id: str
    """A short name, such as `q7`. No other question of the swarm has it."""
    task_id: str
    token: int
    """The token of the claim that asks."""
    worker: str
    text: str
    asked_at: str
    options: tuple[str, ...] = ()
    default: str = ""
    """The answer that counts from `due` on, if there is no other."""
    due: str = ""
    kind: str = QUESTION
    """`question`, or `permission` for a tool call of the agent."""
    needs: str = ANYONE
    """`person` if an agent's answer does not count, else `anyone`."""
    is_free: bool = False
    """With options: whether other words are an answer, too."""
    is_parked: bool = False
    about: Mapping[str, Any] = {}
    """Facts for the person who answers, such as the tool and its input."""
    answer: str = ""
    answered_by: str = ""
    answered_as: str = ""
    """`person`, `agent`, `default` or `policy`; "" while there is no answer."""
    answered_at: str = ""

    @property
    def is_open(self) -> bool:
        return not self.answered_as

    @property
    def columns(self) -> tuple[Any, ...]:
        return tuple(self.as_dict().values())

    def fields(self) -> dict[str, Any]:
        """Return the question as a dict for JSON."""
        return {**self.as_dict(), "options": list(self.options), "about": dict(self.about)}

    def accepts(self, source: str) -> bool:
        """Return whether an answer from this source counts."""
        return source in (PERSON, DEFAULT, POLICY) or (source == AGENT and self.needs == ANYONE)

    def differences(self, fields: Mapping[str, Any], after: float | None) -> list[str]:
        """Return the settings in which a question with these fields differs from this
        one, see `ask_fields`. The facts in `about` are no setting.
        """
        asked, due = from_iso(self.asked_at), from_iso(self.due)
        mine = None if asked is None or due is None else due - asked
        is_as_late = mine is None or after is None or abs(mine - after) < _CLOCK_STEP
        equal = {
            "options": self.options == tuple(fields["options"] or ()),
            "free": self.is_free == bool(fields["free"]),
            "default": self.default == fields["default"],
            "after": is_as_late and (mine is None) == (after is None),
            "kind": self.kind == (fields["kind"] or QUESTION),
            "needs": self.needs == (fields["needs"] or ANYONE),
        }
        return [name for name, is_equal in equal.items() if not is_equal]

    def choose(self, text: str) -> str:
        """Return the answer that a text means: one of the options by its words, by its
        number or by their beginning, else the text itself.

        Where other words are an answer, a beginning is no option. If an option is a
        number itself, only the words count. Raise BadInput if the text is empty, too long
        or no option.
        """
        words = text.strip()
        check_text(words, "the answer")
        if not self.options:
            return words
        for each in self.options:
            if each.casefold() == words.casefold():
                return each
        is_number = _is_number(words)
        if is_number and are_numbered(self.options) and 1 <= int(words) <= len(self.options):
            return self.options[int(words) - 1]
        if self.kind == PERMISSION and {ALLOW, DENY} <= {*self.options}:
            return self._permission(words)
        if self.is_free:
            return words
        begun = [each for each in self.options if each.casefold().startswith(words.casefold())]
        if len(begun) == 1 and not is_number:
            return begun[0]
        raise self._unclear(words, "fits several options of" if begun else "is not an answer to")

    def _permission(self, words: str) -> str:
        """Return what an answer means that is none of the options: a word for yes or no,
        or the reason of a refusal in some words. Raise BadInput if it is unclear.
        """
        first, *others = words.casefold().replace(",", " ").replace(".", " ").split() or [""]
        if not others and first in (*YES, *NO):
            return ALLOW if first in YES else DENY
        is_reason = first in NO or len(others) > 1 or len(words) > _SHORT
        if self.is_free and is_reason and first not in YES:
            return words
        raise self._unclear(words, "neither allows nor denies")

    def _unclear(self, words: str, why: str) -> BadInput:
        numbered = are_numbered(self.options)
        named = [f"{at} {each}" if numbered else each for at, each in enumerate(self.options, 1)]
        more = ", or a reason to deny in three words or more" if why.startswith("neither") else ""
        return BadInput(
            f"{quoted(words[:80])} {why} {self.id}. Answer with one of: {', '.join(named)}{more}."
        )


def are_numbered(options: Sequence[str]) -> bool:
    """Return whether an option can be chosen by its number: not if one is a number."""
    return not any(_is_number(each.strip()) for each in options)


def _is_number(words: str) -> bool:
    return words.isascii() and words.isdigit()


def question_of(columns: Sequence[Any]) -> Question:
    found = Question(*columns)
    return found.replace(options=tuple(found.options))


def question_in_log(record: Mapping[str, Any], question_id: str) -> Question:
    """Return what an event `ask` says."""
    return Question(
        id=question_id,
        task_id=record["id"],
        token=record["token"],
        worker=record.get("worker", ""),
        text=record["text"],
        asked_at=record.get("at", ""),
        options=tuple(map(str, record.get("options", ()))),
        default=record.get("default", ""),
        due=record.get("due", ""),
        kind=record.get("kind", QUESTION),
        needs=record.get("needs", ANYONE),
        is_free=bool(record.get("free")),
        is_parked=bool(record.get("park")),
        about=record.get("about", {}),
    )


def ask_fields(
    text: str,
    options: Sequence[str] = (),
    default: str = "",
    after: float | None = None,
    kind: str = QUESTION,
    needs: str | None = None,
    free: bool = False,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the fields of an event `ask`, without `due`. A permission needs a person,
    unless `needs` says otherwise. Raise BadInput if they do not make a question.
    """
    if needs is None:
        needs = PERSON if kind == PERMISSION else ANYONE
    check_text(text.strip(), "the question")
    if len(options) > MAX_OPTIONS:
        raise BadInput(f"the question has {len(options)} options, at most {MAX_OPTIONS} fit.")
    for option in options:
        if not option.strip() or len(option.encode()) > _MAX_OPTION_BYTES or "\n" in option:
            raise BadInput(
                f"an option of the question is empty, has several lines or more than "
                f"{_MAX_OPTION_BYTES} bytes: {option[:40]!r}."
            )
    if len({option.casefold() for option in options}) < len(options):
        raise BadInput("two options of the question are equal.")
    if default and options and not free and default not in options:
        raise BadInput(f"the default {default[:40]!r} is not one of the options.")
    if (after is None) != (not default):
        raise BadInput(
            "a default and the seconds after which it counts go together: give both or none."
        )
    if after is not None:
        check_wait(after)
    if kind not in KINDS or needs not in (ANYONE, PERSON):
        raise BadInput(f"a question is one of {', '.join(KINDS)}, and needs anyone or a person.")
    return {
        "text": text.strip(),
        "options": list(options) or None,
        "default": default,
        "kind": None if kind == QUESTION else kind,
        "needs": None if needs == ANYONE else needs,
        "free": free or None,
        "about": dict(about) if about else None,
    }


def check_text(text: str, what: str) -> None:
    if not text:
        raise BadInput(f"{what} is empty.")
    if len(text.encode(errors="surrogatepass")) > MAX_TEXT_BYTES:
        raise BadInput(
            f"{what} has more than {MAX_TEXT_BYTES} bytes. Put the text in a file, and name it."
        )
