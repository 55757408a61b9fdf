"""Status records about prompts, on every store."""

from __future__ import annotations

from swarm.board.viewer import Viewer
from swarm.locks.table import LockTable
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.tmux.prompt_records import PromptRecords
from swarm.tmux.prompts import CONFIRM, DANGER, Prompt

DANGEROUS = Prompt(DANGER, "rm -rf build Run it? [y/N]", "", "its text has 'rm -rf'", "")
HARMLESS = Prompt(CONFIRM, "Go on? [y/N]", "y\r", "", "")


def problems(store: Store) -> list[tuple[str, str]]:
    return [(problem.kind, problem.task_id) for problem in Viewer(store).look().problems]


def test_a_wait_is_a_problem_of_each_task_of_the_agent_until_it_is_over(store: Store) -> None:
    locks, records = LockTable(store), PromptRecords(store)
    for task, worker in (("api", "worker-1"), ("login", "worker-1"), ("other", "worker-2")):
        locks.acquire(task, worker, 600.0)
    tasks = records.waits("worker-1", DANGEROUS, DANGEROUS.reason)
    assert problems(store) == [("waiting", "api"), ("waiting", "login")]

    records.answered("worker-1", HARMLESS)  # an informational record ends no wait
    assert len(problems(store)) == 2

    locks.release("api", "worker-1")
    locks.acquire("api", "worker-2", 600.0)  # another attempt, which may wait itself
    records.over("worker-1", tasks)
    states = [(r["state"], r["task_id"]) for _, r in StatusLog(store).read()[0]]
    assert states[-1] == ("START", "login") and ("START", "api") not in states


def test_an_agent_without_a_task_waits_under_the_name_of_its_pane(store: Store) -> None:
    records = PromptRecords(store)
    tasks = records.waits("worker-1", DANGEROUS, DANGEROUS.reason)
    assert problems(store) == [("waiting", "pane:worker-1")]
    records.over("worker-1", tasks)
    assert not problems(store)


def test_waits_of_panes_that_were_left_over_end(store: Store) -> None:
    PromptRecords(store).waits("worker-1", DANGEROUS, DANGEROUS.reason)
    StatusLog(store).append("WAIT", "me", "pane:of-a-person", "a question of mine")
    PromptRecords(store).end_left_over()
    assert problems(store) == [("waiting", "pane:of-a-person")]
