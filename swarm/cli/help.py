"""What `--help` says of a command, or of a face with many; it fits a terminal of 80 columns."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from swarm.cli.arguments import Command

_COLUMNS = 79
_EXIT_CODES = """\
Exit codes: 0 done, 1 the answer is no, 2 wrong usage,
            3 the store cannot be used, 4 the lease was lost."""


def help_for(face: str, commands: Mapping[str, Command], wanted: str = "") -> str:
    """What `--help` says: of one command, or of all."""
    if wanted:
        command = commands[wanted]
        return _wrapped(f"Usage: {face} {wanted} {command.usage}\n\n{command.summary}\n\nExample:\n  {command.example}\n")
    lines = [f"Usage: {face} COMMAND …", ""]
    for name, command in commands.items():
        lines += [f"  {name} {command.usage}".rstrip(), f"      {command.summary.partition(chr(10))[0]}"]
    lines += ["", "Examples:", *(f"  {command.example}" for command in commands.values() if command.example)]
    lines += ["", "Every command takes --json (one JSON object), --store URL and --help.", _EXIT_CODES]
    return _wrapped("\n".join(lines) + "\n")


def help_for_one(name: str, command: Command) -> str:
    """What `--help` says of a command that stands alone."""
    codes = f"Exit code: {command.exit_codes}.\n" if command.exit_codes else ""
    return _wrapped(
        f"Usage: {name} {command.usage}\n\n{command.summary}\n\nExample:\n  {command.example}\n\n"
        f"With --json, what swarm itself answers is one JSON object; --store URL names the store.\n{codes}{_EXIT_CODES}\n"
    )


def _wrapped(text: str) -> str:
    """The text for a terminal of 80 columns: what goes on stands below where it began, behind an option or `Usage:`."""
    lines: list[str] = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        gap = " "
        if line.startswith("Usage: "):
            indent, gap = 8, " ["
        elif "   " in line.strip():
            indent = line.rindex("   ") + 3
        rest = line.rstrip()
        while len(rest) > _COLUMNS and (at := rest.rfind(gap, indent + 1, _COLUMNS + 1)) > indent:
            lines.append(rest[:at])
            rest = " " * indent + rest[at + 1 :]
        lines.append(rest)
    return "\n".join(lines) + "\n"
