"""Every mutant of a module, each with a name that survives renames and formatting.

mutmut changes values, operators and arguments. Lock code depends on the order of its
steps and on the errors that it meets. So this module also leaves out a statement. The
statement is a `raise`, a `del`, a `return` of a guard clause, or a call whose result is
not used. It may also be an assignment to an attribute or item. The module also makes an
`except` catch nothing, and negates a plain condition.

The name of a change has its operator, and the old and the new text. If a function has
several equal changes, the name also has a number and a count, in source order. An
example is `number: 0 to 1 (2 of 3)`, the second of three zeros.

- The name quotes literals, operators and methods of `str`, but no identifier and no
  line. So the name survives a rename, formatting and a change elsewhere in the
  function.
- The count is part of the name. If the function gets one more such change, a bare
  number could silently name another mutant. With the count, the old explanation then
  fits no mutant, and the proof says so. If two equal changes swap places, the proof
  does not notice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators
from mutmut.mutation.file_mutation import MutationVisitor, group_by_top_level_node
from mutmut.mutation.pragma_handling import IgnoredCode
from mutmut.mutation.trampoline_templates import mangle_function_name

Operator = Callable[[Any], Iterable[cst.CSTNode]]


class Generated(NamedTuple):
    """A mutant: its function, its change, mutmut's own name for it, and its line in the source."""

    function: str
    change: str
    mangled: str
    line: int


def generate(source: str) -> Iterator[Generated]:
    """Name the mutants of a module as mutmut numbers them, without writing or running them.

    Comments that tell mutmut to leave lines out are not supported.
    """
    tree = MetadataWrapper(cst.parse_module(source))
    made_by: dict[cst.CSTNode, Operator] = {}
    operators = [(kind, _noted(operator, made_by)) for kind, operator in OPERATORS]
    visitor = MutationVisitor(operators, IgnoredCode(set(), set(), set()))
    tree.visit(visitor)
    positions = tree.resolve(PositionProvider)
    mutations = group_by_top_level_node(visitor.mutations)
    for holder, function in _functions(tree.module):
        found = mutations.get(function, [])
        changes = [
            NAMES[made_by[one.mutated_node]](one.original_node, one.mutated_node) for one in found
        ]
        mangled = mangle_function_name(name=function.name.value, class_name=holder)
        name = f"{holder}.{function.name.value}" if holder else function.name.value
        for number, (change, one) in enumerate(zip(_numbered(changes), found, strict=True), 1):
            at = positions.get(one.original_node) or positions[function]
            yield Generated(name, change, f"{mangled}__mutmut_{number}", at.start.line)


def without_call(node: cst.Expr) -> Iterable[cst.CSTNode]:
    if isinstance(node.value, cst.Call):
        yield cst.Pass()


def without_raise(node: cst.Raise) -> Iterable[cst.CSTNode]:
    yield cst.Pass()


def without_return(node: cst.Return) -> Iterable[cst.CSTNode]:
    """Leave out a `return` without a value, or a `return True`. Any other `return`
    stays: None is often the same as False, and any test notices a missing result.
    """
    if node.value is None or getattr(node.value, "value", "") == "True":
        yield cst.Pass()


def without_del(node: cst.Del) -> Iterable[cst.CSTNode]:
    yield cst.Pass()


def without_assignment(node: cst.Assign | cst.AugAssign) -> Iterable[cst.CSTNode]:
    """Leave out a change of state. Without its assignment, a local variable would be
    missing, which any test notices.
    """
    targets = (
        [one.target for one in node.targets] if isinstance(node, cst.Assign) else [node.target]
    )
    if any(isinstance(target, cst.Attribute | cst.Subscript) for target in targets):
        yield cst.Pass()


def without_except(node: cst.ExceptHandler) -> Iterable[cst.CSTNode]:
    nothing = cst.Tuple([])
    yield node.with_changes(type=nothing, whitespace_after_except=cst.SimpleWhitespace(" "))


def turned_round(node: cst.If | cst.While) -> Iterable[cst.CSTNode]:
    """Negate a condition that is a plain value.

    mutmut itself changes comparisons, `not`, `and` and `or`.
    """
    if (
        isinstance(node.test, cst.Call | cst.Attribute | cst.Name | cst.Subscript)
        and getattr(node.test, "value", "") != "True"
    ):
        yield node.with_changes(test=cst.UnaryOperation(cst.Not(), node.test))


OPERATORS: list[tuple[type, Operator]] = [
    *mutators.mutation_operators,
    (cst.Expr, without_call),
    (cst.Raise, without_raise),
    (cst.Return, without_return),
    (cst.Del, without_del),
    (cst.Assign, without_assignment),
    (cst.AugAssign, without_assignment),
    (cst.ExceptHandler, without_except),
    (cst.If, turned_round),
    (cst.While, turned_round),
]


def _functions(module: cst.Module) -> Iterator[tuple[str | None, cst.FunctionDef]]:
    """Yield the functions that mutmut changes: the functions of a module and the
    methods of its classes, with the class's name.
    """
    for node in module.body:
        holder, inner = (
            (node.name.value, node.body.body) if isinstance(node, cst.ClassDef) else (None, [node])
        )
        for function in inner:
            if isinstance(function, cst.FunctionDef):
                yield holder, function


def _noted(operator: Operator, made_by: dict[cst.CSTNode, Operator]) -> Operator:
    """Let an operator note its mutants: mutmut does not say which operator made a
    mutant.
    """

    def noted(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        for mutated in operator(node):
            made_by[mutated] = operator
            yield mutated

    return noted


def _numbered(changes: list[str]) -> Iterator[str]:
    total, seen = Counter(changes), Counter[str]()
    for change in changes:
        seen[change] += 1
        yield change if total[change] == 1 else f"{change} ({seen[change]} of {total[change]})"


def _argument(was: cst.Call, now: cst.Call) -> str:
    position = _position(was.args, now.args)
    return (
        f"argument: {position} to None"
        if len(was.args) == len(now.args)
        else f"argument_removed: {position}"
    )


def _position(was: Iterable[cst.CSTNode], now: Iterable[cst.CSTNode]) -> str:
    """Say which node was changed or removed, as in `2/3`."""
    kept = set(now)
    kept_or_not = [node in kept for node in was]
    return f"{kept_or_not.index(False) + 1}/{len(kept_or_not)}"


def _swapped(was: Any, now: Any) -> str:
    operators: dict[type, str] = {
        cst.ComparisonTarget: "comparison",
        cst.BooleanOperation: "and_or",
        cst.UnaryOperation: "sign",
    }
    return (
        f"{operators.get(type(was), 'arithmetic')}: {_symbol(was.operator)} to "
        f"{_symbol(now.operator)}"
    )


def _keyword(was: cst.CSTNode, now: cst.CSTNode) -> str:
    operator = "jump" if isinstance(was, cst.BaseSmallStatement) else "comparison"
    return f"{operator}: {_symbol(was)} to {_symbol(now)}"


def _symbol(node: cst.CSTNode) -> str:
    """Write an operator or keyword without the spaces and comments that stand around it."""
    return cst.Module([]).code_for_node(type(node)()).strip()


def _expression(node: cst.BaseExpression) -> str:
    """Write a literal as it is. Of any other expression, write only its kind, such as
    `call` or `binary operation`.
    """
    match node:
        case cst.SimpleString():
            return repr(node.evaluated_value)
        case cst.Integer() | cst.Float() | cst.Name(value="None" | "True" | "False"):
            return str(node.value)
    return re.sub("(?<!^)(?=[A-Z])", " ", type(node).__name__).lower()


# How the changes of each operator are named, from the old and the new node. The proof
# fails if an operator is missing here.
NAMES: dict[Operator, Callable[[Any, Any], str]] = {
    mutators.operator_number: lambda was, now: f"number: {was.value} to {now.value}",
    mutators.operator_string: lambda was, now: f"string: {_expression(was)} to {_expression(now)}",
    mutators.operator_name: lambda was, now: f"name: {was.value} to {now.value}",
    mutators.operator_assignment: lambda was, now: (
        f"assignment: {_expression(was.value)} to {_expression(now.value)}"
    ),
    mutators.operator_augmented_assignment: lambda was, now: (
        f"assignment: {_symbol(was.operator)} to ="
    ),
    mutators.operator_remove_unary_ops: lambda was, now: (
        f"without_{'not' if isinstance(was.operator, cst.Not) else 'invert'}"
    ),
    mutators.operator_dict_arguments: lambda was, now: f"dict_key: {_position(was.args, now.args)}",
    mutators.operator_arg_removal: _argument,
    mutators.operator_symmetric_string_methods_swap: lambda was, now: (
        f"method: {was.func.attr.value} to {now.func.attr.value}"
    ),
    mutators.operator_unsymmetrical_string_methods_swap: lambda was, now: (
        f"method: {was.func.attr.value} to {now.func.attr.value}"
    ),
    mutators.operator_lambda: lambda was, now: (
        f"lambda: {_expression(was.body)} to {_expression(now.body)}"
    ),
    mutators.operator_keywords: _keyword,
    mutators.operator_swap_op: _swapped,
    mutators.operator_match: lambda was, now: f"case_removed: {_position(was.cases, now.cases)}",
    mutators.operator_if_exp: lambda was, now: (
        f"if_expression: {'never' if isinstance(now.test.operator, cst.And) else 'always'}"
    ),
    without_call: lambda was, now: "without_call",
    without_raise: lambda was, now: "without_raise",
    without_return: lambda was, now: "without_return",
    without_del: lambda was, now: "without_del",
    without_assignment: lambda was, now: "without_assignment",
    without_except: lambda was, now: "without_except",
    turned_round: lambda was, now: f"turned_round: {'if' if isinstance(was, cst.If) else 'while'}",
}
