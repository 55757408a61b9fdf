"""Tables of figures and their goals. docs/design/performance.md shows the latest
figures.

A goal compares two figures of one table, so both come from the same minutes. A goal
without a second figure is a bound in the unit of the table. The figures are stored in
docs/design/performance/figures.json, part by part, so that one part can be measured
again.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs" / "design"
FIGURES = DOCS / "performance" / "figures.json"
DOCUMENT = DOCS / "performance.md"
_BEGIN, _END = "<!-- begin: {} (written by make bench) -->", "<!-- end: {} -->"


@dataclass(frozen=True)
class Goal:
    """A bound for the figure `subject`: a multiple of the figure `than`. Without
    `than`, the bound is in the unit of the table.
    """

    subject: str
    than: str = ""
    at_most: float | None = None
    at_least: float = 0.0

    def ratio(self, figures: Mapping[str, float]) -> float:
        return figures[self.subject] / (figures[self.than] if self.than else 1.0)

    def is_met(self, figures: Mapping[str, float]) -> bool:
        found = self.ratio(figures)
        return found >= self.at_least if self.at_most is None else found <= self.at_most

    def bound(self, unit: str) -> str:
        sign, number = ("≥", self.at_least) if self.at_most is None else ("≤", self.at_most)
        return f"{sign} {_number(number)}{'×' if self.than else ' ' + unit}"


@dataclass
class Table:
    """Figures of one unit.

    The other figures are compared with the first figure, unless `compared` is false.
    """

    title: str
    unit: str
    figures: dict[str, float]
    goals: list[Goal] = field(default_factory=list)
    compared: bool = True

    @property
    def met(self) -> bool:
        return all(goal.is_met(self.figures) for goal in self.goals)

    def lines(self) -> Iterator[str]:
        """Yield the table as text for a terminal."""
        floor = next(iter(self.figures.values()))
        yield self.title
        for name, figure in self.figures.items():
            ratio = f" {figure / floor:8.2f}×" if self.compared else ""
            yield f"  {name:52} {_number(figure):>10} {self.unit}{ratio}"
        for goal in self.goals:
            verdict = "met" if goal.is_met(self.figures) else "MISSED"
            yield f"  goal: {_sentence(goal, self)}: {verdict}"

    def markdown(self) -> Iterator[str]:
        floor = next(iter(self.figures.values()))
        yield f"| {self.title} | {self.unit} |{' ratio |' if self.compared else ''}"
        yield f"|---|---:|{'---:|' if self.compared else ''}"
        for name, figure in self.figures.items():
            ratio = f" {figure / floor:.2f}× |" if self.compared else ""
            yield f"| {name} | {_number(figure)} |{ratio}"
        yield ""


@dataclass
class Growth:
    """Seconds for one operation, by operation and size."""

    title: str
    lines: dict[str, dict[str, float]]

    def markdown(self) -> Iterator[str]:
        sizes = list(next(iter(self.lines.values())))
        yield f"| {self.title} | {' | '.join(sizes)} |"
        yield f"|---|{'---:|' * len(sizes)}"
        for name, line in self.lines.items():
            yield f"| {name} | {' | '.join(_duration(seconds) for seconds in line.values())} |"
        yield ""


class Report:
    """The tables of one part."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.tables: list[Table] = []
        self.growths: list[Growth] = []

    def add(
        self,
        title: str,
        unit: str,
        figures: Mapping[str, float],
        goals: list[Goal] | None = None,
        *,
        compared: bool = True,
    ) -> None:
        table = Table(title, unit, dict(figures), goals or [], compared)
        self.tables.append(table)
        print(*table.lines(), "", sep="\n", flush=True)

    def microseconds(
        self, title: str, found: Mapping[str, float], goals: list[Goal] | None = None
    ) -> None:
        self.add(title, "µs", {name: seconds * 1e6 for name, seconds in found.items()}, goals)

    def milliseconds(
        self, title: str, found: Mapping[str, float], goals: list[Goal] | None = None
    ) -> None:
        self.add(title, "ms", {name: seconds * 1e3 for name, seconds in found.items()}, goals)

    def grown(self, title: str, lines: Mapping[str, Mapping[int, float]]) -> None:
        growth = Growth(
            title,
            {
                name: {f"{size:,}": seconds for size, seconds in line.items()}
                for name, line in lines.items()
            },
        )
        self.growths.append(growth)
        print(*growth.markdown(), sep="\n", flush=True)

    @property
    def met(self) -> bool:
        return all(table.met for table in self.tables)

    def store(self) -> None:
        """Store the figures of the part and write the document again."""
        stored = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
        stored[self.part] = {
            "measured": _circumstances(),
            "tables": [asdict(table) for table in self.tables],
            "growths": [asdict(growth) for growth in self.growths],
        }
        FIGURES.parent.mkdir(exist_ok=True)
        FIGURES.write_text(
            json.dumps(stored, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
        )
        if DOCUMENT.exists():
            DOCUMENT.write_text(
                rendered(DOCUMENT.read_text(encoding="utf-8"), stored), encoding="utf-8"
            )


def rendered(document: str, stored: dict[str, dict[str, object]]) -> str:
    """Return the document with the stored figures.

    A table with goals that has at most one ratio is shown only in the list of goals.
    Growing costs are shown only as plots.
    """
    tables = {
        part: [_table(saved) for saved in _list(figures["tables"])]
        for part, figures in stored.items()
    }
    summary = ["| what | found | goal | |", "|---|---:|---:|---|"]
    for part in tables.values():
        for table in part:
            summary += [_row(goal, table) for goal in table.goals]
    document = _with_block(document, "goals", summary)
    for name, figures in stored.items():
        lines = [f"Measured {figures['measured']}.", ""]
        for table in tables[name]:
            if not table.goals or (table.compared and len(table.figures) > 2):
                lines += table.markdown()
        document = _with_block(document, name, lines)
    return document


def _with_block(document: str, name: str, lines: list[str]) -> str:
    begin, end = _BEGIN.format(name), _END.format(name)
    if begin not in document:
        return document
    before, _, rest = document.partition(begin)
    return "\n".join([f"{before}{begin}", *lines]).rstrip() + f"\n{end}{rest.partition(end)[2]}"


def _row(goal: Goal, table: Table) -> str:
    found = _number(goal.ratio(table.figures)) + ("×" if goal.than else f" {table.unit}")
    than = f", against {goal.than}" if goal.than else ""
    verdict = "met" if goal.is_met(table.figures) else "**missed**"
    return (
        f"| {table.title}: {goal.subject}{than} | {found} | {goal.bound(table.unit)} | {verdict} |"
    )


def _sentence(goal: Goal, table: Table) -> str:
    than = f" of {goal.than}" if goal.than else ""
    found = f"{_number(goal.ratio(table.figures))}{'×' if goal.than else ' ' + table.unit}"
    return f"{goal.subject} is {found}{than}, {goal.bound(table.unit)} wanted"


def _table(saved: dict[str, object]) -> Table:
    table = Table(**saved)  # type: ignore[arg-type]  # as it was written
    table.goals = [Goal(**goal) for goal in table.goals]  # type: ignore[arg-type]
    return table


def _list(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


def _number(value: float) -> str:
    """Show three digits: a measurement is no more precise."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{_number(seconds / size)} {unit}"
    return f"{_number(seconds * 1e6)} µs"


def _circumstances() -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime())
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    return f"on {day}: {machine}, load average {os.getloadavg()[0]:.1f} at the end"
