"""Names of refs and directories: any task id, any branch, no two the same."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swarm.workspaces import refs

IDS = ["a", "a:b", "x.lock", "x.LOCK", "@{", "@", "a..b", "a.", "ü" * 100, "𝄞" * 50, "x" * 200]
IDS += ["a b", "a~1", "a^", "a?*[", "%41", "A", "-", "a%2Eb", "HEAD", "a.b", "a.lock.b", ".", ".."]
IDS += ["x" * 159 + ".lock", "a\udce4"]


def accepted(ref: str) -> bool:
    return subprocess.run(["git", "check-ref-format", ref]).returncode == 0


@pytest.mark.parametrize("name", IDS)
def test_git_accepts_the_refs_of_any_name(name: str) -> None:
    for ref in (
        refs.work_ref(name, 7),
        refs.work_ref(name, 7, 1),
        refs.work_ref(name, 7, refs.DROPPED),
        refs.attempt_branch(name, 7),
        refs.landed_ref(name, name),
        refs.task_fence(name),
        refs.branch_fence(name),
        refs.behind_ref(name),
    ):
        assert accepted(ref), ref
        assert all(len(part.encode()) <= 200 for part in ref.split("/"))


def test_names_that_need_no_change_stay_readable() -> None:
    assert refs.component("T-1_b.2") == "T-1_b.2"


def test_a_slash_of_a_branch_is_no_directory() -> None:
    assert refs.component("feature/x") == "feature%2Fx"


@given(st.text(), st.text())
@example("a.b", "a%2Eb")
@example("a.lock", "a%2Elock")
@example("x" * 200, "x" * 201)
@example("x" * 300, refs.component("x" * 300))
@example("ü" * 200, "ü" * 199 + "u")
def test_two_names_never_have_the_same_component(one: str, other: str) -> None:
    one, other = (text.encode("utf-8", "ignore").decode() for text in (one, other))
    assert (refs.component(one) == refs.component(other)) == (one == other)


@given(st.text(min_size=1))
def test_a_component_is_safe_in_a_ref_and_as_a_file_name(name: str) -> None:
    part = refs.component(name.encode("utf-8", "ignore").decode() or "x")
    assert part.isascii() and part.isprintable() and not set(part) & set("/\\ ~^:?*[@{}'\"")
    assert not part.startswith((".", "-")) and not part.endswith((".", ".lock"))
    assert ".." not in part and len(part) <= 160


def test_a_lander_never_works_in_the_directory_of_a_task() -> None:
    name = refs.landing_name("main", 3)
    assert name != refs.workspace_name("landing.main", 3)
    assert name != refs.workspace_name("%landing.main", 3)
