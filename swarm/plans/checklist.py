"""Write tasks as a Markdown checklist.

The words of the prompt are the text of the item, where the reader understands them in
the same way. All that the text cannot say stands below it, in a block of code with the
fields as JSON. Each item is read again before it is written.
"""

from __future__ import annotations

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.plans.markdown import BLOCK, read
from swarm.queue.task import TASK_FIELDS, spec_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from swarm.queue.task import TaskSpec

_SHOWN = 80  # characters of a prompt that stands in the block
# Fields that an item says in parentheses.
_WORDS = {
    "priority": "priority",
    "labels": "labels",
    "agent": "agent",
    "after": "after",
    "max_attempts": "max attempts",
    "timeout": "timeout",
    "land": "land",
    "review": "review",
}
_NEXT = "\n- [ ] next (id: next)\n"


def lines(specs: Sequence[TaskSpec], done: Sequence[bool]) -> Iterator[str]:
    """Return one text for each task."""
    for spec, is_done in zip(specs, done, strict=True):
        item = _item(spec)
        yield item.replace("- [ ]", "- [x]", 1) if is_done else item


def _item(spec: TaskSpec) -> str:
    fields = spec.fields()
    words = {name: fields[name] for name in _WORDS if name in fields}
    rest = {
        name: value
        for name, value in fields.items()
        if name not in words and name not in ("id", "prompt")
    }
    if spec.prompt:
        text = _written(spec.prompt, spec.id, words, rest)
        if _reads_as(text, spec):
            return text
    # The words do not say the same: the block says all.
    everything = {field.name: fields.get(field.name, field.default) for field in TASK_FIELDS}
    everything = {
        name: value for name, value in everything.items() if name in fields or name == "prompt"
    }
    text = _written(_plain(spec), "", {}, everything)
    if not _reads_as(text, spec):
        raise BadInput(f"{spec.id} cannot be written as Markdown. Use --format jsonl.")
    return text


def _written(prompt: str, task_id: str, words: dict[str, Any], rest: dict[str, Any]) -> str:
    first, *others = prompt.split("\n")
    text = f"- [ ] {first}"
    if task_id:
        text += f" (id: {task_id})"
    for name, value in words.items():
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        text += f" ({_WORDS[name]}: {shown})"
    text += "".join(f"\n  {line}" if line else "\n" for line in others) + "\n"
    if rest:
        text += f"\n  ```{BLOCK}\n  {json_codec.dumps(rest)}\n  ```\n"
    return text


def _plain(spec: TaskSpec) -> str:
    """Return words for a reader, which the block repeats in full."""
    command = spec.command if isinstance(spec.command, str) else " ".join(spec.command or ())
    words = " ".join((spec.prompt or command).split())
    signs = (c if c.isprintable() and c not in "()[]*`<>~" else " " for c in words)
    return " ".join("".join(signs).split())[:_SHOWN].strip() or spec.id


def _reads_as(text: str, spec: TaskSpec) -> bool:
    """Return whether the reader finds this task, and the next item after it."""
    try:
        items = read(text + _NEXT, "").items
        if [item.id for item in items] != [spec.id, "next"]:
            return False
        item = items[0]
        found = spec_from({"id": item.id, **item.fields, "after": item.after})
    except BadInput:
        return False
    return found == spec and not item.implied and items[1].fields == {"prompt": "next"}
