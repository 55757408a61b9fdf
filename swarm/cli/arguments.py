"""Command lines for the commands that agents call hundreds of times: what argparse does, without its start-up time.

A face describes itself as a table of `Command`s. Options may stand anywhere, as `--name value` or `--name=value`; after `--`
everything is positional.
"""

from __future__ import annotations

from swarm.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


class Call:
    """One call of a command: what was given. Of an option that was given more than once, `options` has the last."""

    def __init__(self, positional: Sequence[str], options: Mapping[str, str], given: Sequence[tuple[str, str]] = ()) -> None:
        self.positional = positional
        self.options = options
        self._given = given
        self.json = "--json" in options

    def get(self, index: int, default: str = "") -> str:
        return self.positional[index] if index < len(self.positional) else default

    def every(self, option: str) -> list[str]:
        """All values of an option that may be given more than once."""
        return [value for name, value in self._given if name == option]


class Command:
    """How a command is called, and what answers. `usage` names its positionals; [optional] ones stand in brackets, and of a last
    one with … there may be any number. One that ends in `-- COMMAND…` takes another command line, which [-- COMMAND…] makes
    optional. `exit_codes` says which it has besides those of every command."""

    def __init__(
        self, usage: str, summary: str, example: str, run: Callable[[Call], int], options: str = "", exit_codes: str = ""
    ) -> None:
        self.usage = usage
        self.summary = summary
        self.example = example
        self.run = run
        self.exit_codes = exit_codes
        self.options = options.split()  # "--name=" takes a value, "--name" does not

    def parse(self, name: str, args: Sequence[str]) -> Call:
        positional: list[str] = []
        after: list[str] = []
        options: list[tuple[str, str]] = []
        known = {option.rstrip("="): option.endswith("=") for option in [*self.options, "--json", "--store="]}
        rest = iter(args)
        for arg in rest:
            if arg == "--":
                after += rest
                break
            if not arg.startswith("--"):
                positional.append(arg)
                continue
            option, equals, value = arg.partition("=")
            if option not in known:
                raise BadInput(f"{name} has no option {option[:40]} (text comes after --). Usage: {name} {self.usage}")
            if known[option] and not equals:
                try:
                    value = next(rest)
                except StopIteration:
                    raise BadInput(f"{option} needs a value. Usage: {name} {self.usage}") from None
            elif equals and not known[option]:
                raise BadInput(f"{option} takes no value. Usage: {name} {self.usage}")
            options.append((option, value))
        words = self.usage.partition("--")[0].rstrip("[ ").split()
        needed = sum(not word.startswith("[") for word in words)
        takes_command = "-- COMMAND…" in self.usage
        given = len(positional) + (0 if takes_command else len(after))
        problem = ""
        if takes_command and not after and not self.usage.endswith("]"):
            problem = "needs a command after --"
        elif given < needed:
            problem = "is missing arguments"
        elif given > len(words) and not (words and words[-1].endswith("…")):
            problem = "was given too many arguments"
        if problem:
            raise BadInput(f"{name} {problem}. Usage: {name} {self.usage}")
        return Call([*positional, *after], dict(options), options)


def parse_meta(text: str | None) -> dict[str, Any] | None:
    """The value of --meta, None if it was not given."""
    if text is None:
        return None
    from swarm.formats import json_codec

    try:
        meta = json_codec.loads(text, strict=True)
    except ValueError as error:
        raise BadInput(f"--meta is not JSON ({error}). Give an object, such as '{{\"retry_count\": 1}}'.") from None
    if not isinstance(meta, dict):
        raise BadInput("--meta must be a JSON object, such as '{\"retry_count\": 1}'.")
    return meta
