"""The help of swarm, of a group of commands, and of one command, for a terminal of any
width.
"""

from __future__ import annotations

from swarm.terminal.text import width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from swarm.cli.arguments import Command

_MAX_TERM = 16  # columns of the left side of a table; a longer term has a line of its own
_EXIT_CODES = (
    "0 done,",
    "1 the answer is no,",
    "2 wrong usage,",
    "3 the store cannot be used,",
    "4 the lease was lost.",
)


def overview(
    groups: Mapping[str, Mapping[str, str]], examples: Sequence[str], notes: str, columns: int
) -> str:
    """Return the help of swarm itself: all commands with one line each, in groups."""
    lines = ["Usage: swarm COMMAND …", ""]
    longest = max(len(name) for commands in groups.values() for name in commands)
    for title, commands in groups.items():
        lines += [f"{title}:", *_table(commands, columns, longest), ""]
    lines += ["Examples:", *(line for example in examples for line in _example(example, columns))]
    lines += ["", *_wrap(notes.split(), columns)]
    return "\n".join(lines) + "\n"


def group_help(title: str, commands: Mapping[str, Command], columns: int) -> str:
    """Return the help of a group, such as `swarm lock`: the usage and summary of each
    command.
    """
    lines = [f"Usage: {title} COMMAND …", ""]
    for name, command in commands.items():
        lines += _wrap([name, *command.usage], columns, "  ", "          ")
        lines += _wrap(command.summary.split(), columns, "      ", "      ")
    lines += ["", "Examples:"]
    lines += [line for command in commands.values() for line in _example(command.example, columns)]
    lines += [
        "",
        "Every command also takes --json, --store and --state-dir.",
        f"More about a command: {title} COMMAND --help",
    ]
    lines += ["", *_exit_codes("", columns)]
    return "\n".join(lines) + "\n"


def command_help(title: str, command: Command, columns: int) -> str:
    """Return the help of one command."""
    from swarm.cli.arguments import COMMON_OPTIONS

    usage = _wrap([*title.split(), *command.usage], columns, "Usage: ", "         ")
    options = {
        f"{option.name} {option.value}".rstrip(): option.text
        for option in (*command.options, *COMMON_OPTIONS)
    }
    lines = [*usage, "", *_wrap(command.summary.split(), columns)]
    lines += _parts(command.details, columns)
    lines += ["", "Options:", *_table(options, columns)]
    lines += _parts(command.notes, columns)
    lines += ["", "Example:", *_example(command.example, columns)]
    lines += ["", *_exit_codes(command.exit_codes, columns)]
    return "\n".join(lines) + "\n"


def _parts(parts: Sequence[str | Mapping[str, str]], columns: int) -> list[str]:
    """Return paragraphs and tables, each after an empty line."""
    lines: list[str] = []
    for part in parts:
        lines += [
            "",
            *(_wrap(part.split(), columns) if isinstance(part, str) else _table(part, columns)),
        ]
    return lines


def _table(rows: Mapping[str, str], columns: int, least: int = 0) -> list[str]:
    """Return a table of two columns: terms on the left, texts on the right."""
    longest = max([least, *(len(term) for term in rows if len(term) <= _MAX_TERM)])
    indent = " " * (longest + 5)
    lines: list[str] = []
    for term, text in rows.items():
        if len(term) > longest:
            lines += [f"  {term}", *_wrap(text.split(), columns, indent, indent)]
        else:
            lines += _wrap(text.split(), columns, f"  {term}".ljust(len(indent)), indent)
    return lines


def _example(command: str, columns: int) -> list[str]:
    """Return a command line as an example in the help.

    Break a long command line before an option, with a backslash, so that a shell can
    read it.
    """
    first, *options = command.split(" --")
    parts = [first, *(f"--{option}" for option in options)]
    lines = _wrap(parts, columns - 2, "  ", "      ")
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _exit_codes(special: str, columns: int) -> list[str]:
    own = f"{special}. From swarm itself:".split() if special else []
    return _wrap([*own, *_EXIT_CODES], columns, "Exit codes: ", " " * 12)


def _wrap(parts: Sequence[str], columns: int, first: str = "", later: str = "") -> list[str]:
    """Join parts into lines that fit into `columns`.

    No part is broken, however long it is.

    `first` is the beginning of the first line, `later` the beginning of each other
    line.
    """
    lines, line, is_empty = [], first, True
    for part in parts:
        if not is_empty and width(line) + 1 + width(part) > columns:
            lines.append(line)
            line, is_empty = later, True
        line += part if is_empty else f" {part}"
        is_empty = False
    return [*lines, line.rstrip()]
