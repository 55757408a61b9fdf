"""Which files a pattern names, and whether two patterns have one in common."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.locks.path_pattern import (
    checked_pattern,
    in_project,
    lock_name,
    names_of,
    overlap,
    pattern_of,
    project_root,
)

# Every path of up to four names of up to two letters: enough to show what two patterns
# of two such names have in common.
_NAMES = ["".join(letters) for size in (1, 2) for letters in itertools.product("ab", repeat=size)]
_PATHS = [
    "/".join(names) for size in (1, 2, 3, 4) for names in itertools.product(_NAMES, repeat=size)
]

_patterns = st.lists(
    st.one_of(
        st.just("**"), st.text("ab*?", min_size=1, max_size=2).filter(lambda name: name != "**")
    ),
    min_size=1,
    max_size=2,
).map("/".join)


def named(pattern: str) -> set[str]:
    """Which of the paths a pattern names, by another way than ours."""
    names = [*pattern.split("/"), "**"]
    parts = [
        "(/[^/]+)*" if name == "**" else "/" + name.replace("*", "[^/]*").replace("?", "[^/]")
        for name in names
    ]
    return {path for path in _PATHS if re.fullmatch("".join(parts), "/" + path)}


class TestOverlap:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("src/api/**", "src/api/users.py"),
            ("src/api", "src/api/v1/users.py"),
            ("src/**", "src/api/**"),
            ("**/*.py", "src/api"),
            ("src/*/users.py", "src/api/*.py"),
            ("**", "anything/at/all"),
            ("a*c", "*b*"),
            ("app/[id]/page.tsx", "app/[id]/page.tsx"),
            ("/etc/hosts", "/etc/**"),
            ("文件/*", "文件/甲"),
        ],
    )
    def test_patterns_with_a_file_in_common(self, one: str, other: str) -> None:
        assert overlap(one, other) and overlap(other, one)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("src/api/**", "src/apiary.py"),
            ("src/*.py", "src/a.ts"),
            ("src/a?c", "src/ac"),
            ("a*b", "a*c"),
            ("docs", "src"),
            ("app/[id]/page.tsx", "app/i/page.tsx"),
            ("**", "/etc/hosts"),
            ("etc/hosts", "/etc/hosts"),
        ],
    )
    def test_patterns_with_none(self, one: str, other: str) -> None:
        assert not overlap(one, other) and not overlap(other, one)

    @given(_patterns, _patterns)
    def test_it_is_so_if_a_path_shows_it(self, one: str, other: str) -> None:
        assert overlap(one, other) == bool(named(one) & named(other)) == overlap(other, one)

    @given(_patterns, st.sampled_from([path for path in _PATHS if path.count("/") < 2]))
    def test_a_path_is_a_pattern_for_itself_and_what_is_below(
        self, pattern: str, path: str
    ) -> None:
        below = {each for each in _PATHS if each == path or each.startswith(path + "/")}
        assert overlap(pattern, path) == bool(named(pattern) & below)

    def test_a_pattern_made_to_take_for_ever_does_not(self) -> None:
        assert overlap("*a" * 90, "a" * 180 + "*") and not overlap("a*" * 90 + "b", "a" * 180)
        assert overlap("**/" * 60 + "x", "**/" * 60 + "x")


class TestNames:
    @given(st.text(min_size=1, max_size=40).filter(lambda text: text.strip() and "\0" not in text))
    def test_the_name_of_a_record_is_converted_to_its_pattern(self, text: str) -> None:
        try:
            pattern = checked_pattern(text, "/project", "/project")
        except BadInput:
            return
        assert pattern_of(lock_name(pattern)) == pattern
        assert checked_pattern(pattern, "/project", "/project") == pattern

    def test_different_patterns_have_different_names(self) -> None:
        patterns = ["a/b", "a%2Fb", "a:b", "a\\b", ".a", "-a", "%2Ea", "A/b"]
        assert len({lock_name(pattern) for pattern in patterns}) == len(patterns)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "empty"),
            ("  ", "empty"),
            ("a\0b", "NUL"),
            ("x" * 300, "too long"),
            ("src/{api,web}/**", "braces"),
            ("a\udcff", "UTF-8"),
        ],
    )
    def test_an_invalid_pattern_is_refused(self, text: str, message: str) -> None:
        with pytest.raises(BadInput, match=message):
            checked_pattern(text, "/project", "/project")


class TestProject:
    def test_the_root_has_a_git_directory_and_is_else_the_directory_itself(
        self, tmp_path: Path
    ) -> None:
        inner = tmp_path / "project" / "a" / "b"
        inner.mkdir(parents=True)
        assert project_root(str(inner)) == str(inner)
        (tmp_path / "project" / ".git").write_text("gitdir: elsewhere")  # as in a worktree
        assert project_root(str(inner)) == str(tmp_path / "project")

    @pytest.mark.parametrize(
        ("path", "known"),
        [
            ("x.py", "src/x.py"),
            ("./x.py", "src/x.py"),
            ("../x.py", "x.py"),
            ("/project/src/x.py", "src/x.py"),
            ("../../x.py", "/x.py"),
            ("/etc/hosts", "/etc/hosts"),
            ("..", "**"),
            ("/projects/x.py", "/projects/x.py"),
            ("é.py", "src/é.py"),  # in two characters
        ],
    )
    def test_a_path_counts_from_the_root(self, path: str, known: str) -> None:
        assert in_project(path, "/project", "/project/src") == known

    @pytest.mark.parametrize(
        "text", ["src/api", "src/api/", "src/api/**", "src/api/**/**", "./src//api"]
    )
    def test_one_directory_is_one_pattern_however_it_is_written(self, text: str) -> None:
        assert checked_pattern(text, "/project", "/project") == "src/api"

    def test_a_file_has_the_name_that_a_link_leads_to_as_well(self, tmp_path: Path) -> None:
        (tmp_path / "src").mkdir()
        (tmp_path / "link").symlink_to("src")
        assert names_of("link/x.py", str(tmp_path), str(tmp_path)) == ["link/x.py", "src/x.py"]
        outside = tmp_path.with_name("way-in")
        outside.symlink_to(tmp_path)
        assert names_of(str(outside / "src" / "x.py"), str(tmp_path), "/") == [
            str(outside / "src" / "x.py"),
            "src/x.py",
        ]
        os.unlink(outside)

    def test_a_file_is_called_from_every_project_that_it_is_in(self, tmp_path: Path) -> None:
        inner = tmp_path / "project" / "vendor" / "lib"
        (inner / ".git").mkdir(parents=True)
        (tmp_path / "project" / ".git").mkdir()
        for here in (str(inner), str(tmp_path / "project"), "/"):
            names = names_of(str(inner / "x.py"), project_root(here), here)
            assert {"x.py", "vendor/lib/x.py"} <= set(names), here

    def test_a_home_directory_is_understood(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        assert names_of("~/x.py", str(tmp_path), "/") == ["x.py"]

    def test_a_pattern_does_not_lead_through_links(self, tmp_path: Path) -> None:
        """One file would have two names, and so two workers."""
        project = tmp_path / "project"
        (project / "src").mkdir(parents=True)
        (project / ".git").mkdir()
        (project / "link").symlink_to("src")
        (tmp_path / "way-in").symlink_to(project)
        for text in (
            "src/x*.py",
            "link/x*.py",
            "link/../src/x*.py",
            str(tmp_path / "way-in" / "link" / "x*.py"),
        ):
            assert checked_pattern(text, str(project), str(project)) == "src/x*.py"

    def test_a_pattern_in_another_checkout_counts_from_there(self, tmp_path: Path) -> None:
        (tmp_path / "project" / ".git").mkdir(parents=True)
        assert (
            checked_pattern(str(tmp_path / "project" / "src" / "*"), "/elsewhere", "/elsewhere")
            == "src/*"
        )
        assert (
            checked_pattern(str(tmp_path / "nothing" / "*"), "/elsewhere", "/elsewhere")
            == f"{tmp_path}/nothing/*"
        )
