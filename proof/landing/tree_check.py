"""The check of the repository under test: `python -I -S tree_check.py` in a tree.

A tree is red if a shared file has conflict markers, if a task left a file in `broken`,
or if two tasks have the same number. It does not look for a task that has landed twice:
the checker must find that.
"""

from __future__ import annotations

import os
import sys

_MARKS = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")


def faults() -> list[str]:
    found = [f"broken/{name} is there" for name in _names("broken")]
    found += [
        f"ledger/{name} has conflict markers"
        for name in _names("ledger")
        if any(line.startswith(_MARKS) for line in _lines(f"ledger/{name}"))
    ]
    taken: dict[str, str] = {}
    for name in _names("numbers"):
        number = "".join(_lines(f"numbers/{name}")).strip()
        if number in taken:
            found.append(f"{name} and {taken[number]} have the number {number}")
        taken[number] = name
    return found


def _names(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if not name.startswith("."))
    except FileNotFoundError:
        return []


def _lines(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return file.readlines()


if __name__ == "__main__":
    wrong = faults()
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)
