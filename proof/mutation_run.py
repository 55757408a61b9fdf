"""Runs mutmut with a few more kinds of mutants: those that take a step away. Called by `mutation`, in a copy of the tree.

mutmut itself changes values, operators and arguments. Code that hands a lock over lives by the order of its steps and by the
errors that it meets. So here every call whose result nobody uses is left out once, and every `raise`; every `except` catches
nothing once; and every plain condition is turned round.
"""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst
from mutmut.__main__ import cli
from mutmut.mutation.mutators import mutation_operators


def without_call(node: cst.Expr) -> Iterable[cst.CSTNode]:
    if isinstance(node.value, cst.Call):
        yield cst.Pass()


def without_raise(node: cst.Raise) -> Iterable[cst.CSTNode]:
    yield cst.Pass()


def without_except(node: cst.ExceptHandler) -> Iterable[cst.CSTNode]:
    nothing = cst.Tuple([])
    yield node.with_changes(type=nothing, whitespace_after_except=cst.SimpleWhitespace(" "))


def turned_round(node: cst.If | cst.While) -> Iterable[cst.CSTNode]:
    """Comparisons, `not`, `and` and `or` are mutmut's own."""
    if isinstance(node.test, cst.Call | cst.Attribute | cst.Name | cst.Subscript) and getattr(node.test, "value", "") != "True":
        yield node.with_changes(test=cst.UnaryOperation(cst.Not(), node.test))


def main() -> None:
    assert isinstance(mutation_operators, list)
    mutation_operators.extend(
        [
            (cst.Expr, without_call),
            (cst.Raise, without_raise),
            (cst.ExceptHandler, without_except),
            (cst.If, turned_round),
            (cst.While, turned_round),
        ]
    )
    cli()


if __name__ == "__main__":
    main()
