"""Questions about words."""

from bisect import bisect_left, bisect_right


class WordIndex:
    """Answer questions about a list of words; a word may stand in it more than once."""

    def __init__(self, words):
        self._words = sorted(words)
        self._lengths = sorted(map(len, words))

    def count_prefix(self, prefix):
        """Return how many words of the list begin with `prefix`, each as often as it stands there."""
        low = bisect_left(self._words, prefix)
        high = bisect_right(self._words, prefix, lo=low, key=lambda word: word[: len(prefix)])
        return high - low

    def first_with_prefix(self, prefix):
        """Return the alphabetically first word that begins with `prefix`, or None."""
        at = bisect_left(self._words, prefix)
        found = at < len(self._words) and self._words[at].startswith(prefix)
        return self._words[at] if found else None

    def count_longer(self, length):
        """Return how many words are longer than `length`."""
        return len(self._lengths) - bisect_right(self._lengths, length)
