"""Pairs of numbers."""


def count_pairs(numbers, total):
    """Return how many pairs add up to `total`."""
    seen = set()
    count = 0
    for number in numbers:
        count += total - number in seen
        seen.add(number)
    return count


def closest(numbers):
    """Return the smallest distance between two of the numbers."""
    ordered = sorted(set(numbers))
    return min((b - a for a, b in zip(ordered, ordered[1:])), default=None)
