"""`swarm task import` and `swarm task export`: tasks from files, and tasks as files."""

from __future__ import annotations

from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput, StoreError, TaskExists
from swarm.queue.events import STATES
from swarm.queue.queue import TaskQueue
from swarm.queue.task import TASK_FIELDS
from swarm.terminal import output
from swarm.terminal.text import shorten, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from swarm.plans.item import Plan
    from swarm.plans.settle import Settled

_MAX_FILE = 1 << 30  # bytes
_MAX_LINES = 50  # of notes and of problems on the screen; --json has all
_MAX_WORDS = 100  # characters of a prompt in a dry run


def import_file(call: Call) -> int:
    from swarm.plans import reading
    from swarm.plans.settle import settle

    path = call.get(0)
    name = "standard input" if path == "-" else path
    plan = reading.read(_read(path), name, call.options.get("--format", ""))
    plan.prefix(call.options.get("--prefix", ""))
    queue = TaskQueue()
    before = {task.id: task.spec for task in queue.tasks()}
    settled = settle(plan, before, keep="--keep" in call.options)
    if settled.problems:
        return _refuse(call, plan, settled)
    new = [spec.id for spec in settled.specs if spec.id not in before]
    added: list[str] = []
    known = [spec.id for spec in settled.specs if spec.id in before]
    is_dry = "--dry-run" in call.options
    if not is_dry:
        added, known = queue.add_all(
            settled.specs, lambda count: output.transient(f"{count} of {len(new)} tasks added")
        )
        output.transient("")
    _print_notes(plan)
    if call.json:
        tasks = {"dry_run": True, "tasks": list(_rows(settled, before))} if is_dry else {}
        return (
            call.answer({"added": added, "known": known, **tasks, **_fields(plan, settled)}) and 0
        )
    if is_dry:
        _print_tasks(settled, before)
    output.out(_summary(new if is_dry else added, known, settled, is_dry=is_dry))
    return 0


def export(call: Call) -> int:
    from swarm.plans.export import Chosen, text_of

    chosen = Chosen(TaskQueue().tasks(), call.every("--state"))
    form = call.options.get("--format", "jsonl")
    if call.json:
        if form not in ("json", "jsonl"):
            raise BadInput(f"--json prints JSON, but --format is {form[:40]}. Leave one out.")
        call.answer({"tasks": [spec.fields() for spec in chosen.specs]})
    else:
        parts: list[str] = []
        for number, part in enumerate(text_of(chosen, form), 1):
            parts.append(part)
            if number % 1000 == 0:
                output.out("".join(parts))
                parts = []
        output.out("".join(parts))
    if chosen.dropped:
        were = "was" if chosen.dropped == 1 else "were"
        output.err(
            f"Note: {_count(chosen.dropped, 'dependency', 'dependencies')} on tasks that are done "
            f"{were} left out. To export done tasks too: --state all\n"
        )
    if chosen.missing:
        names = ", ".join(map(shown, chosen.missing[:5])) + ("…" if chosen.missing[5:] else "")
        output.err(f"Note: exported tasks come after tasks that are not exported: {names}\n")
    return 0


def _read(path: str) -> str:
    if path == "-":
        text = output.read_stdin(_MAX_FILE)
        if len(text) > _MAX_FILE:
            raise BadInput(f"standard input has more than {_MAX_FILE} bytes. Split the file.")
        if any("\udc80" <= sign <= "\udcff" for sign in ([] if text.isascii() else text)):
            raise BadInput("standard input is not UTF-8 text.")
        return text
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_FILE + 1)
    except IsADirectoryError:
        raise BadInput(f"{path} is a directory. Name a file with tasks.") from None
    except FileNotFoundError:
        raise BadInput(
            f"there is no file {path}. Name a file with tasks, or - for standard input."
        ) from None
    except ValueError:
        raise BadInput("the name of the file has a NUL character.") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from None
    if len(data) > _MAX_FILE:
        raise BadInput(f"{path} has more than {_MAX_FILE} bytes. Split the file.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path} is not UTF-8 text (line {line}).") from None


def _refuse(call: Call, plan: Plan, settled: Settled) -> int:
    only_conflicts = settled.conflicts == len(settled.problems)
    code = TaskExists.exit_code if only_conflicts else BadInput.exit_code
    for problem in settled.problems[:_MAX_LINES]:
        output.error(problem)
    more = len(settled.problems) - _MAX_LINES
    if more > 0:
        output.error(f"{_count(more, 'problem')} more; --json lists all.")
    fields = {
        "error": settled.problems[0],
        "exit_code": code,
        "added": [],
        "problems": settled.problems,
        **_fields(plan, settled),
    }
    call.answer(fields)
    return code


def _fields(plan: Plan, settled: Settled) -> dict[str, Any]:
    return {
        "format": plan.format,
        "kept": settled.kept,
        "done": settled.done,
        "notes": [{"file": plan.name, "line": each.line, "text": each.text} for each in plan.notes],
    }


def _rows(settled: Settled, before: object) -> Iterator[dict[str, Any]]:
    known = before if isinstance(before, dict) else {}
    for spec, line in zip(settled.specs, settled.lines, strict=True):
        yield {**spec.fields(), "line": line, "is_new": spec.id not in known}


def _print_notes(plan: Plan) -> None:
    for note in plan.notes[:_MAX_LINES]:
        output.err(f"Note: {shown(plan.where(note.line))}: {shown(note.text)}\n")
    more = len(plan.notes) - _MAX_LINES
    if more > 0:
        output.err(f"Note: {_count(more, 'note')} more; --json lists all\n")


def _print_tasks(settled: Settled, before: object) -> None:
    for row in _rows(settled, before):
        if not row["is_new"]:
            continue
        facts = [
            f"{name.replace('_', ' ')} {_short(row[name])}"
            for name in row
            if name not in ("id", "prompt", "line", "is_new")
        ]
        words = shorten(" ".join((row.get("prompt") or "").split()), _MAX_WORDS)
        about = f" ({'; '.join(facts)})" if facts else ""
        output.out(f"{shown(row['id'])}{shown(about)}\n" + (f"  {shown(words)}\n" if words else ""))


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return shorten(text, _MAX_WORDS)


def _summary(added: list[str], known: list[str], settled: Settled, *, is_dry: bool) -> str:
    text = _count(len(added), "task") + (" would be added" if is_dry else " added")
    if known:
        text += (
            f", {_count(len(known), 'task')} {'was' if len(known) == 1 else 'were'} there already"
        )
    if settled.kept:
        text += f", {len(settled.kept)} kept with other fields"
    if settled.done:
        text += f", {len(settled.done)} done in the file"
    return text + (". Nothing was changed.\n" if is_dry else "\n")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


IMPORT = Command(
    import_file,
    "Add the tasks in a file: a list of tasks, a checklist, or the plan of another tool. - is "
    "standard input.",
    "swarm task import TODO.md --dry-run",
    positional=("FILE",),
    options=(
        Option(
            "--format",
            "F",
            "jsonl json yaml markdown epics sprint-status beads github; default: from name and "
            "text",
        ),
        Option("--dry-run", text="show the tasks and change nothing"),
        Option("--keep", text="leave tasks that exist with other fields as they are"),
        Option("--prefix", "P", "put P before each id that the file gives"),
    ),
    details=(
        (
            "Tasks that already exist do not change, so an import may be repeated. If one task is "
            "invalid, none is added."
        ),
        f"Fields of a task: {', '.join(field.name for field in TASK_FIELDS)}.",
    ),
)
EXPORT = Command(
    export,
    "Print tasks in a form that swarm task import reads.",
    "swarm task export --format markdown > TODO.md",
    options=(
        Option("--format", "F", "jsonl json yaml markdown; default: jsonl"),
        Option(
            "--state",
            "STATE",
            f"open (not done, not cancelled; the default), all, or one of {' '.join(STATES)}",
            repeated=True,
        ),
    ),
    details=(
        (
            "States and results are not exported. Without --state all, dependencies on tasks that "
            "are done are left out."
        ),
    ),
)
