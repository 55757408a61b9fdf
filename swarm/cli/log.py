"""`swarm log`: write, read, check and rotate the shared status log."""

from __future__ import annotations

from swarm.cli.arguments import Call, Command, Option, parse_meta
from swarm.inputs import MAX_RECORD_BYTES, check_name, whole
from swarm.status.log import LOG, MAX_TAIL, STATES, StatusLog, check_filter
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import shown

_MAX_TAIL = 10_000_000


def append(call: Call) -> int:
    reason = call.get(3)
    if reason == "-":
        reason = output.read_stdin(MAX_RECORD_BYTES).removesuffix("\n")
    log = _log()
    line = log.append(
        call.get(0), call.get(1), call.get(2), reason, parse_meta(call.options.get("--meta"))
    )
    output.out(line + b"\n")
    return 0


def tail(call: Call) -> int:
    count = whole(call.get(0, "10"), "N", 0, _MAX_TAIL)
    log = _log()
    lines = log.tail(count)
    for line in lines:
        output.record(line + b"\n")
    if log.cut:
        output.err(
            f"Warning: only the last {len(lines)} records were printed: they have "
            f"{MAX_TAIL >> 20} MiB\n"
        )
    _warn_of_damage(log)
    return 0


def query(call: Call) -> int:
    log = _log()
    for line, _ in log.query(check_name(call.get(0), "TASK")):
        output.record(line + b"\n")
    _warn_of_damage(log)
    return 0


def follow(call: Call) -> int:
    state = call.options.get("--type")
    if state is not None and check_filter(state, "--type") not in STATES:
        output.err(
            f"Warning: {shown(state[:40])} is none of {' '.join(STATES)}: only another program "
            "writes it\n"
        )
    task = call.options.get("--task")
    if task is not None:
        check_name(task, "--task")
    for line, _, cursor in _log().follow(
        call.options.get("--since"), task, state, away=output.warn_every_minute()
    ):
        output.record((f"{cursor} ".encode() if "--cursor" in call.options else b"") + line + b"\n")
    return 0


def validate(call: Call) -> int:
    from swarm.admin.validation import findings

    found: dict[bool, list[dict[str, str]]] = {True: [], False: []}
    counts = {True: 0, False: 0}
    for each in findings(default_store(), _show_progress):
        counts[each.is_fault] += 1
        if call.json:
            kind = "fault" if each.is_fault else "warning"
            found[each.is_fault].append({"place": each.where, kind: each.text})
        else:
            mark = "" if each.is_fault else "Warning: "
            output.out(shown(f"{each.where}: {mark}{each.text}") + "\n")
    output.transient("")
    faults, warnings = counts[True], counts[False]
    if not call.answer({"valid": not faults, "faults": found[True], "warnings": found[False]}):
        verdict = _counted(faults, "fault") + " found" if faults else "Everything is valid"
        output.err(verdict + (f", {_counted(warnings, 'warning')}" if warnings else "") + "\n")
    return 1 if faults else 0


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def rotate(call: Call) -> int:
    rotated = default_store().rotate(LOG)
    if not call.answer({"rotated": rotated}):
        output.out(
            "Log rotated: readers still see all records\n" if rotated else "Nothing to rotate\n"
        )
    return 0


def _log() -> StatusLog:
    return StatusLog(default_store())


def _show_progress(count: int) -> None:
    output.transient(f"{count} records checked")


def _warn_of_damage(log: StatusLog) -> None:
    if log.damaged:
        what = "1 damaged line was" if log.damaged == 1 else f"{log.damaged} damaged lines were"
        output.err(f"Warning: {what} skipped. See: swarm log validate\n")


COMMANDS = {
    "append": Command(
        append,
        f"Append a record, and print the record. TYPE is one of {' '.join(STATES)}.",
        "swarm log append WAIT worker-1 task-002 'needs a person'",
        positional=("TYPE", "WORKER", "TASK"),
        optional=("REASON",),
        options=(Option("--meta", "JSON", "add a JSON object to the record"),),
        details=("If REASON is -, it is read from standard input.",),
    ),
    "tail": Command(
        tail,
        "Print the last N records unchanged, one record a line. N is 10 by default.",
        "swarm log tail 10",
        optional=("N",),
    ),
    "query": Command(
        query,
        "Print all records of one task, in order.",
        "swarm log query task-001",
        positional=("TASK",),
    ),
    "follow": Command(
        follow,
        "Print new records as they are written. Ctrl-C ends the command.",
        "swarm log follow --type WAIT",
        options=(
            Option(
                "--since", "CURSOR", "begin after this cursor; default: with the next new record"
            ),
            Option("--task", "TASK", "only records of this task"),
            Option("--type", "TYPE", "only records of this type"),
            Option(
                "--cursor",
                text=("print the cursor after each record before the record, for --since"),
            ),
        ),
    ),
    "validate": Command(
        validate,
        "Check every record and every lock file. Exit 1: a record or a lock file is invalid.",
        "swarm log validate",
        details=("A state of another program, such as ASSIGNED, is a warning: exit code 0.",),
    ),
    "rotate": Command(
        rotate,
        "Start a new log file. Readers still see the records of the old file.",
        "swarm log rotate",
    ),
}
