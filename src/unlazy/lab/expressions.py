"""Arithmetic expressions over named quantities, such as ``0.1 / network.width``; nothing else is evaluated."""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unlazy._errors import UserError, short, suggest

_LARGEST_POWER = 1e300


def _power(base: Any, exponent: Any) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int) and exponent >= 0
    if whole and float(abs(base)) ** exponent < _LARGEST_POWER:  # raises before a number of millions of digits
        return base**exponent
    found = np.power(np.asarray(base, float), exponent)
    return found if np.ndim(found) else float(found)


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_CONSTANTS = {"pi": math.pi, "e": math.e}


def _extreme(of_numbers: Callable[..., Any], of_arrays: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *values: functools.reduce(of_arrays, values) if any(map(np.ndim, values)) else of_numbers(values)


_ROUNDING = {"round": np.round, "floor": np.floor, "ceil": np.ceil}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "abs": abs,
    "min": _extreme(min, np.minimum),
    "max": _extreme(max, np.maximum),
    **{
        name: lambda value, how=how: how(value) if np.ndim(value) else int(how(value))
        for name, how in _ROUNDING.items()
    },
}
_LONGEST = 500  # characters


class Expression:
    """An arithmetic expression: numbers, names with dots, ``+ - * / // % **``, and a few functions.

    Functions are sqrt, exp, log, log2, log10, sin, cos, tanh, abs, min, max, round, floor and ceil; the last three make
    whole numbers. Constants are pi and e. ``where`` is the place of the expression in a file, for error messages.
    """

    def __init__(self, text: str, where: str = "expression") -> None:
        if not isinstance(text, str):
            raise UserError(f"{where}: write the expression as text in quotation marks, not {short(text)}.")
        self.text, self.where = text, where
        self.names: list[str] = []  # that it uses, in the order in which they appear
        try:
            if len(text) > _LONGEST:
                raise ValueError
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise UserError(f"{where}: {short(text)} is not an arithmetic expression.") from None
        self._value = self._compiled(tree)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def _compiled(self, node: ast.AST) -> Callable[[Mapping[str, Any]], Any]:
        """Return a node of the syntax tree as a function of the values by name; refuse what is not arithmetic."""
        match node:
            case ast.Constant(value=bool() | str() | bytes() | None):
                pass
            case ast.Constant(value=int() | float() as value):
                return lambda values: value
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                combine, first, second = _OPERATORS[type(op)], self._compiled(left), self._compiled(right)
                return lambda values: combine(first(values), second(values))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                sign, inner = _OPERATORS[type(op)], self._compiled(operand)
                return lambda values: sign(inner(values))
            case ast.Call(func=ast.Name(id=name), args=[_, *_] as arguments, keywords=[]):
                if name not in _FUNCTIONS:
                    raise UserError(f"{self.where}: there is no function '{name}'. {suggest(name, _FUNCTIONS)}")
                function, each = _FUNCTIONS[name], [self._compiled(one) for one in arguments]
                return lambda values: function(*(one(values) for one in each))
            case ast.Name() | ast.Attribute() if (dotted := _dotted(node)) is not None:
                if dotted not in _CONSTANTS and dotted not in self.names:
                    self.names.append(dotted)
                return lambda values: values[dotted] if dotted in values else _CONSTANTS[dotted]
        allowed = "numbers, fields, + - * / // % ** and functions such as sqrt"
        raise UserError(f"{self.where}: '{ast.unparse(node)}' is not allowed in an expression: use {allowed}.")

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Evaluate with numbers or arrays by name; a missing name, or another value, raises a `UserError`."""
        for name in self.names:
            if name not in values:
                raise UserError(f"{self.where}: '{name}' is not known here. {suggest(name, values)}")
            if isinstance(values[name], bool) or not isinstance(values[name], int | float | np.ndarray | np.number):
                raise UserError(f"{self.where}: '{name}' is {short(values[name])}, which is not a number.")
        try:
            with np.errstate(all="ignore"):
                found = self._value(values)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise UserError(f"{self.where}: {short(self.text)} has no value here ({error}).") from None
        return found if np.ndim(found) or isinstance(found, int) else float(found)


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None
