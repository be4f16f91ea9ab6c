"""Roman numerals."""

SYMBOLS = [(1000, "M"), (900, "CM"), (500, "D"), (100, "C"), (90, "XC"), (50, "L"), (10, "X"), (9, "IX"), (5, "V"), (1, "I")]
VALUES = {"M": 1000, "D": 500, "C": 100, "L": 50, "X": 10, "V": 5, "I": 1}


def to_roman(number):
    """Return the numeral of a number from 1 to 3999."""
    result = ""
    for value, symbol in SYMBOLS:
        while number >= value:
            result += symbol
            number -= value
    return result


def from_roman(text):
    """Return the number that a numeral stands for."""
    total = 0
    last = 0
    for letter in reversed(text.upper()):
        value = VALUES.get(letter, 0)
        total += value if value >= last else -value
        last = value
    return total
