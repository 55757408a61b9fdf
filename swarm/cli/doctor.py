"""`swarm doctor`: print faults and warnings, each with the command that fixes it."""

from __future__ import annotations

from dataclasses import asdict

from swarm.admin.doctor import FAULT, OK, WARNING, Check, examine
from swarm.cli.arguments import Call, Command
from swarm.terminal import output
from swarm.terminal.text import shown

_COLOURS = {OK: "green", WARNING: "yellow", FAULT: "red"}
_MAX_ROWS = 8  # findings of one kind that are listed one by one


def doctor(call: Call) -> int:
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
    details=(
        (
            "The doctor checks Python, the environment, clocks, the rights in the state "
            "directory (by trying), the filesystem and free space. The doctor also checks log, "
            "queue, locks, and files that crashed processes left behind. Each fault and each "
            "warning comes with the command that fixes it."
        ),
        "Exit 1: there is a fault. A warning does not change the exit code.",
    ),
)
