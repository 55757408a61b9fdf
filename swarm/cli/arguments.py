"""The arguments of a command, declared once. This module parses them, and `cli.help`
explains them.

Agents call some commands hundreds of times, and argparse would double the start-up time
of a command. Options may stand anywhere, as `--name value` or `--name=value`. Words
after `--` are never options: they are arguments, or the command line that the command
runs.
"""

from __future__ import annotations

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.inputs import parse_ttl, parse_wait
from swarm.terminal import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


class Option:
    """The declaration of an option: its name, the name of its value ("" if it takes no
    value), and its text in the help. `required` and `repeated` only change the usage
    line. A command that needs an option checks for the option itself, because the
    command can write a better error message.
    """

    def __init__(
        self,
        name: str,
        value: str = "",
        text: str = "",
        *,
        required: bool = False,
        repeated: bool = False,
    ) -> None:
        self.name = name
        self.value = value
        self.text = text
        self._required = required
        self._repeated = repeated

    @property
    def usage(self) -> str:
        shown = f"{self.name} {self.value}".rstrip()
        return (shown if self._required else f"[{shown}]") + "…" * self._repeated


COMMON_OPTIONS = (
    Option("--json", text="print one JSON object instead of text"),
    Option("--store", "URL", "use the store at this URL instead of SWARM_STORE"),
    Option("--state-dir", "DIR", "use the swarm in this directory instead of the project's"),
)
# Options that users of other commands type, and the names that they may have here.
_MEANT = {
    "--worker": ("--id",),
    "--id": ("--worker",),
    "--name": ("--id", "--worker"),
}


class Call:
    """The arguments of one call.

    If an option was given more than once, `options` has the last value.

    `command_line` has the words after `--`, if the command takes a command line.
    """

    def __init__(
        self,
        positional: Sequence[str],
        options: Sequence[tuple[str, str]] = (),
        command_line: Sequence[str] = (),
    ) -> None:
        self.positional = positional
        self.options = dict(options)
        self.command_line = command_line
        self.json = "--json" in self.options
        self._all_options = options

    def get(self, index: int, default: str = "") -> str:
        """Return a positional argument. Return `default` if the call has fewer
        arguments.
        """
        return self.positional[index] if index < len(self.positional) else default

    def every(self, option: str) -> list[str]:
        """Return all values of an option that may be repeated."""
        return [value for name, value in self._all_options if name == option]

    def seconds(self, option: str, default: float) -> float:
        """Return the value of an option as a number of seconds.

        Raise BadInput if the value is not a number of seconds.
        """
        text = self.options.get(option)
        return default if text is None else parse_wait(text, option)

    def ttl(self) -> int | None:
        """Return the value of --ttl, None if the option was not given.

        Raise BadInput if it is invalid.
        """
        text = self.options.get("--ttl")
        return None if text is None else parse_ttl(text, "--ttl")

    def timeout(self) -> float | None:
        """Return the value of --timeout, None if the option was not given.

        Raise BadInput if it is invalid.
        """
        return self.seconds("--timeout", 0.0) if "--timeout" in self.options else None

    def answer(self, fields: Mapping[str, Any]) -> bool:
        """Print the answer as JSON if the caller asked for JSON.

        Return whether the caller asked for JSON.
        """
        if self.json:
            print_json(fields)
        return self.json


def print_json(fields: Mapping[str, Any]) -> None:
    """Print an answer as one JSON object. The first field is `schema_version`."""
    output.out(json_codec.dumps({"schema_version": json_codec.SCHEMA_VERSION, **fields}) + "\n")


class Command:
    """A command: its arguments, its help, and the function that runs it.

    A call must have all `positional` arguments. `optional` arguments may follow, then
    any number of `repeated` arguments. With a `command_line` of "required" or
    "optional", the words after `--` are a command line. In the help, `details` come
    before the options and `notes` come after the options. A string is a paragraph, a
    dict is a table. `exit_codes` has the exit codes that only this command has.
    """

    def __init__(
        self,
        run: Callable[[Call], int],
        summary: str,
        example: str,
        *,
        positional: Sequence[str] = (),
        optional: Sequence[str] = (),
        repeated: str = "",
        options: Sequence[Option] = (),
        command_line: str = "",
        details: Sequence[str | Mapping[str, str]] = (),
        notes: Sequence[str | Mapping[str, str]] = (),
        exit_codes: str = "",
    ) -> None:
        self.run = run
        self.summary = summary
        self.example = example
        self.details = details
        self.notes = notes
        self.exit_codes = exit_codes
        self.options = options
        self._positional = positional
        self._optional = optional
        self._repeated = repeated
        self._command_line = command_line

    @property
    def usage(self) -> list[str]:
        """The parts of the usage line. No part may be broken into two lines."""
        parts = [*self._positional, *(f"[{name}]" for name in self._optional)]
        if self._repeated:
            parts.append(f"[{self._repeated}]…")
        parts += [option.usage for option in self.options]
        if self._command_line:
            parts.append("-- COMMAND…" if self._command_line == "required" else "[-- COMMAND…]")
        return parts

    def parse(self, name: str, args: Sequence[str]) -> Call:
        """Parse the arguments of a call of this command.

        Raise BadInput, with the usage line, if the arguments do not fit.
        """
        known = {option.name: option for option in (*self.options, *COMMON_OPTIONS)}
        positional: list[str] = []
        behind: list[str] = []
        options: list[tuple[str, str]] = []
        rest = iter(args)
        for arg in rest:
            if arg == "--":
                behind += rest
            elif arg.startswith("--"):
                option, equals, value = arg.partition("=")
                if option not in known:
                    raise self._wrong(
                        name, f"has no option {option[:40]}{self._advice(option, known)}"
                    )
                if equals and not known[option].value:
                    raise self._wrong(name, f"takes no value for {option}")
                if known[option].value and not equals:
                    try:
                        value = next(rest)
                    except StopIteration:
                        raise self._wrong(name, f"needs a value for {option}") from None
                options.append((option, value))
            else:
                positional.append(arg)
        if not self._command_line:
            positional += behind
            behind = []
        self._check_number(name, positional, behind)
        return Call(positional, options, behind)

    def _check_number(self, name: str, positional: Sequence[str], behind: Sequence[str]) -> None:
        wanted = [*self._positional, *self._optional]
        if len(positional) < len(self._positional):
            raise self._wrong(name, f"needs {self._positional[len(positional)]}")
        if self._command_line == "required" and not behind:
            raise self._wrong(name, "needs a command after --")
        if len(positional) > len(wanted) and not self._repeated:
            raise self._wrong(name, f"has one argument too many: {positional[len(wanted)][:40]!r}")

    def _advice(self, option: str, known: Mapping[str, Option]) -> str:
        from difflib import get_close_matches

        is_text = any(map(str.isspace, option))
        meant = [each for each in _MEANT.get(option, ()) if each in known]
        close = [] if is_text else meant or get_close_matches(option, known, 1)
        if close:
            return f" (did you mean {close[0]}?)"
        takes_text = self._positional or self._optional or self._repeated
        return " (put text that begins with -- after a --)" if takes_text else ""

    def _wrong(self, name: str, problem: str) -> BadInput:
        return BadInput(f"{name} {problem}. Usage: {' '.join([name, *self.usage])}")


def parse_meta(text: str | None) -> dict[str, Any] | None:
    """Return the object in --meta, None if --meta was not given.

    Raise BadInput if the value is invalid.
    """
    if text is None:
        return None
    try:
        meta = json_codec.loads(text, strict=True)
    except ValueError as error:
        raise BadInput(
            f"--meta is not JSON ({error}). Give an object, such as '{{\"retry_count\": 1}}'."
        ) from None
    if not isinstance(meta, dict):
        raise BadInput("--meta must be a JSON object, such as '{\"retry_count\": 1}'.")
    return meta
