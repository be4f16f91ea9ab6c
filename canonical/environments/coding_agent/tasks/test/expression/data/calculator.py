"""A calculator for untrusted text."""


class ExpressionError(ValueError):
    """Report a text that is no expression; `position` is the index of the first character that cannot be right."""

    def __init__(self, position):
        super().__init__(f"unexpected at {position}")
        self.position = position


def evaluate(text):
    """Return the value of an arithmetic expression, as a float.

    An expression is made of decimal numbers (`2`, `2.5`, `.5`), the operators `+ - * / ^`, parentheses, and white space
    anywhere between them. `^` is power: it binds most tightly and to the right, so 2^3^2 is 2^9. Unary minus binds less
    tightly than power and more tightly than multiplication, so -2^2 is -4 and 2*-3 is -6; it may be repeated, and the
    exponent of a power may have one: 2^-1 is 0.5. There is no unary plus.

    Raises:
        ExpressionError: The text is no expression. The position of a text that ends too early is its length. The message
            is `unexpected at N`.
        ZeroDivisionError: Something is divided by zero, or zero raised to a negative power.
    """
    raise NotImplementedError
