"""Pairs of numbers."""

from collections import Counter


def count_pairs(numbers, total):
    """Return how many pairs of places i < j hold numbers that add up to `total`."""
    seen = Counter()
    count = 0
    for number in numbers:
        count += seen[total - number]
        seen[number] += 1
    return count


def closest(numbers):
    """Return the smallest distance between two of the numbers, or None when there are fewer than two."""
    ordered = sorted(numbers)
    return min((b - a for a, b in zip(ordered, ordered[1:])), default=None)
