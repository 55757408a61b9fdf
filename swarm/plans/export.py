"""Write tasks in a form from which `swarm.plans.reading` reads the same tasks.

The state of a task is no part of the form; a checklist marks tasks that are done, and
the reader leaves them out.
"""

from __future__ import annotations

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.queue.events import CANCELLED, DONE, STATES
from swarm.queue.task import TaskSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from swarm.queue.task import Task

FORMATS = ("jsonl", "json", "yaml", "markdown")
OPEN = "open"
ALL = "all"
_OPEN_STATES = tuple(state for state in STATES if state not in (DONE, CANCELLED))
_MAX_YAML_KEY = 100  # of 1024 characters, with escapes


class Chosen:
    """The tasks to export. `dropped` counts dependencies on tasks that are done and not
    exported; they are left out. `missing` has dependencies on other tasks that are not
    exported.
    """

    def __init__(self, tasks: Sequence[Task], states: Sequence[str]) -> None:
        """Raise BadInput if a state does not exist."""
        wanted: set[str] = set()
        for state in states or (OPEN,):
            if state not in (*STATES, OPEN, ALL):
                raise BadInput(
                    f"{state[:40]!r} is not a state: use one of {OPEN} {ALL} {' '.join(STATES)}."
                )
            wanted |= {OPEN: {*_OPEN_STATES}, ALL: {*STATES}}.get(state, {state})
        self.specs: list[TaskSpec] = []
        self.done: list[bool] = []
        self.dropped = 0
        found = [task for task in tasks if task.state in wanted]
        exported = {task.id for task in found}
        left_out = {task.id for task in tasks if task.state == DONE} - exported
        missing: dict[str, None] = {}
        for task in found:
            after = tuple(name for name in task.spec.after if name not in left_out)
            self.dropped += len(task.spec.after) - len(after)
            missing |= dict.fromkeys(name for name in after if name not in exported)
            self.specs.append(task.spec.replace(after=after))
            self.done.append(task.state == DONE)
        self.missing = list(missing)


def text_of(chosen: Chosen, form: str) -> Iterator[str]:
    """Return the parts of the exported text. Raise BadInput if the form cannot hold a
    task.
    """
    if form == "jsonl":
        return (json_codec.dumps(spec.fields()) + "\n" for spec in chosen.specs)
    if form == "json":
        return _json(chosen.specs)
    if form == "yaml":
        return _yaml(chosen.specs)
    if form == "markdown":
        from swarm.plans.checklist import lines

        return lines(chosen.specs, chosen.done)
    raise BadInput(f"{form[:40]!r} is not a format of an export: use one of {' '.join(FORMATS)}.")


def _json(specs: Iterable[TaskSpec]) -> Iterator[str]:
    before = "[\n"
    for spec in specs:
        yield f"{before}  {json_codec.dumps(spec.fields())}"
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def _yaml(specs: Iterable[TaskSpec]) -> Iterator[str]:
    is_empty = True
    for spec in specs:
        sign = "- "
        for name, value in spec.fields().items():
            yield f"{sign}{name}: {_flow(value, spec.id)}\n"
            sign = "  "
        is_empty = False
    if is_empty:
        yield "[]\n"


def _flow(value: object, task_id: str) -> str:
    """Return a value as YAML that every reader understands as JSON."""
    if isinstance(value, dict) or hasattr(value, "keys"):
        parts = []
        for name, item in dict(value).items():  # type: ignore[call-overload]
            if len(name) > _MAX_YAML_KEY:
                raise BadInput(
                    f"{task_id} has a field in meta with {len(name)} characters, which YAML cannot "
                    f"have. Use --format jsonl."
                )
            parts.append(f"{_flow(name, task_id)}: {_flow(item, task_id)}")
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item, task_id) for item in value) + "]"
    text = json_codec.dumps(value)
    if isinstance(value, float) and "e" in text and "." not in text:
        text = text.replace("e", ".0e")  # YAML 1.1 needs the point
    if isinstance(value, float) and "e" in text and text[text.index("e") + 1] not in "+-":
        text = text.replace("e", "e+")
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise BadInput(
                f"{task_id} has text that is not valid UTF-8, which YAML cannot have. Use "
                f"--format jsonl."
            )
        text = "".join(f"\\u{ord(c):04x}" if c in "\ufeff\ufffe\uffff" else c for c in text)
    return text
