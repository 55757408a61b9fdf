"""`swarm doctor`: print faults and warnings, each with the command that fixes it."""

from __future__ import annotations

import os
from dataclasses import asdict

from swarm.admin.doctor import FAULT, OK, WARNING, Check, examine
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput
from swarm.terminal import output
from swarm.terminal.text import shown

_COLOURS = {OK: "green", WARNING: "yellow", FAULT: "red"}
_MAX_ROWS = 8  # findings of one kind that are listed one by one


def doctor(call: Call) -> int:
    if "--bundle" in call.options:
        return _bundle(call)
    if call.positional or "--with-texts" in call.options:
        raise BadInput("a FILE and --with-texts are for --bundle. Add --bundle.")
    checks = examine()
    faults, warnings = (sum(check.state == state for check in checks) for state in (FAULT, WARNING))
    fields = {
        "ok": not faults,
        "faults": faults,
        "warnings": warnings,
        "checks": [asdict(check) for check in checks],
    }
    if not call.answer(fields):
        output.out("".join(_lines(checks)) + "\n")
        s = "s" * (warnings != 1)
        if not faults:
            output.out(f"No faults found{f', {warnings} warning{s}' if warnings else ''}.\n")
    if faults:
        output.error(
            f"{faults} fault{'s' * (faults != 1)} found. Each fault is shown with the command "
            "that fixes it."
        )
    return 1 if faults else 0


def _bundle(call: Call) -> int:
    from swarm import __version__
    from swarm.admin.bundle import default_name, write_bundle

    path, with_texts = call.get(0) or default_name(), "--with-texts" in call.options
    parts = write_bundle(path, __version__, with_texts=with_texts)
    path, size = os.path.abspath(path), os.path.getsize(path)
    files = [{"name": part.name, "about": part.about, "bytes": len(part.data)} for part in parts]
    fields = {"bundle": path, "bytes": size, "with_texts": with_texts, "files": files}
    if call.answer(fields):
        return 0
    output.out(f"Bundle written: {shown(path)} ({size:,} bytes, readable by you alone)\n")
    for part in parts:
        output.out(f"  {part.name:<14}  {shown(part.about)}\n")
    texts = "It has texts of agents and users." if with_texts else "It has no texts of agents."
    output.err(f"{texts} Secrets were removed as far as swarm knows them. Read it first.\n")
    return 0


def _lines(checks: list[Check]) -> list[str]:
    lines: list[str] = []
    counts: dict[tuple[str, str], int] = {}
    for check in checks:
        kind = (check.name, check.state)
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] > _MAX_ROWS:
            continue
        lines.append(
            f"{output.paint(f'{check.state:<7}', _COLOURS[check.state])}  {check.name:<15}  "
            f"{shown(check.text)}\n"
        )
        if check.fix:
            lines.append(f"{'':24}  {output.paint(shown(check.fix), 'bold')}\n")
    for (name, state), count in counts.items():
        if count > _MAX_ROWS:
            lines.append(
                f"{state:<7}  {name:<15}  … and {count - _MAX_ROWS} more, see: swarm doctor "
                f"--json\n"
            )
    return lines


COMMAND = Command(
    doctor,
    "Check Python, state directory, store and leftovers. The command changes nothing.",
    "swarm doctor",
    optional=("FILE",),
    options=(
        Option("--bundle", text="write a support bundle to FILE, for a person who helps"),
        Option(
            "--with-texts", text="add prompts, questions, reasons and last outputs to the bundle"
        ),
    ),
    details=(
        (
            "The doctor checks Python, the environment, clocks, the rights in the state "
            "directory (by trying), the filesystem and free space. The doctor also checks log, "
            "queue, locks, and files that crashed processes left behind. Each fault and each "
            "warning comes with the command that fixes it."
        ),
        (
            "A bundle is a .tar.gz with versions, findings, board, the last lines of both logs, "
            "settings and sizes. It has no passwords, tokens, addresses of webhooks or values of "
            "variables. Without --with-texts it also has no texts of agents and users. FILE "
            "must not exist; its default name has the time."
        ),
        "Exit 1: there is a fault. A warning does not change the exit code.",
    ),
)
