"""Pairs of numbers."""


def count_pairs(numbers, total):
    """Return how many pairs of places i < j hold numbers that add up to `total`."""
    count = 0
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            if numbers[i] + numbers[j] == total:
                count += 1
    return count


def closest(numbers):
    """Return the smallest distance between two of the numbers, or None when there are fewer than two."""
    best = None
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            distance = abs(numbers[i] - numbers[j])
            if best is None or distance < best:
                best = distance
    return best
