"""The cost of reading a long status log: one task's records, the state of all tasks,
the end, and the memory.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile

from bench.commands import LOCK, LOG, PYTHON, command, most_memory, swarm
from bench.ratio import medians
from bench.report import Goal, Report

RECORDS = 1_000_000
TASKS = 500_000
LARGE = 10_000_000_000
_TASK = "task-123456"

_JSON_QUERY = f"""
import json
for line in open("status.log", encoding="utf-8"):
    if json.loads(line)["task_id"] == "{_TASK}":
        print(line, end="")
"""
_JSON_STATE = """
import json
last = {}
for line in open("status.log", encoding="utf-8"):
    record = json.loads(line)
    last[record["task_id"]] = record["state"]
print(len(last))
"""
_DUCKDB = """
import duckdb
print(duckdb.sql('''select state, count(*) from (select task_id, arg_max(state, "timestamp") as state
    from read_json('status.log', format = 'newline_delimited',
    columns = {timestamp: 'VARCHAR', task_id: 'VARCHAR', state: 'VARCHAR'}) group by task_id) group by state''').fetchall())
"""
_POLARS = """
import polars
log = polars.scan_ndjson("status.log", schema={"timestamp": polars.String, "task_id": polars.String, "state": polars.String})
last = log.group_by("task_id").agg(polars.col("state").last())
print(last.group_by("state").len().collect().rows())
"""


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as directory:
        write_log(f"{directory}/status.log", RECORDS)
        _query(report, directory)
        _states(report, directory)
        _memory(report, directory)
        _tail(report, directory)


def write_log(path: str, records: int, tasks: int = TASKS) -> None:
    """Write records of tasks that start, perhaps wait for a person, and end; about 200
    bytes a record.
    """
    line = (
        '{{"timestamp": "2026-02-02T10:{0:02d}:{1:02d}.000Z", "type": "{2}", "state": "{2}", '
        '"worker": "worker-{3}", '
        '"task_id": "task-{4:06d}"{5}, "meta": {{"token": {6}, "attempt": 1}}}}\n'
    )
    question = ', "reason": "which database shall I use?", "message": "which database shall I use?"'
    with open(path, "w", encoding="utf-8") as file:
        for number in range(records // 2):
            moment, task = (number // 60 % 60, number % 60), number % tasks
            state = ("WAIT", question) if number % 20 == 0 else ("START", "")
            file.write(line.format(*moment, state[0], number % 8, task, state[1], number))
            file.write(
                line.format(
                    *moment, "DONE", number % 8, task, question if number % 2 else "", number
                )
            )


def _query(report: Report, directory: str) -> None:
    grep, ours = "grep -F", "swarm_status_log.sh query"
    candidates = {
        grep: command(directory, "grep", "-F", f'"{_TASK}"', "status.log"),
        ours: command(directory, LOG, "query", _TASK),
        "Python, json.loads": command(directory, PYTHON, "-c", _JSON_QUERY),
        "jq": command(directory, "jq", "-c", f'select(.task_id == "{_TASK}")', "status.log"),
    }
    found = medians(candidates, rounds=5)
    report.milliseconds(
        f"The records of one task among {RECORDS:,}", found, [Goal(ours, grep, at_most=1.5)]
    )


def _states(report: Report, directory: str) -> None:
    grep, first, again, check = (
        "grep -F, one task",
        "swarm status, first time",
        "swarm status, again",
        "lock check",
    )
    candidates = {
        grep: command(directory, "grep", "-F", f'"{_TASK}"', "status.log"),
        first: command(directory, *swarm("status", "--json")),
        "DuckDB": command(directory, sys.executable, "-c", _DUCKDB),
        "Polars": command(directory, sys.executable, "-c", _POLARS),
        "Python, json.loads": command(directory, PYTHON, "-c", _JSON_STATE),
        "jq": command(
            directory,
            "jq",
            "-n",
            "reduce inputs as $r ({}; .[$r.task_id] = $r.state) | length",
            "status.log",
        ),
    }
    cache = f"{directory}/.cache"
    found = medians(
        candidates, rounds=5, before={first: lambda: shutil.rmtree(cache, ignore_errors=True)}
    )
    goal = [Goal(first, grep, at_most=7.0)]
    report.milliseconds(
        f"The latest state of {TASKS:,} tasks from {RECORDS:,} records", found, goal
    )
    seconds = medians(
        {
            check: command(directory, LOCK, "check", _TASK),
            again: command(directory, *swarm("status", "--json")),
        },
        rounds=25,
    )
    report.milliseconds("The same again", seconds, [Goal(again, check, at_most=1.5)])


def _memory(report: Report, directory: str) -> None:
    cache = f"{directory}/.cache"
    figures = {"bare Python": most_memory(directory, PYTHON, "-I", "-S", "-c", "pass")}
    shutil.rmtree(cache, ignore_errors=True)
    figures["swarm status, first time"] = most_memory(directory, *swarm("status", "--json"))
    figures["swarm status, again"] = most_memory(directory, *swarm("status", "--json"))
    figures["swarm_status_log.sh query"] = most_memory(directory, LOG, "query", _TASK)
    figures["swarm_status_log.sh tail"] = most_memory(directory, LOG, "tail")
    command(directory, *swarm("task", "add", "one", "--prompt", "x"))()
    figures["a worker that runs one task"] = most_memory(
        directory, *swarm("worker", "--id", "1", "--until-empty", "--exec", "true")
    )
    used = {name: bytes_ / 1e6 for name, bytes_ in figures.items()}
    report.add(
        f"Memory with {RECORDS:,} records",
        "MB",
        used,
        compared=False,
    )


def _tail(report: Report, directory: str) -> None:
    small = f"{directory}/small"
    os.mkdir(small)
    write_log(f"{small}/status.log", 50)
    _grow(f"{directory}/status.log", LARGE)
    candidates = {
        "tail -n 10, 10 kB": command(small, "tail", "-n", "10", "status.log"),
        "tail -n 10, 10 GB": command(directory, "tail", "-n", "10", "status.log"),
        "swarm_status_log.sh tail 10, 10 kB": command(small, LOG, "tail", "10"),
        "swarm_status_log.sh tail 10, 10 GB": command(directory, LOG, "tail", "10"),
    }
    large, little = "swarm_status_log.sh tail 10, 10 GB", "swarm_status_log.sh tail 10, 10 kB"
    found = medians(candidates, rounds=25)
    report.milliseconds("The last ten records", found, [Goal(large, little, at_most=1.1)])


def _grow(path: str, size: int) -> None:
    """Append the same records again and again."""
    with open(path, "r+b") as file:
        records = file.read()
        while file.tell() < size:
            file.write(records)
