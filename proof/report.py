"""The results of the proof: rows of figures, and whether all of them hold."""

from __future__ import annotations

import sys
import time
from typing import NamedTuple


class Row(NamedTuple):
    part: str
    what: str
    figures: str
    seconds: float
    held: bool


class Report:
    """Collect rows. Progress goes to stderr, so that stdout has only the table."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.rows: list[Row] = []
        self._quiet = quiet
        self._begun = time.monotonic()

    def progress(self, text: str) -> None:
        """Replace the progress line on a terminal. Print nothing elsewhere."""
        if not self._quiet and sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{text[:100]}")
            sys.stderr.flush()

    def row(
        self, part: str, what: str, figures: str, *, held: bool = True, seconds: float | None = None
    ) -> None:
        """Add one result. By default, the time of the result is the time since the
        previous row.
        """
        now = time.monotonic()
        row = Row(part, what, figures, now - self._begun if seconds is None else seconds, held)
        self._begun = now
        self.rows.append(row)
        if not self._quiet:
            self.progress("")
            sys.stderr.write(
                f"{_verdict(row):6} {row.part}: {row.what}: {row.figures} ({row.seconds:.0f} s)\n"
            )
            sys.stderr.flush()

    def say(self, *lines: str) -> None:
        """Print lines beside the figures, such as the trace of a violation."""
        if not self._quiet:
            self.progress("")
            sys.stderr.writelines(f"       {line}\n" for line in lines)

    @property
    def held(self) -> bool:
        return all(row.held for row in self.rows)

    def table(self) -> str:
        """Return the rows as a Markdown table for the documentation."""
        cells = [("part", "what", "figures", "time", "")]
        cells += [
            (row.part, row.what, row.figures, f"{row.seconds:.0f} s", _verdict(row))
            for row in self.rows
        ]
        widths = [max(len(line[column]) for line in cells) for column in range(5)]
        lines = [
            "| "
            + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            + " |"
            for line in cells
        ]
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        return "\n".join(lines)


def _verdict(row: Row) -> str:
    return "held" if row.held else "FAILED"
