"""A calculator for untrusted text."""

import re

_TOKEN = re.compile(r"\s*(?:(\d+\.\d+|\.\d+|\d+)|(.)|$)", re.DOTALL)


class ExpressionError(ValueError):
    """Report a text that is no expression; `position` is the index of the first character that cannot be right."""

    def __init__(self, position):
        super().__init__(f"unexpected at {position}")
        self.position = position


def evaluate(text):
    """Return the value of an arithmetic expression, as a float."""
    parser = _Parser(text)
    value = parser.sum()
    if parser.symbol is not None or parser.number is not None:
        raise ExpressionError(parser.position)
    return float(value)


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
        value = self.power()
        while self.symbol in ("*", "/"):
            sign = self.symbol
            self._next()
            other = self.power()
            value = value * other if sign == "*" else value / other
        return value

    def power(self):
        value = self.minus()
        while self.symbol == "^":
            self._next()
            value = value ** self.minus()
        return value

    def minus(self):
        if self.symbol == "-":
            self._next()
            return -self.minus()
        return self.atom()

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
