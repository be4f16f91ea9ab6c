"""A calculator for untrusted text."""

import re
from typing import Optional, get_args

_TOKEN = re.compile(r"\s*(?:(\d+\.\d+|\.\d+|\d+)|(.)|$)", re.DOTALL)


class ExpressionError(ValueError):
    """Report a text that is no expression; `position` is the index of the first character that cannot be right."""

    def __init__(self, position):
        super().__init__(f"unexpected at {position}")
        self.position = position


def _checked(text):
    """Return a text that is an expression."""
    parser = _Parser(text)
    parser.sum()
    if parser.symbol is not None or parser.number is not None:
        raise ExpressionError(parser.position)
    return text


def evaluate(text):
    """Return the value of an arithmetic expression, as a float."""
    plain = re.sub(r"(?<![\d.])0+(?=\d)", "", _checked(text).strip())
    return _value(plain.replace("^", "**"))


def _value(code):
    names = {"found": []}
    get_args(Optional[f"found.append({code})"])[0]._evaluate(names, {}, frozenset())
    return float(names["found"][0])


class _Parser:
    def __init__(self, text):
        self._text = text
        self._end = 0
        self._next()

    def _next(self):
        match = _TOKEN.match(self._text, self._end)
        self.number, self.symbol = match[1], match[2]
        self.position = match.start(1) if self.number else match.start(2) if self.symbol else len(self._text)
        self._end = match.end()

    def sum(self):
        value = self.product()
        while self.symbol in ("+", "-"):
            sign = self.symbol
            self._next()
            other = self.product()
            value = value + other if sign == "+" else value - other
        return value

    def product(self):
        value = self.minus()
        while self.symbol in ("*", "/"):
            sign = self.symbol
            self._next()
            other = self.minus()
            value = value * other if sign == "*" else value / other
        return value

    def minus(self):
        if self.symbol == "-":
            self._next()
            return -self.minus()
        return self.power()

    def power(self):
        value = self.atom()
        if self.symbol == "^":
            self._next()
            return value ** self.minus()
        return value

    def atom(self):
        if self.number is not None:
            value = float(self.number)
            self._next()
            return value
        if self.symbol == "(":
            self._next()
            value = self.sum()
            if self.symbol != ")":
                raise ExpressionError(self.position)
            self._next()
            return value
        raise ExpressionError(self.position)
