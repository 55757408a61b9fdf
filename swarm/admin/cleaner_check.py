"""Check whether the system may remove the state: at a restart, or because it is old.

A rule of systemd-tmpfiles with an age applies to every file below its path. Commands
that run long keep systemd-tmpfiles away, see `stores.cleaners`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from typing import NamedTuple

from swarm.admin.check import OK, WARNING, Check
from swarm.admin.state_dir_check import filesystem_of
from swarm.locks.table import NAMESPACE
from swarm.project.location import STATE_DIR
from swarm.queue.events import LOG
from swarm.terminal.text import quoted

TEMPORARY_DIRECTORIES = ("/tmp", "/var/tmp")
# A file hides the files of the same name in later directories.
RULE_DIRECTORIES = (
    "/etc/tmpfiles.d",
    "/run/tmpfiles.d",
    "/usr/local/lib/tmpfiles.d",
    "/usr/lib/tmpfiles.d",
)
_CLEANED = "dDevqQ"  # types of lines whose age makes systemd-tmpfiles remove files
_IGNORED = "xX"


class Rule(NamedTuple):
    """A line of a file for systemd-tmpfiles."""

    file: str
    type: str
    path: str
    age: str


def check_cleaners(root: str) -> Iterator[Check]:
    if not _holds_work(root):
        return
    name, fix = "cleaning", f"mv {quoted(root)} ~/.swarm; export SWARM_STATE_DIR=~/.swarm"
    if os.path.basename(root) == STATE_DIR:  # of a project
        fix = f"mv {quoted(os.path.dirname(root))} ~/"
    real = os.path.realpath(root)
    kind = filesystem_of(root)
    rule = aging_rule(real, _rules(RULE_DIRECTORIES))
    warnings = []
    if kind in ("tmpfs", "ramfs"):
        warnings.append(f"{root} is on {kind}: a restart of the machine removes locks and queue")
    if rule is not None:
        warnings.append(
            f"{rule.file} lets systemd-tmpfiles remove files in {rule.path} that are older than "
            f"{rule.age}, also locks and queue in {root}"
        )
    elif any(_is_below(real, folder) for folder in TEMPORARY_DIRECTORIES):
        warnings.append(f"{root} holds locks or a queue, but the system may remove files there")
    for text in warnings:
        yield Check(name, WARNING, text, fix)
    if not warnings:
        yield Check(name, OK, f"no rule lets the system remove files in {root}")


def aging_rule(path: str, rules: Sequence[Rule]) -> Rule | None:
    """Return the rule by which systemd-tmpfiles removes old files in a directory.

    Of several rules, return the rule for the deepest directory. Return None if no rule
    applies, or if a rule excludes the directory.
    """
    found: Rule | None = None
    for rule in rules:
        if rule.type in _IGNORED:
            if any(fnmatch(each, rule.path) for each in _with_parents(path)):
                return None
        elif (
            rule.type in _CLEANED
            and _is_below(path, rule.path)
            and (found is None or len(rule.path) > len(found.path))
        ):
            found = rule
    return found if found and found.age.strip("-") else None


def _rules(folders: Sequence[str]) -> list[Rule]:
    files: dict[str, str] = {}
    for folder in folders:
        try:
            for name in os.listdir(folder):
                if name.endswith(".conf"):
                    files.setdefault(name, f"{folder}/{name}")
        except OSError:
            pass
    return [rule for path in files.values() for rule in _rules_in(path)]


def _rules_in(path: str) -> Iterator[Rule]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()
        if len(words) >= 2 and not line.startswith("#"):
            where = words[1].strip("\"'").rstrip("/") or "/"
            yield Rule(path, words[0][0], where, words[5] if len(words) > 5 else "-")


def _holds_work(root: str) -> bool:
    try:
        return bool(os.listdir(f"{root}/{NAMESPACE}")) or os.path.exists(f"{root}/.{LOG}")
    except OSError:
        return os.path.exists(f"{root}/.{LOG}")


def _is_below(path: str, folder: str) -> bool:
    return any(each == folder for each in _with_parents(path))


def _with_parents(path: str) -> Iterator[str]:
    while True:
        yield path
        if path == (parent := os.path.dirname(path)):
            return
        path = parent
