"""Read the output of an attempt while it runs: live lines, markers, and the report.

If a preset's reader knows the output, people see its readable lines, which also go to a
file of their own. Otherwise they see the lines as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from swarm.presets.contract import Reader, Report, ToolCall
from swarm.stores.secrets import known_secrets, scrub
from swarm.workers.markers import Markers
from swarm.workers.output import AgentOutput


class Reading:
    """Reads the output of one process."""

    def __init__(
        self,
        output: AgentOutput,
        reader: Reader | None,
        markers: Markers,
        on_line: Callable[[str], object] | None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._output = output
        self._reader = reader
        self._markers = markers
        self._on_line = on_line
        self._secrets = known_secrets(variables)

    def read(self, *, ended: bool = False) -> bool:
        """Read a piece of the output. Return whether there is more output."""
        reader = self._reader
        only_markers = self._on_line is None and reader is None
        piece = self._output.read(only_markers=only_markers, ended=ended)
        lines = [*piece.out, *piece.err]
        if reader is not None:
            lines = [shown for line in piece.out for shown in reader.feed(line)]
            lines += [shown for line in piece.err for shown in reader.feed_error(line)]
            # a secret may have been written differently inside JSON
            lines = [scrub(line, self._secrets) for line in lines]
            self._output.write_readable(lines)
        for line in lines:
            if self._on_line is not None:
                self._on_line(line)
            self._markers.add(line)
        return piece.has_more

    def take_calls(self) -> list[ToolCall]:
        """Return the tool calls since the last call of this method, without secrets."""
        found = self._reader.take_calls() if self._reader is not None else []
        return [replace(call, line=self._scrub(call.line)) for call in found]

    def finish(self, give_up: Callable[[], bool]) -> None:
        """Read the rest after the end of the process, and log its markers."""
        self._output.skip_to_the_end()
        while self.read(ended=True):
            pass
        self._markers.finish(give_up)

    def report(self, exit_code: int) -> Report:
        """Return what the process has reported, without secrets."""
        if self._reader is None:
            return Report(result=self._output.result(), message=self._output.message())
        found = self._reader.report(exit_code)
        denials = [replace(each, what=self._scrub(each.what)) for each in found.denials]
        limit = found.limit and replace(found.limit, text=self._scrub(found.limit.text))
        return replace(
            found,
            result=self._scrub(found.result),
            message=self._scrub(found.message),
            error=self._scrub(found.error),
            denials=tuple(denials),
            limit=limit,
        )

    def _scrub(self, text: str) -> str:
        return scrub(text, self._secrets)
