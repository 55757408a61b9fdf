"""Histories of the proof, written by hand."""

from __future__ import annotations

from pathlib import Path

from proof.history import History


def noted(path: Path, **notes: str) -> History:
    for worker, events in notes.items():
        (path / worker).write_text("".join(f"{event.strip()}\n" for event in events.split(";")))
    return History.read(path)


def kinds(violations: list[str]) -> list[str]:
    return [violation.partition(":")[0] for violation in violations]
