"""The name of a mutant survives changes of names, formatting and other code, and is
unique.
"""

from __future__ import annotations

from textwrap import dedent, indent

import pytest
from mutmut import configuration
from mutmut.mutation import file_mutation

from proof import mutants, mutation

SOURCE = '''
def first(data, limit):
    """Not a mutant."""
    found = data.partition("/")[2] if limit > 0 else ""  # the rest
    if not found or limit < 0:
        raise ValueError(found, 0)
    return found


class Second:
    def __init__(self):
        self.left, self.right = 0, 0
'''


def changes(body: str) -> list[str]:
    return [
        it.change
        for it in mutants.generate(f"def f(self, a, b, c):\n{indent(dedent(body), '    ')}\n")
    ]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("return 7", ["number: 7 to 8"]),
        (
            "return 'Id'",
            ["string: 'Id' to 'XXIdXX'", "string: 'Id' to 'id'", "string: 'Id' to 'ID'"],
        ),
        (r"return b'\n'", [r"string: b'\n' to b'XX\nXX'"]),
        ("return True", ["name: True to False"]),
        ("a = b", ["assignment: name to None"]),
        ("self.a = None", ["assignment: None to ''"]),
        ("a: int = b.c(d)", ["assignment: call to None", "argument: 1/1 to None"]),
        ("a += b", ["assignment: += to =", "arithmetic: += to -="]),
        ("return -a", ["sign: - to +"]),
        ("return not a", ["without_not"]),
        ("return ~a", ["without_invert"]),
        ("return dict(a=b)", ["dict_key: 1/1", "argument: 1/1 to None"]),
        (
            "return a(b, None)",
            ["argument: 1/2 to None", "argument_removed: 1/2", "argument_removed: 2/2"],
        ),
        ("return a.partition(*b)", ["method: partition to rpartition"]),
        (
            "return a.split(*b, maxsplit=c)[0:]",
            ["argument: 2/2 to None", "argument_removed: 1/2", "argument_removed: 2/2"],
        ),
        ("return lambda: a", ["lambda: name to None"]),
        ("return a is not b", ["comparison: is not to is"]),
        ("return a <= b", ["comparison: <= to <"]),
        ("return a and b", ["and_or: and to or"]),
        ("return a // b", ["arithmetic: // to /"]),
        ("return a if b else c", ["if_expression: never", "if_expression: always"]),
        ("for a in b:\n    break", ["jump: break to return"]),
        (
            "match a:\n    case b.c:\n        pass\n    case _:\n        pass",
            ["case_removed: 1/2", "case_removed: 2/2"],
        ),
        ("a.close()", ["without_call"]),
        ("raise", ["without_raise"]),
        ("if a < b:\n    return", ["without_return"]),
        ("if a < b:\n    return True", ["without_return"]),
        ("del a[b]", ["without_del"]),
        ("self.a = b", ["without_assignment"]),
        ("a[b] += c", ["without_assignment"]),
        ("try:\n    pass\nexcept a:\n    pass", ["without_except"]),
        ("if a:\n    pass", ["turned_round: if"]),
        ("while a.b:\n    pass", ["turned_round: while"]),
    ],
)
def test_a_change_is_named_by_its_operator_and_the_old_and_new_text(
    body: str, named: list[str]
) -> None:
    found = changes(body)
    assert [change for change in found if change in named] == named
    assert len(set(found)) == len(found)


def test_every_operator_has_a_name() -> None:
    assert mutants.NAMES.keys() == {operator for _, operator in mutants.OPERATORS}


def test_equal_changes_of_a_function_are_numbered_in_source_order() -> None:
    (found,) = [it for it in mutants.generate(SOURCE) if it.change == "number: 0 to 1 (2 of 3)"]
    assert (found.function, found.line) == ("first", 5)
    assert changes("return 0, 1, 0") == [
        "number: 0 to 1 (1 of 2)",
        "number: 1 to 2",
        "number: 0 to 1 (2 of 2)",
    ]


@pytest.mark.parametrize(
    "other",
    [
        "_x = own._named_otherwise(text, word='x') if n.m < 0 and not yet else (0, '')",
        'kept=self.found( a,key = "x" ) if a.b<0 and not c else (0, "")  # for this reason',
        """
        kept = (
            self.found(
                a,  # one
                key='x',
            )
            if a.b < 0  # two
            and not c
            else (0, '')
        )
        """,
        "b = a\nkept = self.found(a, key='x') if a.b < 0 and not c else (0, '')\nreturn b > [7]",
    ],
    ids=["renamed", "formatted", "in several lines", "with more around it"],
)
def test_the_name_of_a_mutant_survives_renames_and_formatting(other: str) -> None:
    named = changes("kept = self.found(a, key='x') if a.b < 0 and not c else (0, '')")
    assert len(set(named)) == 15
    assert [change for change in changes(other) if change in named] == named


@pytest.mark.parametrize(
    "more", ["g(0)\nreturn a < 0", "return a < 0 < 0", "if a:\n    return 0\nreturn a < 0"]
)
def test_one_more_equal_change_renames_the_others(more: str) -> None:
    """Otherwise an explanation would pass silently to another mutant."""
    assert "number: 0 to 1" in changes("return a < 0")
    assert "number: 0 to 1" not in changes(more)


def test_names_belong_to_the_mutants_that_mutmut_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mutation.ROOT)  # mutmut reads its settings in the current directory
    monkeypatch.setattr(configuration, "_config", None)
    monkeypatch.setattr(file_mutation, "mutation_operators", mutants.OPERATORS)
    made = file_mutation.mutate_file_contents("m.py", SOURCE)
    found = list(mutants.generate(SOURCE))
    assert [it.mangled for it in found] == list(made.mutant_names)

    def lines(name: str) -> list[str]:
        span = made.line_span_by_function_name[name]
        return made.code.splitlines()[span.start : span.end]

    seen = {}
    for it in found:
        original = lines(f"{it.mangled.rpartition('_')[0]}_orig")
        ((_, now),) = [
            pair for pair in zip(original, lines(it.mangled), strict=True) if pair[0] != pair[1]
        ]
        seen[it.function, it.change] = now.strip()
    assert len(seen) == len(found)
    assert (
        seen["first", "number: 0 to 1 (1 of 3)"]
        == 'found = data.partition("/")[2] if limit > 1 else ""  # the rest'
    )
    assert seen["first", "number: 0 to 1 (2 of 3)"] == "if not found or limit < 1:"
    assert seen["first", "number: 0 to 1 (3 of 3)"] == "raise ValueError(found, 1)"
    assert seen["first", "argument_removed: 1/2"] == "raise ValueError(0)"
    assert seen["first", "without_raise"] == "pass"
    assert seen["first", "without_not"] == "if found or limit < 0:"
    assert seen["Second.__init__", "number: 0 to 1 (1 of 2)"] == "self.left, self.right = 1, 0"
    assert seen["Second.__init__", "number: 0 to 1 (2 of 2)"] == "self.left, self.right = 0, 1"
