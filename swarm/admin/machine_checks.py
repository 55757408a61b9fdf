"""Checks of the program and the machine: Python, environment, clock, optional parts."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator

from swarm import settings
from swarm.admin.check import FAULT, OK, WARNING, Check
from swarm.errors import SwarmError
from swarm.stores.registry import SERVER_DRIVERS
from swarm.system import process
from swarm.system.clock import to_iso
from swarm.terminal.text import duration

_BUSY_SHARE = 0.8  # of the inotify instances that a user may have
_EARLIEST = 1_700_000_000  # seconds; in 2023, before this program was written


def check_python() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036
        yield Check(
            "python",
            FAULT,
            f"this is Python {version}, but swarm needs 3.11 or newer",
            "python3.11 -m swarm doctor",
        )
    else:
        yield Check("python", OK, f"Python {version}, {sys.executable}")


def check_environment() -> Iterator[Check]:
    readers: dict[str, Callable[[], object]] = {
        "AI_SWARM_LOCK_TTL": settings.lock_ttl,
        "SWARM_LOG_MAX_BYTES": settings.log_max_bytes,
        "SWARM_DURABLE": settings.durable,
    }
    all_valid = True
    for name, read in readers.items():
        try:
            read()
        except SwarmError as error:
            all_valid = False
            yield Check("environment", FAULT, str(error), f"unset {name}")
    if all_valid:
        shown = (
            "SWARM_STATE_DIR",
            "AI_SWARM_DIR",
            "AI_SWARM_LOCK_TTL",
            "SWARM_STORE",
            "SWARM_WORKER",
        )
        names = [name for name in shown if name in settings.environment()]
        yield Check(
            "environment",
            OK,
            f"set: {', '.join(names)}" if names else "no variable is set, so the defaults apply",
        )


def check_clock() -> Iterator[Check]:
    if not process.boot_id():
        text = (
            "this system has no boot id, so leases depend on the wall clock: setting it can "
            "end them early or late"
        )
        yield Check("clock", WARNING, text, "date -u  # keep the clock right with NTP")
        return
    now = time.time()
    booted = now - time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    if now < _EARLIEST or booted < 0:
        yield Check(
            "clock",
            FAULT,
            f"the clock shows {to_iso(now)}, which is wrong",
            "date -u  # set the clock with NTP",
        )
    else:
        yield Check(
            "clock",
            OK,
            f"{to_iso(now)}, up {duration(now - booted)}; leases do not depend on the wall clock",
        )


def check_waiting() -> Iterator[Check]:
    """Compare the number of this user's inotify instances with the limit of the kernel.

    Each process that waits for a change needs an inotify instance. A process without an
    instance polls.
    """
    try:
        with open("/proc/sys/fs/inotify/max_user_instances", encoding="ascii") as file:
            allowed = int(file.read())
    except (OSError, ValueError):
        return  # not Linux, or a sandbox without /proc
    used = _inotify_instances()
    if used < _BUSY_SHARE * allowed:
        text = f"{used} of {allowed} inotify instances are in use"
        yield Check("waiting", OK, text)
        return
    text = (
        f"{used} of {allowed} inotify instances are in use: a further process that waits must "
        "poll, and many polling processes keep a processor busy"
    )
    yield Check("waiting", WARNING, text, "sudo sysctl fs.inotify.max_user_instances=1024")


def _inotify_instances() -> int:
    """Count the inotify instances of this user's processes."""
    count = 0
    for process_id in filter(str.isdecimal, os.listdir("/proc")):
        folder = f"/proc/{process_id}/fd"
        try:
            if os.stat(f"/proc/{process_id}").st_uid != os.geteuid():
                continue
            names = os.listdir(folder)
        except OSError:
            continue  # the process has ended, or hides its descriptors
        for name in names:
            try:
                count += os.readlink(f"{folder}/{name}") == "anon_inode:inotify"
            except OSError:
                pass
    return count


def check_optional_parts() -> Iterator[Check]:
    installed: list[str] = []
    missing: list[str] = []
    drivers = [driver for driver in SERVER_DRIVERS if driver.client]
    for name, module, use in (
        ("PyYAML", "yaml", "YAML files of tasks, sprint locks in full YAML"),
        ("mcp", "mcp", "`swarm mcp`"),
        ("starlette", "starlette", "`swarm web`"),
        ("uvicorn", "uvicorn", "`swarm web`"),
        *((driver.client, driver.client, f"{driver.schemes[0]}://") for driver in drivers),
        ("tmux", "", "`swarm up`"),
    ):
        if _has_module(module) if module else shutil.which(name) is not None:
            installed.append(f"{name} {_version(name)}".rstrip())
        else:
            missing.append(f"{name} (for {use})")
    text = f"installed: {', '.join(installed) or 'none'}"
    yield Check(
        "optional parts",
        OK,
        f"{text}; missing (optional): {', '.join(missing)}" if missing else text,
    )


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
