"""Pairs of numbers."""


def count_pairs(numbers, total):
    """Return how many pairs of places i < j hold numbers that add up to `total`."""
    return sum(numbers[at + 1 :].count(total - number) for at, number in enumerate(numbers))


def closest(numbers):
    """Return the smallest distance between two of the numbers, or None when there are fewer than two."""
    return min((abs(a - b) for at, a in enumerate(numbers) for b in numbers[at + 1 :]), default=None)
