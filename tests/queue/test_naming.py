"""Ids that are made from words."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.inputs import check_name, is_plain_name
from swarm.queue.fields.naming import names_from
from swarm.queue.queue import TaskQueue
from swarm.stores.contract import Store
from swarm.stores.registry import open_store
from tests.support.processes import race


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Fix the login bug", "fix-the-login-bug"),
        ("  Don't   panic: REALLY!  ", "dont-panic-really"),
        ("修复 登录 错误", "修复-登录-错误"),
        ("Größe ändern", "größe-ändern"),
        ("fix 🎉 party", "fix-party"),
        ("🎉 🎉", "task"),
        ("?!? ...", "task"),
        ("../../etc passwd", "etc-passwd"),
        ("-rf /", "rf"),
        ("must_stop now", "must-stop-now"),
        ("first line\nsecond line", "first-line-second-line"),
    ],
)
def test_an_id_is_made_from_words(words: str, name: str) -> None:
    assert next(names_from(words)) == name


def test_a_long_text_gives_its_first_words() -> None:
    assert next(names_from("word " * 10_000)) == "-".join(["word"] * 9)
    assert next(names_from("漢" * 500 + " 字")) == "漢" * 48


@given(st.text())
def test_every_text_gives_ids_that_an_agent_may_choose(words: str) -> None:
    names = list(islice(names_from(words), 3))
    assert len(set(names)) == 3
    for name in names:
        assert is_plain_name(check_name(name, "task"))


def test_a_taken_id_gets_a_number(store: Store) -> None:
    queue = TaskQueue(store)
    queue.add("fix-the-bug", "another task")
    assert queue.add(None, "Fix the bug").id == "fix-the-bug-2"
    assert queue.add(None, "Fix the bug").id == "fix-the-bug-3"
    assert queue.add(None, command=["make", "-j"]).id == "make-j"
    with pytest.raises(BadInput, match="neither a prompt nor a command"):
        queue.add(None)


def test_processes_that_add_the_same_words_at_once_all_add_a_task(tmp_path: object) -> None:
    url = f"{tmp_path}/swarm"
    TaskQueue(open_store(url)).add("other", "x")

    def attempt(me: int, _: int) -> bool:
        return TaskQueue(open_store(url)).add(None, "Fix the bug").id.startswith("fix-the-bug")

    assert race(4, 5, attempt) == [[0, 1, 2, 3]] * 5
    names = {task.id for task in TaskQueue(open_store(url)).tasks()}
    assert names == {"other", "fix-the-bug", *(f"fix-the-bug-{number}" for number in range(2, 21))}
